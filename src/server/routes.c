/* SPDX-License-Identifier: Apache-2.0
 *
 * routes.c: which path is served by whom, to whom. What concerns every request happens here: its
 * id, origins of browsers, keys, and paths and methods that do not exist.
 */
#include "base/rng.h"
#include "base/suggest.h"
#include "server/pages.h"
#include "server/server_impl.h"
#include <stdio.h>
#include <strings.h>

static const struct route routes[] = {
    {"/v1/chat/completions", ROUTE_POST | ROUTE_BARE, serve_chat},
    {"/v1/completions", ROUTE_POST | ROUTE_BARE, serve_completion},
    {"/v1/responses", ROUTE_POST | ROUTE_BARE, serve_response},
    {"/v1/embeddings", ROUTE_POST | ROUTE_BARE, serve_embeddings},
    {"/v1/models", ROUTE_GET | ROUTE_BARE, serve_models},
    {"/v1/models/", ROUTE_GET | ROUTE_BARE | ROUTE_BELOW, serve_model},
    {"/tokenize", ROUTE_POST, serve_tokenize},
    {"/detokenize", ROUTE_POST, serve_detokenize},
    {"/tokenizer_info", ROUTE_GET, serve_tokenizer_info},
    {"/apply-template", ROUTE_POST, serve_apply_template},
    {"/props", ROUTE_GET, serve_props},
    {"/health", ROUTE_GET | ROUTE_PUBLIC, serve_health},
    {"/ready", ROUTE_GET | ROUTE_PUBLIC, serve_ready},
    {"/metrics", ROUTE_GET | ROUTE_METRICS, serve_metrics},
    {"/metrics.json", ROUTE_GET | ROUTE_METRICS, serve_metrics_json},
};
static const struct route page_route = {"/", ROUTE_GET | ROUTE_PUBLIC, serve_page};

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
}

/* ------------------------------------------------------------------ browsers */

static bool may_ask(const struct server *s, const char *origin)
{
    for (size_t i = 0; i < s->c->n_cors; i++)
        if (strcmp(s->c->cors[i], "*") == 0 || strcasecmp(s->c->cors[i], origin) == 0) return true;
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
                   "X-Request-Id, X-Bitnet-Seed, Retry-After");
    return true;
}

static const char *allowed(const struct route *r)
{
    return r->flags & ROUTE_POST ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
}

/* OPTIONS, with which browsers ask whether they may ask */
static void serve_options(struct exchange *x, bool cors)
{
    const char *wanted = http_header(net_http(x->request), "access-control-request-headers");
    net_add_header(x->request, "Allow", allowed(x->route));
    if (cors) {
        net_add_header(x->request, "Access-Control-Allow-Methods", allowed(x->route));
        net_add_header(x->request, "Access-Control-Allow-Headers",
                       wanted ? wanted : "Authorization, Content-Type, X-Request-Id");
        net_add_header(x->request, "Access-Control-Max-Age", "86400");
    }
    exchange_reply(x, 204, "text/plain", "", 0);
}

/* ------------------------------------------------------------------ keys */

static bool is_public(const struct server *s, const struct route *r)
{
    return r->flags & ROUTE_PUBLIC || (r->flags & ROUTE_METRICS && s->c->public_metrics);
}

/* true: the client has a key, or needs none; else was told so */
static bool check_key(struct exchange *x)
{
    const struct server *s = x->s;
    if (s->keys.n == 0 || is_public(s, x->route)) return true;
    const char *shown = http_header(net_http(x->request), "authorization");
    bool bearer = shown && strncasecmp(shown, "Bearer ", 7) == 0;
    if (bearer && keys_match(&s->keys, shown + 7, strlen(shown + 7))) return true;
    metrics_rejected(s->metrics, "key");
    net_add_header(x->request, "WWW-Authenticate", "Bearer");
    exchange_refuse(x, 401, NULL, "%s",
                    bearer ? "the API key is not one of this server's"
                           : "an API key is needed, in a header 'Authorization: Bearer KEY'");
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

static bool takes(const struct route *r, const char *method)
{
    if (r->flags & ROUTE_POST) return strcmp(method, "POST") == 0;
    return strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
}

void routes_request(struct server *s, struct net_request *r)
{
    const struct http_reader *q = net_http(r);
    struct exchange x = {.s = s, .request = r, .route = find(s, q->path)};
    name_exchange(&x);
    bool cors = add_cors(&x);
    if (!x.route) {
        refuse_path(&x, q->path);
    } else if (strcmp(q->method, "OPTIONS") == 0) {
        serve_options(&x, cors);
    } else if (!takes(x.route, q->method)) {
        net_add_header(r, "Allow", allowed(x.route));
        exchange_refuse(&x, 405, NULL, "'%.80s' is asked by %s, not by %.20s", q->path,
                        x.route->flags & ROUTE_POST ? "POST" : "GET", q->method);
    } else if (check_key(&x)) {
        x.route->serve(&x);
    }
}
