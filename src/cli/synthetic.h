/* SPDX-License-Identifier: Apache-2.0
 *
 * synthetic.h: the model of a command that measures: a file, the embedded one, or a synthetic one
 * that lives in memory only.
 */
#ifndef BN_CLI_SYNTHETIC_H
#define BN_CLI_SYNTHETIC_H

#include "cli/model_opts.h"

struct synthetic_opts {
    const char *shape, *type, *head_type, *ffn_density; /* shape NULL: no synthetic model */
    uint32_t layers;
};
extern const struct opt synthetic_table[];

/* Opens the synthetic model or, without one, that of the only word or of --model. head, ffn and the
 * exit code as of model_open. */
int synthetic_or_word(bitnet_model **out, const struct synthetic_opts *made, uint64_t seed,
                      const struct model_opts *o, const struct arg_words *words, const char *head,
                      const char *ffn, const char *command);

#endif
