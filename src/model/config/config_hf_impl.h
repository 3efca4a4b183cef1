/* SPDX-License-Identifier: Apache-2.0
 * Parts of the reader of config.json. */
#ifndef BN_MODEL_CONFIG_CONFIG_HF_IMPL_H
#define BN_MODEL_CONFIG_CONFIG_HF_IMPL_H

#include "json/json.h"
#include "model/config/config.h"

/* All about rotation (config_hf_rope.c). Before: n_ctx, head_dim, and in rope_dim what is rotated
 * where the file does not say it. j: the object with the model's members. */
bitnet_status bn_config_hf_rope(struct bn_config *c, const struct bn_json *j, const char *path,
                                bitnet_error *err);

#endif
