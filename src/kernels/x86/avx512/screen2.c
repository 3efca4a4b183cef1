/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX-512 with VNNI: sums from the coarse screening copy (kernels.h, ref/screen2.c).
 *
 * 64 bytes are 16 columns of 16 rows, a lane of 32 bits a row: dpbusd with four bytes of the vector
 * in every lane adds to the sums of 16 rows, and nothing is ever added across a register. Codes are
 * masked in the bytes and in the bytes shifted by four bits, so that fields 0 and 2 count once and
 * fields 1 and 3 four times. Each kind has a sum of its own, or each field, where a vector is alone:
 * else dpbusd would wait for the one before. */
#include "kernels/x86/avx512/codes.h"
#include "kernels/wide/screen2.h"

enum {
    VECTORS = 8, /* that rows meet at a time */
    SUMS = 2 * VECTORS
};

/* sums of a vector */
#define KINDS(n) ((n) == 1 ? BN_SCREEN2_FIELDS : 2)

/* Codes times four numbers that all lanes share. Written as an instruction, because compilers load
 * them apart, and clang's way of it takes one and a half times as long. */
ALWAYS __m512i dot_add_four(__m512i s, __m512i codes, const int8_t *k)
{
#if defined(SIMDE_VERSION)
    int32_t x;
    memcpy(&x, k, sizeof x);
    return bn_dot_add(s, codes, _mm512_set1_epi32(x));
#else
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(s) : "v"(codes), "m"(*(const int8_t(*)[4])k));
    return s;
#endif
}

/* Adds columns [at, at + BN_SCREEN2_PIECE) of a group. */
ALWAYS void add_piece(__m512i s[SUMS], const uint8_t *p, const struct bn_screen2_vector *v,
                      size_t at, const size_t n)
{
    const __m512i once = _mm512_set1_epi8(3), four_times = _mm512_set1_epi8(12);
    __m512i x = _mm512_loadu_si512(p), y = _mm512_srli_epi16(x, 4);
    __m512i c[BN_SCREEN2_FIELDS] = {_mm512_and_si512(x, once), _mm512_and_si512(x, four_times),
                                    _mm512_and_si512(y, once), _mm512_and_si512(y, four_times)};
    UNROLL
    for (size_t f = 0; f < BN_SCREEN2_FIELDS; f++) {
        UNROLL
        for (size_t i = 0; i < n; i++) {
            __m512i *t = &s[i * KINDS(n) + f % KINDS(n)];
            *t = dot_add_four(*t, c[f], v[i].k + at + f * 4);
        }
    }
}

/* 2 C - 3 K of one block, for all rows of a group: sums that count four times begin at -6 K. */
ALWAYS void block(__m512i out[VECTORS], const uint8_t *p, const struct bn_screen2_vector *v,
                  size_t b, size_t ahead, const size_t n)
{
    __m512i s[SUMS];
    UNROLL
    for (size_t i = 0; i < n; i++) {
        __m512i *t = &s[i * KINDS(n)];
        t[1] = _mm512_set1_epi32(-6 * v[i].block_sum[b]);
        t[0] = _mm512_setzero_si512();
        if (KINDS(n) == BN_SCREEN2_FIELDS) t[2] = t[3] = t[0];
    }
    for (size_t j = 0; j < BN_SCREEN2_BLOCK; j += BN_SCREEN2_PIECE, p += BN_SCREEN2_PIECE_BYTES) {
        bn_screen2_ask(p + ahead, n);
        add_piece(s, p, v, b * BN_SCREEN2_BLOCK + j, n);
    }
    UNROLL
    for (size_t i = 0; i < n; i++) {
        __m512i *t = &s[i * KINDS(n)];
        if (KINDS(n) == BN_SCREEN2_FIELDS) {
            t[0] = _mm512_add_epi32(t[0], t[2]);
            t[1] = _mm512_add_epi32(t[1], t[3]);
        }
        out[i] = _mm512_add_epi32(_mm512_add_epi32(t[0], t[0]), _mm512_srai_epi32(t[1], 1));
    }
}

ALWAYS void group(int32_t *sum, size_t stride, const struct bn_screen2_group *g, size_t rows,
                  const struct bn_screen2_vector *v, const size_t n)
{
    const uint8_t *u = g->u, *p = g->codes;
    __m512i s[VECTORS], x[VECTORS];
    for (size_t i = 0; i < n; i++) s[i] = _mm512_setzero_si512();
    for (size_t b = 0; b < g->blocks; b++, u += BN_SCREEN2_ROWS, p += BN_SCREEN2_BLOCK_BYTES) {
        __m512i weight = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)u));
        weight = _mm512_add_epi32(weight, _mm512_set1_epi32(BN_SCREEN2_BASE));
        block(x, p, v, b, g->ahead, n);
        UNROLL
        for (size_t i = 0; i < n; i++)
            s[i] = _mm512_add_epi32(s[i], _mm512_mullo_epi32(weight, x[i]));
    }
    for (size_t i = 0; i < n; i++)
        _mm512_mask_storeu_epi32(sum + i * stride, (__mmask16)((1u << rows) - 1), s[i]);
}

BN_SCREEN2_GROUP_FN(1)
BN_SCREEN2_GROUP_FN(2)
BN_SCREEN2_GROUP_FN(3)
BN_SCREEN2_GROUP_FN(4)
BN_SCREEN2_GROUP_FN(5)
BN_SCREEN2_GROUP_FN(6)
BN_SCREEN2_GROUP_FN(7)
BN_SCREEN2_GROUP_FN(8)
static bn_screen2_group_fn *const groups[VECTORS + 1] = {
    NULL, group_1, group_2, group_3, group_4, group_5, group_6, group_7, group_8};

void bn_screen2_avx512(int32_t *sum, size_t stride, const struct bn_screen2 *w, size_t r0,
                       size_t r1, const struct bn_screen2_vector *v, size_t n_vec)
{
    bn_screen2_groups(sum, stride, w, r0, r1, v, n_vec, (struct bn_screen2_plan){groups, VECTORS});
}
