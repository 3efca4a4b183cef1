/* SPDX-License-Identifier: Apache-2.0 */
#include "model/rope.h"

#include "base/det_math.h"

/* 1 / theta^(2i/d), each step rounded to f32 */
static float frequency(const struct bn_config *c, uint32_t i)
{
    float exponent = (float)(2 * i) / (float)c->rope_dim;
    float power = (float)bn_det_exp(bn_det_log((double)c->rope_theta) * (double)exponent);
    return 1.0f / power;
}

void bn_rope_factors(float *out, const struct bn_config *c)
{
    for (uint32_t i = 0; i < c->rope_dim / 2; i++) {
        out[i] = 1.0f;
        if (c->rope_scaling == BN_RS_LINEAR) out[i] = c->rope_factor;
        if (c->rope_scaling != BN_RS_LLAMA3) continue;
        /* Llama 3.1: long wavelengths are stretched, short ones kept, those between blended */
        float wavelength = 6.2831853071795864f / frequency(c, i), orig = (float)c->rope_orig_ctx;
        if (wavelength > orig / c->rope_low_freq) {
            out[i] = c->rope_factor;
        } else if (wavelength >= orig / c->rope_high_freq) {
            float smooth =
                (orig / wavelength - c->rope_low_freq) / (c->rope_high_freq - c->rope_low_freq);
            out[i] = 1.0f / ((1.0f - smooth) / c->rope_factor + smooth);
        }
    }
}

void bn_rope_table(float *table, const struct bn_config *c, const float *factors, uint32_t n_ctx)
{
    uint32_t half = c->rope_dim / 2;
    for (uint32_t i = 0; i < half; i++) {
        float freq = frequency(c, i) / factors[i];
        for (uint32_t pos = 0; pos < n_ctx; pos++) {
            double sin, cos;
            bn_det_sincos((double)((float)pos * freq), &sin, &cos);
            table[(size_t)pos * c->rope_dim + i] = (float)cos;
            table[(size_t)pos * c->rope_dim + half + i] = (float)sin;
        }
    }
}
