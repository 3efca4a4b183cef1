/* SPDX-License-Identifier: Apache-2.0
 * A plan for a model, made from a text (docs/tune/calibrate.md): what its activations are like, what each
 * saving would harm, a choice within a budget, and what the whole of it does to text it was not made from. */
#ifndef BN_FORGE_CALIBRATE_CALIBRATE_H
#define BN_FORGE_CALIBRATE_CALIBRATE_H

#include "base/status.h"

struct bn_model;
struct bitnet_calibration {
    char *plan, *report; /* JSON */
};

bitnet_status bn_calibrate(struct bitnet_calibration **out, const struct bn_model *m,
                           const bitnet_calibrate_options *o, bitnet_error *err);
void bn_calibration_close(struct bitnet_calibration *c);

#endif
