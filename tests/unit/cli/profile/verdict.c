/* SPDX-License-Identifier: Apache-2.0
 * What `bitnet profile` makes of figures: the verdict of made-up reports, sensors of recorded
 * machines, counters and the reasons why there are none. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/os/mem.h"
#include "cli/profile/heap_count.h"
#include "cli/profile/profile.h"

#define LAPTOP TEST_DATA "/sensors/laptop"
#define VM     TEST_DATA "/sensors/vm"

static void near(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance)) fail_msg("got %.12g, want %.12g", got, want);
}

/* ------------------------------------------------------------------ verdicts */

/* A quiet machine whose memory is the limit; tests change what they are about. */
struct figures {
    double roofline, head_bytes, wait, attention, sampling, faults, heap, others, throttled, kernel;
    int threads, cpus;
    const char *head, *layout, *kv_type;
};
static const struct figures quiet = {.roofline = 0.96,
                                     .head_bytes = 0.05,
                                     .threads = 4,
                                     .cpus = 4,
                                     .head = "exact",
                                     .layout = "t3",
                                     .kv_type = "f16"};

static struct bn_json *kind(const char *name, double share, double bytes)
{
    return bn_json_pack("{s:s, s:f, s:f}", "kind", name, "share", share, "bytes_per_token", bytes);
}

static struct bn_json *decode_phase(const struct figures *f)
{
    double bytes = 0.6e9, speed = f->roofline * 40e9;
    struct bn_json *kinds = bn_json_pack(
        "[o, o, o, o, o]", kind("wait", f->wait, 0),
        kind("matrix", 0.5, bytes * (1 - f->head_bytes)), kind("head", 0.1, bytes * f->head_bytes),
        kind("attention", f->attention, 0), kind("sampling", f->sampling, 0));
    struct bn_json *ops =
        bn_json_pack("[{s:s, s:s, s:f}, {s:s, s:s, s:f}, {s:s, s:s, s:f}]", "op", "wait", "kind",
                     "wait", "share", 0.9, "op", "gate", "kind", "matrix", "share", 0.21, "op",
                     "up", "kind", "matrix", "share", 0.2);
    return bn_json_pack("{s:f, s:f, s:f, s:o, s:o, s:{s:f, s:f}, s:f}", "bytes_per_token", bytes,
                        "bytes_per_s", speed, "roofline_share", f->roofline, "kinds", kinds, "ops",
                        ops, "page_faults", "minor_per_token", f->faults, "major_per_token", 0.0,
                        "heap_allocations_per_token", f->heap);
}

static struct bn_json *report_of(const struct figures *f)
{
    struct bn_json *prefill = bn_json_pack("{s:f}", "tok_per_s", 250.0);
    if (f->kernel > 0) bn_json_set(prefill, "kernel_share", bn_json_real(f->kernel));
    return bn_json_pack(
        "{s:{s:i, s:i, s:i, s:f, s:f}, s:{s:s}, s:{s:s, s:s, s:i}, s:{s:f}, s:{s:o, s:o}}",
        "machine", "threads", f->threads, "usable_cpus", f->cpus, "default_threads", f->cpus,
        "bandwidth_bytes_per_s", 40e9, "others", f->others, "model", "layout", f->layout,
        "settings", "head", f->head, "kv_type", f->kv_type, "prompt_tokens", 128, "frequency",
        "throttle_events", f->throttled, "phases", "prefill", prefill, "decode", decode_phase(f));
}

/* Does the verdict say so? */
static bool says(const struct figures *f, const char *text)
{
    struct bn_json *report = report_of(f);
    assert_non_null(report);
    char *verdict = profile_verdict(report);
    assert_non_null(verdict);
    bool found = strstr(verdict, text) != NULL;
    if (!found) print_message("'%s' is not in: %s\n", text, verdict);
    free(verdict);
    bn_json_free(report);
    return found;
}

static void memory_bound(void **state)
{
    (void)state;
    struct figures f = quiet;
    assert_true(says(&f, "Decode reads 0.60 GB a token at 38.4 GB/s, 96 % of the 40.0 GB/s that "
                         "this machine can read: memory-bound"));
    assert_true(says(&f, "cannot be decoded much faster"));
    f.layout = "t2";
    assert_true(says(&f, "--layout t3"));
    f.head_bytes = 0.28;
    assert_true(
        says(&f, "the head is 28 % of it: a smaller head would help most (--head screened"));
    f.head = "screened";
    assert_true(says(&f, "would help most. "));
    f.wait = 0.2; /* waiting for memory is not the limit */
    assert_true(says(&f, "memory-bound"));
    f.roofline = 0.70;
    assert_true(says(&f, "memory-bound"));
}

static void compute_bound(void **state)
{
    (void)state;
    struct figures f = quiet;
    f.roofline = 0.4;
    assert_true(says(&f, "compute-bound; most of the time goes to 'gate', 21 %. "));
    f.threads = 2;
    assert_true(says(&f, "2 of 4 threads that this machine has cores for: more would help (-t 4)"));
    f.roofline = 1.8;
    assert_true(says(&f, "180 % of the 40.0 GB/s that this machine can read: the weights come from "
                         "the caches, so the CPU is the limit"));
}

static void waiting(void **state)
{
    (void)state;
    struct figures f = quiet;
    f.roofline = 0.4;
    f.wait = 0.31;
    assert_true(says(&f, "held up by waiting: 31 % of the 4 threads' time"));
    assert_true(says(&f, "try fewer (-t)"));
    f.others = 0.3;
    assert_true(says(&f, "other programs take CPUs away"));
    assert_true(says(&f, "Other programs used 30 % of the machine"));
    f.cpus = 2;
    assert_true(says(&f, "more threads than the 2 usable CPUs (-t 2)"));
}

static void smaller_matters(void **state)
{
    (void)state;
    struct figures f = quiet;
    assert_true(says(&f, "Prefill reads 250 tokens a second.")); /* and nothing behind it */
    struct bn_json *report = report_of(&f);
    char *verdict = profile_verdict(report);
    static const char *const none[] = {"Attention", "Sampling", "page faults",
                                       "heap",      "heat",     "Other programs"};
    for (size_t i = 0; i < BN_ARRAY_LEN(none); i++) assert_null(strstr(verdict, none[i]));
    free(verdict);
    bn_json_free(report);
    f.attention = 0.4;
    assert_true(says(&f,
                     "Attention takes 40 % of the time behind 128 tokens, and more behind longer "
                     "texts: a smaller cache than f16 would help (--kv-type int8). "));
    f.kv_type = "int8";
    assert_true(says(&f, "behind longer texts. "));
    f.sampling = 0.08;
    assert_true(says(&f, "Sampling and text take 8 %"));
    f.faults = 0.5;
    assert_true(says(&f, "0.50 page faults a token after the warm-up"));
    f.heap = 2;
    assert_true(says(&f, "2.00 heap allocations a token"));
    f.throttled = 3;
    assert_true(says(&f, "slowed down 3 times because of heat"));
    f.kernel = 0.8;
    assert_true(
        says(&f, "its matrices at 80 % of what their kernel does in the cache: compute-bound"));
    f.kernel = 0.4;
    assert_true(says(&f, "in the cache. "));
}

/* ------------------------------------------------------------------ sensors */

static cpu_set_t first_cpus(int n)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < n; i++) CPU_SET(i, &set);
    return set;
}

static void clocks(void **state)
{
    (void)state;
    struct sensor_clock c;
    cpu_set_t four = first_cpus(4), two = first_cpus(2);
    assert_int_equal(sensors_clock(&c, LAPTOP, &four), SENSOR_CPUFREQ);
    near(c.mean_mhz, 2600, 1e-9);
    near(c.min_mhz, 2000, 1e-9);
    near(c.max_mhz, 3200, 1e-9);
    assert_int_equal(sensors_clock(&c, LAPTOP, &two), SENSOR_CPUFREQ);
    near(c.max_mhz, 2400, 1e-9);
    assert_int_equal(sensors_clock(&c, VM, &four), SENSOR_CPUINFO);
    near(c.mean_mhz, 2598.128, 1e-9);
    CPU_CLR(0, &two);
    assert_int_equal(sensors_clock(&c, VM, &two), SENSOR_CPUINFO);
    near(c.mean_mhz, 2600.128, 1e-9);
    assert_int_equal(sensors_clock(&c, TEST_DATA "/sensors/nowhere", &four), SENSOR_NONE);
}

static void heat(void **state)
{
    (void)state;
    double v;
    cpu_set_t two = first_cpus(2);
    assert_true(sensors_throttled(&v, LAPTOP, &two));
    near(v, 1 + 2 + 10 + 10, 0);
    assert_false(sensors_throttled(&v, VM, &two));
    assert_true(sensors_temperature(&v, LAPTOP));
    near(v, 71.5, 1e-9);
    assert_false(sensors_temperature(&v, VM));
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void energy(void **state)
{
    (void)state;
    struct sensor_energy e;
    sensors_energy_open(&e, VM);
    assert_non_null(strstr(e.none, "no energy counters"));
    near(sensors_energy_read(&e), 0, 0);
    sensors_energy_open(&e, LAPTOP);
    assert_null(e.none);
    assert_int_equal(e.n, 1); /* the whole system is no package */
    near(sensors_energy_read(&e), 0, 0);
    /* system files that move on: past the end of the counter's range, and on from 0 */
    char root[] = "/tmp/bitnet-energy-XXXXXX", path[128];
    assert_non_null(mkdtemp(root));
    static const char *const folders[] = {"/sys", "/sys/class", "/sys/class/powercap",
                                          "/sys/class/powercap/intel-rapl:0"};
    static const char *const files[] = {"name", "max_energy_range_uj", "energy_uj"};
    static const char *const texts[] = {"package-0\n", "10000000\n", "9000000\n"};
    for (size_t i = 0; i < BN_ARRAY_LEN(folders); i++) {
        snprintf(path, sizeof path, "%s%s", root, folders[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    for (size_t i = 0; i < BN_ARRAY_LEN(files); i++) {
        snprintf(path, sizeof path, "%s%s/%s", root, folders[3], files[i]);
        write_file(path, texts[i]);
    }
    sensors_energy_open(&e, root);
    assert_int_equal(e.n, 1);
    write_file(path, "9500000\n");
    near(sensors_energy_read(&e), 0.5, 1e-9);
    write_file(path, "250000\n");
    near(sensors_energy_read(&e), 1.25, 1e-9);
    for (size_t i = 0; i < BN_ARRAY_LEN(files); i++) {
        snprintf(path, sizeof path, "%s%s/%s", root, folders[3], files[i]);
        assert_int_equal(unlink(path), 0);
    }
    for (size_t i = BN_ARRAY_LEN(folders); i-- > 0;) {
        snprintf(path, sizeof path, "%s%s", root, folders[i]);
        assert_int_equal(rmdir(path), 0);
    }
    assert_int_equal(rmdir(root), 0);
}

/* ------------------------------------------------------------------ counters */

static void counting(void **state)
{
    (void)state;
    struct counter_reading from = {100, 1000, 500}, to = {400, 3000, 1500};
    near(counter_between(&from, &to), 600, 1e-9); /* it ran half of the time */
    near(counter_between(&from, &from), 0, 0);
    assert_int_equal(counters_paranoid(LAPTOP), 4);
    assert_int_equal(counters_paranoid(VM), -1);
    assert_int_equal(counters_paranoid(TEST_DATA "/sensors/nowhere"), -2);
    static const struct {
        int error, paranoid;
        const char *says;
    } cases[] = {
        {EACCES, 4, "kernel.perf_event_paranoid is 4"},
        {EPERM, 2, "seccomp"},
        {ENOENT, 2, "virtual machines"},
        {EOPNOTSUPP, 2, "virtual machines"},
        {ENOSYS, -2, "no perf_event_open"},
        {EINVAL, 2, "Invalid argument"},
    };
    char why[200];
    for (size_t i = 0; i < BN_ARRAY_LEN(cases); i++) {
        counters_explain(why, sizeof why, cases[i].error, cases[i].paranoid);
        if (!strstr(why, cases[i].says)) fail_msg("'%s' is not in: %s", cases[i].says, why);
    }
}

/* Each event counts or has a reason not to; what counts never goes back. */
static void counters_of_this_machine(void **state)
{
    (void)state;
    struct counters c;
    struct counter_reading from[COUNTERS], to[COUNTERS];
    counters_open(&c);
    counters_read(&c, from);
    for (volatile int i = 0; i < 1000000; i++) continue;
    counters_read(&c, to);
    for (int i = 0; i < COUNTERS; i++) {
        assert_true((c.fd[i] >= 0) == (c.refused[i] == 0));
        assert_true(to[i].value >= from[i].value);
        if (c.refused[i]) assert_int_equal(to[i].enabled_ns, 0);
        else assert_true(to[i].enabled_ns > from[i].enabled_ns);
    }
    counters_close(&c);
}

/* ------------------------------------------------------------------ heap */

static void *volatile kept; /* what nobody looks at would not be allocated */

static void heap_calls_are_counted(void **state)
{
    (void)state;
    uint64_t before = heap_count();
    kept = malloc(10);
    kept = realloc(kept, 20);
    free(kept);
    assert_int_equal(heap_count() - before, 2);
    kept = aligned_alloc(64, 64);
    free(kept);
    void *p = NULL;
    assert_int_equal(posix_memalign(&p, 64, 64), 0);
    free(p);
    assert_int_equal(heap_count() - before, 4);
    kept = bn_calloc(3, 5); /* inside of the library */
    free(kept);
    assert_int_equal(heap_count() - before, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_bound),
        cmocka_unit_test(compute_bound),
        cmocka_unit_test(waiting),
        cmocka_unit_test(smaller_matters),
        cmocka_unit_test(clocks),
        cmocka_unit_test(heat),
        cmocka_unit_test(energy),
        cmocka_unit_test(counting),
        cmocka_unit_test(counters_of_this_machine),
        cmocka_unit_test(heap_calls_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
