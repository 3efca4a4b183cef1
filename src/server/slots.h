/* SPDX-License-Identifier: Apache-2.0
 *
 * slots.h: which text was computed last in which slot. Sequences of the engine have no fixed places, and what
 * is known of a text is in its prefix cache; but clients of llama-server save, restore and erase the cache by
 * the number of a slot. So a slot is a number by which a text is remembered: as many as there are sequences.
 * Used by the thread of the event loop alone.
 */
#ifndef BN_SERVER_SLOTS_H
#define BN_SERVER_SLOTS_H

#include "base/status.h"
#include "server/adapters.h"

struct slot {
    int32_t *tokens; /* [n], of [room] */
    size_t n, room;
    uint64_t ticket; /* of the request that it was given to last; 0: none */
    bool busy;
    struct openai_lora adapters[BITNET_MAX_ADAPTERS]; /* its text was computed with these */
    size_t n_adapters;
};

struct slots {
    struct slot *items; /* [n]; NULL: nothing is remembered */
    uint32_t n;
    uint64_t n_given;
};

bitnet_status slots_open(struct slots *l, uint32_t n, bitnet_error *err);
void slots_close(struct slots *l);

/* A request begins with this text; wanted: the slot's number + 1, 0 for any: that whose text begins alike, else
 * the one that was given out longest ago. Returns a ticket, 0 where nothing is remembered. */
uint64_t slots_begin(struct slots *l, uint32_t wanted, const int32_t *tokens, size_t n,
                     const struct adapter_choice *adapters);
/* The text goes on; if the slot is somebody else's by now, nothing happens. */
void slots_add(struct slots *l, uint64_t ticket, int32_t token);
void slots_end(struct slots *l, uint64_t ticket);
/* The slot holds this text from now on. false: out of memory, it holds none */
bool slots_put(struct slots *l, struct slot *s, const int32_t *tokens, size_t n,
               const struct adapter_choice *adapters);

#endif
