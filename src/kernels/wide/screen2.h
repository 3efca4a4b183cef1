/* SPDX-License-Identifier: Apache-2.0
 *
 * The coarse screening copy (kernels.h) group by group, for the variants that make a group's sums. */
#ifndef BN_KERNELS_WIDE_SCREEN2_H
#define BN_KERNELS_WIDE_SCREEN2_H

#include "kernels/wide/lanes.h"

enum {
    BN_SCREEN2_PIECE = 16, /* columns */
    BN_SCREEN2_PIECE_BYTES = 4 * BN_SCREEN2_ROWS,
    BN_SCREEN2_BLOCK_BYTES = BN_SCREEN2_BLOCK / BN_SCREEN2_PIECE * BN_SCREEN2_PIECE_BYTES,
    BN_SCREEN2_FIELDS = 4 /* of a byte */
};

/* A group: the weights of its blocks, and its codes. */
struct bn_screen2_group {
    const uint8_t *u, *codes;
    size_t blocks, ahead;
};

/* The sums of a group with some vectors; those of its first `rows` rows are stored. */
typedef void bn_screen2_group_fn(int32_t *sum, size_t stride, const struct bn_screen2_group *g,
                                 size_t rows, const struct bn_screen2_vector *v);

/* group_N out of a variant's group() for any number of vectors */
#define BN_SCREEN2_GROUP_FN(n)                                                           \
    static void group_##n(int32_t *sum, size_t stride, const struct bn_screen2_group *g, \
                          size_t rows, const struct bn_screen2_vector *v)                \
    {                                                                                    \
        group(sum, stride, g, rows, v, n);                                               \
    }

/* A vector alone asks for lines into the first cache, which several vectors need for themselves.
 * Inlined early: gcc 12 takes a call that does nothing else for one that does nothing. */
static inline __attribute__((always_inline)) void bn_screen2_ask(const uint8_t *p, const size_t n)
{
    if (n == 1) h_prefetch((const char *)p, H_T0);
    else h_prefetch((const char *)p, H_T1);
}

/* fn[n]: for n vectors, n from 1 to most */
struct bn_screen2_plan {
    bn_screen2_group_fn *const *fn;
    size_t most;
};

/* bn_screen2_fn by a variant's plan */
static inline void bn_screen2_groups(int32_t *sum, size_t stride, const struct bn_screen2 *w,
                                     size_t r0, size_t r1, const struct bn_screen2_vector *v,
                                     size_t n_vec, struct bn_screen2_plan plan)
{
    size_t blocks = bn_div_up(w->cols, BN_SCREEN2_BLOCK), bytes = bn_screen2_group_bytes(w->cols);
    size_t weight_bytes = bytes - blocks * BN_SCREEN2_BLOCK_BYTES;
    for (size_t n; n_vec; n_vec -= n, v += n, sum += n * stride) {
        n = bn_min_size(n_vec, plan.most);
        size_t ahead = n == 1 ? w->ahead : 2 * bytes; /* many are busy: they take two groups */
        for (size_t r = r0; r < r1; r += BN_SCREEN2_ROWS) {
            const uint8_t *u = w->data + r / BN_SCREEN2_ROWS * bytes;
            struct bn_screen2_group g = {u, u + weight_bytes, blocks, ahead};
            for (size_t i = 0; i < weight_bytes; i += 64) bn_screen2_ask(u + i + ahead, n);
            plan.fn[n](sum + r - r0, stride, &g, bn_min_size(BN_SCREEN2_ROWS, r1 - r), v);
        }
    }
}

#endif
