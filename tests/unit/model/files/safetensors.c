/* SPDX-License-Identifier: Apache-2.0
 * The safetensors reader: one file, shards, folders; headers broken in every way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "model/files/source.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* length, header, n bytes of data */
static void make(struct bn_buf *b, const char *header, size_t n)
{
    uint64_t len = strlen(header);
    bn_buf_init(b, 1 << 20);
    bn_buf_append(b, &len, 8);
    bn_buf_puts(b, header);
    for (size_t i = 0; i < n; i++) bn_buf_putc(b, (char)i);
}

static bitnet_status open_bytes(const void *p, size_t n, bitnet_error *err)
{
    struct bn_source s = {0};
    uint8_t *copy = calloc(1, n ? n : 1);
    memcpy(copy, p, n);
    assert_true(bn_map_init(&s.tensor_by_name, 4));
    bitnet_status st = bn_safetensors_parse(&s, copy, n, "x.safetensors", err);
    bn_source_close(&s);
    free(copy);
    return st;
}

#define T(name, dtype, shape, from, to)                                                          \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to \
    "]}"

static void good_file(void **state)
{
    (void)state;
    struct bn_buf b;
    struct bn_source s;
    bitnet_error err;
    make(&b,
         "{\"__metadata__\":{\"format\":\"pt\"}," T("a", "F32", "[2,3]", 0, 24) "," T(
             "b", "BF16", "[]", 24, 26) "," T("c", "U8", "[4,2,3]", 30,
                                              54) "," T("d", "F16", "[0,5]", 24,
                                                        24) "," T("e", "I64", "[1]", 54,
                                                                  62) "," T("f", "BOOL", "[1]", 62,
                                                                            63) "}   ",
         63);
    if (bn_source_open_memory(&s, b.data, b.len, "mem", &err)) fail_msg("%s", err.text);
    assert_string_equal(s.format, "safetensors");
    assert_false(s.is_gguf);
    assert_int_equal(s.n_tensors, 6);
    const struct bn_tensor *a = bn_source_tensor(&s, "a"), *c = bn_source_tensor(&s, "c");
    assert_true(a->type == BN_F32 && a->n_dims == 2 && a->dims[0] == 3 && a->dims[1] == 2);
    assert_true(c->type == BN_U8 && c->dims[0] == 3 && c->dims[1] == 2 && c->dims[2] == 4);
    assert_int_equal(c->data[0], 30);
    struct bn_stored m = bn_tensor_stored(c);
    assert_true(m.rows == 8 && m.cols == 3 && m.bytes == 24);
    assert_true(bn_source_tensor(&s, "b")->dims[0] == 1);
    assert_int_equal(bn_source_tensor(&s, "d")->bytes, 0);
    bn_source_close(&s);
    bn_buf_free(&b);
}

static const struct {
    const char *header;
    size_t data;
    bitnet_status status;
    const char *says;
} broken[] = {
    {"{}", 0, BITNET_OK, NULL},
    {"", 0, BITNET_E_FORMAT, "bad safetensors header"},
    {"[]", 0, BITNET_E_FORMAT, "no object"},
    {"{", 0, BITNET_E_FORMAT, "bad safetensors header"},
    {"{} x", 0, BITNET_E_FORMAT, "bad safetensors header"},
    {"{\"a\":1}", 0, BITNET_E_FORMAT, "'a' is no object"},
    {"{\"a\":{}}", 0, BITNET_E_FORMAT, "'a' has no dtype"},
    {"{\"a\":{\"dtype\":3}}", 0, BITNET_E_FORMAT, "'a' has no dtype"},
    {"{\"a\":{\"dtype\":\"F32\"}}", 0, BITNET_E_FORMAT, "'a' has no shape"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, BITNET_E_FORMAT, "'a' has no data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, BITNET_E_FORMAT, "'a'"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 8, BITNET_E_FORMAT,
     "'a'"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0.0,4.0]}}", 4, BITNET_E_FORMAT,
     "'a'"},
    {"{" T("a", "F8_E4M3", "[1]", 0, 1) "}", 1, BITNET_E_UNSUPPORTED, "'a' has dtype F8_E4M3"},
    {"{" T("a", "f32", "[1]", 0, 4) "}", 4, BITNET_E_UNSUPPORTED, "dtype f32"},
    {"{" T("a", "F32", "[-1]", 0, 4) "}", 4, BITNET_E_FORMAT, "dimension 0 of tensor 'a'"},
    {"{" T("a", "F32", "[1,2.5]", 0, 4) "}", 4, BITNET_E_FORMAT, "dimension 1 of tensor 'a'"},
    {"{" T("a", "F32", "[\"1\"]", 0, 4) "}", 4, BITNET_E_FORMAT, "dimension 0 of tensor 'a'"},
    {"{" T("a", "F32", "{}", 0, 4) "}", 4, BITNET_E_FORMAT, "'a' has no shape"},
    {"{" T("a", "F32", "[1,1,1,1,1]", 0, 4) "}", 4, BITNET_E_UNSUPPORTED, "'a' has 5 dimensions"},
    {"{" T("a", "F32", "[4294967296,4294967296]", 0, 4) "}", 4, BITNET_E_FORMAT, "2^63"},
    {"{" T("a", "F32", "[0,4294967296,4294967296]", 0, 0) "}", 4, BITNET_E_FORMAT, "2^63"},
    {"{" T("a", "F32", "[4611686018427387904]", 0, 4) "}", 4, BITNET_E_FORMAT, "does not fit"},
    {"{" T("a", "F32", "[99999999999999999999]", 0, 4) "}", 4, BITNET_E_FORMAT,
     "is not a whole number"},
    {"{" T("a", "F32", "[1]", 4, 0) "}", 4, BITNET_E_FORMAT, "'a' lies at 4 to 0"},
    {"{" T("a", "F32", "[1]", -4, 0) "}", 4, BITNET_E_FORMAT, "'a' lies at -4"},
    {"{" T("a", "F32", "[1]", 0, 4) "}", 3, BITNET_E_FORMAT, "of 3 bytes of data"},
    {"{" T("a", "F32", "[1]", 0, 3) "}", 4, BITNET_E_FORMAT, "'a' has 3 bytes"},
    {"{" T("a", "F32", "[2]", 0, 4) "}", 4, BITNET_E_FORMAT, "'a' has 4 bytes"},
    {"{" T("a", "F32", "[1]", 9223372036854775803, 9223372036854775807) "}", 4, BITNET_E_FORMAT,
     "'a'"},
    {"{" T("a", "F32", "[1]", 0, 4) "," T("b", "F32", "[1]", 2, 6) "}", 8, BITNET_E_FORMAT,
     "'a' overlaps tensor 'b'"},
    {"{" T("a", "F32", "[1]", 0, 4) "," T("b", "F32", "[1]", 0, 4) "}", 8, BITNET_E_FORMAT,
     "overlaps"},
    {"{" T("a", "F32", "[1]", 4, 8) "," T("b", "F32", "[1]", 0, 4) "}", 8, BITNET_OK, NULL},
    {"{" T("a", "F32", "[1]", 0, 4) "," T("a", "F32", "[1]", 4, 8) "}", 8, BITNET_E_FORMAT,
     "bad safetensors header"}, /* a name twice */
    {"{" T("", "F32", "[1]", 0, 4) "}", 4, BITNET_E_FORMAT, "empty name"},
    {"{" T("a\\u0000b", "F32", "[1]", 0, 4) "}", 4, BITNET_E_FORMAT, "bad safetensors header"},
    {"{" T("a\xff", "F32", "[1]", 0, 4) "}", 4, BITNET_E_FORMAT, "bad safetensors header"},
};

static void broken_headers(void **state)
{
    (void)state;
    for (size_t i = 0; i < BN_ARRAY_LEN(broken); i++) {
        struct bn_buf b;
        bitnet_error err = {0};
        make(&b, broken[i].header, broken[i].data);
        bitnet_status st = open_bytes(b.data, b.len, &err);
        if (st != broken[i].status || (broken[i].says && !strstr(err.text, broken[i].says)))
            fail_msg("case %zu: status %d, \"%s\"; wanted %d, \"%s\"", i, (int)st, err.text,
                     (int)broken[i].status, broken[i].says ? broken[i].says : "");
        bn_buf_free(&b);
    }
}

static void broken_lengths(void **state)
{
    (void)state;
    struct bn_buf b;
    bitnet_error err;
    make(&b, "{" T("a", "F32", "[1]", 0, 4) "}", 4);
    for (size_t n = 0; n < b.len; n++)
        assert_int_equal(open_bytes(b.data, n, &err), BITNET_E_FORMAT);
    uint64_t big = 1ull << 60;
    memcpy(b.data, &big, 8);
    assert_int_equal(open_bytes(b.data, b.len, &err), BITNET_E_LIMIT);
    assert_non_null(strstr(err.text, "1152921504606846976"));
    big = BN_MAX_HEADER_BYTES;
    memcpy(b.data, &big, 8);
    assert_int_equal(open_bytes(b.data, b.len, &err), BITNET_E_FORMAT);
    assert_non_null(strstr(err.text, "cut short"));
    bn_buf_free(&b);
    char name[600]; /* a name that is too long */
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    char header[800];
    snprintf(header, sizeof header,
             "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", name);
    make(&b, header, 1);
    assert_int_equal(open_bytes(b.data, b.len, &err), BITNET_E_LIMIT);
    bn_buf_free(&b);
}

/* ------------------------------------------------------------------ folders */

static char folder[] = "/tmp/bitnet-st-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static const char *in_folder(char *out, const char *name)
{
    snprintf(out, 256, "%s/%s", folder, name);
    return out;
}

static void put_file(const char *name, const void *p, size_t n)
{
    char path[256];
    FILE *f = fopen(in_folder(path, name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
}

static void put_safetensors(const char *name, const char *header, size_t n)
{
    struct bn_buf b;
    make(&b, header, n);
    put_file(name, b.data, b.len);
    bn_buf_free(&b);
}

static void remove_files(void)
{
    static const char *const names[] = {"model.safetensors",
                                        "model.safetensors.index.json",
                                        "one.safetensors",
                                        "two.safetensors",
                                        "a.gguf",
                                        "b.gguf"};
    char path[256];
    for (size_t i = 0; i < BN_ARRAY_LEN(names); i++) unlink(in_folder(path, names[i]));
}

static int remove_folder(void **state)
{
    (void)state;
    remove_files();
    return rmdir(folder);
}

static bitnet_status open_folder(struct bn_source *s, bitnet_error *err)
{
    return bn_source_open(s, folder, BN_I2S_AUTO, err);
}

static const uint8_t empty_gguf[24] = {'G', 'G', 'U', 'F', 3};

static void folders(void **state)
{
    (void)state;
    struct bn_source s;
    bitnet_error err;
    char path[256];
    assert_int_equal(open_folder(&s, &err), BITNET_E_FORMAT);
    assert_non_null(strstr(err.text, "holds no model"));
    put_file("a.gguf", empty_gguf, sizeof empty_gguf);
    assert_int_equal(open_folder(&s, &err), BITNET_OK);
    assert_true(s.is_gguf);
    assert_string_equal(s.path, in_folder(path, "a.gguf"));
    bn_source_close(&s);
    put_file("b.gguf", empty_gguf, sizeof empty_gguf);
    assert_int_equal(open_folder(&s, &err), BITNET_E_ARG);
    assert_non_null(strstr(err.text, "2 .gguf files"));
    put_safetensors("model.safetensors", "{" T("a", "F32", "[1]", 0, 4) "}", 4);
    assert_int_equal(open_folder(&s, &err), BITNET_OK); /* before any GGUF */
    assert_false(s.is_gguf);
    assert_string_equal(s.folder, folder);
    bn_source_release(&s, &s.tensors[0]);
    bn_source_close(&s);
    assert_int_equal(bn_source_open(&s, in_folder(path, "model.safetensors"), BN_I2S_AUTO, &err),
                     BITNET_OK);
    assert_string_equal(s.folder, folder);
    bn_source_close(&s);
    remove_files();
}

static void shards(void **state)
{
    (void)state;
    struct bn_source s;
    bitnet_error err;
    char path[256];
    static const char one[] = "{" T("a", "F32", "[1]", 0, 4) "," T("b", "U8", "[2]", 4, 6) "}";
    static const char two[] = "{" T("c", "F32", "[1]", 0, 4) "}";
    static const struct {
        const char *index;
        bitnet_status status;
        const char *says;
    } cases[] = {
        {"{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"one.safetensors\","
         "\"c\":\"two.safetensors\"}}",
         BITNET_OK, NULL},
        {"{\"weight_map\":{\"a\":\"one.safetensors\",\"c\":\"one.safetensors\"}}", BITNET_E_FORMAT,
         "'c' is not in 'one.safetensors'"},
        {"{\"weight_map\":{\"a\":\"two.safetensors\",\"b\":\"one.safetensors\"}}", BITNET_E_FORMAT,
         "'a' is not in 'two.safetensors'"},
        {"{\"weight_map\":{\"a\":\"none.safetensors\"}}", BITNET_E_IO, "none.safetensors"},
        {"{\"weight_map\":{\"a\":\"../one.safetensors\"}}", BITNET_E_FORMAT, "no plain file name"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", BITNET_E_FORMAT, "no plain file name"},
        {"{\"weight_map\":{\"a\":\"..\"}}", BITNET_E_FORMAT, "no plain file name"},
        {"{\"weight_map\":{\"a\":\"\"}}", BITNET_E_FORMAT, "no plain file name"},
        {"{\"weight_map\":{\"a\":7}}", BITNET_E_FORMAT, "'a' is no string"},
        {"{\"weight_map\":{}}", BITNET_E_FORMAT, "weight_map"},
        {"{\"weight_map\":[]}", BITNET_E_FORMAT, "weight_map"},
        {"[]", BITNET_E_FORMAT, "weight_map"},
        {"{", BITNET_E_FORMAT, "bad JSON"},
    };
    put_safetensors("one.safetensors", one, 6);
    put_safetensors("two.safetensors", two, 4);
    for (size_t i = 0; i < BN_ARRAY_LEN(cases); i++) {
        put_file("model.safetensors.index.json", cases[i].index, strlen(cases[i].index));
        bitnet_status st = open_folder(&s, &err);
        if (st != cases[i].status || (cases[i].says && !strstr(err.text, cases[i].says)))
            fail_msg("case %zu: status %d, \"%s\"", i, (int)st, err.text);
        if (st != BITNET_OK) continue;
        assert_int_equal(s.n_maps, 2);
        assert_int_equal(s.n_tensors, 3);
        assert_int_equal(bn_source_tensor(&s, "b")->data[1], 5);
        bn_source_close(&s);
    }
    put_file("model.safetensors.index.json", cases[0].index, strlen(cases[0].index));
    put_safetensors("two.safetensors", "{" T("a", "F32", "[1]", 0, 4) "}", 4); /* in both shards */
    assert_int_equal(open_folder(&s, &err), BITNET_E_FORMAT);
    assert_non_null(strstr(err.text, "'a' appears twice"));
    put_safetensors("two.safetensors", two, 4);
    assert_int_equal(
        bn_source_open(&s, in_folder(path, "model.safetensors.index.json"), BN_I2S_AUTO, &err),
        BITNET_OK); /* the index itself */
    bn_source_close(&s);
    remove_files();
}

/* Logits of a model's last token: [n_vocab], to be freed. */
static float *logits_of(const char *path, uint32_t no_mmap, uint32_t *n_vocab)
{
    static const int32_t tokens[] = {1, 5, 2, 9, 4};
    bitnet_model_options mo = {.size = sizeof mo};
    bitnet_model *m;
    bitnet_engine *e;
    bitnet_error err = {0};
    bitnet_model_info in = {.size = sizeof in};
    mo.mmap = no_mmap ? "off" : "auto";
    if (bitnet_model_open(&m, path, &mo, &err)) fail_msg("%s", err.text);
    bitnet_model_get_info(m, &in);
    *n_vocab = in.shape.n_vocab;
    float *logits = malloc(in.shape.n_vocab * sizeof *logits);
    assert_non_null(logits);
    if (bitnet_engine_open(&e, m, NULL, &err)) fail_msg("%s", err.text);
    assert_int_equal(bitnet_eval(e, 0, tokens, BN_ARRAY_LEN(tokens), 1, logits, NULL), BITNET_OK);
    bitnet_engine_close(e);
    bitnet_model_close(m);
    return logits;
}

/* Files that are read instead of mapped: one and shards, packed, as values and as master weights, with
 * factors beside them. */
static void read_not_mapped(void **state)
{
    (void)state;
    static const char *const folders[] = {"1bitllm-master",     "bitnet-master",
                                          "bitnet-packed-mul",  "llama-packed-div",
                                          "llama-values-rope3", "qwen3-values"};
    for (size_t i = 0; i < BN_ARRAY_LEN(folders); i++) {
        char path[512];
        uint32_t n, other;
        snprintf(path, sizeof path, TEST_DATA "/golden/%s", folders[i]);
        float *mapped = logits_of(path, 0, &n), *read = logits_of(path, 1, &other);
        assert_int_equal(n, other);
        assert_memory_equal(mapped, read, n * sizeof *mapped);
        free(mapped);
        free(read);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_file),      cmocka_unit_test(broken_headers),
        cmocka_unit_test(broken_lengths), cmocka_unit_test(folders),
        cmocka_unit_test(shards),         cmocka_unit_test(read_not_mapped),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
