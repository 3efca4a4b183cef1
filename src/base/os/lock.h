/* SPDX-License-Identifier: Apache-2.0
 * Locks among processes: places in a file that nobody reads. The system lets go of them when the
 * process ends, however it does. */
#ifndef BN_BASE_OS_LOCK_H
#define BN_BASE_OS_LOCK_H

#include "base/base.h"

struct bn_lock {
    int fd; /* -1: none */
    uint64_t place;
};

/* The file is made if it is not there. false: it cannot be. */
bool bn_lock_open(struct bn_lock *l, const char *path, uint64_t place);
bool bn_lock_take(struct bn_lock *l); /* false: somebody has it */
void bn_lock_ask(struct bn_lock *l);  /* says that it is waited for, until closed or taken */
bool bn_lock_is_asked(const struct bn_lock *l); /* for the holder: does somebody wait? */
void bn_lock_close(struct bn_lock *l);          /* lets go of it */

#endif
