/* SPDX-License-Identifier: Apache-2.0
 *
 * synthetic.h: the model of a command that measures: a file, the embedded one, or a synthetic one
 * that lives in memory only.
 */
#ifndef BN_CLI_OPTIONS_SYNTHETIC_H
#define BN_CLI_OPTIONS_SYNTHETIC_H

#include "cli/options/model_opts.h"

/* What a synthetic model is to be like. */
struct synth_opts {
    const char *type, *head_type, *ffn_density;
    uint32_t layers;
    bool mtp;
};
extern const struct opt synth_opts_table[];
void synth_opts_apply(bitnet_synth_options *o, const struct synth_opts *c);

struct synthetic_opts {
    const char *shape; /* NULL: no synthetic model */
    struct synth_opts model;
    uint64_t seed; /* of prompts, too */
};
extern const struct opt synthetic_table[];

/* Where the model is: a synthetic one is made in memory, has no name, and is gone when ended. */
struct synthetic_source {
    const char *typed; /* as of model_word, or `path` */
    char path[32];
    int fd; /* -1: not synthetic */
};
int synthetic_find(struct synthetic_source *out, const struct synthetic_opts *made,
                   const struct model_opts *o, const struct arg_words *words, const char *command);
void synthetic_end(struct synthetic_source *s);

/* Opens the synthetic model or, without one, that of the only word or of --model. head, ffn and the
 * exit code as of model_open. */
int synthetic_or_word(bitnet_model **out, const struct synthetic_opts *made, struct model_opts *o,
                      const struct arg_words *words, const char *head, const char *ffn,
                      const char *command);

#endif
