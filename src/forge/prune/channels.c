/* SPDX-License-Identifier: Apache-2.0
 * Feed-forward channels: those that somebody has chosen (widths.c), and those that are provably dead. Their
 * row of `gate` or of `up` is all zero, so act(gate) * up is zero whatever comes in. They can go without
 * changing a bit, on three conditions:
 *
 *  - The norm behind them (ffn_sub_norm) still divides by the old width: the output says it
 *    (bn_config.ffn_norm_width), or the norm is scaled, which is the same only in exact arithmetic.
 *  - Its sum of squares runs in lanes, index modulo 16, each in rising order. Zeros add nothing to a lane, so
 *    the sum stays the same if every other channel stays in its lane and in its order there. So a lane closes
 *    its own gaps, and the fullest lane says how many are left; the others keep some of their dead.
 *  - `down` takes int8 inputs with one factor a token and has no scales for groups of columns: its sums of
 *    integers then do not depend on order.
 *
 * A column of zeros in `down`, or a zero in the norm's weights, is no proof: such a channel still counts in
 * the norm's mean and in the largest value of the quantiser. */
#include "forge/convert_impl.h"

#include "kernels/kernels.h"
#include <stdlib.h>

enum { I2_S_COLS = 128 }; /* whole blocks of its rows */

struct dead_search {
    const struct bn_source *src;
    const struct bn_config *c;
    bool *dead; /* [n_kept][n_ff] */
    int8_t *trits;
    float *values;
};

static bool all_zero(const struct dead_search *d, const struct bn_ternary *t, bool dense,
                     uint64_t row)
{
    uint64_t n = t->stored.cols;
    if (dense) {
        bn_dequant_row(d->values, &t->stored, row);
        for (uint64_t i = 0; i < n; i++)
            if (d->values[i] != 0) return false;
        return true;
    }
    if (!bn_ternary_row(d->trits, NULL, NULL, t, row, d->values)) return false;
    for (uint64_t i = 0; i < n; i++)
        if (d->trits[i]) return false;
    return true;
}

static bitnet_status look(const struct dead_search *d, uint32_t layer, bool *dead,
                          bitnet_error *err)
{
    static const enum bn_part parts[] = {BN_P_GATE, BN_P_UP};
    for (size_t i = 0; i < BN_ARRAY_LEN(parts); i++) {
        struct bn_ternary t;
        bool dense;
        BN_TRY(bn_ternary_open(&t, &dense, d->src, d->c, parts[i], layer, NULL, err));
        for (uint32_t r = 0; r < d->c->n_ff; r++) dead[r] |= all_zero(d, &t, dense, r);
        bn_source_release(d->src, bn_part_find(d->src, parts[i], layer));
    }
    return BITNET_OK;
}

/* May columns of `down` change places? And into what widths do its rows fit? exact: without changing a
 * bit of the sums over them. */
static bitnet_status check_down(const struct bn_source *src, const struct bn_config *c,
                                uint32_t layer, bool exact, uint32_t *grain, bitnet_error *err)
{
    struct bn_ternary t;
    bool dense;
    BN_TRY(bn_ternary_open(&t, &dense, src, c, BN_P_DOWN, layer, NULL, err));
    bn_source_release(src, bn_part_find(src, BN_P_DOWN, layer));
    if (exact && (dense || t.scale_kind == BN_TS_BLOCK_F16 || c->act_quant != BN_AQ_INT8))
        return bn_fail(
            err, BITNET_E_UNSUPPORTED,
            "dead channels can go only where 'down' is ternary with one scale a tensor or "
            "row and takes int8 inputs; that of layer %u is not so",
            layer);
    if (t.scale_kind == BN_TS_BLOCK_F16)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "channels cannot go: 'down' of layer %u has scales for groups of %u columns",
                       layer, t.block);
    const struct bn_type_info *type = bn_type_info(t.stored.type);
    *grain = BN_LANES;
    if (type->block > BN_LANES) *grain = type->block;
    if ((!type->ternary && !dense) || t.stored.type == BN_I2_S || t.stored.type == BN_HF_U8)
        *grain = c->n_ff % I2_S_COLS ? BN_LANES : I2_S_COLS;
    return BITNET_OK;
}

/* Whatever the weights are. */
static bitnet_status check_model(const struct bn_config *c, bitnet_error *err)
{
    if (c->in_norms)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "channels cannot go where each projection has a norm of its own");
    if (c->hadamard.block)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "channels cannot go where the inputs of matrices are rotated");
    if (c->n_mtp)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "channels cannot go from a model with a layer that drafts tokens");
    if (c->n_ff % BN_LANES)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "channels cannot go: a width of %u is no multiple of %d", c->n_ff, BN_LANES);
    return BITNET_OK;
}

bitnet_status bn_prune_grain(uint32_t *grain, const struct bn_source *src,
                             const struct bn_config *c, bitnet_error *err)
{
    *grain = BN_LANES;
    BN_TRY(check_model(c, err));
    for (uint32_t il = 0; il < c->n_layer; il++) {
        uint32_t own;
        BN_TRY(check_down(src, c, il, false, &own, err));
        *grain = own > *grain ? own : *grain;
    }
    return BITNET_OK;
}

bitnet_status bn_prune_chosen(struct bn_convert_cut *cut, const struct bn_source *src,
                              const struct bn_config *c, bitnet_error *err)
{
    const bitnet_prune_output *o = cut->record;
    uint32_t grain, width = o->ffn_width;
    BN_TRY(bn_prune_grain(&grain, src, c, err));
    if (width % grain || width >= c->n_ff)
        return bn_fail(err, BITNET_E_ARG, "a width of %u is no multiple of %u below the model's %u",
                       width, grain, c->n_ff);
    size_t n = (size_t)cut->n_kept * width;
    cut->ffn_from = bn_calloc(n, sizeof *cut->ffn_from);
    uint8_t *seen = bn_calloc(c->n_ff, 1);
    bitnet_status s = cut->ffn_from && seen ? BITNET_OK : bn_fail_nomem(err, n * 4, "channels");
    for (uint32_t i = 0; i < cut->n_kept && s == BITNET_OK; i++) {
        memset(seen, 0, c->n_ff);
        for (uint32_t k = 0; k < width && s == BITNET_OK; k++) {
            uint32_t channel = o->ffn_channels[(size_t)i * width + k];
            if (channel >= c->n_ff || seen[channel]++)
                s = bn_fail(err, BITNET_E_ARG,
                            "channel %u of layer %u is none of 0 to %u, or named twice", channel,
                            cut->kept[i], c->n_ff - 1);
            cut->ffn_from[(size_t)i * width + k] = channel;
        }
    }
    cut->n_ff = width;
    free(seen);
    return s;
}

/* Channels that the fullest lane of a layer needs, times lanes. */
static uint32_t width_of(const bool *dead, uint32_t n_ff)
{
    uint32_t most = 0;
    for (uint32_t lane = 0; lane < BN_LANES; lane++) {
        uint32_t n = 0;
        for (uint32_t i = lane; i < n_ff; i += BN_LANES) n += !dead[i];
        most = n > most ? n : most;
    }
    return most * BN_LANES;
}

/* Each lane: those that live, in order, then as many dead ones as it takes. */
static void fill_lanes(uint32_t *from, uint32_t width, const bool *dead, uint32_t n_ff)
{
    for (uint32_t lane = 0; lane < BN_LANES; lane++) {
        uint32_t at = lane;
        for (int pass = 0; pass < 2; pass++)
            for (uint32_t i = lane; i < n_ff && at < width; i += BN_LANES)
                if (dead[i] == (pass == 1)) {
                    from[at] = i;
                    at += BN_LANES;
                }
    }
}

static bitnet_status find(struct bn_convert_cut *cut, const struct dead_search *d,
                          bitnet_error *err)
{
    uint32_t n_ff = d->c->n_ff, width = BN_LANES, grain = BN_LANES;
    for (uint32_t i = 0; i < cut->n_kept; i++) {
        bool *dead = d->dead + (size_t)i * n_ff;
        uint32_t own_grain;
        BN_TRY(check_down(d->src, d->c, cut->kept[i], true, &own_grain, err));
        BN_TRY(look(d, cut->kept[i], dead, err));
        uint32_t own = width_of(dead, n_ff);
        width = own > width ? own : width;
        grain = own_grain > grain ? own_grain : grain;
    }
    width = (uint32_t)bn_align_up(width, grain);
    if (width >= n_ff) return BITNET_OK;
    cut->ffn_from = bn_calloc((size_t)cut->n_kept * width, sizeof *cut->ffn_from);
    if (!cut->ffn_from) return bn_fail_nomem(err, (size_t)cut->n_kept * width * 4, "channels");
    cut->n_ff = width;
    for (uint32_t i = 0; i < cut->n_kept; i++)
        fill_lanes(cut->ffn_from + (size_t)i * width, width, d->dead + (size_t)i * n_ff, n_ff);
    return BITNET_OK;
}

bitnet_status bn_prune_dead(struct bn_convert_cut *cut, const struct bn_source *src,
                            const struct bn_config *c, bitnet_error *err)
{
    size_t wide = bn_config_widest(c);
    struct dead_search d = {.src = src, .c = c};
    BN_TRY(check_model(c, err));
    d.dead = bn_calloc((size_t)cut->n_kept * c->n_ff, sizeof *d.dead);
    d.trits = bn_calloc(wide, sizeof *d.trits);
    d.values = bn_calloc(wide, sizeof *d.values);
    bitnet_status s = BITNET_OK;
    if (!d.dead || !d.trits || !d.values) s = bn_fail_nomem(err, wide, "a look at channels");
    if (s == BITNET_OK) s = find(cut, &d, err);
    free(d.dead);
    free(d.trits);
    free(d.values);
    return s;
}
