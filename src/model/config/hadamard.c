/* SPDX-License-Identifier: Apache-2.0 */
#include "model/config/hadamard.h"

#include "kernels/kernels.h"

#define PREFIX "prism.hadamard."

static bitnet_status wrong(const struct bn_source *s, const char *key, const char *what,
                           bitnet_error *err)
{
    return bn_fail(err, BITNET_E_UNSUPPORTED, "'%s': metadata '" PREFIX "%s' %s", s->path, key,
                   what);
}

static bool is_word(const struct bn_source *s, const char *key, const char *word)
{
    const char *text;
    size_t n;
    return bn_meta_str(s, key, &text, &n) && n == strlen(word) && memcmp(text, word, n) == 0;
}

/* All of them are known. */
static bitnet_status check_keys(const struct bn_source *s, bool *any, bitnet_error *err)
{
    static const char *const known[] = {"version",      "block_size",   "transform",
                                        "axis",         "sign_mode",    "sign_widths",
                                        "sign_values",  "weight_names", "inverse_weight_names",
                                        "gdn_v_grouped"};
    *any = false;
    for (size_t i = 0; i < s->n_meta; i++) {
        const char *key = s->meta[i].key, *name = key + strlen(PREFIX);
        bool found = false;
        if (strncmp(key, PREFIX, strlen(PREFIX)) != 0) continue;
        for (size_t k = 0; k < BN_ARRAY_LEN(known); k++) found |= strcmp(name, known[k]) == 0;
        if (!found) return wrong(s, name, "is not known here", err);
        *any = true;
    }
    return BITNET_OK;
}

/* A list of names, each of a tensor that is there. Absent: none. */
static bitnet_status check_names(const struct bn_source *s, const char *name, const char *key,
                                 bool needed, bitnet_error *err)
{
    const struct bn_meta *m = bn_meta_find(s, key);
    if (!m && !needed) return BITNET_OK;
    if (!m || m->type != BN_META_ARRAY || m->elem != BN_META_STR)
        return wrong(s, name, "is no list of names", err);
    uint64_t cursor = 0;
    for (uint64_t i = 0; i < m->count; i++) {
        char tensor[BN_MAX_NAME_BYTES];
        const char *text;
        size_t n;
        if (!bn_meta_next_str(m, &cursor, &text, &n) || n >= sizeof tensor)
            return wrong(s, name, "holds a name that is too long", err);
        memcpy(tensor, text, n);
        tensor[n] = 0;
        if (!bn_source_tensor(s, tensor))
            return bn_fail(err, BITNET_E_FORMAT,
                           "'%s': metadata '" PREFIX "%s' names tensor '%s', which is not there",
                           s->path, name, tensor);
    }
    return BITNET_OK;
}

static bitnet_status read_signs(struct bn_hadamard *r, const struct bn_source *s, bitnet_error *err)
{
    const struct bn_meta *widths = bn_meta_find(s, PREFIX "sign_widths");
    const struct bn_meta *values = bn_meta_find(s, PREFIX "sign_values");
    int64_t v;
    uint64_t sum = 0;
    r->signs = is_word(s, PREFIX "sign_mode", "explicit");
    if (!r->signs && !is_word(s, PREFIX "sign_mode", "identity"))
        return wrong(s, "sign_mode", "is neither 'explicit' nor 'identity'", err);
    if (!r->signs) return BITNET_OK;
    if (!widths || widths->type != BN_META_ARRAY || widths->count == 0 ||
        widths->count > BN_MAX_HADAMARD_WIDTHS)
        return wrong(s, "sign_widths", "is no list of 1 to 8 widths", err);
    for (uint64_t i = 0; i < widths->count; i++) {
        if (!bn_meta_int_at(widths, i, &v) || v <= 0 || v > BN_MAX_WIDTH || v % r->block)
            return wrong(s, "sign_widths", "holds a width that is no multiple of the block", err);
        r->widths[r->n_widths++] = (uint32_t)v;
        sum += (uint64_t)v;
    }
    if (!values || values->type != BN_META_ARRAY || values->count != sum)
        return wrong(s, "sign_values", "has not one sign for each of the widths", err);
    for (uint64_t i = 0; i < sum; i++)
        if (!bn_meta_int_at(values, i, &v) || (v != 1 && v != -1))
            return wrong(s, "sign_values", "holds something else than -1 and +1", err);
    return BITNET_OK;
}

bitnet_status bn_hadamard_read(struct bn_hadamard *out, const struct bn_source *s,
                               bitnet_error *err)
{
    uint32_t version, block;
    bool any;
    *out = (struct bn_hadamard){0};
    BN_TRY(check_keys(s, &any, err));
    if (!any) return BITNET_OK;
    if (!bn_meta_u32(s, PREFIX "version", &version) || version != 1)
        return wrong(s, "version", "is not 1, the only one known here", err);
    if (!bn_meta_u32(s, PREFIX "block_size", &block) || block < 2 ||
        block > BN_HADAMARD_BLOCK_MAX || (block & (block - 1)))
        return wrong(s, "block_size", "is no power of two from 2 to 4096", err);
    if (!is_word(s, PREFIX "transform", "normalized-sylvester-walsh-hadamard"))
        return wrong(s, "transform", "is not 'normalized-sylvester-walsh-hadamard'", err);
    if (!is_word(s, PREFIX "axis", "input-last-dimension"))
        return wrong(s, "axis", "is not 'input-last-dimension'", err);
    out->block = block;
    if (bn_meta_find(s, PREFIX "gdn_v_grouped") &&
        !bn_meta_bool(s, PREFIX "gdn_v_grouped", &out->v_grouped))
        return wrong(s, "gdn_v_grouped", "is no truth value", err);
    BN_TRY(check_names(s, "weight_names", PREFIX "weight_names", true, err));
    BN_TRY(check_names(s, "inverse_weight_names", PREFIX "inverse_weight_names", false, err));
    return read_signs(out, s, err);
}

static const struct bn_meta *names(const struct bn_source *s, bool inverse, const char **key)
{
    *key = inverse ? PREFIX "inverse_weight_names" : PREFIX "weight_names";
    return bn_meta_find(s, *key);
}

bool bn_hadamard_has(const struct bn_source *s, const char *tensor, bool inverse)
{
    const char *key, *text;
    const struct bn_meta *m = names(s, inverse, &key);
    uint64_t cursor = 0;
    size_t n, want = strlen(tensor);
    for (uint64_t i = 0; m && i < m->count; i++)
        if (bn_meta_next_str(m, &cursor, &text, &n) && n == want && memcmp(text, tensor, n) == 0)
            return true;
    return false;
}

uint64_t bn_hadamard_names(const struct bn_source *s, bool inverse, const char **key)
{
    const struct bn_meta *m = names(s, inverse, key);
    return m ? m->count : 0;
}

bool bn_hadamard_signs(float *out, const struct bn_hadamard *r, const struct bn_source *s,
                       uint64_t width)
{
    const struct bn_meta *values = bn_meta_find(s, PREFIX "sign_values");
    uint64_t at = 0;
    for (uint32_t i = 0; i < r->n_widths; at += r->widths[i++]) {
        if (r->widths[i] != width) continue;
        for (uint64_t k = 0; k < width; k++) {
            int64_t v = 1;
            bn_meta_int_at(values, at + k, &v);
            out[k] = (float)v;
        }
        return true;
    }
    return !r->signs;
}
