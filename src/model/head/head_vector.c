/* SPDX-License-Identifier: Apache-2.0 */
#include "model/head/head_vector.h"

#include "base/det_math.h"
#include "base/rng.h"
#include "model/head/head_codes.h"
#include <math.h>

enum {
    K_LIMIT = 126, /* before the dither, which adds less than 1 */
    FAIL_BITS = 48
};

/* Any fixed number, as for the rotation. */
static const uint64_t dither_seed = 0xd17e5eed4b170f52u;

/* Outside of these norms bounds might not be finite, or what they forget not be small. */
static const double norm_min = 0x1p-20, norm_max = 0x1p60;

double bn_head_z(uint64_t n_wanted)
{
    return sqrt(2 * (bn_det_log(2.0 * (double)n_wanted) + FAIL_BITS * bn_det_log(2.0)));
}

void bn_head_draw_dither(float *dither, size_t n)
{
    struct bn_rng rng = {dither_seed};
    for (size_t i = 0; i < n; i++)
        dither[i] = (float)(2 * bn_rng_below(&rng, 1 << 23) + 1) * 0x1p-24f;
}

/* What a hidden state is more uneven, or its unit coarser, than the rows' noise takes for granted. */
static double excess(const double *squares, size_t blocks, double sum, double unit, size_t cols)
{
    double mean = sum / (double)blocks, variance = 0;
    for (size_t b = 0; b < blocks; b++) variance += (squares[b] - mean) * (squares[b] - mean);
    double spread = sqrt(sqrt(variance / (double)blocks) / (mean * bn_code_spread));
    double coarse = unit / (sqrt(sum / (double)cols) * bn_code_unit);
    double more = spread > coarse ? spread : coarse;
    return more > 1 ? more : 1;
}

bool bn_head_vector(struct bn_head_vector *v, const struct bn_screen *s, int8_t *k,
                    int32_t *block_sum, const float *x, double z)
{
    enum { BLOCK = BN_ROTATE_BLOCK };
    double squares[BN_SCREEN2_COLS_MAX / BLOCK], most = 0, sum = 0;
    size_t blocks = s->rotation.blocks;
    for (size_t b = 0; b < blocks; b++) {
        squares[b] = 0;
        for (size_t i = 0; i < BLOCK; i++) {
            double a = fabs((double)x[b * BLOCK + i]);
            most = a > most ? a : most;
            squares[b] += a * a;
        }
        sum += squares[b];
    }
    double norm = sqrt(sum);
    bool good = norm >= norm_min && norm <= norm_max;
    double unit = most / K_LIMIT, per_unit = good ? K_LIMIT / most : 0;
    *v = (struct bn_head_vector){.coarse = {k, block_sum}};
    for (size_t b = 0; b < blocks; b++) {
        block_sum[b] = 0;
        for (size_t i = b * BLOCK; i < (b + 1) * BLOCK; i++) {
            /* a sum above 0 is rounded down by its conversion */
            double t = good ? (double)x[i] * per_unit + (double)s->dither[i] + K_LIMIT : K_LIMIT;
            k[i] = (int8_t)((int32_t)t - K_LIMIT);
            block_sum[b] += k[i];
        }
        v->sum += block_sum[b];
    }
    if (!good) return false;
    v->unit = (float)unit;
    v->margin =
        (float)(z * norm * excess(squares, blocks, sum, unit, s->rotation.cols) * (1 + 0x1p-10));
    return true;
}
