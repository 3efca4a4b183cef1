/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/profile/sensors.h"

#include "base/os/sysfiles.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

bool sensors_number(double *out, const char *path, ...)
{
    char name[SENSORS_PATH_BYTES], text[64], *end;
    va_list ap;
    va_start(ap, path);
    int n = vsnprintf(name, sizeof name, path, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof name ||
        !bn_sysfiles_text(&bn_sysfiles_here, text, sizeof text, "%s", name))
        return false;
    *out = strtod(text, &end);
    return end != text;
}

/* ------------------------------------------------------------------ clocks and heat */

struct clock_sum {
    struct sensor_clock c;
    double sum;
    unsigned n;
};

static void add_clock(struct clock_sum *s, double mhz)
{
    if (s->n == 0 || mhz < s->c.min_mhz) s->c.min_mhz = mhz;
    if (s->n == 0 || mhz > s->c.max_mhz) s->c.max_mhz = mhz;
    s->sum += mhz;
    s->n++;
}

/* "cpu MHz : 2596.1" of every "processor : 3" that is in the set. */
static void add_cpuinfo(struct clock_sum *s, const char *root, const cpu_set_t *cpus)
{
    char path[SENSORS_PATH_BYTES], line[256];
    snprintf(path, sizeof path, "%s/proc/cpuinfo", root);
    FILE *f = fopen(path, "re");
    unsigned cpu = 0;
    double mhz;
    while (f && s->n < SENSORS_CPUS_MAX && fgets(line, sizeof line, f)) {
        if (sscanf(line, "processor : %u", &cpu) == 1) continue;
        if (sscanf(line, "cpu MHz : %lf", &mhz) == 1 && cpu < CPU_SETSIZE && CPU_ISSET(cpu, cpus))
            add_clock(s, mhz);
    }
    if (f) fclose(f);
}

enum sensor_source sensors_clock(struct sensor_clock *out, const char *root, const cpu_set_t *cpus)
{
    struct clock_sum s = {0};
    enum sensor_source source = SENSOR_CPUFREQ;
    double khz;
    for (unsigned cpu = 0; cpu < CPU_SETSIZE && s.n < SENSORS_CPUS_MAX; cpu++)
        if (CPU_ISSET(cpu, cpus) &&
            sensors_number(&khz, "%s/sys/devices/system/cpu/cpu%u/cpufreq/scaling_cur_freq", root,
                           cpu))
            add_clock(&s, khz / 1e3);
    if (!s.n) {
        source = SENSOR_CPUINFO;
        add_cpuinfo(&s, root, cpus);
    }
    if (!s.n) return SENSOR_NONE;
    *out = s.c;
    out->mean_mhz = s.sum / s.n;
    return source;
}

bool sensors_throttled(double *events, const char *root, const cpu_set_t *cpus)
{
    static const char *const files[] = {"core_throttle_count", "package_throttle_count"};
    unsigned n_cpus = 0;
    bool known = false;
    *events = 0;
    for (unsigned cpu = 0; cpu < CPU_SETSIZE && n_cpus < SENSORS_CPUS_MAX; cpu++) {
        if (!CPU_ISSET(cpu, cpus)) continue;
        n_cpus++;
        for (size_t i = 0; i < BN_ARRAY_LEN(files); i++) {
            double n;
            if (!sensors_number(&n, "%s/sys/devices/system/cpu/cpu%u/thermal_throttle/%s", root,
                                cpu, files[i]))
                continue;
            *events += n;
            known = true;
        }
    }
    return known;
}

bool sensors_temperature(double *celsius, const char *root)
{
    bool known = false;
    double t;
    for (unsigned i = 0; i < SENSORS_ZONES_MAX; i++) {
        if (!sensors_number(&t, "%s/sys/class/thermal/thermal_zone%u/temp", root, i)) continue;
        if (!known || t / 1e3 > *celsius) *celsius = t / 1e3;
        known = true;
    }
    return known;
}

/* ------------------------------------------------------------------ energy */

/* Takes a domain in if it is a package, and not a part of one: these are counted in it or beside
 * it. */
static void add_domain(struct sensor_energy *e, const char *folder)
{
    char path[SENSORS_PATH_BYTES + 16], name[64];
    snprintf(path, sizeof path, "%s/name", folder);
    if (!bn_sysfiles_text(&bn_sysfiles_here, name, sizeof name, "%s", path) ||
        strncmp(name, "package", 7) != 0)
        return;
    snprintf(path, sizeof path, "%s/energy_uj", folder);
    if (access(path, R_OK) != 0) {
        e->none = "the energy counters (powercap) are readable by root only";
        return;
    }
    size_t i = e->n;
    if (!sensors_number(&e->last_uj[i], "%s", path) ||
        !sensors_number(&e->range_uj[i], "%s/max_energy_range_uj", folder))
        return;
    snprintf(e->folders[i], sizeof e->folders[i], "%s", folder);
    e->n++;
}

void sensors_energy_open(struct sensor_energy *e, const char *root)
{
    *e = (struct sensor_energy){
        .none = "no energy counters (powercap) here, as in most virtual machines"};
    for (unsigned i = 0; i < SENSORS_DOMAINS_MAX; i++) {
        char folder[SENSORS_PATH_BYTES];
        int n = snprintf(folder, sizeof folder, "%s/sys/class/powercap/intel-rapl:%u", root, i);
        if (n > 0 && (size_t)n < sizeof folder) add_domain(e, folder);
    }
    if (e->n) e->none = NULL;
}

double sensors_energy_read(struct sensor_energy *e)
{
    for (size_t i = 0; i < e->n; i++) {
        double uj;
        if (!sensors_number(&uj, "%s/energy_uj", e->folders[i])) continue;
        double gone = uj - e->last_uj[i];
        e->joules += (gone < 0 ? gone + e->range_uj[i] : gone) / 1e6;
        e->last_uj[i] = uj;
    }
    return e->joules;
}
