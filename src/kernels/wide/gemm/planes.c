/* SPDX-License-Identifier: Apache-2.0
 *
 * Activations in planes of one token or several times matrices whose rows stand in lanes
 * (planes.h). Group after group of rows meets the tokens, two vectors at a time, since what is decoded
 * then serves both; or all at once, where a layout is decoded apart from products. */
#include "kernels/wide/gemm/planes.h"

enum { MINUS_MAX = 3072 /* sums of pieces of all tokens at a time; two planes have up to 2048 */ };

/* The vectors of token t, and of the next one if there are two tokens. */
static struct bn_two two_of(const struct bn_gemm_args *a, const struct bn_planes *x, size_t t,
                            enum bn_two_kind kind)
{
    size_t second = kind == BN_TWO_TOKENS ? t + 1 : t;
    const int8_t *q = x->q + t * x->stride;
    return (struct bn_two){
        .kind = kind,
        .q = {q, kind == BN_TWO_TOKENS ? q + x->stride : q + x->plane_stride},
        .unit = {x->unit + t * x->unit_stride, x->unit + second * x->unit_stride},
        .y = {a->y + t * a->y_stride, a->y + second * a->y_stride},
    };
}

/* Tokens that fit into BN_TWOS, and whose sums fit into `minus`, [vectors][pieces]. */
static void mul_some(const struct bn_gemm_args *a, const struct bn_planes *x,
                     const struct bn_pieces *in, const struct bn_planes_plan *l, int32_t *minus)
{
    struct bn_two two[BN_TWOS];
    size_t n = 0;
    for (size_t t = 0; t < a->n_tok; t += two[n++].kind == BN_TWO_TOKENS ? 2 : 1) {
        two[n] = two_of(a, x, t,
                        x->n_planes == 2   ? BN_TWO_PLANES
                        : t + 1 < a->n_tok ? BN_TWO_TOKENS
                                           : BN_ONE_VECTOR);
        two[n].minus[0] = minus + t * x->n_planes * in->count;
        two[n].minus[1] = two[n].minus[0] + in->count;
    }
    bool several = l->several && n > 1;
    for (size_t i = 0; (several || l->always_minus) && i < a->n_tok * x->n_planes; i++) {
        const int8_t *q = x->q + i / x->n_planes * x->stride + i % x->n_planes * x->plane_stride;
        for (size_t k = 0; k < in->count; k++)
            minus[i * in->count + k] = l->minus(q + k * in->cols, in->cols);
    }
    for (size_t r = a->r0; r < a->r1; r += l->group_rows) {
        if (several) l->several(two, n, a->w, r, a->r1, in);
        for (size_t i = 0; !several && i < n; i++)
            l->group[two[i].kind](two + i, a->w, r, a->r1, in);
    }
}

void W_NAME(mul_planes)(const struct bn_gemm_args *a, const struct bn_planes *x,
                        const struct bn_planes_plan *l)
{
    int32_t minus[MINUS_MAX];
    struct bn_pieces in = bn_pieces(a->w);
    size_t most = bn_max_size(MINUS_MAX / (in.count * x->n_planes), 1);
    most = bn_min_size(most, 2 * BN_TWOS / x->n_planes);
    for (size_t t = 0; t < a->n_tok; t += most) {
        const struct bn_gemm_args some = bn_gemm_tokens(a, t, bn_min_size(most, a->n_tok - t));
        const struct bn_planes from = bn_planes_from(x, t);
        mul_some(&some, &from, &in, l, minus);
    }
}
