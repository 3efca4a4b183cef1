/* SPDX-License-Identifier: Apache-2.0 */
#include "server/engine/worker_impl.h"

#include "base/clock.h"
#include "base/os/mem.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ------------------------------------------------------------------ life */

static void open_wake(pthread_cond_t *c)
{
    pthread_condattr_t a;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(c, &a);
    pthread_condattr_destroy(&a);
}

/* The threads take no signals: they are for the event loop. */
static int start_threads(struct worker *w)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int e = worker_compile_start(w);
    if (!e) e = pthread_create(&w->thread, NULL, worker_run, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    w->started = e == 0;
    return e;
}

static bitnet_status open_worker(struct worker *w, bitnet_error *err)
{
    bitnet_model_info m = {.size = sizeof m};
    bitnet_model_get_info(w->c.model, &m);
    w->n_embd = m.shape.n_embd;
    w->info.size = sizeof w->info;
    bitnet_engine_get_info(w->c.engine, &w->info);
    w->state.engine = w->info;
    w->state.health.size = sizeof w->state.health;
    bitnet_engine_health(w->c.engine, &w->state.health);
    w->state.scrub = (bitnet_scrub){.size = sizeof w->state.scrub, .tensor = ""};
    w->state.n_layers = m.shape.n_layer;
    w->layers = bn_calloc(m.shape.n_layer, sizeof *w->layers);
    if (!w->layers)
        return bn_fail_nomem(err, m.shape.n_layer * sizeof *w->layers, "states of layers");
    w->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->fd < 0)
        return bn_fail(err, BITNET_E_IO, "no event counter can be had (error %d)", errno);
    int e = start_threads(w);
    if (e) return bn_fail(err, BITNET_E_NOMEM, "cannot start the engine's thread (error %d)", e);
    return BITNET_OK;
}

bitnet_status worker_open(struct worker **out, const struct worker_config *c, bitnet_error *err)
{
    *out = NULL;
    struct worker *w = bn_calloc(1, sizeof *w);
    if (!w) return bn_fail_nomem(err, sizeof *w, "the engine's thread");
    w->c = *c;
    w->fd = -1;
    w->out_end = &w->out;
    for (size_t i = 0; i < WORKER_BLOCKS; i++) {
        w->blocks[i].next = w->free;
        w->free = &w->blocks[i];
    }
    pthread_mutex_init(&w->lock, NULL);
    open_wake(&w->wake);
    pthread_cond_init(&w->more_to_compile, NULL);
    bitnet_status s = open_worker(w, err);
    if (s != BITNET_OK) worker_close(w);
    else *out = w;
    return s;
}

/* All that the thread has left go to the mail, which then fails: also what is given meanwhile. */
static void fail_rest(struct worker *w)
{
    bitnet_error err;
    struct worker_task *t;
    bn_error_set(&err, BITNET_E_CANCELLED, "the engine was closed before the request was done");
    for (size_t i = 0; i < WORKER_BUCKETS; i++)
        while ((t = w->requests[i])) {
            w->requests[i] = t->next;
            worker_list_add(&w->mail, t);
        }
    while ((t = worker_list_take(&w->embeds))) worker_list_add(&w->mail, t);
    while ((t = worker_list_take(&w->mail))) t->failed(t, &err);
}

void worker_close(struct worker *w)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    pthread_cond_signal(&w->wake);
    pthread_cond_signal(&w->more_to_compile);
    pthread_mutex_unlock(&w->lock);
    worker_compile_join(w);
    if (w->started) {
        pthread_join(w->thread, NULL);
        worker_deliver(w);
        fail_rest(w);
    }
    if (w->fd >= 0) close(w->fd);
    for (size_t i = 0; i < WORKER_BLOCKS; i++) free(w->blocks[i].events);
    free(w->events);
    free(w->layers);
    pthread_cond_destroy(&w->wake);
    pthread_cond_destroy(&w->more_to_compile);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

/* ------------------------------------------------------------------ in */

static void give(struct worker *w, struct worker_task *t)
{
    t->n_done = 0;
    t->cancelled = false;
    t->error.status = BITNET_OK;
    t->given_ns = bn_now_ns();
    bool constrained =
        t->request && (t->request->grammar || t->request->json_schema || t->request->json_object);
    pthread_mutex_lock(&w->lock);
    worker_list_add(constrained ? &w->to_compile : &w->mail, t);
    pthread_cond_signal(constrained ? &w->more_to_compile : &w->wake);
    pthread_mutex_unlock(&w->lock);
}

void worker_submit(struct worker *w, struct worker_task *t, const bitnet_request *r)
{
    t->request = r;
    t->call = NULL;
    t->n_left = r->n_choices ? r->n_choices : 1;
    give(w, t);
}

void worker_embed(struct worker *w, struct worker_task *t, const bitnet_embed_input *inputs,
                  size_t n, const bitnet_embed_options *o, float *vectors)
{
    t->request = NULL;
    t->call = NULL;
    t->inputs = inputs;
    t->n_inputs = n;
    t->embed = o;
    t->vectors = vectors;
    give(w, t);
}

void worker_call(struct worker *w, struct worker_task *t, worker_call_fn *call)
{
    t->request = NULL;
    t->call = call;
    give(w, t);
}

/* The thread looks for the mark in tasks that it still has; so one that has ended may be marked, too. */
void worker_cancel(struct worker *w, struct worker_task *t)
{
    t->cancelled = true;
    pthread_mutex_lock(&w->lock);
    w->any_cancelled = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

/* ------------------------------------------------------------------ out */

int worker_fd(const struct worker *w) { return w->fd; }

/* A task may be gone when its end was told. */
static void hand_out(struct worker *w, struct worker_block *b)
{
    if (b->step.n_seqs && w->c.stepped) w->c.stepped(w->c.user, &b->step);
    for (size_t i = 0; i < b->n_events; i++)
        b->events[i].task->take(b->events[i].task, &b->events[i].event);
    for (struct worker_task *t; (t = worker_list_take(&b->ended));) {
        bitnet_error err = t->error;
        if (err.status) t->failed(t, &err);
        else t->done(t);
    }
}

static void give_back(struct worker *w, struct worker_block *b)
{
    b->step.n_seqs = 0;
    b->n_events = 0;
    if (b->bytes > WORKER_KEEP_BYTES) {
        free(b->events);
        b->events = NULL;
        b->bytes = 0;
    }
    pthread_mutex_lock(&w->lock);
    b->next = w->free;
    w->free = b;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

void worker_deliver(struct worker *w)
{
    uint64_t n;
    ssize_t unused = read(w->fd, &n, sizeof n); /* before the list is taken: none is overlooked */
    (void)unused;
    pthread_mutex_lock(&w->lock);
    struct worker_block *b = w->out;
    w->out = NULL;
    w->out_end = &w->out;
    pthread_mutex_unlock(&w->lock);
    while (b) {
        struct worker_block *next = b->next;
        hand_out(w, b);
        give_back(w, b);
        b = next;
    }
}

void worker_get_state(struct worker *w, struct worker_state *s, struct worker_layer *layers)
{
    pthread_mutex_lock(&w->lock);
    *s = w->state;
    if (layers) memcpy(layers, w->layers, w->state.n_layers * sizeof *layers);
    pthread_mutex_unlock(&w->lock);
    s->layers = layers;
}
