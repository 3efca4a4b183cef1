/* SPDX-License-Identifier: Apache-2.0
 * What a model is, checked once. Differences between families are data here: the forward pass reads
 * these fields and asks no further questions. Read from GGUF metadata (config_gguf.c) or
 * config.json (config_hf.c). */
#ifndef BN_MODEL_CONFIG_H
#define BN_MODEL_CONFIG_H

#include "kernels/kernels.h"
#include "model/source.h"

/* limits */
enum {
    BN_MAX_LAYERS = 1024,
    BN_MAX_WIDTH = BN_COLS_MAX, /* hidden, FFN and head widths */
    BN_MAX_HEADS = 1024,
    BN_MAX_HEAD_DIM = 512,
    BN_MAX_CTX = 1 << 20
};

enum bn_act { BN_ACT_RELU2, BN_ACT_SILU };
enum bn_act_quant {
    BN_AQ_INT8,
    BN_AQ_F32
}; /* input of ternary layers: int8 per token, or floats */
enum bn_rope { BN_ROPE_NEOX, BN_ROPE_NORM };
enum bn_rope_scaling { BN_RS_NONE, BN_RS_LINEAR, BN_RS_LLAMA3, BN_RS_YARN };
/* Hugging Face: what weight_scale does, or that there is none */
enum bn_hf_weights {
    BN_HF_NONE,
    BN_HF_SCALE_MUL,
    BN_HF_SCALE_DIV,
    BN_HF_ONLINE,
    BN_HF_TERNARY_VALUES
};

struct bn_config {
    char arch[32]; /* GGUF name of the architecture */
    char name[128];
    uint32_t n_vocab, n_embd, n_ff, n_layer, n_head, n_head_kv, head_dim, n_ctx;
    float eps;
    enum bn_act act;
    enum bn_act_quant act_quant;
    bool sub_norms; /* attn_sub_norm and ffn_sub_norm (BitNet)          */
    bool qk_norm;   /* per-head norms of q and k (Qwen3)                */
    bool in_norms;  /* a norm in front of each projection (BitNet embeddings; use_rms_norm) */
    bool tied_head;
    enum bn_rope rope;
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

/* note: sentences about guesses, for the user. */
bitnet_status bn_config_read(struct bn_config *c, const struct bn_source *s, struct bn_buf *note,
                             bitnet_error *err);
bitnet_status bn_config_from_gguf(struct bn_config *c, const struct bn_source *s,
                                  struct bn_buf *note, bitnet_error *err);
bitnet_status bn_config_from_hf(struct bn_config *c, const struct bn_source *s, struct bn_buf *note,
                                bitnet_error *err);
bitnet_status bn_config_check(const struct bn_config *c, const char *path, bitnet_error *err);

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
    BN_P_ATTN_SUB_NORM,
    BN_P_FFN_SUB_NORM,
    BN_P_Q_NORM,
    BN_P_K_NORM,
    BN_P_Q,
    BN_P_K,
    BN_P_V,
    BN_P_O,
    BN_P_GATE,
    BN_P_UP,
    BN_P_DOWN, /* the seven projections   */
    BN_P_COUNT
};
enum { BN_N_PROJ = 7 };
/* GGUF name, or the Hugging Face one; out has BN_MAX_NAME_BYTES. in_norm: of the projection's input
 * norm. */
void bn_part_name(char *out, enum bn_part p, uint32_t layer, bool gguf);
/* Looks under all names a part is known by (1bitLLM spells two of them differently). NULL:
 * absent. */
const struct bn_tensor *bn_part_find(const struct bn_source *s, enum bn_part p, uint32_t layer);
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
