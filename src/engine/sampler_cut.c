/* SPDX-License-Identifier: Apache-2.0
 * The cuts of a distribution, and the draw. Candidates come off a heap, best first, so that only as
 * many are ordered as the limits let through; of a row of many thousands only those come into it
 * that can matter. */
#include "engine/sampler.h"

#include "base/det_math.h"
#include "base/gumbel.h"
#include "kernels/exp.h"
#include <math.h>

/* ------------------------------------------------------------------ what the options ask for */

static bool is_greedy(const bitnet_sampling *s) { return s->temperature == 0 || s->top_k == 1; }
static bool has_typical(const bitnet_sampling *s) { return s->typical_p > 0 && s->typical_p < 1; }

/* nothing cuts the distribution */
static bool is_plain(const bitnet_sampling *s)
{
    return s->top_k == 0 && s->top_p == 1 && s->min_p == 0 && s->top_n_sigma == 0 &&
           !has_typical(s);
}

/* top-p is a share of everything, not of what top-k or typical have left */
static bool share_of_all(const bitnet_sampling *s)
{
    return s->top_p < 1 && (s->adaptive || (s->top_k == 0 && !has_typical(s)));
}

static uint64_t draw_key(const bitnet_sampling *s, uint64_t position)
{
    return bn_mix64(s->seed) ^ bn_mix64(position + 0x632be59bd9b4e019u);
}

struct bn_want bn_sampling_want(const bitnet_sampling *s, uint64_t position)
{
    const struct bn_want all = {.kind = BN_WANT_ALL};
    double below = s->min_p > 0 ? -bn_det_log((double)s->min_p) : (double)INFINITY;
    if (is_greedy(s))
        return (struct bn_want){.kind = BN_WANT_BEST, .k = 1, .below = (double)INFINITY};
    if (is_plain(s))
        return (struct bn_want){.kind = BN_WANT_DRAW,
                                .inv_t = 1.0 / (double)s->temperature,
                                .noise = draw_key(s, position)};
    /* the deviation is that of all logits, and adaptive's top-p a share of them all */
    if (s->top_n_sigma > 0 || (s->adaptive && s->top_p < 1)) return all;
    /* typical may cut the best, which min-p counts from; top-p is a share also of what min-p cuts */
    if (has_typical(s) || s->top_p < 1) below = (double)INFINITY;
    if (s->top_k > 0 || below < (double)INFINITY)
        return (struct bn_want){.kind = BN_WANT_BEST, .k = s->top_k, .below = below};
    return all;
}

/* ------------------------------------------------------------------ looking through a row */

enum { LANES = 32 }; /* looked at together; loops over them become vector code */

static float max_of(const float *x, uint32_t n)
{
    float m[LANES], max = -INFINITY;
    uint32_t i = 0;
    for (uint32_t k = 0; k < LANES; k++) m[k] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (uint32_t k = 0; k < LANES; k++) m[k] = x[i + k] > m[k] ? x[i + k] : m[k];
    for (; i < n; i++) max = x[i] > max ? x[i] : max;
    for (uint32_t k = 0; k < LANES; k++) max = m[k] > max ? m[k] : max;
    return max;
}

static bool any_reaches(const float *x, float least)
{
    int any = 0;
    for (uint32_t k = 0; k < LANES; k++) any |= x[k] >= least;
    return any;
}

/* The first place from i on whose logit is at least this; n: there is none. */
static uint32_t find(const float *x, uint32_t i, uint32_t n, float least)
{
    for (; i < n; i++) {
        if (i % LANES == 0)
            while (i + LANES <= n && !any_reaches(x + i, least)) i += LANES;
        if (i < n && x[i] >= least) return i;
    }
    return n;
}

/* The least float that is not below x, and above -infinity. */
static float round_up(double x)
{
    float f = (float)x;
    return (double)f < x || f == -INFINITY ? nextafterf(f, INFINITY) : f;
}

/* ------------------------------------------------------------------ candidates */

/* Candidates, put in order as far as somebody asks. */
struct set {
    struct bn_scored *c; /* [n]: a heap, then the `sorted` that have left it, the best last */
    uint32_t n, sorted;
};

static void sift_down(struct bn_scored *heap, uint32_t n, uint32_t i)
{
    struct bn_scored x = heap[i];
    for (uint32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && bn_worse(heap[child], heap[child + 1])) child++;
        if (!bn_worse(x, heap[child])) break;
        heap[i] = heap[child];
    }
    heap[i] = x;
}

static void make_heap(struct set *s)
{
    s->sorted = 0;
    for (uint32_t i = s->n / 2; i-- > 0;) sift_down(s->c, s->n, i);
}

/* The i-th best, from 0 on. */
static struct bn_scored nth(struct set *s, uint32_t i)
{
    while (s->sorted <= i) {
        struct bn_scored top = s->c[0];
        uint32_t end = s->n - ++s->sorted;
        s->c[0] = s->c[end];
        if (end) sift_down(s->c, end, 0);
        s->c[end] = top;
    }
    return s->c[s->n - 1 - i];
}

/* Only the `kept` best stay. */
static void shrink(struct set *s, uint32_t kept)
{
    nth(s, kept - 1);
    s->c += s->n - kept;
    s->n = s->sorted = kept;
}

/* All logits that reach `least`. */
static void gather(struct set *s, const float *logits, uint32_t n, float least)
{
    for (uint32_t i = find(logits, 0, n, least); i < n; i = find(logits, i + 1, n, least))
        s->c[s->n++] = (struct bn_scored){logits[i], i};
    make_heap(s);
}

/* The k best of them: fewer and fewer are better than the worst of those so far. */
static void gather_best(struct set *s, const float *logits, uint32_t n, float least, uint32_t k)
{
    for (uint32_t i = find(logits, 0, n, least); i < n; i = find(logits, i + 1, n, least)) {
        s->n = bn_best_push(s->c, s->n, k, (struct bn_scored){logits[i], i});
        if (s->n == k) least = s->c[0].score;
    }
    make_heap(s);
}

/* ------------------------------------------------------------------ the cuts */

/* The least logit that top-n-sigma keeps. */
static double sigma_floor(const float *logits, uint32_t n, double max, double n_sigma)
{
    double sum = 0, squares = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (logits[i] == -INFINITY) continue;
        sum += (double)logits[i];
        count++;
    }
    double mean = sum / count;
    for (uint32_t i = 0; i < n; i++) {
        if (logits[i] == -INFINITY) continue;
        double d = (double)logits[i] - mean;
        squares += d * d;
    }
    return max - n_sigma * sqrt(squares / count);
}

/* Sums over candidates in the order in which they lie: e^x and x e^x, x = logit - max. */
struct sums {
    double mass, moment;
};

static struct sums sums_of(const struct bn_scored *c, uint32_t n, float max)
{
    enum { BLOCK = 64 };
    struct sums s = {0};
    for (uint32_t i = 0; i < n; i += BLOCK) {
        float x[BLOCK], e[BLOCK];
        uint32_t some = (uint32_t)bn_min_size(BLOCK, n - i);
        for (uint32_t k = 0; k < BLOCK; k++) x[k] = k < some ? c[i + k].score - max : -INFINITY;
        for (uint32_t k = 0; k < BLOCK; k++) e[k] = bn_exp(x[k]);
        for (uint32_t k = 0; k < some; k++) {
            s.mass += (double)e[k];
            if (e[k] > 0) s.moment += (double)e[k] * (double)x[k];
        }
    }
    return s;
}

/* How many of the best reach a mass, in units of the best one's. */
static uint32_t count_mass(struct set *s, uint32_t kept, double mass)
{
    double max = (double)nth(s, 0).score, have = 0;
    uint32_t i = 0;
    while (i < kept && have < mass) have += bn_det_exp((double)nth(s, i++).score - max);
    return i;
}

static double mass_of(struct set *s, uint32_t kept)
{
    double max = (double)nth(s, 0).score, mass = 0;
    for (uint32_t i = 0; i < kept; i++) mass += bn_det_exp((double)nth(s, i).score - max);
    return mass;
}

/* Surprise is -ln p = ln(mass) - x; its distance from its mean needs no logarithm. The set becomes
 * those that stay. */
static void cut_typical(struct set *s, const float *logits, float max, double share)
{
    struct sums sums = sums_of(s->c, s->n, max);
    double mean = sums.moment / sums.mass, have = 0;
    for (uint32_t i = 0; i < s->n; i++)
        s->c[i].score = -(float)fabs((double)s->c[i].score - (double)max - mean);
    make_heap(s);
    uint32_t kept = 0;
    while (kept < s->n && have < share * sums.mass)
        have += (double)bn_exp(logits[nth(s, kept++).id] - max);
    shrink(s, kept);
    for (uint32_t i = 0; i < kept; i++) s->c[i].score = logits[s->c[i].id];
    make_heap(s);
}

/* From top-k to min-p: how many of the set stay. Which sum top-p is a share of follows from the
 * options, never from the number of logits that are there: a screened row has fewer of them. */
static uint32_t cut(struct set *s, const bitnet_sampling *o, const float *logits)
{
    float max = nth(s, 0).score;
    bool whole = share_of_all(o);
    double all = whole ? sums_of(s->c, s->n, max).mass : 0;
    uint32_t kept = o->top_k && o->top_k < s->n ? o->top_k : s->n;
    if (whole) kept = count_mass(s, kept, (double)o->top_p * all);
    if (has_typical(o)) {
        if (kept < s->n || o->top_k) shrink(s, kept);
        cut_typical(s, logits, max, (double)o->typical_p);
        kept = s->n;
    }
    if (o->top_p < 1 && !whole) kept = count_mass(s, kept, (double)o->top_p * mass_of(s, kept));
    if (o->min_p > 0) {
        double floor = (double)nth(s, 0).score + bn_det_log((double)o->min_p);
        uint32_t i = 1;
        while (i < kept && (double)nth(s, i).score >= floor) i++;
        kept = i;
    }
    return kept;
}

/* ------------------------------------------------------------------ the draw */

/* The noise itself, two logarithms, is made where it could matter only. */
static int32_t draw_plain(const bitnet_sampling *s, const float *logits, uint32_t n, uint64_t key)
{
    double inv_t = 1.0 / (double)s->temperature, most = -(double)INFINITY;
    int32_t at = -1;
    for (uint32_t i = 0; i < n; i++) {
        if (logits[i] == -INFINITY) continue;
        double y = (double)logits[i] * inv_t, v = bn_gumbel_unit(key, i);
        if (y + bn_gumbel_bound(v) < most) continue;
        y += bn_gumbel(v);
        if (y > most) {
            most = y;
            at = (int32_t)i;
        }
    }
    return at;
}

static int32_t draw(struct set *s, uint32_t kept, const bitnet_sampling *o, uint64_t key)
{
    double max = (double)nth(s, 0).score, inv_t = 1.0 / (double)o->temperature, mass = 0, seen = 0;
    for (uint32_t i = 0; i < kept; i++) mass += bn_det_exp(((double)nth(s, i).score - max) * inv_t);
    struct bn_rng rng = {key};
    double u = bn_rng_unit(&rng) * mass;
    for (uint32_t i = 0; i < kept; i++) {
        seen += bn_det_exp(((double)nth(s, i).score - max) * inv_t);
        if (u < seen) return nth(s, i).id;
    }
    return nth(s, kept - 1).id; /* rounding left a sliver at the end */
}

/* The least logit that can be among those a token is drawn from. */
static float least_logit(const bitnet_sampling *s, const float *logits, uint32_t n, float max)
{
    double least = -(double)INFINITY;
    if (s->top_n_sigma > 0) least = sigma_floor(logits, n, (double)max, (double)s->top_n_sigma);
    /* min-p, too, where no share of what it cuts is taken before */
    if (s->min_p > 0 && s->top_p == 1 && !has_typical(s))
        least = fmax(least, (double)max + bn_det_log((double)s->min_p));
    return round_up(least);
}

int32_t bn_sample(const bitnet_sampling *s, const float *logits, uint32_t n, uint64_t position,
                  struct bn_scored *scratch)
{
    enum { FEW = 1024 }; /* more than these are gathered with all the others */
    if (is_plain(s) && !is_greedy(s)) return draw_plain(s, logits, n, draw_key(s, position));
    float max = max_of(logits, n);
    if (max == -INFINITY) return -1;
    if (is_greedy(s)) return (int32_t)find(logits, 0, n, max);
    struct set set = {.c = scratch};
    float least = least_logit(s, logits, n, max);
    if (s->top_k && s->top_k <= FEW && !share_of_all(s))
        gather_best(&set, logits, n, least, s->top_k);
    else gather(&set, logits, n, least);
    uint32_t kept = cut(&set, s, logits);
    return draw(&set, kept, s, draw_key(s, position));
}
