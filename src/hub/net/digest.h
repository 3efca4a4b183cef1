/* SPDX-License-Identifier: Apache-2.0
 *
 * digest.h: checksums of files: SHA-256, and SHA-1 of a git object.
 */
#ifndef BN_HUB_NET_DIGEST_H
#define BN_HUB_NET_DIGEST_H

#include "hub/places.h"

/* Of all of fd, in hexadecimal digits: 64, or 40 if `git`. progress: may be NULL; true cancels. */
bitnet_status hub_digest_file(char out[65], int fd, uint64_t bytes, bool git,
                              bool (*progress)(void *user, uint64_t done), void *user,
                              bitnet_error *err);

#endif
