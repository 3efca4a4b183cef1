/* SPDX-License-Identifier: Apache-2.0
 * What can be saved: one knob for each kind of saving in each layer, with levels that save more and more.
 * A level has a gain, in bytes that decoding a token need not read, and a harm, the mean KL divergence that
 * it does when all else is exact.
 *
 * Harms of single knobs add up, nearly, as long as they are small; so a plan is chosen by the best gain for
 * a harm (choose.c), and then measured as a whole. What does not add up is the floor: where activations are
 * rounded to int8, the slightest change of a layer flips codes behind it, and that noise is there once,
 * however many changes cause it. So the floor of a layer is measured by a change that harms nothing (keys
 * in f32), and a plan's harm is the highest floor among its layers and what its savings do beyond theirs. */
#ifndef BN_FORGE_CALIBRATE_KNOBS_H
#define BN_FORGE_CALIBRATE_KNOBS_H

#include "model/census.h"

enum bn_knob_kind {
    BN_KNOB_CODES, /* of the input of `down`: small ones become zero */
    BN_KNOB_GATES, /* small gates are closed */
    BN_KNOB_KEYS,
    BN_KNOB_VALUES,
    BN_KNOB_STATE, /* bf16 */
    BN_KNOB_MIXER, /* from here on: activations as int8, in the order of enum bn_savings_input */
    BN_KNOB_MIXER_OUT,
    BN_KNOB_GATE_UP,
    BN_KNOB_DOWN,
    BN_KNOB_HEAD, /* int8; of no layer */
    BN_N_KNOBS
};

enum { BN_LEVELS_MAX = 8 };

struct bn_level {
    union {
        uint32_t codes;
        uint32_t bin; /* gates up to its upper edge are closed */
        bitnet_kv_type kv;
    } value;
    double gain;
    double kl, kl_error;
    bool measured; /* others do more harm than any budget allows */
};

struct bn_knob {
    enum bn_knob_kind kind;
    uint32_t layer;
    uint32_t n_levels, chosen; /* chosen: 0 is exact, i stands for levels[i - 1] */
    struct bn_level levels[BN_LEVELS_MAX];
};

struct bn_knobs {
    struct bn_knob *items;
    size_t n;
    double base_bytes; /* that decoding a token reads without a plan */
    double *floors;    /* [n_layer] */
};

const char *bn_knob_kind_name(enum bn_knob_kind kind); /* "codes", "keys", "activations", "head" */
/* Is it in a list such as "codes,gates,head"? NULL: every one is. */
bool bn_knob_wanted(enum bn_knob_kind kind, const char *list);
bitnet_status bn_knobs_check_list(const char *list, bitnet_error *err);

/* What the gains are reckoned for. */
struct bn_knobs_basis {
    const struct bn_model *m;
    const struct bn_census *census; /* of the untouched model */
    uint32_t context;               /* tokens behind the one that is decoded */
    double int8_gain;               /* share of the time that int8 activations save */
    const char *kinds;              /* as bn_knob_wanted */
};
bitnet_status bn_knobs_open(struct bn_knobs *k, const struct bn_knobs_basis *b, bitnet_error *err);
void bn_knobs_close(struct bn_knobs *k);

/* A level becomes part of a plan; 0: nothing does. */
void bn_knob_apply(struct bn_savings *s, const struct bn_knob *k, uint32_t level);
/* "3", "int4", "bf16", ...: the level for a reader. */
const char *bn_level_text(char *out, size_t room, const struct bn_knob *k, uint32_t level);

/* ---- choose.c ---- */

/* The levels of the largest gain whose harms together are within `budget`. */
void bn_knobs_choose(struct bn_knobs *k, double budget);
/* Where codes of an input have less than `bits` of entropy: the level that fits. */
void bn_knobs_choose_by_entropy(struct bn_knobs *k, const struct bn_census *c, double bits);
/* The same step in every layer: level `step` of codes and gates. False: no knob has it. */
bool bn_knobs_choose_uniform(struct bn_knobs *k, uint32_t step);
double bn_knobs_kl(const struct bn_knobs *k);   /* that the harms of what is chosen come to */
double bn_knobs_gain(const struct bn_knobs *k); /* sum of what is chosen */
/* The plan that is chosen; NULL: out of memory. */
struct bn_savings *bn_knobs_plan(const struct bn_knobs *k, const struct bn_model *m);

#endif
