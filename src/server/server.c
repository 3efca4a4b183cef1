/* SPDX-License-Identifier: Apache-2.0
 *
 * server.c: the life of the server: its parts are opened, the loop runs, signals end or renew it.
 */
#include "base/clock.h"
#include "base/os/mem.h"
#include "app/process.h"
#include "server/server_impl.h"
#include <event2/event.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

enum { DRAIN_LOOK_MS = 20 };
static const size_t stream_max_bytes = (size_t)256 << 20; /* that one flush may write */

bool server_draining(const struct server *s) { return s->drain_end_ns != 0; }

void server_now(struct server *s, struct worker_state *state, struct net_stats *net,
                struct metrics_now *now)
{
    *state = (struct worker_state){0};
    worker_get_state(s->worker, state, s->layers);
    net_stats(s->net, net);
    *now = (struct metrics_now){.worker = state,
                                .net = net,
                                .n_waiting = s->n_taken - s->n_running,
                                .n_running = s->n_running,
                                .max_queue = s->c->max_queue,
                                .draining = server_draining(s)};
}

static void note(const struct server *s, const char *fmt, ...) BN_PRINTF(2, 3);
static void note(const struct server *s, const char *fmt, ...)
{
    char text[640];
    va_list ap;
    if (!s->c->note) return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    s->c->note(s->c->user, text);
}

/* ------------------------------------------------------------------ connections */

static void on_request(void *user, struct net_request *r) { routes_request(user, r); }

/* Who answers at once has answered by now; the others are known to their request. */
static void on_disconnect(void *user, struct net_request *r)
{
    (void)user;
    struct exchange *x = net_user(r);
    if (x) x->disconnected(x);
}

static void on_room(void *user, struct net_request *r)
{
    (void)user;
    struct exchange *x = net_user(r);
    if (x && x->room) x->room(x);
}

static void on_broken(void *user, const char *peer, int code, const char *why)
{
    struct server *s = user;
    struct access_line line = {
        .request_id = "", .peer = peer, .method = "", .path = "", .status = code, .error = why};
    access_log_write(&s->log, &line);
    metrics_request(s->metrics, "other", code ? code : STATUS_DISCONNECTED, 0);
}

/* ------------------------------------------------------------------ the worker */

static void on_step(void *user, const struct worker_step *step)
{
    struct server *s = user;
    metrics_step(s->metrics, step);
}

static void on_delivery(int fd, short what, void *user)
{
    (void)fd, (void)what;
    struct server *s = user;
    worker_deliver(s->worker);
    completions_attend(s);
}

/* ------------------------------------------------------------------ signals */

static void on_drain_watch(int fd, short what, void *user)
{
    (void)fd, (void)what;
    struct server *s = user;
    bool late = bn_now_ns() >= s->drain_end_ns;
    if (late && s->n_taken)
        note(s, "%u choices were not complete after %u s and are given up", s->n_taken,
             s->c->drain_s);
    if (late || (s->n_taken == 0 && net_quiet(s->net))) event_base_loopbreak(s->base);
}

/* The first signal lets what was taken come to its end, the second does not wait. */
static void on_terminate(int fd, short what, void *user)
{
    (void)fd, (void)what;
    struct server *s = user;
    if (server_draining(s)) {
        event_base_loopbreak(s->base);
        return;
    }
    struct timeval look = {.tv_usec = DRAIN_LOOK_MS * 1000};
    s->drain_end_ns = bn_now_ns() + (uint64_t)s->c->drain_s * 1000000000u;
    note(s, "shutting down: %u choices are being finished", s->n_taken);
    net_drain(s->net);
    event_add(s->drain_watch, &look);
}

static bitnet_status load_keys(struct keys *k, const struct server_config *c, bitnet_error *err)
{
    for (size_t i = 0; i < c->n_keys; i++) BN_TRY(keys_add(k, c->keys[i], err));
    return c->keys_file ? keys_load(k, c->keys_file, err) : BITNET_OK;
}

static void reload_keys(struct server *s)
{
    struct keys fresh = {0};
    bitnet_error err = {0};
    if (load_keys(&fresh, s->c, &err) != BITNET_OK) {
        note(s, "the keys stay as they were: %s", err.text);
        keys_free(&fresh);
        return;
    }
    keys_free(&s->keys);
    s->keys = fresh;
    note(s, "%zu keys were loaded", fresh.n);
}

static void on_reload(int fd, short what, void *user)
{
    (void)fd, (void)what;
    struct server *s = user;
    bitnet_error err = {0};
    if (s->c->keys_file) reload_keys(s);
    if (s->c->net.tls_cert && net_reload_tls(s->net, &err) != BITNET_OK)
        note(s, "the certificate stays as it was: %s", err.text);
    if (access_log_reopen(&s->log, &err) != BITNET_OK)
        note(s, "the access log could not be opened again: %s", err.text);
}

/* ------------------------------------------------------------------ life */

static bitnet_status open_parts(struct server *s, bitnet_engine *e, bitnet_error *err)
{
    const struct server_config *c = s->c;
    const struct metrics_config mc = {.model = s->m,
                                      .memory_bytes_s = c->memory_bytes_s,
                                      .vllm = c->metrics_vllm,
                                      .llamacpp = c->metrics_llamacpp};
    const struct worker_config wc = {.model = s->m,
                                     .engine = e,
                                     .scrub_mib_s = c->scrub_mib_s,
                                     .warm_up = c->warm_up,
                                     .user = s,
                                     .stepped = on_step};
    const struct net_handler h = {.user = s,
                                  .request = on_request,
                                  .disconnected = on_disconnect,
                                  .room = on_room,
                                  .broken = on_broken};
    s->layers = bn_calloc(s->model.shape.n_layer, sizeof *s->layers);
    s->base = net_loop_new();
    if (!s->layers || !s->base) return bn_fail_nomem(err, sizeof *s, "the server");
    if (c->config_json)
        BN_TRY(bn_json_parse(&s->config, c->config_json, strlen(c->config_json), 0, "configuration",
                             err));
    BN_TRY(load_keys(&s->keys, c, err));
    BN_TRY(access_log_open(&s->log, c->access_log, err));
    BN_TRY(metrics_open(&s->metrics, &mc, err));
    BN_TRY(worker_open(&s->worker, &wc, err));
    return net_open(&s->net, s->base, &c->net, &h, err);
}

static struct event *listen_to(struct server *s, int fd, short what, event_callback_fn call,
                               bool *ok)
{
    struct event *e = event_new(s->base, fd, what, call, s);
    *ok = *ok && e && event_add(e, NULL) == 0;
    return e;
}

static bitnet_status open_events(struct server *s, bitnet_error *err)
{
    bool ok = true;
    short on_signal = EV_SIGNAL | EV_PERSIST;
    s->delivery = listen_to(s, worker_fd(s->worker), EV_READ | EV_PERSIST, on_delivery, &ok);
    s->terminate = listen_to(s, SIGTERM, on_signal, on_terminate, &ok);
    s->interrupt = listen_to(s, SIGINT, on_signal, on_terminate, &ok);
    s->reload = listen_to(s, SIGHUP, on_signal, on_reload, &ok);
    s->drain_watch = event_new(s->base, -1, EV_PERSIST, on_drain_watch, s);
    return ok && s->drain_watch ? BITNET_OK : bn_fail_nomem(err, 0, "the server's events");
}

static void free_event(struct event *e)
{
    if (e) event_free(e);
}

/* First the clients go, which cancels what they wait for, then the worker, which ends it. */
static void server_close(struct server *s)
{
    if (s->net) net_close(s->net);
    if (s->worker) worker_close(s->worker);
    completions_attend(s);
    free_event(s->delivery);
    free_event(s->terminate);
    free_event(s->interrupt);
    free_event(s->reload);
    free_event(s->drain_watch);
    if (s->metrics) metrics_close(s->metrics);
    access_log_close(&s->log);
    keys_free(&s->keys);
    bn_json_free(s->config);
    free(s->layers);
    bn_buf_free(&s->out);
    if (s->base) event_base_free(s->base);
}

static uint64_t max_prompt_bytes(const struct server *s)
{
    size_t longest = 1;
    for (uint32_t i = 0; i < s->model.shape.n_vocab; i++) {
        const char *text = bitnet_token_text(s->m, (int32_t)i);
        if (text) longest = bn_max_size(longest, strlen(text));
    }
    return (uint64_t)longest * s->engine.ctx_tokens;
}

static void tell_listening(const struct server *s)
{
    const struct net_config *n = &s->c->net;
    char url[512];
    const char *scheme = n->tls_cert ? "https" : "http";
    bool v6 = strchr(n->host, ':') != NULL;
    if (strncmp(n->host, "unix:", 5) == 0) snprintf(url, sizeof url, "%s", n->host);
    else
        snprintf(url, sizeof url, "%s://%s%s%s:%u", scheme, v6 ? "[" : "", n->host, v6 ? "]" : "",
                 net_port(s->net));
    if (s->c->listening) s->c->listening(s->c->user, url);
}

bitnet_status server_run(const struct server_config *c, const bitnet_model *m, bitnet_engine *e,
                         bitnet_error *err)
{
    struct server s = {.c = c,
                       .m = m,
                       .model = {.size = sizeof s.model},
                       .engine = {.size = sizeof s.engine},
                       .started = time(NULL)};
    bitnet_model_get_info(m, &s.model);
    bitnet_engine_get_info(e, &s.engine);
    bn_buf_init(&s.out, stream_max_bytes);
    s.max_prompt_bytes = max_prompt_bytes(&s);
    s.template_text = bitnet_chat_template_text(m, c->chat_template);
    if (getrandom(&s.id_base, sizeof s.id_base, 0) != sizeof s.id_base) s.id_base = bn_now_ns();
    process_allow_fds(); /* connections need one each */
    bitnet_status status = open_parts(&s, e, err);
    if (status == BITNET_OK) status = open_events(&s, err);
    if (status == BITNET_OK && c->stop_asked && c->stop_asked(c->user)) on_terminate(0, 0, &s);
    if (status == BITNET_OK) {
        tell_listening(&s);
        if (event_base_dispatch(s.base) < 0)
            status = bn_fail(err, BITNET_E_INTERNAL, "the event loop failed");
    }
    server_close(&s);
    return status;
}
