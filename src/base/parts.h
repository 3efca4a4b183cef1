/* SPDX-License-Identifier: Apache-2.0
 * Names of files that are parts of one: name-00002-of-00005.gguf. */
#ifndef BN_BASE_PARTS_H
#define BN_BASE_PARTS_H

#include "base/base.h"

enum { BN_PART_BYTES = 15 }; /* "-00002-of-00005" */

/* Which part of how many `name` is, counted from 1; false: by its name it is no part. `ending` stands
 * behind the numbers. */
bool bn_part_read(unsigned *part, unsigned *of, const char *name, const char *ending);
/* The name of another part of the same file: `name`, which is one, with another number. false: no room. */
bool bn_part_write(char *out, size_t room, const char *name, unsigned part, const char *ending);

#endif
