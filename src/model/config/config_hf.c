/* SPDX-License-Identifier: Apache-2.0
 * Configuration from a Hugging Face config.json, and the scale convention from its
 * quantization_config: `autobitlinear` multiplies by weight_scale, `bitlinear` (the default)
 * divides by it. */
#include "model/config/config_hf_impl.h"

#include "base/buf.h"
#include "model/config/config_sampling.h"
#include <stdio.h>
#include <stdlib.h>

enum { MAX_CONFIG_BYTES = 1 << 20 };

static bitnet_status read_quantization(struct bn_config *c, const struct bn_json *j,
                                       bool one_bit_llm, const char *path, bitnet_error *err)
{
    const struct bn_json *q = bn_json_get(j, "quantization_config");
    if (!bn_json_is_object(q)) {
        /* 1bitLLM trains with quantisation and publishes the master weights; anything else without
         * a quantization_config may hold values that are ternary already (TriLM) */
        c->hf = one_bit_llm ? BN_HF_ONLINE : BN_HF_TERNARY_VALUES;
        c->act_quant = one_bit_llm ? BN_AQ_INT8 : BN_AQ_F32;
        return BITNET_OK;
    }
    const char *method = "", *linear = "bitlinear", *mode = "offline";
    bool in_norms = false;
    BN_TRY(bn_json_read_str(&method, q, "quant_method", path, err));
    BN_TRY(bn_json_read_str(&linear, q, "linear_class", path, err));
    BN_TRY(bn_json_read_str(&mode, q, "quantization_mode", path, err));
    BN_TRY(bn_json_read_bool(&in_norms, q, "use_rms_norm", path, err));
    if (strcmp(method, "bitnet") != 0)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "%s: quant_method '%s' is not supported (bitnet is)", path, method);
    bool online = strcmp(mode, "online") == 0;
    if (!online && strcmp(mode, "offline") != 0)
        return bn_fail(err, BITNET_E_UNSUPPORTED, "%s: quantization_mode '%s' is not supported",
                       path, mode);
    if (strcmp(linear, "autobitlinear") == 0) c->hf = online ? BN_HF_ONLINE : BN_HF_SCALE_MUL;
    else if (strcmp(linear, "bitlinear") == 0) c->hf = online ? BN_HF_ONLINE : BN_HF_SCALE_DIV;
    else
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "%s: linear_class '%s' is not supported (bitlinear, autobitlinear are)",
                       path, linear);
    c->act_quant = BN_AQ_INT8;
    c->in_norms = in_norms;
    c->in_norm_eps = 1e-6f;
    return bn_json_read_f32(&c->in_norm_eps, q, "rms_norm_eps", path, err);
}

static bitnet_status read_family(struct bn_config *c, const struct bn_json *j, bool *one_bit_llm,
                                 const char *path, bitnet_error *err)
{
    const struct bn_json *list = bn_json_get(j, "architectures");
    const char *arch = bn_json_text(bn_json_at(list, 0)), *act = NULL, *model_type = "";
    BN_TRY(bn_json_read_str(&model_type, j, "model_type", path, err));
    if (!arch) arch = model_type;
    *one_bit_llm = strcmp(arch, "BitnetForCausalLM") == 0;
    bool bitnet =
        *one_bit_llm || strcmp(arch, "BitNetForCausalLM") == 0 || strcmp(arch, "bitnet") == 0;
    bool llama = strcmp(arch, "LlamaForCausalLM") == 0 || strcmp(arch, "llama") == 0;
    bool qwen3 = strcmp(arch, "Qwen3ForCausalLM") == 0 || strcmp(arch, "qwen3") == 0;
    bool qwen35 = strcmp(arch, "Qwen3_5ForCausalLM") == 0 ||
                  strcmp(arch, "Qwen3_5ForConditionalGeneration") == 0 ||
                  strcmp(arch, "qwen3_5") == 0 || strcmp(arch, "qwen3_5_text") == 0;
    if (!bitnet && !llama && !qwen3 && !qwen35)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "%s: architecture '%s' is not supported (BitNetForCausalLM, "
                       "LlamaForCausalLM, Qwen3ForCausalLM, Qwen3_5ForCausalLM are)",
                       path, arch);
    BN_TRY(bn_json_read_str(&act, j, "hidden_act", path, err));
    if (!act) act = bitnet && !*one_bit_llm ? "relu2" : "silu"; /* transformers' defaults */
    if (strcmp(act, "relu2") == 0) c->act = BN_ACT_RELU2;
    else if (strcmp(act, "silu") == 0) c->act = BN_ACT_SILU;
    else
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "%s: hidden_act '%s' is not supported (relu2 and silu are)", path, act);
    c->sub_norms = bitnet;
    c->qk_norm = qwen3 || qwen35;
    c->attn_gate = c->norm_plus_one = qwen35;
    /* the GGUF name whose implied activation is the right one */
    snprintf(c->arch, sizeof c->arch, "%s",
             bitnet  ? c->act == BN_ACT_RELU2 ? "bitnet-b1.58" : "bitnet"
             : llama ? "llama"
             : qwen3 ? "qwen3"
                     : "qwen35");
    return BITNET_OK;
}

/* Which layers have a delta net. */
static bitnet_status read_layer_kinds(struct bn_config *c, const struct bn_json *j,
                                      const char *path, bitnet_error *err)
{
    const struct bn_json *kinds = bn_json_get(j, "layer_types");
    uint32_t interval = BN_ATTN_INTERVAL;
    BN_TRY(bn_json_read_u32(&interval, j, "full_attention_interval", path, err));
    for (uint32_t i = 0; i < c->n_layer && i < BN_MAX_LAYERS; i++) {
        const char *kind = bn_json_text(bn_json_at(kinds, i));
        bool delta = interval && (i + 1) % interval;
        if (kinds) {
            delta = kind && strcmp(kind, "linear_attention") == 0;
            if (!delta && (!kind || strcmp(kind, "full_attention") != 0))
                return bn_fail(err, BITNET_E_UNSUPPORTED,
                               "%s: layer %u is of type '%s'; linear_attention and full_attention "
                               "are supported",
                               path, i, kind ? kind : "");
        }
        if (delta) bn_config_set_delta(c, i);
    }
    return BITNET_OK;
}

static bitnet_status read_hybrid(struct bn_config *c, const struct bn_json *j, const char *path,
                                 bitnet_error *err)
{
    c->delta = (struct bn_delta_shape){16, 32, 128, 128, 4}; /* transformers' defaults */
    BN_TRY(bn_json_read_u32(&c->delta.n_k_heads, j, "linear_num_key_heads", path, err));
    BN_TRY(bn_json_read_u32(&c->delta.n_v_heads, j, "linear_num_value_heads", path, err));
    BN_TRY(bn_json_read_u32(&c->delta.k_dim, j, "linear_key_head_dim", path, err));
    BN_TRY(bn_json_read_u32(&c->delta.v_dim, j, "linear_value_head_dim", path, err));
    BN_TRY(bn_json_read_u32(&c->delta.taps, j, "linear_conv_kernel_dim", path, err));
    BN_TRY(bn_json_read_u32(&c->n_mtp, j, "mtp_num_hidden_layers", path, err));
    if (c->delta.n_v_heads == 0)
        return bn_fail(err, BITNET_E_FORMAT, "%s: linear_num_value_heads is 0", path);
    return read_layer_kinds(c, j, path, err);
}

static bitnet_status refuse_biases(const struct bn_json *j, const char *path, bitnet_error *err)
{
    bool attention = false, mlp = false;
    BN_TRY(bn_json_read_bool(&attention, j, "attention_bias", path, err));
    BN_TRY(bn_json_read_bool(&mlp, j, "mlp_bias", path, err));
    if (attention || mlp)
        return bn_fail(err, BITNET_E_UNSUPPORTED, "%s: linear layers with biases are not supported",
                       path);
    return BITNET_OK;
}

static bitnet_status read_config(struct bn_config *c, const struct bn_json *j, const char *path,
                                 bitnet_error *err)
{
    bool one_bit_llm, tied = false;
    if (!bn_json_is_object(j)) return bn_fail(err, BITNET_E_FORMAT, "%s: not a JSON object", path);
    BN_TRY(read_family(c, j, &one_bit_llm, path, err));
    BN_TRY(refuse_biases(j, path, err));
    BN_TRY(bn_json_read_u32(&c->n_embd, j, "hidden_size", path, err));
    BN_TRY(bn_json_read_u32(&c->n_ff, j, "intermediate_size", path, err));
    BN_TRY(bn_json_read_u32(&c->n_layer, j, "num_hidden_layers", path, err));
    BN_TRY(bn_json_read_u32(&c->n_head, j, "num_attention_heads", path, err));
    BN_TRY(bn_json_read_u32(&c->n_vocab, j, "vocab_size", path, err));
    c->n_head_kv = c->n_head;
    BN_TRY(bn_json_read_u32(&c->n_head_kv, j, "num_key_value_heads", path, err));
    c->head_dim = c->n_head ? c->n_embd / c->n_head : 0;
    BN_TRY(bn_json_read_u32(&c->head_dim, j, "head_dim", path, err));
    c->rope_dim = c->head_dim;
    c->n_ctx = 2048;
    BN_TRY(bn_json_read_u32(&c->n_ctx, j, "max_position_embeddings", path, err));
    c->eps = 1e-6f;
    BN_TRY(bn_json_read_f32(&c->eps, j, "rms_norm_eps", path, err));
    BN_TRY(bn_json_read_bool(&tied, j, "tie_word_embeddings", path, err));
    c->tied_head = tied;
    BN_TRY(bn_config_hf_rope(c, j, path, err));
    if (c->attn_gate) BN_TRY(read_hybrid(c, j, path, err));
    return read_quantization(c, j, one_bit_llm, path, err);
}

bitnet_status bn_config_from_hf(struct bn_config *c, const struct bn_source *s, struct bn_buf *note,
                                bitnet_error *err)
{
    struct bn_buf path;
    bn_buf_init(&path, 1 << 16);
    bn_buf_printf(&path, "%s/config.json", s->folder);
    struct bn_json *j = NULL;
    bitnet_status st = path.failed ? bn_fail_nomem(err, strlen(s->folder), "a path")
                                   : bn_json_read_file(&j, path.data, MAX_CONFIG_BYTES, err);
    const struct bn_json *text = bn_json_get(j, "text_config"); /* beside a vision tower's */
    bool nested = bn_json_is_object(text), tied = false;
    if (st == BITNET_OK) st = read_config(c, nested ? text : j, path.data, err);
    if (st == BITNET_OK && nested && bn_json_get(j, "tie_word_embeddings")) {
        st = bn_json_read_bool(&tied, j, "tie_word_embeddings", path.data, err);
        c->tied_head = tied;
    }
    bn_json_free(j);
    bn_buf_free(&path);
    if (st != BITNET_OK) return st;
    /* a tied head that is stored all the same is not read, as in transformers */
    if (!c->tied_head && !bn_part_find(s, BN_P_HEAD, 0))
        return bn_fail(err, BITNET_E_FORMAT,
                       "'%s': tensor 'lm_head.weight' is missing and the head is not tied",
                       s->path);
    if (c->n_mtp && !bn_part_find(s, BN_P_MTP_IN, bn_config_named_layer(c, c->n_layer)))
        c->n_mtp = 0; /* announced, and left out of the files */
    bool aside = false;
    for (size_t i = 0; i < s->n_tensors; i++) aside |= bn_source_is_aside(s, s->tensors[i].name);
    if (aside) bn_buf_puts(note, "The vision tower of this checkpoint is left aside: text only. ");
    BN_TRY(bn_config_sampling_from_hf(c, s->folder, note, err));
    if (c->hf == BN_HF_ONLINE)
        bn_buf_puts(
            note,
            "These are master weights, quantised while loading; a packed release of the same model "
            "may differ from them in a few per cent of its weights. ");
    const char *slash = strrchr(s->folder, '/');
    snprintf(c->name, sizeof c->name, "%s", slash && slash[1] ? slash + 1 : s->folder);
    return BITNET_OK;
}
