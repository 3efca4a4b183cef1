/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over 8-bit floats, widened in registers, and short floats for it. Their products are
 * exact, so operations are fused. A NaN of e4m3 would be widened to a number: where a row has them, the
 * reference does the block. */
#define ATTN_WIDE SHORT
#include "kernels/wide/attn_rows.h"

ATTN(e4m3, E4M3)
ATTN(e5m2, E5M2)

void W_NAME(short_query)(float *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) w_storeu_ps(y + i, bn_short8(w_loadu_ps(x + i)));
    if (i < n) bn_store_head(y + i, n - i, bn_short8(bn_load_head(x + i, n - i)));
}

/* A row that has a NaN has nothing else. */
static bool any_nan(const void *rows, size_t stride, size_t n)
{
    unsigned found = 0;
    for (size_t j = 0; j < n; j++) found |= (((const uint8_t *)rows)[j * stride] & 0x7f) == 0x7f;
    return found;
}

void W_NAME(attn_e4m3)(const struct bn_attn_args *a)
{
    if (any_nan(a->k, a->kv_stride, a->n) || any_nan(a->v, a->kv_stride, a->n)) bn_attn_e4m3_c(a);
    else attn_e4m3(a);
}

void W_NAME(attn_e5m2)(const struct bn_attn_args *a) { attn_e5m2(a); }
