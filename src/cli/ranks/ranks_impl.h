/* SPDX-License-Identifier: Apache-2.0
 * What the transport over MPI, and the watch over its processes, know of each other. */
#ifndef BN_CLI_RANKS_RANKS_IMPL_H
#define BN_CLI_RANKS_RANKS_IMPL_H

#include "cli/ranks/ranks.h"
#include <pthread.h>
#include <stdatomic.h>

enum { RANK_NAME_BYTES = 128 };

/* Every rank has a connection to rank 0, and rank 0 to all others: over it they hear of each other several
 * times a second, whatever they compute, and notice who was killed, stopped or unplugged. */
struct watch {
    uint32_t rank, n_ranks;
    const char *const *names;
    int sockets[BITNET_MAX_RANKS]; /* by rank; -1: none */
    uint64_t heard_ns[BITNET_MAX_RANKS];
    pthread_t thread;
    bool running;
    atomic_bool ending;
    atomic_uint lost; /* 1 + a rank; 0: none */
};

/* Where rank 0 can be reached; sent to the others. */
struct watch_place {
    uint64_t cookie;
    uint16_t port;
    uint32_t n_addresses, addresses[16]; /* IPv4, network order */
};

/* Rank 0 listens; `near`: all ranks are on this machine. Returns the listening socket, or -1. */
int watch_listen(struct watch_place *place, bool near);
/* All ranks, at the same time: rank 0 with the listening socket, which is closed. */
bool watch_open(struct watch *w, const struct watch_place *place, int listener);
void watch_close(struct watch *w);

#endif
