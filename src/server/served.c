/* SPDX-License-Identifier: Apache-2.0
 *
 * served.c: a model that is served: how it comes into memory and leaves it, each on a thread of its own, and
 * what it has while it is there: the thread that drives its engine, its adapters, its figures.
 */
#include "base/clock.h"
#include "base/os/mem.h"
#include "server/engine/worker_gate.h"
#include "server/ollama/ollama.h"
#include "server/openai/request.h"
#include "server/server_impl.h"
#include <errno.h>
#include <event2/event.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

bool served_is_called(const struct served_model *s, const char *name)
{
    const char *list = s->spec->aliases ? s->spec->aliases : "";
    size_t n = strlen(name), tag = strlen(":latest");
    if (strcmp(name, s->name) == 0) return true;
    while (*list) {
        size_t one = strcspn(list, ",");
        if (one == n && strncmp(list, name, n) == 0) return true;
        list += one + (list[one] == ',');
    }
    /* Ollama's clients put it behind every name without a tag */
    return n > tag && strcmp(name + n - tag, ":latest") == 0 && n - tag == strlen(s->name) &&
           strncmp(name, s->name, n - tag) == 0;
}

const char *served_state_name(const struct served_model *s)
{
    static const char *const names[] = {[SERVED_ABSENT] = "unloaded",
                                        [SERVED_LOADING] = "loading",
                                        [SERVED_READY] = "loaded",
                                        [SERVED_LEAVING] = "unloading"};
    return names[s->state];
}

uint64_t served_bytes(const struct served_model *s)
{
    return s->bytes ? s->bytes : s->spec->file_bytes;
}

void server_now(struct served_model *s, struct worker_state *state, struct net_stats *net,
                struct metrics_now *now)
{
    *state = (struct worker_state){.ready = true}; /* whoever asks for it will have it */
    if (s->worker) worker_get_state(s->worker, state, s->layers);
    net_stats(s->s->net, net);
    *now = (struct metrics_now){.worker = state,
                                .net = net,
                                .n_waiting = s->n_taken - s->n_running + s->n_waiters,
                                .n_running = s->n_running,
                                .max_queue = s->c->max_queue,
                                .draining = server_draining(s->s),
                                .resident = s->state == SERVED_READY,
                                .resident_bytes = s->state == SERVED_READY ? s->bytes : 0,
                                .n_loads = s->n_loads,
                                .n_load_failures = s->n_failures,
                                .n_unloads = s->n_unloads};
}

static void on_step(void *user, const struct worker_step *step)
{
    struct served_model *s = user;
    metrics_step(s->metrics, step);
}

static void on_delivery(int fd, short what, void *user)
{
    (void)fd, (void)what;
    struct served_model *s = user;
    worker_deliver(s->worker);
    completions_attend(s->s);
}

/* ------------------------------------------------------------------ what it has */

/* What can be had without the server's thread. */
struct served_parts {
    bitnet_model *m;
    bitnet_engine *e;
    struct adapter_set adapters;
    uint64_t max_prompt_bytes;
};

static void close_parts(struct served_parts *p)
{
    adapter_set_close(&p->adapters);
    bitnet_engine_close(p->e);
    bitnet_model_close(p->m);
    *p = (struct served_parts){.m = NULL};
}

static uint64_t max_prompt_bytes(const struct served_parts *p)
{
    bitnet_model_info m = {.size = sizeof m};
    bitnet_engine_info e = {.size = sizeof e};
    size_t longest = 1;
    bitnet_model_get_info(p->m, &m);
    bitnet_engine_get_info(p->e, &e);
    for (uint32_t i = 0; i < m.shape.n_vocab; i++) {
        const char *text = bitnet_token_text(p->m, (int32_t)i);
        if (text) longest = bn_max_size(longest, strlen(text));
    }
    return (uint64_t)longest * e.ctx_tokens;
}

static bitnet_status finish_parts(struct served_parts *p, const struct served_model *s,
                                  bitnet_error *err)
{
    p->max_prompt_bytes = max_prompt_bytes(p);
    return adapter_set_open(&p->adapters, &s->adapters, p->m, err);
}

static bitnet_status open_worker(struct served_model *s, bitnet_error *err)
{
    const struct server_config *c = s->c;
    const struct worker_config wc = {.model = s->m,
                                     .engine = s->e,
                                     .gate = s->s->gate,
                                     .slice_ns = c->slice_ms * UINT64_C(1000000),
                                     .scrub_mib_s = c->scrub_mib_s,
                                     .warm_up = c->warm_up,
                                     .user = s,
                                     .stepped = on_step};
    BN_TRY(worker_open(&s->worker, &wc, err));
    s->delivery = event_new(s->s->base, worker_fd(s->worker), EV_READ | EV_PERSIST, on_delivery, s);
    if (!s->delivery || event_add(s->delivery, NULL) != 0)
        return bn_fail_nomem(err, sizeof *s, "the engine's events");
    return BITNET_OK;
}

/* Memory that is the model's alone; what is mapped of its file may be taken away, but is read again. */
static uint64_t bytes_of(const struct served_model *s)
{
    const bitnet_model_memory *m = &s->info.memory;
    const bitnet_engine_info *e = &s->engine;
    uint64_t weights = m->packed_bytes > m->file_bytes ? m->packed_bytes : m->file_bytes;
    return weights + e->kv.bytes + e->scratch_bytes + e->states.bytes;
}

/* What lacks something for want of memory would lack it for good. */
static struct bn_json *whole_or_none(struct bn_json *j)
{
    if (bn_json_whole(j)) return j;
    bn_json_free(j);
    return NULL;
}

/* What is told of it stays when it leaves. */
static void keep_cards(struct served_model *s)
{
    bn_json_free(s->card);
    bn_json_free(s->ollama_card);
    s->card = whole_or_none(model_card(s));
    s->ollama_card = whole_or_none(ollama_card(s));
}

/* The model's in any case, which served_leave or served_close gives back. */
static bitnet_status take_parts(struct served_model *s, struct served_parts *p, bitnet_error *err)
{
    const struct server_config *c = s->c;
    s->m = p->m;
    s->e = p->e;
    adapter_list_take(&s->adapters, &p->adapters);
    s->max_prompt_bytes = p->max_prompt_bytes;
    s->info.size = sizeof s->info;
    s->engine.size = sizeof s->engine;
    bitnet_model_get_info(s->m, &s->info);
    bitnet_engine_get_info(s->e, &s->engine);
    s->started = time(NULL);
    s->bytes = bytes_of(s);
    /* one that cannot be used is refused when it is to be used */
    if (bitnet_chat_template_text(s->m, s->spec->chat_template, &s->template_text, err) ==
        BITNET_E_NOMEM)
        return BITNET_E_NOMEM;
    s->layers = bn_calloc(s->info.shape.n_layer, sizeof *s->layers);
    if (!s->layers) return bn_fail_nomem(err, sizeof *s, "the server");
    if (c->slot_save_path) BN_TRY(slots_open(&s->slots, s->engine.max_seqs, err));
    BN_TRY(metrics_set_model(s->metrics, s->m, err));
    BN_TRY(open_worker(s, err));
    keep_cards(s);
    s->state = SERVED_READY;
    s->ready_ns = s->used_ns = bn_now_ns();
    return BITNET_OK;
}

/* All but what a thread of its own may give back. */
static void drop_small(struct served_model *s)
{
    adapters_end_loading(s);
    if (s->delivery) event_free(s->delivery);
    s->delivery = NULL;
    slots_close(&s->slots);
    free(s->places.list);
    s->places = (struct places){.n = 0};
    free(s->layers);
    s->layers = NULL;
    s->template_text = NULL;
}

/* Without its parts it is one that is not there. */
static struct served_parts give_parts(struct served_model *s)
{
    struct served_parts p = {.m = s->m, .e = s->e};
    adapter_list_give(&s->adapters, &p.adapters);
    s->m = NULL;
    s->e = NULL;
    s->worker = NULL;
    s->info = (bitnet_model_info){.size = sizeof s->info};
    s->engine = (bitnet_engine_info){.size = sizeof s->engine};
    return p;
}

bitnet_status served_start(struct served_model *s, bitnet_model *m, bitnet_engine *e,
                           bitnet_error *err)
{
    struct served_parts p = {.m = m, .e = e};
    bitnet_status status = finish_parts(&p, s, err);
    if (status != BITNET_OK) close_parts(&p);
    else status = take_parts(s, &p, err);
    if (status == BITNET_OK) s->n_loads++;
    return status;
}

/* ------------------------------------------------------------------ coming and going */

/* One that comes, or goes: what the thread has in hand. */
struct served_job {
    struct served_model *s;
    void (*run)(struct served_job *j);
    pthread_t thread;
    int fd;
    struct event *done;
    _Atomic bool stop;
    struct served_parts parts;
    struct worker *worker;
    uint64_t began_ns;
    bitnet_status status;
    bitnet_error err;
};

static void come(struct served_job *j)
{
    const struct server_model *spec = j->s->spec;
    j->status = spec->open(spec, &j->stop, &j->parts.m, &j->parts.e, &j->err);
    if (j->status == BITNET_OK) j->status = finish_parts(&j->parts, j->s, &j->err);
    if (j->status != BITNET_OK) close_parts(&j->parts);
}

/* The allocator keeps what was freed for others; here it is much, and the others may never come. */
static void give_memory_back(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

static void go(struct served_job *j)
{
    worker_close(j->worker); /* nothing is given to it any more */
    close_parts(&j->parts);
    give_memory_back();
}

static void *run_job(void *arg)
{
    struct served_job *j = arg;
    uint64_t one = 1;
    j->run(j);
    if (write(j->fd, &one, sizeof one) != sizeof one) return NULL; /* it cannot be full */
    return NULL;
}

static void free_job(struct served_job *j)
{
    j->s->job = NULL;
    if (j->done) event_free(j->done);
    if (j->fd >= 0) close(j->fd);
    free(j);
}

static void on_come(struct served_job *j)
{
    struct served_model *s = j->s;
    bitnet_status status = j->status;
    bitnet_error err = j->err;
    s->load_ns = bn_now_ns() - j->began_ns;
    s->state = SERVED_ABSENT;
    if (status == BITNET_OK) status = take_parts(s, &j->parts, &err);
    if (status == BITNET_OK) s->n_loads++;
    else s->n_failures++;
    free_job(j);
    if (status != BITNET_OK && s->m) served_leave(s); /* half of it is there */
    models_loaded(s, status, &err);
}

static void on_gone(struct served_job *j)
{
    struct served_model *s = j->s;
    s->state = SERVED_ABSENT;
    free_job(j);
    models_left(s);
}

static void on_done(int fd, short what, void *user)
{
    (void)fd, (void)what;
    struct served_job *j = user;
    pthread_join(j->thread, NULL);
    if (j->run == come) on_come(j);
    else on_gone(j);
}

static int start_thread(struct served_job *j)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the event loop */
    int e = pthread_create(&j->thread, NULL, run_job, j);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return e;
}

/* NULL: it could not be prepared. */
static struct served_job *job_new(struct served_model *s, void (*run)(struct served_job *j))
{
    struct served_job *j = bn_calloc(1, sizeof *j);
    if (!j) return NULL;
    j->s = s;
    j->run = run;
    j->began_ns = bn_now_ns();
    j->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    j->done = j->fd < 0 ? NULL : event_new(s->s->base, j->fd, EV_READ, on_done, j);
    if (j->done && event_add(j->done, NULL) == 0) return j;
    free_job(j);
    return NULL;
}

bitnet_status served_load(struct served_model *s, bitnet_error *err)
{
    struct served_job *j = job_new(s, come);
    if (!j) return bn_fail_nomem(err, sizeof *j, "loading a model");
    int e = start_thread(j);
    if (e) {
        free_job(j);
        return bn_fail(err, BITNET_E_NOMEM, "cannot start a thread (error %d)", e);
    }
    s->job = j;
    s->state = SERVED_LOADING;
    return BITNET_OK;
}

void served_leave(struct served_model *s)
{
    struct worker_state state = {0};
    struct served_job *j = job_new(s, go);
    if (s->worker) worker_get_state(s->worker, &state, NULL);
    if (s->worker) metrics_retire(s->metrics, &state);
    drop_small(s);
    struct worker *worker = s->worker;
    struct served_parts parts = give_parts(s);
    s->n_unloads++;
    if (j) {
        j->worker = worker;
        j->parts = parts;
        s->state = SERVED_LEAVING;
        if (start_thread(j) == 0) {
            s->job = j;
            return;
        }
        free_job(j);
    }
    worker_close(worker); /* without a thread it takes this one's time */
    close_parts(&parts);
    s->state = SERVED_ABSENT;
}

void served_close(struct served_model *s)
{
    if (s->job) {
        s->job->stop = true;
        pthread_join(s->job->thread, NULL);
        close_parts(&s->job->parts);
        free_job(s->job);
    }
    if (s->worker) worker_close(s->worker);
    s->worker = NULL;
    completions_attend(s->s);
    drop_small(s);
    struct served_parts parts = give_parts(s);
    close_parts(&parts);
    adapter_list_close(&s->adapters);
    metrics_close(s->metrics);
    bn_json_free(s->card);
    bn_json_free(s->ollama_card);
    s->metrics = NULL;
    s->card = s->ollama_card = NULL;
    s->state = SERVED_ABSENT;
}
