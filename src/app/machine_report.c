/* SPDX-License-Identifier: Apache-2.0
 *
 * machine_report.c: what a measurement needs to know of the machine: the CPU's name, where the
 * process may run, and how much of the machine others were using meanwhile.
 */
#include "app/machine_report.h"

#include "base/machine/machine.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* ------------------------------------------------------------------ CPUs */

void machine_cpu_list(char *out, size_t n)
{
    cpu_set_t set;
    bn_cpus_allowed(&set);
    bn_cpus_format(out, n, &set);
}

void machine_cpu_name(char *out, size_t n)
{
    bn_machine_cpu_name(out, n, &bn_sysfiles_here);
    if (!*out) snprintf(out, n, "unknown");
}

/* ------------------------------------------------------------------ time and load */

void machine_date(char *out, size_t n)
{
    time_t now = time(NULL);
    struct tm utc;
    if (!gmtime_r(&now, &utc) || strftime(out, n, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0)
        snprintf(out, n, "unknown");
}

double machine_load_average(void)
{
    double a;
    return getloadavg(&a, 1) == 1 ? a : -1;
}

struct machine_clock machine_clock_now(void)
{
    struct machine_clock c = {0};
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

double machine_others(const struct machine_clock *from, const struct machine_clock *to)
{
    double all = to->total - from->total, busy = all - (to->idle - from->idle);
    if (all <= 0) return -1;
    double others = (busy - (to->own - from->own)) / all;
    return others < 0 ? 0 : others > 1 ? 1 : others;
}
