/* SPDX-License-Identifier: Apache-2.0 */
#include "model/census.h"

#include "base/os/mem.h"
#include <math.h>
#include <stdlib.h>

/* A bin is what a float's exponent and the first three bits behind its point say. */
enum { BIN_SHIFT = 20, BIN_FIRST = (127 - 16) << 3, CODE_ZERO = 128 };

struct layer {
    struct bn_census_counts inputs[BN_N_INPUTS];
    struct bn_census_gates gates;
};

struct bn_census {
    uint32_t n_layer, n_workers;
    struct layer *layers; /* [n_workers][n_layer] */
};

bitnet_status bn_census_open(struct bn_census **out, uint32_t n_layer, uint32_t n_workers,
                             bitnet_error *err)
{
    struct bn_census *c = bn_calloc(1, sizeof *c);
    *out = NULL;
    if (c) c->layers = bn_calloc((size_t)n_layer * n_workers, sizeof *c->layers);
    if (!c || !c->layers) {
        bn_census_close(c);
        return bn_fail_nomem(err, (size_t)n_layer * n_workers * sizeof *c->layers,
                             "counts of activations");
    }
    c->n_layer = n_layer;
    c->n_workers = n_workers;
    *out = c;
    return BITNET_OK;
}

void bn_census_close(struct bn_census *c)
{
    if (!c) return;
    free(c->layers);
    free(c);
}

/* ------------------------------------------------------------------ counting */

static float largest_of(const float *x, size_t n)
{
    float most = 0;
    for (size_t i = 0; i < n; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    return most;
}

void bn_census_row(struct bn_census *c, uint32_t worker, uint32_t layer,
                   enum bn_savings_input which, const float *x, const int8_t *q8, size_t n)
{
    struct bn_census_counts *k = &c->layers[worker * c->n_layer + layer].inputs[which];
    float most = largest_of(x, n), scale = most > 0 ? 127 / most : 0;
    for (size_t i = 0; i < n; i++) {
        int code = q8 ? q8[i] : (int)lrintf(x[i] * scale);
        k->codes[code + CODE_ZERO]++;
    }
    k->rows++;
    k->largest_sum += (double)most;
    k->largest = most > k->largest ? most : k->largest;
}

static uint32_t bin_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits >>= BIN_SHIFT;
    if (bits < BIN_FIRST) return 0;
    return bits - BIN_FIRST < BN_CENSUS_BINS ? bits - BIN_FIRST : BN_CENSUS_BINS - 1;
}

float bn_census_gate_edge(uint32_t bin)
{
    uint32_t bits = (bin + 1 + BIN_FIRST) << BIN_SHIFT;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

void bn_census_gate_row(struct bn_census *c, uint32_t worker, uint32_t layer, const float *gate,
                        size_t n)
{
    struct bn_census_gates *g = &c->layers[worker * c->n_layer + layer].gates;
    for (size_t i = 0; i < n; i++)
        if (gate[i] > 0) g->bins[bin_of(gate[i])]++;
    g->n += n;
}

/* ------------------------------------------------------------------ what was counted */

void bn_census_get(struct bn_census_counts *out, const struct bn_census *c, uint32_t layer,
                   enum bn_savings_input which)
{
    *out = (struct bn_census_counts){0};
    for (uint32_t w = 0; w < c->n_workers; w++) {
        const struct bn_census_counts *k = &c->layers[w * c->n_layer + layer].inputs[which];
        for (size_t i = 0; i < BN_CENSUS_CODES; i++) out->codes[i] += k->codes[i];
        out->rows += k->rows;
        out->largest_sum += k->largest_sum;
        out->largest = k->largest > out->largest ? k->largest : out->largest;
    }
}

void bn_census_get_gates(struct bn_census_gates *out, const struct bn_census *c, uint32_t layer)
{
    *out = (struct bn_census_gates){0};
    for (uint32_t w = 0; w < c->n_workers; w++) {
        const struct bn_census_gates *g = &c->layers[w * c->n_layer + layer].gates;
        for (size_t i = 0; i < BN_CENSUS_BINS; i++) out->bins[i] += g->bins[i];
        out->n += g->n;
    }
}

static double total_of(const struct bn_census_counts *c)
{
    double n = 0;
    for (size_t i = 0; i < BN_CENSUS_CODES; i++) n += (double)c->codes[i];
    return n > 0 ? n : 1;
}

double bn_census_entropy(const struct bn_census_counts *c)
{
    double n = total_of(c), bits = 0;
    for (size_t i = 0; i < BN_CENSUS_CODES; i++) {
        double p = (double)c->codes[i] / n;
        if (p > 0) bits -= p * log2(p);
    }
    return bits;
}

double bn_census_share(const struct bn_census_counts *c, uint32_t k)
{
    double some = 0;
    for (int i = 0; i < BN_CENSUS_CODES; i++)
        if (abs(i - CODE_ZERO) <= (int)k) some += (double)c->codes[i];
    return some / total_of(c);
}

double bn_census_energy(const struct bn_census_counts *c, uint32_t k)
{
    double some = 0, all = 0;
    for (int i = 0; i < BN_CENSUS_CODES; i++) {
        int code = i - CODE_ZERO;
        double e = (double)(code * code) * (double)c->codes[i];
        all += e;
        some += abs(code) <= (int)k ? e : 0;
    }
    return all > 0 ? some / all : 0;
}

double bn_census_open_share(const struct bn_census_gates *g, uint32_t bin)
{
    double open = 0;
    for (uint32_t i = bin + 1; i < BN_CENSUS_BINS; i++) open += (double)g->bins[i];
    return g->n ? open / (double)g->n : 0;
}
