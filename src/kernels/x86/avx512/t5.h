/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX-512 with VNNI and VBMI: layout "t5" (ref/gemm_t5.c) to codes w + 1.
 *
 * vpermb looks up bits 0-5 of a byte. So the codes of rows 0-3, in fields of two bits, are one look-up
 * and a second one where the byte is 192 or above; row 4 is in bits 6-7 already but there. Fields are
 * masked in place and count 1, 4, 16 and 64 times.
 *
 * There are two ways to make the second look-up, with the same result. A mask takes the fewest
 * instructions, but the comparison for it waits for the multiplier's pipes: that is for one token. An
 * exclusive or, of 0 for bytes below 192, is free where a mask follows: that is for several tokens,
 * which keep these pipes busy. */
#ifndef BN_KERNELS_X86_AVX512_T5_H
#define BN_KERNELS_X86_AVX512_T5_H

#include "kernels/t5.h"
#include "kernels/x86/avx512/codes.h"

/* Four codes of a number in 0..80. The entries of the tables for bits 0-5: rows 0-3 below 192, rows 0-3
 * and row 4 above. Of the latter the last entry stands for 191, which is the same without them. */
#define FIELDS(n)     ((n) % 3 | (n) / 3 % 3 << 2 | (n) / 9 % 3 << 4 | (n) / 27 << 6)
#define LOW(i)        FIELDS(i)
#define HIGH(i)       FIELDS((i) == 63 ? 63 : 64 + (i) % BN_T5_N_HIGH)
#define FIFTH(i)      ((i) == 63 ? 0xc0 : (i) / BN_T5_N_HIGH % 3 << 6)
#define FOUR(f, i)    f(i), f((i) + 1), f((i) + 2), f((i) + 3)
#define SIXTEEN(f, i) FOUR(f, i), FOUR(f, (i) + 4), FOUR(f, (i) + 8), FOUR(f, (i) + 12)
#define ALL(f)                                                        \
    {                                                                 \
        SIXTEEN(f, 0), SIXTEEN(f, 16), SIXTEEN(f, 32), SIXTEEN(f, 48) \
    }
static const uint8_t bn_t5_low[64] = ALL(LOW), bn_t5_high[64] = ALL(HIGH),
                     bn_t5_fifth[64] = ALL(FIFTH);
#undef ALL
#undef SIXTEEN
#undef FOUR
#undef FIFTH
#undef HIGH
#undef LOW
#undef FIELDS

struct bn_t5_tables {
    __m512i low, high, fifth;
};

ALWAYS struct bn_t5_tables bn_t5_load_tables(void)
{
    return (struct bn_t5_tables){_mm512_loadu_si512(bn_t5_low), _mm512_loadu_si512(bn_t5_high),
                                 _mm512_loadu_si512(bn_t5_fifth)};
}

/* Row r's codes are 1 << bn_t5_shift(r) times their value. */
ALWAYS int bn_t5_shift(const size_t r) { return r < 4 ? 2 * (int)r : 6; }
ALWAYS __m512i bn_t5_mask(const size_t r) { return _mm512_set1_epi8((char)(3 << bn_t5_shift(r))); }

/* ---- by a mask ---- */

/* 64 columns: rows 0-3 in their fields, and row 4 alone */
struct bn_t5_fields {
    __m512i four, fifth;
};

ALWAYS struct bn_t5_fields bn_t5_fields(__m512i v, const struct bn_t5_tables *t)
{
    __mmask64 high = _mm512_cmpge_epu8_mask(v, _mm512_set1_epi8((char)BN_T5_HIGH));
    __m512i four = _mm512_permutexvar_epi8(v, t->low), fifth = _mm512_and_si512(v, bn_t5_mask(4));
    return (struct bn_t5_fields){_mm512_mask_permutexvar_epi8(four, high, v, t->high),
                                 _mm512_mask_permutexvar_epi8(fifth, high, v, t->fifth)};
}

/* ---- by an exclusive or ---- */

/* What differs above: entry 63, to which all bytes below are moved, is 0. */
ALWAYS struct bn_t5_tables bn_t5_load_differences(void)
{
    struct bn_t5_tables t = bn_t5_load_tables();
    t.high = _mm512_xor_si512(t.high, t.low);
    t.fifth = _mm512_xor_si512(t.fifth, bn_t5_mask(4));
    return t;
}

/* 64 columns, tables of differences. Rows 0-3 as one register, to be masked by and: a mask within the
 * exclusive or takes copies, and they cost as much as they save where few instructions multiply. */
ALWAYS struct bn_t5_fields bn_t5_xor_fields(__m512i v, const struct bn_t5_tables *t)
{
    BN_KEEP(v);
    const __m512i above = _mm512_max_epu8(v, _mm512_set1_epi8((char)(BN_T5_HIGH - 1)));
    __m512i four = _mm512_xor_si512(_mm512_permutexvar_epi8(v, t->low),
                                    _mm512_permutexvar_epi8(above, t->high));
    BN_KEEP(four);
    __m512i fifth = _mm512_permutexvar_epi8(above, t->fifth);
    return (struct bn_t5_fields){four, _mm512_ternarylogic_epi32(v, fifth, bn_t5_mask(4), 0x28)};
}

/* 64 columns: the codes of rows [r0, r1), tables of differences */
ALWAYS void bn_t5_codes(__m512i *c, __m512i v, const struct bn_t5_tables *t, const size_t r0,
                        const size_t r1)
{
    const __m512i above = _mm512_max_epu8(v, _mm512_set1_epi8((char)(BN_T5_HIGH - 1)));
    const __m512i four = _mm512_permutexvar_epi8(v, t->low);
    const __m512i four_above = _mm512_permutexvar_epi8(above, t->high);
    const __m512i fifth_above = _mm512_permutexvar_epi8(above, t->fifth);
    for (size_t r = r0; r < r1; r++) /* (four ^ four_above) & mask */
        c[r - r0] = r < 4 ? _mm512_ternarylogic_epi32(four, four_above, bn_t5_mask(r), 0x28)
                          : _mm512_ternarylogic_epi32(v, fifth_above, bn_t5_mask(r), 0x28);
}

#endif
