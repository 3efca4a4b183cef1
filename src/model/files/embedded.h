/* SPDX-License-Identifier: Apache-2.0
 * The small model that is part of the library, so that it works with no download. */
#ifndef BN_MODEL_FILES_EMBEDDED_H
#define BN_MODEL_FILES_EMBEDDED_H

#include <stddef.h>

/* A GGUF in read-only memory; NULL if the library was built without (-Dembed=false). */
const void *bn_embedded_model(size_t *bytes);

#endif
