/* SPDX-License-Identifier: Apache-2.0
 *
 * pull.c: "/api/pull": a model that is brought while the server runs, and served from then on. How is the
 * program's affair (struct server_store); here a thread waits for it, and the client is told how far it is, a line
 * at a time. One at a time; whoever asks may go, then it is given up, and what has come stays for the next try.
 */
#include "server/ollama/ollama.h"

#include "base/os/mem.h"
#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct stand {
    char digest[SERVER_DIGEST_BYTES]; /* "": no file yet */
    uint64_t done, total;
    bool checking;
};

struct server_pull {
    struct exchange x; /* first */
    char *name;
    bool stream;
    pthread_t thread;
    int fd;
    struct event *news;
    _Atomic bool stop;
    struct stand told; /* what the client was */
    /* the thread's, until it ends */
    struct server_model model;
    bitnet_status status;
    bitnet_error err;
    pthread_mutex_t lock; /* of what follows */
    struct stand now;
    bool ended;
};

static void tell_loop(struct server_pull *p)
{
    ssize_t unused = write(p->fd, &(uint64_t){1}, sizeof(uint64_t)); /* cannot be full */
    (void)unused;
}

/* ------------------------------------------------------------------ the thread */

static void on_progress(void *user, const char *digest, uint64_t done, uint64_t total,
                        bool checking)
{
    struct server_pull *p = user;
    pthread_mutex_lock(&p->lock);
    snprintf(p->now.digest, sizeof p->now.digest, "%s", digest);
    p->now.done = done;
    p->now.total = total;
    p->now.checking = checking;
    pthread_mutex_unlock(&p->lock);
    tell_loop(p);
}

static void *run(void *arg)
{
    struct server_pull *p = arg;
    const struct server_store *store = p->x.s->c->store;
    const struct server_progress how = {p, on_progress, &p->stop};
    p->status = store->pull(store->user, p->name, &how, &p->model, &p->err);
    pthread_mutex_lock(&p->lock);
    p->ended = true;
    pthread_mutex_unlock(&p->lock);
    tell_loop(p);
    return NULL;
}

/* ------------------------------------------------------------------ the client */

static void put_line(struct server_pull *p, struct bn_json *j)
{
    char *text = bn_json_dump(j, BN_JSON_COMPACT);
    bn_json_free(j);
    if (!text) {
        exchange_drop_stream(&p->x, "out of memory for the stream");
        return;
    }
    net_stream_write(p->x.request, text, strlen(text));
    net_stream_write(p->x.request, "\n", 1);
    free(text);
}

static void put_status(struct server_pull *p, const char *status)
{
    if (p->x.request) put_line(p, bn_json_pack("{s:s}", "status", status));
}

static void put_progress(struct server_pull *p, const struct stand *at)
{
    char status[32], digest[SERVER_DIGEST_BYTES + 8];
    snprintf(status, sizeof status, "pulling %.12s", at->digest);
    snprintf(digest, sizeof digest, "%s%s", strlen(at->digest) == 64 ? "sha256:" : "", at->digest);
    put_line(p, bn_json_pack("{s:s, s:s, s:I, s:I}", "status", status, "digest", digest, "total",
                             (int64_t)at->total, "completed", (int64_t)at->done));
}

/* What is new. A client that takes its time gets fewer lines, but of each file one at least. */
static void tell_progress(struct server_pull *p, const struct stand *at)
{
    if (!p->x.request || !p->stream || !*at->digest || !net_stream_room(p->x.request)) return;
    bool file = strcmp(at->digest, p->told.digest) != 0;
    struct stand shown = *at;
    if (at->checking) shown.done = at->total; /* all of it is here */
    if (file || (!at->checking && at->done != p->told.done)) put_progress(p, &shown);
    if (at->checking && (file || !p->told.checking)) put_status(p, "verifying sha256 digest");
    p->told = *at;
}

static void tell_end(struct server_pull *p)
{
    if (!p->x.request) return;
    bool good = p->status == BITNET_OK;
    if (!p->stream) {
        if (good) exchange_reply_json(&p->x, 200, bn_json_pack("{s:s}", "status", "success"));
        else exchange_fail(&p->x, &p->err, NULL, NULL);
        return;
    }
    if (good) put_status(p, "success");
    else put_line(p, ollama_error_json(&(struct openai_fault){.sentence = p->err.text}));
    if (p->x.request) exchange_end_stream(&p->x, good ? NULL : p->err.text);
}

static void free_pull(struct server_pull *p)
{
    exchange_close(&p->x);
    if (p->news) event_free(p->news);
    if (p->fd >= 0) close(p->fd);
    pthread_mutex_destroy(&p->lock);
    free(p->name);
    free(p);
}

static void on_news(int fd, short what, void *user)
{
    (void)what;
    struct server_pull *p = user;
    struct server *s = p->x.s;
    uint64_t n;
    ssize_t unused = read(fd, &n, sizeof n);
    (void)unused;
    pthread_mutex_lock(&p->lock);
    struct stand now = p->now;
    bool ended = p->ended;
    pthread_mutex_unlock(&p->lock);
    tell_progress(p, &now);
    if (!ended) return;
    pthread_join(p->thread, NULL);
    s->pull = NULL;
    if (p->status == BITNET_OK) p->status = models_add(s, &p->model, &p->err);
    tell_end(p);
    free_pull(p);
}

void server_end_pull(struct server *s)
{
    if (!s->pull) return;
    s->pull->stop = true;
    pthread_join(s->pull->thread, NULL);
    free_pull(s->pull);
    s->pull = NULL;
}

static void on_disconnect(struct exchange *x)
{
    ((struct server_pull *)x)->stop = true;
    exchange_disconnected(x);
}

/* Files may be large: as long as something comes there is no limit. */
static void on_late(struct exchange *x) { (void)x; }

static void on_room(struct exchange *x) { tell_loop((struct server_pull *)x); }

/* ------------------------------------------------------------------ from the client */

/* false: the client was told why not */
static bool may_pull(struct exchange *x)
{
    const struct server *s = x->s;
    if (!s->c->store) {
        exchange_refuse(x, 501, NULL,
                        "this server takes no further models; start it with --stored --allow-pull");
    } else if (s->keys.n && !(x->account && x->account->limits.admin)) {
        exchange_refuse(x, 403, NULL,
                        "this key may not bring models: its line in the keys file needs admin=1");
    } else if (s->pull) {
        exchange_refuse_for_now(x, 503, "busy", 10, "another model is being downloaded");
    } else {
        return exchange_check_open(x);
    }
    return false;
}

static bitnet_status read_body(struct server_pull *p, const struct bn_json *body, bitnet_error *err)
{
    const char *name = NULL;
    p->stream = true;
    BN_TRY(
        bn_json_read_str(&name, body, bn_json_get(body, "model") ? "model" : "name", "body", err));
    BN_TRY(bn_json_read_bool(&p->stream, body, "stream", "body", err));
    if (!name || !*name) return bn_fail(err, BITNET_E_ARG, "the request has no 'model', a string");
    p->name = strdup(name);
    return p->name ? BITNET_OK : bn_fail_nomem(err, strlen(name), "a name");
}

static bitnet_status start(struct server_pull *p, bitnet_error *err)
{
    sigset_t all, before;
    p->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    p->news = p->fd < 0 ? NULL : event_new(p->x.s->base, p->fd, EV_READ | EV_PERSIST, on_news, p);
    if (!p->news || event_add(p->news, NULL) != 0)
        return bn_fail_nomem(err, sizeof *p, "a download");
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the event loop */
    int e = pthread_create(&p->thread, NULL, run, p);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return e ? bn_fail(err, BITNET_E_NOMEM, "cannot start a thread (error %d)", e) : BITNET_OK;
}

void serve_ollama_pull(struct exchange *x)
{
    struct bn_json *body;
    bitnet_error err = {0};
    if (!may_pull(x) || !exchange_read(x) || !exchange_body(x, &body)) return;
    struct server_pull *p = exchange_copy(x, sizeof *p, body);
    if (!p) return;
    p->fd = -1;
    pthread_mutex_init(&p->lock, NULL);
    bitnet_status s = read_body(p, body, &err);
    bn_json_free(body);
    if (s == BITNET_OK) s = start(p, &err);
    if (s != BITNET_OK) {
        free_pull(p);
        exchange_fail(x, &err, NULL, NULL);
        return;
    }
    x->s->pull = p;
    p->x.disconnected = on_disconnect;
    p->x.late = on_late;
    p->x.room = on_room;
    p->x.model = NULL; /* it needs none */
    exchange_later(&p->x);
    if (!p->stream) return;
    net_stream_begin(p->x.request, 200, x->route->dialect->stream_type);
    p->x.begun = true;
    put_status(p, "pulling manifest");
}
