/* SPDX-License-Identifier: Apache-2.0 */
#include "server/dialect.h"

void dialect_look_back(struct openai_request *q, const struct bn_json *given,
                       const struct openai_defaults *d)
{
    enum { TOKENS = 64 };
    uint32_t known = openai_default_sampling(NULL, d);
    bool last_n = bn_json_get(given, "repeat_last_n") || bn_json_get(given, "penalty_last_n");
    if (!last_n && !(known & BITNET_SAMPLING_PENALTY_LAST_N))
        q->request.sampling.penalty_last_n = TOKENS;
}
