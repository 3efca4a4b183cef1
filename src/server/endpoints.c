/* SPDX-License-Identifier: Apache-2.0
 *
 * endpoints.c: what the server tells about itself: its model, its state, its numbers, its pages.
 */
#include "server/openai/request.h"
#include "server/pages.h"
#include "server/server_impl.h"
#include <stdlib.h>

/* ------------------------------------------------------------------ the model */

static struct bn_json *model_json(const struct server *s)
{
    const bitnet_model_info *m = &s->model;
    return bn_json_pack("{s:s, s:s, s:I, s:s, s:{s:I, s:I, s:I, s:I, s:I, s:I}}", "id",
                        s->c->model_name, "object", "model", "created", (int64_t)s->started,
                        "owned_by", "bitnet", "meta", "n_params", (int64_t)m->shape.n_params,
                        "n_ctx_train", (int64_t)m->shape.n_ctx_train, "n_ctx",
                        (int64_t)s->engine.ctx_tokens, "n_vocab", (int64_t)m->shape.n_vocab,
                        "n_embd", (int64_t)m->shape.n_embd, "size", (int64_t)m->memory.file_bytes);
}

void serve_models(struct exchange *x)
{
    exchange_reply_json(x, 200,
                        bn_json_pack("{s:s, s:[o]}", "object", "list", "data", model_json(x->s)));
}

void serve_model(struct exchange *x)
{
    const char *path = net_http(x->request)->path, *id = strstr(path, "/models/") + 8;
    if (strcmp(id, x->s->c->model_name) == 0) exchange_reply_json(x, 200, model_json(x->s));
    else
        exchange_refuse(x, 404, "model_not_found", "there is no model '%.80s'; '%.80s' is served",
                        id, x->s->c->model_name);
}

static struct bn_json *model_props(const struct server *s)
{
    const bitnet_model_info *m = &s->model;
    return bn_json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
        "name", s->c->model_name, "architecture", m->architecture, "activation", m->activation,
        "act_quant", m->act_quant, "weight_type", m->weight_type, "head_type", m->head_type,
        "backend", m->backend, "layout", m->layout, "n_params", (int64_t)m->shape.n_params,
        "n_vocab", (int64_t)m->shape.n_vocab, "n_embd", (int64_t)m->shape.n_embd, "n_ff",
        (int64_t)m->shape.n_ff, "n_layer", (int64_t)m->shape.n_layer, "n_head",
        (int64_t)m->shape.n_head, "n_head_kv", (int64_t)m->shape.n_head_kv, "n_ctx_train",
        (int64_t)m->shape.n_ctx_train, "file_bytes", (int64_t)m->memory.file_bytes);
}

static struct bn_json *engine_props(const struct server *s)
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

/* What a request gets that says nothing: asked of the reader of requests itself. */
static struct bn_json *generation_props(const struct server *s)
{
    struct openai_request q;
    struct openai_defaults d = {.max_tokens = s->c->default_max_tokens, .model = s->m};
    struct bn_json *body = bn_json_pack("{s:s}", "prompt", "");
    bitnet_status status = openai_request_read(&q, OPENAI_COMPLETION, body, &d, NULL);
    bn_json_free(body);
    if (status != BITNET_OK) return NULL;
    const bitnet_sampling *p = &q.request.sampling;
    struct bn_json *j = bn_json_pack(
        "{s:f, s:f, s:f, s:I, s:f, s:f, s:f, s:I, s:I}", "temperature", (double)p->temperature,
        "top_p", (double)p->top_p, "min_p", (double)p->min_p, "top_k", (int64_t)p->top_k,
        "repetition_penalty", (double)p->repetition_penalty, "presence_penalty",
        (double)p->presence_penalty, "frequency_penalty", (double)p->frequency_penalty,
        "max_tokens", (int64_t)q.request.max_new_tokens, "n", (int64_t)q.request.n_choices);
    openai_request_free(&q);
    return j;
}

void serve_props(struct exchange *x)
{
    const struct server *s = x->s;
    exchange_reply_json(x, 200,
                        bn_json_pack("{s:o, s:o, s:o, s:s, s:s, s:s?, s:O?}", "model",
                                     model_props(s), "engine", engine_props(s),
                                     "default_generation_settings", generation_props(s), "version",
                                     bitnet_version(), "build", __VERSION__, "chat_template",
                                     s->template_text, "config", s->config));
}

/* ------------------------------------------------------------------ its state */

static struct bn_json *status_json(const char *status, const char *why)
{
    return why ? bn_json_pack("{s:s, s:s}", "status", status, "reason", why)
               : bn_json_pack("{s:s}", "status", status);
}

void serve_health(struct exchange *x)
{
    struct worker_state w = {0};
    worker_get_state(x->s->worker, &w, NULL);
    bool broken = w.broken.status != BITNET_OK;
    exchange_reply_json(x, broken ? 503 : 200,
                        status_json(broken ? "broken" : "ok", broken ? w.broken.text : NULL));
}

void serve_ready(struct exchange *x)
{
    struct worker_state w = {0};
    worker_get_state(x->s->worker, &w, NULL);
    const char *why = w.broken.status != BITNET_OK ? w.broken.text
                      : server_draining(x->s)      ? "the server is shutting down"
                      : !w.ready                   ? "the model is being warmed up"
                                                   : NULL;
    exchange_reply_json(x, why ? 503 : 200, status_json(why ? "not ready" : "ready", why));
}

void serve_metrics(struct exchange *x)
{
    struct worker_state state;
    struct net_stats net;
    struct metrics_now now;
    struct bn_buf out;
    server_now(x->s, &state, &net, &now);
    bn_buf_init(&out, (size_t)64 << 20);
    metrics_text(x->s->metrics, &now, &out);
    if (out.failed) exchange_refuse(x, 500, NULL, "out of memory for the metrics");
    else exchange_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", out.data, out.len);
    bn_buf_free(&out);
}

void serve_metrics_json(struct exchange *x)
{
    struct worker_state state;
    struct net_stats net;
    struct metrics_now now;
    server_now(x->s, &state, &net, &now);
    net_add_header(x->request, "Cache-Control", "no-store");
    exchange_reply_json(x, 200, metrics_json(x->s->metrics, &now));
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
