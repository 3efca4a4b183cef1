/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX-512 with VNNI and VBMI: layout "t5" (ref/gemm_t5.c) to codes w + 1.
 *
 * vpermb looks up bits 0-5 of a byte and leaves those alone that a mask has not. So the codes of rows
 * 0-3, in fields of two bits, are one look-up and a second one where the byte is 192 or above; row 4
 * is in bits 6-7 already but there. Fields are masked in place and count 1, 4, 16 and 64 times. */
#ifndef BN_KERNELS_X86_T5_AVX512_H
#define BN_KERNELS_X86_T5_AVX512_H

#include "kernels/t5.h"
#include "kernels/x86/codes_avx512.h"

/* four codes of a number in 0..80; the entries of the tables: of the numbers below 64, of those from 64
 * on, and row 4 of the latter */
#define FIELDS(n)     ((n) % 3 | (n) / 3 % 3 << 2 | (n) / 9 % 3 << 4 | (n) / 27 << 6)
#define LOW(i)        FIELDS(i)
#define HIGH(i)       FIELDS(64 + (i) % BN_T5_N_HIGH)
#define FIFTH(i)      ((i) / BN_T5_N_HIGH % 3 << 6)
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

/* 64 columns: rows 0-3 in four fields, row 4 in the highest of another byte */
struct bn_t5_fields {
    __m512i four, fifth;
};

ALWAYS struct bn_t5_fields bn_t5_fields(__m512i v, const struct bn_t5_tables *t)
{
    __mmask64 high = _mm512_cmpge_epu8_mask(v, _mm512_set1_epi8((char)BN_T5_HIGH));
    __m512i four = _mm512_permutexvar_epi8(v, t->low);
    __m512i fifth = _mm512_and_si512(v, _mm512_set1_epi8((char)0xc0));
    return (struct bn_t5_fields){_mm512_mask_permutexvar_epi8(four, high, v, t->high),
                                 _mm512_mask_permutexvar_epi8(fifth, high, v, t->fifth)};
}

/* Row r's codes, 1 << bn_t5_shift(r) times their value. */
ALWAYS int bn_t5_shift(const size_t r) { return r < 4 ? 2 * (int)r : 6; }

ALWAYS __m512i bn_t5_row(const struct bn_t5_fields *f, const size_t r)
{
    return r < 4 ? _mm512_and_si512(f->four, _mm512_set1_epi8((char)(3 << 2 * r))) : f->fifth;
}

#endif
