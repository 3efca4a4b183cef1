/* SPDX-License-Identifier: Apache-2.0
 * The sampler against the slow definition of its options: the same token in random cases; the
 * distribution of 100,000 draws of every chain (chi-squared), and that a wrong one is noticed; rows of a
 * screened head; breakers of DRY in real text; log-probabilities; no allocation; bad options and
 * extreme logits. */
#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "sampler_slow.h"

#include "base/gumbel.h"
#include "engine/sampler.h"

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
static const struct bn_tokenizer *no_tokenizer;

static int open_room(void **state)
{
    (void)state;
    return bn_sampler_room_open(&room, SLOW_MAX_VOCAB) ? 0 : -1;
}

static int close_room(void **state)
{
    (void)state;
    bn_sampler_room_close(&room);
    return 0;
}

static struct bn_sampler *sampler_for(const struct slow *c, const struct bn_tokenizer *t)
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

static int32_t draw(struct bn_sampler *s, const struct slow *c, const float *logits,
                    uint64_t position)
{
    long before = n_allocs;
    int32_t id =
        bn_sampler_draw(s, logits, c->n_vocab, position, c->masked ? c->mask : NULL, &room);
    assert_int_equal(n_allocs, before);
    return id;
}

static bool cuts(const bitnet_sampling *s)
{
    return s->top_k || s->top_p < 1 || s->min_p > 0 || s->top_n_sigma > 0 ||
           (s->typical_p > 0 && s->typical_p < 1);
}

/* The same random numbers, used slowly. *near: another token was as good as chosen. */
static int32_t slow_draw(const struct slow *c, uint64_t position, bool *near)
{
    uint64_t key = bn_mix64(c->s.seed) ^ bn_mix64(position + 0x632be59bd9b4e019u);
    struct bn_rng rng = {key};
    *near = false;
    if (c->kept == 0) return -1;
    if (c->s.temperature > 0 && !cuts(&c->s)) {
        double most = -(double)INFINITY, second = most;
        int32_t at = -1;
        for (int i = 0; i < c->kept; i++) {
            double y = c->x[c->order[i]] / (double)c->s.temperature -
                       log(-log(1 - bn_gumbel_unit(key, (uint64_t)c->order[i])));
            if (y > most) {
                second = most;
                most = y;
                at = c->order[i];
            } else if (y > second) {
                second = y;
            }
        }
        *near = most - second < 1e-5;
        return at;
    }
    double u = bn_rng_unit(&rng), seen = 0;
    for (int i = 0; i < c->kept; i++) {
        seen += c->p[i];
        *near |= fabs(u - seen) < 1e-5 && i + 1 < c->kept;
        if (u < seen) return c->order[i];
    }
    return c->order[c->kept - 1];
}

/* ---- random cases ---- */

static double gauss(struct bn_rng *r)
{
    double s = 0;
    for (int i = 0; i < 12; i++) s += bn_rng_unit(r);
    return s - 6;
}

static float one_of(struct bn_rng *r, const float *values, uint32_t n)
{
    return values[bn_rng_below(r, n)];
}
#define ONE_OF(r, ...)                      \
    one_of(r, (const float[]){__VA_ARGS__}, \
           (uint32_t)(sizeof((const float[]){__VA_ARGS__}) / sizeof(float)))

static void random_cuts(bitnet_sampling *s, struct bn_rng *r)
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

static void random_penalties(bitnet_sampling *s, struct bn_rng *r)
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

static void random_case(struct slow *c, struct bn_rng *r, bitnet_logit_bias *bias, bool only_lower)
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

static void the_same_token_as_the_slow_way(void **state)
{
    (void)state;
    enum { CASES = 30000 };
    static struct slow c;
    bitnet_logit_bias bias[4];
    struct bn_rng r = {2024};
    int n_near = 0;
    for (int i = 0; i < CASES; i++) {
        bool near;
        random_case(&c, &r, bias, false);
        struct bn_sampler *s = sampler_for(&c, no_tokenizer);
        slow_distribution(&c);
        int32_t want = slow_draw(&c, (uint64_t)i, &near);
        int32_t got = draw(s, &c, c.logits, (uint64_t)i);
        n_near += near;
        if (got != want && !near)
            fail_msg("case %d: token %d, the slow way takes %d", i, got, want);
        assert_int_equal(draw(s, &c, c.logits, (uint64_t)i), got); /* nothing was left behind */
        bn_sampler_close(s);
    }
    assert_true(n_near < CASES / 100);
}

/* ---- chi-squared ---- */

/* P(chi-squared with n degrees of freedom >= x): the upper incomplete gamma function, by its series
 * or its continued fraction. */
static double chi_squared_tail(double x, int n)
{
    double a = n / 2.0, y = x / 2, front = exp(a * log(y) - y - lgamma(a));
    if (y < a + 1) {
        double term = 1 / a, sum = term;
        for (int k = 1; k < 1000; k++) sum += term *= y / (a + k);
        return 1 - front * sum;
    }
    double b = y + 1 - a, c = 1e300, d = 1 / b, h = d;
    for (int k = 1; k < 1000; k++) {
        double an = -k * (k - a);
        b += 2;
        d = 1 / (an * d + b);
        c = b + an / c;
        h *= d * c;
    }
    return front * h;
}

enum { DRAWS = 100000, CHAIN_VOCAB = 24 };
static const double least_p = 1e-3; /* a right sampler stays above it with probability 0.999 */

/* How well counts of draws fit the distribution of c; 0 if something impossible was drawn. */
static double fit(const struct slow *c, const int *count)
{
    double x = 0, rest = 0, rest_count = 0;
    int cells = 0, seen = 0;
    for (int i = 0; i < c->kept; i++) {
        double want = c->p[i] * DRAWS;
        seen += count[c->order[i]];
        if (want < 10) { /* rare ones share a cell */
            rest += want;
            rest_count += count[c->order[i]];
            continue;
        }
        x += pow(count[c->order[i]] - want, 2) / want;
        cells++;
    }
    if (rest >= 10) {
        x += pow(rest_count - rest, 2) / rest;
        cells++;
    }
    if (seen != DRAWS) return 0;
    return cells > 1 ? chi_squared_tail(x, cells - 1) : 1;
}

static const bitnet_logit_bias chain_bias[] = {{3, 1.5f}, {7, -INFINITY}, {9, -0.7f}};
static const struct {
    const char *name;
    bool masked;
    bitnet_sampling s;
} chains[] = {
    {"plain", 0, {.temperature = 1, .top_p = 1}},
    {"cold", 0, {.temperature = 0.6f, .top_p = 1}},
    {"hot", 0, {.temperature = 2.5f, .top_p = 1}},
    {"top-k", 0, {.temperature = 0.9f, .top_p = 1, .top_k = 7}},
    {"top-p", 0, {.temperature = 1.2f, .top_p = 0.8f}},
    {"min-p", 0, {.temperature = 1, .top_p = 1, .min_p = 0.08f}},
    {"top-k, top-p, min-p", 0, {.temperature = 0.8f, .top_p = 0.95f, .min_p = 0.05f, .top_k = 12}},
    {"typical", 0, {.temperature = 1, .top_p = 1, .typical_p = 0.7f}},
    {"top-k, typical", 0, {.temperature = 1.1f, .top_p = 1, .top_k = 15, .typical_p = 0.6f}},
    {"top-n-sigma", 0, {.temperature = 1.5f, .top_p = 1, .top_n_sigma = 1.2f}},
    {"adaptive by k", 0, {.temperature = 1, .top_p = 0.99f, .top_k = 6, .adaptive = 1}},
    {"adaptive by p", 0, {.temperature = 1, .top_p = 0.6f, .top_k = 20, .adaptive = 1}},
    {"repetition", 0, {.temperature = 1, .top_p = 1, .repetition_penalty = 1.4f}},
    {"presence, frequency",
     0,
     {.temperature = 1, .top_p = 1, .presence_penalty = 0.7f, .frequency_penalty = 0.3f}},
    {"DRY", 0, {.temperature = 1, .top_p = 1, .dry_multiplier = 0.8f}},
    {"bias", 0, {.temperature = 1, .top_p = 1, .logit_bias = chain_bias, .n_logit_bias = 3}},
    {"mask", 1, {.temperature = 1, .top_p = 1}},
    {"everything",
     1,
     {.temperature = 0.9f,
      .top_p = 0.95f,
      .min_p = 0.02f,
      .top_k = 18,
      .typical_p = 0.95f,
      .top_n_sigma = 2.5f,
      .repetition_penalty = 1.1f,
      .presence_penalty = 0.2f,
      .frequency_penalty = 0.1f,
      .penalty_last_n = 12,
      .dry_multiplier = 0.5f,
      .dry_base = 1.3f,
      .dry_allowed_length = 1,
      .dry_last_n = 16,
      .logit_bias = chain_bias,
      .n_logit_bias = 3}},
};

static void chain_case(struct slow *c, size_t which)
{
    struct bn_rng r = {99};
    static const int32_t text[] = {1, 4, 2, 8, 5, 7, 1, 4, 2, 9, 5, 7, 1, 4, 3, 3, 6, 1, 4, 2};
    memset(c, 0, sizeof *c);
    c->s = chains[which].s;
    c->s.seed = 4000 + which;
    c->n_vocab = CHAIN_VOCAB;
    c->n_tokens = c->unbroken = BN_ARRAY_LEN(text);
    c->n_prompt = 8;
    memcpy(c->tokens, text, sizeof text);
    for (int v = 0; v < CHAIN_VOCAB; v++) c->logits[v] = (float)(gauss(&r) * 1.3);
    c->masked = chains[which].masked;
    c->mask[0] = 0xb7f6dd;
    slow_distribution(c);
}

static void count_draws(int *count, const struct slow *c)
{
    struct bn_sampler *s = sampler_for(c, no_tokenizer);
    for (uint64_t i = 0; i < DRAWS; i++) {
        int32_t id = draw(s, c, c->logits, i);
        assert_in_range(id, 0, CHAIN_VOCAB - 1);
        count[id]++;
    }
    bn_sampler_close(s);
}

static void draws_follow_the_distribution(void **state)
{
    (void)state;
    static struct slow c;
    for (size_t w = 0; w < BN_ARRAY_LEN(chains); w++) {
        int count[CHAIN_VOCAB] = {0};
        chain_case(&c, w);
        assert_true(c.kept > 1);
        count_draws(count, &c);
        double p = fit(&c, count);
        printf("# %-20s %2d tokens left, p = %.3f\n", chains[w].name, c.kept, p);
        assert_true(p > least_p);
    }
}

/* Counts of one chain against distributions that are a little wrong. */
static void a_wrong_distribution_is_noticed(void **state)
{
    (void)state;
    static struct slow c;
    int count[CHAIN_VOCAB] = {0};
    chain_case(&c, 0);
    count_draws(count, &c);
    assert_true(fit(&c, count) > least_p);
    c.s.temperature = 1.04f;
    slow_distribution(&c);
    assert_true(fit(&c, count) < least_p);
    c.s = chains[0].s;
    int32_t third = c.order[2];
    c.logits[third] += 0.1f;
    slow_distribution(&c);
    assert_true(fit(&c, count) < least_p);
    c.logits[third] -= 0.1f;
    c.s.top_k = CHAIN_VOCAB - 4; /* drawn, but not there */
    slow_distribution(&c);
    assert_true(fit(&c, count) == 0);
}

/* ---- rows of a screened head ---- */

/* Leaves what was asked for and some more; the rest becomes -infinity. */
static void screen(float *row, const struct slow *c, struct bn_want w, struct bn_rng *r)
{
    double most = -(double)INFINITY, noisy = most;
    uint32_t at = 0;
    for (uint32_t v = 0; v < c->n_vocab; v++) {
        double y = (double)c->logits[v] * w.inv_t + bn_gumbel(bn_gumbel_unit(w.noise, v));
        most = fmax(most, (double)c->logits[v]);
        if (y > noisy) {
            noisy = y;
            at = v;
        }
    }
    for (uint32_t v = 0; v < c->n_vocab; v++) {
        uint32_t rank = 0;
        for (uint32_t k = 0; k < c->n_vocab; k++) rank += c->logits[k] > c->logits[v];
        bool wanted = w.kind == BN_WANT_DRAW
                          ? v == at
                          : (!w.k || rank < w.k) && (double)c->logits[v] >= most - w.below;
        row[v] = wanted || bn_rng_below(r, 5) == 0 ? c->logits[v] : -INFINITY;
    }
}

static void screened_rows_give_the_same_token(void **state)
{
    (void)state;
    static struct slow c;
    bitnet_logit_bias bias[4];
    struct bn_rng r = {31};
    int screened[4] = {0}, biased = 0;
    for (uint64_t i = 0; i < 20000; i++) {
        random_case(&c, &r, bias, true);
        struct bn_sampler *s = sampler_for(&c, no_tokenizer);
        struct bn_want w = bn_sampler_want(s, i, false);
        assert_int_equal(bn_sampler_want(s, i, true).kind, BN_WANT_ALL);
        screened[w.kind]++;
        if (w.kind != BN_WANT_ALL) {
            float row[SLOW_MAX_VOCAB];
            screen(row, &c, w, &r);
            assert_int_equal(draw(s, &c, row, i), draw(s, &c, c.logits, i));
            biased += c.s.n_logit_bias > 0;
        }
        bn_sampler_close(s);
    }
    assert_true(screened[BN_WANT_BEST] > 1000 && screened[BN_WANT_DRAW] > 10 && biased > 1000);
}

/* Penalties may make any token the best: the whole row is asked for. */
static void penalties_want_the_whole_row(void **state)
{
    (void)state;
    static struct slow c;
    static const bitnet_logit_bias up = {1, 0.5f};
    const bitnet_sampling ways[] = {{.top_p = 1, .repetition_penalty = 1.1f},
                                    {.top_p = 1, .presence_penalty = 1},
                                    {.top_p = 1, .frequency_penalty = 1},
                                    {.top_p = 1, .dry_multiplier = 1},
                                    {.top_p = 1, .logit_bias = &up, .n_logit_bias = 1}};
    for (size_t i = 0; i < BN_ARRAY_LEN(ways); i++) {
        chain_case(&c, 0);
        c.s = ways[i];
        struct bn_sampler *s = sampler_for(&c, no_tokenizer);
        assert_int_equal(bn_sampler_want(s, 0, false).kind, BN_WANT_ALL);
        bn_sampler_close(s);
    }
}

/* ---- breakers of DRY ---- */

#if BN_HAVE_TEXT
/* Tokens behind the last one in which a breaker ends. */
static uint32_t slow_unbroken(const struct bn_tokenizer *t, const struct slow *c,
                              const char *const *breakers, size_t n_breakers)
{
    char text[4096];
    size_t n = 0;
    uint32_t behind = 0;
    for (uint32_t i = 0; i < c->n_tokens; i++) {
        size_t some, before = n;
        const char *bytes = bn_token_bytes(t, c->tokens[i], true, false, &some);
        if (some) memcpy(text + n, bytes, some);
        n += some;
        behind++;
        for (size_t k = 0; k < n_breakers; k++)
            for (size_t end = before + 1; end <= n; end++) {
                size_t len = strlen(breakers[k]);
                if (len <= end && memcmp(text + end - len, breakers[k], len) == 0) behind = 0;
            }
    }
    return behind;
}

static void breakers_end_repetitions(void **state)
{
    (void)state;
    static const char *const usual[] = {"\n", ":", "\"", "*"}, *const own[] = {"little dog", "xyz"};
    const char *text =
        "The little dog said: \"I am a little dog.\" The little dog ran. Tom said: \"I "
        "am a little dog.\" The little dog ran. The little dog said";
    struct bn_vocab v;
    struct bn_tokenizer *t;
    struct bn_tokens ids = {0};
    bitnet_error err = {0};
    static struct slow c;
    if (bn_vocab_read_hf(&v, TEST_DATA "/stories/tokenizer.json", &err) ||
        bn_tokenizer_open(&t, &v, &err) || bn_encode(t, text, strlen(text), 0, &ids, &err))
        fail_msg("%s", err.text);
    assert_true(ids.n > 30 && ids.n <= SLOW_MAX_TEXT);
    int n_broken = 0, n_changed = 0;
    for (int way = 0; way < 3; way++)
        for (uint32_t n = 2; n <= ids.n; n++) {
            memset(&c, 0, sizeof c);
            c.s = (bitnet_sampling){.temperature = 0, .top_p = 1, .dry_multiplier = 3};
            if (way == 1) c.s.dry_breakers = own, c.s.n_dry_breakers = 2;
            if (way == 2) c.s.dry_breakers = own; /* none */
            c.n_vocab = SLOW_MAX_VOCAB;
            c.n_tokens = n;
            c.n_prompt = 1 + n / 2;
            /* ids are folded into the small vocabulary of the slow way after breakers were found */
            memcpy(c.tokens, ids.ids, n * sizeof *c.tokens);
            c.unbroken = slow_unbroken(t, &c, way ? own : usual, way == 2 ? 0 : way ? 2 : 4);
            n_broken += c.unbroken < n;
            uint32_t n_vocab = bn_tokenizer_vocab(t)->n_tokens;
            float *logits = calloc(n_vocab, sizeof *logits);
            struct bn_sampler_room large;
            struct bn_sampler *s;
            assert_true(logits && bn_sampler_room_open(&large, n_vocab));
            assert_int_equal(bn_sampler_open(&s, &c.s, n_vocab, t, c.tokens, n, n, &err),
                             BITNET_OK);
            /* one token after the other is a little better than the rest: is it penalised? */
            for (uint32_t at = 1; at < n; at++) {
                uint32_t longest = 0;
                for (uint32_t other = 1; other < n; other++) {
                    uint32_t k = 0;
                    while (k < c.unbroken && k < other &&
                           c.tokens[other - 1 - k] == c.tokens[n - 1 - k])
                        k++;
                    if (c.tokens[other] == c.tokens[at] && k > longest) longest = k;
                }
                logits[c.tokens[at]] = 1;
                int32_t got = bn_sampler_draw(s, logits, n_vocab, n, NULL, &large);
                assert_int_equal(got == c.tokens[at], longest < 2);
                n_changed += longest >= 2;
                logits[c.tokens[at]] = 0;
            }
            bn_sampler_close(s);
            bn_sampler_room_close(&large);
            free(logits);
        }
    assert_true(n_broken > 40 && n_changed > 40);
    bn_tokens_free(&ids);
    bn_tokenizer_close(t);
}
#endif

/* ---- log-probabilities ---- */

static void logprobs_are_those_of_the_model(void **state)
{
    (void)state;
    static struct slow c;
    bitnet_logit_bias bias[4];
    struct bn_rng r = {7};
    for (int i = 0; i < 2000; i++) {
        bitnet_logprob top[BN_MAX_TOP_LOGPROBS];
        random_case(&c, &r, bias, false);
        c.s = (bitnet_sampling){.temperature = 1, .top_p = 1};
        c.masked = false;
        slow_distribution(&c);
        uint32_t n_top = bn_rng_below(&r, 1 + BN_MAX_TOP_LOGPROBS);
        int at = (int)bn_rng_below(&r, c.n_vocab);
        float got = bn_logprob(c.logits, c.n_vocab, c.order[at], top, n_top), sum = 0;
        assert_true(fabs((double)got - log(c.p[at])) < 1e-5);
        for (uint32_t k = 0; k < n_top; k++) {
            assert_int_equal(top[k].token, c.order[k]);
            assert_true(fabs((double)top[k].logprob - log(c.p[k])) < 1e-5);
            float alone = bn_logprob(c.logits, c.n_vocab, top[k].token, NULL, 0);
            assert_memory_equal(&alone, &top[k].logprob, sizeof alone);
        }
        for (uint32_t v = 0; v < c.n_vocab; v++)
            sum += expf(bn_logprob(c.logits, c.n_vocab, (int32_t)v, NULL, 0));
        assert_true(fabsf(sum - 1) < 1e-4f);
    }
    const float far[] = {-FLT_MAX, FLT_MAX, 0};
    assert_true(bn_logprob(far, 3, 1, NULL, 0) == 0);
    assert_true(bn_logprob(far, 3, 0, NULL, 0) < -FLT_MAX / 2);
}

/* ---- edges ---- */

/* Whatever the options, a token comes out, and -1 only if all are forbidden. */
static void extreme_logits_are_no_trouble(void **state)
{
    (void)state;
    static struct slow c;
    bitnet_logit_bias bias[4];
    struct bn_rng r = {5};
    const float odd[] = {FLT_MAX, -FLT_MAX, 0, -0.0f, FLT_MIN, 1e30f, -1e30f, -INFINITY, 88};
    for (uint64_t i = 0; i < 20000; i++) {
        random_case(&c, &r, bias, false);
        c.s.repetition_penalty = ONE_OF(&r, 1, 100, 1e-30f);
        c.s.dry_multiplier = 100;
        c.s.dry_base = 100;
        for (uint32_t v = 0; v < c.n_vocab; v++) c.logits[v] = odd[bn_rng_below(&r, 9)];
        struct bn_sampler *s = sampler_for(&c, no_tokenizer);
        int32_t id = draw(s, &c, c.logits, i);
        assert_in_range(id, 0, c.n_vocab - 1);
        assert_true(c.logits[id] > -INFINITY);
        assert_true(!c.masked || (c.mask[id / 64] >> id % 64 & 1));
        memset(c.mask, 0, sizeof c.mask);
        c.masked = true;
        assert_int_equal(draw(s, &c, c.logits, i), -1);
        bn_sampler_close(s);
    }
}

static void ties_go_to_the_smaller_id(void **state)
{
    (void)state;
    static struct slow c;
    chain_case(&c, 0);
    c.s = (bitnet_sampling){.temperature = 0, .top_p = 1};
    c.logits[3] = c.logits[9] = 100;
    struct bn_sampler *s = sampler_for(&c, no_tokenizer);
    assert_int_equal(draw(s, &c, c.logits, 0), 3);
    bn_sampler_close(s);
}

static void bad_options_get_a_sentence(void **state)
{
    (void)state;
    static const bitnet_logit_bias no_token = {24, 1}, endless = {2, INFINITY}, nan_bias = {2, NAN};
    static const char *const empty = "", *const text = "x";
    const struct {
        bitnet_sampling s;
        const char *says;
    } bad[] = {
        {{.temperature = NAN, .top_p = 1}, "temperature is nan"},
        {{.top_p = 0}, "top-p is 0"},
        {{.top_p = 1, .min_p = 1.5f}, "min-p is 1.5"},
        {{.top_p = 1, .typical_p = -1}, "typical-p is -1"},
        {{.top_p = 1, .top_n_sigma = NAN}, "top-n-sigma is nan"},
        {{.top_p = 1, .repetition_penalty = -2}, "repetition penalty is -2"},
        {{.top_p = 1, .presence_penalty = NAN}, "presence penalty is nan"},
        {{.top_p = 1, .frequency_penalty = 101}, "frequency penalty is 101"},
        {{.top_p = 1, .dry_multiplier = -1}, "DRY multiplier is -1"},
        {{.top_p = 1, .dry_base = 0.5f}, "DRY base is 0.5"},
        {{.top_p = 1, .n_dry_breakers = 1}, "dry_breakers is NULL"},
        {{.top_p = 1, .dry_breakers = &text, .n_dry_breakers = 99}, "99 DRY breakers"},
        {{.top_p = 1, .dry_breakers = &empty, .n_dry_breakers = 1}, "breaker 0 has 0 bytes"},
        {{.top_p = 1, .n_logit_bias = 1}, "logit_bias is NULL"},
        {{.top_p = 1, .logit_bias = &no_token, .n_logit_bias = 1}, "token 24"},
        {{.top_p = 1, .logit_bias = &endless, .n_logit_bias = 1}, "bias of token 2 is inf"},
        {{.top_p = 1, .logit_bias = &nan_bias, .n_logit_bias = 1}, "bias of token 2 is nan"},
        {{.top_p = 1, .logit_bias = &no_token, .n_logit_bias = 5000}, "5000 biases"},
    };
    for (size_t i = 0; i < BN_ARRAY_LEN(bad); i++) {
        bitnet_error err = {0};
        assert_int_not_equal(bn_sampling_check(&bad[i].s, 24, &err), BITNET_OK);
        if (!strstr(err.text, bad[i].says)) fail_msg("'%s' in '%s'", bad[i].says, err.text);
    }
    bitnet_sampling s;
    bitnet_sampling_init(&s);
    assert_int_equal(bn_sampling_check(&s, 24, NULL), BITNET_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_token_as_the_slow_way),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(a_wrong_distribution_is_noticed),
        cmocka_unit_test(screened_rows_give_the_same_token),
        cmocka_unit_test(penalties_want_the_whole_row),
#if BN_HAVE_TEXT
        cmocka_unit_test(breakers_end_repetitions),
#endif
        cmocka_unit_test(logprobs_are_those_of_the_model),
        cmocka_unit_test(extreme_logits_are_no_trouble),
        cmocka_unit_test(ties_go_to_the_smaller_id),
        cmocka_unit_test(bad_options_get_a_sentence),
    };
    return cmocka_run_group_tests(tests, open_room, close_room);
}
