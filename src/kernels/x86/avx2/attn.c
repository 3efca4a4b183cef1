/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2: attention over floats of 32 and 16 bits. */
#define ATTN_WIDE F32
#include "kernels/x86/avx2/attn_rows.h"

ATTN(f32, F32)
ATTN(f16, F16)
ATTN(bf16, BF16)

void bn_attn_f32_avx2(const struct bn_attn_args *a) { attn_f32(a); }
void bn_attn_f16_avx2(const struct bn_attn_args *a) { attn_f16(a); }
void bn_attn_bf16_avx2(const struct bn_attn_args *a) { attn_bf16(a); }
