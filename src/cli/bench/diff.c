/* SPDX-License-Identifier: Apache-2.0
 *
 * diff.c: `bitnet bench diff`: two reports, measurement by measurement. A regression is a
 * difference that is both larger than the threshold and significant (app/stats.h); single values
 * (load time, memory) are shown without a verdict, since nothing says how much they vary.
 */
#include "base/os/mem.h"
#include "app/report.h"
#include "cli/bench/bench.h"
#include "cli/core/command.h"
#include "app/term.h"
#include <math.h>
#include <stdlib.h>

struct diff {
    const struct bn_json *old_report, *new_report;
    double fail_over;
    struct bn_json *lines; /* owned: one object a comparison */
    size_t n_slower, n_disturbed;
    bool old_disturbed, new_disturbed; /* as the reports say of themselves */
    bool paired;                       /* repeat i of both was taken in turn (pairs.c) */
    double memory_ratio;               /* read bandwidth new / old; 1: unknown */
    double kernels_alpha;              /* level for each line of kernels, so many are they */
};

static double *values_of(const struct bn_json *array, size_t *n)
{
    *n = bn_json_size(array);
    double *x = bn_calloc(*n ? *n : 1, sizeof *x);
    for (size_t i = 0; x && i < *n; i++) x[i] = bn_json_number(bn_json_at(array, i));
    return x;
}

static const struct bn_json *find_measurement(const struct bn_json *report, const char *name)
{
    const struct bn_json *items = bn_json_get(report, "measurements");
    for (size_t i = 0; i < bn_json_size(items); i++)
        if (strcmp(report_text(bn_json_at(items, i), "name"), name) == 0)
            return bn_json_at(items, i);
    return NULL;
}

static bool is_disturbed(const struct bn_json *report)
{
    return bn_json_is_true(bn_json_get(bn_json_get(report, "machine"), "disturbed"));
}

/* A busy machine slows whole runs down, and so does one whose memory became slower: their own
 * repeats cannot show it. Pairs can. */
static bool proves_nothing(const struct diff *d, const struct stats_comparison *c)
{
    if (d->paired) return false;
    if (d->old_disturbed || d->new_disturbed) return true;
    return c->verdict == BENCH_SLOWER ? c->ratio >= (1 - d->fail_over) * d->memory_ratio
                                      : c->ratio <= (1 + d->fail_over) * d->memory_ratio;
}

struct line {
    const char *name, *unit;
    const struct bn_json *old_values, *new_values; /* arrays of repeats */
    bool higher_is_better;
    double alpha;
};

static struct stats_comparison compare_line(const struct diff *d, const struct line *l,
                                            const double *old_x, size_t n_old, const double *new_x,
                                            size_t n_new)
{
    struct stats_comparison c =
        d->paired && n_old == n_new
            ? stats_compare_pairs(old_x, new_x, n_old, l->higher_is_better, d->fail_over, l->alpha)
            : stats_compare(old_x, n_old, new_x, n_new, l->higher_is_better, d->fail_over,
                            l->alpha);
    if ((c.verdict == BENCH_SLOWER || c.verdict == BENCH_FASTER) && proves_nothing(d, &c))
        c.verdict = BENCH_DISTURBED;
    return c;
}

/* Adds one line; false: out of memory. */
static bool compare_values(struct diff *d, const struct line *l)
{
    size_t n_old, n_new;
    double *old_x = values_of(l->old_values, &n_old), *new_x = values_of(l->new_values, &n_new);
    bool ok = old_x && new_x;
    if (ok) {
        struct stats_comparison c = compare_line(d, l, old_x, n_old, new_x, n_new);
        ok = c.p_value >= 0 && !isnan(c.ratio);
        d->n_disturbed += c.verdict == BENCH_DISTURBED;
        d->n_slower += c.verdict == BENCH_SLOWER;
        bn_json_append(d->lines,
                       bn_json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:I, s:I, s:s}", "name",
                                    l->name, "unit", l->unit, "old", c.old_median, "new",
                                    c.new_median, "speed_ratio", c.ratio, "p_value", c.p_value,
                                    "old_repeats", (int64_t)n_old, "new_repeats", (int64_t)n_new,
                                    "verdict", stats_verdict_name(c.verdict)));
    }
    free(old_x);
    free(new_x);
    return ok;
}

static bool is_kernel(const struct bn_json *m)
{
    return strcmp(report_text(m, "mode"), "kernels") == 0;
}

/* Times that stand beside a measurement's rate, if both reports have them. */
static bool compare_times(struct diff *d, const struct bn_json *old_m, const struct bn_json *new_m,
                          const char *key, const char *what)
{
    const struct bn_json *old_x = bn_json_get(old_m, key), *new_x = bn_json_get(new_m, key);
    char label[128];
    if (!bn_json_size(old_x) || !bn_json_size(new_x)) return true;
    snprintf(label, sizeof label, "%.96s, %s", report_text(old_m, "name"), what);
    struct line l = {label, "ms", old_x, new_x, false, BENCH_ALPHA};
    return compare_values(d, &l);
}

static bool compare_all(struct diff *d)
{
    bool ok = true;
    const struct bn_json *items = bn_json_get(d->old_report, "measurements");
    size_t n_kernels = 0;
    for (size_t i = 0; i < bn_json_size(items); i++) {
        const struct bn_json *m = bn_json_at(items, i);
        n_kernels += is_kernel(m) && find_measurement(d->new_report, report_text(m, "name"));
    }
    d->kernels_alpha = n_kernels ? BENCH_ALPHA / (double)n_kernels : 0;
    for (size_t i = 0; ok && i < bn_json_size(items); i++) {
        const struct bn_json *old_m = bn_json_at(items, i);
        const struct bn_json *new_m = find_measurement(d->new_report, report_text(old_m, "name"));
        if (!new_m) continue;
        struct line l = {report_text(old_m, "name"),
                         report_text(old_m, "unit"),
                         bn_json_get(old_m, "repeats"),
                         bn_json_get(new_m, "repeats"),
                         true,
                         is_kernel(old_m) ? d->kernels_alpha : BENCH_ALPHA};
        ok = compare_values(d, &l) && compare_times(d, old_m, new_m, "step_ms_repeats", "step P50");
        /* of a prefill, the time to the first token is its rate once more */
        if (ok && strcmp(report_text(old_m, "mode"), "stream") == 0)
            ok = compare_times(d, old_m, new_m, "ttft_ms_repeats", "first token");
    }
    return ok;
}

/* ------------------------------------------------------------------ notes and output */

static void note_if_different(const struct diff *d, struct bn_json *notes, const char *part,
                              const char *key, const char *what)
{
    const struct bn_json *a = bn_json_get(bn_json_get(d->old_report, part), key),
                         *b = bn_json_get(bn_json_get(d->new_report, part), key);
    char text[256];
    if (!a || !b || bn_json_equal(a, b)) return;
    if (bn_json_is_string(a) && bn_json_is_string(b))
        snprintf(text, sizeof text, "%s differs: %.80s, %.80s", what, bn_json_text(a),
                 bn_json_text(b));
    else
        snprintf(text, sizeof text, "%s differs: %.12g, %.12g", what, bn_json_number(a),
                 bn_json_number(b));
    bn_json_append(notes, term_json_string(text, strlen(text)));
}

/* The memory's own speed in both runs; ratio 1 if a report does not say. */
static struct stats_comparison compare_bandwidth(const struct diff *d)
{
    static const char key[] = "read_bandwidth_gb_s_repeats";
    struct stats_comparison c = {.ratio = 1, .verdict = BENCH_SAME};
    size_t n_old, n_new;
    double *a = values_of(bn_json_get(bn_json_get(d->old_report, "machine"), key), &n_old);
    double *b = values_of(bn_json_get(bn_json_get(d->new_report, "machine"), key), &n_new);
    if (a && b && n_old && n_new)
        c = stats_compare(a, n_old, b, n_new, 1, d->fail_over, BENCH_ALPHA);
    free(a);
    free(b);
    return c;
}

static void note_bandwidth(const struct diff *d, struct bn_json *notes)
{
    struct stats_comparison c = compare_bandwidth(d);
    char text[160];
    snprintf(text, sizeof text,
             "the memory itself was %s in the new run: %.1f GB/s after %.1f GB/s",
             stats_verdict_name(c.verdict), c.new_median, c.old_median);
    if (c.verdict == BENCH_SLOWER || c.verdict == BENCH_FASTER)
        bn_json_append(notes, bn_json_string(text));
}

static void note_disturbed(const struct diff *d, struct bn_json *notes)
{
    char text[160];
    if (!d->old_disturbed && !d->new_disturbed)
        snprintf(text, sizeof text,
                 "a difference no larger than the memory's own proves nothing; measure in turn: "
                 "bench diff --run");
    else
        snprintf(text, sizeof text,
                 "other programs were in the way of the %s run%s: differences prove nothing; "
                 "measure again on a quiet machine",
                 !d->new_disturbed  ? "old"
                 : d->old_disturbed ? "old and the new"
                                    : "new",
                 d->old_disturbed && d->new_disturbed ? "s" : "");
    bn_json_append(notes, bn_json_string(text));
}

static struct bn_json *make_notes(const struct diff *d)
{
    struct bn_json *notes = bn_json_array();
    note_if_different(d, notes, "machine", "cpu", "the CPU");
    note_if_different(d, notes, "machine", "cpus", "the list of CPUs");
    note_if_different(d, notes, "model", "name", "the model");
    note_if_different(d, notes, "model", "file_bytes", "the model's size");
    note_if_different(d, notes, "model", "head_type", "the head's type");
    note_if_different(d, notes, "settings", "threads", "the number of threads");
    note_if_different(d, notes, "settings", "pinned", "the number of bound threads");
    note_if_different(d, notes, "settings", "backend", "the set of kernels");
    note_if_different(d, notes, "settings", "kv_type", "the type of the KV cache");
    note_if_different(d, notes, "settings", "hugepages", "the kind of pages");
    note_if_different(d, notes, "settings", "locked_bytes", "the locked memory");
    note_if_different(d, notes, "settings", "no_mmap", "the switch --no-mmap");
    note_if_different(d, notes, "settings", "prefetch_bytes", "the prefetch distance");
    note_if_different(d, notes, "settings", "engine_warmup", "the switch --warm-up");
    note_if_different(d, notes, "settings", "max_new_tokens", "the number of new tokens");
    note_bandwidth(d, notes);
    if (d->n_disturbed) note_disturbed(d, notes);
    return notes;
}

static struct bn_json *single_values(const struct diff *d)
{
    static const char *const keys[] = {"load_ms", "peak_rss_bytes"};
    struct bn_json *o = bn_json_object();
    for (size_t i = 0; i < BN_ARRAY_LEN(keys); i++)
        bn_json_set(o, keys[i],
                    bn_json_pack("{s:f, s:f}", "old", report_number(d->old_report, keys[i]), "new",
                                 report_number(d->new_report, keys[i])));
    return o;
}

enum { NAME_MIN = 24, NAME_MAX = 64 };

static void print_line(const struct bn_json *line, int width)
{
    const char *verdict = report_text(line, "verdict");
    enum term_style style = strcmp(verdict, "slower") == 0   ? TERM_RED
                            : strcmp(verdict, "faster") == 0 ? TERM_GREEN
                                                             : TERM_PLAIN;
    const char *on = style == TERM_PLAIN ? "" : term_style(stdout, style);
    char name[NAME_MAX + 1];
    snprintf(name, sizeof name, "%.*s", NAME_MAX, report_text(line, "name"));
    for (char *p = name; *p; p++)
        if ((unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f) *p = '?';
    printf("%-*s %10.2f %10.2f %-6.8s %7.3f %8.2g  %s%s%s\n", width, name,
           report_number(line, "old"), report_number(line, "new"), report_text(line, "unit"),
           report_number(line, "speed_ratio"), report_number(line, "p_value"), on, verdict,
           *on ? term_style(stdout, TERM_PLAIN) : "");
}

static void print_table(const struct diff *d, const struct bn_json *notes)
{
    char a[TERM_SIZE_BYTES], b[TERM_SIZE_BYTES];
    size_t width = NAME_MIN;
    for (size_t i = 0; i < bn_json_size(d->lines); i++)
        width = bn_max_size(width, strlen(report_text(bn_json_at(d->lines, i), "name")));
    width = bn_min_size(width, NAME_MAX);
    printf("%-*s %10s %10s %-6s %7s %8s\n", (int)width, "", "old", "new", "", "speed", "p");
    for (size_t i = 0; i < bn_json_size(d->lines); i++)
        print_line(bn_json_at(d->lines, i), (int)width);
    printf("\nload %.0f ms, then %.0f ms; peak memory %s, then %s\n",
           report_number(d->old_report, "load_ms"), report_number(d->new_report, "load_ms"),
           term_size(a, (uint64_t)report_number(d->old_report, "peak_rss_bytes")),
           term_size(b, (uint64_t)report_number(d->new_report, "peak_rss_bytes")));
    printf("%zu of %zu slower by more than %.3g %% (p < %.2g)\n", d->n_slower,
           bn_json_size(d->lines), d->fail_over * 100,
           d->kernels_alpha > 0 ? d->kernels_alpha : BENCH_ALPHA);
    fflush(stdout);
    for (size_t i = 0; i < bn_json_size(notes); i++) term_note(bn_json_text(bn_json_at(notes, i)));
}

static int show(struct diff *d, bool json)
{
    struct bn_json *notes = make_notes(d);
    int code = EXIT_DONE;
    if (json) {
        code = term_print_json(bn_json_pack(
            "{s:f, s:f, s:O, s:o, s:O, s:b, s:b}", "fail_over", d->fail_over, "alpha", BENCH_ALPHA,
            "comparisons", d->lines, "single_values", single_values(d), "notes", notes,
            "regression", d->n_slower > 0, "disturbed", d->n_disturbed > 0));
    } else {
        print_table(d, notes);
    }
    bn_json_free(notes);
    return code != EXIT_DONE || d->n_slower ? EXIT_FAILED : EXIT_DONE;
}

int bench_diff_reports(const struct bn_json *old_report, const struct bn_json *new_report,
                       const struct bench_diff_options *o)
{
    int code;
    struct diff d = {.old_report = old_report,
                     .new_report = new_report,
                     .fail_over = o->fail_over,
                     .paired = o->paired,
                     .lines = bn_json_array(),
                     .old_disturbed = is_disturbed(old_report),
                     .new_disturbed = is_disturbed(new_report)};
    struct stats_comparison memory = compare_bandwidth(&d);
    d.memory_ratio =
        memory.verdict == BENCH_SLOWER || memory.verdict == BENCH_FASTER ? memory.ratio : 1;
    if (!d.lines || !compare_all(&d)) code = term_fail_text("out of memory");
    else if (bn_json_size(d.lines) == 0) {
        term_fail_text("'%s' and '%s' have no measurement in common", o->old_name, o->new_name);
        code = EXIT_USAGE;
    } else code = show(&d, o->json);
    bn_json_free(d.lines);
    return code;
}

int bench_diff(const struct bench_diff_options *o)
{
    bitnet_error err = {0};
    struct bn_json *old_report = NULL, *new_report = NULL;
    int code;
    if (bench_read_report(&old_report, o->old_name, &err) != BITNET_OK ||
        bench_read_report(&new_report, o->new_name, &err) != BITNET_OK) {
        term_fail(&err);
        code = EXIT_USAGE;
    } else {
        code = bench_diff_reports(old_report, new_report, o);
    }
    bn_json_free(old_report);
    bn_json_free(new_report);
    return code;
}
