/* SPDX-License-Identifier: Apache-2.0
 * The tokenizer as a whole: built once from a vocabulary, then read by any number of threads. A
 * call of bn_encode cuts the text at special tokens, normalizes and splits each segment, and merges
 * each piece; all it writes is on its own stack and heap. */
#include "text/tokenizer/tokenizer_impl.h"

#include "base/utf8.h"
#include <stdlib.h>

/* ------------------------------------------------------------------ open */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

/* "<0x0A>" -> 10, otherwise -1 */
static int byte_of_token(const struct bn_str *s)
{
    if (s->n != 6 || memcmp(s->s, "<0x", 3) != 0 || s->s[5] != '>') return -1;
    int hi = hex_digit(s->s[3]), lo = hex_digit(s->s[4]);
    return hi < 0 || lo < 0 ? -1 : hi * 16 + lo;
}

static size_t unescape_spaces(char *out, const struct bn_str *s)
{
    size_t k = 0;
    for (size_t i = 0; i < s->n;) {
        if (s->n - i >= BN_SPACE_MARK_BYTES &&
            memcmp(s->s + i, BN_SPACE_MARK, BN_SPACE_MARK_BYTES) == 0) {
            out[k++] = ' ';
            i += BN_SPACE_MARK_BYTES;
        } else {
            out[k++] = s->s[i++];
        }
    }
    return k;
}

/* What token i stands for. Special tokens stand for their own text. */
static bitnet_status token_bytes(struct bn_tokenizer *t, uint32_t i, bitnet_error *err)
{
    const struct bn_vocab *v = &t->vocab;
    const struct bn_str *s = &v->tokens[i];
    char text[BN_VOCAB_MAX_TOKEN_BYTES];
    size_t n = 0;
    int byte = v->types[i] == BN_TOKEN_BYTE ? byte_of_token(s) : -1;
    if (byte >= 0) {
        text[n++] = (char)byte;
        if (v->model == BN_VOCAB_SPM && t->byte_token[byte] < 0) t->byte_token[byte] = (int32_t)i;
    } else if (v->types[i] == BN_TOKEN_UNUSED) {
        return BITNET_OK;
    } else if (v->types[i] != BN_TOKEN_NORMAL) {
        t->bytes[i] = *s;
        return BITNET_OK;
    } else if (v->model == BN_VOCAB_SPM) {
        n = unescape_spaces(text, s);
    } else if (!bn_byte_decode(text, &n, s->s, s->n)) {
        t->bytes[i] = *s;
        return BITNET_OK;
    }
    const char *copy = bn_arena_strn(&t->arena, text, n);
    if (!copy) return bn_fail_nomem(err, n, "tokens");
    t->bytes[i] = (struct bn_str){copy, (uint32_t)n};
    if (v->model == BN_VOCAB_BPE && n == 1 && t->byte_token[(uint8_t)text[0]] < 0)
        t->byte_token[(uint8_t)text[0]] = (int32_t)i;
    return BITNET_OK;
}

/* bytes (BPE) or text with space marks (SPM) -> token, for tokens that plain text can give: never
 * control tokens */
static bitnet_status build_symbols(struct bn_tokenizer *t, bitnet_error *err)
{
    const struct bn_vocab *v = &t->vocab;
    if (!bn_map_init(&t->symbols, v->n_tokens))
        return bn_fail_nomem(err, v->n_tokens, "the map of tokens");
    static const uint8_t rounds[] = {BN_TOKEN_NORMAL,
                                     BN_TOKEN_USER}; /* of equal texts the normal token counts */
    for (size_t r = 0; r < BN_ARRAY_LEN(rounds); r++)
        for (uint32_t i = 0; i < v->n_tokens; i++) {
            const struct bn_str *s = v->model == BN_VOCAB_BPE ? &t->bytes[i] : &v->tokens[i];
            uint32_t id = i;
            if (v->types[i] != rounds[r] || s->n == 0) continue;
            if (!bn_map_add(&t->symbols, s->s, s->n, &id, NULL))
                return bn_fail_nomem(err, v->n_tokens, "the map of tokens");
        }
    return BITNET_OK;
}

static bitnet_status build_bytes(struct bn_tokenizer *t, bitnet_error *err)
{
    const struct bn_vocab *v = &t->vocab;
    t->bytes = bn_arena_alloc(&t->arena, v->n_tokens * sizeof *t->bytes);
    if (!t->bytes) return bn_fail_nomem(err, v->n_tokens * sizeof *t->bytes, "tokens");
    for (size_t c = 0; c < 256; c++) t->byte_token[c] = -1;
    for (uint32_t i = 0; i < v->n_tokens; i++) {
        BN_TRY(token_bytes(t, i, err));
        if (t->bytes[i].n > t->max_token_bytes) t->max_token_bytes = t->bytes[i].n;
    }
    return BITNET_OK;
}

static void build_first_symbols(struct bn_tokenizer *t)
{
    for (unsigned c = 0; c < 256; c++) {
        char byte = (char)c;
        if (!bn_map_get(&t->symbols, &byte, 1, &t->first_symbol[c]))
            t->first_symbol[c] = BN_NO_SYMBOL;
    }
}

static bitnet_status open_patterns(struct bn_tokenizer *t, bitnet_error *err)
{
    struct bn_vocab *v = &t->vocab;
    if (v->n_patterns > 0) return bn_split_open(&t->split, v->patterns, v->n_patterns, err);
    if (v->model == BN_VOCAB_SPM) return BITNET_OK;
    if (!v->pre) v->pre = bn_pre_guess(v);
    if (!v->pre)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "the byte-level vocabulary of %u tokens names no pre-tokenizer",
                       v->n_tokens);
    const char *const *p = bn_pre_patterns(v->pre, &v->ignore_merges);
    if (!p) return bn_fail(err, BITNET_E_UNSUPPORTED, "unknown pre-tokenizer '%.80s'", v->pre);
    while (p[v->n_patterns]) {
        v->patterns[v->n_patterns] = p[v->n_patterns];
        v->n_patterns++;
    }
    return bn_split_open(&t->split, v->patterns, v->n_patterns, err);
}

bitnet_status bn_tokenizer_open(struct bn_tokenizer **out, struct bn_vocab *v, bitnet_error *err)
{
    *out = NULL;
    struct bn_tokenizer *t = bn_calloc(1, sizeof *t);
    if (!t) {
        bn_vocab_free(v);
        return bn_fail_nomem(err, sizeof *t, "a tokenizer");
    }
    t->vocab = *v;
    bn_vocab_init(v);
    bitnet_status st = bn_vocab_check(&t->vocab, "vocabulary", err);
    if (st == BITNET_OK) {
        bn_vocab_find_ends(&t->vocab);
        st = build_bytes(t, err);
    }
    if (st == BITNET_OK) st = build_symbols(t, err);
    if (st == BITNET_OK)
        st = t->vocab.model == BN_VOCAB_BPE ? bn_bpe_build(t, err) : bn_spm_build(t, err);
    if (st == BITNET_OK) {
        build_first_symbols(t);
        st = open_patterns(t, err);
    }
    if (st == BITNET_OK) st = bn_special_build(&t->special, &t->vocab, err);
    if (st != BITNET_OK) {
        bn_tokenizer_close(t);
        return st;
    }
    *out = t;
    return BITNET_OK;
}

void bn_tokenizer_close(struct bn_tokenizer *t)
{
    if (!t) return;
    bn_special_free(&t->special);
    bn_split_close(t->split);
    free(t->pairs.slots);
    free(t->extra);
    bn_map_free(&t->symbols);
    bn_arena_free(&t->arena);
    bn_vocab_free(&t->vocab);
    free(t);
}

const struct bn_vocab *bn_tokenizer_vocab(const struct bn_tokenizer *t) { return &t->vocab; }

/* ------------------------------------------------------------------ encode */

struct encoder { /* one call of bn_encode */
    const struct bn_tokenizer *t;
    struct bn_merge_scratch scratch;
    struct bn_split_run *run;
    struct bn_buf text; /* the normalized segment */
    struct bn_tokens *out;
};

static bitnet_status encode_bpe_piece(void *user, const char *p, size_t n, bitnet_error *err)
{
    struct encoder *e = user;
    uint32_t symbol;
    if (e->t->vocab.ignore_merges && bn_map_get(&e->t->symbols, p, n, &symbol) &&
        symbol < e->t->vocab.n_tokens)
        return bn_tokens_push(e->out, (int32_t)symbol) ? BITNET_OK
                                                       : bn_fail_nomem(err, e->out->n, "tokens");
    return bn_merge_piece(e->t, &e->scratch, p, n, e->out, err);
}

/* Valid stretches go through the patterns, stray bytes become byte tokens. */
static bitnet_status encode_bpe(struct encoder *e, const char *p, size_t n, bitnet_error *err)
{
    while (n > 0) {
        size_t good = n;
        bn_utf8_valid(p, n, &good);
        BN_TRY(bn_split_text(e->run, p, good, encode_bpe_piece, e, err));
        if (good == n) break;
        BN_TRY(bn_emit_bytes(e->t, p + good, 1, e->out, err));
        p += good + 1;
        n -= good + 1;
    }
    return BITNET_OK;
}

static bitnet_status bpe_segment(struct encoder *e, const char *p, size_t n, bitnet_error *err)
{
    const struct bn_vocab *v = &e->t->vocab;
    bool prefix = v->add_space_prefix && p[0] != ' ';
    if (!prefix && !v->normalizer) return encode_bpe(e, p, n, err);
    bn_buf_clear(&e->text);
    if (prefix) bn_buf_putc(&e->text, ' ');
    for (size_t i = 0; v->normalizer && i < n;) {
        size_t good = n - i;
        bn_utf8_valid(p + i, n - i, &good);
        BN_TRY(bn_normalize_nfc(&e->text, p + i, good, err));
        i += good;
        if (i < n) bn_buf_putc(&e->text, p[i++]);
    }
    if (!v->normalizer) bn_buf_append(&e->text, p, n);
    if (e->text.failed) return bn_fail_nomem(err, n, "normalized text");
    return encode_bpe(e, e->text.data, e->text.len, err);
}

static const char *find_mark(const char *p, const char *end)
{
    while (end - p >= BN_SPACE_MARK_BYTES &&
           (p = memchr(p, BN_SPACE_MARK[0], (size_t)(end - p))) != NULL) {
        if (end - p >= BN_SPACE_MARK_BYTES && memcmp(p, BN_SPACE_MARK, BN_SPACE_MARK_BYTES) == 0)
            return p;
        p++;
    }
    return end;
}

/* Word by word where that gives the same tokens: it keeps the merging short. */
static bitnet_status encode_spm_piece(void *user, const char *p, size_t n, bitnet_error *err)
{
    struct encoder *e = user;
    const char *end = p + n;
    while (p < end && e->t->words_are_apart) {
        const char *q = p;
        while (end - q >= BN_SPACE_MARK_BYTES && memcmp(q, BN_SPACE_MARK, BN_SPACE_MARK_BYTES) == 0)
            q += BN_SPACE_MARK_BYTES;
        q = find_mark(q, end);
        BN_TRY(bn_merge_piece(e->t, &e->scratch, p, (size_t)(q - p), e->out, err));
        p = q;
    }
    return bn_merge_piece(e->t, &e->scratch, p, (size_t)(end - p), e->out, err);
}

static bitnet_status spm_segment(struct encoder *e, const char *p, size_t n, bool first,
                                 bitnet_error *err)
{
    const struct bn_vocab *v = &e->t->vocab;
    bn_buf_clear(&e->text);
    bool prefix = v->add_space_prefix && (first || !v->prefix_first_only);
    if (prefix && !(v->prefix_if_missing && p[0] == ' ')) bn_buf_puts(&e->text, BN_SPACE_MARK);
    for (size_t i = 0; i < n;) {
        const char *space = memchr(p + i, ' ', n - i);
        size_t len = space ? (size_t)(space - (p + i)) : n - i;
        bn_buf_append(&e->text, p + i, len);
        if (space) bn_buf_puts(&e->text, BN_SPACE_MARK);
        i += len + (space != NULL);
    }
    if (e->text.failed) return bn_fail_nomem(err, n, "normalized text");
    if (v->normalizer) {
        struct bn_buf nfc;
        bn_buf_init(&nfc, e->text.max);
        bitnet_status st = bn_normalize_nfc(&nfc, e->text.data, e->text.len, err);
        bn_buf_free(&e->text);
        e->text = nfc;
        BN_TRY(st);
    }
    if (e->run) return bn_split_text(e->run, e->text.data, e->text.len, encode_spm_piece, e, err);
    return encode_spm_piece(e, e->text.data, e->text.len, err);
}

static bitnet_status encode_text(struct encoder *e, const char *p, size_t n, bool control,
                                 bitnet_error *err)
{
    const struct bn_tokenizer *t = e->t;
    for (size_t at = 0; at < n;) {
        struct bn_special_match m;
        bool found = bn_special_find(&t->special, &t->vocab, control, p, n, at, &m);
        size_t end = found ? m.start : n;
        if (end > at) {
            if (t->vocab.model == BN_VOCAB_BPE) BN_TRY(bpe_segment(e, p + at, end - at, err));
            else BN_TRY(spm_segment(e, p + at, end - at, at == 0, err));
        }
        if (!found) break;
        if (!bn_tokens_push(e->out, m.id)) return bn_fail_nomem(err, e->out->n, "tokens");
        at = m.end;
    }
    return BITNET_OK;
}

bitnet_status bn_encode(const struct bn_tokenizer *t, const char *text, size_t len, uint32_t flags,
                        struct bn_tokens *out, bitnet_error *err)
{
    const struct bn_vocab *v = &t->vocab;
    size_t bad;
    if (len > BN_ENCODE_MAX_BYTES)
        return bn_fail(err, BITNET_E_LIMIT, "a text of %zu bytes, the most is %d", len,
                       BN_ENCODE_MAX_BYTES);
    if (v->model == BN_VOCAB_SPM && !bn_utf8_valid(text, len, &bad))
        return bn_fail(err, BITNET_E_ARG, "the text is not valid UTF-8 at byte %zu", bad);
    struct encoder e = {.t = t, .out = out};
    bn_buf_init(&e.text, 4 * (size_t)BN_ENCODE_MAX_BYTES);
    bool automatic = flags & BITNET_TOK_BOS_AUTO;
    bool bos = v->bos >= 0 && ((flags & BITNET_TOK_BOS) || (automatic && v->add_bos));
    bitnet_status st = BITNET_OK;
    if (bos && !bn_tokens_push(out, v->bos)) st = bn_fail_nomem(err, out->n, "tokens");
    if (st == BITNET_OK && t->split) st = bn_split_begin(&e.run, t->split, len, err);
    if (st == BITNET_OK) st = encode_text(&e, text, len, (flags & BITNET_TOK_SPECIAL) != 0, err);
    if (st == BITNET_OK && automatic && v->add_eos && v->eos >= 0 && !bn_tokens_push(out, v->eos))
        st = bn_fail_nomem(err, out->n, "tokens");
    bn_split_end(e.run);
    bn_buf_free(&e.text);
    free(e.scratch.symbols);
    free(e.scratch.heap);
    return st;
}

void bn_tokens_free(struct bn_tokens *t)
{
    free(t->ids);
    *t = (struct bn_tokens){0};
}

/* ------------------------------------------------------------------ single tokens */

const char *bn_token_bytes(const struct bn_tokenizer *t, int32_t id, bool special, bool first,
                           size_t *n)
{
    const struct bn_vocab *v = &t->vocab;
    *n = 0;
    if (id < 0 || (uint32_t)id >= v->n_tokens || t->bytes[id].n == 0) return NULL;
    if (!special && (v->types[id] == BN_TOKEN_CONTROL || v->types[id] == BN_TOKEN_UNKNOWN))
        return NULL;
    const struct bn_str *b = &t->bytes[id];
    bool drop = first && v->model == BN_VOCAB_SPM && v->add_space_prefix &&
                v->types[id] == BN_TOKEN_NORMAL && b->s[0] == ' ';
    *n = b->n - drop;
    return *n ? b->s + drop : NULL;
}

bool bn_token_is_end(const struct bn_tokenizer *t, int32_t id)
{
    const struct bn_vocab *v = &t->vocab;
    if (id < 0) return false;
    if (id == v->eos || id == v->eot) return true;
    for (uint32_t i = 0; i < v->n_ends; i++)
        if (v->ends[i] == id) return true;
    return false;
}

bool bn_token_is_start(const struct bn_tokenizer *t, int32_t id)
{
    const struct bn_vocab *v = &t->vocab;
    return id >= 0 && id == v->bos && v->types[id] == BN_TOKEN_CONTROL;
}
