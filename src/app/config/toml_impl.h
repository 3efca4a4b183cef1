/* SPDX-License-Identifier: Apache-2.0
 *
 * toml_impl.h: what the two halves of the TOML reader share.
 */
#ifndef BN_APP_CONFIG_TOML_IMPL_H
#define BN_APP_CONFIG_TOML_IMPL_H

#include "app/config/toml.h"
#include "base/buf.h"
#include "base/utf8.h"

struct toml_reader {
    struct bn_arena *arena;
    const char *text;
    size_t at, end;
    unsigned line, nodes;
    const char *name;
    bitnet_error *err;
};

/* The next byte; 0 at the end, and for a 0 in the text, which is nowhere allowed. */
static inline char toml_peek(const struct toml_reader *r)
{
    return r->at < r->end ? r->text[r->at] : 0;
}

bitnet_status toml_fail(const struct toml_reader *r, const char *what);
bitnet_status toml_node(struct toml **out, struct toml_reader *r, enum toml_kind kind);

void toml_blanks(struct toml_reader *r);
bool toml_newline(struct toml_reader *r);          /* taken, if there is one */
bitnet_status toml_comment(struct toml_reader *r); /* blanks and a comment */
bitnet_status toml_space(struct toml_reader *r);   /* these, and ends of lines */

/* name = value, into a table */
bitnet_status toml_pair(struct toml_reader *r, struct toml *table, unsigned depth);
/* A value, into a node that has its place. */
bitnet_status toml_value(struct toml *t, struct toml_reader *r, unsigned depth);
/* The text of a string that begins here; long_too: """ and ''' are taken. */
bitnet_status toml_string(const char **text, size_t *n, struct toml_reader *r, bool long_too);

#endif
