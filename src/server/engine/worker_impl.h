/* SPDX-License-Identifier: Apache-2.0
 *
 * worker_impl.h: the worker's inside: worker.c is its door, on the caller's threads; worker_compile.c
 * compiles constraints, worker_thread.c drives the engine. A turn of the thread takes the mail, computes one step and fills one block with
 * what happened; blocks go to the door and come back empty.
 */
#ifndef BN_SERVER_ENGINE_WORKER_IMPL_H
#define BN_SERVER_ENGINE_WORKER_IMPL_H

#include "server/engine/worker.h"

#include <pthread.h>

enum {
    WORKER_BLOCKS = 64,            /* when so many are not delivered, the engine waits */
    WORKER_KEEP_BYTES = 256 << 10, /* memory that an empty block may keep */
    WORKER_BUCKETS = 4096          /* as many as requests may wait in an engine */
};

struct worker_list {
    struct worker_task *first, *last;
};

struct worker_event {
    struct worker_task *task;
    bitnet_event event;
};

struct worker_block {
    struct worker_block *next;
    struct worker_step step;     /* of 0 choices: there was none */
    struct worker_event *events; /* [n_events], then what they point to: one allocation */
    size_t n_events, bytes;
    struct worker_list ended; /* by their error, or done */
};

struct worker {
    struct worker_config c;
    pthread_t thread;
    bool started;
    int fd;
    pthread_mutex_t lock;
    pthread_cond_t wake; /* the thread: mail, a block that came back, closing */
    pthread_t compiler;  /* of constraints: worker_compile.c */
    bool compiling;
    pthread_cond_t more_to_compile; /* or closing */

    /* under the lock */
    bool closing, any_cancelled;
    struct worker_list mail, to_compile;
    struct worker_block *out, **out_end; /* to be delivered, in order */
    struct worker_block *free;
    struct worker_state state;
    struct worker_layer *layers; /* [state.n_layers] */

    /* the thread's; the door's when it has ended */
    struct worker_block *block;                   /* of this turn; NULL: none could be had yet */
    struct worker_task *requests[WORKER_BUCKETS]; /* in the engine, by id */
    uint32_t n_requests, n_choices;               /* in the engine */
    struct worker_list embeds;
    double embed_token_ns; /* learned price; 0: not yet */
    size_t last_slice;     /* tokens of embeddings that were computed last in one go */
    bitnet_event *events;  /* of a step */
    size_t events_room;
    uint32_t n_embd;
    bitnet_engine_info info; /* after the last step */
    bool idle;
    uint64_t state_due_ns, scrub_due_ns, layers_due_ns;
    uint32_t next_layer;
    bool layers_changed;

    struct worker_block blocks[WORKER_BLOCKS];
};

static inline void worker_list_add(struct worker_list *l, struct worker_task *t)
{
    t->next = NULL;
    if (l->last) l->last->next = t;
    else l->first = t;
    l->last = t;
}

/* NULL: it is empty. */
static inline struct worker_task *worker_list_take(struct worker_list *l)
{
    struct worker_task *t = l->first;
    if (!t) return NULL;
    l->first = t->next;
    if (!l->first) l->last = NULL;
    return t;
}

void *worker_run(void *worker);
int worker_compile_start(struct worker *w); /* 0, or an error number */
void worker_compile_join(struct worker *w); /* once it is closing */

#endif
