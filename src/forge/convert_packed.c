/* SPDX-License-Identifier: Apache-2.0
 * A GGUF whose weights are packed: the model is opened as if it were to run, and what lies in memory
 * then is written, with the metadata, the vocabulary and the dense tensors of the file. */
#include "forge/convert_impl.h"

#include "model/files/gguf_split.h"
#include "model/image/image.h"
#include "model/savings.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct target {
    struct bn_gguf_writer w;
    struct bn_work work;
};

static bitnet_status put(void *user, const void *p, size_t n, bitnet_error *err)
{
    struct target *t = user;
    BN_TRY(bn_gguf_data(&t->w, p, n, err));
    return bn_work_add(&t->work, "writing", n, err);
}

static void put_meta(struct bn_gguf_writer *w, const struct bn_model *m, const uint8_t *kept,
                     const char *name, const char *new_plan)
{
    const struct bn_source *s = &m->source;
    for (size_t i = 0; i < s->n_meta; i++) {
        const char *key = s->meta[i].key;
        bool named = name && strcmp(key, "general.name") == 0;
        bool planned = new_plan && strcmp(key, BN_SAVINGS_KEY) == 0;
        if (!named && !planned && !bn_gguf_split_is_key(key) &&
            strcmp(key, "general.alignment") != 0)
            bn_gguf_put_raw(w, &s->meta[i]);
    }
    if (name) bn_gguf_put_str(w, "general.name", name, strlen(name));
    if (!bn_meta_find(s, "bitnet.activations")) {
        const char *a = bn_act_quant_name(m->config.act_quant);
        bn_gguf_put_str(w, "bitnet.activations", a, strlen(a));
    }
    bn_gguf_put_alignment(w, BN_HUGE_PAGE); /* so that the data lie as in huge pages */
    bn_gguf_put_packed(w, s, kept);
}

static bitnet_status write_all(struct target *t, const struct bn_model *m,
                               const struct bn_image_plan *p, bitnet_error *err)
{
    const struct bn_source *s = &m->source;
    const uint64_t dims[4] = {p->head.bytes, 1, 1, 1};
    t->work.total = p->head.bytes;
    for (size_t i = 0; i < s->n_tensors; i++) {
        const struct bn_tensor *x = &s->tensors[i];
        if (!p->kept[i]) continue;
        BN_TRY(bn_gguf_declare(&t->w, x->name, x->type, x->n_dims, x->dims, err));
        t->work.total += x->bytes;
    }
    BN_TRY(bn_gguf_declare(&t->w, BN_IMAGE_TENSOR, BN_I8, 1, dims, err));
    for (size_t i = 0; i < s->n_tensors; i++) {
        const struct bn_tensor *x = &s->tensors[i];
        if (!p->kept[i]) continue;
        BN_TRY(put(t, x->data, (size_t)x->bytes, err));
        bn_source_release(s, x);
    }
    BN_TRY(bn_image_write(p, put, t, err));
    return bn_gguf_commit(&t->w, err);
}

static bitnet_status write_file(const struct bn_model *m, const char *out,
                                const bitnet_convert_options *o, bitnet_error *err)
{
    struct target t = {.work = {o->progress, o->progress_user, 0, 0}};
    struct bn_image_plan plan;
    const char *name = o->name && *o->name ? o->name : NULL;
    BN_TRY(bn_image_plan_make(&plan, m, m->source.path, "", err));
    bitnet_status s = bn_gguf_create(&t.w, out, o->overwrite != 0, err);
    if (s == BITNET_OK) {
        put_meta(&t.w, m, plan.kept, name, o->plan);
        s = bn_convert_put_plan(&t.w, o->plan, err);
        if (s == BITNET_OK) s = write_all(&t, m, &plan, err);
    }
    bn_gguf_discard(&t.w);
    bn_image_plan_free(&plan);
    return s;
}

static bitnet_status pack(const char *in, const char *out, const bitnet_convert_options *o,
                          bitnet_error *err)
{
    struct bn_model *m;
    const bitnet_model_options how = {.backend = o->backend,
                                      .i2s_layout = o->i2s_layout,
                                      .layout = o->layout,
                                      .threads = o->threads,
                                      .plan = o->plan,
                                      .progress = o->progress,
                                      .progress_user = o->progress_user};
    BN_TRY(bn_model_open(&m, in, &how, err));
    bitnet_status s = BITNET_OK;
    if (bn_source_tensor(&m->source, BN_IMAGE_TENSOR))
        s = bn_fail(err, BITNET_E_UNSUPPORTED, "'%s' is packed already", m->source.path);
    if (s == BITNET_OK) s = write_file(m, out, o, err);
    bn_model_close(m);
    return s;
}

/* A GGUF whose types are to stay needs no other one in between. */
static bitnet_status is_ready(bool *ready, const char *in, const bitnet_convert_options *o,
                              bitnet_error *err)
{
    struct bn_source s;
    enum bn_i2s_layout layout;
    *ready = false;
    if (o->type || o->head_type || o->n_adapters || !bn_i2s_layout_parse(&layout, o->i2s_layout))
        return BITNET_OK;
    BN_TRY(bn_source_open(&s, in, layout, err));
    *ready = s.is_gguf;
    bn_source_close(&s);
    return BITNET_OK;
}

bitnet_status bn_convert_packed(const char *in, const char *out, const bitnet_convert_options *o,
                                bn_convert_fn *convert, bitnet_error *err)
{
    bool ready;
    if (!o->overwrite && bn_exists(out))
        return bn_fail(err, BITNET_E_IO, "'%s' exists already", out);
    BN_TRY(is_ready(&ready, in, o, err));
    if (ready) return pack(in, out, o, err);
    size_t room = strlen(out) + 32;
    char *between = malloc(room);
    if (!between) return bn_fail_nomem(err, room, out);
    snprintf(between, room, "%s.%ld.gguf", out, (long)getpid());
    bitnet_status s = convert(in, between, o, err);
    if (s == BITNET_OK) s = pack(between, out, o, err);
    unlink(between);
    free(between);
    return s;
}
