/* SPDX-License-Identifier: Apache-2.0 */
#include "model/head/head_int8.h"

#include <float.h>
#include <math.h>

enum {
    TILE = 64, /* rows that meet all tokens while they are in the cache: 160 KiB at 2,560 columns */
    K_LIMIT = 32767
};

void bn_head_int8_lay_out(struct bn_head_int8 *p, struct bn_plan *plan, const struct bn_model *m,
                          uint32_t max_rows)
{
    p->m = m;
    p->stride = bn_align_up(m->config.n_embd, BN_K_ALIGN);
    p->vectors = bn_plan_piece(plan, max_rows, sizeof *p->vectors);
    p->k = bn_plan_piece(plan, max_rows * p->stride, sizeof *p->k);
}

/* k = round_half_even(x * (32767 / max|x|)), the padding stays 0 */
void bn_head_int8_put(struct bn_head_int8 *p, size_t row, const float *x)
{
    const double to_integer = 0x1.8p52;
    size_t cols = p->m->config.n_embd;
    int16_t *k = p->k + row * p->stride;
    float most = 0;
    bool finite = true;
    for (size_t i = 0; i < cols; i++) {
        finite &= fabsf(x[i]) <= FLT_MAX;
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    }
    p->vectors[row] = (struct bn_dense8_vector){k, finite ? (double)most / K_LIMIT : (double)NAN};
    double per_unit = finite && most > 0 ? K_LIMIT / (double)most : 0;
    for (size_t i = 0; i < cols; i++)
        k[i] = finite ? (int16_t)(int32_t)((double)x[i] * per_unit + to_integer - to_integer) : 0;
}

void bn_head_int8_pass(const struct bn_head_int8 *p, const struct bn_dense8 *copy, float *logits,
                       size_t n_rows, struct bn_range share)
{
    for (size_t r = share.begin; r < share.end; r += TILE)
        p->m->kernels.dense8(logits + r, p->m->config.n_vocab, copy, r,
                             bn_min_size(r + TILE, share.end), p->vectors, n_rows);
}
