/* SPDX-License-Identifier: Apache-2.0
 *
 * generate.h: one request from prompt tokens to text, for run and chat: its options, the loop over bitnet_step() with Ctrl-C, and what came of it.
 */
#ifndef BN_CLI_COMMANDS_GENERATE_H
#define BN_CLI_COMMANDS_GENERATE_H

#include "base/buf.h"
#include "json/json.h"
#include "cli/options/constraint_opts.h"
#include "cli/options/sampling_opts.h"
#include "cli/options/scrub_opts.h"

struct generate_opts {
    uint32_t max_new_tokens;
    uint64_t seed;
    bool seed_given, ignore_end, special;
    struct opt_list stop;
    struct sampling_opts sampling;     /* a table of its own */
    struct constraint_opts constraint; /* likewise */
};
extern const struct opt generate_opts_table[];

/* Chooses a seed where the user gave none: small enough to be typed again. */
void generate_choose_seed(struct generate_opts *o);

struct generation {
    /* in */
    bitnet_engine *engine;
    const bitnet_model *model;
    const struct generate_opts *opts;
    const int32_t *tokens;
    size_t n_tokens;
    uint64_t seed;
    bool (*on_text)(void *user, const char *text,
                    size_t n); /* false: stop, nobody can read it; may be NULL */
    void *user;
    const char *echo; /* goes to on_text as soon as the request is accepted; no part of `text` */
    size_t n_echo;
    struct scrub_opts scrub; /* 0: off */
    bool logprobs;
    uint32_t n_top; /* likeliest tokens beside each; in fact, after the run */
    /* out: owned, generation_free */
    struct bn_buf text;
    int32_t *ids;
    size_t n_ids, ids_room;
    bitnet_logprob *probs; /* a token: its own, then n_top likeliest */
    size_t n_probs, probs_room;
    bitnet_finish finish;
    uint32_t n_prompt, n_cached, n_generated; /* n_cached: of the prompt, not read again */
    uint64_t prefill_ns, decode_ns, first_token_ns, total_ns;
    double repetition; /* share of the answer's 3-grams */
};

/* Runs the request to its end. A pending interrupt cancels it: that is BITNET_OK with finish
 * CANCELLED, and the text so far. */
bitnet_status generation_run(struct generation *g, bitnet_error *err);
void generation_free(struct generation *g);

const char *
generation_finish_name(bitnet_finish f); /* "end", "stop", "length", "cancelled", "error" */
/* tokens a second; 0 when there is nothing to divide */
double generation_prompt_rate(const struct generation *g);
double generation_decode_rate(const struct generation *g);

/* The parts of a command's options that belong to one text: the engine that generates it, how, and what
 * it must match. config: the struct with members `model`, `engine` and `gen`. */
#define GENERATE_PARTS(config)                                                        \
    {"Model", model_opts_table, offsetof(config, model)},                             \
        {"Context", prompt_batch_table, offsetof(config, engine)},                    \
        {NULL, engine_opts_table, offsetof(config, engine)},                          \
        {NULL, draft_table, offsetof(config, engine)},                                \
        {NULL, state_table, offsetof(config, engine)},                                \
        {NULL, warmup_table, offsetof(config, engine)},                               \
        {"Adapters", adapter_opts_table, offsetof(config, adapters)},                 \
        {"Generation", generate_opts_table, offsetof(config, gen)},                   \
        {"Sampling", sampling_opts_table, offsetof(config, gen.sampling)},            \
    {                                                                                 \
        "Constrained output", constraint_opts_table, offsetof(config, gen.constraint) \
    }

#endif
