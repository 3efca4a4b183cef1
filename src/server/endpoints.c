/* SPDX-License-Identifier: Apache-2.0
 *
 * endpoints.c: what the server tells about itself: its model, its state, its numbers, its pages.
 */
#include "base/os/mem.h"
#include "server/llamacpp/llamacpp.h"
#include "server/openai/reply.h"
#include "server/openai/request.h"
#include "server/pages.h"
#include "server/server_impl.h"
#include <stdio.h>
#include <stdlib.h>

/* ------------------------------------------------------------------ the model */

struct bn_json *model_card(const struct served_model *s)
{
    const bitnet_model_info *m = &s->info;
    return bn_json_pack("{s:{s:I, s:I, s:I, s:I, s:I, s:I}}", "meta", "n_params",
                        (int64_t)m->shape.n_params, "n_ctx_train", (int64_t)m->shape.n_ctx_train,
                        "n_ctx", (int64_t)s->engine.ctx_tokens, "n_vocab",
                        (int64_t)m->shape.n_vocab, "n_embd", (int64_t)m->shape.n_embd, "size",
                        (int64_t)m->memory.file_bytes);
}

/* "'a,b'" as a list */
static struct bn_json *aliases_json(const struct served_model *s)
{
    struct bn_json *list = bn_json_array();
    for (const char *at = s->spec->aliases; at && *at;) {
        size_t n = strcspn(at, ",");
        bn_json_append(list, bn_json_stringn(at, n));
        at += n + (at[n] == ',');
    }
    return list;
}

/* The state as llama-server tells it. What is not known before it was loaded once is not there. */
static struct bn_json *model_json(const struct served_model *s)
{
    const char *key;
    struct bn_json *v, *j = bn_json_pack("{s:s, s:s, s:I, s:s}", "id", s->name, "object", "model",
                                         "created", (int64_t)s->started, "owned_by", "bitnet");
    bn_json_each_member(s->card, key, v) bn_json_set(j, key, bn_json_ref(v));
    bn_json_set(j, "status", bn_json_pack("{s:s}", "value", served_state_name(s)));
    if (s->spec->aliases) bn_json_set(j, "aliases", aliases_json(s));
    return j;
}

/* An adapter is a model whose parent is the model. */
static struct bn_json *adapter_json(const struct served_model *s, const struct served_adapter *a)
{
    return bn_json_pack("{s:s, s:s, s:I, s:s, s:s, s:s}", "id", a->name, "object", "model",
                        "created", (int64_t)s->started, "owned_by", "bitnet", "root", a->path,
                        "parent", s->name);
}

void serve_models(struct exchange *x)
{
    struct bn_json *all = bn_json_array();
    for (size_t i = 0; i < x->s->n_models; i++) {
        const struct served_model *m = &x->s->models[i];
        bn_json_append(all, model_json(m));
        for (size_t k = 0; k < m->adapters.n; k++)
            bn_json_append(all, adapter_json(m, m->adapters.items[k]));
    }
    exchange_reply_json(x, 200, bn_json_pack("{s:s, s:o}", "object", "list", "data", all));
}

void serve_model(struct exchange *x)
{
    const char *path = net_http(x->request)->path, *id = strstr(path, "/models/") + 8;
    for (size_t i = 0; i < x->s->n_models; i++) {
        const struct served_model *m = &x->s->models[i];
        const struct served_adapter *adapter = adapter_list_find(&m->adapters, id);
        if (!served_is_called(m, id) && !adapter) continue;
        exchange_reply_json(x, 200, adapter ? adapter_json(m, adapter) : model_json(m));
        return;
    }
    exchange_refuse(x, 404, "model_not_found",
                    "there is no model '%.80s'; GET /v1/models lists those that are served", id);
}

/* It is there: that was the question. */
void serve_models_load(struct exchange *x)
{
    exchange_reply_json(x, 200, bn_json_pack("{s:b}", "success", 1));
}

/* Not in the queue of those who wait for it. */
void serve_models_unload(struct exchange *x)
{
    struct bn_json *body;
    struct served_model *m = NULL;
    if (!exchange_read(x) || !exchange_body(x, &body)) return;
    const char *name = bn_json_text(bn_json_get(body, "model"));
    if (!name) exchange_refuse(x, 400, NULL, "the request has no 'model', a string");
    else m = models_choose(x, name);
    bn_json_free(body);
    if (m && !x->s->c->on_demand) {
        exchange_refuse(x, 501, NULL,
                        "the only model stays; start the server with --idle-unload, or several");
    } else if (m) {
        models_keep(m, 0);
        exchange_reply_json(x, 200, bn_json_pack("{s:b}", "success", 1));
    }
}

static struct bn_json *model_props(const struct served_model *s)
{
    const bitnet_model_info *m = &s->info;
    return bn_json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
        "name", s->name, "architecture", m->architecture, "activation", m->activation, "act_quant",
        m->act_quant, "weight_type", m->weight_type, "head_type", m->head_type, "backend",
        m->backend, "layout", m->layout, "n_params", (int64_t)m->shape.n_params, "n_vocab",
        (int64_t)m->shape.n_vocab, "n_embd", (int64_t)m->shape.n_embd, "n_ff",
        (int64_t)m->shape.n_ff, "n_layer", (int64_t)m->shape.n_layer, "n_head",
        (int64_t)m->shape.n_head, "n_head_kv", (int64_t)m->shape.n_head_kv, "n_ctx_train",
        (int64_t)m->shape.n_ctx_train, "file_bytes", (int64_t)m->memory.file_bytes);
}

static struct bn_json *engine_props(const struct served_model *s)
{
    const bitnet_engine_info *e = &s->engine;
    return bn_json_pack(
        "{s:I, s:I, s:I, s:I, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "threads",
        (int64_t)e->threads, "ctx_tokens", (int64_t)e->ctx_tokens, "max_seqs", (int64_t)e->max_seqs,
        "max_batch_tokens", (int64_t)e->max_batch_tokens, "kv_type", e->kv.type, "kv_type_v",
        e->kv.type_v, "head", e->head.type, "ffn", e->ffn.type, "plan", e->plan.from, "kv_bytes",
        (int64_t)e->kv.bytes, "scratch_bytes", (int64_t)e->scratch_bytes, "state_bytes",
        (int64_t)e->states.bytes, "state_seq_bytes", (int64_t)e->states.seq_bytes,
        "state_snapshots", (int64_t)e->states.snapshots);
}

/* What a request gets that says nothing: asked of the readers of requests themselves. At the top as OpenAI's
 * requests have it, in "params" as llama-server's. */
static struct bn_json *generation_props(const struct served_model *s)
{
    struct openai_request q;
    struct openai_defaults d = server_defaults(s);
    struct bn_json *body = bn_json_pack("{s:s}", "prompt", "");
    bitnet_status status = openai_request_read(&q, OPENAI_COMPLETION, body, &d, NULL);
    bn_json_free(body);
    if (status != BITNET_OK) return NULL;
    const bitnet_sampling *p = &q.request.sampling;
    struct bn_json *j = bn_json_pack(
        "{s:f, s:f, s:f, s:I, s:f, s:f, s:f, s:I, s:I, s:I, s:o}", "temperature",
        (double)p->temperature, "top_p", (double)p->top_p, "min_p", (double)p->min_p, "top_k",
        (int64_t)p->top_k, "repetition_penalty", (double)p->repetition_penalty, "presence_penalty",
        (double)p->presence_penalty, "frequency_penalty", (double)p->frequency_penalty,
        "max_tokens", (int64_t)q.request.max_new_tokens, "n", (int64_t)q.request.n_choices, "n_ctx",
        (int64_t)s->engine.ctx_tokens, "params", llamacpp_defaults(&d));
    openai_request_free(&q);
    return j;
}

static struct bn_json *token_text(const struct served_model *s, int32_t id)
{
    const char *text = bitnet_token_text(s->m, id);
    return openai_text(text ? text : "", text ? strlen(text) : 0);
}

/* Those that llama-server tells beside ours. */
static void set_peers_props(struct bn_json *j, const struct served_model *s)
{
    bn_json_set(j, "total_slots", bn_json_int(s->engine.max_seqs));
    bn_json_set(j, "model_alias", bn_json_string(s->name));
    bn_json_set(j, "model_path", bn_json_string(s->path ? s->path : ""));
    bn_json_set(j, "modalities", bn_json_pack("{s:b, s:b}", "vision", 0, "audio", 0));
    bn_json_set(j, "bos_token", token_text(s, bitnet_token_bos(s->m)));
    bn_json_set(j, "eos_token", token_text(s, bitnet_token_eos(s->m)));
    bn_json_set(j, "build_info", bn_json_printf("bitnet-%s", bitnet_version()));
    bn_json_set(j, "is_sleeping", bn_json_bool(false));
}

void serve_props(struct exchange *x)
{
    const struct served_model *s = x->model;
    struct bn_json *j = bn_json_pack(
        "{s:o, s:o, s:o, s:s, s:s, s:s?, s:O?}", "model", model_props(s), "engine", engine_props(s),
        "default_generation_settings", generation_props(s), "version", bitnet_version(), "build",
        __VERSION__, "chat_template", s->template_text, "config", s->s->config);
    set_peers_props(j, s);
    exchange_reply_json(x, 200, j);
}

/* ------------------------------------------------------------------ its state */

/* This and the next two as vLLM has them. */
void serve_version(struct exchange *x)
{
    exchange_reply_json(x, 200, bn_json_pack("{s:s}", "version", bitnet_version()));
}

void serve_load(struct exchange *x)
{
    exchange_reply_json(x, 200, bn_json_pack("{s:I}", "server_load", (int64_t)models_taken(x->s)));
}

void serve_ping(struct exchange *x) { exchange_reply(x, 200, "text/plain", "", 0); }

static struct bn_json *status_json(const char *status, const char *why)
{
    return why ? bn_json_pack("{s:s, s:s}", "status", status, "reason", why)
               : bn_json_pack("{s:s}", "status", status);
}

/* Of the first model whose engine has stopped; else of the one that was loaded at the start. */
static void find_state(const struct server *s, struct worker_state *w)
{
    *w = (struct worker_state){.ready = true}; /* others are loaded when they are asked for */
    if (s->models[0].worker && !s->c->on_demand) worker_get_state(s->models[0].worker, w, NULL);
    for (size_t i = 0; i < s->n_models && w->broken.status == BITNET_OK; i++) {
        struct worker_state one = {0};
        if (s->models[i].worker) worker_get_state(s->models[i].worker, &one, NULL);
        if (one.broken.status != BITNET_OK) *w = one;
    }
}

void serve_health(struct exchange *x)
{
    struct worker_state w;
    find_state(x->s, &w);
    bool broken = w.broken.status != BITNET_OK;
    exchange_reply_json(x, broken ? 503 : 200,
                        status_json(broken ? "broken" : "ok", broken ? w.broken.text : NULL));
}

void serve_ready(struct exchange *x)
{
    struct worker_state w;
    find_state(x->s, &w);
    bool draining = w.broken.status == BITNET_OK && server_draining(x->s);
    const char *why = w.broken.status != BITNET_OK ? w.broken.text
                      : draining                   ? "the server is shutting down"
                      : !w.ready                   ? "the model is being warmed up"
                                                   : NULL;
    /* HAProxy lets answers in progress end where a check says 404, not where it fails */
    bool as_404 = draining && strcmp(net_http(x->request)->query, "draining=404") == 0;
    exchange_reply_json(x,
                        as_404 ? 404
                        : why  ? 503
                               : 200,
                        status_json(why ? "not ready" : "ready", why));
}

/* What is asked for about one model, so that it can be told. */
struct about {
    struct worker_state state;
    struct net_stats net;
    struct bn_buf names[2];
};

static void look(struct served_model *m, struct about *a, struct metrics_now *now)
{
    server_now(m, &a->state, &a->net, now);
    for (int i = 0; i < 2; i++) {
        bn_buf_init(&a->names[i], ADAPTERS_MAX * (ADAPTER_NAME_BYTES + 1));
        adapter_list_names(&m->adapters, i == 0, &a->names[i]);
    }
    now->lora_running = a->names[0].data;
    now->lora_waiting = a->names[1].data;
}

/* The server's own figures first, if there are several models. */
static bool write_metrics(struct server *s, struct bn_buf *out)
{
    size_t n = s->n_models, own = models_several(s);
    struct about *a = bn_calloc(n + 1, sizeof *a);
    struct metrics_now *now = bn_calloc(n + 1, sizeof *now);
    struct metrics **m = bn_calloc(n + 1, sizeof *m);
    bool ok = a && now && m;
    for (size_t i = 0; ok && i < n; i++) {
        look(&s->models[i], &a[i], &now[own + i]);
        m[own + i] = s->models[i].metrics;
    }
    if (ok && own) {
        m[0] = s->metrics;
        now[0] = now[1];
        metrics_text_several(m, now, n + 1, out);
    } else if (ok) {
        metrics_text(m[0], &now[0], out);
    }
    for (size_t i = 0; ok && i < n; i++)
        for (int k = 0; k < 2; k++) bn_buf_free(&a[i].names[k]);
    free(a);
    free(now);
    free(m);
    return ok && !out->failed;
}

void serve_metrics(struct exchange *x)
{
    struct bn_buf out;
    bn_buf_init(&out, (size_t)64 << 20);
    bool ok = write_metrics(x->s, &out);
    char began[24];
    snprintf(began, sizeof began, "%lld", (long long)x->s->models[0].started);
    net_add_header(x->request, "Process-Start-Time-Unix", began); /* as llama-server tells it */
    if (!ok) exchange_refuse(x, 500, NULL, "out of memory for the metrics");
    else exchange_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", out.data, out.len);
    bn_buf_free(&out);
}

/* Of one model: the first that is in memory, or that of ?model=. The server's own figures are told with it. */
static struct served_model *asked_for(struct exchange *x)
{
    char name[INTAKE_NAME_BYTES];
    const char *asked = intake_name_in_query(name, net_http(x->request)->query);
    if (asked && *asked) return models_choose(x, asked);
    for (size_t i = 0; i < x->s->n_models; i++)
        if (x->s->models[i].state == SERVED_READY) return &x->s->models[i];
    return &x->s->models[0];
}

static struct bn_json *names_json(const struct server *s)
{
    struct bn_json *list = bn_json_array();
    for (size_t i = 0; i < s->n_models; i++)
        bn_json_append(list, bn_json_pack("{s:s, s:s}", "name", s->models[i].name, "state",
                                          served_state_name(&s->models[i])));
    return list;
}

void serve_metrics_json(struct exchange *x)
{
    struct worker_state state;
    struct net_stats net;
    struct metrics_now now;
    struct served_model *m = asked_for(x);
    if (!m) return;
    server_now(m, &state, &net, &now);
    struct bn_json *j = models_several(x->s) ? metrics_json_beside(m->metrics, x->s->metrics, &now)
                                             : metrics_json(m->metrics, &now);
    if (j) {
        bn_json_set(j, "model", bn_json_string(m->name));
        bn_json_set(j, "models", names_json(x->s));
    }
    net_add_header(x->request, "Cache-Control", "no-store");
    exchange_reply_json(x, 200, j);
}

void serve_metrics_history(struct exchange *x)
{
    struct served_model *m = asked_for(x);
    if (!m) return;
    struct bn_buf out;
    bn_buf_init(&out, (size_t)4 << 20);
    metrics_history(m->metrics, m->name, &out);
    net_add_header(x->request, "Cache-Control", "no-store");
    if (out.failed) exchange_refuse(x, 500, NULL, "out of memory for the metrics");
    else exchange_reply(x, 200, "application/json", out.data, out.len);
    bn_buf_free(&out);
}

/* ------------------------------------------------------------------ pages */

void serve_page(struct exchange *x)
{
    const struct http_reader *q = net_http(x->request);
    const struct page *p = page_find(q->path);
    const char *known = http_header(q, "if-none-match");
    bool same = known && strcmp(known, p->etag) == 0;
    net_add_header(x->request, "ETag", p->etag);
    net_add_header(x->request, "Cache-Control",
                   "no-cache"); /* may be kept, but is asked for again */
    net_add_header(x->request, "X-Content-Type-Options", "nosniff");
    net_add_header(x->request, "Content-Security-Policy",
                   "default-src 'self'; img-src 'self' data:; base-uri 'none'; "
                   "frame-ancestors 'none'; form-action 'none'");
    exchange_reply(x, same ? 304 : 200, p->content_type, p->data, same ? 0 : p->bytes);
}
