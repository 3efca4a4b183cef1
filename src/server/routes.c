/* SPDX-License-Identifier: Apache-2.0
 *
 * routes.c: which path is served by whom, to whom. What concerns every request happens here: its
 * id, origins of browsers, keys, and paths and methods that do not exist.
 */
#include "base/rng.h"
#include "base/suggest.h"
#include "server/anthropic/anthropic.h"
#include "server/llamacpp/llamacpp.h"
#include "server/ollama/ollama.h"
#include "server/openai/dialects.h"
#include "server/pages.h"
#include "server/server_impl.h"
#include <stdio.h>
#include <strings.h>

static const struct route routes[] = {
    {"/v1/chat/completions", ROUTE_POST | ROUTE_WORK | ROUTE_BARE, serve_generate,
     &llamacpp_over_openai[OPENAI_CHAT], "The next message of a conversation"},
    {"/completions", ROUTE_POST | ROUTE_WORK, serve_completions_bare,
     &llamacpp_over_openai[OPENAI_COMPLETION],
     "The continuation of texts; llama-server's bodies, too, if they name no model"},
    {"/v1/completions", ROUTE_POST | ROUTE_WORK, serve_generate,
     &llamacpp_over_openai[OPENAI_COMPLETION], "The continuation of one or several texts"},
    {"/v1/responses", ROUTE_POST | ROUTE_WORK | ROUTE_BARE, serve_generate,
     &openai_dialects[OPENAI_RESPONSE], "Text in, text out, as items"},
    {"/v1/chat/completions/input_tokens", ROUTE_POST | ROUTE_MODEL | ROUTE_BARE, serve_count_tokens,
     &openai_dialects[OPENAI_CHAT], "How many tokens such a request reads"},
    {"/v1/responses/input_tokens", ROUTE_POST | ROUTE_MODEL | ROUTE_BARE, serve_count_tokens,
     &openai_dialects[OPENAI_RESPONSE], "How many tokens such a request reads"},
    {"/v1/messages", ROUTE_POST | ROUTE_WORK | ROUTE_BARE, serve_generate, &anthropic_dialect,
     "The next message of a conversation"},
    {"/v1/messages/count_tokens", ROUTE_POST | ROUTE_MODEL | ROUTE_BARE, serve_count_tokens,
     &anthropic_dialect, "How many tokens such a request reads"},
    {"/embeddings", ROUTE_POST | ROUTE_WORK, serve_embeddings_bare, NULL,
     "Vectors of texts; llama-server's bodies, too, if they have content or pool nothing"},
    {"/v1/embeddings", ROUTE_POST | ROUTE_WORK, serve_embeddings, NULL, "Vectors of texts"},
    {"/v1/models", ROUTE_GET | ROUTE_BARE, serve_models, NULL,
     "What is served: models and adapters"},
    {"/v1/models/load", ROUTE_POST | ROUTE_MODEL | ROUTE_BARE, serve_models_load, NULL,
     "Loads a model, and replies when it is there"},
    {"/v1/models/unload", ROUTE_POST | ROUTE_BARE, serve_models_unload, NULL,
     "Lets go of a model, once nobody uses it"},
    {"/v1/models/", ROUTE_GET | ROUTE_BARE | ROUTE_BELOW, serve_model, NULL, "One of them"},
    {"/completion", ROUTE_POST | ROUTE_WORK, serve_generate, &llamacpp_dialect,
     "The continuation of texts, with all settings"},
    {"/infill", ROUTE_POST | ROUTE_WORK, serve_llamacpp_infill, &llamacpp_dialect,
     "What stands between two texts"},
    {"/embedding", ROUTE_POST | ROUTE_WORK, serve_llamacpp_embedding, &llamacpp_dialect,
     "Vectors of texts, or of their tokens"},
    {"/v1/rerank", ROUTE_POST | ROUTE_WORK | ROUTE_BARE, serve_rerank, &llamacpp_dialect,
     "Documents in the order of their likeness to a query"},
    {"/v1/reranking", ROUTE_POST | ROUTE_WORK | ROUTE_BARE, serve_rerank, &llamacpp_dialect,
     "The same as /v1/rerank"},
    {"/v1/score", ROUTE_POST | ROUTE_WORK | ROUTE_BARE, serve_score, NULL,
     "How alike pairs of texts are"},
    {"/slots", ROUTE_GET | ROUTE_MODEL, serve_llamacpp_slots, &llamacpp_dialect,
     "Sequences, and which of them are busy"},
    {"/slots/", ROUTE_POST | ROUTE_MODEL | ROUTE_BELOW, serve_llamacpp_slot, &llamacpp_dialect,
     "The cache of a slot's text: saved to a file, restored, erased"},
    {"/tokenize", ROUTE_POST | ROUTE_MODEL, serve_tokenize, NULL, "A text's tokens"},
    {"/detokenize", ROUTE_POST | ROUTE_MODEL, serve_detokenize, NULL, "The text of tokens"},
    {"/tokenizer_info", ROUTE_GET | ROUTE_MODEL, serve_tokenizer_info, NULL,
     "Special tokens and the chat template"},
    {"/apply-template", ROUTE_POST | ROUTE_MODEL, serve_apply_template, NULL,
     "A conversation as the text that the model sees"},
    {"/v1/load_lora_adapter", ROUTE_POST | ROUTE_MODEL, serve_load_lora, NULL, "Loads an adapter"},
    {"/v1/unload_lora_adapter", ROUTE_POST | ROUTE_MODEL, serve_unload_lora, NULL,
     "Lets go of an adapter"},
    {"/lora-adapters", ROUTE_GET | ROUTE_POST | ROUTE_MODEL, serve_lora_adapters, NULL,
     "Adapters, and which of them all requests use"},
    {"/props", ROUTE_GET | ROUTE_MODEL, serve_props, NULL,
     "The model, the engine, defaults and the configuration"},
    {"/api/chat", ROUTE_POST | ROUTE_WORK, serve_ollama_chat, &ollama_chat_dialect,
     "The next message of a conversation"},
    {"/api/generate", ROUTE_POST | ROUTE_WORK, serve_ollama_generate, &ollama_generate_dialect,
     "The continuation of a text"},
    {"/api/embed", ROUTE_POST | ROUTE_WORK, serve_ollama_embed, &ollama_chat_dialect,
     "Vectors of texts"},
    {"/api/embeddings", ROUTE_POST | ROUTE_WORK, serve_ollama_embeddings, &ollama_chat_dialect,
     "The vector of a text, in the older form"},
    {"/api/tags", ROUTE_GET, serve_ollama_tags, &ollama_chat_dialect, "What is served"},
    {"/api/ps", ROUTE_GET, serve_ollama_ps, &ollama_chat_dialect, "What is in memory"},
    {"/api/show", ROUTE_POST | ROUTE_MODEL, serve_ollama_show, &ollama_chat_dialect,
     "Shape, template and abilities of a model"},
    {"/api/version", ROUTE_GET, serve_ollama_version, &ollama_chat_dialect, "The version"},
    {"/api/pull", ROUTE_POST, serve_ollama_pull, &ollama_chat_dialect,
     "Downloads a model, which is served from then on"},
    {"/api/push", ROUTE_POST, serve_ollama_manage, &ollama_chat_dialect, "Not possible"},
    {"/api/create", ROUTE_POST, serve_ollama_manage, &ollama_chat_dialect, "Not possible"},
    {"/api/copy", ROUTE_POST, serve_ollama_manage, &ollama_chat_dialect, "Not possible"},
    {"/api/delete", ROUTE_DELETE, serve_ollama_manage, &ollama_chat_dialect, "Not possible"},
    {"/version", ROUTE_GET, serve_version, NULL, "The version"},
    {"/load", ROUTE_GET, serve_load, NULL, "Answers that are computed or wait"},
    {"/ping", ROUTE_GET | ROUTE_POST | ROUTE_PUBLIC, serve_ping, NULL, "Is the server there?"},
    {"/health", ROUTE_GET | ROUTE_PUBLIC, serve_health, NULL,
     "Is the server alive, and does its engine work?"},
    {"/ready", ROUTE_GET | ROUTE_PUBLIC, serve_ready, NULL, "May requests be sent?"},
    {"/metrics", ROUTE_GET | ROUTE_METRICS, serve_metrics, NULL, "Metrics, for Prometheus"},
    {"/metrics.json", ROUTE_GET | ROUTE_METRICS, serve_metrics_json, NULL,
     "Metrics, for the dashboard"},
    {"/metrics/history.json", ROUTE_GET | ROUTE_METRICS, serve_metrics_history, NULL,
     "Metrics of the last hour, for the dashboard"},
    {"/openapi.json", ROUTE_GET | ROUTE_PUBLIC, serve_openapi, NULL, "This description"},
};
static const struct route page_route = {"/", ROUTE_GET | ROUTE_PUBLIC, serve_page, NULL, NULL};

const struct route *route_at(size_t i) { return i < BN_ARRAY_LEN(routes) ? &routes[i] : NULL; }

static bool fits(const struct route *r, const char *path, const char *asked)
{
    size_t n = strlen(path);
    return r->flags & ROUTE_BELOW ? strncmp(asked, path, n) == 0 : strcmp(asked, path) == 0;
}

static const char *bare(const struct route *r) { return r->path + strlen("/v1"); }

static const struct route *find(const struct server *s, const char *path)
{
    for (size_t i = 0; i < BN_ARRAY_LEN(routes); i++) {
        const struct route *r = &routes[i];
        if (fits(r, r->path, path) || (r->flags & ROUTE_BARE && fits(r, bare(r), path))) return r;
    }
    return s->c->pages && page_find(path) ? &page_route : NULL;
}

/* ------------------------------------------------------------------ ids */

static bool is_harmless(const char *id)
{
    size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    return n > 0 && n <= EXCHANGE_MAX_REQUEST_ID && id[n] == 0;
}

static void name_exchange(struct exchange *x)
{
    struct server *s = x->s;
    const char *theirs = http_header(net_http(x->request), "x-request-id");
    snprintf(x->id, sizeof x->id, "%016llx", (unsigned long long)bn_mix64(s->id_base + ++s->n_ids));
    snprintf(x->request_id, sizeof x->request_id, "%s",
             theirs && is_harmless(theirs) ? theirs : x->id);
    net_add_header(x->request, "X-Request-Id", x->request_id);
    if (x->route && x->route->dialect && x->route->dialect->id_header)
        net_add_header(x->request, x->route->dialect->id_header, x->request_id);
}

/* ------------------------------------------------------------------ browsers */

/* The name in "name", "name:port" and "[address]:port", in lower case without brackets. */
static void host_name(char *out, size_t room, const char *host)
{
    bool bracket = *host == '[';
    size_t n = bracket ? strcspn(++host, "]") : strcspn(host, ":");
    snprintf(out, room, "%.*s", (int)bn_min_size(n, room - 1), host);
    for (char *c = out; *c; c++)
        if (*c >= 'A' && *c <= 'Z') *c = (char)(*c | 0x20);
}

static bool is_loopback(const char *name)
{
    size_t n = strlen(name), tail = strlen(".localhost");
    return strcmp(name, "localhost") == 0 || strcmp(name, "::1") == 0 ||
           (strncmp(name, "127.", 4) == 0 && strspn(name, "0123456789.") == n) ||
           (n > tail && strcmp(name + n - tail, ".localhost") == 0);
}

/* "http://localhost:3000" and the like: "--cors localhost" stands for all of them */
static bool is_local_origin(const char *origin)
{
    char name[256];
    const char *host = strstr(origin, "://");
    if (!host) return false;
    host_name(name, sizeof name, host + 3);
    return is_loopback(name);
}

static bool may_ask(const struct server *s, const char *origin)
{
    for (size_t i = 0; i < s->c->n_cors; i++) {
        const char *allowed = s->c->cors[i];
        if (strcmp(allowed, "*") == 0 || strcasecmp(allowed, origin) == 0) return true;
        if (strcmp(allowed, "localhost") == 0 && is_local_origin(origin)) return true;
    }
    return false;
}

bool routes_local(const struct server *s)
{
    char name[256];
    host_name(name, sizeof name, s->c->net.host);
    return is_loopback(name) || strncmp(s->c->net.host, "unix:", 5) == 0;
}

/* A page of anyone's may have a name of its own lead to this machine, and would then count as a page of
 * this server. So a server that only this machine reaches, and that asks for no key, answers to this
 * machine's names only, and to those that it is told. false: the client was refused. */
static bool check_host(struct exchange *x)
{
    const struct server *s = x->s;
    const char *host = http_header(net_http(x->request), "host");
    char name[256];
    host_name(name, sizeof name, s->c->net.host);
    bool local = is_loopback(name) && s->keys.n == 0;
    if (!host || (!local && s->c->n_hosts == 0)) return true;
    host_name(name, sizeof name, host);
    if (is_loopback(name)) return true;
    for (size_t i = 0; i < s->c->n_hosts; i++)
        if (strcmp(s->c->hosts[i], "*") == 0 || strcasecmp(s->c->hosts[i], name) == 0) return true;
    metrics_rejected(s->metrics, "host");
    exchange_refuse(x, 403, "host_not_allowed",
                    "this server is not asked as '%.80s'; start it with --allowed-host %.80s if "
                    "that is its name",
                    name, name);
    return false;
}

/* true: a page of this origin may read the reply */
static bool add_cors(struct exchange *x)
{
    if (x->s->c->n_cors == 0) return false;
    const char *origin = http_header(net_http(x->request), "origin");
    net_add_header(x->request, "Vary", "Origin");
    if (!origin || !may_ask(x->s, origin)) return false;
    net_add_header(x->request, "Access-Control-Allow-Origin", origin);
    net_add_header(x->request, "Access-Control-Expose-Headers",
                   "X-Request-Id, X-Bitnet-Seed, Retry-After, Warnings, "
                   "X-Bitnet-Dropped-Messages, x-ratelimit-limit-requests, "
                   "x-ratelimit-remaining-requests, x-ratelimit-reset-requests, "
                   "x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, "
                   "x-ratelimit-reset-tokens");
    return true;
}

static const char *allowed(const struct route *r)
{
    if (r->flags & ROUTE_DELETE) return "DELETE, OPTIONS";
    if (!(r->flags & ROUTE_POST)) return "GET, HEAD, OPTIONS";
    return r->flags & ROUTE_GET ? "GET, HEAD, POST, OPTIONS" : "POST, OPTIONS";
}

static const char *usual_method(const struct route *r)
{
    return r->flags & ROUTE_POST ? "POST" : r->flags & ROUTE_DELETE ? "DELETE" : "GET";
}

/* OPTIONS, with which browsers ask whether they may ask */
static void serve_options(struct exchange *x, bool cors)
{
    const char *wanted = http_header(net_http(x->request), "access-control-request-headers");
    net_add_header(x->request, "Allow", allowed(x->route));
    if (cors) {
        net_add_header(x->request, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
        net_add_header(x->request, "Access-Control-Allow-Headers",
                       wanted ? wanted : "Authorization, Content-Type, X-Request-Id");
        net_add_header(x->request, "Access-Control-Max-Age", "86400");
    }
    exchange_reply(x, 200, "text/plain", "", 0);
}

/* ------------------------------------------------------------------ keys */

static bool is_public(const struct server *s, const struct route *r)
{
    return r->flags & ROUTE_PUBLIC || (r->flags & ROUTE_METRICS && s->c->public_metrics);
}

/* Users share the engine; what they are called by is not told to anybody. */
static uint64_t number_of(const struct server *s, const char *name, size_t n)
{
    uint64_t h = bn_mix64(s->id_base);
    for (size_t i = 0; i < n; i++) h = bn_mix64(h ^ (unsigned char)name[i]);
    return h ? h : 1;
}

/* The port changes with every connection. */
static uint64_t number_of_peer(const struct exchange *x)
{
    const char *peer = net_peer(x->request), *port = strrchr(peer, ':');
    return number_of(x->s, peer, port ? (size_t)(port - peer) : strlen(peer));
}

/* true: the client has a key, or needs none; else was told so */
static bool check_key(struct exchange *x)
{
    const struct server *s = x->s;
    x->user = number_of_peer(x);
    if (s->keys.n == 0 || is_public(s, x->route)) return true;
    const char *shown = http_header(net_http(x->request), "authorization");
    const char *key = shown && strncasecmp(shown, "Bearer ", 7) == 0
                          ? shown + 7
                          : http_header(net_http(x->request), "x-api-key");
    x->account = key ? keys_find(&s->keys, key, strlen(key)) : NULL;
    if (x->account) {
        x->user = number_of(s, key, strlen(key));
        return true;
    }
    metrics_rejected(s->metrics, "key");
    net_add_header(x->request, "WWW-Authenticate", "Bearer");
    exchange_refuse(x, 401, NULL, "%s",
                    key ? "the API key is not one of this server's"
                        : "an API key is needed, in a header 'Authorization: Bearer KEY' or "
                          "'X-Api-Key: KEY'");
    return false;
}

/* ------------------------------------------------------------------ requests */

static void refuse_path(struct exchange *x, const char *path)
{
    struct bn_suggest near;
    bn_suggest_start(&near, path);
    for (size_t i = 0; i < BN_ARRAY_LEN(routes); i++) bn_suggest_offer(&near, routes[i].path);
    if (near.best)
        exchange_refuse(x, 404, "not_found", "there is no '%.80s'; did you mean '%s'?", path,
                        near.best);
    else
        exchange_refuse(x, 404, "not_found",
                        "there is no '%.80s'; '/v1/chat/completions', '/v1/completions', "
                        "'/v1/embeddings', '/v1/responses' and '/v1/models' are served",
                        path);
}

/* Cheap, and asked before the body is looked at, which says where several models are which one has to have
 * room. false: the client was told why not */
static bool may_work(struct exchange *x)
{
    bool only = !models_several(x->s) && x->model->state == SERVED_READY;
    if (!(x->route->flags & ROUTE_WORK)) return true;
    return (only ? exchange_check_places(x, 1) : exchange_check_open(x)) &&
           exchange_take_request(x);
}

static bool takes(const struct route *r, const char *method)
{
    if (strcmp(method, "POST") == 0) return r->flags & ROUTE_POST;
    if (strcmp(method, "DELETE") == 0) return r->flags & ROUTE_DELETE;
    return r->flags & ROUTE_GET && (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0);
}

void routes_request(struct server *s, struct net_request *r)
{
    const struct http_reader *q = net_http(r);
    struct exchange x = {.s = s, .model = &s->models[0], .request = r, .route = find(s, q->path)};
    name_exchange(&x);
    bool cors = add_cors(&x);
    if (!check_host(&x)) return;
    if (!x.route) {
        refuse_path(&x, q->path);
    } else if (strcmp(q->method, "OPTIONS") == 0) {
        serve_options(&x, cors);
    } else if (!takes(x.route, q->method)) {
        net_add_header(r, "Allow", allowed(x.route));
        exchange_refuse(&x, 405, NULL, "'%.80s' is asked by %s, not by %.20s", q->path,
                        usual_method(x.route), q->method);
    } else if (check_key(&x) && may_work(&x)) {
        if (x.route->flags & (ROUTE_WORK | ROUTE_MODEL)) intake_request(&x);
        else x.route->serve(&x);
    }
}
