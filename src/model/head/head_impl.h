/* SPDX-License-Identifier: Apache-2.0
 * What head.c and head_screen.c share. (inside the room) */
#ifndef BN_MODEL_HEAD_HEAD_IMPL_H
#define BN_MODEL_HEAD_HEAD_IMPL_H

#include "model/head/best.h"
#include "model/head/head.h"
#include "model/head/head_int8.h"
#include "model/head/head_vector.h"
#include "model/ops.h"
#include <stdatomic.h>

enum {
    BN_HEAD_DECODED = 8,  /* rows of the matrix decoded at a time */
    BN_HEAD_PIECE = 4096, /* rows of which a list is made at a time */
    BN_HEAD_MORE = 7,     /* candidates beyond k: a first guess is sometimes the second */
    BN_HEAD_CANDIDATES = BN_HEAD_MAX_K + BN_HEAD_MORE
};

enum bn_head_how { BN_HEAD_FULL, BN_HEAD_BY_SCREEN, BN_HEAD_FALLBACK };

struct bn_head_row { /* of logits */
    uint32_t token;
    struct bn_want want;
    uint32_t slot; /* UINT32_MAX: none */
    enum bn_head_how how;
    bool partial; /* of another rank's logits some are -infinity */
};

struct bn_head_slot { /* one row that is screened */
    uint32_t row, n_candidates;
    double z;  /* standard deviations in its bounds */
    bool good; /* the vector allows bounds */
    _Atomic uint32_t n_refined, n_survivors;
};

/* The candidates of a worker, those with the best estimates, and what followed from all of them. */
struct bn_head_best {
    struct bn_scored heap[BN_HEAD_CANDIDATES];
    uint32_t n;
};
struct bn_head_found {
    struct bn_head_best coarse, fine;
    float least, fine_least; /* wanted logits are not below them */
};

/* Rows that are estimated once more, by one worker. */
struct bn_head_list {
    uint32_t id[BN_HEAD_PIECE];
    float fine[BN_HEAD_PIECE];
};

struct bn_head {
    const struct bn_model *m;
    struct bn_pool *pool;
    struct bn_prof *prof; /* NULL: off */
    struct bn_head_options o;
    struct bn_range here; /* rows of the matrix that are here, among all */
    uint32_t n_here;
    size_t wide;                      /* columns of the copy */
    struct bn_head_row *rows;         /* [max_rows] */
    struct bn_head_slot *slots;       /* [max_screened] */
    struct bn_head_vector *vectors;   /* [max_screened] */
    struct bn_screen2_vector *coarse; /* [max_screened], of vectors */
    int8_t *k;                        /* [max_screened][wide] */
    int32_t *block_sums;              /* [max_screened][blocks] */
    float *rotated;                   /* [threads][2][wide] */
    uint32_t *survivors;              /* [max_screened][limit] */
    struct bn_head_found *found;      /* [threads][max_screened] */
    struct bn_head_list *lists;       /* [threads] */
    float *decoded;                   /* [threads][BN_HEAD_DECODED][cols] */
    uint8_t *stored;                  /* [threads] a row as the file has it, or NULL */
    struct bn_head_int8 int8;         /* with o.int8 */
    int8_t *planes;                   /* [max_rows][2][wide], of a ternary matrix, or NULL */
    float *units;                     /* [max_rows][wide / BN_K_ALIGN] */
    void *block;                      /* all of the above */
    size_t bytes;
    struct bn_head_stats stats;
    const struct bn_tensor *tensor; /* the matrix in the file */
    uint64_t touched_bytes;         /* at most, since it was last let go */
    uint64_t touched_full;          /* full passes by then */
    bool keep;                      /* it is never let go */
    atomic_uint touched_rows;       /* of it, by the call in progress */
    uint64_t read_bytes;            /* by the last call */
    /* the call in progress */
    float *logits; /* of the first row that is here */
    const float *norm;
    struct bn_adapt *adapt; /* NULL: none */
    bool adapted;           /* a row's token has an adapter of the head */
    size_t n_rows, n_slots;
};

enum bn_head_how bn_head_how(const struct bn_head *h, const struct bn_head_row *row);
void bn_head_release(const struct bn_head *h, uint32_t worker);

/* What a profile should know: rows of the matrix or a copy, which has `bytes` in all, times n hidden
 * states. */
void bn_head_note_work(const struct bn_head *h, uint64_t bytes, struct bn_range rows, size_t n,
                       uint32_t worker);

/* ---- head_screen.c ---- */

/* How many candidates a want needs; 0: it cannot be screened. */
uint32_t bn_head_candidates_for(const struct bn_head *h, const struct bn_want *w);
/* The hidden state of a slot, x[n_embd]. */
void bn_head_screen_put(struct bn_head *h, size_t slot, const float *x, uint32_t worker);
/* Lists the survivors of all slots. normed: [rows][n_embd]. Afterwards all workers have to meet. */
void bn_head_screen_all(struct bn_head *h, const float *normed, uint32_t worker);
/* This worker's share of them, by their true logits; all others are -infinity. */
void bn_head_rescore(struct bn_head *h, size_t slot, const float *x, uint32_t worker);

#endif
