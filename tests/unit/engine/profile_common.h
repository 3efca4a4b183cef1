/* SPDX-License-Identifier: Apache-2.0
 * Shared by the tests of profiles: engines with one, sums of its entries, and that these add up. */
#ifndef BN_TEST_PROFILE_COMMON_H
#define BN_TEST_PROFILE_COMMON_H

#include "api/api.h"
#include "engine_common.h"
#include "model/ops.h"

enum { ALL_PHASES = -1, ALL_LAYERS = -2 };

static inline bitnet_engine_options profile_options(const char *profile, uint32_t threads)
{
    bitnet_engine_options o = {.size = sizeof o};
    o.threads = threads;
    o.profile = profile;
    o.draft = "off";
    return o;
}

/* An engine of some model, which need not be the group's. */
static inline bitnet_engine *open_on(bitnet_model *m, const bitnet_engine_options *o)
{
    bitnet_model *was = model;
    model = m;
    bitnet_engine *e = open_engine(o);
    model = was;
    return e;
}

static inline bitnet_profile_info profile_info(const bitnet_engine *e)
{
    bitnet_profile_info in = {.size = sizeof in};
    bitnet_error err = {0};
    if (bitnet_profile_get_info(e, &in, &err)) fail_msg("%s", err.text);
    return in;
}

/* Entries of all workers; op, kind: NULL is all. */
static inline bitnet_profile_entry sum_entries(const bitnet_engine *e, int phase, int layer,
                                               const char *op, const char *kind)
{
    bitnet_profile_entry all = {.size = sizeof all}, x = {.size = sizeof x};
    for (size_t i = 0; bitnet_profile_get(e, i, &x); i++) {
        if (phase != ALL_PHASES && (int)x.phase != phase) continue;
        if (layer != ALL_LAYERS && x.layer != layer) continue;
        if ((op && strcmp(x.op, op) != 0) || (kind && strcmp(x.kind, kind) != 0)) continue;
        all.ns += x.ns;
        all.calls += x.calls;
        all.bytes += x.bytes;
        all.macs += x.macs;
    }
    return all;
}

static inline bitnet_profile_entry sum_op(const bitnet_engine *e, int phase, const char *op)
{
    return sum_entries(e, phase, ALL_LAYERS, op, NULL);
}

static inline uint64_t weight_bytes(const bitnet_engine *e)
{
    return sum_entries(e, ALL_PHASES, ALL_LAYERS, NULL, "matrix").bytes +
           sum_entries(e, ALL_PHASES, ALL_LAYERS, NULL, "head").bytes;
}

/* Every moment of every worker is in exactly one entry: whole nanoseconds are only added and
 * subtracted, so it is exact. */
static inline void parts_are_the_whole(const bitnet_engine *e)
{
    bitnet_profile_info in = profile_info(e);
    bitnet_profile_entry x = {.size = sizeof x};
    uint64_t ns[2][16] = {{0}};
    assert_true(in.workers <= 16);
    for (size_t i = 0; bitnet_profile_get(e, i, &x); i++) ns[x.phase][x.worker] += x.ns;
    for (int phase = 0; phase < 2; phase++)
        for (uint32_t w = 0; w < in.workers; w++)
            assert_int_equal(ns[phase][w], in.phases[phase].ns);
}

/* A request of n tokens, whose answer has so many. */
static inline bitnet_request request_of(int32_t *prompt, size_t n, uint32_t n_new)
{
    bitnet_request r;
    bitnet_request_init(&r, sizeof r);
    for (size_t i = 0; i < n; i++)
        prompt[i] = (int32_t)(i * 131 % 512); /* the smallest vocabulary */
    r.tokens = prompt;
    r.n_tokens = n;
    r.max_new_tokens = n_new;
    r.ignore_end = 1;
    r.prefix_cache = "off";
    r.sampling.temperature = 0;
    return r;
}

static inline void run_answer(bitnet_engine *e, size_t n_prompt, uint32_t n_new)
{
    int32_t prompt[512];
    assert_true(n_prompt <= 512);
    bitnet_request r = request_of(prompt, n_prompt, n_new);
    submit(e, &r);
    finish_all(e, NULL, 0, 64);
}

#endif
