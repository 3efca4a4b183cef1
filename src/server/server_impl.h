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
#include "server/adapters.h"
#include "server/access/keys.h"
#include "server/errands/errands.h"
#include "server/metrics/metrics.h"
#include "server/server.h"
#include "server/slots.h"
#include <time.h>

enum {
    EXCHANGE_MAX_REQUEST_ID = 64,  /* of a client's own X-Request-Id */
    RETRY_MAX_S = 61,              /* the longest that Retry-After says */
    LARGE_BODY_BYTES = 32 << 10,   /* from here on it is not read on the event loop */
    LARGE_REPLY_BYTES = 128 << 10, /* about; from here on it is not written there */
    LARGE_WAITING_MAX = 4,         /* that wait for a model */
    TEXT_MAX_BYTES = 2 << 20,      /* that one request may have tokenized, beside prompts */
    STATUS_DISCONNECTED =
        499 /* counts requests whose client disconnected before the end of its reply */
};

struct completion;
struct exchange;
struct adapter_load;
struct server_pull;
struct dialect;
struct openai_fault;
/* How many choices each user has taken and not seen the end of. (places.c) */
struct places {
    struct place {
        uint64_t user;
        size_t n;
    } * list; /* [room] */
    size_t n, room;
};

struct event;
struct openai_defaults;
struct openai_request;

enum served_state {
    SERVED_ABSENT,
    SERVED_LOADING,
    SERVED_READY,
    SERVED_LEAVING /* nobody uses it any more; its memory is being given back */
};

struct waiter;
struct served_job;

/* One of the models that are served; in memory, with the thread that drives its engine, or not (served.c). */
struct served_model {
    struct server *s;
    const struct server_config *c; /* the server's */
    const struct server_model *spec;
    struct server_model own; /* spec of one that came while the server runs */
    const char *name, *path; /* as clients call it; its file, NULL: the embedded one */
    enum served_state state;
    /* of one that is ready */
    bitnet_model *m;
    bitnet_engine *e; /* the worker's */
    bitnet_model_info info;
    bitnet_engine_info engine; /* as it was opened: limits and names, not counters */
    const char *template_text; /* as bitnet_chat_template_text has it */
    uint64_t max_prompt_bytes; /* longer texts do not fit the context, whatever they say */
    struct worker *worker;
    struct worker_layer *layers; /* [n_layer]; for a state that is told */
    struct event *delivery;      /* the worker's fd */
    struct adapter_list adapters;
    struct adapter_load *loading; /* NULL: none */
    struct slots slots;           /* texts that may be saved */
    struct metrics *metrics;
    /* of one that was ready once */
    struct bn_json *card, *ollama_card; /* what is told of it */
    time_t started;                     /* when it was loaded; before, when the server began */
    uint64_t bytes;                     /* that it takes in memory; 0: not known yet */
    /* choices that were taken and have not ended; of them those that the engine has begun */
    uint32_t n_taken, n_running;
    struct places places; /* whose they are */
    uint64_t choice_ns;   /* running mean of the time that the engine has a choice */
    /* coming and going (models.c) */
    struct served_job *job; /* by which it comes or goes; NULL: it does not */
    uint32_t n_holders;     /* exchanges that need it */
    bool gives_way;         /* to others that need its place: those who come now wait */
    struct waiter *waiters, **waiters_end;
    uint32_t n_waiters;
    uint64_t ready_ns, used_ns; /* since when it is ready; when it was needed last */
    int64_t keep_s;             /* without a request; below 0: any time */
    uint64_t n_loads, n_failures, n_unloads, load_ns; /* load_ns: of the last one */
};

struct server {
    const struct server_config *c;
    struct served_model *models; /* [n_models]; with a store room for SERVER_MAX_MODELS */
    size_t n_models;
    struct server_pull *pull; /* one is being brought; NULL: none (ollama/pull.c) */
    struct worker_gate *gate; /* the cores that their engines share */
    struct event *turn;       /* models come and go (models.c) */
    uint32_t n_large_waiting; /* for a model, with a large body */
    struct errands *errands;
    struct bn_json *config; /* of config_json */
    struct event_base *base;
    struct net *net;
    struct metrics *metrics;
    struct keys keys;
    struct access_log log;
    struct event *terminate, *interrupt, *reload; /* signals */
    struct event *drain_watch, *sampling;
    uint64_t drain_end_ns;    /* 0: not draining */
    int thinking;             /* enum openai_thinking, of requests that do not say */
    int64_t date_s;           /* for templates; 0: that of the day, if they are told one */
    uint64_t id_base, n_ids;  /* ids are mixed from these */
    struct completion *fresh; /* there is news to pass on, or they are over */
    struct bn_buf out;        /* for what a stream writes */
};

bool server_draining(const struct server *s);
/* For bodies that do not say it themselves; without a seed. */
struct openai_defaults server_defaults(const struct served_model *s);
/* For metrics and health; borrows from s until the next call. */
void server_now(struct served_model *s, struct worker_state *state, struct net_stats *net,
                struct metrics_now *now);

/* ------------------------------------------------------------------ models (served.c, models.c) */

/* Is that one of its names? */
bool served_is_called(const struct served_model *s, const char *name);
/* A state is told, of a model in memory or not; a word. */
const char *served_state_name(const struct served_model *s);
/* What it is expected to take in memory. */
uint64_t served_bytes(const struct served_model *s);
/* What was opened elsewhere becomes a model that is ready. It is its own in any case. */
bitnet_status served_start(struct served_model *s, bitnet_model *m, bitnet_engine *e,
                           bitnet_error *err);
/* On a thread of its own; then models_loaded or models_left is called. */
bitnet_status served_load(struct served_model *s, bitnet_error *err);
void served_leave(struct served_model *s);
/* At once, whatever it is doing. */
void served_close(struct served_model *s);

/* m, e: of the first one; NULL: it is loaded when somebody asks for it. They are the models' in any case. */
bitnet_status models_open(struct server *s, bitnet_model *m, bitnet_engine *e, bitnet_error *err);
void models_close(struct server *s);
/* One more, that was brought; nothing happens if there is one of that name. */
bitnet_status models_add(struct server *s, const struct server_model *spec, bitnet_error *err);
/* Are there several, or may there be? */
bool models_several(const struct server *s);
/* The server closes: a model that is being brought is given up. */
void server_end_pull(struct server *s);
void models_loaded(struct served_model *s, bitnet_status status, const bitnet_error *err);
void models_left(struct served_model *s);
/* The one of that name, also if it is an adapter's; NULL or "": the first. NULL: there is none. */
struct served_model *models_find(struct server *s, const char *name);
/* The same for a request; NULL: the client was told what there is. */
struct served_model *models_choose(struct exchange *x, const char *name);
/* Serves what is asked of the model, as soon as it is ready: x->body goes along. */
void models_serve(struct exchange *x, struct served_model *m);
/* From now on it is kept so long after a request; and now, if 0 and there is none. */
void models_keep(struct served_model *m, int64_t keep_s);
int64_t models_usual_keep(const struct server *s);
uint32_t models_taken(const struct server *s); /* choices */
void models_sample(struct server *s);          /* those in memory, for their histories */
/* The exchange needs its model, or no longer. */
void models_hold(struct exchange *x);
void models_release(struct exchange *x);

/* The body of a request is read; then its model is chosen, and serves it. (intake.c) */
void intake_request(struct exchange *x);
/* The value of "model" in a query. NULL: there is none. */
enum { INTAKE_NAME_BYTES = 512 };
const char *intake_name_in_query(char out[INTAKE_NAME_BYTES], const char *query);

/* ------------------------------------------------------------------ exchanges */

struct route;

/* On the stack of whoever answers at once; copied by whoever answers later (exchange_later). */
struct exchange {
    struct server *s;
    struct served_model *model;    /* that it is about; the first, where it is about none */
    bool holds;                    /* it needs the model */
    bool large;                    /* its body: what is made of it is an errand */
    bool admitted;                 /* it has waited: shutting down does not concern it */
    struct bn_json *body;          /* has been read; NULL: taken by exchange_body, or none */
    struct net_request *request;   /* NULL: it is over for the client */
    const struct route *route;     /* NULL: nothing has this path */
    uint64_t user;                 /* whose it is, for the engine: a key's number, or an address' */
    struct quota_account *account; /* of the key; NULL: there are no keys */
    struct exchange_lease {        /* what it has taken of that account */
        uint64_t tokens, taken_ns;
        uint32_t answers; /* that run */
        bool held;        /* the account is */
    } lease;
    char id[17]; /* made here; what the ids of objects are made of */
    char request_id[EXCHANGE_MAX_REQUEST_ID + 1]; /* the client's, or the same */
    bool begun;                                   /* a stream that has begun */
    struct access_line line; /* what the log says about choices; the rest is filled in at the end */
    /* of an exchange that is answered later */
    void (*disconnected)(
        struct exchange *x);          /* the client has; to be passed on to exchange_disconnected */
    void (*room)(struct exchange *x); /* for more of a stream */
    void (*late)(struct exchange *x); /* its time is up */
    const char *not_yet;              /* of exchange_wait */
    struct event *timer;
};

/* `bytes` of zeros that begin with a copy of x, for those who answer later. NULL: the client was told that
 * memory is out, and body, which may be NULL, was freed. */
void *exchange_copy(struct exchange *x, size_t bytes, struct bn_json *body);
/* Somebody will answer later: x stays where it is until it is closed. */
void exchange_later(struct exchange *x);
/* The same for somebody who goes on even if the client disconnects, and to whom the end of its time means only
 * that it is told so. not_yet: how its sentence begins, "the text was not read". */
void exchange_wait(struct exchange *x, const char *not_yet);
/* The same, for an errand about the body: one that follows the reading of it. */
void exchange_elsewhere(struct exchange *x, struct errand *e, const char *not_yet);
void exchange_close(struct exchange *x);
uint32_t exchange_time_left_ms(const struct exchange *x); /* 0: there is no limit */

/* The ends of a request. After them x->request is NULL. */
void exchange_reply(struct exchange *x, int status, const char *type, const void *body, size_t n);
void exchange_reply_json(struct exchange *x, int status,
                         struct bn_json *j); /* takes j; NULL: out of memory */
/* param: the member of the body at fault; code: OpenAI's word for what is wrong; NULL: none */
void exchange_fail(struct exchange *x, const bitnet_error *err, const char *param,
                   const char *code);
void exchange_fault(struct exchange *x, const struct openai_fault *f);
void exchange_refuse(struct exchange *x, int status, const char *code, const char *fmt, ...)
    BN_PRINTF(4, 5);
void exchange_end_stream(struct exchange *x, const char *error); /* NULL: all is well */
void exchange_drop_stream(struct exchange *x,
                          const char *error); /* the client sees that more should come */
void exchange_disconnected(struct exchange *x);

/* Names members of the body that were passed over, in a header "Warnings", and counts them. */
struct openai_ignored;
void exchange_tell_ignored(struct exchange *x, const struct openai_ignored *g);

/* Any thread may call it. */
bitnet_status exchange_parse(struct bn_json **body, const char *bytes, size_t n, bitnet_error *err);
/* false: the body is compressed, and the client was told that it may not be. */
bool exchange_check_coding(struct exchange *x);
/* Reads the body as JSON into x->body. false: the client was told what is wrong with it. */
bool exchange_read(struct exchange *x);
/* The body, an object. false: the client was told what is wrong with it. */
bool exchange_body(struct exchange *x, struct bn_json **body);
/* The same of one that is an array. */
bool exchange_body_list(struct exchange *x, struct bn_json **body);

/* false: the server shuts down, and the client was told so. */
bool exchange_check_open(struct exchange *x);

/* Is there room for n more choices? false: the client was told to come back later. It is cheap, and
 * asked before anything else; then again when n is known. */
bool exchange_check_places(struct exchange *x, size_t n);
/* Choices are taken from then on; and have ended. */
void places_take(struct served_model *s, uint64_t user, size_t n);
void places_leave(struct served_model *s, uint64_t user);

/* For now: with a header Retry-After. code is also the reason that metrics count. */
void exchange_refuse_for_now(struct exchange *x, int status, const char *code, uint64_t wait_s,
                             const char *why);

/* ------------------------------------------------------------------ quotas (quotas.c) */

/* May the key's holder ask once more this minute? false: the client was told when. */
bool exchange_take_request(struct exchange *x);
/* May it have n more answers, which together are n_tokens long at most, with their prompts? false: the client
 * was told why not. Replies say how the quotas stand. */
bool exchange_take_answers(struct exchange *x, size_t n, uint64_t n_tokens);
/* One of these answers has ended. */
void exchange_end_answer(struct exchange *x);
/* All have, and this is what they took: what is left of n_tokens goes back. Once. */
void exchange_settle(struct exchange *x, uint64_t n_prompt, uint64_t n_generated);
/* The longest that each of n answers may become for somebody who does not say it, after prompts of
 * n_prompt tokens; 0: as long as fits. */
uint32_t exchange_usual_tokens(const struct exchange *x, size_t n, uint64_t n_prompt);
/* The priority of a request. BITNET_E_ARG: the key's holder may not have the one that it says. */
bitnet_status exchange_rank(const struct exchange *x, struct openai_request *q, bitnet_error *err);

/* ------------------------------------------------------------------ routes */

enum route_flags {
    ROUTE_GET = 1,
    ROUTE_POST = 2,
    ROUTE_PUBLIC = 4,  /* no key is asked for */
    ROUTE_METRICS = 8, /* none if metrics are public */
    ROUTE_BARE = 16,   /* also without "/v1", which base URLs often lack */
    ROUTE_BELOW = 32,  /* whatever follows the path, too */
    ROUTE_DELETE = 64,
    ROUTE_WORK = 128, /* takes places and quotas of a model */
    ROUTE_MODEL = 256 /* about a model, which "model" names in the body or the query */
};
struct route {
    const char *path;
    unsigned flags;
    void (*serve)(struct exchange *x);
    const struct dialect *dialect; /* of bodies, replies and errors; NULL: OpenAI's errors */
    const char *about;             /* one line for /openapi.json */
};
const struct route *route_at(size_t i); /* i-th; NULL past the end */

void routes_request(struct server *s, struct net_request *r); /* it has come in */
bool routes_local(const struct server *s); /* it is reached from this machine only */

/* Generates text in the dialect of the route. */
void serve_generate(struct exchange *x);
/* How many tokens such a request has for the model to read. */
void serve_count_tokens(struct exchange *x);
/* The same, for endpoints that have looked at the body and whether there is a place. Takes the body, which
 * `prepare` (NULL: nothing) completes first: on any thread, as reading it. */
typedef bitnet_status body_prepare_fn(struct bn_json *body, const struct served_model *s,
                                      bitnet_error *err);
void completions_serve(struct exchange *x, struct bn_json *body, body_prepare_fn *prepare);
/* The exchange has waited for an errand, and goes on as if it had just come. */
void exchange_resume(struct exchange *x);
void serve_embeddings(struct exchange *x);
struct bn_json *model_card(const struct served_model *s); /* what /v1/models tells of its inside */
void serve_models(struct exchange *x);
void serve_models_load(struct exchange *x);
void serve_models_unload(struct exchange *x);
void serve_model(struct exchange *x);
void serve_props(struct exchange *x);
void serve_version(struct exchange *x);
void serve_load(struct exchange *x);
void serve_ping(struct exchange *x);
void serve_health(struct exchange *x);
void serve_ready(struct exchange *x);
void serve_metrics(struct exchange *x);
void serve_metrics_json(struct exchange *x);
void serve_metrics_history(struct exchange *x);
void serve_page(struct exchange *x);
void serve_openapi(struct exchange *x);
void serve_tokenize(struct exchange *x);
void serve_detokenize(struct exchange *x);
void serve_tokenizer_info(struct exchange *x);
void serve_apply_template(struct exchange *x);
void serve_lora_adapters(struct exchange *x);
void serve_load_lora(struct exchange *x);
void serve_unload_lora(struct exchange *x);
/* The server closes: an adapter that is being loaded is given up. */
void adapters_end_loading(struct served_model *s);

/* After the worker has delivered: passes on what came for completions. */
void completions_attend(struct server *s);

#endif
