/* SPDX-License-Identifier: Apache-2.0
 * The judgement of `bitnet doctor`: recorded machines and single facts, and what follows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "cli/doctor/doctor.h"
#include <cmocka.h>

/* A machine on which all is well. */
static struct doctor_facts facts;
static struct doctor_findings findings;

static void set_facts(const char *machine)
{
    static struct bn_machine_source source;
    struct bn_sysfiles sys;
    char path[512];
    snprintf(path, sizeof path, "%s/machines/%s.txt", TEST_DATA, machine);
    assert_int_equal(bn_sysfiles_open(&sys, path, NULL), BITNET_OK);
    bn_machine_source_recorded(&source, &sys);
    facts = (struct doctor_facts){
        .detected = "avx512", .best_backend = "avx512", .backend = "avx512", .optimized = true};
    bn_machine_read(&facts.machine, &source);
    bn_sysfiles_close(&sys);
    facts.threads = facts.machine.default_threads;
}

static const struct doctor_finding *find(const char *id)
{
    const struct doctor_finding *found = NULL;
    doctor_judge(&findings, &facts);
    for (size_t i = 0; i < findings.n; i++) {
        const struct doctor_finding *d = &findings.items[i];
        /* the worst first; what is wrong has something to do; a cost has a basis */
        assert_true(i == 0 || findings.items[i - 1].severity >= d->severity);
        assert_true(d->severity < DOCTOR_WARNING || *d->todo);
        assert_true((d->cost > 0) == (*d->basis != 0) && (!*d->basis || *d->how));
        assert_true(d->cost <= doctor_serious || d->severity >= DOCTOR_WARNING);
        assert_true(d->cost <= 1 && *d->what);
        if (strcmp(d->id, id) == 0) {
            assert_null(found); /* once */
            found = d;
        }
    }
    return found;
}

static void assert_severity(const char *id, enum doctor_severity want)
{
    const struct doctor_finding *d = find(id);
    if (!d) fail_msg("no finding '%s'", id);
    if (d->severity != want)
        fail_msg("%s is %s, not %s", id, doctor_severity_name(d->severity),
                 doctor_severity_name(want));
}

static void assert_cost(const char *id, double want, const char *basis)
{
    const struct doctor_finding *d = find(id);
    if (!d) fail_msg("no finding '%s'", id);
    if (d->cost < want - 1e-9 || d->cost > want + 1e-9)
        fail_msg("%s costs %g, not %g", id, d->cost, want);
    assert_string_equal(d->basis, basis);
}

static void assert_todo(const char *id, const char *part)
{
    const struct doctor_finding *d = find(id);
    if (!d || !strstr(d->todo, part)) fail_msg("%s does not say '%s'", id, part);
}

/* ------------------------------------------------------------------ the program */

static void kernels_and_build_are_judged(void **state)
{
    (void)state;
    set_facts("smt-desktop");
    assert_severity("selftest", DOCTOR_OK);
    assert_severity("backend", DOCTOR_OK);
    assert_severity("build", DOCTOR_OK);
    facts.selftest = (bitnet_error){BITNET_E_INTERNAL, "kernel add (avx2) differs"};
    assert_severity("selftest", DOCTOR_BAD);
    assert_cost("selftest", 1, "measured");
    facts.backend = "avx2";
    assert_cost("backend", 0.06, "known");
    assert_severity("backend", DOCTOR_NOTE);
    facts.backend = "scalar";
    assert_severity("backend", DOCTOR_WARNING);
    facts.detected = "rvv"; /* kernels that nobody has written */
    facts.best_backend = "scalar";
    assert_severity("backend", DOCTOR_NOTE);
    assert_cost("backend", 0, "");
    facts.best_backend = "dotprod";
    facts.backend = "neon"; /* no figures */
    assert_cost("backend", 0, "");
    facts.assertions = true;
    assert_cost("build", 0, "");
    facts.optimized = false;
    assert_severity("build", DOCTOR_WARNING);
    facts.recorded = true; /* nothing about this program */
    assert_null(find("selftest"));
    assert_null(find("backend"));
    assert_null(find("build"));
}

/* ------------------------------------------------------------------ CPUs */

static void quotas_are_judged(void **state)
{
    (void)state;
    set_facts("quota-v2");
    assert_cost("quota", 0.25, "reckoned");
    assert_todo("quota", "--cpus 2");
    assert_todo("quota", "--threads 1");
    facts.threads = 1;
    assert_severity("quota", DOCTOR_NOTE);
    assert_cost("quota", 0, "");
    facts.threads = 8;
    assert_cost("quota", 1 - 1.5 / 8, "reckoned");
    set_facts("quota-v1");
    assert_severity("quota", DOCTOR_NOTE);
    set_facts("smt-desktop");
    assert_null(find("quota"));
    facts.machine.group.quota_cpus = 8;
    assert_severity("quota", DOCTOR_OK);
}

static void cpus_and_threads_are_judged(void **state)
{
    (void)state;
    set_facts("cpuset-3");
    assert_severity("cpus", DOCTOR_NOTE);
    facts.cpus_given = true;
    assert_severity("cpus", DOCTOR_OK);
    set_facts("smt-desktop");
    assert_severity("cpus", DOCTOR_OK);
    assert_severity("threads", DOCTOR_OK);
    assert_null(find("hybrid"));
    facts.threads = 16; /* siblings */
    assert_severity("threads", DOCTOR_NOTE);
    assert_todo("threads", "--threads 8");
    facts.threads = 20;
    assert_cost("threads", 0.2, "reckoned");
    set_facts("small-vm"); /* both siblings, by default */
    assert_severity("threads", DOCTOR_OK);
    set_facts("hybrid");
    assert_severity("hybrid", DOCTOR_OK);
    facts.threads = 12;
    assert_severity("hybrid", DOCTOR_WARNING);
    assert_todo("hybrid", "--threads 4");
    assert_todo("hybrid", "--cpus 0-7");
    set_facts("big-little");
    assert_severity("hybrid", DOCTOR_OK);
}

static void nodes_are_judged(void **state)
{
    (void)state;
    set_facts("two-sockets");
    assert_cost("numa", 0.5 * (1 - 10.0 / 21), "reckoned");
    assert_todo("numa", "--numa distribute");
    assert_true(bn_cpus_parse(&facts.machine.cpus.usable, "0-7,16-23")); /* those of one node */
    assert_null(find("numa"));
    set_facts("two-sockets");
    facts.machine.nodes[0].farthest = facts.machine.nodes[1].farthest = 0;
    assert_cost("numa", 0, "");
    facts.numa_given = true;
    assert_severity("numa", DOCTOR_OK);
    set_facts("smt-desktop");
    assert_null(find("numa"));
}

/* ------------------------------------------------------------------ frequency */

static void frequency_is_judged(void **state)
{
    (void)state;
    set_facts("hot-laptop");
    assert_cost("governor", 0.75, "reckoned");
    assert_cost("boost", 0.15, "known");
    assert_todo("boost", "cpufreq/boost");
    assert_severity("heat", DOCTOR_NOTE);
    set_facts("hybrid"); /* powersave of intel_pstate is no such thing */
    assert_severity("governor", DOCTOR_OK);
    assert_null(find("heat"));
    snprintf(facts.machine.preference, sizeof facts.machine.preference, "power");
    assert_severity("governor", DOCTOR_NOTE);
    facts.machine.boost = BN_NO;
    assert_todo("boost", "no_turbo");
    set_facts("smt-desktop"); /* nor of amd-pstate-epp */
    assert_severity("governor", DOCTOR_OK);
    set_facts("big-little");
    assert_severity("governor", DOCTOR_NOTE);
    set_facts("two-sockets");
    assert_severity("governor", DOCTOR_OK);
    assert_severity("boost", DOCTOR_OK);
    assert_severity("heat", DOCTOR_OK);
    set_facts("riscv-board");
    assert_null(find("governor"));
    assert_null(find("boost"));
}

/* ------------------------------------------------------------------ memory and company */

static void memory_is_judged(void **state)
{
    (void)state;
    set_facts("hot-laptop");
    assert_null(find("memory")); /* without a model */
    assert_null(find("memlock"));
    facts.models[0] = (struct doctor_model){"m", 600000000, (uint64_t)4 << 30};
    facts.n_models = 1;
    facts.model_given = true;
    assert_severity("memory", DOCTOR_OK);
    assert_severity("memlock", DOCTOR_NOTE);
    facts.machine.memlock_bytes = UINT64_MAX;
    assert_null(find("memlock"));
    facts.machine.memlock_bytes = (uint64_t)4 << 30;
    assert_severity("memlock", DOCTOR_OK);
    facts.models[0].memory_bytes = (uint64_t)10 << 30; /* of 5 available */
    assert_severity("memory", DOCTOR_BAD);
    assert_cost("memory", 0.5, "reckoned");
    facts.machine.group.memory_bytes = (uint64_t)1 << 30;
    assert_cost("memory", 0.9, "reckoned");
    assert_severity("swap", DOCTOR_OK);
    assert_severity("hugepages", DOCTOR_OK);
    set_facts("small-vm");
    assert_severity("swap", DOCTOR_NOTE);
    assert_severity("hugepages", DOCTOR_WARNING);
    assert_todo("hugepages", "transparent_hugepage/enabled");
    set_facts("riscv-board");
    assert_null(find("hugepages"));
    assert_null(find("swap"));
}

static void bandwidth_is_judged(void **state)
{
    (void)state;
    set_facts("smt-desktop");
    assert_null(find("bandwidth"));
    facts.read_one = 20e9;
    facts.read_all = 50e9;
    assert_severity("bandwidth", DOCTOR_OK);
    facts.read_all = 21e9;
    assert_severity("bandwidth", DOCTOR_NOTE);
    facts.read_all = 10e9;
    assert_cost("bandwidth", 0.5, "measured");
    facts.threads = 1;
    facts.read_all = facts.read_one;
    assert_severity("bandwidth", DOCTOR_OK);
}

static void company_is_judged(void **state)
{
    (void)state;
    set_facts("smt-desktop"); /* 16 CPUs, 8 threads */
    facts.others = 0;
    assert_severity("busy", DOCTOR_OK);
    facts.others = 0.5; /* 8 are left */
    assert_severity("busy", DOCTOR_OK);
    facts.others = 0.75;
    facts.machine.load_average = 24;
    assert_cost("busy", 0.5, "reckoned"); /* 4 idle ones, or 16 of 32 */
    facts.others = -1;
    facts.machine.load_average = -1;
    assert_null(find("busy"));
    set_facts("small-vm");
    facts.others = -1;
    assert_cost("busy", 1 - 2 / 5.2, "reckoned");
    assert_severity("virtual", DOCTOR_NOTE);
    assert_null(find("perf"));
    facts.machine.perf_paranoid = 4;
    assert_todo("perf", "kernel.perf_event_paranoid=2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_and_build_are_judged), cmocka_unit_test(quotas_are_judged),
        cmocka_unit_test(cpus_and_threads_are_judged),  cmocka_unit_test(nodes_are_judged),
        cmocka_unit_test(frequency_is_judged),          cmocka_unit_test(memory_is_judged),
        cmocka_unit_test(bandwidth_is_judged),          cmocka_unit_test(company_is_judged),
    };
    return cmocka_run_group_tests_name("doctor", tests, NULL, NULL);
}
