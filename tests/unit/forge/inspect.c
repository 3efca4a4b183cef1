/* SPDX-License-Identifier: Apache-2.0
 * What inspect says about files made for the purpose: values, scales, dead rows, metadata. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "forge/forge.h"
#include "model/files/gguf_write.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROWS = 4, COLS = 256 };

static char path[] = "/tmp/bitnet-inspect-XXXXXX";

static const char *const names[] = {"blk.0.attn_q.weight",   "blk.0.attn_k.weight",
                                    "blk.0.ffn_down.weight", "blk.0.ffn_up.weight",
                                    "blk.0.ffn_gate.weight", "output_norm.weight"};
enum { Q_I2S, K_Q2, DOWN_F32_TERNARY, UP_F32, GATE_IQ2, NORM, N_TENSORS };
static const enum bn_type types[] = {BN_I2_S, BN_Q2_0, BN_F32, BN_F32, BN_IQ2_BN, BN_F32};

/* Row 2 is dead; otherwise -1, 0, +1 in turn. */
static int8_t code(int r, int c) { return r == 2 ? 0 : (int8_t)((r + c) % 3 - 1); }

static void put_ternary(struct bn_gguf_writer *w, enum bn_type type, bool two)
{
    uint64_t bytes;
    assert_true(bn_type_bytes(&bytes, type, ROWS, COLS));
    uint8_t *data = calloc(1, bytes);
    assert_non_null(data);
    for (int r = 0; r < ROWS; r++) {
        int8_t row[COLS];
        float scales[COLS];
        for (int c = 0; c < COLS; c++) {
            row[c] = code(r, c);
            scales[c] = type == BN_I2_S ? 0.5f : 0.25f * (float)(1 + r);
        }
        if (two) row[0] = 2;
        bn_pack_trits(data, type, ROWS, COLS, (uint64_t)r, row, scales);
    }
    assert_int_equal(bn_gguf_data(w, data, bytes, NULL), BITNET_OK);
    free(data);
}

static void put_floats(struct bn_gguf_writer *w, bool ternary)
{
    float x[ROWS][COLS];
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++) x[r][c] = ternary ? 0.125f * code(r, c) : (float)c - 100.0f;
    if (!ternary) x[1][1] = NAN, x[1][2] = INFINITY;
    assert_int_equal(bn_gguf_data(w, x, sizeof x, NULL), BITNET_OK);
}

static int make_file(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    struct bn_gguf_writer w = {0};
    uint64_t dims[4] = {COLS, ROWS, 1, 1};
    assert_int_equal(bn_gguf_create(&w, path, true, NULL), BITNET_OK);
    bn_gguf_put_str(&w, "general.architecture", "unheard-of", 10);
    bn_gguf_put_u32(&w, "some.number", 42);
    for (int i = 0; i < N_TENSORS; i++)
        assert_int_equal(bn_gguf_declare(&w, names[i], types[i], i == NORM ? 1 : 2, dims, NULL),
                         BITNET_OK);
    put_ternary(&w, BN_I2_S, false);
    put_ternary(&w, BN_Q2_0, true);
    put_floats(&w, true);
    put_floats(&w, false);
    put_ternary(&w, BN_IQ2_BN, false);
    float ones[COLS];
    for (int c = 0; c < COLS; c++) ones[c] = 1;
    assert_int_equal(bn_gguf_data(&w, ones, sizeof ones, NULL), BITNET_OK);
    assert_int_equal(bn_gguf_commit(&w, NULL), BITNET_OK);
    bn_gguf_discard(&w);
    return 0;
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static struct bitnet_file *open_file(void)
{
    struct bitnet_file *f;
    bitnet_error err = {0};
    if (bn_file_open(&f, path, &err) != BITNET_OK) fail_msg("%s", err.text);
    return f;
}

/* Tensors keep the order of the file. */
static bitnet_tensor_stats stats_of(struct bitnet_file *f, size_t i)
{
    bitnet_tensor_stats s = {.size = sizeof s};
    bitnet_tensor_info info = {.size = sizeof info};
    bitnet_error err = {0};
    assert_int_equal(bn_file_tensor(f, i, &info), BITNET_OK);
    assert_string_equal(info.name, names[i]);
    if (bn_file_tensor_stats(f, i, &s, &err) != BITNET_OK) fail_msg("%s", err.text);
    return s;
}

static void test_directory_and_metadata(void **state)
{
    (void)state;
    struct bitnet_file *f = open_file();
    bitnet_tensor_info info = {.size = sizeof info};
    assert_string_equal(bn_file_format(f), "GGUF v3");
    assert_int_equal(bn_file_n_tensors(f), N_TENSORS);
    assert_int_equal(bn_file_tensor(f, Q_I2S, &info), BITNET_OK);
    assert_string_equal(info.type, "I2_S");
    assert_true(info.is_matrix && info.is_ternary_type && info.n_dims == 2);
    assert_true(info.dims[0] == COLS && info.dims[1] == ROWS && info.bytes == ROWS * COLS / 4 + 32);
    assert_int_equal(bn_file_tensor(f, NORM, &info), BITNET_OK);
    assert_false(info.is_matrix || info.is_ternary_type);
    assert_int_equal(bn_file_tensor(f, N_TENSORS, &info), BITNET_E_ARG);

    bool seen = false;
    for (size_t i = 0; i < bn_file_n_meta(f); i++) {
        const char *key, *type;
        char value[64];
        size_t n = sizeof value;
        assert_int_equal(bn_file_meta(f, i, &key, &type, value, &n), BITNET_OK);
        if (strcmp(key, "some.number")) continue;
        seen = true;
        assert_string_equal(type, "u32");
        assert_string_equal(value, "42");
        n = 0; /* asking for the size */
        assert_int_equal(bn_file_meta(f, i, &key, &type, NULL, &n), BITNET_E_LIMIT);
        assert_int_equal(n, 2);
    }
    assert_true(seen);
    bn_file_close(f);
}

static void test_counts(void **state)
{
    (void)state;
    uint64_t want[4] = {0};
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++) want[code(r, c) + 1]++;
    struct bitnet_file *f = open_file();

    bitnet_tensor_stats s = stats_of(f, Q_I2S);
    assert_memory_equal(s.count, want, sizeof want);
    assert_string_equal(s.values, "{-1,0,+1}");
    assert_string_equal(s.dtype, "ternary");
    assert_true(s.dead_rows == 1 && s.n_scales == 1 && s.n_nonfinite == 0);
    assert_true(s.scale_min == 0.5 && s.scale_max == 0.5);
    assert_true(s.value_min == -0.5 && s.value_max == 0.5);
    assert_true(s.zero_share == (double)want[1] / (ROWS * COLS));
    assert_true(fabs(s.mean_abs - 0.5 * (double)(want[0] + want[2]) / (ROWS * COLS)) < 1e-12);

    s = stats_of(f, GATE_IQ2); /* a scale a row */
    assert_memory_equal(s.count, want, sizeof want);
    assert_true(s.n_scales == ROWS && s.scale_min == 0.25 && s.scale_max == 1.0);
    assert_true(s.value_min == -1.0 && s.value_max == 1.0);

    s = stats_of(f, K_Q2);
    assert_int_equal(s.count[3], ROWS);
    assert_string_equal(s.values, "{-1,0,+1,+2}");
    assert_string_equal(s.dtype, "quaternary");
    assert_true(s.n_scales == ROWS * COLS / 64 && s.dead_rows == 0 && s.value_max == 2.0);
    bn_file_close(f);
}

static void test_floats(void **state)
{
    (void)state;
    struct bitnet_file *f = open_file();
    bitnet_tensor_stats s = stats_of(f, DOWN_F32_TERNARY);
    assert_string_equal(s.dtype, "ternary");
    assert_true(s.n_scales == 1 && s.scale_min == 0.125 && s.scale_max == 0.125 &&
                s.dead_rows == 1);

    s = stats_of(f, UP_F32);
    assert_string_equal(s.dtype, "float");
    assert_string_equal(s.values, "other");
    assert_true(s.n_nonfinite == 2 && s.value_min == -100 && s.value_max == COLS - 101);
    assert_true(s.n_scales == 0 && s.scale_max == 0);

    s = stats_of(f, NORM); /* ones, but no matrix */
    assert_string_equal(s.dtype, "float");
    bn_file_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_directory_and_metadata),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_floats),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
