/* SPDX-License-Identifier: Apache-2.0
 * Embeddings: the same bits alone, with batch neighbours, in any cut and with any number of threads; pooling and
 * length; beside the logits of the same model; and that they leave nothing behind. */
#include "engine_common.h"

#include "api/api.h"
#include "effort.h"
#include <math.h>

enum { N = 9, LONGEST = 90 };

static int32_t tokens[N][LONGEST];
static bitnet_embed_input inputs[N];

static void make_inputs(void)
{
    uint32_t x = 1;
    for (size_t i = 0; i < N; i++) {
        size_t n = i == 0 ? 1 : i == 1 ? LONGEST : 5 + 7 * i;
        for (size_t k = 0; k < n; k++) {
            x = x * 1664525 + 1013904223;
            tokens[i][k] = (int32_t)((x >> 8) % info.shape.n_vocab);
        }
        inputs[i] = (bitnet_embed_input){tokens[i], n};
    }
}

static bitnet_engine *engine(uint32_t threads, uint32_t max_seqs, uint32_t batch, bitnet_kv_type kv)
{
    bitnet_engine_options o = {.size = sizeof o};
    o.threads = threads;
    o.max_seqs = max_seqs;
    o.max_batch_tokens = batch;
    o.ctx_tokens = 128;
    o.kv_type = kv;
    return open_engine(&o);
}

static float *embed(bitnet_engine *e, size_t first, size_t n, bitnet_pooling pooling, bool raw)
{
    bitnet_embed_options o = {.size = sizeof o};
    bitnet_error err = {0};
    o.pooling = pooling;
    o.normalize = raw ? "off" : "auto";
    float *out = calloc(n * info.shape.n_embd, sizeof *out);
    assert_non_null(out);
    if (bitnet_embed(e, inputs + first, n, &o, out, &err)) fail_msg("%s", err.text);
    return out;
}

static void check_neighbours(bitnet_kv_type kv)
{
    static const struct {
        uint32_t threads, seqs, batch;
    } ways[] = {{1, 1, 512}, {2, 4, 512}, {3, 9, 7}, {2, 2, 64}, {1, 9, 9}, {2, 1, 1}, {2, 1, 7}};
    size_t bytes = info.shape.n_embd * sizeof(float);
    for (int pooling = 0; pooling < 2; pooling++) {
        bitnet_engine *alone = engine(1, 1, 512, kv);
        float *one[N];
        for (size_t i = 0; i < N; i++) one[i] = embed(alone, i, 1, (bitnet_pooling)pooling, false);
        bitnet_engine_close(alone);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            /* with less effort by turns */
            if (!full_effort() && (w + (size_t)pooling + (kv != BITNET_KV_F16)) % 3) continue;
            bitnet_engine *e = engine(ways[w].threads, ways[w].seqs, ways[w].batch, kv);
            float *all = embed(e, 0, N, (bitnet_pooling)pooling, false);
            for (size_t i = 0; i < N; i++)
                assert_memory_equal(all + i * info.shape.n_embd, one[i], bytes);
            assert_int_equal(engine_info(e).kv.pages_free, engine_info(e).kv.pages);
            free(all);
            bitnet_engine_close(e);
        }
        for (size_t i = 0; i < N; i++) free(one[i]);
    }
}

static void test_neighbours(void **state)
{
    (void)state;
    check_neighbours(BITNET_KV_F16);
    check_neighbours(BITNET_KV_INT4); /* pages that are encoded as a whole */
}

static void test_length(void **state)
{
    (void)state;
    bitnet_engine *e = engine(2, 4, 64, BITNET_KV_F16);
    for (int pooling = 0; pooling < 2; pooling++) {
        float *unit = embed(e, 0, N, (bitnet_pooling)pooling, false);
        float *raw = embed(e, 0, N, (bitnet_pooling)pooling, true);
        for (size_t i = 0; i < N; i++) {
            double squares = 0, raw_squares = 0;
            for (size_t k = i * info.shape.n_embd; k < (i + 1) * info.shape.n_embd; k++) {
                squares += (double)unit[k] * (double)unit[k];
                raw_squares += (double)raw[k] * (double)raw[k];
            }
            assert_true(fabs(squares - 1) < 1e-6);
            for (size_t k = i * info.shape.n_embd; k < (i + 1) * info.shape.n_embd; k++)
                assert_true(fabs((double)raw[k] / sqrt(raw_squares) - (double)unit[k]) < 1e-7);
        }
        free(unit);
        free(raw);
    }
    bitnet_engine_close(e);
}

/* Every token for itself: the last one is that of BITNET_POOL_LAST, their mean that of BITNET_POOL_MEAN, in any cut. */
static void test_every_token(void **state)
{
    (void)state;
    size_t n_embd = info.shape.n_embd, n_rows = 0;
    for (size_t i = 0; i < N; i++) n_rows += inputs[i].n_tokens;
    bitnet_engine *alone = engine(1, 1, 512, BITNET_KV_F16), *cut = engine(2, 4, 7, BITNET_KV_F16);
    bitnet_embed_options o = {.size = sizeof o, .normalize = "off", .pooling = BITNET_POOL_NONE};
    float *rows = calloc(n_rows * n_embd, sizeof *rows),
          *other = calloc(n_rows * n_embd, sizeof *other);
    assert_non_null(rows);
    assert_non_null(other);
    assert_int_equal(bitnet_embed(alone, inputs, N, &o, rows, NULL), BITNET_OK);
    assert_int_equal(bitnet_embed(cut, inputs, N, &o, other, NULL), BITNET_OK);
    assert_memory_equal(rows, other, n_rows * n_embd * sizeof *rows);
    float *last = embed(alone, 0, N, BITNET_POOL_LAST, true),
          *mean = embed(alone, 0, N, BITNET_POOL_MEAN, true);
    const float *at = rows;
    for (size_t i = 0; i < N; i++) {
        size_t n = inputs[i].n_tokens;
        assert_memory_equal(at + (n - 1) * n_embd, last + i * n_embd, n_embd * sizeof *at);
        for (size_t k = 0; k < n_embd; k++) {
            double sum = 0;
            for (size_t t = 0; t < n; t++) sum += (double)at[t * n_embd + k];
            assert_true((float)(sum / (double)n) == mean[i * n_embd + k]);
        }
        at += n * n_embd;
    }
    free(rows);
    free(other);
    free(last);
    free(mean);
    bitnet_engine_close(alone);
    bitnet_engine_close(cut);
}

/* The head's products with the last state are the logits; and the mean is that of last states. */
static void test_against_logits(void **state)
{
    (void)state;
    const struct bn_model *m = model->m;
    bitnet_engine *e = engine(2, 2, 64, BITNET_KV_F16);
    float *last = embed(e, 2, 1, BITNET_POOL_LAST, true);
    float *mean = embed(e, 2, 1, BITNET_POOL_MEAN, true);
    size_t n = inputs[2].n_tokens, n_embd = info.shape.n_embd;
    float *logits = calloc(info.shape.n_vocab, sizeof *logits), *row = calloc(n_embd, sizeof *row);
    double *sum = calloc(n_embd, sizeof *sum);
    assert_non_null(logits);
    assert_non_null(row);
    assert_non_null(sum);
    assert_int_equal(bitnet_eval(e, 0, inputs[2].tokens, n, 1, logits, NULL), BITNET_OK);
    for (uint32_t v = 0; v < info.shape.n_vocab; v += 97) {
        double y = 0;
        bn_stored_row(&m->kernels, row, &m->head.stored, v);
        for (size_t k = 0; k < n_embd; k++) y += (double)row[k] * (double)last[k];
        assert_true(fabs(y - (double)logits[v]) < 1e-4 * (1 + fabs(y)));
    }
    for (size_t i = 1; i <= n; i++) { /* beginnings of the text, each by its last state */
        bitnet_embed_input part = {inputs[2].tokens, i};
        bitnet_embed_options o = {
            .size = sizeof o, .pooling = BITNET_POOL_LAST, .normalize = "off"};
        assert_int_equal(bitnet_embed(e, &part, 1, &o, row, NULL), BITNET_OK);
        for (size_t k = 0; k < n_embd; k++) sum[k] += (double)row[k];
    }
    for (size_t k = 0; k < n_embd; k++) assert_true((float)(sum[k] / (double)n) == mean[k]);
    free(last);
    free(mean);
    free(logits);
    free(row);
    free(sum);
    bitnet_engine_close(e);
}

static void expect(bitnet_engine *e, const bitnet_embed_input *in, size_t n, bitnet_status status,
                   const char *says)
{
    bitnet_error err = {0};
    float *out = calloc(n * info.shape.n_embd, sizeof *out);
    assert_non_null(out);
    assert_int_equal(bitnet_embed(e, in, n, NULL, out, &err), status);
    if (!strstr(err.text, says)) fail_msg("'%s' does not say '%s'", err.text, says);
    free(out);
}

static void test_refused(void **state)
{
    (void)state;
    bitnet_engine *e = engine(2, 2, 64, BITNET_KV_F16);
    int32_t bad[2] = {1, (int32_t)info.shape.n_vocab}, many[129] = {0};
    expect(e, (bitnet_embed_input[]){{bad, 0}}, 1, BITNET_E_ARG, "input 0 has no tokens");
    expect(e, (bitnet_embed_input[]){{bad, 1}, {bad, 2}}, 2, BITNET_E_ARG, "token 1 is");
    expect(e, (bitnet_embed_input[]){{bad, 1}, {many, 129}}, 2, BITNET_E_LIMIT,
           "input 1 has 129 tokens");
    for (uint32_t s = 0; s < 2; s++) /* all sequences but that of the call */
        assert_int_equal(bitnet_eval(e, s, tokens[1], 40, 1, NULL, NULL), BITNET_OK);
    expect(e, inputs, N, BITNET_OK, "");
    for (uint32_t s = 0; s < 2; s++) /* all pages */
        assert_int_equal(bitnet_eval(e, s, many, 88, 1, NULL, NULL), BITNET_OK);
    expect(e, inputs, 1, BITNET_E_STATE, "bitnet_eval_reset frees them");
    assert_int_equal(bitnet_eval_reset(e, 1, NULL), BITNET_OK);
    expect(e, inputs, 1, BITNET_OK, "");
    bitnet_engine_close(e);
}

/* Sequences in use are left alone. */
static void test_beside_eval(void **state)
{
    (void)state;
    bitnet_engine *e = engine(2, 2, 64, BITNET_KV_F16);
    float *before = embed(e, 0, N, BITNET_POOL_MEAN, false);
    float *a = calloc(info.shape.n_vocab, sizeof *a), *b = calloc(info.shape.n_vocab, sizeof *b);
    assert_non_null(a);
    assert_non_null(b);
    for (uint32_t s = 0; s < 2; s++) {
        assert_int_equal(bitnet_eval_reset(e, 1, NULL), BITNET_OK);
        assert_int_equal(bitnet_eval(e, 1, tokens[1], 40, 1, NULL, NULL), BITNET_OK);
        if (s) {
            float *after = embed(e, 0, N, BITNET_POOL_MEAN, false);
            assert_memory_equal(before, after, N * info.shape.n_embd * sizeof *before);
            free(after);
        }
        assert_int_equal(bitnet_eval(e, 1, tokens[1] + 40, 1, 1, s ? b : a, NULL), BITNET_OK);
    }
    assert_memory_equal(a, b, info.shape.n_vocab * sizeof *a);
    free(before);
    free(a);
    free(b);
    bitnet_engine_close(e);
}

/* So are requests on their way. */
static void test_beside_requests(void **state)
{
    (void)state;
    static struct choice answers[2];
    bitnet_engine *e = engine(2, 1, 64, BITNET_KV_F16); /* the request has its one sequence */
    float *before = embed(e, 4, 2, BITNET_POOL_MEAN, false);
    for (int with = 0; with < 2; with++) {
        bitnet_request r;
        bitnet_request_init(&r, sizeof r);
        r.tokens = tokens[3];
        r.n_tokens = 20;
        r.max_new_tokens = 30;
        r.sampling.seed = 7;
        struct ask ask = {submit(e, &r), 1, &answers[with]};
        while (step(e, &ask, 1, 8)) {
            if (!with) continue;
            float *again = embed(e, 4, 2, BITNET_POOL_MEAN, false);
            assert_memory_equal(again, before, 2 * info.shape.n_embd * sizeof *again);
            free(again);
        }
    }
    assert_memory_equal(&answers[0], &answers[1], sizeof answers[0]);
    free(before);
    bitnet_engine_close(e);
}

static int setup(void **state)
{
    int r = open_model(state);
    if (r == 0) make_inputs();
    return r;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_neighbours),     cmocka_unit_test(test_length),
        cmocka_unit_test(test_every_token),    cmocka_unit_test(test_against_logits),
        cmocka_unit_test(test_refused),        cmocka_unit_test(test_beside_eval),
        cmocka_unit_test(test_beside_requests)};
    return cmocka_run_group_tests(tests, setup, close_model);
}
