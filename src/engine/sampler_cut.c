/* SPDX-License-Identifier: Apache-2.0
 * The cuts of a distribution, and the draw. Candidates come off a heap, best first, so that only as
 * many are ordered as the limits let through. */
#include "engine/sampler.h"

#include "base/det_math.h"
#include "base/gumbel.h"
#include "kernels/exp.h"
#include <math.h>

static bool better(struct bn_candidate a, struct bn_candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/* ------------------------------------------------------------------ what the options ask for */

static bool is_greedy(const bitnet_sampling *s) { return s->temperature == 0 || s->top_k == 1; }
static bool has_typical(const bitnet_sampling *s) { return s->typical_p > 0 && s->typical_p < 1; }

/* nothing cuts the distribution */
static bool is_plain(const bitnet_sampling *s)
{
    return s->top_k == 0 && s->top_p == 1 && s->min_p == 0 && s->top_n_sigma == 0 &&
           !has_typical(s);
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

/* ------------------------------------------------------------------ candidates */

/* Candidates, put in order as far as somebody asks. */
struct set {
    struct bn_candidate *c; /* [n]: a heap, then the `sorted` that have left it, the best last */
    uint32_t n, sorted;
};

static void sift_down(struct bn_candidate *heap, uint32_t n, uint32_t i)
{
    struct bn_candidate x = heap[i];
    for (uint32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && better(heap[child + 1], heap[child])) child++;
        if (!better(heap[child], x)) break;
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
static struct bn_candidate nth(struct set *s, uint32_t i)
{
    while (s->sorted <= i) {
        struct bn_candidate top = s->c[0];
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

static struct sums sums_of(const struct bn_candidate *c, uint32_t n, float max)
{
    enum { BLOCK = 64 };
    struct sums s = {0};
    for (uint32_t i = 0; i < n; i += BLOCK) {
        float x[BLOCK], e[BLOCK];
        uint32_t some = (uint32_t)bn_min_size(BLOCK, n - i);
        for (uint32_t k = 0; k < BLOCK; k++) x[k] = k < some ? c[i + k].logit - max : -INFINITY;
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
    double max = (double)nth(s, 0).logit, have = 0;
    uint32_t i = 0;
    while (i < kept && have < mass) have += bn_det_exp((double)nth(s, i++).logit - max);
    return i;
}

static double mass_of(struct set *s, uint32_t kept)
{
    double max = (double)nth(s, 0).logit, mass = 0;
    for (uint32_t i = 0; i < kept; i++) mass += bn_det_exp((double)nth(s, i).logit - max);
    return mass;
}

/* Surprise is -ln p = ln(mass) - x; its distance from its mean needs no logarithm. The set becomes
 * those that stay. */
static void cut_typical(struct set *s, const float *logits, float max, double share)
{
    struct sums sums = sums_of(s->c, s->n, max);
    double mean = sums.moment / sums.mass, have = 0;
    for (uint32_t i = 0; i < s->n; i++)
        s->c[i].logit = -(float)fabs((double)s->c[i].logit - (double)max - mean);
    make_heap(s);
    uint32_t kept = 0;
    while (kept < s->n && have < share * sums.mass)
        have += (double)bn_exp(logits[nth(s, kept++).id] - max);
    shrink(s, kept);
    for (uint32_t i = 0; i < kept; i++) s->c[i].logit = logits[s->c[i].id];
    make_heap(s);
}

/* From top-k to min-p: how many of the set stay. Which sum is taken for top-p follows from the
 * options, never from the number of logits that are there: a screened row has fewer of them. */
static uint32_t cut(struct set *s, const bitnet_sampling *o, const float *logits)
{
    float max = nth(s, 0).logit;
    bool whole = o->adaptive || (o->top_k == 0 && !has_typical(o)); /* top-p is a share of all */
    double all = o->top_p < 1 && whole ? sums_of(s->c, s->n, max).mass : 0;
    uint32_t kept = o->top_k && o->top_k < s->n ? o->top_k : s->n;
    if (o->top_p < 1 && whole) kept = count_mass(s, kept, (double)o->top_p * all);
    if (has_typical(o)) {
        if (kept < s->n || o->top_k) shrink(s, kept);
        cut_typical(s, logits, max, (double)o->typical_p);
        kept = s->n;
    }
    if (o->top_p < 1 && !whole) kept = count_mass(s, kept, (double)o->top_p * mass_of(s, kept));
    if (o->min_p > 0) {
        double floor = (double)nth(s, 0).logit + bn_det_log((double)o->min_p);
        uint32_t i = 1;
        while (i < kept && (double)nth(s, i).logit >= floor) i++;
        kept = i;
    }
    return kept;
}

/* ------------------------------------------------------------------ the draw */

static int32_t best(const float *logits, uint32_t n)
{
    uint32_t at = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[at]) at = i;
    return logits[at] == -INFINITY ? -1 : (int32_t)at;
}

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
    double max = (double)nth(s, 0).logit, inv_t = 1.0 / (double)o->temperature, mass = 0, seen = 0;
    for (uint32_t i = 0; i < kept; i++) mass += bn_det_exp(((double)nth(s, i).logit - max) * inv_t);
    struct bn_rng rng = {key};
    double u = bn_rng_unit(&rng) * mass;
    for (uint32_t i = 0; i < kept; i++) {
        seen += bn_det_exp(((double)nth(s, i).logit - max) * inv_t);
        if (u < seen) return nth(s, i).id;
    }
    return nth(s, kept - 1).id; /* rounding left a sliver at the end */
}

int32_t bn_sample(const bitnet_sampling *s, const float *logits, uint32_t n, uint64_t position,
                  struct bn_candidate *scratch)
{
    if (is_plain(s) && !is_greedy(s)) return draw_plain(s, logits, n, draw_key(s, position));
    int32_t first = best(logits, n);
    if (is_greedy(s) || first < 0) return first;
    double floor = -(double)INFINITY;
    if (s->top_n_sigma > 0)
        floor = sigma_floor(logits, n, (double)logits[first], (double)s->top_n_sigma);
    struct set set = {.c = scratch};
    for (uint32_t i = 0; i < n; i++)
        if (logits[i] > -INFINITY && (double)logits[i] >= floor)
            set.c[set.n++] = (struct bn_candidate){logits[i], (int32_t)i};
    make_heap(&set);
    uint32_t kept = cut(&set, s, logits);
    return draw(&set, kept, s, draw_key(s, position));
}
