/* SPDX-License-Identifier: Apache-2.0
 * What is left of a model, as a checkpoint: one safetensors file, config.json with what was removed, and
 * the tokenizer's files beside it. Tensors of a checkpoint of which only layers go are copied as they lie,
 * renumbered; others go through convert's plan: those of a GGUF, and where channels go.
 *
 * All files are written under temporary names, and the model's own is renamed last: until then a reader
 * finds no model. */
#include "forge/convert_impl.h"

#include "json/json.h"
#include "model/config/config_sampling.h"
#include "model/model.h"
#include <stdio.h>
#include <stdlib.h>

enum {
    MAX_JSON_BYTES = 64 << 20,
    COPY_BYTES = 4 << 20,
    N_BESIDE = 8,
    ALIGNMENT = 8,
    NOTE_MAX_BYTES = 1 << 14
};

/* What a folder has beside weights and config.json. */
static const char *const beside[N_BESIDE] = {"tokenizer.json",         "tokenizer.model",
                                             "tokenizer_config.json",  "special_tokens_map.json",
                                             "generation_config.json", "chat_template.jinja",
                                             "chat_template.json",     "added_tokens.json"};

enum { TOKENIZER_JSON, TOKENIZER_MODEL, TOKENIZER_CONFIG, GENERATION_CONFIG = 4 }; /* in `beside` */

struct output {
    struct bn_convert_plan *plan;
    bool planned; /* tensors are the plan's items */
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

/* Layer after layer of the output: the channels of the input that it has not. */
static struct bn_json *channels_json(const struct bn_convert_plan *p)
{
    struct bn_json *layers = bn_json_array();
    uint8_t *gone = bn_calloc(p->config->n_ff, 1);
    for (uint32_t i = 0; gone && i < p->cut->n_kept; i++) {
        struct bn_json *list = bn_json_array();
        bn_prune_removed(gone, p, i);
        for (uint32_t c = 0; c < p->config->n_ff; c++)
            if (gone[c]) bn_json_append(list, bn_json_int(c));
        bn_json_append(layers, list);
    }
    if (!gone) bn_json_append(layers, NULL);
    free(gone);
    return layers;
}

static struct bn_json *record_json(const struct bn_convert_plan *p)
{
    const bitnet_prune_output *o = p->cut->record;
    struct bn_json *r = bn_json_object(), *gone = bn_json_array();
    for (uint32_t i = 0; i < p->config->n_layer; i++)
        if (bn_convert_layer(p, i) == BN_LAYER_CUT) bn_json_append(gone, bn_json_int(i));
    bn_json_set(r, "pruned_layers", gone);
    if (p->cut->n_ff) {
        bn_json_set(r, "ffn_width_before", bn_json_int(p->config->n_ff));
        bn_json_set(r, "ffn_removed", channels_json(p));
    }
    if (o->criterion) bn_json_set(r, "criterion", bn_json_string(o->criterion));
    if (o->calibration) bn_json_set(r, "calibration", bn_json_string(o->calibration));
    if (o->ppl_before > 0) {
        bn_json_set(r, "ppl_before", bn_json_real(o->ppl_before));
        bn_json_set(r, "ppl_after", bn_json_real(o->ppl_after));
        bn_json_set(r, "kl", bn_json_real(o->kl));
    }
    return r;
}

/* That of the input, with what has changed. */
static bitnet_status edit_config(struct bn_json **out, const struct bn_convert_plan *p,
                                 bitnet_error *err)
{
    char *path = NULL;
    BN_TRY(join(&path, p->src->folder, "config.json", err));
    bitnet_status s = bn_json_read_file(out, path, MAX_JSON_BYTES, err);
    free(path);
    BN_TRY(s);
    struct bn_json *nested = bn_json_get(*out, "text_config");
    if (!bn_json_is_object(nested)) nested = *out;
    cut_lists(nested, p);
    if (p->cut->n_ff) bn_json_set(nested, "intermediate_size", bn_json_int(p->cut->n_ff));
    return BITNET_OK;
}

static bitnet_status write_config(struct output *o, bitnet_error *err)
{
    const struct bn_convert_plan *p = o->plan;
    struct bn_json *j = NULL;
    struct bn_config c = *p->config;
    bitnet_status s = BITNET_OK;
    bn_prune_config(&c, p->cut);
    if (p->src->is_gguf) j = bn_config_hf_json(&c);
    else s = edit_config(&j, p, err);
    if (s == BITNET_OK) s = open_out(&o->config, o, "config.json", err);
    if (s == BITNET_OK) {
        if (p->packs) bn_json_set(j, "quantization_config", bn_config_hf_packing());
        bn_json_set(j, "bitnet_prune", record_json(p));
        char *text = bn_json_dump(j, BN_JSON_INDENT(2));
        s = text ? bn_out_write(&o->config, text, strlen(text), err)
                 : bn_fail_nomem(err, 0, "config.json");
        free(text);
    }
    bn_json_free(j);
    return s;
}

/* ------------------------------------------------------------------ the tokenizer of a GGUF */

static bitnet_status write_beside(struct output *o, size_t i, const char *text, size_t n,
                                  bitnet_error *err)
{
    if (!text) return bn_fail_nomem(err, n, beside[i]);
    BN_TRY(open_out(&o->beside[i], o, beside[i], err));
    return bn_out_write(&o->beside[i], text, n, err);
}

/* Where answers end, and what is recommended for sampling. */
static char *generation_text(const struct bn_config *c, const struct bn_vocab *v)
{
    struct bn_json *o = bn_json_object(), *ends = bn_json_array();
    if (v->bos >= 0) bn_json_set(o, "bos_token_id", bn_json_int(v->bos));
    if (v->eos >= 0) bn_json_append(ends, bn_json_int(v->eos));
    if (v->eot >= 0 && v->eot != v->eos) bn_json_append(ends, bn_json_int(v->eot));
    for (uint32_t i = 0; i < v->n_ends; i++) bn_json_append(ends, bn_json_int(v->ends[i]));
    bn_json_set(o, "eos_token_id", ends);
    for (size_t i = 0; i < BN_N_SAMPLING_MEMBERS; i++) {
        const struct bn_sampling_member *m = &bn_sampling_members[i];
        const char *at = (const char *)&c->sampling + m->offset;
        uint32_t u;
        float f;
        memcpy(&u, at, sizeof u);
        memcpy(&f, at, sizeof f);
        if (!m->hf || !(c->sampling_given & m->bit)) continue;
        bn_json_set(o, "do_sample", bn_json_bool(true));
        bn_json_set(o, m->hf, m->whole ? bn_json_int(u) : bn_json_real((double)f));
    }
    char *text = bn_json_dump(o, BN_JSON_INDENT(2));
    bn_json_free(o);
    return text;
}

static bitnet_status write_vocab(struct output *o, const struct bn_vocab *v, bitnet_error *err)
{
    struct bn_vocab_files f;
    BN_TRY(bn_vocab_write_hf(&f, v, err));
    char *generation = generation_text(o->plan->config, v);
    bitnet_status s =
        write_beside(o, f.is_pieces ? TOKENIZER_MODEL : TOKENIZER_JSON, f.tokenizer, f.bytes, err);
    if (s == BITNET_OK) s = write_beside(o, TOKENIZER_CONFIG, f.config, strlen(f.config), err);
    if (s == BITNET_OK)
        s = write_beside(o, GENERATION_CONFIG, generation, generation ? strlen(generation) : 0,
                         err);
    free(generation);
    bn_vocab_files_free(&f);
    return s;
}

static bitnet_status write_tokenizer(struct output *o, bitnet_error *err)
{
    struct bn_vocab vocab;
    struct bn_buf note;
    bool found;
    if (!o->plan->src->is_gguf) {
        for (size_t i = 0; i < N_BESIDE; i++) BN_TRY(copy_beside(o, i, err));
        return BITNET_OK;
    }
    bn_vocab_init(&vocab);
    bn_buf_init(&note, NOTE_MAX_BYTES);
    bitnet_status s = bn_source_vocab(&vocab, &found, o->plan->src, &note, err);
    if (s == BITNET_OK && found) s = write_vocab(o, &vocab, err);
    bn_vocab_free(&vocab);
    bn_buf_free(&note);
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
    case BN_HF_U8:
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
    for (uint32_t d = t->n_dims; d > 0; d--) {
        bool quarters = d == 2 && t->type == BN_HF_U8; /* of the rows, side by side in a byte */
        bn_json_append(shape, bn_json_int((int64_t)(t->dims[d - 1] / (quarters ? 4 : 1))));
    }
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
    for (size_t i = 0; o->planned && i < o->plan->n && s == BITNET_OK; i++) {
        const struct bn_convert_item *it = &o->plan->items[i];
        struct bn_tensor t = {it->name, it->type, it->n_dims, .bytes = it->bytes};
        memcpy(t.dims, it->dims, sizeof t.dims);
        s = add_entry(header, &t, it->name, &offset, err);
    }
    for (size_t i = 0; !o->planned && i < src->n_tensors && s == BITNET_OK; i++)
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

static bitnet_status put_data(void *user, const void *p, size_t n, bitnet_error *err)
{
    return bn_out_write(user, p, n, err);
}

static bitnet_status write_items(struct output *o, bitnet_error *err)
{
    const struct bn_convert_plan *p = o->plan;
    const struct bn_convert_sink to = {put_data, &o->model};
    struct bn_convert_rows rows;
    BN_TRY(bn_convert_rows_open(&rows, p->src, p->largest_cols, p->largest_bytes, err));
    bitnet_status s = BITNET_OK;
    for (size_t i = 0; i < p->n && s == BITNET_OK; i++) {
        s = bn_convert_write(&p->items[i], &to, &rows, &o->work, err);
        if (p->items[i].from) bn_source_release(p->src, p->items[i].from);
    }
    bn_convert_rows_close(&rows);
    return s;
}

/* ------------------------------------------------------------------ the call */

static bitnet_status make_plan(struct output *o, bitnet_error *err)
{
    const struct bn_convert_plan *p = o->plan;
    struct bn_config c = *p->config;
    bn_prune_config(&c, p->cut);
    o->planned = p->src->is_gguf || p->cut->n_ff;
    if (!p->src->is_gguf && c.ffn_norm_width)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "config.json has no words for the width of the feed-forward norm: scale "
                       "the norm (--portable), or let the output end in .gguf");
    if (p->src->is_gguf) BN_TRY(bn_config_check_hf(&c, err));
    return o->planned ? bn_convert_plan_make(o->plan, err) : BITNET_OK;
}

static bitnet_status write_all(struct output *o, bitnet_error *err)
{
    BN_TRY(folder_of(&o->folder, o->path, err));
    BN_TRY(bn_out_open(&o->model, o->path, o->plan->cut->record->overwrite != 0, err));
    BN_TRY(write_config(o, err));
    BN_TRY(write_tokenizer(o, err));
    BN_TRY(write_header(o, err));
    BN_TRY(o->planned ? write_items(o, err) : write_tensors(o, err));
    for (size_t i = 0; i < N_BESIDE; i++)
        if (o->beside[i].path) BN_TRY(bn_out_commit(&o->beside[i], err));
    BN_TRY(bn_out_commit(&o->config, err));
    return bn_out_commit(&o->model, err);
}

bitnet_status bn_prune_checkpoint(const char *out, const struct bn_source *src,
                                  const struct bn_config *c, const struct bn_convert_cut *cut,
                                  bitnet_error *err)
{
    struct bn_convert_plan plan = {.src = src, .config = c, .cut = cut, .to_hf = true};
    struct output o = {.plan = &plan,
                       .path = out,
                       .model = {.fd = -1},
                       .config = {.fd = -1},
                       .work = {cut->record->progress, cut->record->progress_user, 0, 0}};
    for (size_t i = 0; i < N_BESIDE; i++) o.beside[i].fd = -1;
    for (size_t i = 0; i < src->n_tensors; i++)
        if (src->tensors[i].packed) return bn_tensor_fail_packed(src, &src->tensors[i], err);
    bitnet_status s = make_plan(&o, err);
    if (s == BITNET_OK) s = write_all(&o, err);
    for (size_t i = 0; i < N_BESIDE; i++) bn_out_close(&o.beside[i]);
    bn_out_close(&o.config);
    bn_out_close(&o.model);
    bn_convert_plan_free(&plan);
    free(o.folder);
    return s;
}
