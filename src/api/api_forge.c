/* SPDX-License-Identifier: Apache-2.0 */
#include "api/api.h"

#include "forge/forge.h"

bitnet_status bitnet_convert(const char *in_path, const char *out_path,
                             const bitnet_convert_options *o, bitnet_error *err)
{
    BN_NEED(out_path, err, "the output path is NULL");
    bitnet_convert_options opt = {.size = sizeof opt};
    BN_TRY(BN_READ(bitnet_convert_options, &opt, o, err));
    return bn_convert(in_path, out_path, &opt, err);
}

bitnet_status bitnet_synth(const char *shape, const char *out_path, const bitnet_synth_options *o,
                           bitnet_error *err)
{
    BN_NEED(shape && out_path, err, "an argument is NULL");
    bitnet_synth_options opt = {.size = sizeof opt};
    BN_TRY(BN_READ(bitnet_synth_options, &opt, o, err));
    return bn_synth(shape, out_path, &opt, err);
}

const char *bitnet_synth_shape(size_t i, const char **description)
{
    const char *unused;
    return bn_synth_shape(i, description ? description : &unused);
}
