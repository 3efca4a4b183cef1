/* SPDX-License-Identifier: Apache-2.0
 *
 * worker.h: the thread that drives the engine. Tasks go to it, what happened comes back in batches,
 * one a step, and is handed out on the thread that calls worker_deliver. The engine is touched by
 * this thread alone from worker_open to worker_close.
 *
 * Every task that was given has exactly one end: `failed`, or the event (`take`) after which all its
 * choices are over, or `done`. Until then the task and what it points to must stay where they are;
 * also after worker_cancel, which only brings the end nearer.
 */
#ifndef BN_SERVER_ENGINE_WORKER_H
#define BN_SERVER_ENGINE_WORKER_H

#include "base/status.h"

struct worker;
struct worker_task;
/* By the engine's thread, between two steps. */
typedef bitnet_status worker_call_fn(struct worker_task *t, bitnet_engine *e, bitnet_error *err);

struct worker_task {
    /* the caller's; called by worker_deliver. queue_ns of events counts from worker_submit on. */
    void (*take)(struct worker_task *t, const bitnet_event *e);
    void (*failed)(struct worker_task *t,
                   const bitnet_error *err); /* the engine refused it, or broke */
    void (*done)(struct worker_task *t);     /* vectors are there, or the call has come back */
    /* the worker's */
    struct worker_task *next; /* in the one list that it is in */
    const bitnet_request *request;
    worker_call_fn *call;
    const bitnet_embed_input *inputs;
    const bitnet_embed_options *embed;
    float *vectors;
    size_t n_inputs, n_done, n_rows; /* n_rows: vectors that are there */
    uint64_t id;                     /* in the engine */
    uint64_t given_ns, mail_ns;      /* when it was given; how long it lay in the mailbox */
    uint32_t n_left;                 /* choices that are not over */
    _Atomic bool cancelled;
    bitnet_error error; /* of a task that failed */
};

/* One step of the engine. */
struct worker_step {
    uint64_t ns;
    uint32_t n_seqs;          /* choices that took part */
    uint32_t n_prompt_tokens; /* read in it */
    uint32_t n_generated;     /* drawn in it */
};

struct worker_layer {
    bitnet_kv_health kv;
    bitnet_ffn_layer ffn;
};

/* How the engine stands; a copy, at most some hundred milliseconds old while it works. */
struct worker_state {
    bitnet_engine_info engine;
    bitnet_health health;
    bitnet_scrub scrub;
    const struct worker_layer *layers; /* [n_layers], the caller's memory; some seconds old */
    uint32_t n_layers;
    bool ready; /* warm-up is done */
    bitnet_error
        broken; /* status other than OK: a step failed for good, nothing is computed any more */
};

struct worker_gate;

struct worker_config {
    const bitnet_model *model;
    bitnet_engine *engine;
    struct worker_gate *gate; /* the cores that it shares with others; NULL: it has them all */
    uint64_t slice_ns;        /* embeddings are computed in slices of about that long */
    uint32_t scrub_mib_s;     /* weights checked while there is nothing to do; 0: none */
    bool warm_up;
    void *user;
    void (*stepped)(void *user,
                    const struct worker_step *s); /* by worker_deliver, before its events */
};

bitnet_status worker_open(struct worker **out, const struct worker_config *c, bitnet_error *err);
/* Ends the thread and delivers what is there; tasks that have not ended then are cancelled and end by
 * `failed`, called from here. The engine is left without requests. */
void worker_close(struct worker *w);

/* Can be read when there is something to deliver. */
int worker_fd(const struct worker *w);
void worker_deliver(struct worker *w);

void worker_submit(struct worker *w, struct worker_task *t, const bitnet_request *r);
/* vectors: as in bitnet_embed. Computed between steps, a few inputs at a time. */
void worker_embed(struct worker *w, struct worker_task *t, const bitnet_embed_input *inputs,
                  size_t n, const bitnet_embed_options *o, float *vectors);
void worker_call(struct worker *w, struct worker_task *t, worker_call_fn *call);
/* A request that has begun ends with events that say BITNET_FINISH_CANCELLED; others fail with
 * BITNET_E_CANCELLED. One whose end is on its way ends as it would have. Nothing happens to a task
 * that has ended. */
void worker_cancel(struct worker *w, struct worker_task *t);

/* layers: room for n_layers of the model, or NULL. */
void worker_get_state(struct worker *w, struct worker_state *s, struct worker_layer *layers);

#endif
