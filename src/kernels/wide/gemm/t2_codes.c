/* SPDX-License-Identifier: Apache-2.0
 *
 * Layout "t2" to codes of tables, and the multiplication by them. A byte of t2 is a code
 * already, but in base 4. */
#include "kernels/t2.h"
#include "kernels/wide/gemm/t2.h"
#include "kernels/wide/gemm/tables.h"

enum { AHEAD = 3 }; /* groups from what is read to what is prefetched */

/* 32 bytes of t2 to numbers in base 3, low field first: 0 .. 80. Two fields at a time: c0 + 3 c1 in
 * the low half of a byte and c2 + 3 c3 in the high half, h; that is 16 h too much and 9 h too
 * little. */
static inline w_int base3(w_int q)
{
    const w_int m33 = w_set1_epi8(0x33), m15 = w_set1_epi8(15);
    w_int odd = w_and_si256(w_srli_epi16(q, 2), m33);
    w_int t = w_add_epi8(w_and_si256(q, m33), w_add_epi8(odd, w_add_epi8(odd, odd)));
    w_int h = w_and_si256(w_srli_epi16(t, 4), m15);
    return w_add_epi8(w_sub_epi8(t, w_slli_epi16(h, 3)), h);
}

/* Group after group, so that the matrix is read as one stream; what lies a few groups ahead is
 * prefetched meanwhile. */
bool W_NAME(t2_codes)(uint64_t *code, size_t stride, const struct bn_packed *w, size_t r0,
                      size_t r1)
{
    w_int twos = w_setzero_si256();
    size_t steps = bn_div_up(w->cols, BN_T2_STEP);
    size_t step_bytes = BN_T2_ROWS * BN_T2_PIECE, ahead = AHEAD * steps * step_bytes;
    for (size_t r = r0; r < r1; r += BN_T2_ROWS) {
        const uint8_t *p = bn_t2_group(w, r);
        uint64_t *out = code + (r - r0);
        for (size_t s = 0; s < steps; s++, p += step_bytes, out += BN_TABLE_PASSES * stride) {
            w_int c[4];
            h_prefetch((const char *)p + ahead, H_T1);
            h_prefetch((const char *)p + ahead + 64, H_T1);
            for (size_t i = 0; i < 4; i++) {
                w_int q = w_loadu_si256((const void *)(p + i * BN_T2_PIECE));
                twos = w_or_si256(twos, w_and_si256(q, w_srli_epi16(q, 1)));
                c[i] = base3(q);
            }
            bn_codes_store4(out, stride, c);
        }
    }
    return w_testz_si256(twos, w_set1_epi8(0x55));
}

void W_NAME(t2_mul_i8_many)(const struct bn_gemm_args *a, const struct bn_q8 *x)
{
    W_NAME(mul_tables)(a, x, W_NAME(t2_codes), W_NAME(gemm_t2).mul_i8);
}
