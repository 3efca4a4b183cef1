/* SPDX-License-Identifier: Apache-2.0
 * An entry is written by a thread of its own, which works a part of the time only, so that the forward
 * pass beside it is not held up much; all of the time while another process waits for the entry, or
 * the model is being closed. */
#include "model/image/cache.h"

#include "base/clock.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { REST = 3 /* times as long as a piece took */ };

struct bn_cache_writer {
    struct bn_cache *cache;
    struct bn_image_plan plan;
    struct bn_out out;
    pthread_t thread;
    pid_t pid; /* of the process that has it, and not of a child */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool hurry, abandon, done; /* under the mutex */
    uint64_t piece_ns;         /* when the last piece was through */
};

/* Waits until `ns` have passed or `what` has come. With the mutex. */
static void wait_for(struct bn_cache_writer *w, const bool *what, uint64_t ns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    ns += (uint64_t)until.tv_nsec;
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    while (!*what && pthread_cond_timedwait(&w->changed, &w->mutex, &until) == 0) {
    }
}

static bitnet_status put(void *user, const void *p, size_t n, bitnet_error *err)
{
    struct bn_cache_writer *w = user;
    BN_TRY(bn_out_write(&w->out, p, n, err));
    bn_out_drain(&w->out);
    bool asked = bn_lock_is_asked(&w->cache->lock);
    pthread_mutex_lock(&w->mutex);
    uint64_t took = bn_now_ns() - w->piece_ns;
    if (!w->hurry && !asked) wait_for(w, &w->hurry, REST * took);
    bool abandon = w->abandon;
    w->piece_ns = bn_now_ns();
    pthread_mutex_unlock(&w->mutex);
    return abandon ? bn_fail(err, BITNET_E_CANCELLED, "it was not finished in time") : BITNET_OK;
}

/* Signals are for threads of the program; a file that may not grow is an error then, not a signal. */
static void block_signals(void)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
}

static void *work(void *arg)
{
    struct bn_cache_writer *w = arg;
    block_signals();
    bitnet_status s = bn_out_open(&w->out, w->cache->path, true, NULL);
    w->piece_ns = bn_now_ns();
    if (s == BITNET_OK) s = bn_image_write(&w->plan, put, w, NULL);
    if (s == BITNET_OK) s = bn_out_commit(&w->out, NULL);
    bn_out_close(&w->out); /* a disk that is full, or time that is up, leaves nothing */
    bn_lock_close(&w->cache->lock);
    pthread_mutex_lock(&w->mutex);
    w->done = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

static bool start(struct bn_cache_writer *w)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->changed, &attr);
    pthread_condattr_destroy(&attr);
    return pthread_create(&w->thread, NULL, work, w) == 0;
}

static void note(struct bn_model *m, const char *fmt, uint64_t bytes)
{
    if (m->note.len) bn_buf_putc(&m->note, ' ');
    bn_buf_printf(&m->note, fmt, (double)bytes / 1e6, m->cache->folder);
}

/* Some of the disk stays free, and entries have a limit together. */
static bool has_room(struct bn_model *m, uint64_t bytes)
{
    const struct bn_cache *c = m->cache;
    struct statvfs disk;
    if (bytes > c->max_bytes) {
        note(m, "No packed copy of the model is kept: its %.0f MB are more than '%s' may have.",
             bytes);
        return false;
    }
    bn_cache_make_room(c->folder, bytes, c->max_bytes, c->path);
    if (statvfs(c->folder, &disk) != 0) return false;
    uint64_t free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize;
    uint64_t spare = (uint64_t)disk.f_blocks * disk.f_frsize / 100 * BN_CACHE_FREE_PERCENT;
    if (free_bytes >= spare && free_bytes - spare >= bytes) return true;
    note(
        m,
        "No packed copy of the model is kept: %.0f MB would leave less than a tenth of the disk of "
        "'%s' free; --no-cache does not try.",
        bytes);
    return false;
}

static bool plan(struct bn_model *m, struct bn_cache_writer *w)
{
    struct bn_cache *c = m->cache;
    if (bn_image_plan_make(&w->plan, m, m->source.path, c->key.data, NULL) != BITNET_OK)
        return false;
    uint64_t bytes = w->plan.head.bytes;
    if (w->plan.head.data_bytes < c->min_bytes || !has_room(m, bytes)) return false;
    bn_cache_sweep(c->folder, c->path);
    return true;
}

/* What is there is replaced only by more, and only if nobody else does so now. */
static bool worth_it(const struct bn_model *m)
{
    struct bn_cache *c = m->cache;
    if (c->read_only) return false;
    if (m->image.view && (m->image.left_aside || !m->image.lacked)) return false;
    if (c->lock.fd < 0 && !bn_cache_open_lock(c)) return false;
    return c->locked || (c->locked = bn_lock_take(&c->lock));
}

void bn_cache_keep(struct bn_model *m)
{
    struct bn_cache *c = m->cache;
    if (!c) return;
    struct bn_cache_writer *w = worth_it(m) ? bn_calloc(1, sizeof *w) : NULL;
    if (w) {
        w->cache = c;
        w->pid = getpid();
        w->out.fd = -1;
        if (plan(m, w)) {
            note(m,
                 "A packed copy (%.0f MB) is being kept in '%s' for the next start; --no-cache "
                 "does without.",
                 w->plan.head.bytes);
            c->writer = w;
            if (start(w)) return;
        }
        c->writer = NULL;
        bn_image_plan_free(&w->plan);
        free(w);
    }
    bn_lock_close(&c->lock);
}

void bn_cache_wait(const struct bn_model *m)
{
    struct bn_cache_writer *w = m->cache ? m->cache->writer : NULL;
    if (!w || w->pid != getpid()) return;
    pthread_mutex_lock(&w->mutex);
    w->hurry = true;
    pthread_cond_broadcast(&w->changed);
    while (!w->done) pthread_cond_wait(&w->changed, &w->mutex);
    pthread_mutex_unlock(&w->mutex);
}

/* It may take as long as packing took, which it saves every time from now on. */
static void end_writing(struct bn_cache_writer *w, uint64_t load_ns)
{
    const uint64_t least = BN_CACHE_GRACE_MS * UINT64_C(1000000);
    pthread_mutex_lock(&w->mutex);
    w->hurry = true;
    pthread_cond_broadcast(&w->changed);
    wait_for(w, &w->done, load_ns > least ? load_ns : least);
    w->abandon = true;
    pthread_mutex_unlock(&w->mutex);
    pthread_join(w->thread, NULL);
    pthread_mutex_destroy(&w->mutex);
    pthread_cond_destroy(&w->changed);
}

static void close_writer(struct bn_cache_writer *w, uint64_t load_ns)
{
    if (w->pid == getpid()) end_writing(w, load_ns);
    bn_image_plan_free(&w->plan);
    free(w);
}

void bn_cache_close(struct bn_model *m)
{
    struct bn_cache *c = m->cache;
    if (!c) return;
    if (c->writer) close_writer(c->writer, m->load_ns);
    bn_lock_close(&c->lock);
    bn_buf_free(&c->key);
    free(c->folder);
    free(c->path);
    free(c);
    m->cache = NULL;
}
