/* SPDX-License-Identifier: Apache-2.0
 *
 * autotune/report.c: what `bench --autotune` measured and chose, as a table, as JSON, and as the entry of
 * the tuning file.
 */
#include "app/term.h"
#include "app/machine_report.h"
#include "cli/autotune/autotune.h"
#include <math.h>
#include <stdlib.h>

static struct stats_summary summary(const struct autotune_candidate *c)
{
    double scratch[AUTOTUNE_ROUNDS_MAX];
    return stats_summarize(c->values, c->n, scratch);
}

/* How far the preferred candidate is behind the best, as a share; of two, by the pairs of rounds. */
static double distance(const struct autotune_stage *g)
{
    const struct autotune_search *s = g->search;
    const struct autotune_candidate *choice = &s->candidates[s->preferred];
    double ratios[AUTOTUNE_ROUNDS_MAX], scratch[AUTOTUNE_ROUNDS_MAX];
    if (!g->is_rematch) {
        double best = autotune_search_median(&s->candidates[s->best]);
        return best > 0 ? 1 - autotune_search_median(choice) / best : 0;
    }
    const struct autotune_candidate *other = &s->candidates[1 - s->preferred];
    size_t n = choice->n < other->n ? choice->n : other->n;
    for (size_t i = 0; i < n; i++) ratios[i] = choice->values[i] / other->values[i];
    return 1 - stats_summarize(ratios, n, scratch).median;
}

/* ------------------------------------------------------------------ JSON */

static struct bn_json *point_json(const struct autotune_point *p)
{
    return bn_json_pack("{s:I, s:s, s:b, s:o, s:I}", "threads", (int64_t)p->threads, "layout",
                        p->layout, "pin", p->pin, "prefetch",
                        p->prefetch_bytes ? bn_json_int(p->prefetch_bytes) : bn_json_null(),
                        "batch", (int64_t)p->batch_tokens);
}

static struct bn_json *candidate_json(const struct autotune_stage *g, size_t i)
{
    const struct autotune_candidate *c = &g->search->candidates[i];
    struct stats_summary s = summary(c);
    struct bn_json *o = point_json(&g->points[i]), *repeats = bn_json_array();
    for (size_t k = 0; k < c->n; k++) bn_json_append(repeats, bn_json_real(c->values[k]));
    bn_json_set(o, "median", bn_json_real(s.median));
    bn_json_set(o, "spread", bn_json_real(s.spread));
    bn_json_set(o, "left", bn_json_bool(!c->dropped));
    bn_json_set(o, "repeats", repeats);
    return o;
}

static struct bn_json *stage_json(const struct autotune_stage *g)
{
    const struct autotune_search *s = g->search;
    struct bn_json *all = bn_json_array();
    for (size_t i = 0; i < s->n; i++) bn_json_append(all, candidate_json(g, i));
    struct bn_json *o = bn_json_pack("{s:s, s:s, s:s, s:o, s:I, s:I, s:I}", "name", g->name,
                                     "metric", autotune_metric_name(g->metric), "unit", "tok/s",
                                     "candidates", all, "preferred", (int64_t)s->preferred, "best",
                                     (int64_t)s->best, "choice", (int64_t)s->choice);
    if (g->is_sweep || g->is_rematch) bn_json_set(o, "distance", bn_json_real(distance(g)));
    return o;
}

/* {"decode": {"default": 40.1, "tuned": 42.3}}: from the check, if there was one; else the default
 * stayed, and the first stage knows it. */
static struct bn_json *measured_json(const struct autotune *t)
{
    struct bn_json *o = bn_json_object();
    for (size_t i = 0; i < t->n_stages; i++) {
        const struct autotune_stage *g = &t->stages[i];
        const struct autotune_search *s = g->search;
        bool check = strcmp(g->name, "check") == 0;
        if (g->is_sweep || (i && !check) || s->rounds == 0) continue;
        struct bn_json *of =
            bn_json_pack("{s:f}", "default", autotune_search_median(&s->candidates[s->preferred]));
        if (check)
            bn_json_set(of, "tuned",
                        bn_json_real(autotune_search_median(&s->candidates[s->n - 1])));
        bn_json_set(o, autotune_metric_name(g->metric), of);
    }
    return o;
}

struct bn_json *autotune_entry(const struct autotune *t)
{
    struct autotune_values use;
    autotune_result(t, &use);
    return bn_json_pack("{s:s, s:s, s:s, s:o, s:o}", "date", use.date, "version", bitnet_version(),
                        "for", autotune_metric_name(t->settings->metric), "use",
                        autotune_file_use_json(&use), "measured", measured_json(t));
}

struct bn_json *autotune_report(const struct autotune *t)
{
    struct bn_json *o = bn_json_pack(
        "{s:s, s:s, s:i, s:f, s:b, s:o, s:o}", "format", AUTOTUNE_FORMAT, "commit",
        program_commit(), "budget_s", (int)t->settings->budget_s, "used_s", t->used_s, "checked",
        t->checked, "default", point_json(&t->start), "choice", point_json(&t->choice));
    struct bn_json *stages = bn_json_array(), *entry = autotune_entry(t);
    for (size_t i = 0; i < t->n_stages; i++) bn_json_append(stages, stage_json(&t->stages[i]));
    bn_json_update(o, entry, true);
    bn_json_free(entry);
    bn_json_set(o, "other_programs_share",
                t->others < 0 ? bn_json_null() : bn_json_real(t->others));
    bn_json_set(o, "stages", stages);
    return o;
}

/* ------------------------------------------------------------------ the table */

static void print_point(const struct autotune_point *p)
{
    char text[96];
    struct autotune_values all = {.threads = p->threads,
                                  .prefetch_bytes = p->prefetch_bytes,
                                  .batch_tokens = p->batch_tokens};
    snprintf(all.layout, sizeof all.layout, "%s", p->layout);
    if (p->pin) snprintf(all.pin, sizeof all.pin, "on");
    autotune_file_describe(text, sizeof text, &all);
    printf("  %-52s", text);
}

static void print_candidate(const struct autotune *t, const struct autotune_stage *g, size_t i)
{
    const struct autotune_search *s = g->search;
    const struct autotune_candidate *c = &s->candidates[i];
    struct stats_summary of = summary(c);
    print_point(&g->points[i]);
    if (c->n == 0) printf(" %9s %9s %7s", "-", "-", "0");
    else printf(" %9.1f %7.1f %% %7zu", of.median, of.spread * 100, c->n);
    if (autotune_point_same(&g->points[i], &t->start)) printf("  default");
    if (i == (g->is_sweep ? s->preferred : s->choice)) printf("  chosen");
    if (g->is_sweep && i == s->best) printf("  best");
    if (c->dropped) printf("  slower");
    printf("\n");
}

static void print_stage(const struct autotune *t, const struct autotune_stage *g)
{
    char title[64];
    snprintf(title, sizeof title, "%s: %s", g->name, autotune_metric_name(g->metric));
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

void autotune_print(const struct autotune *t)
{
    for (size_t i = 0; i < t->n_stages; i++) print_stage(t, &t->stages[i]);
    bool same = autotune_point_same(&t->choice, &t->start);
    printf("choice for %s, after %.0f s:\n", autotune_metric_name(t->settings->metric), t->used_s);
    print_point(&t->choice);
    printf("%s\n", same ? "  the default" : "");
}
