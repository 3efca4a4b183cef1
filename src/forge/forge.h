/* SPDX-License-Identifier: Apache-2.0
 * Making and judging models: convert, synth, prune, inspect, perplexity; and the kernels, by their speed. What the door (api) wraps comes
 * first; below it what the files of this room share. */
#ifndef BN_FORGE_FORGE_H
#define BN_FORGE_FORGE_H

#include "base/status.h"
#include "model/files/types.h"

struct bn_vocab;

/* ---- convert.c: safetensors or GGUF in, GGUF out ---- */
bitnet_status bn_convert(const char *in, const char *out, const bitnet_convert_options *o,
                         bitnet_error *err);

/* ---- synth.c: random ternary models of true shapes ---- */
bitnet_status bn_synth(const char *shape, const char *out, const bitnet_synth_options *o,
                       bitnet_error *err);
const char *bn_synth_shape(size_t i, const char **description); /* NULL past the end */

/* ---- inspect.c: what is in a file; inspect_stats.c: what is in a tensor ---- */
struct bitnet_file;
bitnet_status bn_file_open(struct bitnet_file **out, const char *path, bitnet_error *err);
void bn_file_close(struct bitnet_file *f);
const char *bn_file_format(const struct bitnet_file *f);
uint64_t bn_file_bytes(const struct bitnet_file *f);
size_t bn_file_n_meta(const struct bitnet_file *f);
/* *n: room in, length of the text out (no final 0 is counted; one is written if it fits). */
bitnet_status bn_file_meta(const struct bitnet_file *f, size_t i, const char **key,
                           const char **type, char *value, size_t *n);
uint32_t bn_file_sampling(const struct bitnet_file *f, bitnet_sampling *s);
bitnet_status bn_file_model(const struct bitnet_file *f, bitnet_file_model *out, bitnet_error *err);
size_t bn_file_n_tensors(const struct bitnet_file *f);
bitnet_status bn_file_tensor(const struct bitnet_file *f, size_t i, bitnet_tensor_info *info);
bitnet_status bn_file_tensor_stats(const struct bitnet_file *f, size_t i,
                                   bitnet_tensor_stats *stats, bitnet_error *err);

/* ---- perplexity.c ---- */
struct bitnet_engine;
bitnet_status bn_perplexity(struct bitnet_engine *e, const int32_t *tokens, size_t n,
                            const bitnet_ppl_options *o, bitnet_ppl_result *r, bitnet_error *err);

/* ---- prune/search.c: which layers can go; prune/write.c: the model without them ---- */
bitnet_status bn_prune_search(struct bitnet_engine *e, const int32_t *tokens, size_t n,
                              const bitnet_prune_options *o, bitnet_prune_result *r,
                              bitnet_error *err);
bitnet_status bn_prune(const char *in, const char *out, const bitnet_prune_output *o,
                       bitnet_error *err);

/* ---- harm.c: the divergence of one engine from another ---- */
bitnet_status bn_compare(struct bitnet_engine *base, struct bitnet_engine *other,
                         const int32_t *tokens, size_t n, const bitnet_compare_options *o,
                         bitnet_divergence *out, bitnet_error *err);

/* ---- kernel_timer.c: how fast the kernels are on a model's sizes ---- */
struct bitnet_kernel_timer;
struct bn_model;
bitnet_status bn_kernel_timer_open(struct bitnet_kernel_timer **out, const struct bn_model *m,
                                   const char *only, bitnet_error *err);
void bn_kernel_timer_close(struct bitnet_kernel_timer *t);
bool bn_kernel_timer_case(const struct bitnet_kernel_timer *t, size_t i, bitnet_kernel_case *c);
double bn_kernel_timer_run(struct bitnet_kernel_timer *t, size_t i); /* i: of a case */

/* ================================================================== inside the room */

/* Reads every value of `s` and counts (inspect_stats.c). name: for errors. matrix: the tensor may
 * be looked at as codes times scales even though it is stored in floats. */
bitnet_status bn_stats_read(bitnet_tensor_stats *out, const struct bn_stored *s, const char *name,
                            bool matrix, bitnet_error *err);

/* A window of a text on its way through an engine, piece by piece (perplexity.c). Zero what is behind bos. */
struct bn_window {
    const int32_t *tokens;
    size_t n;
    size_t first; /* the first position whose prediction of its successor counts */
    size_t most;  /* tokens of a piece, at most */
    int32_t bos;  /* >= 0: stands in for the first token */
    /* the piece */
    const int32_t *ids;
    size_t at, n_ids;
    bool counts; /* its predictions; a piece lies on one side of `first` */
};
/* The next piece; false: there is none, since nothing follows the last token. */
bool bn_window_next(struct bn_window *w);

/* The token that begins a text, where the model asks for one; else -1 (perplexity.c). */
int32_t bn_forge_opening(const struct bn_model *m);
/* Every token is one of the vocabulary's. (perplexity.c) */
bitnet_status bn_forge_check_tokens(const int32_t *tokens, size_t n, uint32_t n_vocab,
                                    bitnet_error *err);

/* ---- choice.c: storage types by name and by shape ---- */
struct bn_choice {
    enum { BN_CHOICE_AUTO, BN_CHOICE_KEEP, BN_CHOICE_TYPE } how;
    enum bn_type type;
};
/* "keep", a type's name, or NULL and "" for AUTO. ternary: of the projections, else of the head. */
bitnet_status bn_choice_parse(struct bn_choice *out, const char *name, bool ternary,
                              bitnet_error *err);
/* The type AUTO means for a ternary matrix: I2_S where a row is whole blocks, else IQ2_BN. */
enum bn_type bn_choice_auto(enum bn_type_scale scale, uint64_t rows, uint64_t cols);
/* Bytes of the tensor; an error names the tensor and what the type needs. */
bitnet_status bn_choice_bytes(uint64_t *out, enum bn_type t, const char *tensor, uint64_t rows,
                              uint64_t cols, bitnet_error *err);
/* general.file_type of a file whose projections are of type t; false: there is no agreed number. */
bool bn_choice_file_type(uint32_t *out, enum bn_type t);

/* ---- vocab.c ---- */
/* The 256 bytes, begin and end of text, two spaces. */
bitnet_status bn_forge_vocab_bytes(struct bn_vocab *v, bitnet_error *err);
/* Exactly n_vocab tokens: filled up with unused ones; too many are an error. */
bitnet_status bn_forge_vocab_fit(struct bn_vocab *v, uint32_t n_vocab, const char *what,
                                 bitnet_error *err);

/* ---- progress of long work, in bytes of output ---- */
struct bn_work {
    bitnet_progress_fn fn; /* may be NULL */
    void *user;
    uint64_t done, total;
};
/* Adds to done and reports; BITNET_E_CANCELLED when the caller wants to stop. */
static inline bitnet_status bn_work_add(struct bn_work *w, const char *what, uint64_t bytes,
                                        bitnet_error *err)
{
    w->done += bytes;
    if (w->fn == NULL || w->fn(w->user, what, w->done, w->total) == 0) return BITNET_OK;
    return bn_fail(err, BITNET_E_CANCELLED, "stopped on request after %llu of %llu bytes",
                   (unsigned long long)w->done, (unsigned long long)w->total);
}

#endif
