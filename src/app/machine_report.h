/* SPDX-License-Identifier: Apache-2.0
 *
 * machine_report.h: what a report says of the machine and of the moment: the CPU's name, where the
 * process may run, the date, and how much of the machine others were using meanwhile.
 */
#ifndef BN_APP_MACHINE_REPORT_H
#define BN_APP_MACHINE_REPORT_H

#include <stddef.h>

void machine_cpu_name(char *out, size_t n);
void machine_cpu_list(char *out, size_t n); /* usable CPUs, as --cpus takes them */
void machine_date(char *out, size_t n);     /* now, UTC, ISO 8601 */

struct machine_clock {
    double total, idle, own; /* CPU seconds since boot, of all cores; of this process */
};
struct machine_clock machine_clock_now(void);
double machine_load_average(void); /* of the last minute; negative: unknown */
/* The share of all cores that other programs used in between; negative: unknown. */
double machine_others(const struct machine_clock *from, const struct machine_clock *to);

/* commit.c, made at build: "git describe", or "unknown" */
const char *program_commit(void);

#endif
