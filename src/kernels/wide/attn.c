/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over floats of 32 and 16 bits. */
#define ATTN_WIDE F32
#include "kernels/wide/attn_rows.h"

ATTN(f32, F32)
ATTN(f16, F16)
ATTN(bf16, BF16)

void W_NAME(attn_f32)(const struct bn_attn_args *a) { attn_f32(a); }
void W_NAME(attn_f16)(const struct bn_attn_args *a) { attn_f16(a); }
void W_NAME(attn_bf16)(const struct bn_attn_args *a) { attn_bf16(a); }
