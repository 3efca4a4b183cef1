/* SPDX-License-Identifier: Apache-2.0
 * Type 42 of GGUF is three formats: 64 weights in 18 bytes (llama.cpp's Q2_0), 128 in 34 with the
 * scale before the codes (its forerunner at Prism), and 128 in 34 with the scale behind them
 * (OxiBonsai's TQ2_0_G128). A file holds one of them. */
#ifndef BN_MODEL_FILES_GGUF_Q2_H
#define BN_MODEL_FILES_GGUF_Q2_H

#include "model/files/types.h"

/* a tensor of type 42 as the directory has it */
struct bn_q2_tensor {
    const char *name;
    const uint8_t *data; /* room bytes: up to the next tensor, or to the end of the file */
    uint64_t rows, cols, room;
    uint32_t alignment; /* of its file */
};

/* BN_Q2_0, BN_Q2_0_128 or BN_TQ2_0_128 for all of t[n]. The room that tensors have tells groups of
 * 64 from those of 128; metadata tell where the scale stands (marked: they name TQ2_0_G128), and
 * the scales themselves must bear it out. What contradicts itself or cannot be told is refused.
 * Where a tensor fits no format at all, it is BN_Q2_0 and the caller's checks will say so. */
bitnet_status bn_q2_settle(enum bn_type *out, const struct bn_q2_tensor *t, size_t n, bool marked,
                           const char *path, bitnet_error *err);

#endif
