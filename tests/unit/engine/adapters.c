/* SPDX-License-Identifier: Apache-2.0
 * Requests with adapters: the same bits alone and in company, whatever is drafted, given up and taken from
 * the prefix cache; of a dense model and of a hybrid. What the numbers have to be, tests/golden knows. */
#include "adapter_files.h"
#include "engine_common.h"

enum { N_ADAPTERS = 8, N_REQUESTS = 16, PROMPT = 70, NEW = 30, LONG = 96 };

static const char *const models[] = {TEST_MODEL, TEST_DATA "/hybrid/tiny.gguf"};
static bitnet_adapter *adapters[N_ADAPTERS];

static void open_adapters(const char *path)
{
    for (uint32_t i = 0; i < N_ADAPTERS; i++) {
        const struct adapter_kind kind = {.seed = 10 + i,
                                          .rank = 1 + 5 * i,
                                          .first = i,
                                          .every = 1 + i % 3,
                                          .type = i % 2 ? BN_F16 : BN_F32,
                                          .embed = i % 4 == 1,
                                          .head = i % 4 == 2,
                                          .strength = 0.1f};
        char file[ADAPTER_PATH_BYTES];
        bitnet_error err = {0};
        make_adapter(file, path, info.architecture, &kind);
        if (bitnet_adapter_open(&adapters[i], model, file, &err)) fail_msg("%s", err.text);
        remove(file); /* it is in memory */
    }
}

static void open_all(const char *path, const char *head)
{
    bitnet_error err = {0};
    const bitnet_model_options o = {.size = sizeof o, .head = head, .threads = 2};
    if (bitnet_model_open(&model, path, &o, &err)) fail_msg("%s", err.text);
    info.size = sizeof info;
    bitnet_model_get_info(model, &info);
    open_adapters(path);
}

static void close_all(void)
{
    for (uint32_t i = 0; i < N_ADAPTERS; i++) {
        bitnet_adapter_close(adapters[i]);
        adapters[i] = NULL;
    }
    bitnet_model_close(model);
}

static bitnet_engine_options options(uint32_t threads, uint32_t seqs)
{
    return (bitnet_engine_options){.size = sizeof(bitnet_engine_options),
                                   .threads = threads,
                                   .ctx_tokens = 256,
                                   .max_seqs = seqs,
                                   .max_batch_tokens = 64,
                                   .prefix_cache = "off",
                                   .draft = "off",
                                   .kv_type = BITNET_KV_F32};
}

struct test_request {
    bitnet_request r;
    int32_t prompt[PROMPT];
    bitnet_adapter_use uses[2];
};

/* Request i has adapter i % 8, from 8 on with another scale; 15 has two of them, 7 none. */
static void make_request(struct test_request *q, int i)
{
    bitnet_request_init(&q->r, sizeof q->r);
    for (int k = 0; k < PROMPT; k++)
        q->prompt[k] = 3 + (k * 29 + k / 7 * (i % 3)) % ((int32_t)info.shape.n_vocab - 3);
    q->r.tokens = q->prompt;
    q->r.n_tokens = PROMPT - (size_t)i % 5;
    q->r.max_new_tokens = NEW;
    q->r.ignore_end = q->r.logprobs = 1;
    q->r.n_top_logprobs = 3;
    q->r.prompt_logprobs = i % 6 == 0;
    q->r.sampling.temperature = i % 2 ? 0.9f : 0;
    q->r.sampling.seed = (uint64_t)i;
    q->uses[0] = (bitnet_adapter_use){adapters[i % N_ADAPTERS], i < 8 ? 1 : -0.5f, 0};
    q->uses[1] = (bitnet_adapter_use){adapters[3], 0.25f, 0};
    q->r.adapters = q->uses;
    q->r.n_adapters = i == 7 ? 0 : i == 15 ? 2 : 1;
}

static struct test_request requests[N_REQUESTS];
static struct choice alone[N_REQUESTS], base[N_REQUESTS], got[N_REQUESTS];

static void answer(bitnet_engine *e, int i, struct choice *to, bool adapted)
{
    bitnet_request r = requests[i].r;
    if (!adapted) r.n_adapters = 0;
    memset(to, 0, sizeof *to);
    struct ask ask = {submit(e, &r), 1, to};
    finish_all(e, &ask, 1, 64);
    assert_int_equal(to->finish, BITNET_FINISH_LENGTH);
}

static void answer_alone(void)
{
    for (int i = 0; i < N_REQUESTS; i++) make_request(&requests[i], i);
    bitnet_engine_options o = options(1, 1);
    o.max_batch_tokens = 512;
    bitnet_engine *e = open_engine(&o);
    for (int i = 0; i < N_REQUESTS; i++) {
        answer(e, i, &alone[i], true);
        answer(e, i, &base[i], false);
        bool same = memcmp(&alone[i], &base[i], sizeof alone[i]) == 0;
        assert_int_equal(same, i == 7); /* they matter */
    }
    bitnet_engine_close(e);
}

static bitnet_engine_info answer_together(const bitnet_engine_options *o)
{
    struct ask asks[N_REQUESTS];
    bitnet_engine *e = open_engine(o);
    memset(got, 0, sizeof got);
    for (int round = 0; round < 2; round++) { /* the second may find what the first has left */
        memset(got, 0, sizeof got);
        for (int i = 0; i < N_REQUESTS; i++)
            asks[i] = (struct ask){submit(e, &requests[i].r), 1, &got[i]};
        finish_all(e, asks, N_REQUESTS, 64);
        for (int i = 0; i < N_REQUESTS; i++)
            if (memcmp(&alone[i], &got[i], sizeof got[i]) != 0)
                fail_msg(
                    "request %d differs in round %d: %u threads, %u at a time, prefix cache %s, "
                    "drafts %s",
                    i, round, o->threads, o->max_seqs, o->prefix_cache, o->draft);
    }
    bitnet_engine_info in = engine_info(e);
    bitnet_engine_close(e);
    return in;
}

static void eight_adapters_in_a_batch_are_as_alone(void **state)
{
    (void)state;
    for (int m = 0; m < 2; m++) {
        open_all(models[m], NULL);
        answer_alone();
        for (uint32_t threads = 1; threads <= 3; threads += 2) {
            bitnet_engine_options o = options(threads, N_REQUESTS);
            answer_together(&o);
        }
        bitnet_engine_options o = options(2, N_REQUESTS);
        o.prefix_cache = o.draft = "on";
        bitnet_engine_info in = answer_together(&o);
        assert_true(in.prefix.hits >= N_REQUESTS / 2);
        o = options(2, 5);
        o.prefix_cache = "on";
        o.draft = "on";
        o.max_batch_tokens = 7;
        o.kv_tokens = 320; /* somebody must give way */
        in = answer_together(&o);
        assert_true(in.work.preemptions > 0);
        close_all();
    }
}

static uint32_t cached(bitnet_engine *e, const bitnet_adapter_use *uses, size_t n, int32_t *first)
{
    int32_t prompt[LONG];
    bitnet_request r;
    bitnet_event ev = {.size = sizeof ev};
    bitnet_error err;
    uint32_t n_cached = 0;
    for (int k = 0; k < LONG; k++) prompt[k] = 5 + k % 100;
    bitnet_request_init(&r, sizeof r);
    r.tokens = prompt;
    r.n_tokens = LONG;
    r.max_new_tokens = 2;
    r.ignore_end = 1;
    r.sampling.temperature = 0;
    r.adapters = uses;
    r.n_adapters = n;
    submit(e, &r);
    *first = -1;
    for (size_t got_events = 1; got_events;) {
        got_events = 1;
        assert_int_equal(bitnet_step(e, &ev, &got_events, &err), BITNET_OK);
        if (!got_events) break;
        n_cached = ev.n_cached;
        if (ev.token >= 0 && *first < 0) *first = ev.token;
    }
    return n_cached;
}

/* A text is known only with the same adapters, in the same order, with the same scales. */
static void the_prefix_cache_tells_adapters_apart(void **state)
{
    (void)state;
    for (int m = 0; m < 2; m++) {
        open_all(models[m], NULL);
        bitnet_engine_options o = options(2, 4);
        o.prefix_cache = "on";
        o.kv_tokens = 4096;
        bitnet_engine *e = open_engine(&o);
        const bitnet_adapter_use lists[][2] = {{{adapters[0], 0, 0}},
                                               {{adapters[4], 1, 0}},
                                               {{adapters[5], 1, 0}},
                                               {{adapters[4], 0.5f, 0}},
                                               {{adapters[4], 1, 0}, {adapters[5], 1, 0}},
                                               {{adapters[5], 1, 0}, {adapters[4], 1, 0}}};
        int32_t first[6], again;
        for (int i = 0; i < 6; i++)
            assert_int_equal(cached(e, lists[i], i < 4 ? 1 : 2, &first[i]), 0);
        for (int i = 0; i < 6; i++) {
            assert_true(cached(e, lists[i], i < 4 ? 1 : 2, &again) >= LONG / 2);
            assert_int_equal(again, first[i]);
        }
        /* scale 0 is none, and so is an empty list */
        assert_true(cached(e, lists[1], 0, &again) >= LONG / 2);
        assert_int_equal(again, first[0]);
        /* an adapter opened anew is another one */
        bitnet_adapter_close(adapters[4]);
        for (uint32_t i = 0; i < N_ADAPTERS; i++)
            if (i != 4) bitnet_adapter_close(adapters[i]);
        open_adapters(models[m]);
        const bitnet_adapter_use fresh = {adapters[4], 1, 0};
        assert_int_equal(cached(e, &fresh, 1, &again), 0);
        assert_int_equal(again, first[1]);
        bitnet_engine_close(e);
        close_all();
    }
}

/* The caller closes an adapter while requests use it, the engine's own one too. */
static void requests_keep_their_adapters(void **state)
{
    (void)state;
    open_all(models[0], NULL);
    answer_alone();
    const bitnet_engine_options o = options(2, N_REQUESTS);
    bitnet_engine *e = open_engine(&o);
    bitnet_error err = {0};
    struct ask asks[N_REQUESTS];
    const bitnet_adapter_use own = {adapters[2], 1, 0};
    memset(got, 0, sizeof got);
    assert_int_equal(bitnet_engine_set_adapters(e, &own, 1, &err), BITNET_OK);
    for (int i = 0; i < N_REQUESTS; i++) {
        bitnet_request r = requests[i].r;
        if (i == 2) r.adapters = NULL; /* the engine's own */
        asks[i] = (struct ask){submit(e, &r), 1, &got[i]};
    }
    for (int i = 0; i < 3; i++) step(e, asks, N_REQUESTS, 64);
    assert_int_equal(bitnet_engine_set_adapters(e, NULL, 0, &err), BITNET_OK);
    for (uint32_t i = 0; i < N_ADAPTERS; i++) {
        bitnet_adapter_close(adapters[i]);
        adapters[i] = NULL;
    }
    finish_all(e, asks, N_REQUESTS, 64);
    for (int i = 0; i < N_REQUESTS; i++) assert_memory_equal(&got[i], &alone[i], sizeof got[i]);
    bitnet_engine_close(e);
    close_all();
}

/* Greedy tokens with the screened head, of which adapters of the head take no notice. */
static void a_screened_head_takes_adapters_exactly(void **state)
{
    (void)state;
    open_all(models[0], "screened");
    for (int i = 0; i < N_REQUESTS; i++) {
        make_request(&requests[i], i);
        requests[i].r.logprobs = requests[i].r.n_top_logprobs = requests[i].r.prompt_logprobs = 0;
    }
    for (int screened = 0; screened < 2; screened++) {
        bitnet_engine_options o = options(2, N_REQUESTS);
        o.head = screened ? "screened" : "exact";
        bitnet_engine *e = open_engine(&o);
        struct ask asks[N_REQUESTS];
        memset(got, 0, sizeof got);
        for (int i = 0; i < N_REQUESTS; i++)
            asks[i] = (struct ask){submit(e, &requests[i].r), 1, &got[i]};
        finish_all(e, asks, N_REQUESTS, 64);
        const bitnet_engine_info in = engine_info(e);
        assert_true(!screened || (in.head.screened > 0 && in.head.full > 0));
        bitnet_engine_close(e);
        if (!screened) memcpy(base, got, sizeof got);
    }
    assert_memory_equal(base, got, sizeof got);
    close_all();
}

/* bitnet_eval, scores and embeddings use those of the engine. */
static void all_else_uses_the_engines_own(void **state)
{
    (void)state;
    open_all(models[0], NULL);
    const bitnet_engine_options o = options(2, 2);
    bitnet_engine *e = open_engine(&o);
    bitnet_error err = {0};
    const int32_t ids[] = {5, 9, 77, 1033, 8, 8, 300};
    enum { N = sizeof ids / sizeof *ids };
    const bitnet_embed_input text = {.tokens = ids, .n_tokens = N};
    static float states[3][512];
    float *rows[3];
    assert_int_equal(info.shape.n_embd, 512);
    for (int i = 0; i < 3; i++) {
        const bitnet_adapter_use own = {adapters[2], 1, 0};
        rows[i] = calloc(info.shape.n_vocab, sizeof **rows);
        assert_int_equal(bitnet_engine_set_adapters(e, &own, i == 1, &err), BITNET_OK);
        assert_int_equal(bitnet_eval(e, 0, ids, N, 1, rows[i], &err), BITNET_OK);
        assert_int_equal(bitnet_eval_reset(e, 0, &err), BITNET_OK);
        assert_int_equal(bitnet_embed(e, &text, 1, NULL, states[i], &err), BITNET_OK);
    }
    size_t bytes = info.shape.n_vocab * sizeof **rows;
    assert_memory_equal(rows[0], rows[2], bytes);
    assert_memory_equal(states[0], states[2], sizeof states[0]);
    assert_memory_not_equal(rows[0], rows[1], bytes);
    assert_memory_not_equal(states[0], states[1], sizeof states[0]);
    /* and a request that names it sees the same logits */
    bitnet_request r;
    const bitnet_adapter_use use = {adapters[2], 1, 0};
    bitnet_request_init(&r, sizeof r);
    r.tokens = ids;
    r.n_tokens = N;
    r.max_new_tokens = 1;
    r.ignore_end = 1;
    r.sampling.temperature = 0;
    r.adapters = &use;
    r.n_adapters = 1;
    memset(got, 0, sizeof got);
    struct ask ask = {submit(e, &r), 1, &got[0]};
    finish_all(e, &ask, 1, 64);
    int32_t best = 0;
    for (uint32_t i = 0; i < info.shape.n_vocab; i++)
        if (rows[1][i] > rows[1][best]) best = (int32_t)i;
    assert_int_equal(got[0].tokens[0], best);
    for (int i = 0; i < 3; i++) free(rows[i]);
    bitnet_engine_close(e);
    close_all();
}

static void wrong_lists_are_refused(void **state)
{
    (void)state;
    open_all(models[0], NULL);
    const bitnet_engine_options o = options(1, 1);
    bitnet_engine *e = open_engine(&o);
    bitnet_model *other_model;
    bitnet_adapter *other;
    bitnet_error err = {0};
    char file[ADAPTER_PATH_BYTES];
    const struct adapter_kind kind = {.seed = 1, .rank = 2, .every = 9, .strength = 1};
    assert_int_equal(bitnet_model_open(&other_model, TEST_MODEL, NULL, &err), BITNET_OK);
    make_adapter(file, TEST_MODEL, info.architecture, &kind);
    assert_int_equal(bitnet_adapter_open(&other, other_model, file, &err), BITNET_OK);
    remove(file);
    bitnet_adapter_use nine[9];
    for (int i = 0; i < 9; i++) nine[i] = (bitnet_adapter_use){adapters[i % 8], 1, 0};
    const struct {
        bitnet_adapter_use uses[2];
        size_t n;
        const char *says;
    } wrong[] = {{{{NULL, 1, 0}}, 1, "NULL"},
                 {{{other, 1, 0}}, 1, "another model"},
                 {{{adapters[0], NAN, 0}}, 1, "finite"},
                 {{{adapters[0], 1, 0}, {adapters[0], 2, 0}}, 2, "twice"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        make_request(&requests[0], 0);
        uint64_t id;
        requests[0].r.adapters = wrong[i].uses;
        requests[0].r.n_adapters = wrong[i].n;
        assert_int_equal(bitnet_submit(e, &requests[0].r, &id, &err), BITNET_E_ARG);
        assert_non_null(strstr(err.text, wrong[i].says));
        assert_int_equal(bitnet_engine_set_adapters(e, wrong[i].uses, wrong[i].n, &err),
                         BITNET_E_ARG);
    }
    assert_int_equal(bitnet_engine_set_adapters(e, nine, 9, &err), BITNET_E_LIMIT);
    bitnet_adapter_info in = {.size = sizeof in};
    assert_int_equal(bitnet_adapter_get_info(adapters[2], &in), BITNET_OK);
    assert_int_equal(in.rank_max, 11);
    assert_string_equal(in.format, "GGUF");
    assert_true(in.bytes >= 2 * in.n_params && in.n_matrices > 3);
    bitnet_adapter_close(other);
    bitnet_model_close(other_model);
    bitnet_engine_close(e);
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_adapters_in_a_batch_are_as_alone),
        cmocka_unit_test(the_prefix_cache_tells_adapters_apart),
        cmocka_unit_test(requests_keep_their_adapters),
        cmocka_unit_test(a_screened_head_takes_adapters_exactly),
        cmocka_unit_test(all_else_uses_the_engines_own),
        cmocka_unit_test(wrong_lists_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
