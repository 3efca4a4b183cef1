/* SPDX-License-Identifier: Apache-2.0
 * Feed-forward layers without their zeros: the same logits as the dense pass, bit for bit, on the
 * small model and on a random one, with any number of threads; the activations of a layer beside
 * those of the dense kernels with gates of every kind; that a zero's sign ends at the quantiser; and
 * when "auto" looks and skips.
 *
 * FFN_STEPS in the environment sets the number of tokens that are compared (300). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bitnet/bitnet.h>
#include <cmocka.h>

#include "api/api.h"
#include "base/rng.h"
#include "model/ffn/ffn.h"

enum { STEPS = 300, CTX = 256 };

static bitnet_model *open_with(const char *path, const char *ffn, const char *layout)
{
    bitnet_model_options o = {.size = sizeof o};
    bitnet_error err = {0};
    bitnet_model *m = NULL;
    o.ffn = ffn;
    o.layout = layout;
    if (bitnet_model_open(&m, path, &o, &err)) fail_msg("%s", err.text);
    return m;
}

static bitnet_engine *engine_with(const bitnet_model *m, const char *ffn, uint32_t threads)
{
    bitnet_engine_options o = {.size = sizeof o};
    bitnet_error err = {0};
    bitnet_engine *e = NULL;
    o.threads = threads;
    o.ctx_tokens = CTX;
    o.max_seqs = 2;
    o.ffn = ffn;
    if (bitnet_engine_open(&e, m, &o, &err)) fail_msg("%s", err.text);
    return e;
}

static uint32_t n_vocab(const bitnet_model *m)
{
    bitnet_model_info i = {.size = sizeof i};
    bitnet_model_get_info(m, &i);
    return i.shape.n_vocab;
}

static bitnet_engine_info info_of(const bitnet_engine *e)
{
    bitnet_engine_info i = {.size = sizeof i};
    bitnet_engine_get_info(e, &i);
    return i;
}

static void next(bitnet_engine *e, int32_t token, float *logits)
{
    bitnet_error err = {0};
    if (bitnet_eval(e, 0, &token, 1, 1, logits, &err)) fail_msg("%s", err.text);
}

static int32_t best_of(const float *x, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return (int32_t)best;
}

/* Both engines walk along the dense one's greedy text. */
static void same_logits(bitnet_engine *dense, bitnet_engine *other, uint32_t vocab, uint32_t steps)
{
    bitnet_error err = {0};
    float *a = calloc(vocab, sizeof *a), *b = calloc(vocab, sizeof *b);
    struct bn_rng rng = {steps};
    int32_t token = 0;
    for (uint32_t i = 0; i < steps; i++) {
        if (i % CTX == 0) { /* another text */
            token = (int32_t)bn_rng_below(&rng, vocab);
            assert_int_equal(bitnet_eval_reset(dense, 0, &err), BITNET_OK);
            assert_int_equal(bitnet_eval_reset(other, 0, &err), BITNET_OK);
        }
        next(dense, token, a);
        next(other, token, b);
        assert_memory_equal(a, b, vocab * sizeof *a);
        token = i % 7 ? best_of(a, vocab) : (int32_t)bn_rng_below(&rng, vocab);
    }
    free(a);
    free(b);
}

static void compare(const char *path, const char *layout, uint32_t threads, uint32_t steps)
{
    bitnet_model *m = open_with(path, "skip", layout);
    bitnet_engine *dense = engine_with(m, "dense", 1), *skip = engine_with(m, "skip", threads);
    same_logits(dense, skip, n_vocab(m), steps);
    bitnet_engine_info d = info_of(dense), s = info_of(skip);
    assert_string_equal(d.ffn.type, "dense");
    assert_string_equal(s.ffn.type, "skip");
    assert_int_equal(d.ffn.tokens, 0);
    assert_int_equal(s.ffn.tokens, steps);
    bitnet_ffn_layer y = {.size = sizeof y};
    uint32_t layers = 0;
    for (; bitnet_engine_ffn_layer(skip, layers, &y); layers++) {
        assert_int_equal(y.up_skipped, steps);
        assert_int_equal(y.down_skipped, steps);
        assert_true(y.inputs > 0 && y.inputs < y.gates && y.gates < 1);
    }
    assert_int_equal(s.ffn.up_skipped, (uint64_t)layers * steps);
    assert_int_equal(s.ffn.down_skipped, (uint64_t)layers * steps);
    assert_true(s.ffn.read_bytes < s.ffn.dense_bytes);
    bitnet_engine_close(dense);
    bitnet_engine_close(skip);
    bitnet_model_close(m);
}

static void test_small_model(void **state)
{
    (void)state;
    static const char *const layouts[] = {"t2", "t3", "t5"};
    const char *s = getenv("FFN_STEPS");
    uint32_t steps = s ? (uint32_t)strtoul(s, NULL, 10) : STEPS;
    for (uint32_t threads = 1; threads <= 3; threads++)
        compare(TEST_MODEL, layouts[threads - 1], threads, steps);
    compare(TEST_MODEL, "t2", 11, steps / 10); /* more threads than pieces of rows */
}

#if BN_HAVE_TEXT
static void test_random_model(void **state)
{
    (void)state;
    char path[] = "/tmp/bitnet-ffn-test-XXXXXX.gguf";
    bitnet_error err = {0};
    bitnet_synth_options o = {.size = sizeof o};
    o.overwrite = 1;
    o.seed = 9;
    int fd = mkstemps(path, 5);
    assert_true(fd >= 0);
    for (int way = 0; way < 3; way++) {
        o.ffn_density = way == 0 ? NULL : way == 1 ? "0.3:0.1,0.1:0.05" : "trained";
        if (bitnet_synth("tiny", path, &o, &err)) fail_msg("%s", err.text);
        for (uint32_t threads = 1; threads <= 3; threads++) compare(path, "t2", threads, 60);
    }
    o.ffn_density = "0.3:0.1;0.2:0.1";
    assert_int_equal(bitnet_synth("tiny", path, &o, &err), BITNET_E_ARG);
    o.ffn_density = "0.6:0.1";
    assert_int_equal(bitnet_synth("tiny", path, &o, &err), BITNET_E_ARG);
    o.ffn_density = "trained";
    assert_int_equal(bitnet_synth("falcon-e-1b", path, &o, &err), BITNET_E_ARG);
    fclose(fdopen(fd, "r"));
    remove(path);
}
#endif

/* ---- one layer ---- */

struct step {
    struct bn_ffn *ffn;
    struct bn_pool *pool;
    float *act;
    const float *gate;
    const int8_t *q;
    int32_t sum;
    float inv;
    bool done[3];
};

static void run_up(void *arg, uint32_t worker)
{
    struct step *s = arg;
    s->done[worker] = bn_ffn_up(s->ffn, 0, s->act, s->gate, s->q, s->sum, s->inv, worker);
}

/* share: of open gates, in per cent; special: some are NaN, infinite or zeros */
static void check_up(const struct bn_model *m, uint32_t threads, uint32_t share, bool special)
{
    const struct bn_config *c = &m->config;
    const struct bn_matrix *up = &m->layers[0].proj[BN_P_UP - BN_P_Q];
    size_t n = c->n_ff, padded = bn_align_up(c->n_embd, BN_K_ALIGN);
    float *gate = calloc(n, sizeof *gate), *want = calloc(n, sizeof *want);
    float *act = calloc(n, sizeof *act), *x = calloc(n, sizeof *x);
    int8_t *q = calloc(padded, 1);
    struct bn_rng rng = {share + special};
    bitnet_error err = {0};
    struct step s = {.act = act, .gate = gate, .q = q};
    for (size_t i = 0; i < c->n_embd; i++) x[i] = (float)bn_rng_unit(&rng) - 0.5f;
    s.inv = m->kernels.quant_i8(q, &s.sum, x, c->n_embd);
    for (size_t i = 0; i < n; i++) {
        static const float odd[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-30f};
        gate[i] = (float)bn_rng_unit(&rng) + 0.01f;
        if (bn_rng_below(&rng, 100) >= share) gate[i] = -gate[i];
        if (special && bn_rng_below(&rng, 9) == 0) gate[i] = odd[bn_rng_below(&rng, 6)];
        act[i] = 77;
    }
    const struct bn_gemm_args product = {
        .y = want, .y_stride = n, .w = &up->packed, .r1 = n, .n_tok = 1};
    const struct bn_q8 bytes = {q, padded, &s.sum, &s.inv};
    up->gemm->mul_i8(&product, &bytes);
    m->kernels.relu2_mul(want, gate, want, n);
    assert_int_equal(bn_pool_open(&s.pool, threads, &err), BITNET_OK);
    assert_int_equal(bn_ffn_open(&s.ffn, m, s.pool, BN_FFN_SKIP, NULL, NULL, &err), BITNET_OK);
    bn_ffn_begin(s.ffn, 1, false);
    assert_true(bn_ffn_wants_up(s.ffn, 0));
    bn_pool_run(s.pool, run_up, &s);
    for (uint32_t i = 0; i < threads; i++) assert_true(s.done[i]);
    for (size_t i = 0; i < n; i++) {
        bool nan = isnan(want[i]);
        assert_true(nan ? isnan(act[i]) : act[i] == want[i]); /* +0 == -0 */
        if (!nan && want[i] != 0) assert_memory_equal(&act[i], &want[i], sizeof want[i]);
    }
    /* a factor that could make `up` infinite: 0 * infinity would be a NaN in the dense pass */
    s.inv = 1e38f;
    bn_pool_run(s.pool, run_up, &s);
    for (uint32_t i = 0; i < threads; i++) assert_false(s.done[i]);
    bn_ffn_close(s.ffn);
    bn_pool_close(s.pool);
    free(gate);
    free(want);
    free(act);
    free(x);
    free(q);
}

static void test_gates(void **state)
{
    (void)state;
    bitnet_model *m = open_with(TEST_MODEL, "skip", NULL);
    static const uint32_t shares[] = {0, 1, 30, 99, 100};
    for (uint32_t threads = 1; threads <= 3; threads++)
        for (size_t i = 0; i < BN_ARRAY_LEN(shares); i++)
            for (int special = 0; special < 2; special++)
                check_up(m->m, threads, shares[i], special);
    bitnet_model_close(m);
}

/* What the dense pass gives for a closed gate is +0 or -0, here it is +0: after norm and quantiser
 * nobody can tell. */
static void test_sign_of_zero(void **state)
{
    (void)state;
    enum { N = 1000, PADDED = 1024 };
    struct bn_kernels k = bn_kernels_select(bn_cpu_detect());
    float a[N], b[N], g[N];
    int8_t qa[PADDED], qb[PADDED];
    int32_t sum_a, sum_b;
    struct bn_rng rng = {4};
    for (int way = 0; way < 8; way++) {
        for (size_t i = 0; i < N; i++) {
            bool zero = bn_rng_below(&rng, 3) || way == 7; /* at last all of them */
            a[i] = zero ? 0.0f : (float)bn_rng_unit(&rng) - 0.5f;
            b[i] = zero ? -0.0f : a[i];
            g[i] = way % 2 ? 1.0f : (float)bn_rng_unit(&rng) - 0.5f;
            if (way == 2 && i % 50 == 0) g[i] = 0;
        }
        if (way == 4) a[17] = b[17] = INFINITY; /* the sum is infinite, the factor 0 */
        if (way == 5) a[17] = b[17] = NAN;
        if (way == 6) a[17] = b[17] = 1e30f; /* the squares overflow */
        if (way != 3) {                      /* without a norm as well */
            k.rmsnorm(a, a, g, N, 1e-5f);
            k.rmsnorm(b, b, g, N, 1e-5f);
        }
        float inv_a = k.quant_i8(qa, &sum_a, a, N), inv_b = k.quant_i8(qb, &sum_b, b, N);
        assert_memory_equal(qa, qb, PADDED);
        assert_memory_equal(&inv_a, &inv_b, sizeof inv_a);
        assert_int_equal(sum_a, sum_b);
    }
}

/* ---- decisions ---- */

static void test_modes(void **state)
{
    (void)state;
    bitnet_error err = {0};
    bitnet_model *m = open_with(TEST_MODEL, "dense", NULL);
    bitnet_model_info i = {.size = sizeof i};
    bitnet_model_get_info(m, &i);
    uint64_t layers = i.memory.layer_bytes;
    assert_int_equal(i.memory.ffn_copy_bytes, 0);
    bitnet_engine *e = engine_with(m, "skip", 1); /* no copies, nothing to skip */
    assert_string_equal(info_of(e).ffn.type, "dense");
    bitnet_engine_close(e);
    bitnet_engine_options o = {.size = sizeof o};
    o.ffn = "sparse";
    assert_int_equal(bitnet_engine_open(&e, m, &o, &err), BITNET_E_ARG);
    bitnet_model_close(m);

    m = open_with(TEST_MODEL, "skip", NULL);
    bitnet_model_get_info(m, &i);
    assert_true(i.memory.ffn_copy_bytes > 0 && i.memory.ffn_copy_bytes < layers);
    assert_int_equal(i.memory.layer_bytes, layers);
    e = engine_with(m, "auto", 2);
    float *logits = calloc(i.shape.n_vocab, sizeof *logits);
    int32_t token = 0;
    for (int t = 0; t < 64; t++) {
        next(e, token, logits);
        token = best_of(logits, i.shape.n_vocab);
    }
    int32_t many[5] = {1, 2, 3, 4, 5};
    if (bitnet_eval(e, 1, many, 5, 1, logits, &err)) fail_msg("%s", err.text);
    bitnet_engine_info n = info_of(e);
    assert_string_equal(n.ffn.type, "auto");
    assert_int_equal(n.ffn.tokens, 64); /* several tokens at once are not counted, nor skipped */
    /* layers that open more gates than pay are dense, and looked at now and then */
    bitnet_ffn_layer first = {.size = sizeof first}, last = first;
    assert_true(bitnet_engine_ffn_layer(e, 0, &first));
    assert_true(bitnet_engine_ffn_layer(e, i.shape.n_layer - 1, &last));
    assert_false(bitnet_engine_ffn_layer(e, i.shape.n_layer, &last));
    assert_int_equal(first.up_seen, 64);
    assert_true(first.up_skipped > 32 && first.up_skipped <= 64);
    assert_true(last.up_seen >= 2 && last.up_skipped < last.up_seen);
    assert_int_equal(last.down_skipped, 64);
    free(logits);
    bitnet_engine_close(e);
    bitnet_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_model),
#if BN_HAVE_TEXT
        cmocka_unit_test(test_random_model),
#endif
        cmocka_unit_test(test_gates),
        cmocka_unit_test(test_sign_of_zero),
        cmocka_unit_test(test_modes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
