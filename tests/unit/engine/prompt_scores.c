/* SPDX-License-Identifier: Apache-2.0
 * Log-probabilities of a prompt's own tokens: beside the logits of bitnet_eval; the same bits in every
 * engine, alone and in company, with the prefix cache and when it must give way; for dense and hybrid
 * models. */
#include "engine_common.h"

#include "base/rng.h"
#include "effort.h"
#include <math.h>

enum { LONGEST = 180, CTX = 256, TOP = 3, COMPANY = 5, OTHERS = 70 };

static int32_t text[LONGEST];

static void make_text(void)
{
    struct bn_rng rng = {11};
    for (size_t i = 0; i < LONGEST; i++) text[i] = (int32_t)bn_rng_below(&rng, info.shape.n_vocab);
}

static bitnet_request scored_request(size_t n_tokens)
{
    bitnet_request r;
    bitnet_request_init(&r, sizeof r);
    r.sampling.temperature = 0;
    r.tokens = text;
    r.n_tokens = n_tokens;
    r.max_new_tokens = 1;
    r.ignore_end = 1;
    r.logprobs = r.prompt_logprobs = 1;
    r.n_top_logprobs = r.n_top_prompt_logprobs = TOP;
    return r;
}

struct way {
    uint32_t threads, seqs, batch, kv_tokens;
    const char *prefix;
    bitnet_kv_type kv;
};

static bitnet_engine *engine(const struct way *w)
{
    bitnet_engine_options o = {.size = sizeof o};
    o.threads = w->threads;
    o.max_seqs = w->seqs;
    o.max_batch_tokens = w->batch;
    o.ctx_tokens = CTX;
    o.kv_tokens = w->kv_tokens;
    o.kv_type = w->kv;
    o.prefix_cache = w->prefix;
    return open_engine(&o);
}

static void check_row(const bitnet_logprob *got, const float *row, int32_t token)
{
    double sum = 0;
    uint32_t best = 0, n_vocab = info.shape.n_vocab;
    for (uint32_t i = 0; i < n_vocab; i++) best = row[i] > row[best] ? i : best;
    for (uint32_t i = 0; i < n_vocab; i++) sum += exp((double)row[i] - (double)row[best]);
    double log_sum = (double)row[best] + log(sum);
    assert_int_equal(got[0].token, token);
    assert_true(fabs((double)got[0].logprob - ((double)row[token] - log_sum)) < 1e-5);
    assert_int_equal(got[1].token, best);
    for (int k = 1; k <= TOP; k++) {
        int32_t id = got[k].token;
        assert_true(fabs((double)got[k].logprob - ((double)row[id] - log_sum)) < 1e-5);
        assert_true(k == 1 || got[k].logprob <= got[k - 1].logprob);
        if (id == token) assert_memory_equal(&got[k], &got[0], sizeof *got); /* one float */
    }
}

/* Every token but the first is judged by the logits behind the one before it. */
static void scores_are_those_of_the_logits(void **state)
{
    (void)state;
    make_text();
    static struct choice a;
    memset(&a, 0, sizeof a);
    bitnet_engine *e = engine(&(struct way){2, 2, 512, 0, "auto", 0});
    bitnet_request r = scored_request(LONGEST);
    struct ask ask = {submit(e, &r), 1, &a};
    finish_all(e, &ask, 1, 64);
    assert_int_equal(a.n_scored, LONGEST - 1);
    assert_int_equal(a.n, 1);
    float *logits = calloc((size_t)LONGEST * info.shape.n_vocab, sizeof *logits);
    assert_non_null(logits);
    bitnet_error err = {0};
    if (bitnet_eval(e, 0, text, LONGEST, 0, logits, &err)) fail_msg("%s", err.text);
    for (uint32_t i = 1; i < LONGEST; i++)
        check_row(a.scored[i], logits + (size_t)(i - 1) * info.shape.n_vocab, text[i]);
    free(logits);
    bitnet_engine_close(e);
}

/* Scored prompts of several lengths, each beside one that is not, which begins alike; twice, so that all
 * is in the prefix cache the second time. */
static void run_way(const struct way *w, struct choice answers[2][COMPANY])
{
    bitnet_engine *e = engine(w);
    memset(answers, 0, 2 * sizeof *answers);
    static struct choice others[COMPANY];
    for (int round = 0; round < 2; round++) {
        struct ask asks[2 * COMPANY];
        memset(others, 0, sizeof others);
        for (uint32_t i = 0; i < COMPANY; i++) {
            bitnet_request r = scored_request(1 + i * (LONGEST - 1) / (COMPANY - 1));
            r.prompt_only = i % 2;
            asks[2 * i] = (struct ask){submit(e, &r), 1, &answers[round][i]};
            r.prompt_logprobs = r.prompt_only = 0;
            r.max_new_tokens = OTHERS;
            asks[2 * i + 1] = (struct ask){submit(e, &r), 1, &others[i]};
        }
        finish_all(e, asks, 2 * COMPANY, round ? 1 : 64);
        for (uint32_t i = 0; i < COMPANY; i++) {
            assert_int_equal(answers[round][i].finish, BITNET_FINISH_LENGTH);
            assert_int_equal(answers[round][i].n, i % 2 ? 0 : 1);
            assert_int_equal(others[i].n, OTHERS);
            assert_int_equal(others[i].n_scored, 0);
        }
    }
    bitnet_engine_info in = engine_info(e);
    assert_int_equal(in.kv.pages_free + in.kv.pages_cached, in.kv.pages);
    assert_true(w->kv_tokens == 0 || in.work.preemptions > 0);
    bitnet_engine_close(e);
}

static void check_ways(bitnet_kv_type kv, size_t n_ways)
{
    static const struct way ways[] = {{1, 1, 512, 0, "off", 0},  {2, 3, 64, 288, "on", 0},
                                      {3, 5, 7, 0, "auto", 0},   {2, 12, 512, 0, "auto", 0},
                                      {2, 12, 100, 0, "off", 0}, {1, 4, 33, 320, "off", 0}};
    static struct choice first[2][COMPANY], again[2][COMPANY];
    make_text();
    assert_true(n_ways <= sizeof ways / sizeof *ways);
    for (size_t i = 0; i < n_ways; i++) {
        struct way w = ways[i];
        w.kv = kv;
        run_way(&w, i ? again : first);
        if (i) assert_memory_equal(again, first, sizeof first);
        else assert_memory_equal(first[1], first[0], sizeof first[0]);
    }
    for (uint32_t i = 0; i < COMPANY; i++)
        assert_int_equal(first[0][i].n_scored, i * (LONGEST - 1) / (COMPANY - 1));
}

static void same_bits_in_any_company(void **state)
{
    (void)state;
    check_ways(BITNET_KV_F16, repeats(6, 3));
    check_ways(BITNET_KV_INT4, repeats(6, 2)); /* pages that are encoded as a whole */
}

/* An older text grows until there are no pages for the one whose prompt is being scored. That one begins
 * again, at what is known or from nothing, and tells only what it has not told. */
static void scores_go_on_after_giving_way(void **state)
{
    (void)state;
    make_text();
    static struct choice alone, a[2];
    memset(&alone, 0, sizeof alone);
    bitnet_request scored = scored_request(150), older = scored_request(30);
    older.prompt_logprobs = 0;
    older.max_new_tokens = OTHERS;
    bitnet_engine *e = engine(&(struct way){1, 1, 512, 0, "off", 0});
    struct ask ask = {submit(e, &scored), 1, &alone};
    finish_all(e, &ask, 1, 64);
    bitnet_engine_close(e);
    for (int cached = 0; cached < 2; cached++) {
        e = engine(&(struct way){2, 2, 4, 224, cached ? "on" : "off", 0});
        memset(a, 0, sizeof a);
        uint64_t id = submit(e, &older);
        const struct ask asks[] = {{id, 1, &a[0]}, {submit(e, &scored), 1, &a[1]}};
        while (!engine_info(e).work.preemptions) assert_true(step(e, asks, 2, 64));
        assert_in_range(a[1].n_scored, 70, 140); /* in the middle of it */
        finish_all(e, asks, 2, 64);
        assert_int_equal(a[0].n, OTHERS);
        assert_memory_equal(&a[1], &alone, sizeof alone);
        assert_true(engine_info(e).work.recomputed_tokens > 0);
        bitnet_engine_close(e);
    }
}

/* What is known is computed again for its logits, and what was computed is known to others. */
static void the_prefix_cache_hides_no_score(void **state)
{
    (void)state;
    make_text();
    static struct choice a;
    bitnet_engine *e = engine(&(struct way){1, 2, 512, 0, "on", 0});
    bitnet_request r = scored_request(LONGEST);
    for (int round = 0; round < 3; round++) {
        uint64_t before = engine_info(e).prefix.hit_tokens;
        memset(&a, 0, sizeof a);
        r.prompt_logprobs = round < 2;
        struct ask ask = {submit(e, &r), 1, &a};
        finish_all(e, &ask, 1, 64);
        assert_int_equal(a.n_scored, round < 2 ? LONGEST - 1 : 0);
        assert_int_equal(engine_info(e).prefix.hit_tokens > before, round == 2);
    }
    bitnet_engine_close(e);
}

/* One choice reads the prompt, and tells of it for all. */
static void choices_share_the_scores(void **state)
{
    (void)state;
    make_text();
    static struct choice a[3];
    memset(a, 0, sizeof a);
    bitnet_engine *e = engine(&(struct way){2, 4, 50, 0, "auto", 0});
    bitnet_request r = scored_request(150);
    r.n_choices = 3;
    struct ask ask = {submit(e, &r), 3, a};
    finish_all(e, &ask, 1, 64);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(a[i].n_scored, i ? 0 : 149);
        assert_int_equal(a[i].n, 1);
    }
    memset(a, 0, sizeof a);
    r.prompt_only = 1;
    ask.id = submit(e, &r);
    finish_all(e, &ask, 1, 64);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(a[i].n, 0);
        assert_int_equal(a[i].finish, BITNET_FINISH_LENGTH);
    }
    bitnet_engine_close(e);
}

static void a_scored_prompt_can_be_cancelled(void **state)
{
    (void)state;
    make_text();
    static struct choice a;
    memset(&a, 0, sizeof a);
    bitnet_engine *e = engine(&(struct way){1, 2, 512, 0, "off", 0});
    bitnet_request r = scored_request(LONGEST);
    struct ask ask = {submit(e, &r), 1, &a};
    assert_true(step(e, &ask, 1, 64));
    assert_in_range(a.n_scored, 1, LONGEST - 2); /* in pieces: rows of logits are few */
    assert_int_equal(bitnet_cancel(e, ask.id), BITNET_OK);
    finish_all(e, &ask, 1, 64);
    assert_int_equal(a.finish, BITNET_FINISH_CANCELLED);
    assert_int_equal(engine_info(e).kv.pages_free, engine_info(e).kv.pages);
    bitnet_engine_close(e);
}

static void what_is_impossible_is_refused(void **state)
{
    (void)state;
    make_text();
    bitnet_error err = {0};
    uint64_t id;
    bitnet_engine *e = engine(&(struct way){1, 1, 64, 0, "auto", 0});
    bitnet_request r = scored_request(10);
    r.n_top_prompt_logprobs = 21;
    assert_int_equal(bitnet_submit(e, &r, &id, &err), BITNET_E_LIMIT);
    assert_non_null(strstr(err.text, "21 likeliest"));
    /* a struct of before ends where these begin */
    r = scored_request(10);
    r.size = offsetof(bitnet_request, prompt_logprobs);
    static struct choice a;
    memset(&a, 0, sizeof a);
    struct ask ask = {submit(e, &r), 1, &a};
    finish_all(e, &ask, 1, 64);
    assert_int_equal(a.n_scored, 0);
    assert_int_equal(a.n, 1);
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
        cmocka_unit_test(scores_are_those_of_the_logits),
        cmocka_unit_test(same_bits_in_any_company),
        cmocka_unit_test(scores_go_on_after_giving_way),
        cmocka_unit_test(the_prefix_cache_hides_no_score),
        cmocka_unit_test(choices_share_the_scores),
        cmocka_unit_test(a_scored_prompt_can_be_cancelled),
        cmocka_unit_test(what_is_impossible_is_refused),
    };
    const struct CMUnitTest hybrid[] = {
        cmocka_unit_test(scores_are_those_of_the_logits),
        cmocka_unit_test(same_bits_in_any_company),
        cmocka_unit_test(scores_go_on_after_giving_way),
        cmocka_unit_test(choices_share_the_scores),
    };
    int failed = cmocka_run_group_tests(dense, open_model, close_model);
    return failed + cmocka_run_group_tests(hybrid, open_hybrid, close_model);
}
