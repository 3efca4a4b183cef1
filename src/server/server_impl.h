/* SPDX-License-Identifier: Apache-2.0
 *
 * server_impl.h: what the files of the server share: the server itself, an exchange (one HTTP request with
 * its reply), and the routes. Private to server.c, exchange.c, routes.c, completions.c, embeddings.c and
 * endpoints*.c. All of it runs on the thread of the event loop.
 */
#ifndef BN_SERVER_SERVER_IMPL_H
#define BN_SERVER_SERVER_IMPL_H

#include "json/json.h"
#include "server/metrics/access_log.h"
#include "server/keys.h"
#include "server/metrics/metrics.h"
#include "server/server.h"
#include <time.h>

enum {
    EXCHANGE_MAX_REQUEST_ID = 64, /* of a client's own X-Request-Id */
    RETRY_MAX_S = 60,             /* the longest that Retry-After says */
    TEXT_MAX_BYTES = 2 << 20,     /* that one request may have tokenized, beside prompts */
    STATUS_DISCONNECTED =
        499 /* counts requests whose client disconnected before the end of its reply */
};

struct completion;
struct event;

struct server {
    const struct server_config *c;
    const bitnet_model *m;
    bitnet_model_info model;
    bitnet_engine_info engine; /* as it was opened: limits and names, not counters */
    const char *template_text; /* as bitnet_chat_template_text has it */
    uint64_t max_prompt_bytes; /* longer texts do not fit the context, whatever they say */
    struct bn_json *config;    /* of config_json */
    struct event_base *base;
    struct net *net;
    struct worker *worker;
    struct worker_layer *layers; /* [n_layer]; for a state that is told */
    struct metrics *metrics;
    struct keys keys;
    struct access_log log;
    struct event *delivery, *terminate, *interrupt, *reload; /* the worker's fd; signals */
    struct event *drain_watch;
    uint64_t drain_end_ns; /* 0: not draining */
    time_t started;
    uint64_t id_base, n_ids; /* ids are mixed from these */
    /* choices that were taken and have not ended; of them those that the engine has begun */
    uint32_t n_taken, n_running;
    uint64_t choice_ns;       /* running mean of the time that the engine has a choice */
    struct completion *fresh; /* there is news to pass on, or they are over */
    struct bn_buf out;        /* for what a stream writes */
};

bool server_draining(const struct server *s);
/* For metrics and health; borrows from s until the next call. */
void server_now(struct server *s, struct worker_state *state, struct net_stats *net,
                struct metrics_now *now);

/* ------------------------------------------------------------------ exchanges */

struct route;

/* On the stack of whoever answers at once; copied by whoever answers later (exchange_later). */
struct exchange {
    struct server *s;
    struct net_request *request; /* NULL: it is over for the client */
    const struct route *route;   /* NULL: nothing has this path */
    char id[17];                 /* made here; what the ids of objects are made of */
    char request_id[EXCHANGE_MAX_REQUEST_ID + 1]; /* the client's, or the same */
    bool begun;                                   /* a stream that has begun */
    struct access_line line; /* what the log says about choices; the rest is filled in at the end */
    /* of an exchange that is answered later */
    void (*disconnected)(
        struct exchange *x);          /* the client has; to be passed on to exchange_disconnected */
    void (*room)(struct exchange *x); /* for more of a stream */
    void (*late)(struct exchange *x); /* its time is up */
    struct event *timer;
};

/* Somebody will answer later: x stays where it is until it is closed. */
void exchange_later(struct exchange *x);
void exchange_close(struct exchange *x);
uint32_t exchange_time_left_ms(const struct exchange *x); /* 0: there is no limit */

/* The ends of a request. After them x->request is NULL. */
void exchange_reply(struct exchange *x, int status, const char *type, const void *body, size_t n);
void exchange_reply_json(struct exchange *x, int status,
                         struct bn_json *j); /* takes j; NULL: out of memory */
/* param: the member of the body at fault; code: OpenAI's word for what is wrong; NULL: none */
void exchange_fail(struct exchange *x, const bitnet_error *err, const char *param,
                   const char *code);
void exchange_refuse(struct exchange *x, int status, const char *code, const char *fmt, ...)
    BN_PRINTF(4, 5);
void exchange_end_stream(struct exchange *x, const char *error); /* NULL: all is well */
void exchange_drop_stream(struct exchange *x,
                          const char *error); /* the client sees that more should come */
void exchange_disconnected(struct exchange *x);

/* The body as JSON. false: the client was told what is wrong with it. */
bool exchange_body(struct exchange *x, struct bn_json **body);

/* Is there room for n more choices? false: the client was told to come back later. It is cheap, and
 * asked before anything else; then again when n is known. */
bool exchange_check_places(struct exchange *x, size_t n);

/* ------------------------------------------------------------------ routes */

enum route_flags {
    ROUTE_GET = 1,
    ROUTE_POST = 2,
    ROUTE_PUBLIC = 4,  /* no key is asked for */
    ROUTE_METRICS = 8, /* none if metrics are public */
    ROUTE_BARE = 16,   /* also without "/v1", which base URLs often lack */
    ROUTE_BELOW = 32   /* whatever follows the path, too */
};
struct route {
    const char *path;
    unsigned flags;
    void (*serve)(struct exchange *x);
};

void routes_request(struct server *s, struct net_request *r); /* it has come in */

void serve_chat(struct exchange *x);
void serve_completion(struct exchange *x);
void serve_response(struct exchange *x);
void serve_embeddings(struct exchange *x);
void serve_models(struct exchange *x);
void serve_model(struct exchange *x);
void serve_props(struct exchange *x);
void serve_health(struct exchange *x);
void serve_ready(struct exchange *x);
void serve_metrics(struct exchange *x);
void serve_metrics_json(struct exchange *x);
void serve_page(struct exchange *x);
void serve_tokenize(struct exchange *x);
void serve_detokenize(struct exchange *x);
void serve_tokenizer_info(struct exchange *x);
void serve_apply_template(struct exchange *x);

/* After the worker has delivered: passes on what came for completions. */
void completions_attend(struct server *s);

#endif
