/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2: layout "t2" to codes of tables, and the multiplication by them. A byte of t2 is a code
 * already, but in base 4. */
#include "kernels/t2.h"
#include "kernels/x86/avx2/gemm/t2.h"
#include "kernels/x86/avx2/gemm/tables.h"

enum { AHEAD = 3 }; /* groups from what is read to what is prefetched */

/* 32 bytes of t2 to numbers in base 3, low field first: 0 .. 80. Two fields at a time: c0 + 3 c1 in
 * the low half of a byte and c2 + 3 c3 in the high half, h; that is 16 h too much and 9 h too
 * little. */
static inline __m256i base3(__m256i q)
{
    const __m256i m33 = _mm256_set1_epi8(0x33), m15 = _mm256_set1_epi8(15);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi16(q, 2), m33);
    __m256i t =
        _mm256_add_epi8(_mm256_and_si256(q, m33), _mm256_add_epi8(odd, _mm256_add_epi8(odd, odd)));
    __m256i h = _mm256_and_si256(_mm256_srli_epi16(t, 4), m15);
    return _mm256_add_epi8(_mm256_sub_epi8(t, _mm256_slli_epi16(h, 3)), h);
}

/* Group after group, so that the matrix is read as one stream; what lies a few groups ahead is
 * prefetched meanwhile. */
bool bn_t2_codes_avx2(uint64_t *code, size_t stride, const struct bn_packed *w, size_t r0,
                      size_t r1)
{
    __m256i twos = _mm256_setzero_si256();
    size_t steps = bn_div_up(w->cols, BN_T2_STEP);
    size_t step_bytes = BN_T2_ROWS * BN_T2_PIECE, ahead = AHEAD * steps * step_bytes;
    for (size_t r = r0; r < r1; r += BN_T2_ROWS) {
        const uint8_t *p = bn_t2_group(w, r);
        uint64_t *out = code + (r - r0);
        for (size_t s = 0; s < steps; s++, p += step_bytes, out += BN_TABLE_PASSES * stride) {
            __m256i c[4];
            _mm_prefetch((const char *)p + ahead, _MM_HINT_T1);
            _mm_prefetch((const char *)p + ahead + 64, _MM_HINT_T1);
            for (size_t i = 0; i < 4; i++) {
                __m256i q = _mm256_loadu_si256((const void *)(p + i * BN_T2_PIECE));
                twos = _mm256_or_si256(twos, _mm256_and_si256(q, _mm256_srli_epi16(q, 1)));
                c[i] = base3(q);
            }
            bn_codes_store4(out, stride, c);
        }
    }
    return _mm256_testz_si256(twos, _mm256_set1_epi8(0x55));
}

void bn_t2_mul_i8_many_avx2(const struct bn_gemm_args *a, const struct bn_q8 *x)
{
    bn_mul_tables_avx2(a, x, bn_t2_codes_avx2, bn_gemm_t2_avx2.mul_i8);
}
