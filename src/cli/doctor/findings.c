/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor/findings.c: what is wrong with a machine, from facts alone. Every check leaves one finding,
 * also when all is well, unless what it is about is unknown or absent. docs/tune/doctor.md explains each.
 */
#include "cli/doctor/doctor.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const double doctor_serious = 0.10;

const char *doctor_severity_name(enum doctor_severity s)
{
    static const char *const names[] = {"ok", "note", "warning", "bad"};
    return names[s];
}

/* ------------------------------------------------------------------ writing findings */

struct doctor_finding *doctor_add(struct doctor_findings *out, const char *id,
                                  enum doctor_severity severity, const char *fmt, ...)
{
    struct doctor_finding *d = &out->items[out->n];
    if (out->n + 1 < DOCTOR_MAX_FINDINGS) out->n++; /* there are fewer checks than places */
    va_list args;
    *d = (struct doctor_finding){.id = id, .severity = severity, .basis = ""};
    va_start(args, fmt);
    vsnprintf(d->what, sizeof d->what, fmt, args);
    va_end(args);
    return d;
}

void doctor_cost(struct doctor_finding *d, double share, const char *basis, const char *fmt, ...)
{
    va_list args;
    d->cost = share;
    d->basis = basis;
    if (share > doctor_serious && d->severity < DOCTOR_WARNING) d->severity = DOCTOR_WARNING;
    va_start(args, fmt);
    vsnprintf(d->how, sizeof d->how, fmt, args);
    va_end(args);
}

void doctor_todo(struct doctor_finding *d, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(d->todo, sizeof d->todo, fmt, args);
    va_end(args);
}

/* ------------------------------------------------------------------ this program */

static void check_selftest(struct doctor_findings *out, const struct doctor_facts *f)
{
    if (f->selftest.status == BITNET_OK) {
        doctor_add(out, "selftest", DOCTOR_OK, "the %s kernels agree with the reference",
                   f->backend);
        return;
    }
    struct doctor_finding *d = doctor_add(out, "selftest", DOCTOR_BAD, "%s", f->selftest.text);
    doctor_cost(d, 1, "measured", "no model can be opened with these kernels");
    doctor_todo(d, "bitnet doctor --backend scalar, and report what this says");
}

/* From docs/tune/performance.md; of other pairs nobody has figures. */
static void check_backend(struct doctor_findings *out, const struct doctor_facts *f)
{
    bool best = strcmp(f->backend, f->best_backend) == 0;
    if (f->illegal) {
        struct doctor_finding *d =
            doctor_add(out, "backend", DOCTOR_BAD,
                       "%s kernels: this CPU says that it has %s, and ends with an illegal "
                       "instruction",
                       f->backend, f->illegal);
        doctor_todo(d, "give the virtual machine a CPU model that its host has");
        return;
    }
    if (best && strcmp(f->detected, f->best_backend) == 0)
        doctor_add(out, "backend", DOCTOR_OK, "%s kernels, the best for this CPU", f->backend);
    else if (best)
        doctor_add(out, "backend", DOCTOR_NOTE,
                   "%s kernels; this CPU also has %s, for which there are none yet", f->backend,
                   f->detected);
    if (best) return;
    struct doctor_finding *d =
        doctor_add(out, "backend", DOCTOR_NOTE, "%s kernels, though this CPU can run %s",
                   f->backend, f->best_backend);
    if (strcmp(f->backend, "scalar") == 0)
        doctor_cost(d, 0.9, "known", "vector kernels are ten times as fast");
    else if (strcmp(f->best_backend, "avx512") == 0)
        doctor_cost(d, 0.06, "known", "decoding 6 %% slower, eight requests at once 25 %%");
    doctor_todo(d, "leave out --backend and unset BITNET_BACKEND");
}

static void check_build(struct doctor_findings *out, const struct doctor_facts *f)
{
    if (f->optimized && !f->assertions) {
        doctor_add(out, "build", DOCTOR_OK, "a release build");
        return;
    }
    struct doctor_finding *d =
        doctor_add(out, "build", DOCTOR_NOTE, "this program was built %s",
                   f->optimized ? "with assertions" : "without optimization");
    if (!f->optimized)
        doctor_cost(d, 0.5, "known", "unoptimized kernels take twice the time or more");
    doctor_todo(d, "meson setup --reconfigure build --buildtype release && ninja -C build");
}

/* ------------------------------------------------------------------ CPUs */

static void check_quota(struct doctor_findings *out, const struct doctor_facts *f)
{
    const struct bn_cgroup *g = &f->machine.group;
    cpu_set_t fast = bn_topology_fast(&f->machine.cpus);
    uint32_t cores = bn_topology_groups(f->machine.cpus.core, &fast);
    if (g->quota_cpus <= 0) return;
    char past[96] = "";
    if (g->n_throttled)
        snprintf(past, sizeof past, "; it was used up in %.0f %% of the periods so far",
                 100.0 * (double)g->n_throttled / (double)g->n_periods);
    if (f->threads > g->quota_cpus) {
        struct doctor_finding *d = doctor_add(
            out, "quota", DOCTOR_NOTE, "the control group's quota is %.2f CPUs, for %u thread%s%s",
            g->quota_cpus, f->threads, f->threads == 1 ? "" : "s", past);
        doctor_cost(d, 1 - g->quota_cpus / f->threads, "reckoned",
                    "all threads stand still for that share of every period");
        char fewer[64] = "";
        if (g->quota_cpus >= 1)
            snprintf(fewer, sizeof fewer, ", or take --threads %u, which never pauses",
                     (uint32_t)g->quota_cpus);
        doctor_todo(d, "raise the quota to %u CPUs (docker update --cpus %u CONTAINER)%s",
                    f->threads, f->threads, fewer);
        return;
    }
    doctor_add(out, "quota", g->quota_cpus < cores ? DOCTOR_NOTE : DOCTOR_OK,
               "the control group's quota is %.2f CPUs; %u thread%s fit into it%s", g->quota_cpus,
               f->threads, f->threads == 1 ? "" : "s", past);
}

static void check_cpuset(struct doctor_findings *out, const struct doctor_facts *f)
{
    const struct bn_topology *t = &f->machine.cpus;
    char list[96];
    int usable = CPU_COUNT(&t->usable), online = CPU_COUNT(&t->online);
    bn_cpus_format(list, sizeof list, &t->usable);
    if (usable == online || f->cpus_given) {
        doctor_add(out, "cpus", DOCTOR_OK, "%d of %d CPUs may be used: %s", usable, online, list);
        return;
    }
    struct doctor_finding *d = doctor_add(
        out, "cpus", DOCTOR_NOTE, "only %d of %d CPUs may be used: %s", usable, online, list);
    doctor_todo(d, "where that is not meant, widen the affinity (taskset) or the cpuset%s%s%s",
                *f->machine.group.cpuset ? ", now " : "", f->machine.group.cpuset,
                *f->machine.group.cpuset ? "" : " of its container");
}

static void check_threads(struct doctor_findings *out, const struct doctor_facts *f)
{
    const struct bn_topology *t = &f->machine.cpus;
    uint32_t usable = (uint32_t)CPU_COUNT(&t->usable);
    uint32_t cores = bn_topology_groups(t->core, &t->usable);
    struct doctor_finding *d;
    if (f->threads > usable) {
        d = doctor_add(out, "threads", DOCTOR_NOTE, "%u threads on %u CPUs", f->threads, usable);
        doctor_cost(d, 1 - (double)usable / f->threads, "reckoned",
                    "threads that cannot run at once wait for each other at every barrier");
    } else if (f->threads > cores && f->threads > f->machine.default_threads) {
        d = doctor_add(out, "threads", DOCTOR_NOTE,
                       "%u threads on %u cores: siblings share what the kernels need most",
                       f->threads, cores);
    } else {
        doctor_add(out, "threads", DOCTOR_OK, "%u thread%s on %u usable core%s", f->threads,
                   f->threads == 1 ? "" : "s", cores, cores == 1 ? "" : "s");
        return;
    }
    doctor_todo(d, "leave out --threads, or take --threads %u", f->machine.default_threads);
}

static void check_hybrid(struct doctor_findings *out, const struct doctor_facts *f)
{
    cpu_set_t fast = bn_topology_fast(&f->machine.cpus);
    uint32_t cores = bn_topology_groups(f->machine.cpus.core, &fast);
    char list[96];
    if (CPU_EQUAL(&fast, &f->machine.cpus.usable)) return;
    bn_cpus_format(list, sizeof list, &fast);
    if (f->threads <= cores) {
        doctor_add(out, "hybrid", DOCTOR_OK,
                   "fast and slow cores; threads stay on the fast ones: %s", list);
        return;
    }
    struct doctor_finding *d = doctor_add(
        out, "hybrid", DOCTOR_WARNING,
        "%u threads, but %u fast cores: the rest waits for slow ones", f->threads, cores);
    snprintf(d->how, sizeof d->how, "the loss is not estimated: compare both with bitnet bench");
    doctor_todo(d, "--threads %u, or --cpus %s", cores, list);
}

static void check_numa(struct doctor_findings *out, const struct doctor_facts *f)
{
    const struct bn_machine *m = &f->machine;
    cpu_set_t nodes;
    uint32_t farthest = 0, n;
    CPU_ZERO(&nodes);
    for (unsigned c = 0; c < BN_MAX_CPUS; c++)
        if (CPU_ISSET(c, &m->cpus.usable) && m->cpus.node[c] != BN_NO_NODE)
            CPU_SET(m->cpus.node[c], &nodes);
    for (uint32_t i = 0; i < m->n_nodes; i++)
        if (m->nodes[i].farthest > farthest) farthest = m->nodes[i].farthest;
    n = (uint32_t)CPU_COUNT(&nodes);
    if (n < 2) return;
    if (f->numa_given) {
        doctor_add(out, "numa", DOCTOR_OK, "%u nodes, and --numa takes care of them", n);
        return;
    }
    struct doctor_finding *d =
        doctor_add(out, "numa", DOCTOR_NOTE,
                   "the usable CPUs lie in %u nodes, each with memory of its own", n);
    if (farthest > 10)
        doctor_cost(d, (n - 1.0) / n * (1 - 10.0 / farthest), "reckoned",
                    "%u of %u reads go to another node, at distance %u in place of 10", n - 1, n,
                    farthest);
    doctor_todo(d, "--numa distribute; for a model that one node can serve, --numa isolate");
}

/* ------------------------------------------------------------------ frequency */

static bool hardware_governs(const struct bn_machine *m)
{
    return strcmp(m->driver, "intel_pstate") == 0 || strncmp(m->driver, "amd-pstate", 10) == 0;
}

static bool among(const char *word, const char *a, const char *b, const char *c)
{
    return strcmp(word, a) == 0 || strcmp(word, b) == 0 || strcmp(word, c) == 0;
}

static void check_governor(struct doctor_findings *out, const struct doctor_facts *f)
{
    static const char todo[] = "sudo cpupower frequency-set -g performance";
    const struct bn_machine *m = &f->machine;
    struct doctor_finding *d;
    if (!*m->governor) return;
    if (hardware_governs(m) && among(m->preference, "power", "balance_power", "255")) {
        d = doctor_add(out, "governor", DOCTOR_NOTE, "the CPU is told to save power (%s, %s)",
                       m->driver, m->preference);
        doctor_todo(d, "echo balance_performance | sudo tee "
                       "/sys/devices/system/cpu/cpu*/cpufreq/energy_performance_preference");
    } else if (!hardware_governs(m) && strcmp(m->governor, "powersave") == 0) {
        d = doctor_add(out, "governor", DOCTOR_NOTE,
                       "the governor is powersave: with %s that is the lowest frequency, always",
                       *m->driver ? m->driver : "this driver");
        if (m->min_khz && m->max_khz > m->min_khz)
            doctor_cost(d, 1 - (double)m->min_khz / (double)m->max_khz, "reckoned",
                        "%.1f in place of %.1f GHz; decoding, which waits for memory, loses less",
                        (double)m->min_khz / 1e6, (double)m->max_khz / 1e6);
        doctor_todo(d, "%s", todo);
    } else if (among(m->governor, "ondemand", "conservative", "schedutil")) {
        d = doctor_add(out, "governor", DOCTOR_NOTE,
                       "the governor is %s: the frequency follows the load", m->governor);
        snprintf(d->how, sizeof d->how, "the first moments of an answer are slower");
        doctor_todo(d, "%s", todo);
    } else
        doctor_add(out, "governor", DOCTOR_OK, "the governor is %s, by %s", m->governor, m->driver);
}

static void check_boost(struct doctor_findings *out, const struct doctor_facts *f)
{
    static const char *const ways[] = {
        "echo 1 | sudo tee /sys/devices/system/cpu/cpufreq/boost",
        "echo 0 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo"};
    if (f->machine.boost == BN_YES) doctor_add(out, "boost", DOCTOR_OK, "boost is on");
    if (f->machine.boost != BN_NO) return;
    struct doctor_finding *d = doctor_add(out, "boost", DOCTOR_NOTE, "boost is switched off");
    doctor_cost(d, 0.15, "known",
                "boost is a fifth or more above the base frequency of most CPUs; prompts lose all "
                "of it, decoding less");
    doctor_todo(d, "%s", ways[strncmp(f->machine.driver, "intel_", 6) == 0]);
}

static void check_heat(struct doctor_findings *out, const struct doctor_facts *f)
{
    const struct bn_machine *m = &f->machine;
    if (m->throttle_known != BN_YES) return;
    if (!m->n_throttles) {
        doctor_add(out, "heat", DOCTOR_OK, "never slowed down by heat since boot");
        return;
    }
    struct doctor_finding *d =
        doctor_add(out, "heat", DOCTOR_NOTE, "slowed down by heat %llu times since boot",
                   (unsigned long long)m->n_throttles);
    snprintf(d->how, sizeof d->how, "when that was, the kernel does not say");
    doctor_todo(d, "look at the frequency during a run: bitnet profile");
}

/* ------------------------------------------------------------------ other processes */

/* What others leave idle is ours; where they leave nothing, the kernel shares it out among all who
 * want to run, whom the load average counts. */
static void check_busy(struct doctor_findings *out, const struct doctor_facts *f)
{
    static const double busy = 0.05;
    double cpus = CPU_COUNT(&f->machine.cpus.usable), load = f->machine.load_average;
    double idle = f->others < 0 ? 0 : (1 - f->others) * cpus / f->threads;
    double fair = load < 0 ? 0 : cpus / (load + f->threads);
    double lost = 1 - (idle > fair ? idle : fair);
    if (f->others < 0 && load < 0) return;
    if (lost <= busy) {
        doctor_add(out, "busy", DOCTOR_OK, "other programs leave enough CPUs (load average %.2f)",
                   load);
        return;
    }
    struct doctor_finding *d = doctor_add(out, "busy", DOCTOR_NOTE,
                                          "other programs are at work (load average %.2f)", load);
    doctor_cost(d, lost, "reckoned", "%sload average and threads, on %.0f CPU%s",
                f->others < 0 ? "from the " : "from the CPU time they took just now, ", cpus,
                cpus == 1 ? "" : "s");
    doctor_todo(d, "end them, or give both sides CPUs of their own: --cpus LIST");
}

static void check_virtual(struct doctor_findings *out, const struct doctor_facts *f)
{
    if (f->machine.virtual_machine == BN_YES)
        doctor_add(out, "virtual", DOCTOR_NOTE,
                   "a virtual machine%s%s: cores, siblings and nodes are what it is told, and "
                   "neighbours are not seen",
                   *f->machine.virtual_name ? " by " : "", f->machine.virtual_name);
}

static void check_perf(struct doctor_findings *out, const struct doctor_facts *f)
{
    if (f->machine.perf_known != BN_YES || f->machine.perf_paranoid <= 2) return;
    struct doctor_finding *d = doctor_add(
        out, "perf", DOCTOR_NOTE,
        "the kernel keeps hardware counters from users (kernel.perf_event_paranoid is %d)",
        f->machine.perf_paranoid);
    doctor_todo(d, "for bitnet profile: sudo sysctl kernel.perf_event_paranoid=2");
}

/* ------------------------------------------------------------------ all of them */

static int compare(const void *a, const void *b)
{
    const struct doctor_finding *x = a, *y = b;
    if (x->severity != y->severity) return x->severity < y->severity ? 1 : -1;
    if (x->cost != y->cost) return x->cost < y->cost ? 1 : -1;
    return strcmp(x->id, y->id);
}

void doctor_judge(struct doctor_findings *out, const struct doctor_facts *f)
{
    typedef void check_fn(struct doctor_findings *, const struct doctor_facts *);
    static check_fn *const of_program[] = {check_selftest, check_backend, check_build};
    static check_fn *const of_machine[] = {
        check_quota, check_cpuset, check_threads, check_hybrid,  check_numa, check_governor,
        check_boost, check_heat,   check_busy,    check_virtual, check_perf, doctor_judge_memory};
    out->n = 0;
    for (size_t i = 0; !f->recorded && i < BN_ARRAY_LEN(of_program); i++) of_program[i](out, f);
    for (size_t i = 0; i < BN_ARRAY_LEN(of_machine); i++) of_machine[i](out, f);
    qsort(out->items, out->n, sizeof *out->items, compare);
}
