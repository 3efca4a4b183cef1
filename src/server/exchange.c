/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange.c: how an exchange ends: replies, refusals in the words of OpenAI's interface, the line in the
 * log and the count; its time; its body; and whether there is room for what it asks.
 */
#include "base/clock.h"
#include "base/utf8.h"
#include "server/openai/reply.h"
#include "server/server_impl.h"
#include <event2/event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    LATE_MS = 1000, /* the engine ends choices itself; the timer is for what it does not reach */
    BODY_MAX_VALUES = 1 << 20 /* of JSON; each takes time and memory, however few bytes it has */
};

/* ------------------------------------------------------------------ time */

uint32_t exchange_time_left_ms(const struct exchange *x)
{
    uint64_t limit_ms = (uint64_t)x->s->c->timeout_s * 1000;
    uint64_t spent_ms = (bn_now_ns() - net_began_ns(x->request)) / 1000000;
    if (limit_ms == 0) return 0;
    if (spent_ms >= limit_ms) return 1;
    return (uint32_t)bn_min_size(limit_ms - spent_ms, UINT32_MAX);
}

static void on_late(int fd, short what, void *user)
{
    (void)fd, (void)what;
    struct exchange *x = user;
    if (x->request) x->late(x);
}

void exchange_later(struct exchange *x)
{
    net_set_user(x->request, x);
    uint64_t ms = exchange_time_left_ms(x);
    if (ms == 0) return;
    ms += LATE_MS;
    struct timeval time = {.tv_sec = (time_t)(ms / 1000),
                           .tv_usec = (suseconds_t)(ms % 1000 * 1000)};
    x->timer = evtimer_new(x->s->base, on_late, x);
    if (x->timer) evtimer_add(x->timer, &time);
}

void exchange_close(struct exchange *x)
{
    if (x->timer) event_free(x->timer);
}

/* ------------------------------------------------------------------ ends */

static void count(struct exchange *x, int status, const char *error)
{
    struct server *s = x->s;
    const struct http_reader *q = net_http(x->request);
    x->line.request_id = x->request_id;
    x->line.peer = net_peer(x->request);
    x->line.method = q->method;
    x->line.path = q->path;
    x->line.status = status == STATUS_GONE ? 0 : status;
    x->line.total_ns = bn_now_ns() - net_began_ns(x->request);
    x->line.error = error;
    access_log_write(&s->log, &x->line);
    metrics_request(s->metrics, x->route ? x->route->path : "other", status, x->line.total_ns);
}

static void reply(struct exchange *x, int status, const char *type, const void *body, size_t n,
                  const char *error)
{
    struct net_request *request = x->request;
    count(x, status, error);
    x->request = NULL;
    net_reply(request, status, type, body, n);
}

void exchange_reply(struct exchange *x, int status, const char *type, const void *body, size_t n)
{
    reply(x, status, type, body, n, NULL);
}

/* The last resort needs no memory. */
static void reply_nomem(struct exchange *x)
{
    static const char body[] = "{\"error\":{\"message\":\"out of memory for the reply\",\"type\":"
                               "\"server_error\",\"param\":null,\"code\":null}}";
    reply(x, 500, "application/json", body, sizeof body - 1, "out of memory for the reply");
}

static void reply_json(struct exchange *x, int status, struct bn_json *j, const char *error)
{
    char *text = j ? bn_json_dump(j, BN_JSON_COMPACT) : NULL;
    bn_json_free(j);
    if (!text) {
        reply_nomem(x);
        return;
    }
    reply(x, status, "application/json", text, strlen(text), error);
    free(text);
}

void exchange_reply_json(struct exchange *x, int status, struct bn_json *j)
{
    reply_json(x, status, j, NULL);
}

static void refuse(struct exchange *x, int status, const char *param, const char *code,
                   const char *why)
{
    reply_json(x, status, openai_error_json(status, why, param, code), why);
}

void exchange_refuse(struct exchange *x, int status, const char *code, const char *fmt, ...)
{
    char why[sizeof((bitnet_error *)0)->text];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    refuse(x, status, NULL, code, why);
}

void exchange_fail(struct exchange *x, const bitnet_error *err, const char *param, const char *code)
{
    refuse(x, openai_error_code(err->status), param, code, err->text);
}

void exchange_end_stream(struct exchange *x, const char *error)
{
    struct net_request *request = x->request;
    count(x, 200, error);
    x->request = NULL;
    net_stream_end(request);
}

void exchange_gone(struct exchange *x)
{
    count(x, STATUS_GONE, "the client has gone");
    x->request = NULL;
}

/* ------------------------------------------------------------------ bodies */

/* How many values a JSON text has, by the marks between them; a mark in a string is none. */
static size_t count_values(const char *p, size_t n)
{
    size_t count = 1;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '"') in_string = !in_string;
        else if (in_string) i += p[i] == '\\';
        else count += p[i] == ',' || p[i] == '[' || p[i] == '{';
    }
    return count;
}

bool exchange_body(struct exchange *x, struct bn_json **body)
{
    const struct bn_buf *b = &net_http(x->request)->body;
    bitnet_error err = {0};
    size_t bad_at;
    if (b->len == 0) {
        exchange_refuse(x, 400, NULL, "the request has no body; a JSON object is expected");
        return false;
    }
    if (!bn_utf8_valid(b->data, b->len, &bad_at)) {
        exchange_refuse(x, 400, NULL, "the body is not UTF-8: byte %zu of %zu", bad_at, b->len);
        return false;
    }
    if (count_values(b->data, b->len) > BODY_MAX_VALUES) {
        exchange_refuse(x, 400, NULL, "the body holds more than %d values", BODY_MAX_VALUES);
        return false;
    }
    if (bn_json_parse(body, b->data, b->len, 0, "body", &err) != BITNET_OK) {
        exchange_fail(x, &err, NULL, NULL);
        return false;
    }
    if (bn_json_is_object(*body)) {
        net_release_body(x->request);
        return true;
    }
    bn_json_free(*body);
    exchange_refuse(x, 400, NULL, "the body is not a JSON object");
    return false;
}

/* ------------------------------------------------------------------ places */

static void refuse_for_now(struct exchange *x, int status, const char *code, uint64_t wait_s,
                           const char *why)
{
    char header[24];
    wait_s = wait_s < 1 ? 1 : wait_s > RETRY_MAX_S ? RETRY_MAX_S : wait_s;
    snprintf(header, sizeof header, "%u", (unsigned)wait_s);
    net_add_header(x->request, "Retry-After", header);
    metrics_rejected(x->s->metrics, code);
    refuse(x, status, NULL, code, why);
}

bool exchange_check_places(struct exchange *x, size_t n)
{
    struct server *s = x->s;
    uint64_t seats = s->engine.max_seqs, places = seats + s->c->max_queue;
    char why[160];
    if (server_draining(s)) {
        refuse_for_now(x, 503, "draining", s->c->drain_s,
                       "the server is shutting down and takes no more requests");
        return false;
    }
    if (n > places) {
        exchange_refuse(
            x, 400, NULL,
            "the request asks for %zu choices; this server takes at most %llu at a time", n,
            (unsigned long long)places);
        return false;
    }
    if (s->n_taken + n > places) {
        /* by then that many of those ahead have ended, if they take as long as the last ones did */
        uint64_t wait_ns = (s->n_taken + n - places) * s->choice_ns / seats;
        snprintf(why, sizeof why, "%u choices are being computed or wait; the queue is full",
                 s->n_taken);
        refuse_for_now(x, 429, "queue_full", wait_ns / 1000000000u + 1, why);
        return false;
    }
    return true;
}
