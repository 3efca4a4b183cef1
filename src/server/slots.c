/* SPDX-License-Identifier: Apache-2.0 */
#include "server/slots.h"

#include "base/os/mem.h"
#include <stdlib.h>
#include <string.h>

enum { SIMILAR_SHARE = 10 }; /* of a prompt a tenth must be alike, or any slot will do */

bitnet_status slots_open(struct slots *l, uint32_t n, bitnet_error *err)
{
    *l = (struct slots){.items = bn_calloc(n, sizeof *l->items), .n = n};
    return l->items ? BITNET_OK : bn_fail_nomem(err, n * sizeof *l->items, "slots");
}

void slots_close(struct slots *l)
{
    for (uint32_t i = 0; l->items && i < l->n; i++) free(l->items[i].tokens);
    free(l->items);
    *l = (struct slots){0};
}

static size_t common(const struct slot *s, const int32_t *tokens, size_t n)
{
    size_t k = 0, most = bn_min_size(s->n, n);
    while (k < most && s->tokens[k] == tokens[k]) k++;
    return k;
}

static struct slot *choose(const struct slots *l, const int32_t *tokens, size_t n)
{
    struct slot *oldest = NULL, *similar = NULL;
    size_t best = n / SIMILAR_SHARE;
    for (uint32_t i = 0; i < l->n; i++) {
        struct slot *s = &l->items[i];
        if (s->busy) continue;
        size_t k = common(s, tokens, n);
        if (k > best) similar = s, best = k;
        if (!oldest || s->ticket < oldest->ticket) oldest = s;
    }
    if (similar || oldest) return similar ? similar : oldest;
    for (uint32_t i = 0; i < l->n; i++) /* more wait than can run */
        if (!oldest || l->items[i].ticket < oldest->ticket) oldest = &l->items[i];
    return oldest;
}

static void forget(struct slot *s)
{
    free(s->tokens);
    s->tokens = NULL;
    s->n = s->room = 0;
}

bool slots_put(struct slots *l, struct slot *s, const int32_t *tokens, size_t n,
               const struct adapter_choice *adapters)
{
    s->ticket = l->n_given++ * l->n + (uint64_t)(s - l->items) + 1;
    s->busy = false;
    s->n = 0;
    s->n_adapters = adapters->n;
    for (size_t i = 0; i < adapters->n; i++)
        s->adapters[i] = (struct openai_lora){adapters->items[i]->id, adapters->uses[i].scale};
    if (n == 0) return true;
    if (!bn_grow((void **)&s->tokens, &s->room, n, sizeof *tokens)) {
        forget(s);
        return false;
    }
    memcpy(s->tokens, tokens, n * sizeof *tokens);
    s->n = n;
    return true;
}

uint64_t slots_begin(struct slots *l, uint32_t wanted, const int32_t *tokens, size_t n,
                     const struct adapter_choice *adapters)
{
    if (!l->items) return 0;
    struct slot *s = wanted && wanted <= l->n ? &l->items[wanted - 1] : choose(l, tokens, n);
    if (!slots_put(l, s, tokens, n, adapters)) return 0;
    s->busy = true;
    return s->ticket;
}

static struct slot *find(const struct slots *l, uint64_t ticket)
{
    struct slot *s = ticket ? &l->items[(ticket - 1) % l->n] : NULL;
    return s && s->ticket == ticket ? s : NULL;
}

void slots_add(struct slots *l, uint64_t ticket, int32_t token)
{
    struct slot *s = find(l, ticket);
    if (!s || !s->n) return;
    if (bn_grow((void **)&s->tokens, &s->room, s->n + 1, sizeof token)) s->tokens[s->n++] = token;
    else forget(s); /* the beginning alone would be a text that nobody has asked for */
}

void slots_end(struct slots *l, uint64_t ticket)
{
    struct slot *s = find(l, ticket);
    if (s) s->busy = false;
}
