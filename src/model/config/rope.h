/* SPDX-License-Identifier: Apache-2.0
 * Angles of the rotary position embedding, as a table made once. As in the reference implementation
 * the frequency and its product with the position are rounded to f32 before sine and cosine are
 * taken; these are our own (det_math). */
#ifndef BN_MODEL_CONFIG_ROPE_H
#define BN_MODEL_CONFIG_ROPE_H

#include "model/config/config.h"

/* Divisors of the frequencies that the configuration's scaling asks for, [rope_dim / 2]; all 1
 * without scaling. In a GGUF they are the tensor rope_freqs.weight. */
void bn_rope_factors(float *out, const struct bn_config *c);

/* Radians a position, [rope_dim / 2]; factors: as above. */
void bn_rope_frequencies(float *out, const struct bn_config *c, const float *factors);

/* The usual factor of cosines and sines under YaRN, 1 + 0.1 m ln(factor). */
float bn_rope_mscale(float factor, float m);

/* table: [n_ctx][rope_dim], a position's cosines then its sines. factors: [rope_dim / 2]. */
void bn_rope_table(float *table, const struct bn_config *c, const float *factors, uint32_t n_ctx);

#endif
