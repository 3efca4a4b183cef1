/* SPDX-License-Identifier: Apache-2.0
 * Synthetic models and conversions between storage types: the ternary values must survive every
 * path, and what cannot be kept must be refused without leaving a file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/os/file.h"
#include "base/half.h"
#include "forge/forge.h"
#include "model/config/config.h"
#include "model/model.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/bitnet-forge-XXXXXX";

static const char *in_folder(char out[128], const char *name)
{
    snprintf(out, 128, "%s/%s", folder, name);
    return out;
}

static size_t n_files(void)
{
    size_t n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[160];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static void synth(const char *name, const char *type)
{
    char path[128];
    bitnet_error err = {0};
    bitnet_synth_options o = {.size = sizeof o, .type = type, .overwrite = 1, .seed = 7};
    bitnet_status s = bn_synth("tiny", in_folder(path, name), &o, &err);
    if (s != BITNET_OK) fail_msg("synth %s: %s", type ? type : "by default", err.text);
}

static bitnet_status convert(const char *from, const char *to, const char *type, bool round,
                             bitnet_error *err)
{
    char a[128], b[128];
    bitnet_convert_options o = {
        .size = sizeof o, .type = type, .overwrite = 1, .allow_scale_rounding = round};
    *err = (bitnet_error){0};
    return bn_convert(in_folder(a, from), in_folder(b, to), &o, err);
}

static void must_convert(const char *from, const char *to, const char *type)
{
    bitnet_error err;
    if (convert(from, to, type, false, &err) != BITNET_OK)
        fail_msg("to %s: %s", type ? type : "the default", err.text);
}

static void must_refuse(const char *from, const char *type, const char *because)
{
    bitnet_error err;
    size_t before = n_files();
    assert_int_not_equal(convert(from, "refused.gguf", type, false, &err), BITNET_OK);
    if (strstr(err.text, because) == NULL) fail_msg("'%s' is not in: %s", because, err.text);
    assert_int_equal(n_files(), before);
}

/* Are the projections of two files the same trits and scales, whatever they are stored as? */
static void same_matrices(const char *one, const char *other)
{
    char path[128];
    struct bn_source a, b;
    bitnet_error err = {0};
    assert_int_equal(bn_source_open(&a, in_folder(path, one), BN_I2S_AUTO, &err), BITNET_OK);
    assert_int_equal(bn_source_open(&b, in_folder(path, other), BN_I2S_AUTO, &err), BITNET_OK);
    size_t n = 0;
    for (uint32_t layer = 0; layer < 2; layer++)
        for (int p = BN_P_Q; p <= BN_P_DOWN; p++) {
            const struct bn_tensor *ta = bn_part_find(&a, (enum bn_part)p, layer);
            const struct bn_tensor *tb = bn_part_find(&b, (enum bn_part)p, layer);
            assert_non_null(ta);
            assert_non_null(tb);
            struct bn_stored sa = bn_tensor_stored(ta), sb = bn_tensor_stored(tb);
            int8_t wa[512], wb[512];
            float da[512], db[512];
            assert_int_equal(sa.rows, sb.rows);
            assert_true(sa.cols == sb.cols && sa.cols <= 512);
            for (uint64_t r = 0; r < sa.rows; r++, n++) {
                assert_true(bn_unpack_trits(wa, &sa, r) && bn_unpack_trits(wb, &sb, r));
                assert_memory_equal(wa, wb, sa.cols);
                bn_unpack_scales(da, &sa, r);
                bn_unpack_scales(db, &sb, r);
                assert_true(da[0] == db[0]);
            }
        }
    assert_true(n > 2000);
    bn_source_close(&a);
    bn_source_close(&b);
}

static void same_bytes(const char *one, const char *other)
{
    char path[128], *a, *b;
    size_t na, nb;
    assert_int_equal(bn_read_file(&a, &na, in_folder(path, one), 1 << 24, NULL), BITNET_OK);
    assert_int_equal(bn_read_file(&b, &nb, in_folder(path, other), 1 << 24, NULL), BITNET_OK);
    assert_int_equal(na, nb);
    assert_memory_equal(a, b, na);
    free(a);
    free(b);
}

/* ------------------------------------------------------------------ tests */

static void test_synth_trits_do_not_depend_on_type(void **state)
{
    (void)state;
    static const char *const types[] = {"tq2_0", "tq1_0", "iq2_bn", "iq1_bn", "q2_0"};
    synth("i2_s.gguf", "i2_s");
    for (size_t i = 0; i < BN_ARRAY_LEN(types); i++) {
        synth("other.gguf", types[i]);
        same_matrices("i2_s.gguf", "other.gguf");
    }
}

static void test_synth_is_repeatable(void **state)
{
    (void)state;
    char path[128];
    synth("a.gguf", NULL);
    synth("b.gguf", NULL);
    same_bytes("a.gguf", "b.gguf");
    bitnet_synth_options o = {.size = sizeof o, .seed = 8, .overwrite = 1};
    assert_int_equal(bn_synth("tiny", in_folder(path, "b.gguf"), &o, NULL), BITNET_OK);
    struct bn_source a, b;
    assert_int_equal(bn_source_open(&a, in_folder(path, "a.gguf"), BN_I2S_AUTO, NULL), BITNET_OK);
    assert_int_equal(bn_source_open(&b, in_folder(path, "b.gguf"), BN_I2S_AUTO, NULL), BITNET_OK);
    const struct bn_tensor *ta = bn_part_find(&a, BN_P_Q, 0), *tb = bn_part_find(&b, BN_P_Q, 0);
    assert_memory_not_equal(ta->data, tb->data, 4096); /* another seed, another model */
    bn_source_close(&a);
    bn_source_close(&b);
}

static void test_round_trip_through_all_types(void **state)
{
    (void)state;
    static const char *const types[] = {"tq2_0", "tq1_0", "iq2_bn", "q2_0", "iq1_bn", "i2_s"};
    synth("start.gguf", "i2_s");
    must_convert("start.gguf", "step0.gguf", "keep");
    same_bytes("start.gguf", "step0.gguf");
    for (size_t i = 0; i < BN_ARRAY_LEN(types); i++) {
        char from[32], to[32];
        snprintf(from, sizeof from, "step%zu.gguf", i);
        snprintf(to, sizeof to, "step%zu.gguf", i + 1);
        must_convert(from, to, types[i]);
        same_matrices("start.gguf", to);
    }
    same_bytes("start.gguf", "step6.gguf");
}

static void test_binary(void **state)
{
    (void)state;
    synth("ternary.gguf", "i2_s");
    must_refuse("ternary.gguf", "q1_0", "has zeros");
    synth("binary.gguf", "q1_0");
    must_convert("binary.gguf", "binary2.gguf", "i2_s");
    same_matrices("binary.gguf", "binary2.gguf");
    must_convert("binary2.gguf", "binary3.gguf", "q1_0");
    same_bytes("binary.gguf", "binary3.gguf");
}

static void test_head_types(void **state)
{
    (void)state;
    char a[128], b[128];
    synth("head.gguf", NULL);
    static const char *const types[] = {"f32", "bf16", "q8_0", "q6_k", "q4_0", "q4_k"};
    for (size_t i = 0; i < BN_ARRAY_LEN(types); i++) {
        bitnet_convert_options o = {
            .size = sizeof o, .type = "keep", .head_type = types[i], .overwrite = 1};
        struct bn_source s;
        enum bn_type want;
        assert_int_equal(
            bn_convert(in_folder(a, "head.gguf"), in_folder(b, "head2.gguf"), &o, NULL), BITNET_OK);
        assert_int_equal(bn_source_open(&s, b, BN_I2S_AUTO, NULL), BITNET_OK);
        assert_true(bn_type_by_name(&want, types[i]));
        assert_int_equal(bn_part_find(&s, BN_P_EMBED, 0)->type, want);
        assert_null(bn_part_find(&s, BN_P_HEAD, 0)); /* tied */
        bn_source_close(&s);
        same_matrices("head.gguf", "head2.gguf");
    }
}

static void test_vocabulary(void **state)
{
    (void)state;
    char path[128], from[128];
    struct bn_source s;
    struct bn_vocab v;
    struct bn_buf note;
    bool found;
    bitnet_error err = {0};
    synth("vocab.gguf", NULL);
    /* and once more with the vocabulary of the first */
    bitnet_synth_options o = {
        .size = sizeof o, .overwrite = 1, .vocab_path = in_folder(from, "vocab.gguf")};
    if (bn_synth("tiny", in_folder(path, "vocab2.gguf"), &o, &err) != BITNET_OK)
        fail_msg("%s", err.text);
    bn_buf_init(&note, 4096);
    bn_vocab_init(&v);
    assert_int_equal(bn_source_open(&s, path, BN_I2S_AUTO, &err), BITNET_OK);
    if (bn_source_vocab(&v, &found, &s, &note, &err) != BITNET_OK) fail_msg("%s", err.text);
    assert_true(found);
    assert_int_equal(v.n_tokens, 512);
    assert_int_equal(v.bos, 256);
    assert_int_equal(v.eos, 257);
    assert_true(v.tokens['a'].n == 1 && v.tokens['a'].s[0] == 'a');
    assert_int_equal(v.types[511], BN_TOKEN_UNUSED);
    bn_vocab_free(&v);
    bn_source_close(&s);
    bn_buf_free(&note);
}

static int stop_at_half(void *user, const char *what, uint64_t done, uint64_t total)
{
    (void)what;
    *(uint64_t *)user = total;
    assert_true(done <= total);
    return done * 2 > total;
}

static int count_done(void *user, const char *what, uint64_t done, uint64_t total)
{
    (void)what, (void)total;
    *(uint64_t *)user = done;
    return 0;
}

static void test_progress_and_stop(void **state)
{
    (void)state;
    char a[128], b[128];
    uint64_t total = 0, done = 0;
    synth("whole.gguf", NULL);
    size_t before = n_files();
    bitnet_convert_options o = {
        .size = sizeof o, .type = "tq2_0", .progress = stop_at_half, .progress_user = &total};
    in_folder(a, "whole.gguf"), in_folder(b, "stopped.gguf");
    assert_int_equal(bn_convert(a, b, &o, NULL), BITNET_E_CANCELLED);
    assert_int_equal(n_files(), before);
    bitnet_synth_options so = {
        .size = sizeof so, .progress = stop_at_half, .progress_user = &total};
    assert_int_equal(bn_synth("tiny", b, &so, NULL), BITNET_E_CANCELLED);
    assert_int_equal(n_files(), before);
    o.progress = count_done;
    o.progress_user = &done;
    assert_int_equal(bn_convert(a, b, &o, NULL), BITNET_OK);
    assert_true(done > 0);
    assert_int_equal(bn_convert(a, b, &o, NULL), BITNET_E_IO); /* exists */
    assert_int_equal(n_files(), before + 1);
}

static void test_bad_arguments(void **state)
{
    (void)state;
    char path[128];
    bitnet_error err = {0};
    synth("arg.gguf", NULL);
    must_refuse("arg.gguf", "q8_0", "tq2_0, tq1_0");
    must_refuse("arg.gguf", "iq2_bn_r4", "is no type");
    must_refuse("missing.gguf", NULL, "missing.gguf");
    bitnet_synth_options o = {.size = sizeof o};
    assert_int_equal(bn_synth("2b", in_folder(path, "none.gguf"), &o, &err), BITNET_E_ARG);
    assert_non_null(strstr(err.text, "2b-4t"));
    o.type = "keep";
    assert_int_equal(bn_synth("tiny", path, &o, &err), BITNET_E_ARG);
    o.type = NULL;
    o.vocab_path = in_folder(path, "nowhere.json");
    char out[128];
    assert_int_not_equal(bn_synth("tiny", in_folder(out, "none.gguf"), &o, &err), BITNET_OK);
    assert_false(bn_exists(out));
    assert_string_equal(bn_synth_shape(0, NULL), "2b-4t");
    assert_null(bn_synth_shape(1000, NULL));
}

/* ---- a small Llama checkpoint, packed and with divided scales ---- */

enum { HIDDEN = 128, FF = 192, HEADS = 2, HEAD_DIM = 64, VOCAB = 8 };

static int8_t trit_of(int part, int r, int c)
{
    return (int8_t)((r * 7 + c * (3 + part) + r * c) % 3 - 1);
}

/* extra: a further tensor of two bytes at the beginning, as an entry of the header, or "" */
static void write_checkpoint(const char *name, const char *scale_hex, const char *extra)
{
    static const struct {
        const char *name;
        int rows, cols;
    } parts[7] = {{"self_attn.q_proj", HIDDEN, HIDDEN},   {"self_attn.k_proj", HEAD_DIM, HIDDEN},
                  {"self_attn.v_proj", HEAD_DIM, HIDDEN}, {"self_attn.o_proj", HIDDEN, HIDDEN},
                  {"mlp.gate_proj", FF, HIDDEN},          {"mlp.up_proj", FF, HIDDEN},
                  {"mlp.down_proj", HIDDEN, FF}};
    static const char *const norms[3] = {"model.norm", "model.layers.0.input_layernorm",
                                         "model.layers.0.post_attention_layernorm"};
    char dir[128], path[192];
    struct bn_buf head, data;
    bn_buf_init(&head, 1 << 16);
    bn_buf_init(&data, 1 << 20);
    assert_int_equal(mkdir(in_folder(dir, name), 0777), 0);
    bn_buf_printf(&head, "{%s", extra);
    if (*extra) bn_buf_append(&data, "\x00\x3c", 2);
    for (int i = 0; i < 2; i++) { /* f16 ones */
        size_t at = data.len;
        for (int k = 0; k < VOCAB * HIDDEN; k++) bn_buf_append(&data, "\x00\x3c", 2);
        bn_buf_printf(
            &head,
            "\"%s.weight\":{\"dtype\":\"F16\",\"shape\":[%d,%d],\"data_offsets\":[%zu,%zu]},",
            i ? "lm_head" : "model.embed_tokens", VOCAB, HIDDEN, at, data.len);
    }
    for (int i = 0; i < 3; i++) {
        size_t at = data.len;
        for (int k = 0; k < HIDDEN; k++) bn_buf_append(&data, "\x00\x3c", 2);
        bn_buf_printf(
            &head, "\"%s.weight\":{\"dtype\":\"F16\",\"shape\":[%d],\"data_offsets\":[%zu,%zu]},",
            norms[i], HIDDEN, at, data.len);
    }
    for (int p = 0; p < 7; p++) {
        size_t at = data.len;
        int quarter = parts[p].rows / 4;
        for (int r = 0; r < quarter; r++)
            for (int c = 0; c < parts[p].cols; c++) {
                int byte = 0;
                for (int i = 0; i < 4; i++) byte |= (trit_of(p, i * quarter + r, c) + 1) << 2 * i;
                bn_buf_putc(&data, (char)byte);
            }
        bn_buf_printf(&head,
                      "\"model.layers.0.%s.weight\":{\"dtype\":\"U8\",\"shape\":[%d,%d],"
                      "\"data_offsets\":[%zu,%zu]},",
                      parts[p].name, quarter, parts[p].cols, at, data.len);
        at = data.len;
        bn_buf_append(&data, scale_hex, 2); /* bf16 */
        bn_buf_printf(&head,
                      "\"model.layers.0.%s.weight_scale\":{\"dtype\":\"BF16\",\"shape\":[1],"
                      "\"data_offsets\":[%zu,%zu]}%s",
                      parts[p].name, at, data.len, p < 6 ? "," : "}");
    }
    assert_false(head.failed || data.failed);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    FILE *f = fopen(path, "wb");
    uint64_t n = head.len;
    assert_true(f && fwrite(&n, 8, 1, f) == 1 && fwrite(head.data, head.len, 1, f) == 1 &&
                fwrite(data.data, data.len, 1, f) == 1 && fclose(f) == 0);
    snprintf(path, sizeof path, "%s/config.json", dir);
    f = fopen(path, "wb");
    assert_non_null(f);
    fprintf(f,
            "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":%d,"
            "\"intermediate_size\":%d,\"num_hidden_layers\":1,\"num_attention_heads\":%d,"
            "\"num_key_value_heads\":1,\"vocab_size\":%d,\"max_position_embeddings\":64,"
            "\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,\"tie_word_embeddings\":false,"
            "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,"
            "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":32},"
            "\"quantization_config\":{\"quant_method\":\"bitnet\"}}",
            HIDDEN, FF, HEADS, VOCAB);
    assert_int_equal(fclose(f), 0);
    bn_buf_free(&head);
    bn_buf_free(&data);
}

static void check_rows(const struct bn_source *s, int part, bool rotated)
{
    const struct bn_tensor *t = bn_part_find(s, (enum bn_part)(BN_P_Q + part), 0);
    assert_non_null(t);
    struct bn_stored st = bn_tensor_stored(t);
    int8_t w[FF];
    float scale;
    for (uint64_t r = 0; r < st.rows; r++) {
        /* within a head, rows 0, 1, 2, 3 ... come from rows 0, 32, 1, 33 ... */
        uint64_t k = r % HEAD_DIM, from = rotated ? r - k + k / 2 + k % 2 * (HEAD_DIM / 2) : r;
        assert_true(bn_unpack_trits(w, &st, r));
        for (uint64_t c = 0; c < st.cols; c++)
            assert_int_equal(w[c], trit_of(part, (int)from, (int)c));
        bn_unpack_scales(&scale, &st, r);
        assert_true(scale == 1.0f / 3.0f);
    }
}

static void test_llama_checkpoint(void **state)
{
    (void)state;
    char path[128];
    struct bn_source s;
    bitnet_error err;
    write_checkpoint("llama", "\x40\x40", ""); /* 3.0: divided by */
    must_convert("llama", "llama.gguf", NULL);
    assert_int_equal(bn_source_open(&s, in_folder(path, "llama.gguf"), BN_I2S_AUTO, &err),
                     BITNET_OK);
    for (int p = 0; p < 7; p++) check_rows(&s, p, p < 2);
    assert_int_equal(bn_part_find(&s, BN_P_Q, 0)->type, BN_I2_S);
    assert_int_equal(bn_part_find(&s, BN_P_DOWN, 0)->type, BN_IQ2_BN); /* 192 columns */
    const struct bn_tensor *freqs = bn_part_find(&s, BN_P_ROPE_FREQS, 0);
    assert_non_null(freqs);
    assert_int_equal(freqs->dims[0], HEAD_DIM / 2);
    assert_true(bn_load_f32(freqs->data) == 1.0f && bn_load_f32(freqs->data + 31 * 4) == 8.0f);
    bn_source_close(&s);
    /* a converted file is not reordered a second time */
    must_convert("llama.gguf", "llama2.gguf", "iq2_bn");
    assert_int_equal(bn_source_open(&s, in_folder(path, "llama2.gguf"), BN_I2S_AUTO, &err),
                     BITNET_OK);
    for (int p = 0; p < 7; p++) check_rows(&s, p, p < 2);
    bn_source_close(&s);

    must_refuse("llama", "tq2_0", "multiple of 256");
    must_refuse("llama", "iq1_bn", "--allow-scale-rounding");
    assert_int_equal(convert("llama", "rounded.gguf", "iq1_bn", true, &err), BITNET_OK);
    assert_int_equal(bn_source_open(&s, in_folder(path, "rounded.gguf"), BN_I2S_AUTO, &err),
                     BITNET_OK);
    struct bn_stored st = bn_tensor_stored(bn_part_find(&s, BN_P_V, 0));
    float scale;
    bn_unpack_scales(&scale, &st, 0);
    assert_true(scale == bn_f16_to_f32(bn_f32_to_f16(1.0f / 3.0f)));
    bn_source_close(&s);
}

static void test_unknown_tensor_is_refused(void **state)
{
    (void)state;
    write_checkpoint("biased", "\x40\x40",
                     "\"model.layers.0.self_attn.q_proj.bias\":{\"dtype\":\"F16\",\"shape\":[1],"
                     "\"data_offsets\":[0,2]},");
    must_refuse("biased", NULL, "q_proj.bias");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_synth_trits_do_not_depend_on_type),
        cmocka_unit_test(test_synth_is_repeatable),
        cmocka_unit_test(test_round_trip_through_all_types),
        cmocka_unit_test(test_binary),
        cmocka_unit_test(test_head_types),
        cmocka_unit_test(test_vocabulary),
        cmocka_unit_test(test_progress_and_stop),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_llama_checkpoint),
        cmocka_unit_test(test_unknown_tensor_is_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
