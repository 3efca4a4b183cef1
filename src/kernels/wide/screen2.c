/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums from the coarse screening copy (kernels.h, ref/screen2.c).
 *
 * 32 bytes are 16 columns of 8 rows, half a group, a lane of 32 bits a row: maddubs with four bytes of
 * the vector in every lane, which both halves share, adds pairs of products to 16 bits. A row has two
 * sums of these, each of half the columns of a block: at most 64 * 3 * 127 = 24384.
 *
 * Codes are shifted to count once. For a vector alone that takes too long: two fields are left where
 * they count four times, and have sums of their own, again at most 16 * 12 * 127 = 24384. */
#include "kernels/wide/screen2.h"

#define ALWAYS static inline __attribute__((always_inline))

enum {
    HALF = BN_SCREEN2_ROWS / 2,
    VECTORS = 4, /* that rows meet at a time */
    SUMS = 4     /* of half a group: a vector each, or a field each of a vector alone */
};

/* four numbers of a vector in every lane */
ALWAYS w_int load_four(const int8_t *k)
{
    int32_t x;
    memcpy(&x, k, sizeof x);
    return w_set1_epi32(x);
}

/* Field f of all bytes: as it counts in its sum. */
ALWAYS w_int codes_of(w_int x, const size_t f, const size_t n)
{
    const w_int once = w_set1_epi8(3), four_times = w_set1_epi8(12);
    if (n > 1) return w_and_si256(w_srli_epi16(x, 2 * (int)f), once);
    return w_and_si256(f < 2 ? x : w_srli_epi16(x, 4), f % 2 ? four_times : once);
}

/* C of a block from the sums of half a group and vector i. */
ALWAYS w_int sum_of_codes(const w_int s[SUMS], const size_t i, const size_t n)
{
    if (n > 1) return w_sum_32(s[i]);
    w_int c = w_sum_32(w_sum_add(s[0], s[2]));
    w_int four = w_add_epi32(w_sum_32(s[1]), w_sum_32(s[3]));
    return w_add_epi32(c, w_srai_epi32(four, 2));
}

/* Adds columns [at, at + BN_SCREEN2_PIECE) of a group. */
ALWAYS void add_piece(w_int s[2][SUMS], const uint8_t *p, const struct bn_screen2_vector *v,
                      size_t at, const size_t n)
{
    w_int x = w_loadu_si256((const void *)p);
    w_int y = w_loadu_si256((const void *)(p + BN_SCREEN2_PIECE_BYTES / 2));
    for (size_t f = 0; f < BN_SCREEN2_FIELDS; f++) {
        w_int a = codes_of(x, f, n), b = codes_of(y, f, n);
        for (size_t i = 0; i < n; i++) {
            w_int k = load_four(v[i].k + at + 4 * f);
            size_t to = n > 1 ? i : f;
            s[0][to] = w_add_pairs(s[0][to], a, k);
            s[1][to] = w_add_pairs(s[1][to], b, k);
        }
    }
}

/* Adds a block to the sums of a group. */
ALWAYS void add_block(w_int sum[2][VECTORS], const uint8_t *u, const uint8_t *p,
                      const struct bn_screen2_vector *v, size_t b, size_t ahead, const size_t n)
{
    w_int s[2][SUMS];
    for (size_t i = 0; i < (n > 1 ? n : BN_SCREEN2_FIELDS); i++)
        s[0][i] = s[1][i] = w_setzero_si256();
    for (size_t j = 0; j < BN_SCREEN2_BLOCK; j += BN_SCREEN2_PIECE, p += BN_SCREEN2_PIECE_BYTES) {
        bn_screen2_ask(p + ahead, n);
        add_piece(s, p, v, b * BN_SCREEN2_BLOCK + j, n);
    }
    for (size_t h = 0; h < 2; h++) {
        w_int weight = w_cvtepu8_epi32(h_loadl_epi64((const void *)(u + h * HALF)));
        weight = w_add_epi32(weight, w_set1_epi32(BN_SCREEN2_BASE));
        for (size_t i = 0; i < n; i++) {
            w_int c = sum_of_codes(s[h], i, n);
            c = w_sub_epi32(w_add_epi32(c, c), w_set1_epi32(3 * v[i].block_sum[b]));
            sum[h][i] = w_add_epi32(sum[h][i], w_mullo_epi32(weight, c));
        }
    }
}

ALWAYS void group(int32_t *sum, size_t stride, const struct bn_screen2_group *g, size_t rows,
                  const struct bn_screen2_vector *v, const size_t n)
{
    const uint8_t *u = g->u, *p = g->codes;
    w_int s[2][VECTORS];
    for (size_t i = 0; i < n; i++) s[0][i] = s[1][i] = w_setzero_si256();
    for (size_t b = 0; b < g->blocks; b++, u += BN_SCREEN2_ROWS, p += BN_SCREEN2_BLOCK_BYTES)
        add_block(s, u, p, v, b, g->ahead, n);
    for (size_t i = 0; i < n; i++, sum += stride) {
        w_store_head_i32(sum, rows, s[0][i]);
        if (rows > HALF) w_store_head_i32(sum + HALF, rows - HALF, s[1][i]);
    }
}

BN_SCREEN2_GROUP_FN(1)
BN_SCREEN2_GROUP_FN(2)
BN_SCREEN2_GROUP_FN(3)
BN_SCREEN2_GROUP_FN(4)
static bn_screen2_group_fn *const groups[VECTORS + 1] = {NULL, group_1, group_2, group_3, group_4};

void W_NAME(screen2)(int32_t *sum, size_t stride, const struct bn_screen2 *w, size_t r0, size_t r1,
                     const struct bn_screen2_vector *v, size_t n_vec)
{
    bn_screen2_groups(sum, stride, w, r0, r1, v, n_vec, (struct bn_screen2_plan){groups, VECTORS});
}
