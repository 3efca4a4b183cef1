/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/net/conn.h"

#include "base/buf.h"
#include "hub/net/socket.h"
#include <stdio.h>

enum { HEAD_BYTES = 64 << 10, ASK_BYTES = 16 << 10, MAX_REDIRECTS = 8 };

bitnet_status hub_net_open(struct hub_net *n, const struct hub_places *p,
                           const struct hub_cancel *cancel, bitnet_error *err)
{
    *n = (struct hub_net){.places = p, .cancel = *cancel};
    BN_TRY(hub_url_parse(&n->endpoint, p->endpoint, err));
    return hub_tls_open(&n->tls, p->ca_file, err);
}

void hub_net_close(struct hub_net *n)
{
    if (n->tls) hub_tls_close(n->tls);
    n->tls = NULL;
}

void hub_conn_init(struct hub_conn *c, const struct hub_net *n, double timeout_s)
{
    const struct http_limits limits = {HEAD_BYTES, UINT64_MAX / 2};
    c->net = n;
    c->fd = -1;
    c->ssl = NULL;
    c->by_proxy = c->no_body = c->given = false;
    c->timeout_s = timeout_s;
    c->proxy_user[0] = 0;
    c->n_in = c->at_in = 0;
    memset(&c->at, 0, sizeof c->at);
    memset(&c->reader, 0, sizeof c->reader);
    http_reader_init(&c->reader, true, &limits);
}

void hub_conn_close(struct hub_conn *c)
{
    hub_socket_close(c);
    c->n_in = c->at_in = 0;
}

void hub_conn_free(struct hub_conn *c)
{
    hub_conn_close(c);
    http_reader_free(&c->reader);
}

/* ------------------------------------------------------------------ one request */

static bitnet_status send_request(struct hub_conn *c, const struct hub_ask *q, bitnet_error *err)
{
    struct bn_buf b;
    const struct hub_net *net = c->net;
    bn_buf_init(&b, ASK_BYTES);
    bn_buf_printf(&b, "%s ", q->method ? q->method : "GET");
    if (c->by_proxy) bn_buf_printf(&b, "http://%s", c->at.authority);
    bn_buf_printf(&b, "%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: bitnet/" BITNET_VERSION "\r\n",
                  c->at.target, c->at.authority);
    bn_buf_printf(&b, "Accept: %s\r\nAccept-Encoding: identity\r\n", q->accept ? q->accept : "*/*");
    if (c->by_proxy) hub_proxy_credentials(&b, c->proxy_user);
    if (net->places->token[0] && hub_url_same_origin(&c->at, &net->endpoint))
        bn_buf_printf(&b, "Authorization: Bearer %s\r\n", net->places->token);
    if (q->ranged)
        bn_buf_printf(&b, "Range: bytes=%llu-%llu\r\n", (unsigned long long)q->from,
                      (unsigned long long)q->to);
    bn_buf_puts(&b, "\r\n");
    bitnet_status s =
        b.failed ? bn_fail(err, BITNET_E_LIMIT, "the request to %s is too long", c->at.host)
                 : hub_socket_write(c, b.data, b.len, err);
    bn_buf_free(&b);
    return s;
}

/* Feeds the reader with what has arrived, or waits for more. */
static bitnet_status feed(struct hub_conn *c, bitnet_error *err)
{
    if (c->at_in == c->n_in) {
        c->at_in = 0;
        bitnet_status s = hub_socket_read(c, c->in, sizeof c->in, &c->n_in, err);
        if (s != BITNET_OK) c->n_in = 0;
        if (s != BITNET_OK) return s;
        if (c->n_in == 0) {
            if (http_reader_close(&c->reader) == HTTP_DONE) return BITNET_OK;
            return bn_fail(err, BITNET_E_IO, "%s closed the connection early", c->at.host);
        }
    }
    size_t used = 0;
    http_reader_feed(&c->reader, c->in + c->at_in, c->n_in - c->at_in, &used);
    c->at_in += used;
    if (c->reader.state == HTTP_FAILED)
        return bn_fail(err, BITNET_E_IO, "%s does not speak HTTP as it should: %s", c->at.host,
                       c->reader.why);
    return BITNET_OK;
}

static bitnet_status exchange(struct hub_conn *c, const struct hub_ask *q, bitnet_error *err)
{
    http_reader_next(&c->reader);
    c->given = false;
    c->no_body = q->method && strcmp(q->method, "HEAD") == 0;
    BN_TRY(send_request(c, q, err));
    do {
        BN_TRY(feed(c, err));
        if (c->reader.state == HTTP_DONE && c->reader.status < 200) http_reader_next(&c->reader);
    } while (c->reader.state == HTTP_HEAD);
    return BITNET_OK;
}

/* What is left of the last reply must not be taken for the next. */
static bool can_go_on(const struct hub_conn *c, const struct hub_url *url)
{
    return c->fd >= 0 && hub_url_same_origin(&c->at, url) && c->at_in == c->n_in &&
           c->reader.keep_alive && (c->reader.state == HTTP_DONE || c->no_body);
}

static bitnet_status ask_once(struct hub_conn *c, const struct hub_url *url,
                              const struct hub_ask *q, bitnet_error *err)
{
    bool reused = can_go_on(c, url);
    if (!reused) hub_conn_close(c);
    c->at = *url;
    bitnet_status s = reused ? exchange(c, q, err) : BITNET_E_IO;
    if (reused && s != BITNET_E_IO) return s;
    /* a kept connection may be closed just when it is used again */
    hub_conn_close(c);
    s = hub_socket_open(c, err);
    if (s == BITNET_OK) s = exchange(c, q, err);
    if (s != BITNET_OK) hub_conn_close(c);
    return s;
}

static bool is_redirect(int status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

bitnet_status hub_conn_ask(struct hub_conn *c, struct hub_url *url, const struct hub_ask *q,
                           bitnet_error *err)
{
    for (int i = 0; i <= MAX_REDIRECTS; i++) {
        struct hub_url next;
        BN_TRY(ask_once(c, url, q, err));
        const char *location = http_header(&c->reader, "location");
        if (!q->follow || !is_redirect(c->reader.status) || !location) return BITNET_OK;
        BN_TRY(hub_url_join(&next, url, location, err));
        if (url->tls && !next.tls)
            return bn_fail(err, BITNET_E_UNSUPPORTED,
                           "%s redirects to http://%s, which is not encrypted; not followed",
                           url->host, next.host);
        const char *data;
        size_t n = 1;
        while (n) BN_TRY(hub_conn_read(c, &data, &n, err)); /* a few words for people */
        *url = next;
    }
    return bn_fail(err, BITNET_E_UNSUPPORTED, "more than %d redirects, the last to %s",
                   MAX_REDIRECTS, url->host);
}

bitnet_status hub_conn_read(struct hub_conn *c, const char **data, size_t *n, bitnet_error *err)
{
    *n = 0;
    if (c->no_body) return BITNET_OK;
    bitnet_status s = BITNET_OK;
    if (c->given) bn_buf_clear(&c->reader.body); /* else it came together with the head */
    c->given = true;
    while (s == BITNET_OK && c->reader.state == HTTP_BODY && c->reader.body.len == 0)
        s = feed(c, err);
    if (s != BITNET_OK) hub_conn_close(c);
    *data = c->reader.body.data;
    *n = c->reader.body.len;
    return s;
}

bitnet_status hub_conn_read_all(struct hub_conn *c, struct bn_buf *out, bitnet_error *err)
{
    const char *data;
    size_t n = 1;
    while (n) {
        BN_TRY(hub_conn_read(c, &data, &n, err));
        if (n && !bn_buf_append(out, data, n)) {
            hub_conn_close(c);
            return bn_fail(err, BITNET_E_LIMIT, "%s sends more than %zu bytes", c->at.host,
                           out->max);
        }
    }
    return BITNET_OK;
}
