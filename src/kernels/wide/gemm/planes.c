/* SPDX-License-Identifier: Apache-2.0
 *
 * Activations in planes of one token or several times matrices whose rows stand in lanes
 * (planes.h). Group after group of rows meets the tokens: two vectors at a time, since what is decoded
 * then serves both. All but the first find the group in the caches. */
#include "kernels/wide/gemm/planes.h"

enum { MINUS_MAX = 3072 /* sums of pieces of all tokens at a time; two planes have up to 2048 */ };

/* The vectors of token t, and of the next one if there are two tokens. */
static struct bn_two two_of(const struct bn_gemm_args *a, const struct bn_planes *x, size_t t,
                            enum bn_two_kind kind)
{
    size_t second = kind == BN_TWO_TOKENS ? t + 1 : t;
    const int8_t *q = x->q + t * x->stride;
    return (struct bn_two){
        .q = {q, kind == BN_TWO_TOKENS ? q + x->stride : q + x->plane_stride},
        .unit = {x->unit + t * x->unit_stride, x->unit + second * x->unit_stride},
        .y = {a->y + t * a->y_stride, a->y + second * a->y_stride},
    };
}

void W_NAME(mul_planes)(const struct bn_gemm_args *a, const struct bn_planes *x,
                        const struct bn_planes_plan *l)
{
    int32_t minus[MINUS_MAX]; /* [vectors][pieces] */
    struct bn_pieces in = bn_pieces(a->w);
    size_t most = bn_max_size(MINUS_MAX / (in.count * x->n_planes), 1);
    for (size_t t0 = 0, n; t0 < a->n_tok; t0 += n) {
        n = bn_min_size(most, a->n_tok - t0);
        const struct bn_gemm_args some = bn_gemm_tokens(a, t0, n);
        const struct bn_planes from = bn_planes_from(x, t0);
        for (size_t i = 0; l->minus && i < n * x->n_planes; i++)
            l->minus(minus + i * in.count,
                     from.q + i / x->n_planes * x->stride + i % x->n_planes * x->plane_stride, &in);
        for (size_t r = a->r0; r < a->r1; r += l->group_rows)
            for (size_t t = 0; t < n; t++) {
                enum bn_two_kind kind = x->n_planes == 2 ? BN_TWO_PLANES
                                        : t + 1 < n      ? BN_TWO_TOKENS
                                                         : BN_ONE_VECTOR;
                struct bn_two v = two_of(&some, &from, t, kind);
                v.minus[0] = minus + t * x->n_planes * in.count;
                v.minus[1] = v.minus[0] + in.count;
                l->group[kind](&v, a->w, r, a->r1, &in);
                t += kind == BN_TWO_TOKENS;
            }
    }
}
