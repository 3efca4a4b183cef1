/* SPDX-License-Identifier: Apache-2.0
 *
 * profile/html.c: the page of a profile: what it was, the verdict, both phases with figures,
 * drawings and tables, and the small print.
 */
#include "cli/profile/html.h"
#include "app/report.h"
#include "base/os/mem.h"
#include "cli/profile/charts.h"
#include "app/units.h"
#include "app/svg.h"
#include <stdlib.h>

enum { PAGE_MAX_BYTES = 16 << 20 };

/* Why a part of the report is not there; NULL: it is. */
static const char *missing(const struct bn_json *part)
{
    return bn_json_text(bn_json_get(part, "unavailable"));
}

static void put_missing(struct bn_buf *b, const char *what, const char *why)
{
    bn_buf_printf(b, "<p class=\"missing\">%s: not available, ", what);
    svg_text(b, why);
    bn_buf_puts(b, ".</p>\n");
}

/* ------------------------------------------------------------------ key figures */

/* A figure with its name; ends with card_end, what comes between stands below it. Its id: phase and
 * member. */
static void card(struct bn_buf *b, const char *phase, const char *member, const char *name,
                 const char *value)
{
    bn_buf_printf(b, "<div class=\"card\"><h3>%s</h3><b id=\"%s-%s\">%s</b>\n", name, phase, member,
                  value);
}

static void card_end(struct bn_buf *b) { bn_buf_puts(b, "</div>\n"); }

static void card_speed(struct bn_buf *b, const char *name, const struct bn_json *p)
{
    const struct bn_json *ms = bn_json_get(p, "step_ms");
    double speed = report_number(p, "tok_per_s");
    char text[UNITS_BYTES], high[UNITS_BYTES];
    snprintf(text, sizeof text, "%.*f", speed < 100, speed);
    card(b, name, "tok_per_s", "Tokens a second", text);
    bn_buf_printf(b, "<p>a step %s, P99 %s</p>\n", units_time(text, report_number(ms, "p50") * 1e6),
                  units_time(high, report_number(ms, "p99") * 1e6));
    card_end(b);
}

static void card_bytes(struct bn_buf *b, const char *name, const struct bn_json *p,
                       double bandwidth)
{
    const struct bn_json *share = bn_json_get(p, "roofline_share");
    char text[UNITS_BYTES], rate[UNITS_BYTES];
    card(b, name, "bytes_per_s", "Read from memory",
         units_rate(text, report_number(p, "bytes_per_s")));
    bn_buf_printf(b, "<p>%s a token</p>\n", units_size(text, report_number(p, "bytes_per_token")));
    card_end(b);
    if (!bn_json_is_number(share)) return;
    card(b, name, "roofline_share", "Share of the roofline",
         units_share(text, bn_json_number(share)));
    chart_gauge(b, bn_json_number(share), "share of the roofline");
    bn_buf_printf(b, "<p>of %s, measured here%s</p>\n", units_rate(rate, bandwidth),
                  bn_json_number(share) > 1.005
                      ? "; above 100 %: weights come from the CPU's caches, faster than memory"
                      : "");
    card_end(b);
}

static void card_kernel(struct bn_buf *b, const char *name, const struct bn_json *p)
{
    const struct bn_json *share = bn_json_get(p, "kernel_share");
    char text[UNITS_BYTES];
    if (!bn_json_is_number(share)) return;
    card(b, name, "kernel_share", "Share of the kernel", units_share(text, bn_json_number(share)));
    chart_gauge(b, bn_json_number(share), "share of the kernel's speed");
    bn_buf_puts(b, "<p>of its speed with weights in the cache</p>\n");
    card_end(b);
}

static void card_system(struct bn_buf *b, const char *name, const struct bn_json *p)
{
    const struct bn_json *faults = bn_json_get(p, "page_faults");
    char minor[UNITS_BYTES], major[UNITS_BYTES], text[UNITS_BYTES];
    double n_minor = report_number(faults, "minor_per_token"),
           n_major = report_number(faults, "major_per_token");
    card(b, name, "page_faults", "Page faults a token", units_count(text, n_minor + n_major));
    bn_buf_printf(b, "<p>%s minor, %s major</p>\n", units_count(minor, n_minor),
                  units_count(major, n_major));
    card_end(b);
    card(b, name, "heap_allocations_per_token", "Allocations a token",
         units_count(text, report_number(p, "heap_allocations_per_token")));
    bn_buf_puts(b, "<p>malloc and its kin</p>\n");
    card_end(b);
}

static void card_energy(struct bn_buf *b, const char *name, const struct bn_json *p)
{
    const struct bn_json *e = bn_json_get(p, "energy");
    char text[UNITS_BYTES];
    if (missing(e)) return;
    card(b, name, "joules_per_token", "Joules a token",
         units_count(text, report_number(e, "joules_per_token")));
    bn_buf_printf(b, "<p>%s W, the whole package</p>\n",
                  units_count(text, report_number(e, "watts")));
    card_end(b);
}

/* ------------------------------------------------------------------ tables */

static void put_cell(struct bn_buf *b, bool known, const char *text)
{
    bn_buf_printf(b, "<td class=\"n\">%s</td>", known ? text : "–");
}

static void put_op(struct bn_buf *b, const struct bn_json *op, double most)
{
    char text[UNITS_BYTES];
    double bytes = report_number(op, "bytes_per_token"), macs = report_number(op, "macs_per_s"),
           ns = report_number(op, "ns_per_token");
    const struct bn_json *roofline = bn_json_get(op, "roofline_share");
    const char *css = chart_kind_class(report_text(op, "kind"));
    bn_buf_puts(b, "<tr data-op=\"");
    svg_text(b, report_text(op, "op"));
    bn_buf_printf(b, "\"><th><i class=\"%s\"></i>", css);
    svg_text(b, report_text(op, "op"));
    bn_buf_puts(b, "</th>");
    put_cell(b, true, units_time(text, ns));
    bn_buf_puts(b, "<td class=\"bar\">");
    svg_fluid_begin(b, 12, "");
    svg_block(b, &(struct svg_block){0, most > 0 ? ns / most : 0, 0, 12, css, text, NULL});
    svg_end(b);
    bn_buf_puts(b, "</td>");
    put_cell(b, true, units_share(text, report_number(op, "share")));
    put_cell(b, true, units_count(text, report_number(op, "calls_per_token")));
    put_cell(b, bytes > 0, units_size(text, bytes));
    put_cell(b, bytes > 0, units_rate(text, report_number(op, "bytes_per_s")));
    put_cell(b, bytes > 0 && bn_json_is_number(roofline),
             units_share(text, bn_json_number(roofline)));
    put_cell(b, macs > 0, units_count(text, macs));
    bn_buf_puts(b, "</tr>\n");
}

static void put_ops(struct bn_buf *b, const struct bn_json *phase)
{
    const struct bn_json *ops = bn_json_get(phase, "ops");
    bn_buf_puts(b,
                "<div class=\"scroll\"><table class=\"ops\">\n<thead><tr><th>operation</th>"
                "<th class=\"n\">time a token</th><th></th><th class=\"n\">share</th>"
                "<th class=\"n\">calls</th><th class=\"n\">bytes</th><th class=\"n\">read</th>"
                "<th class=\"n\">roofline</th><th class=\"n\">MAC/s</th></tr></thead>\n<tbody>\n");
    double most = report_number(bn_json_at(ops, 0), "ns_per_token");
    for (size_t i = 0; i < bn_json_size(ops); i++) put_op(b, bn_json_at(ops, i), most);
    bn_buf_puts(b, "</tbody></table></div>\n");
}

/* Members of a counter beside its count: what they are called, with their units. */
static void put_ratio(struct bn_buf *b, const struct bn_json *counter)
{
    static const char *const ratios[][2] = {{"ghz", "GHz"},
                                            {"per_cycle", "per cycle"},
                                            {"per_1000_instructions", "per 1000 instructions"}};
    bn_buf_puts(b, "<td>");
    for (size_t i = 0; i < BN_ARRAY_LEN(ratios); i++)
        if (bn_json_get(counter, ratios[i][0]))
            bn_buf_printf(b, "%.2f %s", report_number(counter, ratios[i][0]), ratios[i][1]);
    bn_buf_puts(b, "</td>");
}

/* Those that are missing for the same reason, in one sentence; `first` is the first of them. */
static void put_uncounted(struct bn_buf *b, const struct bn_json *counters, const char *first)
{
    const char *name, *why = missing(bn_json_get(counters, first)), *between = "";
    struct bn_json *c;
    bn_buf_puts(b, "<p class=\"missing\">Not counted: ");
    bn_json_each_member(counters, name, c)
    {
        if (!missing(c) || strcmp(missing(c), why) != 0) continue;
        bn_buf_puts(b, between);
        svg_text(b, name);
        between = ", ";
    }
    bn_buf_puts(b, " (");
    svg_text(b, why);
    bn_buf_puts(b, ").</p>\n");
}

static bool is_first(const struct bn_json *counters, const char *wanted)
{
    const char *name, *why = missing(bn_json_get(counters, wanted));
    struct bn_json *c;
    bn_json_each_member(counters, name, c)
    {
        if (missing(c) && strcmp(missing(c), why) == 0) return strcmp(name, wanted) == 0;
    }
    return false;
}

static void put_counters(struct bn_buf *b, const struct bn_json *counters)
{
    const char *name, *why = missing(counters);
    char text[UNITS_BYTES];
    struct bn_json *c;
    if (why) {
        put_missing(b, "Counters of the CPU", why);
        return;
    }
    bn_buf_puts(b, "<h3>Counters of the CPU, a token</h3>\n<table class=\"counters\">\n");
    bn_json_each_member(counters, name, c)
    {
        double n = report_number(c, "per_token");
        if (missing(c)) continue;
        bn_buf_puts(b, "<tr><th>");
        svg_text(b, name);
        bn_buf_puts(b, "</th>");
        put_cell(b, true,
                 bn_ends_with(name, "-clock") ? units_time(text, n) : units_count(text, n));
        put_ratio(b, c);
        bn_buf_puts(b, "</tr>\n");
    }
    bn_buf_puts(b, "</table>\n");
    bn_json_each_member(counters, name, c)
    {
        if (missing(c) && is_first(counters, name)) put_uncounted(b, counters, name);
    }
}

/* ------------------------------------------------------------------ a phase */

static int longer_first(const void *a, const void *b)
{
    double x = report_number(*(struct bn_json *const *)a, "ns_per_token"),
           y = report_number(*(struct bn_json *const *)b, "ns_per_token");
    return (x < y) - (x > y);
}

/* The same list, longest times first. NULL: out of memory. */
static struct bn_json *sorted(const struct bn_json *list)
{
    size_t n = bn_json_size(list);
    struct bn_json **items = bn_calloc(n + 1, sizeof *items), *out = items ? bn_json_array() : NULL;
    for (size_t i = 0; out && i < n; i++) items[i] = bn_json_at(list, i);
    if (out) qsort(items, n, sizeof *items, longer_first);
    for (size_t i = 0; out && i < n; i++) bn_json_append(out, bn_json_ref(items[i]));
    free(items);
    return out;
}

static void put_phase_charts(struct bn_buf *b, const char *name, const struct bn_json *p)
{
    bn_buf_puts(b, "<h3>Where the time of a token goes</h3>\n");
    chart_kinds(b, p);
    bn_buf_puts(b, "<h3>Part by part</h3>\n");
    chart_flame(b, name, p);
    bn_buf_puts(b, "<h3>Operations</h3>\n");
    put_ops(b, p);
    if (bn_json_size(bn_json_get(p, "layers")) > 0) {
        bn_buf_puts(b, "<h3>Layers</h3>\n");
        chart_layers(b, p);
    }
    bn_buf_puts(b, "<h3>Workers</h3>\n");
    chart_workers(b, p);
}

/* title, and what the phase is called in the report. */
static void put_phase(struct bn_buf *b, const struct bn_json *report, const char *title,
                      const char *name)
{
    const struct bn_json *phase = bn_json_get(bn_json_get(report, "phases"), name);
    double bandwidth = report_number(bn_json_get(report, "machine"), "bandwidth_bytes_per_s");
    double steps = report_number(phase, "steps");
    char time[UNITS_BYTES];
    if (!(report_number(phase, "tokens") > 0)) return;
    struct bn_json *p = bn_json_copy((struct bn_json *)phase);
    bn_json_set(p, "kinds", sorted(bn_json_get(phase, "kinds")));
    bn_json_set(p, "ops", sorted(bn_json_get(phase, "ops")));
    bn_buf_printf(b,
                  "<section id=\"%s\"><h2>%s</h2>\n<p class=\"lead\">%.0f tokens in %.0f step%s, ",
                  name, title, report_number(p, "tokens"), steps, steps == 1 ? "" : "s");
    bn_buf_printf(
        b, "%s by the clock; the parts add up to %.2f %% of it.</p>\n<div class=\"cards\">\n",
        units_time(time, report_number(p, "wall_ns")), report_number(p, "parts_share") * 100);
    card_speed(b, name, p);
    card_bytes(b, name, p, bandwidth);
    card_kernel(b, name, p);
    card_system(b, name, p);
    card_energy(b, name, p);
    bn_buf_puts(b, "</div>\n");
    put_phase_charts(b, name, p);
    put_counters(b, bn_json_get(p, "counters"));
    const char *no_energy = missing(bn_json_get(p, "energy"));
    if (no_energy) put_missing(b, "Energy", no_energy);
    bn_buf_puts(b, "</section>\n");
    if (!bn_json_get(p, "kinds") || !bn_json_get(p, "ops")) b->failed = true;
    bn_json_free(p);
}

/* ------------------------------------------------------------------ the small print */

/* Ends of names that say what a value is. */
static const struct unit {
    const char *end;
    const char *(*show)(char *, double);
    bool keep; /* in the name: the figure does not say it */
} units[] = {
    {"_bytes_per_s", units_rate, false}, {"_bytes", units_size, false}, {"_ns", units_time, false},
    {"share", units_share, true},        {"others", units_share, true},
};

static void put_fact(struct bn_buf *b, const char *key, const struct bn_json *v)
{
    char text[UNITS_BYTES], name[64];
    const struct unit *unit = NULL;
    for (size_t i = 0; i < BN_ARRAY_LEN(units); i++)
        if (bn_json_is_number(v) && !unit && bn_ends_with(key, units[i].end)) unit = &units[i];
    size_t cut = unit && !unit->keep ? strlen(unit->end) : 0;
    snprintf(name, sizeof name, "%.*s", (int)(strlen(key) - cut), key);
    for (char *c = name; *c; c++)
        if (*c == '_') *c = ' ';
    bn_buf_puts(b, "<dt>");
    svg_text(b, name);
    bn_buf_puts(b, "</dt><dd>");
    if (unit) bn_buf_puts(b, unit->show(text, bn_json_number(v)));
    else if (bn_json_is_number(v)) bn_buf_printf(b, "%.10g", bn_json_number(v));
    else if (bn_json_is_string(v)) svg_text(b, bn_json_text(v));
    else bn_buf_puts(b, bn_json_is_true(v) ? "yes" : bn_json_is_false(v) ? "no" : "not known");
    bn_buf_puts(b, "</dd>\n");
}

/* All plain members of an object. */
static void put_facts(struct bn_buf *b, const char *title, const struct bn_json *o)
{
    const char *key, *why = missing(o);
    struct bn_json *v;
    if (why) {
        put_missing(b, title, why);
        return;
    }
    bn_buf_printf(b, "<div class=\"facts\"><h3>%s</h3><dl>\n", title);
    bn_json_each_member(o, key, v)
    {
        if (!bn_json_is_array(v) && !bn_json_is_object(v)) put_fact(b, key, v);
    }
    bn_buf_puts(b, "</dl></div>\n");
}

static void put_small_print(struct bn_buf *b, const struct bn_json *r)
{
    const struct bn_json *notes = bn_json_get(r, "notes"),
                         *series = bn_json_get(bn_json_get(r, "frequency"), "series");
    bn_buf_puts(b, "<section><h2>How it was measured</h2>\n");
    if (bn_json_size(series) > 1) {
        bn_buf_puts(b, "<h3>Clock of the CPU in MHz</h3>\n");
        chart_line(b, series, "clock of the CPU over time");
    }
    if (bn_json_size(notes) > 0) bn_buf_puts(b, "<ul class=\"notes\">\n");
    for (size_t i = 0; i < bn_json_size(notes); i++) {
        bn_buf_puts(b, "<li>");
        svg_text(b, bn_json_text(bn_json_at(notes, i)));
        bn_buf_puts(b, "</li>\n");
    }
    if (bn_json_size(notes) > 0) bn_buf_puts(b, "</ul>\n");
    bn_buf_puts(b, "<div class=\"columns\">\n");
    put_facts(b, "Machine", bn_json_get(r, "machine"));
    put_facts(b, "Model", bn_json_get(r, "model"));
    put_facts(b, "Settings", bn_json_get(r, "settings"));
    put_facts(b, "Memory", bn_json_get(r, "memory"));
    put_facts(b, "Clock of the CPU", bn_json_get(r, "frequency"));
    put_facts(b, "Cost of measuring", bn_json_get(r, "overhead"));
    bn_buf_puts(b, "</div></section>\n");
}

/* ------------------------------------------------------------------ the page */

static void put_head(struct bn_buf *b, const struct bn_json *r)
{
    const struct bn_json *machine = bn_json_get(r, "machine"), *s = bn_json_get(r, "settings");
    double threads = report_number(machine, "threads");
    bn_buf_puts(b, "<header><p>bitnet profile</p>\n<h1>");
    svg_text(b, report_text(bn_json_get(r, "model"), "name"));
    bn_buf_puts(b, "</h1>\n<p>");
    svg_text(b, report_text(machine, "cpu"));
    bn_buf_printf(b, ", %.0f thread%s, ", threads, threads == 1 ? "" : "s");
    svg_text(b, report_text(s, "backend"));
    bn_buf_puts(b, " kernels · bitnet ");
    svg_text(b, report_text(r, "version"));
    bn_buf_puts(b, " (");
    svg_text(b, report_text(r, "commit"));
    bn_buf_puts(b, ") · ");
    svg_text(b, report_text(r, "date"));
    bn_buf_puts(b, "</p></header>\n<p id=\"verdict\">");
    svg_text(b, report_text(r, "verdict"));
    bn_buf_puts(b, "</p>\n");
}

char *profile_html(const struct bn_json *report)
{
    struct bn_buf b;
    bn_buf_init(&b, PAGE_MAX_BYTES);
    bn_buf_puts(&b, "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n"
                    "<head>\n<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" "
                    "content=\"width=device-width, initial-scale=1\"/>\n<title>bitnet profile: ");
    svg_text(&b, report_text(bn_json_get(report, "model"), "name"));
    bn_buf_puts(&b, "</title>\n<style>\n");
    bn_buf_puts(&b, page_colours);
    bn_buf_puts(&b, profile_style);
    bn_buf_puts(&b,
                "</style>\n</head>\n<body>\n"
                "<svg width=\"0\" height=\"0\" class=\"defs\"><pattern id=\"hatch\" width=\"6\" "
                "height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
                "<rect width=\"6\" height=\"6\"/><line y2=\"6\"/></pattern></svg>\n");
    put_head(&b, report);
    put_phase(&b, report, "Decode", "decode");
    put_phase(&b, report, "Prefill", "prefill");
    put_small_print(&b, report);
    bn_buf_puts(&b, "</body>\n</html>\n");
    char *text = bn_buf_take(&b);
    bn_buf_free(&b);
    return text;
}
