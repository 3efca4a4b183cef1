/* SPDX-License-Identifier: Apache-2.0
 * Which model it is, for what was computed by it and kept. */
#ifndef BN_MODEL_IDENTITY_H
#define BN_MODEL_IDENTITY_H

#include "model/model.h"

/* Of shape, norms, rows of the embedding and of every matrix, and how activations are rounded: the same for
 * the same weights, whatever file, layout and CPU they are on. Against mistakes, not against malice. */
bitnet_status bn_model_identity(uint64_t *sum, const struct bn_model *m, bitnet_error *err);

#endif
