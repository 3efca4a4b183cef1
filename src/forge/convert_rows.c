/* SPDX-License-Identifier: Apache-2.0
 * Rows of one tensor from the input's form into the output's: copied, requantised, or as trits
 * with their scales. Checking and writing a ternary matrix run the same code, so what was accepted
 * can be written.
 *
 *   mapped rows --bn_ternary_row--> trits, scales --fit_scales, bn_pack_trits--> out --> file */
#include "forge/convert_impl.h"

#include "base/det_math.h"
#include "base/half.h"
#include <math.h>
#include <stdlib.h>

enum { COPY_BYTES = 4 << 20, DENSE_BYTES = 1 << 20 };

bitnet_status bn_convert_rows_open(struct bn_convert_rows *r, const struct bn_source *src,
                                   uint64_t cols, uint64_t out_bytes, bitnet_error *err)
{
    /* the widest dense row is f32; a few of them at least */
    size_t bytes = bn_max_size((size_t)out_bytes, bn_max_size(DENSE_BYTES, (size_t)cols * 4));
    *r = (struct bn_convert_rows){.src = src, .out_bytes = bytes};
    r->values = bn_calloc(cols, sizeof *r->values);
    r->scales = bn_calloc(cols, sizeof *r->scales);
    r->block_f16 = bn_calloc(cols, sizeof *r->block_f16);
    r->trits = bn_calloc(cols, 1);
    r->picked = bn_calloc(cols, 1);
    r->out = bn_block_alloc(bytes);
    if (r->values && r->scales && r->block_f16 && r->trits && r->picked && r->out) return BITNET_OK;
    bn_convert_rows_close(r);
    return bn_fail_nomem(err, bytes, "one tensor of the output");
}

void bn_convert_rows_close(struct bn_convert_rows *r)
{
    free(r->values);
    free(r->scales);
    free(r->block_f16);
    free(r->trits);
    free(r->picked);
    if (r->out) bn_block_free(r->out, r->out_bytes);
    *r = (struct bn_convert_rows){0};
}

/* Row of the input that becomes row r. */
static uint64_t source_row(const struct bn_convert_item *it, uint64_t r)
{
    return it->row_from ? it->row_from[r] : r;
}

/* ------------------------------------------------------------------ scales */

/* The one scale of columns [from, to) of a row with block scales; blocks of zeros have none of
 * their own and agree with any. */
static bool common_scale(float *out, const struct bn_convert_rows *r, uint64_t block, uint64_t from,
                         uint64_t to)
{
    bool have = false;
    *out = bn_f16_to_f32(r->block_f16[from / block]);
    for (uint64_t c = from; c < to; c = (c / block + 1) * block) {
        uint64_t end = bn_min_size((size_t)((c / block + 1) * block), (size_t)to);
        bool zeros = true;
        for (uint64_t i = c; i < end && zeros; i++) zeros = r->trits[i] == 0;
        if (zeros) continue;
        float d = bn_f16_to_f32(r->block_f16[c / block]);
        if (have && d != *out) return false;
        *out = d;
        have = true;
    }
    return true;
}

/* r->scales as the output type wants them, from the row's own (row_scale or r->block_f16). */
static bool fit_scales(const struct bn_convert_item *it, struct bn_convert_rows *r, float row_scale)
{
    const struct bn_type_info *to = bn_type_info(it->type);
    const struct bn_ternary *t = &it->ternary;
    uint64_t width = to->scale == BN_TS_BLOCK_F16 ? to->block : it->cols;
    for (uint64_t b = 0; b * width < it->cols; b++) {
        if (t->scale_kind == BN_TS_TENSOR) r->scales[b] = t->scale;
        else if (t->scale_kind == BN_TS_ROW_F32) r->scales[b] = row_scale;
        else if (!common_scale(&r->scales[b], r, t->block, b * width, (b + 1) * width))
            return false;
    }
    return true;
}

/* A scale that must go into 16 bits: does it keep its value? */
static void check_f16(const struct bn_convert_item *it, float scale, bool allow,
                      struct bn_obstacles *o)
{
    const char *type = bn_type_info(it->type)->name;
    float rounded = bn_f16_to_f32(bn_f32_to_f16(scale));
    if (rounded == scale) return;
    if (!isfinite(rounded) || rounded == 0) {
        bn_obstacle_add(o, BN_OBSTACLE_RANGE, it->name,
                        "'%s' has the scale %g, which the 16-bit scales of %s cannot hold",
                        it->name, (double)scale, type);
    } else if (!allow) {
        double percent = 100 * fabs((double)rounded - (double)scale) / fabs((double)scale);
        bn_obstacle_add(o, BN_OBSTACLE_ROUNDING, it->name,
                        "'%s' has the scale %.9g, which the 16-bit scales of %s would change by "
                        "%.2g %%: take i2_s or iq2_bn, or allow it (--allow-scale-rounding)",
                        it->name, (double)scale, type, percent);
    }
}

/* ------------------------------------------------------------------ ternary matrices */

/* Row `row` of the output. */
static bitnet_status read_row(float *row_scale, const struct bn_convert_item *it,
                              struct bn_convert_rows *r, uint64_t row, bitnet_error *err)
{
    *row_scale = it->ternary.scale;
    row = source_row(it, row);
    if (bn_ternary_row(it->col_from ? r->picked : r->trits, row_scale, r->block_f16, &it->ternary,
                       row, r->values)) {
        for (uint64_t i = 0; it->col_from && i < it->cols; i++)
            r->trits[i] = r->picked[it->col_from[i]];
        return BITNET_OK;
    }
    return bn_fail(err, BITNET_E_FORMAT, "tensor '%s', row %llu: a code that %s does not have",
                   it->from->name, (unsigned long long)row,
                   bn_type_info(it->ternary.stored.type)->name);
}

/* Must the values be looked at before writing may begin? */
static bool needs_reading(const struct bn_convert_item *it)
{
    const struct bn_type_info *to = bn_type_info(it->type);
    bool may_hold_2 = it->ternary.w_max > bn_type_w_max(it->type);
    bool finer = to->scale == BN_TS_BLOCK_F16 && it->ternary.block % to->block == 0;
    return (to->binary && !it->ternary.binary) || may_hold_2 ||
           it->ternary.scale_kind == BN_TS_ROW_F32 ||
           (it->ternary.scale_kind == BN_TS_BLOCK_F16 && !finer);
}

static void check_values(const struct bn_convert_item *it, const int8_t *w, uint64_t row,
                         struct bn_obstacles *o)
{
    const struct bn_type_info *to = bn_type_info(it->type);
    bool zero = false, two = false;
    for (uint64_t i = 0; i < it->cols; i++) {
        zero = zero || w[i] == 0;
        two = two || w[i] > 1;
    }
    if (zero && to->binary)
        bn_obstacle_add(o, BN_OBSTACLE_ZEROS, it->name,
                        "'%s' has zeros (row %llu), and %s holds only -1 and +1", it->name,
                        (unsigned long long)row, to->name);
    if (two && bn_type_w_max(it->type) < 2)
        bn_obstacle_add(o, BN_OBSTACLE_TWOS, it->name,
                        "'%s' has weights of +2 (row %llu): only Q2_0 and PQ2_0 hold them",
                        it->name, (unsigned long long)row);
}

/* The scale of a whole tensor is the mean of magnitudes: readers refuse another. */
static void check_sign(const struct bn_convert_item *it, struct bn_obstacles *o)
{
    const struct bn_type_info *to = bn_type_info(it->type);
    if (to->scale == BN_TS_TENSOR && it->ternary.scale < 0)
        bn_obstacle_add(o, BN_OBSTACLE_SIGN, it->name,
                        "'%s' has the negative scale %g, which %s cannot have", it->name,
                        (double)it->ternary.scale, to->name);
}

bitnet_status bn_convert_check(struct bn_convert_item *it, bool allow_scale_rounding,
                               struct bn_convert_rows *r, struct bn_obstacles *o, bitnet_error *err)
{
    const struct bn_type_info *to = bn_type_info(it->type);
    struct bn_ternary *t = &it->ternary;
    bool to_f16 = to->scale == BN_TS_BLOCK_F16 || to->scale == BN_TS_ROW_F16;
    bool reads = needs_reading(it);
    float first = 0;
    if (t->scale_kind == BN_TS_TENSOR && to_f16) check_f16(it, t->scale, allow_scale_rounding, o);
    for (uint64_t row = 0; reads && row < it->rows; row++) {
        float scale;
        BN_TRY(read_row(&scale, it, r, row, err));
        check_values(it, r->trits, row, o);
        if (t->scale_kind == BN_TS_ROW_F32 && to_f16) check_f16(it, scale, allow_scale_rounding, o);
        bool fits = fit_scales(it, r, scale);
        if (fits && to->scale == BN_TS_TENSOR) { /* one for all; a row of zeros agrees with any */
            bool zeros = true;
            for (uint64_t i = 0; i < it->cols && zeros; i++) zeros = r->trits[i] == 0;
            if (!zeros && first == 0) first = r->scales[0];
            fits = zeros || r->scales[0] == first;
        }
        if (!fits)
            bn_obstacle_add(o, BN_OBSTACLE_SCALES, it->name,
                            "'%s' has scales that differ inside what %s gives one scale (row %llu)",
                            it->name, to->name, (unsigned long long)row);
    }
    if (reads && to->scale == BN_TS_TENSOR) {
        t->scale_kind = BN_TS_TENSOR;
        t->scale = first;
    }
    check_sign(it, o);
    return BITNET_OK;
}

static bitnet_status write_trits(const struct bn_convert_item *it, const struct bn_convert_sink *to,
                                 struct bn_convert_rows *r, bitnet_error *err)
{
    memset(r->out, 0, (size_t)it->bytes);
    for (uint64_t row = 0; row < it->rows; row++) {
        float scale;
        BN_TRY(read_row(&scale, it, r, row, err));
        if (!fit_scales(it, r, scale))
            return bn_fail(err, BITNET_E_INTERNAL, "'%s' changed while it was converted", it->name);
        bn_pack_trits(r->out, it->type, it->rows, it->cols, row, r->trits, r->scales);
    }
    return to->put(to->user, r->out, (size_t)it->bytes, err);
}

/* ------------------------------------------------------------------ dense tensors */

/* A part of the input will not be read again. */
static void release(const struct bn_convert_item *it, const struct bn_convert_rows *r, uint64_t at,
                    uint64_t n)
{
    struct bn_tensor part = *it->from;
    part.data += at;
    part.bytes = n;
    bn_source_release(r->src, &part);
}

/* A row of the input as it is to be written as row out_row; its columns may change places. */
static void read_values(const struct bn_convert_item *it, struct bn_convert_rows *r,
                        uint64_t out_row)
{
    uint64_t row = source_row(it, out_row);
    size_t cols = (size_t)it->cols, width = it->cols_order.width ? it->cols_order.width : cols;
    float *to = it->cols_order.width || it->col_from ? r->scales : r->values;
    bn_dequant_row(to, &it->stored, row);
    if (it->col_from) {
        for (size_t c = 0; c < cols; c++) r->values[c] = to[it->col_from[c]];
        to = r->values;
    }
    for (size_t c = 0; to != r->values && c < cols; c += width)
        memcpy(r->values + c, to + bn_order_col(&it->cols_order, c), width * sizeof *to);
    for (size_t c = 0; c < cols; c++) {
        if (it->factor != 0) r->values[c] *= it->factor;
        if (it->values == BN_VALUES_PLUS_ONE) r->values[c] += 1.0f;
        if (it->values == BN_VALUES_MINUS_EXP)
            r->values[c] = -(float)bn_det_exp((double)r->values[c]);
    }
    if (it->merged) bn_merge_add(r->values, it, out_row);
}

static bitnet_status write_dense(const struct bn_convert_item *it, const struct bn_convert_sink *to,
                                 struct bn_convert_rows *r, struct bn_work *work, bitnet_error *err)
{
    size_t row_bytes = (size_t)(it->bytes / it->rows), n = 0;
    uint64_t in_bytes = it->from->bytes / it->rows, released = 0;
    for (uint64_t row = 0; row < it->rows; row++) {
        read_values(it, r, row);
        bn_quant_row(r->out + n, it->type, r->values, it->cols);
        n += row_bytes;
        if (n + row_bytes <= DENSE_BYTES && row + 1 < it->rows) continue;
        BN_TRY(to->put(to->user, r->out, n, err));
        BN_TRY(bn_work_add(work, it->name, n, err));
        n = 0;
        if (it->row_from) continue; /* rows come in another order */
        release(it, r, released, (row + 1) * in_bytes - released);
        released = (row + 1) * in_bytes;
    }
    return BITNET_OK;
}

static bitnet_status write_copy(const struct bn_convert_item *it, const struct bn_convert_sink *to,
                                const struct bn_convert_rows *r, struct bn_work *work,
                                bitnet_error *err)
{
    for (uint64_t at = 0; at < it->bytes;) {
        size_t n = bn_min_size(COPY_BYTES, (size_t)(it->bytes - at));
        BN_TRY(to->put(to->user, it->from->data + at, n, err));
        BN_TRY(bn_work_add(work, it->name, n, err));
        release(it, r, at, n);
        at += n;
    }
    return BITNET_OK;
}

bitnet_status bn_convert_write(const struct bn_convert_item *it, const struct bn_convert_sink *to,
                               struct bn_convert_rows *r, struct bn_work *work, bitnet_error *err)
{
    switch (it->how) {
    case BN_ITEM_COPY: return write_copy(it, to, r, work, err);
    case BN_ITEM_DENSE: return write_dense(it, to, r, work, err);
    case BN_ITEM_TRITS: BN_TRY(write_trits(it, to, r, err)); break;
    case BN_ITEM_FLOATS: BN_TRY(to->put(to->user, it->floats, (size_t)it->bytes, err)); break;
    }
    return bn_work_add(work, it->name, it->bytes, err);
}
