/* SPDX-License-Identifier: Apache-2.0
 * What becomes of each tensor of the input. The configuration says which parts a model has; each
 * part is looked up under the names it is known by and gets its name, type and shape in the
 * output. What a GGUF holds beyond that is copied as it is; what a checkpoint holds beyond that is
 * refused, because leaving out a tensor would change the model in silence. */
#include "forge/convert_impl.h"

#include "model/config/rope.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

uint32_t bn_convert_layer(const struct bn_convert_plan *p, uint32_t layer)
{
    if (!p->cut) return layer;
    if (layer & BN_LAYER_MTP)
        return (layer & ~BN_LAYER_MTP) - p->config->n_layer + p->cut->n_kept + BN_LAYER_MTP;
    for (uint32_t i = 0; i < p->cut->n_kept; i++)
        if (p->cut->kept[i] == layer) return i;
    return BN_LAYER_CUT;
}

/* A part's name in the output; layer: of the input. */
static void name_part(const struct bn_convert_plan *p, char out[BN_MAX_NAME_BYTES],
                      enum bn_part part, uint32_t layer)
{
    bn_part_name(out, part, bn_convert_layer(p, layer), !p->to_hf);
}

/* May it lie in the output as it is? */
static bool has_type(const struct bn_convert_plan *p, enum bn_type t)
{
    return p->to_hf ? t <= BN_BF16 : bn_type_info(t)->gguf_id >= 0;
}

static const struct bn_tensor *take(struct bn_convert_plan *p, const struct bn_tensor *t)
{
    if (t) p->used[t - p->src->tensors] = true;
    return t;
}

/* Adds an item with a shape of rows x cols; one row means a vector. */
static bitnet_status add(struct bn_convert_plan *p, struct bn_convert_item *it, const char *name,
                         bitnet_error *err)
{
    bitnet_error shape;
    if (!bn_grow((void **)&p->items, &p->room, p->n + 1, sizeof *p->items))
        return bn_fail_nomem(err, (p->n + 1) * sizeof *p->items, "the list of tensors");
    it->name = bn_arena_strn(&p->arena, name, strlen(name));
    if (it->name == NULL) return bn_fail_nomem(err, strlen(name), "the list of tensors");
    if (it->n_dims == 0) {
        it->n_dims = it->rows == 1 ? 1 : 2;
        it->dims[0] = it->cols;
        it->dims[1] = it->rows;
        it->dims[2] = it->dims[3] = 1;
    }
    if (it->how == BN_ITEM_COPY) it->bytes = it->from->bytes;
    else if (bn_choice_bytes(&it->bytes, it->type, it->name, it->rows, it->cols, &shape) !=
             BITNET_OK)
        bn_obstacle_add(&p->obstacles, BN_OBSTACLE_SHAPE, it->name, "%s", shape.text);
    p->total_bytes += it->bytes;
    if (it->how == BN_ITEM_TRITS && it->bytes > p->largest_bytes) p->largest_bytes = it->bytes;
    if (it->cols > p->largest_cols) p->largest_cols = it->cols;
    p->items[p->n++] = *it;
    return BITNET_OK;
}

/* Can the item that was just added be written as its type? */
static bitnet_status check_last(struct bn_convert_plan *p, struct bn_convert_rows *rows,
                                bitnet_error *err)
{
    return bn_convert_check(&p->items[p->n - 1], p->allow_scale_rounding, rows, &p->obstacles, err);
}

/* A tensor as it lies, under another name. */
static bitnet_status add_copy(struct bn_convert_plan *p, const struct bn_tensor *t,
                              const char *name, bitnet_error *err)
{
    struct bn_convert_item it = {
        .how = BN_ITEM_COPY, .from = t, .type = t->type, .n_dims = t->n_dims};
    if (t->type == BN_Q2_0_128) it.type = BN_PQ2_0; /* the same bits, with a number of their own */
    if (!has_type(p, it.type))
        return bn_fail(err, BITNET_E_UNSUPPORTED, "tensor '%s' has type %s, which %s have not",
                       t->name, bn_type_info(t->type)->name, p->to_hf ? "checkpoints" : "GGUFs");
    if (it.n_dims == 0) it.n_dims = 1; /* a scalar is a vector of one */
    memcpy(it.dims, t->dims, sizeof it.dims);
    struct bn_stored st = bn_tensor_stored(t);
    it.rows = st.rows;
    it.cols = st.cols;
    return add(p, &it, name, err);
}

/* Where the rows of a part come from, if they change places. */
static bitnet_status find_rows(const uint32_t **out, struct bn_convert_plan *p, enum bn_part part,
                               uint64_t rows, bitnet_error *err)
{
    uint32_t *from = NULL;
    *out = NULL;
    for (int pass = 0; pass < 2; pass++) {
        bool moved = false;
        for (uint64_t r = 0; r < rows; r++) {
            uint64_t in = bn_order_row(p->config, part, r), to = bn_order_row(&p->to, part, r);
            moved |= in != to;
            if (from) from[to] = (uint32_t)in;
        }
        if (!moved || from) break;
        from = bn_arena_alloc(&p->arena, (size_t)rows * sizeof *from);
        if (!from) return bn_fail_nomem(err, (size_t)rows * sizeof *from, "an order of rows");
    }
    *out = from;
    return BITNET_OK;
}

/* The order of a part's columns in the output. */
static struct bn_order_cols find_cols(const struct bn_convert_plan *p, enum bn_part part)
{
    struct bn_order_cols to = bn_order_cols(&p->to, part);
    to.tile = true;
    if (p->src->is_gguf || p->to_hf) to.width = 0;
    return to;
}

/* The feed-forward channels of a layer that are left; NULL: all. */
static const uint32_t *picked_channels(const struct bn_convert_plan *p, uint32_t layer)
{
    if (!p->cut || !p->cut->n_ff) return NULL;
    return p->cut->ffn_from + (size_t)bn_convert_layer(p, layer) * p->cut->n_ff;
}

/* A vector of floats, always written as F32. picked: the elements that are left, or NULL. */
static bitnet_status add_norm_tensor(struct bn_convert_plan *p, const struct bn_tensor *t,
                                     const char *name, uint64_t width, const uint32_t *picked,
                                     bitnet_error *err)
{
    struct bn_convert_item it = {.how = BN_ITEM_DENSE, .from = t, .type = BN_F32, .rows = 1};
    it.stored = bn_tensor_stored(t);
    if (t->type > BN_BF16)
        return bn_fail(err, BITNET_E_UNSUPPORTED, "tensor '%s' has type %s, which is no float",
                       t->name, bn_type_info(t->type)->name);
    if (it.stored.rows != 1 || it.stored.cols != width)
        return bn_fail(err, BITNET_E_FORMAT,
                       "tensor '%s' has %llu x %llu values; %llu were expected", t->name,
                       (unsigned long long)it.stored.rows, (unsigned long long)it.stored.cols,
                       (unsigned long long)width);
    it.cols = picked ? p->cut->n_ff : width;
    it.col_from = picked;
    return add(p, &it, name, err);
}

/* What makes up for a mean over fewer channels; 0: nothing has to. */
static float norm_factor(const struct bn_convert_plan *p, enum bn_part part)
{
    const struct bn_config *c = p->config;
    if (part != BN_P_FFN_SUB_NORM || !p->cut || !p->cut->fold_norm) return 0;
    uint32_t before = c->ffn_norm_width ? c->ffn_norm_width : c->n_ff;
    uint32_t after = p->cut->n_ff ? p->cut->n_ff : c->n_ff;
    return before == after ? 0 : (float)sqrt((double)before / (double)after);
}

static bitnet_status add_norm(struct bn_convert_plan *p, enum bn_part part, uint32_t layer,
                              bitnet_error *err)
{
    char name[BN_MAX_NAME_BYTES];
    uint64_t rows, cols;
    const struct bn_tensor *t = take(p, bn_part_find(p->src, part, layer));
    if (t == NULL) return bn_part_missing(p->src, part, layer, err);
    bn_part_shape(p->config, part, &rows, &cols);
    name_part(p, name, part, layer);
    const uint32_t *picked = part == BN_P_FFN_SUB_NORM ? picked_channels(p, layer) : NULL;
    BN_TRY(add_norm_tensor(p, t, name, cols, picked, err));
    p->items[p->n - 1].factor = norm_factor(p, part);
    if (p->config->norm_plus_one && !p->to_hf && part != BN_P_DELTA_NORM)
        p->items[p->n - 1].values = BN_VALUES_PLUS_ONE;
    return BITNET_OK;
}

/* What a delta net has beside norms and matrices: F32, in the output's order of value heads. Vectors
 * are columns here, so that their elements are rows. */
static bitnet_status add_delta_floats(struct bn_convert_plan *p, enum bn_part part, uint32_t layer,
                                      bitnet_error *err)
{
    char name[BN_MAX_NAME_BYTES];
    const struct bn_tensor *t = take(p, bn_part_find(p->src, part, layer));
    if (t == NULL) return bn_part_missing(p->src, part, layer, err);
    struct bn_convert_item it = {.how = BN_ITEM_DENSE, .from = t, .type = BN_F32};
    bn_part_shape(p->config, part, &it.rows, &it.cols);
    it.stored = bn_tensor_stored(t);
    if (t->type > BN_BF16 || it.stored.rows * it.stored.cols != it.rows * it.cols)
        return bn_fail(err, BITNET_E_FORMAT,
                       "tensor '%s' has %llu x %llu values of type %s; %llu floats were expected",
                       t->name, (unsigned long long)it.stored.rows,
                       (unsigned long long)it.stored.cols, bn_type_info(t->type)->name,
                       (unsigned long long)(it.rows * it.cols));
    it.n_dims = it.rows == 1 ? 1 : 2;
    it.dims[0] = it.cols;
    it.dims[1] = it.rows;
    it.dims[2] = it.dims[3] = 1;
    if (it.rows == 1) it.rows = it.cols, it.cols = 1;
    it.stored.rows = it.rows;
    it.stored.cols = it.cols;
    if (part == BN_P_DELTA_A && !p->src->is_gguf && !p->to_hf) it.values = BN_VALUES_MINUS_EXP;
    BN_TRY(find_rows(&it.row_from, p, part, it.rows, err));
    name_part(p, name, part, layer);
    return add(p, &it, name, err);
}

/* Embedding or head: kept as they are unless another type was asked for. */
static bitnet_status add_table(struct bn_convert_plan *p, enum bn_part part,
                               struct bn_convert_rows *rows, bitnet_error *err)
{
    char name[BN_MAX_NAME_BYTES];
    bool online;
    struct bn_convert_item it = {.how = BN_ITEM_DENSE};
    BN_TRY(bn_part_stored(&it.stored, &online, p->src, p->config, part, 0, err));
    it.from = take(p, bn_part_find(p->src, part, 0));
    bn_part_name(name, part, 0, !p->to_hf);
    it.rows = it.stored.rows;
    it.cols = it.stored.cols;
    if (p->to_hf && !has_type(p, it.from->type)) { /* its values, as floats */
        it.type = BN_F32;
        return add(p, &it, name, err);
    }
    bool kept = p->head_type.how != BN_CHOICE_TYPE || p->head_type.type == it.from->type;
    if (bn_merge_has(p->merge, part, 0)) {
        it.type = kept ? it.from->type : p->head_type.type;
        BN_TRY(bn_merge_take(&it, p, part, 0, !bn_type_info(it.from->type)->ternary, err));
        return add(p, &it, name, err);
    }
    if (kept && it.from->type == BN_TQ2_0_128) { /* no number in GGUF, but the same weights have */
        bool dense;
        it.how = BN_ITEM_TRITS;
        it.type = BN_PQ2_0;
        BN_TRY(bn_ternary_look(&it.ternary, &dense, &it.stored, it.from->name, err));
        BN_TRY(add(p, &it, name, err));
        return check_last(p, rows, err);
    }
    if (kept) return add_copy(p, it.from, name, err);
    it.type = p->head_type.type;
    return add(p, &it, name, err);
}

/* The smallest type for scales of `block` columns. Floats stay where there is none: no type of GGUF
 * has a scale for 32. */
static enum bn_type block_type(const struct bn_ternary *t)
{
    if (t->binary && t->block % 128 == 0) return BN_Q1_0;
    if (t->block == 256) return BN_TQ2_0;
    if (t->block == 128) return BN_PQ2_0;
    return t->block == 64 ? BN_Q2_0 : t->stored.type;
}

/* The type of a projection in the output. */
static enum bn_type projection_type(const struct bn_convert_plan *p, const struct bn_ternary *t)
{
    const struct bn_type_info *from = bn_type_info(t->stored.type);
    if (p->type.how == BN_CHOICE_TYPE) return p->type.type;
    /* Master weights cannot be kept: without their config.json nothing says that they are to be
     * rounded. Neither can forms that GGUF has no number for. */
    if (p->type.how == BN_CHOICE_KEEP && from->gguf_id >= 0 && !t->online) return t->stored.type;
    if (from->block == 128 && from->gguf_id < 0) return BN_PQ2_0;
    if (t->scale_kind != BN_TS_TENSOR && from->scale == BN_TS_BLOCK_F16) return t->stored.type;
    if (t->scale_kind == BN_TS_BLOCK_F16) return block_type(t);
    if (t->binary && t->f16_scales && t->stored.cols % 128 == 0 && !from->ternary) return BN_Q1_0;
    return bn_choice_auto(t->scale_kind, t->stored.rows, t->stored.cols);
}

/* Do two types have the same bits, under different numbers? */
static bool same_bits(enum bn_type a, enum bn_type b)
{
    return a == b || (a == BN_Q2_0_128 && b == BN_PQ2_0);
}

/* The one scale of a packed matrix, a tensor of its own. */
static bitnet_status add_packed_scale(struct bn_convert_plan *p, const char *name, float scale,
                                      bitnet_error *err)
{
    char beside[BN_MAX_NAME_BYTES];
    float *floats = bn_arena_alloc(&p->arena, sizeof *floats);
    struct bn_convert_item it = {
        .how = BN_ITEM_FLOATS, .type = BN_F32, .rows = 1, .cols = 1, .floats = floats};
    if (!floats) return bn_fail_nomem(err, sizeof *floats, "a scale");
    *floats = scale;
    snprintf(beside, sizeof beside, "%.*s_scale", (int)sizeof beside - 8, name);
    p->packs = true;
    return add(p, &it, beside, err);
}

/* A ternary matrix as checkpoints have it: packed, with one scale; or its values as floats. */
static bitnet_status add_for_hf(struct bn_convert_plan *p, struct bn_convert_item *it,
                                const char *name, struct bn_convert_rows *rows, bitnet_error *err)
{
    const struct bn_ternary *t = &it->ternary;
    bool int8 = p->config->act_quant == BN_AQ_INT8;
    if (int8 && t->scale_kind == BN_TS_TENSOR && it->rows % 4 == 0) {
        it->type = BN_HF_U8;
        BN_TRY(add(p, it, name, err));
        BN_TRY(check_last(p, rows, err));
        return add_packed_scale(p, name, t->scale, err);
    }
    if (int8)
        return bn_fail(
            err, BITNET_E_UNSUPPORTED,
            "'%s': checkpoints with int8 activations have one scale a matrix, of rows by "
            "four; let the output end in .gguf",
            name);
    if (bn_part_scale(p->src, BN_P_Q, 0))
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "'%s' has a factor beside it, and cannot be written as floats", name);
    it->how = BN_ITEM_DENSE;
    it->stored = t->stored;
    it->type = t->f16_scales ? BN_F16 : BN_F32;
    return add(p, it, name, err);
}

static bitnet_status add_projection(struct bn_convert_plan *p, enum bn_part part, uint32_t layer,
                                    struct bn_convert_rows *rows, bitnet_error *err)
{
    char name[BN_MAX_NAME_BYTES];
    struct bn_convert_item it = {.how = BN_ITEM_TRITS};
    bool dense;
    name_part(p, name, part, layer);
    it.cols_order = find_cols(p, part);
    BN_TRY(
        bn_ternary_open(&it.ternary, &dense, p->src, p->config, part, layer, &it.cols_order, err));
    it.from = take(p, bn_part_find(p->src, part, layer));
    const struct bn_tensor *factor = take(p, bn_part_scale(p->src, part, layer));
    it.rows = it.ternary.stored.rows;
    it.cols = it.ternary.stored.cols;
    BN_TRY(find_rows(&it.row_from, p, part, it.rows, err));
    const uint32_t *picked = picked_channels(p, layer);
    if (picked && (part == BN_P_GATE || part == BN_P_UP)) {
        it.rows = p->cut->n_ff;
        it.row_from = picked;
    } else if (picked && part == BN_P_DOWN) {
        it.cols = p->cut->n_ff;
        it.col_from = picked;
    }
    bool plain_copy = !it.row_from && !it.col_from && !it.cols_order.width &&
                      (factor == NULL || !p->src->is_gguf);
    if (bn_merge_has(p->merge, part, layer)) {
        it.how = BN_ITEM_DENSE;
        it.stored = it.ternary.stored;
        it.type = it.from->type;
        BN_TRY(bn_merge_take(&it, p, part, layer, dense, err));
        return add(p, &it, name, err);
    }
    if (dense) {
        if (plain_copy && has_type(p, it.from->type)) return add_copy(p, it.from, name, err);
        it.how = BN_ITEM_DENSE;
        it.stored = it.ternary.stored;
        it.type = has_type(p, it.from->type) ? it.from->type : BN_F32;
        return add(p, &it, name, err);
    }
    if (p->to_hf) return add_for_hf(p, &it, name, rows, err);
    it.type = projection_type(p, &it.ternary);
    if (p->proj_type == BN_TYPE_COUNT) p->proj_type = it.type;
    p->one_type = p->one_type && p->proj_type == it.type;
    if (same_bits(it.from->type, it.type) && plain_copy) return add_copy(p, it.from, name, err);
    if (!bn_type_info(it.type)->ternary) { /* ternary values kept in floats */
        it.how = BN_ITEM_DENSE;
        it.stored = it.ternary.stored;
        if (factor)
            return bn_fail(
                err, BITNET_E_UNSUPPORTED,
                "'%s' is stored in floats with a factor beside it, and cannot be kept so", name);
        return add(p, &it, name, err);
    }
    BN_TRY(add(p, &it, name, err));
    return check_last(p, rows, err);
}

static bitnet_status add_in_norm(struct bn_convert_plan *p, enum bn_part part, uint32_t layer,
                                 bitnet_error *err)
{
    char name[BN_MAX_NAME_BYTES];
    uint64_t rows, cols;
    const struct bn_tensor *t = take(p, bn_part_in_norm(p->src, part, layer));
    name_part(p, name, part, layer);
    if (t == NULL)
        return bn_fail(err, BITNET_E_FORMAT, "'%s': '%s' has no norm in front of it", p->src->path,
                       name);
    size_t stem = strlen(name) - strlen(".weight");
    snprintf(name + stem, sizeof name - stem, "_norm_in.weight");
    bn_part_shape(p->config, part, &rows, &cols);
    return add_norm_tensor(p, t, name, cols, NULL, err);
}

/* Llama 3.1's stretched rotation is a tensor in GGUF and a rule in config.json. */
static bitnet_status add_rope_factors(struct bn_convert_plan *p, bitnet_error *err)
{
    if (p->src->is_gguf || p->to_hf || p->config->rope_scaling != BN_RS_LLAMA3) return BITNET_OK;
    char name[BN_MAX_NAME_BYTES];
    struct bn_convert_item it = {.how = BN_ITEM_FLOATS, .type = BN_F32, .rows = 1};
    it.cols = p->config->rope_dim / 2;
    float *factors = bn_arena_alloc(&p->arena, (size_t)it.cols * sizeof *factors);
    if (factors == NULL) return bn_fail_nomem(err, (size_t)it.cols * sizeof *factors, "rotations");
    bn_rope_factors(factors, p->config);
    it.floats = factors;
    bn_part_name(name, BN_P_ROPE_FREQS, 0, true);
    return add(p, &it, name, err);
}

static bitnet_status add_layer(struct bn_convert_plan *p, uint32_t layer,
                               struct bn_convert_rows *rows, bitnet_error *err)
{
    const struct bn_config *c = p->config;
    static const enum bn_part norms[] = {
        BN_P_ATTN_NORM,      BN_P_ATTN_SUB_NORM,   BN_P_FFN_NORM,    BN_P_POST_NORM,
        BN_P_FFN_SUB_NORM,   BN_P_Q_NORM,          BN_P_K_NORM,      BN_P_DELTA_NORM,
        BN_P_MTP_EMBED_NORM, BN_P_MTP_HIDDEN_NORM, BN_P_MTP_OUT_NORM};
    static const enum bn_part floats[] = {BN_P_DELTA_CONV, BN_P_DELTA_DT, BN_P_DELTA_A};
    for (size_t i = 0; i < BN_ARRAY_LEN(norms); i++)
        if (bn_part_in_layer(c, norms[i], layer)) BN_TRY(add_norm(p, norms[i], layer, err));
    for (size_t i = 0; i < BN_ARRAY_LEN(floats); i++)
        if (bn_part_in_layer(c, floats[i], layer))
            BN_TRY(add_delta_floats(p, floats[i], layer, err));
    for (int i = 0; i < BN_N_PROJ; i++) {
        if (!bn_part_in_layer(c, BN_P_Q + i, layer)) continue;
        BN_TRY(add_projection(p, BN_P_Q + i, layer, rows, err));
        /* it may have been read whole; the next time is far away */
        bn_source_release(p->src, bn_part_find(p->src, BN_P_Q + i, layer));
        if (c->in_norms) BN_TRY(add_in_norm(p, BN_P_Q + i, layer, err));
    }
    return BITNET_OK;
}

/* Tensors of a checkpoint that say nothing about the model: tables that every engine makes itself,
 * and a head that is stored though it is tied. */
static bool harmless(const struct bn_convert_plan *p, const char *name)
{
    uint32_t layer;
    size_t at, end;
    if (bn_prune_name(name, p->config->n_layer, &layer, &at, &end) &&
        bn_convert_layer(p, layer) == BN_LAYER_CUT)
        return true;
    static const char inv_freq[] = "rotary_emb.inv_freq";
    size_t n = strlen(name), k = sizeof inv_freq - 1;
    if (n >= k && strcmp(name + n - k, inv_freq) == 0) return true;
    if (bn_source_is_aside(p->src, name)) return true;
    return p->config->tied_head && strcmp(name, "lm_head.weight") == 0;
}

/* What a GGUF holds beyond the parts of a model; in a layer that is left, under its new number. */
static bitnet_status add_unknown(struct bn_convert_plan *p, const struct bn_tensor *t,
                                 bitnet_error *err)
{
    char name[BN_MAX_NAME_BYTES];
    uint32_t layer;
    size_t at, end;
    if (!p->cut || !bn_prune_name(t->name, p->config->n_layer, &layer, &at, &end))
        return add_copy(p, t, t->name, err);
    layer = bn_convert_layer(p, layer);
    if (layer == BN_LAYER_CUT) return BITNET_OK;
    snprintf(name, sizeof name, "%.*s%u%s", (int)at, t->name, layer & ~BN_LAYER_MTP, t->name + end);
    return add_copy(p, t, name, err);
}

static bitnet_status add_rest(struct bn_convert_plan *p, bitnet_error *err)
{
    for (size_t i = 0; i < p->src->n_tensors; i++) {
        const struct bn_tensor *t = &p->src->tensors[i];
        if (p->used[i]) continue;
        if (p->src->is_gguf && !p->to_hf) {
            BN_TRY(add_unknown(p, t, err));
        } else if (!harmless(p, t->name) || (p->to_hf && bn_source_is_aside(p->src, t->name))) {
            bn_obstacle_add(
                &p->obstacles, BN_OBSTACLE_UNKNOWN, t->name,
                "'%s': tensor '%s' is unknown, and leaving it out would change the model",
                p->src->path, t->name);
        }
    }
    return BITNET_OK;
}

bitnet_status bn_convert_plan_make(struct bn_convert_plan *p, bitnet_error *err)
{
    const struct bn_config *c = p->config;
    if (c->in_norms && !p->src->is_gguf && c->in_norm_eps != c->eps)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "'%s': norms with two epsilons (%g and %g) have no place in GGUF",
                       p->src->path, (double)c->eps, (double)c->in_norm_eps);
    p->proj_type = BN_TYPE_COUNT;
    p->one_type = true;
    p->used = bn_calloc(p->src->n_tensors, sizeof *p->used);
    if (p->used == NULL) return bn_fail_nomem(err, p->src->n_tensors, "the list of tensors");
    struct bn_convert_rows rows;
    p->to = p->to_hf ? bn_config_as_hf(c) : p->src->is_gguf ? *c : bn_config_as_gguf(c);
    p->largest_cols = bn_config_widest(c);
    BN_TRY(bn_convert_rows_open(&rows, p->src, bn_config_widest(c), 0, err));
    bitnet_status s = add_table(p, BN_P_EMBED, &rows, err);
    if (s == BITNET_OK) s = add_norm(p, BN_P_OUT_NORM, 0, err);
    if (s == BITNET_OK && !c->tied_head) s = add_table(p, BN_P_HEAD, &rows, err);
    if (s == BITNET_OK) s = add_rope_factors(p, err);
    for (uint32_t i = 0; i < bn_config_layers(c) && s == BITNET_OK; i++) {
        uint32_t layer = bn_config_named_layer(c, i);
        if (bn_convert_layer(p, layer) != BN_LAYER_CUT) s = add_layer(p, layer, &rows, err);
    }
    if (s == BITNET_OK) s = add_rest(p, err);
    if (s == BITNET_OK) s = bn_obstacles_end(&p->obstacles, err);
    bn_convert_rows_close(&rows);
    return s;
}

void bn_convert_plan_free(struct bn_convert_plan *p)
{
    free(p->items);
    free(p->used);
    bn_arena_free(&p->arena);
}
