/* SPDX-License-Identifier: Apache-2.0
 *
 * tree.h: folders that are walked in a fixed order, and paths put together.
 */
#ifndef BN_HUB_TREE_H
#define BN_HUB_TREE_H

#include "hub/places.h"

/* false: it is too long. */
bool hub_path(char out[HUB_PATH_BYTES], const char *fmt, ...) BN_PRINTF(2, 3);

/* The names in a folder, sorted, without . and ..; nothing if there is no such folder. visit ends it by
 * returning false, which is then returned. */
bool hub_each_name(const char *folder, bool (*visit)(void *user, const char *name), void *user);
/* Everything below a folder that is no folder itself, links among them, sorted. path: below the
 * folder; full: with it. */
bool hub_each_file(const char *folder,
                   bool (*visit)(void *user, const char *path, const char *full), void *user);

#endif
