/* SPDX-License-Identifier: Apache-2.0 */
#include "api/api.h"

#include "engine/health.h"

void bitnet_engine_health(const bitnet_engine *e, bitnet_health *health)
{
    if (!e || !health) return;
    bitnet_health h = {.size = sizeof h};
    bn_engine_health(e, &h);
    bn_fill_sized(health, &h, sizeof h);
}

bitnet_status bitnet_engine_kv_health(const bitnet_engine *e, uint32_t layer,
                                      bitnet_kv_health *health, bitnet_error *err)
{
    BN_NEED(e && health, err, "an argument is NULL");
    bitnet_kv_health h = {.size = sizeof h};
    BN_TRY(bn_engine_kv_health(e, layer, &h, err));
    bn_fill_sized(health, &h, sizeof h);
    return BITNET_OK;
}

bitnet_status bitnet_engine_scrub(bitnet_engine *e, uint64_t max_bytes, bitnet_scrub *state,
                                  bitnet_error *err)
{
    BN_NEED(e && state, err, "an argument is NULL");
    bitnet_scrub s = {.size = sizeof s};
    BN_TRY(bn_engine_scrub(e, max_bytes, &s, err));
    bn_fill_sized(state, &s, sizeof s);
    return BITNET_OK;
}
