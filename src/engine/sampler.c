/* SPDX-License-Identifier: Apache-2.0
 * Candidates come off a heap, best first, so that only as many are ordered as the limits let
 * through. */
#include "engine/sampler.h"

#include "base/det_math.h"
#include "base/gumbel.h"
#include <math.h>

bitnet_status bn_sampling_check(const bitnet_sampling *s, bitnet_error *err)
{
    if (!(s->temperature >= 0 && s->temperature <= 100))
        return bn_fail(err, BITNET_E_ARG, "temperature is %g; 0 to 100 is possible",
                       (double)s->temperature);
    if (!(s->top_p > 0 && s->top_p <= 1))
        return bn_fail(err, BITNET_E_ARG, "top-p is %g; above 0 up to 1 is possible",
                       (double)s->top_p);
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return bn_fail(err, BITNET_E_ARG, "min-p is %g; 0 to 1 is possible", (double)s->min_p);
    return BITNET_OK;
}

static uint64_t draw_key(const bitnet_sampling *s, uint64_t position)
{
    return bn_mix64(s->seed) ^ bn_mix64(position + 0x632be59bd9b4e019u);
}

/* nothing cuts the distribution */
static bool is_plain(const bitnet_sampling *s)
{
    return s->top_k == 0 && s->top_p == 1 && s->min_p == 0;
}

struct bn_want bn_sampling_want(const bitnet_sampling *s, uint64_t position)
{
    /* min-p cuts last: what it would cut still counts for the sum that top-p is a share of */
    bool cuts = s->min_p > 0 && s->top_p == 1;
    double below = cuts ? -bn_det_log((double)s->min_p) : (double)INFINITY;
    if (s->temperature == 0 || s->top_k == 1)
        return (struct bn_want){.kind = BN_WANT_BEST, .k = 1, .below = (double)INFINITY};
    if (is_plain(s))
        return (struct bn_want){.kind = BN_WANT_DRAW,
                                .inv_t = 1.0 / (double)s->temperature,
                                .noise = draw_key(s, position)};
    if (s->top_k > 0 || cuts)
        return (struct bn_want){.kind = BN_WANT_BEST, .k = s->top_k, .below = below};
    return (struct bn_want){.kind = BN_WANT_ALL};
}

static bool better(struct bn_candidate a, struct bn_candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static int32_t best(const float *logits, uint32_t n)
{
    uint32_t at = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[at]) at = i;
    return (int32_t)at;
}

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

/* The noise itself, two logarithms, is made where it could matter only. */
static int32_t draw_plain(const bitnet_sampling *s, const float *logits, uint32_t n, uint64_t key)
{
    double inv_t = 1.0 / (double)s->temperature, most = -(double)INFINITY;
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (logits[i] == -INFINITY) continue;
        double y = (double)logits[i] * inv_t, v = bn_gumbel_unit(key, i);
        if (y + bn_gumbel_bound(v) < most) continue;
        y += bn_gumbel(v);
        if (y > most) {
            most = y;
            at = i;
        }
    }
    return (int32_t)at;
}

int32_t bn_sample(const bitnet_sampling *s, const float *logits, uint32_t n, uint64_t position,
                  struct bn_candidate *scratch)
{
    if (s->temperature == 0 || s->top_k == 1 || n == 1) return best(logits, n);
    if (is_plain(s)) return draw_plain(s, logits, n, draw_key(s, position));
    double max = (double)logits[best(logits, n)];

    /* the total that top-p is a share of: over the top-k if there is a top-k, else over all */
    double total = 0;
    if (s->top_p < 1 && !s->top_k)
        for (uint32_t i = 0; i < n; i++) total += bn_det_exp((double)logits[i] - max);

    uint32_t n_logits = n;
    n = 0;
    for (uint32_t i = 0; i < n_logits; i++)
        if (logits[i] > -INFINITY) scratch[n++] = (struct bn_candidate){logits[i], (int32_t)i};
    for (uint32_t i = n / 2; i-- > 0;) sift_down(scratch, n, i);
    /* the best leave the heap one by one and gather, in order, at the far end of the array */
    uint32_t heap = n, kept = 0, limit = s->top_k && s->top_k < n ? s->top_k : n;
    double sum = 0;
    double floor = s->min_p > 0 ? max + bn_det_log((double)s->min_p) : -(double)INFINITY;
    while (kept < limit) {
        struct bn_candidate top = scratch[0];
        /* without top-p nothing behind the first one below min-p's floor can matter */
        if (s->top_p == 1 && kept > 0 && (double)top.logit < floor) break;
        scratch[0] = scratch[--heap];
        if (heap) sift_down(scratch, heap, 0);
        scratch[heap] = top;
        kept++;
        sum += bn_det_exp((double)top.logit - max);
        if (s->top_p < 1 && !s->top_k && sum >= (double)s->top_p * total) break;
    }
    const struct bn_candidate *end = scratch + n; /* candidate i is end[-1 - i] */
    if (s->top_p < 1 && s->top_k) {
        double want = (double)s->top_p * sum, have = 0;
        for (uint32_t i = 0; i < kept; i++)
            if ((have += bn_det_exp((double)end[-1 - (int64_t)i].logit - max)) >= want)
                kept = i + 1;
    }
    while (kept > 1 && (double)end[-(int64_t)kept].logit < floor) kept--;

    double inv_t = 1.0 / (double)s->temperature, mass = 0;
    for (uint32_t i = 0; i < kept; i++)
        mass += bn_det_exp(((double)end[-1 - (int64_t)i].logit - max) * inv_t);
    struct bn_rng rng = {draw_key(s, position)};
    double u = bn_rng_unit(&rng) * mass, seen = 0;
    for (uint32_t i = 0; i < kept; i++) {
        seen += bn_det_exp(((double)end[-1 - (int64_t)i].logit - max) * inv_t);
        if (u < seen) return end[-1 - (int64_t)i].id;
    }
    return end[-(int64_t)kept].id; /* rounding left a sliver at the end */
}
