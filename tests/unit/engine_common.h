/* SPDX-License-Identifier: Apache-2.0
 * Shared by the tests of requests: the small model, and answers gathered from events. */
#ifndef BN_TEST_ENGINE_COMMON_H
#define BN_TEST_ENGINE_COMMON_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine_model.h"

enum { ANSWER_TOKENS = 80, ANSWER_TOP = 5, ANSWER_TEXT = 1024, ANSWER_PROMPT = 256 };

/* All that a choice of a request has said. Compared with memcmp: cleared before use. */
struct choice {
    int32_t tokens[ANSWER_TOKENS];
    float logprobs[ANSWER_TOKENS];
    bitnet_logprob top[ANSWER_TOKENS][ANSWER_TOP];
    /* of the prompt, if it was asked for: token 1 is the first */
    bitnet_logprob scored[ANSWER_PROMPT][1 + ANSWER_TOP];
    uint32_t n_scored;
    uint32_t n, n_finished;
    bitnet_finish finish;
    char text[ANSWER_TEXT];
    size_t text_bytes;
};

/* Whose events go to which answer. */
struct ask {
    uint64_t id;
    uint32_t n_choices;
    struct choice *answers; /* [n_choices] */
};

static inline bitnet_engine *open_engine(const bitnet_engine_options *o)
{
    bitnet_engine *e = NULL;
    bitnet_error err = {0};
    if (bitnet_engine_open(&e, model, o, &err)) fail_msg("%s", err.text);
    return e;
}

static inline bitnet_engine_info engine_info(const bitnet_engine *e)
{
    bitnet_engine_info in = {.size = sizeof in};
    bitnet_engine_get_info(e, &in);
    return in;
}

static inline uint64_t submit(bitnet_engine *e, const bitnet_request *r)
{
    bitnet_error err = {0};
    uint64_t id = 0;
    if (bitnet_submit(e, r, &id, &err)) fail_msg("%s", err.text);
    return id;
}

static inline void take_event(struct choice *a, const bitnet_event *ev)
{
    assert_int_equal(a->n_finished, 0); /* nothing comes after the end */
    if (ev->token >= 0) {
        assert_true(a->n < ANSWER_TOKENS && ev->n_top <= ANSWER_TOP);
        a->tokens[a->n] = ev->token;
        a->logprobs[a->n] = ev->logprob;
        if (ev->n_top) memcpy(a->top[a->n], ev->top, ev->n_top * sizeof *ev->top);
        a->n++;
        assert_int_equal(ev->n_generated, a->n);
    }
    assert_true(a->n_scored + ev->n_scored < ANSWER_PROMPT && ev->n_top_scored <= ANSWER_TOP);
    for (size_t i = 0; i < ev->n_scored; i++) {
        const bitnet_logprob *one = ev->scored + i * (1 + ev->n_top_scored);
        assert_int_equal(ev->scored_from + i, ++a->n_scored); /* none twice, none left out */
        memcpy(a->scored[a->n_scored], one, (1 + ev->n_top_scored) * sizeof *one);
    }
    assert_true(a->text_bytes + ev->text_bytes <= ANSWER_TEXT);
    memcpy(a->text + a->text_bytes, ev->text, ev->text_bytes);
    a->text_bytes += ev->text_bytes;
    a->finish = ev->finish;
    a->n_finished += ev->finish != BITNET_FINISH_NONE;
}

/* One call with room for so many events; false: there was nothing to do. */
static inline bool step(bitnet_engine *e, const struct ask *asks, size_t n_asks, size_t room)
{
    bitnet_event ev[64] = {{.size = sizeof *ev}};
    bitnet_error err = {0};
    size_t n = room;
    assert_true(room <= 64);
    if (bitnet_step(e, ev, &n, &err)) fail_msg("%s", err.text);
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < n_asks; i++)
            if (asks[i].id == ev[k].id) {
                assert_true(ev[k].choice < asks[i].n_choices);
                take_event(&asks[i].answers[ev[k].choice], &ev[k]);
            }
    return n > 0;
}

static inline void finish_all(bitnet_engine *e, const struct ask *asks, size_t n_asks, size_t room)
{
    while (step(e, asks, n_asks, room)) {
    }
}

#endif
