/* SPDX-License-Identifier: Apache-2.0
 *
 * The table for given CPU features, and the listing: both are kernels.def, seen in two ways. */
#include "kernels/kernels.h"

struct bn_kernels bn_kernels_select(uint32_t features)
{
    struct bn_kernels k = {0};
    /* In order, so that later lines win and the last one taken names the backend. */
#define K(op_, isa_, needs_, fn_)            \
    if ((features & (needs_)) == (needs_)) { \
        k.op_ = fn_;                         \
        k.backend = #isa_;                   \
    }
#define G(op_, isa_, needs_, obj_)           \
    if ((features & (needs_)) == (needs_)) { \
        k.op_ = &obj_;                       \
        k.backend = #isa_;                   \
    }
#include "kernels/kernels.def"
    return k;
}

const struct bn_kernel_info bn_kernel_list[] = {
#define K(op_, isa_, needs_, fn_)  {#op_, #isa_, (needs_), (bn_any_fn *)fn_, NULL},
#define G(op_, isa_, needs_, obj_) {#op_, #isa_, (needs_), NULL, &obj_},
#include "kernels/kernels.def"
};
const size_t bn_kernel_count = BN_ARRAY_LEN(bn_kernel_list);
