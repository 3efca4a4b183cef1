/* SPDX-License-Identifier: Apache-2.0
 *
 * truncate.c: conversations that have grown beyond the context. If the request or the server wants it so,
 * the oldest exchanges are left out: a message of the user with all that followed it, up to the user's next.
 * What stands before the first of them (the system's words) stays, and so does the last exchange.
 */
#include "server/openai/request_impl.h"

#include <stdlib.h>

static bool is_users(const struct bn_json *messages, size_t i)
{
    const char *role = bn_json_text(bn_json_get(bn_json_at(messages, i), "role"));
    return role && strcmp(role, "user") == 0;
}

/* Where the next exchange begins at or behind i; the number of messages, if none does. */
static size_t next_exchange(const struct bn_json *messages, size_t i)
{
    size_t n = bn_json_size(messages);
    while (i < n && !is_users(messages, i)) i++;
    return i;
}

/* Bytes of messages from..to, with what the template may put around each. */
static size_t bytes_of(const struct bn_json *messages, size_t from, size_t to)
{
    enum { AROUND = 16 };
    size_t n = 0;
    for (size_t i = from; i < to; i++)
        n += bn_json_bytes(bn_json_get(bn_json_at(messages, i), "content")) + AROUND;
    return n;
}

/* Leaves out exchanges of at least so many bytes, one at least. false: only the last one is left. */
static bool drop_bytes(struct openai_request *r, size_t bytes)
{
    size_t first = next_exchange(r->messages, 0), end = first, dropped = 0;
    do {
        size_t next = next_exchange(r->messages, end + 1);
        if (next >= bn_json_size(r->messages)) break;
        dropped += bytes_of(r->messages, end, next);
        end = next;
    } while (dropped < bytes);
    for (size_t i = first; i < end; i++) bn_json_remove(r->messages, first);
    r->n_dropped += end - first;
    return end > first;
}

void openai_truncate_bytes(struct openai_request *r, uint64_t most)
{
    size_t n = bn_json_size(r->messages), bytes = bytes_of(r->messages, 0, n);
    if (r->truncate && r->messages && bytes > most) drop_bytes(r, bytes - (size_t)most);
}

/* Tokens that are kept free for the reply: as many as it may have, but not more than half of all. */
static size_t reserve(const struct openai_request *r)
{
    enum { USUAL_SHARE = 8 };
    size_t all = r->ctx_tokens, asked = r->request.max_new_tokens;
    return asked ? bn_min_size(asked, all / 2) : all / USUAL_SHARE;
}

bool openai_truncate(struct openai_request *r)
{
    struct openai_prompt *p = &r->prompts[0];
    size_t most = r->ctx_tokens - reserve(r);
    if (!r->truncate || !r->ctx_tokens || p->n_tokens <= most) return false;
    /* as many bytes as the surplus of tokens has, at the rate of all of them */
    size_t bytes = bytes_of(r->messages, 0, bn_json_size(r->messages));
    double surplus = (double)(p->n_tokens - most) / (double)p->n_tokens * (double)bytes;
    if (!drop_bytes(r, (size_t)surplus)) return false;
    free(p->tokens);
    p->tokens = NULL;
    p->n_tokens = 0;
    return true;
}
