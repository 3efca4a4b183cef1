/* SPDX-License-Identifier: Apache-2.0
 * A vocabulary as plain data: what a tokenizer is built from, whichever file it came out of.
 * Readers fill it (text/tokenizer/tokenizer_json.c, text/tokenizer/sentencepiece.c, model/files/gguf_vocab.c), the tokenizer
 * copies what it needs, `convert` writes it into a GGUF. */
#ifndef BN_TEXT_TOKENIZER_VOCAB_H
#define BN_TEXT_TOKENIZER_VOCAB_H

#include "base/os/mem.h"
#include "base/status.h"

/* numbers as GGUF stores them */
enum bn_token_type {
    BN_TOKEN_NORMAL = 1,
    BN_TOKEN_UNKNOWN = 2,
    BN_TOKEN_CONTROL = 3,
    BN_TOKEN_USER = 4, /* added by the model's authors, matched in plain text too */
    BN_TOKEN_UNUSED = 5,
    BN_TOKEN_BYTE = 6
};

enum bn_vocab_model {
    BN_VOCAB_BPE, /* byte-level BPE: tokens are written in the GPT-2 byte alphabet */
    /* SentencePiece-style BPE: U+2581 for space, byte fallback; merges by score or by list */
    BN_VOCAB_SPM,
};

struct bn_str {
    const char *s;
    uint32_t n;
};

enum {
    BN_VOCAB_MAX_TOKENS = 1 << 21,
    BN_VOCAB_MAX_TOKEN_BYTES = 1 << 12,
    BN_VOCAB_MAX_PATTERNS = 16,
    BN_VOCAB_MAX_PATTERN_BYTES = 1 << 14,
    BN_VOCAB_MAX_MERGES = 1 << 22,
    BN_VOCAB_MAX_FILE_BYTES = 256 << 20 /* of a tokenizer file */
};

/* how an added token is matched in text */
enum bn_token_strip {
    BN_STRIP_LEFT = 1,       /* swallows the white space before it       */
    BN_STRIP_RIGHT = 2,      /* and after it                             */
    BN_STRIP_SINGLE_WORD = 4 /* only where no letter or digit touches it */
};

struct bn_vocab {
    struct bn_arena arena; /* owns every string and array below */
    enum bn_vocab_model model;
    uint32_t n_tokens;
    /* [n_tokens]; an unused id has n = 0 and type UNUSED */
    struct bn_str *tokens;
    /* [n_tokens] enum bn_token_type */
    uint8_t *types;
    /* [n_tokens] bits of enum bn_token_strip, or NULL: none */
    uint8_t *strip;
    /* [n_tokens], or NULL: then merges decide. SPM with both: scores decide */
    float *scores;
    uint32_t n_merges;
    /* [2 * n_merges] left, right: best first; NULL: scores decide */
    struct bn_str *merges;
    /* GGUF name of the pre-tokenizer ("llama-bpe"), NULL if unknown */
    const char *pre;
    /* regular expressions, applied in order as "isolated" splits; 0: taken from pre */
    uint32_t n_patterns;
    const char *patterns[BN_VOCAB_MAX_PATTERNS];
    /* a whole pre-token found in the vocabulary is taken as it is */
    bool ignore_merges;
    /* SPM: a space is put before the text and after every special token in it; BPE: before a
     * text that does not begin with one */
    bool add_space_prefix;
    /* SPM: before the text, but not after special tokens */
    bool prefix_first_only;
    /* SPM: only where the text does not begin with a space */
    bool prefix_if_missing;
    bool add_bos, add_eos;           /* what the file asks for */
    int32_t bos, eos, eot, unk, pad; /* -1: none */
    /* further tokens that end an answer, eos and eot not repeated */
    uint32_t n_ends;
    int32_t ends[8];
    const char *normalizer;    /* NULL or "nfc" */
    const char *chat_template; /* Jinja text, NULL if the file has none */
};

void bn_vocab_init(struct bn_vocab *v);
void bn_vocab_free(struct bn_vocab *v);
/* Ids in range, arrays consistent, byte tokens complete where the model needs them. */
bitnet_status bn_vocab_check(const struct bn_vocab *v, const char *what, bitnet_error *err);

/* Adds to ends (and sets eot, where it is -1) what the special tokens' well-known names tell:
 * <|eot_id|>, <|im_end|>, ... Many files name one end only. bn_tokenizer_open calls it. */
void bn_vocab_find_ends(struct bn_vocab *v);
void bn_vocab_add_end(struct bn_vocab *v,
                      int32_t id); /* once; ids past the room of ends[] are dropped */

/* tokenizer.json (Hugging Face), with tokenizer_config.json and generation_config.json beside it
 * when they exist (chat template, bos/eos, add_bos). */
bitnet_status bn_vocab_read_hf(struct bn_vocab *v, const char *tokenizer_json_path,
                               bitnet_error *err);
/* tokenizer.model (SentencePiece), likewise with tokenizer_config.json beside it. */
bitnet_status bn_vocab_read_sentencepiece(struct bn_vocab *v, const char *path, bitnet_error *err);

/* The files that hold a vocabulary in a folder of Hugging Face. (hf_write.c) */
struct bn_vocab_files {
    char *tokenizer; /* tokenizer.json; or tokenizer.model, if is_pieces */
    size_t bytes;
    bool is_pieces;
    char *config; /* tokenizer_config.json */
};
bitnet_status bn_vocab_write_hf(struct bn_vocab_files *out, const struct bn_vocab *v,
                                bitnet_error *err);
void bn_vocab_files_free(struct bn_vocab_files *f);

/* The GPT-2 alphabet: every byte as a printable character. */
void bn_byte_alphabet(uint16_t cp_of_byte[256]);

/* Pre-tokenizers by their GGUF name. NULL-terminated list of patterns, NULL if the name is
 * unknown. */
const char *const *bn_pre_patterns(const char *name, bool *ignore_merges);
/* The name whose patterns are exactly these, or NULL. */
const char *bn_pre_name(const char *const *patterns, size_t n, bool ignore_merges);
/* The name for a BPE vocabulary that came without one but is known by its size (Llama 3: published
 * BitNet files lack the name), or NULL. bn_tokenizer_open uses it when pre and patterns are
 * missing. */
const char *bn_pre_guess(const struct bn_vocab *v);

#endif
