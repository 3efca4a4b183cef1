/* SPDX-License-Identifier: Apache-2.0
 *
 * models.c: what Ollama's interface tells about models, as far as it is known here; nothing about a model can
 * be changed over it.
 */
#include "base/clock.h"
#include "server/fim.h"
#include "server/ollama/ollama.h"

#include <stdio.h>

enum { DIGEST_BYTES = 65, SIZE_BYTES = 16 };

/* "31.6M", "2.4B" */
static void size_text(char out[SIZE_BYTES], uint64_t n)
{
    if (n >= 1000000000u) snprintf(out, SIZE_BYTES, "%.1fB", (double)n / 1e9);
    else snprintf(out, SIZE_BYTES, "%.1fM", (double)n / 1e6);
}

static struct bn_json *details_json(const struct served_model *s)
{
    char size[SIZE_BYTES];
    size_text(size, s->info.shape.n_params);
    return bn_json_pack("{s:s, s:s, s:s, s:[s], s:s, s:s}", "parent_model", "", "format", "gguf",
                        "family", s->info.architecture, "families", s->info.architecture,
                        "parameter_size", size, "quantization_level", s->info.weight_type);
}

/* Theirs is the SHA-256 of a manifest; ours the model's checksum, at its end. */
struct bn_json *ollama_card(const struct served_model *s)
{
    char when[OLLAMA_TIME_BYTES], digest[DIGEST_BYTES];
    ollama_time(when, (int64_t)s->started);
    snprintf(digest, sizeof digest, "%016llx%048d", (unsigned long long)s->info.checksum, 0);
    return bn_json_pack("{s:s, s:s, s:s, s:I, s:s, s:o}", "name", s->name, "model", s->name,
                        "modified_at", when, "size", (int64_t)s->info.memory.file_bytes, "digest",
                        digest, "details", details_json(s));
}

/* Of one that was never loaded little is known. */
static struct bn_json *model_json(const struct served_model *s)
{
    char when[OLLAMA_TIME_BYTES];
    if (s->ollama_card) return bn_json_ref(s->ollama_card);
    ollama_time(when, (int64_t)s->started);
    return bn_json_pack("{s:s, s:s, s:s, s:I, s:s, s:{s:s, s:s, s:s, s:[], s:s, s:s}}", "name",
                        s->name, "model", s->name, "modified_at", when, "size",
                        (int64_t)s->spec->file_bytes, "digest", "", "details", "parent_model", "",
                        "format", "gguf", "family", "", "families", "parameter_size", "",
                        "quantization_level", "");
}

void serve_ollama_tags(struct exchange *x)
{
    struct bn_json *list = bn_json_array();
    for (size_t i = 0; i < x->s->n_models; i++) bn_json_append(list, model_json(&x->s->models[i]));
    exchange_reply_json(x, 200, bn_json_pack("{s:o}", "models", list));
}

/* When it goes if nobody asks for it; one that stays as long as the server runs has a time far away. */
static void expiry(char out[OLLAMA_TIME_BYTES], const struct served_model *s)
{
    uint64_t now_ns = bn_now_ns(), idle_ns = now_ns > s->used_ns ? now_ns - s->used_ns : 0;
    int64_t idle_s = s->n_holders ? 0 : (int64_t)(idle_ns / 1000000000u);
    if (s->keep_s < 0) snprintf(out, OLLAMA_TIME_BYTES, "9999-12-31T23:59:59Z");
    else ollama_time(out, (int64_t)time(NULL) + s->keep_s - idle_s);
}

static struct bn_json *running_json(const struct served_model *s)
{
    char when[OLLAMA_TIME_BYTES];
    struct bn_json *j = ollama_card(s);
    expiry(when, s);
    bn_json_set(j, "expires_at", bn_json_string(when));
    bn_json_set(j, "size", bn_json_int((int64_t)s->bytes));
    bn_json_set(j, "size_vram", bn_json_int(0));
    bn_json_set(j, "context_length", bn_json_int(s->engine.ctx_tokens));
    return j;
}

void serve_ollama_ps(struct exchange *x)
{
    struct bn_json *list = bn_json_array();
    for (size_t i = 0; i < x->s->n_models; i++)
        if (x->s->models[i].state == SERVED_READY)
            bn_json_append(list, running_json(&x->s->models[i]));
    exchange_reply_json(x, 200, bn_json_pack("{s:o}", "models", list));
}

void serve_ollama_version(struct exchange *x)
{
    exchange_reply_json(x, 200, bn_json_pack("{s:s}", "version", bitnet_version()));
}

/* ------------------------------------------------------------------ show */

static void set_shape(struct bn_json *j, const char *architecture, const char *name, int64_t value)
{
    char key[128];
    snprintf(key, sizeof key, "%.60s.%s", architecture, name);
    bn_json_set(j, key, bn_json_int(value));
}

static struct bn_json *info_json(const struct served_model *s)
{
    const bitnet_model_shape *p = &s->info.shape;
    const char *a = s->info.architecture;
    struct bn_json *j = bn_json_pack("{s:s, s:s, s:I}", "general.architecture", a, "general.name",
                                     s->info.name, "general.parameter_count", (int64_t)p->n_params);
    set_shape(j, a, "context_length", p->n_ctx_train);
    set_shape(j, a, "embedding_length", p->n_embd);
    set_shape(j, a, "block_count", p->n_layer);
    set_shape(j, a, "feed_forward_length", p->n_ff);
    set_shape(j, a, "attention.head_count", p->n_head);
    set_shape(j, a, "attention.head_count_kv", p->n_head_kv);
    set_shape(j, a, "vocab_size", p->n_vocab);
    return j;
}

static struct bn_json *capabilities_json(const struct served_model *s)
{
    const char *template = s->template_text ? s->template_text : "";
    struct fim f;
    struct bn_json *list = bn_json_array();
    bn_json_append(list, bn_json_string("completion"));
    bn_json_append(list, bn_json_string("tools"));
    bn_json_append(list, bn_json_string("embedding"));
    if (strstr(template, "<think>")) bn_json_append(list, bn_json_string("thinking"));
    if (fim_find(&f, s->m)) bn_json_append(list, bn_json_string("insert"));
    return list;
}

static struct bn_json *show_json(const struct served_model *s)
{
    char when[OLLAMA_TIME_BYTES];
    ollama_time(when, (int64_t)s->started);
    return bn_json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:s}", "modelfile", "", "parameters", "",
                        "template", s->template_text ? s->template_text : "", "details",
                        details_json(s), "model_info", info_json(s), "capabilities",
                        capabilities_json(s), "modified_at", when);
}

void serve_ollama_show(struct exchange *x)
{
    struct bn_json *body;
    if (!exchange_body(x, &body)) return;
    const struct bn_json *v = bn_json_get(body, "model");
    const char *name = bn_json_text(v ? v : bn_json_get(body, "name"));
    if (!name) exchange_refuse(x, 400, NULL, "the request has no 'model', a string");
    else if (!served_is_called(x->model, name))
        exchange_refuse(x, 404, "model_not_found", "there is no model '%.80s'; '%.80s' is served",
                        name, x->model->name);
    else exchange_reply_json(x, 200, show_json(x->model));
    bn_json_free(body);
}

void serve_ollama_manage(struct exchange *x)
{
    exchange_refuse(x, 501, NULL,
                    "'%.40s' is not possible: models are chosen when the server starts; '%.80s' is "
                    "served",
                    net_http(x->request)->path, x->model->name);
}
