/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters (LoRA): small matrices beside those of a model, so that for some requests
 *
 *   y = W x + scale * B (A x)
 *
 * with x as it is before anything is rounded: floats behind the norm, before they become int8 and
 * before a Hadamard rotation. This room owns adapters in memory (adapter.c, adapter_peft.c), which are
 * read-only once they are open and counted, so that one may go while requests still use it; and their
 * part in a forward pass (adapt.c). Which request has which adapters is the engine's business.
 *
 * Rows and columns lie in the order that the model has in memory (config/order.h), whatever file they
 * come from: a PEFT folder is in the order of checkpoints, a GGUF in that of its architecture's files.
 * A stays row by row in the type of the file; B is turned, a row for each of the ranks, so that the
 * rows of W that a worker has just computed get their part in one go. All of it is a copy in one block:
 * a file may be replaced while its adapter is in use.
 *
 * The bits. u = A x by the kernels for dense matrices: every sum in the 16 lanes of kernels.h. Then
 * y[i] += scale * s, s the sum over the ranks in order (kernels.h, low_rank); scale is one float, that
 * of the adapter times that of the request. Several adapters are added one after the other, as the
 * request lists them. So nothing depends on kernels, threads, batch neighbours or the cuts of a prompt.
 */
#ifndef BN_MODEL_ADAPTER_ADAPTER_H
#define BN_MODEL_ADAPTER_ADAPTER_H

#include "model/model.h"
#include <stdatomic.h>

enum {
    BN_ADAPTER_MAX_RANK = 1024,
    BN_ADAPTER_SLOTS = 4, /* projections that take the same input, at most */
    BN_MIX_MAX = BITNET_MAX_ADAPTERS
};
#define BN_ADAPTER_MAX_BYTES (UINT64_C(16) << 30)

/* Beside one matrix of `rows` and `cols`. rank 0: it has none. Of the embedding a is [n_vocab][rank]. */
struct bn_low_rank {
    uint32_t rank;
    float scale;
    struct bn_stored a; /* [rank][cols] */
    struct bn_stored b; /* [rank][rows] */
};

struct bitnet_adapter {
    const struct bn_model *m;
    atomic_uint holders;
    uint64_t serial; /* never the same for two adapters of a model */
    char *path;
    const char *format;        /* "PEFT", "GGUF" */
    struct bn_low_rank *parts; /* [n_layer][BN_N_PROJ] */
    struct bn_low_rank embed, head;
    uint32_t rank_max, n_matrices;
    uint64_t n_params;
    uint64_t bytes, layer_bytes, head_bytes; /* layer_bytes: of all layers' pairs, read in a pass */
    void *block;
    size_t block_bytes;
};

/* path: a PEFT folder (adapter_config.json, adapter_model.safetensors) or a GGUF. The model must
 * outlive it. */
bitnet_status bn_adapter_open(struct bitnet_adapter **out, const struct bn_model *m,
                              const char *path, bitnet_error *err);
/* The same for what only wants the numbers (forge): of the model its config and delta_out_tiled are all
 * that is looked at. */
bitnet_status bn_adapter_read(struct bitnet_adapter **out, const struct bn_model *m,
                              const char *path, bitnet_error *err);
/* One more holder; one less, the last of which frees it. NULL is fine. */
void bn_adapter_hold(const struct bitnet_adapter *a);
void bn_adapter_let_go(const struct bitnet_adapter *a);

static inline const struct bn_low_rank *bn_adapter_part(const struct bitnet_adapter *a, uint32_t il,
                                                        enum bn_part p)
{
    return &a->parts[(size_t)il * BN_N_PROJ + (p - BN_P_Q)];
}

/* The adapters of a request, in the order in which they are added. */
struct bn_mix {
    uint32_t n;     /* 0: none */
    uint32_t width; /* floats that products A x of a token take */
    uint64_t key; /* the same for the same adapters and scales, told apart by an engine; 0: none */
    struct bn_mix_part {
        const struct bitnet_adapter *adapter;
        float scale;
        uint32_t at; /* of its products in the width */
    } parts[BN_MIX_MAX];
};

static inline void bn_mix_hold(const struct bn_mix *m)
{
    for (uint32_t i = 0; i < m->n; i++) bn_adapter_hold(m->parts[i].adapter);
}
static inline void bn_mix_let_go(struct bn_mix *m)
{
    for (uint32_t i = 0; i < m->n; i++) bn_adapter_let_go(m->parts[i].adapter);
    m->n = 0;
}

/* ---- inside the room ---- */

/* What adapter_config.json says. (adapter_peft.c) */
struct bn_peft;
bitnet_status bn_peft_open(struct bn_peft **out, const char *folder, bitnet_error *err);
void bn_peft_close(struct bn_peft *p);
/* Of a module, as "model.layers.0.self_attn.q_proj": its rank, and the scale of its pair. */
bitnet_status bn_peft_module(const struct bn_peft *p, const char *module, uint32_t *rank,
                             float *scale, bitnet_error *err);

#endif
