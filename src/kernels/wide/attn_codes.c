/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over codes, and the queries for it. */

#include "kernels/wide/wide.h"

enum { ATTN_FULL_QUERIES = 2 /* up to so many all octets' sums are in registers at a time */ };

static inline w_int dot_pairs(w_int s, w_int x, w_int y)
{
    return w_add_epi32(s, w_madd_epi16(x, y));
}

#include "kernels/wide/attn_codes.h"

void W_NAME(attn_codes)(const struct bn_attn_codes *a) { attn_codes(a); }

float W_NAME(quant_query)(int16_t *y, const float *x, size_t n)
{
    const w_f32 sign = w_set1_ps(-0.0f);
    w_f32 max = w_setzero_ps(), bad = max;
    size_t i = 0;
    for (; i < n; i += 8) {
        w_f32 v = bn_load_head(x + i, n - i);
        max = w_max_ps(w_andnot_ps(sign, v), max); /* a NaN loses: it comes first */
        bad = w_or_ps(bad, w_cmp_ps(w_sub_ps(v, v), w_setzero_ps(), NEQ_UQ));
    }
    h_f32 h = h_max_ps(w_castps256_ps128(max), w_extractf128_ps(max, 1));
    h = h_max_ps(h, h_movehl_ps(h, h));
    float m = h_cvtss_f32(h_max_ss(h, h_movehdup_ps(h)));
    if (w_movemask_ps(bad)) {
        memset(y, 0, n * sizeof *y);
        return bn_f16_to_f32(BN_F16_NAN);
    }
    w_f32 inv = w_set1_ps(m < 0x1p-100f ? 0 : 32767 / m);
    for (i = 0; i + 8 <= n; i += 8) {
        w_int q = w_cvtps_epi32(w_mul_ps(w_loadu_ps(x + i), inv));
        h_storeu_si128((void *)(y + i),
                       h_packs_epi32(w_castsi256_si128(q), w_extracti128_si256(q, 1)));
    }
    for (; i < n; i++)
        y[i] = (int16_t)h_cvtss_si32(h_mul_ss(h_set_ss(x[i]), w_castps256_ps128(inv)));
    return m / 32767;
}
