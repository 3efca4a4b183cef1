/* SPDX-License-Identifier: Apache-2.0
 * Where plans are tried: samples of a text go through the untouched model and through one with a plan, and
 * the harm is measured (forge/harm.h). The logits of the untouched model are kept for some samples at a
 * time, as many as the memory bound allows, so that many plans can be compared with them.
 *
 * A sample's first quarter is context only and does not count. */
#ifndef BN_FORGE_CALIBRATE_LAB_H
#define BN_FORGE_CALIBRATE_LAB_H

#include "base/threads/pool.h"
#include "engine/engine.h"
#include "forge/harm.h"
#include "model/census.h"

struct bn_lab {
    /* set by the caller */
    const struct bn_model *m;
    const int32_t *tokens; /* [n_samples][sample] */
    size_t n_samples, sample;
    uint32_t threads;
    uint64_t memory_bytes; /* for logits of the untouched model */
    bitnet_progress_fn progress;
    void *progress_user;
    uint64_t done, total; /* tokens, through whichever engine */

    /* inside */
    size_t first, counted, n_vocab; /* of a sample: context, positions that count */
    size_t room;                    /* samples whose logits are kept at a time */
    struct bn_pool *pool;           /* compares rows */
    struct bitnet_engine *untouched;
    float *base;              /* [room][counted][n_vocab] */
    double *base_lse;         /* [room][counted] */
    float *logits;            /* [counted][n_vocab] */
    double *scratch;          /* [threads][2][n_vocab] */
    struct bn_harm_row *rows; /* [counted] */
};

bitnet_status bn_lab_open(struct bn_lab *lab, bitnet_error *err);
void bn_lab_close(struct bn_lab *lab);
uint64_t bn_lab_bytes(const struct bn_lab *lab); /* memory for logits */

/* An engine with a plan; NULL: without. BITNET_E_UNSUPPORTED: the model cannot have such savings. */
bitnet_status bn_lab_engine(struct bn_lab *lab, const struct bn_savings *s,
                            struct bitnet_engine **out, bitnet_error *err);
/* The untouched model's logits of n <= lab->room samples. */
bitnet_status bn_lab_base(struct bn_lab *lab, const size_t *samples, size_t n, bitnet_error *err);
/* The same samples through an engine; what it does is added to `harm`. */
bitnet_status bn_lab_try(struct bn_lab *lab, struct bitnet_engine *e, const size_t *samples,
                         size_t n, struct bn_harm *harm, bitnet_error *err);
/* Both, for any number of samples. */
bitnet_status bn_lab_measure(struct bn_lab *lab, struct bitnet_engine *e, const size_t *samples,
                             size_t n, bitnet_divergence *out, bitnet_error *err);
/* Samples through an engine, of which only its census is wanted. */
bitnet_status bn_lab_read(struct bn_lab *lab, struct bitnet_engine *e, const size_t *samples,
                          size_t n, bitnet_error *err);
/* Nanoseconds to decode a token behind half a sample, the best of some. */
bitnet_status bn_lab_decode_ns(struct bn_lab *lab, struct bitnet_engine *e, double *ns,
                               bitnet_error *err);

#endif
