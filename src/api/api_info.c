/* SPDX-License-Identifier: Apache-2.0 */
#include "api/api.h"

#include "base/machine/cores.h"
#include "base/machine/cpu.h"
#include "forge/forge.h"
#include "kernels/kernels.h"

const char *bitnet_version(void) { return BITNET_VERSION; }

const char *bitnet_status_name(bitnet_status s)
{
    static const char *const names[] = {"ok",        "argument",    "memory", "io",
                                        "format",    "unsupported", "limit",  "state",
                                        "cancelled", "internal"};
    return (unsigned)s < BN_ARRAY_LEN(names) ? names[s] : "unknown";
}

int bitnet_kernel_get(size_t i, bitnet_kernel_info *info)
{
    if (i >= bn_kernel_count || !info) return 0;
    const struct bn_kernel_info *k = &bn_kernel_list[i];
    const bitnet_kernel_info x = {
        .op = k->op, .isa = k->isa, .supported = (bn_cpu_detect() & k->needs) == k->needs};
    return BN_WRITE(bitnet_kernel_info, info, &x, NULL) == BITNET_OK;
}

/* A level that no kernel was written for is only another name for the one below it: not listed. */
static bool has_kernels(const char *backend)
{
    for (size_t i = 0; i < bn_kernel_count; i++)
        if (strcmp(bn_kernel_list[i].isa, backend) == 0) return true;
    return false;
}

const char *bitnet_backend_name(size_t i, int *supported)
{
    uint32_t needs;
    const char *name;
    for (size_t level = 0; (name = bn_cpu_backend(level, &needs)); level++)
        if (has_kernels(name) && i-- == 0) break;
    if (name && supported) *supported = (bn_cpu_detect() & needs) == needs;
    return name;
}

bitnet_status bitnet_kernel_selftest(const char *backend, bitnet_error *err)
{
    struct bn_kernels unused;
    return bn_choose_kernels(&unused, backend, err);
}

bitnet_status bitnet_kernel_timer_open(bitnet_kernel_timer **out, const bitnet_model *m,
                                       const char *op, bitnet_error *err)
{
    BN_NEED(out, err, "out is NULL");
    *out = NULL;
    BN_NEED(m, err, "the model is NULL");
    return bn_kernel_timer_open(out, m->m, op, err);
}

void bitnet_kernel_timer_close(bitnet_kernel_timer *t) { bn_kernel_timer_close(t); }

int bitnet_kernel_timer_case(const bitnet_kernel_timer *t, size_t i, bitnet_kernel_case *c)
{
    bitnet_kernel_case k = {.size = sizeof k};
    if (!t || !c || !bn_kernel_timer_case(t, i, &k)) return 0;
    return BN_WRITE(bitnet_kernel_case, c, &k, NULL) == BITNET_OK;
}

double bitnet_kernel_timer_run(bitnet_kernel_timer *t, size_t i)
{
    bitnet_kernel_case unused;
    return t && bn_kernel_timer_case(t, i, &unused) ? bn_kernel_timer_run(t, i) : 0;
}

uint32_t bitnet_default_threads(void) { return bn_usable_cores(); }
