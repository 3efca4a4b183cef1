/* SPDX-License-Identifier: Apache-2.0
 * Pre-tokenizer patterns, run by PCRE2: compiled once at open (just-in-time where the machine
 * allows it), then shared by all threads; what a match writes is in the caller's bn_split_run. The
 * patterns were written for Oniguruma, so the few escapes that mean something else there are
 * rewritten first. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "text/tokenizer/tokenizer_impl.h"

#include <stdlib.h>

enum {
    MATCH_HEAP_KIB = 256 * 1024, /* of the interpreter, where there is no JIT */
    MATCH_STEPS_BASE = 1 << 20,  /* steps of one match: this ...               */
    MATCH_STEPS_PER_BYTE = 64    /* ... and so many for every byte of the text */
};

struct bn_split {
    size_t n;
    pcre2_code *code[BN_VOCAB_MAX_PATTERNS];
    bool jit[BN_VOCAB_MAX_PATTERNS];
};

struct bn_split_run {
    const struct bn_split *split;
    pcre2_match_data *data;
    pcre2_match_context *context;
    bn_piece_fn fn;
    void *user;
};

/* ------------------------------------------------------------------ from Oniguruma to PCRE2 */

/* Contents of a class. \s: Unicode's White_Space (PCRE2 adds U+180E). \w: letters, marks, decimal
 * digits, connectors. \h: a hexadecimal digit (PCRE2: a horizontal space). */
#define CLASS_SPACE                                                                             \
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{" \
    "205f}\\x{3000}"
#define CLASS_WORD "\\p{L}\\p{M}\\p{Nd}\\p{Pc}"
#define CLASS_HEX  "0-9a-fA-F"

static const char *class_of(char escape)
{
    switch (escape) {
    case 's':
    case 'S': return CLASS_SPACE;
    case 'w':
    case 'W': return CLASS_WORD;
    case 'h':
    case 'H': return CLASS_HEX;
    default: return NULL;
    }
}

static bitnet_status rewrite(struct bn_buf *out, const char *p, bitnet_error *err)
{
    bool in_class = false;
    for (size_t i = 0; p[i]; i++) {
        if (p[i] == '\\' && p[i + 1]) {
            char c = p[++i];
            const char *content = class_of(c);
            bool negated = c == 'S' || c == 'W' || c == 'H';
            if (content && negated && in_class)
                return bn_fail(err, BITNET_E_UNSUPPORTED,
                               "pre-tokenizer pattern with \\%c inside a class: %.200s", c, p);
            if (!content) bn_buf_printf(out, "\\%c", c);
            else if (in_class) bn_buf_puts(out, content);
            else bn_buf_printf(out, "[%s%s]", negated ? "^" : "", content);
            continue;
        }
        if (in_class && (p[i] == '[' || (p[i] == '&' && p[i + 1] == '&')))
            return bn_fail(err, BITNET_E_UNSUPPORTED,
                           "pre-tokenizer pattern with a class inside a class: %.200s", p);
        bn_buf_putc(out, p[i]);
        if (in_class) {
            in_class = p[i] != ']';
        } else if (p[i] == '[') {
            in_class = true;
            if (p[i + 1] == '^') bn_buf_putc(out, p[++i]);
            if (p[i + 1] == ']')
                bn_buf_putc(out, p[++i]); /* a bracket in first place is a plain one */
        }
    }
    return out->failed ? bn_fail_nomem(err, out->len, "a pre-tokenizer pattern") : BITNET_OK;
}

static bitnet_status compile(pcre2_code **code, bool *jit, const char *pattern, bitnet_error *err)
{
    struct bn_buf text;
    bn_buf_init(&text, 64 * BN_VOCAB_MAX_PATTERN_BYTES);
    bitnet_status st = rewrite(&text, pattern, err);
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (st == BITNET_OK && !context) st = bn_fail_nomem(err, text.len, "a pre-tokenizer pattern");
    if (st == BITNET_OK) {
        int code_error;
        PCRE2_SIZE at;
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        /* MULTILINE: ^ and $ mean lines in Oniguruma */
        *code = pcre2_compile((PCRE2_SPTR)(text.data ? text.data : ""), text.len,
                              PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                              &code_error, &at, context);
        if (!*code) {
            char why[120];
            pcre2_get_error_message(code_error, (PCRE2_UCHAR *)why, sizeof why);
            st = bn_fail(err, BITNET_E_UNSUPPORTED,
                         "pre-tokenizer pattern not understood (%s): %.200s", why, pattern);
        } else {
            /* refused where memory may not be executable: then the interpreter does it */
            *jit = pcre2_jit_compile(*code, PCRE2_JIT_COMPLETE) == 0;
        }
    }
    pcre2_compile_context_free(context);
    bn_buf_free(&text);
    return st;
}

/* ------------------------------------------------------------------ open, close */

bitnet_status bn_split_open(struct bn_split **out, const char *const *patterns, size_t n,
                            bitnet_error *err)
{
    struct bn_split *s = bn_calloc(1, sizeof *s);
    *out = s;
    if (!s) return bn_fail_nomem(err, sizeof *s, "pre-tokenizer patterns");
    if (n > BN_VOCAB_MAX_PATTERNS)
        return bn_fail(err, BITNET_E_LIMIT, "%zu pre-tokenizer patterns", n);
    for (; s->n < n; s->n++) BN_TRY(compile(&s->code[s->n], &s->jit[s->n], patterns[s->n], err));
    return BITNET_OK;
}

void bn_split_close(struct bn_split *s)
{
    if (!s) return;
    for (size_t i = 0; i < BN_VOCAB_MAX_PATTERNS; i++) pcre2_code_free(s->code[i]);
    free(s);
}

bitnet_status bn_split_begin(struct bn_split_run **out, const struct bn_split *s, size_t text_bytes,
                             bitnet_error *err)
{
    struct bn_split_run *r = bn_calloc(1, sizeof *r);
    *out = r;
    if (!r) return bn_fail_nomem(err, sizeof *r, "matching patterns");
    r->split = s;
    r->data = pcre2_match_data_create(1, NULL);
    r->context = pcre2_match_context_create(NULL);
    if (!r->data || !r->context) return bn_fail_nomem(err, sizeof *r, "matching patterns");
    uint64_t steps = MATCH_STEPS_BASE + (uint64_t)text_bytes * MATCH_STEPS_PER_BYTE;
    uint32_t limit = steps > UINT32_MAX ? UINT32_MAX : (uint32_t)steps;
    pcre2_set_match_limit(r->context, limit);
    pcre2_set_depth_limit(r->context, limit);
    pcre2_set_heap_limit(r->context, MATCH_HEAP_KIB);
    return BITNET_OK;
}

void bn_split_end(struct bn_split_run *r)
{
    if (!r) return;
    pcre2_match_data_free(r->data);
    pcre2_match_context_free(r->context);
    free(r);
}

/* ------------------------------------------------------------------ splitting */

static bitnet_status split_level(struct bn_split_run *r, size_t level, const char *p, size_t n,
                                 bitnet_error *err);

static bitnet_status pass_on(struct bn_split_run *r, size_t level, const char *p, size_t n,
                             bitnet_error *err)
{
    if (n == 0) return BITNET_OK;
    if (level + 1 < r->split->n) return split_level(r, level + 1, p, n, err);
    return r->fn(r->user, p, n, err);
}

static int match(struct bn_split_run *r, size_t level, const char *p, size_t n, size_t from)
{
    const pcre2_code *code = r->split->code[level];
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (r->split->jit[level])
        rc = pcre2_jit_match(code, (PCRE2_SPTR)p, n, from, PCRE2_NO_UTF_CHECK, r->data, r->context);
    /* the compiled code has little stack; the interpreter takes the heap */
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(code, (PCRE2_SPTR)p, n, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, r->data,
                         r->context);
    return rc;
}

static bitnet_status split_level(struct bn_split_run *r, size_t level, const char *p, size_t n,
                                 bitnet_error *err)
{
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(r->data);
    size_t done = 0, from = 0; /* pieces up to done are passed on */
    while (from < n) {
        int rc = match(r, level, p, n, from);
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0)
            return bn_fail(
                err, rc == PCRE2_ERROR_NOMEMORY ? BITNET_E_NOMEM : BITNET_E_LIMIT,
                "pre-tokenizer pattern %zu gave up on %zu bytes of text (PCRE2 error %d)", level, n,
                rc);
        size_t start = span[0], end = span[1]; /* deeper levels write over span */
        if (start < done || end < start)
            break; /* \K can move the start back; such a match splits nothing */
        BN_TRY(pass_on(r, level, p + done, start - done, err));
        BN_TRY(pass_on(r, level, p + start, end - start, err));
        done = from = end;
        if (end == start) { /* an empty match only cuts: go on behind the next character */
            from++;
            while (from < n && ((unsigned char)p[from] & 0xc0) == 0x80) from++;
        }
    }
    return pass_on(r, level, p + done, n - done, err);
}

bitnet_status bn_split_text(struct bn_split_run *r, const char *p, size_t n, bn_piece_fn fn,
                            void *user, bitnet_error *err)
{
    if (n == 0) return BITNET_OK;
    r->fn = fn;
    r->user = user;
    return split_level(r, 0, p, n, err);
}
