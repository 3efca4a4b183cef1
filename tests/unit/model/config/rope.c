/* SPDX-License-Identifier: Apache-2.0
 * Rotation: frequencies against numbers of the published formulas, computed apart in double with
 * NumPy; what GGUF metadata and config.json say about it; and the way from one to the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "gguf_build.h"
#include "model/config/config_hf_impl.h"
#include "model/files/gguf_write.h"
#include "model/config/rope.h"
#include <math.h>
#include <stdlib.h>
#include <stdio.h>
#include <unistd.h>

enum { AT = 8 };

static struct bn_config yarn(uint32_t dim, float theta, float factor, uint32_t orig)
{
    return (struct bn_config){.arch = "qwen3",
                              .n_vocab = 10,
                              .n_embd = 256,
                              .n_ff = 384,
                              .n_layer = 2,
                              .n_head = 4,
                              .n_head_kv = 2,
                              .head_dim = dim,
                              .n_ctx = 4096,
                              .eps = 1e-6f,
                              .act = BN_ACT_SILU,
                              .rope_theta = theta,
                              .rope_dim = dim,
                              .rope_scaling = BN_RS_YARN,
                              .rope_factor = factor,
                              .rope_orig_ctx = orig,
                              .rope_beta_fast = 32,
                              .rope_beta_slow = 1,
                              .rope_whole_dims = true,
                              .rope_attn = bn_rope_mscale(factor, 1)};
}

static void near(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance * fabs(want))) fail_msg("%.9g is not %.9g", got, want);
}

/* dimensions 0, 1, 1/8, 3/16, 1/4, 5/16, 3/8 - 1 and 1/2 - 1 of all */
static void check_frequencies(const struct bn_config *c, const double want[AT])
{
    uint32_t d = c->rope_dim;
    const uint32_t at[AT] = {0, 1, d / 8, d * 3 / 16, d / 4, d * 5 / 16, d * 3 / 8 - 1, d / 2 - 1};
    float ones[BN_MAX_HEAD_DIM / 2], got[BN_MAX_HEAD_DIM / 2];
    bn_rope_factors(ones, c);
    bn_rope_frequencies(got, c, ones);
    for (uint32_t i = 0; i < d / 2; i++) assert_true(ones[i] == 1.0f);
    for (int i = 0; i < AT; i++) near((double)got[at[i]], want[i], 3e-7);
}

static void test_frequencies(void **state)
{
    (void)state;
    struct bn_config c = yarn(128, 1e6f, 4, 16384); /* Bonsai 8B: blended from 20 to 37 */
    check_frequencies(&c, (const double[AT]){1.0, 0.805842188, 0.0316227766, 0.00463104621,
                                             0.000470588235, 4.44569853e-05, 9.8104744e-06,
                                             3.1023444e-07});
    c.rope_beta_fast = 16; /* 23 to 34 */
    c.rope_beta_slow = 2;
    check_frequencies(&c, (const double[AT]){1.0, 0.805842188, 0.0316227766, 0.00523999871,
                                             0.000386363636, 4.44569853e-05, 9.8104744e-06,
                                             3.1023444e-07});
    c.rope_whole_dims = false; /* 23.596 to 33.229 */
    check_frequencies(&c, (const double[AT]){1.0, 0.805842188, 0.0316227766, 0.00544650862,
                                             0.000345679896, 4.44569853e-05, 9.8104744e-06,
                                             3.1023444e-07});
    c.rope_beta_fast = c.rope_beta_slow = 8; /* a step at 26.807 */
    check_frequencies(&c, (const double[AT]){1.0, 0.805842188, 0.0316227766, 0.00562341325, 0.00025,
                                             4.44569853e-05, 9.8104744e-06, 3.1023444e-07});
    c = yarn(64, 1e6f, 4, 64); /* 0 to 6 */
    check_frequencies(&c,
                      (const double[AT]){1.0, 0.568208928, 0.00790569415, 0.00140585331, 0.00025,
                                         4.44569853e-05, 1.21741881e-05, 3.84981632e-07});
    c = yarn(64, 1e6f, 4, 6); /* both bounds are 0 */
    check_frequencies(&c,
                      (const double[AT]){1.0, 0.162345408, 0.00790569415, 0.00140585331, 0.00025,
                                         4.44569853e-05, 1.21741881e-05, 3.84981632e-07});
    c = yarn(64, 1e7f, 2.5f, 262144); /* 14 to 22 */
    check_frequencies(&c, (const double[AT]){1.0, 0.60429639, 0.0177827941, 0.00237137371,
                                             0.000268793601, 2.31933077e-05, 3.72228816e-06,
                                             6.6192684e-08});
}

static void test_table(void **state)
{
    (void)state;
    struct bn_config c = yarn(64, 1e6f, 4, 64);
    float ones[32], freq[32], table[9 * 64];
    near((double)c.rope_attn, 1.13862943611198906, 6e-8); /* 1 + 0.1 ln 4 */
    bn_rope_factors(ones, &c);
    bn_rope_frequencies(freq, &c, ones);
    bn_rope_table(table, &c, ones, 9);
    for (int i = 0; i < 32; i++) {
        double angle = (double)(8.0f * freq[i]);
        assert_true(fabs((double)table[8 * 64 + i] - cos(angle) * 1.13862943611) < 2e-7);
        assert_true(fabs((double)table[8 * 64 + 32 + i] - sin(angle) * 1.13862943611) < 2e-7);
    }
    c.rope_scaling = BN_RS_NONE; /* no factor without scaling */
    bn_rope_table(table, &c, ones, 1);
    assert_true(table[0] == 1.0f && table[32] == 0.0f);
}

/* ------------------------------------------------------------------ config.json */

static bitnet_status from_json(struct bn_config *c, const char *text, bitnet_error *err)
{
    struct bn_json *j;
    *c = (struct bn_config){.arch = "qwen3", .n_ctx = 1024, .head_dim = 128, .rope_dim = 128};
    assert_int_equal(bn_json_parse(&j, text, strlen(text), 0, "config", err), BITNET_OK);
    bitnet_status s = bn_config_hf_rope(c, j, "config", err);
    bn_json_free(j);
    return s;
}

static void test_json(void **state)
{
    (void)state;
    struct bn_config c, d;
    bitnet_error err;
    assert_int_equal(from_json(&c,
                               "{\"rope_theta\":1e6,\"rope_scaling\":{\"type\":\"yarn\","
                               "\"factor\":4.0,\"original_max_position_embeddings\":256}}",
                               &err),
                     BITNET_OK);
    assert_true(c.rope_scaling == BN_RS_YARN && c.rope_theta == 1e6f && c.rope_factor == 4 &&
                c.rope_orig_ctx == 256 && c.rope_beta_fast == 32 && c.rope_beta_slow == 1 &&
                c.rope_whole_dims && c.rope_attn == bn_rope_mscale(4, 1));
    assert_int_equal(from_json(&d,
                               "{\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":4,"
                               "\"rope_theta\":1000000,"
                               "\"original_max_position_embeddings\":256}}",
                               &err),
                     BITNET_OK);
    assert_memory_equal(&c, &d, sizeof c);
    /* what is derived: the factor from the contexts, the context from the model's */
    assert_int_equal(from_json(&c,
                               "{\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":null,"
                               "\"original_max_position_embeddings\":256}}",
                               &err),
                     BITNET_OK);
    assert_true(c.rope_factor == 4 && c.rope_theta == 10000);
    assert_int_equal(
        from_json(&c, "{\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":2}}", &err), BITNET_OK);
    assert_true(c.rope_orig_ctx == 1024);
    assert_int_equal(from_json(&c,
                               "{\"original_max_position_embeddings\":512,\"rope_scaling\":"
                               "{\"rope_type\":\"yarn\",\"factor\":2,"
                               "\"original_max_position_embeddings\":256}}",
                               &err),
                     BITNET_OK);
    assert_true(c.rope_orig_ctx == 512);
    /* the factor of cosines and sines; 0 is none */
    assert_int_equal(from_json(&c,
                               "{\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":40,"
                               "\"mscale\":1.0,\"mscale_all_dim\":0.707,\"beta_fast\":0,"
                               "\"beta_slow\":2,\"truncate\":false}}",
                               &err),
                     BITNET_OK);
    near((double)c.rope_attn, 1.08572640, 2e-7); /* (1 + 0.1 ln 40) / (1 + 0.0707 ln 40) */
    assert_true(c.rope_beta_fast == 32 && c.rope_beta_slow == 2 && !c.rope_whole_dims);
    assert_int_equal(from_json(&c,
                               "{\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":40,"
                               "\"mscale\":2.0,\"mscale_all_dim\":0}}",
                               &err),
                     BITNET_OK);
    near((double)c.rope_attn, 1.36888795, 2e-7);
    assert_int_equal(from_json(&c,
                               "{\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":40,"
                               "\"attention_factor\":1.0,\"mscale\":2.0,"
                               "\"mscale_all_dim\":1}}",
                               &err),
                     BITNET_OK);
    assert_true(c.rope_attn == 1);
    /* a part of each head, and sections */
    assert_int_equal(from_json(&c,
                               "{\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":"
                               "1e7,\"partial_rotary_factor\":0.25,\"mrope_section\":[6,6,4],"
                               "\"mrope_interleaved\":true}}",
                               &err),
                     BITNET_OK);
    assert_true(c.rope_scaling == BN_RS_NONE && c.rope_dim == 32 && c.rope_sections[0] == 6 &&
                c.rope_sections[2] == 4 && c.rope_sections[3] == 0);
    assert_int_equal(from_json(&c, "{\"partial_rotary_factor\":0.5}", &err), BITNET_OK);
    assert_int_equal(c.rope_dim, 64);
}

static void test_json_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{\"rope_scaling\":{\"rope_type\":\"dynamic\",\"factor\":2}}", "dynamic"},
        {"{\"rope_scaling\":{\"rope_type\":\"longrope\"}}", "longrope"},
        {"{\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":\"x\"}}", "factor"},
        {"{\"rope_parameters\":{\"full_attention\":{\"rope_theta\":1e4}}}", "between layers"},
        {"{\"partial_rotary_factor\":1.5}", "1.5"},
        {"{\"partial_rotary_factor\":0.5,\"rope_parameters\":{\"partial_rotary_factor\":0.25}}",
         "two"},
        {"{\"rope_parameters\":{\"mrope_section\":[1,2,3,4,5]}}", "mrope_section"},
        {"{\"rope_parameters\":{\"mrope_section\":[-1]}}", "mrope_section"},
    };
    for (size_t i = 0; i < BN_ARRAY_LEN(cases); i++) {
        struct bn_config c;
        bitnet_error err;
        assert_int_not_equal(from_json(&c, cases[i][0], &err), BITNET_OK);
        assert_non_null(strstr(err.text, cases[i][1]));
    }
}

/* ------------------------------------------------------------------ GGUF */

static void put_kv_f32(struct bn_buf *b, const char *key, float value)
{
    put_s(b, key);
    put32(b, 6);
    bn_buf_append(b, &value, 4);
}

struct number {
    const char *key; /* behind "qwen3.rope." */
    float value;
};

/* A model of 1024 tokens with YaRN, factor 4, and these numbers besides. */
static bitnet_status from_gguf(struct bn_config *c, const char *type, const struct number *more,
                               size_t n, bitnet_error *err)
{
    struct bn_buf b, note;
    struct bn_source s;
    char key[96];
    bn_buf_init(&b, 1 << 16);
    bn_buf_init(&note, 1 << 16);
    put_head(&b, 0, 9 + n);
    put_kv_str(&b, "general.architecture", "qwen3");
    put_kv_u32(&b, "qwen3.embedding_length", 256);
    put_kv_u32(&b, "qwen3.feed_forward_length", 384);
    put_kv_u32(&b, "qwen3.block_count", 1);
    put_kv_u32(&b, "qwen3.attention.head_count", 2);
    put_kv_u32(&b, "qwen3.context_length", 1024);
    put_kv_u32(&b, "qwen3.vocab_size", 10);
    put_kv_f32(&b, "qwen3.attention.layer_norm_rms_epsilon", 1e-6f);
    put_kv_str(&b, "qwen3.rope.scaling.type", type);
    for (size_t i = 0; i < n; i++) {
        snprintf(key, sizeof key, "qwen3.rope.%s", more[i].key);
        put_kv_f32(&b, key, more[i].value);
    }
    put_align(&b, 32);
    assert_int_equal(bn_source_open_memory(&s, b.data, b.len, "memory", err), BITNET_OK);
    bitnet_status st = bn_config_read(c, &s, &note, err);
    bn_source_close(&s);
    bn_buf_free(&b);
    bn_buf_free(&note);
    return st;
}

static float attn_of(const struct number *more, size_t n)
{
    struct bn_config c;
    bitnet_error err;
    assert_int_equal(from_gguf(&c, "yarn", more, n, &err), BITNET_OK);
    assert_true(c.rope_scaling == BN_RS_YARN && c.rope_factor == 4);
    return c.rope_attn;
}
#define ATTN(...)                                                                 \
    attn_of((const struct number[]){{"scaling.factor", 4}, __VA_ARGS__},          \
            sizeof((const struct number[]){{"scaling.factor", 4}, __VA_ARGS__}) / \
                sizeof(struct number))

static void test_gguf(void **state)
{
    (void)state;
    struct bn_config c;
    bitnet_error err;
    float usual = bn_rope_mscale(4, 1);
    assert_int_equal(from_gguf(&c, "yarn", (const struct number[]){{"scaling.factor", 4}}, 1, &err),
                     BITNET_OK);
    assert_true(c.rope_orig_ctx == 1024 && c.rope_beta_fast == 32 && c.rope_beta_slow == 1 &&
                c.rope_whole_dims && c.rope_attn == usual);
    assert_true(ATTN({"scaling.attn_factor", 0.5f}) == usual * 0.5f); /* llama.cpp's */
    assert_true(ATTN({"scaling.yarn_attn_factor", 1.25f}) == 1.25f);  /* Hugging Face's */
    assert_true(ATTN({"scaling.yarn_attn_factor", 1}, {"scaling.yarn_ext_factor", 1}) == 1);
    assert_true(ATTN({"scaling.yarn_attn_factor", 1}, {"scaling.yarn_ext_factor", -1}) == usual);
    assert_true(ATTN({"scaling.yarn_log_multiplier", 1}) == 1);
    assert_true(ATTN({"scaling.yarn_attn_factor", 1.25f}, {"scaling.attn_factor", 0.5f}) == 1.25f);
    /* linear by default, and under its older name */
    assert_int_equal(from_gguf(&c, "linear", (const struct number[]){{"scale_linear", 2}}, 1, &err),
                     BITNET_OK);
    assert_true(c.rope_scaling == BN_RS_LINEAR && c.rope_factor == 2);

    static const struct {
        struct number number;
        const char *word;
    } refused[] = {{{"scaling.yarn_ext_factor", 0.5f}, "yarn_ext_factor"},
                   {{"scaling.yarn_beta_fast", 0.5f}, "turns"},
                   {{"scaling.yarn_beta_slow", 0}, "turns"},
                   {{"scaling.yarn_attn_factor", -1}, "attention factor"},
                   {{"scaling.original_context_length", 7}, "original_context_length"},
                   {{"scaling.factor", 0.5f}, "factor"},
                   {{"freq_base", 1}, "base"}};
    for (size_t i = 0; i < BN_ARRAY_LEN(refused); i++) {
        assert_int_not_equal(from_gguf(&c, "yarn", &refused[i].number, 1, &err), BITNET_OK);
        assert_non_null(strstr(err.text, refused[i].word));
    }
    assert_int_not_equal(from_gguf(&c, "longrope", NULL, 0, &err), BITNET_OK);
    assert_non_null(strstr(err.text, "longrope"));
}

/* Written and read again: the same rotation to the bit. */
static void check_round_trip(const struct bn_config *c)
{
    char path[] = "/tmp/bitnet-rope-XXXXXX";
    struct bn_gguf_writer w;
    struct bn_source s;
    struct bn_buf note;
    struct bn_config got;
    bitnet_error err;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    bn_buf_init(&note, 1 << 16);
    assert_int_equal(bn_gguf_create(&w, path, true, &err), BITNET_OK);
    bn_config_put(c, &w);
    assert_int_equal(bn_gguf_commit(&w, &err), BITNET_OK);
    bn_gguf_discard(&w);
    assert_int_equal(bn_source_open(&s, path, BN_I2S_AUTO, &err), BITNET_OK);
    if (bn_config_read(&got, &s, &note, &err) != BITNET_OK) fail_msg("%s", err.text);
    bn_source_close(&s);
    bn_buf_free(&note);
    unlink(path);
    assert_true(got.rope_scaling == c->rope_scaling && got.rope_theta == c->rope_theta);
    assert_true(got.rope_dim == c->rope_dim && got.rope_factor == c->rope_factor);
    assert_true(got.rope_orig_ctx == c->rope_orig_ctx && got.rope_attn == c->rope_attn);
    assert_true(got.rope_beta_fast == c->rope_beta_fast);
    assert_true(got.rope_beta_slow == c->rope_beta_slow);
    assert_true(got.rope_whole_dims == c->rope_whole_dims);
    assert_memory_equal(got.rope_sections, c->rope_sections, sizeof c->rope_sections);
}

static void test_round_trip(void **state)
{
    (void)state;
    struct bn_config c = yarn(64, 1e6f, 4, 1024);
    check_round_trip(&c);
    c.rope_attn = 1.1f;
    c.rope_beta_fast = 24.5f;
    c.rope_beta_slow = 1.7f;
    c.rope_whole_dims = false;
    c.rope_factor = 2.7f;
    c.rope_dim = 32;
    c.rope_sections[0] = 8;
    c.rope_sections[1] = 5;
    c.rope_sections[2] = 3;
    check_round_trip(&c);
    bitnet_error err;
    c.rope_sections[3] = 1;
    assert_int_not_equal(bn_config_check(&c, "x", &err), BITNET_OK);
    assert_non_null(strstr(err.text, "sections of 17 pairs"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frequencies), cmocka_unit_test(test_table),
        cmocka_unit_test(test_json),        cmocka_unit_test(test_json_refused),
        cmocka_unit_test(test_gguf),        cmocka_unit_test(test_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
