/* SPDX-License-Identifier: Apache-2.0 */
#include "api/api.h"

#include "forge/forge.h"

bitnet_status bitnet_file_open(bitnet_file **out, const char *path, bitnet_error *err)
{
    BN_NEED(out, err, "out is NULL");
    *out = NULL;
    return bn_file_open(out, path, err);
}

void bitnet_file_close(bitnet_file *f) { bn_file_close(f); }
const char *bitnet_file_format(const bitnet_file *f) { return f ? bn_file_format(f) : ""; }
uint64_t bitnet_file_bytes(const bitnet_file *f) { return f ? bn_file_bytes(f) : 0; }
size_t bitnet_file_n_meta(const bitnet_file *f) { return f ? bn_file_n_meta(f) : 0; }
uint32_t bitnet_file_sampling(const bitnet_file *f, bitnet_sampling *s)
{
    if (!f || (s && BN_CHECK_SIZE(bitnet_sampling, s, NULL) != BITNET_OK)) return 0;
    return bn_file_sampling(f, s);
}
size_t bitnet_file_n_tensors(const bitnet_file *f) { return f ? bn_file_n_tensors(f) : 0; }

bitnet_status bitnet_file_meta(const bitnet_file *f, size_t i, const char **key, const char **type,
                               char *value, size_t *n)
{
    if (!f || !key || !type || !n || i >= bn_file_n_meta(f)) return BITNET_E_ARG;
    return bn_file_meta(f, i, key, type, value, n);
}

bitnet_status bitnet_file_get_model(const bitnet_file *f, bitnet_file_model *model,
                                    bitnet_error *err)
{
    BN_NEED(f && model, err, "an argument is NULL");
    bitnet_file_model m = {.size = sizeof m};
    BN_TRY(bn_file_model(f, &m, err));
    return BN_WRITE(bitnet_file_model, model, &m, err);
}

bitnet_status bitnet_file_tensor(const bitnet_file *f, size_t i, bitnet_tensor_info *info)
{
    if (!f || !info || i >= bn_file_n_tensors(f)) return BITNET_E_ARG;
    bitnet_tensor_info t = {.size = sizeof t};
    BN_TRY(bn_file_tensor(f, i, &t));
    return BN_WRITE(bitnet_tensor_info, info, &t, NULL);
}

bitnet_status bitnet_file_tensor_stats(const bitnet_file *f, size_t i, bitnet_tensor_stats *stats,
                                       bitnet_error *err)
{
    BN_NEED(f && stats, err, "an argument is NULL");
    BN_NEED(i < bn_file_n_tensors(f), err, "there is no such tensor");
    BN_TRY(BN_CHECK_SIZE(bitnet_tensor_stats, stats, err));
    bitnet_tensor_stats t = {.size = sizeof t};
    BN_TRY(bn_file_tensor_stats(f, i, &t, err));
    return BN_WRITE(bitnet_tensor_stats, stats, &t, err);
}
