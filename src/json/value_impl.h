/* SPDX-License-Identifier: Apache-2.0
 * What values look like inside. */
#ifndef BN_JSON_VALUE_IMPL_H
#define BN_JSON_VALUE_IMPL_H

#include "json/json.h"
#include <stdatomic.h>

struct bn_json {
    _Atomic uint32_t refs;
    uint8_t type;
    bool broken; /* something could not be put in */
};

struct bn_json_int_value {
    struct bn_json head;
    int64_t v;
};

struct bn_json_real_value {
    struct bn_json head;
    double v;
};

struct bn_json_string_value {
    struct bn_json head;
    size_t n;
    char s[]; /* and a 0 */
};

struct bn_json_array_value {
    struct bn_json head;
    struct bn_json **items;
    size_t n, room;
};

struct bn_json_member {
    struct bn_json *value;
    char *key;
    uint32_t hash;
};

/* Small objects are searched from the front. Larger ones have an index: the hash's place, and those
 * behind it, hold 1 + the number of a member; 0 ends a search. */
struct bn_json_object_value {
    struct bn_json head;
    struct bn_json_member *members;
    size_t n, room;
    uint32_t *index;
    size_t places; /* of the index, a power of two; 0: there is none */
};

/* A string whose n bytes the caller fills in. */
struct bn_json_string_value *bn_json_string_room(size_t n);
/* bn_json_set with a key of n bytes. */
bool bn_json_set_key(struct bn_json *object, const char *key, size_t n, struct bn_json *v);

#endif
