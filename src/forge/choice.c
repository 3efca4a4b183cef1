/* SPDX-License-Identifier: Apache-2.0
 * Which storage type a tensor of an output file gets: from the words of an option, from the shape,
 * and what to say when the two do not fit. Shared by convert and synth. */
#include "forge/forge.h"

#include "model/files/source.h"

enum { I2S_BLOCK = 128, IQ2_BLOCK = 64 };

static bool is_head_type(enum bn_type t)
{
    switch (t) {
    case BN_F32:
    case BN_F16:
    case BN_BF16:
    case BN_Q8_0:
    case BN_Q6_K:
    case BN_Q4_0:
    case BN_Q4_K: return true;
    default: return false;
    }
}

bitnet_status bn_choice_parse(struct bn_choice *out, const char *name, bool ternary,
                              bitnet_error *err)
{
    *out = (struct bn_choice){BN_CHOICE_AUTO, BN_F32};
    if (name == NULL || *name == 0) return BITNET_OK;
    if (strcmp(name, "keep") == 0) {
        out->how = BN_CHOICE_KEEP;
        return BITNET_OK;
    }
    enum bn_type t;
    if (bn_type_by_name(&t, name)) {
        const struct bn_type_info *i = bn_type_info(t);
        bool known = ternary ? i->ternary && t != BN_IQ2_BN_R4 : is_head_type(t);
        if (known && i->gguf_id >= 0) {
            *out = (struct bn_choice){BN_CHOICE_TYPE, t};
            return BITNET_OK;
        }
    }
    return bn_fail(err, BITNET_E_ARG, "'%.32s' is no type for the %s; there are: %s", name,
                   ternary ? "ternary matrices" : "embedding and head",
                   ternary ? "keep, i2_s, tq2_0, tq1_0, iq2_bn, iq1_bn, q1_0, q2_0, pq2_0, ptq1_0"
                           : "keep, f32, f16, bf16, q8_0, q6_k, q4_0, q4_k");
}

enum bn_type bn_choice_auto(enum bn_type_scale scale, uint64_t rows, uint64_t cols)
{
    /* Blocks that straddle rows are legal in I2_S, but no other engine reads them right: such a
     * file is only made where nothing else can hold the matrix. */
    uint64_t n;
    if (scale == BN_TS_TENSOR && cols % I2S_BLOCK == 0) return BN_I2_S;
    if (cols % IQ2_BLOCK == 0 || scale != BN_TS_TENSOR) return BN_IQ2_BN;
    return bn_mul_u64(&n, rows, cols) && n % I2S_BLOCK == 0 ? BN_I2_S : BN_IQ2_BN;
}

bitnet_status bn_choice_bytes(uint64_t *out, enum bn_type t, const char *tensor, uint64_t rows,
                              uint64_t cols, bitnet_error *err)
{
    if (bn_type_bytes(out, t, rows, cols)) return BITNET_OK;
    const struct bn_type_info *i = bn_type_info(t);
    if (i->block > 1 && cols % i->block)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "'%s' has rows of %llu weights, and %s needs a multiple of %u", tensor,
                       (unsigned long long)cols, i->name, i->block);
    return bn_fail(err, BITNET_E_UNSUPPORTED,
                   "'%s' has %llu x %llu weights, and %s needs a multiple of %d in all", tensor,
                   (unsigned long long)rows, (unsigned long long)cols, i->name, I2S_BLOCK);
}

bool bn_choice_file_type(uint32_t *out, enum bn_type t)
{
    switch (t) {
    case BN_TQ1_0: *out = 36; return true;
    case BN_TQ2_0: *out = 37; return true;
    case BN_I2_S: *out = 40; return true;
    default: return false; /* engines disagree on the numbers of the others */
    }
}
