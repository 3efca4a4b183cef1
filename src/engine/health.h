/* SPDX-License-Identifier: Apache-2.0
 * Signs of health. Counted in passing: repetition of generated text, logits that are not finite, and feed-
 * forward activity (model/activity). On demand only: what the KV cache holds, and whether the weights
 * are still what they were (model/scrub). */
#ifndef BN_ENGINE_HEALTH_H
#define BN_ENGINE_HEALTH_H

#include "base/status.h"

enum {
    BN_HEALTH_SEQUENCES = 16, /* the running mean remembers about so many */
    BN_HEALTH_PAGES = 32      /* of the KV cache are looked at, at least, if it holds as many */
};

struct bn_health {
    uint64_t n_ended;  /* that ended with a 3-gram at least */
    double repetition; /* running mean of theirs */
    uint64_t logit_rows, nonfinite_rows;
    struct bn_scrub *scrub; /* NULL: never asked for */
};

struct bn_repetition;

void bn_health_close(struct bn_health *h);
/* Counts n rows of logits. False: one holds a NaN or an infinity; -infinity is no fault in screened
 * rows. */
bool bn_health_logits(struct bn_health *h, const float *logits, size_t n, size_t n_vocab,
                      bool screened);
/* A sequence has ended. */
void bn_health_sequence(struct bn_health *h, const struct bn_repetition *r);

/* As in bitnet.h. */
void bn_engine_health(const struct bitnet_engine *e, bitnet_health *out);
bitnet_status bn_engine_kv_health(const struct bitnet_engine *e, uint32_t layer,
                                  bitnet_kv_health *out, bitnet_error *err);
bitnet_status bn_engine_scrub(struct bitnet_engine *e, uint64_t max_bytes, bitnet_scrub *out,
                              bitnet_error *err);

/* ---- of rows of keys or values ---- */

struct bn_code_counts {
    uint64_t code[256];      /* of finite rows, rounded to int8 with the row's largest at 127 */
    uint64_t values, beyond; /* all values; those at the largest that their type can hold */
    float max_abs;
};
/* Shannon entropy of the codes in bits, 0 to 8. */
double bn_code_entropy(const struct bn_code_counts *c);

#endif
