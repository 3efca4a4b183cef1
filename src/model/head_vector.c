/* SPDX-License-Identifier: Apache-2.0 */
#include "model/head_vector.h"

#include <math.h>

enum {
    K_LIMIT_1 = 127,  /* what one plane holds */
    K_LIMIT_2 = 16319 /* 128 * 127 + 63: what two hold */
};

/* The rounding to one plane may widen bounds by this share. */
static const double one_plane_share = 0.25;

/* k = round(x * per_unit + d) as planes. */
static void make_planes(int8_t *high, int8_t *low, const float *x, const float *d, size_t n,
                        double per_unit)
{
    const double to_integer = 0x1.8p52;
    for (size_t i = 0; i < n; i++) {
        int32_t k = (int32_t)((double)x[i] * per_unit + (double)d[i] + to_integer - to_integer);
        int32_t top = low ? (k + 64 + 128 * 128) / 128 - 128 : k;
        high[i] = (int8_t)top;
        if (low) low[i] = (int8_t)(k - 128 * top);
    }
}

/* One plane of int8 will do where it makes no bound more than a quarter wider; a vector with
 * outliers gets two. With unit g and dither d, x_j = g (k_j - d_j) up to an error that is uniform
 * within +-g / 2; n1, n2 the norms; z = sum (1/2 - u_j) x_j, so that a row's product with x is
 * step * (g (S - shift) + z) up to
 *   the rounding of the row to 4 bits: step * t * n2, and that of x: step * t * g * norm, but for a
 *     probability of 2^-60 together; plus what the steps of the dithers and float arithmetic shift
 *     their means: less than 2^-16 a column, the second of w, whose sizes add up to at most
 *     128 * norm;
 *   the float rounding of the full pass: one multiplication, cols / 16 additions in a lane and 4 in
 *     the tree, of products whose sizes add up to at most 7.5 * step * n1; and of products that
 *     underflow;
 *   the double rounding here and in the kernel: less than 2^-30 * n1.
 * All are taken a little too large. (docs/numerics.md) */
bool bn_head_vector(struct bn_screen_vector *v, const struct bn_model *m, int8_t *planes,
                    const float *x, double t, bool margins)
{
    size_t cols = m->config.n_embd;
    const float *u = m->screen_dither;
    double most = 0, n1 = 0, squares = 0, z = 0;
    for (size_t i = 0; i < cols; i++) {
        double a = fabs((double)x[i]);
        most = a > most ? a : most;
        n1 += a;
        squares += a * a;
        z += (0.5 - (double)u[i]) * (double)x[i];
    }
    *v = (struct bn_screen_vector){.high = planes};
    if (!(7.5 * (double)m->screen_step_max * n1 < 1e37)) return false;
    double n2 = sqrt(squares), limit = K_LIMIT_1;
    if (most / K_LIMIT_1 * (double)m->screen_norm_max > one_plane_share * n2) {
        v->low = planes + bn_align_up(cols, BN_K_ALIGN);
        limit = K_LIMIT_2;
    }
    make_planes(planes, (int8_t *)v->low, x, u + cols, cols, most > 0 ? limit / most : 0);
    double gamma = ((double)cols / 16 + 8) * 0x1p-24, trust = margins ? 1 + 0x1p-20 : 0;
    v->unit = most / limit;
    v->offset = z;
    v->margin = (t * n2 + (0x1p-15 + 7.5 * gamma) * n1) * trust;
    v->per_norm = v->unit * (t + 0x1p-8) * trust;
    v->tiny = ((double)cols + 16) * 0x1p-149 * trust;
    return true;
}
