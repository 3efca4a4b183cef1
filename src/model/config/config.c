/* SPDX-License-Identifier: Apache-2.0
 * Checks that hold for every configuration, the names and shapes of a model's parts, and how a part
 * is stored. Tensors are looked up here and nowhere else, so a new spelling of a name is one line
 * in the table. */
#include "model/config/config.h"

#include "text/tokenizer/vocab.h"
#include <math.h>
#include <stdio.h>

bitnet_status bn_config_read(struct bn_config *c, const struct bn_source *s, struct bn_buf *note,
                             bitnet_error *err)
{
    *c = (struct bn_config){0};
#if BN_HAVE_TEXT
    BN_TRY(s->is_gguf ? bn_config_from_gguf(c, s, note, err) : bn_config_from_hf(c, s, note, err));
#else
    BN_TRY(bn_config_from_gguf(c, s, note, err));
#endif
    return bn_config_check(c, s->path, err);
}

static bitnet_status check_range(const char *path, const char *what, uint64_t v, uint64_t lo,
                                 uint64_t hi, bitnet_error *err)
{
    if (v >= lo && v <= hi) return BITNET_OK;
    return bn_fail(err, BITNET_E_FORMAT, "'%s': %s is %llu; %llu to %llu is possible", path, what,
                   (unsigned long long)v, (unsigned long long)lo, (unsigned long long)hi);
}

static bitnet_status check_delta(const struct bn_delta_shape *d, const char *path,
                                 bitnet_error *err)
{
    BN_TRY(check_range(path, "the number of value heads", d->n_v_heads, 1, BN_MAX_HEADS, err));
    BN_TRY(check_range(path, "the number of key heads", d->n_k_heads, 1, d->n_v_heads, err));
    BN_TRY(check_range(path, "the width of a key head", d->k_dim, 2, BN_DELTA_DIM_MAX, err));
    BN_TRY(check_range(path, "the width of a value head", d->v_dim, 2, BN_DELTA_DIM_MAX, err));
    BN_TRY(check_range(path, "the width of the convolution", d->taps, 2, BN_CONV_TAPS_MAX, err));
    BN_TRY(check_range(path, "the channels of the convolution", bn_delta_conv_width(d), 1,
                       BN_MAX_WIDTH, err));
    if (d->n_v_heads % d->n_k_heads)
        return bn_fail(err, BITNET_E_FORMAT,
                       "'%s': %u value heads cannot share %u key heads evenly", path, d->n_v_heads,
                       d->n_k_heads);
    return BITNET_OK;
}

/* YaRN, and the sections of M-RoPE */
static bitnet_status check_positions(const struct bn_config *c, const char *path, bitnet_error *err)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < BN_ARRAY_LEN(c->rope_sections); i++) sum += c->rope_sections[i];
    if (sum > c->rope_dim / 2)
        return bn_fail(err, BITNET_E_FORMAT,
                       "'%s': rotation sections of %llu pairs; %u are rotated", path,
                       (unsigned long long)sum, c->rope_dim / 2);
    if (c->rope_scaling != BN_RS_YARN) return BITNET_OK;
    BN_TRY(check_range(path, "the original context length", c->rope_orig_ctx, 1, UINT32_MAX, err));
    if (!(c->rope_theta > 1)) /* its logarithm is divided by */
        return bn_fail(err, BITNET_E_FORMAT, "'%s': the rotation base is %g", path,
                       (double)c->rope_theta);
    if (!(c->rope_beta_slow >= 1e-6f && c->rope_beta_fast >= c->rope_beta_slow &&
          c->rope_beta_fast <= 1e6f))
        return bn_fail(err, BITNET_E_FORMAT,
                       "'%s': the yarn rotation scaling blends from %g to %g turns", path,
                       (double)c->rope_beta_fast, (double)c->rope_beta_slow);
    if (!(c->rope_attn >= 1e-6f && c->rope_attn <= 1e6f))
        return bn_fail(err, BITNET_E_FORMAT, "'%s': the yarn attention factor is %g", path,
                       (double)c->rope_attn);
    return BITNET_OK;
}

bitnet_status bn_config_check(const struct bn_config *c, const char *path, bitnet_error *err)
{
    BN_TRY(check_range(path, "the number of layers", bn_config_layers(c), 1, BN_MAX_LAYERS, err));
    BN_TRY(check_range(path, "the number of layers that draft", c->n_mtp, 0, 1, err));
    BN_TRY(check_range(path, "the embedding width", c->n_embd, 1, BN_MAX_WIDTH, err));
    BN_TRY(check_range(path, "the feed-forward width", c->n_ff, 1, BN_MAX_WIDTH, err));
    if (c->ffn_norm_width)
        BN_TRY(check_range(path, "the width of the feed-forward norm", c->ffn_norm_width, c->n_ff,
                           BN_MAX_WIDTH, err));
    BN_TRY(check_range(path, "the number of heads", c->n_head, 1, BN_MAX_HEADS, err));
    BN_TRY(check_range(path, "the number of KV heads", c->n_head_kv, 1, c->n_head, err));
    BN_TRY(check_range(path, "the head width", c->head_dim, 2, BN_MAX_HEAD_DIM, err));
    BN_TRY(check_range(path, "the vocabulary size", c->n_vocab, 1, BN_VOCAB_MAX_TOKENS, err));
    BN_TRY(check_range(path, "the context length", c->n_ctx, 1, UINT32_MAX, err));
    BN_TRY(check_range(path, "the width of all heads", (uint64_t)c->n_head * c->head_dim, 1,
                       BN_MAX_WIDTH, err));
    if (c->n_head % c->n_head_kv)
        return bn_fail(err, BITNET_E_FORMAT, "'%s': %u heads cannot share %u KV heads evenly", path,
                       c->n_head, c->n_head_kv);
    if (c->rope_dim < 2 || c->rope_dim > c->head_dim || c->rope_dim % 2)
        return bn_fail(err, BITNET_E_FORMAT, "'%s': %u rotated dimensions do not fit heads of %u",
                       path, c->rope_dim, c->head_dim);
    if (c->delta.n_v_heads) BN_TRY(check_delta(&c->delta, path, err));
    if (!(c->eps > 0 && c->eps < 1))
        return bn_fail(err, BITNET_E_FORMAT, "'%s': the norm's epsilon is %g", path,
                       (double)c->eps);
    if (!(c->rope_theta >= 1 && c->rope_theta < 1e12f))
        return bn_fail(err, BITNET_E_FORMAT, "'%s': the rotation base is %g", path,
                       (double)c->rope_theta);
    if (c->rope_scaling != BN_RS_NONE && !(c->rope_factor >= 1 && c->rope_factor < 1e6f))
        return bn_fail(err, BITNET_E_FORMAT, "'%s': the rotation scaling factor is %g", path,
                       (double)c->rope_factor);
    return check_positions(c, path, err);
}

/* ------------------------------------------------------------------ names and shapes */

/* The dimensions of a part, as a rule over the configuration. */
enum dim {
    D_ONE,
    D_EMBD,
    D_FF,
    D_HEADS,
    D_Q_ROWS, /* with the gates */
    D_KV,
    D_HEAD,
    D_VOCAB,
    D_ROPE_HALF,
    D_CONV,
    D_VALUES,
    D_V_HEADS,
    D_V_HEAD,
    D_TAPS,
    D_TWO_EMBD
};

static const struct {
    const char *gguf, *hf, *other; /* %u: the layer; other: a second spelling, of either kind */
    enum dim rows, cols;
} parts[BN_P_COUNT] = {
    [BN_P_EMBED] = {"token_embd.weight", "model.embed_tokens.weight", NULL, D_VOCAB, D_EMBD},
    [BN_P_HEAD] = {"output.weight", "lm_head.weight", NULL, D_VOCAB, D_EMBD},
    [BN_P_OUT_NORM] = {"output_norm.weight", "model.norm.weight", NULL, D_ONE, D_EMBD},
    [BN_P_ROPE_FREQS] = {"rope_freqs.weight", NULL, NULL, D_ONE, D_ROPE_HALF},
    [BN_P_ATTN_NORM] = {"blk.%u.attn_norm.weight", "model.layers.%u.input_layernorm.weight", NULL,
                        D_ONE, D_EMBD},
    [BN_P_FFN_NORM] = {"blk.%u.ffn_norm.weight", "model.layers.%u.post_attention_layernorm.weight",
                       NULL, D_ONE, D_EMBD},
    [BN_P_POST_NORM] = {"blk.%u.post_attention_norm.weight",
                        "model.layers.%u.post_attention_layernorm.weight", NULL, D_ONE, D_EMBD},
    [BN_P_ATTN_SUB_NORM] = {"blk.%u.attn_sub_norm.weight",
                            "model.layers.%u.self_attn.attn_sub_norm.weight",
                            "model.layers.%u.self_attn.inner_attn_ln.weight", D_ONE, D_HEADS},
    [BN_P_FFN_SUB_NORM] = {"blk.%u.ffn_sub_norm.weight", "model.layers.%u.mlp.ffn_sub_norm.weight",
                           "model.layers.%u.mlp.ffn_layernorm.weight", D_ONE, D_FF},
    [BN_P_Q_NORM] = {"blk.%u.attn_q_norm.weight", "model.layers.%u.self_attn.q_norm.weight", NULL,
                     D_ONE, D_HEAD},
    [BN_P_K_NORM] = {"blk.%u.attn_k_norm.weight", "model.layers.%u.self_attn.k_norm.weight", NULL,
                     D_ONE, D_HEAD},
#define DELTA "model.layers.%u.linear_attn."
    [BN_P_DELTA_CONV] = {"blk.%u.ssm_conv1d.weight", DELTA "conv1d.weight", NULL, D_CONV, D_TAPS},
    [BN_P_DELTA_DT] = {"blk.%u.ssm_dt.bias", DELTA "dt_bias", NULL, D_ONE, D_V_HEADS},
    [BN_P_DELTA_A] = {"blk.%u.ssm_a", DELTA "A_log", NULL, D_ONE, D_V_HEADS},
    [BN_P_DELTA_NORM] = {"blk.%u.ssm_norm.weight", DELTA "norm.weight", NULL, D_ONE, D_V_HEAD},
    [BN_P_DELTA_QKV] = {"blk.%u.attn_qkv.weight", DELTA "in_proj_qkv.weight", NULL, D_CONV, D_EMBD},
    [BN_P_DELTA_Z] = {"blk.%u.attn_gate.weight", DELTA "in_proj_z.weight", NULL, D_VALUES, D_EMBD},
    [BN_P_DELTA_ALPHA] = {"blk.%u.ssm_alpha.weight", DELTA "in_proj_a.weight", NULL, D_V_HEADS,
                          D_EMBD},
    [BN_P_DELTA_BETA] = {"blk.%u.ssm_beta.weight", DELTA "in_proj_b.weight", NULL, D_V_HEADS,
                         D_EMBD},
    [BN_P_DELTA_OUT] = {"blk.%u.ssm_out.weight", DELTA "out_proj.weight", NULL, D_EMBD, D_VALUES},
#undef DELTA
    [BN_P_MTP_EMBED_NORM] = {"blk.%u.nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight", NULL,
                             D_ONE, D_EMBD},
    [BN_P_MTP_HIDDEN_NORM] = {"blk.%u.nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight", NULL,
                              D_ONE, D_EMBD},
    [BN_P_MTP_OUT_NORM] = {"blk.%u.nextn.shared_head_norm.weight", "mtp.norm.weight", NULL, D_ONE,
                           D_EMBD},
    [BN_P_MTP_IN] = {"blk.%u.nextn.eh_proj.weight", "mtp.fc.weight", NULL, D_EMBD, D_TWO_EMBD},
    [BN_P_Q] = {"blk.%u.attn_q.weight", "model.layers.%u.self_attn.q_proj.weight", NULL, D_Q_ROWS,
                D_EMBD},
    [BN_P_K] = {"blk.%u.attn_k.weight", "model.layers.%u.self_attn.k_proj.weight", NULL, D_KV,
                D_EMBD},
    [BN_P_V] = {"blk.%u.attn_v.weight", "model.layers.%u.self_attn.v_proj.weight", NULL, D_KV,
                D_EMBD},
    [BN_P_O] = {"blk.%u.attn_output.weight", "model.layers.%u.self_attn.o_proj.weight", NULL,
                D_EMBD, D_HEADS},
    [BN_P_GATE] = {"blk.%u.ffn_gate.weight", "model.layers.%u.mlp.gate_proj.weight", NULL, D_FF,
                   D_EMBD},
    [BN_P_UP] = {"blk.%u.ffn_up.weight", "model.layers.%u.mlp.up_proj.weight", NULL, D_FF, D_EMBD},
    [BN_P_DOWN] = {"blk.%u.ffn_down.weight", "model.layers.%u.mlp.down_proj.weight", NULL, D_EMBD,
                   D_FF},
};

/* The formats above hold at most one %u and come from the table only. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static void format_name(char out[BN_MAX_NAME_BYTES], const char *format, uint32_t layer)
{
    static const char layers[] = "model.layers.%u.";
    if (layer & BN_LAYER_MTP && strncmp(format, layers, strlen(layers)) == 0)
        snprintf(out, BN_MAX_NAME_BYTES, "mtp.layers.0.%s", format + strlen(layers));
    else snprintf(out, BN_MAX_NAME_BYTES, format, layer & ~BN_LAYER_MTP);
}
#pragma GCC diagnostic pop

void bn_part_name(char *out, enum bn_part p, uint32_t layer, bool gguf)
{
    const char *format = gguf ? parts[p].gguf : parts[p].hf;
    format_name(out, format ? format : "", layer);
}

/* Checkpoints with a vision tower keep the language model one level deeper. */
static const struct bn_tensor *find_nested(const struct bn_source *s, const char *name)
{
    static const char outer[] = "model.", inner[] = "model.language_model.";
    char nested[BN_MAX_NAME_BYTES + sizeof inner];
    const struct bn_tensor *t = bn_source_tensor(s, name);
    if (t || s->is_gguf || strncmp(name, outer, strlen(outer)) != 0) return t;
    snprintf(nested, sizeof nested, "%s%s", inner, name + strlen(outer));
    return bn_source_tensor(s, nested);
}

const struct bn_tensor *bn_part_find(const struct bn_source *s, enum bn_part p, uint32_t layer)
{
    char name[BN_MAX_NAME_BYTES];
    const char *formats[2] = {s->is_gguf ? parts[p].gguf : parts[p].hf, parts[p].other};
    for (int i = 0; i < 2; i++) {
        if (!formats[i]) continue;
        format_name(name, formats[i], layer);
        const struct bn_tensor *t = find_nested(s, name);
        if (t) return t;
    }
    return NULL;
}

bitnet_status bn_part_missing(const struct bn_source *s, enum bn_part p, uint32_t layer,
                              bitnet_error *err)
{
    char name[BN_MAX_NAME_BYTES];
    bn_part_name(name, p, layer, s->is_gguf);
    return bn_fail(err, BITNET_E_FORMAT, "'%s': tensor '%s' is missing", s->path, name);
}

/* A tensor named after a projection: its name without ".weight", and `suffix` behind it. */
static const struct bn_tensor *find_beside(const struct bn_source *s, enum bn_part p,
                                           uint32_t layer, const char *suffix)
{
    char name[BN_MAX_NAME_BYTES];
    bn_part_name(name, p, layer, s->is_gguf);
    size_t stem = strlen(name) - strlen(".weight");
    snprintf(name + stem, sizeof name - stem, "%s", suffix);
    return find_nested(s, name);
}

const struct bn_tensor *bn_part_in_norm(const struct bn_source *s, enum bn_part proj,
                                        uint32_t layer)
{
    return find_beside(s, proj, layer, s->is_gguf ? "_norm_in.weight" : ".rms_norm.weight");
}

const struct bn_tensor *bn_part_scale(const struct bn_source *s, enum bn_part proj, uint32_t layer)
{
    return find_beside(s, proj, layer, s->is_gguf ? ".scale" : ".weight_scale");
}

static uint64_t dim_value(const struct bn_config *c, enum dim d)
{
    switch (d) {
    case D_ONE: return 1;
    case D_EMBD: return c->n_embd;
    case D_FF: return c->n_ff;
    case D_HEADS: return (uint64_t)c->n_head * c->head_dim;
    case D_Q_ROWS: return (uint64_t)c->n_head * c->head_dim * (c->attn_gate ? 2 : 1);
    case D_KV: return (uint64_t)c->n_head_kv * c->head_dim;
    case D_HEAD: return c->head_dim;
    case D_VOCAB: return c->n_vocab;
    case D_ROPE_HALF: return c->rope_dim / 2;
    case D_CONV: return bn_delta_conv_width(&c->delta);
    case D_VALUES: return bn_delta_value_width(&c->delta);
    case D_V_HEADS: return c->delta.n_v_heads;
    case D_V_HEAD: return c->delta.v_dim;
    case D_TAPS: return c->delta.taps;
    case D_TWO_EMBD: return 2 * (uint64_t)c->n_embd;
    }
    return 0;
}

void bn_part_shape(const struct bn_config *c, enum bn_part p, uint64_t *rows, uint64_t *cols)
{
    *rows = dim_value(c, parts[p].rows);
    *cols = dim_value(c, parts[p].cols);
}

bool bn_part_in_layer(const struct bn_config *c, enum bn_part p, uint32_t layer)
{
    bool delta = bn_config_is_delta(c, layer), mtp = (layer & ~BN_LAYER_MTP) >= c->n_layer;
    switch (p) {
    case BN_P_ATTN_SUB_NORM:
    case BN_P_FFN_SUB_NORM: return c->sub_norms;
    case BN_P_Q_NORM:
    case BN_P_K_NORM: return c->qk_norm && !delta;
    case BN_P_Q:
    case BN_P_K:
    case BN_P_V:
    case BN_P_O: return !delta;
    case BN_P_DELTA_CONV:
    case BN_P_DELTA_DT:
    case BN_P_DELTA_A:
    case BN_P_DELTA_NORM:
    case BN_P_DELTA_QKV:
    case BN_P_DELTA_Z:
    case BN_P_DELTA_ALPHA:
    case BN_P_DELTA_BETA:
    case BN_P_DELTA_OUT: return delta;
    case BN_P_MTP_EMBED_NORM:
    case BN_P_MTP_HIDDEN_NORM:
    case BN_P_MTP_OUT_NORM:
    case BN_P_MTP_IN: return mtp;
    case BN_P_FFN_NORM: return !c->attn_gate;
    case BN_P_POST_NORM: return c->attn_gate;
    case BN_P_ATTN_NORM:
    case BN_P_GATE:
    case BN_P_UP:
    case BN_P_DOWN: return true;
    case BN_P_EMBED:
    case BN_P_HEAD:
    case BN_P_OUT_NORM:
    case BN_P_ROPE_FREQS:
    case BN_P_COUNT: break;
    }
    return false;
}

uint32_t bn_config_delta_before(const struct bn_config *c, uint32_t layer)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < layer; i++) n += bn_config_is_delta(c, i);
    return n;
}

uint32_t bn_config_attn_before(const struct bn_config *c, uint32_t layer)
{
    return layer - bn_config_delta_before(c, layer);
}

size_t bn_config_widest(const struct bn_config *c)
{
    size_t wide = bn_max_size(c->n_embd, c->n_ff);
    wide = bn_max_size(wide, (size_t)c->n_head * c->head_dim);
    wide = bn_max_size(wide, bn_delta_value_width(&c->delta));
    return c->n_mtp ? bn_max_size(wide, 2 * (size_t)c->n_embd) : wide;
}

/* ------------------------------------------------------------------ how a part is stored */

static bitnet_status read_scale(float *out, const struct bn_tensor *t, bitnet_error *err)
{
    struct bn_stored st = bn_tensor_stored(t);
    if (st.rows * st.cols != 1 || (t->type != BN_F32 && t->type != BN_F16 && t->type != BN_BF16))
        return bn_fail(err, BITNET_E_FORMAT,
                       "tensor '%s' should hold one float; it holds %llu of type %s", t->name,
                       (unsigned long long)(st.rows * st.cols), bn_type_info(t->type)->name);
    bn_dequant_row(out, &st, 0);
    if (!isfinite(*out) || *out <= 0)
        return bn_fail(err, BITNET_E_FORMAT, "tensor '%s' holds %g, which is no usable scale",
                       t->name, (double)*out);
    return BITNET_OK;
}

bitnet_status bn_part_stored(struct bn_stored *out, bool *online, const struct bn_source *s,
                             const struct bn_config *c, enum bn_part p, uint32_t layer,
                             bitnet_error *err)
{
    *online = false;
    uint64_t rows, cols;
    bn_part_shape(c, p, &rows, &cols);
    const struct bn_tensor *t = bn_part_find(s, p, layer);
    if (!t) return bn_part_missing(s, p, layer, err);
    if (t->packed) return bn_tensor_fail_packed(s, t, err);
    *out = bn_tensor_stored(t);
    bool projection = bn_part_is_projection(p);
    const struct bn_tensor *scale = projection ? bn_part_scale(s, p, layer) : NULL;
    if (projection && t->type == BN_U8) { /* Hugging Face packing: four row quarters in a byte */
        if (c->hf != BN_HF_SCALE_MUL && c->hf != BN_HF_SCALE_DIV)
            return bn_fail(err, BITNET_E_FORMAT,
                           "tensor '%s' is packed, but config.json has no quantization_config of "
                           "method 'bitnet'",
                           t->name);
        if (out->cols != cols || out->rows != bn_div_up(rows, 4))
            return bn_fail(err, BITNET_E_FORMAT,
                           "tensor '%s' is %llu x %llu; packed %llu x %llu was expected", t->name,
                           (unsigned long long)out->rows, (unsigned long long)out->cols,
                           (unsigned long long)bn_div_up(rows, 4), (unsigned long long)cols);
        if (!scale)
            return bn_fail(err, BITNET_E_FORMAT, "tensor '%s' has no weight_scale beside it",
                           t->name);
        float v;
        BN_TRY(read_scale(&v, scale, err));
        out->type = BN_HF_U8;
        out->rows = rows;
        out->hf_scale = c->hf == BN_HF_SCALE_MUL ? v : 1.0f / v;
        return BITNET_OK;
    }
    if (out->rows != rows || out->cols != cols)
        return bn_fail(err, BITNET_E_FORMAT, "tensor '%s' is %llu x %llu; %llu x %llu was expected",
                       t->name, (unsigned long long)out->rows, (unsigned long long)out->cols,
                       (unsigned long long)rows, (unsigned long long)cols);
    const struct bn_type_info *type = bn_type_info(t->type);
    bool dense = t->type <= BN_Q4_K;
    bool table = p == BN_P_EMBED || p == BN_P_HEAD; /* Bonsai stores these in one bit, too */
    if (!dense && !(type->ternary && (projection || table)))
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "tensor '%s' has type %s, which cannot be used there", t->name, type->name);
    if (scale)
        BN_TRY(read_scale(&out->hf_scale, scale,
                          err)); /* a factor beside the matrix (some GGUF files) */
    *online = projection && dense && c->hf == BN_HF_ONLINE;
    return BITNET_OK;
}
