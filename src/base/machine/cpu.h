/* SPDX-License-Identifier: Apache-2.0
 * What the CPU can do, as a value: detected, narrowed and passed on, never stored. A level is a
 * bundle of instruction sets that come together in real machines. */
#ifndef BN_BASE_MACHINE_CPU_H
#define BN_BASE_MACHINE_CPU_H

#include "base/base.h"

enum {
    BN_CPU_AVX2 = 1u << 0,    /* AVX2, FMA, F16C, BMI2                        */
    BN_CPU_AVXVNNI = 1u << 1, /* and AVX-VNNI                                 */
    BN_CPU_SSE41 = 1u << 3,   /* SSSE3 and SSE4.1                             */
    BN_CPU_AVX512 = 1u << 2,  /* F, BW, DQ, VL, VNNI, VBMI: Ice Lake, Zen 4   */
    BN_CPU_NEON = 1u << 8,
    BN_CPU_DOTPROD = 1u << 9,
    BN_CPU_I8MM = 1u << 10,
    BN_CPU_RVV = 1u << 16 /* V 1.0                                        */
};

uint32_t bn_cpu_detect(void); /* reads the machine, remembers nothing */

/* "auto" or NULL: all; "scalar": none; "avx2": that level and those below. false: no such name. */
bool bn_cpu_narrow(uint32_t *features, const char *backend);
/* i-th backend name and the features it needs; NULL past the end. Best last. */
const char *bn_cpu_backend(size_t i, uint32_t *needs);

#endif
