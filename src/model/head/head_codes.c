/* SPDX-License-Identifier: Apache-2.0 */
#include "model/head/head_codes.h"

#include "base/half.h"
#include <math.h>

enum {
    BLOCK = BN_TURN_BLOCK,
    LANES = 16, /* of sums, so that they can be vectors */
    TRIES = 3,  /* for a tilt */
    LEVELS = BN_SCREEN2_BASE + UINT8_MAX
};

/* Steps of the codes: the coarse one in terms of the row's root mean square, the fine one of that.
 * Both are near the best for normal numbers. */
static const double coarse_step = 1.05;
static const float fine_step = 0.29f, first_tilt = 0.012f;

/* Rows below this norm are nothing but noise: so nothing underflows. */
static const double norm_min = 0x1p-80;

/* Of a block; v is the row in steps, q its coarse code, e what a code leaves of it. */
struct sums {
    double vv, vq;
};
struct left {
    double ee, ev;
};

static inline double sum_of(float s[LANES])
{
    for (size_t l = 0; l < 8; l++) s[l] += s[l + 8];
    for (size_t l = 0; l < 4; l++) s[l] += s[l + 4];
    return (double)((s[0] + s[2]) + (s[1] + s[3]));
}

static double dot(const float *a, const float *b)
{
    float s[LANES] = {0};
    for (size_t i = 0; i < BLOCK; i += LANES)
        for (size_t l = 0; l < LANES; l++) s[l] += a[i + l] * b[i + l];
    return sum_of(s);
}

/* The nearest of -1.5, -0.5, 0.5, 1.5. */
static inline float nearest(float x)
{
    const uint32_t sign = 0x80000000, half = 0x3f000000, one = 0x3f800000, more = 0x00c00000;
    uint32_t bits = bn_f32_as_u32(x), beyond = (bits & ~sign) >= one ? more : 0;
    return bn_u32_as_f32((bits & sign) | half | beyond);
}

static struct sums coarse_block(uint8_t *code, const float *y, float per_step)
{
    float v[BLOCK], q[BLOCK];
    for (size_t i = 0; i < BLOCK; i++) v[i] = y[i] * per_step;
    for (size_t i = 0; i < BLOCK; i++) q[i] = nearest(v[i]);
    for (size_t i = 0; i < BLOCK; i++) code[i] = (uint8_t)(int32_t)(q[i] + 1.5f);
    return (struct sums){dot(v, v), dot(v, q)};
}

/* From sums in fine steps. */
static struct left left_of(double ee, double ev)
{
    const double square = (double)fine_step * (double)fine_step;
    return (struct left){ee * square, ev * square};
}

/* v and e = v - a * q in steps of the fine code; behind the block's size both are 0 */
static struct left coarse_rest(float *e, float *v, const float *y, size_t size, float per_step,
                               float a)
{
    for (size_t i = 0; i < BLOCK; i++) {
        float x = y[i] * per_step;
        v[i] = x * (1 / fine_step);
        e[i] = (x - a * nearest(x)) * (1 / fine_step);
    }
    for (size_t i = size; i < BLOCK; i++) e[i] = 0;
    return left_of(dot(e, e), dot(e, v));
}

/* What the nearest code to e + tilt * v leaves of e along v. */
static double along_with(const float *e, const float *v, float tilt)
{
    float fv[LANES] = {0};
    for (size_t i = 0; i < BLOCK; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            fv[l] += (e[i + l] - nearest(e[i + l] + tilt * v[i + l])) * v[i + l];
    return sum_of(fv);
}

/* What is left along v would be a bias; a tilt of the codes takes it away, as far as single steps
 * allow. */
static struct left fine_block(int8_t *code, const float *e, const float *v, size_t size, double vv)
{
    float k[BLOCK], f[BLOCK], tilt = first_tilt, best_tilt = 0;
    double least = (double)INFINITY;
    for (int i = 0; i < TRIES; i++) {
        double along = along_with(e, v, tilt);
        if (fabs(along) < fabs(least)) {
            best_tilt = tilt;
            least = along;
        }
        tilt += vv > 0 ? (float)(left_of(0, along).ev / vv) : 0;
    }
    for (size_t i = 0; i < BLOCK; i++) k[i] = nearest(e[i] + best_tilt * v[i]);
    for (size_t i = 0; i < BLOCK; i++) code[i] = (int8_t)(int32_t)(k[i] + 0.5f);
    for (size_t i = 0; i < BLOCK; i++) f[i] = e[i] - k[i];
    for (size_t i = size; i < BLOCK; i++) f[i] = 0;
    return left_of(dot(f, f), least);
}

/* What a row's code leaves, block after block, in steps. */
struct rest {
    double proxy, proxy_squares; /* of blocks: across v, for each of their dimensions */
    double along;                /* squares along v */
    double code;                 /* squares of what the code stands for */
};

static void add_rest(struct rest *r, struct left s, double vv, size_t size)
{
    double along = vv > 0 ? s.ev * s.ev / vv : 0;
    double across = s.ee > along ? s.ee - along : 0;
    double proxy = across / (double)(size > 1 ? size - 1 : 1);
    r->proxy += proxy;
    r->proxy_squares += proxy * proxy;
    r->along += along;
    r->code += vv - 2 * s.ev + s.ee;
}

/* All terms of docs/inside/numerics.md in units of the hidden state's norm times standard deviations. */
static float noise_of(const struct rest *r, double step, double norm, size_t cols)
{
    double n = (double)bn_rotation_blocks(cols), mean = r->proxy / n;
    double variance = r->proxy_squares / n - mean * mean;
    double sd = variance > 0 ? sqrt(variance) : 0;
    double code = step * sqrt(r->code > 0 ? r->code : 0);
    double unit = bn_code_unit / 2 * code;
    double random = sqrt(step * step * (mean + bn_code_spread * sd) + unit * unit / (double)cols);
    double gamma = ((double)cols / 16 + 8) * 0x1p-24;
    double fixed = step * sqrt(r->along) + (0x1p-14 + gamma) * norm + 0x1p-20 * (code + norm);
    return (float)((random + fixed / bn_code_z_min) * (1 + 0x1p-10) + 0x1p-100);
}

static double norm_of(const float *y, size_t n)
{
    double squares[LANES] = {0}, sum = 0;
    for (size_t i = 0; i < n; i += LANES)
        for (size_t l = 0; l < LANES; l++) squares[l] += (double)y[i + l] * (double)y[i + l];
    for (size_t l = 0; l < LANES; l++) sum += squares[l];
    return sqrt(sum);
}

/* A number for every block that makes the rest of its coarse code stand across it, as a byte. Returns
 * the unit of these numbers. */
static double weigh(uint8_t *u, const struct sums *s, size_t blocks)
{
    double most = 0;
    for (size_t b = 0; b < blocks; b++) {
        double a = s[b].vq > 0 ? s[b].vv / s[b].vq : 0;
        most = a > most ? a : most;
    }
    for (size_t b = 0; b < blocks; b++) {
        double a = s[b].vq > 0 ? s[b].vv / s[b].vq : 0;
        double level = a * (LEVELS / most) + 0.5 - BN_SCREEN2_BASE;
        u[b] = (uint8_t)(level < 0 ? 0 : level > UINT8_MAX ? UINT8_MAX : level);
    }
    return most / LEVELS;
}

/* A row so small that it need not be told from 0. */
static struct bn_code_row no_codes(uint8_t *coarse, uint8_t *u, int8_t *fine, size_t blocks,
                                   double norm)
{
    memset(coarse, 0, blocks * BLOCK);
    memset(fine, 0, blocks * BLOCK);
    memset(u, 0, blocks);
    float noise = (float)(norm * 1.125 / bn_code_z_min + 0x1p-100);
    return (struct bn_code_row){.noise = noise, .fine_noise = noise};
}

bool bn_head_codes(struct bn_code_row *out, uint8_t *coarse, uint8_t *u, int8_t *fine,
                   const float *y, size_t cols)
{
    struct sums s[BN_SCREEN2_COLS_MAX / BLOCK];
    struct rest coarse_left = {0}, fine_left = {0};
    float v[BLOCK], e[BLOCK];
    size_t blocks = bn_rotation_blocks(cols);
    double norm = norm_of(y, blocks * BLOCK), step = coarse_step * norm / sqrt((double)cols);
    if (!(norm <= bn_code_norm_max)) return false;
    if (norm < norm_min) {
        *out = no_codes(coarse, u, fine, blocks, norm);
        return true;
    }
    float per_step = (float)(1 / step);
    for (size_t b = 0; b < blocks; b++)
        s[b] = coarse_block(coarse + b * BLOCK, y + b * BLOCK, per_step);
    double unit = weigh(u, s, blocks);
    for (size_t b = 0; b < blocks; b++) {
        size_t size = bn_rotation_size(cols, b);
        float a = (float)(unit * (BN_SCREEN2_BASE + u[b]));
        add_rest(&coarse_left, coarse_rest(e, v, y + b * BLOCK, size, per_step, a), s[b].vv, size);
        add_rest(&fine_left, fine_block(fine + b * BLOCK, e, v, size, s[b].vv), s[b].vv, size);
    }
    *out = (struct bn_code_row){(float)(step * unit / 2), noise_of(&coarse_left, step, norm, cols),
                                (float)step * fine_step, noise_of(&fine_left, step, norm, cols)};
    return true;
}
