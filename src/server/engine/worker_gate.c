/* SPDX-License-Identifier: Apache-2.0 */
#include "server/engine/worker_gate.h"

#include "base/os/mem.h"
#include <pthread.h>
#include <stdlib.h>

struct worker_gate {
    pthread_mutex_t lock;
    pthread_cond_t moved; /* somebody has left, or it is the next one's turn */
    uint32_t cores, free;
    uint64_t n_tickets, n_served; /* given out; those before it are in */
};

struct worker_gate *worker_gate_open(uint32_t cores)
{
    struct worker_gate *g = bn_calloc(1, sizeof *g);
    if (!g) return NULL;
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->moved, NULL);
    g->cores = g->free = cores ? cores : 1;
    return g;
}

void worker_gate_close(struct worker_gate *g)
{
    if (!g) return;
    pthread_cond_destroy(&g->moved);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

static uint32_t share(const struct worker_gate *g, uint32_t cores)
{
    return cores < g->cores ? cores : g->cores;
}

/* In order: else small engines would keep a large one from ever finding all its cores free. */
void worker_gate_enter(struct worker_gate *g, uint32_t cores)
{
    if (!g) return;
    pthread_mutex_lock(&g->lock);
    uint64_t ticket = g->n_tickets++;
    while (ticket != g->n_served || g->free < share(g, cores))
        pthread_cond_wait(&g->moved, &g->lock);
    g->n_served++;
    g->free -= share(g, cores);
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
}

void worker_gate_leave(struct worker_gate *g, uint32_t cores)
{
    if (!g) return;
    pthread_mutex_lock(&g->lock);
    g->free += share(g, cores);
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
}
