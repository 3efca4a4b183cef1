/* SPDX-License-Identifier: Apache-2.0
 * Errors: a status and one sentence that names the thing and the number. Born once with bn_fail(),
 * then forwarded as they are. */
#ifndef BN_BASE_STATUS_H
#define BN_BASE_STATUS_H

#include "base/base.h"
#include <bitnet/bitnet.h>

/* Fills *err (which may be NULL) and is `status`, so that `return bn_fail(...)` reads well. A
 * macro, so that the compiler sees that what it returns is not BITNET_OK. */
#define bn_fail(err, status, ...) (bn_error_set(err, status, __VA_ARGS__), (status))
void bn_error_set(bitnet_error *err, bitnet_status status, const char *fmt, ...) BN_PRINTF(3, 4);

/* "out of memory: 123 bytes for <what>" */
bitnet_status bn_fail_nomem(bitnet_error *err, size_t bytes, const char *what);

/* Forwards a failed status. */
#define BN_TRY(call)                                            \
    do {                                                        \
        bitnet_status bn_try_status_ = (call);                  \
        if (bn_try_status_ != BITNET_OK) return bn_try_status_; \
    } while (0)

#endif
