/* SPDX-License-Identifier: Apache-2.0
 * What synth makes models of: the list of true shapes, and shares of zeros on demand. */
#ifndef BN_FORGE_SYNTH_H
#define BN_FORGE_SYNTH_H

#include "base/status.h"
#include "model/config.h"

struct bn_shape {
    const char *name, *description;
    const char *arch; /* of the GGUF; says activation, norms and rotation */
    uint32_t n_embd, n_ff, n_layer, n_head, n_head_kv, head_dim, n_vocab, n_ctx;
    float rope_theta, eps;
    bool tied_head;
    enum bn_act act;
    enum bn_act_quant act_quant;
    float yarn_factor; /* 0: positions are not scaled */
    uint32_t yarn_ctx; /* the context before */
};

const struct bn_shape *bn_shape_at(size_t i); /* NULL past the end */
const struct bn_shape *bn_shape_find(const char *name);

/* The shares of rows of `gate` and of weights of the norm before `down` that are not zeros, one pair
 * for each of n stretches of layers; n 0: all. (synth_density.c) */
struct bn_density {
    size_t n;
    double rows[64], weights[64];
};
/* "trained", or pairs of shares of open gates and nonzero inputs; NULL or "": nothing special. */
bitnet_status bn_density_parse(struct bn_density *d, const char *text, bitnet_error *err);

#endif
