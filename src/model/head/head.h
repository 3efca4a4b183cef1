/* SPDX-License-Identifier: Apache-2.0
 *
 * The output head: from the residual stream to logits, whole or only as far as they are wanted.
 *
 * A greedy choice or a draw looks at few logits. The screened head finds them without reading
 * the matrix: a copy of 2 bits a weight gives for every row an upper bound of its logit, 2 bits more
 * a better one for those rows whose bound reaches the k-th largest of a few logits computed exactly,
 * and only rows whose better bound still does are computed themselves, with the same arithmetic as
 * in the full pass. All others are written as -infinity. The tokens are those of the full pass
 * (docs/inside/numerics.md says with which probability and why).
 *
 * The int8 head computes all logits from a copy with one byte a weight: half of a 16-bit head to
 * read, for every sampler, and logits that are close instead of equal.
 *
 * Owns the copy's making, the scratch memory of a call and its counts; not the copy, which belongs
 * to the model. The workers of a pool walk through bn_head_work together, as through the forward
 * pass.
 */
#ifndef BN_MODEL_HEAD_HEAD_H
#define BN_MODEL_HEAD_HEAD_H

#include "base/threads/pool.h"
#include "model/model.h"

enum {
    BN_HEAD_MAX_K = 128,       /* more of the best than this are looked for by the full pass */
    BN_HEAD_AUTO_ROWS = 16384, /* "auto" screens heads of at least so many rows */
    BN_HEAD_HISTOGRAM = 20
};

/* Which logits of a token are wanted: none, all, or
 * best: the `k` largest (0: no such limit) of those not more than `below` under the largest
 *   (INFINITY: no such limit; one limit there must be);
 * draw: the one with the largest logit * inv_t + noise (base/gumbel.h, by the key `noise`). */
enum bn_want_kind { BN_WANT_NONE, BN_WANT_ALL, BN_WANT_BEST, BN_WANT_DRAW };
struct bn_want {
    enum bn_want_kind kind;
    uint32_t k;
    double below;
    double inv_t;
    uint64_t noise;
};

/* ---- the copy ---- */

/* "auto" (NULL), "exact": no copy, "screened": a copy in any case, "int8": a copy with one byte a
 * weight, which is not the file's precision and so never taken by itself. */
bitnet_status bn_head_mode_parse(enum bn_head_mode *out, const char *name, bitnet_error *err);
const char *bn_head_mode_name(enum bn_head_mode mode);
/* Which copy the mode asks for, of this head: SCREENED, INT8, or EXACT: none. */
enum bn_head_mode bn_head_copy_wanted(const struct bn_model *m, enum bn_head_mode mode);
/* Makes m->screen or m->head_int8 if the mode asks for it and the head allows it; one that is there is
 * kept. */
bitnet_status bn_head_copy_make(struct bn_model *m, struct bn_pool *pool, enum bn_head_mode mode,
                                bitnet_error *err);
void bn_head_copy_free(struct bn_model *m);
void bn_head_copy_place(const struct bn_model *m, const struct bn_pool *pool); /* to its nodes */
/* Of a screening copy: what every call reads, all but the fine code. */
uint64_t bn_head_coarse_bytes(const struct bn_model *m);

/* ---- its use ---- */

struct bn_head_options {
    bool screened; /* needs m->screen.coarse.data */
    bool int8;     /* needs m->head_int8.data; all logits come from there */
    uint32_t
        max_screened; /* rows of one call that can be screened; further ones take the full pass */
    uint32_t limit;   /* more survivors than this: full pass; 0: 8 % of the rows */
    /* A matrix larger than this is not to come into memory row by row; 0: 48 MiB. */
    uint64_t release_bytes;
    bool no_margin; /* tests only: bounds without their margin, which are wrong */
};

struct bn_head_stats {
    uint64_t full, screened,
        fallbacks;    /* rows of logits by how they were made; fallbacks are full */
    uint64_t refined; /* logits of rows that were estimated twice */
    uint64_t survivors, survivors_max;     /* of screened rows */
    uint64_t histogram[BN_HEAD_HISTOGRAM]; /* i: more than 2^(i-1), up to 2^i survivors */
};

struct bn_head;

/* max_rows: rows of logits of one call. Model and pool must outlive it. */
bitnet_status bn_head_open(struct bn_head **out, const struct bn_model *m, struct bn_pool *pool,
                           uint32_t max_rows, const struct bn_head_options *o,
                           struct bn_backing *how, bitnet_error *err);
void bn_head_close(struct bn_head *h);
/* Its scratch memory is touched; from now on pages of the matrix that were read stay in memory. */
void bn_head_warm(struct bn_head *h);
size_t bn_head_bytes(const struct bn_head *h);
const struct bn_head_stats *bn_head_stats(const struct bn_head *h);

/* A call: begin, add the tokens that want logits in order of their rows, then all workers work,
 * then end. token: its row in x. Allocates nothing. */
/* logits: [rows added][n_vocab]; norm: in front of the matrix, [n_embd]. adapt: of a pass in which some
 * tokens have adapters, else NULL; those with one of the head take the full pass. */
struct bn_adapt;
void bn_head_begin(struct bn_head *h, float *logits, const float *norm, struct bn_adapt *adapt);
void bn_head_add(struct bn_head *h, uint32_t token, struct bn_want want);
size_t bn_head_rows(const struct bn_head *h);
/* x: [tokens][n_embd]; normed: scratch, [rows][n_embd]. Every x must have been written by all. */
void bn_head_work(struct bn_head *h, const float *x, float *normed, uint32_t worker);
/* Where several ranks compute the model, by one thread behind that: rank 0 gets the others' logits. */
void bn_head_collect(struct bn_head *h, struct bn_buf *room);
void bn_head_end(struct bn_head *h); /* counts; may be left out */
/* After the call: does this row of logits hold -infinity where nothing was wanted? */
bool bn_head_was_screened(const struct bn_head *h, size_t row);
/* Bytes of the matrix and its copy that the call has read. */
uint64_t bn_head_read_bytes(const struct bn_head *h);

#endif
