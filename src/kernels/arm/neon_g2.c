/* SPDX-License-Identifier: Apache-2.0
 *
 * NEON of ARMv8.0: what has rows in lanes. Products of bytes are added to sums of 16 bits, a column of a
 * quad and a row each, two instructions for 16 products; pairs are added up at the end only, so there
 * are twice as many sums as with dot products, and one vector at a time.
 *
 * Two fields are masked where they stand and count four times. Why the sums are exact: those of "g2" are
 * so modulo 2^16, and begin at minus the activations they will meet; so they end at 32 weights in {-1, 0,
 * +1} times activations within +-127, and four times that, at most 16256 < 2^15. Those of screening are
 * at most 16 * 12 * 127 = 24384. */
#include "kernels/arm/rows_in_lanes.h"
#include "kernels/arm/screen_lanes.h"

/* The fields of 16 bytes: f[1] and f[3] count four times. */
ALWAYS void fields(int8x16_t f[FIELDS], const uint8_t *p)
{
    const uint8x16_t b = vld1q_u8(p), high = vshrq_n_u8(b, 4);
    f[0] = vreinterpretq_s8_u8(vandq_u8(b, vdupq_n_u8(3)));
    f[1] = vreinterpretq_s8_u8(vandq_u8(b, vdupq_n_u8(12)));
    f[2] = vreinterpretq_s8_u8(vandq_u8(high, vdupq_n_u8(3)));
    f[3] = vreinterpretq_s8_u8(vandq_u8(high, vdupq_n_u8(12)));
}

/* four activations, the same in all lanes */
ALWAYS int8x16_t quad(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

/* Sums of four rows, a column of a quad each: rows 0 and 1, rows 2 and 3. */
struct sums {
    int16x8_t lo, hi;
};

ALWAYS void add(struct sums *s, int8x16_t codes, int8x16_t x)
{
    s->lo = vmlal_s8(s->lo, vget_low_s8(codes), vget_low_s8(x));
    s->hi = vmlal_high_s8(s->hi, codes, x);
}

/* the four rows' sums */
ALWAYS int32x4_t rows_of(struct sums s) { return vpaddq_s32(vpaddlq_s16(s.lo), vpaddlq_s16(s.hi)); }

static int32_t piece_sum(const int8_t *q, size_t cols)
{
    (void)q, (void)cols; /* by columns of a quad, in add_piece() */
    return 0;
}

ALWAYS void add_piece(int32x4_t s[2][PARTS], const uint8_t *p, const int8_t *const q[2],
                      const int32_t sum[2], size_t cols, size_t ahead, const size_t nv)
{
    (void)sum;
    for (size_t v = 0; v < nv; v++) {
        const uint8_t *from = p;
        struct sums a[PARTS];
        int16x8_t minus = vdupq_n_s16(0);
        for (size_t k = 0; k < cols; k += 16) {
            int8x16_t x = vld1q_s8(q[v] + k);
            minus = vsubw_high_s8(vsubw_s8(minus, vget_low_s8(x)), x);
        }
        minus = vaddq_s16(minus, vextq_s16(minus, minus, 4));
        for (size_t i = 0; i < PARTS; i++) {
            int16x8_t begin = i / HALVES % 2 ? vshlq_n_s16(minus, 2) : minus;
            a[i] = (struct sums){begin, begin};
        }
        for (size_t k = 0; k < cols; k += BN_QUAD, from += BN_G2_QUAD_BYTES) {
            const int8x16_t x = quad(q[v] + k);
            __builtin_prefetch(from + ahead);
            for (size_t h = 0; h < HALVES; h++) {
                int8x16_t f[FIELDS];
                fields(f, from + 16 * h);
                for (size_t i = 0; i < FIELDS; i++) add(&a[HALVES * i + h], f[i], x);
            }
        }
        for (size_t i = 0; i < PARTS; i++) {
            s[v][i] = rows_of(a[i]);
            if (i / HALVES % 2) s[v][i] = vshrq_n_s32(s[v][i], 2);
        }
    }
}

/* Several tokens have the kernels of wide vectors. */
extern const struct bn_gemm W_NAME(gemm_g2);

static void mul_any(const struct bn_gemm_args *a, const struct bn_planes *x)
{
    (a->n_tok == 1 ? mul_planes : W_NAME(gemm_g2).mul_planes)(a, x);
}

static void mul_many(const struct bn_gemm_args *a, const struct bn_planes *x)
{
    W_NAME(gemm_g2).mul_planes_many(a, x);
}

static size_t many_bytes(size_t rows, size_t cols)
{
    return W_NAME(gemm_g2).many_bytes(rows, cols);
}

const struct bn_gemm bn_gemm_g2_lanes_neon = {
    BN_GROUPS_LAYOUT(g2, BN_G2_ROWS), .mul_planes = mul_any, .many_from = BN_PLANES_MANY_FROM,
    .many_bytes = many_bytes, .mul_planes_many = mul_many};

ALWAYS void screen_block(int32x4_t c[QUARTERS], const uint8_t *p, const int8_t *k, size_t ahead)
{
    struct sums one[QUARTERS], four[QUARTERS];
    for (size_t i = 0; i < QUARTERS; i++)
        one[i].lo = one[i].hi = four[i].lo = four[i].hi = vdupq_n_s16(0);
    for (size_t at = 0; at < BN_SCREEN2_BLOCK; at += PIECE, p += PIECE_BYTES) {
        int8x16_t x[FIELDS];
        for (size_t f = 0; f < FIELDS; f++) x[f] = quad(k + at + BN_QUAD * f);
        __builtin_prefetch(p + ahead);
        for (size_t i = 0; i < QUARTERS; i++) {
            int8x16_t f[FIELDS];
            fields(f, p + 16 * i);
            add(&one[i], f[0], x[0]);
            add(&four[i], f[1], x[1]);
            add(&one[i], f[2], x[2]);
            add(&four[i], f[3], x[3]);
        }
    }
    for (size_t i = 0; i < QUARTERS; i++)
        c[i] = vaddq_s32(rows_of(one[i]), vshrq_n_s32(rows_of(four[i]), 2));
}

void bn_screen2_neon(int32_t *sum, size_t stride, const struct bn_screen2 *w, size_t r0, size_t r1,
                     const struct bn_screen2_vector *v, size_t n_vec)
{
    screen(sum, stride, w, r0, r1, v, n_vec);
}
