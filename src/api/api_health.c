/* SPDX-License-Identifier: Apache-2.0 */
#include "api/api.h"

#include "engine/health.h"

bitnet_status bitnet_engine_health(const bitnet_engine *e, bitnet_health *health)
{
    if (!e || !health) return BITNET_E_ARG;
    bitnet_health h = {.size = sizeof h};
    bn_engine_health(e, &h);
    return BN_WRITE(bitnet_health, health, &h, NULL);
}

bitnet_status bitnet_engine_kv_health(const bitnet_engine *e, uint32_t layer,
                                      bitnet_kv_health *health, bitnet_error *err)
{
    BN_NEED(e && health, err, "an argument is NULL");
    bitnet_kv_health h = {.size = sizeof h};
    BN_TRY(bn_engine_kv_health(e, layer, &h, err));
    return BN_WRITE(bitnet_kv_health, health, &h, err);
}

bitnet_status bitnet_engine_scrub(bitnet_engine *e, uint64_t max_bytes, bitnet_scrub *state,
                                  bitnet_error *err)
{
    BN_NEED(e && state, err, "an argument is NULL");
    BN_TRY(BN_CHECK_SIZE(bitnet_scrub, state, err));
    bitnet_scrub s = {.size = sizeof s};
    BN_TRY(bn_engine_scrub(e, max_bytes, &s, err));
    return BN_WRITE(bitnet_scrub, state, &s, err);
}
