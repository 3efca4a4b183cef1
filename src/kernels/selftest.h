/* SPDX-License-Identifier: Apache-2.0
 * What the parts of the check at start share. (inside the room) */
#ifndef BN_KERNELS_SELFTEST_H
#define BN_KERNELS_SELFTEST_H

#include "base/rng.h"
#include "kernels/kernels.h"

/* Not inlined: in one frame all their arrays would lie side by side. */
#define TEST static __attribute__((noinline))

/* Mostly values of an activation's size, now and then extremes; all results stay finite. */
static inline void fill(float *x, size_t n, uint64_t seed)
{
    static const float special[] = {0.0f,   -0.0f, 0x1p-149f, -0x1p-140f,
                                    1e-30f, -1e4f, 1e4f,      127.0f};
    struct bn_rng r = {seed};
    for (size_t i = 0; i < n; i++) {
        uint32_t u = bn_rng_below(&r, 16 * BN_ARRAY_LEN(special));
        x[i] = u < BN_ARRAY_LEN(special) ? special[u] : (float)(bn_rng_unit(&r) * 8 - 4);
    }
}

static inline void fill_bytes(uint8_t *p, size_t n, uint64_t seed)
{
    struct bn_rng r = {seed};
    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)bn_rng_u64(&r);
}

static inline bool same(const void *a, const void *b, size_t n) { return memcmp(a, b, n) == 0; }

/* ---- selftest_gemm.c ---- */

/* Many tokens: enough rows for kernels that want many of them as well, a last group that is not
 * full, columns of more than one 16-bit sum. Half of the rows reach the largest sum there is with the
 * first token. */
enum { MANY_ROWS = 259, MANY_COLS = 300, MANY_PADDED = 384, MANY_TOK = 33 };
struct many {
    float a[MANY_TOK * MANY_ROWS], b[MANY_TOK * MANY_ROWS], inv[MANY_TOK];
    int32_t sum[MANY_TOK];
    int8_t w[MANY_ROWS * MANY_COLS], q[MANY_TOK * MANY_PADDED];
    uint8_t packed[2][(MANY_ROWS + 5) * MANY_PADDED / 4];
    float rotation[BN_ROTATE_BLOCK * BN_ROTATE_BLOCK]; /* of another test */
};

/* scratch: what the variant asks for with MANY_ROWS and MANY_COLS */
bool bn_self_test_layout(const struct bn_gemm *f, struct many *m, void *scratch);

#endif
