/* SPDX-License-Identifier: Apache-2.0
 *
 * Spending a budget of harm. A knapsack whose items have levels: step by step the rise of a knob that
 * gains most for its harm is taken, to whichever level, as long as the sum stays within the budget. */
#include "forge/calibrate/knobs.h"

static const double harm_floor = 1e-9; /* what is measured as less counts as this */
static const double entropy_energy =
    0.01; /* of the sum of squares: what the entropy's rule drops */

/* Of its layer; the head has none behind it. */
static double floor_of(const struct bn_knobs *k, const struct bn_knob *knob)
{
    return knob->kind == BN_KNOB_HEAD ? 0 : k->floors[knob->layer];
}

/* What a level does beyond the floor. */
static double excess_at(const struct bn_knobs *k, const struct bn_knob *knob, uint32_t level)
{
    double kl = level ? knob->levels[level - 1].kl - floor_of(k, knob) : 0;
    return kl > 0 ? kl : 0;
}

static double highest_floor(const struct bn_knobs *k)
{
    double most = 0;
    for (size_t i = 0; i < k->n; i++) {
        double f = k->items[i].chosen ? floor_of(k, &k->items[i]) : 0;
        most = f > most ? f : most;
    }
    return most;
}

static double gain_at(const struct bn_knob *k, uint32_t level)
{
    return level ? k->levels[level - 1].gain : 0;
}

static void clear(struct bn_knobs *k)
{
    for (size_t i = 0; i < k->n; i++) k->items[i].chosen = 0;
}

/* The best rise of all knobs that costs no more than `left`; NULL: there is none. */
static struct bn_knob *best_rise(struct bn_knobs *k, double left, uint32_t *to)
{
    struct bn_knob *best = NULL;
    double best_ratio = 0, highest = highest_floor(k);
    for (size_t i = 0; i < k->n; i++) {
        struct bn_knob *knob = &k->items[i];
        double floor = floor_of(k, knob), rise = floor > highest ? floor - highest : 0;
        for (uint32_t level = knob->chosen + 1; level <= knob->n_levels; level++) {
            if (!knob->levels[level - 1].measured) break;
            double harm = rise + excess_at(k, knob, level) - excess_at(k, knob, knob->chosen);
            double gain = gain_at(knob, level) - gain_at(knob, knob->chosen);
            double ratio = gain / (harm > harm_floor ? harm : harm_floor);
            if (harm > left || ratio <= best_ratio) continue;
            best = knob;
            best_ratio = ratio;
            *to = level;
        }
    }
    return best;
}

void bn_knobs_choose(struct bn_knobs *k, double budget)
{
    struct bn_knob *knob;
    uint32_t to = 0;
    clear(k);
    if (!(budget > 0)) return;
    while ((knob = best_rise(k, budget - bn_knobs_kl(k), &to))) knob->chosen = to;
}

/* Codes up to the last level that drops no more than a hundredth of the squares. */
static uint32_t fitting_codes(const struct bn_knob *k, const struct bn_census_counts *c)
{
    uint32_t level = 0;
    while (level < k->n_levels &&
           bn_census_energy(c, k->levels[level].value.codes) <= entropy_energy)
        level++;
    return level;
}

void bn_knobs_choose_by_entropy(struct bn_knobs *k, const struct bn_census *c, double bits)
{
    clear(k);
    for (size_t i = 0; i < k->n; i++) {
        struct bn_knob *knob = &k->items[i];
        struct bn_census_counts n;
        bool codes = knob->kind == BN_KNOB_CODES;
        if (!codes && (knob->kind < BN_KNOB_MIXER || knob->kind > BN_KNOB_DOWN)) continue;
        bn_census_get(&n, c, knob->layer,
                      codes ? BN_IN_DOWN : (enum bn_savings_input)(knob->kind - BN_KNOB_MIXER));
        if (bn_census_entropy(&n) >= bits) continue;
        knob->chosen = codes ? fitting_codes(knob, &n) : 1;
    }
}

bool bn_knobs_choose_uniform(struct bn_knobs *k, uint32_t step)
{
    bool any = false;
    clear(k);
    for (size_t i = 0; i < k->n; i++) {
        struct bn_knob *knob = &k->items[i];
        if (knob->kind > BN_KNOB_GATES || !knob->n_levels) continue;
        knob->chosen = step < knob->n_levels ? step : knob->n_levels;
        any |= step <= knob->n_levels;
    }
    return any;
}

double bn_knobs_kl(const struct bn_knobs *k)
{
    double sum = highest_floor(k);
    for (size_t i = 0; i < k->n; i++) sum += excess_at(k, &k->items[i], k->items[i].chosen);
    return sum;
}

double bn_knobs_gain(const struct bn_knobs *k)
{
    double sum = 0;
    for (size_t i = 0; i < k->n; i++) sum += gain_at(&k->items[i], k->items[i].chosen);
    return sum;
}

struct bn_savings *bn_knobs_plan(const struct bn_knobs *k, const struct bn_model *m)
{
    struct bn_savings *s = bn_savings_new(m);
    for (size_t i = 0; s && i < k->n; i++) bn_knob_apply(s, &k->items[i], k->items[i].chosen);
    return s;
}
