/* SPDX-License-Identifier: Apache-2.0
 * Any projection as trits and scales, whatever it is stored as: ternary types directly, master
 * weights by absmean (clamp(round_half_even(w / mean|w|), -1, 1), mean in f32 of the whole tensor),
 * float tensors whose values are already {-1,0,1} times a scale: one a tensor, a row, or a group of
 * 256, 128, 64 or 32 columns. The one path for loading, converting and inspecting.
 *
 * Scales are canonical: whatever the type's own blocks are, they are given for the coarsest of
 * {tensor, row, 256, 128, 64, 32 columns} on which they agree, where columns without a weight agree
 * with any. The order of sums depends on it, so a checkpoint and every file made of it give the
 * same bits. */
#ifndef BN_MODEL_WEIGHTS_TERNARY_H
#define BN_MODEL_WEIGHTS_TERNARY_H

#include "model/config/order.h"

struct bn_ternary {
    struct bn_stored stored;
    bool online;                   /* absmean of a dense tensor */
    float online_inv;              /* online: 1 / mean|w| */
    enum bn_type_scale scale_kind; /* TENSOR, ROW_F32 (also for ROW_F16 sources) or BLOCK_F16 */
    float scale;                   /* TENSOR */
    uint32_t block;                /* BLOCK_F16: columns in a block */
    int w_max;                     /* no weight is larger: +1 or +2 */
    bool binary;                   /* every weight is -1 or +1 */
    bool f16_scales;               /* every scale is exact in 16 bits */
    struct bn_order_cols cols;     /* rows come in this order */
};

/* Looks at the tensor (all of it where needed: absmean, checking that scales agree). *dense: it is
 * not ternary at all and stays a dense matrix (modules_to_not_convert). cols: the order in which
 * columns are wanted, on which it depends what agrees; NULL: as stored. */
bitnet_status bn_ternary_open(struct bn_ternary *out, bool *dense, const struct bn_source *s,
                              const struct bn_config *c, enum bn_part p, uint32_t layer,
                              const struct bn_order_cols *cols, bitnet_error *err);
/* The same of a matrix by itself, whose values are what they are (no absmean). name: for errors. */
bitnet_status bn_ternary_look(struct bn_ternary *out, bool *dense, const struct bn_stored *stored,
                              const char *name, bitnet_error *err);
/* Row r as trits; row_scale: ROW kinds (1 float, may be NULL), block_f16: BLOCK kinds
 * ([cols/block], may be NULL). scratch: cols floats. false: a code the type does not allow. Any
 * number of threads may ask at a time. */
bool bn_ternary_row(int8_t *w, float *row_scale, uint16_t *block_f16, const struct bn_ternary *t,
                    uint64_t r, float *scratch);

#endif
