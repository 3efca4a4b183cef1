/* SPDX-License-Identifier: Apache-2.0
 * A configuration as config.json, as the reader beside this file understands it. */
#include "model/config/config_hf_impl.h"

static bitnet_status no_words(const char *what, bitnet_error *err)
{
    return bn_fail(err, BITNET_E_UNSUPPORTED,
                   "config.json has no words for %s: let the output end in .gguf", what);
}

bitnet_status bn_config_check_hf(const struct bn_config *c, bitnet_error *err)
{
    if (c->delta.n_v_heads)
        return no_words("this hybrid as its GGUF has it (norms and decays are stored in a form "
                        "that cannot be turned back to the last bit)",
                        err);
    if (c->in_norms) return no_words("norms in front of each projection as a GGUF has them", err);
    if (c->hadamard.block) return no_words("rotated inputs of matrices", err);
    if (c->rope_dim != c->head_dim) return no_words("heads that are rotated in part", err);
    if (c->ffn_norm_width)
        return no_words("the width of the feed-forward norm; or scale the norm (--portable)", err);
    return BITNET_OK;
}

struct bn_config bn_config_as_hf(const struct bn_config *c)
{
    struct bn_config to = *c;
    to.qk_pairs = to.v_tiled = false;
    return to;
}

/* Rotation that is stretched. */
static struct bn_json *scaling(const struct bn_config *c)
{
    struct bn_json *o;
    if (c->rope_scaling != BN_RS_LINEAR && c->rope_scaling != BN_RS_YARN) return bn_json_null();
    o = bn_json_object();
    bn_json_set(o, "rope_type",
                bn_json_string(c->rope_scaling == BN_RS_LINEAR ? "linear" : "yarn"));
    bn_json_set(o, "factor", bn_json_real((double)c->rope_factor));
    if (c->rope_scaling == BN_RS_LINEAR) return o;
    bn_json_set(o, "original_max_position_embeddings", bn_json_int(c->rope_orig_ctx));
    bn_json_set(o, "beta_fast", bn_json_real((double)c->rope_beta_fast));
    bn_json_set(o, "beta_slow", bn_json_real((double)c->rope_beta_slow));
    bn_json_set(o, "truncate", bn_json_bool(c->rope_whole_dims));
    bn_json_set(o, "attention_factor", bn_json_real((double)c->rope_attn));
    return o;
}

struct bn_json *bn_config_hf_packing(void)
{
    return bn_json_pack("{s: s, s: s, s: s, s: [s]}", "quant_method", "bitnet", "linear_class",
                        "autobitlinear", "quantization_mode", "offline", "modules_to_not_convert",
                        "lm_head");
}

struct bn_json *bn_config_hf_json(const struct bn_config *c)
{
    const char *arch = c->sub_norms                    ? "BitNetForCausalLM"
                       : strcmp(c->arch, "qwen3") == 0 ? "Qwen3ForCausalLM"
                                                       : "LlamaForCausalLM";
    const char *type = c->sub_norms ? "bitnet" : strcmp(c->arch, "qwen3") == 0 ? "qwen3" : "llama";
    const struct {
        const char *key;
        uint32_t v;
    } numbers[] = {{"vocab_size", c->n_vocab},         {"hidden_size", c->n_embd},
                   {"intermediate_size", c->n_ff},     {"num_hidden_layers", c->n_layer},
                   {"num_attention_heads", c->n_head}, {"num_key_value_heads", c->n_head_kv},
                   {"head_dim", c->head_dim},          {"max_position_embeddings", c->n_ctx}};
    struct bn_json *o = bn_json_object(), *list = bn_json_array();
    bn_json_append(list, bn_json_string(arch));
    bn_json_set(o, "architectures", list);
    bn_json_set(o, "model_type", bn_json_string(type));
    for (size_t i = 0; i < BN_ARRAY_LEN(numbers); i++)
        bn_json_set(o, numbers[i].key, bn_json_int(numbers[i].v));
    bn_json_set(o, "hidden_act", bn_json_string(c->act == BN_ACT_RELU2 ? "relu2" : "silu"));
    bn_json_set(o, "rms_norm_eps", bn_json_real((double)c->eps));
    bn_json_set(o, "rope_theta", bn_json_real((double)c->rope_theta));
    bn_json_set(o, "rope_scaling", scaling(c));
    bn_json_set(o, "tie_word_embeddings", bn_json_bool(c->tied_head));
    bn_json_set(o, "attention_bias", bn_json_bool(false));
    bn_json_set(o, "torch_dtype", bn_json_string("float32"));
    return o;
}
