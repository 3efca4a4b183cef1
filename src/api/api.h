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

/* ---- api_ranks.c: rank 0 tells the others what it does. Without ranks they do nothing. ---- */

/* Before opening; and when it has ended with `s`, after which it is how all have ended. */
bitnet_status bn_lead_model(const char *path, const bitnet_model_options *o, bitnet_ranks *ranks,
                            bitnet_error *err);
bitnet_status bn_lead_engine(const struct bn_model *m, bitnet_engine_options *o, bitnet_error *err);
bitnet_status bn_agree_model(const bitnet_ranks *ranks, const struct bn_model *m, bitnet_status s,
                             bitnet_error *err);
/* Before closing. */
void bn_lead_close(const struct bn_model *m, bool engine);

#define BN_NEED(cond, err, what)                                               \
    do {                                                                       \
        if (!(cond)) return bn_fail(err, BITNET_E_ARG, "%s: " what, __func__); \
    } while (0)

#endif
