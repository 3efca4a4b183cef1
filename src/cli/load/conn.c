/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/load/conn.h"

#include "base/clock.h"
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/util.h>
#include <stdio.h>
#include <stdlib.h>
#if HAVE_TLS
#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#endif

static void close_socket(struct load_conn *c)
{
    if (c->bev) bufferevent_free(c->bev);
    c->bev = NULL;
}

static void end(struct load_conn *c, enum load_end how, const char *why, uint64_t now_ns)
{
    c->busy = false;
    if (how != LOAD_END_WHOLE || !c->reader.keep_alive) close_socket(c);
    c->handler.ended(c->handler.user, &c->reader, how, why, now_ns);
}

/* Hands arrived bytes to the reader, piece by piece as they lie in the buffer. */
static void read_bytes(struct load_conn *c, uint64_t now_ns)
{
    struct evbuffer *in = bufferevent_get_input(c->bev);
    struct evbuffer_iovec piece;
    enum http_state state = c->reader.state;
    while (state != HTTP_DONE && state != HTTP_FAILED &&
           evbuffer_peek(in, -1, NULL, &piece, 1) > 0) {
        size_t used = 0;
        state = http_reader_feed(&c->reader, piece.iov_base, piece.iov_len, &used);
        evbuffer_drain(in, used);
        if (state == HTTP_BODY || state == HTTP_DONE)
            c->handler.arrived(c->handler.user, &c->reader, now_ns);
    }
    bn_buf_clear(&c->request); /* it was received: no second try */
    if (state == HTTP_FAILED) end(c, LOAD_END_BROKEN, c->reader.why, now_ns);
    else if (state == HTTP_DONE) {
        if (evbuffer_get_length(in)) c->reader.keep_alive = false; /* more than was asked for */
        end(c, LOAD_END_WHOLE, NULL, now_ns);
    }
}

static void on_read(struct bufferevent *bev, void *user)
{
    struct load_conn *c = user;
    uint64_t now = bn_now_ns();
    (void)bev;
    if (c->busy) read_bytes(c, now);
    else close_socket(c); /* nobody asked */
}

static const char *why_closed(struct load_conn *c, short what, char out[LOAD_MAX_WHY_BYTES])
{
    int e = EVUTIL_SOCKET_ERROR();
#if HAVE_TLS
    unsigned long tls = c->target->tls ? bufferevent_get_openssl_error(c->bev) : 0;
    if (tls) {
        const char *reason = ERR_reason_error_string(tls);
        snprintf(out, LOAD_MAX_WHY_BYTES, "TLS: %s", reason ? reason : "unknown error");
        return out;
    }
#endif
    if (what & BEV_EVENT_EOF || e == 0)
        snprintf(out, LOAD_MAX_WHY_BYTES, "the server closed the connection after %llu bytes",
                 (unsigned long long)c->reader.body_total);
    else snprintf(out, LOAD_MAX_WHY_BYTES, "%s", evutil_socket_error_to_string(e));
    return out;
}

static void on_event(struct bufferevent *bev, short what, void *user)
{
    struct load_conn *c = user;
    char why[LOAD_MAX_WHY_BYTES];
    uint64_t now = bn_now_ns();
    (void)bev;
    if (what & BEV_EVENT_CONNECTED) return;
    why_closed(c, what, why);
    if (!c->busy) {
        close_socket(c);
        return;
    }
    bool nothing = c->request.len > 0; /* came back so far */
    /* a kept connection may be closed just when it is used again: that answers nothing */
    if (c->reused && nothing) {
        close_socket(c);
        if (!load_conn_send(c)) end(c, LOAD_END_NO_REPLY, why, now);
    } else if (http_reader_close(&c->reader) == HTTP_DONE) {
        c->handler.arrived(c->handler.user, &c->reader, now);
        c->reader.keep_alive = false;
        end(c, LOAD_END_WHOLE, NULL, now);
    } else end(c, nothing ? LOAD_END_NO_REPLY : LOAD_END_BROKEN, why, now);
}

void load_conn_init(struct load_conn *c, const struct load_target *t, struct event_base *base,
                    const struct load_conn_handler *h)
{
    const struct http_limits limits = {LOAD_MAX_REPLY_HEAD, LOAD_MAX_REPLY_BODY};
    *c = (struct load_conn){.target = t, .base = base, .handler = *h};
    bn_buf_init(&c->request, LOAD_MAX_REQUEST_BYTES);
    http_reader_init(&c->reader, true, &limits);
}

bool load_conn_send(struct load_conn *c)
{
    http_reader_next(&c->reader);
    c->reused = c->bev != NULL;
    if (!c->bev) {
        c->bev = load_target_connect(c->target, c->base);
        if (!c->bev) return false;
        bufferevent_setcb(c->bev, on_read, NULL, on_event, c);
    }
    if (c->request.failed || bufferevent_write(c->bev, c->request.data, c->request.len) != 0 ||
        bufferevent_enable(c->bev, EV_READ | EV_WRITE) != 0) {
        close_socket(c);
        return false;
    }
    c->busy = true;
    return true;
}

void load_conn_drop(struct load_conn *c)
{
    c->busy = false;
    close_socket(c);
}

void load_conn_free(struct load_conn *c)
{
    close_socket(c);
    http_reader_free(&c->reader);
    bn_buf_free(&c->request);
}

/* ------------------------------------------------------------------ one GET */

struct get {
    struct event_base *base;
    int status;
    bool ended;
    char *body;
    char why[LOAD_MAX_WHY_BYTES];
};

static void get_arrived(void *user, struct http_reader *r, uint64_t now_ns)
{
    (void)user;
    (void)r;
    (void)now_ns;
}

static void get_ended(void *user, const struct http_reader *r, enum load_end end, const char *why,
                      uint64_t now_ns)
{
    struct get *g = user;
    (void)now_ns;
    g->ended = true;
    if (end == LOAD_END_WHOLE) {
        g->status = r->status;
        if (r->status == 200) g->body = strndup(r->body.len ? r->body.data : "", r->body.len);
    } else snprintf(g->why, sizeof g->why, "%s", why);
    event_base_loopbreak(g->base);
}

bitnet_status load_get(const struct load_target *t, const char *path, double timeout_s, int *status,
                       char **body, bitnet_error *err)
{
    struct get g = {.base = event_base_new(), .why = "no connection"};
    const struct load_conn_handler handler = {&g, get_arrived, get_ended};
    struct timeval limit = {(time_t)timeout_s, 0};
    struct load_conn conn;
    if (!g.base) return bn_fail(err, BITNET_E_NOMEM, "out of memory for a connection");
    load_conn_init(&conn, t, g.base, &handler);
    load_target_head(t, &conn.request, "GET", path, 0);
    if (load_conn_send(&conn)) {
        event_base_loopexit(g.base, &limit);
        event_base_dispatch(g.base);
        if (!g.ended) snprintf(g.why, sizeof g.why, "no reply within %.0f s", timeout_s);
    }
    load_conn_free(&conn);
    event_base_free(g.base);
    *status = g.status;
    *body = g.body;
    if (!g.status)
        return bn_fail(err, BITNET_E_IO, "no answer to GET %s from %s: %s", path, t->authority,
                       g.why);
    return BITNET_OK;
}
