/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2: attention over floats of 32 and 16 bits. */
#define ATTN_WIDE F32
#include "kernels/x86/avx2/attn_rows.h"

ATTN(f32, float, F32)
ATTN(f16, uint16_t, F16)
ATTN(bf16, void, BF16)

void bn_attn_f32_avx2(float *o, float *m, float *l, const float *q, size_t n_q, const float *k,
                      const float *v, size_t kv_stride, size_t n, size_t dim, float scale,
                      const float *next_k, const float *next_v)
{
    attn_f32(o, m, l, q, n_q, k, v, kv_stride, n, dim, scale, next_k, next_v);
}

void bn_attn_f16_avx2(float *o, float *m, float *l, const float *q, size_t n_q, const uint16_t *k,
                      const uint16_t *v, size_t kv_stride, size_t n, size_t dim, float scale,
                      const uint16_t *next_k, const uint16_t *next_v)
{
    attn_f16(o, m, l, q, n_q, k, v, kv_stride, n, dim, scale, next_k, next_v);
}

void bn_attn_bf16_avx2(float *o, float *m, float *l, const float *q, size_t n_q, const void *k,
                       const void *v, size_t kv_stride, size_t n, size_t dim, float scale,
                       const void *next_k, const void *next_v)
{
    attn_bf16(o, m, l, q, n_q, k, v, kv_stride, n, dim, scale, next_k, next_v);
}
