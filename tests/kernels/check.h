/* SPDX-License-Identifier: Apache-2.0
 *
 * check_kernels: every variant of kernels.def against the C reference, and the reference against
 * naive arithmetic in double precision or int64. One check function an operation builds the cases;
 * this harness owns the guarded memory, the catching of faults, the comparison and the report. */
#ifndef BN_TESTS_KERNELS_CHECK_H
#define BN_TESTS_KERNELS_CHECK_H

#include "base/half.h"
#include "base/rng.h"
#include "kernels/kernels.h"

enum { CK_BUFFERS = 16, CK_BUFFER_BYTES = 24 << 20, CK_CANARY = 64 };

struct ck_buffer {
    uint8_t *map;  /* CK_BUFFER_BYTES, then an unmapped page */
    uint8_t *data; /* ends at that page; CK_CANARY known bytes before it */
    size_t bytes;
};

struct ck {
    /* the variant under test, and the reference of its operation */
    const struct bn_kernel_info *v, *ref;
    bool naive; /* v is the reference: compare it with naive arithmetic */
    bool quick;
    uint64_t seed;
    struct bn_rng rng; /* restarted from the seed for every case, so that a case stands alone */
    char where[160];   /* the case: shape and fill */
    size_t n_cases, n_failed;
    struct ck_buffer buffer[CK_BUFFERS];
    size_t n_buffers;
};

/* ---- cases ---- */

/* Starts a case: frees the buffers, restarts the random numbers, and remembers its name. */
void ck_case(struct ck *c, const char *fmt, ...) BN_PRINTF(2, 3);
/* A buffer of `bytes` that ends at an unmapped page, filled with a pattern. */
void *ck_buffer(struct ck *c, size_t bytes);
/* Calls run(arg). false: it faulted, changed the rounding mode, or wrote before a buffer; the case
 * is then reported as failed, and the test goes on. */
bool ck_run(struct ck *c, void (*run)(void *), void *arg);
/* Reports a failed case; what it says is printed with the case's name. */
void ck_fail(struct ck *c, const char *fmt, ...) BN_PRINTF(2, 3);

/* Same bits (a NaN equals a NaN)? `width`: elements in a row, to name the place by row and column. */
bool ck_same_f32(struct ck *c, const char *what, const float *want, const float *got, size_t n,
                 size_t width);
bool ck_same_bytes(struct ck *c, const char *what, const void *want, const void *got, size_t n);
/* |got - want| <= bound? */
bool ck_near(struct ck *c, const char *what, double want, double got, double bound, size_t at);

/* ---- fills ---- */
enum ck_fill {
    CK_RANDOM,  /* within +-4 */
    CK_ZERO,    /* +0 and -0 */
    CK_TINY,    /* subnormals */
    CK_WIDE,    /* all exponents from 2^-40 to 2^40 */
    CK_HUGE,    /* near the largest number: sums overflow */
    CK_SPECIAL, /* random with some infinities and NaNs */
    CK_FILLS
};
const char *ck_fill_name(enum ck_fill f);
void ck_fill_f32(struct ck *c, float *x, size_t n, enum ck_fill f);
/* Halves: CK_HUGE is the largest half; the others as above within a half's range. */
void ck_fill_f16(struct ck *c, uint16_t *x, size_t n, enum ck_fill f);

/* ---- the checks, one an operation ---- */
#define K_REF(op, fn)  void check_##op(struct ck *c);
#define G_REF(op, obj) void check_##op(struct ck *c);
#define K(op, isa, needs, fn)
#define G(op, isa, needs, obj)
#include "kernels/kernels.def"
void check_exp(struct ck *c);
/* The check at start accepts the kernels for these features, and notices wrong ones. */
void check_self_test(struct ck *c, uint32_t features);

#endif
