/* SPDX-License-Identifier: Apache-2.0
 *
 * heap_count.h: how often this program and the library in it have asked for heap memory. The
 * program is linked so that their calls of malloc and its kin come by here (--wrap); what libc and
 * other shared libraries ask for themselves does not.
 */
#ifndef BN_CLI_PROFILE_HEAP_COUNT_H
#define BN_CLI_PROFILE_HEAP_COUNT_H

#include <stdint.h>

uint64_t heap_count(void); /* calls so far, by all threads */

#endif
