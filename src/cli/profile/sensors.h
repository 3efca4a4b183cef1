/* SPDX-License-Identifier: Apache-2.0
 *
 * sensors.h: what the kernel shows of clocks, heat and energy, as files. root: the folder that they
 * stand in, "" for this system. Not every machine has them; virtual ones have next to nothing.
 */
#ifndef BN_CLI_PROFILE_SENSORS_H
#define BN_CLI_PROFILE_SENSORS_H

#include "base/base.h"
#include <sched.h>

enum {
    SENSORS_CPUS_MAX = 16, /* looked at: the first ones of a set */
    SENSORS_ZONES_MAX = 64,
    SENSORS_DOMAINS_MAX = 16,
    SENSORS_PATH_BYTES = 512
};

/* The number that a file begins with; its path as in printf. false: there is none. */
bool sensors_number(double *out, const char *path, ...) BN_PRINTF(2, 3);

struct sensor_clock {
    double mean_mhz, min_mhz, max_mhz; /* over CPUs, now */
};
enum sensor_source {
    SENSOR_NONE,
    SENSOR_CPUFREQ,
    SENSOR_CPUINFO /* all that virtual machines have; there it never changes */
};
enum sensor_source sensors_clock(struct sensor_clock *out, const char *root, const cpu_set_t *cpus);

/* How often these CPUs were slowed down because of heat, since boot. false: nobody counts. */
bool sensors_throttled(double *events, const char *root, const cpu_set_t *cpus);
/* Of the hottest zone. false: there is none. */
bool sensors_temperature(double *celsius, const char *root);

/* Energy of whole processor packages, whoever used it. */
struct sensor_energy {
    char folders[SENSORS_DOMAINS_MAX][SENSORS_PATH_BYTES];
    double last_uj[SENSORS_DOMAINS_MAX], range_uj[SENSORS_DOMAINS_MAX];
    size_t n;
    double joules;    /* since open */
    const char *none; /* why there is nothing to read; NULL: there is */
};
void sensors_energy_open(struct sensor_energy *e, const char *root);
/* Joules since open. To be called at least once an hour: the counters turn over. */
double sensors_energy_read(struct sensor_energy *e);

#endif
