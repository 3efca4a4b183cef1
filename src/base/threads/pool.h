/* SPDX-License-Identifier: Apache-2.0
 * A pool of workers that run one function together: the caller is worker 0, the others wait
 * spinning for a moment and then asleep. No queues: a forward pass is a sequence of steps that all
 * workers take in step. */
#ifndef BN_BASE_THREADS_POOL_H
#define BN_BASE_THREADS_POOL_H

#include "base/machine/numa.h"
#include "base/threads/prof.h"
#include "base/status.h"

struct bn_pool;

/* n_threads workers in all; 1 starts no thread, 0 is as many as bn_usable_cores(). On a CPU with
 * cores of several kinds, workers run on fast ones only, if those suffice. */
bitnet_status bn_pool_open(struct bn_pool **out, uint32_t n_threads, bitnet_error *err);
void bn_pool_close(struct bn_pool *p);
/* This process is a child of the one that opened it: there is nobody here to work. It can be closed. */
bool bn_pool_is_foreign(const struct bn_pool *p);
/* Every worker goes to the CPUs of its node (bn_numa_plan), the caller while it runs a job. With
 * "distribute" workers help each other inside their node only: all that is left elsewhere lies behind
 * the link between the nodes, which is the slowest way to it. Before any job; `numa` must outlive it. */
void bn_pool_place(struct bn_pool *p, const struct bn_numa *numa);
uint32_t bn_pool_node(const struct bn_pool *p, uint32_t worker); /* 0 where it was not placed */
/* Binds every worker but the caller to a CPU of its own, as far as that makes sense
 * (bn_cpus_for_workers) and the system allows it; the caller stays free to move. Where workers were
 * placed, it is a CPU of their node. Returns how many are bound. */
uint32_t bn_pool_pin(struct bn_pool *p);
uint32_t bn_pool_threads(const struct bn_pool *p);
/* From now on jobs and barriers are marked there; NULL: off. It has as many workers. Who works in this
 * pool asks for it when opened, and marks what comes behind a barrier. */
void bn_pool_set_prof(struct bn_pool *p, struct bn_prof *prof);
struct bn_prof *bn_pool_prof(const struct bn_pool *p);

/* Runs fn(arg, worker) on every worker and returns when all are done. Called by one thread at a
 * time. */
typedef void bn_job_fn(void *arg, uint32_t worker);
void bn_pool_run(struct bn_pool *p, bn_job_fn *fn, void *arg);

/* Inside a job: waits until every worker has come here. */
void bn_pool_barrier(struct bn_pool *p, uint32_t worker);

/* The share of worker `w` of `n` items, cut at multiples of `grain` (the last share takes the
 * rest). */
struct bn_range {
    size_t begin, end;
};
struct bn_range bn_pool_share(const struct bn_pool *p, uint32_t w, size_t n, size_t grain);

/* Inside a job: the same, but who is through helps the others. Every worker deals the same sequence
 * of items and takes ranges of each until there are none left: first most of its own share, then
 * smaller parts of it, then what its neighbours have not begun. Cores that share a memory do not
 * get equal parts of it, and each barrier waits for the slowest. A next deal may begin while others
 * are still at the last.
 *
 * With `whole`, shares are as above, for work that wants its items together. Only a worker that lately
 * did much less than its share, because its core is slow or another program is on it, takes its own
 * in pieces as well, so that the others can help. */
void bn_pool_deal(struct bn_pool *p, uint32_t w, size_t n, size_t grain, bool whole);
bool bn_pool_take(struct bn_pool *p, uint32_t w, struct bn_range *range);

#endif
