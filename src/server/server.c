/* SPDX-License-Identifier: Apache-2.0
 *
 * server.c: the life of the server: its parts are opened, the loop runs, signals end or renew it.
 */
#include "base/clock.h"
#include "base/os/mem.h"
#include "app/process.h"
#include "server/openai/request.h"
#include "server/server_impl.h"
#include <event2/event.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

enum {
    DRAIN_LOOK_MS = 20,
    RESERVED_FDS = 32 /* for files that are read or written while it serves */
};
static const size_t stream_max_bytes = (size_t)256 << 20; /* that one flush may write */

bool server_draining(const struct server *s) { return s->drain_end_ns != 0; }

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

static void on_crowded(void *user, const char *why) { note(user, "%s", why); }

/* Every connection takes a descriptor, and so do files that are read while it serves. */
static bitnet_status cap_connections(struct server *s, struct net_config *n, bitnet_error *err)
{
    uint64_t most = process_allow_fds();
    double open = process_open_fds();
    if (!most || !(open >= 0)) return BITNET_OK;
    uint64_t kept = (uint64_t)open + NET_MAX_OWN_FDS + RESERVED_FDS;
    if (most <= kept)
        return bn_fail(err, BITNET_E_LIMIT,
                       "this process may have %llu files open, and needs %llu beside connections: "
                       "raise the limit (ulimit -n)",
                       (unsigned long long)most, (unsigned long long)kept);
    if (n->max_connections <= most - kept) return BITNET_OK;
    note(s,
         "at most %llu connections at a time, not %u: this process may have %llu files open "
         "(ulimit -n)",
         (unsigned long long)(most - kept), n->max_connections, (unsigned long long)most);
    n->max_connections = (uint32_t)(most - kept);
    return BITNET_OK;
}

static void on_sample(int fd, short what, void *user)
{
    (void)fd, (void)what;
    models_sample(user);
}

/* ------------------------------------------------------------------ signals */

static void on_drain_watch(int fd, short what, void *user)
{
    (void)fd, (void)what;
    struct server *s = user;
    bool late = bn_now_ns() >= s->drain_end_ns;
    uint32_t n_taken = models_taken(s);
    if (late && n_taken)
        note(s, "%u choices were not complete after %u s and are given up", n_taken, s->c->drain_s);
    if (late || (n_taken == 0 && net_quiet(s->net))) event_base_loopbreak(s->base);
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
    note(s, "shutting down: %u choices are being finished", models_taken(s));
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
    keys_take_over(&fresh, &s->keys);
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

static bitnet_status open_parts(struct server *s, bitnet_error *err)
{
    const struct server_config *c = s->c;
    const struct net_handler h = {.user = s,
                                  .request = on_request,
                                  .disconnected = on_disconnect,
                                  .room = on_room,
                                  .broken = on_broken,
                                  .crowded = on_crowded};
    struct net_config net = c->net;
    if (c->config_json)
        BN_TRY(bn_json_parse(&s->config, c->config_json, strlen(c->config_json), 0, "configuration",
                             err));
    BN_TRY(load_keys(&s->keys, c, err));
    BN_TRY(access_log_open(&s->log, c->access_log, err));
    BN_TRY(cap_connections(s, &net, err));
    return net_open(&s->net, s->base, &net, &h, err);
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
    const struct timeval every = {.tv_sec = METRICS_SAMPLE_S};
    s->terminate = listen_to(s, SIGTERM, on_signal, on_terminate, &ok);
    s->interrupt = listen_to(s, SIGINT, on_signal, on_terminate, &ok);
    s->reload = listen_to(s, SIGHUP, on_signal, on_reload, &ok);
    s->drain_watch = event_new(s->base, -1, EV_PERSIST, on_drain_watch, s);
    s->sampling = event_new(s->base, -1, EV_PERSIST, on_sample, s);
    ok = ok && s->sampling && event_add(s->sampling, &every) == 0;
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
    s->net = NULL;
    server_end_pull(s);
    errands_close(s->errands);
    models_close(s);
    free_event(s->terminate);
    free_event(s->interrupt);
    free_event(s->reload);
    free_event(s->drain_watch);
    free_event(s->sampling);
    access_log_close(&s->log);
    keys_free(&s->keys);
    bn_json_free(s->config);
    bn_buf_free(&s->out);
    if (s->base) event_base_free(s->base);
}

static const int64_t day_s = 24 * 60 * 60;

/* "2026-03-31" at its noon, "today", "none". */
static bitnet_status read_date(struct server *s, const char *date, bitnet_error *err)
{
    struct tm t = {.tm_hour = 12};
    if (!date || strcmp(date, "none") == 0) s->date_s = -1;
    else if (strcmp(date, "today") != 0) {
        const char *end = strptime(date, "%Y-%m-%d", &t);
        int64_t at = end && *end == 0 ? (int64_t)timegm(&t) : 0;
        if (at < day_s)
            return bn_fail(err, BITNET_E_ARG,
                           "the date is '%.40s'; today, none or YYYY-MM-DD are possible", date);
        s->date_s = at;
    }
    return BITNET_OK;
}

static bitnet_status read_thinking(struct server *s, const char *how, bitnet_error *err)
{
    static const struct {
        const char *word;
        int thinking;
    } words[] = {{"template", OPENAI_THINKING_ASIS},
                 {"auto", OPENAI_THINKING_ON}, /* as llama-server has it */
                 {"on", OPENAI_THINKING_ON},
                 {"off", OPENAI_THINKING_OFF}};
    for (size_t i = 0; how && i < BN_ARRAY_LEN(words); i++) {
        if (strcmp(how, words[i].word) != 0) continue;
        s->thinking = words[i].thinking;
        return BITNET_OK;
    }
    return how ? bn_fail(err, BITNET_E_ARG,
                         "reasoning is '%.40s'; template, auto, on and off exist", how)
               : BITNET_OK;
}

/* The clock on the wall, since people ask what day it is here. */
static int64_t now_s(const struct server *s)
{
    time_t now = time(NULL);
    struct tm t;
    if (s->date_s) return s->date_s > 0 ? s->date_s : 0;
    return localtime_r(&now, &t) ? (int64_t)timegm(&t) : (int64_t)now;
}

struct openai_defaults server_defaults(const struct served_model *s)
{
    return (struct openai_defaults){.max_tokens = s->c->default_max_tokens,
                                    .model = s->m,
                                    .given = s->c->sampling_given,
                                    .sampling = s->c->sampling,
                                    .now_s = now_s(s->s),
                                    .ctx_tokens = s->engine.ctx_tokens,
                                    .truncate = s->c->context_shift,
                                    .thinking = s->s->thinking,
                                    .strict = s->c->strict,
                                    .as_llamacpp = s->c->as_llamacpp};
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
    if (s->keys.n == 0 && !routes_local(s))
        note(s, "whoever reaches this machine over the network can ask: there is no key "
                "(--api-key-file)");
}

static bitnet_status open_all(struct server *s, bitnet_model *m, bitnet_engine *e,
                              bitnet_error *err)
{
    BN_TRY(models_open(s, m, e, err));
    BN_TRY(errands_open(&s->errands, s->base, err));
    BN_TRY(open_parts(s, err));
    return open_events(s, err);
}

static bitnet_status prepare(struct server *s, bitnet_error *err)
{
    BN_TRY(read_date(s, s->c->date, err));
    BN_TRY(read_thinking(s, s->c->reasoning, err));
    s->base = net_loop_new();
    return s->base ? BITNET_OK : bn_fail_nomem(err, sizeof *s, "the server");
}

bitnet_status server_run(const struct server_config *c, bitnet_model *m, bitnet_engine *e,
                         bitnet_error *err)
{
    struct server s = {.c = c};
    bn_buf_init(&s.out, stream_max_bytes);
    if (getrandom(&s.id_base, sizeof s.id_base, 0) != sizeof s.id_base) s.id_base = bn_now_ns();
    bitnet_status status = prepare(&s, err);
    if (status != BITNET_OK) {
        bitnet_engine_close(e);
        bitnet_model_close(m);
    } else {
        status = open_all(&s, m, e, err);
    }
    if (status == BITNET_OK && c->stop_asked && c->stop_asked(c->user)) on_terminate(0, 0, &s);
    if (status == BITNET_OK) {
        models_sample(&s);
        tell_listening(&s);
        if (event_base_dispatch(s.base) < 0)
            status = bn_fail(err, BITNET_E_INTERNAL, "the event loop failed");
    }
    server_close(&s);
    return status;
}
