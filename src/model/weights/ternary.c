/* SPDX-License-Identifier: Apache-2.0
 * From what a file holds to trits and scales. Opening looks at the whole tensor where that is
 * needed to know its kind; rows are then made one at a time, by any number of threads.
 *
 * A row is seen as units: the type's own blocks, or 32 columns of floats, each with its scale. Over
 * all rows the coarsest of the levels is found on which scales agree (struct agreement). */
#include "model/weights/ternary.h"

#include "base/half.h"
#include "base/os/mem.h"
#include <math.h>
#include <stdlib.h>

enum { FLOAT_UNIT = 32, UNIT_MAX = 256 };

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

/* ------------------------------------------------------------------ where scales agree */

/* The coarsest level so far. Levels are nested: what agrees in rows agrees in blocks. */
struct agreement {
    uint64_t cols, unit; /* columns of a row, and under one scale */
    uint64_t width;      /* columns that share a scale: unit .. 256, or cols */
    bool tensor;         /* all rows share one, too */
    bool have_first;
    float first; /* the first scale that has weights */
};

/* The units of a row. dead[u]: no weight of unit u is other than zero; NULL: not looked yet. */
struct units {
    const float *scale;
    const uint8_t *dead;
    size_t n;
};

/* The next finer width that is whole units and divides the row. */
static uint64_t finer(const struct agreement *a)
{
    for (uint64_t w = UNIT_MAX; w > a->unit; w /= 2)
        if (w < a->width && a->cols % w == 0 && w % a->unit == 0) return w;
    return a->unit;
}

/* Does every group of k units have one scale? */
static bool agree(const struct units *u, size_t k)
{
    for (size_t g = 0; g < u->n; g += k) {
        const float *first = NULL;
        for (size_t i = g; i < g + k; i++) {
            if (u->dead && u->dead[i]) continue;
            if (first && u->scale[i] != *first) return false;
            if (!first) first = &u->scale[i];
        }
    }
    return true;
}

static const float *first_alive(const struct units *u)
{
    for (size_t i = 0; i < u->n; i++)
        if (!u->dead[i]) return &u->scale[i];
    return NULL;
}

/* Takes in a row whose units are known to be dead or not. */
static void take_row(struct agreement *a, const struct units *u)
{
    while (a->width > a->unit && !agree(u, (size_t)(a->width / a->unit))) {
        a->width = finer(a);
        a->tensor = false;
    }
    if (!a->tensor) return;
    const float *s = first_alive(u);
    if (s == NULL) return;
    if (!a->have_first) a->first = *s;
    a->have_first = true;
    a->tensor = *s == a->first;
}

/* Would taking it in change nothing, even if all units were alive? Then nobody needs to look for
 * dead ones. */
static bool row_fits(const struct agreement *a, const struct units *u)
{
    if (a->width > a->unit && !agree(u, (size_t)(a->width / a->unit))) return false;
    return !a->tensor || (a->have_first && u->scale[0] == a->first);
}

static void settle(struct bn_ternary *t, const struct agreement *a)
{
    t->scale = a->first;
    t->block = 0;
    if (a->tensor) {
        t->scale_kind = BN_TS_TENSOR;
    } else if (a->width == a->cols) {
        t->scale_kind = BN_TS_ROW_F32;
    } else {
        t->scale_kind = BN_TS_BLOCK_F16;
        t->block = (uint32_t)a->width;
    }
}

/* Columns under one scale, of `unit` as stored, once they are in the order that is wanted: a piece
 * that moves may be narrower. 0: pieces and blocks cut through each other. */
static uint64_t moved_unit(const struct bn_ternary *t, uint64_t unit)
{
    uint64_t width = t->cols.width;
    if (!width || unit == t->stored.cols || width % unit == 0) return unit;
    return unit % width == 0 ? width : 0;
}

/* Units of a row in the order that is wanted; to: `unit` columns each, from: as stored. */
static void move_scales(float *to, const float *from, const struct bn_ternary *t, uint64_t unit,
                        uint64_t stored_unit)
{
    for (uint64_t c = 0; c < t->stored.cols; c += unit)
        to[c / unit] = from[bn_order_col(&t->cols, (size_t)c) / stored_unit];
}

static bool exact_in_f16(float s) { return bn_f16_to_f32(bn_f32_to_f16(s)) == s; }

static bool all_zero(const int8_t *w, uint64_t n)
{
    int8_t any = 0;
    for (uint64_t i = 0; i < n && !any; i++) any = w[i];
    return !any;
}

/* ------------------------------------------------------------------ float values */

/* The one magnitude of {-s, 0, +s}; false if there are more, or one that is not finite. 0: all
 * zeros. *zeros is set if there is one. Floats are ordered as their bits are. */
static inline __attribute__((always_inline)) bool magnitude(float *out, bool *zeros, const float *x,
                                                            uint64_t n)
{
    uint32_t top = 0, other = 0, none = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t a = bn_f32_as_u32(x[i]) & 0x7fffffff;
        top = a > top ? a : top;
    }
    for (uint64_t i = 0; i < n; i++) {
        uint32_t a = bn_f32_as_u32(x[i]) & 0x7fffffff;
        other |= (a != top) & (a != 0);
        none |= a == 0;
    }
    *zeros = *zeros || none;
    *out = bn_u32_as_f32(top);
    return !other && top < 0x7f800000;
}

/* The same for FLOAT_UNIT values of 16 bits. inf: the bits of infinity. */
static bool magnitude_16(uint16_t *out, bool *zeros, const uint8_t *in, uint16_t inf)
{
    uint16_t a[FLOAT_UNIT], top = 0, other = 0, none = 0;
    memcpy(a, in, sizeof a);
    for (int i = 0; i < FLOAT_UNIT; i++) a[i] &= 0x7fff;
    for (int i = 0; i < FLOAT_UNIT; i++) top = a[i] > top ? a[i] : top;
    for (int i = 0; i < FLOAT_UNIT; i++) {
        other |= (uint16_t)((a[i] != top) & (a[i] != 0));
        none |= (uint16_t)(a[i] == 0);
    }
    *zeros = *zeros || none;
    *out = top;
    return !other && top < inf;
}

/* May rows be taken as 16-bit values, whole units at a time? */
static bool is_16_bit(const struct bn_stored *st)
{
    return (st->type == BN_F16 || st->type == BN_BF16) && st->cols % FLOAT_UNIT == 0;
}

static float widen(const struct bn_stored *st, uint16_t bits)
{
    return st->type == BN_F16 ? bn_f16_to_f32(bits) : bn_bf16_to_f32(bits);
}

/* The magnitudes of a row's units. false: it is no ternary row. */
static bool unit_magnitudes(float *mags, bool *zeros, const struct bn_stored *st, uint64_t r,
                            uint64_t unit, float *row)
{
    if (unit == FLOAT_UNIT && is_16_bit(st)) {
        const uint8_t *in = st->data + r * st->cols * 2;
        uint16_t m, inf = st->type == BN_F16 ? 0x7c00 : 0x7f80;
        for (uint64_t u = 0; u < st->cols / FLOAT_UNIT; u++, in += 2 * FLOAT_UNIT) {
            if (!magnitude_16(&m, zeros, in, inf)) return false;
            mags[u] = widen(st, m);
        }
        return true;
    }
    bn_dequant_row(row, st, r);
    for (uint64_t u = 0; u < st->cols / unit; u++) {
        const float *x = row + u * unit;
        bool ternary = unit == FLOAT_UNIT ? magnitude(&mags[u], zeros, x, FLOAT_UNIT)
                                          : magnitude(&mags[u], zeros, x, unit);
        if (!ternary) return false;
    }
    return true;
}

/* Columns that stay together where pieces move, at most FLOAT_UNIT. */
static uint64_t float_unit(const struct bn_ternary *t)
{
    uint64_t unit = FLOAT_UNIT;
    while (t->cols.width % unit) unit /= 2;
    return unit;
}

/* A float tensor whose values are ternary already. *is: false leaves it a dense matrix. */
static void look_for_ternary_values(struct bn_ternary *t, bool *is, float *row, float *mags,
                                    uint8_t *dead)
{
    const struct bn_stored *st = &t->stored;
    struct agreement a = {.cols = st->cols, .width = st->cols, .tensor = true};
    a.unit = st->cols % FLOAT_UNIT ? st->cols : float_unit(t);
    float *moved =
        mags + (t->cols.width ? st->cols / a.unit : 0); /* [2 * cols] has room for both */
    struct units u = {moved, dead, (size_t)(st->cols / a.unit)};
    bool zeros = false;
    *is = false;
    t->f16_scales = true;
    for (uint64_t r = 0; r < st->rows; r++) {
        if (!unit_magnitudes(mags, &zeros, st, r, a.unit, row)) return;
        if (t->cols.width) move_scales(moved, mags, t, a.unit, a.unit);
        for (size_t i = 0; i < u.n; i++) {
            dead[i] = moved[i] == 0;
            t->f16_scales = t->f16_scales && exact_in_f16(moved[i]);
        }
        take_row(&a, &u);
        /* scales of blocks have 16 bits; nobody trained these */
        if (a.width < a.cols && (!t->f16_scales || a.width < FLOAT_UNIT)) return;
    }
    *is = true;
    t->binary = !zeros;
    settle(t, &a);
}

/* ------------------------------------------------------------------ ternary types */

/* Has the tensor no zero at all? A ternary one answers in its first row. */
static bool is_binary(const struct bn_stored *st, int8_t *trits)
{
    if (bn_type_info(st->type)->binary) return true;
    for (uint64_t r = 0; r < st->rows; r++) {
        if (!bn_unpack_trits(trits, st, r)) return false;
        uint8_t all = 1; /* of -1, 0, +1 and +2, two are odd */
        for (uint64_t i = 0; i < st->cols; i++) all &= (uint8_t)trits[i];
        if (!all) return false;
    }
    return true;
}

static void find_dead(uint8_t *dead, const struct bn_ternary *t, uint64_t r, uint64_t unit,
                      int8_t *trits)
{
    bool right = bn_unpack_trits(trits, &t->stored, r);
    for (uint64_t u = 0; u < t->stored.cols / unit; u++)
        dead[u] = right && all_zero(trits + bn_order_col(&t->cols, (size_t)(u * unit)), unit);
}

/* Row and block scales of a ternary type: finite, and as coarse as they agree. Trits are unpacked
 * only where scales differ and a level hangs on it. */
static bitnet_status look_at_scales(struct bn_ternary *t, const char *name, float *scales,
                                    uint8_t *dead, int8_t *trits, bitnet_error *err)
{
    const struct bn_stored *st = &t->stored;
    const struct bn_type_info *type = bn_type_info(st->type);
    bool one = type->scale == BN_TS_TENSOR;
    struct agreement a = {.cols = st->cols, .width = st->cols, .tensor = true};
    uint64_t stored_unit = type->scale == BN_TS_BLOCK_F16 ? type->block : st->cols;
    a.unit = moved_unit(t, stored_unit);
    if (!a.unit)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "tensor '%s': heads of %zu columns cannot be told apart in type %s", name,
                       t->cols.width, type->name);
    float *moved =
        scales + st->cols / 2; /* [cols] has room for both: blocks have 32 columns or more */
    t->f16_scales = true;
    for (uint64_t r = 0; r < (one ? 1 : st->rows); r++) {
        struct units u = {scales, NULL, bn_unpack_scales(scales, st, r)};
        bool finite = true;
        for (size_t i = 0; i < u.n; i++) finite = finite & isfinite(scales[i]);
        if (t->cols.width && stored_unit < st->cols) {
            move_scales(moved, scales, t, a.unit, stored_unit);
            u.scale = moved;
            u.n = (size_t)(st->cols / a.unit);
        }
        if (!finite)
            return bn_fail(err, BITNET_E_FORMAT, "tensor '%s', row %llu: a scale is not finite",
                           name, (unsigned long long)r);
        if (type->scale != BN_TS_BLOCK_F16)
            t->f16_scales = t->f16_scales && exact_in_f16(scales[0]);
        if (one || row_fits(&a, &u)) continue;
        find_dead(dead, t, r, a.unit, trits);
        u.dead = dead;
        take_row(&a, &u);
    }
    if (one) {
        /* the mean of magnitudes; blocks and rows may have their signs */
        if (scales[0] < 0)
            return bn_fail(err, BITNET_E_FORMAT, "tensor '%s' has the negative scale %g", name,
                           (double)scales[0]);
        a.first = scales[0];
    }
    settle(t, &a);
    t->binary = is_binary(st, trits);
    t->w_max = !t->binary && bn_holds_two(st) ? 2 : 1;
    return BITNET_OK;
}

/* ------------------------------------------------------------------ open */

/* out->stored and online are set. */
static bitnet_status look(struct bn_ternary *out, bool *dense, const char *name, bitnet_error *err)
{
    const struct bn_stored *st = &out->stored;
    *dense = false;
    out->w_max = 1;
    float *row = bn_calloc(st->cols, sizeof *row),
          *scales = bn_calloc(2 * st->cols, sizeof *scales);
    int8_t *trits = bn_calloc(st->cols, 1);
    uint8_t *dead = bn_calloc(st->cols, 1);
    bitnet_status status = BITNET_OK;
    if (!row || !scales || !trits || !dead) {
        status = bn_fail_nomem(err, st->cols * 2 * sizeof *row, name);
    } else if (out->online) {
        out->scale_kind = BN_TS_TENSOR;
        status = absmean(out, st, row, name, err);
        out->f16_scales = exact_in_f16(out->scale);
    } else if (bn_type_info(st->type)->ternary) {
        status = look_at_scales(out, name, scales, dead, trits, err);
    } else {
        bool ternary;
        look_for_ternary_values(out, &ternary, row, scales, dead);
        *dense = !ternary;
    }
    free(row);
    free(scales);
    free(trits);
    free(dead);
    return status;
}

/* A factor beside the matrix; HF_U8 has it in its scale already. */
static bitnet_status take_factor(struct bn_ternary *t, bool dense, const char *name,
                                 bitnet_error *err)
{
    const struct bn_type_info *type = bn_type_info(t->stored.type);
    float factor = t->stored.type == BN_HF_U8 || t->online ? 1.0f : t->stored.hf_scale;
    if (factor == 1.0f) return BITNET_OK;
    if (dense)
        return bn_fail(err, BITNET_E_UNSUPPORTED, "tensor '%s' is dense and has a factor beside it",
                       name);
    bool rows_of_floats = t->scale_kind == BN_TS_ROW_F32 && !type->ternary;
    if (t->scale_kind != BN_TS_TENSOR && !rows_of_floats)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "tensor '%s' has both scales of its own and a factor beside it", name);
    t->scale *= factor;
    t->f16_scales = t->scale_kind == BN_TS_TENSOR && exact_in_f16(t->scale);
    return BITNET_OK;
}

bitnet_status bn_ternary_look(struct bn_ternary *out, bool *dense, const struct bn_stored *stored,
                              const char *name, bitnet_error *err)
{
    *out = (struct bn_ternary){.stored = *stored};
    BN_TRY(look(out, dense, name, err));
    return take_factor(out, *dense, name, err);
}

bitnet_status bn_ternary_open(struct bn_ternary *out, bool *dense, const struct bn_source *s,
                              const struct bn_config *c, enum bn_part p, uint32_t layer,
                              const struct bn_order_cols *cols, bitnet_error *err)
{
    *out = (struct bn_ternary){0};
    if (cols) out->cols = *cols;
    *dense = false;
    BN_TRY(bn_part_stored(&out->stored, &out->online, s, c, p, layer, err));
    const char *name = bn_part_find(s, p, layer)->name;
    BN_TRY(look(out, dense, name, err));
    return take_factor(out, *dense, name, err);
}

/* ------------------------------------------------------------------ rows */

/* The scale of columns [from, to) of blocks that agree: of the first that has weights, else of the
 * first. */
static uint16_t common_f16(const int8_t *w, const uint16_t *d, uint64_t unit, uint64_t from,
                           uint64_t to)
{
    for (uint64_t c = from; c < to; c += unit)
        if (!all_zero(w + c, unit)) return d[c / unit];
    return d[from / unit];
}

/* Scales of a type with blocks, where they were found to agree on more. */
static void coarser_scales(const int8_t *w, float *row_scale, uint16_t *block_f16,
                           const struct bn_ternary *t, uint64_t r, uint16_t *own)
{
    const struct bn_stored *st = &t->stored;
    uint64_t unit = bn_type_info(st->type)->block;
    bn_unpack_block_f16(own, st, r);
    if (row_scale && t->scale_kind == BN_TS_ROW_F32)
        *row_scale = bn_f16_to_f32(common_f16(w, own, unit, 0, st->cols));
    for (uint64_t b = 0; block_f16 && t->block && b < st->cols / t->block; b++)
        block_f16[b] = common_f16(w, own, unit, b * t->block, (b + 1) * t->block);
}

static bool stored_row(int8_t *w, float *row_scale, uint16_t *block_f16, const struct bn_ternary *t,
                       uint64_t r, float *scratch)
{
    const struct bn_stored *st = &t->stored;
    bool right = bn_unpack_trits(w, st, r);
    if (t->scale_kind == BN_TS_TENSOR) return right;
    const struct bn_type_info *type = bn_type_info(st->type);
    if (type->scale != BN_TS_BLOCK_F16) {
        if (row_scale) bn_unpack_scales(row_scale, st, r);
    } else if (t->block == type->block) {
        if (block_f16) bn_unpack_block_f16(block_f16, st, r);
    } else {
        coarser_scales(w, row_scale, block_f16, t, r, (uint16_t *)(void *)scratch);
    }
    /* nothing times a negative scale would be a negative zero, and depend on a scale of no weight */
    if (row_scale && t->scale_kind == BN_TS_ROW_F32 && *row_scale < 0 && all_zero(w, st->cols))
        *row_scale = 0;
    return right;
}

/* The same, and columns change their places. */
static bool moved_row(int8_t *w, float *row_scale, uint16_t *block_f16, const struct bn_ternary *t,
                      uint64_t r, float *scratch)
{
    const struct bn_stored *st = &t->stored;
    const struct bn_type_info *type = bn_type_info(st->type);
    size_t cols = (size_t)st->cols, width = t->cols.width;
    int8_t *stored = (int8_t *)(scratch + cols / 2);
    uint16_t *own = (uint16_t *)(void *)scratch, *moved = own + cols / 2;
    bool right = bn_unpack_trits(stored, st, r);
    for (size_t c = 0; c < cols; c += width)
        memcpy(w + c, stored + bn_order_col(&t->cols, c), width);
    if (t->scale_kind == BN_TS_TENSOR) return right;
    if (type->scale != BN_TS_BLOCK_F16) {
        if (row_scale) bn_unpack_scales(row_scale, st, r);
        return right;
    }
    uint64_t unit = moved_unit(t, type->block);
    bn_unpack_block_f16(own, st, r);
    for (size_t c = 0; c < cols; c += unit)
        moved[c / unit] = own[bn_order_col(&t->cols, c) / type->block];
    if (row_scale && t->scale_kind == BN_TS_ROW_F32)
        *row_scale = bn_f16_to_f32(common_f16(w, moved, unit, 0, cols));
    for (uint64_t b = 0; block_f16 && t->block && b < cols / t->block; b++)
        block_f16[b] = common_f16(w, moved, unit, b * t->block, (b + 1) * t->block);
    return right;
}

/* The magnitude of columns [from, to) of a row of floats, in the order that is wanted. */
static float moved_magnitude(const struct bn_ternary *t, const float *x, uint64_t from, uint64_t to)
{
    uint64_t piece = float_unit(t);
    bool zeros = false;
    float s = 0;
    for (uint64_t c = from; c < to && s == 0; c += piece)
        magnitude(&s, &zeros, x + bn_order_col(&t->cols, (size_t)c), piece);
    return s;
}

/* A row of ternary values, and columns change their places. */
static void moved_values(int8_t *w, float *row_scale, uint16_t *block_f16,
                         const struct bn_ternary *t, uint64_t r, float *scratch)
{
    const struct bn_stored *st = &t->stored;
    size_t width = t->cols.width;
    bn_dequant_row(scratch, st, r);
    for (size_t c = 0; c < st->cols; c += width) {
        const float *x = scratch + bn_order_col(&t->cols, c);
        for (size_t i = 0; i < width; i++) w[c + i] = (int8_t)((x[i] > 0) - (x[i] < 0));
    }
    if (row_scale && t->scale_kind == BN_TS_ROW_F32)
        *row_scale = moved_magnitude(t, scratch, 0, st->cols) * st->hf_scale;
    for (uint64_t b = 0; block_f16 && t->block && b < st->cols / t->block; b++)
        block_f16[b] = bn_f32_to_f16(moved_magnitude(t, scratch, b * t->block, (b + 1) * t->block));
}

/* Signs of FLOAT_UNIT values of 16 bits; returns the largest magnitude. */
static uint16_t signs_16(int8_t *w, const uint8_t *in)
{
    uint16_t a[FLOAT_UNIT], top = 0;
    memcpy(a, in, sizeof a);
    for (int i = 0; i < FLOAT_UNIT; i++) {
        uint16_t mag = a[i] & 0x7fff, some = mag != 0;
        top = mag > top ? mag : top;
        w[i] = (int8_t)(some - 2 * (some & a[i] >> 15));
    }
    return top;
}

static float signs_32(int8_t *w, const float *x, uint64_t n)
{
    uint32_t top = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t mag = bn_f32_as_u32(x[i]) & 0x7fffffff;
        top = mag > top ? mag : top;
        w[i] = (int8_t)((x[i] > 0) - (x[i] < 0));
    }
    return bn_u32_as_f32(top);
}

/* A row of ternary values: signs, and the magnitude of every `width` columns */
static void value_row(int8_t *w, float *row_scale, uint16_t *block_f16, const struct bn_ternary *t,
                      uint64_t r, float *scratch)
{
    const struct bn_stored *st = &t->stored;
    uint64_t width = t->block ? t->block : st->cols;
    const uint8_t *in = st->data + r * st->cols * 2; /* is_16_bit */
    if (!is_16_bit(st)) bn_dequant_row(scratch, st, r);
    for (uint64_t c = 0; c < st->cols; c += width) {
        float s;
        if (is_16_bit(st)) {
            uint16_t top = 0, unit;
            for (uint64_t k = c; k < c + width; k += FLOAT_UNIT) {
                unit = signs_16(w + k, in + 2 * k);
                top = unit > top ? unit : top;
            }
            s = widen(st, top);
        } else {
            s = signs_32(w + c, scratch + c, width);
        }
        if (t->block && block_f16) block_f16[c / width] = bn_f32_to_f16(s);
        if (t->scale_kind == BN_TS_ROW_F32 && row_scale) *row_scale = s * st->hf_scale;
    }
}

bool bn_ternary_row(int8_t *w, float *row_scale, uint16_t *block_f16, const struct bn_ternary *t,
                    uint64_t r, float *scratch)
{
    const struct bn_stored *st = &t->stored;
    if (bn_type_info(st->type)->ternary)
        return (t->cols.width ? moved_row : stored_row)(w, row_scale, block_f16, t, r, scratch);
    if (!t->online) {
        (t->cols.width ? moved_values : value_row)(w, row_scale, block_f16, t, r, scratch);
        return true;
    }
    bn_dequant_row(scratch, st, r);
    quantise_absmean(w, scratch, t->online_inv, st->cols);
    return true;
}
