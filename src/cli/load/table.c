/* SPDX-License-Identifier: Apache-2.0
 *
 * table.c: a report as a table for people, with the warnings without which its numbers would
 * mislead.
 */
#include "app/report.h"
#include "cli/load/load.h"
#include "app/term.h"

/* Above this share of a core, what is measured may be this program. */
static const double busy_share = 0.7;
/* Templates of chats are found in prefix caches; more than this is not due to them. */
static const double known_share = 0.5;

static bool is_closed(const struct bn_json *report)
{
    return strcmp(report_text(report, "loop"), "closed") == 0;
}

static void print_head(const struct bn_json *report)
{
    const struct bn_json *s = bn_json_get(report, "settings");
    size_t n_runs = bn_json_size(bn_json_get(report, "runs"));
    term_print_clean(stdout, report_text(report, "url"));
    printf(", %s, model ", report_text(s, "endpoint"));
    term_print_clean(stdout, report_text(s, "model"));
    printf(", seed %.0f\n", report_number(s, "seed"));
    if (is_closed(report)) {
        printf("closed loop: each client waits for its answer before it asks again; times count "
               "from sending\n");
    } else if (strcmp(report_text(report, "loop"), "rate") == 0) {
        printf("open loop: %.6g requests/s, %s; times count from when a request was due\n",
               report_number(s, "rps"), report_text(s, "arrival"));
    } else {
        printf("open loop: a trace of requests; times count from when a request was due\n");
    }
    if (n_runs > 1)
        printf("batch sizes are %s, not a setting of the server\n",
               is_closed(report) ? "numbers of clients" : "requests that may be open at a time");
}

static void print_outcomes(const struct bn_json *run)
{
    const char *name;
    struct bn_json *one;
    bn_json_each_member(bn_json_get(run, "outcomes"), name, one)
    {
        if (strcmp(name, "ok") == 0) continue;
        printf("  %-11s %.0f", name, report_number(one, "n"));
        if (*report_text(one, "first_reason")) {
            printf(": ");
            term_print_clean(stdout, report_text(one, "first_reason"));
        }
        printf("\n");
    }
}

static void print_counts(const struct bn_json *run)
{
    printf("requests      %.0f: %.0f ok, %.0f failed", report_number(run, "requests"),
           report_number(run, "ok"), report_number(run, "failed"));
    if (report_number(run, "unsent") > 0) printf(", %.0f never sent", report_number(run, "unsent"));
    if (report_number(run, "unfinished") > 0)
        printf(", %.0f unfinished", report_number(run, "unfinished"));
    if (report_number(run, "warmup") > 0)
        printf("; %.0f before that as warm-up", report_number(run, "warmup"));
    printf("\n");
    print_outcomes(run);
}

static void print_rates(const struct bn_json *run)
{
    const struct bn_json *t = bn_json_get(run, "tokens");
    printf("rate          %.4g requests/s", report_number(run, "rps"));
    if (bn_json_is_number(bn_json_get(run, "offered_rps")))
        printf(" of %.4g offered", report_number(run, "offered_rps"));
    printf(", %.1f s; prompts %.1f tok/s, output %.1f tok/s\n", report_number(run, "seconds"),
           report_number(run, "prompt_tok_s"), report_number(run, "output_tok_s"));
    printf("tokens        prompt %.1f", report_number(t, "prompt_mean"));
    if (report_number(t, "asked_prompt_mean") > 0)
        printf(" (asked %.1f)", report_number(t, "asked_prompt_mean"));
    if (report_number(t, "cached_mean") > 0)
        printf(", %.1f of them cached", report_number(t, "cached_mean"));
    printf(", output %.1f (asked %.1f)\n", report_number(t, "output_mean"),
           report_number(t, "asked_output_mean"));
}

static void print_cell(const struct bn_json *o, const char *key)
{
    const struct bn_json *v = bn_json_get(o, key);
    if (bn_json_is_number(v)) printf(" %10.2f", bn_json_number(v));
    else printf(" %10s", "-");
}

static void percentile_key(char out[24], const struct bn_json *report, size_t i)
{
    snprintf(out, 24, "p%.6g", bn_json_number(bn_json_at(bn_json_get(report, "percentiles"), i)));
}

static void print_times(const struct bn_json *report, const struct bn_json *run)
{
    static const char *const names[] = {"ttft", "itl", "tpot", "e2e"};
    size_t n = bn_json_size(bn_json_get(report, "percentiles"));
    char key[24];
    printf("%s%-8s %10s %10s", term_style(stdout, TERM_BOLD), "ms", "mean", "sd");
    for (size_t i = 0; i < n; i++) {
        percentile_key(key, report, i);
        printf(" %10s", key);
    }
    printf(" %10s%s\n", "max", term_style(stdout, TERM_PLAIN));
    for (size_t k = 0; k < BN_ARRAY_LEN(names); k++) {
        snprintf(key, sizeof key, "%s_ms", names[k]);
        const struct bn_json *o = bn_json_get(run, key);
        printf("%-8s", names[k]);
        print_cell(o, "mean");
        print_cell(o, "sd");
        for (size_t i = 0; i < n; i++) {
            percentile_key(key, report, i);
            print_cell(o, key);
        }
        print_cell(o, "max");
        printf("\n");
    }
}

static void print_goodput(const struct bn_json *run)
{
    const struct bn_json *g = bn_json_get(run, "goodput");
    const char *name;
    struct bn_json *ms;
    if (bn_json_size(bn_json_get(g, "goals_ms")) == 0) return;
    printf("goodput       %.1f %%, %.4g requests/s with", report_number(g, "share") * 100,
           report_number(g, "rps"));
    bn_json_each_member(bn_json_get(g, "goals_ms"), name, ms)
        printf(" %s <= %.6g ms", name, bn_json_number(ms));
    printf("\n");
}

static void print_server(const struct bn_json *run)
{
    const struct bn_json *s = bn_json_get(run, "server"), *m = bn_json_get(run, "server_memory");
    char first[TERM_SIZE_BYTES], last[TERM_SIZE_BYTES];
    const char *comma = "server says   means: ";
    for (int i = 0; i < LOAD_METRICS; i++) {
        if (!bn_json_get(s, load_metric_infos[i].key)) continue;
        printf("%s%s %.4g %s", comma, load_metric_infos[i].label,
               report_number(s, load_metric_infos[i].key), load_metric_infos[i].unit);
        comma = ", ";
    }
    if (bn_json_size(s)) printf("\n");
    if (!m) return;
    printf("server memory %s, then %s: %+.2f %%, slope %+.2f MB/h\n",
           term_size(first, (uint64_t)report_number(m, "first_bytes")),
           term_size(last, (uint64_t)report_number(m, "last_bytes")),
           report_number(m, "growth") * 100, report_number(m, "slope_bytes_per_hour") / 1e6);
}

static void print_warnings(const struct bn_json *settings, const struct bn_json *run)
{
    const struct bn_json *t = bn_json_get(run, "tokens");
    double cached = report_number(t, "cached_mean") / report_number(t, "prompt_mean");
    if (cached > known_share && report_number(settings, "shared_prefix") == 0 &&
        !*report_text(settings, "dataset"))
        printf("! the server knew %.0f %% of the prompts' tokens: another --seed makes new ones\n",
               cached * 100);
    if (report_number(run, "unsent") > 0)
        printf("! %.0f requests were due but never left (at most %.0f are open at a time): the "
               "times above are too good\n",
               report_number(run, "unsent"), report_number(run, "at_a_time"));
    if (report_number(run, "late") > 0)
        printf("! %.0f requests left more than %d ms after they were due; their times count from "
               "when they were due\n",
               report_number(run, "late"), LOAD_LATE_MS);
    if (report_number(run, "own_cpu_share") > busy_share)
        printf("! this program used %.0f %% of a core: some of the times may be its own\n",
               report_number(run, "own_cpu_share") * 100);
    if (report_number(t, "replies_without_usage") > 0)
        printf("! %.0f replies did not say how many tokens they have: chunks are counted instead\n",
               report_number(t, "replies_without_usage"));
    if (report_number(t, "replies_without_text") > 0)
        printf("! %.0f replies had no text: they have no ttft\n",
               report_number(t, "replies_without_text"));
    if (bn_json_is_true(bn_json_get(run, "record_limit_reached")))
        printf("! the run was ended after %d requests, the most it can hold\n", LOAD_MAX_RECORDS);
    if (bn_json_is_true(bn_json_get(run, "interrupted")))
        printf("! interrupted: this is what there was until then\n");
}

void load_print_table(const struct bn_json *report)
{
    const struct bn_json *runs = bn_json_get(report, "runs");
    print_head(report);
    for (size_t i = 0; i < bn_json_size(runs); i++) {
        const struct bn_json *run = bn_json_at(runs, i);
        printf("\n");
        printf("%-13s %.0f\n", is_closed(report) ? "clients" : "open at most",
               report_number(run, "at_a_time"));
        print_counts(run);
        print_rates(run);
        print_times(report, run);
        print_goodput(run);
        print_server(run);
        print_warnings(bn_json_get(report, "settings"), run);
    }
}
