/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/fetch.h"

#include "base/os/file.h"
#include "hub/net/digest.h"
#include "hub/net/retry.h"
#include "hub/part.h"
#include "hub/remote.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { SMALL_BYTES = 1 << 20, TICK_MS = 50, MAX_CONNECTIONS = 32 };

/* What the connections of one file share. */
struct work {
    const struct hub_fetch *f;
    struct hub_part part;
    pthread_mutex_t lock; /* of what follows */
    struct hub_url found; /* where redirects lead to; the file's own URL until that is known */
    bool redirected;
    uint32_t next; /* the first block that nobody has taken */
    uint32_t running;
    bitnet_status status; /* of the first connection that gave up */
    bitnet_error err;
};

/* ------------------------------------------------------------------ where it is */

static void get_place(struct work *w, struct hub_url *url, bool *redirected)
{
    pthread_mutex_lock(&w->lock);
    *url = w->found;
    *redirected = w->redirected;
    pthread_mutex_unlock(&w->lock);
}

/* found: NULL: the link has expired; it is asked for again. */
static void set_place(struct work *w, const struct hub_url *found)
{
    pthread_mutex_lock(&w->lock);
    w->redirected = found != NULL;
    w->found = found ? *found : w->f->url;
    pthread_mutex_unlock(&w->lock);
}

/* ------------------------------------------------------------------ one block */

/* "bytes 0-99/1000"; false: it does not begin there, or the length is another one */
static bool is_range(const char *header, uint64_t from, uint64_t bytes)
{
    unsigned long long first, last, total;
    return header && sscanf(header, "bytes %llu-%llu/%llu", &first, &last, &total) == 3 &&
           first == from && total == bytes;
}

/* A reply that is not the block. BITNET_E_IO: try again. */
static bitnet_status not_the_block(struct work *w, struct hub_conn *c, bool redirected,
                                   bitnet_error *err)
{
    int status = c->reader.status;
    if (redirected && (status == 401 || status == 403 || status == 404 || status == 410)) {
        set_place(w, NULL);
        return bn_fail(err, BITNET_E_IO, "%s: the link to %s has expired", c->at.host, w->f->what);
    }
    if (status == 200) return bn_fail(err, BITNET_E_STATE, "%s sends whole files only", c->at.host);
    if (status == 206 || status == 416)
        return bn_fail(err, BITNET_E_FORMAT, "%s has another length than was said; pull it again",
                       w->f->what);
    return hub_remote_refused(c, w->f->repo, w->f->what, err);
}

/* What is missing of a block, as far as the connection holds. */
static bitnet_status get_rest(struct work *w, struct hub_conn *c, uint32_t i, bitnet_error *err)
{
    struct hub_url url;
    bool redirected;
    uint64_t size = hub_part_block_bytes(&w->part, i), at = (uint64_t)i * HUB_BLOCK_BYTES;
    uint64_t from = at + w->part.done[i];
    const struct hub_ask q = {.ranged = true, .from = from, .to = at + size - 1, .follow = true};
    get_place(w, &url, &redirected);
    BN_TRY(hub_conn_ask(c, &url, &q, err));
    if (c->reader.status != 206 ||
        !is_range(http_header(&c->reader, "content-range"), from, w->part.bytes)) {
        bitnet_status s =
            not_the_block(w, c, redirected || !hub_url_same_origin(&url, &w->f->url), err);
        hub_conn_close(c);
        return s;
    }
    if (!redirected && !hub_url_same_origin(&url, &w->f->url)) set_place(w, &url);
    const char *data;
    size_t n = 1;
    while (n) {
        BN_TRY(hub_conn_read(c, &data, &n, err));
        if (w->part.done[i] + n > size)
            return bn_fail(err, BITNET_E_IO, "%s sent more than was asked for", c->at.host);
        if (n) BN_TRY(hub_part_write(&w->part, i, data, n, err));
    }
    if (w->part.done[i] < size)
        return bn_fail(err, BITNET_E_IO, "%s sent less than was asked for", c->at.host);
    return BITNET_OK;
}

/* Failures count only as long as nothing comes. */
static bitnet_status get_block(struct work *w, struct hub_conn *c, uint32_t i, bitnet_error *err)
{
    for (int failures = 1;; failures++) {
        uint32_t before = w->part.done[i];
        bitnet_status s = get_rest(w, c, i, err);
        if (s != BITNET_OK) hub_conn_close(c);
        if (w->part.done[i] != before) failures = 1;
        if (s != BITNET_E_IO || failures >= HUB_RETRIES) return s;
        hub_retry_pause(c, failures);
    }
}

/* ------------------------------------------------------------------ many connections */

static bool take_block(struct work *w, uint32_t *i)
{
    pthread_mutex_lock(&w->lock);
    while (w->next < w->part.n && w->part.done[w->next] == hub_part_block_bytes(&w->part, w->next))
        w->next++;
    bool some = w->next < w->part.n && w->status == BITNET_OK;
    if (some) *i = w->next++;
    pthread_mutex_unlock(&w->lock);
    return some;
}

static void *bring_blocks(void *arg)
{
    struct work *w = arg;
    struct hub_conn *c = malloc(sizeof *c);
    bitnet_error err = {0};
    bitnet_status s = c ? BITNET_OK : bn_fail_nomem(&err, sizeof *c, "a connection");
    uint32_t i;
    if (c) hub_conn_init(c, w->f->net, w->f->net->places->download_timeout_s);
    while (s == BITNET_OK && take_block(w, &i)) s = get_block(w, c, i, &err);
    if (c) hub_conn_free(c);
    free(c);
    pthread_mutex_lock(&w->lock);
    if (s != BITNET_OK && w->status == BITNET_OK) {
        w->status = s;
        w->err = err;
    }
    w->running--;
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static bool is_running(struct work *w)
{
    pthread_mutex_lock(&w->lock);
    bool some = w->running > 0;
    pthread_mutex_unlock(&w->lock);
    return some;
}

static void say_progress(const struct hub_fetch *f, uint64_t done, bool checking)
{
    if (f->progress) f->progress(f->user, done, checking);
}

static bitnet_status get_blocks(struct work *w, bitnet_error *err)
{
    pthread_t threads[MAX_CONNECTIONS];
    uint32_t n = w->f->net->places->connections, started = 0;
    if (n > w->part.n) n = w->part.n;
    if (n > MAX_CONNECTIONS) n = MAX_CONNECTIONS;
    w->running = n;
    for (; started < n; started++)
        if (pthread_create(&threads[started], NULL, bring_blocks, w) != 0) break;
    pthread_mutex_lock(&w->lock);
    w->running -= n - started;
    pthread_mutex_unlock(&w->lock);
    if (n && !started) return bn_fail_nomem(err, 0, "a thread");
    const struct timespec tick = {.tv_nsec = TICK_MS * 1000000};
    while (is_running(w)) {
        nanosleep(&tick, NULL);
        say_progress(w->f, hub_part_here(&w->part), false);
    }
    for (uint32_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
    if (w->status != BITNET_OK && err) *err = w->err;
    return w->status;
}

/* ------------------------------------------------------------------ in one piece */

/* Small files, and servers that know no ranges. */
static bitnet_status get_whole(void *user, struct hub_conn *c, bitnet_error *err)
{
    struct work *w = user;
    const struct hub_ask q = {.follow = true};
    struct hub_url url = w->f->url;
    uint64_t got = 0;
    const char *data;
    size_t n = 1;
    hub_part_forget(&w->part);
    BN_TRY(hub_conn_ask(c, &url, &q, err));
    if (c->reader.status != 200) return hub_remote_refused(c, w->f->repo, w->f->what, err);
    while (n) {
        BN_TRY(hub_conn_read(c, &data, &n, err));
        if (got + n > w->part.bytes)
            return bn_fail(err, BITNET_E_FORMAT, "%s is longer than was said", w->f->what);
        for (size_t used = 0, take; used < n; used += take, got += take) {
            uint64_t left = HUB_BLOCK_BYTES - got % HUB_BLOCK_BYTES;
            take = bn_min_size(n - used, left);
            BN_TRY(hub_part_write(&w->part, (uint32_t)(got / HUB_BLOCK_BYTES), data + used, take,
                                  err));
        }
        say_progress(w->f, got, false);
    }
    if (got == w->part.bytes) return BITNET_OK;
    return bn_fail(err, BITNET_E_IO, "%s ended after %llu of %llu bytes", w->f->what,
                   (unsigned long long)got, (unsigned long long)w->part.bytes);
}

static bitnet_status get_in_one(struct work *w, bitnet_error *err)
{
    struct hub_conn *c = malloc(sizeof *c);
    if (!c) return bn_fail_nomem(err, sizeof *c, "a connection");
    hub_conn_init(c, w->f->net, w->f->net->places->download_timeout_s);
    bitnet_status s = hub_retry(c, get_whole, w, err);
    hub_conn_free(c);
    free(c);
    return s;
}

/* ------------------------------------------------------------------ the whole */

static bool on_checked(void *user, uint64_t done)
{
    const struct hub_fetch *f = user;
    say_progress(f, done, true);
    return hub_cancelled(&f->net->cancel);
}

/* Bytes that are not the right ones are of no use to anybody. */
static bitnet_status check(struct work *w, bitnet_error *err)
{
    const struct hub_fetch *f = w->f;
    char sum[65];
    if (!*f->digest) return BITNET_OK;
    bool git = strlen(f->digest) == 40;
    BN_TRY(hub_digest_file(sum, w->part.fd, f->bytes, git, on_checked, (void *)f, err));
    if (strcmp(sum, f->digest) == 0) return BITNET_OK;
    hub_part_discard(&w->part);
    return bn_fail(err, BITNET_E_FORMAT,
                   "%s is damaged: its checksum is %.16s..., not %.16s...; it was removed, pull it "
                   "again",
                   f->what, sum, f->digest);
}

bitnet_status hub_fetch_file(const struct hub_fetch *f, bitnet_error *err)
{
    struct work *w = calloc(1, sizeof *w);
    bool there;
    if (!w) return bn_fail_nomem(err, sizeof *w, "a download");
    w->f = f;
    w->found = f->url;
    pthread_mutex_init(&w->lock, NULL);
    const struct hub_waiter waiter = {&f->net->cancel, f->waiting, f->user};
    bitnet_status s = hub_part_open(&w->part, &there, f->path, f->bytes,
                                    *f->digest ? f->digest : f->id, &waiter, err);
    if (s == BITNET_OK && !there) {
        if (!*f->digest && !*f->id) hub_part_forget(&w->part); /* it may be of another file */
        bool small = f->bytes <= SMALL_BYTES && hub_part_here(&w->part) < f->bytes;
        s = small ? get_in_one(w, err) : get_blocks(w, err);
        if (s == BITNET_E_STATE) s = get_in_one(w, err); /* no ranges */
        if (s == BITNET_OK) s = check(w, err);
        if (s == BITNET_OK) s = hub_part_finish(&w->part, f->path, err);
        hub_part_close(&w->part);
    }
    pthread_mutex_destroy(&w->lock);
    free(w);
    return s;
}

/* ------------------------------------------------------------------ looking */

struct look {
    struct hub_url url;
    const char *what;
    uint64_t bytes;
    char *etag;
};

static bitnet_status look_at(void *user, struct hub_conn *c, bitnet_error *err)
{
    struct look *l = user;
    struct hub_url url = l->url;
    const struct hub_ask q = {.ranged = true, .from = 0, .to = 0, .follow = true};
    unsigned long long total;
    BN_TRY(hub_conn_ask(c, &url, &q, err));
    const char *range = http_header(&c->reader, "content-range"),
               *length = http_header(&c->reader, "content-length"),
               *etag = http_header(&c->reader, "etag");
    int status = c->reader.status;
    bool known = status == 206 ? range && sscanf(range, "bytes 0-0/%llu", &total) == 1
                               : length && sscanf(length, "%llu", &total) == 1;
    if (status != 200 && status != 206) return hub_remote_refused(c, "", l->what, err);
    if (!known)
        return bn_fail(err, BITNET_E_UNSUPPORTED, "%s does not say how long %s is", c->at.host,
                       l->what);
    l->bytes = total;
    snprintf(l->etag, 128, "%s", etag ? etag : "");
    hub_conn_close(c);
    return BITNET_OK;
}

bitnet_status hub_fetch_look(const struct hub_net *net, const struct hub_url *url, const char *what,
                             uint64_t *bytes, char etag[128], bitnet_error *err)
{
    struct hub_conn *c = malloc(sizeof *c);
    struct look *l = calloc(1, sizeof *l);
    bitnet_status s = c && l ? BITNET_OK : bn_fail_nomem(err, sizeof *c, "a connection");
    if (s == BITNET_OK) {
        *l = (struct look){*url, what, 0, etag};
        hub_conn_init(c, net, net->places->etag_timeout_s);
        s = hub_retry(c, look_at, l, err);
        *bytes = l->bytes;
        hub_conn_free(c);
    }
    free(l);
    free(c);
    return s;
}
