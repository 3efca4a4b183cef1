/* SPDX-License-Identifier: Apache-2.0 */
#include "model/ffn/activity.h"

#include "base/os/mem.h"
#include <stdlib.h>

bitnet_status bn_activity_open(struct bn_activity *a, uint32_t n_layer, size_t n_ff,
                               bitnet_error *err)
{
    *a = (struct bn_activity){.n_layer = n_layer, .n_ff = n_ff};
    a->layers = bn_calloc_now(n_layer, sizeof *a->layers);
    return a->layers ? BITNET_OK
                     : bn_fail_nomem(err, n_layer * sizeof *a->layers, "counts of activations");
}

void bn_activity_close(struct bn_activity *a) { free(a->layers); }

void bn_activity_begin(struct bn_activity *a)
{
    a->due = a->passes++ % BN_ACTIVITY_PASSES == 0;
    a->samples += a->due;
}

void bn_activity_note(struct bn_activity *a, uint32_t layer, const float *gate, float gate_min,
                      const int8_t *q8, const float *input)
{
    uint32_t open = 0, zero = 0;
    for (size_t i = 0; i < a->n_ff; i++) open += gate[i] > gate_min;
    for (size_t i = 0; i < a->n_ff; i++) zero += q8 ? q8[i] == 0 : input[i] == 0;
    a->layers[layer].gates_open += open;
    a->layers[layer].inputs_zero += zero;
}

static double share(const struct bn_activity *a, uint64_t n)
{
    return a->samples ? (double)n / ((double)a->samples * (double)a->n_ff) : 0;
}

double bn_activity_gates(const struct bn_activity *a, uint32_t layer)
{
    return share(a, a->layers[layer].gates_open);
}

double bn_activity_zeros(const struct bn_activity *a, uint32_t layer)
{
    return share(a, a->layers[layer].inputs_zero);
}
