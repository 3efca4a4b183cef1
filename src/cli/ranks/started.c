/* SPDX-License-Identifier: Apache-2.0
 * How many there are is known before MPI is started: a program that runs alone does without it. */
#include "cli/ranks/ranks.h"

#include <stdlib.h>

/* Open MPI and those that MPICH and Slurm start say it to their processes. */
static uint32_t number(const char *open_mpi, const char *others)
{
    const char *text = getenv(open_mpi);
    if (!text) text = getenv(others);
    return text ? (uint32_t)strtoul(text, NULL, 10) : 0;
}

uint32_t ranks_started(void)
{
    uint32_t n = number("OMPI_COMM_WORLD_SIZE", "PMI_SIZE");
    return n ? n : 1;
}

uint32_t ranks_number(void) { return number("OMPI_COMM_WORLD_RANK", "PMI_RANK"); }
