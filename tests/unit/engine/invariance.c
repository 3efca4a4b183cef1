/* SPDX-License-Identifier: Apache-2.0
 * A request's answer does not depend on who else is there: 200 requests of mixed lengths, seeds, samplers
 * and adapters are answered one by one, and then all together in many ways. Tokens, log-probabilities, also
 * of the prompt, likeliest tokens and text are the same bytes.
 *
 * INVARIANCE=full (or f16, int8, int4, plan: that setting only) tries every combination with all requests and
 * prints a line for each; otherwise a few combinations with a part of the requests, in less than a
 * minute. */
#include "adapter_files.h"
#include "engine_common.h"

#include <time.h>

enum { N_REQUESTS = 200, MAX_CHOICES = 2, MAX_PROMPT = 192, PART = 10, CTX = 256 };

/* Types of the KV cache; and a plan, with thresholds and several types, blocks among them. */
static const struct setting {
    const char *name;
    bitnet_kv_type kv;
    const char *plan;
} settings[] = {
    {"f16", BITNET_KV_F16, "off"},
    {"int8", BITNET_KV_INT8, "off"},
    {"int4", BITNET_KV_INT4, "off"},
    {"plan", BITNET_KV_AUTO,
     "{\"format\":\"bitnet-plan-1\",\"layers\":["
     "{\"down_codes\":1,\"keys\":\"int8\",\"values\":\"int4\"},{\"gate_min\":0.2},"
     "{\"down_codes\":3,\"gate_min\":0.1,\"keys\":\"int4\",\"values\":\"int2\"},"
     "{\"keys\":\"f32\",\"values\":\"fp8_e4m3\"},{\"keys\":\"fp8_e5m2\",\"values\":\"fp8_e5m2\"},"
     "{\"down_codes\":2},{\"keys\":\"int8\",\"values\":\"int8\"},{\"values\":\"int4\"},"
     "{\"down_codes\":8,\"keys\":\"bf16\"},{\"gate_min\":0.05}]}"},
};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

struct test_request {
    bitnet_request r;
    int32_t prompt[MAX_PROMPT];
};

static struct test_request requests[N_REQUESTS];
static uint64_t n_yields; /* of all ways */
/* one beside all matrices, embedding and head; one beside some; alone, with a scale, and together */
static bitnet_adapter *adapters[2];
static bitnet_adapter_use uses[4][2];
static struct choice want[N_SETTINGS][N_REQUESTS][MAX_CHOICES], got[N_REQUESTS][MAX_CHOICES];
static bool full;        /* all requests, all combinations */
static const char *only; /* this setting; NULL: all */

/* ------------------------------------------------------------------ the requests */

static const char story[] =
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park "
    "with her dog Max. One day, Max found a big red ball. Lily threw the ball and Max ran to get "
    "it. "
    "Lily threw the ball again and Max ran to get it again. Then a boy named Tom came to the park. "
    "Tom "
    "wanted to play with the ball, too. Lily said, \"You can throw the ball and Max will get it.\" "
    "Tom "
    "threw the ball and Max ran to get it. They all played together until the sun went down.";

/* Greedy, every cut, every penalty, bias and forms, one after the other; i / 12 turns seeds on. */
static void choose_sampling(bitnet_request *r, int i)
{
    static const bitnet_logit_bias bias[] = {{300, 4}, {17, -5}, {301, 2}}, same = {300, 100};
    bitnet_sampling *s = &r->sampling;
    s->seed = (uint64_t)i * 7919;
    s->top_p = 1;
    s->min_p = 0;
    s->top_k = 0;
    switch (i % 12) {
    case 0: s->temperature = 0; break;
    case 1: s->top_k = 40; break;
    case 2: s->top_p = 0.9f; break;
    case 3:
        s->min_p = 0.05f;
        s->logit_bias = &same; /* here drafts are accepted */
        s->n_logit_bias = i % PART == 0;
        break;
    case 4: s->temperature = 1; break;
    case 5: s->typical_p = 0.9f; break;
    case 6: s->top_n_sigma = 1; break;
    case 7:
        s->adaptive = 1;
        s->top_k = 50;
        s->top_p = 0.95f;
        break;
    case 8:
        s->repetition_penalty = 1.2f;
        s->presence_penalty = 0.5f;
        s->frequency_penalty = 0.3f;
        break;
    case 9:
        s->temperature = 0;
        s->dry_multiplier = 0.8f;
        break;
    case 10:
        s->logit_bias = bias;
        s->n_logit_bias = sizeof bias / sizeof *bias;
        s->top_k = 20;
        break;
    case 11:
        if (i % 24 == 11) r->json_object = 1;
        else
            r->json_schema =
                "{\"type\":\"object\",\"properties\":{\"name\":{\"enum\":[\"Lily\",\"Tom\"]},"
                "\"age\":{\"type\":\"integer\"}},\"required\":[\"name\",\"age\"]}";
        r->ignore_end = 0;
        break;
    }
}

static void make_adapters(void)
{
    static const struct adapter_kind kinds[2] = {{1, 12, 0, 1, BN_F16, true, true, 0.06f},
                                                 {2, 5, 1, 3, BN_F32, false, false, 0.2f}};
    char path[ADAPTER_PATH_BYTES];
    bitnet_error err = {0};
    for (int i = 0; i < 2; i++) {
        make_adapter(path, TEST_MODEL, info.architecture, &kinds[i]);
        if (bitnet_adapter_open(&adapters[i], model, path, &err)) fail_msg("%s", err.text);
        remove(path);
    }
    const bitnet_adapter_use all[4][2] = {{{adapters[0], 1, 0}},
                                          {{adapters[1], 1, 0}},
                                          {{adapters[1], -0.5f, 0}},
                                          {{adapters[0], 0.5f, 0}, {adapters[1], 1, 0}}};
    memcpy(uses, all, sizeof all);
}

/* Of three requests in a row two have some. */
static void choose_adapters(bitnet_request *r, int i)
{
    int which = i / PART % 6;
    if (which >= 4) return;
    r->adapters = uses[which];
    r->n_adapters = which == 3 ? 2 : 1;
}

/* Beginnings of a story, which requests share, some with an end of their own; or arbitrary tokens. */
static void make_requests(void)
{
    static const char *const stop[] = {"the end", "\n\n"};
    int32_t ids[MAX_PROMPT];
    size_t n_ids = MAX_PROMPT;
    bitnet_error err = {0};
    if (bitnet_encode(model, story, strlen(story), BITNET_TOK_BOS_AUTO, ids, &n_ids, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < N_REQUESTS; i++) {
        struct test_request *q = &requests[i];
        size_t n = 1 + (size_t)i * 53 % (n_ids < 150 ? n_ids : 150);
        bitnet_request_init(&q->r, sizeof q->r);
        for (size_t k = 0; k < n; k++)
            q->prompt[k] =
                i % 5 == 4 ? (int32_t)((k % 11 * 131 + (size_t)i) % info.shape.n_vocab) : ids[k];
        if (i % 3 == 1) q->prompt[n - 1] = (i * 31) % (int32_t)info.shape.n_vocab;
        q->r.tokens = q->prompt;
        q->r.n_tokens = n;
        q->r.max_new_tokens = 1 + (uint32_t)i * 29 % 48;
        q->r.ignore_end = i % 4 != 0;
        q->r.n_choices = i % 10 == 3 ? 2 : 1;
        q->r.logprobs = i % 8 != 6;
        q->r.n_top_logprobs = (uint32_t)i % (ANSWER_TOP + 1);
        q->r.prompt_logprobs = i % 5 == 0 || i % 24 == 11;
        q->r.n_top_prompt_logprobs = (uint32_t)i / 5 % (ANSWER_TOP + 1);
        q->r.prefix_cache = i % 16 == 5 ? "off" : "auto";
        q->r.user = (uint64_t)i % 4; /* who give way to each other */
        q->r.user_weight = 10 * ((uint32_t)i % 4);
        q->r.priority = i % 9 == 4 ? -1 : 0;
        q->r.stop = stop;
        q->r.n_stop = i % 7 ? 0 : 2;
        q->r.stop_tokens = ids + 1; /* words of the story */
        q->r.n_stop_tokens = i % 6 == 1 ? 3 : 0;
        q->r.min_new_tokens = i % 9 == 4 ? 12 : 0;
        q->r.show_stop = i % 2 != 0;
        choose_sampling(&q->r, i);
        choose_adapters(&q->r, i);
    }
}

/* ------------------------------------------------------------------ the ways */

struct way {
    uint32_t threads, chunk, seqs;
    bool prefix, speculation, tight;
    size_t setting;
};

static bool takes_part(int i) { return full || i % PART == 0 || i % 12 == 11; }

static bitnet_engine *open_way(const struct way *w)
{
    bitnet_engine_options o = {.size = sizeof o};
    o.threads = w->threads;
    o.ctx_tokens = CTX;
    o.max_seqs = w->seqs;
    o.max_batch_tokens = w->chunk;
    o.kv_type = settings[w->setting].kv;
    o.plan = settings[w->setting].plan;
    /* tight: for one request and a half, so that there is always somebody who must give way */
    o.kv_tokens = w->tight ? 320 : w->seqs * 160 + CTX;
    o.prefix_cache = w->prefix ? "on" : "off";
    o.draft = w->speculation ? "on" : "off";
    return open_engine(&o);
}

/* One by one, nothing shared and nothing drafted: what all others must equal. */
static void answer_alone(size_t setting)
{
    const struct way way = {.threads = 1, .chunk = 512, .seqs = 1, .setting = setting};
    bitnet_engine *e = open_way(&way);
    for (int i = 0; i < N_REQUESTS; i++)
        for (uint32_t k = 0; takes_part(i) && k < requests[i].r.n_choices; k++) {
            bitnet_request r = requests[i].r;
            r.n_choices = 1;
            r.sampling.seed += k;
            r.prompt_logprobs &= k == 0; /* choice 0 tells them for all */
            struct ask ask = {submit(e, &r), 1, &want[setting][i][k]};
            finish_all(e, &ask, 1, 64);
            assert_int_equal(want[setting][i][k].n_finished, 1);
            assert_int_not_equal(want[setting][i][k].finish, BITNET_FINISH_ERROR);
        }
    bitnet_engine_close(e);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void answer_together(const struct way *w)
{
    struct ask asks[N_REQUESTS];
    size_t n = 0;
    double start = seconds();
    bitnet_engine *e = open_way(w);
    memset(got, 0, sizeof got);
    for (int i = 0; i < N_REQUESTS; i++)
        if (takes_part(i))
            asks[n++] = (struct ask){submit(e, &requests[i].r), requests[i].r.n_choices, got[i]};
    finish_all(e, asks, n, 64);
    bitnet_engine_info in = engine_info(e);
    bitnet_engine_close(e);
    for (int i = 0; i < N_REQUESTS; i++)
        if (takes_part(i) && memcmp(want[w->setting][i], got[i], sizeof got[i]) != 0)
            fail_msg("request %d differs: %s, %u threads, chunks of %u, %u at a time, prefix cache "
                     "%d, speculation %d, small cache %d",
                     i, settings[w->setting].name, w->threads, w->chunk, w->seqs, w->prefix,
                     w->speculation, w->tight);
    /* what was to be tried has happened */
    n_yields += in.work.yields;
    assert_true(!w->prefix || w->seqs == N_REQUESTS || in.prefix.hits > 0);
    assert_true((in.draft.accepted > 0) == (w->speculation && w->chunk > 1));
    assert_true(!w->tight || w->seqs == 1 || in.work.preemptions > 0);
    if (full)
        printf("%-5s %7u %6u %5u %6s %5s %10llu %9llu %8llu %7.1f  same\n",
               settings[w->setting].name, w->threads, w->chunk, w->seqs, w->prefix ? "on" : "off",
               w->speculation ? "on" : "off", (unsigned long long)in.work.preemptions,
               (unsigned long long)in.prefix.hit_tokens, (unsigned long long)in.draft.accepted,
               seconds() - start);
    fflush(stdout);
}

/* Chunks of 1 are for a sequence alone; the others have batch neighbours. */
static const struct {
    uint32_t chunk, seqs;
} chunks[] = {{1, 1}, {7, 5}, {64, 24}, {512, 200}};

static void try_all(size_t setting)
{
    for (uint32_t threads = 1; threads <= 3; threads++)
        for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++)
            for (int bits = 0; bits < 8; bits++) {
                struct way w = {threads,  chunks[c].chunk, chunks[c].seqs, bits & 1,
                                bits & 2, bits & 4,        setting};
                answer_together(&w);
            }
}

/* Every value of every setting at least once. */
static void try_some(size_t setting)
{
    static const struct way ways[] = {{1, 512, 200, true, true, false, 0},
                                      {2, 64, 24, true, true, true, 0},
                                      {3, 7, 5, false, true, true, 0},
                                      {2, 1, 1, true, false, false, 0},
                                      {2, 512, 200, false, false, true, 0}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct way w = ways[i];
        w.setting = setting;
        answer_together(&w);
    }
}

static void choices_are_the_same_with_any_neighbours(void **state)
{
    (void)state;
    make_adapters();
    make_requests();
    if (full)
        printf("%-5s %7s %6s %5s %6s %5s %10s %9s %8s %7s\n", "what", "threads", "chunk", "seqs",
               "prefix", "spec", "preempted", "hit toks", "accepted", "seconds");
    for (size_t i = 0; i < N_SETTINGS; i++) {
        if (only && strcmp(only, settings[i].name) != 0) continue;
        answer_alone(i);
        (full ? try_all : try_some)(i);
    }
    assert_true(n_yields > 0);
    for (int i = 0; i < 2; i++) bitnet_adapter_close(adapters[i]);
}

int main(void)
{
    const char *mode = getenv("INVARIANCE");
    full = mode != NULL;
    only = full && strcmp(mode, "full") != 0 ? mode : NULL;
    const struct CMUnitTest tests[] = {cmocka_unit_test(choices_are_the_same_with_any_neighbours)};
    return cmocka_run_group_tests(tests, open_model, close_model);
}
