/* SPDX-License-Identifier: Apache-2.0 */
#include "app/report.h"
#include "cli/calibrate/calibrate.h"

enum { LINE_BYTES = 512 };

static double at(const struct bn_json *layer, const char *input, const char *figure)
{
    return report_number(bn_json_get(bn_json_get(layer, "inputs"), input), figure);
}

/* One saving that was chosen, and what it does alone. */
static void put_saving(struct bn_buf *b, const struct bn_json *s)
{
    const struct bn_json *levels = bn_json_get(s, "levels"), *v;
    const char *chosen = report_text(s, "chosen");
    size_t i;
    if (!*chosen) return;
    bn_buf_printf(b, "%s%s", b->len ? ", " : "", report_text(s, "saving"));
    if (*report_text(s, "input")) bn_buf_printf(b, " of %s", report_text(s, "input"));
    bn_buf_printf(b, " %s", chosen);
    bn_json_each(levels, i, v)
    {
        if (strcmp(report_text(v, "level"), chosen) == 0)
            bn_buf_printf(b, " (%.1e)", report_number(v, "kl"));
    }
}

void calibrate_savings(struct bn_buf *b, const struct bn_json *layer)
{
    const struct bn_json *list = bn_json_get(layer, "savings"), *s;
    size_t i, before = b->len;
    bn_json_each(list, i, s) put_saving(b, s);
    if (b->len == before) bn_buf_puts(b, "nothing");
}

static void print_divergence(const char *name, const struct bn_json *d)
{
    printf("%-17s KL mean %.6f +/- %.6f   P99 %.4f   max %.3f   same best token %.2f %%   "
           "perplexity ratio %.5f +/- %.5f\n",
           name, report_number(d, "kl_mean"), report_number(d, "kl_stderr"),
           report_number(d, "kl_p99"), report_number(d, "kl_max"),
           report_number(d, "top1_agreement") * 100, report_number(d, "perplexity_ratio"),
           report_number(d, "perplexity_ratio_stderr"));
}

static void print_trials(const struct bn_json *list, const char *title, const char *key)
{
    const struct bn_json *t;
    size_t i;
    if (!bn_json_size(list)) return;
    printf("\n%-9s %12s %10s %14s   held-out KL\n", title, key, "of singles", "bytes a token");
    bn_json_each(list, i, t)
    {
        const struct bn_json *d = bn_json_get(t, "heldout");
        char size[TERM_SIZE_BYTES];
        printf("%-9s %12g %10.5f %14s   %.6f +/- %.6f\n", "", report_number(t, key),
               report_number(t, "kl_sum"), term_size(size, (uint64_t)report_number(t, "bytes")),
               report_number(d, "kl_mean"), report_number(d, "kl_stderr"));
    }
}

static void print_layers(const struct bn_json *report)
{
    const struct bn_json *layers = bn_json_get(report, "layers"), *l;
    size_t i;
    printf("        entropy of codes, bits\n"
           "layer   mixer    out  gate/up  down    zeros    gates   saved (KL alone)\n");
    bn_json_each(layers, i, l)
    {
        struct bn_buf b;
        bn_buf_init(&b, LINE_BYTES);
        calibrate_savings(&b, l);
        printf("%5zu   %5.2f  %5.2f   %5.2f  %5.2f  %5.1f %%  %5.1f %%   %s\n", i,
               at(l, "mixer", "entropy_bits"), at(l, "mixer_out", "entropy_bits"),
               at(l, "gate_up", "entropy_bits"), at(l, "down", "entropy_bits"),
               at(l, "down", "zero_share") * 100, report_number(l, "gates_open") * 100,
               b.data ? b.data : "");
        bn_buf_free(&b);
    }
}

void calibrate_print(const struct bn_json *report)
{
    const struct bn_json *head = bn_json_get(report, "head");
    double before = report_number(report, "bytes_before"), after = report_number(report, "bytes");
    char a[TERM_SIZE_BYTES], b[TERM_SIZE_BYTES];
    print_layers(report);
    if (*report_text(head, "chosen")) printf(" head   %s\n", report_text(head, "chosen"));
    printf("zeros: inputs of down; gates: above zero\n\n");
    print_divergence("chosen by", bn_json_get(report, "promised"));
    print_divergence("held-out text", bn_json_get(report, "heldout"));
    printf("%-17s %s -> %s, %.1f %% less\n", "bytes a token", term_size(a, (uint64_t)before),
           term_size(b, (uint64_t)after), before > 0 ? 100 * (1 - after / before) : 0);
    print_trials(bn_json_get(report, "curve"), "budgets", "kl_budget");
    print_trials(bn_json_get(report, "uniform"), "uniform", "step");
}
