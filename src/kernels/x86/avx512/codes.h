/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX-512 with VNNI and VBMI: layouts "t2" and "t3" to codes w + 1, a byte each, and their products
 * with activations.
 *
 * dpbusd multiplies unsigned codes with signed activations and adds groups of four to 32 bits. The
 * sum of weights times activations is the sum of codes times activations minus the sum of
 * activations. Codes may be left at up to 64 times their value: |sum| <= 32768 * 64 * 3 * 127 < 2^30,
 * so nothing has to be widened on the way.
 *
 * t2: 32 bytes of a row hold 128 columns, 32 a field of two bits. They are read into both halves of a
 * register and masked so that each half keeps one field; the codes of the upper half are then at four
 * times the value of the lower's.
 *
 * t3: |m| and the sign of a triple's column are five bits, which index a table of codes for each
 * of its rows. */
#ifndef BN_KERNELS_X86_AVX512_CODES_H
#define BN_KERNELS_X86_AVX512_CODES_H

#include "kernels/t3.h"
#include "kernels/wide/gemm/t2.h"

#define ALWAYS static inline __attribute__((always_inline))

/* before a loop over sums, which must be gone before these can be in registers; emulated sums never
 * are */
#if defined(SIMDE_VERSION)
#define UNROLL
#elif defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 24")
#endif

/* Written as an instruction, because gcc would rather move sums about between registers and memory,
 * and load activations for every row; as a function where the instruction is emulated, in tests. */
ALWAYS __m512i bn_dot_add(__m512i s, __m512i codes, __m512i x)
{
#if defined(SIMDE_VERSION)
    return _mm512_dpbusd_epi32(s, codes, x);
#else
    __asm__("vpdpbusd %2, %1, %0" : "+v"(s) : "v"(codes), "v"(x));
    return s;
#endif
}

ALWAYS __m256i bn_dot_add32(__m256i s, __m256i codes, __m256i x)
{
#if defined(SIMDE_VERSION)
    return _mm256_dpbusd_epi32(s, codes, x);
#else
    __asm__("vpdpbusd %2, %1, %0" : "+v"(s) : "v"(codes), "v"(x));
    return s;
#endif
}

/* Keeps v in its register, as it is here: compilers otherwise load it again or merge operations. */
#if defined(SIMDE_VERSION)
#define BN_KEEP(v) (void)(v)
#else
#define BN_KEEP(v) __asm__("" : "+v"(v))
#endif

/* the same 32 bytes in both halves */
ALWAYS __m512i bn_load_twice(const void *p)
{
    return _mm512_broadcast_i64x4(_mm256_loadu_si256(p));
}

/* lanes of a register to the eight parts of a sum; the upper half may count `shift` bits less */
ALWAYS __m256i bn_fold_halves(__m512i s, const int shift)
{
    __m256i high = _mm512_extracti64x4_epi64(s, 1);
    return _mm256_add_epi32(_mm512_castsi512_si256(s), _mm256_srai_epi32(high, shift));
}

/* one mask for the bytes of the lower half, one for those of the upper */
ALWAYS __m512i bn_two_masks(const char low, const char high)
{
    return _mm512_inserti64x4(_mm512_set1_epi8(low), _mm256_set1_epi8(high), 1);
}

/* ---- t3 ---- */

/* The weights plus one of row j, for |m| in bits 0-3 and the sign in bit 4 of an index, of which
 * bits 5 and above may be anything. */
#define BY_SIZE(f)                                                                                \
    f(0, 0, 0), f(1, 0, 0), f(-1, 1, 0), f(0, 1, 0), f(1, 1, 0), f(-1, -1, 1), f(0, -1, 1),       \
        f(1, -1, 1), f(-1, 0, 1), f(0, 0, 1), f(1, 0, 1), f(-1, 1, 1), f(0, 1, 1), f(1, 1, 1), 1, \
        1
#define PLUS0(a, b, c)  1 + (a)
#define PLUS1(a, b, c)  1 + (b)
#define PLUS2(a, b, c)  1 + (c)
#define MINUS0(a, b, c) 1 - (a)
#define MINUS1(a, b, c) 1 - (b)
#define MINUS2(a, b, c) 1 - (c)
static const int8_t bn_t3_table[3][32] = {{BY_SIZE(PLUS0), BY_SIZE(MINUS0)},
                                          {BY_SIZE(PLUS1), BY_SIZE(MINUS1)},
                                          {BY_SIZE(PLUS2), BY_SIZE(MINUS2)}};

#undef MINUS2
#undef MINUS1
#undef MINUS0
#undef PLUS2
#undef PLUS1
#undef PLUS0
#undef BY_SIZE

/* For every byte, in bit 4, the signs of triple h and half a step. They lie in bits 7 - h and 5 - h
 * of the lower and upper half of the register or, in the second half of a step, four bits below. */
ALWAYS __m512i bn_t3_signs(__m512i signs, const size_t h, const size_t half)
{
    const short low = (short)(half ? 1 + h : 3 - h), high = (short)(half ? 3 + h : 1 - h);
    const __m512i shift = _mm512_inserti64x4(_mm512_set1_epi16(low), _mm256_set1_epi16(high), 1);
    return half ? _mm512_sllv_epi16(signs, shift) : _mm512_srlv_epi16(signs, shift);
}

/* 64 columns, half a step, of triple h: the codes of its three rows */
ALWAYS void bn_t3_codes(__m512i *c, const uint8_t *p, __m512i signs, const __m512i *table,
                        const size_t h, const size_t half)
{
    __m512i v = _mm512_loadu_si512(p + 64 * half);
    if (h) v = _mm512_srli_epi16(v, 4);
    /* bits 0-3 of v, the others of the signs */
    v = _mm512_ternarylogic_epi32(_mm512_set1_epi8(15), v, bn_t3_signs(signs, h, half), 0xca);
    for (size_t j = 0; j < 3; j++) c[j] = _mm512_permutexvar_epi8(v, table[j]);
}

#endif
