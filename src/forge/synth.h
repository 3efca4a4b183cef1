/* SPDX-License-Identifier: Apache-2.0
 * The list of true shapes that synth makes models of. */
#ifndef BN_FORGE_SYNTH_H
#define BN_FORGE_SYNTH_H

#include "model/config.h"

struct bn_shape {
    const char *name, *description;
    const char *arch; /* of the GGUF; says activation, norms and rotation */
    uint32_t n_embd, n_ff, n_layer, n_head, n_head_kv, head_dim, n_vocab, n_ctx;
    float rope_theta, eps;
    bool tied_head;
    enum bn_act act;
    enum bn_act_quant act_quant;
};

const struct bn_shape *bn_shape_at(size_t i); /* NULL past the end */
const struct bn_shape *bn_shape_find(const char *name);

#endif
