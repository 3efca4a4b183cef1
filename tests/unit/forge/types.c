/* SPDX-License-Identifier: Apache-2.0
 * Random matrices through every conversion: from every type (and from floats) into every type that
 * can hold them, as convert does it, with the same values and the same scales, bit for bit. What a
 * type can hold, and on what scales agree, is worked out here element by element. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/rng.h"
#include "effort.h"
#include "forge/convert_impl.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROWS_MAX = 8, COLS_MAX = 768 };

static size_t n_tensors(void) { return repeats(1000, 200); }

/* a matrix and how it is stored */
struct matrix {
    uint64_t rows, cols;
    int8_t w[ROWS_MAX * COLS_MAX];
    float scale[ROWS_MAX * COLS_MAX]; /* of every element */
    enum bn_type type;
    uint8_t *data;
    uint64_t bytes;
};

static const enum bn_type sources[] = {
    BN_F32,      BN_F16,   BN_BF16,      BN_I2_S,   BN_I2_S_64, BN_I2_S_ROWS4,
    BN_TQ1_0,    BN_TQ2_0, BN_IQ2_BN,    BN_IQ1_BN, BN_Q1_0,    BN_Q2_0,
    BN_Q2_0_128, BN_HF_U8, BN_IQ2_BN_R4, BN_PQ2_0,  BN_PTQ1_0,  BN_TQ2_0_128};
static const enum bn_type targets[] = {BN_I2_S, BN_TQ1_0, BN_TQ2_0, BN_IQ2_BN, BN_IQ1_BN,
                                       BN_Q1_0, BN_Q2_0,  BN_PQ2_0, BN_PTQ1_0};

/* ------------------------------------------------------------------ what is expected */

/* Is there one scale for all weights other than zero in every group of `width` columns? */
static bool agrees(const struct matrix *m, uint64_t width)
{
    for (uint64_t g = 0; g < m->rows * m->cols; g += width) {
        const float *first = NULL;
        for (uint64_t e = g; e < g + width; e++) {
            if (m->w[e] == 0) continue;
            if (first == NULL) first = &m->scale[e];
            if (m->scale[e] != *first) return false;
        }
    }
    return true;
}

/* Columns under one scale; rows * cols: one for all. */
static uint64_t canonical_width(const struct matrix *m)
{
    if (agrees(m, m->rows * m->cols)) return m->rows * m->cols;
    if (agrees(m, m->cols)) return m->cols;
    for (uint64_t width = 256; width > 32; width /= 2)
        if (m->cols % width == 0 && agrees(m, width)) return width;
    return 32;
}

static bool can_hold(enum bn_type t, const struct matrix *m)
{
    const struct bn_type_info *i = bn_type_info(t);
    uint64_t bytes, width = i->scale == BN_TS_BLOCK_F16 ? i->block
                            : i->scale == BN_TS_TENSOR  ? m->rows * m->cols
                                                        : m->cols;
    if (!bn_type_bytes(&bytes, t, m->rows, m->cols) || !agrees(m, width)) return false;
    bool f16 = i->scale == BN_TS_BLOCK_F16 || i->scale == BN_TS_ROW_F16;
    for (uint64_t e = 0; e < m->rows * m->cols; e++) {
        if (m->w[e] == 0 && i->binary) return false;
        if (m->w[e] == 2 && t != BN_Q2_0 && t != BN_Q2_0_128 && t != BN_PQ2_0) return false;
        if (m->w[e] == 0) continue;
        if (f16 && bn_f16_to_f32(bn_f32_to_f16(m->scale[e])) != m->scale[e]) return false;
        if (i->scale == BN_TS_TENSOR && m->scale[e] < 0) return false;
    }
    return true;
}

/* ------------------------------------------------------------------ making matrices */

/* With eight significant bits: exact in f32, f16 and bf16. */
static float random_scale(struct bn_rng *g, bool negative)
{
    float s = (float)(128 + bn_rng_below(g, 128)) * 0x1p-14f;
    return negative && bn_rng_below(g, 4) == 0 ? -s : s;
}

static void random_matrix(struct matrix *m, enum bn_type t, struct bn_rng *g)
{
    const struct bn_type_info *i = bn_type_info(t);
    static const uint64_t widths[] = {64, 128, 192, 256, 384, 512, 640, 768};
    do {
        m->rows = 1 + bn_rng_below(g, ROWS_MAX);
        m->cols = widths[bn_rng_below(g, BN_ARRAY_LEN(widths))];
        if (!i->ternary && bn_rng_below(g, 8) == 0) m->cols = 32 * (1 + bn_rng_below(g, 24));
    } while (!bn_type_bytes(&m->bytes, t, m->rows, m->cols));
    m->type = t;
    /* the scale changes at multiples of `own`, but only with some chance */
    uint64_t own = i->scale == BN_TS_BLOCK_F16 ? i->block : i->ternary ? m->cols : 32;
    uint64_t levels[] = {own, 2 * own, 4 * own, m->cols, m->rows * m->cols};
    uint64_t width = levels[bn_rng_below(g, BN_ARRAY_LEN(levels))];
    if (i->scale == BN_TS_TENSOR) width = m->rows * m->cols;
    if (width < m->cols && m->cols % width) width = own;
    bool binary = i->binary || bn_rng_below(g, 6) == 0, two = bn_rng_below(g, 3) == 0;
    bool negative = i->ternary && i->scale != BN_TS_TENSOR && bn_rng_below(g, 3) == 0;
    uint32_t dead = binary ? 0 : bn_rng_below(g, 3); /* of 8 units */
    float scale = random_scale(g, negative);
    for (uint64_t e = 0; e < m->rows * m->cols; e++) {
        uint64_t at = width > m->cols ? e : e % m->cols;
        if (at % width == 0 && e) scale = random_scale(g, negative);
        m->scale[e] = scale;
        if (binary) m->w[e] = bn_rng_below(g, 2) ? 1 : -1;
        else m->w[e] = (int8_t)((int)bn_rng_below(g, two && bn_type_w_max(t) == 2 ? 4 : 3) - 1);
    }
    /* units without weights have no scale, or one of their own */
    for (uint64_t u = 0; u < m->rows * m->cols; u += own) {
        if (bn_rng_below(g, 8) >= dead) continue;
        float s = i->scale == BN_TS_TENSOR ? scale
                  : bn_rng_below(g, 2)     ? 0
                                           : random_scale(g, negative);
        for (uint64_t e = u; e < u + own; e++) {
            m->w[e] = 0;
            m->scale[e] = s;
        }
    }
}

static void store(struct matrix *m)
{
    const struct bn_type_info *i = bn_type_info(m->type);
    m->data = calloc(1, m->bytes);
    float v[COLS_MAX];
    for (uint64_t r = 0; r < m->rows; r++) {
        const int8_t *w = m->w + r * m->cols;
        const float *s = m->scale + r * m->cols;
        if (!i->ternary) {
            for (uint64_t k = 0; k < m->cols; k++) v[k] = (float)w[k] * s[k];
            bn_quant_row(m->data + r * m->cols * i->block_bytes, m->type, v, m->cols);
            continue;
        }
        uint64_t width = i->scale == BN_TS_BLOCK_F16 ? i->block : m->cols;
        for (uint64_t b = 0; b < m->cols / width; b++) v[b] = s[b * width];
        bn_pack_trits(m->data, m->type, m->rows, m->cols, r, w, v);
    }
}

static struct bn_stored stored(const struct matrix *m)
{
    return (struct bn_stored){m->type, m->data, m->bytes,
                              m->rows, m->cols, m->type == BN_HF_U8 ? m->scale[0] : 1};
}

/* ------------------------------------------------------------------ looking at them */

/* Opened as it lies: are the weights and scales those of the matrix, on the coarsest level? */
static void check_opened(const struct matrix *m, const struct bn_stored *st)
{
    struct bn_ternary t;
    bitnet_error err = {0};
    bool dense, zeros = false;
    int8_t w[COLS_MAX];
    float scratch[COLS_MAX], row_scale = NAN, values[COLS_MAX];
    uint16_t f16[COLS_MAX];
    if (bn_ternary_look(&t, &dense, st, "m", &err)) fail_msg("%s", err.text);
    assert_false(dense);
    uint64_t width = canonical_width(m);
    for (uint64_t e = 0; e < m->rows * m->cols; e++) zeros = zeros || m->w[e] == 0;
    for (uint64_t e = 0; e < m->rows * m->cols; e++)
        if (m->w[e] == 2) zeros = true; /* nor is that binary */
    assert_int_equal(t.binary, !zeros);
    assert_true(t.f16_scales);
    if (width == m->rows * m->cols) assert_int_equal(t.scale_kind, BN_TS_TENSOR);
    else assert_int_equal(t.scale_kind, width == m->cols ? BN_TS_ROW_F32 : BN_TS_BLOCK_F16);
    if (t.scale_kind == BN_TS_BLOCK_F16) assert_int_equal(t.block, width);
    for (uint64_t r = 0; r < m->rows; r++) {
        assert_true(bn_ternary_row(w, &row_scale, f16, &t, r, scratch));
        assert_memory_equal(w, m->w + r * m->cols, m->cols);
        bn_dequant_row(values, st, r);
        for (uint64_t k = 0; k < m->cols; k++) {
            float s = t.scale_kind == BN_TS_TENSOR    ? t.scale
                      : t.scale_kind == BN_TS_ROW_F32 ? row_scale
                                                      : bn_f16_to_f32(f16[k / t.block]);
            float want = m->scale[r * m->cols + k];
            if (w[k] == 0) continue;
            assert_int_equal(bn_f32_as_u32(s), bn_f32_as_u32(want));
            assert_int_equal(bn_f32_as_u32(values[k]), bn_f32_as_u32(want * (float)w[k]));
        }
    }
}

static void opening_is_canonical(void **state)
{
    (void)state;
    struct matrix *m = malloc(sizeof *m);
    for (size_t k = 0; k < BN_ARRAY_LEN(sources); k++) {
        struct bn_rng g = {k + 1};
        for (size_t i = 0; i < n_tensors(); i++) {
            random_matrix(m, sources[k], &g);
            store(m);
            struct bn_stored st = stored(m);
            check_opened(m, &st);
            free(m->data);
        }
    }
    free(m);
}

/* ------------------------------------------------------------------ conversions */

static void make_item(struct bn_convert_item *it, struct bn_tensor *from, const struct matrix *m,
                      char *name, enum bn_type to)
{
    bitnet_error err = {0};
    bool dense;
    struct bn_stored st = stored(m);
    *from =
        (struct bn_tensor){name, m->type, 2, {m->cols, m->rows, 1, 1}, m->data, m->bytes, 0, false};
    *it = (struct bn_convert_item){.how = BN_ITEM_TRITS,
                                   .name = name,
                                   .from = from,
                                   .type = to,
                                   .n_dims = 2,
                                   .dims = {m->cols, m->rows, 1, 1},
                                   .rows = m->rows,
                                   .cols = m->cols};
    if (bn_ternary_look(&it->ternary, &dense, &st, name, &err)) fail_msg("%s", err.text);
}

static bitnet_status put_data(void *user, const void *p, size_t n, bitnet_error *err)
{
    return bn_gguf_data(user, p, n, err);
}

/* All matrices that type `to` can hold into one file, and back. Returns how many. */
static size_t convert_all(const struct matrix *m, size_t n, enum bn_type to, const char *path)
{
    struct bn_convert_item *items = calloc(n, sizeof *items);
    struct bn_tensor *from = calloc(n, sizeof *from);
    char(*names)[24] = calloc(n, sizeof *names);
    size_t *which = calloc(n, sizeof *which), held = 0;
    struct bn_convert_rows rows;
    struct bn_gguf_writer w = {0};
    struct bn_source none = {0}, back;
    struct bn_work work = {0};
    const struct bn_convert_sink to_file = {put_data, &w};
    bitnet_error err = {0};
    assert_int_equal(bn_convert_rows_open(&rows, &none, COLS_MAX, 1 << 16, &err), BITNET_OK);
    assert_int_equal(bn_gguf_create(&w, path, true, &err), BITNET_OK);
    for (size_t i = 0; i < n; i++) {
        struct bn_convert_item *it = &items[held];
        snprintf(names[held], sizeof *names, "m%zu", i);
        make_item(it, &from[held], &m[i], names[held], to);
        bool fits = bn_type_bytes(&it->bytes, to, it->rows, it->cols);
        struct bn_obstacles o = {0};
        bitnet_status s =
            fits ? bn_convert_check(it, false, &rows, &o, &err) : BITNET_E_UNSUPPORTED;
        if (s == BITNET_OK) s = bn_obstacles_end(&o, &err);
        if ((s == BITNET_OK) != can_hold(to, &m[i]))
            fail_msg("%s to %s, matrix %zu: %s", bn_type_info(m[i].type)->name,
                     bn_type_info(to)->name, i, s == BITNET_OK ? "accepted" : err.text);
        if (s != BITNET_OK) continue;
        assert_int_equal(bn_gguf_declare(&w, it->name, to, 2, it->dims, &err), BITNET_OK);
        which[held++] = i;
    }
    for (size_t k = 0; k < held; k++)
        if (bn_convert_write(&items[k], &to_file, &rows, &work, &err)) fail_msg("%s", err.text);
    if (bn_gguf_commit(&w, &err)) fail_msg("%s", err.text);
    bn_gguf_discard(&w);
    if (bn_source_open(&back, path, BN_I2S_AUTO, &err)) fail_msg("%s", err.text);
    for (size_t k = 0; k < held; k++) {
        struct bn_stored st = bn_tensor_stored(bn_source_tensor(&back, items[k].name));
        assert_int_equal(st.type, to);
        check_opened(&m[which[k]], &st);
    }
    bn_source_close(&back);
    bn_convert_rows_close(&rows);
    free(items), free(from), free(names), free(which);
    return held;
}

static void every_path(void **state)
{
    (void)state;
    char path[] = "/tmp/bitnet-types-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    size_t n = n_tensors();
    struct matrix *m = calloc(n, sizeof *m);
    for (size_t k = 0; k < BN_ARRAY_LEN(sources); k++) {
        struct bn_rng g = {100 + k};
        for (size_t i = 0; i < n; i++) {
            random_matrix(&m[i], sources[k], &g);
            store(&m[i]);
        }
        for (size_t j = 0; j < BN_ARRAY_LEN(targets); j++) {
            size_t held = convert_all(m, n, targets[j], path);
            print_message("%s to %s: %zu\n", bn_type_info(sources[k])->name,
                          bn_type_info(targets[j])->name, held);
            /* a type holds what comes from itself, and no path is empty */
            if (sources[k] == targets[j]) assert_int_equal(held, n);
            assert_true(held > 0);
        }
        for (size_t i = 0; i < n; i++) free(m[i].data);
    }
    free(m);
    unlink(path);
}

/* ------------------------------------------------------------------ floats that are not ternary */

static void set(float *x, uint64_t from, uint64_t n, float s)
{
    for (uint64_t i = from; i < from + n; i++) x[i] = i % 3 == 0 ? s : i % 3 == 1 ? -s : 0;
}

/* Groups whose scales need more than 16 bits, three magnitudes in a group, a group of a width that
 * nobody uses, values that are not finite: dense. */
static void other_floats_stay_dense(void **state)
{
    (void)state;
    float x[2 * 256];
    const struct bn_stored st = {BN_F32, (const uint8_t *)x, sizeof x, 2, 256, 1};
    struct bn_ternary t;
    bool dense;
    set(x, 0, 512, 0.1f);
    assert_int_equal(bn_ternary_look(&t, &dense, &st, "m", NULL), BITNET_OK);
    assert_true(!dense && t.scale_kind == BN_TS_TENSOR && !t.f16_scales && t.scale == 0.1f);
    set(x, 256, 256, 0.7f); /* rows may have any */
    assert_int_equal(bn_ternary_look(&t, &dense, &st, "m", NULL), BITNET_OK);
    assert_true(!dense && t.scale_kind == BN_TS_ROW_F32);
    set(x, 0, 128, 0.2f); /* groups may not */
    assert_int_equal(bn_ternary_look(&t, &dense, &st, "m", NULL), BITNET_OK);
    assert_true(dense);
    for (int k = 0; k < 4; k++) set(x, (uint64_t)k * 128, 128, 0.25f * (float)(k + 1));
    assert_int_equal(bn_ternary_look(&t, &dense, &st, "m", NULL), BITNET_OK);
    assert_true(!dense && t.scale_kind == BN_TS_BLOCK_F16 && t.block == 128 && !t.binary);
    set(x, 32, 32, 0.5f);
    assert_int_equal(bn_ternary_look(&t, &dense, &st, "m", NULL), BITNET_OK);
    assert_true(!dense && t.block == 32);
    set(x, 32, 16, 0.75f);
    assert_int_equal(bn_ternary_look(&t, &dense, &st, "m", NULL), BITNET_OK);
    assert_true(dense);
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < BN_ARRAY_LEN(odd); i++) {
        for (int k = 0; k < 512; k++) x[k] = k % 2 ? odd[i] : 0;
        assert_int_equal(bn_ternary_look(&t, &dense, &st, "m", NULL), BITNET_OK);
        assert_true(dense);
    }
    for (int k = 0; k < 512; k++) x[k] = k % 2 ? -0.0f : 0; /* nothing: one scale, 0 */
    assert_int_equal(bn_ternary_look(&t, &dense, &st, "m", NULL), BITNET_OK);
    assert_true(!dense && t.scale_kind == BN_TS_TENSOR && t.scale == 0 && !t.binary);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_is_canonical),
        cmocka_unit_test(every_path),
        cmocka_unit_test(other_floats_stay_dense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
