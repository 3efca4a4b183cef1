/* SPDX-License-Identifier: Apache-2.0
 * The tokenizer from inside; only files of text/ include it.
 *
 * text --special.c--> segments --normalize.c--> --split.c--> pieces --bpe.c--> tokens
 *
 * Both kinds of vocabulary end in the same merging of neighbours by a table of pairs (bpe.c); they
 * differ in how the table is filled and what a piece starts as: bytes (BPE) or characters (SPM,
 * spm.c). Everything here is written at open and only read afterwards; what a call writes is in its
 * own bn_merge_scratch. */
#ifndef BN_TEXT_TOKENIZER_TOKENIZER_IMPL_H
#define BN_TEXT_TOKENIZER_TOKENIZER_IMPL_H

#include "base/buf.h"
#include "base/map.h"
#include "text/tokenizer/tokenizer.h"

#define BN_SPACE_MARK "\xe2\x96\x81" /* U+2581, SentencePiece's space */
enum { BN_SPACE_MARK_BYTES = 3 };

/* ---- bpe.c: merging ---- */

#define BN_NO_SYMBOL \
    (UINT32_MAX - 1) /* not all ones: a pair of these must not look like a free slot */
#define BN_NO_LINK UINT32_MAX
#define BN_NO_RANK UINT32_MAX

/* A symbol is a token id, or n_tokens + k for the k-th byte string that merges pass through without
 * its being a token. */
struct bn_pair_slot {
    uint64_t key; /* left symbol << 32 | right symbol; UINT64_MAX: free */
    uint32_t rank, merged;
};
struct bn_pairs {
    struct bn_pair_slot *slots;
    size_t mask, n;
};

struct bn_merge_symbol {
    uint32_t id, start, prev, next,
        rank; /* rank of the pair with the next symbol; start: byte in the piece */
};
struct bn_merge_scratch {
    struct bn_merge_symbol *symbols;
    uint64_t *heap; /* rank << 32 | position of the left symbol: the smallest is the next merge */
    size_t symbol_room, heap_room;
};

bool bn_pairs_init(struct bn_pairs *p, size_t expected);
/* Keeps the first of equal pairs. false: more pairs than expected at init. */
bool bn_pairs_add(struct bn_pairs *p, uint32_t left, uint32_t right, uint32_t rank,
                  uint32_t merged);

/* Token text back to bytes; false if a character is outside the alphabet. out: room for n bytes. */
bool bn_byte_decode(char *out, size_t *out_n, const char *s, size_t n);

bitnet_status bn_bpe_build(struct bn_tokenizer *t,
                           bitnet_error *err); /* pairs from the merge list */
bitnet_status bn_merge_piece(const struct bn_tokenizer *t, struct bn_merge_scratch *m,
                             const char *p, size_t n, struct bn_tokens *out, bitnet_error *err);
/* One byte, or one character that is no token, by byte tokens or the unknown token. */
bitnet_status bn_emit_bytes(const struct bn_tokenizer *t, const char *p, size_t n,
                            struct bn_tokens *out, bitnet_error *err);

/* ---- spm.c ---- */

bitnet_status bn_spm_build(struct bn_tokenizer *t,
                           bitnet_error *err); /* pairs from scores or merges */

/* ---- split.c: patterns ---- */

struct bn_split;     /* compiled patterns */
struct bn_split_run; /* what one call needs to run them */
typedef bitnet_status (*bn_piece_fn)(void *user, const char *p, size_t n, bitnet_error *err);

bitnet_status bn_split_open(struct bn_split **out, const char *const *patterns, size_t n,
                            bitnet_error *err);
void bn_split_close(struct bn_split *s);
bitnet_status bn_split_begin(struct bn_split_run **out, const struct bn_split *s, size_t text_bytes,
                             bitnet_error *err);
void bn_split_end(struct bn_split_run *r);
/* Every pattern in turn splits the pieces of the one before; what no match covers is a piece too.
 * Text: valid UTF-8. */
bitnet_status bn_split_text(struct bn_split_run *r, const char *p, size_t n, bn_piece_fn fn,
                            void *user, bitnet_error *err);

/* ---- special.c: added tokens in the text ---- */

struct bn_special_node {
    uint32_t child, sibling; /* 0: none */
    int32_t id;              /* the token that ends here, or -1 */
    uint8_t byte;
    bool control; /* recognised only on request */
};
struct bn_special {
    struct bn_special_node *nodes; /* [0] is unused; roots by first byte */
    size_t n, room;
    uint32_t root[256];
    uint8_t starts[2][256]; /* [with control tokens]: does any token start with this byte? */
    bool any[2];
};
struct bn_special_match {
    size_t start, end;
    int32_t id;
}; /* end: rstrip included; start: lstrip included */

bitnet_status bn_special_build(struct bn_special *s, const struct bn_vocab *v, bitnet_error *err);
void bn_special_free(struct bn_special *s);
/* The first special token at or after `from`, the longest there; white space is taken in as its
 * flags say, but never before `from`. */
bool bn_special_find(const struct bn_special *s, const struct bn_vocab *v, bool control,
                     const char *p, size_t n, size_t from, struct bn_special_match *m);

/* ---- normalize.c ---- */

/* Unicode normal form C of valid UTF-8 appended to out; linear in n. */
bitnet_status bn_normalize_nfc(struct bn_buf *out, const char *p, size_t n, bitnet_error *err);

/* ---- the tokenizer ---- */

struct bn_tokenizer {
    struct bn_vocab vocab;
    struct bn_arena arena;    /* decoded bytes, byte strings of extra symbols */
    struct bn_str *bytes;     /* [n_tokens] what each token stands for */
    uint32_t max_token_bytes; /* the longest of these */
    struct bn_map symbols;    /* bytes -> symbol, tokens that plain text can give */
    struct bn_str *extra;     /* [n_extra] symbols that are no tokens */
    size_t n_extra, extra_room;
    struct bn_pairs pairs;
    uint32_t first_symbol[256]; /* BPE: symbol of a byte; SPM: of an ASCII character */
    int32_t byte_token[256];    /* the token for one byte, -1 if none */
    bool words_are_apart;       /* SPM: no token reaches over a space that ends a word */
    struct bn_split *split;     /* NULL: no patterns */
    struct bn_special special;
};

bool bn_tokens_push(struct bn_tokens *t, int32_t id); /* false: out of memory */
/* The symbol for these bytes; unknown ones become an extra symbol. BN_NO_SYMBOL: out of memory. */
uint32_t bn_symbol_add(struct bn_tokenizer *t, const char *p, size_t n);

#endif
