/* SPDX-License-Identifier: Apache-2.0
 * Perplexity by its two protocols against the plain sum over the logits of whole windows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/engine.h"
#include "forge/forge.h"
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { CTX = 150, N_TOKENS = 2 * CTX + 40, N_VOCAB = 512, BOS = 256 };

static char path[] = "/tmp/bitnet-ppl-XXXXXX";
static struct bn_model *model;
static struct bitnet_engine *engine;
static int32_t ids[N_TOKENS];

static int open_engine(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    bitnet_synth_options so = {.size = sizeof so, .overwrite = 1};
    bitnet_model_options args = {.threads = 1, .backend = "scalar"};
    bitnet_engine_options eo = {.size = sizeof eo, .threads = 1, .ctx_tokens = 256};
    bitnet_error err = {0};
    if (bn_synth("tiny", path, &so, &err) || bn_model_open(&model, path, &args, &err) ||
        bn_engine_open(&engine, model, &eo, &err)) {
        print_error("%s\n", err.text);
        return 1;
    }
    for (int i = 0; i < N_TOKENS; i++) ids[i] = (i * 37 + i / 5) % N_VOCAB;
    return 0;
}

static int close_engine(void **state)
{
    (void)state;
    bn_engine_close(engine);
    bn_model_close(model);
    return unlink(path);
}

/* Sum and sum of squares of -log p of tokens first+1 .. n-1 of a window, all logits at once. */
static void plain(double sums[2], const int32_t *tokens, size_t n, size_t first)
{
    float *logits = malloc(n * N_VOCAB * sizeof *logits);
    assert_non_null(logits);
    assert_int_equal(bn_engine_eval_reset(engine, 0, NULL), BITNET_OK);
    assert_int_equal(bn_engine_eval(engine, 0, tokens, n, false, logits, NULL), BITNET_OK);
    for (size_t i = first; i + 1 < n; i++) {
        double sum = 0;
        for (int v = 0; v < N_VOCAB; v++) sum += exp((double)logits[i * N_VOCAB + (size_t)v]);
        double nll = log(sum) - (double)logits[i * N_VOCAB + (size_t)tokens[i + 1]];
        sums[0] += nll;
        sums[1] += nll * nll;
    }
    free(logits);
}

static bitnet_ppl_result measure(bitnet_ppl_protocol protocol)
{
    bitnet_ppl_options o = {.size = sizeof o, .ctx_tokens = CTX, .protocol = protocol};
    bitnet_ppl_result r = {.size = sizeof r};
    bitnet_error err = {0};
    if (bn_perplexity(engine, ids, N_TOKENS, &o, &r, &err) != BITNET_OK) fail_msg("%s", err.text);
    return r;
}

static void check(const bitnet_ppl_result *r, const double sums[2], double n)
{
    double mean = sums[0] / n, deviation = sqrt((sums[1] / n - mean * mean) / (n - 1));
    assert_true(r->n_tokens == (uint64_t)n);
    assert_true(fabs(r->nll_per_token - mean) < 1e-9);
    assert_true(fabs(r->perplexity - exp(mean)) < 1e-6 * exp(mean));
    assert_true(fabs(r->std_error - deviation * exp(mean)) < 1e-6 * exp(mean));
}

static void test_windows(void **state)
{
    (void)state;
    double sums[2] = {0};
    plain(sums, ids, CTX, 0);
    plain(sums, ids + CTX, CTX, 0);
    plain(sums, ids + 2 * CTX, N_TOKENS - 2 * CTX, 0); /* the short rest counts too */
    bitnet_ppl_result r = measure(BITNET_PPL_WINDOWS);
    assert_int_equal(r.n_windows, 3);
    check(&r, sums, N_TOKENS - 3);
}

static void test_llama_cpp(void **state)
{
    (void)state;
    double sums[2] = {0};
    for (int w = 0; w < 2; w++) {
        int32_t window[CTX];
        memcpy(window, ids + w * CTX, sizeof window);
        window[0] = BOS;
        plain(sums, window, CTX, CTX / 2);
    }
    bitnet_ppl_result r = measure(BITNET_PPL_LLAMA_CPP);
    assert_int_equal(r.n_windows, 2);
    check(&r, sums, 2 * (CTX - CTX / 2 - 1));
}

static int stop(void *user, const char *what, uint64_t done, uint64_t total)
{
    (void)user, (void)what;
    return done * 2 > total;
}

static void test_refusals(void **state)
{
    (void)state;
    bitnet_ppl_result r = {.size = sizeof r};
    bitnet_ppl_options o = {.size = sizeof o, .ctx_tokens = 1000};
    assert_int_equal(bn_perplexity(engine, ids, N_TOKENS, &o, &r, NULL), BITNET_E_ARG);
    o.ctx_tokens = CTX;
    assert_int_equal(bn_perplexity(engine, ids, 1, &o, &r, NULL), BITNET_E_ARG);
    o.protocol = BITNET_PPL_LLAMA_CPP;
    assert_int_equal(bn_perplexity(engine, ids, CTX - 1, &o, &r, NULL), BITNET_E_ARG);
    int32_t bad[4] = {0, 1, N_VOCAB, 2};
    o.protocol = BITNET_PPL_WINDOWS;
    assert_int_equal(bn_perplexity(engine, bad, 4, &o, &r, NULL), BITNET_E_ARG);
    o.progress = stop;
    assert_int_equal(bn_perplexity(engine, ids, N_TOKENS, &o, &r, NULL), BITNET_E_CANCELLED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_llama_cpp),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, open_engine, close_engine);
}
