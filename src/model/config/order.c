/* SPDX-License-Identifier: Apache-2.0 */
#include "model/config/order.h"

uint32_t bn_order_tiled(const struct bn_delta_shape *d, uint32_t h)
{
    uint32_t share = d->n_v_heads / d->n_k_heads;
    return h % share * d->n_k_heads + h / share;
}

uint32_t bn_order_grouped(const struct bn_delta_shape *d, uint32_t h)
{
    uint32_t share = d->n_v_heads / d->n_k_heads;
    return h % d->n_k_heads * share + h / d->n_k_heads;
}

/* Rows in heads of `width` from `first` on. */
static uint64_t value_row(const struct bn_delta_shape *d, uint64_t r, uint64_t first,
                          uint64_t width)
{
    if (r < first) return r;
    uint32_t h = (uint32_t)((r - first) / width);
    return first + bn_order_tiled(d, h) * width + (r - first) % width;
}

/* Queries, then gates; in the file both of a head, then those of the next. */
static uint64_t gated_row(const struct bn_config *c, uint64_t r)
{
    uint64_t dim = c->head_dim, all = c->n_head * dim, k = r % all;
    return k / dim * 2 * dim + (r >= all ? dim : 0) + k % dim;
}

/* Halves of the rotated part of a head; in the file pairs. */
static uint64_t paired_row(const struct bn_config *c, uint64_t r)
{
    uint64_t k = r % c->head_dim, half = c->rope_dim / 2;
    if (k >= c->rope_dim) return r;
    return r - k + k % half * 2 + k / half;
}

uint64_t bn_order_row(const struct bn_config *c, enum bn_part p, uint64_t r)
{
    const struct bn_delta_shape *d = &c->delta;
    switch (p) {
    case BN_P_Q:
        if (c->attn_gate) return gated_row(c, r);
        return c->qk_pairs ? paired_row(c, r) : r;
    case BN_P_K: return c->qk_pairs ? paired_row(c, r) : r;
    case BN_P_DELTA_QKV:
    case BN_P_DELTA_CONV:
        return c->v_tiled ? value_row(d, r, 2 * bn_delta_key_width(d), d->v_dim) : r;
    case BN_P_DELTA_Z: return c->v_tiled ? value_row(d, r, 0, d->v_dim) : r;
    case BN_P_DELTA_ALPHA:
    case BN_P_DELTA_BETA:
    case BN_P_DELTA_DT:
    case BN_P_DELTA_A: return c->v_tiled ? value_row(d, r, 0, 1) : r;
    default: return r;
    }
}

struct bn_order_cols bn_order_cols(const struct bn_config *c, enum bn_part p)
{
    struct bn_order_cols o = {.delta = c->delta};
    /* rotated columns belong together as they stand */
    if (p == BN_P_DELTA_OUT && c->v_tiled && !c->hadamard.block) o.width = c->delta.v_dim;
    return o;
}
