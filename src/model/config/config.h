/* SPDX-License-Identifier: Apache-2.0
 * What a model is, checked once. Differences between families are data here: the forward pass reads
 * these fields and asks no further questions. Read from GGUF metadata (config_gguf.c) or
 * config.json (config_hf.c). */
#ifndef BN_MODEL_CONFIG_CONFIG_H
#define BN_MODEL_CONFIG_CONFIG_H

#include "kernels/kernels.h"
#include "model/files/source.h"

/* limits */
enum {
    BN_MAX_LAYERS = 1024,
    BN_MAX_WIDTH = BN_COLS_MAX, /* hidden, FFN and head widths */
    BN_MAX_HEADS = 1024,
    BN_MAX_HEAD_DIM = 512,
    BN_MAX_CTX = 1 << 20,
    BN_ATTN_INTERVAL = 4 /* hybrids: every fourth layer has attention where nothing else is said */
};

enum bn_act { BN_ACT_RELU2, BN_ACT_SILU };
/* Input of ternary layers. Models are trained with the first or the second; floats can be taken as
 * integers in groups instead, in one plane or two (kernels.h, quant_planes). */
enum bn_act_quant {
    BN_AQ_INT8, /* one factor a token */
    BN_AQ_F32,
    BN_AQ_INT16_GROUPS,
    BN_AQ_INT8_GROUPS
};
static inline const char *bn_act_quant_name(enum bn_act_quant a)
{
    return a == BN_AQ_F32 ? "f32" : a == BN_AQ_INT16_GROUPS ? "int16" : "int8";
}
/* 0: not in groups */
static inline size_t bn_act_planes(enum bn_act_quant a)
{
    return a == BN_AQ_INT16_GROUPS ? 2 : a == BN_AQ_INT8_GROUPS ? 1 : 0;
}
enum bn_rope_scaling { BN_RS_NONE, BN_RS_LINEAR, BN_RS_LLAMA3, BN_RS_YARN };
/* Hugging Face: what weight_scale does, or that there is none */
enum bn_hf_weights {
    BN_HF_NONE,
    BN_HF_SCALE_MUL,
    BN_HF_SCALE_DIV,
    BN_HF_ONLINE,
    BN_HF_TERNARY_VALUES
};

/* Layers with a gated delta net in place of attention; n_v_heads 0: there are none. */
struct bn_delta_shape {
    uint32_t n_k_heads, n_v_heads; /* value heads h * n_v / n_k and following share key head h */
    uint32_t k_dim, v_dim;
    uint32_t taps; /* of the convolution */
};

enum { BN_MAX_HADAMARD_WIDTHS = 8 };

/* Rotated inputs of matrices (model/config/hadamard.h); block 0: there are none. */
struct bn_hadamard {
    uint32_t block;
    uint32_t n_widths, widths[BN_MAX_HADAMARD_WIDTHS]; /* of inputs that have signs */
    bool signs;                                        /* else all are +1 */
    bool v_grouped; /* columns of the delta net's output matrix are not tiled */
};

struct bn_config {
    char arch[32]; /* GGUF name of the architecture */
    char name[128];
    uint32_t n_vocab, n_embd, n_ff, n_layer, n_head, n_head_kv, head_dim, n_ctx;
    uint32_t
        ffn_norm_width; /* what ffn_sub_norm's mean is taken over, where channels that are always
                              * zero have been removed; 0: n_ff */
    float eps;
    enum bn_act act;
    enum bn_act_quant act_quant;
    bool sub_norms; /* attn_sub_norm and ffn_sub_norm (BitNet)          */
    bool qk_norm;   /* per-head norms of q and k (Qwen3)                */
    bool in_norms;  /* a norm in front of each projection (BitNet embeddings; use_rms_norm) */
    bool tied_head;
    bool attn_gate; /* q has a gate for every output of attention (Qwen3.5) */
    struct bn_delta_shape delta;
    uint32_t delta_layers[BN_MAX_LAYERS / 32]; /* a bit each; bn_config_is_delta */
    uint32_t n_mtp;                            /* layers behind the last that draft tokens */
    struct bn_hadamard hadamard;
    /* order in the file; in memory it is that of Hugging Face checkpoints (order.h) */
    bool qk_pairs;      /* q and k: partners of a rotation side by side */
    bool v_tiled;       /* value heads: the first one of every key head, then the second ones */
    bool norm_plus_one; /* norms are stored without the 1 that is added to them */
    float rope_theta;
    uint32_t rope_dim; /* rotated dimensions of a head */
    enum bn_rope_scaling rope_scaling;
    float rope_factor;
    uint32_t rope_orig_ctx;               /* Llama 3, YaRN: context before it was stretched */
    float rope_low_freq, rope_high_freq;  /* Llama 3 */
    float rope_beta_fast, rope_beta_slow; /* YaRN: turns in rope_orig_ctx, from ... to */
    bool rope_whole_dims;                 /* YaRN: the bounds between are rounded outwards */
    float rope_attn;                      /* YaRN: cosines and sines are times this */
    uint32_t rope_sections[4];            /* M-RoPE; text has one position, so nothing changes */
    enum bn_hf_weights hf;                /* GGUF: NONE */
    float in_norm_eps;
    bitnet_sampling sampling; /* what the file recommends (config_sampling.h) */
    uint32_t sampling_given;  /* BITNET_SAMPLING_... */
};

static inline bool bn_config_is_delta(const struct bn_config *c, uint32_t layer)
{
    return layer < c->n_layer && c->delta_layers[layer / 32] >> layer % 32 & 1;
}
static inline void bn_config_set_delta(struct bn_config *c, uint32_t layer)
{
    c->delta_layers[layer / 32] |= UINT32_C(1) << layer % 32;
}
/* All there are in the file. */
static inline uint32_t bn_config_layers(const struct bn_config *c) { return c->n_layer + c->n_mtp; }
/* Those of the given kind before `layer`: its place among states, or in the KV cache. */
uint32_t bn_config_delta_before(const struct bn_config *c, uint32_t layer);
uint32_t bn_config_attn_before(const struct bn_config *c, uint32_t layer);

/* Columns of the widest matrix or activation. */
size_t bn_config_widest(const struct bn_config *c);

static inline size_t bn_delta_key_width(const struct bn_delta_shape *d)
{
    return (size_t)d->n_k_heads * d->k_dim;
}
static inline size_t bn_delta_value_width(const struct bn_delta_shape *d)
{
    return (size_t)d->n_v_heads * d->v_dim;
}
/* q, k and v of a token, which the convolution runs over */
static inline size_t bn_delta_conv_width(const struct bn_delta_shape *d)
{
    return 2 * bn_delta_key_width(d) + bn_delta_value_width(d);
}

/* note: sentences about assumptions, for the user. */
bitnet_status bn_config_read(struct bn_config *c, const struct bn_source *s, struct bn_buf *note,
                             bitnet_error *err);
bitnet_status bn_config_from_gguf(struct bn_config *c, const struct bn_source *s,
                                  struct bn_buf *note, bitnet_error *err);
bitnet_status bn_config_from_hf(struct bn_config *c, const struct bn_source *s, struct bn_buf *note,
                                bitnet_error *err);
bitnet_status bn_config_check(const struct bn_config *c, const char *path, bitnet_error *err);

/* As config.json: can it be said there, and the object, to which packed weights add theirs as
 * "quantization_config"; NULL or broken: out of memory. (config_hf_write.c) */
struct bn_json;
bitnet_status bn_config_check_hf(const struct bn_config *c, bitnet_error *err);
struct bn_json *bn_config_hf_json(const struct bn_config *c);
struct bn_json *bn_config_hf_packing(void);

struct bn_gguf_writer;
void bn_config_put(const struct bn_config *c, struct bn_gguf_writer *w); /* as GGUF metadata */

/* Names of a layer's tensors. part: see bn_part; in files of the source's kind. */
enum bn_part {
    BN_P_EMBED,
    BN_P_HEAD,
    BN_P_OUT_NORM,
    BN_P_ROPE_FREQS, /* once                    */
    BN_P_ATTN_NORM,
    BN_P_FFN_NORM,
    BN_P_POST_NORM, /* the same of hybrids, which GGUF calls otherwise */
    BN_P_ATTN_SUB_NORM,
    BN_P_FFN_SUB_NORM,
    BN_P_Q_NORM,
    BN_P_K_NORM,
    BN_P_DELTA_CONV, /* of a delta net */
    BN_P_DELTA_DT,
    BN_P_DELTA_A,
    BN_P_DELTA_NORM,
    BN_P_MTP_EMBED_NORM, /* of a layer that drafts */
    BN_P_MTP_HIDDEN_NORM,
    BN_P_MTP_OUT_NORM,
    BN_P_Q,
    BN_P_K,
    BN_P_V,
    BN_P_O,
    BN_P_GATE,
    BN_P_UP,
    BN_P_DOWN,
    BN_P_DELTA_QKV, /* in place of Q to O   */
    BN_P_DELTA_Z,
    BN_P_DELTA_ALPHA,
    BN_P_DELTA_BETA,
    BN_P_DELTA_OUT,
    BN_P_MTP_IN, /* from embedding and hidden state */
    BN_P_COUNT
};
enum { BN_N_PROJ = BN_P_COUNT - BN_P_Q }; /* projections, of which a layer has some */
static inline bool bn_part_is_projection(enum bn_part p) { return p >= BN_P_Q && p < BN_P_COUNT; }
/* Does this layer have it? Of parts that belong to layers. */
bool bn_part_in_layer(const struct bn_config *c, enum bn_part p, uint32_t layer);
/* The same configuration with the conventions of GGUF files of its architecture. */
struct bn_config bn_config_as_gguf(const struct bn_config *c);
/* With those of a checkpoint; of families that a checkpoint can be made of (bn_config_check_hf). */
struct bn_config bn_config_as_hf(const struct bn_config *c);
/* The layer that drafts has a number of its own in GGUF and a place of its own in checkpoints: where
 * parts are named, it is layer BN_LAYER_MTP | n_layer. */
#define BN_LAYER_MTP (UINT32_C(1) << 31)
static inline uint32_t bn_config_named_layer(const struct bn_config *c, uint32_t i)
{
    return i < c->n_layer ? i : i | BN_LAYER_MTP;
}
/* GGUF name, or the Hugging Face one; out has BN_MAX_NAME_BYTES. in_norm: of the projection's input
 * norm. */
void bn_part_name(char *out, enum bn_part p, uint32_t layer, bool gguf);
/* Looks under all names a part is known by (1bitLLM spells two of them differently). NULL:
 * absent. */
const struct bn_tensor *bn_part_find(const struct bn_source *s, enum bn_part p, uint32_t layer);
/* Says that it is. */
bitnet_status bn_part_missing(const struct bn_source *s, enum bn_part p, uint32_t layer,
                              bitnet_error *err);
const struct bn_tensor *bn_part_in_norm(const struct bn_source *s, enum bn_part proj,
                                        uint32_t layer);
const struct bn_tensor *bn_part_scale(const struct bn_source *s, enum bn_part proj,
                                      uint32_t layer); /* weight_scale */
/* rows and cols a part must have under this configuration; 1 row for norms */
void bn_part_shape(const struct bn_config *c, enum bn_part p, uint64_t *rows, uint64_t *cols);

/* A projection (or head, or embedding) as stored, scale convention and type resolved: what
 * weights.c packs and convert writes. *online: dense master weights that must be quantised
 * (absmean) on load. */
bitnet_status bn_part_stored(struct bn_stored *out, bool *online, const struct bn_source *s,
                             const struct bn_config *c, enum bn_part p, uint32_t layer,
                             bitnet_error *err);

#endif
