/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotated inputs: the contract "prism.hadamard", version 1, of GGUF metadata. The columns of the
 * matrices that it lists were multiplied by random signs and mixed by a Walsh-Hadamard transform in
 * blocks before they were rounded; so their input is, too, and the product is the same. Rows of a
 * listed embedding are turned back when they are looked up. */
#ifndef BN_MODEL_CONFIG_HADAMARD_H
#define BN_MODEL_CONFIG_HADAMARD_H

#include "model/config/config.h"

/* From metadata; nothing there: block 0. Every key is checked, and one that is not known refused. */
bitnet_status bn_hadamard_read(struct bn_hadamard *out, const struct bn_source *s,
                               bitnet_error *err);
/* Is the input of this tensor rotated, or, with `inverse`, are its rows? */
bool bn_hadamard_has(const struct bn_source *s, const char *tensor, bool inverse);
/* How many names the list has, and which metadata it is. */
uint64_t bn_hadamard_names(const struct bn_source *s, bool inverse, const char **key);
/* The signs for inputs of `width`, in a place with room for them; false: there are none for it. */
bool bn_hadamard_signs(float *out, const struct bn_hadamard *r, const struct bn_source *s,
                       uint64_t width);

#endif
