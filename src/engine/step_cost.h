/* SPDX-License-Identifier: Apache-2.0
 * What a step costs, learned from steps: so much for the step itself, for every decoded or drafted token in
 * it, for every token of a prompt. */
#ifndef BN_ENGINE_STEP_COST_H
#define BN_ENGINE_STEP_COST_H

#include "base/base.h"

enum { BN_STEP_COST_TERMS = 3 };

struct bn_step_cost {
    double step_ns, decode_ns, prompt_ns; /* 0: nothing was learned yet */
    /* Sums over the steps seen, the older the less: of x x' and of x times the nanoseconds, where
     * x is (1, decodes, prompt tokens). */
    double xx[BN_STEP_COST_TERMS][BN_STEP_COST_TERMS], xy[BN_STEP_COST_TERMS];
    double deviation_ns; /* of a step from what was expected of it, as a rule */
};

/* Zero-initialise it. A step with that many decodes (and drafts) and prompt tokens took so long. */
void bn_step_cost_learn(struct bn_step_cost *c, uint32_t decodes, uint32_t prompts, uint64_t ns);
double bn_step_cost_ns(const struct bn_step_cost *c, uint32_t decodes, uint32_t prompts);

#endif
