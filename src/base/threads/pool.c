/* SPDX-License-Identifier: Apache-2.0
 * Jobs are announced by a generation counter, barriers are counted by another one; both are waited
 * for in the same way: look for a while, then sleep on a futex. No yielding in between: the kernel
 * lets a thread that slept go first when it wakes, one that yielded last; with more threads than
 * cores that is a factor of twenty. Only the waiting differs on a crowded machine; the work is cut
 * the same way. */
#include "base/threads/pool.h"

#include "base/clock.h"
#include "base/machine/cores.h"
#include "base/os/mem.h"
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* How often to look before going to sleep: the next step is microseconds away, unless the others are
 * not even running. */
enum { SPINS = 2000, SPINS_CROWDED = 50, SPINS_MORE = 10, LONG_SLEEP_NS = 1000000 };

/* one cache line each, so that waiting on one does not slow writing to another */
struct gate {
    _Alignas(64) _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
};

/* What a worker has not begun of its share: grains [begin, end) of deal number `seq`, packed so that
 * they change together. */
struct left {
    uint32_t seq, begin, end;
};
enum { GRAIN_BITS = 24, GRAIN_MASK = (1 << GRAIN_BITS) - 1, SEQ_MASK = 0xffff };

enum {
    EVEN = 256,            /* the pace of a worker that does as much as its share */
    SLOW = EVEN / 16 * 15, /* below, it is given time, and what wants to be whole is cut */
    HELPER = EVEN / 8 * 9, /* above, it mostly helps, and looks further for those who need it */
    PACE_DEALS = 8,        /* that the average looks back on */
    PACE_GRAINS = 8        /* the least share that tells anything */
};

struct dealt {
    _Alignas(64) _Atomic uint64_t left;
    uint32_t seq;          /* the worker's own from here on: the deal it is at */
    uint32_t part;         /* the fewest grains to take */
    uint32_t share, taken; /* grains: its own part of the deal, and what it has done of it all */
    uint32_t pace;         /* what it did of its shares lately, on average; EVEN: all */
    bool at_once;          /* its share is one range, which nobody else takes of */
    uint32_t near, n_near; /* workers that help each other, this one among them */
    size_t n, grain;
#ifdef BN_SLOW_WORKER
    uint64_t since_ns;
#endif
};

struct bn_pool {
    struct gate job;     /* generation of the announced job */
    struct gate barrier; /* generation of the last barrier passed by all */
    _Alignas(64) _Atomic uint32_t arrived;
    _Alignas(64) bn_job_fn *fn;
    void *arg;
    _Atomic bool closing;
    uint32_t n_threads, n_started;
    pid_t pid;            /* whose threads they are: a child of fork() has none of them */
    int spins;            /* at most */
    _Atomic int patience; /* spins at a barrier, as experience teaches */
    pthread_t *threads;
    struct worker *workers;
    struct dealt *dealt;        /* [n_threads] */
    struct bn_prof *prof;       /* NULL: off */
    const struct bn_numa *numa; /* NULL: not placed */
};

struct worker {
    struct bn_pool *pool;
    uint32_t index, node;
};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Returns for how long it slept, in nanoseconds; 0: not at all. */
static uint64_t gate_wait(struct gate *g, uint32_t seen, int spins)
{
    for (int i = 0; i < spins; i++) {
        if (atomic_load_explicit(&g->value, memory_order_acquire) != seen) return 0;
        relax();
    }
    uint64_t start_ns = bn_now_ns();
    atomic_fetch_add(&g->sleepers, 1);
    while (atomic_load(&g->value) == seen)
        syscall(SYS_futex, &g->value, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_fetch_sub(&g->sleepers, 1);
    return bn_now_ns() - start_ns + 1;
}

static void gate_open(struct gate *g)
{
    atomic_fetch_add(&g->value,
                     1); /* sequentially consistent: a sleeper either sees it or is counted */
    if (atomic_load(&g->sleepers))
        syscall(SYS_futex, &g->value, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* For tests of uneven cores: built with -DBN_SLOW_WORKER=w, worker w takes twice the time for whatever
 * it does between two meetings with others. */
#ifdef BN_SLOW_WORKER
static void set_out(struct bn_pool *p, uint32_t w) { p->dealt[w].since_ns = bn_now_ns(); }

static void dawdle(struct bn_pool *p, uint32_t w)
{
    uint64_t now_ns = bn_now_ns(), until_ns = now_ns + (now_ns - p->dealt[w].since_ns);
    while (w == BN_SLOW_WORKER && bn_now_ns() < until_ns) relax();
}
#else
static inline void set_out(struct bn_pool *p, uint32_t w) { (void)p, (void)w; }
static inline void dawdle(struct bn_pool *p, uint32_t w) { (void)p, (void)w; }
#endif

/* Whoever slept long at a barrier waited for a thread that was not running: something else has its
 * CPU, and looking would only use up our own time, which the kernel then gives to others. Every
 * barrier that was passed without sleep makes up for a part of it. */
static void learn(struct bn_pool *p, int spins, uint64_t slept_ns)
{
    int next = slept_ns == 0              ? spins + SPINS_MORE
               : slept_ns > LONG_SLEEP_NS ? SPINS_CROWDED
                                          : spins;
    if (next > p->spins) next = p->spins;
    if (next != spins) atomic_store_explicit(&p->patience, next, memory_order_relaxed);
}

/* Without a mark: at a job's end, what workers write behind it the driver could not read. */
static void meet(struct bn_pool *p)
{
    uint32_t seen = atomic_load_explicit(&p->barrier.value, memory_order_acquire);
    if (atomic_fetch_add(&p->arrived, 1) + 1 == p->n_threads) {
        atomic_store(&p->arrived, 0);
        gate_open(&p->barrier);
    } else {
        int spins = atomic_load_explicit(&p->patience, memory_order_relaxed);
        learn(p, spins, gate_wait(&p->barrier, seen, spins));
    }
}

void bn_pool_barrier(struct bn_pool *p, uint32_t worker)
{
    if (p->n_threads == 1) return;
    dawdle(p, worker);
    bn_prof_mark(p->prof, worker, BN_PROF_WAIT);
    meet(p);
    set_out(p, worker);
}

static void *work(void *arg)
{
    const struct worker *me = arg;
    struct bn_pool *p = me->pool;
    for (uint32_t seen = 0;; seen++) {
        gate_wait(&p->job, seen, p->spins);
        if (atomic_load(&p->closing)) return NULL;
        bn_prof_enter(p->prof, me->index);
        set_out(p, me->index);
        p->fn(p->arg, me->index);
        dawdle(p, me->index);
        bn_prof_leave(p->prof, me->index);
        meet(p);
    }
}

bitnet_status bn_pool_open(struct bn_pool **out, uint32_t n_threads, bitnet_error *err)
{
    *out = NULL;
    if (n_threads > BN_MAX_THREADS)
        return bn_fail(err, BITNET_E_LIMIT, "%u threads asked for; at most %d are possible",
                       n_threads, BN_MAX_THREADS);
    struct bn_placement place;
    bn_placement_choose(&place, n_threads);
    n_threads = place.n_threads;
    struct bn_pool *p = aligned_alloc(64, bn_align_up(sizeof *p, 64));
    if (!p) return bn_fail_nomem(err, sizeof *p, "thread pool");
    memset(p, 0, sizeof *p);
    p->n_threads = n_threads;
    p->pid = getpid();
    p->spins = place.crowded ? SPINS_CROWDED : SPINS;
    atomic_store(&p->patience, p->spins);
    p->threads = bn_calloc(n_threads, sizeof *p->threads);
    p->workers = bn_calloc(n_threads, sizeof *p->workers);
    p->dealt = aligned_alloc(64, n_threads * sizeof *p->dealt);
    if (p->dealt) memset(p->dealt, 0, n_threads * sizeof *p->dealt);
    if (!p->threads || !p->workers || !p->dealt) {
        bn_pool_close(p);
        return bn_fail_nomem(err, n_threads * sizeof *p->workers, "thread pool");
    }
    for (uint32_t i = 0; i < n_threads; i++) {
        p->dealt[i].n_near = n_threads;
        p->dealt[i].pace = place.uneven ? EVEN / 4 * 3 : EVEN;
    }
    for (uint32_t i = 1; i < n_threads; i++) {
        p->workers[i] = (struct worker){p, i, 0};
        int e = pthread_create(&p->threads[i], NULL, work, &p->workers[i]);
        if (e) {
            bn_pool_close(p);
            return bn_fail(err, BITNET_E_NOMEM, "cannot start thread %u of %u (error %d)", i + 1,
                           n_threads, e);
        }
        p->n_started++;
        if (place.confined) pthread_setaffinity_np(p->threads[i], sizeof place.cpus, &place.cpus);
    }
    *out = p;
    return BITNET_OK;
}

bool bn_pool_is_foreign(const struct bn_pool *p) { return p->pid != getpid(); }

void bn_pool_close(struct bn_pool *p)
{
    if (!p) return;
    atomic_store(&p->closing, true);
    gate_open(&p->job);
    for (uint32_t i = 1; !bn_pool_is_foreign(p) && i <= p->n_started; i++)
        pthread_join(p->threads[i], NULL);
    free(p->threads);
    free(p->workers);
    free(p->dealt);
    free(p);
}

void bn_pool_place(struct bn_pool *p, const struct bn_numa *numa)
{
    uint16_t node[BN_MAX_THREADS];
    bn_numa_plan(numa, node, p->n_threads);
    p->numa = numa;
    for (uint32_t w = 0, first = 0, end; w < p->n_threads; w++) {
        if (node[w] != node[first]) first = w;
        for (end = w + 1; end < p->n_threads && node[end] == node[w];) end++;
        p->workers[w].node = node[w];
        if (w > 0) bn_numa_bind_thread(numa, p->threads[w], node[w]);
        if (bn_numa_mode(numa) != BN_NUMA_DISTRIBUTE) continue;
        p->dealt[w].near = first;
        p->dealt[w].n_near = end - first;
    }
}

uint32_t bn_pool_node(const struct bn_pool *p, uint32_t worker) { return p->workers[worker].node; }

/* Worker 0 stays free, but for its place on its node. */
static uint32_t pin_placed(struct bn_pool *p)
{
    uint32_t done = 0;
    for (uint32_t w = 1, i = 0; w < p->n_threads; w++) {
        uint32_t node = bn_pool_node(p, w);
        i = node == bn_pool_node(p, w - 1) ? i + 1 : 0;
        done += bn_numa_pin_thread(p->numa, p->threads[w], node, i);
    }
    return done;
}

uint32_t bn_pool_pin(struct bn_pool *p)
{
    uint16_t cpus[BN_MAX_THREADS];
    uint32_t n = (uint32_t)bn_cpus_for_workers(cpus, p->n_started), done = 0;
    if (n && p->numa) return pin_placed(p);
    for (uint32_t i = 0; i < n; i++) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpus[i], &one);
        done += pthread_setaffinity_np(p->threads[i + 1], sizeof one, &one) == 0;
    }
    return done;
}

uint32_t bn_pool_threads(const struct bn_pool *p) { return p->n_threads; }
void bn_pool_set_prof(struct bn_pool *p, struct bn_prof *prof) { p->prof = prof; }
struct bn_prof *bn_pool_prof(const struct bn_pool *p) { return p->prof; }

void bn_pool_run(struct bn_pool *p, bn_job_fn *fn, void *arg)
{
    cpu_set_t before;
    bool moved = p->numa && bn_numa_enter(p->numa, bn_pool_node(p, 0), &before);
    p->fn = fn;
    p->arg = arg;
    if (p->n_threads > 1) {
        bn_prof_mark(p->prof, 0, BN_PROF_WAIT);
        gate_open(&p->job);
    }
    set_out(p, 0);
    fn(arg, 0);
    bn_pool_barrier(p, 0);
    if (moved) bn_numa_leave(&before);
}

struct bn_range bn_pool_share(const struct bn_pool *p, uint32_t w, size_t n, size_t grain)
{
    size_t grains = bn_div_up(n, grain);
    size_t from = grains * w / p->n_threads * grain, to = grains * (w + 1) / p->n_threads * grain;
    return (struct bn_range){bn_min_size(from, n), bn_min_size(to, n)};
}

/* ------------------------------------------------------------------ dealing */

enum {
    PARTS = 32,       /* the smallest part of a share that is taken at a time is one of so many */
    WHOLE_PARTS = 16, /* of shares that would rather be whole */
    NEIGHBOURS = 8 /* that a worker helps: with very many, looking would take longer than helping */
};

static uint64_t pack_left(struct left l)
{
    return (uint64_t)l.seq << (2 * GRAIN_BITS) | (uint64_t)l.begin << GRAIN_BITS | l.end;
}

static struct left unpack_left(uint64_t x)
{
    return (struct left){(uint32_t)(x >> (2 * GRAIN_BITS)),
                         (uint32_t)(x >> GRAIN_BITS) & GRAIN_MASK, (uint32_t)x & GRAIN_MASK};
}

/* What a worker did of the last deal, where it was free to do more or less than its share. */
static void learn_pace(struct dealt *d)
{
    if (d->at_once || d->share < PACE_GRAINS) return;
    int32_t pace = (int32_t)bn_min_size((size_t)d->taken * EVEN / d->share, 4 * EVEN);
    d->pace = (uint32_t)((int32_t)d->pace + (pace - (int32_t)d->pace) / PACE_DEALS);
}

void bn_pool_deal(struct bn_pool *p, uint32_t w, size_t n, size_t grain, bool whole)
{
    struct dealt *d = &p->dealt[w];
    struct left l = {.seq = (d->seq + 1) & SEQ_MASK};
    size_t grains = bn_div_up(n, grain);
    size_t begin = grains * w / p->n_threads, end = grains * (w + 1) / p->n_threads;
    learn_pace(d);
    d->seq = l.seq;
    d->n = n;
    d->grain = grain;
    d->at_once = p->n_threads == 1 || grains > GRAIN_MASK || (whole && d->pace >= SLOW);
    d->share = (uint32_t)bn_min_size(end - begin, GRAIN_MASK);
    d->taken = 0;
    d->part = (uint32_t)bn_max_size(d->share / (whole ? WHOLE_PARTS : PARTS), 1);
    if (!d->at_once) {
        l.begin = (uint32_t)begin;
        l.end = (uint32_t)end;
    }
    atomic_store_explicit(&d->left, pack_left(l), memory_order_relaxed);
}

/* How much a worker takes of its own, of which it still has so much: three quarters of what it is
 * expected to do of its share, then half of what is missing of that. */
static uint32_t own_part(const struct dealt *d, uint32_t have)
{
    uint32_t expected = d->pace < SLOW ? (uint32_t)((uint64_t)d->share * d->pace / EVEN) : d->share;
    uint32_t most = expected > d->taken ? expected - d->taken : 0;
    if (have < most) most = have;
    return d->taken == 0 && have > d->share / 2 ? most / 4 * 3 : most / 2;
}

/* Takes grains off the front of a worker's own range, or off the end of another's, where other
 * helpers will want some, too. */
static bool take_from(struct dealt *from, struct dealt *by, uint32_t *begin, uint32_t *end)
{
    uint64_t seen = atomic_load_explicit(&from->left, memory_order_relaxed), next;
    bool own = from == by;
    uint32_t helpers = (uint32_t)bn_min_size(by->n_near, NEIGHBOURS);
    do {
        struct left l = unpack_left(seen);
        if (l.seq != by->seq || l.begin == l.end) return false;
        uint32_t have = l.end - l.begin, much = own ? own_part(by, have) : have / helpers;
        uint32_t n = (uint32_t)bn_min_size(have, bn_max_size(by->part, much));
        *begin = own ? l.begin : l.end - n;
        *end = *begin + n;
        if (own) l.begin = *end;
        else l.end = *begin;
        next = pack_left(l);
    } while (!atomic_compare_exchange_weak_explicit(&from->left, &seen, next, memory_order_relaxed,
                                                    memory_order_relaxed));
    by->taken += *end - *begin;
    return true;
}

static bool take(struct bn_pool *p, uint32_t w, struct bn_range *range)
{
    struct dealt *d = &p->dealt[w];
    uint32_t begin, end, most = d->n_near - 1;
    if (d->at_once && !d->taken && d->share) {
        *range = bn_pool_share(p, w, d->n, d->grain);
        d->taken = d->share;
        return true;
    }
    bool got = take_from(d, d, &begin, &end);
    if (d->pace <= HELPER) most = (uint32_t)bn_min_size(most, NEIGHBOURS);
    for (uint32_t i = 1; !got && i <= most; i++)
        got = take_from(&p->dealt[d->near + (w - d->near + i) % d->n_near], d, &begin, &end);
    if (got) *range = (struct bn_range){begin * d->grain, bn_min_size(end * d->grain, d->n)};
    return got;
}

bool bn_pool_take(struct bn_pool *p, uint32_t w, struct bn_range *range)
{
    dawdle(p, w);
    bool got = take(p, w, range);
    set_out(p, w);
    return got;
}
