/* SPDX-License-Identifier: Apache-2.0
 * In a build without hwloc nothing can be opened, so that the rest is never called. */
#include "base/machine/numa.h"

#include <stdlib.h>

bitnet_status bn_numa_open(struct bn_numa **out, enum bn_numa_mode mode,
                           const struct bn_numa_pretend *pretend, bitnet_error *err)
{
    (void)pretend;
    *out = NULL;
    if (mode == BN_NUMA_OFF) return BITNET_OK;
    return bn_fail(err, BITNET_E_UNSUPPORTED, "numa '%s' is not possible: this build has no hwloc",
                   bn_numa_mode_name(mode));
}

void bn_numa_close(struct bn_numa *n) { free(n); }

bool bn_numa_bind(const struct bn_numa *n, void *p, size_t bytes, uint32_t node)
{
    (void)n, (void)p, (void)bytes, (void)node;
    return false;
}

bool bn_numa_interleave(const struct bn_numa *n, void *p, size_t bytes)
{
    (void)n, (void)p, (void)bytes;
    return false;
}

int bn_numa_where(const struct bn_numa *n, const void *p)
{
    (void)n, (void)p;
    return -1;
}
