/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_machine.c: what a measurement needs to know of the machine: the CPU's name, where the
 * process may run, and how much of the machine others were using meanwhile.
 */
#include "base/buf.h"
#include "base/cores.h"
#include "cli/bench.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* ------------------------------------------------------------------ CPUs */

bitnet_status bench_pin(const char *list, bitnet_error *err)
{
    cpu_set_t set;
    if (!bn_cpus_parse(&set, list))
        return bn_fail(err, BITNET_E_ARG, "--cpus expects a list such as 0,2-3, not '%s'", list);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        return bn_fail(err, BITNET_E_IO, "cannot run on the CPUs %s: %s", list, strerror(errno));
    return BITNET_OK;
}

void bench_cpu_list(char *out, size_t n)
{
    struct bn_buf b;
    cpu_set_t set;
    bn_buf_init(&b, n - 1);
    if (sched_getaffinity(0, sizeof set, &set) != 0) CPU_ZERO(&set);
    for (unsigned c = 0, end; c < CPU_SETSIZE; c = end + 1) {
        for (end = c; end < CPU_SETSIZE && CPU_ISSET(end, &set); end++) continue;
        if (end == c) continue;
        bn_buf_printf(&b, end - c > 1 ? "%s%u-%u" : "%s%u", b.len ? "," : "", c, end - 1);
    }
    snprintf(out, n, "%s", b.data ? b.data : "");
    bn_buf_free(&b);
}

void bench_cpu_name(char *out, size_t n)
{
    /* "model name" on x86, "Model" on some arm boards, "uarch" or at least the ISA on riscv */
    static const char *const keys[] = {"model name", "Model", "uarch", "isa"};
    snprintf(out, n, "unknown");
    size_t best = BN_ARRAY_LEN(keys);
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && best && fgets(line, sizeof line, f)) {
        char *value = strchr(line, ':');
        if (!value) continue;
        size_t key_len = strcspn(line, "\t:");
        for (size_t k = 0; k < best; k++)
            if (strlen(keys[k]) == key_len && memcmp(line, keys[k], key_len) == 0) {
                value += 1 + strspn(value + 1, " \t");
                value[strcspn(value, "\n")] = 0;
                snprintf(out, n, "%s", value);
                best = k;
            }
    }
    if (f) fclose(f);
}

/* ------------------------------------------------------------------ time and load */

void bench_date(char *out, size_t n)
{
    time_t now = time(NULL);
    struct tm utc;
    if (!gmtime_r(&now, &utc) || strftime(out, n, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0)
        snprintf(out, n, "unknown");
}

double bench_load_average(void)
{
    double a;
    return getloadavg(&a, 1) == 1 ? a : -1;
}

struct bench_clock bench_clock_now(void)
{
    struct bench_clock c = {0};
    unsigned long long user, nice, system, idle, iowait, irq, softirq, steal;
    FILE *f = fopen("/proc/stat", "re");
    if (f && fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle,
                    &iowait, &irq, &softirq, &steal) == 8) {
        double ticks = (double)sysconf(_SC_CLK_TCK);
        c.idle = (double)(idle + iowait) / ticks;
        c.total = c.idle + (double)(user + nice + system + irq + softirq + steal) / ticks;
    }
    if (f) fclose(f);
    struct rusage u;
    if (getrusage(RUSAGE_SELF, &u) == 0)
        c.own = (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
                (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
    return c;
}

double bench_others(const struct bench_clock *from, const struct bench_clock *to)
{
    double all = to->total - from->total, busy = all - (to->idle - from->idle);
    if (all <= 0) return -1;
    double others = (busy - (to->own - from->own)) / all;
    return others < 0 ? 0 : others > 1 ? 1 : others;
}
