/* SPDX-License-Identifier: Apache-2.0
 * Storage types against an independent description of them (tests/data/make_types.py), and against
 * themselves: what is packed comes back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/half.h"
#include "json/json.h"
#include "base/rng.h"
#include "model/files/types.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static struct bn_json *oracle(void)
{
    struct bn_json *root;
    bitnet_error err;
    if (bn_json_read_file(&root, TEST_DATA "/types/types.json", 1 << 20, &err) != BITNET_OK)
        fail_msg("%s", err.text);
    return root;
}

/* a tensor of the oracle, its bytes in a block of their own: reads past the end are seen */
static struct bn_stored stored_of(const struct bn_json *t, uint8_t **data)
{
    const char *hex = bn_json_text(bn_json_get(t, "data"));
    size_t n = strlen(hex) / 2;
    *data = malloc(n);
    for (size_t i = 0; i < n; i++) {
        unsigned v;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &v), 1);
        (*data)[i] = (uint8_t)v;
    }
    struct bn_stored s = {.data = *data,
                          .bytes = n,
                          .rows = (uint64_t)bn_json_integer(bn_json_get(t, "rows")),
                          .cols = (uint64_t)bn_json_integer(bn_json_get(t, "cols")),
                          .hf_scale = 1};
    uint64_t bytes;
    assert_true(bn_type_by_name(&s.type, bn_json_text(bn_json_get(t, "type"))));
    assert_true(bn_type_bytes(&bytes, s.type, s.rows, s.cols));
    assert_int_equal(bytes, n);
    return s;
}

static void ternary_matches_oracle(void **state)
{
    (void)state;
    struct bn_json *root = oracle(), *t;
    size_t i;
    bn_json_each(bn_json_get(root, "ternary"), i, t)
    {
        uint8_t *data;
        struct bn_stored s = stored_of(t, &data);
        const struct bn_type_info *info = bn_type_info(s.type);
        int8_t *w = malloc(s.cols);
        float *x = malloc(s.cols * sizeof *x), *scales = malloc(s.cols * sizeof *scales);
        uint16_t *f16 = malloc(s.cols * sizeof *f16);
        uint8_t *again = calloc(1, s.bytes);
        assert_true(info->ternary);
        for (uint64_t r = 0; r < s.rows; r++) {
            const struct bn_json *row = bn_json_at(bn_json_get(t, "scales"), r);
            const char *want = bn_json_text(bn_json_at(bn_json_get(t, "trits"), r));
            size_t n = bn_unpack_scales(scales, &s, r);
            assert_int_equal(n, bn_json_size(row));
            for (size_t k = 0; k < n; k++)
                assert_int_equal(bn_f32_as_u32(scales[k]), bn_json_integer(bn_json_at(row, k)));
            assert_true(bn_unpack_trits(w, &s, r));
            bn_dequant_row(x, &s, r);
            for (uint64_t k = 0; k < s.cols; k++) {
                assert_int_equal("-0+2"[w[k] + 1], want[k]);
                float scale = scales[n == 1 ? 0 : k / info->block];
                assert_true(x[k] == scale * (float)w[k]);
            }
            if (info->scale == BN_TS_BLOCK_F16) {
                bn_unpack_block_f16(f16, &s, r);
                for (size_t k = 0; k < n; k++) assert_true(bn_f16_to_f32(f16[k]) == scales[k]);
            }
            bn_pack_trits(again, s.type, s.rows, s.cols, r, w, scales);
        }
        assert_memory_equal(again, data, s.bytes); /* and packing gives the oracle's bytes */
        free(w), free(x), free(scales), free(f16), free(again), free(data);
    }
    bn_json_free(root);
}

static void dense_matches_oracle(void **state)
{
    (void)state;
    struct bn_json *root = oracle(), *t;
    size_t i;
    bn_json_each(bn_json_get(root, "dense"), i, t)
    {
        uint8_t *data;
        struct bn_stored s = stored_of(t, &data);
        float *x = malloc(s.cols * sizeof *x);
        for (uint64_t r = 0; r < s.rows; r++) {
            const struct bn_json *row = bn_json_at(bn_json_get(t, "values"), r);
            bn_dequant_row(x, &s, r);
            for (uint64_t k = 0; k < s.cols; k++)
                assert_int_equal(bn_f32_as_u32(x[k]), bn_json_integer(bn_json_at(row, k)));
        }
        free(x), free(data);
    }
    bn_json_free(root);
}

/* all 243 words of five trits: byte as ggml writes it, and back */
static void every_base3_word(void **state)
{
    (void)state;
    struct bn_json *root = oracle(), *words = bn_json_get(root, "base3");
    for (int v = 0; v < 243; v++) {
        int8_t w[256] = {0}, back[256];
        uint8_t block[54] = {0};
        float scale = 1;
        int rest = v;
        for (int n = 4; n >= 0; n--, rest /= 3) w[n * 32] = (int8_t)(rest % 3 - 1);
        bn_pack_trits(block, BN_TQ1_0, 1, 256, 0, w, &scale);
        assert_int_equal(block[0], bn_json_integer(bn_json_at(words, (size_t)v)));
        struct bn_stored s = {BN_TQ1_0, block, sizeof block, 1, 256, 1};
        assert_true(bn_unpack_trits(back, &s, 0));
        assert_memory_equal(back, w, 256);
    }
    bn_json_free(root);
    for (int byte = 0; byte < 256; byte++) { /* any byte is some five trits */
        uint8_t block[54] = {0};
        int8_t back[256];
        memset(block, byte, 52);
        struct bn_stored s = {BN_TQ1_0, block, sizeof block, 1, 256, 1};
        assert_true(bn_unpack_trits(back, &s, 0));
        for (int k = 0; k < 256; k++) assert_in_range(back[k] + 1, 0, 2);
    }
}

static const enum bn_type ternary_types[] = {
    BN_I2_S, BN_I2_S_64, BN_I2_S_ROWS4, BN_HF_U8,     BN_TQ1_0, BN_TQ2_0,  BN_IQ2_BN,   BN_IQ1_BN,
    BN_Q1_0, BN_Q2_0,    BN_Q2_0_128,   BN_IQ2_BN_R4, BN_PQ2_0, BN_PTQ1_0, BN_TQ2_0_128};

static void round_trips(void **state)
{
    (void)state;
    static const uint64_t shapes[][2] = {{4, 256},  {1, 1024}, {12, 768}, {128, 40}, {8, 72},
                                         {16, 100}, {7, 512},  {64, 1},   {20, 2560}};
    struct bn_rng g = {7};
    for (size_t i = 0; i < BN_ARRAY_LEN(ternary_types); i++)
        for (size_t k = 0; k < BN_ARRAY_LEN(shapes); k++) {
            enum bn_type t = ternary_types[i];
            const struct bn_type_info *info = bn_type_info(t);
            uint64_t rows = shapes[k][0], cols = shapes[k][1], bytes;
            if (!bn_type_bytes(&bytes, t, rows, cols)) continue;
            uint8_t *data = calloc(1, bytes);
            int8_t *w = malloc(rows * cols), *back = malloc(cols);
            size_t n_scales = info->scale == BN_TS_BLOCK_F16 ? cols / info->block : 1;
            float *scales = malloc(n_scales * sizeof *scales), *out = malloc(cols * sizeof *out);
            for (uint64_t e = 0; e < rows * cols; e++) {
                w[e] = (int8_t)((int)bn_rng_below(&g, 2 + (uint32_t)bn_type_w_max(t)) - 1);
                if (info->binary && w[e] == 0) w[e] = 1;
            }
            for (size_t b = 0; b < n_scales; b++) scales[b] = 0.25f * (float)(b + 1);
            for (uint64_t r = 0; r < rows; r++)
                bn_pack_trits(data, t, rows, cols, r, w + r * cols, scales);
            struct bn_stored s = {t, data, bytes, rows, cols, 0.25f};
            for (uint64_t r = 0; r < rows; r++) {
                assert_true(bn_unpack_trits(back, &s, r));
                assert_memory_equal(back, w + r * cols, cols);
                assert_int_equal(bn_unpack_scales(out, &s, r), n_scales);
                assert_memory_equal(out, scales, n_scales * sizeof *scales);
            }
            free(data), free(w), free(back), free(scales), free(out);
        }
}

/* every place of every 2-bit type, one at a time: code 3 is reported, except in Q2_0 and PQ2_0 */
static void code_3_is_reported(void **state)
{
    (void)state;
    const uint64_t rows = 4, cols = 256;
    for (size_t i = 0; i < BN_ARRAY_LEN(ternary_types); i++) {
        enum bn_type t = ternary_types[i];
        if (t == BN_TQ1_0 || t == BN_PTQ1_0 || t == BN_IQ1_BN || t == BN_Q1_0) continue;
        uint64_t bytes;
        assert_true(bn_type_bytes(&bytes, t, rows, cols));
        uint8_t *data = malloc(bytes);
        float scales[4] = {1, 1, 1, 1};
        for (uint64_t r = 0; r < rows; r++)
            for (uint64_t k = 0; k < cols; k += 7) {
                int8_t w[256] = {0}, back[256];
                memset(data, 0, bytes);
                for (uint64_t q = 0; q < rows; q++) {
                    w[k] = q == r ? 2 : 0;
                    bn_pack_trits(data, t, rows, cols, q, w, scales);
                }
                struct bn_stored s = {t, data, bytes, rows, cols, 1};
                bool allowed = t == BN_Q2_0 || t == BN_Q2_0_128 || t == BN_PQ2_0;
                assert_int_equal(bn_unpack_trits(back, &s, r), allowed);
                assert_int_equal(back[k], 2);
                assert_true(bn_unpack_trits(back, &s, (r + 1) % rows)); /* the others are clean */
            }
        free(data);
    }
}

/* The example in the description of Hugging Face's unpack_weights: a byte holds one weight of each
 * quarter of the rows, the first quarter in the lowest bits. */
static void hf_example(void **state)
{
    (void)state;
    /* two packed rows of two: codes 0 1 2 0 | 2 1 0 1 and 1 1 1 1 | 0 2 0 2 */
    const uint8_t packed[4] = {0 | 1 << 2 | 2 << 4 | 0 << 6, 2 | 1 << 2 | 0 << 4 | 1 << 6,
                               1 | 1 << 2 | 1 << 4 | 1 << 6, 0 | 2 << 2 | 0 << 4 | 2 << 6};
    static const int8_t want[8][2] = {{-1, 1}, {0, -1}, {0, 0},  {0, 1},
                                      {1, -1}, {0, -1}, {-1, 0}, {0, 1}};
    struct bn_stored s = {BN_HF_U8, packed, 4, 8, 2, 0.5f};
    for (uint64_t r = 0; r < 8; r++) {
        int8_t w[2];
        float scale;
        assert_true(bn_unpack_trits(w, &s, r));
        assert_memory_equal(w, want[r], 2);
        assert_int_equal(bn_unpack_scales(&scale, &s, r), 1);
        assert_true(scale == 0.5f);
    }
}

static void sizes(void **state)
{
    (void)state;
    static const struct {
        enum bn_type t;
        uint64_t rows, cols, bytes; /* bytes 0: does not fit */
    } cases[] = {
        {BN_I2_S, 2560, 6912, 2560 * 6912 / 4 + 32},
        {BN_I2_S, 3200, 8640, 3200 * 8640 / 4 + 32}, /* blocks straddle rows */
        {BN_I2_S, 3, 100, 0},
        {BN_I2_S_64, 1, 64, 48},
        {BN_I2_S_64, 1, 32, 0},
        {BN_I2_S_ROWS4, 4, 5, 37},
        {BN_I2_S_ROWS4, 6, 5, 0},
        {BN_HF_U8, 6, 10, 20},
        {BN_TQ1_0, 2, 512, 216},
        {BN_TQ2_0, 2, 512, 264},
        {BN_TQ2_0, 2, 320, 0},
        {BN_IQ2_BN, 2, 128, 72},
        {BN_IQ1_BN, 2, 128, 56},
        {BN_IQ2_BN_R4, 4, 128, 144},
        {BN_IQ2_BN_R4, 2, 128, 0},
        {BN_Q1_0, 1, 128, 18},
        {BN_Q2_0, 1, 128, 36},
        {BN_Q2_0_128, 1, 128, 34},
        {BN_PQ2_0, 3, 256, 204},
        {BN_PQ2_0, 3, 192, 0},
        {BN_PTQ1_0, 3, 256, 168},
        {BN_PTQ1_0, 3, 64, 0},
        {BN_TQ2_0_128, 1, 128, 34},
        {BN_Q8_0, 1, 64, 68},
        {BN_Q6_K, 1, 256, 210},
        {BN_Q4_K, 1, 256, 144},
        {BN_Q4_0, 1, 32, 18},
        {BN_F32, 3, 5, 60},
        {BN_F32, 1ull << 40, 1ull << 40, 0},
        {BN_F64, 1ull << 31, 1ull << 31, 0},
        {BN_HF_U8, UINT64_MAX, 2, 0},
        {BN_I2_S, 1ull << 62, 4, 0},
    };
    for (size_t i = 0; i < BN_ARRAY_LEN(cases); i++) {
        uint64_t bytes = 0;
        bool fits = bn_type_bytes(&bytes, cases[i].t, cases[i].rows, cases[i].cols);
        assert_int_equal(fits, cases[i].bytes != 0);
        if (fits) assert_int_equal(bytes, cases[i].bytes);
    }
    enum bn_type t;
    assert_true(bn_type_by_name(&t, "i2_s") && t == BN_I2_S);
    assert_true(bn_type_by_name(&t, "tQ2_0") && t == BN_TQ2_0);
    assert_false(bn_type_by_name(&t, "i2"));
    assert_false(bn_type_by_name(&t, "i2_s_"));
    assert_false(bn_type_by_name(&t, ""));
}

/* Quantisers: the error stays below what the format's step allows, and hard input does no harm. */
static void quantisers(void **state)
{
    (void)state;
    static const struct {
        enum bn_type t;
        double rel_rmse;
    } cases[] = {{BN_F32, 0},     {BN_F16, 3e-4},   {BN_BF16, 2.5e-3}, {BN_Q8_0, 6e-3},
                 {BN_Q6_K, 0.02}, {BN_Q4_0, 0.085}, {BN_Q4_K, 0.08}};
    enum { N = 1024 };
    float x[N], y[N];
    struct bn_rng g = {3};
    for (int i = 0; i < N; i++)
        x[i] = (float)(bn_rng_unit(&g) + bn_rng_unit(&g) + bn_rng_unit(&g) - 1.5) * 0.02f;
    for (size_t i = 0; i < BN_ARRAY_LEN(cases); i++) {
        uint64_t bytes;
        assert_true(bn_type_bytes(&bytes, cases[i].t, 1, N));
        uint8_t *data = malloc(bytes);
        struct bn_stored s = {cases[i].t, data, bytes, 1, N, 1};
        bn_quant_row(data, cases[i].t, x, N);
        bn_dequant_row(y, &s, 0);
        double error = 0, norm = 0;
        for (int k = 0; k < N; k++) {
            error += ((double)x[k] - y[k]) * ((double)x[k] - y[k]);
            norm += (double)x[k] * x[k];
        }
        assert_true(sqrt(error / norm) <= cases[i].rel_rmse);
        /* zeros stay zeros; a constant is kept; extremes and non-numbers give no undefined step */
        static const float hard[] = {0, 1, -1, 1e-30f, 1e30f, -3e38f, INFINITY, -INFINITY, NAN};
        for (size_t h = 0; h < BN_ARRAY_LEN(hard); h++) {
            float z[N];
            for (int k = 0; k < N; k++) z[k] = hard[h] * (k % 3 ? 1.0f : 0.5f);
            bn_quant_row(data, cases[i].t, z, N);
            bn_dequant_row(y, &s, 0);
            for (int k = 0; h < 3 && k < N; k++) assert_true(fabsf(y[k] - z[k]) <= 0.04f);
        }
        free(data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ternary_matches_oracle),
        cmocka_unit_test(dense_matches_oracle),
        cmocka_unit_test(every_base3_word),
        cmocka_unit_test(round_trips),
        cmocka_unit_test(code_3_is_reported),
        cmocka_unit_test(hf_example),
        cmocka_unit_test(sizes),
        cmocka_unit_test(quantisers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
