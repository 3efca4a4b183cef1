/* SPDX-License-Identifier: Apache-2.0 */
#include "api/api.h"
#include "engine/engine.h"

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
