/* SPDX-License-Identifier: Apache-2.0
 * What synth makes models of: the list of true shapes, and shares of zeros on demand. */
#ifndef BN_FORGE_SYNTH_IMPL_H
#define BN_FORGE_SYNTH_IMPL_H

#include "base/status.h"
#include "model/config/config.h"

/* What a hybrid has besides (synth_hybrid.c). */
struct bn_hybrid {
    struct bn_delta_shape delta;
    uint32_t rope_dim, rope_sections[4];
    enum bn_type type;       /* of matrices, embedding and head, if none is asked for */
    bool float_gates;        /* alpha and beta are BF16, not ternary */
    uint32_t hadamard_block; /* 0: inputs are not rotated */
    uint32_t n_mtp;
};

struct bn_shape {
    const char *name, *description;
    const char *arch; /* of the GGUF; says activation, norms and rotation */
    uint32_t n_embd, n_ff, n_layer, n_head, n_head_kv, head_dim, n_vocab, n_ctx;
    float rope_theta, eps;
    bool tied_head;
    enum bn_act act;
    enum bn_act_quant act_quant;
    float yarn_factor;              /* 0: positions are not scaled */
    uint32_t yarn_ctx;              /* the context before */
    const struct bn_hybrid *hybrid; /* NULL: every layer has attention */
};

const struct bn_shape *bn_shape_at(size_t i); /* NULL past the end */
const struct bn_shape *bn_shape_find(const char *name);

/* n values, nearly normal. (synth.c) */
struct bn_rng;
void bn_synth_values(float *out, struct bn_rng *rng, uint64_t n, float sigma);

/* c: filled but for what h says. */
void bn_hybrid_config(struct bn_config *c, const struct bn_hybrid *h);
/* Values of a part that is no matrix and no table: norms, convolution, decays. */
void bn_hybrid_values(float *out, enum bn_part part, struct bn_rng *rng, uint64_t n);
/* The keys prism.hadamard.*, if there is a rotation; rng chooses the signs. */
struct bn_gguf_writer;
void bn_hybrid_put_rotation(const struct bn_config *c, struct bn_rng rng, struct bn_gguf_writer *w);

/* The shares of rows of `gate` and of weights of the norm before `down` that are not zeros, one pair
 * for each of n stretches of layers; n 0: all. (synth_density.c) */
struct bn_density {
    size_t n;
    double rows[64], weights[64];
};
/* "trained", or pairs of shares of open gates and nonzero inputs; NULL or "": nothing special. */
bitnet_status bn_density_parse(struct bn_density *d, const char *text, bitnet_error *err);

#endif
