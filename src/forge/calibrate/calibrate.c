/* SPDX-License-Identifier: Apache-2.0
 *
 * Every second sample is held out. The others choose:
 *
 *   census    what the inputs of the matrices are like                          (probe samples)
 *   probe     every level of every knob alone: its harm                         (probe samples)
 *   settle    the best choice within the budget, measured as a whole
 *   judge     what it does to the samples that were held out
 */
#include "forge/calibrate/calibrate_impl.h"

#include "base/clock.h"
#include "base/os/mem.h"
#include "forge/forge.h"
#include <math.h>
#include <stdlib.h>

enum {
    SAMPLE_DEFAULT = 128,
    SAMPLE_MIN = 16,
    SAMPLES_MIN = 8,
    PROBE_SAMPLES = 8,
    TRIES = 4,
    MEMORY_DEFAULT = 256 << 20,
    MEMORY_MIN = 1 << 20,
    CURVE_MAX = 64
};
static const double near_enough = 0.9; /* of the budget: then no other choice is tried */
static const double probe_limit =
    2; /* of the largest budget: a level that harms more is no choice */
static const double entropy_budget =
    0.01; /* stands in for one in the tables of the entropy's rule */

/* ------------------------------------------------------------------ samples */

static bitnet_status deal_samples(struct bn_calibration_run *r, bitnet_error *err)
{
    size_t n = r->lab.n_samples;
    r->n_heldout = n / 2;
    r->n_chosen = n - r->n_heldout;
    r->n_probe = bn_min_size(PROBE_SAMPLES, r->n_chosen);
    r->samples = bn_calloc(n, sizeof *r->samples);
    r->probe = bn_calloc(r->n_probe, sizeof *r->probe);
    if (!r->samples || !r->probe) return bn_fail_nomem(err, n * sizeof *r->samples, "samples");
    for (size_t i = 0; i < n; i++) r->samples[i % 2 ? r->n_chosen + i / 2 : i / 2] = i;
    for (size_t i = 0; i < r->n_probe; i++) r->probe[i] = r->samples[i * r->n_chosen / r->n_probe];
    return BITNET_OK;
}

static double largest_budget(const struct bn_calibration_run *r)
{
    double most = r->o->entropy_bits > 0 ? entropy_budget : r->o->kl_budget;
    for (size_t i = 0; i < r->o->n_curve; i++) most = fmax(most, r->o->curve[i]);
    return most;
}

/* What is ahead, for the progress bar. */
static void reckon(struct bn_calibration_run *r)
{
    size_t levels = 0, trials = 1 + r->o->n_curve;
    for (size_t i = 0; i < r->knobs.n; i++) levels += r->knobs.items[i].n_levels;
    if (r->o->n_curve) trials += BN_LEVELS_MAX;
    size_t samples = r->n_probe * (levels + 1 + r->m->config.n_layer) + 2 * r->n_chosen +
                     trials * 2 * r->n_heldout + 3 * bn_min_size(r->lab.room, r->n_chosen);
    r->lab.total = r->lab.done + samples * r->lab.sample;
}

/* ------------------------------------------------------------------ census */

/* How much of a token's time int8 activations save where they are int16 in groups. */
static bitnet_status time_int8(struct bn_calibration_run *r, double *gain, bitnet_error *err)
{
    struct bitnet_engine *e = NULL;
    double ns;
    *gain = 0;
    if (r->m->activations != BN_AQ_INT16_GROUPS) return BITNET_OK;
    struct bn_savings *s = bn_savings_new(r->m);
    if (!s) return bn_fail_nomem(err, sizeof *s, "a plan");
    for (uint32_t i = 0; i < s->n_layer; i++)
        for (size_t k = 0; k < BN_N_INPUTS; k++) s->layers[i].activations[k] = BN_AQ_INT8_GROUPS;
    bitnet_status status = bn_lab_engine(&r->lab, s, &e, err);
    if (status == BITNET_OK) status = bn_lab_decode_ns(&r->lab, e, &ns, err);
    if (status == BITNET_OK) *gain = fmax(0.01, 1 - ns / r->decode_ns);
    if (status == BITNET_E_UNSUPPORTED) status = BITNET_OK;
    bn_engine_close(e);
    free(s);
    return status;
}

static bitnet_status take_census(struct bn_calibration_run *r, bitnet_error *err)
{
    struct bn_knobs_basis basis = {
        .m = r->m, .context = r->o->context_tokens, .kinds = r->o->savings};
    if (!basis.context) basis.context = (uint32_t)bn_min_size(r->m->config.n_ctx, 4096) / 2;
    BN_TRY(bn_lab_decode_ns(&r->lab, r->lab.untouched, &r->decode_ns, err));
    BN_TRY(time_int8(r, &basis.int8_gain, err));
    BN_TRY(bn_lab_engine(&r->lab, NULL, &r->watched, err));
    BN_TRY(bn_engine_watch(r->watched, err));
    BN_TRY(bn_lab_read(&r->lab, r->watched, r->probe, r->n_probe, err));
    basis.census = bn_engine_census(r->watched);
    return bn_knobs_open(&r->knobs, &basis, err);
}

/* ------------------------------------------------------------------ single savings */

/* Samples whose base is there. */
struct batch {
    const size_t *samples;
    size_t n;
};

/* A plan on a batch. BITNET_E_UNSUPPORTED: the model cannot have such savings. */
static bitnet_status try_plan(struct bn_calibration_run *r, const struct bn_savings *s,
                              struct batch b, struct bn_harm *harm, bitnet_error *err)
{
    struct bitnet_engine *e = NULL;
    if (!s) return bn_fail_nomem(err, sizeof *s, "a plan");
    bitnet_status status = bn_lab_engine(&r->lab, s, &e, err);
    if (status == BITNET_OK) status = bn_lab_try(&r->lab, e, b.samples, b.n, harm, err);
    bn_engine_close(e);
    return status;
}

static bitnet_status probe_level(struct bn_calibration_run *r, const struct bn_knob *k,
                                 uint32_t level, struct batch b, struct bn_harm *harm,
                                 bitnet_error *err)
{
    struct bn_savings *s = bn_savings_new(r->m);
    if (s) bn_knob_apply(s, k, level);
    bitnet_status status = try_plan(r, s, b, harm, err);
    free(s);
    return status;
}

/* Keys in f32 are as good as in f16: what they change is the floor. */
static bitnet_status probe_floor(struct bn_calibration_run *r, uint32_t layer, struct batch b,
                                 struct bn_harm *harm, bitnet_error *err)
{
    if (r->m->activations != BN_AQ_INT8 || bn_config_is_delta(&r->m->config, layer))
        return BITNET_OK;
    struct bn_savings *s = bn_savings_new(r->m);
    if (s) s->layers[layer].keys = BITNET_KV_F32;
    bitnet_status status = try_plan(r, s, b, harm, err);
    free(s);
    return status;
}

static double mean_of(const struct bn_harm *h)
{
    double sum = 0;
    for (size_t i = 0; i < h->n; i++) sum += h->kl[i];
    return h->n ? sum / (double)h->n : 0;
}

static bitnet_status probe_knob(struct bn_calibration_run *r, struct bn_knob *k, struct batch b,
                                struct bn_harm *harms, bitnet_error *err)
{
    double limit = largest_budget(r) * probe_limit;
    for (uint32_t level = 1; level <= k->n_levels; level++) {
        bitnet_status s = probe_level(r, k, level, b, &harms[level - 1], err);
        if (s == BITNET_E_UNSUPPORTED) k->n_levels = 0;
        else if (s != BITNET_OK) return s;
        else if (mean_of(&harms[level - 1]) > limit) {
            /* higher ones harm more: they are skipped */
            r->lab.done += (k->n_levels - level) * b.n * r->lab.sample;
            k->n_levels = level;
        }
    }
    return BITNET_OK;
}

/* Harms, which do not fall from one level to the next whatever chance says. */
static void take_harms(struct bn_knob *k, struct bn_harm *harms)
{
    double last = 0;
    for (uint32_t i = 0; i < k->n_levels; i++) {
        bitnet_divergence d = {.size = sizeof d};
        bn_harm_figures(&harms[i], &d);
        k->levels[i].kl = last = fmax(last, d.kl_mean);
        k->levels[i].kl_error = d.kl_mean_error;
        k->levels[i].measured = true;
    }
}

/* harms: [n_knobs][BN_LEVELS_MAX], then a floor for each layer. */
static bitnet_status probe_batch(struct bn_calibration_run *r, struct batch b,
                                 struct bn_harm *harms, bitnet_error *err)
{
    BN_TRY(bn_lab_base(&r->lab, b.samples, b.n, err));
    for (size_t i = 0; i < r->knobs.n; i++)
        BN_TRY(probe_knob(r, &r->knobs.items[i], b, harms + i * BN_LEVELS_MAX, err));
    for (uint32_t i = 0; i < r->m->config.n_layer; i++)
        BN_TRY(probe_floor(r, i, b, harms + r->knobs.n * BN_LEVELS_MAX + i, err));
    return BITNET_OK;
}

static bitnet_status probe_all(struct bn_calibration_run *r, bitnet_error *err)
{
    size_t n_levels = r->knobs.n * BN_LEVELS_MAX, n_harms = n_levels + r->m->config.n_layer;
    struct bn_harm *harms = bn_calloc(n_harms, sizeof *harms);
    bitnet_status s = harms ? BITNET_OK : bn_fail_nomem(err, n_harms * sizeof *harms, "harms");
    for (size_t i = 0; harms && i < n_harms; i++) harms[i].least = BN_HARM_ALL;
    for (size_t at = 0; s == BITNET_OK && at < r->n_probe; at += r->lab.room) {
        struct batch b = {r->probe + at, bn_min_size(r->lab.room, r->n_probe - at)};
        s = probe_batch(r, b, harms, err);
    }
    for (size_t i = 0; s == BITNET_OK && i < r->knobs.n; i++)
        take_harms(&r->knobs.items[i], harms + i * BN_LEVELS_MAX);
    for (uint32_t i = 0; s == BITNET_OK && i < r->m->config.n_layer; i++)
        r->knobs.floors[i] = mean_of(&harms[n_levels + i]);
    for (size_t i = 0; harms && i < n_harms; i++) bn_harm_free(&harms[i]);
    free(harms);
    return s;
}

/* ------------------------------------------------------------------ the choice as a whole */

static bitnet_status measure(struct bn_calibration_run *r, const size_t *samples, size_t n,
                             bitnet_divergence *out, struct bn_json **density, bitnet_error *err)
{
    struct bitnet_engine *e = NULL;
    struct bn_savings *s = bn_knobs_plan(&r->knobs, r->m);
    if (!s) return bn_fail_nomem(err, sizeof *s, "a plan");
    bitnet_status status = bn_lab_engine(&r->lab, s, &e, err);
    if (status == BITNET_OK && density) status = bn_engine_watch(e, err);
    if (status == BITNET_OK) status = bn_lab_measure(&r->lab, e, samples, n, out, err);
    if (status == BITNET_OK && density) *density = bn_calibration_density(bn_engine_census(e), s);
    bn_engine_close(e);
    free(s);
    return status;
}

static void keep_choice(uint32_t *kept, const struct bn_knobs *k)
{
    for (size_t i = 0; i < k->n; i++) kept[i] = k->items[i].chosen;
}

/* The choice of `aim`, on a batch. */
static bitnet_status try_choice(struct bn_calibration_run *r, double aim, struct batch b,
                                double *kl, bitnet_error *err)
{
    struct bn_harm harm = {.least = BN_HARM_ALL};
    bn_knobs_choose(&r->knobs, aim);
    struct bn_savings *s = bn_knobs_plan(&r->knobs, r->m);
    bitnet_status status = try_plan(r, s, b, &harm, err);
    *kl = mean_of(&harm);
    bn_harm_free(&harm);
    free(s);
    return status;
}

/* What single harms come to is off by a factor, as they add up to more or less than their sum: what it was
 * in one try corrects the next. Some of the samples do for that. *aim: the sum to be chosen. */
static bitnet_status find_aim(struct bn_calibration_run *r, double budget, double *aim,
                              bitnet_error *err)
{
    struct batch b = {r->samples, bn_min_size(r->lab.room, r->n_chosen)};
    BN_TRY(bn_lab_base(&r->lab, b.samples, b.n, err));
    *aim = budget;
    for (int i = 0; i < TRIES; i++) {
        double kl = 0;
        BN_TRY(try_choice(r, *aim, b, &kl, err));
        double sum = bn_knobs_kl(&r->knobs);
        if (!(kl > 0) || (kl <= budget && kl >= near_enough * budget)) break;
        *aim = sum * fmin(4, budget / kl) * (1 + near_enough) / 2;
    }
    return BITNET_OK;
}

/* A choice within the budget on all samples of this half. */
static bitnet_status settle(struct bn_calibration_run *r, double budget, bitnet_error *err)
{
    double aim = 0;
    if (budget > 0) BN_TRY(find_aim(r, budget, &aim, err));
    for (;;) {
        bn_knobs_choose(&r->knobs, aim);
        BN_TRY(measure(r, r->samples, r->n_chosen, &r->promised, NULL, err));
        if (r->promised.kl_mean <= budget) return BITNET_OK;
        aim = bn_knobs_kl(&r->knobs) * budget / r->promised.kl_mean * near_enough;
    }
}

/* What is chosen now, on the samples that were held out. */
static bitnet_status judge(struct bn_calibration_run *r, struct bn_trial *t, bitnet_error *err)
{
    struct bn_savings *s = bn_knobs_plan(&r->knobs, r->m);
    t->estimate = bn_knobs_kl(&r->knobs);
    t->gain = bn_knobs_gain(&r->knobs);
    t->plan = s ? bn_savings_json(s, r->m) : NULL;
    free(s);
    if (!t->plan) return bn_fail_nomem(err, 0, "a plan");
    return measure(r, r->samples + r->n_chosen, r->n_heldout, &t->heldout, &t->density, err);
}

static bitnet_status choose(struct bn_calibration_run *r, bitnet_error *err)
{
    uint32_t *best = bn_calloc(r->knobs.n + 1, sizeof *best);
    if (!best) return bn_fail_nomem(err, r->knobs.n * sizeof *best, "a choice");
    bitnet_status s = BITNET_OK;
    r->plan.budget = r->o->kl_budget;
    if (r->o->entropy_bits > 0) {
        bn_knobs_choose_by_entropy(&r->knobs, bn_engine_census(r->watched), r->o->entropy_bits);
        s = measure(r, r->samples, r->n_chosen, &r->promised, NULL, err);
    } else s = settle(r, r->o->kl_budget, err);
    if (s == BITNET_OK) keep_choice(best, &r->knobs);
    if (s == BITNET_OK) s = judge(r, &r->plan, err);
    /* the curve, by the same correction */
    double off = r->plan.estimate > 0 ? r->promised.kl_mean / r->plan.estimate : 1;
    for (size_t i = 0; s == BITNET_OK && i < r->o->n_curve; i++) {
        struct bn_trial *t = &r->curve[r->n_curve++];
        t->budget = r->o->curve[i];
        bn_knobs_choose(&r->knobs, t->budget / (off > 0 ? off : 1));
        s = judge(r, t, err);
    }
    for (uint32_t i = 1; s == BITNET_OK && r->o->n_curve && bn_knobs_choose_uniform(&r->knobs, i);
         i++) {
        struct bn_trial *t = &r->uniform[r->n_uniform++];
        t->step = i;
        s = judge(r, t, err);
    }
    for (size_t i = 0; i < r->knobs.n; i++) r->knobs.items[i].chosen = best[i];
    free(best);
    return s;
}

/* ------------------------------------------------------------------ all of it */

static bitnet_status check(const bitnet_calibrate_options *o, const struct bn_model *m, size_t n,
                           size_t sample, bitnet_error *err)
{
    if (!(o->kl_budget >= 0) || o->kl_budget > 100)
        return bn_fail(err, BITNET_E_ARG, "a budget of %g nats is not between 0 and 100",
                       o->kl_budget);
    if (!(o->entropy_bits >= 0) || o->entropy_bits > 8)
        return bn_fail(err, BITNET_E_ARG, "an entropy of %g bits is not between 0 and 8",
                       o->entropy_bits);
    if (sample < SAMPLE_MIN || sample > m->config.n_ctx)
        return bn_fail(err, BITNET_E_ARG,
                       "samples of %zu tokens are not between %d and the model's context, %u",
                       sample, SAMPLE_MIN, m->config.n_ctx);
    if (n < SAMPLES_MIN)
        return bn_fail(err, BITNET_E_ARG,
                       "the text has %zu samples of %zu tokens, and at least %d are needed", n,
                       sample, SAMPLES_MIN);
    if (o->n_curve > CURVE_MAX)
        return bn_fail(err, BITNET_E_LIMIT, "%zu budgets; at most %d are possible", o->n_curve,
                       CURVE_MAX);
    for (size_t i = 0; i < o->n_curve; i++)
        if (!(o->curve[i] > 0) || o->curve[i] > 100)
            return bn_fail(err, BITNET_E_ARG, "a budget of %g nats is not between 0 and 100",
                           o->curve[i]);
    return bn_knobs_check_list(o->savings, err);
}

static bitnet_status run(struct bn_calibration_run *r, bitnet_error *err)
{
    BN_TRY(deal_samples(r, err));
    BN_TRY(bn_lab_open(&r->lab, err));
    BN_TRY(take_census(r, err));
    reckon(r);
    if (largest_budget(r) > 0) BN_TRY(probe_all(r, err));
    r->curve = bn_calloc(r->o->n_curve + 1, sizeof *r->curve);
    r->uniform = bn_calloc(BN_LEVELS_MAX + 1, sizeof *r->uniform);
    if (!r->curve || !r->uniform) return bn_fail_nomem(err, sizeof *r->curve, "a curve");
    return choose(r, err);
}

static void free_trial(struct bn_trial *t)
{
    bn_json_free(t->plan);
    bn_json_free(t->density);
}

static void close_run(struct bn_calibration_run *r)
{
    free_trial(&r->plan);
    for (size_t i = 0; r->curve && i < r->n_curve; i++) free_trial(&r->curve[i]);
    for (size_t i = 0; r->uniform && i < r->n_uniform; i++) free_trial(&r->uniform[i]);
    free(r->curve);
    free(r->uniform);
    bn_engine_close(r->watched);
    bn_knobs_close(&r->knobs);
    bn_lab_close(&r->lab);
    free(r->samples);
    free(r->probe);
}

bitnet_status bn_calibrate(struct bitnet_calibration **out, const struct bn_model *m,
                           const bitnet_calibrate_options *o, bitnet_error *err)
{
    size_t sample =
        o->sample_tokens ? o->sample_tokens : bn_min_size(SAMPLE_DEFAULT, m->config.n_ctx);
    uint64_t memory = o->memory_bytes ? o->memory_bytes : MEMORY_DEFAULT;
    struct bn_calibration_run r = {.m = m, .o = o, .start_ns = bn_now_ns()};
    r.lab = (struct bn_lab){.m = m,
                            .tokens = o->tokens,
                            .n_samples = o->n_tokens / sample,
                            .sample = sample,
                            .threads = o->threads,
                            .memory_bytes = memory < MEMORY_MIN ? MEMORY_MIN : memory,
                            .progress = o->progress,
                            .progress_user = o->progress_user};
    *out = NULL;
    BN_TRY(check(o, m, r.lab.n_samples, sample, err));
    BN_TRY(bn_forge_check_tokens(o->tokens, o->n_tokens, m->config.n_vocab, err));
    bitnet_status s = run(&r, err);
    struct bitnet_calibration *c = s == BITNET_OK ? bn_calloc(1, sizeof *c) : NULL;
    if (c) {
        c->plan = bn_calibration_plan_text(&r);
        c->report = bn_calibration_report_text(&r);
    }
    if (s == BITNET_OK && (!c || !c->plan || !c->report)) s = bn_fail_nomem(err, 0, "a report");
    close_run(&r);
    if (s == BITNET_OK) *out = c;
    else bn_calibration_close(c);
    return s;
}

void bn_calibration_close(struct bitnet_calibration *c)
{
    if (!c) return;
    free(c->plan);
    free(c->report);
    free(c);
}
