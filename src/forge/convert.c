/* SPDX-License-Identifier: Apache-2.0
 * Conversion: a checkpoint or GGUF in, a GGUF out that appears whole or not at all.
 *
 *   source --config--> plan (convert_plan.c) --> metadata, directory, then tensor by tensor
 *                                                (convert_rows.c), mapped pages given back
 *
 * All that can be refused is refused while planning. Memory beyond the mapped input: one packed
 * tensor and one row. */
#include "forge/convert_impl.h"

#include "model/files/gguf_split.h"
#include "model/model.h"
#include "model/savings.h"
#include <stdio.h>
#include <stdlib.h>

enum { NOTE_MAX_BYTES = 1 << 14 };

static void put_types(struct bn_gguf_writer *w, const struct bn_convert_plan *p)
{
    uint32_t file_type;
    if (p->one_type && p->proj_type != BN_TYPE_COUNT &&
        bn_choice_file_type(&file_type, p->proj_type))
        bn_gguf_put_u32(w, "general.file_type", file_type);
    bn_gguf_put_u32(w, "general.quantization_version", 2);
}

/* Entries that describe the file as it was, not the model. */
static bool drop_entry(const char *key, const char *new_name, const char *new_plan)
{
    static const char *const dropped[] = {"general.file_type", "general.quantization_version",
                                          "general.alignment"};
    for (size_t i = 0; i < BN_ARRAY_LEN(dropped); i++)
        if (strcmp(key, dropped[i]) == 0) return true;
    if (bn_gguf_split_is_key(key)) return true;
    if (new_plan && strcmp(key, BN_SAVINGS_KEY) == 0) return true;
    return new_name && strcmp(key, "general.name") == 0;
}

static void put_gguf_meta(struct bn_gguf_writer *w, const struct bn_convert_plan *p,
                          const char *name, const char *plan)
{
    for (size_t i = 0; i < p->src->n_meta; i++)
        if (!drop_entry(p->src->meta[i].key, name, plan) &&
            !(p->cut && bn_prune_put_meta(w, p, &p->src->meta[i])))
            bn_gguf_put_raw(w, &p->src->meta[i]);
    if (name) bn_gguf_put_str(w, "general.name", name, strlen(name));
    /* Readers guess this from the storage type where it is not said, and the type is changing. */
    if (!bn_meta_find(p->src, "bitnet.activations")) {
        const char *a = bn_act_quant_name(p->config->act_quant);
        bn_gguf_put_str(w, "bitnet.activations", a, strlen(a));
    }
}

static bitnet_status put_hf_meta(struct bn_gguf_writer *w, const struct bn_convert_plan *p,
                                 const char *name, bitnet_error *err)
{
    struct bn_config c = *p->config;
    struct bn_vocab vocab;
    struct bn_buf note;
    bool found;
    if (name) snprintf(c.name, sizeof c.name, "%s", name);
    if (p->cut) bn_prune_config(&c, p->cut);
    bn_config_put(&c, w);
    bn_vocab_init(&vocab);
    bn_buf_init(&note, NOTE_MAX_BYTES);
    bitnet_status s = bn_source_vocab(&vocab, &found, p->src, &note, err);
    if (s == BITNET_OK && found) {
        s = bn_forge_vocab_fit(&vocab, c.n_vocab, p->src->path, err);
        if (s == BITNET_OK) bn_gguf_put_vocab(w, &vocab);
    }
    bn_vocab_free(&vocab);
    bn_buf_free(&note);
    return s;
}

bitnet_status bn_convert_put_plan(struct bn_gguf_writer *w, const char *plan, bitnet_error *err)
{
    char *text;
    size_t n;
    if (!plan || strcmp(plan, "off") == 0) return BITNET_OK;
    BN_TRY(bn_savings_text(&text, &n, plan, err));
    bn_gguf_put_str(w, BN_SAVINGS_KEY, text, n);
    free(text);
    return BITNET_OK;
}

/* Does the plan fit the model's shape? That it is for these weights is seen when they are loaded. */
static bitnet_status check_plan(const char *plan, const struct bn_config *c, bitnet_error *err)
{
    struct bn_savings *s;
    if (!plan) return BITNET_OK;
    struct bn_model *like = bn_calloc(1, sizeof *like);
    if (!like) return bn_fail_nomem(err, sizeof *like, "a plan");
    like->config = *c;
    like->activations = c->act_quant;
    bitnet_status status = bn_savings_open(&s, like, plan, err);
    free(s);
    free(like);
    return status;
}

static bitnet_status put_data(void *user, const void *p, size_t n, bitnet_error *err)
{
    return bn_gguf_data(user, p, n, err);
}

static bitnet_status write_file(const struct bn_convert_plan *p, const char *path,
                                const bitnet_convert_options *o, bitnet_error *err)
{
    struct bn_gguf_writer w = {0};
    struct bn_convert_rows rows = {0};
    const struct bn_convert_sink to = {put_data, &w};
    struct bn_work work = {o->progress, o->progress_user, 0, p->total_bytes};
    const char *name = o->name && *o->name ? o->name : NULL;
    bitnet_status s = bn_gguf_create(&w, path, o->overwrite != 0, err);
    if (s != BITNET_OK) goto fail;
    if (p->src->is_gguf) put_gguf_meta(&w, p, name, o->plan);
    else if ((s = put_hf_meta(&w, p, name, err)) != BITNET_OK) goto fail;
    if (p->cut) bn_prune_put_record(&w, p);
    put_types(&w, p);
    if ((s = bn_convert_put_plan(&w, o->plan, err)) != BITNET_OK) goto fail;
    for (size_t i = 0; i < p->n; i++) {
        const struct bn_convert_item *it = &p->items[i];
        s = bn_gguf_declare(&w, it->name, it->type, it->n_dims, it->dims, err);
        if (s != BITNET_OK) goto fail;
    }
    s = bn_convert_rows_open(&rows, p->src, p->largest_cols, p->largest_bytes, err);
    for (size_t i = 0; i < p->n && s == BITNET_OK; i++) {
        s = bn_convert_write(&p->items[i], &to, &rows, &work, err);
        if (p->items[i].from) bn_source_release(p->src, p->items[i].from);
    }
    if (s == BITNET_OK) s = bn_gguf_commit(&w, err);
fail:
    bn_convert_rows_close(&rows);
    bn_gguf_discard(&w);
    return s;
}

bitnet_status bn_convert_to_gguf(const char *in, const char *out, const bitnet_convert_options *o,
                                 const struct bn_convert_cut *cut, bitnet_error *err)
{
    struct bn_source src = {0};
    struct bn_config config;
    struct bn_convert_plan plan = {.src = &src, .config = &config, .cut = cut, .merge = NULL};
    struct bn_buf note;
    enum bn_i2s_layout layout;
    BN_TRY(bn_choice_parse(&plan.type, o->type, true, err));
    BN_TRY(bn_choice_parse(&plan.head_type, o->head_type, false, err));
    if (!bn_i2s_layout_parse(&layout, o->i2s_layout))
        return bn_fail(err, BITNET_E_ARG,
                       "'%.32s' is no layout of I2_S; there are: auto, 128, 64, rows4",
                       o->i2s_layout);
    plan.allow_scale_rounding = o->allow_scale_rounding != 0;
    if (!o->overwrite &&
        bn_exists(out)) /* the writer checks again; said before the long work begins */
        return bn_fail(err, BITNET_E_IO, "'%s' exists already", out);
    bn_buf_init(&note, NOTE_MAX_BYTES);
    bitnet_status s = bn_source_open(&src, in, layout, err);
    if (s != BITNET_OK) goto fail;
    if (cut && src.is_gguf) plan.type.how = BN_CHOICE_KEEP;
    for (size_t i = 0; i < src.n_tensors && s == BITNET_OK; i++)
        if (src.tensors[i].packed) s = bn_tensor_fail_packed(&src, &src.tensors[i], err);
    if (s == BITNET_OK) s = bn_config_read(&config, &src, &note, err);
    if (s == BITNET_OK) s = check_plan(o->plan, &config, err);
    if (s == BITNET_OK) s = bn_merge_open(&plan.merge, &src, &config, o, err);
    if (s == BITNET_OK) s = bn_convert_plan_make(&plan, err);
    if (s == BITNET_OK) s = write_file(&plan, out, o, err);
fail:
    bn_convert_plan_free(&plan);
    bn_merge_close(plan.merge);
    bn_source_close(&src);
    bn_buf_free(&note);
    return s;
}

static bitnet_status to_gguf(const char *in, const char *out, const bitnet_convert_options *o,
                             bitnet_error *err)
{
    return bn_convert_to_gguf(in, out, o, NULL, err);
}

bitnet_status bn_convert(const char *in, const char *out, const bitnet_convert_options *o,
                         bitnet_error *err)
{
    return o->packed ? bn_convert_packed(in, out, o, to_gguf, err) : to_gguf(in, out, o, err);
}
