/* SPDX-License-Identifier: Apache-2.0
 * The checksums of an image: all at once, or by a thread beside the forward pass, which also brings
 * pages in that are not in memory yet. The thread begins at another place every time, so that runs
 * that end before it is through check all of the file between them. */
#include "model/image/image.h"

#include "base/clock.h"
#include "base/rng.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    AT_A_TIME = 8, /* pieces between two rests */
    REST = 3,      /* times as long as they took */
    MAX_REST_NS = 20 * 1000000
};

struct bn_image_check {
    const struct bn_model *m;
    pthread_t thread;
    pid_t pid; /* of the process that has it, and not of a child */
    atomic_bool stop;
    _Atomic uint64_t bad; /* UINT64_MAX: no piece */
    pthread_mutex_t mutex;
    pthread_cond_t done_cond;
    bool done;
};

static bitnet_status fail(const struct bn_model *m, uint64_t piece, bitnet_error *err)
{
    const struct bn_image *i = &m->image;
    uint64_t at = i->file_at + i->view->head.data_at + piece * BN_IMAGE_PIECE;
    return bn_fail(err, BITNET_E_FORMAT,
                   "the packed weights in '%s' are damaged: another checksum from byte %llu on; %s",
                   i->path, (unsigned long long)at,
                   i->entry ? "the file was removed, and the next start packs the model anew"
                            : "convert the model again");
}

static void found(struct bn_image_check *c, uint64_t piece)
{
    if (c->m->image.entry) unlink(c->m->image.path);
    atomic_store(&c->bad, piece);
}

/* The answer that is computed meanwhile has most of the time, and of the memory. */
static void rest(uint64_t worked_ns)
{
    uint64_t ns = REST * worked_ns;
    if (ns > MAX_REST_NS) ns = MAX_REST_NS;
    nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}

static void *check(void *arg)
{
    struct bn_image_check *c = arg;
    const struct bn_image *i = &c->m->image;
    sigset_t all; /* signals are for threads of the program */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    uint64_t n = bn_image_pieces(i->view), first = n ? bn_mix64(bn_now_ns()) % n : 0;
    uint64_t began = bn_now_ns();
    for (uint64_t k = 0; k < n && !atomic_load_explicit(&c->stop, memory_order_relaxed); k++) {
        uint64_t piece = (first + k) % n;
        if (!bn_image_piece_good(i->view, i->data, (size_t)piece)) {
            found(c, piece);
            break;
        }
        if (k % AT_A_TIME + 1 < AT_A_TIME) continue;
        rest(bn_now_ns() - began);
        began = bn_now_ns();
    }
    pthread_mutex_lock(&c->mutex);
    c->done = true;
    pthread_cond_broadcast(&c->done_cond);
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

void bn_image_check_start(struct bn_model *m)
{
    struct bn_image_check *c = bn_calloc(1, sizeof *c);
    if (!c) return;
    c->m = m;
    c->pid = getpid();
    atomic_init(&c->bad, UINT64_MAX);
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->done_cond, NULL);
    m->image.check = c;
    if (pthread_create(&c->thread, NULL, check, c) == 0) return;
    m->image.check = NULL;
    free(c);
}

void bn_image_check_wait(const struct bn_model *m)
{
    struct bn_image_check *c = m->image.check;
    if (!c || c->pid != getpid()) return;
    pthread_mutex_lock(&c->mutex);
    while (!c->done) pthread_cond_wait(&c->done_cond, &c->mutex);
    pthread_mutex_unlock(&c->mutex);
}

void bn_image_check_stop(struct bn_model *m)
{
    struct bn_image_check *c = m->image.check;
    if (!c) return;
    if (c->pid == getpid()) {
        atomic_store(&c->stop, true);
        pthread_join(c->thread, NULL);
        pthread_mutex_destroy(&c->mutex);
        pthread_cond_destroy(&c->done_cond);
    }
    free(c);
    m->image.check = NULL;
}

bitnet_status bn_model_check(const struct bn_model *m, bitnet_error *err)
{
    const struct bn_image_check *c = m->image.check;
    BN_TRY(bn_dist_check(m->dist, err));
    if (!c) return BITNET_OK;
    uint64_t bad = atomic_load_explicit(&c->bad, memory_order_acquire);
    return bad == UINT64_MAX ? BITNET_OK : fail(m, bad, err);
}

/* ------------------------------------------------------------------ all at once */

struct job {
    const struct bn_model *m;
    struct bn_pool *pool;
    _Atomic uint64_t bad;
};

static void verify_worker(void *arg, uint32_t worker)
{
    struct job *j = arg;
    const struct bn_image *i = &j->m->image;
    struct bn_range r = bn_pool_share(j->pool, worker, bn_image_pieces(i->view), 1);
    for (size_t k = r.begin; k < r.end; k++)
        if (!bn_image_piece_good(i->view, i->data, k)) atomic_store(&j->bad, k);
}

bitnet_status bn_image_verify(const struct bn_model *m, struct bn_pool *pool, bitnet_error *err)
{
    struct job j = {.m = m, .pool = pool, .bad = UINT64_MAX};
    bn_pool_run(pool, verify_worker, &j);
    if (j.bad == UINT64_MAX) return BITNET_OK;
    if (m->image.entry) unlink(m->image.path);
    return fail(m, j.bad, err);
}
