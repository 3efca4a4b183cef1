/* SPDX-License-Identifier: Apache-2.0 */
#include "server/errands/errands.h"

#include "base/os/mem.h"
#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { OPEN_MAX = 2 * ERRANDS_THREADS, NICE = 10 };

struct list {
    struct errand *first, *last;
};

struct errands {
    pthread_mutex_t lock;
    pthread_cond_t more; /* to do, or room for more, or closing */
    pthread_t threads[ERRANDS_THREADS];
    size_t n_threads;
    int fd;
    struct event *ended;
    /* under the lock */
    bool closing;
    struct list waiting, following, over;
    size_t n_open; /* of those that were begun, or follow one, not all has been told yet */
};

static void add(struct list *l, struct errand *e)
{
    e->next = NULL;
    *(l->last ? &l->last->next : &l->first) = e;
    l->last = e;
}

static struct errand *take(struct list *l)
{
    struct errand *e = l->first;
    if (!e) return NULL;
    l->first = e->next;
    if (!l->first) l->last = NULL;
    return e;
}

/* Under the lock. NULL: there is nothing that may be begun. */
static struct errand *next(struct errands *p)
{
    struct errand *e = take(&p->following);
    if (e || p->n_open >= OPEN_MAX) return e;
    e = take(&p->waiting);
    if (e) p->n_open++;
    return e;
}

static void *work(void *arg)
{
    struct errands *p = arg;
    pthread_setname_np(pthread_self(), "errands");
    /* of Linux, whose threads have one each: cores are for answers first, which others wait for */
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    pthread_mutex_lock(&p->lock);
    while (!p->closing) {
        struct errand *e = next(p);
        if (!e) {
            pthread_cond_wait(&p->more, &p->lock);
            continue;
        }
        pthread_mutex_unlock(&p->lock);
        e->run(e);
        pthread_mutex_lock(&p->lock);
        add(&p->over, e);
        ssize_t unused = write(p->fd, &(uint64_t){1}, sizeof(uint64_t)); /* cannot be full */
        (void)unused;
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* An errand may be gone after it was told; one that follows has been given by then. */
static void on_ended(int fd, short what, void *user)
{
    (void)what;
    struct errands *p = user;
    uint64_t n;
    ssize_t unused = read(fd, &n, sizeof n);
    (void)unused;
    pthread_mutex_lock(&p->lock);
    struct list over = p->over;
    p->over = (struct list){NULL, NULL};
    pthread_mutex_unlock(&p->lock);
    for (struct errand *e; (e = take(&over));) {
        e->done(e);
        pthread_mutex_lock(&p->lock);
        p->n_open--;
        pthread_cond_signal(&p->more);
        pthread_mutex_unlock(&p->lock);
    }
}

/* The threads take no signals: they are for the event loop. */
static int start_threads(struct errands *p)
{
    sigset_t all, before;
    int e = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (!e && p->n_threads < ERRANDS_THREADS) {
        e = pthread_create(&p->threads[p->n_threads], NULL, work, p);
        p->n_threads += e == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return e;
}

bitnet_status errands_open(struct errands **out, struct event_base *base, bitnet_error *err)
{
    struct errands *p = bn_calloc(1, sizeof *p);
    *out = NULL;
    if (!p) return bn_fail_nomem(err, sizeof *p, "threads for large bodies");
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->more, NULL);
    p->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->fd >= 0) p->ended = event_new(base, p->fd, EV_READ | EV_PERSIST, on_ended, p);
    int e = !p->ended || event_add(p->ended, NULL) != 0 ? ENOMEM : start_threads(p);
    if (e) {
        errands_close(p);
        return bn_fail(err, BITNET_E_NOMEM, "cannot start threads for large bodies (error %d)", e);
    }
    *out = p;
    return BITNET_OK;
}

void errands_close(struct errands *p)
{
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->closing = true;
    pthread_cond_broadcast(&p->more);
    pthread_mutex_unlock(&p->lock);
    for (size_t i = 0; i < p->n_threads; i++) pthread_join(p->threads[i], NULL);
    for (struct errand *e;
         (e = take(&p->over)) || (e = take(&p->following)) || (e = take(&p->waiting));)
        e->done(e);
    if (p->ended) event_free(p->ended);
    if (p->fd >= 0) close(p->fd);
    pthread_cond_destroy(&p->more);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

void errands_give(struct errands *p, struct errand *e, bool follows)
{
    pthread_mutex_lock(&p->lock);
    p->n_open += follows;
    add(follows ? &p->following : &p->waiting, e);
    pthread_cond_signal(&p->more);
    pthread_mutex_unlock(&p->lock);
}
