/* SPDX-License-Identifier: Apache-2.0
 * Configuration from and to GGUF metadata. Each architecture is one line of the table: what its
 * name implies. */
#include "model/config/config.h"

#include "model/config/config_sampling.h"
#include "model/files/gguf_write.h"
#include "model/config/hadamard.h"
#include "model/config/rope.h"
#include <ctype.h>
#include <stdio.h>

#define NORM_WIDTH_KEY "bitnet.ffn_norm_width"
#define TRUNCATE_KEY   "bitnet.yarn_truncate" /* as in config.json; GGUF has no word for it */

static const struct family {
    const char *arch;
    enum bn_act act;
    bool qk_pairs, sub_norms, qk_norm, hybrid;
} families[] = {
    {"bitnet-b1.58", BN_ACT_RELU2, false, true, false, false}, /* Microsoft 2B-4T */
    {"bitnet-25", BN_ACT_RELU2, false, true, false, false},    /* its first upload */
    {"bitnet", BN_ACT_SILU, false, true, false, false},        /* 1bitLLM */
    {"llama", BN_ACT_SILU, true, false, false, false},         /* Llama3-1.58, Falcon, TriLM */
    {"qwen3", BN_ACT_SILU, false, false, true, false},         /* Bonsai, BitNet embeddings */
    {"qwen35", BN_ACT_SILU, false, false, true, true},         /* Bonsai 27B */
};

static void copy_text(char *out, size_t room, const char *s, size_t n)
{
    n = bn_min_size(n, room - 1);
    memcpy(out, s, n);
    out[n] = 0;
}

/* Members of the architecture's own: "<arch>.<key>". */
struct key {
    char text[96];
};
static struct key full_key(const struct bn_config *c, const char *key)
{
    struct key k;
    snprintf(k.text, sizeof k.text, "%s.%s", c->arch, key);
    return k;
}

static bitnet_status need_u32(uint32_t *out, const struct bn_source *s, const struct bn_config *c,
                              const char *key, bitnet_error *err)
{
    struct key k = full_key(c, key);
    if (bn_meta_u32(s, k.text, out)) return BITNET_OK;
    return bn_fail(err, BITNET_E_FORMAT, "'%s': metadata '%s' is missing or no whole number",
                   s->path, k.text);
}

/* Optional ones: absent leaves *out as it was. One of a wrong kind is an error: passing over it
 * would compute something else than the file means. */
static bitnet_status get_u32(uint32_t *out, const struct bn_source *s, const struct bn_config *c,
                             const char *key, bitnet_error *err)
{
    struct key k = full_key(c, key);
    if (!bn_meta_find(s, k.text) || bn_meta_u32(s, k.text, out)) return BITNET_OK;
    return bn_fail(err, BITNET_E_FORMAT, "'%s': metadata '%s' is no whole number from 0 to 2^32-1",
                   s->path, k.text);
}

static bitnet_status get_f32(float *out, const struct bn_source *s, const struct bn_config *c,
                             const char *key, bitnet_error *err)
{
    struct key k = full_key(c, key);
    if (!bn_meta_find(s, k.text) || bn_meta_f32(s, k.text, out)) return BITNET_OK;
    return bn_fail(err, BITNET_E_FORMAT, "'%s': metadata '%s' is no float", s->path, k.text);
}

static bitnet_status get_str(char *out, size_t room, const struct bn_source *s,
                             const struct bn_config *c, const char *key, bitnet_error *err)
{
    const char *text;
    size_t n;
    struct key k = full_key(c, key);
    if (!bn_meta_find(s, k.text)) return BITNET_OK;
    if (!bn_meta_str(s, k.text, &text, &n))
        return bn_fail(err, BITNET_E_FORMAT, "'%s': metadata '%s' is no string", s->path, k.text);
    copy_text(out, room, text, n);
    return BITNET_OK;
}

static bool contains_nocase(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (; *text; text++) {
        size_t i = 0;
        while (i < n && tolower((unsigned char)text[i]) == word[i]) i++;
        if (i == n) return true;
    }
    return false;
}

/* What multiplies cosines and sines is written in two ways. yarn_attn_factor is all of it: converters
 * put Hugging Face's attention_factor there. attn_factor is what llama.cpp multiplies the usual
 * factor by. Where llama.cpp itself saved a model, numbers that were not given are there, too:
 * yarn_ext_factor -1 and yarn_attn_factor 1. */
static bitnet_status read_yarn(struct bn_config *c, const struct bn_source *s, bitnet_error *err)
{
    float ext = -1, attn = 1, whole = 0, log_mul = 0;
    c->rope_scaling = BN_RS_YARN;
    c->rope_orig_ctx = c->n_ctx;
    c->rope_beta_fast = 32;
    c->rope_beta_slow = 1;
    c->rope_whole_dims = true;
    BN_TRY(get_u32(&c->rope_orig_ctx, s, c, "rope.scaling.original_context_length", err));
    BN_TRY(get_f32(&c->rope_beta_fast, s, c, "rope.scaling.yarn_beta_fast", err));
    BN_TRY(get_f32(&c->rope_beta_slow, s, c, "rope.scaling.yarn_beta_slow", err));
    BN_TRY(get_f32(&ext, s, c, "rope.scaling.yarn_ext_factor", err));
    BN_TRY(get_f32(&whole, s, c, "rope.scaling.yarn_attn_factor", err));
    BN_TRY(get_f32(&attn, s, c, "rope.scaling.attn_factor", err));
    BN_TRY(get_f32(&log_mul, s, c, "rope.scaling.yarn_log_multiplier", err));
    struct key ext_key = full_key(c, "rope.scaling.yarn_ext_factor");
    if (ext >= 0 && ext != 1)
        return bn_fail(err, BITNET_E_UNSUPPORTED, "'%s': metadata '%s' is %g; only 1 is supported",
                       s->path, ext_key.text, (double)ext);
    bool saved_unset = ext < 0 && bn_meta_find(s, ext_key.text);
    c->rope_attn = bn_rope_mscale(c->rope_factor, 1) * attn;
    if (log_mul != 0) c->rope_attn /= bn_rope_mscale(c->rope_factor, log_mul);
    if (whole != 0 && !saved_unset) c->rope_attn = whole;
    if (bn_meta_find(s, TRUNCATE_KEY) && !bn_meta_bool(s, TRUNCATE_KEY, &c->rope_whole_dims))
        return bn_fail(err, BITNET_E_FORMAT, "'%s': metadata '%s' is not true or false", s->path,
                       TRUNCATE_KEY);
    return BITNET_OK;
}

/* A factor without a type, and its older name, mean linear scaling. */
static bitnet_status read_rope_scaling(struct bn_config *c, const struct bn_source *s,
                                       bitnet_error *err)
{
    char type[32] = "linear";
    c->rope_factor = 1;
    BN_TRY(get_str(type, sizeof type, s, c, "rope.scaling.type", err));
    BN_TRY(get_f32(&c->rope_factor, s, c, "rope.scale_linear", err));
    BN_TRY(get_f32(&c->rope_factor, s, c, "rope.scaling.factor", err));
    if (strcmp(type, "yarn") == 0) return read_yarn(c, s, err);
    if (strcmp(type, "linear") == 0 && c->rope_factor != 1) c->rope_scaling = BN_RS_LINEAR;
    if (strcmp(type, "linear") == 0 || strcmp(type, "none") == 0) return BITNET_OK;
    return bn_fail(err, BITNET_E_UNSUPPORTED,
                   "'%s': rotation scaling '%s' is not supported (linear and yarn are)", s->path,
                   type);
}

static bitnet_status read_rope_sections(struct bn_config *c, const struct bn_source *s,
                                        bitnet_error *err)
{
    struct key k = full_key(c, "rope.dimension_sections");
    size_t n;
    if (!bn_meta_find(s, k.text) ||
        bn_meta_u32s(s, k.text, c->rope_sections, BN_ARRAY_LEN(c->rope_sections), &n))
        return BITNET_OK;
    return bn_fail(err, BITNET_E_FORMAT, "'%s': metadata '%s' is not an array of at most 4 numbers",
                   s->path, k.text);
}

/* Which layers have a delta net: said one by one, or all but every n-th. */
static bitnet_status read_layer_kinds(struct bn_config *c, const struct bn_source *s,
                                      bitnet_error *err)
{
    struct key k = full_key(c, "attention.recurrent_layers");
    const struct bn_meta *list = bn_meta_find(s, k.text);
    uint32_t interval = BN_ATTN_INTERVAL;
    BN_TRY(get_u32(&interval, s, c, "full_attention_interval", err));
    for (uint32_t i = 0; i < c->n_layer; i++) {
        int64_t delta = interval && (i + 1) % interval;
        if (list && !bn_meta_int_at(list, i, &delta))
            return bn_fail(err, BITNET_E_FORMAT,
                           "'%s': metadata '%s' does not say what layer %u is", s->path, k.text, i);
        if (delta) bn_config_set_delta(c, i);
    }
    return BITNET_OK;
}

/* Qwen3.5: gated delta nets, gated attention, and perhaps a layer that drafts tokens, which counts
 * among the blocks. */
static bitnet_status read_hybrid(struct bn_config *c, const struct bn_source *s, bitnet_error *err)
{
    uint32_t inner, rank;
    c->attn_gate = true;
    c->v_tiled = true;
    BN_TRY(need_u32(&c->delta.taps, s, c, "ssm.conv_kernel", err));
    BN_TRY(need_u32(&c->delta.k_dim, s, c, "ssm.state_size", err));
    BN_TRY(need_u32(&c->delta.n_k_heads, s, c, "ssm.group_count", err));
    BN_TRY(need_u32(&rank, s, c, "ssm.time_step_rank", err));
    BN_TRY(need_u32(&inner, s, c, "ssm.inner_size", err));
    if (rank == 0 || inner % rank)
        return bn_fail(err, BITNET_E_FORMAT, "'%s': %u values cannot be cut into %u heads", s->path,
                       inner, rank);
    c->delta.n_v_heads = rank;
    c->delta.v_dim = inner / rank;
    BN_TRY(get_u32(&c->n_mtp, s, c, "nextn_predict_layers", err));
    if (c->n_mtp >= c->n_layer)
        return bn_fail(err, BITNET_E_FORMAT, "'%s': %u of %u layers draft tokens", s->path,
                       c->n_mtp, c->n_layer);
    c->n_layer -= c->n_mtp;
    if (c->n_layer > BN_MAX_LAYERS) return BITNET_OK; /* refused below */
    return read_layer_kinds(c, s, err);
}

static bool is_bonsai_type(enum bn_type t)
{
    return t == BN_Q1_0 || t == BN_Q2_0 || t == BN_Q2_0_128 || t == BN_PQ2_0 || t == BN_PTQ1_0 ||
           t == BN_TQ2_0_128;
}

/* Files of other engines do not say whether the model was trained with int8 activations. What is
 * known: files of Q1_0, Q2_0 and its relatives (Bonsai) and TriLM were not; every other ternary
 * model was. */
static enum bn_act_quant infer_act_quant(const struct bn_config *c, const struct bn_source *s)
{
    const char *text;
    size_t n;
    if (bn_meta_str(s, "bitnet.activations", &text, &n))
        return n == 3 && memcmp(text, "f32", 3) == 0 ? BN_AQ_F32 : BN_AQ_INT8;
    if (contains_nocase(c->name, "trilm") || contains_nocase(c->name, "bonsai")) return BN_AQ_F32;
    if (c->delta.n_v_heads) return BN_AQ_F32; /* no hybrid is known that was */
    const struct bn_tensor *q = bn_part_find(s, BN_P_Q, 0);
    if (q && is_bonsai_type(q->type)) return BN_AQ_F32;
    return BN_AQ_INT8;
}

bitnet_status bn_config_from_gguf(struct bn_config *c, const struct bn_source *s,
                                  struct bn_buf *note, bitnet_error *err)
{
    const char *text;
    size_t n;
    if (!bn_meta_str(s, "general.architecture", &text, &n))
        return bn_fail(err, BITNET_E_FORMAT, "'%s': metadata 'general.architecture' is missing",
                       s->path);
    copy_text(c->arch, sizeof c->arch, text, n);
    const struct family *f = NULL;
    for (size_t i = 0; i < BN_ARRAY_LEN(families); i++)
        if (strcmp(families[i].arch, c->arch) == 0) f = &families[i];
    if (!f)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "'%s': architecture '%s' is not supported (bitnet, bitnet-b1.58, bitnet-25, "
                       "llama, qwen3, qwen35 are)",
                       s->path, c->arch);
    c->act = f->act;
    c->qk_pairs = f->qk_pairs;
    c->sub_norms = f->sub_norms;
    c->qk_norm = f->qk_norm;
    if (bn_meta_str(s, "general.name", &text, &n)) copy_text(c->name, sizeof c->name, text, n);

    BN_TRY(need_u32(&c->n_embd, s, c, "embedding_length", err));
    BN_TRY(need_u32(&c->n_ff, s, c, "feed_forward_length", err));
    if (bn_meta_find(s, NORM_WIDTH_KEY) && !bn_meta_u32(s, NORM_WIDTH_KEY, &c->ffn_norm_width))
        return bn_fail(err, BITNET_E_FORMAT, "'%s': metadata '%s' is no whole number", s->path,
                       NORM_WIDTH_KEY);
    BN_TRY(need_u32(&c->n_layer, s, c, "block_count", err));
    BN_TRY(need_u32(&c->n_head, s, c, "attention.head_count", err));
    c->n_head_kv = c->n_head;
    BN_TRY(get_u32(&c->n_head_kv, s, c, "attention.head_count_kv", err));
    c->n_ctx = 2048;
    BN_TRY(get_u32(&c->n_ctx, s, c, "context_length", err));
    struct key eps = full_key(c, "attention.layer_norm_rms_epsilon");
    if (!bn_meta_f32(s, eps.text, &c->eps))
        return bn_fail(err, BITNET_E_FORMAT, "'%s': metadata '%s' is missing or no float", s->path,
                       eps.text);
    c->head_dim = c->n_head ? c->n_embd / c->n_head : 0;
    BN_TRY(get_u32(&c->head_dim, s, c, "attention.key_length", err));
    uint32_t value_dim = c->head_dim;
    BN_TRY(get_u32(&value_dim, s, c, "attention.value_length", err));
    if (value_dim != c->head_dim)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "'%s': keys of %u and values of %u dimensions are not supported", s->path,
                       c->head_dim, value_dim);
    c->rope_dim = c->head_dim;
    BN_TRY(get_u32(&c->rope_dim, s, c, "rope.dimension_count", err));
    c->rope_theta = 10000.0f;
    BN_TRY(get_f32(&c->rope_theta, s, c, "rope.freq_base", err));
    BN_TRY(read_rope_scaling(c, s, err));
    BN_TRY(read_rope_sections(c, s, err));

    if (f->hybrid) BN_TRY(read_hybrid(c, s, err));
    BN_TRY(bn_hadamard_read(&c->hadamard, s, err));

    char act[32] = "";
    BN_TRY(get_str(act, sizeof act, s, c, "hidden_activation", err));
    if (act[0]) {
        if (strcmp(act, "relu2") == 0 || strcmp(act, "relu_sqr") == 0) c->act = BN_ACT_RELU2;
        else if (strcmp(act, "silu") == 0) c->act = BN_ACT_SILU;
        else
            return bn_fail(err, BITNET_E_UNSUPPORTED,
                           "'%s': activation '%s' is not supported (relu2 and silu are)", s->path,
                           act);
    }
    const struct bn_tensor *embed = bn_part_find(s, BN_P_EMBED, 0);
    if (embed)
        c->n_vocab = embed->dims[1] <= BN_VOCAB_MAX_TOKENS ? (uint32_t)embed->dims[1] : UINT32_MAX;
    BN_TRY(get_u32(&c->n_vocab, s, c, "vocab_size", err));
    c->tied_head = !bn_part_find(s, BN_P_HEAD, 0);
    c->in_norms = bn_part_in_norm(s, BN_P_Q, 0) != NULL;
    c->in_norm_eps = c->eps;
    bn_config_sampling_from_gguf(c, s, note);
    c->act_quant = infer_act_quant(c, s);
    return BITNET_OK;
}

#define KEY(suffix) (snprintf(key, sizeof key, "%s." suffix, c->arch), key)

static void put_hybrid(const struct bn_config *c, struct bn_gguf_writer *w)
{
    const struct bn_delta_shape *d = &c->delta;
    char key[96];
    uint32_t kinds[BN_MAX_LAYERS], n = bn_config_layers(c), irregular = 0;
    for (uint32_t i = 0; i < n; i++) {
        kinds[i] = bn_config_is_delta(c, i);
        irregular += i < c->n_layer && kinds[i] != ((i + 1) % BN_ATTN_INTERVAL != 0);
    }
    bn_gguf_put_u32(w, KEY("ssm.conv_kernel"), d->taps);
    bn_gguf_put_u32(w, KEY("ssm.state_size"), d->k_dim);
    bn_gguf_put_u32(w, KEY("ssm.group_count"), d->n_k_heads);
    bn_gguf_put_u32(w, KEY("ssm.time_step_rank"), d->n_v_heads);
    bn_gguf_put_u32(w, KEY("ssm.inner_size"), (uint32_t)bn_delta_value_width(d));
    bn_gguf_put_u32(w, KEY("full_attention_interval"), BN_ATTN_INTERVAL);
    if (irregular) bn_gguf_put_array(w, KEY("attention.recurrent_layers"), BN_META_U32, n, kinds);
    if (c->n_mtp) bn_gguf_put_u32(w, KEY("nextn_predict_layers"), c->n_mtp);
}

static void put_yarn(const struct bn_config *c, struct bn_gguf_writer *w)
{
    float usual = bn_rope_mscale(c->rope_factor, 1);
    bn_gguf_put_str(w, full_key(c, "rope.scaling.type").text, "yarn", 4);
    bn_gguf_put_f32(w, full_key(c, "rope.scaling.factor").text, c->rope_factor);
    bn_gguf_put_u32(w, full_key(c, "rope.scaling.original_context_length").text, c->rope_orig_ctx);
    bn_gguf_put_f32(w, full_key(c, "rope.scaling.yarn_beta_fast").text, c->rope_beta_fast);
    bn_gguf_put_f32(w, full_key(c, "rope.scaling.yarn_beta_slow").text, c->rope_beta_slow);
    if (!c->rope_whole_dims) bn_gguf_put_bool(w, TRUNCATE_KEY, false);
    if (c->rope_attn == usual) return;
    /* the first is ours, to the bit; the second is the one that llama.cpp reads */
    bn_gguf_put_f32(w, full_key(c, "rope.scaling.yarn_attn_factor").text, c->rope_attn);
    bn_gguf_put_f32(w, full_key(c, "rope.scaling.attn_factor").text, c->rope_attn / usual);
}

struct bn_config bn_config_as_gguf(const struct bn_config *c)
{
    struct bn_config to = *c;
    for (size_t i = 0; i < BN_ARRAY_LEN(families); i++)
        if (strcmp(families[i].arch, c->arch) == 0) to.qk_pairs = families[i].qk_pairs;
    to.v_tiled = c->delta.n_v_heads != 0;
    to.norm_plus_one = false;
    return to;
}

void bn_config_put(const struct bn_config *c, struct bn_gguf_writer *w)
{
    char key[96];
    bn_gguf_put_str(w, "general.architecture", c->arch, strlen(c->arch));
    if (c->name[0]) bn_gguf_put_str(w, "general.name", c->name, strlen(c->name));
    bn_gguf_put_u32(w, KEY("vocab_size"), c->n_vocab);
    bn_gguf_put_u32(w, KEY("context_length"), c->n_ctx);
    bn_gguf_put_u32(w, KEY("embedding_length"), c->n_embd);
    bn_gguf_put_u32(w, KEY("block_count"), bn_config_layers(c));
    bn_gguf_put_u32(w, KEY("feed_forward_length"), c->n_ff);
    if (c->ffn_norm_width) bn_gguf_put_u32(w, NORM_WIDTH_KEY, c->ffn_norm_width);
    bn_gguf_put_u32(w, KEY("attention.head_count"), c->n_head);
    bn_gguf_put_u32(w, KEY("attention.head_count_kv"), c->n_head_kv);
    bn_gguf_put_u32(w, KEY("attention.key_length"), c->head_dim);
    bn_gguf_put_u32(w, KEY("attention.value_length"), c->head_dim);
    bn_gguf_put_f32(w, KEY("attention.layer_norm_rms_epsilon"), c->eps);
    bn_gguf_put_u32(w, KEY("rope.dimension_count"), c->rope_dim);
    bn_gguf_put_f32(w, KEY("rope.freq_base"), c->rope_theta);
    if (c->rope_scaling == BN_RS_LINEAR) {
        bn_gguf_put_str(w, KEY("rope.scaling.type"), "linear", 6);
        bn_gguf_put_f32(w, KEY("rope.scaling.factor"), c->rope_factor);
    }
    if (c->delta.n_v_heads) put_hybrid(c, w);
    if (c->rope_scaling == BN_RS_YARN) put_yarn(c, w);
    bool sections = false;
    for (size_t i = 0; i < BN_ARRAY_LEN(c->rope_sections); i++) sections |= c->rope_sections[i] > 0;
    if (sections || c->delta.n_v_heads)
        bn_gguf_put_array(w, KEY("rope.dimension_sections"), BN_META_I32,
                          BN_ARRAY_LEN(c->rope_sections), c->rope_sections);
    const char *act = c->act == BN_ACT_RELU2 ? "relu2" : "silu";
    bn_gguf_put_str(w, KEY("hidden_activation"), act, strlen(act));
    const char *aq = bn_act_quant_name(c->act_quant);
    bn_gguf_put_str(w, "bitnet.activations", aq, strlen(aq));
    bn_config_sampling_put(c, w);
#undef KEY
}
