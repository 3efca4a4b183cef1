/* SPDX-License-Identifier: Apache-2.0 */
#include "api/api.h"

#include "engine/engine.h"
#include "model/adapter/adapter.h"

bitnet_status bitnet_adapter_open(bitnet_adapter **out, const bitnet_model *m, const char *path,
                                  bitnet_error *err)
{
    BN_NEED(out, err, "out is NULL");
    *out = NULL;
    BN_NEED(m && path, err, "an argument is NULL");
    return bn_adapter_open(out, m->m, path, err);
}

void bitnet_adapter_close(bitnet_adapter *a) { bn_adapter_let_go(a); }

bitnet_status bitnet_adapter_get_info(const bitnet_adapter *a, bitnet_adapter_info *info)
{
    if (!a || !info) return BITNET_E_ARG;
    const bitnet_adapter_info i = {.size = sizeof i,
                                   .path = a->path,
                                   .format = a->format,
                                   .rank_max = a->rank_max,
                                   .n_matrices = a->n_matrices,
                                   .n_params = a->n_params,
                                   .bytes = a->block_bytes};
    return BN_WRITE(bitnet_adapter_info, info, &i, NULL);
}

bitnet_status bitnet_engine_set_adapters(bitnet_engine *e, const bitnet_adapter_use *uses, size_t n,
                                         bitnet_error *err)
{
    BN_NEED(e, err, "the engine is NULL");
    BN_NEED(uses || n == 0, err, "uses is NULL");
    BN_TRY(bn_engine_own(e, err));
    return bn_engine_set_adapters(e, uses, n, err);
}
