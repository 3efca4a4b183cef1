/* SPDX-License-Identifier: Apache-2.0
 * Shared by the tests of the sampler: counted allocations (the program is linked with --wrap), a
 * sampler for a case of sampler_slow.h, and random cases. */
#ifndef BN_TEST_SAMPLER_COMMON_H
#define BN_TEST_SAMPLER_COMMON_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "sampler_slow.h"

#include "base/gumbel.h"
#include "engine/sampler/sampler.h"

static long n_allocs;
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

void *__wrap_malloc(size_t n)
{
    n_allocs++;
    return __real_malloc(n);
}
void *__wrap_calloc(size_t n, size_t size)
{
    n_allocs++;
    return __real_calloc(n, size);
}
void *__wrap_realloc(void *p, size_t n)
{
    n_allocs++;
    return __real_realloc(p, n);
}

/* ---- a case and its sampler ---- */

static struct bn_sampler_room room;

static inline int open_room(void **state)
{
    (void)state;
    return bn_sampler_room_open(&room, SLOW_MAX_VOCAB) ? 0 : -1;
}

static inline int close_room(void **state)
{
    (void)state;
    bn_sampler_room_close(&room);
    return 0;
}

static inline struct bn_sampler *sampler_for(const struct slow *c, const struct bn_tokenizer *t)
{
    struct bn_sampler *s = NULL;
    bitnet_error err = {0};
    if (bn_sampling_check(&c->s, c->n_vocab, &err) ||
        bn_sampler_open(&s, &c->s, c->n_vocab, t, c->tokens, c->n_prompt, c->n_tokens + 1, &err))
        fail_msg("%s", err.text);
    long before = n_allocs;
    for (uint32_t i = c->n_prompt; i < c->n_tokens; i++) bn_sampler_push(s, c->tokens[i]);
    assert_int_equal(n_allocs, before);
    return s;
}

static inline int32_t draw(struct bn_sampler *s, const struct slow *c, const float *logits,
                           uint64_t position)
{
    long before = n_allocs;
    int32_t id =
        bn_sampler_draw(s, logits, c->n_vocab, position, c->masked ? c->mask : NULL, &room);
    assert_int_equal(n_allocs, before);
    return id;
}

/* ---- random cases ---- */

static inline double gauss(struct bn_rng *r)
{
    double s = 0;
    for (int i = 0; i < 12; i++) s += bn_rng_unit(r);
    return s - 6;
}

static inline float one_of(struct bn_rng *r, const float *values, uint32_t n)
{
    return values[bn_rng_below(r, n)];
}
#define ONE_OF(r, ...)                      \
    one_of(r, (const float[]){__VA_ARGS__}, \
           (uint32_t)(sizeof((const float[]){__VA_ARGS__}) / sizeof(float)))

static inline void random_cuts(bitnet_sampling *s, struct bn_rng *r)
{
    s->temperature = ONE_OF(r, 0, 0.3f, 0.7f, 1, 1, 1.7f);
    s->top_k = (uint32_t)ONE_OF(r, 0, 0, 0, 2, 7, 40, 300);
    s->top_p = ONE_OF(r, 1, 1, 1, 0.3f, 0.77f, 0.95f);
    s->min_p = ONE_OF(r, 0, 0, 0, 0.021f, 0.2f);
    s->typical_p = ONE_OF(r, 0, 1, 1, 0.31f, 0.83f);
    s->top_n_sigma = ONE_OF(r, 0, 0, 0, 0.71f, 1.3f);
    s->adaptive = bn_rng_below(r, 4) == 0;
    s->seed = bn_rng_u64(r);
}

static inline void random_penalties(bitnet_sampling *s, struct bn_rng *r)
{
    s->repetition_penalty = ONE_OF(r, 0, 1, 1, 1.3f, 0.8f);
    s->presence_penalty = ONE_OF(r, 0, 0, 0, 0.6f, -0.4f);
    s->frequency_penalty = ONE_OF(r, 0, 0, 0, 0.3f, -0.1f);
    s->penalty_last_n = (uint32_t)ONE_OF(r, 0, 0, 1, 9, 64);
    s->dry_multiplier = ONE_OF(r, 0, 0, 0.8f, 2.5f);
    s->dry_base = ONE_OF(r, 0, 1.2f, 1);
    s->dry_allowed_length = (uint32_t)ONE_OF(r, 0, 1, 3);
    s->dry_last_n = (uint32_t)ONE_OF(r, 0, 0, 2, 20);
}

static inline void random_case(struct slow *c, struct bn_rng *r, bitnet_logit_bias *bias,
                               bool only_lower)
{
    memset(c, 0, sizeof *c);
    random_cuts(&c->s, r);
    if (bn_rng_below(r, 2) && !only_lower) random_penalties(&c->s, r);
    c->n_vocab = 20 + bn_rng_below(r, SLOW_MAX_VOCAB - 20);
    c->n_tokens = 1 + bn_rng_below(r, 80);
    c->n_prompt = 1 + bn_rng_below(r, c->n_tokens);
    c->unbroken = c->n_tokens; /* without a tokenizer nothing breaks */
    uint32_t words = 2 + bn_rng_below(r, 8);
    for (uint32_t i = 0; i < c->n_tokens; i++) c->tokens[i] = (int32_t)bn_rng_below(r, words);
    bool steps = bn_rng_below(r, 2); /* many logits are equal */
    for (uint32_t v = 0; v < c->n_vocab; v++) {
        double x = gauss(r) * 2.5;
        c->logits[v] = (float)(steps ? rint(x * 2) / 2 : x);
    }
    c->masked = bn_rng_below(r, 3) == 0 && !only_lower;
    for (uint32_t v = 0; v < c->n_vocab; v++)
        if (bn_rng_below(r, 3)) c->mask[v / 64] |= (uint64_t)1 << v % 64;
    c->s.logit_bias = bias;
    c->s.n_logit_bias = bn_rng_below(r, 4);
    for (size_t i = 0; i < c->s.n_logit_bias; i++) {
        bias[i].token = (int32_t)bn_rng_below(r, c->n_vocab);
        bias[i].bias = only_lower ? ONE_OF(r, -1.5f, -INFINITY) : ONE_OF(r, 2, -1.5f, -INFINITY);
    }
}

#endif
