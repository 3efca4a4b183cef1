/* SPDX-License-Identifier: Apache-2.0
 *
 * model_opts.h: which model, and how it is opened and held. The options that several commands
 * share, as tables for args.h, and the calls that turn them into a model and an engine.
 */
#ifndef BN_CLI_MODEL_OPTS_H
#define BN_CLI_MODEL_OPTS_H

#include "cli/args.h"

/* -m/--model alone, for commands that only look at a file or its vocabulary. */
struct model_path {
    const char *model;
};
extern const struct opt model_path_table[];

struct model_opts {
    const char *model, *backend, *activations, *i2s_layout, *layout, *pin;
    uint32_t threads;
};
extern const struct opt model_opts_table[];

struct engine_opts {
    uint32_t ctx_tokens, batch_tokens;
    const char *kv_type, *head, *ffn;
};
extern const struct opt engine_opts_table[];
/* --batch-size of commands that run one sequence at a time; part of struct engine_opts */
extern const struct opt prompt_batch_table[];

/* The option --kv-type, for tables that take it alone. */
#define MODEL_KV_TYPE_OPT(at, type)                                                   \
    {                                                                                 \
        .kind = OPT_CHOICE, .name = "kv-type", .help = "type of the attention cache", \
        .offset = at, .initial = type, .choices = "f16|f32"                           \
    }

/* The option --head of commands that need all logits. */
#define MODEL_HEAD_OPT(at)                                                                        \
    {                                                                                             \
        .kind = OPT_CHOICE, .name = "head",                                                       \
        .help = "the output head: exact as in the file, or int8, a copy of it rounded to 8 bits", \
        .offset = at, .initial = "exact", .choices = "exact|int8"                                 \
    }

/* The model of a command whose only word is the model: that word, or what --model says. Both are
 * a usage error, whose exit code is returned. */
int model_word(const char **typed, const char *from_option, const struct arg_words *words,
               const char *command);

/* Is that the name of a shape of bitnet_synth? If not, a usage error, whose exit code is returned. */
int model_shape_check(const char *typed, const char *command);

/* The path for the library: NULL, the embedded model, for "-", "embedded" and nothing at all. */
const char *model_path_resolve(const char *typed);
/* What to call that model in a sentence. */
const char *model_path_name(const char *path);

/* Does the word look like a model and not like a prompt? An existing file or folder, a known
 * ending, or a path; "-" and "embedded". */
bool model_path_looks_like(const char *word);

/* Opens with a progress bar and shows the library's notes. head, ffn: as in bitnet_model_options;
 * "exact" for commands that want all logits, "dense" for those that decode nothing. On failure the error line has been
 * printed and the exit code is returned; 0 when open. */
int model_open(bitnet_model **out, const char *typed, const struct model_opts *o, const char *head,
               const char *ffn, const char *command);
int model_open_vocab(bitnet_model **out, const char *typed);

/* threads and their CPUs from the model options, the rest from the engine options. */
void model_engine_options(bitnet_engine_options *out, const struct model_opts *m,
                          const struct engine_opts *e);
bitnet_kv_type model_kv_type(const char *choice);

#endif
