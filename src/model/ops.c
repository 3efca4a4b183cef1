/* SPDX-License-Identifier: Apache-2.0 */
#include "model/ops.h"

static const struct {
    const char *name, *kind;
} ops[] = {
#define OP(id, name, kind) {name, kind},
#include "model/ops.def"
#undef OP
};

const char *bn_op_name(uint32_t op) { return op < BN_ARRAY_LEN(ops) ? ops[op].name : "unknown"; }
const char *bn_op_kind(uint32_t op) { return op < BN_ARRAY_LEN(ops) ? ops[op].kind : "unknown"; }
