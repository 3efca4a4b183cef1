/* SPDX-License-Identifier: Apache-2.0
 * From logits to a token. Order: top-k, top-p, min-p (all on the plain distribution), then
 * temperature, then a draw; without any of the three, the largest of logit / temperature + Gumbel
 * noise. Ties go to the smaller id. The draw depends on (seed, position) only, and exp and log are our
 * own, so the same seed gives the same text on every machine and in any company. */
#ifndef BN_ENGINE_SAMPLER_H
#define BN_ENGINE_SAMPLER_H

#include "model/head.h"

struct bn_candidate {
    float logit;
    int32_t id;
};

bitnet_status bn_sampling_check(const bitnet_sampling *s, bitnet_error *err);

/* The logits of a token that bn_sample will look at. */
struct bn_want bn_sampling_want(const bitnet_sampling *s, uint64_t position);

/* Logits of -infinity are never drawn. scratch: [n] candidates. position: index of the token to be made in its sequence. No
 * allocation. */
int32_t bn_sample(const bitnet_sampling *s, const float *logits, uint32_t n, uint64_t position,
                  struct bn_candidate *scratch);

#endif
