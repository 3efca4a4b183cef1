/* SPDX-License-Identifier: Apache-2.0
 * What a tensor really holds: every value is read and counted. Ternary types are counted as codes
 * with their scales; floats as values, and, for matrices, as codes times scales if they are
 * that. */
#include "forge/forge.h"

#include "base/half.h"
#include "base/os/mem.h"
#include "model/weights/ternary.h"
#include <math.h>
#include <stdlib.h>

struct counts {
    uint64_t n[4]; /* -1, 0, +1, +2 */
    double scale_min, scale_max;
    double value_min, value_max, sum_abs;
    uint64_t n_scales, dead_rows, n_nonfinite;
};

static void see_scale(struct counts *c, float scale)
{
    c->n_scales++;
    if (!isfinite(scale)) {
        c->n_nonfinite++;
        return;
    }
    if (scale < c->scale_min) c->scale_min = scale;
    if (scale > c->scale_max) c->scale_max = scale;
}

static void see_value(struct counts *c, double v)
{
    if (v < c->value_min) c->value_min = v;
    if (v > c->value_max) c->value_max = v;
}

/* A run of codes under one scale. Returns how many are not zero. */
static uint64_t see_codes(struct counts *c, const int8_t *w, uint64_t n, float scale)
{
    uint32_t minus = 0, one = 0, two = 0; /* rows are far shorter than 2^32 */
    for (uint64_t i = 0; i < n; i++) {
        minus += w[i] == -1;
        one += w[i] == 1;
        two += w[i] == 2;
    }
    uint64_t zero = n - minus - one - two;
    c->n[0] += minus;
    c->n[1] += zero;
    c->n[2] += one;
    c->n[3] += two;
    if (isfinite(scale)) {
        if (minus) see_value(c, -(double)scale);
        if (zero) see_value(c, 0);
        if (one) see_value(c, scale);
        if (two) see_value(c, 2 * (double)scale);
        c->sum_abs += fabs((double)scale) * (double)(minus + one + 2 * (uint64_t)two);
    }
    return n - zero;
}

static bitnet_status count_ternary(struct counts *c, const struct bn_stored *s, const char *name,
                                   int8_t *trits, float *scales, bitnet_error *err)
{
    const struct bn_type_info *type = bn_type_info(s->type);
    uint64_t width = type->scale == BN_TS_BLOCK_F16 ? type->block : s->cols;
    for (uint64_t r = 0; r < s->rows; r++) {
        if (!bn_unpack_trits(trits, s, r))
            return bn_fail(err, BITNET_E_FORMAT,
                           "tensor '%s', row %llu: a code that %s does not have", name,
                           (unsigned long long)r, type->name);
        size_t n_scales = bn_unpack_scales(scales, s, r);
        uint64_t nonzero = 0;
        for (uint64_t b = 0; b * width < s->cols; b++)
            nonzero += see_codes(c, trits + b * width, width, scales[n_scales > 1 ? b : 0]);
        c->dead_rows += nonzero == 0;
        if (type->scale == BN_TS_TENSOR && r) continue;
        for (size_t b = 0; b < n_scales; b++) see_scale(c, scales[b]);
    }
    return BITNET_OK;
}

/* Floats that are no codes. Returns whether all are zero. */
static bool see_floats(struct counts *c, const float *x, uint64_t n)
{
    uint64_t bad = 0, zero = 0;
    float lo = INFINITY, hi = -INFINITY;
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        float v = x[i], a = fabsf(v);
        bool finite = a <= 3.402823466e38f; /* false for NaN too */
        bad += !finite;
        lo = finite && v < lo ? v : lo;
        hi = finite && v > hi ? v : hi;
        sum += finite ? a : 0.0f;
        zero += a == 0;
    }
    c->n_nonfinite += bad;
    if (bad < n) {
        see_value(c, lo);
        see_value(c, hi);
    }
    c->sum_abs += sum;
    return zero == n;
}

/* Floats that are codes times scales; those of nothing but zeros are not counted. */
static void count_codes(struct counts *c, const struct bn_ternary *t, int8_t *trits, float *values,
                        uint16_t *block_f16)
{
    uint64_t cols = t->stored.cols, width = t->block ? t->block : cols;
    for (uint64_t r = 0; r < t->stored.rows; r++) {
        float scale = t->scale;
        uint64_t nonzero = 0;
        bn_ternary_row(trits, &scale, block_f16, t, r, values);
        for (uint64_t b = 0; b < cols / width; b++) {
            if (t->block) scale = bn_f16_to_f32(block_f16[b]);
            uint64_t n = see_codes(c, trits + b * width, width, scale);
            if (n) see_scale(c, scale);
            nonzero += n;
        }
        c->dead_rows += nonzero == 0;
    }
    if (t->scale_kind == BN_TS_TENSOR && c->n_scales) c->n_scales = 1;
}

/* *ternary: a matrix of codes times scales. Counts then stand as for a ternary type. */
static bitnet_status count_floats(struct counts *c, const struct bn_stored *s, const char *name,
                                  int8_t *trits, float *values, bool matrix, bool *ternary,
                                  bitnet_error *err)
{
    struct bn_ternary t;
    struct bn_stored alone = *s;
    bool dense = true;
    alone.hf_scale = 1; /* as it lies, without a factor beside it */
    if (matrix) BN_TRY(bn_ternary_look(&t, &dense, &alone, name, err));
    *ternary = !dense;
    if (!dense) {
        uint16_t *block_f16 = bn_calloc(s->cols, sizeof *block_f16);
        if (block_f16 == NULL) return bn_fail_nomem(err, s->cols * sizeof *block_f16, name);
        count_codes(c, &t, trits, values, block_f16);
        free(block_f16);
        return BITNET_OK;
    }
    for (uint64_t r = 0; r < s->rows; r++) {
        bn_dequant_row(values, s, r);
        c->dead_rows += see_floats(c, values, s->cols);
    }
    return BITNET_OK;
}

/* The set of values found, in words. */
static void name_values(bitnet_tensor_stats *out, const uint64_t n[4])
{
    if (n[3]) {
        out->values = "{-1,0,+1,+2}";
        out->dtype = "quaternary";
    } else if (n[1] == 0) {
        out->values = "{-1,+1}";
        out->dtype = "binary";
    } else {
        out->values = "{-1,0,+1}";
        out->dtype = "ternary";
    }
}

static bool is_number(enum bn_type t) { return t <= BN_Q4_K || bn_type_info(t)->ternary; }

bitnet_status bn_stats_read(bitnet_tensor_stats *out, const struct bn_stored *s, const char *name,
                            bool matrix, bitnet_error *err)
{
    if (!is_number(s->type))
        return bn_fail(err, BITNET_E_UNSUPPORTED, "tensor '%s' has type %s, which holds no weights",
                       name, bn_type_info(s->type)->name);
    struct counts c = {.scale_min = INFINITY,
                       .scale_max = -INFINITY,
                       .value_min = INFINITY,
                       .value_max = -INFINITY};
    float *values = bn_calloc(s->cols, sizeof *values);
    int8_t *trits = bn_calloc(s->cols, 1);
    bitnet_status status = BITNET_OK;
    bool codes = bn_type_info(s->type)->ternary;
    if (values == NULL || trits == NULL)
        status = bn_fail_nomem(err, s->cols * sizeof *values, name);
    else if (codes) status = count_ternary(&c, s, name, trits, values, err);
    else status = count_floats(&c, s, name, trits, values, matrix, &codes, err);
    free(values);
    free(trits);
    if (status != BITNET_OK) return status;

    double n = (double)s->rows * (double)s->cols;
    out->values = "other";
    out->dtype = "float";
    memset(out->count, 0, sizeof out->count);
    out->zero_share = out->scale_min = out->scale_max = 0;
    out->n_scales = 0;
    if (codes) {
        memcpy(out->count, c.n, sizeof out->count);
        name_values(out, c.n);
        out->zero_share = n > 0 ? (double)c.n[1] / n : 0;
        out->scale_min = c.scale_min <= c.scale_max ? c.scale_min : 0;
        out->scale_max = c.scale_min <= c.scale_max ? c.scale_max : 0;
        out->n_scales = c.n_scales;
    }
    out->dead_rows = c.dead_rows;
    out->value_min = c.value_min <= c.value_max ? c.value_min : 0;
    out->value_max = c.value_min <= c.value_max ? c.value_max : 0;
    out->mean_abs = n > 0 ? c.sum_abs / n : 0;
    out->n_nonfinite = c.n_nonfinite;
    return BITNET_OK;
}
