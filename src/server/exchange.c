/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange.c: how an exchange ends: replies, refusals in the words of the route's dialect, the line in the
 * log and the count; its time; its body; and whether there is room for what it asks.
 */
#include "base/clock.h"
#include "base/os/mem.h"
#include "base/utf8.h"
#include "server/dialect.h"
#include "server/llamacpp/llamacpp.h"
#include "server/server_impl.h"
#include <event2/event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

enum {
    LATE_MS = 1000, /* the engine ends choices itself; the timer is for what it does not reach */
    BODY_MAX_VALUES = 1 << 20 /* of JSON; each takes time and memory, however few bytes it has */
};

void *exchange_copy(struct exchange *x, size_t bytes, struct bn_json *body)
{
    struct exchange *copy = bn_calloc(1, bytes);
    if (copy) {
        *copy = *x;
        return copy;
    }
    bn_json_free(body);
    exchange_refuse(x, 500, NULL, "out of memory: %zu bytes for a request", bytes);
    return NULL;
}

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
    models_hold(x);
    uint64_t ms = exchange_time_left_ms(x);
    if (ms == 0) return;
    ms += LATE_MS;
    struct timeval time = {.tv_sec = (time_t)(ms / 1000),
                           .tv_usec = (suseconds_t)(ms % 1000 * 1000)};
    x->timer = evtimer_new(x->s->base, on_late, x);
    if (x->timer) evtimer_add(x->timer, &time);
}

static void tell_late(struct exchange *x)
{
    exchange_refuse(x, 504, "timeout", "%s within %u s", x->not_yet, x->s->c->timeout_s);
}

void exchange_wait(struct exchange *x, const char *not_yet)
{
    x->not_yet = not_yet;
    x->disconnected = exchange_disconnected;
    x->late = tell_late;
    exchange_later(x);
}

void exchange_elsewhere(struct exchange *x, struct errand *e, const char *not_yet)
{
    exchange_wait(x, not_yet);
    errands_give(x->s->errands, e, true);
}

void exchange_resume(struct exchange *x)
{
    exchange_close(x);
    net_set_user(x->request, NULL);
    x->disconnected = x->room = x->late = NULL;
}

void exchange_close(struct exchange *x)
{
    if (x->timer) event_free(x->timer);
    x->timer = NULL;
    models_release(x);
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
    x->line.status = status == STATUS_DISCONNECTED ? 0 : status;
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

void exchange_fault(struct exchange *x, const struct openai_fault *f)
{
    const struct dialect *d = x->route ? x->route->dialect : NULL;
    struct bn_json *(*error)(const struct openai_fault *f) = d ? d->error : openai_error_json;
    if (x->s->c->as_llamacpp && error == openai_error_json) error = llamacpp_error_json;
    reply_json(x, f->status, error(f), f->sentence);
}

void exchange_refuse(struct exchange *x, int status, const char *code, const char *fmt, ...)
{
    char why[sizeof((bitnet_error *)0)->text];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    exchange_fault(x, &(struct openai_fault){.status = status, .sentence = why, .code = code});
}

void exchange_fail(struct exchange *x, const bitnet_error *err, const char *param, const char *code)
{
    struct openai_fault f = openai_fault_of(err);
    f.param = param;
    f.code = code;
    exchange_fault(x, &f);
}

void exchange_end_stream(struct exchange *x, const char *error)
{
    struct net_request *request = x->request;
    count(x, 200, error);
    x->request = NULL;
    net_stream_end(request);
}

void exchange_drop_stream(struct exchange *x, const char *error)
{
    struct net_request *request = x->request;
    count(x, 200, error);
    x->request = NULL;
    net_stream_drop(request);
}

void exchange_disconnected(struct exchange *x)
{
    count(x, STATUS_DISCONNECTED, "the client disconnected");
    x->request = NULL;
}

void exchange_tell_ignored(struct exchange *x, const struct openai_ignored *g)
{
    char text[OPENAI_IGNORED_BYTES + 64];
    if (g->n == 0) return;
    snprintf(text, sizeof text, "ignored, as nothing here knows them: %s", g->names);
    net_add_header(x->request, "Warnings", text);
    metrics_ignored(x->s->metrics, g->n);
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

bitnet_status exchange_parse(struct bn_json **body, const char *bytes, size_t n, bitnet_error *err)
{
    size_t bad_at;
    *body = NULL;
    if (!bn_utf8_valid(bytes, n, &bad_at))
        return bn_fail(err, BITNET_E_ARG, "the body is not UTF-8: byte %zu of %zu", bad_at, n);
    if (count_values(bytes, n) > BODY_MAX_VALUES)
        return bn_fail(err, BITNET_E_ARG, "the body holds more than %d values", BODY_MAX_VALUES);
    return bn_json_parse(body, bytes, n, BN_JSON_UNIQUE, "body", err);
}

bool exchange_check_coding(struct exchange *x)
{
    const char *coding = http_header(net_http(x->request), "content-encoding");
    if (!coding || strcasecmp(coding, "identity") == 0) return true;
    exchange_refuse(x, 415, NULL, "the body is coded as '%.40s'; send it as it is", coding);
    return false;
}

bool exchange_read(struct exchange *x)
{
    const struct bn_buf *b = &net_http(x->request)->body;
    bitnet_error err = {0};
    if (!exchange_check_coding(x)) return false;
    if (exchange_parse(&x->body, b->data, b->len, &err) == BITNET_OK) {
        net_release_body(x->request);
        return true;
    }
    exchange_fail(x, &err, NULL, NULL);
    return false;
}

/* What was read becomes the caller's. */
static bool take_body(struct exchange *x, struct bn_json **body, enum bn_json_type type,
                      const char *what)
{
    *body = x->body;
    x->body = NULL;
    if (*body && bn_json_typeof(*body) == type) return true;
    if (*body) exchange_refuse(x, 400, NULL, "the body is not a JSON %s", what);
    else exchange_refuse(x, 400, NULL, "the request has no body; a JSON %s is expected", what);
    bn_json_free(*body);
    *body = NULL;
    return false;
}

bool exchange_body(struct exchange *x, struct bn_json **body)
{
    return take_body(x, body, BN_JSON_OBJECT, "object");
}

bool exchange_body_list(struct exchange *x, struct bn_json **body)
{
    return take_body(x, body, BN_JSON_ARRAY, "array");
}

/* ------------------------------------------------------------------ places */

void exchange_refuse_for_now(struct exchange *x, int status, const char *code, uint64_t wait_s,
                             const char *why)
{
    char header[24];
    wait_s = wait_s < 1 ? 1 : wait_s > RETRY_MAX_S ? RETRY_MAX_S : wait_s;
    snprintf(header, sizeof header, "%u", (unsigned)wait_s);
    net_add_header(x->request, "Retry-After", header);
    metrics_rejected(x->s->metrics, code);
    exchange_fault(x, &(struct openai_fault){.status = status, .sentence = why, .code = code});
}

bool exchange_check_open(struct exchange *x)
{
    if (x->admitted || !server_draining(x->s)) return true;
    exchange_refuse_for_now(x, 503, "draining", x->s->c->drain_s,
                            "the server is shutting down and takes no more requests");
    return false;
}
