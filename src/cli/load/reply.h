/* SPDX-License-Identifier: Apache-2.0
 *
 * load/reply.h: what a stream of an OpenAI-compatible server says while it arrives: when there was
 * text, how many tokens there were, how it ended.
 */
#ifndef BN_CLI_LOAD_REPLY_H
#define BN_CLI_LOAD_REPLY_H

#include "base/buf.h"
#include "cli/load/stats.h"

/* Server-sent events, as their bytes arrive in pieces of any size. Lines end with LF, CR or CR LF; an
 * event is the data of its lines up to an empty one. Names, ids and comments are passed over. */

enum { LOAD_SSE_MAX_BYTES = 1 << 20 }; /* of a line, and of an event */

struct load_sse {
    struct bn_buf line, data;
    bool after_cr; /* a LF now belongs to the CR before */
    bool has_data;
    bool failed; /* an event was too large, or memory is out; nothing is taken after that */
};

/* data: 0-terminated, n bytes; borrowed during the call. */
typedef void load_sse_event(void *user, const char *data, size_t n);

void load_sse_init(struct load_sse *s);
void load_sse_reset(struct load_sse *s); /* for the next stream; keeps memory */
void load_sse_free(struct load_sse *s);
void load_sse_feed(struct load_sse *s, const char *p, size_t n, load_sse_event *event, void *user);

/* ------------------------------------------------------------------ replies */

struct load_reply {
    struct load_sse sse;
    struct load_hist *gaps; /* takes the gaps between chunks with text; NULL: nobody counts */
    uint64_t now_ns;        /* of the bytes being read */
    uint64_t first_ns, last_ns, worst_gap_ns; /* chunks with text; 0: none yet */
    uint32_t n_chunks;
    bool has_usage; /* the server said how many tokens: */
    uint32_t n_prompt, n_cached, n_output;
    bool finished;   /* a reason for the end, or [DONE] */
    char error[160]; /* what went wrong in the stream; "" */
};

void load_reply_init(struct load_reply *r);
void load_reply_start(struct load_reply *r, struct load_hist *gaps); /* of the next stream */
void load_reply_feed(struct load_reply *r, const char *p, size_t n, uint64_t now_ns);
void load_reply_free(struct load_reply *r);

/* The message of an error body, or its first bytes; out: [room]. */
void load_reply_error(char *out, size_t room, const char *body, size_t n);

#endif
