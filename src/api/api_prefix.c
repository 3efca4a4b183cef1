/* SPDX-License-Identifier: Apache-2.0 */
#include "api/api.h"

#include "engine/engine.h"

static bitnet_status read_options(bitnet_prefix_options *out, const bitnet_prefix_options *o,
                                  bitnet_error *err)
{
    *out = (bitnet_prefix_options){.size = sizeof *out};
    BN_TRY(BN_READ(bitnet_prefix_options, out, o, err));
    for (size_t i = 0; i < BN_ARRAY_LEN(out->reserved); i++)
        if (out->reserved[i])
            return bn_fail(err, BITNET_E_UNSUPPORTED, "bitnet_prefix_options.reserved is not 0");
    BN_NEED(out->adapters || out->n_adapters == 0, err, "adapters is NULL");
    return BITNET_OK;
}

bitnet_status bitnet_prefix_save(bitnet_engine *e, const char *path, const int32_t *tokens,
                                 size_t n_tokens, const bitnet_prefix_options *o,
                                 bitnet_prefix_file *info, bitnet_error *err)
{
    bitnet_prefix_options opt;
    bitnet_prefix_file i;
    BN_NEED(e && path && (tokens || n_tokens == 0), err, "an argument is NULL");
    BN_TRY(bn_engine_own(e, err));
    BN_TRY(read_options(&opt, o, err));
    if (info) BN_TRY(BN_CHECK_SIZE(bitnet_prefix_file, info, err));
    BN_TRY(bn_engine_save_prefix(e, path, tokens, n_tokens, &opt, &i, err));
    return info ? BN_WRITE(bitnet_prefix_file, info, &i, err) : BITNET_OK;
}

bitnet_status bitnet_prefix_load(bitnet_engine *e, const char *path, int32_t *tokens,
                                 size_t *n_tokens, const bitnet_prefix_options *o,
                                 bitnet_prefix_file *info, bitnet_error *err)
{
    bitnet_prefix_options opt;
    bitnet_prefix_file i;
    BN_NEED(e && path && n_tokens && (tokens || *n_tokens == 0), err, "an argument is NULL");
    BN_TRY(bn_engine_own(e, err));
    BN_TRY(read_options(&opt, o, err));
    if (info) BN_TRY(BN_CHECK_SIZE(bitnet_prefix_file, info, err));
    BN_TRY(bn_engine_load_prefix(e, path, tokens, n_tokens, &opt, &i, err));
    return info ? BN_WRITE(bitnet_prefix_file, info, &i, err) : BITNET_OK;
}

bitnet_status bitnet_prefix_forget(bitnet_engine *e, const int32_t *tokens, size_t n_tokens,
                                   const bitnet_prefix_options *o, size_t *n_forgotten,
                                   bitnet_error *err)
{
    bitnet_prefix_options opt;
    BN_NEED(e && n_forgotten && (tokens || n_tokens == 0), err, "an argument is NULL");
    BN_TRY(bn_engine_own(e, err));
    BN_TRY(read_options(&opt, o, err));
    return bn_engine_forget_prefix(e, tokens, n_tokens, &opt, n_forgotten, err);
}
