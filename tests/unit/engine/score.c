/* SPDX-License-Identifier: Apache-2.0
 * Scores of many texts at once beside those of each text alone, by bitnet_eval: the same bits whatever
 * they share, in engines of all sizes, for dense and hybrid models; at the cost of their distinct tokens;
 * and nothing is left behind. */
#include "engine_common.h"

#include "base/rng.h"
#include "effort.h"
#include <math.h>

enum { MAX_TEXTS = 60, LONGEST = 120 };

static int32_t tokens[MAX_TEXTS][LONGEST];
static bitnet_score_input inputs[MAX_TEXTS];
static size_t n_inputs;

static struct bn_rng rng;

static int32_t random_token(void) { return (int32_t)bn_rng_below(&rng, info.shape.n_vocab); }

static void add(const int32_t *stem, size_t n_stem, size_t n_context, size_t n)
{
    size_t i = n_inputs++;
    assert_true(i < MAX_TEXTS && n <= LONGEST && n_stem <= n);
    memcpy(tokens[i], stem, n_stem * sizeof *stem);
    for (size_t k = n_stem; k < n; k++) tokens[i][k] = random_token();
    inputs[i] = (bitnet_score_input){tokens[i], n, n_context};
}

/* Examples, behind them questions, behind each of these choices; some of which are alike, or begin alike;
 * and texts that share nothing. In no order. */
static void make_inputs(uint64_t seed)
{
    int32_t stem[LONGEST];
    rng.state = seed;
    n_inputs = 0;
    for (int subject = 0; subject < 2; subject++) {
        size_t shots = subject ? 70 : 3;
        for (size_t i = 0; i < shots; i++) stem[i] = random_token();
        for (int question = 0; question < 4; question++) {
            size_t n = shots + 1 + bn_rng_below(&rng, 20);
            for (size_t i = shots; i < n; i++) stem[i] = random_token();
            for (int choice = 0; choice < 4; choice++) {
                size_t more = 1 + bn_rng_below(&rng, 12), same = choice == 3 ? more / 2 : 0;
                for (size_t i = n; i < n + same; i++) stem[i] = tokens[n_inputs - 1][i];
                if (inputs[n_inputs ? n_inputs - 1 : 0].n_tokens < n + same) same = 0;
                add(stem, n + same, n, n + more);
            }
        }
    }
    for (int i = 0; i < 5; i++) add(stem, 0, 1 + (size_t)i, 2 + (size_t)i * 20);
    add(tokens[0], inputs[0].n_tokens, inputs[0].n_context, inputs[0].n_tokens); /* one twice */
    for (size_t i = n_inputs; i > 1; i--) {
        size_t k = bn_rng_below(&rng, (uint32_t)i);
        bitnet_score_input t = inputs[i - 1];
        inputs[i - 1] = inputs[k];
        inputs[k] = t;
    }
}

struct way {
    uint32_t threads, seqs, batch, pages;
};

static bitnet_engine *engine(const struct way *w, bitnet_kv_type kv)
{
    bitnet_engine_options o = {.size = sizeof o};
    o.threads = w->threads;
    o.max_seqs = w->seqs;
    o.max_batch_tokens = w->batch;
    o.ctx_tokens = LONGEST;
    o.kv_tokens = w->pages * 32;
    o.kv_type = kv;
    return open_engine(&o);
}

/* One text by itself, from all its logits. */
static bitnet_score_result alone(bitnet_engine *e, const bitnet_score_input *in)
{
    bitnet_score_result r = {.greedy = 1};
    bitnet_error err = {0};
    size_t n = in->n_tokens - 1;
    float *logits = calloc(n * info.shape.n_vocab, sizeof *logits);
    assert_non_null(logits);
    if (bitnet_eval(e, 0, in->tokens, n, 0, logits, &err)) fail_msg("%s", err.text);
    bitnet_eval_reset(e, 0, &err);
    for (size_t i = in->n_context - 1; i < n; i++) {
        const float *row = logits + i * info.shape.n_vocab;
        int32_t next = in->tokens[i + 1], best = 0;
        double sum = 0;
        for (uint32_t k = 0; k < info.shape.n_vocab; k++)
            best = row[k] > row[best] ? (int32_t)k : best;
        for (uint32_t k = 0; k < info.shape.n_vocab; k++)
            sum += exp((double)row[k] - (double)row[best]);
        r.logprob += (double)row[next] - (double)row[best] - log(sum);
        r.greedy &= best == next;
    }
    free(logits);
    return r;
}

static void score(bitnet_engine *e, bitnet_score_result *out, uint64_t *n_computed)
{
    bitnet_score_options o = {.size = sizeof o};
    bitnet_error err = {0};
    o.n_computed = n_computed;
    memset(out, 0x55, n_inputs * sizeof *out);
    if (bitnet_score(e, inputs, n_inputs, &o, out, &err)) fail_msg("%s", err.text);
}

static void check_ways(bitnet_kv_type kv)
{
    static const struct way ways[] = {{1, 64, 512, 200}, {2, 8, 512, 100}, {2, 16, 7, 60},
                                      {3, 64, 64, 40},   {2, 8, 1, 12},    {1, 9, 33, 10}};
    bitnet_score_result first[MAX_TEXTS], again[MAX_TEXTS];
    for (uint64_t seed = 1; seed <= (full_effort() ? 3 : 1); seed++) {
        make_inputs(seed);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            bitnet_engine *e = engine(&ways[w], kv);
            score(e, w ? again : first, NULL);
            for (size_t i = 0; w && i < n_inputs; i++) {
                assert_memory_equal(&again[i].logprob, &first[i].logprob, sizeof first[i].logprob);
                assert_int_equal(again[i].greedy, first[i].greedy);
            }
            for (size_t i = 0; !w && i < n_inputs; i += full_effort() ? 1 : 5) {
                bitnet_score_result r = alone(e, &inputs[i]);
                assert_true(fabs(r.logprob - first[i].logprob) < 1e-5 * (1 - r.logprob));
                assert_int_equal(r.greedy, first[i].greedy);
            }
            assert_int_equal(engine_info(e).kv.pages_free, engine_info(e).kv.pages);
            bitnet_engine_close(e);
        }
    }
}

static void test_same_bits(void **state)
{
    (void)state;
    check_ways(BITNET_KV_F16);
    check_ways(BITNET_KV_INT4); /* pages that are encoded as a whole */
}

/* What texts have in common is computed once: all that is added is the last token of each context. */
static void test_cost(void **state)
{
    (void)state;
    int32_t stem[LONGEST];
    rng.state = 9;
    n_inputs = 0;
    size_t distinct = 60;
    for (size_t i = 0; i < LONGEST; i++) stem[i] = random_token();
    for (int question = 0; question < 10; question++, distinct += 20) {
        for (size_t i = 60; i < 80; i++) stem[i] = random_token();
        for (int choice = 0; choice < 4; choice++, distinct += 5) add(stem, 80, 80, 85);
    }
    const struct way w = {2, 16, 64, 200};
    bitnet_score_result out[MAX_TEXTS];
    uint64_t n;
    bitnet_engine *e = engine(&w, BITNET_KV_F16);
    score(e, out, &n);
    /* the last token of a text is not computed, that of its context for each choice */
    assert_true(n <= distinct + 10 * 3);
    bitnet_engine_close(e);
}

/* What the model itself would write is greedy; another last token makes it not so. */
static void test_greedy(void **state)
{
    (void)state;
    const struct way w = {1, 8, 64, 40};
    bitnet_engine *e = engine(&w, BITNET_KV_F16);
    bitnet_error err = {0};
    float *logits = calloc(info.shape.n_vocab, sizeof *logits);
    assert_non_null(logits);
    int32_t text[2][24] = {{1}};
    for (int i = 0; i < 23; i++) {
        if (bitnet_eval(e, 0, &text[0][i], 1, 1, logits, &err)) fail_msg("%s", err.text);
        for (uint32_t k = 1; k < info.shape.n_vocab; k++)
            if (logits[k] > logits[text[0][i + 1]]) text[0][i + 1] = (int32_t)k;
    }
    bitnet_eval_reset(e, 0, &err);
    memcpy(text[1], text[0], sizeof text[0]);
    text[1][23] = (text[1][23] + 1) % (int32_t)info.shape.n_vocab;
    n_inputs = 2;
    for (int i = 0; i < 2; i++) inputs[i] = (bitnet_score_input){text[i], 24, 1};
    bitnet_score_result out[2];
    score(e, out, NULL);
    assert_int_equal(out[0].greedy, 1);
    assert_int_equal(out[1].greedy, 0);
    assert_true(out[1].logprob < out[0].logprob);
    free(logits);
    bitnet_engine_close(e);
}

static int stop_at_once(void *user, const char *what, uint64_t done, uint64_t total)
{
    (void)user;
    (void)what;
    assert_true(done <= total);
    return 1;
}

static void test_refused(void **state)
{
    (void)state;
    struct way w = {1, 8, 64, 40};
    bitnet_score_result out[MAX_TEXTS];
    bitnet_score_options o = {.size = sizeof o};
    bitnet_error err = {0};
    make_inputs(3);
    bitnet_engine *e = engine(&w, BITNET_KV_F16);
    const bitnet_score_input whole = inputs[2];
    inputs[2].n_context = 0;
    assert_int_equal(bitnet_score(e, inputs, n_inputs, &o, out, &err), BITNET_E_ARG);
    assert_non_null(strstr(err.text, "input 2"));
    inputs[2].n_context = whole.n_tokens;
    assert_int_equal(bitnet_score(e, inputs, n_inputs, &o, out, &err), BITNET_E_ARG);
    inputs[2] = whole;
    inputs[1].n_tokens = LONGEST + 1;
    assert_int_equal(bitnet_score(e, inputs, n_inputs, &o, out, &err), BITNET_E_LIMIT);
    make_inputs(3);
    tokens[0][0] = -1;
    assert_int_equal(bitnet_score(e, inputs, n_inputs, &o, out, &err), BITNET_E_ARG);
    make_inputs(3);
    o.progress = stop_at_once;
    assert_int_equal(bitnet_score(e, inputs, n_inputs, &o, out, &err), BITNET_E_CANCELLED);
    assert_int_equal(engine_info(e).kv.pages_free, engine_info(e).kv.pages);
    o.progress = NULL;
    assert_int_equal(bitnet_score(e, inputs, 0, &o, out, &err), BITNET_OK);
    bitnet_engine_close(e);
    w.seqs = 4;
    e = engine(&w, BITNET_KV_F16);
    assert_int_equal(bitnet_score(e, inputs, n_inputs, &o, out, &err), BITNET_E_ARG);
    assert_non_null(strstr(err.text, "8 sequences"));
    bitnet_engine_close(e);
    w = (struct way){1, 8, 64, 2};
    e = engine(&w, BITNET_KV_F16);
    assert_int_equal(bitnet_score(e, inputs, n_inputs, &o, out, &err), BITNET_E_STATE);
    bitnet_engine_close(e);
}

static int open_hybrid(void **state)
{
    (void)state;
    bitnet_error err;
    if (bitnet_model_open(&model, TEST_DATA "/hybrid/tiny.gguf", NULL, &err)) {
        printf("%s\n", err.text);
        return -1;
    }
    info.size = sizeof info;
    bitnet_model_get_info(model, &info);
    return 0;
}

int main(void)
{
    const struct CMUnitTest dense[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_cost),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_refused),
    };
    const struct CMUnitTest hybrid[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_cost),
    };
    int failed = cmocka_run_group_tests(dense, open_model, close_model);
    return failed + cmocka_run_group_tests(hybrid, open_hybrid, close_model);
}
