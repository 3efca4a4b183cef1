/* SPDX-License-Identifier: Apache-2.0
 *
 * What a calibration tells, as JSON. */
#include "forge/calibrate/calibrate_impl.h"

#include "base/clock.h"

enum { PATH_POINTS = 24 };
static const char *const input_names[BN_N_INPUTS] = {"mixer", "mixer_out", "gate_up", "down"};

static struct bn_json *divergence_json(const bitnet_divergence *d)
{
    return bn_json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "positions",
                        (int64_t)d->n_positions, "kl_mean", d->kl_mean, "kl_stderr",
                        d->kl_mean_error, "kl_median", d->kl_median, "kl_p99", d->kl_p99, "kl_max",
                        d->kl_max, "top1_agreement", d->same_top, "top1_stderr", d->same_top_error,
                        "perplexity_base", d->ppl_base, "perplexity_ratio", d->ppl_ratio,
                        "perplexity_ratio_stderr", d->ppl_ratio_error);
}

/* ------------------------------------------------------------------ layers */

static double open_above(const struct bn_census *c, uint32_t layer, float gate_min)
{
    struct bn_census_gates g;
    bn_census_get_gates(&g, c, layer);
    double open = 0;
    for (uint32_t i = 0; i < BN_CENSUS_BINS; i++)
        if (bn_census_gate_edge(i) > gate_min) open += (double)g.bins[i];
    return g.n ? open / (double)g.n : 0;
}

struct bn_json *bn_calibration_density(const struct bn_census *c, const struct bn_savings *s)
{
    struct bn_json *list = bn_json_array();
    for (uint32_t i = 0; i < s->n_layer; i++) {
        struct bn_census_counts n;
        bn_census_get(&n, c, i, BN_IN_DOWN);
        bn_json_append(list, bn_json_pack("{s:f, s:f}", "gates_open",
                                          open_above(c, i, s->layers[i].gate_min), "inputs_nonzero",
                                          1 - bn_census_share(&n, 0)));
    }
    return list;
}

static struct bn_json *input_json(const struct bn_census *c, uint32_t layer,
                                  enum bn_savings_input which)
{
    struct bn_census_counts n;
    bn_census_get(&n, c, layer, which);
    double rows = n.rows ? (double)n.rows : 1;
    return bn_json_pack("{s:f, s:f, s:f, s:f}", "entropy_bits", bn_census_entropy(&n), "zero_share",
                        bn_census_share(&n, 0), "range_mean", n.largest_sum / rows, "range_max",
                        (double)n.largest);
}

static struct bn_json *knob_json(const struct bn_knob *k)
{
    char text[32];
    struct bn_json *levels = bn_json_array(), *o = bn_json_object();
    for (uint32_t i = 1; i <= k->n_levels; i++) {
        const struct bn_level *v = &k->levels[i - 1];
        bn_json_append(levels, bn_json_pack("{s:s, s:f, s:f, s:f}", "level",
                                            bn_level_text(text, sizeof text, k, i), "kl", v->kl,
                                            "kl_stderr", v->kl_error, "bytes_saved", v->gain));
    }
    bn_json_set(o, "saving", bn_json_string(bn_knob_kind_name(k->kind)));
    if (k->kind >= BN_KNOB_MIXER && k->kind <= BN_KNOB_DOWN)
        bn_json_set(o, "input", bn_json_string(input_names[k->kind - BN_KNOB_MIXER]));
    if (k->chosen)
        bn_json_set(o, "chosen", bn_json_string(bn_level_text(text, sizeof text, k, k->chosen)));
    bn_json_set(o, "levels", levels);
    return o;
}

static struct bn_json *layer_json(const struct bn_calibration_run *r, uint32_t layer)
{
    const struct bn_census *c = bn_engine_census(r->watched);
    struct bn_json *inputs = bn_json_object(), *savings = bn_json_array();
    for (int i = 0; i < BN_N_INPUTS; i++)
        bn_json_set(inputs, input_names[i], input_json(c, layer, (enum bn_savings_input)i));
    for (size_t i = 0; i < r->knobs.n; i++) {
        const struct bn_knob *k = &r->knobs.items[i];
        if (k->layer == layer && k->kind != BN_KNOB_HEAD && k->n_levels)
            bn_json_append(savings, knob_json(k));
    }
    return bn_json_pack("{s:i, s:f, s:o, s:f, s:o}", "layer", (int)layer, "kl_floor",
                        r->knobs.floors[layer], "inputs", inputs, "gates_open",
                        open_above(c, layer, 0), "savings", savings);
}

static struct bn_json *layers_json(const struct bn_calibration_run *r)
{
    struct bn_json *list = bn_json_array();
    for (uint32_t i = 0; i < r->m->config.n_layer; i++) bn_json_append(list, layer_json(r, i));
    return list;
}

/* ------------------------------------------------------------------ choices */

/* What other budgets would buy, as far as single harms tell. */
static struct bn_json *path_json(struct bn_calibration_run *r)
{
    struct bn_json *list = bn_json_array();
    double budget = 1e-4;
    for (int i = 0; i < PATH_POINTS; i++, budget *= 1.4142135623730951) {
        bn_knobs_choose(&r->knobs, budget);
        bn_json_append(list, bn_json_pack("{s:f, s:f}", "kl", bn_knobs_kl(&r->knobs), "bytes",
                                          r->knobs.base_bytes - bn_knobs_gain(&r->knobs)));
    }
    return list;
}

static struct bn_json *trial_json(const struct bn_calibration_run *r, const struct bn_trial *t)
{
    struct bn_json *o = bn_json_object();
    if (t->step) bn_json_set(o, "step", bn_json_int(t->step));
    else bn_json_set(o, "kl_budget", bn_json_real(t->budget));
    bn_json_set(o, "kl_sum", bn_json_real(t->estimate));
    bn_json_set(o, "bytes", bn_json_real(r->knobs.base_bytes - t->gain));
    bn_json_set(o, "heldout", divergence_json(&t->heldout));
    bn_json_set(o, "density", bn_json_ref(t->density));
    bn_json_set(o, "plan", bn_json_ref(t->plan));
    return o;
}

static struct bn_json *trials_json(const struct bn_calibration_run *r, const struct bn_trial *t,
                                   size_t n)
{
    struct bn_json *list = bn_json_array();
    for (size_t i = 0; i < n; i++) bn_json_append(list, trial_json(r, &t[i]));
    return list;
}

static void put_rule(struct bn_json *o, const struct bn_calibration_run *r)
{
    if (r->o->entropy_bits > 0) bn_json_set(o, "entropy_bits", bn_json_real(r->o->entropy_bits));
    else bn_json_set(o, "kl_budget", bn_json_real(r->o->kl_budget));
}

char *bn_calibration_plan_text(const struct bn_calibration_run *r)
{
    struct bn_json *plan = bn_json_copy(r->plan.plan), *notes = bn_json_object();
    put_rule(notes, r);
    bn_json_set(notes, "samples", bn_json_int((int64_t)r->lab.n_samples));
    bn_json_set(notes, "sample_tokens", bn_json_int((int64_t)r->lab.sample));
    bn_json_set(notes, "promised", divergence_json(&r->promised));
    bn_json_set(notes, "heldout", divergence_json(&r->plan.heldout));
    bn_json_set(plan, "notes", notes);
    char *text = bn_json_dump(plan, BN_JSON_INDENT(1));
    bn_json_free(plan);
    return text;
}

char *bn_calibration_report_text(struct bn_calibration_run *r)
{
    struct bn_json *o = bn_json_object(), *head = NULL;
    for (size_t i = 0; i < r->knobs.n; i++)
        if (r->knobs.items[i].kind == BN_KNOB_HEAD && r->knobs.items[i].n_levels)
            head = knob_json(&r->knobs.items[i]);
    bn_json_set(o, "format", bn_json_string("bitnet-calibration-1"));
    put_rule(o, r);
    bn_json_set(o, "samples", bn_json_int((int64_t)r->lab.n_samples));
    bn_json_set(o, "sample_tokens", bn_json_int((int64_t)r->lab.sample));
    bn_json_set(o, "memory_bytes", bn_json_int((int64_t)bn_lab_bytes(&r->lab)));
    bn_json_set(o, "decode_ns", bn_json_real(r->decode_ns));
    bn_json_set(o, "bytes_before", bn_json_real(r->knobs.base_bytes));
    bn_json_set(o, "bytes", bn_json_real(r->knobs.base_bytes - r->plan.gain));
    bn_json_set(o, "kl_sum", bn_json_real(r->plan.estimate));
    bn_json_set(o, "promised", divergence_json(&r->promised));
    bn_json_set(o, "heldout", divergence_json(&r->plan.heldout));
    bn_json_set(o, "layers", layers_json(r));
    if (head) bn_json_set(o, "head", head);
    bn_json_set(o, "density", bn_json_ref(r->plan.density));
    bn_json_set(o, "path", path_json(r));
    bn_json_set(o, "curve", trials_json(r, r->curve, r->n_curve));
    bn_json_set(o, "uniform", trials_json(r, r->uniform, r->n_uniform));
    bn_json_set(o, "seconds", bn_json_real((double)(bn_now_ns() - r->start_ns) / 1e9));
    char *text = bn_json_dump(o, BN_JSON_INDENT(1));
    bn_json_free(o);
    return text;
}
