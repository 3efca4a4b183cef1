/* SPDX-License-Identifier: Apache-2.0
 *
 * constraint_opts.h: constraints on generated text, as options: the table for args.h, and from what was
 * typed to bitnet_request.
 */
#ifndef BN_CLI_OPTIONS_CONSTRAINT_OPTS_H
#define BN_CLI_OPTIONS_CONSTRAINT_OPTS_H

#include "cli/core/args.h"

struct constraint_opts {
    const char *grammar, *json_schema; /* the text itself, or a file that holds it */
    bool json_object;
};
extern const struct opt constraint_opts_table[];

static inline bool constraint_given(const struct constraint_opts *o)
{
    return o->grammar || o->json_schema || o->json_object;
}

/* *r borrows from o and from *owned, which the caller frees after use. */
bitnet_status constraint_from_opts(bitnet_request *r, char **owned, const struct constraint_opts *o,
                                   bitnet_error *err);

#endif
