/* SPDX-License-Identifier: Apache-2.0
 *
 * What an engine saves, layer by layer, at a known price: the contents of a plan (docs/tune/plan.md).
 * `bitnet calibrate` writes plans; engines compute by them. A plan says nothing about threads, batches
 * or kernels, so the same text has the same bits under the same plan however it is computed. What it
 * is silent about stays as it is without one, and a plan that saves nothing changes no bit.
 *
 * A plan comes as JSON: from a program, from a file, or from the metadata of a GGUF. It names the model
 * it was made for by a checksum. */
#ifndef BN_MODEL_SAVINGS_H
#define BN_MODEL_SAVINGS_H

#include "json/json.h"
#include "model/model.h"

#define BN_SAVINGS_FORMAT "bitnet-plan-1"
#define BN_SAVINGS_KEY    "bitnet.plan" /* of GGUF metadata */

enum {
    BN_SAVINGS_CODES_MAX = 126, /* one code is always left: that of the largest input */
    BN_SAVINGS_MAX_BYTES = 16 << 20
};

/* Inputs of a layer's matrices. The mixer is its attention or its delta net. */
enum bn_savings_input {
    BN_IN_MIXER,     /* q, k and v; or all projections of a delta net but the last */
    BN_IN_MIXER_OUT, /* o; or the last one */
    BN_IN_GATE_UP,
    BN_IN_DOWN,
    BN_N_INPUTS
};

struct bn_savings_layer {
    /* int8 activations: codes of the input of `down` up to this magnitude become zero */
    uint32_t down_codes;
    /* ReLU^2: gates up to this count as closed; 0: as the activation has it. `gate` stands behind a
     * norm, so its values have the same scale whatever the size of the residual stream */
    float gate_min;
    bitnet_kv_type keys, values;                /* AUTO: not said */
    bool state_bf16;                            /* of a delta net */
    enum bn_act_quant activations[BN_N_INPUTS]; /* the model's where nothing else is said */
};

struct bn_savings {
    enum bn_head_mode head; /* AUTO: not said; else EXACT or INT8 */
    bool baked;             /* it comes with the model's file */
    bool tied;              /* to the model that is named here */
    char model[80];
    uint64_t checksum;
    uint32_t n_layer;
    struct bn_savings_layer layers[]; /* [n_layer] */
};

/* What ties a plan to a model: shape, norms and some rows of the embedding. Files that hold the same
 * weights in other ternary types have the same one. Of a model whose weights are loaded. */
bitnet_status bn_model_checksum(uint64_t *sum, const struct bn_model *m, bitnet_error *err);

/* One without savings, to be filled in; NULL: out of memory. To be freed by free(). */
struct bn_savings *bn_savings_new(const struct bn_model *m);
/* plan: JSON text, which begins with '{', or the path of a file; "off": none. NULL: what the file of
 * the model has in its metadata. One that does not fit the model's shape is refused. Of the model,
 * configuration, activations and metadata must be there. *out is NULL where there is none; to be freed
 * by free(). */
bitnet_status bn_savings_open(struct bn_savings **out, const struct bn_model *m, const char *plan,
                              bitnet_error *err);
/* The text of a plan as bn_savings_open takes it, neither NULL nor "off"; to be freed. */
bitnet_status bn_savings_text(char **text, size_t *n, const char *plan, bitnet_error *err);
/* One for another model is refused. s may be NULL. Once m->checksum is there. */
bitnet_status bn_savings_check(const struct bn_savings *s, const struct bn_model *m,
                               bitnet_error *err);
/* Where it comes from: "off", "given" or "file". s may be NULL. */
const char *bn_savings_from(const struct bn_savings *s);
/* The head where the caller asked for `asked`: what was asked for counts more than a plan. s may be
 * NULL. */
enum bn_head_mode bn_savings_head(const struct bn_savings *s, enum bn_head_mode asked);
/* As JSON, with the model's name and checksum; whoever made it adds "notes". NULL: out of memory. */
struct bn_json *bn_savings_json(const struct bn_savings *s, const struct bn_model *m);
/* One line for the user, such as "codes in 8 layers, values in 10, head int8"; "nothing" where nothing
 * is saved. */
void bn_savings_describe(char *out, size_t room, const struct bn_savings *s,
                         const struct bn_model *m);

#endif
