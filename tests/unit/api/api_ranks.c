/* SPDX-License-Identifier: Apache-2.0
 *
 * Several ranks give what one process gives, bit for bit. Ranks are threads here, which exchange through
 * each other's memory: the small model and every small family that can be split, 2, 3 and 4 ranks, equal
 * and uneven parts; logits of a text, and answers of several requests at a time with the prefix cache,
 * drafts and log-probabilities. RANKS=full tries every number of ranks with every model; otherwise each has
 * two of them. */
#include "engine_common.h"

#include <bitnet/ranks.h>

#include <pthread.h>

enum { MAX_RANKS = 4, CTX = 128, N_REQUESTS = 6, N_TOKENS = 40 };

/* ------------------------------------------------------------------ ranks as threads */

struct hub {
    pthread_barrier_t all;
    void *data[MAX_RANKS];
    size_t bytes[MAX_RANKS];
    int broken; /* what exchanges return from now on */
};

struct member {
    struct hub *hub;
    bitnet_ranks ranks;
    bitnet_error err;
    bitnet_status ended;
    pthread_t thread;
};

static void meet(struct member *m) { pthread_barrier_wait(&m->hub->all); }

static int broadcast(void *user, void *data, size_t bytes)
{
    struct member *m = user;
    m->hub->data[m->ranks.rank] = data;
    m->hub->bytes[m->ranks.rank] = bytes;
    meet(m);
    int result = m->hub->broken;
    if (m->ranks.rank && !result) {
        assert_true(bytes == m->hub->bytes[0]);
        memcpy(data, m->hub->data[0], bytes);
    }
    meet(m);
    return result;
}

static int gather(void *user, void *data, const size_t *at)
{
    struct member *m = user;
    m->hub->data[m->ranks.rank] = data;
    meet(m);
    for (uint32_t i = 0; i < m->ranks.n_ranks; i++)
        if (i != m->ranks.rank)
            memcpy((char *)data + at[i], (char *)m->hub->data[i] + at[i], at[i + 1] - at[i]);
    int result = m->hub->broken;
    meet(m);
    return result;
}

static int collect(void *user, const void *mine, size_t bytes, void *out, const size_t *at)
{
    struct member *m = user;
    m->hub->data[m->ranks.rank] = (void *)mine;
    m->hub->bytes[m->ranks.rank] = bytes;
    meet(m);
    for (uint32_t i = 0; m->ranks.rank == 0 && i < m->ranks.n_ranks; i++) {
        assert_true(m->hub->bytes[i] == at[i + 1] - at[i]);
        if (m->hub->bytes[i]) memcpy((char *)out + at[i], m->hub->data[i], m->hub->bytes[i]);
    }
    int result = m->hub->broken;
    meet(m);
    return result;
}

static void *follow(void *arg)
{
    struct member *m = arg;
    m->ended = bitnet_follow(&m->ranks, &m->err);
    return NULL;
}

static const char *outputs; /* of the ranks that are started next */

static void start(struct hub *hub, struct member *members, uint32_t n, const double *shares)
{
    static const char *const names[] = {"the first", "the second", "the third", "the fourth"};
    memset(hub, 0, sizeof *hub);
    pthread_barrier_init(&hub->all, NULL, n);
    for (uint32_t i = 0; i < n; i++) {
        members[i] = (struct member){.hub = hub,
                                     .ranks = {.size = sizeof members[i].ranks,
                                               .rank = i,
                                               .n_ranks = n,
                                               .user = &members[i],
                                               .broadcast = broadcast,
                                               .gather = gather,
                                               .collect = collect,
                                               .shares = shares,
                                               .names = names,
                                               .outputs = outputs}};
        if (i) assert_int_equal(pthread_create(&members[i].thread, NULL, follow, &members[i]), 0);
    }
}

static void join(struct hub *hub, struct member *members, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) pthread_join(members[i].thread, NULL);
    pthread_barrier_destroy(&hub->all);
}

/* ------------------------------------------------------------------ what is compared */

struct result {
    float *logits; /* [N_TOKENS][n_vocab] */
    struct choice answers[N_REQUESTS];
    uint64_t drafts, hits;
};

static struct result want, got;
static int32_t text[N_TOKENS];

static bitnet_model *open_ranked(const char *path, const char *head, const bitnet_ranks *ranks)
{
    bitnet_model_options o = {.size = sizeof o, .threads = 1, .head = head};
    bitnet_error err = {0};
    bitnet_model *m = NULL;
    if (bitnet_model_open_ranked(&m, path, &o, ranks, &err)) fail_msg("%s: %s", path, err.text);
    return m;
}

/* Greedy, drawn, cut, with and without log-probabilities; texts that begin alike. */
static void ask(bitnet_engine *e, struct ask *a, struct choice *answer, uint32_t i)
{
    bitnet_request r;
    bitnet_request_init(&r, sizeof r);
    r.tokens = text;
    r.n_tokens = i < 3 ? N_TOKENS : 8 + i;
    r.max_new_tokens = 12;
    r.ignore_end = 1;
    r.sampling.seed = i;
    r.sampling.temperature = i % 2 ? 0.9f : 0;
    r.sampling.top_k = i == 3 ? 5 : 0;
    r.sampling.top_p = 1;
    r.sampling.min_p = 0;
    r.logprobs = i != 1 && i != 2;
    r.n_top_logprobs = r.logprobs ? 3 : 0;
    memset(answer, 0, sizeof *answer);
    *a = (struct ask){submit(e, &r), 1, answer};
}

static void compute(struct result *r, bitnet_model *m, const char *head, bool ranks)
{
    bitnet_engine_options o = {.size = sizeof o,
                               .threads = ranks ? 1 : 2,
                               .max_seqs = 3,
                               .max_batch_tokens = 24,
                               .draft = "on",
                               .head = head};
    bitnet_error err = {0};
    bitnet_model_info in = {.size = sizeof in};
    struct ask asks[N_REQUESTS];
    model = m;
    bitnet_model_get_info(m, &in);
    for (int i = 0; i < N_TOKENS; i++)
        text[i] = (int32_t)((uint32_t)(i % 11 * 7 + 3) % in.shape.n_vocab);
    o.ctx_tokens = in.shape.n_ctx_train < CTX ? in.shape.n_ctx_train : CTX;
    bitnet_engine *e = open_engine(&o);
    free(r->logits);
    r->logits = calloc((size_t)N_TOKENS * in.shape.n_vocab, sizeof *r->logits);
    assert_non_null(r->logits);
    if (bitnet_eval(e, 0, text, N_TOKENS, 0, r->logits, &err)) fail_msg("%s", err.text);
    assert_int_equal(bitnet_eval_reset(e, 0, &err), BITNET_OK);
    for (uint32_t i = 0; i < N_REQUESTS; i++) ask(e, &asks[i], &r->answers[i], i);
    finish_all(e, asks, N_REQUESTS, 64);
    ask(e, &asks[0], &r->answers[0], 0); /* all of it is in the prefix cache */
    finish_all(e, asks, 1, 64);
    bitnet_engine_info engine = engine_info(e);
    r->drafts = engine.draft.accepted;
    r->hits = engine.prefix.hit_tokens;
    bitnet_engine_close(e);
}

static void compare(const char *path, uint32_t n, const double *shares, const char *head)
{
    struct hub hub;
    struct member members[MAX_RANKS];
    bitnet_error err = {0};
    bitnet_model_info in = {.size = sizeof in};
    start(&hub, members, n, shares);
    bitnet_model *m = open_ranked(path, head, &members[0].ranks);
    bitnet_model_get_info(m, &in);
    compute(&got, m, head, true);
    bitnet_model_close(m);
    if (bitnet_dismiss(&members[0].ranks, &err)) fail_msg("%s", err.text);
    join(&hub, members, n);
    for (uint32_t i = 1; i < n; i++)
        if (members[i].ended) fail_msg("rank %u: %s", i, members[i].err.text);
    assert_memory_equal(got.logits, want.logits,
                        (size_t)N_TOKENS * in.shape.n_vocab * sizeof *want.logits);
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        assert_int_equal(got.answers[i].n, 12);
        assert_memory_equal(&got.answers[i], &want.answers[i], sizeof *want.answers);
    }
    assert_true(got.hits == want.hits && got.hits > 0);
}

/* turn: decides how many ranks there are, where not every number is tried */
static void compare_all(const char *path, const char *head, size_t turn)
{
    static const double uneven[] = {1, 2.5, 1, 0.7};
    bool full = getenv("RANKS") && strcmp(getenv("RANKS"), "full") == 0;
    bitnet_model *m = open_ranked(path, head, NULL);
    compute(&want, m, head, false);
    bitnet_model_close(m);
    for (uint32_t n = 1; n <= MAX_RANKS; n++) {
        outputs = n % 2 ? "whole" : turn % 2 ? "split" : NULL;
        if (full || n == 1 + turn % MAX_RANKS) compare(path, n, NULL, head);
    }
    outputs = "split";
    compare(path, turn % 2 || full ? 3 : 2, uneven, head);
    free(want.logits);
    free(got.logits);
    want.logits = got.logits = NULL;
}

static void test_small_model(void **state)
{
    (void)state;
    compare_all(TEST_MODEL, "exact", 1);
    compare_all(TEST_MODEL, "screened", 3);
    compare_all(TEST_MODEL, "int8", 2);
}

#define GOLDEN(name) TEST_DATA "/golden/" name
static void test_families(void **state)
{
    static const char *const paths[] = {
        GOLDEN("1bitllm-master"),   GOLDEN("bitnet-master"),      GOLDEN("bitnet-packed-mul"),
        GOLDEN("llama-packed-div"), GOLDEN("llama-values-rope3"), GOLDEN("llama-yarn-mscale"),
        GOLDEN("qwen3-values"),     GOLDEN("qwen3-yarn-binary"),  GOLDEN("qwen3-yarn-options")};
    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) compare_all(paths[i], "exact", i);
}

/* Delta nets, gated attention, rotated columns, states that are saved; and a layer that drafts. */
static void test_hybrids(void **state)
{
    const char *drafts = "ranks-drafts.gguf";
    bitnet_synth_options o = {.size = sizeof o, .overwrite = 1, .mtp = 1};
    bitnet_error err = {0};
    (void)state;
    compare_all(TEST_DATA "/hybrid/tiny.gguf", "exact", 1);
    compare_all(TEST_DATA "/hybrid/hybrid-28m.gguf", "screened", 2);
    if (bitnet_synth("qwen35-tiny-rotated", drafts, &o, &err)) fail_msg("%s", err.text);
    compare_all(drafts, "exact", 2);
    remove(drafts);
}

/* ------------------------------------------------------------------ what goes wrong */

static void expect_refused(const char *path, const bitnet_model_options *o,
                           const bitnet_ranks *ranks, const char *says)
{
    bitnet_error err = {0};
    bitnet_model *m = NULL;
    assert_int_not_equal(bitnet_model_open_ranked(&m, path, o, ranks, &err), BITNET_OK);
    assert_null(m);
    if (!strstr(err.text, says)) fail_msg("'%s' does not say '%s'", err.text, says);
}

/* What cannot be split is refused, and the ranks go on with the next model. */
static void test_refused(void **state)
{
    struct hub hub;
    struct member members[2];
    bitnet_error err = {0};
    bitnet_engine *e = NULL;
    (void)state;
    start(&hub, members, 2, NULL);
    const bitnet_ranks *first = &members[0].ranks;
    bitnet_model_options o = {.size = sizeof o};
    expect_refused("absent.gguf", &o, first, "absent.gguf");
    o.vocab_only = 1;
    expect_refused(TEST_MODEL, &o, first, "vocabulary");
    bitnet_model *m = open_ranked(TEST_MODEL, NULL, &members[0].ranks);
    bitnet_engine_options eo = {.size = sizeof eo, .random_kv = 1};
    assert_int_not_equal(bitnet_engine_open(&e, m, &eo, &err), BITNET_OK);
    assert_non_null(strstr(err.text, "random keys"));
    bitnet_adapter *a;
    assert_int_equal(bitnet_adapter_open(&a, m, "absent", &err), BITNET_E_UNSUPPORTED);
    bitnet_model_close(m);
    assert_int_equal(bitnet_dismiss(&members[0].ranks, &err), BITNET_OK);
    join(&hub, members, 2);
    assert_int_equal(members[1].ended, BITNET_OK);
}

/* An exchange that fails ends what is computed, by name. */
static void test_lost(void **state)
{
    struct hub hub;
    struct member members[2];
    bitnet_error err = {0};
    float *logits = calloc(8192, sizeof *logits);
    (void)state;
    assert_non_null(logits);
    start(&hub, members, 2, NULL);
    model = open_ranked(TEST_MODEL, NULL, &members[0].ranks);
    bitnet_engine_options o = {.size = sizeof o, .ctx_tokens = CTX};
    bitnet_engine *e = open_engine(&o);
    hub.broken = 2; /* 1 + the rank */
    assert_int_equal(bitnet_eval(e, 0, text, 4, 1, logits, &err), BITNET_E_IO);
    assert_non_null(strstr(err.text, "rank 1, the second,"));
    assert_int_equal(bitnet_eval(e, 0, text, 4, 1, logits, &err), BITNET_E_IO);
    bitnet_engine_close(e);
    bitnet_model_close(model);
    join(&hub, members, 2);
    assert_int_equal(members[1].ended, BITNET_E_IO);
    free(logits);
}

static void test_arguments(void **state)
{
    bitnet_error err = {0};
    bitnet_ranks r = {.size = sizeof r, .rank = 0, .n_ranks = 2};
    (void)state;
    assert_int_equal(bitnet_follow(NULL, &err), BITNET_E_ARG);
    assert_int_equal(bitnet_follow(&r, &err), BITNET_E_ARG); /* rank 0 leads */
    r.rank = 2;
    assert_int_equal(bitnet_follow(&r, &err), BITNET_E_ARG); /* of two */
    r.rank = 1;
    assert_int_equal(bitnet_follow(&r, &err), BITNET_E_ARG); /* functions are missing */
    assert_int_equal(bitnet_dismiss(NULL, &err), BITNET_E_ARG);
    r = (bitnet_ranks){.size = sizeof r,
                       .rank = 1,
                       .n_ranks = 2,
                       .broadcast = broadcast,
                       .gather = gather,
                       .collect = collect,
                       .outputs = "both"};
    assert_int_equal(bitnet_follow(&r, &err), BITNET_E_ARG);
    assert_non_null(strstr(err.text, "'both'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_model), cmocka_unit_test(test_families),
        cmocka_unit_test(test_hybrids),     cmocka_unit_test(test_refused),
        cmocka_unit_test(test_lost),        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
