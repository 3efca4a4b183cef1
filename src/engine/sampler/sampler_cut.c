/* SPDX-License-Identifier: Apache-2.0
 * The cuts of a distribution, and the draw. Candidates come off a heap, best first, so that only as
 * many are ordered as the limits let through. */
#include "engine/sampler/sampler.h"

#include "base/det_math.h"
#include "base/gumbel.h"
#include "engine/sampler/sampler_row.h"
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

/* ------------------------------------------------------------------ candidates */

/* Candidates, put in order as far as somebody asks. */
struct set {
    struct bn_scored *c; /* [n]: a heap, then the `sorted` that have left it, the best last */
    uint32_t n, sorted;
    double all; /* where top-p is a share of all: their mass, in units of the best one's */
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

/* ------------------------------------------------------------------ what comes into the set */

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

/* The least float that is not below x, and above -infinity. */
static float round_up(double x)
{
    float f = (float)x;
    return (double)f < x || f == -INFINITY ? nextafterf(f, INFINITY) : f;
}

/* Top-n-sigma, and as much of the later cuts as can be had without an order: what they would cut for
 * sure stays out. */
static void gather(struct set *s, const bitnet_sampling *o, const float *logits, uint32_t n,
                   float max)
{
    enum { FEW = 1024 }; /* more than these are gathered with all the others */
    double floor = -(double)INFINITY;
    bool whole = share_of_all(o);
    if (o->top_n_sigma > 0) floor = sigma_floor(logits, n, (double)max, (double)o->top_n_sigma);
    if (whole) {
        /* n tokens of less than (1 - p) / n each do not have the mass that top-p cuts */
        s->all = bn_row_mass(logits, n, round_up(floor), max);
        double least = (1 - (double)o->top_p) * s->all / n;
        floor = fmax(floor, (double)max + bn_det_log(least) - 0.01);
    }
    /* not where top-p is a share also of what min-p cuts */
    if (o->min_p > 0 && (whole || o->top_p == 1) && !has_typical(o))
        floor = fmax(floor, (double)max + bn_det_log((double)o->min_p));
    float least = round_up(floor);
    if (o->top_k && o->top_k <= FEW) s->n = bn_row_best(s->c, logits, n, least, o->top_k);
    else
        for (uint32_t i = 0; (i = bn_row_find(logits, i, n, least)) < n; i++)
            s->c[s->n++] = (struct bn_scored){logits[i], i};
    make_heap(s);
}

/* ------------------------------------------------------------------ the cuts */

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
    uint32_t kept = o->top_k && o->top_k < s->n ? o->top_k : s->n;
    if (whole) kept = count_mass(s, kept, (double)o->top_p * s->all);
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
        if (u < seen) return (int32_t)nth(s, i).id;
    }
    return (int32_t)nth(s, kept - 1).id; /* rounding left a sliver at the end */
}

/* What may be drawn are the *kept best of it, at least one. */
static struct set possible(const bitnet_sampling *s, const float *logits, uint32_t n, float max,
                           struct bn_scored *scratch, uint32_t *kept)
{
    struct set set = {.c = scratch};
    gather(&set, s, logits, n, max);
    *kept = cut(&set, s, logits);
    return set;
}

/* Where one is drawn without a choice, it alone was possible. */
void bn_sample_probs(const bitnet_sampling *s, const float *logits, uint32_t n,
                     struct bn_scored *scratch, struct bn_drawn_probs *out)
{
    uint32_t kept = 1, room = out->n_top;
    float max = bn_row_max(logits, n);
    out->logprob = -INFINITY;
    out->n_top = 0;
    if (max == -INFINITY) return;
    struct set set = {.c = scratch, .n = 1, .sorted = 1};
    if (is_greedy(s)) scratch[0] = (struct bn_scored){max, bn_row_find(logits, 0, n, max)};
    else set = possible(s, logits, n, max, scratch, &kept);
    if (kept < set.n) shrink(&set, kept);
    double best = (double)nth(&set, 0).score, mass = 0;
    double inv_t = s->temperature > 0 ? 1.0 / (double)s->temperature : 1;
    for (uint32_t i = 0; i < kept; i++) mass += bn_det_exp(((double)set.c[i].score - best) * inv_t);
    double whole = bn_det_log(mass);
    for (uint32_t i = 0; i < kept; i++)
        if ((int32_t)set.c[i].id == out->token)
            out->logprob = (float)(((double)set.c[i].score - best) * inv_t - whole);
    for (uint32_t i = 0; i < room && i < kept; i++) {
        struct bn_scored c = nth(&set, i);
        out->top[out->n_top++] =
            (bitnet_logprob){(int32_t)c.id, (float)(((double)c.score - best) * inv_t - whole)};
    }
}

int32_t bn_sample(const bitnet_sampling *s, const float *logits, uint32_t n, uint64_t position,
                  struct bn_scored *scratch)
{
    if (is_plain(s) && !is_greedy(s)) return draw_plain(s, logits, n, draw_key(s, position));
    float max = bn_row_max(logits, n);
    if (max == -INFINITY) return -1;
    if (is_greedy(s)) return (int32_t)bn_row_find(logits, 0, n, max);
    uint32_t kept;
    struct set set = possible(s, logits, n, max, scratch, &kept);
    return draw(&set, kept, s, draw_key(s, position));
}
