/* SPDX-License-Identifier: Apache-2.0
 *
 * print.c: a report as tables on a terminal. Operations stand in the order of their cost.
 */
#include "cli/profile/profile.h"
#include "app/report.h"
#include "app/term.h"
#include <stdlib.h>

enum { LINE_WIDTH = 100, TEXT_MAX_BYTES = 4096 };

/* Words, as many on a line as fit. */
static void print_wrapped(const char *text, int indent)
{
    int width = term_width(stdout), at = 0;
    if (width > LINE_WIDTH || !term_is_tty(stdout)) width = LINE_WIDTH;
    while (*text) {
        int gap = (int)strspn(text, " "), word = (int)strcspn(text + gap, " ");
        if (at && at + gap + word > width) {
            at = printf("\n%*s", indent, "") - 1;
            text += gap;
            gap = 0;
        }
        at += printf("%.*s", gap + word, text);
        text += gap + word;
    }
    putchar('\n');
}

/* ------------------------------------------------------------------ operations */

static int dearest_first(const void *a, const void *b)
{
    double x = report_number(*(struct bn_json *const *)a, "ns_per_token"),
           y = report_number(*(struct bn_json *const *)b, "ns_per_token");
    return (x < y) - (x > y);
}

/* A number, or a dash where there is nothing to count. */
static void column(const char *fmt, int width, double v)
{
    if (v > 0) printf(fmt, width, v);
    else printf(" %*s", width, "-");
}

static void print_op(const struct bn_json *op)
{
    printf("  %-14s %-11s %10.1f %6.1f %%", report_text(op, "op"), report_text(op, "kind"),
           report_number(op, "ns_per_token") / 1e3, report_number(op, "share") * 100);
    column(" %*.1f", 8, report_number(op, "calls_per_token"));
    column(" %*.1f", 10, report_number(op, "bytes_per_token") / 1e3);
    column(" %*.1f", 8, report_number(op, "bytes_per_s") / 1e9);
    column(" %*.0f %%", 8, report_number(op, "roofline_share") * 100);
    column(" %*.1f", 9, report_number(op, "macs_per_s") / 1e9);
    putchar('\n');
}

static void print_ops(const struct bn_json *phase)
{
    const struct bn_json *ops = bn_json_get(phase, "ops");
    const struct bn_json *sorted[PROFILE_OPS_MAX];
    size_t n = bn_min_size(bn_json_size(ops), PROFILE_OPS_MAX);
    for (size_t i = 0; i < n; i++) sorted[i] = bn_json_at(ops, i);
    qsort(sorted, n, sizeof *sorted, dearest_first);
    printf("%s  %-14s %-11s %10s %8s %8s %10s %8s %10s %9s%s\n", term_style(stdout, TERM_BOLD),
           "operation", "kind", "us/token", "share", "calls", "kB/token", "GB/s", "roofline",
           "GMAC/s", term_style(stdout, TERM_PLAIN));
    for (size_t i = 0; i < n; i++) print_op(sorted[i]);
}

static void print_kinds(const struct bn_json *phase)
{
    const struct bn_json *kinds = bn_json_get(phase, "kinds");
    struct bn_buf b;
    bn_buf_init(&b, TEXT_MAX_BYTES);
    bn_buf_puts(&b, "  in all:");
    for (size_t i = 0; i < bn_json_size(kinds); i++) {
        const struct bn_json *k = bn_json_at(kinds, i);
        bn_buf_printf(&b, "%s %s %.1f %%", i ? "," : "", report_text(k, "kind"),
                      report_number(k, "share") * 100);
    }
    if (b.data) print_wrapped(b.data, 2);
    bn_buf_free(&b);
}

/* ------------------------------------------------------------------ workers and layers */

static void print_workers(const struct bn_json *phase)
{
    const struct bn_json *workers = bn_json_get(phase, "workers");
    printf("%s  %-14s %10s %10s %10s %8s%s\n", term_style(stdout, TERM_BOLD), "worker", "busy us",
           "wait us", "idle us", "waiting", term_style(stdout, TERM_PLAIN));
    for (size_t i = 0; i < bn_json_size(workers); i++) {
        const struct bn_json *w = bn_json_at(workers, i);
        printf("  %-14.0f %10.1f %10.1f %10.1f %6.1f %%\n", report_number(w, "worker"),
               report_number(w, "busy_ns_per_token") / 1e3,
               report_number(w, "wait_ns_per_token") / 1e3,
               report_number(w, "idle_ns_per_token") / 1e3, report_number(w, "wait_share") * 100);
    }
}

/* The operations of a layer, in its order. */
static void print_split(const struct bn_json *layer)
{
    const char *op;
    struct bn_json *ns;
    bn_json_each_member(bn_json_get(layer, "ops"), op, ns)
        printf(" %s %.1f", op, bn_json_number(ns) / 1e3);
}

static void print_layers(const struct bn_json *phase, bool all)
{
    const struct bn_json *layers = bn_json_get(phase, "layers"), *least = NULL, *most = NULL;
    size_t n = bn_json_size(layers);
    double sum = 0;
    if (!n) return;
    for (size_t i = 0; i < n; i++) {
        const struct bn_json *l = bn_json_at(layers, i);
        double ns = report_number(l, "ns_per_token");
        sum += ns;
        if (!least || ns < report_number(least, "ns_per_token")) least = l;
        if (!most || ns > report_number(most, "ns_per_token")) most = l;
        if (!all) continue;
        printf("  layer %02.0f %9.1f us:", report_number(l, "layer"), ns / 1e3);
        print_split(l);
        putchar('\n');
    }
    printf(
        "  %zu layers, %.1f us/token each on average; fastest %.0f (%.1f), slowest %.0f (%.1f)\n",
        n, sum / (double)n / 1e3, report_number(least, "layer"),
        report_number(least, "ns_per_token") / 1e3, report_number(most, "layer"),
        report_number(most, "ns_per_token") / 1e3);
}

/* ------------------------------------------------------------------ counters, faults, energy */

/* Events that were refused, with the reason behind those that share it. */
static void print_refused(const struct bn_json *counters)
{
    const char *name, *last = "";
    struct bn_json *c;
    struct bn_buf b;
    bn_buf_init(&b, TEXT_MAX_BYTES);
    bn_json_each_member(counters, name, c)
    {
        const char *why = report_text(c, "unavailable");
        if (!*why) continue;
        if (*last && strcmp(why, last) != 0) bn_buf_printf(&b, ": %s;", last);
        bn_buf_printf(&b, *last && strcmp(why, last) == 0 ? ", %s" : "  no %s", name);
        last = why;
    }
    if (*last) bn_buf_printf(&b, ": %s", last);
    if (b.data) print_wrapped(b.data, 2);
    bn_buf_free(&b);
}

static void print_counted(const char *name, const struct bn_json *c)
{
    printf("  %-16s %14.0f%s", name, report_number(c, "per_token"),
           strcmp(name, "task-clock") == 0 ? " ns" : "");
    if (bn_json_get(c, "ghz")) printf("   %.2f GHz", report_number(c, "ghz"));
    if (bn_json_get(c, "per_cycle")) printf("   %.2f a cycle", report_number(c, "per_cycle"));
    if (bn_json_get(c, "per_1000_instructions"))
        printf("   %.2f a 1000 instructions", report_number(c, "per_1000_instructions"));
    putchar('\n');
}

static void print_counters(const struct bn_json *phase)
{
    const struct bn_json *counters = bn_json_get(phase, "counters");
    const char *why = report_text(counters, "unavailable"), *name;
    struct bn_json *c;
    if (*why) {
        printf("  no hardware counters: %s\n", why);
        return;
    }
    bn_json_each_member(counters, name, c) if (!bn_json_get(c, "unavailable"))
        print_counted(name, c);
    print_refused(counters);
}

static void print_rest(const struct bn_json *phase)
{
    const struct bn_json *faults = bn_json_get(phase, "page_faults"),
                         *energy = bn_json_get(phase, "energy");
    printf("  a token: %.3f page faults (%.3f from disk), %.3f heap allocations, %.2f context "
           "switches (%.2f forced)\n",
           report_number(faults, "minor_per_token") + report_number(faults, "major_per_token"),
           report_number(faults, "major_per_token"),
           report_number(phase, "heap_allocations_per_token"),
           report_number(phase, "context_switches_per_token") +
               report_number(phase, "forced_switches_per_token"),
           report_number(phase, "forced_switches_per_token"));
    if (bn_json_get(energy, "unavailable"))
        printf("  energy: %s\n", report_text(energy, "unavailable"));
    else
        printf("  energy: %.3f J a token, %.1f W\n", report_number(energy, "joules_per_token"),
               report_number(energy, "watts"));
}

/* ------------------------------------------------------------------ the report */

static void print_phase(const struct bn_json *report, const char *name, bool by_layer)
{
    const struct bn_json *p = bn_json_get(bn_json_get(report, "phases"), name),
                         *steps = bn_json_get(p, "step_ms"),
                         *kernel = bn_json_get(p, "kernel_share");
    char bytes[TERM_SIZE_BYTES];
    printf(
        "\n%s%s%s: %.0f tokens in %.0f step%s, %.1f tok/s; steps P50 %.2f, P90 %.2f, P99 %.2f, max "
        "%.2f ms\n",
        term_style(stdout, TERM_BOLD), name, term_style(stdout, TERM_PLAIN),
        report_number(p, "tokens"), report_number(p, "steps"),
        report_number(p, "steps") == 1 ? "" : "s", report_number(p, "tok_per_s"),
        report_number(steps, "p50"), report_number(steps, "p90"), report_number(steps, "p99"),
        report_number(steps, "max"));
    printf(
        "  %s a token at %.1f GB/s, %.0f %% of the roofline; parts add up to %.2f %% of the wall "
        "time\n",
        term_size(bytes, (uint64_t)report_number(p, "bytes_per_token")),
        report_number(p, "bytes_per_s") / 1e9, report_number(p, "roofline_share") * 100,
        report_number(p, "parts_share") * 100);
    if (report_number(p, "roofline_share") > 1.005)
        printf(
            "  above 100 %%: weights come from the CPU's caches, which are faster than memory\n");
    if (kernel)
        printf("  matrices at %.0f %% of what their kernel does with weights in the cache\n",
               bn_json_number(kernel) * 100);
    print_ops(p);
    print_kinds(p);
    print_layers(p, by_layer);
    print_workers(p);
    print_counters(p);
    print_rest(p);
}

static void print_frequency(const struct bn_json *f)
{
    if (bn_json_get(f, "unavailable")) {
        printf("clock: %s\n", report_text(f, "unavailable"));
        return;
    }
    printf("clock: %.0f MHz (%.0f to %.0f, %s, %.0f samples)", report_number(f, "mean_mhz"),
           report_number(f, "min_mhz"), report_number(f, "max_mhz"), report_text(f, "source"),
           report_number(f, "samples"));
    if (bn_json_is_number(bn_json_get(f, "throttle_events")))
        printf(", slowed down for heat %.0f times", report_number(f, "throttle_events"));
    if (bn_json_is_number(bn_json_get(f, "temperature_c")))
        printf(", %.0f C", report_number(f, "temperature_c"));
    putchar('\n');
}

void profile_print(const struct bn_json *r, bool by_layer)
{
    const struct bn_json *overhead = bn_json_get(r, "overhead"), *memory = bn_json_get(r, "memory");
    char rss[TERM_SIZE_BYTES];
    report_print_subject(r);
    printf("peak memory %s, memory read %.1f GB/s\n",
           term_size(rss, (uint64_t)report_number(memory, "peak_rss_bytes")),
           report_number(bn_json_get(r, "machine"), "bandwidth_bytes_per_s") / 1e9);
    print_phase(r, "prefill", by_layer);
    print_phase(r, "decode", by_layer);
    putchar('\n');
    print_frequency(bn_json_get(r, "frequency"));
    printf("noting: %.0f marks a token, %.0f ns each: about %.2f %% of decoding\n\n",
           report_number(overhead, "marks_per_token"), report_number(overhead, "mark_ns"),
           report_number(overhead, "share") * 100);
    print_wrapped(report_text(r, "verdict"), 0);
}
