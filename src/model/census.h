/* SPDX-License-Identifier: Apache-2.0
 * What the activations of a model are like: every input of its matrices is counted by its int8 code, and
 * the gates of the feed-forward layers by their size. Switched on for a measurement; off, it costs a branch
 * for each input. */
#ifndef BN_MODEL_CENSUS_H
#define BN_MODEL_CENSUS_H

#include "model/savings.h"

enum {
    BN_CENSUS_CODES = 256, /* -128 to 127 */
    BN_CENSUS_BINS = 256   /* of gates above zero: eight an octave, from 2^-16 on */
};

struct bn_census_counts {
    uint64_t codes[BN_CENSUS_CODES]; /* of code c at c + 128 */
    uint64_t rows;                   /* tokens */
    double largest_sum;              /* of the largest magnitude of each row */
    float largest;                   /* of all */
};

struct bn_census_gates {
    uint64_t bins[BN_CENSUS_BINS], n; /* n: with those that are closed */
};

struct bn_census; /* counts of each worker apart */

bitnet_status bn_census_open(struct bn_census **out, uint32_t n_layer, uint32_t n_workers,
                             bitnet_error *err);
void bn_census_close(struct bn_census *c);
/* By a worker: one row x[n] and its int8 codes; q8 NULL: it has none, and is rounded as int8 would. */
void bn_census_row(struct bn_census *c, uint32_t worker, uint32_t layer,
                   enum bn_savings_input which, const float *x, const int8_t *q8, size_t n);
void bn_census_gate_row(struct bn_census *c, uint32_t worker, uint32_t layer, const float *gate,
                        size_t n);

/* Those of all workers. */
void bn_census_get(struct bn_census_counts *out, const struct bn_census *c, uint32_t layer,
                   enum bn_savings_input which);
void bn_census_get_gates(struct bn_census_gates *out, const struct bn_census *c, uint32_t layer);

/* Entropy of the codes in bits. */
double bn_census_entropy(const struct bn_census_counts *c);
/* Share of codes of magnitudes up to k, and of the sum of squares that they are. */
double bn_census_share(const struct bn_census_counts *c, uint32_t k);
double bn_census_energy(const struct bn_census_counts *c, uint32_t k);
/* Of all gates: the share above g, an upper edge of a bin (bn_census_gate_edge). */
double bn_census_open_share(const struct bn_census_gates *g, uint32_t bin);
float bn_census_gate_edge(uint32_t bin);

#endif
