/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX-512: layouts "t2", "t3" and "t5" to fours (avx512/tables.h). A group's next step is prefetched, since
 * groups are far apart. */
#include "kernels/x86/avx512/t5.h"
#include "kernels/x86/avx512/tables.h"

enum { T2_BYTES = BN_T2_ROWS * BN_T2_PIECE };

static bool t2_fours(uint8_t (*out)[BN_FOURS], const uint8_t *p, size_t stride, size_t groups)
{
    __m512i twos = _mm512_setzero_si512();
    for (size_t g = 0; g < groups; g++, p += stride, out += BN_T2_ROWS)
        for (size_t i = 0; i < T2_BYTES; i += 64) {
            __m512i v = _mm512_loadu_si512(p + i);
            twos = _mm512_or_si512(twos, _mm512_and_si512(v, _mm512_srli_epi16(v, 1)));
            _mm512_storeu_si512(out + i / BN_FOURS, v);
            _mm_prefetch((const char *)p + T2_BYTES + i, _MM_HINT_T1);
        }
    return _mm512_test_epi8_mask(twos, _mm512_set1_epi8(0x55)) == 0;
}

/* The codes of a row for both halves of a step, 64 columns each; the upper 32 bytes of a register are
 * fields 1 and 3. */
ALWAYS __m256i row_fours(__m512i first, __m512i second)
{
    __m512i v = _mm512_or_si512(first, _mm512_slli_epi16(second, 4));
    __m256i odd = _mm512_extracti64x4_epi64(v, 1);
    return _mm256_or_si256(_mm512_castsi512_si256(v), _mm256_slli_epi16(odd, 2));
}

static bool t3_fours(uint8_t (*out)[BN_FOURS], const uint8_t *p, size_t stride, size_t groups)
{
    __m512i table[3];
    for (size_t j = 0; j < 3; j++) table[j] = bn_load_twice(bn_t3_table[j]);
    for (size_t g = 0; g < groups; g++, p += stride, out += BN_T3_ROWS) {
        __m512i signs = bn_load_twice(p + BN_T3_STEP);
        for (size_t i = 0; i < BN_T3_STEP_BYTES; i += 64)
            _mm_prefetch((const char *)p + BN_T3_STEP_BYTES + i, _MM_HINT_T1);
        UNROLL
        for (size_t h = 0; h < 2; h++) {
            __m512i c[2][3];
            bn_t3_codes(c[0], p, signs, table, h, 0);
            bn_t3_codes(c[1], p, signs, table, h, 1);
            for (size_t j = 0; j < 3; j++)
                _mm256_storeu_si256((void *)out[3 * h + j], row_fours(c[0][j], c[1][j]));
        }
    }
    return true; /* the layout has no weight +2 */
}

/* row r's codes at their value */
ALWAYS __m512i t5_codes(const struct bn_t5_fields *f, const size_t r)
{
    const __m512i shift = _mm512_set1_epi16((short)bn_t5_shift(r));
    __m512i v = _mm512_srlv_epi16(r < 4 ? f->four : f->fifth, shift);
    return _mm512_and_si512(v, _mm512_set1_epi8(3));
}

static bool t5_fours(uint8_t (*out)[BN_FOURS], const uint8_t *p, size_t stride, size_t groups)
{
    const struct bn_t5_tables tables = bn_t5_load_tables();
    for (size_t g = 0; g < groups; g++, p += stride, out += BN_T5_ROWS) {
        struct bn_t5_fields a = bn_t5_fields(_mm512_loadu_si512(p), &tables);
        struct bn_t5_fields b = bn_t5_fields(_mm512_loadu_si512(p + 64), &tables);
        for (size_t i = 0; i < BN_T5_STEP_BYTES; i += 64)
            _mm_prefetch((const char *)p + BN_T5_STEP_BYTES + i, _MM_HINT_T1);
        UNROLL
        for (size_t r = 0; r < BN_T5_ROWS; r++)
            _mm256_storeu_si256((void *)out[r], row_fours(t5_codes(&a, r), t5_codes(&b, r)));
    }
    return true; /* the layout has no weight +2 */
}

const struct bn_fours_plan bn_t2_fours_avx512 = {t2_fours, BN_T2_ROWS, T2_BYTES};
const struct bn_fours_plan bn_t3_fours_avx512 = {t3_fours, BN_T3_ROWS, BN_T3_STEP_BYTES};
const struct bn_fours_plan bn_t5_fours_avx512 = {t5_fours, BN_T5_ROWS, BN_T5_STEP_BYTES};
