/* SPDX-License-Identifier: Apache-2.0
 * What the files of the door share: the public handles and the checks they all make. */
#ifndef BN_API_API_H
#define BN_API_API_H

#include "api/sized.h"
#include "base/status.h"
#include "model/model.h"

struct bitnet_model {
    struct bn_model *m;
};

#define BN_NEED(cond, err, what)                                               \
    do {                                                                       \
        if (!(cond)) return bn_fail(err, BITNET_E_ARG, "%s: " what, __func__); \
    } while (0)

#endif
