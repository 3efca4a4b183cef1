/* SPDX-License-Identifier: Apache-2.0
 *
 * profile/report.c: a run as a JSON report. Tables, verdict and pages are made from it, so that
 * none can show what the report does not say.
 *
 * Times are means over the workers: what one of them spends on an operation while the others wait
 * counts as their waiting. So the parts of a phase add up to its time by the clock.
 */
#include "base/os/mem.h"
#include "app/machine_report.h"
#include "cli/profile/profile.h"
#include "app/report.h"
#include "app/stats.h"
#include <stdlib.h>

static double per(double a, double b) { return b > 0 ? a / b : 0; }

static struct bn_json *unavailable(const char *why)
{
    struct bn_json *o = bn_json_object();
    set_text(o, "unavailable", why);
    return o;
}

/* ------------------------------------------------------------------ operations, kinds, layers */

/* A phase as its members are made. */
struct view {
    const struct profile *p;
    const struct profile_phase *x;
    double tokens, workers;
};

static struct profile_sum op_sum(const struct view *v, uint32_t op)
{
    struct profile_sum s = {0};
    for (uint32_t w = 0; w < v->p->n_workers; w++) {
        const struct profile_sum *one = &v->x->by_worker[(size_t)w * v->p->n_ops + op];
        s.ns += one->ns;
        s.bytes += one->bytes;
        s.macs += one->macs;
        if (one->calls > s.calls) s.calls = one->calls; /* they make them together */
    }
    return s;
}

/* ns of a sum over workers, for a token. */
static double ns_per_token(const struct view *v, uint64_t ns)
{
    return per((double)ns, v->workers * v->tokens);
}

static void set_speed(struct bn_json *o, const struct view *v, double bytes, double seconds)
{
    double speed = per(bytes, seconds);
    set_real(o, "bytes_per_s", speed);
    bn_json_set(o, "roofline_share",
                v->p->bandwidth > 0 ? bn_json_real(speed / v->p->bandwidth) : bn_json_null());
}

static struct bn_json *json_ops(const struct view *v, double all_ns)
{
    struct bn_json *a = bn_json_array();
    for (uint32_t i = 0; i < v->p->n_ops; i++) {
        struct profile_sum s = op_sum(v, i);
        if (!s.ns && !s.calls) continue;
        double mean_ns = (double)s.ns / v->workers;
        struct bn_json *o = bn_json_object();
        set_text(o, "op", v->p->ops[i].name);
        set_text(o, "kind", v->p->ops[i].kind);
        set_real(o, "calls_per_token", per((double)s.calls, v->tokens));
        set_real(o, "ns_per_token", ns_per_token(v, s.ns));
        set_real(o, "share", per(mean_ns, all_ns));
        set_real(o, "bytes_per_token", per((double)s.bytes, v->tokens));
        set_speed(o, v, (double)s.bytes, mean_ns / 1e9);
        set_real(o, "macs_per_s", per((double)s.macs, mean_ns / 1e9));
        bn_json_append(a, o);
    }
    return a;
}

/* In the order of their first operations. */
static struct bn_json *json_kinds(const struct view *v, double all_ns)
{
    struct bn_json *a = bn_json_array();
    for (uint32_t i = 0; i < v->p->n_ops; i++) {
        const char *kind = v->p->ops[i].kind;
        uint32_t first = 0;
        while (strcmp(v->p->ops[first].kind, kind) != 0) first++;
        if (first < i) continue; /* had it */
        struct profile_sum s = {0};
        for (uint32_t k = i; k < v->p->n_ops; k++) {
            if (strcmp(v->p->ops[k].kind, kind) != 0) continue;
            struct profile_sum one = op_sum(v, k);
            s.ns += one.ns;
            s.bytes += one.bytes;
        }
        if (!s.ns) continue;
        struct bn_json *o = bn_json_object();
        set_text(o, "kind", kind);
        set_real(o, "ns_per_token", ns_per_token(v, s.ns));
        set_real(o, "share", per((double)s.ns / v->workers, all_ns));
        set_real(o, "bytes_per_token", per((double)s.bytes, v->tokens));
        bn_json_append(a, o);
    }
    return a;
}

static struct bn_json *json_layers(const struct view *v)
{
    struct bn_json *a = bn_json_array();
    for (uint32_t row = 1; row < v->p->n_rows; row++) {
        const struct profile_sum *sums = &v->x->by_row[(size_t)row * v->p->n_ops];
        struct bn_json *o = bn_json_object(), *ops = bn_json_object();
        uint64_t ns = 0;
        for (uint32_t i = 0; i < v->p->n_ops; i++) {
            if (!sums[i].ns) continue;
            set_real(ops, v->p->ops[i].name, ns_per_token(v, sums[i].ns));
            ns += sums[i].ns;
        }
        set_int(o, "layer", row - 1);
        set_real(o, "ns_per_token", ns_per_token(v, ns));
        bn_json_set(o, "ops", ops);
        bn_json_append(a, o);
    }
    return a;
}

static struct bn_json *json_worker(const struct view *v, uint32_t worker)
{
    const struct profile_sum *sums = &v->x->by_worker[(size_t)worker * v->p->n_ops];
    struct bn_json *o = bn_json_object(), *kinds = bn_json_object();
    double all = 0, wait = 0, idle = 0;
    for (uint32_t i = 0; i < v->p->n_ops; i++) {
        const struct profile_op *op = &v->p->ops[i];
        double ns = per((double)sums[i].ns, v->tokens);
        if (ns <= 0) continue;
        all += ns;
        if (strcmp(op->name, "wait") == 0) wait += ns;
        if (strcmp(op->name, "idle") == 0) idle += ns;
        set_real(kinds, op->kind, ns + bn_json_number(bn_json_get(kinds, op->kind)));
    }
    set_int(o, "worker", worker);
    bn_json_set(o, "kinds", kinds);
    set_real(o, "busy_ns_per_token", all - wait - idle);
    set_real(o, "wait_ns_per_token", wait);
    set_real(o, "idle_ns_per_token", idle);
    set_real(o, "wait_share", per(wait + idle, all));
    return o;
}

/* ------------------------------------------------------------------ steps, counters, energy */

static struct bn_json *json_step_times(const struct profile *p, bitnet_phase phase)
{
    struct bn_json *o = bn_json_object();
    double *ms = bn_calloc(p->n_steps + 1, sizeof *ms);
    size_t n = 0;
    for (size_t i = 0; ms && i < p->n_steps; i++)
        if (p->steps[i].phase == phase) ms[n++] = (double)p->steps[i].ns / 1e6;
    if (ms) stats_sort(ms, n);
    set_real(o, "p50", stats_quantile(ms, n, 0.5));
    set_real(o, "p90", stats_quantile(ms, n, 0.9));
    set_real(o, "p99", stats_quantile(ms, n, 0.99));
    set_real(o, "max", stats_quantile(ms, n, 1));
    free(ms);
    return o;
}

static struct bn_json *json_counter(const double *count, enum counter c, double tokens)
{
    struct bn_json *o = bn_json_object();
    set_real(o, "per_token", per(count[c], tokens));
    if (c == COUNTER_CYCLES && count[COUNTER_TASK_CLOCK] > 0)
        set_real(o, "ghz", count[c] / count[COUNTER_TASK_CLOCK]);
    if (c == COUNTER_INSTRUCTIONS && count[COUNTER_CYCLES] > 0)
        set_real(o, "per_cycle", count[c] / count[COUNTER_CYCLES]);
    if ((c == COUNTER_CACHE_MISSES || c == COUNTER_BRANCH_MISSES) &&
        count[COUNTER_INSTRUCTIONS] > 0)
        set_real(o, "per_1000_instructions", count[c] * 1e3 / count[COUNTER_INSTRUCTIONS]);
    return o;
}

static struct bn_json *json_counters(const struct view *v)
{
    const struct counters *c = &v->p->counters;
    struct bn_json *o = bn_json_object();
    double count[COUNTERS];
    char why[200];
    int n = 0, paranoid = counters_paranoid("");
    for (int i = 0; i < COUNTERS; i++) {
        count[i] = counter_between(&v->x->from.counters[i], &v->x->to.counters[i]);
        n += !c->refused[i];
    }
    if (!n) {
        bn_json_free(o);
        counters_explain(why, sizeof why, c->refused[0], paranoid);
        return unavailable(why);
    }
    for (int i = 0; i < COUNTERS; i++) {
        if (c->refused[i]) counters_explain(why, sizeof why, c->refused[i], paranoid);
        bn_json_set(o, counter_name((enum counter)i),
                    c->refused[i] ? unavailable(why)
                                  : json_counter(count, (enum counter)i, v->tokens));
    }
    return o;
}

static struct bn_json *json_energy(const struct view *v)
{
    if (v->p->energy.none) return unavailable(v->p->energy.none);
    const struct profile_gauges *from = &v->x->from, *to = &v->x->to;
    double joules = to->joules - from->joules;
    struct bn_json *o = bn_json_object();
    set_real(o, "joules_per_token", per(joules, v->tokens));
    set_real(o, "watts", per(joules, (double)(to->at_ns - from->at_ns) / 1e9));
    return o;
}

/* ------------------------------------------------------------------ phases */

static struct bn_json *json_phase(const struct profile *p, bitnet_phase phase)
{
    const struct profile_phase *x = &p->phases[phase];
    struct view v = {p, x, (double)x->n_tokens, p->n_workers};
    double wall_ns = (double)x->wall_ns, parts_ns = 0, bytes = 0, matrix_ns = 0, macs = 0;
    struct bn_json *o = bn_json_object(), *workers = bn_json_array(), *faults = bn_json_object();
    for (uint32_t i = 0; i < p->n_ops; i++) {
        struct profile_sum s = op_sum(&v, i);
        parts_ns += (double)s.ns / v.workers;
        bytes += (double)s.bytes;
        if (strcmp(p->ops[i].kind, "matrix") != 0) continue;
        matrix_ns += (double)s.ns / v.workers;
        macs += (double)s.macs;
    }
    set_int(o, "tokens", x->n_tokens);
    set_int(o, "steps", x->n_steps);
    set_int(o, "wall_ns", x->wall_ns);
    set_real(o, "parts_ns", parts_ns);
    set_real(o, "parts_share", per(parts_ns, wall_ns));
    set_real(o, "tok_per_s", per(v.tokens, wall_ns / 1e9));
    set_real(o, "bytes_per_token", per(bytes, v.tokens));
    set_speed(o, &v, bytes, wall_ns / 1e9);
    if (phase == BITNET_PHASE_PREFILL && p->kernel_macs_per_s > 0)
        set_real(o, "kernel_share", per(macs, matrix_ns / 1e9) / p->kernel_macs_per_s);
    bn_json_set(o, "kinds", json_kinds(&v, parts_ns));
    bn_json_set(o, "ops", json_ops(&v, parts_ns));
    bn_json_set(o, "layers", json_layers(&v));
    for (uint32_t w = 0; w < p->n_workers; w++) bn_json_append(workers, json_worker(&v, w));
    bn_json_set(o, "workers", workers);
    bn_json_set(o, "step_ms", json_step_times(p, phase));
    bn_json_set(o, "counters", json_counters(&v));
    set_real(faults, "minor_per_token", per((double)x->minor_faults, v.tokens));
    set_real(faults, "major_per_token", per((double)x->major_faults, v.tokens));
    bn_json_set(o, "page_faults", faults);
    set_real(o, "context_switches_per_token", per((double)x->switches, v.tokens));
    set_real(o, "forced_switches_per_token", per((double)x->switches_forced, v.tokens));
    set_real(o, "heap_allocations_per_token", per((double)x->heap_calls, v.tokens));
    bn_json_set(o, "energy", json_energy(&v));
    return o;
}

/* ------------------------------------------------------------------ the machine */

static struct bn_json *json_machine(const struct profile *p)
{
    struct bn_json *o = bn_json_object();
    char text[256];
    machine_cpu_name(text, sizeof text);
    set_text(o, "cpu", text);
    machine_cpu_list(text, sizeof text);
    set_text(o, "cpus", text);
    set_int(o, "threads", p->engine_info.threads);
    set_int(o, "usable_cpus", (uint64_t)CPU_COUNT(&p->cpus));
    set_int(o, "default_threads", bitnet_default_threads());
    set_real(o, "bandwidth_bytes_per_s", p->bandwidth);
    bn_json_set(o, "others", p->others < 0 ? bn_json_null() : bn_json_real(p->others));
    return o;
}

static struct bn_json *json_settings(const struct profile *p)
{
    const struct profile_settings *s = p->settings;
    struct bn_json *o = report_engine(&p->engine_info, p->info.backend);
    set_int(o, "prompt_tokens", s->prompt_tokens);
    set_int(o, "max_new_tokens", s->new_tokens);
    set_int(o, "batch", s->batch);
    set_int(o, "seed", s->seed);
    bn_json_set(o, "trace", bn_json_bool(s->trace));
    return o;
}

static struct bn_json *json_frequency(const struct profile *p)
{
    if (!p->n_clocks) return unavailable("neither cpufreq nor /proc/cpuinfo tells the CPU's clock");
    struct sensor_clock all = p->clocks[0].clock;
    struct bn_json *series = bn_json_array(); /* of seconds and MHz */
    double sum = 0, celsius;
    for (size_t i = 0; i < p->n_clocks; i++) {
        const struct sensor_clock *c = &p->clocks[i].clock;
        double seconds = (double)(p->clocks[i].at_ns - p->clocks[0].at_ns) / 1e9;
        bn_json_append(series, bn_json_pack("[f, f]", seconds, c->mean_mhz));
        sum += c->mean_mhz;
        if (c->min_mhz < all.min_mhz) all.min_mhz = c->min_mhz;
        if (c->max_mhz > all.max_mhz) all.max_mhz = c->max_mhz;
    }
    bool cpuinfo = p->clock_source == SENSOR_CPUINFO;
    struct bn_json *o = bn_json_object();
    set_text(o, "source", cpuinfo ? "cpuinfo" : "cpufreq");
    set_int(o, "samples", p->n_clocks);
    set_real(o, "mean_mhz", sum / (double)p->n_clocks);
    set_real(o, "min_mhz", all.min_mhz);
    set_real(o, "max_mhz", all.max_mhz);
    bn_json_set(o, "series", series);
    double before = p->phases[BITNET_PHASE_PREFILL].from.throttled,
           after = p->phases[BITNET_PHASE_DECODE].to.throttled;
    bn_json_set(o, "throttle_events",
                before < 0 || after < 0 ? bn_json_null() : bn_json_real(after - before));
    bn_json_set(o, "temperature_c",
                sensors_temperature(&celsius, "") ? bn_json_real(celsius) : bn_json_null());
    return o;
}

/* What the marks of the busiest worker cost while decoding. */
static struct bn_json *json_overhead(const struct profile *p)
{
    const struct profile_phase *x = &p->phases[BITNET_PHASE_DECODE];
    double marks = (double)(x->to.marks - x->from.marks);
    struct bn_json *o = bn_json_object();
    set_real(o, "mark_ns", p->prof.mark_ns);
    set_real(o, "marks_per_token", per(marks, (double)x->n_tokens));
    set_real(o, "share", per(marks * p->prof.mark_ns, (double)x->wall_ns));
    return o;
}

static struct bn_json *json_memory(const struct profile *p)
{
    struct bn_json *o = bn_json_object();
    set_int(o, "peak_rss_bytes", p->peak_rss_bytes);
    set_int(o, "packed_bytes", p->info.memory.packed_bytes);
    set_int(o, "kv_bytes", p->engine_info.kv.bytes);
    set_int(o, "kv_token_bytes", p->engine_info.kv.token_bytes);
    set_int(o, "state_bytes", p->engine_info.states.bytes);
    set_int(o, "scratch_bytes", p->engine_info.scratch_bytes);
    return o;
}

struct bn_json *profile_report(const struct profile *p)
{
    struct bn_json *o = bn_json_object(), *phases = bn_json_object(), *notes = bn_json_array();
    char date[32];
    machine_date(date, sizeof date);
    set_text(o, "format", PROFILE_FORMAT);
    set_text(o, "date", date);
    set_text(o, "version", bitnet_version());
    set_text(o, "commit", program_commit());
    bn_json_set(o, "machine", json_machine(p));
    bn_json_set(o, "model", report_model(&p->info));
    bn_json_set(o, "settings", json_settings(p));
    for (int i = 0; i < PROFILE_PHASES; i++)
        bn_json_set(phases, profile_phase_name((bitnet_phase)i), json_phase(p, (bitnet_phase)i));
    bn_json_set(o, "phases", phases);
    bn_json_set(o, "frequency", json_frequency(p));
    bn_json_set(o, "overhead", json_overhead(p));
    bn_json_set(o, "memory", json_memory(p));
    char *verdict = profile_verdict(o);
    if (verdict) set_text(o, "verdict", verdict);
    free(verdict);
    for (size_t i = 0; i < p->n_notes; i++)
        bn_json_append(notes, term_json_string(p->notes[i], strlen(p->notes[i])));
    bn_json_set(o, "notes", notes);
    if (bn_json_get(o, "verdict") && bn_json_get(o, "notes")) return o;
    bn_json_free(o);
    return NULL;
}
