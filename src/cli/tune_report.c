/* SPDX-License-Identifier: Apache-2.0
 *
 * tune_report.c: what `bench --autotune` measured and chose, as a table, as JSON, and as the entry of
 * the tuning file.
 */
#include "cli/term.h"
#include "cli/tune.h"
#include <math.h>
#include <stdlib.h>

static struct bench_summary summary(const struct tune_candidate *c)
{
    double scratch[TUNE_ROUNDS_MAX];
    return bench_summarize(c->values, c->n, scratch);
}

/* How far the preferred candidate is behind the best, as a share; of two, by the pairs of rounds. */
static double distance(const struct tune_stage *g)
{
    const struct tune_search *s = g->search;
    const struct tune_candidate *choice = &s->candidates[s->preferred];
    double ratios[TUNE_ROUNDS_MAX], scratch[TUNE_ROUNDS_MAX];
    if (!g->is_rematch) {
        double best = tune_search_median(&s->candidates[s->best]);
        return best > 0 ? 1 - tune_search_median(choice) / best : 0;
    }
    const struct tune_candidate *other = &s->candidates[1 - s->preferred];
    size_t n = choice->n < other->n ? choice->n : other->n;
    for (size_t i = 0; i < n; i++) ratios[i] = choice->values[i] / other->values[i];
    return 1 - bench_summarize(ratios, n, scratch).median;
}

/* ------------------------------------------------------------------ JSON */

static json_t *point_json(const struct tune_point *p)
{
    return json_pack("{s:I, s:s, s:b, s:o, s:I}", "threads", (json_int_t)p->threads, "layout",
                     p->layout, "pin", p->pin, "prefetch",
                     p->prefetch_bytes ? json_integer(p->prefetch_bytes) : json_null(), "batch",
                     (json_int_t)p->batch_tokens);
}

static json_t *candidate_json(const struct tune_stage *g, size_t i)
{
    const struct tune_candidate *c = &g->search->candidates[i];
    struct bench_summary s = summary(c);
    json_t *o = point_json(&g->points[i]), *repeats = json_array();
    for (size_t k = 0; k < c->n; k++) json_array_append_new(repeats, json_real(c->values[k]));
    json_object_set_new(o, "median", json_real(s.median));
    json_object_set_new(o, "spread", json_real(s.spread));
    json_object_set_new(o, "left", json_boolean(!c->dropped));
    json_object_set_new(o, "repeats", repeats);
    return o;
}

static json_t *stage_json(const struct tune_stage *g)
{
    const struct tune_search *s = g->search;
    json_t *all = json_array();
    for (size_t i = 0; i < s->n; i++) json_array_append_new(all, candidate_json(g, i));
    json_t *o = json_pack("{s:s, s:s, s:s, s:o, s:I, s:I, s:I}", "name", g->name, "metric",
                          tune_metric_name(g->metric), "unit", "tok/s", "candidates", all,
                          "preferred", (json_int_t)s->preferred, "best", (json_int_t)s->best,
                          "choice", (json_int_t)s->choice);
    if (g->is_sweep || g->is_rematch) json_object_set_new(o, "distance", json_real(distance(g)));
    return o;
}

/* {"decode": {"default": 40.1, "tuned": 42.3}}: from the check, if there was one; else the default
 * stayed, and the first stage knows it. */
static json_t *measured_json(const struct tune *t)
{
    json_t *o = json_object();
    for (size_t i = 0; i < t->n_stages; i++) {
        const struct tune_stage *g = &t->stages[i];
        const struct tune_search *s = g->search;
        bool check = strcmp(g->name, "check") == 0;
        if (g->is_sweep || (i && !check) || s->rounds == 0) continue;
        json_t *of =
            json_pack("{s:f}", "default", tune_search_median(&s->candidates[s->preferred]));
        if (check)
            json_object_set_new(of, "tuned",
                                json_real(tune_search_median(&s->candidates[s->n - 1])));
        json_object_set_new(o, tune_metric_name(g->metric), of);
    }
    return o;
}

json_t *tune_entry(const struct tune *t)
{
    struct tuning use;
    tune_result(t, &use);
    return json_pack("{s:s, s:s, s:s, s:o, s:o}", "date", use.date, "version", bitnet_version(),
                     "for", tune_metric_name(t->settings->metric), "use", tuning_use_json(&use),
                     "measured", measured_json(t));
}

json_t *tune_report(const struct tune *t)
{
    json_t *o = json_pack("{s:s, s:s, s:i, s:f, s:b, s:o, s:o}", "format", TUNE_FORMAT, "commit",
                          bench_commit(), "budget_s", (int)t->settings->budget_s, "used_s",
                          t->used_s, "checked", t->checked, "default", point_json(&t->start),
                          "choice", point_json(&t->choice));
    json_t *stages = json_array(), *entry = tune_entry(t);
    for (size_t i = 0; i < t->n_stages; i++)
        json_array_append_new(stages, stage_json(&t->stages[i]));
    json_object_update(o, entry);
    json_decref(entry);
    json_object_set_new(o, "other_programs_share",
                        t->others < 0 ? json_null() : json_real(t->others));
    json_object_set_new(o, "stages", stages);
    return o;
}

/* ------------------------------------------------------------------ the table */

static void print_point(const struct tune_point *p)
{
    char text[96];
    struct tuning all = {.threads = p->threads,
                         .prefetch_bytes = p->prefetch_bytes,
                         .batch_tokens = p->batch_tokens};
    snprintf(all.layout, sizeof all.layout, "%s", p->layout);
    if (p->pin) snprintf(all.pin, sizeof all.pin, "on");
    tuning_describe(text, sizeof text, &all);
    printf("  %-52s", text);
}

static void print_candidate(const struct tune *t, const struct tune_stage *g, size_t i)
{
    const struct tune_search *s = g->search;
    const struct tune_candidate *c = &s->candidates[i];
    struct bench_summary of = summary(c);
    print_point(&g->points[i]);
    if (c->n == 0) printf(" %9s %9s %7s", "-", "-", "0");
    else printf(" %9.1f %7.1f %% %7zu", of.median, of.spread * 100, c->n);
    if (tune_point_same(&g->points[i], &t->start)) printf("  default");
    if (i == (g->is_sweep ? s->preferred : s->choice)) printf("  chosen");
    if (g->is_sweep && i == s->best) printf("  best");
    if (c->dropped) printf("  slower");
    printf("\n");
}

static void print_stage(const struct tune *t, const struct tune_stage *g)
{
    char title[64];
    snprintf(title, sizeof title, "%s: %s", g->name, tune_metric_name(g->metric));
    printf("%s%-54s %9s %9s %7s%s\n", term_style(stdout, TERM_BOLD), title, "tok/s", "spread",
           "rounds", term_style(stdout, TERM_PLAIN));
    for (size_t i = 0; i < g->search->n; i++) print_candidate(t, g, i);
    if (g->is_sweep)
        printf("  the choice is %.1f %% behind the best of all %zu\n", distance(g) * 100,
               g->search->n);
    if (g->is_rematch)
        printf("  side by side, pair by pair: the choice is %.1f %% %s\n", fabs(distance(g)) * 100,
               distance(g) < 0 ? "ahead" : "behind");
    printf("\n");
}

void tune_print(const struct tune *t)
{
    for (size_t i = 0; i < t->n_stages; i++) print_stage(t, &t->stages[i]);
    bool same = tune_point_same(&t->choice, &t->start);
    printf("choice for %s, after %.0f s:\n", tune_metric_name(t->settings->metric), t->used_s);
    print_point(&t->choice);
    printf("%s\n", same ? "  the default" : "");
}
