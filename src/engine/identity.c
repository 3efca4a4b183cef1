/* SPDX-License-Identifier: Apache-2.0
 *
 * identity.c: what an engine computes with, as a number: for texts of the prefix cache that were kept in
 * files (prefix_file.c), and for programs that keep answers.
 */
#include "engine/engine_impl.h"

#include "base/checksum.h"
#include "base/rng.h"
#include "model/identity.h"

static void mix_in(uint64_t *sum, uint64_t x) { *sum = bn_mix64(*sum ^ x); }

static void mix_in_float(uint64_t *sum, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    mix_in(sum, bits);
}

bitnet_status bn_cache_identity(uint64_t *sum, const struct bitnet_engine *e, bitnet_error *err)
{
    BN_TRY(bn_model_identity(sum, e->m, err));
    for (uint32_t i = 0; i < e->kv.n_layer; i++)
        mix_in(sum, (uint64_t)e->kv.layers[i].keys.type << 8 | e->kv.layers[i].values.type);
    for (uint32_t i = 0; i < e->states.n_layer; i++) mix_in(sum, e->states.layers[i].bf16);
    const struct bn_savings *s = e->savings;
    for (uint32_t i = 0; s && i < s->n_layer; i++) {
        mix_in(sum, s->layers[i].down_codes);
        mix_in_float(sum, s->layers[i].gate_min);
        for (size_t k = 0; k < BN_N_INPUTS; k++) mix_in(sum, s->layers[i].activations[k]);
    }
    return BITNET_OK;
}

uint64_t bn_mix_identity(const struct bn_mix *mix)
{
    uint64_t sum = mix->n;
    for (uint32_t i = 0; i < mix->n; i++) {
        const struct bitnet_adapter *a = mix->parts[i].adapter;
        mix_in(&sum, bn_checksum(a->block, a->block_bytes));
        mix_in_float(&sum, mix->parts[i].scale);
        mix_in(&sum, (uint64_t)a->embed.rank << 32 | a->head.rank);
        for (size_t k = 0; k < (size_t)a->m->config.n_layer * BN_N_PROJ; k++) {
            mix_in(&sum, a->parts[k].rank);
            if (a->parts[k].rank) mix_in_float(&sum, a->parts[k].scale);
        }
    }
    return sum;
}

bitnet_status bn_engine_identity(struct bitnet_engine *e, const bitnet_adapter_use *uses, size_t n,
                                 uint64_t *out, bitnet_error *err)
{
    struct bn_mix mix;
    BN_TRY(
        bn_engine_choose_mix(e, &mix, &(bitnet_request){.adapters = uses, .n_adapters = n}, err));
    BN_TRY(bn_cache_identity(out, e, err));
    mix_in(out, bn_mix_identity(&mix));
    mix_in(out, e->head == BN_HEAD_INT8); /* the other heads find the same tokens */
    return BITNET_OK;
}
