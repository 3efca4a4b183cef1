/* SPDX-License-Identifier: Apache-2.0
 * One model, several processes: an addition to bitnet.h, whose rules about sizes and threads hold here, too. */
#ifndef BITNET_RANKS_H
#define BITNET_RANKS_H

#include <bitnet/bitnet.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Processes (ranks), on one machine or on many, that compute one model together: each reads its part of
 * every matrix, and the answers are those of one process, bit for bit. Rank 0 opens the model with
 * bitnet_model_open_ranked and uses it as ever, one model and one engine of it at a time; all others
 * call bitnet_follow, which does there what rank 0 does here. All need the model's file, under the same
 * path.
 *
 * How they reach each other is the caller's. Ranks call these functions in the same order, one at a time;
 * a function returns when the rank's own part is done: 0, or 1 and the rank that does not answer. Then
 * the model's next call is BITNET_E_IO. */
enum { BITNET_MAX_RANKS = 64 };
typedef struct bitnet_ranks {
    size_t size;
    uint32_t rank, n_ranks;
    void *user;
    /* data of rank 0 goes to all others */
    int (*broadcast)(void *user, void *data, size_t bytes);
    /* part i of data, bytes at[i] to at[i + 1], is rank i's: all get all. at: [n_ranks + 1], the same
     * everywhere. Parts may be empty. */
    int (*gather)(void *user, void *data, const size_t *at);
    /* the same to rank 0 alone: `bytes` of each, `mine`. out and at: of rank 0 only */
    int (*collect)(void *user, const void *mine, size_t bytes, void *out, const size_t *at);
    const double *shares;     /* [n_ranks] how much each is to read, in any unit; NULL: the same */
    const char *const *names; /* [n_ranks] for errors; or NULL */
    /* "split": all matrices are, with four exchanges in a layer; "whole": each rank reads the two whole
     * whose rows a block adds, with two exchanges; "auto" (NULL): what is likely to be faster */
    const char *outputs;
    uint64_t exchange_ns; /* what an exchange takes, for that; 0: it is measured */
} bitnet_ranks;           /* shares, outputs and exchange_ns: the same everywhere */
/* By rank 0: as bitnet_model_open. ranks NULL: this process alone. */
BITNET_API bitnet_status bitnet_model_open_ranked(bitnet_model **out, const char *path,
                                                  const bitnet_model_options *o,
                                                  const bitnet_ranks *ranks, bitnet_error *err);
/* By every rank but 0: follows until bitnet_dismiss. An error: the others are lost. */
BITNET_API bitnet_status bitnet_follow(const bitnet_ranks *ranks, bitnet_error *err);
/* By rank 0, when its models are closed: the others return from bitnet_follow. */
BITNET_API bitnet_status bitnet_dismiss(const bitnet_ranks *ranks, bitnet_error *err);

#ifdef __cplusplus
}
#endif
#endif
