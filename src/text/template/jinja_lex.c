/* SPDX-License-Identifier: Apache-2.0
 * Template source to tokens. Owns white-space control: the "-" and "+" signs, and the two settings
 * that Hugging Face uses for every chat template (trim_blocks: a line end after a block tag is
 * dropped; lstrip_blocks: white space between the start of a line and a block tag is dropped).
 * Text tokens leave here exactly as they are to be printed. Strings are unescaped, numbers are
 * numbers. */
#include "text/template/jinja.h"

#include "base/utf8.h"
#include <stdlib.h>

struct lexer {
    struct bn_arena *arena;
    bitnet_error *err;
    const char *s; /* normalised source */
    size_t n, pos;
    uint32_t line;
    bool line_start; /* what was read last ended in a line end */
    struct bn_jt *tokens;
    size_t n_tokens, room;
};

static bitnet_status add(struct lexer *l, uint8_t kind, uint8_t op, struct bn_jv val)
{
    if (!bn_grow((void **)&l->tokens, &l->room, l->n_tokens + 1, sizeof *l->tokens))
        return bn_fail_nomem(l->err, (l->n_tokens + 1) * sizeof *l->tokens, "template tokens");
    l->tokens[l->n_tokens++] = (struct bn_jt){.kind = kind, .op = op, .line = l->line, .val = val};
    return BITNET_OK;
}

static void skip_to(struct lexer *l, size_t pos)
{
    for (; l->pos < pos; l->pos++) l->line += l->s[l->pos] == '\n';
    if (pos > 0) l->line_start = l->s[pos - 1] == '\n';
}

/* Position after the white space that starts at `pos`. */
static size_t after_space(const struct lexer *l, size_t pos)
{
    while (pos < l->n) {
        uint32_t cp;
        size_t len = bn_text_char(l->s + pos, l->n - pos, &cp);
        if (!bn_text_is_space(cp)) break;
        pos += len;
    }
    return pos;
}

/* The text before a tag, with what the tag's sign takes away from its end. */
static bitnet_status add_text(struct lexer *l, size_t end, char sign, bool is_block)
{
    const char *s = l->s + l->pos;
    size_t n = end - l->pos;
    if (sign == '-') {
        bn_text_strip(&s, &n, NULL, 0, 2);
    } else if (sign != '+' && is_block) {
        size_t bol = n;
        while (bol > 0 && s[bol - 1] != '\n') bol--;
        if ((bol > 0 || l->line_start) && after_space(l, l->pos + bol) >= end) n = bol;
    }
    bitnet_status st = n ? add(l, BN_JT_TEXT, 0, bn_jv_str(s, n)) : BITNET_OK;
    skip_to(l, end);
    return st;
}

static char sign_at(const struct lexer *l, size_t pos)
{
    return pos < l->n && (l->s[pos] == '-' || l->s[pos] == '+') ? l->s[pos] : 0;
}

static bool starts(const struct lexer *l, size_t pos, const char *what)
{
    size_t n = strlen(what);
    return l->n - pos >= n && memcmp(l->s + pos, what, n) == 0;
}

/* Is the closing sign of a tag at `pos`? Then what follows it and the white space it takes. */
static bool closes(const struct lexer *l, size_t pos, const char *end, bool is_block, size_t *after)
{
    char sign = sign_at(l, pos);
    if (sign == '+' && !is_block) return false;
    if (!starts(l, pos + (sign != 0), end)) return false;
    pos += (sign != 0) + 2;
    if (sign == '-') pos = after_space(l, pos);
    else if (sign == 0 && is_block && pos < l->n && l->s[pos] == '\n') pos++;
    *after = pos;
    return true;
}

/* {% raw %} at the tag at l->pos? Everything up to {% endraw %} is text then. */
static bitnet_status lex_raw(struct lexer *l, bool *was_raw)
{
    size_t p = after_space(l, l->pos + 2 + (sign_at(l, l->pos + 2) != 0)), after;
    *was_raw = false;
    if (!starts(l, p, "raw")) return BITNET_OK;
    p = after_space(l, p + 3);
    if (starts(l, p, "-%}")) p = after_space(l, p + 3);
    else if (starts(l, p, "%}")) p += 2;
    else return BITNET_OK;
    uint32_t line = l->line;
    *was_raw = true;
    skip_to(l, p);
    for (;; p++) {
        const char *tag = bn_text_find(l->s + p, l->n - p, "{%", 2);
        if (!tag)
            return bn_fail(l->err, BITNET_E_FORMAT, "template line %u: 'raw' has no 'endraw'",
                           line);
        p = (size_t)(tag - l->s);
        char sign = sign_at(l, p + 2);
        size_t q = after_space(l, p + 2 + (sign != 0));
        if (!starts(l, q, "endraw")) continue;
        q = after_space(l, q + 6);
        if (!closes(l, q, "%}", true, &after)) continue;
        BN_TRY(add_text(l, p, sign, true));
        skip_to(l, after);
        return BITNET_OK;
    }
}

static bitnet_status lex_comment(struct lexer *l)
{
    size_t begin = l->pos + 2 + (sign_at(l, l->pos + 2) != 0), after;
    const char *end = begin <= l->n ? bn_text_find(l->s + begin, l->n - begin, "#}", 2) : NULL;
    if (!end)
        return bn_fail(l->err, BITNET_E_FORMAT, "template line %u: comment is not closed", l->line);
    size_t p = (size_t)(end - l->s);
    if (p > begin && sign_at(l, p - 1)) p--;
    closes(l, p, "#}", true, &after);
    skip_to(l, after);
    return BITNET_OK;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One escape of a string, s[0] being the backslash. Returns the bytes read, 0 if it cannot be
 * understood; appends to out. Unknown escapes stay as they are, as in Python. */
static size_t unescape(const char *s, size_t n, char *out, size_t *n_out)
{
    static const char from[] = "ntr\\'\"abfv", to[] = "\n\t\r\\'\"\a\b\f\v";
    char c = s[1];
    if (c == '\n') return 2;
    const char *at = memchr(from, c, sizeof from - 1);
    if (at) {
        out[(*n_out)++] = to[at - from];
        return 2;
    }
    uint32_t cp = 0;
    size_t used = 1;
    if (c >= '0' && c <= '7') {
        while (used < 4 && used < n && s[used] >= '0' && s[used] <= '7')
            cp = cp * 8 + (uint32_t)(s[used++] - '0');
    } else if (c == 'x' || c == 'u' || c == 'U') {
        size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        if (n < 2 + digits) return 0;
        for (used = 2; used < 2 + digits; used++) {
            int d = hex_digit(s[used]);
            if (d < 0 || cp > 0x10ffff) return 0;
            cp = cp << 4 | (uint32_t)d;
        }
    } else if (c == 'N') {
        return 0;
    } else {
        out[(*n_out)++] = '\\';
        return 1;
    }
    size_t len = bn_utf8_encode(out + *n_out, cp);
    *n_out += len;
    return len ? used : 0;
}

static bitnet_status lex_string(struct lexer *l)
{
    char quote = l->s[l->pos];
    size_t end = l->pos + 1, escapes = 0;
    while (end < l->n && l->s[end] != quote) {
        if (l->s[end] == '\\') {
            escapes++;
            end++;
        }
        end++;
    }
    if (end >= l->n)
        return bn_fail(l->err, BITNET_E_FORMAT, "template line %u: string is not closed", l->line);
    const char *s = l->s + l->pos + 1;
    size_t n = end - l->pos - 1;
    if (escapes) { /* an escape never gets longer by being resolved */
        char *out = bn_arena_alloc(l->arena, n + 4);
        size_t n_out = 0;
        if (!out) return bn_fail_nomem(l->err, n, "a template string");
        for (size_t i = 0; i < n;) {
            size_t used = 1;
            if (s[i] != '\\') out[n_out++] = s[i];
            else if ((used = unescape(s + i, n - i, out, &n_out)) == 0)
                return bn_fail(l->err, BITNET_E_FORMAT,
                               "template line %u: escape '%.6s' in a string is not valid", l->line,
                               s + i);
            i += used;
        }
        s = out;
        n = n_out;
    }
    BN_TRY(add(l, BN_JT_CONST, 0, bn_jv_str(s, n)));
    skip_to(l, end + 1);
    return BITNET_OK;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_name_char(char c)
{
    unsigned char u = (unsigned char)c;
    return is_digit(c) || c == '_' || (u | 0x20u) - 'a' < 26u || u >= 0x80;
}

static size_t digits_from(const struct lexer *l, size_t p)
{
    while (p < l->n &&
           (is_digit(l->s[p]) || (l->s[p] == '_' && p + 1 < l->n && is_digit(l->s[p + 1]))))
        p++;
    return p;
}

static bitnet_status lex_number(struct lexer *l)
{
    enum { MAX_DIGITS = 64 };
    const char *s = l->s;
    size_t p = l->pos;
    bool real = false;
    const struct bn_jt *last = l->n_tokens ? &l->tokens[l->n_tokens - 1] : NULL;
    bool after_dot = last && last->kind == BN_JT_OP && last->op == '.';
    char kind = s[p] == '0' && p + 1 < l->n ? (char)(s[p + 1] | 0x20) : 0;
    int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
    if (base != 10) {
        p += 2;
        while (p < l->n && is_name_char(s[p])) p++;
    } else {
        p = digits_from(l, p);
        if (!after_dot && p + 1 < l->n && s[p] == '.' && is_digit(s[p + 1])) {
            real = true;
            p = digits_from(l, p + 1);
        }
        size_t e = p + 1;
        if (!after_dot && p < l->n && (s[p] | 0x20) == 'e') {
            if (e < l->n && (s[e] == '+' || s[e] == '-')) e++;
            if (e < l->n && is_digit(s[e])) {
                real = true;
                p = digits_from(l, e);
            }
        }
    }
    char text[MAX_DIGITS];
    size_t n = 0;
    for (size_t i = l->pos + (base != 10 ? 2 : 0); i < p && n < MAX_DIGITS; i++)
        if (s[i] != '_') text[n++] = s[i];
    struct bn_jv v = {.kind = real ? BN_JV_FLOAT : BN_JV_INT};
    if (n == MAX_DIGITS ||
        !(real ? bn_text_float(text, n, &v.f) : bn_text_int(text, n, base, &v.i)))
        return bn_fail(l->err, BITNET_E_LIMIT,
                       "template line %u: number '%.*s' is not valid or too large", l->line,
                       (int)bn_min_size(p - l->pos, 40), s + l->pos);
    BN_TRY(add(l, BN_JT_CONST, 0, v));
    skip_to(l, p);
    return BITNET_OK;
}

static bitnet_status lex_operator(struct lexer *l, size_t *open)
{
    static const struct {
        char s[3];
        uint8_t op;
    } two[] = {{"==", BN_OP_EQ}, {"!=", BN_OP_NE},  {"<=", BN_OP_LE},
               {">=", BN_OP_GE}, {"**", BN_OP_POW}, {"//", BN_OP_FLOORDIV}};
    for (size_t i = 0; i < BN_ARRAY_LEN(two); i++) {
        if (!starts(l, l->pos, two[i].s)) continue;
        BN_TRY(add(l, BN_JT_OP, two[i].op, bn_jv_kind_only(BN_JV_ABSENT)));
        skip_to(l, l->pos + 2);
        return BITNET_OK;
    }
    char c = l->s[l->pos];
    if (!c || !strchr("+-*/%~[](){}<>=.:|,", c))
        return bn_fail(l->err, BITNET_E_FORMAT, "template line %u: unexpected character '%c'",
                       l->line, c);
    if (strchr("([{", c)) ++*open;
    if (strchr(")]}", c) && *open) --*open;
    BN_TRY(add(l, BN_JT_OP, (uint8_t)c, bn_jv_kind_only(BN_JV_ABSENT)));
    skip_to(l, l->pos + 1);
    return BITNET_OK;
}

/* From the "{{" or "{%" at l->pos to the end of the tag. A closing sign inside brackets is none:
 * that lets a dictionary end in "}}". */
static bitnet_status lex_tag(struct lexer *l, bool is_block)
{
    const char *end = is_block ? "%}" : "}}";
    uint32_t line = l->line;
    size_t open = 0, after;
    BN_TRY(
        add(l, is_block ? BN_JT_BLOCK_BEGIN : BN_JT_VAR_BEGIN, 0, bn_jv_kind_only(BN_JV_ABSENT)));
    skip_to(l, l->pos + 2 + (sign_at(l, l->pos + 2) != 0));
    for (;;) {
        skip_to(l, after_space(l, l->pos));
        if (l->pos >= l->n)
            return bn_fail(l->err, BITNET_E_FORMAT, "template line %u: tag is not closed by '%s'",
                           line, end);
        char c = l->s[l->pos];
        if (open == 0 && closes(l, l->pos, end, is_block, &after)) {
            BN_TRY(add(l, is_block ? BN_JT_BLOCK_END : BN_JT_VAR_END, 0,
                       bn_jv_kind_only(BN_JV_ABSENT)));
            skip_to(l, after);
            return BITNET_OK;
        }
        if (c == '\'' || c == '"') {
            BN_TRY(lex_string(l));
        } else if (is_digit(c)) {
            BN_TRY(lex_number(l));
        } else if (is_name_char(c)) {
            size_t p = l->pos;
            while (p < l->n && is_name_char(l->s[p])) p++;
            BN_TRY(add(l, BN_JT_NAME, 0, bn_jv_str(l->s + l->pos, p - l->pos)));
            skip_to(l, p);
        } else {
            BN_TRY(lex_operator(l, &open));
        }
    }
}

/* Line ends become "\n"; one at the very end is dropped, as Jinja does. */
static bitnet_status normalise(struct lexer *l, const char *source, size_t n)
{
    char *s = bn_arena_alloc(l->arena, n + 1);
    if (!s) return bn_fail_nomem(l->err, n, "the template source");
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (source[i] == '\r') {
            s[k++] = '\n';
            i += i + 1 < n && source[i + 1] == '\n';
        } else {
            s[k++] = source[i];
        }
    }
    if (k && s[k - 1] == '\n') k--;
    l->s = s;
    l->n = k;
    return BITNET_OK;
}

static bitnet_status lex_all(struct lexer *l)
{
    while (l->pos < l->n) {
        size_t tag = l->pos;
        while (tag < l->n && !(l->s[tag] == '{' && tag + 1 < l->n && strchr("{%#", l->s[tag + 1]) &&
                               l->s[tag + 1]))
            tag++;
        bool is_block = tag < l->n && l->s[tag + 1] != '{', raw = false;
        BN_TRY(add_text(l, tag, tag < l->n ? sign_at(l, tag + 2) : '+', is_block));
        if (tag >= l->n) break;
        if (l->s[tag + 1] == '#') {
            BN_TRY(lex_comment(l));
            continue;
        }
        if (is_block) BN_TRY(lex_raw(l, &raw));
        if (!raw) BN_TRY(lex_tag(l, is_block));
    }
    return add(l, BN_JT_EOF, 0, bn_jv_kind_only(BN_JV_ABSENT));
}

bitnet_status bn_jinja_lex(struct bn_arena *arena, const char *source, size_t n,
                           struct bn_jt **tokens, size_t *n_tokens, bitnet_error *err)
{
    struct lexer l = {.arena = arena, .err = err, .line = 1, .line_start = true};
    bitnet_status st = normalise(&l, source, n);
    if (st == BITNET_OK) st = lex_all(&l);
    if (st != BITNET_OK) {
        free(l.tokens);
        return st;
    }
    *tokens = l.tokens;
    *n_tokens = l.n_tokens;
    return BITNET_OK;
}
