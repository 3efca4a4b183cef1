/* SPDX-License-Identifier: Apache-2.0
 * Options of bitnet.h that are "auto", "on" or "off". */
#ifndef BN_BASE_SWITCH_H
#define BN_BASE_SWITCH_H

#include "base/status.h"
#include <string.h>

enum bn_switch { BN_AUTO, BN_ON, BN_OFF };

/* name: of the option, for the error. value: NULL is "auto". */
static inline bitnet_status bn_switch_parse(enum bn_switch *out, const char *name,
                                            const char *value, bitnet_error *err)
{
    if (!value || strcmp(value, "auto") == 0) *out = BN_AUTO;
    else if (strcmp(value, "on") == 0) *out = BN_ON;
    else if (strcmp(value, "off") == 0) *out = BN_OFF;
    else
        return bn_fail(err, BITNET_E_ARG, "%s '%s' is unknown; auto, on and off exist", name,
                       value);
    return BITNET_OK;
}

#endif
