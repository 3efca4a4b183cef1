/* SPDX-License-Identifier: Apache-2.0
 * libFuzzer target: any bytes as HTTP messages, requests or replies, one after the other. The first
 * byte chooses which, the second how the rest is cut. Read whole, read in pieces: the same messages
 * must come out, and never more memory than the limits allow. */
#include "server/http/http.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct http_limits limits = {.head_bytes = 1024, .body_bytes = 4096};

static void demand(bool holds)
{
    if (!holds) abort();
}

/* Everything that came out, as text. */
static void note_message(struct bn_buf *log, const struct http_reader *r)
{
    bn_buf_printf(log, "%d %d %llu %d%d%d '%s' '%s' '%s' %s\n", r->state, r->status,
                  (unsigned long long)r->body_total, r->keep_alive, r->expects_continue,
                  r->http_1_0, r->method, r->path, r->query, r->why ? r->why : "");
    for (size_t i = 0; i < r->n_headers; i++)
        bn_buf_printf(log, "%s=%s\n", r->headers[i].name, r->headers[i].value);
    bn_buf_append(log, r->body.data, r->body.len);
}

static void check(const struct http_reader *r)
{
    demand(r->n_headers <= HTTP_MAX_HEADERS);
    demand(r->head.len <= limits.head_bytes && r->head.room <= 2 * limits.head_bytes);
    demand(r->body.len == r->body_total && r->body_total <= limits.body_bytes);
    demand(r->body.room <= 2 * limits.body_bytes);
    demand((r->why != NULL) == (r->state == HTTP_FAILED));
    if (r->state == HTTP_FAILED) demand(r->is_reply ? r->status == 0 : r->status >= 400);
    if (r->state == HTTP_DONE && r->is_reply) demand(r->status >= 100 && r->status <= 999);
    if (r->state == HTTP_DONE && !r->is_reply) demand(r->method[0] && r->path[0]);
}

/* step: how the sizes of pieces go on; 0: all at once. */
static void read_all(struct bn_buf *log, const uint8_t *data, size_t n, bool is_reply, uint8_t step)
{
    struct http_reader r = {0};
    http_reader_init(&r, is_reply, &limits);
    for (size_t at = 0, used, piece = step; at < n; at += used) {
        size_t k = step ? bn_min_size(piece % 61 + 1, n - at) : n - at;
        piece += step;
        enum http_state s = http_reader_feed(&r, (const char *)data + at, k, &used);
        demand(used <= k);
        check(&r);
        if (s == HTTP_FAILED) break;
        demand(used > 0);
        if (s != HTTP_DONE) continue;
        note_message(log, &r);
        http_reader_next(&r);
    }
    http_reader_close(&r);
    check(&r);
    note_message(log, &r);
    http_reader_free(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bn_buf whole, cut;
    if (size < 2) return 0;
    bn_buf_init(&whole, 64 << 20);
    bn_buf_init(&cut, 64 << 20);
    read_all(&whole, data + 2, size - 2, data[0] & 1, 0);
    read_all(&cut, data + 2, size - 2, data[0] & 1, data[1] | 1);
    demand(!whole.failed && whole.len == cut.len && memcmp(whole.data, cut.data, cut.len) == 0);
    bn_buf_free(&whole);
    bn_buf_free(&cut);
    return 0;
}
