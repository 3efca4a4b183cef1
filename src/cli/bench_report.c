/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_report.c: a run as a JSON report, and a report as a table. The table, the plot and the
 * comparison are all made from the report, so that none can show what the file does not say.
 */
#include "base/mem.h"
#include "cli/bench.h"
#include "cli/ffn_report.h"
#include "cli/report_set.h"
#include "cli/term.h"
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
    bench_sort(ms, n);
    set_int(o, "n", n);
    set_real(o, "mean", n ? sum / (double)n : 0);
    set_real(o, "p50", bench_quantile(ms, n, 0.50));
    set_real(o, "p95", bench_quantile(ms, n, 0.95));
    set_real(o, "p99", bench_quantile(ms, n, 0.99));
    set_real(o, "max", bench_quantile(ms, n, 1));
    return o;
}

static void set_summary(struct bn_json *o, const struct bench_measurement *m, const char *unit,
                        const struct bench_summary *s)
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
    set(o, "repeats", numbers(m->rates, m->n_repeats));
}

static struct bn_json *json_kernel(const struct bench *b, const struct bench_measurement *m,
                                   double *scratch)
{
    struct bn_json *o = bn_json_object();
    const bitnet_kernel_case *c = &m->kernel;
    const struct bench_measurement *ref = bench_kernel_reference(b, c);
    struct bench_summary s = bench_summarize(m->rates, m->n_repeats, scratch);
    double ns = s.median > 0 ? bench_kernel_amount(c) / s.median : 0;
    set_summary(o, m, bench_kernel_unit(c), &s);
    set_text(o, "op", c->op);
    set_text(o, "isa", c->isa);
    set_text(o, "work", c->work);
    set(o, "chosen", bn_json_bool(c->chosen));
    set_real(o, "ns", ns);
    set_real(o, "gb_s", ns > 0 ? c->bytes / ns : 0);
    double ref_rate = ref ? bench_summarize(ref->rates, ref->n_repeats, scratch).median : 0;
    set(o, "ratio_to_scalar", ref_rate > 0 ? bn_json_real(s.median / ref_rate) : bn_json_null());
    return o;
}

/* Changes are those from the default type. */
static void set_kv(struct bn_json *o, const struct bench *b, const struct bench_measurement *m,
                   double median, double *scratch)
{
    const struct bench_measurement *base = bench_kv_base(b, m);
    const struct bench_kv *kv = m->kv;
    double speed = bench_summarize(base->rates, base->n_repeats, scratch).median;
    set_text(o, "kv_type", kv->info.kv_type);
    set_int(o, "kv_token_bytes", kv->info.kv_token_bytes);
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
    struct bench_summary s = bench_summarize(m->rates, m->n_repeats, scratch);
    double seqs = m->mode == BENCH_BATCH ? m->at : 1, bandwidth = b->read_bandwidth;
    set_summary(o, m, "tok/s", &s);
    set_int(o, "at", m->at);
    if (m->mode == BENCH_STREAM || m->mode == BENCH_PREFILL) {
        set_real(o, "ttft_ms", bench_summarize(m->first_ms, m->n_repeats, scratch).median);
        set(o, "ttft_ms_repeats", numbers(m->first_ms, m->n_repeats));
    }
    if (m->mode == BENCH_PREFILL) return o;
    if (m->kv) set_kv(o, b, m, s.median, scratch);
    set_int(o, "new_tokens", m->n_new);
    set(o, "step_ms", step_times(m->step_ms, m->n_steps));
    set_real(o, "bytes_per_step", m->bytes_per_step);
    set_real(o, "bytes_per_token", m->bytes_per_step / seqs);
    double read = m->bytes_per_step * s.median / seqs;
    set_real(o, "read_gb_s", read / 1e9);
    set(o, "roofline_share", bandwidth > 0 ? bn_json_real(read / bandwidth) : bn_json_null());
    if (m->step_ns > 0) set_real(o, "forward_share", m->forward_ns / m->step_ns);
    return o;
}

struct bn_json *bench_model_json(const bitnet_model_info *m)
{
    struct bn_json *o = bn_json_object();
    set_text(o, "name", m->name);
    set_text(o, "architecture", m->architecture);
    set_int(o, "parameters", m->n_params);
    set_int(o, "parameters_ternary", m->n_params_ternary);
    set_int(o, "layers", m->n_layer);
    set_int(o, "vocab", m->n_vocab);
    set_text(o, "weight_type", m->weight_type);
    set_text(o, "layout", m->layout);
    set_text(o, "head_type", m->head_type);
    set_text(o, "act_quant", m->act_quant);
    set_int(o, "file_bytes", m->file_bytes);
    set_int(o, "layer_bytes", m->layer_bytes);
    set_int(o, "head_bytes", m->head_bytes);
    set_int(o, "head_copy_bytes", m->head_copy_bytes);
    set_int(o, "head_screen_bytes", m->head_screen_bytes);
    set_int(o, "ffn_copy_bytes", m->ffn_copy_bytes);
    set_int(o, "numa_nodes", m->numa_nodes);
    set_int(o, "numa_near_bytes", m->numa_near_bytes);
    return o;
}

static struct bn_json *json_machine(const struct bench *b)
{
    struct bn_json *o = bn_json_object();
    char text[256];
    double *scratch = bn_calloc(b->n_bandwidth + 1, sizeof *scratch);
    bench_cpu_name(text, sizeof text);
    set_text(o, "cpu", text);
    bench_cpu_list(text, sizeof text);
    set_text(o, "cpus", text);
    set_int(o, "cores", b->load.cores);
    set_int(o, "usable_cores", bitnet_default_threads());
    set(o, "load_average", b->load.average < 0 ? bn_json_null() : bn_json_real(b->load.average));
    set(o, "other_programs_share",
        b->load.others < 0 ? bn_json_null() : bn_json_real(b->load.others));
    set(o, "disturbed", bn_json_bool(b->load.disturbed));
    set_real(o, "read_bandwidth_gb_s", b->read_bandwidth / 1e9);
    struct bn_json *all = bn_json_array();
    for (size_t i = 0; i < b->n_bandwidth; i++)
        bn_json_append(all, bn_json_real(b->bandwidth[i] / 1e9));
    set(o, "read_bandwidth_gb_s_repeats", all);
    if (scratch)
        set_real(o, "read_bandwidth_spread",
                 bench_summarize(b->bandwidth, b->n_bandwidth, scratch).spread);
    set_int(o, "read_buffer_bytes", b->bandwidth_buffer_bytes);
    free(scratch);
    return o;
}

struct bn_json *bench_engine_json(const bitnet_engine_info *e, const char *backend)
{
    struct bn_json *o = bn_json_object();
    set_int(o, "threads", e->threads);
    set_int(o, "pinned", e->pinned);
    set_text(o, "backend", backend);
    set_text(o, "kv_type", e->kv_type);
    set_text(o, "head", e->head);
    set_text(o, "ffn", e->ffn);
    set_int(o, "ctx_size", e->ctx_tokens);
    set_int(o, "max_batch_tokens", e->max_batch_tokens);
    return o;
}

static struct bn_json *json_settings(const struct bench *b)
{
    const struct bench_settings *s = b->settings;
    struct bn_json *o = bench_engine_json(&b->single_info, b->info.backend);
    set_text(o, "hugepages", b->info.hugepages);
    set_text(o, "hugepages_engine", b->single_info.hugepages ? b->single_info.hugepages : "");
    set_int(o, "locked_bytes", b->info.locked_bytes + b->single_info.locked_bytes);
    set_text(o, "no_mmap", s->no_mmap ? "on" : "off");
    set_int(o, "prefetch_bytes", b->info.prefetch_bytes);
    set_text(o, "engine_warmup", s->engine_warmup ? "on" : "off");
    set_int(o, "max_new_tokens", s->max_new_tokens);
    set_int(o, "warmup", s->warmup);
    set_int(o, "repeat", s->repeat);
    set_int(o, "seed", s->seed);
    set_text(o, "tuned", s->tuned);
    return o;
}

struct bn_json *bench_report(const struct bench *b)
{
    struct bn_json *o = bn_json_object(), *items = bn_json_array(), *notes = bn_json_array();
    double *scratch = bn_calloc(b->settings->repeat, sizeof *scratch);
    char date[32];
    bench_date(date, sizeof date);
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
    set_text(o, "commit", bench_commit());
    set(o, "machine", json_machine(b));
    set(o, "model", bench_model_json(&b->info));
    set(o, "settings", json_settings(b));
    if (b->single) set(o, "ffn", ffn_report(b->single));
    set_real(o, "load_ms", (double)b->info.load_ns / 1e6);
    set_int(o, "peak_rss_bytes", b->peak_rss_bytes);
    set_int(o, "kv_bytes", b->single_info.kv_bytes + b->batch_info.kv_bytes);
    set_int(o, "state_bytes", b->single_info.state_bytes + b->batch_info.state_bytes);
    set_int(o, "scratch_bytes", b->single_info.scratch_bytes + b->batch_info.scratch_bytes);
    set(o, "measurements", items);
    set(o, "notes", notes);
    free(scratch);
    return o;
}

/* ------------------------------------------------------------------ showing it */

static double mean_share(const struct bn_json *shares)
{
    double sum = 0, n = 0;
    for (size_t i = 0; i < bn_json_size(shares); i++)
        if (bn_json_is_number(bn_json_at(shares, i)))
            sum += bn_json_number(bn_json_at(shares, i)), n++;
    return n > 0 ? sum / n : 0;
}

/* Feed-forward layers, if a token decoded alone takes them in part. */
static void print_ffn(const struct bn_json *ffn)
{
    if (bench_number(ffn, "tokens") == 0) return;
    printf(", ffn %s (open gates %.0f %%, inputs %.0f %%)", bench_text(ffn, "mode"),
           mean_share(bn_json_get(ffn, "gates_open")) * 100,
           mean_share(bn_json_get(ffn, "inputs_nonzero")) * 100);
}

void bench_print_subject(const struct bn_json *r)
{
    const struct bn_json *machine = bn_json_get(r, "machine"), *model = bn_json_get(r, "model"),
                         *s = bn_json_get(r, "settings");
    char params[TERM_SIZE_BYTES], file[TERM_SIZE_BYTES];
    int threads = (int)bench_number(s, "threads");
    double p = bench_number(model, "parameters");
    snprintf(params, sizeof params, p >= 1e9 ? "%.2fB" : "%.1fM", p >= 1e9 ? p / 1e9 : p / 1e6);
    printf("bitnet %s (%s), ", bench_text(r, "version"), bench_text(r, "commit"));
    term_print_clean(stdout, bench_text(machine, "cpu"));
    printf("\n%s kernels, %d thread%s on CPU %s", bench_text(s, "backend"), threads,
           threads == 1 ? "" : "s", bench_text(machine, "cpus"));
    if (*bench_text(s, "kv_type")) printf(", KV cache %s", bench_text(s, "kv_type"));
    print_ffn(bn_json_get(r, "ffn"));
    printf("\n");
    term_print_clean(stdout, bench_text(model, "name"));
    printf(": %s parameters, %s as %s, head %s%s%s, file %s\n", params,
           bench_text(model, "weight_type"),
           *bench_text(model, "layout") ? bench_text(model, "layout") : "floats",
           bench_text(model, "head_type"), *bench_text(s, "head") ? " " : "", bench_text(s, "head"),
           term_size(file, (uint64_t)bench_number(model, "file_bytes")));
}

static void print_head(const struct bn_json *r)
{
    const struct bn_json *machine = bn_json_get(r, "machine");
    char rss[TERM_SIZE_BYTES];
    bench_print_subject(r);
    printf("load %.0f ms, peak memory %s, memory read %.1f GB/s\n\n", bench_number(r, "load_ms"),
           term_size(rss, (uint64_t)bench_number(r, "peak_rss_bytes")),
           bench_number(machine, "read_bandwidth_gb_s"));
}

static void print_line(const struct bn_json *m)
{
    const struct bn_json *step = bn_json_get(m, "step_ms"), *first = bn_json_get(m, "ttft_ms"),
                         *share = bn_json_get(m, "roofline_share");
    printf("%-14s %9.1f %7.1f %%", bench_text(m, "name"), bench_number(m, "median"),
           bench_number(m, "spread") * 100);
    if (first) printf(" %9.1f", bn_json_number(first));
    else printf(" %9s", "-");
    if (!step) {
        printf(" %8s %8s %8s %9s %8s %8s\n", "-", "-", "-", "-", "-", "-");
        return;
    }
    printf(" %8.2f %8.2f %8.2f %9.1f", bench_number(step, "p50"), bench_number(step, "p95"),
           bench_number(step, "p99"), bench_number(m, "bytes_per_token") / 1e6);
    if (bn_json_is_number(share)) printf(" %6.0f %%", bn_json_number(share) * 100);
    else printf(" %8s", "-");
    printf(" %6.1f %%\n", bench_number(m, "forward_share") * 100);
}

void bench_print_report(const struct bn_json *r)
{
    const struct bn_json *items = bn_json_get(r, "measurements");
    print_head(r);
    if (strcmp(bench_text(bn_json_at(items, 0), "mode"), "kernels") == 0) {
        bench_print_kernels(items);
        return;
    }
    if (strcmp(bench_text(bn_json_at(items, 0), "mode"), "kv") == 0) {
        bench_print_kv(items);
        return;
    }
    printf("%s%-14s %9s %9s %9s %8s %8s %8s %9s %8s %8s%s\n", term_style(stdout, TERM_BOLD), "",
           "tok/s", "spread", "first ms", "step P50", "P95", "P99 ms", "MB/token", "roofline",
           "forward", term_style(stdout, TERM_PLAIN));
    for (size_t i = 0; i < bn_json_size(items); i++) print_line(bn_json_at(items, i));
}
