/* SPDX-License-Identifier: Apache-2.0
 * A checksum against chance, not against malice: as fast as memory is read. */
#ifndef BN_BASE_CHECKSUM_H
#define BN_BASE_CHECKSUM_H

#include "base/base.h"

/* A change inside one aligned word of 64 bits is always seen. */
uint64_t bn_checksum(const void *data, size_t n);

#endif
