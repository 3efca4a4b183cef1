/* SPDX-License-Identifier: Apache-2.0
 * The cases that kernel_timer_plan.c plans and kernel_timer.c runs. */
#ifndef BN_FORGE_KERNEL_TIMER_IMPL_H
#define BN_FORGE_KERNEL_TIMER_IMPL_H

#include "model/model.h"

enum {
    BN_TIMER_TOKENS = 128,     /* the most of a case */
    BN_TIMER_HEAD_ROWS = 1024, /* of a copy of the head */
    BN_TIMER_SCALE_BLOCK = 128,
    BN_TIMER_CHANNELS = 10240, /* of a delta net's inputs, of 27B */
    BN_TIMER_TAPS = 4,
    BN_TIMER_PARTS = 5, /* a list has one row or column in as many */
    BN_TIMER_CASES = 2048,
    BN_TIMER_WORK_BYTES = 64
};

enum op {
#define K_REF(op_, fn_)  OP_##op_,
#define G_REF(op_, obj_) OP_##op_,
#define K(op_, isa_, needs_, fn_)
#define G(op_, isa_, needs_, obj_)
#include "kernels/kernels.def"
    N_OPS
};

struct size {
    size_t rows, cols, tok; /* vectors: cols elements; heads: rows of cols */
    size_t block;           /* of scales, 0: one scale; of a transform */
    size_t listed;          /* of a matrix taken in part: rows or columns */
    size_t planes;          /* of activations, 0: int8 or floats */
    bool f32, memory;       /* activations; where the weights come from */
};

struct task {
    const struct bn_kernel_info *v;
    enum op op;
    bool chosen;
    struct size s;
    size_t full_rows; /* s.rows, unless the reference got fewer */
    char work[BN_TIMER_WORK_BYTES];
    double macs, bytes; /* of a call with all rows */
};

struct bitnet_kernel_timer {
    const struct bn_config *c;
    const struct bn_kernels *chosen;
    size_t ahead;     /* as the model has it */
    const char *only; /* NULL: every operation */
    struct task *tasks;
    size_t n_tasks;
    /* operands; n_x: the most floats that a case reads */
    size_t n_x, n_y, n_scratch;
    float *x, *ones, *y, inv[BN_TIMER_TOKENS];
    float cs[BN_MAX_HEAD_DIM]; /* cosines 1, sines 0: repeating does not leave the range */
    int32_t sum[BN_TIMER_TOKENS];
    int8_t *q;        /* [2 * n_x] */
    uint16_t *half;   /* [n_x] x as halves */
    uint8_t *row;     /* one row in the storage type of the case last begun */
    void *scratch;    /* of mul_i8_many */
    uint8_t *weights; /* the ring */
    size_t ring_bytes, ring_at, ring_turns;
    float *states; /* a ring likewise; NULL if no case needs it */
    size_t states_bytes, states_at;
    uint32_t *lists; /* [BN_TIMER_PARTS][n_ff / BN_TIMER_PARTS] */
};

/* The storage type of row_*; BN_TYPE_COUNT for the other operations. */
enum bn_type bn_timer_row_type(enum op op);

/* Fills in the cases of all operations, or the one asked for. */
bitnet_status bn_timer_plan(struct bitnet_kernel_timer *t, bitnet_error *err);

#endif
