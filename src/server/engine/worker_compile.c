/* SPDX-License-Identifier: Apache-2.0
 * The worker's second thread: compiles the constraints of requests before they go to the first, which
 * drives the engine and so need not stop for it. Requests without a constraint do not come by. */
#include "server/engine/worker_impl.h"

/* A constraint that is refused stays refused: the engine says why when it takes the request. */
static void *compile(void *worker)
{
    struct worker *w = worker;
    struct worker_task *t;
    pthread_mutex_lock(&w->lock);
    while (!w->closing) {
        t = worker_list_take(&w->to_compile);
        if (!t) {
            pthread_cond_wait(&w->more_to_compile, &w->lock);
            continue;
        }
        pthread_mutex_unlock(&w->lock);
        bitnet_error err;
        if (!t->cancelled) bitnet_prepare(w->c.engine, t->request, &err);
        pthread_mutex_lock(&w->lock);
        worker_list_add(&w->mail, t);
        pthread_cond_signal(&w->wake);
    }
    while ((t = worker_list_take(&w->to_compile))) worker_list_add(&w->mail, t);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int worker_compile_start(struct worker *w)
{
    int e = pthread_create(&w->compiler, NULL, compile, w);
    w->compiling = e == 0;
    return e;
}

void worker_compile_join(struct worker *w)
{
    if (w->compiling) pthread_join(w->compiler, NULL);
    w->compiling = false;
}
