/* SPDX-License-Identifier: Apache-2.0
 * The engine through bitnet.h, on the small model: a request's answer does not depend on its
 * batch neighbours, on threads or on how its prompt is cut; a step allocates nothing; cancelling leaks
 * nothing; bad arguments get a sentence. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc_count.h"
#include "base/threads/bandwidth.h"
#include "effort.h"
#include "engine_model.h"
#include "model/model.h"

static bitnet_engine *open_engine(uint32_t threads, uint32_t seqs, uint32_t batch)
{
    bitnet_engine_options o = {.size = sizeof o};
    bitnet_engine *e = NULL;
    bitnet_error err = {0};
    o.threads = threads;
    o.max_seqs = seqs;
    o.max_batch_tokens = batch;
    if (bitnet_engine_open(&e, model, &o, &err)) fail_msg("%s", err.text);
    return e;
}

enum { N_REQUESTS = 12, MAX_NEW = 24, MAX_PROMPT = 90 };

struct choice {
    uint64_t id;
    int32_t tokens[MAX_NEW];
    uint32_t n;
    bitnet_finish finish;
    char text[1024];
    size_t text_bytes;
    char stop[32]; /* the stop string that ended it, "" if none did */
};

static uint64_t submit(bitnet_engine *e, int which)
{
    int32_t prompt[MAX_PROMPT];
    bitnet_request r;
    bitnet_error err = {0};
    uint64_t id = 0;
    bitnet_request_init(&r, sizeof r);
    r.n_tokens = 1 + (size_t)(which * 37) % MAX_PROMPT;
    for (size_t i = 0; i < r.n_tokens; i++)
        prompt[i] = (int32_t)((i * 131 + (size_t)which * 17 + 5) % info.shape.n_vocab);
    prompt[0] = 0;
    r.tokens = prompt;
    r.max_new_tokens = MAX_NEW;
    r.ignore_end = 1;
    r.sampling.temperature = which % 3 ? 0.9f : 0;
    r.sampling.top_k = which % 4 ? 50 : 0;
    r.sampling.seed = (uint64_t)which;
    if (bitnet_submit(e, &r, &id, &err)) fail_msg("%s", err.text);
    return id;
}

static void collect(bitnet_engine *e, struct choice *answers, int n_answers)
{
    bitnet_event ev[64] = {{.size = sizeof *ev}};
    bitnet_error err = {0};
    for (;;) {
        size_t n = 64;
        if (bitnet_step(e, ev, &n, &err)) fail_msg("%s", err.text);
        if (!n) return; /* nothing left to do */
        for (size_t k = 0; k < n; k++)
            for (int i = 0; i < n_answers; i++) {
                struct choice *a = &answers[i];
                if (a->id != ev[k].id) continue;
                if (ev[k].token >= 0) a->tokens[a->n++] = ev[k].token;
                memcpy(a->text + a->text_bytes, ev[k].text, ev[k].text_bytes);
                a->text_bytes += ev[k].text_bytes;
                a->finish = ev[k].finish;
                snprintf(a->stop, sizeof a->stop, "%s", ev[k].stop ? ev[k].stop : "");
            }
    }
}

static void choices_do_not_depend_on_neighbours(void **state)
{
    (void)state;
    static struct choice alone[N_REQUESTS], together[N_REQUESTS];
    memset(alone, 0, sizeof alone);
    bitnet_engine *e = open_engine(1, 1, 512);
    for (int i = 0; i < N_REQUESTS; i++) {
        alone[i].id = submit(e, i);
        collect(e, &alone[i], 1);
        assert_int_equal(alone[i].finish, BITNET_FINISH_LENGTH);
        assert_int_equal(alone[i].n, MAX_NEW);
    }
    bitnet_engine_close(e);
    static const struct {
        uint32_t threads, seqs, batch;
    } ways[] = {{2, 12, 512}, {3, 5, 64}, {2, 4, 7}, {1, 12, 12}};
    for (size_t w = full_effort() ? 0 : 1; w < sizeof ways / sizeof *ways; w++) {
        memset(together, 0, sizeof together);
        e = open_engine(ways[w].threads, ways[w].seqs, ways[w].batch);
        for (int i = 0; i < N_REQUESTS; i++) together[i].id = submit(e, i);
        collect(e, together, N_REQUESTS);
        bitnet_engine_close(e);
        for (int i = 0; i < N_REQUESTS; i++) {
            assert_memory_equal(alone[i].tokens, together[i].tokens, sizeof alone[i].tokens);
            assert_int_equal(alone[i].text_bytes, together[i].text_bytes);
            assert_memory_equal(alone[i].text, together[i].text, alone[i].text_bytes);
        }
    }
}

#if BN_HAVE_TEXT
static struct choice answer(bitnet_engine *e, const bitnet_request *r)
{
    struct choice a = {0};
    bitnet_error err = {0};
    if (bitnet_submit(e, r, &a.id, &err)) fail_msg("%s", err.text);
    collect(e, &a, 1);
    return a;
}

/* Stop tokens, stop strings and what must come before them, against the answer without any. */
static void ends_are_kept(void **state)
{
    (void)state;
    int32_t prompt[64];
    size_t n_prompt = BN_ARRAY_LEN(prompt);
    bitnet_error err = {0};
    bitnet_request r;
    bitnet_engine *e = open_engine(1, 1, 64);
    bitnet_request_init(&r, sizeof r);
    assert_int_equal(
        bitnet_encode(model, "Once upon a time", 16, BITNET_TOK_BOS_AUTO, prompt, &n_prompt, &err),
        BITNET_OK);
    r.tokens = prompt;
    r.n_tokens = n_prompt;
    r.max_new_tokens = MAX_NEW;
    r.sampling.temperature = 0;
    const struct choice whole = answer(e, &r);
    assert_int_equal(whole.n, MAX_NEW);
    const int32_t end = whole.tokens[9];
    uint32_t at = 0;
    while (whole.tokens[at] != end) at++;
    r.stop_tokens = &end;
    r.n_stop_tokens = 1;
    const struct choice cut = answer(e, &r);
    assert_int_equal(cut.finish, BITNET_FINISH_STOP);
    assert_int_equal(cut.n, at + 1);
    assert_string_equal(cut.stop, "");
    assert_memory_equal(cut.text, whole.text, cut.text_bytes);
    r.show_stop = 1;
    const struct choice shown = answer(e, &r);
    assert_true(shown.text_bytes > cut.text_bytes);
    assert_memory_equal(shown.text, whole.text, shown.text_bytes);
    r.min_new_tokens = at + 6;
    const struct choice longer = answer(e, &r);
    assert_true(longer.n >= at + 6);
    for (uint32_t i = 0; i < at + 6; i++) assert_int_not_equal(longer.tokens[i], end);
    assert_memory_equal(longer.tokens, whole.tokens, at * sizeof end);

    char word[8];
    const char *stops[] = {"never there", word};
    snprintf(word, sizeof word, "%.4s", whole.text + 20);
    const char *found = strstr(whole.text, word);
    r.n_stop_tokens = 0;
    r.min_new_tokens = 0;
    r.stop = stops;
    r.n_stop = 2;
    for (r.show_stop = 0; r.show_stop < 2; r.show_stop++) {
        const struct choice told = answer(e, &r);
        assert_int_equal(told.finish, BITNET_FINISH_STOP);
        assert_string_equal(told.stop, word);
        assert_int_equal(told.text_bytes, found - whole.text + 4 * (int)r.show_stop);
        assert_memory_equal(told.text, whole.text, told.text_bytes);
    }
    const int32_t none = -1;
    uint64_t id;
    r.stop_tokens = &none;
    r.n_stop_tokens = 1;
    assert_int_equal(bitnet_submit(e, &r, &id, &err), BITNET_E_ARG);
    assert_non_null(strstr(err.text, "stop token -1"));
    r.n_stop_tokens = 65;
    assert_int_equal(bitnet_submit(e, &r, &id, &err), BITNET_E_LIMIT);
    bitnet_engine_close(e);
}
#endif

/* Greedy and sampled in several ways, with all that a request can ask for; long enough to need several
 * pages of the cache. */
static void submit_long(bitnet_engine *e, int which)
{
    static const bitnet_sampling ways[] = {{.temperature = 0, .top_p = 1},
                                           {.temperature = 0.8f, .top_p = 0.95f, .top_k = 40},
                                           {.temperature = 1, .top_p = 1},
                                           {.temperature = 1.2f, .top_p = 0.9f, .min_p = 0.05f},
                                           {.temperature = 0.8f,
                                            .top_p = 1,
                                            .repetition_penalty = 1.1f,
                                            .frequency_penalty = 0.1f,
                                            .dry_multiplier = 0.5f}};
    static const char *const stop[] = {"no such words", "\x01"};
    int32_t prompt[MAX_PROMPT];
    bitnet_request r;
    uint64_t id;
    bitnet_error err = {0};
    bitnet_request_init(&r, sizeof r);
    r.n_tokens = 1 + (size_t)(which * 37) % MAX_PROMPT;
    for (size_t i = 0; i < r.n_tokens; i++)
        prompt[i] = (int32_t)((i * 131 + (size_t)which * 17 + 5) % info.shape.n_vocab);
    r.tokens = prompt;
    r.max_new_tokens = 80;
    r.ignore_end = 1;
    r.timeout_ms = 1000000;
    r.sampling = ways[which % 5];
    r.sampling.size = sizeof r.sampling;
    r.sampling.seed = (uint64_t)which;
    r.n_choices = which == 1 ? 3 : 1;
    r.logprobs = which % 2;
    r.n_top_logprobs = 5;
#if BN_HAVE_TEXT
    r.json_object = which == 3;
    r.ignore_end = which != 3;
#endif
    r.stop = stop;
    r.n_stop = which % 3 ? 0 : 2;
    if (bitnet_submit(e, &r, &id, &err)) fail_msg("%s", err.text);
}

static void steps_allocate_nothing(const bitnet_model *m, const char *head, uint32_t threads,
                                   uint32_t seqs)
{
    bitnet_engine_options o = {.size = sizeof o};
    bitnet_engine *e = NULL;
    bitnet_error err = {0};
    bitnet_event ev[16] = {{.size = sizeof *ev}};
    bitnet_engine_info in = {.size = sizeof in};
    long unopened = n_allocs;
    o.threads = threads;
    o.max_seqs = seqs;
    o.max_batch_tokens = 64;
    o.head = head;
    o.kv_tokens = 8 * 32; /* one fits, several do not */
    o.draft = "on";
    if (bitnet_engine_open(&e, m, &o, &err)) fail_msg("%s", err.text);
    for (int i = 0; i < 4 + (int)seqs; i++) submit_long(e, i); /* some wait for a place */
    long before = n_allocs, n_steps = 0;
    for (size_t n = 16;; n = 16, n_steps++) {
        if (bitnet_step(e, ev, &n, &err)) fail_msg("%s", err.text);
        if (!n) break;
    }
    assert_int_equal(n_allocs, before);
    assert_true(n_steps > 80);
#ifndef SANITIZED
    assert_true(before > unopened); /* the counter counts */
#else
    (void)unopened;
#endif
    bitnet_engine_get_info(e, &in);
    assert_true((in.work.preemptions > 0) == (seqs > 1));
    assert_true(in.draft.tokens > 0 && in.prefix.hits > 0);
    assert_string_equal(in.head.type, head);
    assert_true((in.head.screened > 0) == (strcmp(head, "screened") == 0));
    bitnet_engine_close(e);
}

static void a_step_allocates_nothing(void **state)
{
    (void)state;
    bitnet_model *screened = NULL;
    bitnet_model_options o = {.size = sizeof o};
    bitnet_error err = {0};
    o.head = "screened";
    if (bitnet_model_open(&screened, TEST_MODEL, &o, &err)) fail_msg("%s", err.text);
    for (uint32_t threads = 1; threads <= 2; threads++)
        for (uint32_t seqs = 1; seqs <= 5; seqs += 4) {
            bool both = full_effort(); /* or one head by turns */
            if (both || (threads == 1) == (seqs == 1))
                steps_allocate_nothing(model, "exact", threads, seqs);
            if (both || (threads == 1) != (seqs == 1))
                steps_allocate_nothing(screened, "screened", threads, seqs);
        }
    bitnet_model_close(screened);
}

/* One sequence that decodes: what `bench` takes a step to read. */
static void count_bytes(const char *head, const char *ffn)
{
    enum { STEPS = 20 };
    bitnet_model *m = NULL;
    bitnet_engine *e = NULL;
    bitnet_error err = {0};
    bitnet_model_options mo = {.size = sizeof mo};
    bitnet_engine_options o = {.size = sizeof o};
    bitnet_model_info mi = {.size = sizeof mi};
    bitnet_engine_info in = {.size = sizeof in};
    bitnet_request r;
    bitnet_event ev[8] = {{.size = sizeof *ev}};
    bitnet_request_init(&r, sizeof r);
    o.head = mo.head = head;
    o.ffn = mo.ffn = ffn;
    o.draft = "off";
    if (bitnet_model_open(&m, TEST_MODEL, &mo, &err)) fail_msg("%s", err.text);
    if (bitnet_engine_open(&e, m, &o, &err)) fail_msg("%s", err.text);
    r.tokens = (int32_t[]){0};
    r.n_tokens = 1;
    r.max_new_tokens = STEPS;
    r.ignore_end = 1;
    r.sampling.temperature = 0;
    if (bitnet_submit(e, &r, &(uint64_t){0}, &err)) fail_msg("%s", err.text);
    for (size_t n = 8; n;) {
        n = 8;
        if (bitnet_step(e, ev, &n, &err)) fail_msg("%s", err.text);
    }
    bitnet_model_get_info(m, &mi);
    bitnet_engine_get_info(e, &in);
    bool screened = strcmp(head, "screened") == 0;
    uint64_t all = strcmp(head, "exact") == 0 ? mi.memory.head_bytes : mi.memory.head_copy_bytes;
    uint64_t step = mi.memory.layer_bytes + (screened ? mi.memory.head_screen_bytes : all);
    uint64_t survivors = in.head.survivors * (mi.memory.head_bytes / mi.shape.n_vocab);
    if (screened) survivors += in.head.refined * bn_r2_row_bytes(mi.shape.n_embd);
    uint64_t left_out = in.ffn.dense_bytes - in.ffn.read_bytes;
    assert_int_equal(in.work.steps, STEPS);
    assert_true((in.head.survivors > 0) == screened && (in.head.refined > 0) == screened);
    assert_true((left_out > 0) == (strcmp(ffn, "skip") == 0));
    assert_int_equal(in.work.weight_bytes, STEPS * step + survivors - left_out);
    assert_int_equal(bitnet_eval(e, 0, r.tokens, 1, 1, NULL, NULL), BITNET_OK);
    bitnet_engine_get_info(e, &in); /* requests only */
    assert_int_equal(in.work.weight_bytes, STEPS * step + survivors - left_out);
    bitnet_engine_close(e);
    bitnet_model_close(m);
}

static void bytes_of_weights_are_counted(void **state)
{
    (void)state;
    count_bytes("exact", "dense");
    count_bytes("exact", "skip");
    count_bytes("screened", "dense");
    count_bytes("screened", "skip");
    count_bytes("int8", "dense");
}

static void cancelling_frees_the_place(void **state)
{
    (void)state;
    bitnet_engine *e = open_engine(1, 2, 16);
    static struct choice first, again;
    for (int step = 0; step < 12; step++) { /* at every step of prompt and answer */
        uint64_t ids[3] = {submit(e, 1), submit(e, 2), submit(e, 3)}; /* the third waits */
        bitnet_event ev[8] = {{.size = sizeof *ev}};
        for (int i = 0; i < step; i++) {
            size_t n = 8;
            assert_int_equal(bitnet_step(e, ev, &n, NULL), BITNET_OK);
        }
        int gone = 0;
        for (int i = 0; i < 3; i++) assert_int_equal(bitnet_cancel(e, ids[i]), BITNET_OK);
        for (int i = 0; i < 4; i++) {
            size_t n = 8;
            assert_int_equal(bitnet_step(e, ev, &n, NULL), BITNET_OK);
            for (size_t k = 0; k < n; k++) gone += ev[k].finish == BITNET_FINISH_CANCELLED;
        }
        assert_int_equal(gone, 3);
        assert_int_not_equal(bitnet_cancel(e, ids[0]), BITNET_OK);
    }
    memset(&first, 0, sizeof first);
    memset(&again, 0, sizeof again);
    first.id = submit(e, 4);
    collect(e, &first, 1);
    bitnet_engine_close(e);
    e = open_engine(1, 1, 512);
    again.id = submit(e, 4);
    collect(e, &again, 1);
    bitnet_engine_close(e);
    assert_memory_equal(first.tokens, again.tokens, sizeof first.tokens);
}

static void logits_do_not_depend_on_cutting(void **state)
{
    (void)state;
    enum { N = 70 };
    int32_t ids[N];
    for (int i = 0; i < N; i++) ids[i] = (i * 53 + 3) % (int32_t)info.shape.n_vocab;
    size_t n = (size_t)N * info.shape.n_vocab;
    float *want = malloc(n * sizeof *want), *got = malloc(n * sizeof *got);
    bitnet_engine *e = open_engine(2, 2, 512);
    assert_int_equal(bitnet_eval(e, 0, ids, N, 0, want, NULL), BITNET_OK);
    for (int chunk = 1; chunk <= 33; chunk += 16) {
        assert_int_equal(bitnet_eval_reset(e, 1, NULL), BITNET_OK);
        for (int i = 0; i < N; i += chunk)
            assert_int_equal(bitnet_eval(e, 1, ids + i, (size_t)(N - i < chunk ? N - i : chunk), 0,
                                         got + (size_t)i * info.shape.n_vocab, NULL),
                             BITNET_OK);
        assert_memory_equal(want, got, n * sizeof *want);
    }
    bitnet_engine_close(e);
    free(want);
    free(got);
}

/* The layout asked for is the one in use, takes the bytes it should, and an unknown one is refused;
 * that it changes no logit is shown by tests/e2e/same_bits.py. */
static void layouts_are_what_was_asked_for(void **state)
{
    (void)state;
    /* a matrix that may hold zeros is never in b1 */
    static const char *const name[] = {"t2", "t3", "t5", "b1", "t4"}, *const got[] = {"t2", "t3",
                                                                                      "t5", "t2"};
    uint64_t bytes[4] = {0};
    for (size_t i = 0; i < 5; i++) {
        bitnet_model *m = NULL;
        bitnet_model_options o = {.size = sizeof o};
        bitnet_model_info in = {.size = sizeof in};
        bitnet_error err = {0};
        o.layout = name[i];
        bitnet_status s = bitnet_model_open(&m, TEST_MODEL, &o, &err);
        if (i == 4) {
            assert_int_equal(s, BITNET_E_ARG);
            assert_non_null(strstr(err.text, "t4"));
            assert_null(m);
            break;
        }
        if (s) fail_msg("%s", err.text);
        bitnet_model_get_info(m, &in);
        assert_string_equal(in.layout, got[i]);
        bytes[i] = in.memory.packed_bytes;
        bitnet_model_close(m);
    }
    assert_true(bytes[1] < bytes[0] && bytes[1] * 6 >= bytes[0] * 5);
    assert_true(bytes[2] < bytes[1] && bytes[2] * 5 >= bytes[0] * 4);
}

/* "auto": where activations are int8 and the caches do not hold the weights, t5 if it has a kernel of
 * its own, else t3 if it has one and several threads share the memory. Likewise for planes. */
static void the_layout_follows_threads_and_size(void **state)
{
    (void)state;
    struct bn_kernels k = bn_kernels_select(0);
    /* stand for kernels made for a CPU */
    struct bn_gemm t3 = *k.gemm_t3, t5 = *k.gemm_t5, g2 = *k.gemm_g2, g3 = *k.gemm_g3,
                   g5 = *k.gemm_g5;
    t3.frugal = t5.frugal = g3.frugal = g5.frugal = true;
    size_t cache = bn_last_cache_bytes(), large = cache + 1;
    for (uint32_t threads = 1; threads <= 2; threads++) {
        assert_ptr_equal(bn_layout_auto(&k, BN_AQ_INT8, large, threads), k.gemm_t2);
        assert_ptr_equal(bn_layout_auto(&k, BN_AQ_INT16_GROUPS, large, threads), k.gemm_t2);
    }
    k.gemm_t3 = &t3;
    k.gemm_g2 = &g2;
    k.gemm_g3 = &g3;
    assert_ptr_equal(bn_layout_auto(&k, BN_AQ_INT8, large, 2), &t3);
    assert_ptr_equal(bn_layout_auto(&k, BN_AQ_INT8, large, 1), k.gemm_t2);
    assert_ptr_equal(bn_layout_auto(&k, BN_AQ_INT8_GROUPS, large, 2), &g3);
    assert_ptr_equal(bn_layout_auto(&k, BN_AQ_INT8_GROUPS, large, 1), &g2);
    assert_ptr_equal(bn_layout_auto(&k, BN_AQ_INT16_GROUPS, large, 2), &g2);
    k.gemm_t5 = &t5;
    k.gemm_g5 = &g5;
    for (uint32_t threads = 1; threads <= 2; threads++) {
        assert_ptr_equal(bn_layout_auto(&k, BN_AQ_INT8, large, threads), &t5);
        assert_ptr_equal(bn_layout_auto(&k, BN_AQ_INT8, cache, threads), k.gemm_t2);
        assert_ptr_equal(bn_layout_auto(&k, BN_AQ_F32, large, threads), k.gemm_t2);
        assert_ptr_equal(bn_layout_auto(&k, BN_AQ_INT16_GROUPS, large, threads), &g5);
        assert_ptr_equal(bn_layout_auto(&k, BN_AQ_INT8_GROUPS, cache, threads), &g5);
    }
}

static void bad_arguments_get_a_sentence(void **state)
{
    (void)state;
    bitnet_error err;
    bitnet_engine *e = open_engine(1, 1, 8);
    bitnet_request r;
    uint64_t id;
    int32_t token = (int32_t)info.shape.n_vocab;
    bitnet_request_init(&r, sizeof r);
    assert_int_equal(bitnet_submit(e, &r, &id, &err), BITNET_E_ARG); /* no prompt */
    r.tokens = &token;
    r.n_tokens = 1;
    assert_int_equal(bitnet_submit(e, &r, &id, &err), BITNET_E_ARG);
    assert_non_null(strstr(err.text, "token 0 is 4096"));
    token = 1;
    r.sampling.top_p = 0;
    assert_int_equal(bitnet_submit(e, &r, &id, &err), BITNET_E_ARG);
    assert_int_equal(bitnet_eval(e, 1, &token, 1, 0, NULL, &err), BITNET_E_ARG);
    int32_t many[600] = {0};
    assert_int_equal(bitnet_eval(e, 0, many, 600, 0, NULL, &err), BITNET_E_LIMIT);
    bitnet_engine_close(e);
    bitnet_engine_options o = {.size = sizeof o};
    o.ctx_tokens = 100000;
    assert_int_equal(bitnet_engine_open(&e, model, &o, &err), BITNET_E_LIMIT);
    o = (bitnet_engine_options){.size = sizeof o};
    o.pin = "sometimes";
    assert_int_equal(bitnet_engine_open(&e, model, &o, &err), BITNET_E_ARG);
    assert_non_null(strstr(err.text, "'sometimes'"));
    assert_int_equal(bitnet_model_open(NULL, NULL, NULL, &err), BITNET_E_ARG);
    bitnet_engine_close(NULL);
    bitnet_model_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_do_not_depend_on_neighbours),
#if BN_HAVE_TEXT
        cmocka_unit_test(ends_are_kept),
#endif
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(bytes_of_weights_are_counted),
        cmocka_unit_test(cancelling_frees_the_place),
        cmocka_unit_test(logits_do_not_depend_on_cutting),
        cmocka_unit_test(bad_arguments_get_a_sentence),
        cmocka_unit_test(layouts_are_what_was_asked_for),
        cmocka_unit_test(the_layout_follows_threads_and_size),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
