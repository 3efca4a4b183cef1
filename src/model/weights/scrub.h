/* SPDX-License-Identifier: Apache-2.0
 * Weights never change; memory sometimes does. The scrub walks over all that the forward pass reads of
 * a model, in blocks, with a checksum of each: the first pass takes the checksums, every later one
 * compares. It goes on only when it is called, as far as it is told to. */
#ifndef BN_MODEL_WEIGHTS_SCRUB_H
#define BN_MODEL_WEIGHTS_SCRUB_H

#include "model/model.h"

enum { BN_SCRUB_BLOCK = 64 << 10 }; /* bytes under one checksum */

struct bn_scrub;

/* The model must outlive it. */
bitnet_status bn_scrub_open(struct bn_scrub **out, const struct bn_model *m, bitnet_error *err);
void bn_scrub_close(struct bn_scrub *s);

/* Whole blocks up to max_bytes, but at least one, and not beyond the end of a pass. keep: pages of the
 * file that were read stay in memory. */
void bn_scrub_advance(struct bn_scrub *s, uint64_t max_bytes, bool keep);
void bn_scrub_info(const struct bn_scrub *s, bitnet_scrub *info);

#endif
