/* SPDX-License-Identifier: Apache-2.0
 * Signs of health: repetition of known texts, entropy of known codes, activity beside what the layers'
 * lists count, logits that are not finite, and one flipped bit of each matrix found and named. */
#include "engine_common.h"

#include "api/api.h"
#include "base/rng.h"
#include "engine/engine_impl.h"
#include "model/weights/scrub.h"
#include <math.h>

static bitnet_health health_of(const bitnet_engine *e)
{
    bitnet_health h = {.size = sizeof h};
    bitnet_engine_health(e, &h);
    return h;
}

static bitnet_scrub scrub(bitnet_engine *e, uint64_t bytes)
{
    bitnet_scrub s = {.size = sizeof s};
    bitnet_error err = {0};
    if (bitnet_engine_scrub(e, bytes, &s, &err)) fail_msg("%s", err.text);
    return s;
}

/* ------------------------------------------------------------------ repetition */

static double score(const int32_t *t, uint32_t n)
{
    struct bn_repetition r;
    assert_int_equal(bn_repetition_open(&r, n, NULL), BITNET_OK);
    for (uint32_t i = 1; i <= n; i++) bn_repetition_push(&r, t, i);
    double s = bn_repetition_score(&r);
    bn_repetition_close(&r);
    return s;
}

/* By comparing all with all. */
static double slow_score(const int32_t *t, uint32_t n)
{
    uint32_t repeated = 0;
    for (uint32_t i = 0; i + 3 <= n; i++)
        for (uint32_t k = 0; k < i; k++)
            if (memcmp(t + i, t + k, 3 * sizeof *t) == 0) {
                repeated++;
                break;
            }
    return n < 3 ? 0 : (double)repeated / (n - 2);
}

static void test_repetition(void **state)
{
    (void)state;
    const int32_t known[] = {1, 2, 3, 1, 2, 3, 1}, same[] = {5, 5, 5, 5, 5, 5};
    assert_true(score(known, 0) == 0 && score(known, 2) == 0 && score(known, 5) == 0);
    assert_true(score(known, 7) == 2.0 / 5);
    assert_true(score(same, 6) == 3.0 / 4);
    struct bn_rng rng = {1};
    int32_t t[600];
    for (uint32_t vocab = 1; vocab < 40; vocab++) {
        for (size_t i = 0; i < 600; i++) t[i] = (int32_t)bn_rng_below(&rng, vocab);
        for (uint32_t n = 0; n <= 600; n += 75) assert_true(score(t, n) == slow_score(t, n));
    }
}

/* Events say it, and the running mean is theirs. */
static void test_repetition_of_answers(void **state)
{
    (void)state;
    bitnet_engine_options o = {.size = sizeof o};
    o.ctx_tokens = 128;
    bitnet_engine *e = open_engine(&o);
    double mean = 0;
    for (int k = 1; k <= 3; k++) {
        int32_t prompt[4] = {1, 2 * k, 3, 4}, answer[64];
        bitnet_request r;
        bitnet_request_init(&r, sizeof r);
        r.tokens = prompt;
        r.n_tokens = 4;
        r.max_new_tokens = 64;
        r.ignore_end = 1;
        r.sampling.temperature = 0;
        submit(e, &r);
        uint32_t n = 0;
        bitnet_event ev[8] = {{.size = sizeof *ev}};
        for (size_t n_ev = 8; bitnet_step(e, ev, &n_ev, NULL) == BITNET_OK && n_ev; n_ev = 8)
            for (size_t i = 0; i < n_ev; i++) {
                if (ev[i].token >= 0) answer[n++] = ev[i].token;
                assert_true(ev[i].repetition == slow_score(answer, n));
                if (ev[i].finish) mean += (ev[i].repetition - mean) / k;
            }
        assert_int_equal(n, 64);
    }
    bitnet_health h = health_of(e);
    assert_int_equal(h.choices, 3);
    assert_true(fabs(h.repetition - mean) < 1e-12);
    assert_int_equal(h.nonfinite_rows, 0);
    assert_int_equal(h.logit_rows, 3 * 64);
    bitnet_engine_close(e);
}

static void test_nonfinite(void **state)
{
    (void)state;
    struct bn_health h = {0};
    float rows[3][4] = {{0, 1, 2, 3}, {0, -INFINITY, 2, 3}, {0, 1, NAN, INFINITY}};
    assert_true(bn_health_logits(&h, rows[0], 1, 4, false));
    assert_true(bn_health_logits(&h, rows[0], 2, 4, true));
    assert_false(bn_health_logits(&h, rows[0], 3, 4, false));
    assert_int_equal(h.logit_rows, 6);
    assert_int_equal(h.nonfinite_rows, 2);
    assert_false(bn_health_logits(&h, rows[2], 1, 4, true));
    assert_int_equal(h.nonfinite_rows, 3);
}

/* A norm that holds a NaN: the request ends with a reason, and is counted; embeddings say it, too. */
static void test_damaged(void **state)
{
    (void)state;
    bitnet_model *m = NULL;
    bitnet_engine *e = NULL;
    bitnet_engine_options o = {.size = sizeof o};
    o.ctx_tokens = 32;
    assert_int_equal(bitnet_model_open(&m, TEST_MODEL, NULL, NULL), BITNET_OK);
    assert_int_equal(bitnet_engine_open(&e, m, &o, NULL), BITNET_OK);
    ((float *)m->m->out_norm)[5] = NAN;
    int32_t prompt[2] = {1, 2};
    bitnet_request r;
    bitnet_request_init(&r, sizeof r);
    r.tokens = prompt;
    r.n_tokens = 2;
    submit(e, &r);
    bitnet_event ev[4] = {{.size = sizeof *ev}};
    size_t n = 4;
    assert_int_equal(bitnet_step(e, ev, &n, NULL), BITNET_OK);
    assert_int_equal(ev[n - 1].finish, BITNET_FINISH_ERROR);
    assert_non_null(strstr(ev[n - 1].error, "not finite"));
    assert_int_equal(health_of(e).nonfinite_rows, 1);
    float *out = calloc(info.shape.n_embd, sizeof *out);
    bitnet_error err = {0};
    bitnet_embed_input in = {prompt, 2};
    assert_int_equal(bitnet_embed(e, &in, 1, NULL, out, &err), BITNET_E_INTERNAL);
    assert_non_null(strstr(err.text, "input 0 are not finite"));
    free(out);
    bitnet_engine_close(e);
    bitnet_model_close(m);
}

/* ------------------------------------------------------------------ the KV cache */

static void test_entropy(void **state)
{
    (void)state;
    struct bn_code_counts c = {0};
    assert_true(bn_code_entropy(&c) == 0);
    c.code[7] = 5;
    assert_true(bn_code_entropy(&c) == 0);
    c.code[9] = 5;
    assert_true(fabs(bn_code_entropy(&c) - 1) < 1e-12);
    c.code[11] = 10;
    assert_true(fabs(bn_code_entropy(&c) - 1.5) < 1e-12);
    for (size_t i = 0; i < 256; i++) c.code[i] = 3;
    assert_true(fabs(bn_code_entropy(&c) - 8) < 1e-12);
}

static bitnet_kv_health kv_health(const bitnet_engine *e, uint32_t layer)
{
    bitnet_kv_health h = {.size = sizeof h};
    bitnet_error err = {0};
    if (bitnet_engine_kv_health(e, layer, &h, &err)) fail_msg("%s", err.text);
    return h;
}

/* Rows of known values are put in the place of those that were computed. */
static void test_kv(void **state)
{
    (void)state;
    bitnet_engine_options o = {.size = sizeof o};
    o.ctx_tokens = 64;
    o.kv_type_v = BITNET_KV_FP8_E4M3;
    bitnet_engine *e = open_engine(&o);
    bitnet_error err = {0};
    bitnet_kv_health h = {.size = sizeof h};
    assert_int_equal(bitnet_engine_kv_health(e, info.shape.n_layer, &h, &err), BITNET_E_ARG);
    assert_int_equal(kv_health(e, 0).rows, 0);
    int32_t tokens[40];
    for (int32_t i = 0; i < 40; i++) tokens[i] = i + 1;
    assert_int_equal(bitnet_eval(e, 0, tokens, 40, 1, NULL, NULL), BITNET_OK);
    h = kv_health(e, 1);
    assert_int_equal(h.rows, 40);
    assert_true(h.keys.entropy_bits > 4 && h.keys.entropy_bits < 8 && h.keys.max_abs > 0);
    assert_true(h.values.peaks >= 1.0 / info.shape.head_dim && h.values.saturated == 0);

    const struct bn_kernels *k = &e->m->kernels;
    float x[BN_MAX_HEAD_DIM];
    size_t dim = info.shape.head_dim;
    for (uint32_t t = 0; t < 40; t++)
        for (uint32_t head = 0; head < info.shape.n_head_kv; head++) {
            uint32_t page = e->seqs[0].pages[t / BN_ATTN_BLOCK], slot = t % BN_ATTN_BLOCK;
            for (size_t i = 0; i < dim; i++) x[i] = (float[]){-2, 0, 1, 2}[i % 4];
            bn_kv_put_row(bn_kv_side(&e->kv, 1, false), k, bn_kv_head(&e->kv, 1, page, head, false),
                          slot, x);
            for (size_t i = 0; i < dim; i++) x[i] = i % 2 ? 448 : -7;
            bn_kv_put_row(bn_kv_side(&e->kv, 1, true), k, bn_kv_head(&e->kv, 1, page, head, true),
                          slot, x);
        }
    h = kv_health(e, 1);
    assert_true(fabs(h.keys.entropy_bits - 2) < 1e-9 && h.keys.peaks == 0.5);
    assert_true(h.keys.saturated == 0 && h.keys.max_abs == 2);
    assert_true(fabs(h.values.entropy_bits - 1) < 1e-9 && h.values.saturated == 0.5);
    assert_true(h.values.max_abs == 448);
    assert_true(health_of(e).kv_used == 1);
    bitnet_engine_close(e);
}

/* Every type can be looked at: while an answer runs, and afterwards what is kept of it. */
static void test_kv_types(void **state)
{
    (void)state;
    for (int t = BITNET_KV_F16; t <= BITNET_KV_INT2; t++) {
        bitnet_engine_options o = {.size = sizeof o};
        o.ctx_tokens = 128;
        o.kv_type = (bitnet_kv_type)t;
        bitnet_engine *e = open_engine(&o);
        int32_t tokens[70];
        for (int32_t i = 0; i < 70; i++) tokens[i] = i + 1;
        bitnet_request r;
        bitnet_request_init(&r, sizeof r);
        r.tokens = tokens;
        r.n_tokens = 70;
        r.max_new_tokens = 4;
        submit(e, &r);
        bool blocks = t == BITNET_KV_INT4 || t == BITNET_KV_INT2;
        bitnet_event ev[8] = {{.size = sizeof *ev}};
        size_t n = 8;
        assert_int_equal(bitnet_step(e, ev, &n, NULL), BITNET_OK);
        bitnet_kv_health h = kv_health(e, 0);
        assert_int_equal(h.rows, blocks ? 64 : 70);
        assert_true(h.keys.entropy_bits > 1 && h.values.entropy_bits > 1);
        while (n) {
            n = 8;
            assert_int_equal(bitnet_step(e, ev, &n, NULL), BITNET_OK);
        }
        assert_true(kv_health(e, 0).rows >= 64);
        bitnet_engine_close(e);
    }
}

/* ------------------------------------------------------------------ activity */

/* Where every token's gates are listed anyway, a sample cannot be far from them. */
static void test_activity(void **state)
{
    (void)state;
    bitnet_model_options mo = {.size = sizeof mo};
    mo.ffn = "skip";
    bitnet_model *m = NULL;
    assert_int_equal(bitnet_model_open(&m, TEST_MODEL, &mo, NULL), BITNET_OK);
    bitnet_engine_options o = {.size = sizeof o};
    o.ctx_tokens = 512;
    for (int skip = 0; skip < 2; skip++) {
        o.ffn = skip ? "skip" : "dense";
        bitnet_engine *e = NULL;
        assert_int_equal(bitnet_engine_open(&e, m, &o, NULL), BITNET_OK);
        for (int32_t i = 0; i < 320; i++) {
            int32_t token = 5 + i * 7 % 900;
            assert_int_equal(bitnet_eval(e, 0, &token, 1, 1, NULL, NULL), BITNET_OK);
        }
        assert_int_equal(health_of(e).ffn_samples, 20);
        for (uint32_t i = 0; i < info.shape.n_layer; i++) {
            bitnet_ffn_layer y = {.size = sizeof y};
            assert_true(bitnet_engine_ffn_layer(e, i, &y));
            assert_int_equal(y.sampled, 20);
            assert_true(y.sampled_gates > 0.05 && y.sampled_gates < 0.95);
            assert_true(y.sampled_zeros > 1 - y.sampled_gates - 1e-9 && y.sampled_zeros < 1);
            if (!skip) continue;
            assert_true(fabs(y.sampled_gates - y.gates) < 0.05);
            assert_true(fabs(y.sampled_zeros - (1 - y.inputs)) < 0.05);
        }
        bitnet_engine_close(e);
    }
    bitnet_model_close(m);
}

/* ------------------------------------------------------------------ the weights */

static void flip(const void *data, size_t byte, unsigned bit)
{
    ((uint8_t *)data)[byte] ^= (uint8_t)(1u << bit);
}

static void find_flip(bitnet_engine *e, const void *data, size_t byte, unsigned bit,
                      const char *name)
{
    uint64_t before = scrub(e, UINT64_MAX).mismatches;
    flip(data, byte, bit);
    bitnet_scrub s = scrub(e, UINT64_MAX);
    assert_int_equal(s.mismatches, before + 1);
    assert_string_equal(s.tensor, name);
    assert_int_equal(s.offset, byte / BN_SCRUB_BLOCK * BN_SCRUB_BLOCK);
    assert_int_equal(scrub(e, UINT64_MAX).mismatches, before + 1); /* counted once */
    flip(data, byte, bit);
    assert_int_equal(scrub(e, UINT64_MAX).mismatches, before + 2);
    assert_int_equal(health_of(e).scrub_mismatches, before + 2);
}

static void test_scrub(void **state)
{
    (void)state;
    bitnet_model_options mo = {.size = sizeof mo};
    mo.ffn = "skip";
    mo.head = "screened";
    bitnet_model *m = NULL;
    bitnet_engine *e = NULL;
    assert_int_equal(bitnet_model_open(&m, TEST_MODEL, &mo, NULL), BITNET_OK);
    bitnet_engine_options o = {.size = sizeof o};
    o.ctx_tokens = 32;
    assert_int_equal(bitnet_engine_open(&e, m, &o, NULL), BITNET_OK);
    assert_int_equal(health_of(e).scrub_passes, 0);

    const struct bn_layer *y = &m->m->layers[3];
    size_t up = BN_P_UP - BN_P_Q, down = BN_P_DOWN - BN_P_Q;
    size_t last = bn_matrix_bytes(&y->proj[up]) - 1;
    assert_int_equal(scrub(e, UINT64_MAX).passes, 1);
    find_flip(e, y->proj[up].packed.data, 0, 0, "blk.3.ffn_up.weight");
    find_flip(e, y->proj[up].packed.data, last, 7, "blk.3.ffn_up.weight");
    find_flip(e, y->proj[down].packed.data, 70001, 3, "blk.3.ffn_down.weight");
    find_flip(e, y->up_rows.w.data, 5, 1, "blk.3.ffn_up.weight (copy)");
    find_flip(e, y->attn_norm, 17, 6, "blk.3.attn_norm.weight");
    find_flip(e, m->m->screen.coarse.data, 12345, 2, "token_embd.weight (copy)");
    bitnet_engine_close(e);
    bitnet_model_close(m);
}

enum { FLIPS = 10000, AT_A_TIME = 64 };

/* A place in the packed weights or in a copy of them, drawn at random. */
static uint8_t *draw_place(struct bn_rng *rng, const struct bn_model *m, uint64_t *block)
{
    for (;;) {
        uint32_t i = bn_rng_below(rng, m->config.n_layer * (BN_N_PROJ + 2));
        const struct bn_layer *y = &m->layers[i / (BN_N_PROJ + 2)];
        uint32_t k = i % (BN_N_PROJ + 2);
        const struct bn_part_copy *copy = k == BN_N_PROJ ? &y->up_rows : &y->down_cols;
        const void *data = k < BN_N_PROJ ? y->proj[k].packed.data : copy->w.data;
        size_t n = !data ? 0 : k < BN_N_PROJ ? bn_matrix_bytes(&y->proj[k]) : copy->bytes;
        if (!n) continue;
        size_t at = bn_rng_below(rng, (uint32_t)n);
        *block = (uint64_t)i << 32 | at / BN_SCRUB_BLOCK;
        return (uint8_t *)data + at;
    }
}

/* Ten thousand single bits, many at a time but never two in a block: the next pass finds every one. */
static void test_flips(void **state)
{
    (void)state;
    bitnet_model_options mo = {.size = sizeof mo};
    mo.ffn = "skip";
    bitnet_model *m = NULL;
    bitnet_engine *e = NULL;
    assert_int_equal(bitnet_model_open(&m, TEST_MODEL, &mo, NULL), BITNET_OK);
    assert_int_equal(bitnet_engine_open(&e, m, NULL, NULL), BITNET_OK);
    struct bn_rng rng = {.state = 23};
    uint64_t found = 0;
    assert_int_equal(scrub(e, UINT64_MAX).passes, 1);
    for (uint32_t flips = 0; flips < FLIPS;) {
        uint64_t blocks[AT_A_TIME];
        uint8_t *at[AT_A_TIME], bits[AT_A_TIME];
        uint32_t n = 0;
        while (n < AT_A_TIME && flips < FLIPS) {
            bool again = false;
            at[n] = draw_place(&rng, m->m, &blocks[n]);
            for (uint32_t i = 0; i < n; i++) again |= blocks[i] == blocks[n];
            if (again) continue;
            bits[n] = (uint8_t)(1u << bn_rng_below(&rng, 8));
            *at[n] ^= bits[n];
            n++;
            flips++;
        }
        assert_int_equal(scrub(e, UINT64_MAX).mismatches, found + n);
        for (uint32_t i = 0; i < n; i++) *at[i] ^= bits[i];
        found = scrub(e, UINT64_MAX).mismatches; /* that they are back is a change, too */
    }
    assert_int_equal(found, 2 * FLIPS);
    bitnet_engine_close(e);
    bitnet_model_close(m);
}

/* In small steps: never more than allowed, all of it, and the same end. */
static void test_scrub_steps(void **state)
{
    (void)state;
    bitnet_engine_options o = {.size = sizeof o};
    o.ctx_tokens = 32;
    bitnet_engine *e = open_engine(&o);
    uint64_t done = 0, steps = 0;
    bitnet_scrub s = scrub(e, 1), total = s;
    assert_true(s.pass_bytes > 0 && s.pass_bytes <= BN_SCRUB_BLOCK);
    while (s.passes == 0) {
        done = s.pass_bytes;
        s = scrub(e, 200000);
        if (s.passes == 0) assert_true(s.pass_bytes > done && s.pass_bytes - done <= 200000);
        steps++;
    }
    assert_true(steps >= total.total_bytes / 200000 && s.pass_bytes == 0);
    assert_true(total.total_bytes > info.memory.packed_bytes);
    assert_string_equal(s.tensor, "");
    s = scrub(e, UINT64_MAX);
    assert_true(s.passes == 2 && s.mismatches == 0);
    bitnet_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repetition), cmocka_unit_test(test_repetition_of_answers),
        cmocka_unit_test(test_nonfinite),  cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_entropy),    cmocka_unit_test(test_kv),
        cmocka_unit_test(test_kv_types),   cmocka_unit_test(test_activity),
        cmocka_unit_test(test_scrub),      cmocka_unit_test(test_flips),
        cmocka_unit_test(test_scrub_steps)};
    return cmocka_run_group_tests(tests, open_model, close_model);
}
