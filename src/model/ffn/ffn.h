/* SPDX-License-Identifier: Apache-2.0
 *
 * The feed-forward block of one token, without what is zero in it. f = relu(g)^2 * u, normed and
 * rounded to int8, is the input of `down`. Where a gate g is not positive, f is a zero whatever u
 * is, so that row of `up` is not wanted; and a column of `down` whose int8 input is zero adds
 * nothing. Rows and columns are taken from copies of the two matrices in layouts that allow it
 * (kernels.h, "r2" and "c2"); the dense ones stay, because batches and prompts need nearly all.
 *
 * The result has the same bits. A row left out gives f = +0 in place of +0 * u, which is +0 or -0
 * because u is finite: u is an exact integer times a factor, and the pass is dense where that factor
 * could overflow (bn_ffn_up). From there on the sign of a zero is not seen: a norm squares it for
 * the sum, multiplies it with a finite or non-finite factor alike, and the quantiser's maximum takes
 * |x| and rounds +-0 to the integer 0. So the int8 input of `down`, its factor and all that follows
 * are the same. A gate that is a NaN is in the list, and gives the NaN it gave before. A column
 * with input 0 adds the integer 0 to an exact integer sum. Where a plan closes gates that are barely
 * open (savings.h), f is +0 there in every pass, listed or dense.
 *
 * ffn_copy.c makes the copies at open; ffn.c decides layer by layer, lists, multiplies and counts.
 * The workers of a pool call it as they walk through the forward pass.
 */
#ifndef BN_MODEL_FFN_FFN_H
#define BN_MODEL_FFN_FFN_H

#include "base/threads/pool.h"
#include "model/model.h"

enum {
    /* "auto": up to these shares a list is quicker than the whole matrix from memory */
    BN_FFN_UP_PERCENT = 45,
    BN_FFN_DOWN_PERCENT = 45,
    BN_FFN_PROBE_TOKENS = 32,    /* "auto" looks again so often where it has not paid */
    BN_FFN_AUTO_BYTES = 64 << 20 /* "auto" makes copies if the layers' matrices have so many */
};

/* "auto" (NULL), "dense": no copies, "skip": always, where the model allows it. */
bitnet_status bn_ffn_mode_parse(enum bn_ffn_mode *out, const char *name, bitnet_error *err);

/* ---- the copies ---- */

/* Does the mode ask for copies of this model's layers? */
bool bn_ffn_copy_wanted(const struct bn_model *m, enum bn_ffn_mode mode);
/* Makes the layers' ffn copies if the mode asks for it and there are none: for ReLU^2, int8 activations and matrices
 * with one scale a row or matrix and two bits a weight or nearly so. */
bitnet_status bn_ffn_copy_make(struct bn_model *m, struct bn_pool *pool, enum bn_ffn_mode mode,
                               bitnet_error *err);

/* ---- their use ---- */

struct bn_ffn;

/* Model and pool must outlive it. savings: the plan, which may close more gates; NULL: none. */
bitnet_status bn_ffn_open(struct bn_ffn **out, const struct bn_model *m, struct bn_pool *pool,
                          enum bn_ffn_mode mode, const struct bn_savings *savings,
                          struct bn_backing *how, bitnet_error *err);
void bn_ffn_close(struct bn_ffn *f);
void bn_ffn_touch(struct bn_ffn *f); /* its memory */
size_t bn_ffn_bytes(const struct bn_ffn *f);
/* Fills in what bitnet.h says of feed-forward layers; false: there is no such layer. */
void bn_ffn_info(const struct bn_ffn *f, bitnet_engine_info *info);
bool bn_ffn_layer_info(const struct bn_ffn *f, uint32_t layer, bitnet_ffn_layer *info);

/* Around a pass over n tokens; by one thread. adapted: all rows are wanted, since adapters add to them. */
void bn_ffn_begin(struct bn_ffn *f, size_t n, bool adapted);
void bn_ffn_end(struct bn_ffn *f);
/* Bytes of matrices that the last pass did not read. */
int64_t bn_ffn_left_out(const struct bn_ffn *f);

/* Should the gates of this layer be listed? Then all gates must have been written by all before
 * bn_ffn_up. The same answer for every worker. */
bool bn_ffn_wants_up(const struct bn_ffn *f, uint32_t layer);
/* act = relu(gate)^2 * up, [n_ff], 0 where the gate is closed, this worker's share; q, sum, inv: the input of `up`. false:
 * nothing was done, the list is too long. */
bool bn_ffn_up(struct bn_ffn *f, uint32_t il, float *act, const float *gate, const int8_t *q,
               int32_t sum, float inv, uint32_t worker);
/* y = `down` times q, the rows that are returned in *rows. false: as above. */
bool bn_ffn_down(struct bn_ffn *f, uint32_t layer, float *y, const int8_t *q, float inv,
                 struct bn_range *rows, uint32_t worker);

#endif
