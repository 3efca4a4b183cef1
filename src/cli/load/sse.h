/* SPDX-License-Identifier: Apache-2.0
 *
 * sse.h: server-sent events, as their bytes arrive in pieces of any size. Lines end with LF,
 * CR or CR LF; an event is the data of its lines up to an empty one. Names, ids and comments are
 * passed over.
 */
#ifndef BN_CLI_LOAD_SSE_H
#define BN_CLI_LOAD_SSE_H

#include "base/buf.h"

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

#endif
