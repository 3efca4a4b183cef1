/* SPDX-License-Identifier: Apache-2.0
 * From what a file holds to trits and scales. Opening looks at the whole tensor where that is
 * needed to know its kind; rows are then made one at a time, by any number of threads. */
#include "model/ternary.h"

#include "base/half.h"
#include "base/mem.h"
#include <math.h>
#include <stdlib.h>

/* mean |w| of the whole tensor, summed in double row by row so that it does not depend on
 * threads */
static bitnet_status absmean(struct bn_ternary *t, const struct bn_stored *st, float *row,
                             const char *name, bitnet_error *err)
{
    double sum = 0;
    for (uint64_t r = 0; r < st->rows; r++) {
        bn_dequant_row(row, st, r);
        double s = 0;
        for (uint64_t i = 0; i < st->cols; i++) s += fabs((double)row[i]);
        sum += s;
    }
    float mean = (float)(sum / ((double)st->rows * (double)st->cols));
    if (!isfinite(mean))
        return bn_fail(err, BITNET_E_FORMAT, "tensor '%s' holds values that are not finite", name);
    if (mean < 1e-5f) mean = 1e-5f;
    t->online_inv = 1.0f / mean;
    t->scale =
        1.0f /
        t->online_inv; /* the reference multiplies by the reciprocal and divides by it again */
    return BITNET_OK;
}

static void quantise_absmean(int8_t *w, const float *x, float inv, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        float v = rintf(x[i] * inv);
        w[i] = (int8_t)(v > 1 ? 1 : v < -1 ? -1 : v);
    }
}

/* The one magnitude of a row of {-s, 0, +s}; false if there are more, or one that is not finite. 0:
 * all zeros. */
static bool row_magnitude(float *out, const float *x, uint64_t n)
{
    float s = 0;
    for (uint64_t i = 0; i < n; i++) {
        float a = fabsf(x[i]);
        if (a == 0) continue;
        if (s == 0) s = a;
        if (!(a == s) || isinf(a)) return false;
    }
    *out = s;
    return true;
}

/* A float tensor whose values are ternary already. *is: false leaves it a dense matrix. */
static void look_for_ternary_values(struct bn_ternary *t, bool *is, float *row)
{
    const struct bn_stored *st = &t->stored;
    float first = 0;
    bool equal = true;
    *is = false;
    for (uint64_t r = 0; r < st->rows; r++) {
        float s;
        bn_dequant_row(row, st, r);
        if (!row_magnitude(&s, row, st->cols)) return;
        if (s == 0) continue;
        if (first == 0) first = s;
        equal = equal && s == first;
    }
    *is = true;
    t->scale_kind = equal ? BN_TS_TENSOR : BN_TS_ROW_F32;
    t->scale = first;
}

static bool all_zero(const int8_t *w, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (w[i]) return false;
    return true;
}

/* Row and block scales of a ternary type: finite, and one for all where they agree. A scale of zero
 * may stand for any other if the weights under it are zero too. */
static bitnet_status look_at_scales(struct bn_ternary *t, const char *name, float *scales,
                                    int8_t *trits, bitnet_error *err)
{
    const struct bn_stored *st = &t->stored;
    const struct bn_type_info *type = bn_type_info(st->type);
    float first = 0;
    bool equal = true;
    for (uint64_t r = 0; r < st->rows; r++) {
        size_t n = bn_unpack_scales(scales, st, r);
        bool unpacked = false;
        for (size_t b = 0; b < n; b++) {
            if (!isfinite(scales[b]))
                return bn_fail(err, BITNET_E_FORMAT, "tensor '%s', row %llu: a scale is not finite",
                               name, (unsigned long long)r);
            /* types with one scale a tensor take the mean of magnitudes; blocks may have their
             * signs */
            if (type->scale == BN_TS_TENSOR && scales[b] < 0)
                return bn_fail(err, BITNET_E_FORMAT, "tensor '%s' has the negative scale %g", name,
                               (double)scales[b]);
            if (scales[b] != 0 && first == 0) first = scales[b];
            if (scales[b] != 0) {
                equal = equal && scales[b] == first;
            } else if (equal) {
                if (!unpacked) unpacked = bn_unpack_trits(trits, st, r);
                uint64_t width = n == 1 ? st->cols : type->block;
                equal = unpacked && all_zero(trits + b * width, width);
            }
            if (type->scale == BN_TS_TENSOR) break;
        }
        if (type->scale == BN_TS_TENSOR) break;
    }
    t->scale = first;
    if (type->scale == BN_TS_TENSOR || equal) {
        t->scale_kind = BN_TS_TENSOR;
    } else if (type->scale == BN_TS_BLOCK_F16) {
        t->scale_kind = BN_TS_BLOCK_F16;
        t->block = type->block;
    } else {
        t->scale_kind = BN_TS_ROW_F32;
    }
    return BITNET_OK;
}

bitnet_status bn_ternary_open(struct bn_ternary *out, bool *dense, const struct bn_source *s,
                              const struct bn_config *c, enum bn_part p, uint32_t layer,
                              bitnet_error *err)
{
    *out = (struct bn_ternary){0};
    *dense = false;
    BN_TRY(bn_part_stored(&out->stored, &out->online, s, c, p, layer, err));
    const struct bn_stored *st = &out->stored;
    const char *name = bn_part_find(s, p, layer)->name;
    float *row = bn_calloc(st->cols, sizeof *row);
    int8_t *trits = bn_calloc(st->cols, 1);
    bitnet_status status = BITNET_OK;
    if (!row || !trits) {
        status = bn_fail_nomem(err, st->cols * sizeof *row, name);
    } else if (out->online) {
        out->scale_kind = BN_TS_TENSOR;
        status = absmean(out, st, row, name, err);
    } else if (bn_type_info(st->type)->ternary) {
        status = look_at_scales(out, name, row, trits, err);
        float factor =
            st->type == BN_HF_U8 ? 1.0f : st->hf_scale; /* HF_U8 has it in its scale already */
        out->scale *= factor;
        if (status == BITNET_OK && factor != 1.0f && out->scale_kind != BN_TS_TENSOR)
            status = bn_fail(err, BITNET_E_UNSUPPORTED,
                             "tensor '%s' has both scales of its own and a factor beside it", name);
    } else {
        bool ternary;
        look_for_ternary_values(out, &ternary, row);
        *dense = !ternary;
        if (*dense && st->hf_scale != 1.0f)
            status = bn_fail(err, BITNET_E_UNSUPPORTED,
                             "tensor '%s' is dense and has a factor beside it", name);
        out->scale *= st->hf_scale;
    }
    free(row);
    free(trits);
    return status;
}

bool bn_ternary_row(int8_t *w, float *row_scale, uint16_t *block_f16, const struct bn_ternary *t,
                    uint64_t r, float *scratch)
{
    const struct bn_stored *st = &t->stored;
    if (bn_type_info(st->type)->ternary) {
        if (row_scale && t->scale_kind == BN_TS_ROW_F32) bn_unpack_scales(row_scale, st, r);
        if (block_f16 && t->scale_kind == BN_TS_BLOCK_F16) bn_unpack_block_f16(block_f16, st, r);
        return bn_unpack_trits(w, st, r);
    }
    bn_dequant_row(scratch, st, r);
    if (t->online) {
        quantise_absmean(w, scratch, t->online_inv, st->cols);
        return true;
    }
    float s = 0;
    row_magnitude(&s, scratch, st->cols);
    for (uint64_t i = 0; i < st->cols; i++) w[i] = (int8_t)((scratch[i] > 0) - (scratch[i] < 0));
    if (row_scale && t->scale_kind == BN_TS_ROW_F32) *row_scale = s * st->hf_scale;
    return true;
}
