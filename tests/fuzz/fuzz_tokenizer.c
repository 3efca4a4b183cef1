/* SPDX-License-Identifier: Apache-2.0
 * libFuzzer target: any bytes as text, through a byte-level vocabulary (the stories tokenizer) and
 * a SentencePiece one made here; and the same bytes as token ids. What must hold: text that was
 * encoded decodes to itself; the incremental detokenizer shows valid UTF-8 only, the same text, and
 * never a stop string. The first byte of the input chooses vocabulary and flags. */
#include "base/buf.h"
#include "base/utf8.h"
#include "text/tokenizer/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MARK "\xe2\x96\x81" /* U+2581, SentencePiece's space */
enum { USE_SPM = 1, USE_SPECIAL = 2, USE_BOS = 4, AS_IDS = 8 };

static void must(bool holds, const char *what)
{
    if (holds) return;
    fprintf(stderr, "fuzz_tokenizer: %s\n", what);
    __builtin_trap();
}

static void put(struct bn_vocab *v, const char *text, uint8_t type, float score)
{
    v->tokens[v->n_tokens] = (struct bn_str){text, (uint32_t)strlen(text)};
    v->types[v->n_tokens] = type;
    v->scores[v->n_tokens++] = score;
}

static struct bn_tokenizer *open_spm(void)
{
    enum { ROOM = 300 };
    static const char mark_a[] = MARK "a", marks[] = MARK MARK;
    const char *const words[] = {MARK, "a",    "b",    "e",  "\xc3\xa9", "ab",
                                 "ba", mark_a, "abab", "bb", "aab",      marks};
    struct bn_vocab v;
    struct bn_tokenizer *t = NULL;
    bn_vocab_init(&v);
    v.model = BN_VOCAB_SPM;
    v.tokens = bn_arena_alloc(&v.arena, ROOM * sizeof *v.tokens);
    v.types = bn_arena_alloc(&v.arena, ROOM);
    v.scores = bn_arena_alloc(&v.arena, ROOM * sizeof *v.scores);
    char *names = bn_arena_alloc(&v.arena, 256 * 8);
    must(v.tokens && v.types && v.scores && names, "memory");
    put(&v, "<unk>", BN_TOKEN_UNKNOWN, 0);
    put(&v, "<s>", BN_TOKEN_CONTROL, 0);
    put(&v, "</s>", BN_TOKEN_CONTROL, 0);
    for (int c = 0; c < 256; c++, names += 8) {
        snprintf(names, 8, "<0x%02X>", c);
        put(&v, names, BN_TOKEN_BYTE, 0);
    }
    for (size_t i = 0; i < BN_ARRAY_LEN(words); i++)
        put(&v, words[i], BN_TOKEN_NORMAL, -(float)((i * 7) % 5));
    put(&v, "<tool>", BN_TOKEN_USER, 0);
    v.unk = 0, v.bos = 1, v.eos = 2;
    v.add_space_prefix = v.prefix_first_only = true; /* so that the added space can be taken off */
    must(bn_tokenizer_open(&t, &v, NULL) == BITNET_OK, "the SentencePiece vocabulary");
    return t;
}

static struct bn_tokenizer *open_stories(void)
{
    struct bn_vocab v;
    struct bn_tokenizer *t = NULL;
    must(bn_vocab_read_hf(&v, TEST_DATA "/stories/tokenizer.json", NULL) == BITNET_OK &&
             bn_tokenizer_open(&t, &v, NULL) == BITNET_OK,
         "the stories tokenizer");
    return t;
}

/* The tokens through the detokenizer; with stop strings when `stops`. */
static void stream(struct bn_buf *out, const struct bn_tokenizer *t, const struct bn_tokens *ids,
                   bool special, bool stops)
{
    static const char *const ends[] = {"ab", "\n\n", "\xc3\xa9", "aab"};
    struct bn_detok *d;
    const char *text;
    size_t n;
    bool stopped = false;
    must(bn_detok_open(&d, t, special, ends, stops ? BN_ARRAY_LEN(ends) : 0, NULL) == BITNET_OK,
         "memory");
    for (size_t i = 0; i < ids->n && !stopped; i++) {
        stopped = bn_detok_push(d, ids->ids[i], &text, &n);
        must(bn_utf8_valid(text, n, NULL), "a push shows what is no UTF-8");
        bn_buf_append(out, text, n);
    }
    bn_detok_flush(d, &text, &n);
    must(!stopped || n == 0, "text behind a stop string");
    bn_buf_append(out, text, n);
    bn_buf_puts(out, ""); /* the 0 behind, also when empty */
    must(bn_utf8_valid(out->data, out->len, NULL), "the stream is no UTF-8");
    for (size_t k = 0; stops && k < BN_ARRAY_LEN(ends); k++)
        must(!memmem(out->data, out->len, ends[k], strlen(ends[k])), "a stop string is shown");
    bn_detok_close(d);
}

static void decode(struct bn_buf *out, const struct bn_tokenizer *t, const struct bn_tokens *ids,
                   bool special)
{
    for (size_t i = 0; i < ids->n; i++) {
        size_t n;
        const char *p = bn_token_bytes(t, ids->ids[i], special, i == 0, &n);
        bn_buf_append(out, p, n);
    }
}

/* What must come back: SentencePiece takes U+2581 and a space for the same. */
static void expected(struct bn_buf *out, const char *p, size_t n, bool spm)
{
    for (size_t i = 0; i < n; i++)
        if (spm && n - i >= 3 && memcmp(p + i, MARK, 3) == 0) {
            bn_buf_putc(out, ' ');
            i += 2;
        } else {
            bn_buf_putc(out, p[i]);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct bn_tokenizer *stories, *spm;
    if (!stories) stories = open_stories();
    if (!spm) spm = open_spm();
    if (size == 0) return 0;
    unsigned mode = *data++;
    const char *p = (const char *)data;
    size_t n = --size;
    const struct bn_tokenizer *t = mode & USE_SPM ? spm : stories;
    bool special = mode & USE_SPECIAL;
    struct bn_tokens ids = {0};
    struct bn_buf want, got, shown;
    bitnet_error err;
    bn_buf_init(&want, 1 << 26);
    bn_buf_init(&got, 1 << 26);
    bn_buf_init(&shown, 1 << 26);
    if (mode & AS_IDS) {
        ids.n = ids.room = n / 2;
        ids.ids = malloc(ids.n * sizeof *ids.ids + 1);
        for (size_t i = 0; ids.ids && i < ids.n; i++) /* -32768 .. 32767 */
            ids.ids[i] = (int16_t)bn_load_u16(data + 2 * i);
        if (ids.ids) stream(&shown, t, &ids, special, true);
    } else {
        uint32_t flags = (special ? BITNET_TOK_SPECIAL : 0) | (mode & USE_BOS ? BITNET_TOK_BOS : 0);
        bitnet_status st = bn_encode(t, p, n, flags, &ids, &err);
        bool valid = bn_utf8_valid(p, n, NULL);
        must(st == BITNET_OK || (t == spm && !valid), "text is refused");
        must(st != BITNET_OK || t != spm || valid, "broken UTF-8 is taken");
        if (st == BITNET_OK && !special && !(mode & USE_BOS)) {
            expected(&want, p, n, t == spm);
            decode(&got, t, &ids, false);
            must(!want.failed && !got.failed && got.len == want.len &&
                     (want.len == 0 || memcmp(got.data, want.data, want.len) == 0),
                 "text does not come back");
            stream(&shown, t, &ids, false, false);
            size_t added = shown.len - want.len; /* a text goes on here: its space stays */
            must(!valid ||
                     (added <= (t == spm) &&
                      (want.len == 0 || memcmp(shown.data + added, want.data, want.len) == 0)),
                 "the stream differs from the text");
        } else if (st == BITNET_OK) {
            stream(&shown, t, &ids, special, false);
        }
        bn_buf_clear(&shown);
        if (st == BITNET_OK) stream(&shown, t, &ids, special, true);
    }
    bn_tokens_free(&ids);
    bn_buf_free(&want);
    bn_buf_free(&got);
    bn_buf_free(&shown);
    return 0;
}
