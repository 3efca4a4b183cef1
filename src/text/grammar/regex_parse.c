/* SPDX-License-Identifier: Apache-2.0
 * Regular expressions as texts: what ECMA-262 has with its flag u, back references and looking behind
 * apart, and \A, \Z and (?P<name>...) of other dialects. Groups catch nothing here, and a lazy
 * repetition is like any other. */
#include "text/grammar/regex_impl.h"

#include "base/utf8.h"

struct parser {
    struct bn_builder *b;
    const char *text;
    size_t n, at;
    uint32_t nesting;
    const char *what; /* is not understood; NULL: all is well so far */
    size_t where;
};

static const struct bn_re *refuse(struct parser *p, size_t at, const char *what)
{
    if (!p->what) {
        p->what = what;
        p->where = at;
    }
    return NULL;
}

static bool good(const struct parser *p) { return !p->what && p->b->status == BITNET_OK; }
static bool more(const struct parser *p) { return p->at < p->n; }
static bool next_is(const struct parser *p, char c) { return more(p) && p->text[p->at] == c; }

static bool take(struct parser *p, char c)
{
    if (!next_is(p, c)) return false;
    p->at++;
    return true;
}

static bool take_text(struct parser *p, const char *s)
{
    size_t n = strlen(s);
    if (p->n - p->at < n || memcmp(p->text + p->at, s, n) != 0) return false;
    p->at += n;
    return true;
}

/* ------------------------------------------------------------------ characters */

static const struct bn_range digits[] = {{'0', '9'}};
static const struct bn_range letters[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const struct bn_range spaces[] = {
    {'\t', '\r'},     {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
    {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};

static void add_ranges(struct parser *p, struct bn_ranges *r, const struct bn_range *v, size_t n,
                       bool inverted)
{
    struct bn_ranges set = {0};
    for (size_t i = 0; i < n; i++) bn_ranges_add(p->b, &set, v[i].lo, v[i].hi);
    if (inverted) bn_ranges_invert(p->b, &set);
    for (size_t i = 0; i < set.n; i++) bn_ranges_add(p->b, r, set.v[i].lo, set.v[i].hi);
    bn_ranges_free(&set);
}

/* \p{...} behind its 'p' */
static void add_property(struct parser *p, struct bn_ranges *r, bool inverted)
{
    size_t start = p->at;
    struct bn_ranges set = {0};
    if (!take(p, '{')) refuse(p, start, "'{' is missing behind \\p");
    const char *name = p->text + p->at, *end = memchr(name, '}', p->n - p->at);
    if (good(p) && (!end || !bn_re_property(p->b, name, (size_t)(end - name), &set)))
        refuse(p, start, "no such Unicode property is known");
    if (good(p)) p->at += (size_t)(end - name) + 1;
    if (good(p)) add_ranges(p, r, set.v, set.n, inverted);
    bn_ranges_free(&set);
}

/* The sets \d \w \s \p and their opposites. */
static bool add_set(struct parser *p, char name, struct bn_ranges *r)
{
    switch (name) {
    case 'd':
    case 'D': add_ranges(p, r, digits, BN_ARRAY_LEN(digits), name == 'D'); return true;
    case 'w':
    case 'W': add_ranges(p, r, letters, BN_ARRAY_LEN(letters), name == 'W'); return true;
    case 's':
    case 'S': add_ranges(p, r, spaces, BN_ARRAY_LEN(spaces), name == 'S'); return true;
    case 'p':
    case 'P': add_property(p, r, name == 'P'); return true;
    default: return false;
    }
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static uint32_t take_hex(struct parser *p, size_t n_digits)
{
    uint32_t value = 0;
    for (size_t i = 0; i < n_digits; i++, p->at++) {
        int d = more(p) ? hex_digit(p->text[p->at]) : -1;
        if (d < 0) return refuse(p, p->at, "a hexadecimal digit is missing"), 0;
        value = 16 * value + (uint32_t)d;
    }
    return value;
}

/* Behind \u: four digits, two such as a pair, or {digits}. */
static uint32_t take_unicode(struct parser *p)
{
    size_t start = p->at;
    if (take(p, '{')) {
        size_t n = 0;
        while (p->at + n < p->n && p->text[p->at + n] != '}') n++;
        uint32_t c = n > 0 && n <= 6 ? take_hex(p, n) : UINT32_MAX;
        if (c > 0x10ffff || !take(p, '}')) refuse(p, start, "no character");
        return c;
    }
    uint32_t c = take_hex(p, 4);
    if (c >= 0xd800 && c < 0xdc00 && take_text(p, "\\u")) {
        uint32_t low = take_hex(p, 4);
        if (low < 0xdc00 || low > 0xdfff) refuse(p, start, "half a character");
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    return c;
}

/* Behind '\': a set goes to r and gives false; a character goes to *c. */
static bool take_escape(struct parser *p, struct bn_ranges *r, uint32_t *c)
{
    static const char names[] = "n\nr\rt\tf\fv\v"; /* name, character, ... */
    size_t at = p->at;
    char e = more(p) ? p->text[p->at++] : '\0';
    if (add_set(p, e, r)) return false;
    *c = (uint8_t)e;
    if (e == 'x') *c = take_hex(p, 2);
    else if (e == 'u') *c = take_unicode(p);
    else if (e == 'c' && more(p)) *c = (uint8_t)p->text[p->at++] % 32;
    else if (e == '0' && !(more(p) && p->text[p->at] >= '0' && p->text[p->at] <= '9')) *c = 0;
    else if ((e >= '0' && e <= '9') || e == 'k')
        return refuse(p, at, "a back reference cannot be enforced") != NULL;
    else if ((e >= 'a' && e <= 'z') || (e >= 'A' && e <= 'Z') || e == '\0' || (uint8_t)e >= 0x80) {
        size_t i = 0;
        while (i < sizeof names - 1 && names[i] != e) i += 2;
        if (i >= sizeof names - 1) return refuse(p, at, "this escape is not supported") != NULL;
        *c = (uint8_t)names[i + 1];
    }
    return good(p);
}

/* A character as it is, or behind '\' as above. */
static bool take_char(struct parser *p, struct bn_ranges *r, uint32_t *c)
{
    if (take(p, '\\')) return take_escape(p, r, c);
    size_t n = bn_utf8_decode(p->text + p->at, p->n - p->at, c);
    if (n == 0) return refuse(p, p->at, "not UTF-8") != NULL;
    p->at += n;
    return true;
}

static const struct bn_re *class(struct parser *p)
{
    size_t start = p->at++;
    struct bn_ranges r = {0};
    bool inverted = take(p, '^');
    while (good(p) && !next_is(p, ']')) {
        uint32_t lo, hi;
        if (!more(p)) {
            refuse(p, start, "'[' is not closed");
        } else if (take_text(p, "\\b")) {
            bn_ranges_add(p->b, &r, '\b', '\b');
        } else if (take_char(p, &r, &lo)) {
            hi = lo;
            if (next_is(p, '-') && p->at + 1 < p->n && p->text[p->at + 1] != ']') {
                p->at++;
                if (!take_char(p, &r, &hi)) { /* [a-\d]: three things */
                    bn_ranges_add(p->b, &r, '-', '-');
                    hi = lo;
                }
            }
            if (good(p) && hi < lo) refuse(p, p->at, "a range that ends before it begins");
            bn_ranges_add(p->b, &r, lo, hi);
        }
    }
    if (good(p)) p->at++;
    if (inverted) bn_ranges_invert(p->b, &r);
    return bn_re_set(p->b, &r);
}

static const struct bn_re *dot(struct parser *p)
{
    struct bn_ranges r = {0};
    bn_ranges_add(p->b, &r, '\n', '\n');
    bn_ranges_add(p->b, &r, '\r', '\r');
    bn_ranges_add(p->b, &r, 0x2028, 0x2029);
    bn_ranges_invert(p->b, &r);
    return bn_re_set(p->b, &r);
}

static const struct bn_re *one_char(struct parser *p)
{
    struct bn_ranges r = {0};
    uint32_t c;
    if (take_char(p, &r, &c)) bn_ranges_add(p->b, &r, c, c);
    return bn_re_set(p->b, &r);
}

/* ------------------------------------------------------------------ structure */

static bool take_number(struct parser *p, uint32_t *value)
{
    size_t start = p->at;
    *value = 0;
    while (more(p) && p->text[p->at] >= '0' && p->text[p->at] <= '9' &&
           *value <= BN_GRAMMAR_MAX_REPEAT)
        *value = 10 * *value + (uint32_t)(p->text[p->at++] - '0');
    if (*value > BN_GRAMMAR_MAX_REPEAT) refuse(p, start, "more than 16384 repetitions");
    return p->at > start;
}

/* {n}, {n,} or {n,m}; false: it is no repetition, and nothing was read. */
static bool take_bounds(struct parser *p, uint32_t *min, uint32_t *max)
{
    size_t start = p->at++;
    bool ok = take_number(p, min);
    *max = *min;
    if (ok && take(p, ',') && !take_number(p, max)) *max = BN_GRAMMAR_UNLIMITED;
    if (!ok || !take(p, '}')) {
        p->at = start;
        return false;
    }
    if (*max < *min) refuse(p, start, "'{' with two numbers that are out of order");
    return true;
}

static const struct bn_re *repeated(struct parser *p, const struct bn_re *e)
{
    uint32_t min = 0, max = BN_GRAMMAR_UNLIMITED;
    size_t at = p->at;
    if (take(p, '?')) max = 1;
    else if (take(p, '+')) min = 1;
    else if (next_is(p, '{')) {
        if (!take_bounds(p, &min, &max)) return e;
    } else if (!take(p, '*')) {
        return e;
    }
    take(p, '?'); /* as few as possible: of the same strings */
    if (next_is(p, '*') || next_is(p, '+')) refuse(p, at, "a repetition of a repetition");
    return good(p) ? bn_re_repeat(p->b, e, min, max) : NULL;
}

static const struct bn_re *alternatives(struct parser *p);

static const struct bn_re *group(struct parser *p)
{
    size_t start = p->at++;
    bool look = false;
    enum bn_re_kind kind = BN_RE_AHEAD;
    if (take_text(p, "?=")) look = true;
    else if (take_text(p, "?!")) look = true, kind = BN_RE_NOT_AHEAD;
    else if (take_text(p, "?<=") || take_text(p, "?<!"))
        return refuse(p, start, "looking behind cannot be enforced");
    else if (take_text(p, "?<") || take_text(p, "?P<"))
        while (more(p) && p->text[p->at++] != '>') continue;
    else if (!take_text(p, "?:") && next_is(p, '?'))
        return refuse(p, start, "this group is not supported");
    if (++p->nesting > BN_GRAMMAR_MAX_NESTING / 3) return refuse(p, start, "groups too deep");
    const struct bn_re *e = alternatives(p);
    p->nesting--;
    if (!take(p, ')')) return refuse(p, start, "'(' is not closed");
    return look && good(p) ? bn_re_look(p->b, kind, e) : e;
}

static const struct bn_re *term(struct parser *p)
{
    struct bn_builder *b = p->b;
    if (take(p, '^') || take_text(p, "\\A")) return bn_re_leaf(b, BN_RE_START);
    if (take(p, '$') || take_text(p, "\\Z") || take_text(p, "\\z")) return bn_re_leaf(b, BN_RE_END);
    if (take_text(p, "\\b")) return bn_re_leaf(b, BN_RE_EDGE);
    if (take_text(p, "\\B")) return bn_re_leaf(b, BN_RE_NOT_EDGE);
    if (next_is(p, '[')) return class(p);
    if (next_is(p, '(')) return group(p);
    if (take(p, '.')) return dot(p);
    if (strchr("*+?", p->text[p->at])) return refuse(p, p->at, "nothing to repeat");
    return one_char(p);
}

static const struct bn_re *sequence(struct parser *p)
{
    struct bn_res parts = {0};
    while (good(p) && more(p) && !next_is(p, '|') && !next_is(p, ')')) {
        const struct bn_re *e = term(p);
        if (good(p)) e = repeated(p, e);
        if (good(p)) bn_res_add(p->b, &parts, e);
    }
    return bn_res_take(p->b, &parts, BN_RE_SEQ);
}

static const struct bn_re *alternatives(struct parser *p)
{
    struct bn_res alts = {0};
    do {
        const struct bn_re *e = sequence(p);
        if (good(p)) bn_res_add(p->b, &alts, e);
    } while (good(p) && take(p, '|'));
    if (!good(p)) alts.n = 0;
    return bn_res_take(p->b, &alts, BN_RE_ALT);
}

const struct bn_re *bn_re_parse(struct bn_builder *b, const char *text, size_t n, const char **what,
                                size_t *at)
{
    struct parser p = {.b = b, .text = text, .n = n};
    const struct bn_re *e = alternatives(&p);
    if (good(&p) && more(&p)) refuse(&p, p.at, "')' without '('");
    *what = p.what;
    *at = p.where;
    return good(&p) ? e : NULL;
}

const struct bn_re *bn_re_known(struct bn_builder *b, const char *text)
{
    const char *what;
    size_t at;
    const struct bn_re *re = bn_re_parse(b, text, strlen(text), &what, &at);
    if (what && b->status == BITNET_OK)
        b->status = bn_fail(b->err, BITNET_E_STATE, "'%.40s', byte %zu: %s", text, at, what);
    return re;
}
