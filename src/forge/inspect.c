/* SPDX-License-Identifier: Apache-2.0
 * Looking into a model file: its metadata as text and its tensors as they are stored. A file need
 * not be a model that the library could run: where the configuration cannot be read, tensors are
 * shown as they lie. Metadata of a checkpoint is its config.json, flattened to "config.a.b". */
#include "forge/forge.h"

#include "base/buf.h"
#include "model/config/config_sampling.h"
#include "model/config/hadamard.h"
#include "model/delta/state.h"
#include <stdio.h>
#include <stdlib.h>
#if BN_HAVE_TEXT
#include "json/json.h"
#endif

enum {
    VALUE_MAX_BYTES = 1 << 24, /* of one entry as text */
    NOTE_MAX_BYTES = 1 << 14,
    CONFIG_MAX_BYTES = 1 << 20,
    CONFIG_MAX_DEPTH = 8
};

struct meta_entry {
    const char *key, *type, *value; /* value NULL: printed when asked for (GGUF) */
};

struct place {      /* what a tensor is in the model */
    uint32_t part;  /* enum bn_part, BN_P_COUNT: none */
    uint32_t layer; /* as parts are named */
};

struct bitnet_file {
    struct bn_source src;
    struct bn_config config;
    bool have_config;
    bitnet_error why_not; /* without it */
    struct bn_arena arena;
    struct meta_entry *meta;
    size_t n_meta, meta_room;
    struct place *places; /* [src.n_tensors] */
};

/* ------------------------------------------------------------------ metadata */

static bitnet_status add_meta(struct bitnet_file *f, const char *key, const char *type,
                              const char *value, bitnet_error *err)
{
    if (f->n_meta >= BN_MAX_META)
        return bn_fail(err, BITNET_E_LIMIT, "'%s' has more than %d metadata entries", f->src.path,
                       BN_MAX_META);
    struct meta_entry m = {bn_arena_strn(&f->arena, key, strlen(key)),
                           bn_arena_strn(&f->arena, type, strlen(type)),
                           value ? bn_arena_strn(&f->arena, value, strlen(value)) : NULL};
    if (m.key == NULL || m.type == NULL || (value && m.value == NULL) ||
        !bn_grow((void **)&f->meta, &f->meta_room, f->n_meta + 1, sizeof *f->meta))
        return bn_fail_nomem(err, strlen(key) + sizeof m, "metadata");
    f->meta[f->n_meta++] = m;
    return BITNET_OK;
}

static bitnet_status list_gguf_meta(struct bitnet_file *f, bitnet_error *err)
{
    struct bn_buf type, value;
    bn_buf_init(&type, 256);
    bn_buf_init(&value, VALUE_MAX_BYTES);
    bitnet_status s = BITNET_OK;
    for (size_t i = 0; i < f->src.n_meta && s == BITNET_OK; i++) {
        bn_buf_clear(&type);
        bn_buf_clear(&value);
        bn_meta_print(&f->src.meta[i], &type, &value);
        if (type.failed) s = bn_fail_nomem(err, type.max, "metadata");
        else s = add_meta(f, f->src.meta[i].key, type.data ? type.data : "", NULL, err);
    }
    bn_buf_free(&type);
    bn_buf_free(&value);
    return s;
}

#if BN_HAVE_TEXT
static const char *type_word(const struct bn_json *j)
{
    switch (bn_json_typeof(j)) {
    case BN_JSON_STRING: return "str";
    case BN_JSON_TRUE:
    case BN_JSON_FALSE: return "bool";
    case BN_JSON_REAL: return "f64";
    case BN_JSON_INT: {
        int64_t v = bn_json_integer(j);
        return v >= 0 && v <= UINT32_MAX ? "u32" : "i64";
    }
    default: return "null";
    }
}

/* Members of an object, one entry each; key holds the name so far. */
static bitnet_status flatten(struct bitnet_file *f, struct bn_buf *key, const struct bn_json *j,
                             int depth, bitnet_error *err)
{
    if (bn_json_is_object(j) && bn_json_size(j) && depth < CONFIG_MAX_DEPTH) {
        const char *name;
        struct bn_json *member;
        size_t stem = key->len;
        bn_json_each_member(j, name, member)
        {
            key->len = stem;
            bn_buf_printf(key, ".%s", name);
            if (key->failed)
                return bn_fail(err, BITNET_E_LIMIT, "a name in config.json is too long");
            BN_TRY(flatten(f, key, member, depth + 1, err));
        }
        return BITNET_OK;
    }
    struct bn_buf value;
    char type[48];
    bn_buf_init(&value, CONFIG_MAX_BYTES);
    if (bn_json_is_array(j)) {
        const struct bn_json *first = bn_json_at(j, 0);
        bool same = first != NULL;
        for (size_t i = 1; i < bn_json_size(j) && same; i++)
            same = strcmp(type_word(first), type_word(bn_json_at(j, i))) == 0;
        snprintf(type, sizeof type, "%s[%zu]", same ? type_word(first) : "any", bn_json_size(j));
    } else {
        snprintf(type, sizeof type, "%s", bn_json_is_object(j) ? "object" : type_word(j));
    }
    bn_json_write(&value, j,
                  BN_JSON_COMPACT); /* strings in quotes, as metadata of GGUF is printed */
    bitnet_status s = value.failed
                          ? bn_fail_nomem(err, value.len, "metadata")
                          : add_meta(f, key->data, type, value.data ? value.data : "", err);
    bn_buf_free(&value);
    return s;
}

static bitnet_status list_config_json(struct bitnet_file *f, bitnet_error *err)
{
    struct bn_buf path, key;
    struct bn_json *j = NULL;
    bitnet_status s = BITNET_OK;
    bn_buf_init(&path, 1 << 13);
    bn_buf_init(&key, 1 << 12);
    bn_buf_printf(&path, "%s/config.json", f->src.folder ? f->src.folder : ".");
    bn_buf_puts(&key, "config");
    if (path.failed || key.failed) s = bn_fail_nomem(err, 1 << 12, "a path");
    else if (bn_exists(path.data)) /* a lone safetensors file may have none */
        s = bn_json_read_file(&j, path.data, CONFIG_MAX_BYTES, err);
    if (j && s == BITNET_OK) s = flatten(f, &key, j, 0, err);
    bn_json_free(j);
    bn_buf_free(&path);
    bn_buf_free(&key);
    return s;
}
#else
static bitnet_status list_config_json(struct bitnet_file *f, bitnet_error *err)
{
    (void)f, (void)err;
    return BITNET_OK;
}
#endif

/* ------------------------------------------------------------------ open and close */

/* A layer need not have every part, so the search goes on where one is absent. */
static void place_parts(struct bitnet_file *f)
{
    const struct bn_config *c = &f->config;
    uint32_t n_layer = f->have_config ? bn_config_layers(c) : BN_MAX_LAYERS;
    for (size_t i = 0; i < f->src.n_tensors; i++) f->places[i].part = BN_P_COUNT;
    for (uint32_t p = 0; p < BN_P_COUNT; p++)
        for (uint32_t i = 0; i < n_layer; i++) {
            uint32_t layer = f->have_config ? bn_config_named_layer(c, i) : i;
            const struct bn_tensor *t = bn_part_find(&f->src, (enum bn_part)p, layer);
            if (t == NULL) continue;
            struct place *place = &f->places[t - f->src.tensors];
            if (place->part != BN_P_COUNT) break; /* its name has no layer in it */
            *place = (struct place){p, layer};
        }
}

bitnet_status bn_file_open(struct bitnet_file **out, const char *path, bitnet_error *err)
{
    *out = NULL;
    struct bitnet_file *f = bn_calloc(1, sizeof *f);
    if (f == NULL) return bn_fail_nomem(err, sizeof *f, "a file");
    struct bn_buf note;
    bn_buf_init(&note, NOTE_MAX_BYTES);
    bitnet_status s = bn_source_open(&f->src, path, BN_I2S_AUTO, err);
    if (s != BITNET_OK) goto fail;
    f->places = bn_calloc(f->src.n_tensors, sizeof *f->places);
    if (f->places == NULL) {
        s = bn_fail_nomem(err, f->src.n_tensors * sizeof *f->places, "a list of tensors");
        goto fail;
    }
    s = bn_config_read(&f->config, &f->src, &note, &f->why_not);
    if (s == BITNET_E_NOMEM) {
        if (err) *err = f->why_not;
        goto fail;
    }
    f->have_config = s == BITNET_OK;
    place_parts(f);
    s = f->src.is_gguf ? list_gguf_meta(f, err) : list_config_json(f, err);
fail:
    bn_buf_free(&note);
    if (s != BITNET_OK) {
        bn_file_close(f);
        return s;
    }
    *out = f;
    return BITNET_OK;
}

void bn_file_close(struct bitnet_file *f)
{
    if (f == NULL) return;
    bn_source_close(&f->src);
    bn_arena_free(&f->arena);
    free(f->meta);
    free(f->places);
    free(f);
}

const char *bn_file_format(const struct bitnet_file *f) { return f->src.format; }
uint64_t bn_file_bytes(const struct bitnet_file *f) { return f->src.file_bytes; }
size_t bn_file_n_meta(const struct bitnet_file *f) { return f->n_meta; }
uint32_t bn_file_sampling(const struct bitnet_file *f, bitnet_sampling *s)
{
    return f->have_config ? bn_config_sampling(&f->config, s) : 0;
}
size_t bn_file_n_tensors(const struct bitnet_file *f) { return f->src.n_tensors; }

bitnet_status bn_file_meta(const struct bitnet_file *f, size_t i, const char **key,
                           const char **type, char *value, size_t *n)
{
    if (i >= f->n_meta) return BITNET_E_ARG;
    const struct meta_entry *m = &f->meta[i];
    struct bn_buf kind, text;
    bitnet_status s = BITNET_OK;
    bn_buf_init(&kind, 256);
    bn_buf_init(&text, VALUE_MAX_BYTES);
    if (m->value) bn_buf_puts(&text, m->value);
    else bn_meta_print(&f->src.meta[i], &kind, &text);
    if (key) *key = m->key;
    if (type) *type = m->type;
    size_t room = *n;
    *n = text.len;
    if (text.failed) s = BITNET_E_NOMEM;
    else if (text.len > room) s = BITNET_E_LIMIT;
    else if (value && text.len) memcpy(value, text.data, text.len);
    if (s == BITNET_OK && value && text.len < room) value[text.len] = 0;
    bn_buf_free(&kind);
    bn_buf_free(&text);
    return s;
}

/* ------------------------------------------------------------------ the model */

/* Is every n-th layer one with attention, and no other? */
static bool attention_every(const struct bn_config *c, uint32_t n)
{
    for (uint32_t i = 0; i < c->n_layer; i++)
        if (bn_config_is_delta(c, i) != ((i + 1) % n != 0)) return false;
    return true;
}

bitnet_status bn_file_model(const struct bitnet_file *f, bitnet_file_model *out, bitnet_error *err)
{
    enum { F16_PAIR_BYTES = 4 };
    const struct bn_config *c = &f->config;
    if (!f->have_config) return bn_fail(err, f->why_not.status, "%s", f->why_not.text);
    *out = (bitnet_file_model){.size = out->size,
                               .architecture = c->arch,
                               .n_vocab = c->n_vocab,
                               .n_embd = c->n_embd,
                               .n_ff = c->n_ff,
                               .n_head = c->n_head,
                               .n_head_kv = c->n_head_kv,
                               .head_dim = c->head_dim,
                               .n_ctx_train = c->n_ctx,
                               .n_layer = c->n_layer,
                               .n_attention = bn_config_attn_before(c, c->n_layer),
                               .n_delta = bn_config_delta_before(c, c->n_layer),
                               .n_mtp = c->n_mtp,
                               .delta_k_heads = c->delta.n_k_heads,
                               .delta_v_heads = c->delta.n_v_heads,
                               .delta_k_dim = c->delta.k_dim,
                               .delta_v_dim = c->delta.v_dim,
                               .delta_taps = c->delta.taps,
                               .state_bytes = bn_state_slot_bytes(c, NULL),
                               .rotation_block = c->hadamard.block};
    for (uint32_t n = c->n_layer; n > 0; n--)
        if (attention_every(c, n)) out->attention_every = n;
    out->kv_token_bytes = (uint64_t)bn_config_attn_before(c, bn_config_layers(c)) * c->n_head_kv *
                          c->head_dim * F16_PAIR_BYTES;
    for (uint32_t i = 0; i < c->hadamard.n_widths; i++)
        out->rotation_signs += c->hadamard.widths[i];
    for (size_t i = 0; c->hadamard.block && i < f->src.n_tensors; i++) {
        out->n_rotated += bn_hadamard_has(&f->src, f->src.tensors[i].name, false);
        if (f->places[i].part == BN_P_EMBED)
            out->rotated_embedding = bn_hadamard_has(&f->src, f->src.tensors[i].name, true);
    }
    return BITNET_OK;
}

/* ------------------------------------------------------------------ tensors */

static bool is_projection(struct place p) { return bn_part_is_projection(p.part); }

/* The tensor as a matrix of weights. A packed checkpoint matrix has four times the rows it is
 * stored in; what its scale means, and how many of the last rows are real, only the configuration
 * knows. */
static struct bn_stored stored(const struct bitnet_file *f, size_t i)
{
    const struct bn_tensor *t = &f->src.tensors[i];
    struct place place = f->places[i];
    struct bn_stored st;
    bool online;
    if (is_projection(place) && f->have_config &&
        bn_part_stored(&st, &online, &f->src, &f->config, (enum bn_part)place.part, place.layer,
                       NULL) == BITNET_OK)
        return st;
    st = bn_tensor_stored(t);
    if (t->type == BN_U8 && is_projection(place)) {
        st.type = BN_HF_U8;
        st.rows *= 4;
        st.hf_scale = 1;
    }
    return st;
}

bitnet_status bn_file_tensor(const struct bitnet_file *f, size_t i, bitnet_tensor_info *info)
{
    if (i >= f->src.n_tensors) return BITNET_E_ARG;
    const struct bn_tensor *t = &f->src.tensors[i];
    struct bn_stored st = stored(f, i);
    const struct bn_type_info *type = bn_type_info(st.type);
    info->name = t->name;
    info->type = type->name;
    info->n_dims = t->n_dims;
    memcpy(info->dims, t->dims, sizeof info->dims);
    if (st.type == BN_HF_U8 && t->n_dims == 2)
        info->dims[1] = st.rows; /* of weights, not of bytes */
    info->bytes = t->bytes;
    info->offset = t->offset;
    double n = (double)st.rows * (double)st.cols;
    info->bits_per_weight = n > 0 ? 8.0 * (double)t->bytes / n : 0;
    info->is_ternary_type = type->ternary;
    info->is_gate = f->places[i].part == BN_P_DELTA_ALPHA || f->places[i].part == BN_P_DELTA_BETA;
    info->is_packed = t->packed;
    info->is_matrix = is_projection(f->places[i]) && (!info->is_gate || type->ternary);
    return BITNET_OK;
}

bitnet_status bn_file_tensor_stats(const struct bitnet_file *f, size_t i,
                                   bitnet_tensor_stats *stats, bitnet_error *err)
{
    if (i >= f->src.n_tensors)
        return bn_fail(err, BITNET_E_ARG, "there is no tensor %zu; the file has %zu", i,
                       f->src.n_tensors);
    const struct bn_tensor *t = &f->src.tensors[i];
    if (t->packed) return bn_tensor_fail_packed(&f->src, t, err);
    struct bn_stored st = stored(f, i);
    bitnet_status s = bn_stats_read(stats, &st, t->name, is_projection(f->places[i]), err);
    bn_source_release(&f->src, t);
    return s;
}
