/* SPDX-License-Identifier: Apache-2.0
 * The int8 head on the small model: how far its logits may lie from the exact ones, and that they
 * are the same with any kernels, threads and batch neighbours; damaged hidden states; that nobody gets it
 * unasked. (tests/golden/test_stories.py has its perplexity.) */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_common.h"

#include "api/api.h"
#include "base/rng.h"
#include "model/head/head.h"

static int open_model(void **state)
{
    (void)state;
    model = open_with(NULL, "int8");
    return 0;
}

/* ---- the head by itself ---- */

enum { TOKENS = 5 };

static void head_of(float *logits, float *normed, const float *x, bool int8)
{
    const struct bn_model *m = model->m;
    struct bn_head_options o = {.int8 = int8};
    bitnet_error err = {0};
    struct bn_pool *pool;
    struct bn_head *h = NULL;
    if (bn_pool_open(&pool, 1, &err) || bn_head_open(&h, m, pool, TOKENS, &o, NULL, &err))
        fail_msg("%s", err.text);
    bn_head_begin(h, logits, m->out_norm, NULL);
    for (uint32_t t = 0; t < TOKENS; t++) bn_head_add(h, t, (struct bn_want){.kind = BN_WANT_ALL});
    bn_head_work(h, x, normed, 0);
    bn_head_end(h);
    assert_int_equal(bn_head_stats(h)->full, TOKENS);
    bn_head_close(h);
    bn_pool_close(pool);
}

/* What rounding can do at most: half a unit of the row for every element of h, half a unit of h for
 * every element of the row; and a little for the float sums of the exact head. In standard
 * deviations it is far less: errors of single elements are independent. */
static void check_row(double *worst, double *squares, size_t r, const float *h, double exact,
                      double got)
{
    const struct bn_model *m = model->m;
    size_t cols = m->config.n_embd;
    double n1 = 0, n2 = 0, most = 0, mass = 0, step = (double)m->head_int8.scale[r];
    float *row = malloc(cols * sizeof *row);
    assert_non_null(row);
    bn_stored_row(&m->kernels, row, &m->head.stored, r);
    for (size_t i = 0; i < cols; i++) {
        n1 += fabs((double)h[i]);
        n2 += (double)h[i] * (double)h[i];
        most = fmax(most, fabs((double)h[i]));
        mass += fabs((double)row[i]) + step;
    }
    free(row);
    double bound = 0.5 * step * n1 + 0.5 * (most / 32767) * mass + 127 * step * n1 * 0x1p-17;
    if (!(fabs(got - exact) <= bound))
        fail_msg("row %zu: %.9g, exactly %.9g, bound %.3g", r, got, exact, bound);
    double e = (got - exact) / (step * sqrt(n2));
    *worst = fmax(*worst, fabs(e));
    *squares += e * e;
}

static void logits_are_close(void **state)
{
    (void)state;
    size_t vocab = model->m->config.n_vocab, cols = model->m->config.n_embd;
    float *x = malloc(TOKENS * cols * sizeof *x), *normed = malloc(TOKENS * cols * sizeof *x);
    float *exact = malloc(TOKENS * vocab * sizeof *x), *got = malloc(TOKENS * vocab * sizeof *x);
    assert_true(x && normed && exact && got);
    struct bn_rng r = {5};
    for (size_t i = 0; i < TOKENS * cols; i++)
        x[i] = (float)((bn_rng_unit(&r) - 0.5) * (i % 97 == 3 ? 40 : 1));
    memset(x, 0, cols * sizeof *x); /* the first is zero */
    head_of(exact, normed, x, false);
    head_of(got, normed, x, true);
    double worst = 0, squares = 0;
    for (size_t i = 0; i < vocab; i++) assert_true(got[i] == 0);
    for (size_t i = vocab; i < TOKENS * vocab; i++)
        check_row(&worst, &squares, i % vocab, normed + i / vocab * cols, (double)exact[i],
                  (double)got[i]);
    double rms = sqrt(squares / (double)((TOKENS - 1) * vocab));
    printf("# errors: rms %.3f, worst %.2f, in units of step * |h|\n", rms, worst);
    assert_true(rms > 0.2 && rms < 0.3); /* sqrt(1/12) = 0.289 */
    assert_true(worst < 2);

    x[cols + 3] = NAN; /* not silently something else */
    x[2 * cols] = INFINITY;
    head_of(got, normed, x, true);
    for (size_t i = 0; i < vocab; i++)
        assert_true(isnan(got[vocab + i]) && isnan(got[2 * vocab + i]) && got[i] == 0);
    free(x);
    free(normed);
    free(exact);
    free(got);
}

/* ---- through the door ---- */

enum { N_IDS = 24, N_REQUESTS = 5, MAX_NEW = 12 };

static bitnet_engine *engine_of(const bitnet_model *m, uint32_t threads, uint32_t seqs)
{
    bitnet_engine_options o = {.size = sizeof o};
    bitnet_engine *e = NULL;
    bitnet_error err = {0};
    o.threads = threads;
    o.max_seqs = seqs;
    o.head = "int8";
    if (bitnet_engine_open(&e, m, &o, &err)) fail_msg("%s", err.text);
    bitnet_engine_info info = {.size = sizeof info};
    bitnet_engine_get_info(e, &info);
    assert_string_equal(info.head.type, "int8");
    return e;
}

static void eval(float *logits, bitnet_engine *e, size_t chunk, size_t vocab)
{
    int32_t ids[N_IDS];
    bitnet_error err = {0};
    for (int i = 0; i < N_IDS; i++) ids[i] = 300 + 37 * i;
    for (size_t at = 0; at < N_IDS; at += chunk) {
        size_t n = bn_min_size(chunk, N_IDS - at);
        if (bitnet_eval(e, 0, ids + at, n, 0, logits + at * vocab, &err)) fail_msg("%s", err.text);
    }
}

/* Requests with all logits in use, in a batch or one after the other. */
static void answers(int32_t *out, bitnet_engine *e)
{
    bitnet_error err = {0};
    uint64_t ids[N_REQUESTS];
    uint32_t got[N_REQUESTS] = {0};
    for (int i = 0; i < N_REQUESTS; i++) {
        int32_t prompt[] = {0, 390, 389 + i};
        bitnet_request r;
        bitnet_request_init(&r, sizeof r);
        r.tokens = prompt;
        r.n_tokens = 3;
        r.max_new_tokens = MAX_NEW;
        r.ignore_end = 1;
        r.sampling = (bitnet_sampling){.temperature = (float)i, .top_p = 1, .seed = 7};
        r.sampling.size = sizeof r.sampling;
        if (bitnet_submit(e, &r, &ids[i], &err)) fail_msg("%s", err.text);
    }
    for (;;) {
        bitnet_event ev[2 * N_REQUESTS] = {{.size = sizeof *ev}};
        size_t n = sizeof ev / sizeof *ev;
        if (bitnet_step(e, ev, &n, &err)) fail_msg("%s", err.text);
        if (!n) break;
        for (size_t k = 0; k < n; k++)
            for (int i = 0; i < N_REQUESTS; i++)
                if (ids[i] == ev[k].id && ev[k].token >= 0)
                    out[i * MAX_NEW + (int)got[i]++] = ev[k].token;
    }
}

static void the_same_everywhere(void **state)
{
    (void)state;
    static const char *const backends[] = {"auto", "scalar"};
    size_t vocab = model->m->config.n_vocab, bytes = N_IDS * vocab * sizeof(float);
    float *want = malloc(bytes), *got = malloc(bytes);
    int32_t tokens[2][N_REQUESTS * MAX_NEW] = {{0}};
    assert_true(want && got);
    bitnet_engine *e = engine_of(model, 1, 1);
    eval(want, e, N_IDS, vocab);
    bitnet_engine_close(e);
    e = engine_of(model, 1, 1);
    answers(tokens[0], e);
    bitnet_engine_close(e);
    for (int b = 0; b < 2; b++) {
        bitnet_model *m = open_with(backends[b], "int8");
        for (uint32_t threads = 1; threads <= 3; threads++) {
            e = engine_of(m, threads, N_REQUESTS);
            memset(got, 0, bytes);
            eval(got, e, (size_t[]){N_IDS, 7, 1}[threads - 1], vocab);
            assert_memory_equal(got, want, bytes);
            bitnet_engine_close(e);
            e = engine_of(m, threads, N_REQUESTS);
            answers(tokens[1], e);
            assert_memory_equal(tokens[0], tokens[1], sizeof tokens[0]);
            bitnet_engine_close(e);
        }
        bitnet_model_close(m);
    }
    free(want);
    free(got);
}

static void only_where_asked_for(void **state)
{
    (void)state;
    bitnet_error err;
    bitnet_engine *e;
    bitnet_engine_options o = {.size = sizeof o};
    bitnet_engine_info info = {.size = sizeof info};
    bitnet_model_info mi = {.size = sizeof mi};
    bitnet_model *plain = open_with(NULL, NULL), *screened = open_with(NULL, "screened");
    o.head = "int8";
    assert_int_equal(bitnet_engine_open(&e, plain, &o, &err), BITNET_E_STATE);
    assert_int_equal(bitnet_engine_open(&e, screened, &o, &err), BITNET_E_STATE);
    o.head = "screened";
    assert_int_equal(bitnet_engine_open(&e, model, &o, &err), BITNET_E_STATE);
    o.head = "auto"; /* is the file's precision, also where the copy exists */
    assert_int_equal(bitnet_engine_open(&e, model, &o, &err), BITNET_OK);
    bitnet_engine_get_info(e, &info);
    assert_string_equal(info.head.type, "exact");
    bitnet_engine_close(e);
    bitnet_model_get_info(plain, &mi);
    uint64_t layer_bytes = mi.memory.layer_bytes;
    bitnet_model_get_info(model, &mi);
    assert_true(mi.memory.head_copy_bytes >= (uint64_t)mi.shape.n_vocab * (mi.shape.n_embd + 4));
    assert_int_equal(mi.memory.layer_bytes, layer_bytes);
    assert_int_equal(mi.memory.packed_bytes, layer_bytes + mi.memory.head_copy_bytes);
    bitnet_model_close(plain);
    bitnet_model_close(screened);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_close),
        cmocka_unit_test(the_same_everywhere),
        cmocka_unit_test(only_where_asked_for),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
