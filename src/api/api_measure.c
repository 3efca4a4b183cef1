/* SPDX-License-Identifier: Apache-2.0
 * Looking at an engine while it works: its health, and where its time goes. */
#include "api/api.h"
#include "engine/engine.h"
#include "engine/health.h"

/* ------------------------------------------------------------------ health */

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
    BN_TRY(bn_engine_own(e, err));
    BN_TRY(BN_CHECK_SIZE(bitnet_scrub, state, err));
    bitnet_scrub s = {.size = sizeof s};
    BN_TRY(bn_engine_scrub(e, max_bytes, &s, err));
    return BN_WRITE(bitnet_scrub, state, &s, err);
}

/* ------------------------------------------------------------------ time */

int bitnet_profile_get(const bitnet_engine *e, size_t i, bitnet_profile_entry *entry)
{
    bitnet_profile_entry x = {.size = sizeof x};
    if (!e || !entry || !bn_engine_profile_entry(e, i, &x)) return 0;
    return BN_WRITE(bitnet_profile_entry, entry, &x, NULL) == BITNET_OK;
}

bitnet_status bitnet_profile_get_info(const bitnet_engine *e, bitnet_profile_info *info,
                                      bitnet_error *err)
{
    BN_NEED(e && info, err, "an argument is NULL");
    bitnet_profile_info x = {.size = sizeof x};
    if (!bn_engine_profile_info(e, &x))
        return bn_fail(err, BITNET_E_STATE, "the engine was opened without a profile");
    return BN_WRITE(bitnet_profile_info, info, &x, err);
}

void bitnet_profile_reset(bitnet_engine *e)
{
    if (e) bn_engine_profile_reset(e);
}

int bitnet_profile_get_span(const bitnet_engine *e, uint32_t worker, size_t i,
                            bitnet_profile_span *span)
{
    bitnet_profile_span x = {.size = sizeof x};
    if (!e || !span || !bn_engine_profile_span(e, worker, i, &x)) return 0;
    return BN_WRITE(bitnet_profile_span, span, &x, NULL) == BITNET_OK;
}
