/* SPDX-License-Identifier: Apache-2.0
 *
 * process.h: what the system says about this process, and allows it. What cannot be read is NaN.
 */
#ifndef BN_SERVER_PROCESS_H
#define BN_SERVER_PROCESS_H

double process_resident_bytes(void);
double process_cpu_seconds(void);
double process_start_seconds(void); /* since 1970 */
double process_open_fds(void);
/* As many descriptors as the system lets it have. If that fails, those that are missing will say so. */
void process_allow_fds(void);

#endif
