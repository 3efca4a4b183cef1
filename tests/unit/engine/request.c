/* SPDX-License-Identifier: Apache-2.0
 * Requests on their way, through bitnet.h: cancelled at every step of every phase, more of them than
 * the cache holds, out of time, several answers to one prompt, events in small portions. No page is
 * lost, whatever happens. */
#include "engine_common.h"

#include "effort.h"
#include "engine/engine_impl.h"
#include <time.h>

enum { MAX_PROMPT = 120, PAGE = BN_ATTN_BLOCK };

/* Every third says always the same, so that drafts are made, and are accepted. */
static bitnet_request make_request(int which, int32_t *prompt, uint32_t n_prompt, uint32_t n_new)
{
    static const bitnet_logit_bias same = {7, 100};
    bitnet_request r;
    bitnet_request_init(&r, sizeof r);
    for (uint32_t i = 0; i < n_prompt; i++)
        prompt[i] = (int32_t)((i * 131 + (uint32_t)which * 17 + 5) % info.shape.n_vocab);
    r.tokens = prompt;
    r.n_tokens = n_prompt;
    r.max_new_tokens = n_new;
    r.ignore_end = 1;
    r.sampling.temperature = 0.7f;
    r.sampling.logit_bias = &same;
    r.sampling.n_logit_bias = which % 3 == 0;
    r.sampling.seed = (uint64_t)which * 100;
    return r;
}

static bitnet_engine_options small_options(uint32_t seqs, uint32_t kv_tokens)
{
    bitnet_engine_options o = {.size = sizeof o};
    o.threads = 1;
    o.ctx_tokens = 256;
    o.max_seqs = seqs;
    o.max_batch_tokens = 16;
    o.kv_tokens = kv_tokens;
    o.draft = "on";
    return o;
}

/* Nobody runs: every page is free or known to the prefix cache, and then every one is free. */
static void check_pages(bitnet_engine *e)
{
    bitnet_engine_info in = engine_info(e);
    assert_int_equal(in.n_running + in.n_waiting, 0);
    assert_int_equal(in.kv.pages_free + in.kv.pages_cached, in.kv.pages);
    if (e->prefix) bn_prefix_clear(e->prefix);
    in = engine_info(e);
    assert_int_equal(in.kv.pages_free, in.kv.pages);
    for (uint32_t i = 0; i < e->kv.n_pages; i++) assert_int_equal(e->kv.holders[i], 0);
}

/* ------------------------------------------------------------------ cancelling */

enum phase { WAITING, HELD, PROMPT, ANSWER, DRAFTING, PREEMPTED, N_PHASES };

static void note_phases(const bitnet_engine *e, uint64_t id, int seen[N_PHASES])
{
    for (struct bn_request *q = e->requests; q; q = q->next)
        for (uint32_t i = 0; q->id == id && i < q->n_choices; i++) {
            const struct bn_sequence *seq = &q->choices[i];
            if (seq->state == BN_SEQUENCE_OVER) continue;
            if (seq->state == BN_SEQUENCE_HELD) seen[HELD]++;
            else if (!seq->job.running) seen[seq->started_ns ? PREEMPTED : WAITING]++;
            else if (seq->job.n_done < q->n_prompt) seen[PROMPT]++;
            else seen[seq->job.take_draft ? DRAFTING : ANSWER]++;
        }
}

enum { N_ASKS = 4 };
static const uint32_t ask_choices[N_ASKS] = {1, 3, 1, 2}, ask_prompt[N_ASKS] = {58, 28, 92, 1};

static void submit_asks(bitnet_engine *e, struct ask *asks, struct choice *answers)
{
    int32_t prompt[MAX_PROMPT];
    uint32_t n = 0;
    for (int i = 0; i < N_ASKS; i++) {
        bitnet_request r = make_request(i, prompt, ask_prompt[i], 8);
        r.n_choices = ask_choices[i];
        asks[i] = (struct ask){submit(e, &r), ask_choices[i], answers + n};
        n += ask_choices[i];
    }
}

/* Four requests in a cache that is too small for all of them. Before step s one of them is cancelled,
 * or all; for every s until nothing is left to cancel (with less effort for some, others for each). */
static void cancelling_leaks_nothing(void **state)
{
    (void)state;
    static struct choice answers[7];
    bitnet_engine_options o = small_options(4, 6 * PAGE);
    int seen[N_PHASES] = {0};
    int stride = full_effort() ? 1 : 5;
    for (uint32_t which = 0; which <= N_ASKS; which++) {
        bitnet_engine *e = open_engine(&o);
        bool cancelled = true;
        for (int s = (int)which % stride; cancelled; s += stride) {
            struct ask asks[N_ASKS];
            memset(answers, 0, sizeof answers);
            submit_asks(e, asks, answers);
            for (int i = 0; i < s; i++) step(e, asks, N_ASKS, 64);
            cancelled = false;
            for (uint32_t i = 0; i < N_ASKS; i++) {
                if (which != i && which != N_ASKS) continue;
                note_phases(e, asks[i].id, seen);
                cancelled |= bitnet_cancel(e, asks[i].id) == BITNET_OK;
            }
            finish_all(e, asks, N_ASKS, 64);
            for (uint32_t i = 0; i < N_ASKS; i++)
                for (uint32_t k = 0; k < asks[i].n_choices; k++)
                    assert_int_equal(asks[i].answers[k].n_finished, 1);
            if (which < N_ASKS) assert_int_not_equal(bitnet_cancel(e, asks[which].id), BITNET_OK);
            if (s % 4 == 0) check_pages(e); /* else the cache stays warm */
        }
        check_pages(e);
        bitnet_engine_close(e);
    }
    for (int i = 0; i < N_PHASES; i++)
        if (!seen[i]) fail_msg("phase %d was never met", i);
}

/* An engine may be closed at any time, too. */
static void closing_in_the_middle(void **state)
{
    (void)state;
    static struct choice answers[7];
    bitnet_engine_options o = small_options(3, 7 * PAGE);
    for (int s = 0; s < 30; s += 3) {
        struct ask asks[N_ASKS];
        bitnet_engine *e = open_engine(&o);
        memset(answers, 0, sizeof answers);
        submit_asks(e, asks, answers);
        for (int i = 0; i < s; i++) step(e, asks, N_ASKS, 1 + (size_t)i % 3);
        bitnet_engine_close(e);
    }
}

/* ------------------------------------------------------------------ memory */

static void a_full_cache_finishes_everything(void **state)
{
    (void)state;
    enum { N = 12 };
    static struct choice ample[N], tight[N];
    const char *const prefix[] = {"on", "off"};
    int32_t prompt[MAX_PROMPT];
    memset(ample, 0, sizeof ample);
    for (int way = 0; way < 3; way++) { /* ample, tight with the prefix cache, tight without */
        bitnet_engine_options o = small_options(6, way ? 6 * PAGE : 0);
        o.prefix_cache = prefix[way == 2];
        struct choice *to = way ? tight : ample;
        struct ask asks[N];
        bitnet_engine *e = open_engine(&o);
        memset(tight, 0, sizeof tight);
        for (int i = 0; i < N; i++) {
            /* the last one needs all there is */
            uint32_t n_prompt = i == N - 1 ? MAX_PROMPT : 1 + 9 * (uint32_t)i;
            uint32_t n_new = i == N - 1 ? 6 * PAGE - MAX_PROMPT : 40;
            bitnet_request r = make_request(i, prompt, n_prompt, n_new);
            asks[i] = (struct ask){submit(e, &r), 1, &to[i]};
        }
        finish_all(e, asks, N, 64);
        bitnet_engine_info in = engine_info(e);
        assert_true((in.work.preemptions > 0) == (way > 0));
        assert_true((in.work.recomputed_tokens > 0) || way == 0);
        for (int i = 0; i < N; i++) assert_int_equal(to[i].finish, BITNET_FINISH_LENGTH);
        if (way) assert_memory_equal(ample, tight, sizeof ample);
        check_pages(e);
        bitnet_engine_close(e);
    }
}

/* Two read the same text at the same time; one ends, and what the cache keeps of its pages must not
 * be in the other's way when it needs all of them. */
static void twins_do_not_block_each_other(void **state)
{
    (void)state;
    static struct choice answers[2];
    int32_t prompt[MAX_PROMPT];
    bitnet_engine_options o = small_options(2, 4 * PAGE);
    o.max_batch_tokens = 128;
    bitnet_engine *e = open_engine(&o);
    struct ask asks[2];
    memset(answers, 0, sizeof answers);
    bitnet_request r = make_request(0, prompt, PAGE + 4, 5);
    asks[0] = (struct ask){submit(e, &r), 1, &answers[0]};
    r.max_new_tokens = 76;
    asks[1] = (struct ask){submit(e, &r), 1, &answers[1]};
    finish_all(e, asks, 2, 64);
    assert_int_equal(answers[0].n, 5);
    assert_int_equal(answers[1].n, 76);
    assert_int_equal(engine_info(e).work.preemptions, 0);
    assert_memory_equal(answers[0].tokens, answers[1].tokens, 5 * sizeof(int32_t));
    check_pages(e);
    bitnet_engine_close(e);
}

static void a_second_turn_reads_only_what_is_new(void **state)
{
    (void)state;
    static struct choice first, second, plain;
    bitnet_engine_options o = small_options(1, 0);
    bitnet_engine *e = open_engine(&o);
    int32_t prompt[MAX_PROMPT + 40];
    memset(&first, 0, sizeof first);
    memset(&second, 0, sizeof second);
    memset(&plain, 0, sizeof plain);
    bitnet_request r = make_request(1, prompt, 50, 20);
    struct ask ask = {submit(e, &r), 1, &first};
    finish_all(e, &ask, 1, 64);
    memcpy(prompt + 50, first.tokens, 20 * sizeof *prompt);
    for (int i = 70; i < 75; i++) prompt[i] = i;
    r.n_tokens = 75;
    ask = (struct ask){submit(e, &r), 1, &second};
    finish_all(e, &ask, 1, 64);
    bitnet_engine_info in = engine_info(e);
    assert_int_equal(in.prefix.hits, 1);
    assert_int_equal(in.prefix.hit_tokens, 69); /* the last token of an answer is not computed */
    r.prefix_cache = "off";
    ask = (struct ask){submit(e, &r), 1, &plain};
    finish_all(e, &ask, 1, 64);
    assert_int_equal(engine_info(e).prefix.queries, 2);
    assert_memory_equal(&second, &plain, sizeof plain);
    check_pages(e);
    bitnet_engine_close(e);
}

/* ------------------------------------------------------------------ choices */

static void choices_are_requests_with_other_seeds(void **state)
{
    (void)state;
    enum { N = 5 };
    static struct choice alone[N], choices[N];
    int32_t prompt[MAX_PROMPT];
    bitnet_engine_options o = small_options(1, 0);
    bitnet_engine *e = open_engine(&o);
    memset(alone, 0, sizeof alone);
    bitnet_request r = make_request(1, prompt, 75, 30);
    for (uint32_t i = 0; i < N; i++, r.sampling.seed++) {
        struct ask ask = {submit(e, &r), 1, &alone[i]};
        finish_all(e, &ask, 1, 64);
    }
    assert_memory_not_equal(alone[0].tokens, alone[1].tokens, sizeof alone[0].tokens);
    bitnet_engine_close(e);
    for (uint32_t seqs = 1; seqs <= 7; seqs += 3)
        for (int way = 0; way < 4; way++) {
            if (!full_effort() && (seqs / 3 + (uint32_t)way) % 2) continue;
            o = small_options(seqs, way & 1 ? 8 * PAGE : 0);
            o.prefix_cache = way & 2 ? "off" : "on";
            e = open_engine(&o);
            memset(choices, 0, sizeof choices);
            r.sampling.seed -= N;
            r.n_choices = N;
            struct ask ask = {submit(e, &r), N, choices};
            finish_all(e, &ask, 1, 64);
            r.sampling.seed += N;
            assert_memory_equal(alone, choices, sizeof alone);
            /* the prompt was read once, but for its last token, from which each draws */
            if (seqs > 4 && way == 2) assert_int_equal(engine_info(e).work.prompt_tokens, 74 + N);
            check_pages(e);
            bitnet_engine_close(e);
        }
}

/* ------------------------------------------------------------------ time and events */

static void requests_run_out_of_time(void **state)
{
    (void)state;
    static struct choice answers[4];
    int32_t prompt[MAX_PROMPT];
    bitnet_engine_options o = small_options(2, 0);
    bitnet_engine *e = open_engine(&o);
    struct ask asks[3];
    memset(answers, 0, sizeof answers);
    bitnet_request r = make_request(1, prompt, 20, 30);
    asks[0] = (struct ask){submit(e, &r), 1, &answers[0]};
    r.timeout_ms = 20;
    r.n_choices = 2; /* one runs, one waits or is held */
    asks[1] = (struct ask){submit(e, &r), 2, &answers[1]};
    r.n_choices = 0;
    r.timeout_ms = 1000000;
    asks[2] = (struct ask){submit(e, &r), 1, &answers[3]};
    for (int i = 0; i < 2; i++) step(e, asks, 3, 64);
    nanosleep(&(struct timespec){.tv_nsec = 25000000}, NULL);
    finish_all(e, asks, 3, 64);
    assert_int_equal(answers[0].finish, BITNET_FINISH_LENGTH);
    assert_int_equal(answers[1].finish, BITNET_FINISH_TIMEOUT);
    assert_int_equal(answers[2].finish, BITNET_FINISH_TIMEOUT);
    assert_int_equal(answers[3].finish, BITNET_FINISH_LENGTH);
    check_pages(e);
    bitnet_engine_close(e);
}

/* One sequence: the second request waits for the first; choices have begun when their first has. */
static void waiting_is_timed(void **state)
{
    (void)state;
    int32_t prompt[MAX_PROMPT];
    bitnet_engine_options o = small_options(1, 0);
    bitnet_engine *e = open_engine(&o);
    bitnet_request r = make_request(1, prompt, 20, 4);
    uint64_t first = submit(e, &r), first_ns = 0, second_ns = 0;
    r.n_choices = 3;
    submit(e, &r);
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    for (size_t n = 1; n;) {
        bitnet_event ev[16] = {{.size = sizeof *ev}};
        n = 16;
        assert_int_equal(bitnet_step(e, ev, &n, NULL), BITNET_OK);
        for (size_t i = 0; i < n; i++) {
            uint64_t *ns = ev[i].id == first ? &first_ns : &second_ns;
            assert_true(ev[i].queue_ns >= 5000000);
            if (*ns) assert_true(ev[i].queue_ns == *ns); /* every event and choice */
            *ns = ev[i].queue_ns;
        }
    }
    assert_true(second_ns > first_ns);
    uint64_t id = submit(e, &r);
    assert_int_equal(bitnet_cancel(e, id), BITNET_OK);
    bitnet_event ev[3] = {{.size = sizeof *ev}};
    size_t n = 3;
    assert_int_equal(bitnet_step(e, ev, &n, NULL), BITNET_OK);
    assert_int_equal(n, 3);
    for (size_t i = 0; i < n; i++) assert_int_equal(ev[i].queue_ns, 0); /* it never began */
    bitnet_engine_close(e);
}

static void any_room_for_events_will_do(void **state)
{
    (void)state;
    static struct choice want[7], got[7];
    bitnet_engine_options o = small_options(4, 6 * PAGE);
    for (size_t room = 64; room > 0; room = room == 64 ? 3 : room - 1) {
        struct ask asks[N_ASKS];
        struct choice *to = room == 64 ? want : got;
        bitnet_engine *e = open_engine(&o);
        memset(to, 0, sizeof want);
        submit_asks(e, asks, to);
        finish_all(e, asks, N_ASKS, room);
        assert_true(engine_info(e).draft.accepted > 0);
        bitnet_engine_close(e);
        if (room != 64) assert_memory_equal(want, got, sizeof want);
    }
    bitnet_engine *e = open_engine(&o);
    bitnet_event ev = {.size = sizeof ev};
    size_t n = 0;
    assert_int_equal(bitnet_step(e, &ev, &n, NULL), BITNET_E_ARG);
    bitnet_engine_close(e);
}

/* ------------------------------------------------------------------ refusals */

static void expect_refusal(bitnet_engine *e, const bitnet_request *r, bitnet_status want,
                           const char *word)
{
    bitnet_error err = {0};
    uint64_t id;
    assert_int_equal(bitnet_submit(e, r, &id, &err), want);
    if (!strstr(err.text, word)) fail_msg("'%s' is not in '%s'", word, err.text);
}

static void what_cannot_be_done_is_refused(void **state)
{
    (void)state;
    int32_t prompt[MAX_PROMPT];
    bitnet_engine_options o = small_options(2, 3 * PAGE);
    bitnet_engine *e = open_engine(&o);
    bitnet_request r = make_request(1, prompt, 50, 3 * PAGE - 49);
    expect_refusal(e, &r, BITNET_E_LIMIT, "50 tokens and up to 47 new ones; the KV cache holds 96");
    r.max_new_tokens = 0; /* as many as fit */
    static struct choice answer;
    struct ask ask = {submit(e, &r), 1, &answer};
    finish_all(e, &ask, 1, 64);
    assert_int_equal(answer.n, 3 * PAGE - 50);
    r.max_new_tokens = 10;
    r.n_choices = 1000;
    expect_refusal(e, &r, BITNET_E_LIMIT, "1000 choices");
    r.n_choices = 0;
    r.n_top_logprobs = 21;
    expect_refusal(e, &r, BITNET_E_LIMIT, "21");
    r.n_top_logprobs = 0;
    r.json_object = 1;
    expect_refusal(e, &r, BITNET_E_ARG, "ignore_end");
    r.grammar = "root ::= \"a\"";
    r.ignore_end = 0;
    expect_refusal(e, &r, BITNET_E_ARG, "2 of grammar");

    /* pages that bitnet_eval holds are not taken away from it */
    bitnet_error err = {0};
    bitnet_event ev[8] = {{.size = sizeof *ev}};
    size_t n = 8;
    r = make_request(1, prompt, 50, 10);
    assert_int_equal(bitnet_eval(e, 1, prompt, 50, 1, NULL, NULL), BITNET_OK);
    submit(e, &r);
    assert_int_equal(bitnet_step(e, ev, &n, &err), BITNET_E_STATE);
    assert_non_null(strstr(err.text, "hold 2 of 3 pages"));
    assert_int_equal(bitnet_eval_reset(e, 1, NULL), BITNET_OK);
    finish_all(e, NULL, 0, 8);
    check_pages(e);
    bitnet_engine_close(e);
    o.draft = "maybe";
    assert_int_equal(bitnet_engine_open(&e, model, &o, &err), BITNET_E_ARG);
    assert_non_null(strstr(err.text, "draft 'maybe'"));
    o.draft = NULL;
    o.draft_tokens = 9;
    assert_int_equal(bitnet_engine_open(&e, model, &o, &err), BITNET_E_LIMIT);
    o.draft_tokens = 0;
    o.prefix_cache = "2";
    assert_int_equal(bitnet_engine_open(&e, model, &o, &err), BITNET_E_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cancelling_leaks_nothing),
        cmocka_unit_test(closing_in_the_middle),
        cmocka_unit_test(a_full_cache_finishes_everything),
        cmocka_unit_test(twins_do_not_block_each_other),
        cmocka_unit_test(a_second_turn_reads_only_what_is_new),
        cmocka_unit_test(choices_are_requests_with_other_seeds),
        cmocka_unit_test(requests_run_out_of_time),
        cmocka_unit_test(waiting_is_timed),
        cmocka_unit_test(any_room_for_events_will_do),
        cmocka_unit_test(what_cannot_be_done_is_refused),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
