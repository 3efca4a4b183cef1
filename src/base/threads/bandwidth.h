/* SPDX-License-Identifier: Apache-2.0
 * How fast this machine's memory can be read: a buffer larger than the caches, summed by a number
 * of threads, each over its own part. Decoding reads every weight once a token, so this is the
 * limit that its speed is compared with. */
#ifndef BN_BASE_THREADS_BANDWIDTH_H
#define BN_BASE_THREADS_BANDWIDTH_H

#include "base/status.h"

/* Of the third level; 0 if there is none or nobody says. */
size_t bn_last_cache_bytes(void);
/* A size that no cache of this machine holds. */
size_t bn_beyond_caches_bytes(void);

struct bn_bandwidth; /* the buffer and the threads */

/* threads 0: the usable cores. bytes 0: as many as this machine's caches ask for. Every thread
 * fills the part that it will read, so that it lies in its own node's memory. */
bitnet_status bn_bandwidth_open(struct bn_bandwidth **out, uint32_t threads, size_t bytes,
                                bitnet_error *err);
void bn_bandwidth_close(struct bn_bandwidth *b);
size_t bn_bandwidth_bytes(const struct bn_bandwidth *b);

/* One pass over the buffer: bytes a second. */
double bn_bandwidth_read(struct bn_bandwidth *b);
/* Opens, reads a few times and closes: the best pass, in bytes a second; 0: it could not be
 * measured. */
double bn_bandwidth_best(uint32_t threads);

#endif
