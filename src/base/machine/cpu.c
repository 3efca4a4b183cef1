/* SPDX-License-Identifier: Apache-2.0 */
#include "base/machine/cpu.h"

#if defined(__aarch64__) || defined(__riscv)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>

/* clang 14 has no word for it in __builtin_cpu_supports */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avxvnni(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4);
}
#endif

uint32_t bn_cpu_detect(void)
{
    uint32_t f = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.1")) f |= BN_CPU_SSE41;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi2") && has_f16c())
        f |= BN_CPU_AVX2;
    if ((f & BN_CPU_AVX2) && has_avxvnni()) f |= BN_CPU_AVXVNNI;
    if ((f & BN_CPU_AVX2) && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") &&
        __builtin_cpu_supports("avx512vbmi"))
        f |= BN_CPU_AVX512;
#elif defined(__aarch64__)
    unsigned long hw = getauxval(AT_HWCAP), hw2 = getauxval(AT_HWCAP2);
    f |= BN_CPU_NEON;
    if (hw & 1ul << 20) f |= BN_CPU_DOTPROD; /* HWCAP_ASIMDDP */
    if (hw2 & 1ul << 13) f |= BN_CPU_I8MM;   /* HWCAP2_I8MM  */
#elif defined(__riscv)
    if (getauxval(AT_HWCAP) & 1ul << ('V' - 'A')) f |= BN_CPU_RVV;
#endif
    return f;
}

static const struct {
    const char *name;
    uint32_t needs;
} backends[] = {
    {"scalar", 0},
#if defined(__x86_64__)
    {"sse4.1", BN_CPU_SSE41},
    {"avx2", BN_CPU_SSE41 | BN_CPU_AVX2},
    {"avxvnni", BN_CPU_SSE41 | BN_CPU_AVX2 | BN_CPU_AVXVNNI},
    {"avx512", BN_CPU_SSE41 | BN_CPU_AVX2 | BN_CPU_AVX512},
#elif defined(__aarch64__)
    {"neon", BN_CPU_NEON},
    {"dotprod", BN_CPU_NEON | BN_CPU_DOTPROD},
    {"i8mm", BN_CPU_NEON | BN_CPU_DOTPROD | BN_CPU_I8MM},
#elif defined(__riscv)
    {"rvv", BN_CPU_RVV},
#endif
};

const char *bn_cpu_backend(size_t i, uint32_t *needs)
{
    if (i >= BN_ARRAY_LEN(backends)) return NULL;
    *needs = backends[i].needs;
    return backends[i].name;
}

bool bn_cpu_narrow(uint32_t *features, const char *backend)
{
    if (!backend || !*backend || strcmp(backend, "auto") == 0) return true;
    for (size_t i = 0; i < BN_ARRAY_LEN(backends); i++)
        if (strcmp(backend, backends[i].name) == 0) {
            *features &= backends[i].needs;
            return true;
        }
    return false;
}
