/* SPDX-License-Identifier: Apache-2.0
 * The GGUF reader: good files, files broken in every field and cut at every byte, type ids that
 * need a decision; the writer, whose files must come back as they were. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gguf_build.h"
#include "model/files/gguf_write.h"
#include "model/files/source.h"
#include <stdlib.h>
#include <unistd.h>

/* ------------------------------------------------------------------ a small good file */

/* where the fields of the file below stand */
enum place {
    VERSION,
    N_TENSORS,
    N_META,
    KEY0_LEN,
    KEY0_TYPE,
    STR0_LEN,
    ALIGN_VALUE,
    ARRAY_ELEM,
    ARRAY_COUNT,
    STRS_COUNT,
    STRS_LEN0,
    SPLIT_TYPE,
    SPLIT_VALUE,
    NAME_LEN,
    NAME_TEXT,
    N_DIMS,
    DIM0,
    DIM1,
    TYPE,
    OFFSET,
    TYPE_B,
    OFFSET_B,
    DIM0_B,
    NAME_C,
    OFFSET_C,
    DIM0_C,
    N_PLACES
};

struct file {
    struct bn_buf b;
    size_t at[N_PLACES], header_end;
};

/* three tensors: F32 {4,2} at 0, I2_S {128,1} at 32, F16 {16} at 96 */
static void build(struct file *f)
{
    struct bn_buf *b = &f->b;
    bn_buf_init(b, 1 << 20);
    put_head(b, 3, 5);
    f->at[VERSION] = 4, f->at[N_TENSORS] = 8, f->at[N_META] = 16, f->at[KEY0_LEN] = b->len;
    put_s(b, "general.architecture");
    f->at[KEY0_TYPE] = b->len;
    put32(b, 8);
    f->at[STR0_LEN] = b->len;
    put_s(b, "bitnet-b1.58");
    put_kv_u32(b, "general.alignment", 32);
    f->at[ALIGN_VALUE] = b->len - 4;
    put_s(b, "some.numbers");
    put32(b, 9);
    f->at[ARRAY_ELEM] = b->len;
    put32(b, 5);
    f->at[ARRAY_COUNT] = b->len;
    put64(b, 3);
    put32(b, 1), put32(b, 2), put32(b, 3);
    put_s(b, "some.strings");
    put32(b, 9), put32(b, 8);
    f->at[STRS_COUNT] = b->len;
    put64(b, 2);
    f->at[STRS_LEN0] = b->len;
    put_s(b, "alpha");
    put_s(b, "");
    put_s(b, "split.count");
    f->at[SPLIT_TYPE] = b->len;
    put32(b, 4);
    f->at[SPLIT_VALUE] = b->len;
    put32(b, 1);
    f->at[NAME_LEN] = b->len, f->at[NAME_TEXT] = b->len + 8;
    put_s(b, "a.weight");
    f->at[N_DIMS] = b->len, f->at[DIM0] = b->len + 4, f->at[DIM1] = b->len + 12;
    f->at[TYPE] = b->len + 20, f->at[OFFSET] = b->len + 24;
    put32(b, 2), put64(b, 4), put64(b, 2), put32(b, 0), put64(b, 0);
    put_tensor(b, "b.weight", 128, 1, 36, 32);
    f->at[OFFSET_B] = b->len - 8, f->at[TYPE_B] = b->len - 12, f->at[DIM0_B] = b->len - 28;
    f->at[NAME_C] = b->len + 8;
    put_s(b, "c.weight");
    f->at[DIM0_C] = b->len + 4, f->at[OFFSET_C] = b->len + 16;
    put32(b, 1), put64(b, 16), put32(b, 1), put64(b, 96);
    f->header_end = b->len;
    put_align(b, 32);
    for (int i = 0; i < 128; i++) bn_buf_putc(b, (char)(0x55 & i));
    assert_false(b->failed);
}

/* opens bytes from a block of exactly their size; closes what opened */
static bitnet_status open_bytes(const void *p, size_t n, bitnet_error *err)
{
    struct bn_source s;
    void *copy = calloc(1, n ? n : 1);
    memcpy(copy, p, n);
    bitnet_status st = bn_source_open_memory(&s, copy, n, "test.gguf", err);
    if (st == BITNET_OK) bn_source_close(&s);
    free(copy);
    return st;
}

static void good_file(void **state)
{
    (void)state;
    struct file f;
    struct bn_source s;
    bitnet_error err;
    build(&f);
    if (bn_source_open_memory(&s, f.b.data, f.b.len, "test.gguf", &err)) fail_msg("%s", err.text);
    assert_string_equal(s.format, "GGUF v3");
    assert_true(s.is_gguf);
    assert_int_equal(s.n_tensors, 3);
    assert_int_equal(s.n_meta, 5);
    const struct bn_tensor *t = bn_source_tensor(&s, "b.weight");
    assert_int_equal(t->type, BN_I2_S);
    assert_int_equal(t->bytes, 64);
    assert_int_equal(t->offset % 32, 0);
    assert_ptr_equal(t->data, f.b.data + t->offset);
    struct bn_stored m = bn_tensor_stored(bn_source_tensor(&s, "a.weight"));
    assert_true(m.rows == 2 && m.cols == 4);
    assert_null(bn_source_tensor(&s, "d.weight"));
    uint32_t u;
    float x;
    bool flag;
    const char *text;
    size_t n;
    assert_true(bn_meta_u32(&s, "general.alignment", &u) && u == 32);
    assert_false(bn_meta_u32(&s, "general.architecture", &u));
    assert_false(bn_meta_f32(&s, "general.alignment", &x));
    assert_false(bn_meta_bool(&s, "general.alignment", &flag));
    assert_true(bn_meta_str(&s, "general.architecture", &text, &n) && n == 12);
    uint64_t cursor = 0;
    const struct bn_meta *a = bn_meta_find(&s, "some.strings");
    assert_true(bn_meta_next_str(a, &cursor, &text, &n) && n == 5);
    assert_true(bn_meta_next_str(a, &cursor, &text, &n) && n == 0);
    assert_false(bn_meta_next_str(a, &cursor, &text, &n));
    struct bn_buf type, value;
    bn_buf_init(&type, 1 << 10), bn_buf_init(&value, 1 << 12);
    bn_meta_print(a, &type, &value);
    assert_string_equal(type.data, "str[2]");
    assert_string_equal(value.data, "[\"alpha\", \"\"]");
    bn_buf_clear(&type), bn_buf_clear(&value);
    bn_meta_print(bn_meta_find(&s, "some.numbers"), &type, &value);
    assert_string_equal(type.data, "i32[3]");
    assert_string_equal(value.data, "[1, 2, 3]");
    bn_buf_free(&type), bn_buf_free(&value);
    bn_source_close(&s);
    bn_source_close(&s); /* twice is fine */
    bn_buf_free(&f.b);
}

/* ------------------------------------------------------------------ one field wrong at a time */

static const struct broken {
    enum place place;
    int width; /* bytes written there */
    uint64_t value;
    bitnet_status status; /* OK: must still open */
    const char *says;
} broken[] = {
    {VERSION, 4, 0, BITNET_E_UNSUPPORTED, "version 0"},
    {VERSION, 4, 1, BITNET_E_UNSUPPORTED, "version 1"},
    {VERSION, 4, 2, BITNET_OK, NULL},
    {VERSION, 4, 4, BITNET_E_UNSUPPORTED, "version 4"},
    {VERSION, 4, 0x03000000, BITNET_E_UNSUPPORTED, "big-endian"},
    {N_TENSORS, 8, 4, BITNET_E_FORMAT, NULL}, /* the padding is read as a fourth */
    {N_TENSORS, 8, 2, BITNET_OK, NULL},
    {N_TENSORS, 8, 1ull << 60, BITNET_E_LIMIT, "1152921504606846976 tensors"},
    {N_TENSORS, 8, 65537, BITNET_E_LIMIT, "65537 tensors"},
    {N_META, 8, 1ull << 60, BITNET_E_LIMIT, "1152921504606846976 metadata"},
    {N_META, 8, UINT64_MAX, BITNET_E_LIMIT, "metadata"},
    {KEY0_LEN, 8, 0, BITNET_E_FORMAT, "key 0 has an empty name"},
    {KEY0_LEN, 8, 512, BITNET_E_LIMIT, "key 0 has 512 bytes"},
    {KEY0_LEN, 8, 1ull << 60, BITNET_E_LIMIT, "key 0"},
    {KEY0_LEN, 8, UINT64_MAX, BITNET_E_LIMIT, "key 0"},
    {KEY0_TYPE, 4, 13, BITNET_E_FORMAT, "general.architecture' has unknown type 13"},
    {KEY0_TYPE, 4, UINT32_MAX, BITNET_E_FORMAT, "unknown type"},
    {STR0_LEN, 8, 1ull << 60, BITNET_E_FORMAT, "general.architecture"},
    {STR0_LEN, 8, UINT64_MAX, BITNET_E_FORMAT, "cut short"},
    {ALIGN_VALUE, 4, 0, BITNET_E_FORMAT, "general.alignment (0)"},
    {ALIGN_VALUE, 4, 4, BITNET_E_FORMAT, "general.alignment (4)"},
    {ALIGN_VALUE, 4, 48, BITNET_E_FORMAT, "general.alignment (48)"},
    {ALIGN_VALUE, 4, 1u << 31, BITNET_E_FORMAT, "general.alignment"},
    {ALIGN_VALUE, 4, 64, BITNET_E_FORMAT, "not a multiple of 64"},
    {ALIGN_VALUE, 4, 65536, BITNET_E_FORMAT, "tensor"},
    {ARRAY_ELEM, 4, 9, BITNET_E_UNSUPPORTED, "some.numbers' is an array of arrays"},
    {ARRAY_ELEM, 4, 77, BITNET_E_FORMAT, "unknown type 77"},
    {ARRAY_ELEM, 4, 8, BITNET_E_FORMAT, NULL}, /* numbers read as lengths */
    {ARRAY_COUNT, 8, 1ull << 60, BITNET_E_LIMIT, "1152921504606846976 elements"},
    {ARRAY_COUNT, 8, 1 << 24, BITNET_E_FORMAT, "some.numbers"},
    {STRS_COUNT, 8, 1 << 24, BITNET_E_FORMAT, NULL},
    {STRS_COUNT, 8, (1 << 24) + 1, BITNET_E_LIMIT, "some.strings"},
    {STRS_LEN0, 8, 1ull << 60, BITNET_E_FORMAT, "some.strings"},
    {STRS_LEN0, 8, UINT64_MAX - 7, BITNET_E_FORMAT, "cut short"},
    {SPLIT_VALUE, 4, 2, BITNET_E_UNSUPPORTED, "one of 2 parts"},
    {SPLIT_VALUE, 4, 0, BITNET_OK, NULL},
    {NAME_LEN, 8, 0, BITNET_E_FORMAT, "tensor 0 has an empty name"},
    {NAME_LEN, 8, 600, BITNET_E_LIMIT, "tensor 0 has 600 bytes"},
    {NAME_LEN, 8, 1ull << 63, BITNET_E_LIMIT, "tensor 0"},
    {NAME_TEXT, 1, 0, BITNET_E_FORMAT, "tensor 0 contains a zero byte"},
    {NAME_TEXT, 1, 'c', BITNET_E_FORMAT, "'c.weight' appears twice"},
    {N_DIMS, 4, 0, BITNET_E_FORMAT, "'a.weight' has 0 dimensions"},
    {N_DIMS, 4, 5, BITNET_E_FORMAT, "'a.weight' has 5 dimensions"},
    {N_DIMS, 4, UINT32_MAX, BITNET_E_FORMAT, "dimensions"},
    {DIM0, 8, 0, BITNET_E_FORMAT, "dimension 0 of tensor 'a.weight' is 0"},
    {DIM1, 8, 0, BITNET_E_FORMAT, "dimension 1 of tensor 'a.weight' is 0"},
    {DIM0, 8, 1ull << 62, BITNET_E_FORMAT, "multiply to more than 2^63"},
    {DIM0, 8, UINT64_MAX, BITNET_E_FORMAT, "multiply to more than 2^63"},
    {DIM1, 8, 1ull << 60, BITNET_E_FORMAT, "'a.weight'"}, /* 2^64 bytes */
    {DIM0, 8, 5, BITNET_E_FORMAT, "'a.weight' (F32, 40 bytes at offset 0) overlaps 'b.weight'"},
    {DIM0, 8, 1000, BITNET_E_FORMAT, "'a.weight' (F32) needs 8000 bytes"},
    {TYPE, 4, 3, BITNET_E_UNSUPPORTED, "'a.weight' is of type 3, Q4_1"},
    {TYPE, 4, 38, BITNET_E_UNSUPPORTED, "TL1"},
    {TYPE, 4, 39, BITNET_E_UNSUPPORTED, "TL2"},
    {TYPE, 4, 142, BITNET_E_FORMAT, "2 rows of 4 does not fit type PQ2_0"},
    {TYPE, 4, 4711, BITNET_E_UNSUPPORTED, "'a.weight' is of unknown type 4711"},
    {TYPE, 4, UINT32_MAX, BITNET_E_UNSUPPORTED, "unknown type"},
    {TYPE, 4, 35, BITNET_E_FORMAT, "2 rows of 4 does not fit type TQ2_0"},
    {TYPE, 4, 36, BITNET_E_FORMAT, "does not fit type I2_S"},
    {OFFSET, 8, 8, BITNET_E_FORMAT, "offset 8 of tensor 'a.weight'"},
    {OFFSET, 8, 32, BITNET_E_FORMAT, "overlaps"},
    {OFFSET, 8, 128, BITNET_E_FORMAT, "'a.weight' (F32) needs 32 bytes at offset 128"},
    {OFFSET, 8, 1ull << 60, BITNET_E_FORMAT, "'a.weight' begins at offset 1152921504606846976"},
    {OFFSET, 8, UINT64_MAX - 31, BITNET_E_FORMAT, "'a.weight' begins at"},
    {DIM0_B, 8, 100, BITNET_E_FORMAT, "1 rows of 100 does not fit type I2_S"},
    {DIM0_B, 8, 256, BITNET_E_FORMAT,
     "'b.weight' (I2_S, 96 bytes at offset 32) overlaps 'c.weight'"},
    {OFFSET_B, 8, 0, BITNET_E_FORMAT, "overlaps"},
    {OFFSET_B, 8, 64, BITNET_E_FORMAT, "'b.weight'"},
    /* 128 weights fit 34 or 36 bytes in room for 64 */
    {TYPE_B, 4, 42, BITNET_E_FORMAT, "'b.weight' of type 42 can be 64 weights in 18 bytes (36"},
    {TYPE_B, 4, 24, BITNET_E_FORMAT, "'b.weight' (I8) needs 128 bytes at offset 32"},
    {NAME_C, 1, 'b', BITNET_E_FORMAT, "'b.weight' appears twice"},
    {OFFSET_C, 8, 64, BITNET_E_FORMAT, "overlaps 'c.weight'"},
    {OFFSET_C, 8, 128, BITNET_E_FORMAT, "'c.weight' (F16) needs 32 bytes"},
    {DIM0_C, 8, 17, BITNET_E_FORMAT, "'c.weight' (F16) needs 34 bytes"},
};

static void every_field_broken(void **state)
{
    (void)state;
    for (size_t i = 0; i < BN_ARRAY_LEN(broken); i++) {
        const struct broken *c = &broken[i];
        struct file f;
        bitnet_error err = {0};
        build(&f);
        memcpy(f.b.data + f.at[c->place], &c->value, (size_t)c->width);
        bitnet_status st = open_bytes(f.b.data, f.b.len, &err);
        if (st != c->status || (c->says && !strstr(err.text, c->says)))
            fail_msg("case %zu: status %d, \"%s\"; wanted %d, \"%s\"", i, (int)st, err.text,
                     (int)c->status, c->says ? c->says : "");
        if (st != BITNET_OK) { /* every sentence names the file or the tensor */
            assert_int_equal(err.status, st);
            assert_true(strstr(err.text, "test.gguf") || strstr(err.text, "weight"));
        }
        bn_buf_free(&f.b);
    }
}

static void cut_at_every_byte(void **state)
{
    (void)state;
    struct file f;
    build(&f);
    for (size_t n = 0; n < f.b.len; n++) {
        bitnet_error err = {0};
        bitnet_status st = open_bytes(f.b.data, n, &err);
        assert_int_equal(st, BITNET_E_FORMAT);
        assert_true(strlen(err.text) > 10);
    }
    bn_buf_free(&f.b);
}

/* every byte of the header set to each of a few values: anything may happen but a crash */
static void random_damage(void **state)
{
    (void)state;
    static const uint8_t values[] = {0, 1, 2, 0x7f, 0x80, 0xff};
    struct file f;
    build(&f);
    for (size_t i = 4; i < f.header_end; i++)
        for (size_t k = 0; k < BN_ARRAY_LEN(values); k++) {
            uint8_t was = (uint8_t)f.b.data[i];
            f.b.data[i] = (char)values[k];
            open_bytes(f.b.data, f.b.len, NULL);
            f.b.data[i] = (char)was;
        }
    bn_buf_free(&f.b);
}

static void other_refusals(void **state)
{
    (void)state;
    bitnet_error err;
    assert_int_equal(open_bytes("", 0, &err), BITNET_E_FORMAT);
    assert_int_equal(open_bytes("GGU", 3, &err), BITNET_E_FORMAT);
    assert_int_equal(open_bytes("FUGG0000", 8, &err), BITNET_E_UNSUPPORTED);
    assert_int_equal(open_bytes("version https://git-lfs", 23, &err), BITNET_E_FORMAT);
    assert_non_null(strstr(err.text, "LFS"));
    struct bn_buf b; /* two keys of one name */
    bn_buf_init(&b, 1 << 16);
    put_head(&b, 0, 2);
    put_kv_u32(&b, "x.y", 1);
    put_kv_u32(&b, "x.y", 2);
    assert_int_equal(open_bytes(b.data, b.len, &err), BITNET_E_FORMAT);
    assert_non_null(strstr(err.text, "'x.y' appears twice"));
    bn_buf_clear(&b); /* no tensors at all, and no padding: a vocabulary only */
    put_head(&b, 0, 1);
    put_kv_str(&b, "k", "v");
    assert_int_equal(open_bytes(b.data, b.len, &err), BITNET_OK);
    bn_buf_clear(&b); /* type 39 outside of BitNet's architectures is MXFP4 */
    put_head(&b, 1, 1);
    put_kv_str(&b, "general.architecture", "gpt-oss");
    put_tensor(&b, "t", 32, 1, 39, 0);
    put_align(&b, 32);
    put_zeros(&b, 32);
    assert_int_equal(open_bytes(b.data, b.len, &err), BITNET_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "MXFP4"));
    bn_buf_free(&b);
    struct bn_source s;
    assert_int_equal(bn_source_open(&s, "/nonexistent/model.gguf", BN_I2S_AUTO, &err), BITNET_E_IO);
    assert_int_equal(bn_source_open(&s, "/dev/null", BN_I2S_AUTO, &err), BITNET_E_IO);
}

/* ------------------------------------------------------------------ layouts of I2_S */

static void i2s_layouts(void **state)
{
    (void)state;
    static const struct {
        enum bn_i2s_layout layout;
        enum bn_type type;
    } cases[] = {{BN_I2S_AUTO, BN_I2_S},
                 {BN_I2S_128, BN_I2_S},
                 {BN_I2S_64, BN_I2_S_64},
                 {BN_I2S_ROWS4, BN_I2_S_ROWS4}};
    struct bn_buf b;
    bn_buf_init(&b, 1 << 16);
    put_head(&b, 1, 0);
    put_tensor(&b, "w", 32, 4, 36, 0);
    put_align(&b, 32);
    put_zeros(&b, 64);
    for (size_t i = 0; i < BN_ARRAY_LEN(cases); i++) {
        struct bn_mapping m = {.data = (const uint8_t *)b.data, .bytes = b.len};
        struct bn_source s = {0};
        bitnet_error err;
        assert_true(bn_map_init(&s.tensor_by_name, 4) && bn_map_init(&s.meta_by_key, 4));
        assert_int_equal(bn_gguf_read(&s, &m, "w.gguf", cases[i].layout, &err), BITNET_OK);
        assert_int_equal(bn_source_tensor(&s, "w")->type, cases[i].type);
        bn_source_close(&s);
    }
    bn_buf_free(&b);
}

/* ------------------------------------------------------------------ writing */

static char *temp_path(void)
{
    char *path = strdup("/tmp/bitnet-test-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    return path;
}

static void write_and_read(void **state)
{
    (void)state;
    char *path = temp_path();
    struct bn_gguf_writer w;
    struct bn_source s, t;
    struct file f;
    bitnet_error err;
    uint8_t bytes[4096];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 7);
    build(&f);
    assert_int_equal(bn_source_open_memory(&s, f.b.data, f.b.len, "f", &err), BITNET_OK);
    assert_int_equal(bn_gguf_create(&w, path, false, &err), BITNET_E_IO); /* exists */
    bn_gguf_discard(&w);
    assert_int_equal(bn_gguf_create(&w, path, true, &err), BITNET_OK);
    for (size_t i = 0; i < s.n_meta; i++) bn_gguf_put_raw(&w, &s.meta[i]);
    bn_gguf_put_u32(&w, "u", 7);
    bn_gguf_put_f32(&w, "f", 0.5f);
    bn_gguf_put_bool(&w, "b", true);
    bn_gguf_put_str(&w, "s", "text", 4);
    static const struct {
        const char *name;
        enum bn_type type;
        uint32_t n_dims;
        uint64_t dims[4], bytes;
    } tensors[] = {{"one", BN_F32, 1, {3, 1, 1, 1}, 12},
                   {"two", BN_I2_S, 2, {128, 3, 1, 1}, 128},
                   {"three", BN_TQ1_0, 3, {256, 2, 2, 1}, 216},
                   {"four", BN_IQ2_BN, 4, {64, 1, 3, 5}, 300}};
    for (size_t i = 0; i < BN_ARRAY_LEN(tensors); i++)
        assert_int_equal(bn_gguf_declare(&w, tensors[i].name, tensors[i].type, tensors[i].n_dims,
                                         tensors[i].dims, &err),
                         BITNET_OK);
    assert_int_equal(bn_gguf_declare(&w, "x", BN_HF_U8, 2, tensors[1].dims, &err),
                     BITNET_E_UNSUPPORTED);
    assert_int_equal(bn_gguf_declare(&w, "x", BN_TQ2_0, 2, tensors[1].dims, &err), BITNET_E_ARG);
    assert_int_equal(bn_gguf_declare(&w, "", BN_F32, 1, tensors[0].dims, &err), BITNET_E_ARG);
    size_t total = 12 + 128 + 216 + 300, at = 0;
    for (size_t step = 1; at < total; step = step % 97 + 5) { /* pieces across tensor borders */
        size_t n = bn_min_size(step, total - at);
        assert_int_equal(bn_gguf_data(&w, bytes + at, n, &err), BITNET_OK);
        at += n;
        if (at < total && at > 500) assert_int_equal(bn_gguf_commit(&w, &err), BITNET_E_STATE);
    }
    assert_int_equal(bn_gguf_data(&w, bytes, 1, &err), BITNET_E_STATE); /* one too many */
    assert_int_equal(bn_gguf_declare(&w, "late", BN_F32, 1, tensors[0].dims, &err), BITNET_E_STATE);
    assert_int_equal(bn_gguf_commit(&w, &err), BITNET_OK);
    bn_gguf_discard(&w);

    if (bn_source_open(&t, path, BN_I2S_AUTO, &err)) fail_msg("%s", err.text);
    assert_int_equal(t.n_meta, s.n_meta + 4);
    for (size_t i = 0; i < s.n_meta; i++) {
        assert_string_equal(t.meta[i].key, s.meta[i].key);
        assert_int_equal(t.meta[i].type, s.meta[i].type);
        assert_int_equal(t.meta[i].raw_bytes, s.meta[i].raw_bytes);
        assert_memory_equal(t.meta[i].raw, s.meta[i].raw, s.meta[i].raw_bytes);
    }
    uint32_t u;
    float x;
    bool flag;
    assert_true(bn_meta_u32(&t, "u", &u) && u == 7);
    assert_true(bn_meta_f32(&t, "f", &x) && x == 0.5f);
    assert_true(bn_meta_bool(&t, "b", &flag) && flag);
    assert_int_equal(t.n_tensors, 4);
    at = 0;
    for (size_t i = 0; i < t.n_tensors; i++) {
        assert_string_equal(t.tensors[i].name, tensors[i].name);
        assert_int_equal(t.tensors[i].type, tensors[i].type);
        assert_memory_equal(t.tensors[i].dims, tensors[i].dims, sizeof tensors[i].dims);
        assert_int_equal(t.tensors[i].bytes, tensors[i].bytes);
        assert_memory_equal(t.tensors[i].data, bytes + at, tensors[i].bytes);
        assert_int_equal(t.tensors[i].offset % 32, 0);
        at += tensors[i].bytes;
        bn_source_release(&t, &t.tensors[i]);
    }
    assert_int_equal(t.file_bytes % 32, 0); /* other readers expect the last tensor padded too */
    bn_source_close(&t);
    bn_source_close(&s);
    bn_buf_free(&f.b);
    unlink(path);
    free(path);
}

static void discard_leaves_nothing(void **state)
{
    (void)state;
    char *path = temp_path();
    struct bn_gguf_writer w;
    bitnet_error err;
    const uint64_t dims[4] = {4, 1, 1, 1};
    unlink(path);
    assert_int_equal(bn_gguf_create(&w, path, false, &err), BITNET_OK);
    assert_int_equal(bn_gguf_declare(&w, "t", BN_F32, 1, dims, &err), BITNET_OK);
    assert_int_equal(bn_gguf_data(&w, "abc", 3, &err), BITNET_OK);
    bn_gguf_put_u32(&w, "late", 1);
    assert_int_equal(bn_gguf_data(&w, "0123456789abc", 13, &err), BITNET_OK);
    assert_int_equal(bn_gguf_commit(&w, &err), BITNET_E_STATE); /* metadata after data */
    bn_gguf_discard(&w);
    assert_false(bn_exists(path));
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_file),         cmocka_unit_test(every_field_broken),
        cmocka_unit_test(cut_at_every_byte), cmocka_unit_test(random_damage),
        cmocka_unit_test(other_refusals),    cmocka_unit_test(i2s_layouts),
        cmocka_unit_test(write_and_read),    cmocka_unit_test(discard_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
