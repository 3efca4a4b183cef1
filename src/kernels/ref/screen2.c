/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference: the coarse screening copy of a dense matrix (kernels.h), packed and multiplied. */
#include "kernels/kernels.h"

enum {
    ROWS = BN_SCREEN2_ROWS,
    BLOCK = BN_SCREEN2_BLOCK,
    PIECE = 16,             /* columns */
    PIECE_BYTES = ROWS * 4, /* of all rows */
    BLOCK_BYTES = BLOCK / PIECE * PIECE_BYTES
};

static size_t n_blocks(size_t cols) { return bn_div_up(cols, BLOCK); }
static size_t weight_bytes(size_t cols) { return bn_align_up(n_blocks(cols) * ROWS, 64); }

size_t bn_screen2_group_bytes(size_t cols)
{
    return weight_bytes(cols) + n_blocks(cols) * BLOCK_BYTES;
}

/* Of a row and piece. Codes have two bits, so that none leaves its byte. */
static uint32_t four_bytes(const uint8_t *code)
{
    return bn_load_u32(code) | bn_load_u32(code + 4) << 2 | bn_load_u32(code + 8) << 4 |
           bn_load_u32(code + 12) << 6;
}

void bn_screen2_pack(uint8_t *dst, const uint8_t *code, const uint8_t *u, size_t n_rows,
                     size_t cols)
{
    uint8_t *codes = dst + weight_bytes(cols);
    memset(dst, 0, bn_screen2_group_bytes(cols));
    for (size_t r = 0; r < n_rows; r++) {
        for (size_t b = 0; b < n_blocks(cols); b++) dst[b * ROWS + r] = u[r * n_blocks(cols) + b];
        const uint8_t *c = code + r * cols;
        uint8_t *to = codes + r * 4, last[PIECE] = {0};
        for (size_t n = cols / PIECE; n > 0; n--, c += PIECE, to += PIECE_BYTES)
            bn_store_u32(to, four_bytes(c));
        if (cols % PIECE == 0) continue;
        memcpy(last, c, cols % PIECE);
        bn_store_u32(to, four_bytes(last));
    }
}

static int32_t block_dot(const uint8_t *p, const int8_t *k)
{
    int32_t sum = 0;
    for (size_t at = 0; at < BLOCK; at += PIECE, p += PIECE_BYTES)
        for (size_t j = 0; j < PIECE; j++) sum += (p[j % 4] >> j / 4 * 2 & 3) * k[at + j];
    return sum;
}

void bn_screen2_c(int32_t *sum, size_t stride, const struct bn_screen2 *w, size_t r0, size_t r1,
                  const struct bn_screen2_vector *v, size_t n_vec)
{
    size_t bytes = bn_screen2_group_bytes(w->cols);
    for (size_t i = 0; i < n_vec; i++)
        for (size_t r = r0; r < r1; r++) {
            const uint8_t *u = w->data + r / ROWS * bytes + r % ROWS;
            const uint8_t *p = w->data + r / ROWS * bytes + weight_bytes(w->cols) + r % ROWS * 4;
            int32_t s = 0;
            for (size_t b = 0; b < n_blocks(w->cols); b++)
                s += (BN_SCREEN2_BASE + u[b * ROWS]) *
                     (2 * block_dot(p + b * BLOCK_BYTES, v[i].k + b * BLOCK) -
                      3 * v[i].block_sum[b]);
            sum[i * stride + r - r0] = s;
        }
}
