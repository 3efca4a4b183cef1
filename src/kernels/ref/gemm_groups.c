/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference: matrices of ternary weights for activations in planes, layouts "g2", "g3" and "g5": 2, 1.67
 * and 1.6 bits a weight. They hold {-1, 0, +1} and scales of every kind. Where scales change every few
 * columns, sums over columns that lie side by side in a register would have to be added up across it
 * each time. So here a register has rows side by side: a lane of four bytes is four columns (a quad) of
 * a few rows, the same columns in all lanes, and these are multiplied with the same four activations.
 *
 * Lane d of a group has the rows d, L + d, 2 L + d, ... with L lanes. A quad of a group is the bytes of
 * its lanes in order; quads follow each other in the order of columns. A byte is
 *   g2 (8 lanes, 32 rows)   four codes w + 1 of two bits, those of row i L + d in bits 2 i and 2 i + 1;
 *   g3 (8 lanes, 48 rows)   |m| of two triples, as in "t3": rows 0-2 in the low nibble, rows 3-5 in the
 *                           high one. After every four quads come the signs, of byte i in their byte i:
 *                           bits 7, 5, 3, 1 for the first triple in the four quads, 6, 4, 2, 0 for the
 *                           second one, set where m < 0;
 *   g5 (16 lanes, 80 rows)  five codes, as in "t5".
 * Block scales: those of a group's rows stand together, block after block. */
#include "kernels/groups.h"
#include "kernels/ref/steps.h"
#include "kernels/t5.h"

enum { STEP = BN_STEP_COLS };

/* The bytes of a lane, in the order of columns, to and from the quads of a step. */
static void put_lane(uint8_t *to, size_t quad_bytes, size_t lane, const uint8_t *bytes)
{
    to += BN_QUAD * lane;
    for (size_t k = 0; k < STEP; k += BN_QUAD, to += quad_bytes) memcpy(to, bytes + k, BN_QUAD);
}

static void get_lane(uint8_t *bytes, const uint8_t *from, size_t quad_bytes, size_t lane)
{
    from += BN_QUAD * lane;
    for (size_t k = 0; k < STEP; k += BN_QUAD, from += quad_bytes) memcpy(bytes + k, from, BN_QUAD);
}

/* ---- g2 ---- */

static void encode2(uint8_t *to, const struct bn_step *s)
{
    for (size_t d = 0; d < BN_G2_LANES; d++) {
        const int8_t(*w)[STEP] = s->w + d;
        uint8_t bytes[STEP];
        for (size_t k = 0; k < STEP; k++)
            bytes[k] = (uint8_t)(0x55 + w[0][k] + w[BN_G2_LANES][k] * 4 +
                                 w[2 * BN_G2_LANES][k] * 16 + w[3 * BN_G2_LANES][k] * 64);
        put_lane(to, BN_G2_QUAD_BYTES, d, bytes);
    }
}

static void decode2(struct bn_step *s, const uint8_t *p)
{
    for (size_t d = 0; d < BN_G2_LANES; d++) {
        uint8_t bytes[STEP];
        get_lane(bytes, p, BN_G2_QUAD_BYTES, d);
        for (size_t i = 0; i < 4; i++)
            for (size_t k = 0; k < STEP; k++)
                s->w[i * BN_G2_LANES + d][k] = (int8_t)((bytes[k] >> 2 * i & 3) - 1);
    }
}

/* ---- g3 ---- */

enum { PART = BN_G3_PART_QUADS * BN_QUAD }; /* columns with their signs */

/* A lane's two triples: their nibbles, and their signs in the top two bits. Every column is computed
 * alike, so that compilers use vector instructions. */
static void encode_triples(uint8_t nibbles[STEP], uint8_t signs[STEP], const struct bn_step *s,
                           size_t lane)
{
    const int8_t *w[6];
    for (size_t r = 0; r < 6; r++) w[r] = s->w[r * BN_G3_LANES + lane];
    for (size_t k = 0; k < STEP; k++) {
        int8_t m0 = (int8_t)(w[0][k] + 3 * w[1][k] + 9 * w[2][k]);
        int8_t m1 = (int8_t)(w[3][k] + 3 * w[4][k] + 9 * w[5][k]);
        uint8_t a0 = (uint8_t)(m0 < 0 ? -m0 : m0), a1 = (uint8_t)(m1 < 0 ? -m1 : m1);
        nibbles[k] = (uint8_t)(a0 | a1 << 4);
        signs[k] = (uint8_t)((m0 < 0 ? 0x80 : 0) | (m1 < 0 ? 0x40 : 0));
    }
}

/* The signs of a part, four columns at a time: those of the quads one below the other. */
static void join_signs(uint8_t to[BN_QUAD], const uint8_t *signs)
{
    uint32_t all = 0, quad;
    for (unsigned i = 0; i < BN_G3_PART_QUADS; i++) {
        memcpy(&quad, signs + i * BN_QUAD, sizeof quad);
        all |= quad >> 2 * i;
    }
    memcpy(to, &all, sizeof all);
}

static void encode3(uint8_t *to, const struct bn_step *s)
{
    for (size_t d = 0; d < BN_G3_LANES; d++) {
        uint8_t nibbles[STEP], signs[STEP], *part = to + d * BN_QUAD;
        encode_triples(nibbles, signs, s, d);
        for (size_t k = 0; k < STEP; k += PART, part += BN_G3_PART_BYTES) {
            for (size_t i = 0; i < BN_G3_PART_QUADS; i++)
                memcpy(part + i * BN_G3_QUAD_BYTES, nibbles + k + i * BN_QUAD, BN_QUAD);
            join_signs(part + BN_G3_PART_QUADS * BN_G3_QUAD_BYTES, signs + k);
        }
    }
}

static void decode3(struct bn_step *s, const uint8_t *p)
{
    for (size_t k = 0; k < STEP; k++)
        for (size_t i = 0; i < 2 * BN_G3_LANES; i++) {
            size_t d = i % BN_G3_LANES, h = i / BN_G3_LANES, quad = k / BN_QUAD % BN_G3_PART_QUADS;
            const uint8_t *part = p + k / PART * BN_G3_PART_BYTES + d * BN_QUAD + k % BN_QUAD;
            int a = part[quad * BN_G3_QUAD_BYTES] >> 4 * h & 15, a1 = (a + 1) / 3, a2 = (a + 4) / 9;
            int signs = part[BN_G3_PART_QUADS * BN_G3_QUAD_BYTES];
            int sign = 1 - 2 * (signs >> (7 - 2 * quad - h) & 1);
            s->w[3 * h * BN_G3_LANES + d][k] = (int8_t)(sign * (a - 3 * a1));
            s->w[(3 * h + 1) * BN_G3_LANES + d][k] = (int8_t)(sign * (a1 - 3 * a2));
            s->w[(3 * h + 2) * BN_G3_LANES + d][k] = (int8_t)(sign * a2);
        }
}

/* ---- g5 ---- */

static void encode5(uint8_t *to, const struct bn_step *s)
{
    for (size_t d = 0; d < BN_G5_LANES; d++) {
        uint8_t bytes[STEP];
        bn_t5_encode(bytes, s->w[d], BN_G5_LANES * STEP);
        put_lane(to, BN_G5_QUAD_BYTES, d, bytes);
    }
}

static void decode5(struct bn_step *s, const uint8_t *p)
{
    for (size_t d = 0; d < BN_G5_LANES; d++) {
        uint8_t bytes[STEP];
        get_lane(bytes, p, BN_G5_QUAD_BYTES, d);
        bn_t5_decode(s->w[d], BN_G5_LANES * STEP, bytes);
    }
}

/* ---- all ---- */

static const struct bn_steps g2 = {BN_G2_ROWS, BN_G2_STEP_BYTES, BN_G2_ROWS, encode2, decode2};
static const struct bn_steps g3 = {BN_G3_ROWS, BN_G3_STEP_BYTES, BN_G3_ROWS, encode3, decode3};
static const struct bn_steps g5 = {BN_G5_ROWS, BN_G5_STEP_BYTES, BN_G5_ROWS, encode5, decode5};
BN_STEPS_LAYOUT(g2, g2)
BN_STEPS_LAYOUT(g3, g3)
BN_STEPS_LAYOUT(g5, g5)

const struct bn_gemm bn_gemm_g2_c = {BN_GROUPS_LAYOUT(g2, BN_G2_ROWS),
                                     .mul_planes = bn_g2_mul_planes_c};
const struct bn_gemm bn_gemm_g3_c = {BN_GROUPS_LAYOUT(g3, BN_G3_ROWS),
                                     .mul_planes = bn_g3_mul_planes_c};
const struct bn_gemm bn_gemm_g5_c = {BN_GROUPS_LAYOUT(g5, BN_G5_ROWS),
                                     .mul_planes = bn_g5_mul_planes_c};
