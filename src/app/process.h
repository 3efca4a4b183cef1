/* SPDX-License-Identifier: Apache-2.0
 *
 * process.h: what the system says about a process, and allows this one. What cannot be read is NaN.
 */
#ifndef BN_APP_PROCESS_H
#define BN_APP_PROCESS_H

#include <stdint.h>

double process_resident_bytes(uint32_t pid); /* 0: this one */
double process_cpu_seconds(void);
double process_start_seconds(void); /* since 1970 */
double process_open_fds(void);
/* As many descriptors as the system lets it have: the limit is raised as far as it goes, and returned.
 * 0: there is none, or it is not known. */
uint64_t process_allow_fds(void);

#endif
