/* SPDX-License-Identifier: Apache-2.0
 * How much of the feed-forward layers is at work: now and then one token is looked at, and its gates
 * above zero and its zero inputs of `down` are counted, layer by layer. */
#ifndef BN_MODEL_FFN_ACTIVITY_H
#define BN_MODEL_FFN_ACTIVITY_H

#include "base/status.h"

enum { BN_ACTIVITY_PASSES = 16 }; /* of so many passes one is looked at, its last token */

struct bn_activity_layer {
    uint64_t gates_open, inputs_zero;
};

struct bn_activity {
    uint32_t n_layer;
    size_t n_ff;
    uint64_t passes, samples;
    bool due; /* in the pass in progress */
    struct bn_activity_layer *layers;
};

bitnet_status bn_activity_open(struct bn_activity *a, uint32_t n_layer, size_t n_ff,
                               bitnet_error *err);
void bn_activity_close(struct bn_activity *a);

/* A pass begins; by one thread. */
void bn_activity_begin(struct bn_activity *a);
/* Inside a pass that is due, by one worker: gates [n_ff], open above gate_min; the input of `down` [n_ff], as int8 or, with
 * q8 NULL, as floats. */
void bn_activity_note(struct bn_activity *a, uint32_t layer, const float *gate, float gate_min,
                      const int8_t *q8, const float *input);

/* Mean shares of all samples; 0 if there are none. */
double bn_activity_gates(const struct bn_activity *a, uint32_t layer);
double bn_activity_zeros(const struct bn_activity *a, uint32_t layer);

#endif
