/* SPDX-License-Identifier: Apache-2.0
 *
 * registry.h: the commands of this program as a list, made from commands.def.
 */
#ifndef BN_CLI_CORE_REGISTRY_H
#define BN_CLI_CORE_REGISTRY_H

#include "cli/core/command.h"

struct entry {
    const char *name, *summary;
    const struct command *command; /* NULL: refused */
    bool planned;                  /* not in this version; else not in this build */
};

/* The i-th; NULL behind the last one. */
const struct entry *registry_at(size_t i);
const struct entry *registry_find(const char *name); /* NULL: there is none */

/* What `bitnet help` says below the list of commands, for everybody who repeats it. */
extern const char registry_environment[], registry_exit_codes[];

#endif
