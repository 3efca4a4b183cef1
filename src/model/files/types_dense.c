/* SPDX-License-Identifier: Apache-2.0
 * Rows of any storage type as floats, for loading, converting and looking. The dense formats are
 * decoded by the reference kernels, which define their values. */
#include "model/files/types.h"

#include "base/half.h"
#include "kernels/kernels.h"

/* The trits are first unpacked into the last quarter of the output's own bytes and then widened
 * from the front: float i ends before trit i + 1 begins, so nothing is overwritten unread. */
static void ternary_row(float *out, const struct bn_stored *t, uint64_t r)
{
    const struct bn_type_info *i = bn_type_info(t->type);
    const int8_t *w = (int8_t *)out + 3 * t->cols;
    (void)bn_unpack_trits((int8_t *)out + 3 * t->cols, t, r); /* code 3 widens to +2 */
    float scale = 0;
    if (i->scale != BN_TS_BLOCK_F16) bn_unpack_scales(&scale, t, r);
    uint64_t bytes = t->cols / i->block * i->block_bytes;
    const uint8_t *d = t->data + r * bytes + bn_type_scale_at(t->type);
    for (uint64_t k = 0; k < t->cols; k++) {
        if (i->scale == BN_TS_BLOCK_F16 && k % i->block == 0)
            scale = bn_f16_to_f32(bn_load_u16(d + k / i->block * i->block_bytes));
        out[k] = scale * (float)w[k];
    }
}

void bn_dequant_row(float *out, const struct bn_stored *t, uint64_t r)
{
    const struct bn_type_info *i = bn_type_info(t->type);
    if (i->ternary) {
        ternary_row(out, t, r);
        return;
    }
    const uint8_t *in = t->data + r * (t->cols / i->block * i->block_bytes);
    uint64_t n = t->cols;
    switch (t->type) {
    case BN_F32: memcpy(out, in, n * 4); break;
    case BN_F16: bn_row_f16_c(out, in, n); break;
    case BN_BF16: bn_row_bf16_c(out, in, n); break;
    case BN_Q8_0: bn_row_q8_0_c(out, in, n); break;
    case BN_Q6_K: bn_row_q6_k_c(out, in, n); break;
    case BN_Q4_0: bn_row_q4_0_c(out, in, n); break;
    case BN_Q4_K: bn_row_q4_k_c(out, in, n); break;
    case BN_F64:
        for (uint64_t k = 0; k < n; k++) {
            uint64_t u = bn_load_u64(in + 8 * k);
            double v;
            memcpy(&v, &u, sizeof v);
            out[k] = (float)v;
        }
        break;
    case BN_I64:
        for (uint64_t k = 0; k < n; k++) out[k] = (float)(int64_t)bn_load_u64(in + 8 * k);
        break;
    case BN_I32:
        for (uint64_t k = 0; k < n; k++) out[k] = (float)(int32_t)bn_load_u32(in + 4 * k);
        break;
    case BN_I16:
        for (uint64_t k = 0; k < n; k++) out[k] = (float)(int16_t)bn_load_u16(in + 2 * k);
        break;
    case BN_I8:
        for (uint64_t k = 0; k < n; k++) out[k] = (float)(int8_t)in[k];
        break;
    case BN_U8:
        for (uint64_t k = 0; k < n; k++) out[k] = (float)in[k];
        break;
    default: break; /* every type is above; the ternary ones returned */
    }
}
