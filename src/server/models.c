/* SPDX-License-Identifier: Apache-2.0
 *
 * models.c: the models of a server, of which some are in memory. One that is asked for and is not there is
 * loaded; if there is no room, those that nobody has used for longest leave first. A model in use is not taken
 * from those who have it: it takes nobody new, they come to their end, then it leaves. Those who wait are
 * served in the order of their coming, model by model, so that none waits for ever.
 */
#include "base/clock.h"
#include "base/os/mem.h"
#include "server/engine/worker_gate.h"
#include "server/server_impl.h"
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* A model that has just come is not asked to leave at once, or two that are wanted would do nothing but
 * come and go. */
static const uint64_t stay_ns = 500 * UINT64_C(1000000);
static const uint64_t second_ns = UINT64_C(1000000000);

/* A request whose model is not there. */
struct waiter {
    struct exchange x; /* first */
    struct served_model *wanted;
    struct waiter *next;
    uint64_t since_ns;
};

/* ------------------------------------------------------------------ names */

/* Of a server with one model people expect that any name will do; but where names choose adapters, one that
 * means nothing must not mean the model: an adapter may have been unloaded. */
static bool takes_any_name(const struct server *s)
{
    const struct served_model *m = &s->models[0];
    return !models_several(s) && !s->c->strict && m->adapters.next_id == 0 && !s->c->lora_updates;
}

struct served_model *models_find(struct server *s, const char *name)
{
    if (!name || !*name) return &s->models[0];
    for (size_t i = 0; i < s->n_models; i++)
        if (served_is_called(&s->models[i], name)) return &s->models[i];
    for (size_t i = 0; i < s->n_models; i++)
        if (adapter_list_find(&s->models[i].adapters, name)) return &s->models[i];
    return NULL;
}

/* "'a', 'b'", as far as there is room */
static void list_names(char *out, size_t room, const struct server *s)
{
    size_t n = 0;
    *out = 0;
    for (size_t i = 0; i < s->n_models && n < room; i++) {
        const char *name = s->models[i].name;
        if (n + strlen(name) + 8 > room) {
            snprintf(out + n, room - n, ", ...");
            return;
        }
        n += (size_t)snprintf(out + n, room - n, "%s'%s'", i ? ", " : "", name);
    }
}

struct served_model *models_choose(struct exchange *x, const char *name)
{
    struct server *s = x->s;
    struct served_model *m = models_find(s, name);
    char names[320];
    if (m) return m;
    if (takes_any_name(s)) return &s->models[0];
    list_names(names, sizeof names, s);
    exchange_refuse(x, 404, "model_not_found",
                    "there is no model or adapter '%.80s'; %s %s served, and GET /v1/models lists "
                    "them",
                    name, names, s->n_models == 1 ? "is" : "are");
    return NULL;
}

/* ------------------------------------------------------------------ who is there */

uint32_t models_taken(const struct server *s)
{
    uint32_t n = 0;
    for (size_t i = 0; i < s->n_models; i++) n += s->models[i].n_taken;
    return n;
}

void models_sample(struct server *s)
{
    struct worker_state state;
    struct net_stats net;
    struct metrics_now now;
    for (size_t i = 0; i < s->n_models; i++) {
        if (s->models[i].state != SERVED_READY) continue;
        server_now(&s->models[i], &state, &net, &now);
        metrics_sample(s->models[i].metrics, &now);
    }
}

int64_t models_usual_keep(const struct server *s)
{
    return s->c->on_demand && s->c->idle_unload_s ? (int64_t)s->c->idle_unload_s : -1;
}

static void turn_soon(struct server *s)
{
    if (s->turn && s->c->on_demand) event_active(s->turn, EV_TIMEOUT, 0);
}

void models_hold(struct exchange *x)
{
    if (x->holds || !x->model || x->model->state != SERVED_READY) return;
    x->holds = true;
    x->model->n_holders++;
}

void models_release(struct exchange *x)
{
    if (!x->holds) return;
    x->holds = false;
    x->model->n_holders--;
    x->model->used_ns = bn_now_ns();
    if (x->model->n_holders == 0) turn_soon(x->s);
}

void models_keep(struct served_model *m, int64_t keep_s)
{
    m->keep_s = keep_s;
    turn_soon(m->s);
}

/* ------------------------------------------------------------------ waiting */

static void unlink_waiter(struct waiter *w)
{
    struct served_model *m = w->wanted;
    struct waiter **at = &m->waiters;
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    if (m->waiters_end == &w->next) m->waiters_end = at;
    m->n_waiters--;
    m->s->n_large_waiting -= w->x.large;
}

static void free_waiter(struct waiter *w)
{
    exchange_close(&w->x);
    bn_json_free(w->x.body);
    free(w);
}

static void on_disconnect(struct exchange *x)
{
    struct waiter *w = (struct waiter *)x;
    exchange_disconnected(x);
    unlink_waiter(w);
    turn_soon(x->s);
    free_waiter(w);
}

static void on_late(struct exchange *x)
{
    struct waiter *w = (struct waiter *)x;
    unlink_waiter(w);
    turn_soon(x->s);
    exchange_refuse(x, 504, "timeout", "the model '%.80s' had no room within %u s", w->wanted->name,
                    x->s->c->timeout_s);
    free_waiter(w);
}

static void serve_now(struct exchange *x)
{
    x->line.model = x->model->name;
    x->model->used_ns = bn_now_ns();
    x->route->serve(x);
    bn_json_free(x->body);
}

/* The oldest of the model's; it is the caller's now, as if it had just come in. */
static struct exchange take_waiter(struct served_model *m)
{
    struct waiter *w = m->waiters;
    unlink_waiter(w);
    exchange_resume(&w->x);
    struct exchange x = w->x;
    free(w);
    x.model = m;
    return x;
}

static void serve_waiters(struct served_model *m)
{
    while (m->waiters && m->state == SERVED_READY && !m->gives_way) {
        struct exchange x = take_waiter(m);
        serve_now(&x);
    }
}

static void refuse_waiters(struct served_model *m, const bitnet_error *err)
{
    while (m->waiters) {
        struct exchange x = take_waiter(m);
        exchange_refuse(&x, 503, "model_not_loaded", "the model '%.80s' could not be loaded: %s",
                        m->name, err->text);
        bn_json_free(x.body);
    }
}

static void wait_for(struct exchange *x, struct served_model *m)
{
    struct waiter *w = NULL;
    if (x->large && x->s->n_large_waiting == LARGE_WAITING_MAX) {
        exchange_refuse_for_now(x, 503, "busy", m->load_ns / second_ns + 1,
                                "too many large requests wait for models to be loaded");
        return;
    }
    if (m->n_waiters <= x->s->c->max_queue) w = bn_calloc(1, sizeof *w);
    if (!w && m->n_waiters <= x->s->c->max_queue) {
        exchange_refuse(x, 500, NULL, "out of memory: %zu bytes for a request", sizeof *w);
        return;
    }
    if (!w) {
        exchange_refuse_for_now(x, 429, "queue_full", m->load_ns / second_ns + 1,
                                "too many requests wait for this model to be loaded");
        return;
    }
    w->x = *x;
    x->body = NULL;
    w->x.model = NULL;
    w->x.admitted = true;
    w->x.disconnected = on_disconnect;
    w->x.late = on_late;
    w->wanted = m;
    w->since_ns = bn_now_ns();
    exchange_later(&w->x);
    *m->waiters_end = w;
    m->waiters_end = &w->next;
    m->n_waiters++;
    x->s->n_large_waiting += x->large;
    turn_soon(x->s);
}

void models_serve(struct exchange *x, struct served_model *m)
{
    if (m->state == SERVED_READY && !m->gives_way) {
        x->model = m;
        serve_now(x);
    } else {
        wait_for(x, m);
        bn_json_free(x->body);
    }
}

/* ------------------------------------------------------------------ room */

/* The one that is not there and was asked for first. */
static struct served_model *next_wanted(struct server *s)
{
    struct served_model *best = NULL;
    for (size_t i = 0; i < s->n_models; i++) {
        struct served_model *m = &s->models[i];
        if (m->state != SERVED_ABSENT || !m->waiters) continue;
        if (!best || m->waiters->since_ns < best->waiters->since_ns) best = m;
    }
    return best;
}

/* Models in memory, or on their way in or out; and what they take. */
static uint32_t count_present(const struct server *s, uint64_t *bytes)
{
    uint32_t n = 0;
    *bytes = 0;
    for (size_t i = 0; i < s->n_models; i++) {
        if (s->models[i].state == SERVED_ABSENT) continue;
        *bytes += served_bytes(&s->models[i]);
        n++;
    }
    return n;
}

static bool fits(const struct server *s, uint64_t more_bytes, uint32_t more)
{
    uint64_t bytes;
    uint32_t n = count_present(s, &bytes);
    if (s->c->max_models && n + more > s->c->max_models) return false;
    return !s->c->max_resident_bytes || bytes + more_bytes <= s->c->max_resident_bytes;
}

static bool any_leaving(const struct server *s)
{
    for (size_t i = 0; i < s->n_models; i++)
        if (s->models[i].state == SERVED_LEAVING) return true;
    return false;
}

/* The one whose last request is longest ago, among those that nobody uses, or that somebody uses and that
 * have been there for a while. *due_ns: when there may be one. */
static struct served_model *least_used(struct server *s, bool in_use, uint64_t now_ns,
                                       uint64_t *due_ns)
{
    struct served_model *best = NULL;
    for (size_t i = 0; i < s->n_models; i++) {
        struct served_model *m = &s->models[i];
        if (m->state != SERVED_READY || (m->n_holders > 0) != in_use) continue;
        if (in_use && now_ns < m->ready_ns + stay_ns) {
            *due_ns = bn_min_size(*due_ns, m->ready_ns + stay_ns);
            continue;
        }
        if (!best || m->used_ns < best->used_ns) best = m;
    }
    return best;
}

static void leave(struct served_model *m)
{
    m->gives_way = false;
    served_leave(m);
}

static bool any_gives_way(const struct server *s)
{
    for (size_t i = 0; i < s->n_models; i++)
        if (s->models[i].gives_way) return true;
    return false;
}

/* One leaves, or is asked to; nothing happens while another is on its way out. */
static void make_room(struct server *s, uint64_t now_ns, uint64_t *due_ns)
{
    if (any_leaving(s)) return;
    struct served_model *m = least_used(s, false, now_ns, due_ns);
    if (m) {
        leave(m);
        return;
    }
    if (any_gives_way(s)) return;
    m = least_used(s, true, now_ns, due_ns);
    if (m) m->gives_way = true;
}

/* More than the limit, though nothing else is there: it will never fit. */
static bool never_fits(const struct server *s, const struct served_model *m, bitnet_error *err)
{
    uint64_t limit = s->c->max_resident_bytes, need = served_bytes(m);
    if (!limit || need <= limit) return false;
    bn_error_set(err, BITNET_E_LIMIT,
                 "it takes %" PRIu64 " bytes, and --max-resident allows %" PRIu64
                 "; a shorter --ctx-size or fewer sequences take less",
                 need, limit);
    return true;
}

/* false: it has to wait for room. */
static bool load(struct server *s, struct served_model *m, uint64_t now_ns, uint64_t *due_ns)
{
    bitnet_error err = {0};
    if (never_fits(s, m, &err)) {
        refuse_waiters(m, &err);
        return true;
    }
    if (!fits(s, served_bytes(m), 1)) {
        make_room(s, now_ns, due_ns);
        return fits(s, served_bytes(m), 1);
    }
    if (served_load(m, &err) != BITNET_OK) refuse_waiters(m, &err);
    return true;
}

/* ------------------------------------------------------------------ turns */

static void let_idle_go(struct server *s, uint64_t now_ns, uint64_t *due_ns)
{
    for (size_t i = 0; i < s->n_models; i++) {
        struct served_model *m = &s->models[i];
        if (m->state != SERVED_READY || m->n_holders) continue;
        uint64_t end_ns = m->keep_s < 0 ? UINT64_MAX : m->used_ns + (uint64_t)m->keep_s * second_ns;
        if (m->gives_way || now_ns >= end_ns) leave(m);
        else *due_ns = bn_min_size(*due_ns, end_ns);
    }
}

/* Nobody needs the room any more: they may stay. */
static void let_stay(struct server *s)
{
    for (size_t i = 0; i < s->n_models; i++) {
        s->models[i].gives_way = false;
        serve_waiters(&s->models[i]);
    }
}

static void on_turn(int fd, short what, void *user)
{
    (void)fd, (void)what;
    struct server *s = user;
    uint64_t now_ns = bn_now_ns(), due_ns = UINT64_MAX;
    struct served_model *m;
    let_idle_go(s, now_ns, &due_ns);
    while ((m = next_wanted(s)) && load(s, m, now_ns, &due_ns)) continue;
    if (!m) let_stay(s);
    if (!m && !fits(s, 0, 0) && !any_leaving(s)) { /* what came took more than was thought */
        m = least_used(s, false, now_ns, &due_ns);
        uint64_t bytes;
        if (m && count_present(s, &bytes) > 1) leave(m);
    }
    if (due_ns == UINT64_MAX) return;
    uint64_t wait_us = due_ns > now_ns ? (due_ns - now_ns) / 1000 + 1000 : 1000;
    struct timeval wait = {.tv_sec = (time_t)(wait_us / 1000000),
                           .tv_usec = (suseconds_t)(wait_us % 1000000)};
    event_add(s->turn, &wait);
}

void models_loaded(struct served_model *m, bitnet_status status, const bitnet_error *err)
{
    bitnet_error why = {0};
    if (status == BITNET_OK && never_fits(m->s, m, &why)) {
        leave(m);
        refuse_waiters(m, &why);
    } else if (status != BITNET_OK) {
        refuse_waiters(m, err);
    } else {
        serve_waiters(m);
    }
    turn_soon(m->s);
}

void models_left(struct served_model *m) { turn_soon(m->s); }

/* ------------------------------------------------------------------ life */

bool models_several(const struct server *s) { return s->c->n_models > 1 || s->c->store; }

/* In the place behind the others. */
static bitnet_status open_model(struct server *s, const struct server_model *spec,
                                bitnet_error *err)
{
    const struct server_config *c = s->c;
    const struct metrics_config mc = {.memory_bytes_s = c->memory_bytes_s,
                                      .vllm = c->metrics_vllm,
                                      .llamacpp = c->metrics_llamacpp,
                                      .served_name = spec->name};
    struct served_model *one = &s->models[s->n_models];
    *one = (struct served_model){.s = s,
                                 .c = c,
                                 .own = *spec,
                                 .name = spec->name,
                                 .path = spec->path,
                                 .started = time(NULL),
                                 .keep_s = models_usual_keep(s)};
    one->spec = &one->own;
    one->waiters_end = &one->waiters;
    BN_TRY(adapter_list_open(&one->adapters, spec->lora, spec->n_lora, err));
    bitnet_status status = metrics_open(&one->metrics, &mc, err);
    if (status == BITNET_OK) s->n_models++;
    else adapter_list_close(&one->adapters);
    return status;
}

bitnet_status models_add(struct server *s, const struct server_model *spec, bitnet_error *err)
{
    for (size_t i = 0; i < s->n_models; i++)
        if (served_is_called(&s->models[i], spec->name)) return BITNET_OK;
    if (s->n_models == SERVER_MAX_MODELS)
        return bn_fail(err, BITNET_E_LIMIT, "%zu models are served; more are not possible",
                       s->n_models);
    return open_model(s, spec, err);
}

/* Several engines share what one would have for itself. */
static bitnet_status open_models(struct server *s, bitnet_error *err)
{
    const struct server_config *c = s->c;
    bool several = models_several(s);
    size_t room = c->store ? SERVER_MAX_MODELS : c->n_models;
    s->models = bn_calloc(room, sizeof *s->models);
    if (several) s->gate = worker_gate_open(c->threads);
    s->turn = event_new(s->base, -1, 0, on_turn, s);
    if (!s->models || !s->turn || (several && !s->gate))
        return bn_fail_nomem(err, room * sizeof *s->models, "models");
    for (size_t i = 0; i < c->n_models; i++) BN_TRY(open_model(s, &c->models[i], err));
    if (!several) s->metrics = s->models[0].metrics; /* nothing has to be told apart */
    else BN_TRY(metrics_open(&s->metrics, &(struct metrics_config){.model = NULL}, err));
    return BITNET_OK;
}
bitnet_status models_open(struct server *s, bitnet_model *m, bitnet_engine *e, bitnet_error *err)
{
    bitnet_status status = open_models(s, err);
    if (status != BITNET_OK) {
        bitnet_engine_close(e);
        bitnet_model_close(m);
        return status;
    }
    return m ? served_start(&s->models[0], m, e, err) : BITNET_OK;
}

void models_close(struct server *s)
{
    for (size_t i = 0; i < s->n_models; i++) served_close(&s->models[i]);
    if (s->turn) event_free(s->turn);
    s->turn = NULL;
    worker_gate_close(s->gate);
    if (models_several(s)) metrics_close(s->metrics);
    free(s->models);
    s->n_models = 0;
}
