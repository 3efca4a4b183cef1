/* SPDX-License-Identifier: Apache-2.0
 * A calibration in progress, shared by calibrate.c (its steps) and report.c. */
#ifndef BN_FORGE_CALIBRATE_CALIBRATE_IMPL_H
#define BN_FORGE_CALIBRATE_CALIBRATE_IMPL_H

#include "forge/calibrate/calibrate.h"
#include "forge/calibrate/knobs.h"
#include "forge/calibrate/lab.h"

/* A choice of levels, and what became of it. */
struct bn_trial {
    double budget;             /* 0: of a uniform step, or by entropy */
    uint32_t step;             /* of a uniform step */
    double estimate, gain;     /* sums of what the knobs say */
    bitnet_divergence heldout; /* on samples that took no part in the choice */
    struct bn_json *plan;      /* owned */
    struct bn_json
        *density; /* owned: shares of open gates and of inputs of `down`, layer by layer */
};

struct bn_calibration_run {
    const struct bn_model *m;
    const bitnet_calibrate_options *o;
    struct bn_lab lab;
    struct bn_knobs knobs;
    size_t *samples;            /* [n_samples]: even ones, then odd ones */
    size_t n_chosen, n_heldout; /* those the plan is chosen by come first */
    size_t n_probe;
    size_t *probe;                 /* [n_probe] of the former, for single savings */
    struct bitnet_engine *watched; /* with the census of the untouched model */
    double decode_ns;              /* of the untouched model, a token */
    bitnet_divergence promised;    /* of the plan, on the samples it was chosen by */
    struct bn_trial plan;
    struct bn_trial *curve; /* [n_curve] */
    struct bn_trial *uniform;
    size_t n_curve, n_uniform;
    uint64_t start_ns;
};

/* Shares of open gates and of inputs of `down` that are not zero, as synth's ffn_density. (report.c) */
struct bn_json *bn_calibration_density(const struct bn_census *c, const struct bn_savings *s);
/* The plan with its notes, and the report, as text; NULL: out of memory. (report.c) */
char *bn_calibration_plan_text(const struct bn_calibration_run *r);
char *bn_calibration_report_text(struct bn_calibration_run *r);

#endif
