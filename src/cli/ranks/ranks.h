/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks.h: was this program started several times by mpirun, to compute one model together? Then rank 0 is
 * the program as ever, and all others follow it.
 */
#ifndef BN_CLI_RANKS_RANKS_H
#define BN_CLI_RANKS_RANKS_H

#include "base/status.h"
#include <bitnet/ranks.h>

/* Processes that mpirun has started; 1 without it. */
uint32_t ranks_started(void);
/* Which of them this is, from 0 on. */
uint32_t ranks_number(void);
/* Reaches the others, who do the same. split: "auto", "2,1,1", or NULL: equal parts; outputs: as in
 * bitnet_ranks. On failure the error
 * line has been printed, and false is returned. */
bool ranks_open(const char *split, const char *outputs);
/* By all but rank 0: the exit code. */
int ranks_follow(void);
/* What models are opened with: NULL where this process is alone. */
const bitnet_ranks *ranks_here(void);
/* The others end, too. Returns the exit code: `code`, or that of a rank that was lost. */
int ranks_close(int code);

#endif
