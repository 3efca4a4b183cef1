/* SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

void bn_error_set(bitnet_error *err, bitnet_status status, const char *fmt, ...)
{
    if (!err) return;
    err->status = status;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    /* Names out of files end up here: keep the sentence one line of printable bytes. */
    for (char *p = err->text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
}

bitnet_status bn_fail_nomem(bitnet_error *err, size_t bytes, const char *what)
{
    return bn_fail(err, BITNET_E_NOMEM, "out of memory: %zu bytes for %s", bytes, what);
}
