/* SPDX-License-Identifier: Apache-2.0
 * Replies, whole or in pieces, written into the connection's buffer; libevent sends them. */
#include "json/json.h"
#include "server/http/net_impl.h"

#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

const struct http_reader *net_http(const struct net_request *c) { return &c->reader; }
const char *net_peer(const struct net_request *c) { return c->peer; }
uint64_t net_began_ns(const struct net_request *c) { return c->began_ns; }
void net_set_user(struct net_request *c, void *user) { c->user = user; }
void *net_user(const struct net_request *c) { return c->user; }

static void put(struct net_request *c, const void *p, size_t n)
{
    if (n && bufferevent_write(c->bev, p, n) != 0) net_conn_lost(c);
}

static void put_text(struct net_request *c, const char *fmt, ...) BN_PRINTF(2, 3);
static void put_text(struct net_request *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (evbuffer_add_vprintf(bufferevent_get_output(c->bev), fmt, ap) < 0) net_conn_lost(c);
    va_end(ap);
}

void net_add_header(struct net_request *c, const char *name, const char *value)
{
    if (strpbrk(value, "\r\n")) return;
    if (!bn_buf_printf(&c->headers, "%s: %s\r\n", name, value)) net_conn_lost(c);
}

/* Up to the headers about the body, which follow. */
static void begin_reply(struct net_request *c, int status, const char *content_type)
{
    char date[40];
    struct tm tm;
    time_t now = time(NULL);
    gmtime_r(&now, &tm);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    c->last = c->last || !c->reader.keep_alive || c->net->draining;
    c->body = status != 204 && status != 304 && strcmp(c->reader.method, "HEAD") != 0;
    put_text(c, "HTTP/1.1 %d %s\r\nDate: %s\r\nConnection: %s\r\n", status, http_reason(status),
             date, c->last ? "close" : "keep-alive");
    if (content_type) put_text(c, "Content-Type: %s\r\n", content_type);
    put(c, c->headers.data, c->headers.len);
}

void net_reply(struct net_request *c, int status, const char *content_type, const void *body,
               size_t n)
{
    begin_reply(c, status, content_type);
    if (status != 204 && status != 304) put_text(c, "Content-Length: %zu\r\n", n);
    put(c, "\r\n", 2);
    if (c->body) put(c, body, n);
    net_conn_finish(c);
}

void net_reply_error(struct net_request *c, int status, const char *why)
{
    struct bn_json *j =
        bn_json_pack("{s:{s:s, s:s, s:n, s:n}}", "error", "message", why, "type",
                     status < 500 ? "invalid_request_error" : "server_error", "param", "code");
    char *text = j ? bn_json_dump(j, BN_JSON_COMPACT) : NULL;
    c->last = true;
    net_reply(c, status, "application/json", text ? text : "", text ? strlen(text) : 0);
    free(text);
    bn_json_free(j);
}

void net_stream_begin(struct net_request *c, int status, const char *content_type)
{
    c->chunked = !c->reader.http_1_0;
    c->last = c->last || !c->chunked;
    begin_reply(c, status, content_type);
    put_text(c, "%s\r\n", c->chunked ? "Transfer-Encoding: chunked\r\n" : "");
}

void net_stream_write(struct net_request *c, const void *p, size_t n)
{
    if (n == 0 || !c->body) return; /* a chunk of 0 bytes would be the end */
    if (c->chunked) put_text(c, "%zx\r\n", n);
    put(c, p, n);
    if (c->chunked) put(c, "\r\n", 2);
    struct evbuffer *out = bufferevent_get_output(c->bev);
    if (evbuffer_get_length(out) >= c->net->config.stream_high_bytes) c->no_room = true;
}

bool net_stream_room(const struct net_request *c) { return !c->no_room; }

void net_stream_end(struct net_request *c)
{
    if (c->chunked && c->body) put(c, "0\r\n\r\n", 5);
    net_conn_finish(c);
}
