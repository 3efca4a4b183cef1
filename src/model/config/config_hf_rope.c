/* SPDX-License-Identifier: Apache-2.0
 * Rotary position embedding in config.json, as transformers reads it. Older files have `rope_theta`
 * and perhaps `rope_scaling`, newer ones `rope_parameters` with all of it inside. */
#include "model/config/config_hf_impl.h"

#include "model/config/rope.h"

/* The object with the parameters, or NULL. */
static const struct bn_json *parameters(const struct bn_json *j)
{
    const struct bn_json *scaling = bn_json_get(j, "rope_scaling");
    if (bn_json_size(scaling) > 0) return scaling;
    const struct bn_json *params = bn_json_get(j, "rope_parameters");
    return bn_json_is_object(params) ? params : NULL;
}

static bitnet_status read_context(struct bn_config *c, const struct bn_json *j,
                                  const struct bn_json *p, const char *path, bitnet_error *err)
{
    c->rope_orig_ctx = c->n_ctx;
    BN_TRY(bn_json_read_u32(&c->rope_orig_ctx, p, "original_max_position_embeddings", path, err));
    return bn_json_read_u32(&c->rope_orig_ctx, j, "original_max_position_embeddings", path, err);
}

static bitnet_status read_llama3(struct bn_config *c, const struct bn_json *j,
                                 const struct bn_json *p, const char *path, bitnet_error *err)
{
    c->rope_scaling = BN_RS_LLAMA3;
    c->rope_low_freq = 1;
    c->rope_high_freq = 4;
    BN_TRY(bn_json_read_f32(&c->rope_low_freq, p, "low_freq_factor", path, err));
    BN_TRY(bn_json_read_f32(&c->rope_high_freq, p, "high_freq_factor", path, err));
    BN_TRY(read_context(c, j, p, path, err));
    if (!(c->rope_low_freq > 0 && c->rope_high_freq > c->rope_low_freq && c->rope_orig_ctx > 0))
        return bn_fail(err, BITNET_E_FORMAT, "%s: the llama3 rotation scaling contradicts itself",
                       path);
    return BITNET_OK;
}

/* A number of 0 is one that is not given, as in Python's `x or default`. */
static bitnet_status read_nonzero(float *out, const struct bn_json *p, const char *key,
                                  const char *path, bitnet_error *err)
{
    float v = 0;
    BN_TRY(bn_json_read_f32(&v, p, key, path, err));
    if (v != 0) *out = v;
    return BITNET_OK;
}

static bitnet_status read_yarn(struct bn_config *c, const struct bn_json *j,
                               const struct bn_json *p, const char *path, bitnet_error *err)
{
    float mscale = 0, all_dim = 0;
    c->rope_scaling = BN_RS_YARN;
    BN_TRY(read_context(c, j, p, path, err));
    if (!bn_json_is_number(bn_json_get(p, "factor")) && c->rope_orig_ctx)
        c->rope_factor = (float)((double)c->n_ctx / c->rope_orig_ctx);
    c->rope_beta_fast = 32;
    c->rope_beta_slow = 1;
    c->rope_whole_dims = true;
    BN_TRY(read_nonzero(&c->rope_beta_fast, p, "beta_fast", path, err));
    BN_TRY(read_nonzero(&c->rope_beta_slow, p, "beta_slow", path, err));
    BN_TRY(bn_json_read_bool(&c->rope_whole_dims, p, "truncate", path, err));
    BN_TRY(bn_json_read_f32(&mscale, p, "mscale", path, err));
    BN_TRY(bn_json_read_f32(&all_dim, p, "mscale_all_dim", path, err));
    c->rope_attn = bn_rope_mscale(c->rope_factor, 1);
    if (mscale != 0 && all_dim != 0)
        c->rope_attn =
            bn_rope_mscale(c->rope_factor, mscale) / bn_rope_mscale(c->rope_factor, all_dim);
    return bn_json_read_f32(&c->rope_attn, p, "attention_factor", path, err);
}

static bitnet_status read_scaling(struct bn_config *c, const struct bn_json *j,
                                  const struct bn_json *p, const char *path, bitnet_error *err)
{
    const char *type = "default";
    BN_TRY(bn_json_read_str(&type, p, "type", path, err));
    BN_TRY(bn_json_read_str(&type, p, "rope_type", path, err));
    if (strcmp(type, "default") == 0) return BITNET_OK;
    c->rope_factor = 1;
    BN_TRY(bn_json_read_f32(&c->rope_factor, p, "factor", path, err));
    if (strcmp(type, "llama3") == 0) return read_llama3(c, j, p, path, err);
    if (strcmp(type, "yarn") == 0) return read_yarn(c, j, p, path, err);
    if (strcmp(type, "linear") != 0)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "%s: rotation scaling '%s' is not supported (linear, llama3 and yarn are)",
                       path, type);
    c->rope_scaling = BN_RS_LINEAR;
    return BITNET_OK;
}

/* How much of each head is rotated. */
static bitnet_status read_part(struct bn_config *c, const struct bn_json *j,
                               const struct bn_json *p, const char *path, bitnet_error *err)
{
    const struct bn_json *inner = bn_json_get(p, "partial_rotary_factor");
    const struct bn_json *outer = bn_json_get(j, "partial_rotary_factor");
    if (bn_json_is_number(inner) && bn_json_is_number(outer) && !bn_json_equal(inner, outer))
        return bn_fail(err, BITNET_E_FORMAT, "%s: two different values of 'partial_rotary_factor'",
                       path);
    float checked = 1;
    BN_TRY(bn_json_read_f32(&checked, p, "partial_rotary_factor", path, err));
    BN_TRY(bn_json_read_f32(&checked, j, "partial_rotary_factor", path, err));
    if (!(checked > 0 && checked <= 1))
        return bn_fail(err, BITNET_E_FORMAT, "%s: 'partial_rotary_factor' is %g", path,
                       (double)checked);
    const struct bn_json *given = bn_json_is_number(outer) ? outer : inner;
    if (bn_json_is_number(given)) c->rope_dim = (uint32_t)(c->head_dim * bn_json_number(given));
    /* transformers' Llama rotates whole heads whatever is said here, and a GGUF of it, too */
    if (c->rope_dim != c->head_dim && strcmp(c->arch, "llama") == 0)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "%s: 'partial_rotary_factor' is not supported in this architecture", path);
    return BITNET_OK;
}

static bitnet_status read_sections(struct bn_config *c, const struct bn_json *p, const char *path,
                                   bitnet_error *err)
{
    const struct bn_json *list = bn_json_get(p, "mrope_section");
    if (!list || bn_json_is_null(list)) return BITNET_OK;
    size_t n = bn_json_size(list);
    bool ok = n > 0 && n <= BN_ARRAY_LEN(c->rope_sections);
    for (size_t i = 0; ok && i < n; i++) {
        const struct bn_json *v = bn_json_at(list, i);
        ok = bn_json_is_int(v) && bn_json_integer(v) >= 0 && bn_json_integer(v) <= BN_MAX_HEAD_DIM;
        if (ok) c->rope_sections[i] = (uint32_t)bn_json_integer(v);
    }
    if (ok) return BITNET_OK;
    return bn_fail(err, BITNET_E_FORMAT,
                   "%s: 'mrope_section' is not an array of 1 to 4 numbers of dimensions", path);
}

bitnet_status bn_config_hf_rope(struct bn_config *c, const struct bn_json *j, const char *path,
                                bitnet_error *err)
{
    const struct bn_json *p = parameters(j);
    /* one set for every kind of layer (Gemma 3 and later) */
    if (bn_json_is_object(bn_json_get(p, "full_attention")) ||
        bn_json_is_object(bn_json_get(p, "sliding_attention")))
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "%s: rotation that differs between layers is not supported", path);
    c->rope_theta = 10000.0f;
    BN_TRY(bn_json_read_f32(&c->rope_theta, j, "rope_theta", path, err));
    if (p) BN_TRY(bn_json_read_f32(&c->rope_theta, p, "rope_theta", path, err));
    BN_TRY(read_part(c, j, p, path, err));
    if (!p) return BITNET_OK;
    BN_TRY(read_sections(c, p, path, err));
    return read_scaling(c, j, p, path, err);
}
