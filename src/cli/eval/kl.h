/* SPDX-License-Identifier: Apache-2.0
 *
 * kl.h: the divergence of one model, or one setting, from another (kl.c).
 */
#ifndef BN_CLI_EVAL_KL_H
#define BN_CLI_EVAL_KL_H

#include "base/os/file.h"
#include <bitnet/bitnet.h>

/* What llama-perplexity --kl-divergence-base has written. */
struct kl_base {
    struct bn_mapping file;
    uint32_t ctx, n_vocab, n_chunks;
    size_t row_words;
    const int32_t *tokens; /* [n_chunks][ctx] */
    const uint8_t *rows;
};
bitnet_status kl_base_open(struct kl_base *out, const char *path, bitnet_error *err);
void kl_base_close(struct kl_base *b);

/* What is compared: `b` with the engine `a` or, where that is NULL, with the file. */
struct kl_sources {
    bitnet_engine *a, *b;
    const struct kl_base *base;
    uint32_t n_vocab;
    const int32_t *tokens; /* whole windows of ctx, what is left over is not used */
    size_t n_tokens, ctx;
    bitnet_progress_fn progress;
    void *progress_user;
};

/* Gathered on the way. */
struct kl_sums {
    double least; /* a log-probability: what is not above it is left out */
    double *kl;   /* one a position */
    size_t n, room;
    uint64_t n_same_top;
    double nll_a, nll_b, diff_squares;
};

/* Errors are standard errors. */
struct kl_result {
    size_t n; /* positions */
    double mean, mean_error, median, p99, most;
    double same_top, same_top_error;
    double ppl_a, ppl_b, ppl_ratio, ppl_ratio_error;
    uint64_t ns;
};
bitnet_status kl_measure(struct kl_result *out, const struct kl_sources *from, bitnet_error *err);

#endif
