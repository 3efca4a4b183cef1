/* SPDX-License-Identifier: Apache-2.0
 *
 * man.h: man pages (`bitnet help --man`).
 */
#ifndef BN_CLI_CORE_MAN_H
#define BN_CLI_CORE_MAN_H

#include "cli/core/registry.h"

/* The page of a command of this build, or of the program (NULL), as roff. */
bool man_print(FILE *to, const struct entry *e);

#endif
