/* SPDX-License-Identifier: Apache-2.0
 * Random models with delta nets: sizes as published, parts and rotations as their metadata says,
 * texts that stay finite; and what inspect says of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/engine.h"
#include "forge/forge.h"
#include "model/config/hadamard.h"
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { N_VOCAB = 512 };

static char path[] = "/tmp/bitnet-hybrid-XXXXXX";

static int make_path(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 || close(fd);
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static void synth(const char *shape, bitnet_synth_options o)
{
    bitnet_error err = {0};
    o.size = sizeof o;
    o.overwrite = 1;
    if (bn_synth(shape, path, &o, &err) != BITNET_OK) fail_msg("%s: %s", shape, err.text);
}

/* ------------------------------------------------------------------ sizes */

static int note_total(void *user, const char *what, uint64_t done, uint64_t total)
{
    (void)what, (void)done;
    *(uint64_t *)user = total;
    return 1;
}

/* Published files have a tokenizer of a few megabytes besides. */
static void test_sizes_as_published(void **state)
{
    (void)state;
    static const struct {
        const char *shape, *type;
        uint64_t bytes;
    } published[] = {{"bonsai-27b", NULL, 7165121600u},
                     {"bonsai-27b", "q1_0", 3803452480u},
                     {"bonsai-2-27b", NULL, 5946648928u},
                     {"bonsai-2-27b", "pq2_0", 7206168928u}};
    for (size_t i = 0; i < BN_ARRAY_LEN(published); i++) {
        uint64_t total = 0;
        bitnet_synth_options o = {.size = sizeof o,
                                  .type = published[i].type,
                                  .overwrite = 1,
                                  .progress = note_total,
                                  .progress_user = &total};
        assert_int_equal(bn_synth(published[i].shape, path, &o, NULL), BITNET_E_CANCELLED);
        assert_true(total < published[i].bytes);
        assert_true(published[i].bytes - total < 14000000);
    }
}

/* ------------------------------------------------------------------ what is in the file */

static void open_source(struct bn_source *s, struct bn_config *c)
{
    bitnet_error err = {0};
    struct bn_buf note;
    bn_buf_init(&note, 1 << 12);
    if (bn_source_open(s, path, BN_I2S_AUTO, &err) || bn_config_read(c, s, &note, &err))
        fail_msg("%s", err.text);
    bn_buf_free(&note);
}

/* Parts of all layers, as many as there are tensors. */
static void check_parts(const struct bn_source *s, const struct bn_config *c)
{
    size_t n = 3;
    for (uint32_t layer = 0; layer < bn_config_layers(c); layer++)
        for (enum bn_part p = BN_P_ATTN_NORM; p < BN_P_COUNT; p++) {
            if (!bn_part_in_layer(c, p, layer)) continue;
            assert_non_null(bn_part_find(s, p, layer));
            n++;
        }
    assert_int_equal(s->n_tensors, n);
}

static enum bn_type type_of(const struct bn_source *s, enum bn_part p, uint32_t layer)
{
    return bn_part_find(s, p, layer)->type;
}

static void test_first_generation(void **state)
{
    (void)state;
    struct bn_source s;
    struct bn_config c;
    synth("qwen35-tiny", (bitnet_synth_options){.seed = 1});
    open_source(&s, &c);
    assert_int_equal(c.n_layer, 4);
    assert_int_equal(c.n_mtp, 1);
    for (uint32_t i = 0; i < 4; i++) assert_int_equal(bn_config_is_delta(&c, i), i != 3);
    check_parts(&s, &c);
    assert_int_equal(c.hadamard.block, 0);
    assert_int_equal(type_of(&s, BN_P_DELTA_ALPHA, 0), BN_PQ2_0);
    assert_int_equal(type_of(&s, BN_P_EMBED, 0), BN_PQ2_0);
    assert_int_equal(type_of(&s, BN_P_MTP_IN, 4), BN_PQ2_0);
    bn_source_close(&s);
}

static void test_second_generation(void **state)
{
    (void)state;
    struct bn_source s;
    struct bn_config c;
    const char *key;
    float signs[512];
    synth("qwen35-tiny-rotated", (bitnet_synth_options){.seed = 1, .mtp = 1});
    open_source(&s, &c);
    check_parts(&s, &c);
    assert_int_equal(c.hadamard.block, 128);
    assert_true(c.hadamard.signs && c.hadamard.v_grouped);
    assert_int_equal(c.hadamard.n_widths, 3);
    assert_int_equal(bn_hadamard_names(&s, false, &key), 1 + 3 * 6 + 2 * 7);
    assert_int_equal(bn_hadamard_names(&s, true, &key), 1);
    assert_true(bn_hadamard_signs(signs, &c.hadamard, &s, 384));
    int sum = 0;
    for (int i = 0; i < 384; i++) sum += (int)signs[i];
    assert_true(abs(sum) < 100);
    assert_int_equal(type_of(&s, BN_P_DELTA_BETA, 1), BN_BF16);
    assert_int_equal(type_of(&s, BN_P_HEAD, 0), BN_PTQ1_0);
    bn_source_close(&s);
}

/* Blocks differ, and trits do not depend on the type. */
static void test_blocks(void **state)
{
    (void)state;
    struct bn_source s;
    struct bn_config c;
    int8_t first[256], w[256];
    float scales[2];
    static const char *const types[] = {"pq2_0", "ptq1_0", "i2_s", "q2_0"};
    for (size_t i = 0; i < BN_ARRAY_LEN(types); i++) {
        synth("qwen35-tiny", (bitnet_synth_options){.type = types[i]});
        open_source(&s, &c);
        struct bn_stored st = bn_tensor_stored(bn_part_find(&s, BN_P_DELTA_QKV, 0));
        assert_true(bn_unpack_trits(i ? w : first, &st, 3));
        if (i) assert_memory_equal(w, first, sizeof w);
        bool differ = false;
        for (uint64_t r = 0; i < 2 && r < 8; r++) {
            assert_int_equal(bn_unpack_scales(scales, &st, r), 2);
            differ = differ || scales[0] != scales[1];
        }
        assert_true(differ || i >= 2);
        bn_source_close(&s);
    }
}

static void test_options(void **state)
{
    (void)state;
    bitnet_error err = {0};
    bitnet_synth_options o = {.size = sizeof o, .overwrite = 1, .mtp = 1};
    assert_int_equal(bn_synth("tiny", path, &o, &err), BITNET_E_ARG);
    assert_non_null(strstr(err.text, "drafts"));
    struct bn_source s;
    struct bn_config c;
    synth("qwen35-tiny-rotated", (bitnet_synth_options){.n_layer = 9, .head_type = "q8_0"});
    open_source(&s, &c);
    assert_int_equal(c.n_layer, 9);
    assert_int_equal(bn_config_attn_before(&c, 9), 2);
    assert_int_equal(type_of(&s, BN_P_EMBED, 0), BN_Q8_0);
    check_parts(&s, &c);
    bn_source_close(&s);
}

/* ------------------------------------------------------------------ running */

/* Greedy text of n tokens: finite, and not the same few tokens over and over. */
static void run_greedily(const char *shape, int n)
{
    struct bn_model *m = NULL;
    struct bitnet_engine *e = NULL;
    bitnet_error err = {0};
    bitnet_model_options args = {.threads = 1};
    bitnet_engine_options eo = {.size = sizeof eo, .threads = 1, .ctx_tokens = 512};
    float logits[N_VOCAB];
    bool seen[N_VOCAB] = {false};
    int distinct = 0;
    synth(shape, (bitnet_synth_options){.seed = 5});
    if (bn_model_open(&m, path, &args, &err) || bn_engine_open(&e, m, &eo, &err))
        fail_msg("%s", err.text);
    assert_int_equal(bn_engine_eval_reset(e, 0, NULL), BITNET_OK);
    for (int32_t i = 0, token = 'H'; i < n; i++) {
        if (bn_engine_eval(e, 0, &token, 1, false, logits, &err)) fail_msg("%s", err.text);
        token = 0;
        for (int32_t v = 0; v < N_VOCAB; v++) {
            assert_true(isfinite(logits[v]));
            if (logits[v] > logits[token]) token = v;
        }
        distinct += !seen[token];
        seen[token] = true;
    }
    assert_true(distinct > n / 4);
    bn_engine_close(e);
    bn_model_close(m);
}

static void test_runs(void **state)
{
    (void)state;
    run_greedily("qwen35-tiny", 200);
    run_greedily("qwen35-tiny-rotated", 200);
}

/* ------------------------------------------------------------------ inspect */

static void test_inspect(void **state)
{
    (void)state;
    struct bitnet_file *f = NULL;
    bitnet_error err = {0};
    bitnet_file_model m = {.size = sizeof m};
    synth("qwen35-tiny-rotated", (bitnet_synth_options){.mtp = 1});
    assert_int_equal(bn_file_open(&f, path, &err), BITNET_OK);
    assert_int_equal(bn_file_model(f, &m, &err), BITNET_OK);
    assert_string_equal(m.architecture, "qwen35");
    assert_true(m.n_layer == 4 && m.n_delta == 3 && m.n_attention == 1 && m.n_mtp == 1);
    assert_int_equal(m.attention_every, 4);
    assert_true(m.delta_k_heads == 2 && m.delta_v_heads == 6 && m.delta_taps == 4);
    /* f32: three inputs of 640 channels and six heads of 64 x 64, in three layers */
    assert_int_equal(m.state_bytes, 3 * (3 * 640 + 6 * 64 * 64) * 4);
    assert_int_equal(m.kv_token_bytes, 2 * 2 * 64 * 2 * 2); /* with the layer that drafts */
    assert_true(m.rotation_block == 128 && m.rotation_signs == 256 + 384 + 512);
    assert_int_equal(m.n_rotated, 1 + 3 * 6 + 2 * 7);
    assert_int_equal(m.rotated_embedding, 1);
    size_t matrices = 0, gates = 0;
    for (size_t i = 0; i < bn_file_n_tensors(f); i++) {
        bitnet_tensor_info info = {.size = sizeof info};
        bitnet_tensor_stats stats = {.size = sizeof stats};
        assert_int_equal(bn_file_tensor(f, i, &info), BITNET_OK);
        matrices += info.is_matrix;
        gates += info.is_gate && !info.is_matrix;
        if (!info.is_matrix) continue;
        assert_int_equal(bn_file_tensor_stats(f, i, &stats, &err), BITNET_OK);
        assert_string_equal(stats.dtype, "ternary");
        assert_true(stats.zero_share > 0.35 && stats.zero_share < 0.5);
        assert_true(stats.scale_min > 0 && stats.scale_max > stats.scale_min);
    }
    assert_int_equal(matrices, 3 * 6 + 2 * 7 + 1);
    assert_int_equal(gates, 2 * 3);
    bn_file_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_as_published),
        cmocka_unit_test(test_first_generation),
        cmocka_unit_test(test_second_generation),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_inspect),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
