/* SPDX-License-Identifier: Apache-2.0
 * The operations of a step as a profile tells them apart (base/threads/prof.h): rows are layers, counted
 * from 1; row 0 is what belongs to none. */
#ifndef BN_MODEL_OPS_H
#define BN_MODEL_OPS_H

#include "base/threads/pool.h"

enum bn_op {
#define OP(id, name, kind) BN_OP_##id,
#include "model/ops.def"
#undef OP
    BN_N_OPS
};
_Static_assert(BN_OP_WAIT == (int)BN_PROF_WAIT && BN_OP_IDLE == (int)BN_PROF_IDLE &&
                   BN_OP_EMBED == (int)BN_PROF_OPS,
               "the first ones are base/threads/prof.h's");

enum bn_phase { BN_PHASE_PREFILL, BN_PHASE_DECODE, BN_N_PHASES };

/* Of `bytes` in all rows those in [r.begin, r.end), so that parts add up, however rows are cut. */
static inline uint64_t bn_rows_bytes(uint64_t bytes, uint64_t rows, struct bn_range r)
{
    return bytes * r.end / rows - bytes * r.begin / rows;
}

const char *bn_op_name(uint32_t op);
const char *bn_op_kind(uint32_t op);

#endif
