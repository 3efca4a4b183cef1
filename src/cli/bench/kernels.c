/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/kernels.c: `bitnet bench --mode kernels`: the library knows the cases and times them
 * (bitnet_kernel_timer); here they become measurements like the others, a line each.
 */
#include "base/os/mem.h"
#include "app/report.h"
#include "cli/bench/bench.h"
#include "app/term.h"
#include <stdio.h>

bitnet_status bench_kernels_plan(struct bench *b, bitnet_error *err)
{
    bitnet_kernel_case c = {.size = sizeof c};
    size_t n = 0;
    BN_TRY(bitnet_kernel_timer_open(&b->timer, b->model, b->settings->op, err));
    while (bitnet_kernel_timer_case(b->timer, n, &c)) n++;
    b->items = bn_calloc(n, sizeof *b->items);
    if (!b->items) return bn_fail_nomem(err, n * sizeof *b->items, "the results");
    for (b->n_items = 0; b->n_items < n; b->n_items++) {
        struct bench_measurement *m = &b->items[b->n_items];
        m->mode = BENCH_KERNELS;
        m->kernel.size = sizeof m->kernel;
        bitnet_kernel_timer_case(b->timer, b->n_items, &m->kernel);
        snprintf(m->name, sizeof m->name, "%s %s %s", m->kernel.op, m->kernel.isa, m->kernel.work);
    }
    /* no engine: these are the settings that the report shows */
    b->single_info =
        (bitnet_engine_info){.threads = 1, .kv.type = "", .head.type = "", .ffn.type = ""};
    return BITNET_OK;
}

bitnet_status bench_kernels_measure(struct bench *b, struct bench_measurement *m, bool keep,
                                    bitnet_error *err)
{
    double ns = bitnet_kernel_timer_run(b->timer, (size_t)(m - b->items));
    if (!(ns > 0)) return bn_fail(err, BITNET_E_INTERNAL, "%s took no time", m->name);
    if (keep) m->rates[m->n_repeats++] = bench_kernel_amount(&m->kernel) / ns;
    return BITNET_OK;
}

double bench_kernel_amount(const bitnet_kernel_case *c) { return c->macs > 0 ? c->macs : c->bytes; }
const char *bench_kernel_unit(const bitnet_kernel_case *c)
{
    return c->macs > 0 ? "GMAC/s" : "GB/s";
}

const struct bench_measurement *bench_kernel_reference(const struct bench *b,
                                                       const bitnet_kernel_case *c)
{
    for (size_t i = 0; i < b->n_items; i++) {
        const bitnet_kernel_case *k = &b->items[i].kernel;
        if (k->reference && strcmp(k->op, c->op) == 0 && strcmp(k->work, c->work) == 0)
            return &b->items[i];
    }
    return NULL;
}

/* ------------------------------------------------------------------ the table */

static void print_kernel(const struct bn_json *m)
{
    bool chosen = bn_json_is_true(bn_json_get(m, "chosen"));
    bool products = strcmp(report_text(m, "unit"), "GMAC/s") == 0;
    printf("%-13s %-8s%c %-40s %11.2f %7.1f %%", report_text(m, "op"), report_text(m, "isa"),
           chosen ? '*' : ' ', report_text(m, "work"), report_number(m, "ns") / 1e3,
           report_number(m, "spread") * 100);
    if (products) printf(" %8.2f", report_number(m, "median"));
    else printf(" %8s", "-");
    printf(" %8.2f %7.2fx\n", report_number(m, "gb_s"), report_number(m, "ratio_to_scalar"));
}

void bench_print_kernels(const struct bn_json *items)
{
    printf("%s%-13s %-8s  %-40s %11s %9s %8s %8s %8s%s\n", term_style(stdout, TERM_BOLD), "", "",
           "", "us", "spread", "GMAC/s", "GB/s", "scalar", term_style(stdout, TERM_PLAIN));
    for (size_t i = 0; i < bn_json_size(items); i++) print_kernel(bn_json_at(items, i));
    printf("\n*: the variant that is used\n");
}
