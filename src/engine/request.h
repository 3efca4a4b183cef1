/* SPDX-License-Identifier: Apache-2.0
 * One request on its way: its tokens so far, where it stands, and how its text comes out. */
#ifndef BN_ENGINE_REQUEST_H
#define BN_ENGINE_REQUEST_H

#include "engine/sampler.h"

struct bn_request {
    struct bn_request *next; /* in the queue */
    uint64_t id;
    int32_t *tokens; /* prompt and answer, [limit] */
    uint32_t n_tokens, n_prompt, limit;
    uint32_t n_done; /* tokens whose keys and values are in the cache */
    struct bn_sampler *sampler;
    bool logprobs, ignore_end, cancelled;
    uint32_t n_top;         /* likeliest tokens of an event */
    struct bn_detok *detok; /* NULL: the model has no tokenizer */
    uint64_t started_ns, prefill_ns, decode_ns;
};

/* limit: prompt and answer together. Copies what it needs. */
bitnet_status bn_request_make(struct bn_request **out, const bitnet_request *r, uint32_t n_vocab,
                              const struct bn_tokenizer *t, uint32_t limit, bitnet_error *err);
void bn_request_free(struct bn_request *r);

#endif
