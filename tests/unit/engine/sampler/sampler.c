/* SPDX-License-Identifier: Apache-2.0
 * The sampler against the slow definition of its options: the same token in random cases; the
 * distribution of 100,000 draws of every chain (chi-squared), and that a wrong one is noticed.
 *
 * SAMPLER_TIMES in the environment asks for the time of a draw from a large vocabulary instead. */
#include "sampler_common.h"

#include "base/clock.h"

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
        struct bn_sampler *s = sampler_for(&c, NULL);
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
    struct bn_sampler *s = sampler_for(c, NULL);
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

/* ---- times ---- */

enum { LARGE = 128256, TEXT = 4096 };

static const struct {
    const char *name;
    bitnet_sampling s;
} timed[] = {
    {"greedy", {.top_p = 1}},
    {"plain", {.temperature = 1, .top_p = 1}},
    {"top-k 40", {.temperature = 1, .top_p = 1, .top_k = 40}},
    {"top-k 40, top-p 0.95, min-p 0.05",
     {.temperature = 1, .top_p = 0.95f, .min_p = 0.05f, .top_k = 40}},
    {"min-p 0.05", {.temperature = 1, .top_p = 1, .min_p = 0.05f}},
    {"top-n-sigma 1", {.temperature = 1, .top_p = 1, .top_n_sigma = 1}},
    {"adaptive 50, 0.92", {.temperature = 1, .top_p = 0.92f, .top_k = 50, .adaptive = 1}},
    {"top-p 0.5", {.temperature = 1, .top_p = 0.5f}},
    {"top-p 0.95", {.temperature = 1, .top_p = 0.95f}},
    {"typical 0.9", {.temperature = 1, .top_p = 1, .typical_p = 0.9f}},
    {"greedy, repetition penalty", {.top_p = 1, .repetition_penalty = 1.1f}},
    {"greedy, DRY", {.top_p = 1, .dry_multiplier = 0.8f}},
};

static int print_times(void)
{
    static float logits[LARGE];
    static int32_t text[TEXT];
    struct bn_sampler_room large;
    struct bn_rng r = {1};
    for (int i = 0; i < LARGE; i++) logits[i] = (float)(gauss(&r) * 2.2);
    for (int i = 0; i < TEXT; i++) text[i] = (int32_t)bn_rng_below(&r, 2000);
    if (!bn_sampler_room_open(&large, LARGE)) return 1;
    for (size_t w = 0; w <= BN_ARRAY_LEN(timed); w++) {
        bool last = w == BN_ARRAY_LEN(timed);
        struct bn_sampler *s;
        uint64_t least = UINT64_MAX;
        if (bn_sampler_open(&s, &timed[last ? 0 : w].s, LARGE, NULL, text, TEXT, TEXT, NULL))
            return 1;
        for (uint64_t i = 0; i < 15; i++) {
            bitnet_logprob top[BN_MAX_TOP_LOGPROBS];
            uint64_t start = bn_now_ns();
            if (last) bn_logprob(logits, LARGE, 0, top, BN_MAX_TOP_LOGPROBS);
            else bn_sampler_draw(s, logits, LARGE, i, NULL, &large);
            uint64_t ns = bn_now_ns() - start;
            least = ns < least ? ns : least;
        }
        printf("%-34s %9.1f us\n", last ? "log-probabilities, 20 likeliest" : timed[w].name,
               (double)least / 1e3);
        bn_sampler_close(s);
    }
    bn_sampler_room_close(&large);
    return 0;
}

int main(void)
{
    if (getenv("SAMPLER_TIMES")) return print_times();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_token_as_the_slow_way),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(a_wrong_distribution_is_noticed),
    };
    return cmocka_run_group_tests(tests, open_room, close_room);
}
