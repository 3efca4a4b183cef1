/* SPDX-License-Identifier: Apache-2.0
 *
 * Several processes (ranks) that compute one model together. Every rank has its part of the rows of
 * every matrix, of the heads, and of the caches that belong to these; activations are whole on all of
 * them. How ranks reach each other is the caller's (bitnet_ranks); here are the parts, the exchanges, and
 * what becomes of them when one fails.
 *
 * Floats are gathered, never summed across ranks, so that all bits are those of one process.
 *
 * A failure stays: every exchange after it fails at once, and what was computed is not to be used
 * (bn_dist_check). Belongs to one thread at a time.
 */
#ifndef BN_DIST_DIST_H
#define BN_DIST_DIST_H

#include "base/buf.h"
#include "base/status.h"
#include <bitnet/ranks.h>

/* Where the parts of n things begin; that of rank i is [at[i], at[i + 1]). */
struct bn_cut {
    size_t at[BITNET_MAX_RANKS + 1];
};

struct bn_dist; /* NULL wherever there is one process only */

bitnet_status bn_dist_open(struct bn_dist **out, const bitnet_ranks *r, bitnet_error *err);
void bn_dist_close(struct bn_dist *d);
uint32_t bn_dist_rank(const struct bn_dist *d); /* 0 without ranks */
uint32_t bn_dist_ranks(const struct bn_dist *d);
/* n things in parts by the ranks' shares, cut at multiples of `grain`; some may be empty. */
void bn_dist_cut(const struct bn_dist *d, struct bn_cut *cut, size_t n, size_t grain);

/* Do all ranks have all rows of the matrices whose output a block adds? extra_ns: what reading them costs in
 * a layer; it saves two exchanges. */
bool bn_dist_whole(const struct bn_dist *d, double extra_ns);
/* By all ranks: how long an exchange takes, as rank 0 sees it. */
uint64_t bn_dist_measure(struct bn_dist *d);

/* Room for exchanges of so many floats; before the first. */
bitnet_status bn_dist_reserve(struct bn_dist *d, size_t floats, bitnet_error *err);
/* Rows y[n][stride], of which every rank has made the columns of its part: then all have all. */
void bn_dist_gather(struct bn_dist *d, float *y, size_t n, size_t stride, const struct bn_cut *cut);

/* A message of rank 0 to all others, of any length: what the others pass is overwritten. */
void bn_dist_send(struct bn_dist *d, struct bn_buf *message);
/* Everybody's bytes to rank 0, where they are appended to `out` in order of ranks, at[i] is where those
 * of rank i begin. */
void bn_dist_collect(struct bn_dist *d, const void *data, size_t n, struct bn_buf *out,
                     size_t at[BITNET_MAX_RANKS + 1]);
/* Rank 0 learns how something has ended everywhere, and all agree: the first failure, with the rank's
 * number in front, or BITNET_OK. `same` has to be the same everywhere, else it is a failure that names
 * `what`. */
bitnet_status bn_dist_agree(struct bn_dist *d, bitnet_status mine, uint64_t same, const char *what,
                            bitnet_error *err);
/* BITNET_E_IO: an exchange has failed, and with whom. */
bitnet_status bn_dist_check(const struct bn_dist *d, bitnet_error *err);

struct bn_dist_stats {
    uint64_t exchanges, bytes, ns;
};
const struct bn_dist_stats *bn_dist_stats(const struct bn_dist *d);

#endif
