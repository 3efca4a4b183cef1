/* SPDX-License-Identifier: Apache-2.0
 *
 * sampling_opts.h: how a token is chosen, as options: the table for args.h, and from what was typed
 * to bitnet_sampling.
 */
#ifndef BN_CLI_OPTIONS_SAMPLING_OPTS_H
#define BN_CLI_OPTIONS_SAMPLING_OPTS_H

#include "cli/core/args.h"

struct sampling_opts {
    float temperature, top_p, min_p, typical_p, top_n_sigma;
    uint32_t top_k;
    bool adaptive;
    float repetition_penalty, presence_penalty, frequency_penalty;
    uint32_t penalty_last_n;
    float dry_multiplier, dry_base;
    uint32_t dry_allowed_length, dry_last_n;
    struct opt_list dry_breakers, logit_bias;
    /* typed; else the model's, where it has one */
    bool temperature_given, top_k_given, top_p_given, min_p_given, repetition_given, last_n_given;
};
extern const struct opt sampling_opts_table[];

/* *s borrows from o and from biases. The seed is not touched. m: for what it recommends. */
bitnet_status sampling_from_opts(bitnet_sampling *s, bitnet_logit_bias biases[OPT_LIST_MAX],
                                 const struct sampling_opts *o, const bitnet_model *m,
                                 bitnet_error *err);

#endif
