/* SPDX-License-Identifier: Apache-2.0
 * A program without MPI. */
#include "cli/ranks/ranks.h"

#include "app/term.h"

bool ranks_open(const char *split, const char *outputs)
{
    (void)split;
    (void)outputs;
    term_fail_text("mpirun has started several ranks, and this program was built without MPI "
                   "(meson -Dmpi=enabled)");
    return false;
}

int ranks_follow(void) { return EXIT_FAILED; }
const bitnet_ranks *ranks_here(void) { return NULL; }
int ranks_close(int code) { return code; }
