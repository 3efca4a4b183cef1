/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes pass through a machine of small steps. Those of the head are gathered until its empty line,
 * then taken apart at once (http_head.c); those of the body are copied out from between the marks
 * of its chunks. Nothing is decided before the byte that decides it, so cuts do not matter.
 */
#include "server/http/http_impl.h"

#include <stdarg.h>
#include <stdio.h>

enum step {
    /* of a block of lines that an empty one ends: the head, and the trailers */
    LINE_START,
    LINE,
    LINE_LF,
    LAST_LF,
    /* of the body */
    DATA,
    SIZE,
    EXTENSION,
    SIZE_LF,
    DATA_CR,
    DATA_LF
};

bool http_fail(struct http_reader *r, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->why_text, sizeof r->why_text, fmt, ap);
    va_end(ap);
    r->state = HTTP_FAILED;
    r->status = r->is_reply ? 0 : code;
    r->why = r->why_text;
    return false;
}

/* Everything but what outlives a message. */
static void begin_message(struct http_reader *r)
{
    *r = (struct http_reader){.is_reply = r->is_reply,
                              .limits = r->limits,
                              .head = r->head,
                              .body = r->body,
                              .method = "",
                              .path = "",
                              .query = ""};
}

void http_reader_init(struct http_reader *r, bool is_reply, const struct http_limits *limits)
{
    r->is_reply = is_reply;
    r->limits = *limits;
    bn_buf_init(&r->head, limits->head_bytes);
    bn_buf_init(&r->body, limits->body_bytes < SIZE_MAX ? (size_t)limits->body_bytes : SIZE_MAX);
    begin_message(r);
}

void http_reader_free(struct http_reader *r)
{
    bn_buf_free(&r->head);
    bn_buf_free(&r->body);
}

static void empty(struct bn_buf *b)
{
    if (b->room > HTTP_KEEP_BYTES) bn_buf_free(b);
    else bn_buf_clear(b);
}

void http_reader_next(struct http_reader *r)
{
    empty(&r->head);
    empty(&r->body);
    begin_message(r);
}

static void begin_body(struct http_reader *r)
{
    r->state = HTTP_BODY;
    r->step = r->chunked ? SIZE : DATA;
    if (!r->chunked && !r->until_close && r->length == 0) r->state = HTTP_DONE;
}

static bool byte_allowed(struct http_reader *r, unsigned char c)
{
    if ((c >= ' ' && c != 0x7f) || c == '\t') return true;
    if (c == '\n') return http_fail(r, 400, "a line ends without a carriage return");
    return http_fail(r, 400, "a line has the byte 0x%02x, which is not text", c);
}

static bool line_feed(struct http_reader *r, unsigned char c)
{
    return c == '\n' ||
           http_fail(r, 400, "a carriage return is followed by 0x%02x, not by a line feed", c);
}

/* One byte of a block of lines. *ended: it was the last. */
static bool block_byte(struct http_reader *r, unsigned char c, bool *ended)
{
    if (r->step == LINE_LF || r->step == LAST_LF) {
        if (!line_feed(r, c)) return false;
        *ended = r->step == LAST_LF;
        r->step = LINE_START;
    } else if (c == '\r') {
        r->step = r->step == LINE_START ? LAST_LF : LINE_LF;
    } else {
        if (!byte_allowed(r, c)) return false;
        r->step = LINE;
    }
    return true;
}

static bool head_byte(struct http_reader *r, unsigned char c)
{
    bool ended = false;
    if (!block_byte(r, c, &ended)) return false;
    if (!bn_buf_putc(&r->head, (char)c)) {
        if (r->head.len < r->limits.head_bytes)
            return http_fail(r, 503, "no memory for %zu bytes of a head", r->head.len + 1);
        bool first_line = !memchr(r->head.data, '\n', r->head.len);
        return http_fail(r, first_line && !r->is_reply ? 414 : 431,
                         "%s is longer than %zu bytes, the limit",
                         first_line ? "the first line" : "the head", r->limits.head_bytes);
    }
    if (!ended) return true;
    if (r->head.len == strlen("\r\n")) { /* an empty line before the message is not of it */
        bn_buf_clear(&r->head);
        return true;
    }
    if (!http_head_parse(r)) return false;
    begin_body(r);
    return true;
}

static bool too_large(struct http_reader *r, uint64_t bytes)
{
    return http_fail(r, 413, "a body of %s%llu bytes is too large, the limit is %llu",
                     r->chunked || r->until_close ? "at least " : "", (unsigned long long)bytes,
                     (unsigned long long)r->limits.body_bytes);
}

bool http_length_allowed(struct http_reader *r)
{
    uint64_t left = r->limits.body_bytes - r->body_total;
    return r->length <= left || too_large(r, r->body_total + r->length);
}

static bool size_digit(struct http_reader *r, unsigned digit)
{
    if (r->length >> 60) return http_fail(r, 413, "the size of a chunk has more than 64 bits");
    r->length = r->length * 16 + digit;
    return http_length_allowed(r);
}

/* One byte of the line before a chunk's data. */
static bool size_byte(struct http_reader *r, unsigned char c)
{
    if (++r->n_line > HTTP_MAX_CHUNK_LINE)
        return http_fail(r, 400, "the line before a chunk is longer than %d bytes, the limit",
                         HTTP_MAX_CHUNK_LINE);
    if (r->step == SIZE_LF) {
        if (!line_feed(r, c)) return false;
        r->n_line = 0;
        r->step = r->length ? DATA : LINE_START;
        return true;
    }
    if (r->step == SIZE) {
        int digit = http_hex_digit(c);
        if (digit >= 0) return size_digit(r, (unsigned)digit);
        if (r->n_line == 1 || (c != ';' && c != '\r'))
            return http_fail(
                r, 400, "the size of a chunk has the byte 0x%02x, which is no hexadecimal digit",
                c);
    }
    r->step = c == '\r' ? SIZE_LF : EXTENSION;
    return c == '\r' || byte_allowed(r, c);
}

/* What ends the data of a chunk. */
static bool data_end_byte(struct http_reader *r, unsigned char c)
{
    if (r->step == DATA_LF) {
        r->step = SIZE;
        return line_feed(r, c);
    }
    r->step = DATA_LF;
    return c == '\r' || http_fail(r, 400, "a chunk is longer than its size says");
}

static bool trailer_byte(struct http_reader *r, unsigned char c)
{
    bool ended = false;
    if (!block_byte(r, c, &ended)) return false;
    if (++r->n_line > r->limits.head_bytes)
        return http_fail(r, 431, "the trailers are longer than %zu bytes, the limit",
                         r->limits.head_bytes);
    if (ended) r->state = HTTP_DONE;
    return true;
}

static size_t take_data(struct http_reader *r, const char *p, size_t n)
{
    if (r->until_close) r->length = r->limits.body_bytes - r->body_total;
    if (r->length == 0) return too_large(r, r->body_total + 1), 0;
    if (n > r->length) n = (size_t)r->length;
    if (!bn_buf_append(&r->body, p, n))
        return http_fail(r, 503, "no memory for %zu bytes of a body", r->body.len + n), 0;
    r->body_total += n;
    r->length -= n;
    if (r->length == 0 && r->chunked) r->step = DATA_CR;
    else if (r->length == 0 && !r->until_close) r->state = HTTP_DONE;
    return n;
}

static bool take_byte(struct http_reader *r, unsigned char c)
{
    if (r->state == HTTP_HEAD) return head_byte(r, c);
    switch (r->step) {
    case SIZE:
    case EXTENSION:
    case SIZE_LF: return size_byte(r, c);
    case DATA_CR:
    case DATA_LF: return data_end_byte(r, c);
    default: return trailer_byte(r, c);
    }
}

enum http_state http_reader_feed(struct http_reader *r, const char *p, size_t n, size_t *used)
{
    size_t i = 0;
    while (i < n && (r->state == HTTP_HEAD || r->state == HTTP_BODY))
        i += r->step == DATA ? take_data(r, p + i, n - i) : take_byte(r, (unsigned char)p[i]);
    *used = i;
    return r->state;
}

enum http_state http_reader_close(struct http_reader *r)
{
    if (r->state == HTTP_BODY && r->until_close) r->state = HTTP_DONE;
    if (r->state == HTTP_HEAD)
        http_fail(r, 400, "the connection was closed after %zu bytes of a head", r->head.len);
    if (r->state == HTTP_BODY)
        http_fail(r, 400, "the connection was closed after %llu bytes of a body",
                  (unsigned long long)r->body_total);
    return r->state;
}

const char *http_header(const struct http_reader *r, const char *name)
{
    for (size_t i = 0; i < r->n_headers; i++)
        if (strcmp(r->headers[i].name, name) == 0) return r->headers[i].value;
    return NULL;
}

const char *http_reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } known[] = {{100, "Continue"},
                 {200, "OK"},
                 {204, "No Content"},
                 {304, "Not Modified"},
                 {400, "Bad Request"},
                 {401, "Unauthorized"},
                 {403, "Forbidden"},
                 {404, "Not Found"},
                 {405, "Method Not Allowed"},
                 {408, "Request Timeout"},
                 {413, "Content Too Large"},
                 {414, "URI Too Long"},
                 {415, "Unsupported Media Type"},
                 {417, "Expectation Failed"},
                 {422, "Unprocessable Content"},
                 {429, "Too Many Requests"},
                 {431, "Request Header Fields Too Large"},
                 {500, "Internal Server Error"},
                 {501, "Not Implemented"},
                 {503, "Service Unavailable"},
                 {504, "Gateway Timeout"},
                 {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < BN_ARRAY_LEN(known); i++)
        if (known[i].status == status) return known[i].reason;
    return "";
}
