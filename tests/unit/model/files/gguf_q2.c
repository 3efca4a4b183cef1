/* SPDX-License-Identifier: Apache-2.0
 * Type 42 of GGUF is three formats: each is recognised in files of one and of several tensors, with
 * and without padding at the end, and what contradicts itself or cannot be told is refused with a
 * sentence that names the tensor and the bytes. 143 is another engine's number, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/rng.h"
#include "gguf_build.h"
#include "model/files/source.h"
#include <stdlib.h>

enum content { RANDOM, ZEROS, SIGNED, GARBAGE };

/* what a file of type 42 consists of */
struct plan {
    enum bn_type as;     /* how the bytes are laid out */
    const char *version; /* general.quantization_version; NULL: the number 2 */
    uint64_t cols, rows; /* of each matrix */
    int matrices;
    enum content content;
    bool norm;         /* an F32 vector behind them */
    bool padded;       /* the last tensor up to the alignment */
    uint64_t trailing; /* bytes behind the end */
    uint64_t gap;      /* between tensors, a multiple of 32 */
    enum bn_type last; /* the last matrix is laid out so; 0: as the others */
    uint32_t file_type;
};

static void put_matrix(struct bn_buf *b, enum bn_type as, const struct plan *p, struct bn_rng *g)
{
    const struct bn_type_info *i = bn_type_info(as);
    for (uint64_t k = 0; k < p->rows * p->cols / i->block; k++) {
        uint8_t block[34];
        float scale = 0.02f + 0.01f * (float)bn_rng_unit(g);
        if (p->content == SIGNED && bn_rng_below(g, 8) == 0) scale = -scale;
        for (uint32_t j = 0; j < i->block_bytes; j++) {
            unsigned byte = 0;
            for (int n = 0; n < 4; n++) byte |= bn_rng_below(g, 3) << 2 * n;
            block[j] = (uint8_t)byte;
        }
        bn_store_u16(block + bn_type_scale_at(as), bn_f32_to_f16(scale));
        if (p->content == ZEROS) memset(block, 0, sizeof block);
        for (uint32_t j = 0; p->content == GARBAGE && j < i->block_bytes; j++)
            block[j] = 0xe0 | (uint8_t)j;
        bn_buf_append(b, block, i->block_bytes);
    }
}

/* The type that the reader settles on; BN_TYPE_COUNT: refused, with err. */
static enum bn_type settled(const struct plan *p, bitnet_error *err)
{
    struct bn_buf b;
    struct bn_source s;
    struct bn_rng g = {42};
    uint64_t at[16], offset = 0, bytes = 0;
    bn_buf_init(&b, 1 << 22);
    for (int k = 0; k < p->matrices; k++) {
        enum bn_type as = p->last && k + 1 == p->matrices ? p->last : p->as;
        at[k] = offset;
        assert_true(bn_type_bytes(&bytes, as, p->rows, p->cols));
        offset = bn_align_up(offset + bytes, 32) + p->gap;
    }
    put_head(&b, (uint64_t)p->matrices + p->norm, 2);
    if (p->version) put_kv_str(&b, "general.quantization_version", p->version);
    else put_kv_u32(&b, "general.quantization_version", 2);
    put_kv_u32(&b, "general.file_type", p->file_type);
    for (int k = 0; k < p->matrices; k++) {
        char name[16] = {'q', (char)('0' + k)};
        put_tensor(&b, name, p->cols, p->rows, 42, at[k]);
    }
    if (p->norm) put_tensor(&b, "n", 8, 1, 0, offset);
    put_align(&b, 32);
    uint64_t data = b.len;
    for (int k = 0; k < p->matrices; k++) {
        put_zeros(&b, data + at[k] - b.len);
        put_matrix(&b, p->last && k + 1 == p->matrices ? p->last : p->as, p, &g);
    }
    if (p->norm) put_zeros(&b, data + offset + 32 - b.len);
    if (p->padded) put_align(&b, 32);
    put_zeros(&b, p->trailing);
    *err = (bitnet_error){0};
    enum bn_type t = BN_TYPE_COUNT;
    if (bn_source_open_memory(&s, b.data, b.len, "q.gguf", err) == BITNET_OK) {
        t = bn_source_tensor(&s, "q0")->type;
        for (int k = 1; k < p->matrices; k++) assert_int_equal(s.tensors[k].type, t);
        bn_source_close(&s);
    }
    bn_buf_free(&b);
    return t;
}

static void expect(const struct plan *p, enum bn_type want)
{
    bitnet_error err;
    enum bn_type t = settled(p, &err);
    if (t == BN_TYPE_COUNT) fail_msg("%s", err.text);
    assert_int_equal(t, want);
}

static void refuse(const struct plan *p, const char *because)
{
    bitnet_error err;
    assert_int_equal(settled(p, &err), BN_TYPE_COUNT);
    assert_int_equal(err.status, BITNET_E_FORMAT);
    if (!strstr(err.text, because)) fail_msg("'%s' is not in: %s", because, err.text);
    assert_non_null(strstr(err.text, "q.gguf"));
    print_message("%s\n", err.text);
}

/* ------------------------------------------------------------------ tests */

static const struct format {
    enum bn_type type;
    const char *version;
} formats[] = {{BN_Q2_0, NULL},
               {BN_Q2_0_128, NULL},
               {BN_TQ2_0_128, "TQ2_0_G128"},
               {BN_TQ2_0_128, "TQ2_0_g128"}}; /* OxiBonsai writes both */

static void each_is_recognised(void **state)
{
    (void)state;
    for (size_t f = 0; f < BN_ARRAY_LEN(formats); f++)
        for (int matrices = 1; matrices <= 3; matrices++)
            for (int bits = 0; bits < 4; bits++)
                for (uint64_t rows = 16; rows < 600; rows += 83) {
                    struct plan p = {.as = formats[f].type,
                                     .version = formats[f].version,
                                     .rows = rows,
                                     .cols = 128 * (rows % 3 + 1),
                                     .matrices = matrices,
                                     .norm = bits & 1,
                                     .padded = bits & 2,
                                     .content = rows % 2 ? SIGNED : RANDOM};
                    expect(&p, p.as);
                    p.file_type = 41; /* says nothing */
                    expect(&p, p.as);
                }
}

static void file_end_and_gaps(void **state)
{
    (void)state;
    for (size_t f = 0; f < BN_ARRAY_LEN(formats); f++) {
        struct plan p = {.as = formats[f].type,
                         .version = formats[f].version,
                         .rows = 64,
                         .cols = 256,
                         .matrices = 2,
                         .trailing = 100};
        expect(&p, p.as); /* the first matrix decides */
        p.matrices = 1;
        expect(&p, p.as); /* its scales decide */
        p.trailing = 0;
        p.matrices = 3;
        p.gap = 96;
        expect(&p, p.as);
    }
    struct plan narrow = {.as = BN_Q2_0, .rows = 64, .cols = 192, .matrices = 1, .gap = 64};
    expect(&narrow, BN_Q2_0); /* 128 does not divide it */
}

/* Small ones fit both sizes; their scales may tell. */
static void small_matrices(void **state)
{
    (void)state;
    for (size_t f = 0; f < 3; f++) {
        struct plan p = {.as = formats[f].type,
                         .version = formats[f].version,
                         .rows = 15,
                         .cols = 128,
                         .matrices = 1,
                         .norm = true};
        expect(&p, p.as);
    }
    struct plan zeros = {.as = BN_Q2_0, .rows = 1, .cols = 128, .matrices = 2, .content = ZEROS};
    refuse(&zeros,
           "'q0' of type 42 can be 64 weights in 18 bytes (36 in all) or 128 in 34 (34): its "
           "room of 64 bytes fits both, and its scales do not tell");
    zeros.rows = 512; /* sizes decide, zeros contradict nothing */
    expect(&zeros, BN_Q2_0);
    zeros.as = BN_Q2_0_128;
    expect(&zeros, BN_Q2_0_128);
}

static void refusals(void **state)
{
    (void)state;
    struct plan p = {.as = BN_TQ2_0_128, .rows = 64, .cols = 256, .matrices = 2, .padded = true};
    refuse(&p, "metadata do not name TQ2_0_G128"); /* the mark is missing */
    p.as = BN_Q2_0_128;
    p.version = "TQ2_0_G128"; /* it is wrong */
    refuse(&p, "metadata name TQ2_0_G128, which has the scale behind the codes; of 256 blocks");
    p.version = "Q2_0"; /* means nothing */
    expect(&p, BN_Q2_0_128);
    p.version = "TQ2_0_G128";
    p.as = BN_Q2_0;
    refuse(&p, "metadata name TQ2_0_G128, 128 weights in 34 bytes, but the room of 4608 bytes of "
               "tensor 'q0' fits only 64 in 18");
    p.version = NULL;
    p.last = BN_Q2_0_128; /* one of each */
    refuse(&p, "tensor 'q0' (room of 4608 bytes) fits only 64 weights in 18 bytes and 'q1' (4352)");
    p.last = 0;
    p.content = GARBAGE; /* scales that are none */
    expect(&p, BN_Q2_0);
    p.as = BN_Q2_0_128;
    refuse(&p, "of 256 blocks looked at, 0 have a plausible scale before the codes");
    p.content = ZEROS; /* bytes behind it, so that neither fits */
    p.matrices = 1;
    p.trailing = 400;
    refuse(&p, "its room of 4752 bytes fits neither");
}

/* cut short: what is missing is said, or that nothing fits */
static void cut_files(void **state)
{
    (void)state;
    struct bn_buf b;
    struct bn_source s;
    bitnet_error err;
    struct bn_rng g = {7};
    struct plan p = {.as = BN_Q2_0, .rows = 64, .cols = 256, .matrices = 1};
    bn_buf_init(&b, 1 << 20);
    put_head(&b, 1, 0);
    put_tensor(&b, "q", p.cols, p.rows, 42, 0);
    put_align(&b, 32);
    size_t data = b.len;
    put_matrix(&b, BN_Q2_0, &p, &g);
    for (size_t n = data; n < b.len; n++) {
        assert_int_equal(bn_source_open_memory(&s, b.data, n, "q.gguf", &err), BITNET_E_FORMAT);
        assert_non_null(strstr(err.text, "'q'"));
    }
    assert_int_equal(bn_source_open_memory(&s, b.data, b.len, "q.gguf", &err), BITNET_OK);
    bn_source_close(&s);
    bn_buf_free(&b);
}

static void another_143(void **state)
{
    (void)state;
    for (int large = 0; large < 2; large++) {
        struct bn_buf b;
        struct bn_source s;
        bitnet_error err = {0};
        bn_buf_init(&b, 1 << 20);
        uint64_t bytes = bn_align_up(large ? 64 * 136 : 64 * 28, 32);
        put_head(&b, 2, 0);
        put_tensor(&b, "q", 128, 64, 143, 0);
        put_tensor(&b, "n", 8, 1, 0, bytes);
        put_align(&b, 32);
        put_zeros(&b, bytes + 32);
        bitnet_status st = bn_source_open_memory(&s, b.data, b.len, "q.gguf", &err);
        assert_int_equal(st, large ? BITNET_E_FORMAT : BITNET_OK);
        if (large) assert_non_null(strstr(err.text, "another format of the same number"));
        else bn_source_close(&s);
        bn_buf_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_recognised), cmocka_unit_test(file_end_and_gaps),
        cmocka_unit_test(small_matrices),     cmocka_unit_test(refusals),
        cmocka_unit_test(cut_files),          cmocka_unit_test(another_143),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
