/* SPDX-License-Identifier: Apache-2.0
 * Merging: a piece of text becomes symbols, and the neighbouring pair of best rank is joined, the
 * leftmost first, until no pair is in the table. Short pieces (nearly all) are scanned; long ones
 * go through a heap over a linked list, so that no text takes quadratic time. Also owned here: the
 * byte alphabet of GPT-2 and the pair table of byte-level vocabularies. */
#include "text/tokenizer/tokenizer_impl.h"

#include "base/utf8.h"
#include <stdlib.h>

enum { SHORT_SYMBOLS = 48 }; /* up to here scanning beats the heap */

/* ------------------------------------------------------------------ the alphabet */

static bool stands_for_itself(unsigned c)
{
    return (c >= 33 && c <= 126) || (c >= 161 && c <= 172) || (c >= 174 && c <= 255);
}

void bn_byte_alphabet(uint16_t cp_of_byte[256])
{
    uint16_t next = 256;
    for (unsigned c = 0; c < 256; c++) cp_of_byte[c] = stands_for_itself(c) ? (uint16_t)c : next++;
}

bool bn_byte_decode(char *out, size_t *out_n, const char *s, size_t n)
{
    enum { N_OTHERS = 68 }; /* bytes written as U+0100 and up: 0-32, 127-160, 173 in this order */
    size_t k = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t len = bn_utf8_decode(s + i, n - i, &cp);
        if (len == 0 || cp >= 256 + N_OTHERS) return false;
        if (cp < 256) {
            if (!stands_for_itself(cp)) return false;
            out[k++] = (char)cp;
        } else {
            cp -= 256;
            out[k++] = (char)(cp <= 32 ? cp : cp - 33 <= 33 ? cp - 33 + 127 : 173);
        }
        i += len;
    }
    *out_n = k;
    return true;
}

/* ------------------------------------------------------------------ the pair table */

static inline size_t pair_hash(uint64_t key)
{
    key *= 0x9e3779b97f4a7c15u;
    return (size_t)(key ^ key >> 32);
}

bool bn_pairs_init(struct bn_pairs *p, size_t expected)
{
    size_t n_slots = 64;
    while (n_slots / 2 < expected) n_slots *= 2;
    p->slots = bn_calloc(n_slots, sizeof *p->slots);
    if (!p->slots) return false;
    for (size_t i = 0; i < n_slots; i++) p->slots[i].key = UINT64_MAX;
    p->mask = n_slots - 1;
    return true;
}

bool bn_pairs_add(struct bn_pairs *p, uint32_t left, uint32_t right, uint32_t rank, uint32_t merged)
{
    if (p->n * 2 > p->mask) return false;
    uint64_t key = (uint64_t)left << 32 | right;
    for (size_t i = pair_hash(key);; i++) {
        struct bn_pair_slot *s = &p->slots[i & p->mask];
        if (s->key == key) return true;
        if (s->key != UINT64_MAX) continue;
        *s = (struct bn_pair_slot){key, rank, merged};
        p->n++;
        return true;
    }
}

/* rank of the pair and what it becomes; BN_NO_RANK if it is not in the table */
static inline uint32_t pair_rank(const struct bn_pairs *p, uint32_t left, uint32_t right,
                                 uint32_t *merged)
{
    uint64_t key = (uint64_t)left << 32 | right;
    for (size_t i = pair_hash(key);; i++) {
        const struct bn_pair_slot *s = &p->slots[i & p->mask];
        if (s->key == key) {
            *merged = s->merged;
            return s->rank;
        }
        if (s->key == UINT64_MAX) return BN_NO_RANK;
    }
}

/* ------------------------------------------------------------------ building, byte-level */

uint32_t bn_symbol_add(struct bn_tokenizer *t, const char *p, size_t n)
{
    uint32_t value;
    if (bn_map_get(&t->symbols, p, n, &value)) return value;
    if (!bn_grow((void **)&t->extra, &t->extra_room, t->n_extra + 1, sizeof *t->extra))
        return BN_NO_SYMBOL;
    const char *copy = bn_arena_strn(&t->arena, p, n);
    value = t->vocab.n_tokens + (uint32_t)t->n_extra;
    if (!copy || !bn_map_add(&t->symbols, copy, n, &value, NULL)) return BN_NO_SYMBOL;
    t->extra[t->n_extra++] = (struct bn_str){copy, (uint32_t)n};
    return value;
}

/* A merge part in bytes. Text outside the alphabet is that of an added token: taken as it is. */
static size_t part_bytes(char *out, const struct bn_tokenizer *t, const struct bn_str *part)
{
    size_t n;
    if (t->vocab.model == BN_VOCAB_BPE && bn_byte_decode(out, &n, part->s, part->n)) return n;
    memcpy(out, part->s, part->n);
    return part->n;
}

bitnet_status bn_bpe_build(struct bn_tokenizer *t, bitnet_error *err)
{
    const struct bn_vocab *v = &t->vocab;
    if (!bn_pairs_init(&t->pairs, v->n_merges))
        return bn_fail_nomem(err, v->n_merges, "the table of merges");
    char text[2 * BN_VOCAB_MAX_TOKEN_BYTES];
    for (uint32_t i = 0; i < v->n_merges; i++) {
        size_t nl = part_bytes(text, t, &v->merges[2 * i]);
        size_t nr = part_bytes(text + nl, t, &v->merges[2 * i + 1]);
        uint32_t left = bn_symbol_add(t, text, nl), right = bn_symbol_add(t, text + nl, nr);
        uint32_t merged = bn_symbol_add(t, text, nl + nr);
        if (left == BN_NO_SYMBOL || right == BN_NO_SYMBOL || merged == BN_NO_SYMBOL ||
            !bn_pairs_add(&t->pairs, left, right, i, merged))
            return bn_fail_nomem(err, nl + nr, "the table of merges");
    }
    return BITNET_OK;
}

/* ------------------------------------------------------------------ output */

bool bn_tokens_push(struct bn_tokens *t, int32_t id)
{
    if (t->n == t->room && !bn_grow((void **)&t->ids, &t->room, t->n + 1, sizeof *t->ids))
        return false;
    t->ids[t->n++] = id;
    return true;
}

bitnet_status bn_emit_bytes(const struct bn_tokenizer *t, const char *p, size_t n,
                            struct bn_tokens *out, bitnet_error *err)
{
    size_t known = 0;
    while (known < n && t->byte_token[(unsigned char)p[known]] >= 0) known++;
    int32_t unk = t->vocab.unk;
    if (known < n && unk < 0)
        return bn_fail(err, BITNET_E_ARG,
                       "the vocabulary has no token for the byte 0x%02x and no unknown token",
                       (unsigned char)p[known]);
    if (known < n) { /* a run of unknown characters is one unknown token, as SentencePiece has it */
        if (out->n > 0 && out->ids[out->n - 1] == unk && t->vocab.model == BN_VOCAB_SPM)
            return BITNET_OK;
        return bn_tokens_push(out, unk) ? BITNET_OK : bn_fail_nomem(err, out->n, "tokens");
    }
    for (size_t i = 0; i < n; i++)
        if (!bn_tokens_push(out, t->byte_token[(unsigned char)p[i]]))
            return bn_fail_nomem(err, out->n, "tokens");
    return BITNET_OK;
}

/* symbol: what stands at p; its bytes are needed only if it is no token */
static inline bitnet_status emit(const struct bn_tokenizer *t, uint32_t symbol, const char *p,
                                 size_t n, struct bn_tokens *out, bitnet_error *err)
{
    if (symbol >= t->vocab.n_tokens) return bn_emit_bytes(t, p, n, out, err);
    return bn_tokens_push(out, (int32_t)symbol) ? BITNET_OK : bn_fail_nomem(err, out->n, "tokens");
}

/* ------------------------------------------------------------------ merging */

/* The symbol that begins p and its length: one byte, or one character. SPM text is valid UTF-8. */
static inline uint32_t first_symbol(const struct bn_tokenizer *t, const char *p, size_t n,
                                    size_t *len)
{
    unsigned char c = (unsigned char)p[0];
    *len = 1;
    if (t->vocab.model == BN_VOCAB_BPE || c < 0x80) return t->first_symbol[c];
    *len = bn_min_size(c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4, n);
    uint32_t symbol;
    return bn_map_get(&t->symbols, p, *len, &symbol) ? symbol : BN_NO_SYMBOL;
}

static bitnet_status merge_short(const struct bn_tokenizer *t, const char *p, size_t n,
                                 uint32_t *id, uint32_t *start, size_t n_symbols,
                                 struct bn_tokens *out, bitnet_error *err)
{
    uint32_t rank[SHORT_SYMBOLS], merged[SHORT_SYMBOLS];
    size_t k = n_symbols;
    for (size_t i = 0; i + 1 < k; i++) rank[i] = pair_rank(&t->pairs, id[i], id[i + 1], &merged[i]);
    while (k > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < k; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == BN_NO_RANK) break;
        id[best] = merged[best];
        k--;
        for (size_t i = best + 1; i < k; i++) {
            id[i] = id[i + 1];
            start[i] = start[i + 1];
            rank[i] = rank[i + 1];
            merged[i] = merged[i + 1];
        }
        if (best + 1 < k) rank[best] = pair_rank(&t->pairs, id[best], id[best + 1], &merged[best]);
        if (best > 0)
            rank[best - 1] = pair_rank(&t->pairs, id[best - 1], id[best], &merged[best - 1]);
    }
    for (size_t i = 0; i < k; i++) {
        size_t end = i + 1 < k ? start[i + 1] : n;
        BN_TRY(emit(t, id[i], p + start[i], end - start[i], out, err));
    }
    return BITNET_OK;
}

static void sift_down(uint64_t *heap, size_t n, size_t i)
{
    uint64_t x = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (x <= heap[child]) break;
        heap[i] = heap[child];
    }
    heap[i] = x;
}

static void heap_push(uint64_t *heap, size_t *n, uint64_t x)
{
    size_t i = (*n)++;
    for (; i > 0 && x < heap[(i - 1) / 2]; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = x;
}

/* rank of symbol i with its successor, kept in the symbol: an entry of the heap is stale if it
 * differs */
static void rank_symbol(const struct bn_tokenizer *t, struct bn_merge_symbol *s, uint32_t i,
                        uint64_t *heap, size_t *n_heap)
{
    uint32_t merged;
    s[i].rank = BN_NO_RANK;
    if (s[i].next != BN_NO_LINK)
        s[i].rank = pair_rank(&t->pairs, s[i].id, s[s[i].next].id, &merged);
    if (s[i].rank != BN_NO_RANK) heap_push(heap, n_heap, (uint64_t)s[i].rank << 32 | i);
}

static bitnet_status merge_long(const struct bn_tokenizer *t, struct bn_merge_scratch *m,
                                const char *p, size_t n, struct bn_tokens *out, bitnet_error *err)
{
    /* a symbol a byte at most; a merge adds at most two entries and there are fewer merges than
     * symbols */
    if (!bn_grow((void **)&m->symbols, &m->symbol_room, n, sizeof *m->symbols) ||
        !bn_grow((void **)&m->heap, &m->heap_room, 3 * n, sizeof *m->heap))
        return bn_fail_nomem(err, n * (sizeof *m->symbols + 3 * sizeof *m->heap),
                             "merging one piece of text");
    struct bn_merge_symbol *s = m->symbols;
    uint64_t *heap = m->heap;
    uint32_t k = 0;
    size_t n_heap = 0, len;
    for (size_t i = 0; i < n; i += len, k++) {
        s[k].id = first_symbol(t, p + i, n - i, &len);
        s[k].start = (uint32_t)i;
        s[k].prev = k - 1; /* of the first: BN_NO_LINK, by wrapping */
        s[k].next = k + 1;
    }
    s[k - 1].next = BN_NO_LINK;
    for (uint32_t i = 0; i < k; i++) {
        uint32_t merged;
        s[i].rank = i + 1 < k ? pair_rank(&t->pairs, s[i].id, s[i + 1].id, &merged) : BN_NO_RANK;
        if (s[i].rank != BN_NO_RANK) heap[n_heap++] = (uint64_t)s[i].rank << 32 | i;
    }
    for (size_t i = n_heap / 2; i-- > 0;) sift_down(heap, n_heap, i);

    while (n_heap > 0) {
        uint64_t top = heap[0];
        heap[0] = heap[--n_heap];
        if (n_heap > 0) sift_down(heap, n_heap, 0);
        uint32_t i = (uint32_t)top;
        if (s[i].rank != (uint32_t)(top >> 32))
            continue; /* stale: the neighbourhood has changed since */
        uint32_t gone = s[i].next, merged = BN_NO_SYMBOL;
        pair_rank(&t->pairs, s[i].id, s[gone].id, &merged);
        s[i].id = merged;
        s[i].next = s[gone].next;
        s[gone].rank = BN_NO_RANK;
        if (s[i].next != BN_NO_LINK) s[s[i].next].prev = i;
        rank_symbol(t, s, i, heap, &n_heap);
        if (s[i].prev != BN_NO_LINK) rank_symbol(t, s, s[i].prev, heap, &n_heap);
    }
    for (uint32_t i = 0; i != BN_NO_LINK; i = s[i].next) {
        size_t end = s[i].next == BN_NO_LINK ? n : s[s[i].next].start;
        BN_TRY(emit(t, s[i].id, p + s[i].start, end - s[i].start, out, err));
    }
    return BITNET_OK;
}

bitnet_status bn_merge_piece(const struct bn_tokenizer *t, struct bn_merge_scratch *m,
                             const char *p, size_t n, struct bn_tokens *out, bitnet_error *err)
{
    uint32_t id[SHORT_SYMBOLS], start[SHORT_SYMBOLS];
    size_t k = 0, len;
    if (n == 0) return BITNET_OK;
    for (size_t i = 0; i < n; i += len, k++) {
        if (k == SHORT_SYMBOLS) return merge_long(t, m, p, n, out, err);
        id[k] = first_symbol(t, p + i, n - i, &len);
        start[k] = (uint32_t)i;
    }
    return merge_short(t, p, n, id, start, k, out, err);
}
