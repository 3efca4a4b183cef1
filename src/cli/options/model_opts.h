/* SPDX-License-Identifier: Apache-2.0
 *
 * model_opts.h: which model, and how it is opened and held. The options that several commands
 * share, as tables for args.h, and the calls that turn them into a model and an engine.
 */
#ifndef BN_CLI_OPTIONS_MODEL_OPTS_H
#define BN_CLI_OPTIONS_MODEL_OPTS_H

#include "cli/core/args.h"
#include "app/adapters.h"
#include "app/autotune_file.h"
#include "cli/options/model_source.h"

/* -m/--model alone, for commands that only look at a file or its vocabulary. */
struct model_path {
    const char *model;
    bool typed; /* on the command line, not in settings */
    struct model_source from;
};
extern const struct opt model_path_table[];

struct model_opts {
    const char *model, *backend, *activations, *i2s_layout, *layout, *pin, *cpus, *hugepages, *numa,
        *tuning, *cache, *plan, *split, *outputs;
    uint32_t threads, prefetch_bytes;
    uint64_t cache_min_bytes, cache_max_bytes;
    bool mlock, no_mmap, no_cache, verify;
    bool cache_read_only; /* for commands that measure: nothing is written beside them */
    bool model_typed;     /* on the command line, not in settings: a word may stand against these */
    bool threads_given, layout_given, pin_given, prefetch_given;
    struct model_source from;
    struct autotune_values tuned; /* what was taken from the tuning file, set by model_open */
};
extern const struct opt model_opts_table[];

/* Types of keys and values in the attention cache and of recurrent states, for tables that take them
 * alone. */
struct kv_opts {
    const char *keys, *values, *states;
    bool int2;
};
#define MODEL_KV_CHOICES "f16|bf16|f32|fp8|fp8_e4m3|fp8_e5m2|int8|int4|int2|q8_0|q4_0"
/* auto is what the plan says, otherwise `type`. */
#define MODEL_KV_OPTS(at, type)                                                                    \
    {.kind = OPT_CHOICE,                                                                           \
     .name = "kv-type",                                                                            \
     .help = "type of the KV cache; fp8 is fp8_e4m3, q8_0 int8, q4_0 int4; auto: what the plan "   \
             "says, otherwise " type,                                                              \
     .offset = (at) + offsetof(struct kv_opts, keys),                                              \
     .initial = "auto",                                                                            \
     .aliases = "cache-type-k",                                                                    \
     .choices = "auto|" MODEL_KV_CHOICES},                                                         \
        {.kind = OPT_CHOICE,                                                                       \
         .name = "kv-type-v",                                                                      \
         .help =                                                                                   \
             "type of its values; auto: that of --kv-type, which otherwise applies to keys only",  \
         .offset = (at) + offsetof(struct kv_opts, values),                                        \
         .initial = "auto",                                                                        \
         .aliases = "cache-type-v",                                                                \
         .choices = "auto|" MODEL_KV_CHOICES},                                                     \
        {.kind = OPT_CHOICE,                                                                       \
         .name = "state-type",                                                                     \
         .help = "type of recurrent states (qwen35): bf16 takes half the memory and rounds them; " \
                 "auto: what the plan says, otherwise f32",                                        \
         .offset = (at) + offsetof(struct kv_opts, states),                                        \
         .initial = "auto",                                                                        \
         .choices = "auto|f32|bf16"},                                                              \
    {                                                                                              \
        .kind = OPT_FLAG, .name = "kv-int2", .help = "the same as --kv-type int2",                 \
        .offset = (at) + offsetof(struct kv_opts, int2)                                            \
    }

struct engine_opts {
    uint32_t ctx_tokens, batch_tokens, draft_tokens;
    struct kv_opts kv;
    const char *head, *ffn, *speculation;
    uint64_t state_cache_bytes;
    bool warmup;
};
extern const struct opt engine_opts_table[];
/* --batch-size of commands that run one sequence at a time; part of struct engine_opts */
extern const struct opt prompt_batch_table[];
/* --speculation and --draft-tokens, of commands that answer; part of struct engine_opts */
extern const struct opt draft_table[];

/* --state-cache, of commands that use texts again; part of struct engine_opts */
extern const struct opt state_table[];

/* --warm-up, of commands that answer and end; part of struct engine_opts */
extern const struct opt warmup_table[];

/* --lora, of commands that compute; of those that take requests, which may name adapters. With by_name
 * adapters that have a name and no scale are only for requests that name them. */
struct adapter_opts {
    struct opt_list lora;
    bool by_name;
};
extern const struct opt adapter_opts_table[];
extern const struct opt named_adapters_table[];
/* Opens an engine with these adapters at work, and has it warmed up if that is wanted. On failure *out is
 * NULL. In any case adapters_close is to be called, after the engine is closed or before. */
bitnet_status model_adapted_open(bitnet_engine **out, struct adapters *adapters,
                                 const bitnet_model *m, const bitnet_engine_options *o,
                                 const struct adapter_opts *typed, bool warmup, bitnet_error *err);

/* How many sequences at a time, and what they share: for commands that run many. */
struct seqs_opts {
    uint32_t max_seqs, batch_tokens, kv_tokens;
    const char *prefix_cache;
};
extern const struct opt seqs_opts_table[];

/* The option --chat-template of commands that always use one; textio_chat_template reads it. */
#define MODEL_TEMPLATE_OPT(at)                                                 \
    {                                                                          \
        .kind = OPT_STR, .name = "chat-template", .metavar = "NAME|FILE|TEXT", \
        .help = "chat template to use instead of the model's", .offset = at    \
    }

/* The option --max-tokens of commands that take requests. */
#define MAX_TOKENS_OPT(at, number)                                                            \
    {                                                                                         \
        .kind = OPT_U32, .letter = 'n', .name = "max-tokens", .metavar = "N",                 \
        .help = "longest answer in tokens for requests that do not say; 0 fills the context", \
        .offset = at, .initial = number, .aliases = "max-new-tokens n-predict", .min = 0,     \
        .max = 1 << 24                                                                        \
    }

/* The option --head of commands that need all logits. */
#define MODEL_HEAD_OPT(at)                                                                         \
    {                                                                                              \
        .kind = OPT_CHOICE, .name = "head",                                                        \
        .help = "the output head: exact as in the file, or int8, a copy of it rounded to 8 bits; " \
                "plan: what the plan says, otherwise exact",                                       \
        .offset = at, .initial = "plan", .choices = "plan|exact|int8", .own = true                 \
    }

/* The model of a command whose only word is the model: that word, or what --model says. Both on the
 * command line (option_typed) are a usage error, whose exit code is returned. */
int model_word(const char **typed, const char *from_option, bool option_typed,
               const struct arg_words *words, const char *command);

/* Is that the name of a shape of bitnet_synth? If not, a usage error, whose exit code is returned. */
int model_shape_check(const char *typed, const char *command);

/* The path for the library: NULL, the embedded model, for "-", "embedded" and nothing at all. */
const char *model_path_resolve(const char *typed);
/* What to call that model in a sentence. */
const char *model_path_name(const char *path);

/* Does the word look like a model and not like a prompt? An existing file or folder, a known
 * ending, a path, or the name of a published model; "-" and "embedded". */
bool model_path_looks_like(const char *word);

/* Does a word that is no file look like the name of a published model, as "llama3" or "qwen3:8b"? */
bool model_name_looks_like(const char *word);

/* --cpus: from here on this thread, and those that it starts, run there only. NULL: wherever they
 * may. On failure the error line has been printed and the exit code is returned. */
int model_cpus_apply(const char *list, const char *command);

/* Goes to the CPUs of --cpus, opens with a progress bar and shows the library's notes. What the user
 * did not give is taken into o from the tuning file, with a note. head, ffn: as in bitnet_model_options;
 * "exact" for commands that want all logits, "dense" for those that decode nothing. On failure the error line has been
 * printed and the exit code is returned; 0 when open. */
int model_open(bitnet_model **out, const char *typed, struct model_opts *o, const char *head,
               const char *ffn, const char *command);
/* The same without a word, on any thread; --cpus is not looked at. */
bitnet_status model_open_quietly(bitnet_model **out, const char *typed, struct model_opts *o,
                                 const char *head, const char *ffn, bitnet_progress_fn progress,
                                 void *user, bitnet_error *err);
/* The options for the library, without progress. */
void model_options(bitnet_model_options *out, const struct model_opts *o, const char *head,
                   const char *ffn);
int model_open_vocab(bitnet_model **out, struct model_path *path, const char *command);

/* threads, their CPUs and what is tuned from the model options, the rest from the engine options.
 * After model_open. */
void model_engine_options(bitnet_engine_options *out, const struct model_opts *m,
                          const struct engine_opts *e);
/* Opens an engine, and has it warmed up if that is wanted. *out is NULL on failure. */
bitnet_status model_engine_open(bitnet_engine **out, const bitnet_model *m,
                                const bitnet_engine_options *o, bool warmup, bitnet_error *err);
/* To be called after model_engine_options. */
void model_seqs_options(bitnet_engine_options *out, const struct seqs_opts *s);
void model_kv_types(bitnet_engine_options *out, const struct kv_opts *kv);

/* Where evaluation sets and calibration texts are. typed: "auto" or a folder. false: there is none. */
enum { DATA_PATH_BYTES = 4096 };
bool data_folder(char out[DATA_PATH_BYTES], const char *typed);
#define DATA_FOLDER_OPT(at, what)                                                            \
    {                                                                                        \
        .kind = OPT_STR, .name = "data", .metavar = "DIR",                                   \
        .help = "where " what " are; auto: bitnet/eval in $XDG_DATA_HOME or ~/.local/share", \
        .offset = at, .initial = "auto", .env = "BITNET_EVAL_DATA"                           \
    }

/* Where packed copies of models are kept. typed: "auto", "off" or a folder. false: there is none. */
enum { CACHE_PATH_BYTES = 4096 };
bool cache_folder(char out[CACHE_PATH_BYTES], const char *typed);

#endif
