/* SPDX-License-Identifier: Apache-2.0
 *
 * toml.h: TOML 1.0, for the settings file. The whole text becomes a tree in an arena of the caller; every
 * node knows its line, for messages.
 */
#ifndef BN_APP_CONFIG_TOML_H
#define BN_APP_CONFIG_TOML_H

#include "base/os/mem.h"

enum {
    TOML_MAX_BYTES = 1 << 20, /* of a text                        */
    TOML_MAX_DEPTH = 64,      /* of values and names in each other */
    TOML_MAX_NODES = 1 << 14  /* in one text                      */
};

enum toml_kind {
    TOML_TABLE,
    TOML_ARRAY,
    TOML_STRING,
    TOML_INTEGER,
    TOML_FLOAT,
    TOML_BOOL,
    /* dates and times stay texts, as they were written */
    TOML_OFFSET_DATETIME,
    TOML_LOCAL_DATETIME,
    TOML_LOCAL_DATE,
    TOML_LOCAL_TIME
};

struct toml {
    enum toml_kind kind;
    unsigned line;
    const char *key; /* in a table; may hold a 0, as a string may */
    size_t key_bytes;
    struct toml *first, *last; /* of a table or array, in the order of the text */
    struct toml *next;         /* in the same table or array */
    const char *text;          /* of strings and dates; followed by a 0 */
    size_t bytes;
    int64_t integer;
    double real;
    bool truth;
    /* how a table came to be, which decides what may be added to it */
    bool header;   /* by a [header] of its own     */
    bool dotted;   /* by a key with dots           */
    bool complete; /* as a value: { } or [ ]       */
};

/* name: of the text, for messages. *out is the root table, in the arena. BITNET_E_FORMAT with
 * "NAME:LINE: …", BITNET_E_LIMIT, BITNET_E_NOMEM. */
bitnet_status toml_read(struct toml **out, struct bn_arena *arena, const char *text, size_t n,
                        const char *name, bitnet_error *err);
const struct toml *toml_get(const struct toml *table, const char *key);
/* At the end of a table or array: for trees that are made of something else. */
void toml_append(struct toml *to, struct toml *node);

#endif
