/* SPDX-License-Identifier: Apache-2.0
 * A profile through bitnet.h, on the small model: the entries of every worker add up to the time of
 * the steps, to the nanosecond; steps, tokens and calls are those of the model; spans say the same as
 * the sums; answers and logits keep their bits, and steps allocate nothing. Nothing here depends on
 * how fast anything is. */
#include <stdlib.h>

#include "alloc_count.h"
#include "profile_common.h"

enum { PROMPT = 40, NEW = 12 };

/* ---- opening ---- */

static void modes_are_checked(void **state)
{
    (void)state;
    bitnet_engine *e = NULL;
    bitnet_error err = {0};
    bitnet_profile_info in = {.size = sizeof in};
    bitnet_profile_entry x = {.size = sizeof x};
    bitnet_profile_span s = {.size = sizeof s};
    bitnet_engine_options o = profile_options("full", 1);
    assert_int_equal(bitnet_engine_open(&e, model, &o, &err), BITNET_E_ARG);
    assert_string_equal(err.text, "profile 'full' is unknown; off, on and trace exist");
    for (int i = 0; i < 2; i++) {
        o.profile = i ? "off" : NULL;
        e = open_engine(&o);
        assert_int_equal(bitnet_profile_get_info(e, &in, &err), BITNET_E_STATE);
        assert_string_equal(err.text, "the engine was opened without a profile");
        assert_int_equal(bitnet_profile_get(e, 0, &x), 0);
        assert_int_equal(bitnet_profile_get_span(e, 0, 0, &s), 0);
        bitnet_profile_reset(e);
        bitnet_engine_close(e);
    }
    if (BN_PROF) return;
    o.profile = "on";
    assert_int_equal(bitnet_engine_open(&e, model, &o, &err), BITNET_E_UNSUPPORTED);
    assert_string_equal(err.text, "this library was built without profiling");
}

static void a_new_profile_is_empty(void **state)
{
    (void)state;
    bitnet_engine_options o = profile_options("trace", 2);
    bitnet_engine *e = open_engine(&o);
    bitnet_profile_span s = {.size = sizeof s};
    for (int round = 0; round < 2; round++) { /* and one that was reset */
        bitnet_profile_info in = profile_info(e);
        bitnet_profile_entry all = sum_entries(e, ALL_PHASES, ALL_LAYERS, NULL, NULL);
        assert_int_equal(all.ns + all.calls + all.bytes + all.macs, 0);
        for (int p = 0; p < 2; p++)
            assert_int_equal(in.phases[p].steps + in.phases[p].tokens + in.phases[p].ns, 0);
        assert_int_equal(in.workers, 2);
        assert_int_equal(in.marks + in.spans_lost, 0);
        assert_true(in.mark_ns > 0 && in.spans_room > 0);
        for (uint32_t w = 0; w < 3; w++) assert_false(bitnet_profile_get_span(e, w, 0, &s));
        run_answer(e, PROMPT, NEW);
        assert_true(sum_entries(e, ALL_PHASES, ALL_LAYERS, NULL, NULL).ns > 0);
        bitnet_profile_reset(e);
    }
    bitnet_engine_close(e);
}

/* ---- time, steps, tokens, calls ---- */

static void calls_are_the_models(const bitnet_engine *e, uint32_t threads)
{
    uint64_t layers = info.shape.n_layer, steps = NEW - 1; /* the last token is not computed */
    bitnet_profile_info in = profile_info(e);
    assert_int_equal(in.phases[BITNET_PHASE_PREFILL].steps, 1);
    assert_int_equal(in.phases[BITNET_PHASE_PREFILL].tokens, PROMPT);
    assert_int_equal(in.phases[BITNET_PHASE_DECODE].steps, steps);
    assert_int_equal(in.phases[BITNET_PHASE_DECODE].tokens, steps);
    /* tokens of a prompt are shared out; one alone is prepared by every worker for itself */
    static const char *const prepare[] = {"norm", "quantise"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sum_op(e, BITNET_PHASE_PREFILL, prepare[i]).calls, 4 * layers * PROMPT);
        assert_int_equal(sum_op(e, BITNET_PHASE_DECODE, prepare[i]).calls,
                         4 * layers * steps * threads);
    }
    static const char *const once[] = {"head norm", "head", "embed"};
    for (int i = 0; i < 3; i++)
        assert_int_equal(sum_op(e, BITNET_PHASE_DECODE, once[i]).calls, steps * threads);
    static const char *const drawn[] = {"sample", "text"};
    for (int i = 0; i < 2; i++) assert_int_equal(sum_op(e, ALL_PHASES, drawn[i]).calls, NEW);
    static const char *const heads[] = {"attention", "rope+store"};
    for (int i = 0; i < 2; i++)
        assert_int_equal(sum_op(e, BITNET_PHASE_DECODE, heads[i]).calls,
                         layers * info.shape.n_head_kv * steps);
    assert_int_equal(sum_op(e, ALL_PHASES, "wait").calls > 0, threads > 1);
    assert_int_equal(sum_op(e, ALL_PHASES, "idle").calls, (threads - 1) * NEW); /* once a step */
    assert_int_equal(sum_op(e, ALL_PHASES, "logprobs").calls, 0);
}

static void the_parts_of_an_answer(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 3; threads++)
        for (int trace = 0; trace < 2; trace++) {
            bitnet_engine_options o = profile_options(trace ? "trace" : "on", threads);
            bitnet_engine *e = open_engine(&o);
            for (int round = 0; round < 2; round++) {
                run_answer(e, PROMPT, NEW);
                parts_are_the_whole(e);
                calls_are_the_models(e, threads);
                bitnet_profile_reset(e);
            }
            run_answer(e, 1, NEW); /* nothing but single tokens */
            bitnet_profile_info in = profile_info(e);
            assert_int_equal(in.phases[BITNET_PHASE_PREFILL].ns, 0);
            assert_int_equal(in.phases[BITNET_PHASE_DECODE].tokens, NEW);
            assert_int_equal(in.spans_room > 0, trace);
            assert_true(in.marks > 0);
            parts_are_the_whole(e);
            bitnet_engine_close(e);
        }
}

static bool of_no_layer(const char *kind)
{
    static const char *const kinds[] = {"embedding", "head", "sampling", "engine", "other"};
    bool found = false;
    for (int i = 0; i < 5; i++) found |= strcmp(kind, kinds[i]) == 0;
    return found;
}

/* Operations of layers stand in layers, and the others do not. */
static void entries_stand_in_their_layers(void **state)
{
    (void)state;
    bitnet_engine_options o = profile_options("on", 2);
    bitnet_engine *e = open_engine(&o);
    run_answer(e, PROMPT, NEW);
    bitnet_profile_entry x = {.size = sizeof x};
    size_t n = 0;
    for (; bitnet_profile_get(e, n, &x); n++) {
        assert_in_range(x.layer + 1, 0, info.shape.n_layer);
        if (x.calls && strcmp(x.kind, "wait") != 0 && strcmp(x.op, "check") != 0)
            assert_int_equal(of_no_layer(x.kind), x.layer == -1);
    }
    assert_int_equal(n, 2 * 2 * (info.shape.n_layer + 1) * BN_N_OPS);
    for (int layer = 0; layer < (int)info.shape.n_layer; layer++) {
        assert_int_equal(sum_entries(e, BITNET_PHASE_PREFILL, layer, "norm", NULL).calls,
                         4 * PROMPT);
        assert_int_equal(sum_entries(e, BITNET_PHASE_PREFILL, layer, "q", NULL).macs,
                         (uint64_t)PROMPT * info.shape.n_embd * info.shape.n_head *
                             info.shape.head_dim);
    }
    bitnet_engine_close(e);
}

/* ---- several at once ---- */

static void steps_with_neighbours(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 3; threads++) {
        int32_t a[PROMPT], b[PROMPT];
        bitnet_engine_options o = profile_options("on", threads);
        o.max_seqs = 2;
        o.max_batch_tokens = 16;
        bitnet_engine *e = open_engine(&o);
        bitnet_request r = request_of(a, 1, 30), late = request_of(b, PROMPT, 5);
        late.logprobs = 1;
        late.n_top_logprobs = 3;
        submit(e, &r);
        for (int i = 0; i < 4; i++) step(e, NULL, 0, 64);
        submit(e, &late); /* its prompt is read beside the first answer */
        finish_all(e, NULL, 0, 64);
        bitnet_profile_info in = profile_info(e);
        bitnet_engine_info counts = engine_info(e);
        uint64_t read = in.phases[BITNET_PHASE_PREFILL].tokens;
        assert_true(in.phases[BITNET_PHASE_PREFILL].steps >= PROMPT / 16);
        assert_true(read >= PROMPT);
        assert_int_equal(in.phases[0].steps + in.phases[1].steps, counts.work.steps);
        assert_int_equal(in.phases[1].tokens + read, 30 + PROMPT + 5 - 1);
        assert_true(in.phases[0].ns + in.phases[1].ns <= counts.work.step_ns);
        assert_int_equal(sum_op(e, ALL_PHASES, "sample").calls, 35);
        assert_int_equal(sum_op(e, ALL_PHASES, "logprobs").calls, 5);
        assert_int_equal(weight_bytes(e), counts.work.weight_bytes);
        parts_are_the_whole(e);
        bitnet_engine_close(e);
    }
}

static void drafts_are_tokens(void **state)
{
    (void)state;
    bitnet_engine_options o = profile_options("on", 2);
    o.draft = "on";
    bitnet_engine *e = open_engine(&o);
    run_answer(e, 8, 60);
    bitnet_profile_info in = profile_info(e);
    bitnet_engine_info counts = engine_info(e);
    assert_true(counts.draft.tokens > 0);
    assert_int_equal(in.phases[0].tokens + in.phases[1].tokens,
                     8 + 60 - 1 + counts.draft.tokens - counts.draft.accepted);
    parts_are_the_whole(e);
    bitnet_engine_close(e);
}

static void the_plain_door_and_embeddings(void **state)
{
    (void)state;
    int32_t tokens[PROMPT];
    request_of(tokens, PROMPT, 1);
    float *logits = calloc((size_t)PROMPT * info.shape.n_vocab, sizeof *logits);
    float *vectors = calloc((size_t)2 * info.shape.n_embd, sizeof *vectors);
    for (uint32_t threads = 1; threads <= 3; threads++) {
        bitnet_engine_options o = profile_options("on", threads);
        bitnet_engine *e = open_engine(&o);
        assert_int_equal(bitnet_eval(e, 0, tokens, PROMPT, 0, logits, NULL), BITNET_OK);
        for (int i = 0; i < 3; i++)
            assert_int_equal(bitnet_eval(e, 0, tokens, 1, 1, logits, NULL), BITNET_OK);
        bitnet_profile_info in = profile_info(e);
        assert_int_equal(in.phases[BITNET_PHASE_PREFILL].tokens, PROMPT);
        assert_int_equal(in.phases[BITNET_PHASE_DECODE].tokens, 3);
        assert_int_equal(in.phases[BITNET_PHASE_DECODE].steps, 3);
        assert_int_equal(sum_op(e, BITNET_PHASE_PREFILL, "head").macs,
                         (uint64_t)PROMPT * info.shape.n_vocab * info.shape.n_embd);
        parts_are_the_whole(e);
        bitnet_profile_reset(e);
        bitnet_eval_reset(e, 0, NULL);
        bitnet_embed_options eo = {.size = sizeof eo};
        const bitnet_embed_input in_texts[] = {{tokens, PROMPT}, {tokens, 7}};
        assert_int_equal(bitnet_embed(e, in_texts, 2, &eo, vectors, NULL), BITNET_OK);
        in = profile_info(e);
        assert_int_equal(in.phases[BITNET_PHASE_PREFILL].tokens, PROMPT + 7);
        assert_int_equal(sum_op(e, ALL_PHASES, "head").calls, 0);
        parts_are_the_whole(e);
        bitnet_engine_close(e);
    }
    free(logits);
    free(vectors);
}

/* ---- spans ---- */

static uint32_t op_of(const char *name)
{
    uint32_t op = 0;
    while (op < BN_N_OPS && bn_op_name(op) != name) op++;
    assert_true(op < BN_N_OPS);
    return op;
}

enum { MAX_LAYERS = 32 };
typedef uint64_t span_sums[2][MAX_LAYERS + 1][BN_N_OPS];

/* The time of a worker's spans by phase, layer and operation; the first step reads the prompt. */
static void sum_spans(const bitnet_engine *e, uint32_t worker, span_sums sums)
{
    bitnet_profile_span s = {.size = sizeof s}, next = {.size = sizeof next};
    assert_true(bitnet_profile_get_span(e, worker, 0, &s));
    for (size_t i = 1; bitnet_profile_get_span(e, worker, i, &next); i++, s = next) {
        assert_true(next.begin_ns >= s.begin_ns && next.step >= s.step);
        bool idle = strcmp(s.op, "idle") == 0;
        if (worker == 0 && next.step != s.step) assert_true(idle); /* steps end */
        if (!idle)
            sums[s.step ? BITNET_PHASE_DECODE : BITNET_PHASE_PREFILL][s.layer + 1][op_of(s.op)] +=
                next.begin_ns - s.begin_ns;
    }
    assert_string_equal(s.op, "idle");
    assert_int_equal(s.step, NEW - 1);
}

static void spans_say_the_same(void **state)
{
    (void)state;
    assert_true(info.shape.n_layer <= MAX_LAYERS);
    for (uint32_t threads = 1; threads <= 3; threads++) {
        bitnet_engine_options o = profile_options("trace", threads);
        bitnet_engine *e = open_engine(&o);
        run_answer(e, PROMPT, NEW);
        bitnet_profile_info in = profile_info(e);
        assert_int_equal(in.spans_lost, 0);
        static span_sums sums[3];
        memset(sums, 0, sizeof sums);
        for (uint32_t w = 0; w < threads; w++) sum_spans(e, w, sums[w]);
        bitnet_profile_entry x = {.size = sizeof x};
        for (size_t i = 0; bitnet_profile_get(e, i, &x); i++) {
            uint32_t op = op_of(x.op);
            if (op != BN_OP_IDLE) assert_int_equal(sums[x.worker][x.phase][x.layer + 1][op], x.ns);
        }
        bitnet_engine_close(e);
    }
}

/* ---- what it must not do ---- */

static void answers_keep_their_bits(void **state)
{
    (void)state;
    static struct choice plain, other;
    static const char *const modes[] = {NULL, "on", "trace"};
    int32_t prompt[PROMPT];
    bitnet_request r = request_of(prompt, PROMPT, 40);
    r.logprobs = 1;
    r.n_top_logprobs = ANSWER_TOP;
    r.sampling.temperature = 0.8f;
    float *logits[2];
    for (int i = 0; i < 2; i++)
        logits[i] = calloc((size_t)PROMPT * info.shape.n_vocab, sizeof(float));
    for (uint32_t threads = 1; threads <= 3; threads++)
        for (int i = 0; i < 3; i++) {
            bitnet_engine_options o = profile_options(modes[i], threads);
            bool first = threads == 1 && i == 0;
            struct ask ask = {.n_choices = 1, .answers = first ? &plain : &other};
            bitnet_engine *e = open_engine(&o);
            memset(&other, 0, sizeof other);
            ask.id = submit(e, &r);
            finish_all(e, &ask, 1, 64);
            float *to = logits[first ? 0 : 1];
            assert_int_equal(bitnet_eval(e, 0, prompt, PROMPT, 0, to, NULL), BITNET_OK);
            bitnet_engine_close(e);
            if (first) continue;
            assert_memory_equal(&plain, &other, sizeof plain);
            assert_memory_equal(logits[0], logits[1],
                                (size_t)PROMPT * info.shape.n_vocab * sizeof(float));
        }
    assert_int_equal(plain.n, 40);
    free(logits[0]);
    free(logits[1]);
}

static void steps_allocate_nothing(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 2; threads++) {
        int32_t prompt[PROMPT];
        bitnet_engine_options o = profile_options("trace", threads);
        bitnet_engine *e = open_engine(&o);
        bitnet_request r = request_of(prompt, PROMPT, NEW);
        submit(e, &r);
        long before = n_allocs;
        finish_all(e, NULL, 0, 64);
        assert_int_equal(n_allocs, before);
        bitnet_profile_reset(e);
        assert_int_equal(n_allocs, before);
        bitnet_engine_close(e);
    }
}

int main(void)
{
    const struct CMUnitTest always[] = {cmocka_unit_test(modes_are_checked)};
    const struct CMUnitTest on[] = {
        cmocka_unit_test(a_new_profile_is_empty),
        cmocka_unit_test(the_parts_of_an_answer),
        cmocka_unit_test(entries_stand_in_their_layers),
        cmocka_unit_test(steps_with_neighbours),
        cmocka_unit_test(drafts_are_tokens),
        cmocka_unit_test(the_plain_door_and_embeddings),
        cmocka_unit_test(spans_say_the_same),
        cmocka_unit_test(answers_keep_their_bits),
        cmocka_unit_test(steps_allocate_nothing),
    };
    int failed = cmocka_run_group_tests(always, open_model, close_model);
    return BN_PROF ? failed + cmocka_run_group_tests(on, open_model, close_model) : failed;
}
