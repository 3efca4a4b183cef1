/* SPDX-License-Identifier: Apache-2.0
 * The engine with a model that has recurrent states beside keys and values. An answer does not depend on
 * threads, cuts, batch neighbours, drafts, on what was found in the prefix cache, how many states it could put
 * aside, or how often it gave way; nothing is lost when requests are cancelled; what was known is not
 * computed again. */
#include <stdlib.h>
#include <unistd.h>

#include "alloc_count.h"
#include "engine/engine_impl.h"
#include "engine_common.h"
#include <sys/mman.h>

/* A random model of this shape becomes that of the tests. */
static int open_shape(const char *shape)
{
    bitnet_synth_options o = {.size = sizeof o};
    bitnet_error err = {0};
    char path[64];
    int fd = memfd_create("model", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    o.overwrite = 1;
    if (fd < 0 || bitnet_synth(shape, path, &o, &err) ||
        bitnet_model_open(&model, path, NULL, &err)) {
        printf("%s\n", err.text);
        return -1;
    }
    close(fd);
    info.size = sizeof info;
    bitnet_model_get_info(model, &info);
    return 0;
}

static int open_hybrid(void **state)
{
    (void)state;
    return open_shape("qwen35-tiny-rotated");
}

/* Emulated or with a sanitizer it takes ten times as long. */
#ifdef TEST_NATIVE
enum { SOME = 1 };
#else
enum { SOME = 4 }; /* one of so many */
#endif

enum { PAGE = BN_ATTN_BLOCK, CTX = 512, N_REQUESTS = 14, MAX_PROMPT = 170, MAX_CHOICES = 3 };

/* Types of keys and values, and of states; or a plan, with types of activations, too. */
static const struct {
    bitnet_kv_type kv;
    const char *state, *plan;
} kinds[] = {
    {BITNET_KV_F16, "f32", "off"},
    {BITNET_KV_INT8, "f32", "off"},
    {BITNET_KV_INT4, "f32", "off"},
    {BITNET_KV_F16, "bf16", "off"},
    {BITNET_KV_AUTO, NULL,
     "{\"format\":\"bitnet-plan-1\",\"layers\":["
     "{\"state\":\"bf16\",\"activations\":{\"mixer\":\"int8\",\"down\":\"f32\"}},"
     "{\"activations\":{\"gate_up\":\"int8\",\"mixer_out\":\"int8\"}},{\"state\":\"bf16\"},"
     "{\"keys\":\"int4\",\"values\":\"int8\",\"activations\":{\"mixer\":\"int8\"}}]}"}};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static int32_t prompts[N_REQUESTS][MAX_PROMPT];
static bitnet_request requests[N_REQUESTS];
static bool known[N_KINDS]; /* what is wanted */
static uint64_t n_yields;   /* of all ways */
static struct choice want[N_KINDS][N_REQUESTS][MAX_CHOICES], got[N_REQUESTS][MAX_CHOICES];

/* Beginnings of one text, some with an end of their own; or arbitrary tokens. */
static void make_requests(void)
{
    static const bitnet_logit_bias same = {30, 100};
    for (int i = 0; i < N_REQUESTS; i++) {
        bitnet_request *r = &requests[i];
        uint32_t n = 1 + (uint32_t)i * 53 % 140;
        bitnet_request_init(r, sizeof *r);
        for (uint32_t k = 0; k < n; k++)
            prompts[i][k] = (int32_t)((k * k * 7 + k * 131 + (i % 5 == 4 ? (uint32_t)i : 0)) %
                                      info.shape.n_vocab);
        if (i % 3 == 1) prompts[i][n - 1] = i;
        r->user = (uint64_t)i % 4; /* who give way to each other */
        r->user_weight = 10 * ((uint32_t)i % 4);
        r->tokens = prompts[i];
        r->n_tokens = n;
        r->max_new_tokens = 1 + (uint32_t)i * 29 % 50;
        r->ignore_end = 1;
        r->n_choices = i % 6 == 3 ? MAX_CHOICES : 1;
        r->logprobs = i % 8 != 6;
        r->prefix_cache = i % 10 == 9 ? "off" : "auto";
        r->sampling.seed = (uint64_t)i * 7919;
        r->sampling.temperature = i % 2 ? 0 : 1;
        r->sampling.logit_bias = &same; /* where it counts, drafts are accepted */
        r->sampling.n_logit_bias = i % 4 == 2;
    }
}

struct way {
    uint32_t threads, chunk, seqs;
    bool prefix, speculation, tight;
    uint32_t slots; /* for snapshots; 0: as it comes */
};

static bitnet_engine *open_way(const struct way *w, size_t kind)
{
    bitnet_engine_options o = {.size = sizeof o};
    o.threads = w->threads;
    o.ctx_tokens = CTX;
    o.max_seqs = w->seqs;
    o.max_batch_tokens = w->chunk;
    o.kv_type = kinds[kind].kv;
    o.state_type = kinds[kind].state;
    o.plan = kinds[kind].plan;
    o.kv_tokens = w->tight ? 256 : 0; /* one request and a half */
    o.prefix_cache = w->prefix ? "on" : "off";
    o.draft = w->speculation ? "on" : "off";
    bitnet_engine *e = open_engine(&o);
    o.state_cache_bytes = (int64_t)(w->slots * engine_info(e).states.seq_bytes);
    bitnet_engine_close(e);
    e = open_engine(&o);
    if (w->prefix && w->slots) assert_int_equal(engine_info(e).states.snapshots, w->slots);
    return e;
}

/* One by one, nothing shared and nothing drafted: what all others must equal. Once is enough. */
static void answer_alone(size_t kind)
{
    if (known[kind]) return;
    known[kind] = true;
    memset(want[kind], 0, sizeof want[kind]);
    const struct way way = {.threads = 1, .chunk = 512, .seqs = 1};
    bitnet_engine *e = open_way(&way, kind);
    for (int i = 0; i < N_REQUESTS; i++)
        for (uint32_t k = 0; k < requests[i].n_choices; k++) {
            bitnet_request r = requests[i];
            r.n_choices = 1;
            r.sampling.seed += k;
            struct ask ask = {submit(e, &r), 1, &want[kind][i][k]};
            finish_all(e, &ask, 1, 64);
            assert_int_equal(want[kind][i][k].finish, BITNET_FINISH_LENGTH);
        }
    bitnet_engine_close(e);
}

/* Every slot can be had again, so none is out or pinned; and every page is free or can be. */
static void check_slots(bitnet_engine *e)
{
    struct bn_snapshots *s = e->prefix ? bn_prefix_snapshots(e->prefix) : NULL;
    bitnet_engine_info in = engine_info(e);
    assert_int_equal(in.kv.pages_free + in.kv.pages_cached, in.kv.pages);
    assert_true(in.states.snapshots_used <= in.states.snapshots);
    if (!s) return;
    uint32_t n = bn_snapshots_stats(s)->slots;
    for (uint32_t i = 0; i < n; i++) assert_int_not_equal(bn_snapshots_take(s, false), BN_NO_SLOT);
    assert_int_equal(bn_snapshots_take(s, false), BN_NO_SLOT);
    for (uint32_t i = 0; i < n; i++) bn_snapshots_give_back(s, i);
    bn_prefix_clear(e->prefix);
    assert_int_equal(engine_info(e).kv.pages_free, in.kv.pages);
}

static bitnet_engine_info answer_together(const struct way *w, size_t kind)
{
    struct ask asks[N_REQUESTS];
    bitnet_engine *e = open_way(w, kind);
    memset(got, 0, sizeof got);
    for (int i = 0; i < N_REQUESTS; i++)
        asks[i] = (struct ask){submit(e, &requests[i]), requests[i].n_choices, got[i]};
    finish_all(e, asks, N_REQUESTS, 64);
    bitnet_engine_info in = engine_info(e);
    check_slots(e);
    bitnet_engine_close(e);
    for (int i = 0; i < N_REQUESTS; i++)
        if (memcmp(want[kind][i], got[i], sizeof got[i]) != 0)
            fail_msg("request %d differs: kind %zu, %u threads, chunks of %u, %u at a "
                     "time, prefix "
                     "cache %d, speculation %d, small cache %d, %u snapshots",
                     i, kind, w->threads, w->chunk, w->seqs, w->prefix, w->speculation, w->tight,
                     w->slots);
    /* what was to be tried has happened */
    assert_true((in.draft.accepted > 0) == (w->speculation && w->chunk > 1));
    assert_true((in.work.preemptions > 0) == (w->tight && w->seqs > 1));
    assert_true((in.states.saves > 0) == w->prefix);
    n_yields += in.work.yields;
    /* what was found has no room at times, and is found again later */
    assert_true((in.states.restores > 0) == w->prefix || w->slots == 1 || w->seqs > N_REQUESTS);
    assert_true(in.states.restores <= in.prefix.hits);
    assert_true((in.states.evictions > 0) || w->slots != 1 || !w->prefix);
    return in;
}

static void choices_are_the_same_with_any_neighbours(void **state)
{
    (void)state;
    static const struct way ways[] = {
        {1, 512, 20, true, true, false, 0},  {2, 64, 8, true, true, true, 0},
        {3, 7, 5, true, true, true, 3},      {2, 1, 1, true, false, false, 2},
        {2, 512, 20, false, false, true, 0}, {3, 64, 4, true, false, false, 1},
        {1, 7, 3, true, false, true, 1},     {2, 512, 6, true, true, true, 6},
        {1, 64, 8, false, true, true, 0},    {3, 512, 3, true, true, false, 4}};
    make_requests();
    for (size_t kind = 0; kind<N_KINDS; kind += SOME> 1 ? 2 : 1) {
        answer_alone(kind);
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) /* the others: some of them */
            if ((kind % 4 == 0 && i % SOME == 0) || i % 4 == kind) answer_together(&ways[i], kind);
    }
    assert_true(n_yields > 0);
}

/* With a layer that drafts: it has keys and values of its own in pages that are taken over. */
static void answers_are_the_same_with_drafts(void **state)
{
    (void)state;
    static const struct way ways[] = {{1, 512, 20, true, true, false, 0},
                                      {2, 64, 4, true, true, true, 3},
                                      {3, 7, 3, true, true, false, 2}};
    close_model(NULL);
    assert_int_equal(open_shape("qwen35-tiny"), 0);
    make_requests();
    memset(known, 0, sizeof known);
    answer_alone(0);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i += SOME) answer_together(&ways[i], 0);
    close_model(NULL);
    assert_int_equal(open_shape("qwen35-tiny-rotated"), 0);
    memset(known, 0, sizeof known);
}

/* Those that give way go on from the last state that is there, or read all of their text again. */
static void preempted_answers_go_on_from_a_snapshot(void **state)
{
    (void)state;
    struct way way = {.threads = 2, .chunk = 64, .seqs = 4, .tight = true};
    make_requests();
    answer_alone(0);
    bitnet_engine_info all = answer_together(&way, 0);
    way.prefix = true;
    bitnet_engine_info some = answer_together(&way, 0);
    assert_true(some.work.preemptions > 2 && all.work.preemptions > 2);
    double mean_all = (double)all.work.recomputed_tokens / (double)all.work.preemptions;
    double mean_some = (double)some.work.recomputed_tokens / (double)some.work.preemptions;
    if (!(mean_some < 0.7 * mean_all))
        fail_msg("%g tokens again after giving way, %g without snapshots", mean_some, mean_all);
}

/* ------------------------------------------------------------------ what is not computed again */

/* The template takes thoughts out of earlier turns: the second prompt has the first one but for its last
 * tokens, which asked for an answer; then the answer without its thoughts, and something new. */
static void a_second_turn_reads_few_old_tokens(void **state)
{
    (void)state;
    enum { FIRST = 1500, NEW = 60, ROOM = FIRST + 2 * NEW };
    static int32_t prompt[ROOM];
    for (uint32_t first = FIRST; first < FIRST + PAGE;
         first += 13 * SOME) /* at every place in a page */
        for (uint32_t lost = 1; lost <= 25; lost += 24) {
            bitnet_engine_options o = {.size = sizeof o};
            bitnet_engine *e;
            bitnet_request r;
            static struct choice answers[3];
            bitnet_request_init(&r, sizeof r);
            memset(answers, 0, sizeof answers);
            o.ctx_tokens = 2048;
            o.max_batch_tokens = 512;
            e = open_engine(&o);
            for (uint32_t i = 0; i < ROOM; i++) prompt[i] = (int32_t)(i * i % 361);
            r.tokens = prompt;
            r.n_tokens = first;
            r.max_new_tokens = 70;
            r.ignore_end = 1;
            struct ask ask = {submit(e, &r), 1, &answers[0]};
            finish_all(e, &ask, 1, 64);
            uint64_t before = engine_info(e).work.prompt_tokens;
            memcpy(prompt + first - lost, answers[0].tokens + 40, 20 * sizeof *prompt);
            prompt[first - lost] = 362; /* where they part */
            r.n_tokens = first - lost + NEW;
            ask = (struct ask){submit(e, &r), 1, &answers[1]};
            finish_all(e, &ask, 1, 64);
            uint64_t old = engine_info(e).work.prompt_tokens - before - NEW;
            if (old > 2 * PAGE) fail_msg("%u, %u: %d old tokens", first, lost, (int)old);
            if (first == FIRST && lost == 1) {
                r.prefix_cache = "off";
                ask = (struct ask){submit(e, &r), 1, &answers[2]};
                finish_all(e, &ask, 1, 64);
                assert_memory_equal(&answers[1], &answers[2], sizeof *answers);
            }
            check_slots(e);
            bitnet_engine_close(e);
        }
}

/* Without thoughts the next prompt has all of the answer: what of it has not been read is less than two
 * pages. */
static void an_answer_is_taken_up_where_it_ended(void **state)
{
    (void)state;
    static int32_t prompt[CTX];
    static struct choice answers[2];
    const struct way way = {.threads = 1, .chunk = 64, .seqs = 1, .prefix = true, .slots = 4};
    for (uint32_t n_new = 1; n_new < ANSWER_TOKENS; n_new += 11) {
        bitnet_engine *e = open_way(&way, 0);
        bitnet_request r;
        bitnet_request_init(&r, sizeof r);
        memset(answers, 0, sizeof answers);
        for (uint32_t i = 0; i < 200; i++) prompt[i] = (int32_t)(i * i % 361);
        r.tokens = prompt;
        r.n_tokens = 100;
        r.max_new_tokens = n_new;
        r.ignore_end = 1;
        struct ask ask = {submit(e, &r), 1, &answers[0]};
        finish_all(e, &ask, 1, 64);
        memcpy(prompt + 100, answers[0].tokens, n_new * sizeof *prompt);
        r.n_tokens = 100 + n_new + 20;
        ask = (struct ask){submit(e, &r), 1, &answers[1]};
        finish_all(e, &ask, 1, 64);
        /* the last token of an answer is not computed */
        assert_int_equal(engine_info(e).prefix.hit_tokens, (100 + n_new - 1) / PAGE * PAGE);
        check_slots(e);
        bitnet_engine_close(e);
    }
}

/* Each further answer begins with the prompt's last page; none has to be computed at the same time. */
static void choices_share_the_prompt(void **state)
{
    (void)state;
    enum { N = 5, PROMPT = 139 };
    static struct choice answers[N];
    int32_t prompt[PROMPT];
    for (int i = 0; i < PROMPT; i++) prompt[i] = i * i % 361;
    for (uint32_t seqs = 1; seqs <= N; seqs += 4)
        for (uint32_t slots = 1; slots <= 3; slots += 2) {
            const struct way way = {1, 64, seqs, true, false, false, slots};
            bitnet_engine *e = open_way(&way, 0);
            bitnet_request r;
            bitnet_request_init(&r, sizeof r);
            memset(answers, 0, sizeof answers);
            r.tokens = prompt;
            r.n_tokens = PROMPT;
            r.max_new_tokens = 40;
            r.ignore_end = 1;
            r.n_choices = N;
            struct ask ask = {submit(e, &r), N, answers};
            finish_all(e, &ask, 1, 64);
            assert_int_equal(engine_info(e).work.prompt_tokens, PROMPT + (N - 1) * (PROMPT % PAGE));
            check_slots(e);
            bitnet_engine_close(e);
        }
}

/* ------------------------------------------------------------------ they come and go */

static void cancelling_leaks_nothing(void **state)
{
    (void)state;
    enum { N = 4 };
    static struct choice answers[N][MAX_CHOICES];
    struct way way = {2, 24, 4, true, true, true, 3};
    make_requests();
    for (uint32_t which = 0; which <= N; which += SOME) {
        bitnet_engine *e = open_way(&way, which % N_KINDS);
        bool cancelled = true;
        for (int s = 0; cancelled; s += SOME + s / 4) {
            struct ask asks[N];
            memset(answers, 0, sizeof answers);
            for (int i = 0; i < N; i++) { /* the second one has three answers */
                bitnet_request r = requests[i + 2];
                r.max_new_tokens = 12;
                asks[i] = (struct ask){submit(e, &r), r.n_choices, answers[i]};
            }
            for (int i = 0; i < s; i++) step(e, asks, N, 64);
            cancelled = false;
            for (uint32_t i = 0; i < N; i++)
                if (which == i || which == N)
                    cancelled |= bitnet_cancel(e, asks[i].id) == BITNET_OK;
            finish_all(e, asks, N, 64);
            for (uint32_t i = 0; i < N; i++)
                for (uint32_t k = 0; k < asks[i].n_choices; k++)
                    assert_int_equal(answers[i][k].n_finished, 1);
            if (s % 4 == 0) check_slots(e); /* else it stays warm */
        }
        check_slots(e);
        bitnet_engine_close(e);
    }
}

static void a_step_allocates_nothing(void **state)
{
    (void)state;
    make_requests();
    for (uint32_t threads = 1; threads <= 2; threads++) {
        const struct way way = {threads, 64, 5, true, true, true, 2};
        struct ask asks[N_REQUESTS];
        bitnet_engine *e = open_way(&way, 0);
        memset(got, 0, sizeof got);
        for (int i = 0; i < N_REQUESTS; i++)
            asks[i] = (struct ask){submit(e, &requests[i]), requests[i].n_choices, got[i]};
        long before = n_allocs;
        finish_all(e, asks, N_REQUESTS, 64);
        assert_int_equal(n_allocs, before);
        bitnet_engine_info in = engine_info(e);
        assert_true(in.work.preemptions > 0 && in.states.restores > 0 && in.states.evictions > 0);
        bitnet_engine_close(e);
    }
}

/* ------------------------------------------------------------------ the other doors */

/* A vector for each of some texts, in an engine that has nothing else to do, and in one whose sequences
 * are all taken; those that run do not notice. */
static void embeddings_have_a_state_of_their_own(void **state)
{
    (void)state;
    enum { N = 5 };
    bitnet_embed_input in[N];
    bitnet_embed_options o = {.size = sizeof o};
    float *idle = calloc(N, info.shape.n_embd * sizeof *idle),
          *busy = calloc(N, info.shape.n_embd * sizeof *busy);
    make_requests();
    answer_alone(0);
    for (int i = 0; i < N; i++)
        in[i] = (bitnet_embed_input){requests[i + 5].tokens, requests[i + 5].n_tokens};
    const struct way ways[] = {{1, 512, 6, true, true, false, 2}, {2, 24, 2, true, true, false, 2}};
    bitnet_engine *e = open_way(&ways[0], 0);
    assert_int_equal(bitnet_embed(e, in, N, &o, idle, NULL), BITNET_OK);
    bitnet_engine_close(e);
    for (int steps = 0; steps < 12; steps += 3) {
        struct ask asks[2];
        e = open_way(&ways[1], 0);
        memset(got, 0, sizeof got);
        for (int i = 0; i < 2; i++) /* several answers: all places are taken */
            asks[i] = (struct ask){submit(e, &requests[3 + 6 * i]), MAX_CHOICES, got[3 + 6 * i]};
        for (int i = 0; i < steps; i++) step(e, asks, 2, 64);
        assert_int_equal(bitnet_embed(e, in, N, &o, busy, NULL), BITNET_OK);
        assert_memory_equal(idle, busy, N * info.shape.n_embd * sizeof *idle);
        finish_all(e, asks, 2, 64);
        assert_memory_equal(got[3], want[0][3], sizeof got[3]);
        assert_memory_equal(got[9], want[0][9], sizeof got[9]);
        check_slots(e);
        bitnet_engine_close(e);
    }
    free(idle);
    free(busy);
}

static void logits_do_not_depend_on_cutting(void **state)
{
    (void)state;
    enum { N = 70 };
    int32_t ids[N];
    const struct way way = {2, 512, 3, true, true, false, 2};
    for (int i = 0; i < N; i++) ids[i] = (i * 53 + 3) % (int32_t)info.shape.n_vocab;
    size_t n = (size_t)N * info.shape.n_vocab;
    float *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b);
    bitnet_engine *e = open_way(&way, 0);
    assert_int_equal(bitnet_eval(e, 0, ids, N, 0, a, NULL), BITNET_OK);
    for (int chunk = 1; chunk <= 33; chunk += 16) {
        assert_int_equal(bitnet_eval_reset(e, 1, NULL), BITNET_OK);
        for (int i = 0; i < N; i += chunk) /* two at a time: their states are two */
            for (uint32_t seq = 1; seq <= 2; seq++)
                assert_int_equal(bitnet_eval(e, seq, ids + i,
                                             (size_t)(N - i < chunk ? N - i : chunk), 0,
                                             b + (size_t)i * info.shape.n_vocab, NULL),
                                 BITNET_OK);
        assert_memory_equal(a, b, n * sizeof *a);
        assert_int_equal(bitnet_eval_reset(e, 2, NULL), BITNET_OK);
    }
    for (uint32_t layer = 0; layer < info.shape.n_layer;
         layer++) { /* of layers with keys and values */
        bitnet_kv_health h = {.size = sizeof h};
        assert_int_equal(bitnet_engine_kv_health(e, layer, &h, NULL), BITNET_OK);
        assert_int_equal(h.rows > 0, layer == 3);
    }
    bitnet_engine_close(e);
    free(a);
    free(b);
}

static void a_warm_engine_answers_the_same(void **state)
{
    (void)state;
    const struct way way = {2, 64, 3, true, true, false, 2};
    struct ask asks[N_REQUESTS];
    make_requests();
    answer_alone(0);
    bitnet_engine *e = open_way(&way, 0);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(bitnet_engine_warmup(e, NULL), BITNET_OK);
        memset(got, 0, sizeof got);
        for (int i = 0; i < N_REQUESTS; i++)
            asks[i] = (struct ask){submit(e, &requests[i]), requests[i].n_choices, got[i]};
        finish_all(e, asks, N_REQUESTS, 64);
        assert_memory_equal(got, want[0], sizeof got);
    }
    check_slots(e);
    bitnet_engine_close(e);
}

static void memory_is_what_was_asked_for(void **state)
{
    (void)state;
    bitnet_engine_options o = {.size = sizeof o};
    o.ctx_tokens = CTX;
    o.max_seqs = 3;
    o.draft = "off";
    bitnet_engine *e = open_engine(&o);
    bitnet_engine_info in = engine_info(e);
    int64_t one = (int64_t)in.states.seq_bytes;
    assert_true(one > 0 && in.states.snapshots > 0 && in.states.snapshots <= in.kv.pages);
    assert_true(in.states.bytes >= in.states.seq_bytes * (3 + in.states.snapshots));
    assert_true(in.states.bytes <= in.states.seq_bytes * (3 + in.states.snapshots) + BN_HUGE_PAGE);
    bitnet_engine_close(e);
    const struct {
        int64_t bytes;
        const char *prefix;
        uint32_t slots;
    } ways[] = {{7 * one, "on", 7},    {7 * one - 1, "auto", 6}, {1, "on", 0},
                {BITNET_OFF, "on", 0}, {7 * one, "off", 0},      {INT64_MAX, "on", in.kv.pages}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        o.state_cache_bytes = ways[i].bytes;
        o.prefix_cache = ways[i].prefix;
        e = open_engine(&o);
        in = engine_info(e);
        assert_int_equal(in.states.snapshots, ways[i].slots);
        assert_int_equal(in.states.snapshots_used, 0);
        assert_true(in.states.bytes >= in.states.seq_bytes * (3 + ways[i].slots));
        bitnet_engine_close(e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_are_the_same_with_any_neighbours),
        cmocka_unit_test(answers_are_the_same_with_drafts),
        cmocka_unit_test(preempted_answers_go_on_from_a_snapshot),
        cmocka_unit_test(a_second_turn_reads_few_old_tokens),
        cmocka_unit_test(an_answer_is_taken_up_where_it_ended),
        cmocka_unit_test(choices_share_the_prompt),
        cmocka_unit_test(cancelling_leaks_nothing),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(embeddings_have_a_state_of_their_own),
        cmocka_unit_test(logits_do_not_depend_on_cutting),
        cmocka_unit_test(a_warm_engine_answers_the_same),
        cmocka_unit_test(memory_is_what_was_asked_for),
    };
    return cmocka_run_group_tests(tests, open_hybrid, close_model);
}
