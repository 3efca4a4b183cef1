/* SPDX-License-Identifier: Apache-2.0
 *
 * ignored.h: members of a body that nobody here knows. Clients send many that are meant for other
 * servers. They are passed over, and named in a header of the reply, so that a misspelt option does not
 * change a result in silence; a strict server refuses them.
 */
#ifndef BN_SERVER_OPENAI_IGNORED_H
#define BN_SERVER_OPENAI_IGNORED_H

#include "json/json.h"

enum { OPENAI_IGNORED_BYTES = 256 }; /* of names that are told; more are counted */

/* Zero-initialise it, but for `strict`. */
struct openai_ignored {
    bool strict;
    uint32_t n;                       /* all of them */
    char names[OPENAI_IGNORED_BYTES]; /* "a, tools.b": visible ASCII, as a header can carry it */
};

/* where: the object it stands in, "" for the body. Strict: an error that names it. */
bitnet_status openai_ignore(struct openai_ignored *g, const char *where, const char *key,
                            bitnet_error *err);
/* The same for a tool of a type that is not offered to the model. */
bitnet_status openai_ignore_tool(struct openai_ignored *g, size_t i, const char *type,
                                 bitnet_error *err);
/* An object; those members that are not of this list (ended by NULL) are ignored. */
bitnet_status openai_known_members(struct openai_ignored *g, const struct bn_json *v,
                                   const char *const *known, const char *what, bitnet_error *err);
/* Those of another object beside them. */
void openai_add_ignored(struct openai_ignored *g, const struct openai_ignored *more);
bool openai_is_one_of(const char *s, const char *const *list); /* ended by NULL */

#endif
