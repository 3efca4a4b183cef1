/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/report.c: a run as a JSON report, and a report as a table. The table, the plot and the
 * comparison are all made from the report, so that none can show what the file does not say.
 */
#include "base/os/mem.h"
#include "app/machine_report.h"
#include "cli/bench/bench.h"
#include "app/report.h"
#include "app/term.h"
#include <stdio.h>
#include <stdlib.h>

/* ------------------------------------------------------------------ making it */

static struct bn_json *numbers(const double *x, size_t n)
{
    struct bn_json *a = bn_json_array();
    for (size_t i = 0; i < n; i++) bn_json_append(a, bn_json_real(x[i]));
    return a;
}

/* Times of single steps, from all repeats together. sorted: in place. */
static struct bn_json *step_times(double *ms, size_t n)
{
    struct bn_json *o = bn_json_object();
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += ms[i];
    stats_sort(ms, n);
    set_int(o, "n", n);
    set_real(o, "mean", n ? sum / (double)n : 0);
    set_real(o, "p50", stats_quantile(ms, n, 0.50));
    set_real(o, "p95", stats_quantile(ms, n, 0.95));
    set_real(o, "p99", stats_quantile(ms, n, 0.99));
    set_real(o, "max", stats_quantile(ms, n, 1));
    return o;
}

static void set_summary(struct bn_json *o, const struct bench_measurement *m, const char *unit,
                        const struct stats_summary *s)
{
    set_text(o, "name", m->name);
    set_text(o, "mode", bench_mode_name(m->mode));
    set_text(o, "unit", unit);
    set_real(o, "median", s->median);
    set_real(o, "mean", s->mean);
    set_real(o, "min", s->min);
    set_real(o, "max", s->max);
    set_real(o, "q1", s->q1);
    set_real(o, "q3", s->q3);
    set_real(o, "mad", s->mad);
    set_real(o, "spread", s->spread);
    bn_json_set(o, "repeats", numbers(m->rates, m->n_repeats));
}

static struct bn_json *json_kernel(const struct bench *b, const struct bench_measurement *m,
                                   double *scratch)
{
    struct bn_json *o = bn_json_object();
    const bitnet_kernel_case *c = &m->kernel;
    const struct bench_measurement *ref = bench_kernel_reference(b, c);
    struct stats_summary s = stats_summarize(m->rates, m->n_repeats, scratch);
    double ns = s.median > 0 ? bench_kernel_amount(c) / s.median : 0;
    set_summary(o, m, bench_kernel_unit(c), &s);
    set_text(o, "op", c->op);
    set_text(o, "isa", c->isa);
    set_text(o, "work", c->work);
    bn_json_set(o, "chosen", bn_json_bool(c->chosen));
    set_real(o, "ns", ns);
    set_real(o, "gb_s", ns > 0 ? c->bytes / ns : 0);
    double ref_rate = ref ? stats_summarize(ref->rates, ref->n_repeats, scratch).median : 0;
    bn_json_set(o, "ratio_to_scalar",
                ref_rate > 0 ? bn_json_real(s.median / ref_rate) : bn_json_null());
    return o;
}

/* Changes are those from the default type. */
static void set_kv(struct bn_json *o, const struct bench *b, const struct bench_measurement *m,
                   double median, double *scratch)
{
    const struct bench_measurement *base = bench_kv_base(b, m);
    const struct bench_kv *kv = m->kv;
    double speed = stats_summarize(base->rates, base->n_repeats, scratch).median;
    set_text(o, "kv_type", kv->info.kv.type);
    set_int(o, "kv_token_bytes", kv->info.kv.token_bytes);
    set_real(o, "bits_per_value", kv->bits);
    set_real(o, "speed_change", speed > 0 ? median / speed - 1 : 0);
    if (kv->attention_ms > 0) set_real(o, "attention_ms", kv->attention_ms);
    if (!kv->ppl.n_tokens) return;
    set_real(o, "perplexity", kv->ppl.perplexity);
    set_real(o, "nll_per_token", kv->ppl.nll_per_token);
    set_int(o, "ppl_tokens", kv->ppl.n_tokens);
    set_real(o, "perplexity_change", kv->ppl.perplexity / base->kv->ppl.perplexity - 1);
}

static struct bn_json *json_measurement(const struct bench *b, const struct bench_measurement *m,
                                        double *scratch)
{
    if (m->mode == BENCH_KERNELS) return json_kernel(b, m, scratch);
    struct bn_json *o = bn_json_object();
    struct stats_summary s = stats_summarize(m->rates, m->n_repeats, scratch);
    double seqs = m->mode == BENCH_BATCH ? m->at : 1, bandwidth = b->read_bandwidth;
    set_summary(o, m, "tok/s", &s);
    set_int(o, "at", m->at);
    if (m->mode == BENCH_STREAM || m->mode == BENCH_PREFILL) {
        set_real(o, "ttft_ms", stats_summarize(m->first_ms, m->n_repeats, scratch).median);
        bn_json_set(o, "ttft_ms_repeats", numbers(m->first_ms, m->n_repeats));
    }
    if (m->mode == BENCH_PREFILL) return o;
    if (m->kv) set_kv(o, b, m, s.median, scratch);
    set_int(o, "new_tokens", m->n_new);
    bn_json_set(o, "step_ms", step_times(m->step_ms, m->n_steps));
    set_real(o, "bytes_per_step", m->bytes_per_step);
    set_real(o, "bytes_per_token", m->bytes_per_step / seqs);
    double read = m->bytes_per_step * s.median / seqs;
    set_real(o, "read_gb_s", read / 1e9);
    bn_json_set(o, "roofline_share",
                bandwidth > 0 ? bn_json_real(read / bandwidth) : bn_json_null());
    if (m->step_ns > 0) set_real(o, "forward_share", m->forward_ns / m->step_ns);
    if (m->exchanges > 0 && m->steps > 0) {
        set_real(o, "exchanges_per_step", m->exchanges / m->steps);
        set_real(o, "exchange_ms_per_step", m->exchange_ns / m->steps / 1e6);
    }
    return o;
}

static struct bn_json *json_machine(const struct bench *b)
{
    struct bn_json *o = bn_json_object();
    char text[256];
    double *scratch = bn_calloc(b->n_bandwidth + 1, sizeof *scratch);
    machine_cpu_name(text, sizeof text);
    set_text(o, "cpu", text);
    machine_cpu_list(text, sizeof text);
    set_text(o, "cpus", text);
    set_int(o, "cores", b->load.cores);
    set_int(o, "usable_cores", bitnet_default_threads());
    bn_json_set(o, "load_average",
                b->load.average < 0 ? bn_json_null() : bn_json_real(b->load.average));
    bn_json_set(o, "other_programs_share",
                b->load.others < 0 ? bn_json_null() : bn_json_real(b->load.others));
    bn_json_set(o, "disturbed", bn_json_bool(b->load.disturbed));
    set_real(o, "read_bandwidth_gb_s", b->read_bandwidth / 1e9);
    struct bn_json *all = bn_json_array();
    for (size_t i = 0; i < b->n_bandwidth; i++)
        bn_json_append(all, bn_json_real(b->bandwidth[i] / 1e9));
    bn_json_set(o, "read_bandwidth_gb_s_repeats", all);
    if (scratch)
        set_real(o, "read_bandwidth_spread",
                 stats_summarize(b->bandwidth, b->n_bandwidth, scratch).spread);
    set_int(o, "read_buffer_bytes", b->bandwidth_buffer_bytes);
    free(scratch);
    return o;
}

static struct bn_json *json_settings(const struct bench *b)
{
    const struct bench_settings *s = b->settings;
    struct bn_json *o = report_engine(&b->single_info, b->info.backend);
    set_text(o, "hugepages", b->info.memory.hugepages);
    set_text(o, "hugepages_engine", b->single_info.hugepages ? b->single_info.hugepages : "");
    set_int(o, "locked_bytes", b->info.memory.locked_bytes + b->single_info.locked_bytes);
    set_text(o, "no_mmap", s->no_mmap ? "on" : "off");
    set_int(o, "prefetch_bytes", b->info.memory.prefetch_bytes);
    set_text(o, "engine_warmup", s->engine_warmup ? "on" : "off");
    set_int(o, "max_new_tokens", s->max_new_tokens);
    set_int(o, "warmup", s->warmup);
    set_int(o, "repeat", s->repeat);
    set_int(o, "seed", s->seed);
    set_text(o, "tuned", s->tuned);
    set_text(o, "plan", b->single_info.plan.from ? b->single_info.plan.from : "");
    return o;
}

struct bn_json *bench_report(const struct bench *b)
{
    struct bn_json *o = bn_json_object(), *items = bn_json_array(), *notes = bn_json_array();
    double *scratch = bn_calloc(b->settings->repeat, sizeof *scratch);
    char date[32];
    machine_date(date, sizeof date);
    if (!o || !items || !notes || !scratch) {
        bn_json_free(o);
        bn_json_free(items);
        bn_json_free(notes);
        free(scratch);
        return NULL;
    }
    for (size_t i = 0; i < b->n_items; i++)
        bn_json_append(items, json_measurement(b, &b->items[i], scratch));
    for (size_t i = 0; i < b->n_notes; i++) bn_json_append(notes, bn_json_string(b->notes[i]));
    set_text(o, "format", BENCH_FORMAT);
    set_text(o, "date", date);
    set_text(o, "version", bitnet_version());
    set_text(o, "commit", program_commit());
    bn_json_set(o, "machine", json_machine(b));
    bn_json_set(o, "model", report_model(&b->info));
    bn_json_set(o, "settings", json_settings(b));
    if (b->single) bn_json_set(o, "ffn", ffn_report(b->single));
    set_real(o, "load_ms", (double)b->info.load_ns / 1e6);
    set_int(o, "peak_rss_bytes", b->peak_rss_bytes);
    set_int(o, "kv_bytes", b->single_info.kv.bytes + b->batch_info.kv.bytes);
    set_int(o, "state_bytes", b->single_info.states.bytes + b->batch_info.states.bytes);
    set_int(o, "scratch_bytes", b->single_info.scratch_bytes + b->batch_info.scratch_bytes);
    bn_json_set(o, "measurements", items);
    bn_json_set(o, "notes", notes);
    free(scratch);
    return o;
}

/* ------------------------------------------------------------------ showing it */

static void print_head(const struct bn_json *r)
{
    const struct bn_json *machine = bn_json_get(r, "machine");
    char rss[TERM_SIZE_BYTES];
    report_print_subject(r);
    printf("load %.0f ms, peak memory %s, memory read %.1f GB/s\n\n", report_number(r, "load_ms"),
           term_size(rss, (uint64_t)report_number(r, "peak_rss_bytes")),
           report_number(machine, "read_bandwidth_gb_s"));
}

static void print_line(const struct bn_json *m)
{
    const struct bn_json *step = bn_json_get(m, "step_ms"), *first = bn_json_get(m, "ttft_ms"),
                         *share = bn_json_get(m, "roofline_share");
    printf("%-14s %9.1f %7.1f %%", report_text(m, "name"), report_number(m, "median"),
           report_number(m, "spread") * 100);
    if (first) printf(" %9.1f", bn_json_number(first));
    else printf(" %9s", "-");
    if (!step) {
        printf(" %8s %8s %8s %9s %8s %8s\n", "-", "-", "-", "-", "-", "-");
        return;
    }
    printf(" %8.2f %8.2f %8.2f %9.1f", report_number(step, "p50"), report_number(step, "p95"),
           report_number(step, "p99"), report_number(m, "bytes_per_token") / 1e6);
    if (bn_json_is_number(share)) printf(" %6.0f %%", bn_json_number(share) * 100);
    else printf(" %8s", "-");
    printf(" %6.1f %%\n", report_number(m, "forward_share") * 100);
}

const char bench_beyond_words[] =
    "A roofline above 100 %: weights come from the CPU's caches, which are faster than the memory "
    "that the roofline is measured on. Models larger than the caches stay below";

bool bench_beyond_memory(const struct bn_json *r)
{
    const struct bn_json *items = bn_json_get(r, "measurements"), *m;
    size_t i;
    bn_json_each(items, i, m) if (report_number(m, "roofline_share") > 1.005) return true;
    return false;
}

void bench_print_report(const struct bn_json *r)
{
    const struct bn_json *items = bn_json_get(r, "measurements");
    print_head(r);
    if (strcmp(report_text(bn_json_at(items, 0), "mode"), "kernels") == 0) {
        bench_print_kernels(items);
        return;
    }
    if (strcmp(report_text(bn_json_at(items, 0), "mode"), "kv") == 0) {
        bench_print_kv(items);
        return;
    }
    printf("%s%-14s %9s %9s %9s %8s %8s %8s %9s %8s %8s%s\n", term_style(stdout, TERM_BOLD), "",
           "tok/s", "spread", "first ms", "step P50", "P95", "P99 ms", "MB/token", "roofline",
           "forward", term_style(stdout, TERM_PLAIN));
    for (size_t i = 0; i < bn_json_size(items); i++) print_line(bn_json_at(items, i));
    if (bench_beyond_memory(r)) printf("%s.\n", bench_beyond_words);
}

/* ------------------------------------------------------------------ reading it back */

static bitnet_status check_measurement(const struct bn_json *m, size_t i, const char *path,
                                       bitnet_error *err)
{
    const struct bn_json *repeats = bn_json_get(m, "repeats");
    if (!*report_text(m, "name") || bn_json_size(repeats) == 0)
        return bn_fail(err, BITNET_E_FORMAT, "'%s': measurement %zu has no name or no repeats",
                       path, i);
    for (size_t k = 0; k < bn_json_size(repeats); k++)
        if (!(bn_json_number(bn_json_at(repeats, k)) > 0))
            return bn_fail(err, BITNET_E_FORMAT, "'%s': repeat %zu of '%s' is not a number above 0",
                           path, k, report_text(m, "name"));
    return BITNET_OK;
}

bitnet_status bench_read_report(struct bn_json **out, const char *path, bitnet_error *err)
{
    *out = NULL;
    struct bn_json *j = NULL;
    BN_TRY(bn_json_read_file(&j, path, BENCH_REPORT_MAX_BYTES, err));
    bitnet_status s = BITNET_OK;
    const struct bn_json *items = bn_json_get(j, "measurements");
    if (strcmp(report_text(j, "format"), BENCH_FORMAT) != 0 || !bn_json_is_array(items))
        s = bn_fail(err, BITNET_E_FORMAT, "'%s' is no report of bitnet bench (format %s)", path,
                    BENCH_FORMAT);
    for (size_t i = 0; s == BITNET_OK && i < bn_json_size(items); i++)
        s = check_measurement(bn_json_at(items, i), i, path, err);
    if (s == BITNET_OK) *out = j;
    else bn_json_free(j);
    return s;
}
