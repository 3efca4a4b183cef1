/* SPDX-License-Identifier: Apache-2.0
 *
 * http.h: HTTP/1.1 messages, as their bytes arrive in pieces of any size. Requests for the server,
 * replies for the load tester. Knows no sockets: bytes in, a message or the reason against it out;
 * so it can be fuzzed and cut at every byte.
 *
 * Strict where leniency lets two readers disagree about where a message ends: a message has one
 * length (Content-Length once, or chunked and nothing else), line ends are CR LF, names of headers
 * are tokens, no folded lines. HTTP/1.0 is understood, HTTP/2 refused.
 */
#ifndef BN_SERVER_HTTP_HTTP_H
#define BN_SERVER_HTTP_HTTP_H

#include "base/buf.h"
#include "base/status.h"

enum {
    HTTP_MAX_HEADERS = 100,
    HTTP_MAX_CHUNK_LINE = 256, /* size and extensions of a chunk */
    HTTP_KEEP_BYTES = 1 << 16, /* memory that a reader keeps from one message to the next */
    HTTP_WHY_BYTES = 160
};

enum http_state {
    HTTP_HEAD,  /* more of the head must come            */
    HTTP_BODY,  /* the head is there, more of the body must come */
    HTTP_DONE,  /* the message is complete               */
    HTTP_FAILED /* see status and why                    */
};

struct http_limits {
    size_t head_bytes; /* first line and headers together; trailers, too */
    uint64_t body_bytes;
};

struct http_header {
    const char *name, *value; /* the name in lower case */
};

/* Zero-initialise it, then http_reader_init. One reader takes one message after the other. */
struct http_reader {
    enum http_state state;
    bool is_reply;
    struct http_limits limits;
    /* complete from HTTP_BODY on, valid until http_reader_next */
    const char *method, *path,
        *query;      /* of a request; the path decoded, the query as it came, "" if none */
    int status;      /* of a reply; of a failed request: the code to reply with */
    const char *why; /* of a failure: one sentence, in ASCII; else NULL */
    struct http_header headers[HTTP_MAX_HEADERS];
    size_t n_headers;
    bool http_1_0;
    bool keep_alive;       /* the other side will take another message on this connection */
    bool expects_continue; /* waits for "100 Continue" before it sends the body */
    /* What has arrived of the body, without the marks of chunks. Whoever looks at a body on its way
     * may take it out (bn_buf_clear): body_total counts on, and is what the limit is for. */
    struct bn_buf body;
    uint64_t body_total;
    /* the reader's own */
    struct bn_buf head; /* what the pointers point into */
    uint64_t length;    /* of the body, or of the chunk in progress: bytes still to come */
    size_t n_line;      /* bytes of the chunk's first line, or of the trailers, so far */
    uint8_t step;       /* where inside head, chunk or trailer */
    bool chunked, until_close;
    char why_text[HTTP_WHY_BYTES];
};

void http_reader_init(struct http_reader *r, bool is_reply, const struct http_limits *limits);
void http_reader_free(struct http_reader *r);
/* Takes bytes up to the end of the message at most; *used: how many. What follows them belongs to
 * the next message. What comes out does not depend on how the bytes are cut. */
enum http_state http_reader_feed(struct http_reader *r, const char *p, size_t n, size_t *used);
/* The connection was closed by the other side: a reply without a length is complete then;
 * everything else that is not complete has failed. */
enum http_state http_reader_close(struct http_reader *r);
/* Ready for the next message; keeps memory, up to a small amount. */
void http_reader_next(struct http_reader *r);

/* NULL if there is none. name: in lower case. */
const char *http_header(const struct http_reader *r, const char *name);

const char *http_reason(int status); /* "Not Found"; "" for a code that is not known */

#endif
