/* SPDX-License-Identifier: Apache-2.0
 *
 * prompt.h: what is asked: lengths drawn from a distribution, prompts made of words or taken
 * from a file, and the body of a request. Request i of a run is the same for the same seed, in
 * whatever order requests are sent.
 */
#ifndef BN_CLI_LOAD_PROMPT_H
#define BN_CLI_LOAD_PROMPT_H

#include "base/buf.h"
#include "json/json.h"
#include "base/rng.h"

enum {
    LOAD_MAX_TOKENS = 1 << 20,        /* of a prompt or an answer */
    LOAD_MAX_PROMPTS = 1 << 20,       /* lines of a dataset */
    LOAD_MAX_DATASET_BYTES = 1 << 28, /* of its prompts together */
    LOAD_MAX_BODY_BYTES = 64 << 20
};

enum load_length_kind { LOAD_LENGTH_UNIFORM, LOAD_LENGTH_NORMAL };

struct load_length {
    enum load_length_kind kind;
    double a, b; /* from a to b; mean and standard deviation */
};

/* "64", "32-256", "normal:200,50" */
bool load_length_parse(struct load_length *out, const char *text);
uint32_t load_length_draw(const struct load_length *l, struct bn_rng *r);

/* Prompts of a JSONL file: "messages", "prompt", or the first of "turns". */
struct load_dataset {
    struct bn_json *items; /* array of arrays of messages */
};
bitnet_status load_dataset_read(struct load_dataset *d, const char *path, bitnet_error *err);
void load_dataset_free(struct load_dataset *d);

struct load_prompts {
    bool chat;
    const char *model;
    const struct load_dataset *dataset; /* NULL: words */
    struct load_length in, out;
    uint32_t shared_prefix; /* words that all prompts begin with */
    uint64_t seed;
    bool ignore_eos, has_temperature;
    float temperature;
};

/* What request i asks for. */
struct load_ask {
    uint64_t index;
    uint32_t n_in; /* words of the prompt; 0 with a dataset */
    uint32_t n_out;
};

struct load_ask load_prompts_ask(const struct load_prompts *p, uint64_t index);
/* Appends the body. false: out of memory, or larger than the buffer allows. */
bool load_prompts_body(const struct load_prompts *p, const struct load_ask *ask,
                       struct bn_buf *out);

#endif
