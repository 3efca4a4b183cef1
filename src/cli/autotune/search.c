/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/autotune/search.h"

#include "app/stats.h"

double autotune_search_median(const struct autotune_candidate *c)
{
    double scratch[AUTOTUNE_ROUNDS_MAX];
    return stats_summarize(c->values, c->n, scratch).median;
}

size_t autotune_search_left(const struct autotune_search *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) n += !s->candidates[i].dropped;
    return n;
}

/* The preferred one leads where nothing is known. */
static void find_best(struct autotune_search *s)
{
    double best = -1;
    s->best = s->preferred;
    for (size_t i = 0; i < s->n; i++) {
        if (s->candidates[i].dropped || s->candidates[i].n == 0) continue;
        double m = autotune_search_median(&s->candidates[i]);
        if (m > best || (m == best && i == s->preferred)) {
            best = m;
            s->best = i;
        }
    }
    s->choice = s->candidates[s->preferred].dropped ? s->best : s->preferred;
}

static bool is_hopeless(const struct autotune_candidate *c, const struct autotune_candidate *leader)
{
    double scratch[AUTOTUNE_ROUNDS_MAX];
    return c->n >= AUTOTUNE_ROUNDS_HOPELESS &&
           stats_summarize(c->values, c->n, scratch).max <
               AUTOTUNE_HOPELESS * stats_summarize(leader->values, leader->n, scratch).min;
}

/* All that are left have as many values. Two tests, each at half of the level: pairs see through a
 * drift, ranks through a few values that are far off. */
static bool is_slower(const struct autotune_candidate *c, const struct autotune_candidate *leader,
                      double alpha)
{
    return stats_compare_pairs(leader->values, c->values, c->n, 1, AUTOTUNE_THRESHOLD, alpha / 2)
                   .verdict == BENCH_SLOWER ||
           stats_compare(leader->values, leader->n, c->values, c->n, 1, AUTOTUNE_THRESHOLD,
                         alpha / 2)
                   .verdict == BENCH_SLOWER;
}

static void drop_losers(struct autotune_search *s)
{
    const struct autotune_candidate *leader = &s->candidates[s->best];
    /* the leader leads by luck, too, the more of them there are */
    double alpha = BENCH_ALPHA / (double)bn_max_size(autotune_search_left(s) - 1, 1);
    for (size_t i = 0; i < s->n; i++) {
        struct autotune_candidate *c = &s->candidates[i];
        if (c != leader && !c->dropped)
            c->dropped = is_hopeless(c, leader) || is_slower(c, leader, alpha);
    }
}

/* *whole: time was enough. What a round that was cut short has measured is forgotten. */
static bitnet_status run_round(struct autotune_search *s, bool *whole, bitnet_error *err)
{
    *whole = true;
    for (size_t i = 0; i < s->n; i++) {
        struct autotune_candidate *c = &s->candidates[i];
        if (c->dropped) continue;
        *whole = s->rounds < s->rounds_min || s->time_left(s->user);
        if (!*whole) break;
        BN_TRY(s->measure(s->user, i, &c->values[s->rounds], err));
    }
    if (!*whole) return BITNET_OK;
    s->rounds++;
    for (size_t i = 0; i < s->n; i++)
        if (!s->candidates[i].dropped) s->candidates[i].n = s->rounds;
    return BITNET_OK;
}

bitnet_status autotune_search_run(struct autotune_search *s, bitnet_error *err)
{
    bool whole = true;
    for (size_t i = 0; i < s->n; i++) s->candidates[i].n = 0;
    s->rounds = 0;
    while (whole && s->rounds < s->rounds_max && (s->keep_all || autotune_search_left(s) > 1)) {
        BN_TRY(run_round(s, &whole, err));
        find_best(s);
        if (whole && !s->keep_all) drop_losers(s);
    }
    find_best(s);
    return BITNET_OK;
}
