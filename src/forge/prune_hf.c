/* SPDX-License-Identifier: Apache-2.0
 * A checkpoint without some of its layers, as a checkpoint: one safetensors file with the tensors as they
 * lie, renumbered; config.json with fewer layers and what was removed; the tokenizer's files beside it.
 *
 * All files are written under temporary names, and the model's own is renamed last: until then a reader
 * finds no model. */
#include "forge/convert_impl.h"

#include "json/json.h"
#include <stdio.h>
#include <stdlib.h>

enum { MAX_JSON_BYTES = 64 << 20, COPY_BYTES = 4 << 20, N_BESIDE = 8, ALIGNMENT = 8 };

/* What a folder has beside weights and config.json. */
static const char *const beside[N_BESIDE] = {"tokenizer.json",         "tokenizer.model",
                                             "tokenizer_config.json",  "special_tokens_map.json",
                                             "generation_config.json", "chat_template.jinja",
                                             "chat_template.json",     "added_tokens.json"};

struct output {
    const struct bn_convert_plan *plan;
    const char *path;
    char *folder; /* of the output */
    struct bn_out model, config, beside[N_BESIDE];
    struct bn_work work;
};

/* ------------------------------------------------------------------ paths */

static bitnet_status folder_of(char **out, const char *path, bitnet_error *err)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 1;
    *out = bn_calloc(n + 2, 1);
    if (!*out) return bn_fail_nomem(err, n, "a path");
    if (slash) memcpy(*out, n ? path : "/", n ? n : 1);
    else (*out)[0] = '.';
    return BITNET_OK;
}

/* folder/name; free() */
static bitnet_status join(char **out, const char *folder, const char *name, bitnet_error *err)
{
    size_t n = strlen(folder) + strlen(name) + 2;
    *out = bn_calloc(n, 1);
    if (!*out) return bn_fail_nomem(err, n, "a path");
    snprintf(*out, n, "%s/%s", folder, name);
    return BITNET_OK;
}

static bitnet_status open_out(struct bn_out *out, const struct output *o, const char *name,
                              bitnet_error *err)
{
    char *path;
    BN_TRY(join(&path, o->folder, name, err));
    bool there = bn_exists(path);
    bitnet_status s;
    if (there && !o->plan->cut->record->overwrite)
        s = bn_fail(err, BITNET_E_IO,
                    "'%s' exists already, and the output needs one of its own: choose a folder "
                    "for it",
                    path);
    else s = bn_out_open(out, path, there, err);
    free(path);
    return s;
}

/* ------------------------------------------------------------------ the files beside */

static bitnet_status copy_beside(struct output *o, size_t i, bitnet_error *err)
{
    char *from = NULL, *text = NULL;
    size_t n;
    BN_TRY(join(&from, o->plan->src->folder, beside[i], err));
    bitnet_status s = BITNET_OK;
    if (bn_exists(from)) {
        s = bn_read_file(&text, &n, from, MAX_JSON_BYTES, err);
        if (s == BITNET_OK) s = open_out(&o->beside[i], o, beside[i], err);
        if (s == BITNET_OK) s = bn_out_write(&o->beside[i], text, n, err);
    }
    free(text);
    free(from);
    return s;
}

/* Lists with an element a layer lose those of layers that are gone. */
static void cut_lists(struct bn_json *j, const struct bn_convert_plan *p)
{
    static const char *const lists[] = {"layer_types", "num_key_value_heads_per_layer",
                                        "no_rope_layers", "mlp_layer_types"};
    for (size_t i = 0; i < BN_ARRAY_LEN(lists); i++) {
        struct bn_json *list = bn_json_get(j, lists[i]), *left;
        if (!bn_json_is_array(list) || bn_json_size(list) != p->config->n_layer) continue;
        left = bn_json_array();
        for (uint32_t k = 0; k < p->cut->n_kept; k++)
            bn_json_append(left, bn_json_ref(bn_json_at(list, p->cut->kept[k])));
        bn_json_set(j, lists[i], left);
    }
    bn_json_set(j, "num_hidden_layers", bn_json_int(p->cut->n_kept));
}

static struct bn_json *record_json(const struct bn_convert_plan *p)
{
    const bitnet_prune_output *o = p->cut->record;
    struct bn_json *r = bn_json_object(), *gone = bn_json_array();
    for (uint32_t i = 0; i < p->config->n_layer; i++)
        if (bn_convert_layer(p, i) == BN_LAYER_CUT) bn_json_append(gone, bn_json_int(i));
    bn_json_set(r, "pruned_layers", gone);
    if (o->criterion) bn_json_set(r, "criterion", bn_json_string(o->criterion));
    if (o->calibration) bn_json_set(r, "calibration", bn_json_string(o->calibration));
    if (o->ppl_before > 0) {
        bn_json_set(r, "ppl_before", bn_json_real(o->ppl_before));
        bn_json_set(r, "ppl_after", bn_json_real(o->ppl_after));
        bn_json_set(r, "kl", bn_json_real(o->kl));
    }
    return r;
}

static bitnet_status write_config(struct output *o, bitnet_error *err)
{
    char *path = NULL, *text = NULL;
    struct bn_json *j = NULL;
    BN_TRY(join(&path, o->plan->src->folder, "config.json", err));
    bitnet_status s = bn_json_read_file(&j, path, MAX_JSON_BYTES, err);
    if (s == BITNET_OK) s = open_out(&o->config, o, "config.json", err);
    if (s == BITNET_OK) {
        struct bn_json *nested = bn_json_get(j, "text_config");
        cut_lists(bn_json_is_object(nested) ? nested : j, o->plan);
        bn_json_set(j, "bitnet_prune", record_json(o->plan));
        text = bn_json_dump(j, BN_JSON_INDENT(2));
        s = text ? bn_out_write(&o->config, text, strlen(text), err)
                 : bn_fail_nomem(err, 0, "config.json");
    }
    free(text);
    bn_json_free(j);
    free(path);
    return s;
}

/* ------------------------------------------------------------------ tensors */

static const char *dtype_of(enum bn_type t)
{
    switch (t) {
    case BN_F32: return "F32";
    case BN_F16: return "F16";
    case BN_BF16: return "BF16";
    case BN_F64: return "F64";
    case BN_U8: return "U8";
    case BN_I8: return "I8";
    case BN_I16: return "I16";
    case BN_I32: return "I32";
    case BN_I64: return "I64";
    default: return NULL;
    }
}

/* The tensor's name in the output; false: it has no place there. */
static bool new_name(char out[BN_MAX_NAME_BYTES], const struct bn_convert_plan *p, const char *name)
{
    uint32_t layer;
    size_t at, end;
    snprintf(out, BN_MAX_NAME_BYTES, "%s", name);
    if (!bn_prune_name(name, p->config->n_layer, &layer, &at, &end)) return true;
    layer = bn_convert_layer(p, layer);
    if (layer == BN_LAYER_CUT) return false;
    snprintf(out, BN_MAX_NAME_BYTES, "%.*s%u%s", (int)at, name, layer & ~BN_LAYER_MTP, name + end);
    return true;
}

static bitnet_status add_entry(struct bn_json *header, const struct bn_tensor *t, const char *name,
                               uint64_t *offset, bitnet_error *err)
{
    const char *dtype = dtype_of(t->type);
    if (!dtype)
        return bn_fail(err, BITNET_E_UNSUPPORTED, "tensor '%s' has type %s, which safetensors lack",
                       t->name, bn_type_info(t->type)->name);
    struct bn_json *shape = bn_json_array(), *range = bn_json_array(), *entry = bn_json_object();
    for (uint32_t d = t->n_dims; d > 0; d--)
        bn_json_append(shape, bn_json_int((int64_t)t->dims[d - 1]));
    bn_json_append(range, bn_json_int((int64_t)*offset));
    *offset += t->bytes;
    bn_json_append(range, bn_json_int((int64_t)*offset));
    bn_json_set(entry, "dtype", bn_json_string(dtype));
    bn_json_set(entry, "shape", shape);
    bn_json_set(entry, "data_offsets", range);
    bn_json_set(header, name, entry);
    return BITNET_OK;
}

static bitnet_status write_header(struct output *o, bitnet_error *err)
{
    const struct bn_source *src = o->plan->src;
    struct bn_json *header = bn_json_object(), *about = bn_json_object();
    char name[BN_MAX_NAME_BYTES];
    uint64_t offset = 0;
    bitnet_status s = BITNET_OK;
    bn_json_set(about, "format", bn_json_string("pt"));
    bn_json_set(header, "__metadata__", about);
    for (size_t i = 0; i < src->n_tensors && s == BITNET_OK; i++)
        if (new_name(name, o->plan, src->tensors[i].name))
            s = add_entry(header, &src->tensors[i], name, &offset, err);
    char *text = s == BITNET_OK ? bn_json_dump(header, 0) : NULL;
    if (s == BITNET_OK && !text) s = bn_fail_nomem(err, 0, "a header");
    if (s == BITNET_OK) {
        uint64_t n = strlen(text), padded = bn_align_up(n, ALIGNMENT);
        s = bn_out_write(&o->model, &padded, sizeof padded, err);
        if (s == BITNET_OK) s = bn_out_write(&o->model, text, (size_t)n, err);
        for (; s == BITNET_OK && n < padded; n++) s = bn_out_write(&o->model, " ", 1, err);
    }
    o->work.total = offset;
    free(text);
    bn_json_free(header);
    return s;
}

static bitnet_status write_tensors(struct output *o, bitnet_error *err)
{
    const struct bn_source *src = o->plan->src;
    char name[BN_MAX_NAME_BYTES];
    for (size_t i = 0; i < src->n_tensors; i++) {
        const struct bn_tensor *t = &src->tensors[i];
        if (!new_name(name, o->plan, t->name)) continue;
        for (uint64_t at = 0; at < t->bytes;) {
            size_t n = bn_min_size(COPY_BYTES, (size_t)(t->bytes - at));
            BN_TRY(bn_out_write(&o->model, t->data + at, n, err));
            BN_TRY(bn_work_add(&o->work, name, n, err));
            at += n;
        }
        bn_source_release(src, t);
    }
    return BITNET_OK;
}

/* ------------------------------------------------------------------ the call */

static bitnet_status write_all(struct output *o, bitnet_error *err)
{
    BN_TRY(folder_of(&o->folder, o->path, err));
    BN_TRY(bn_out_open(&o->model, o->path, o->plan->cut->record->overwrite != 0, err));
    BN_TRY(write_config(o, err));
    for (size_t i = 0; i < N_BESIDE; i++) BN_TRY(copy_beside(o, i, err));
    BN_TRY(write_header(o, err));
    BN_TRY(write_tensors(o, err));
    for (size_t i = 0; i < N_BESIDE; i++)
        if (o->beside[i].path) BN_TRY(bn_out_commit(&o->beside[i], err));
    BN_TRY(bn_out_commit(&o->config, err));
    return bn_out_commit(&o->model, err);
}

bitnet_status bn_prune_checkpoint(const char *out, const struct bn_source *src,
                                  const struct bn_config *c, const struct bn_convert_cut *cut,
                                  bitnet_error *err)
{
    const struct bn_convert_plan plan = {.src = src, .config = c, .cut = cut};
    struct output o = {.plan = &plan,
                       .path = out,
                       .model = {.fd = -1},
                       .config = {.fd = -1},
                       .work = {cut->record->progress, cut->record->progress_user, 0, 0}};
    for (size_t i = 0; i < N_BESIDE; i++) o.beside[i].fd = -1;
    if (src->is_gguf)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "'%s' is a GGUF, and safetensors are written of safetensors only: let the "
                       "output end in .gguf",
                       src->path);
    if (cut->n_ff)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "config.json has no word for the width of the feed-forward norm: channels "
                       "can go from a GGUF only");
    bitnet_status s = write_all(&o, err);
    for (size_t i = 0; i < N_BESIDE; i++) bn_out_close(&o.beside[i]);
    bn_out_close(&o.config);
    bn_out_close(&o.model);
    free(o.folder);
    return s;
}
