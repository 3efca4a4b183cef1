/* SPDX-License-Identifier: Apache-2.0
 *
 * kl.h: a base to compare with that another program wrote.
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

/* As bitnet_base_fn: user is a struct kl_base. */
void kl_base_row(void *user, size_t row, double *out);
/* What is less likely was stored as this; there is nothing to compare it by. */
#define KL_BASE_LEAST (-16.0)

#endif
