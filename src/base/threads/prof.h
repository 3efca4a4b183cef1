/* SPDX-License-Identifier: Apache-2.0
 * Where the time of workers goes. At every moment a worker is at one place: an operation, of a row
 * (a layer). A mark says where it goes on, and what has passed since the mark before is put down to
 * the place that it leaves. So the parts of a worker's time add up to the whole, to the nanosecond,
 * with one look at the clock for each.
 *
 * A period is what its driver, worker 0, does between bn_prof_begin and bn_prof_end; jobs are run in
 * periods only. The others take part from bn_prof_enter to bn_prof_leave, and are idle for the rest.
 *
 * Without a profile (NULL) each mark is one branch. Built with BN_PROF=0 there are none. */
#ifndef BN_BASE_THREADS_PROF_H
#define BN_BASE_THREADS_PROF_H

#include "base/status.h"

#ifndef BN_PROF
#define BN_PROF 1
#endif

/* Operations that every profile has; the others are the caller's, from BN_PROF_OPS on. */
enum {
    BN_PROF_OTHER, /* what nobody has named */
    BN_PROF_WAIT,  /* at a barrier, until the next mark; worker 0: also waking the others */
    BN_PROF_IDLE,  /* not worker 0: outside of jobs */
    BN_PROF_OPS
};

struct bn_prof_sizes {
    uint32_t n_workers, n_phases, n_rows, n_ops;
    size_t n_spans; /* of a worker; further ones are counted, not kept. 0: sums only */
};

struct bn_prof_sum {
    uint64_t ns, calls;
    uint64_t bytes, macs; /* as bn_prof_work has it */
};

/* From here to the next span of the same worker. */
struct bn_prof_span {
    uint64_t begin_ns;
    uint16_t op, row;
    uint32_t period; /* counted from 0, since the last reset */
};

struct bn_prof_phase {
    uint64_t periods, ns, units; /* units: what the driver says that it has done (tokens) */
};

struct bn_prof; /* NULL: off */

bitnet_status bn_prof_open(struct bn_prof **out, const struct bn_prof_sizes *s, bitnet_error *err);
void bn_prof_close(struct bn_prof *p);

/* ---- by the driver, outside of periods ---- */

void bn_prof_reset(struct bn_prof *p); /* everything is 0 again */
const struct bn_prof_phase *bn_prof_phase(const struct bn_prof *p, uint32_t phase);
const struct bn_prof_sum *bn_prof_sum(const struct bn_prof *p, uint32_t worker, uint32_t phase,
                                      uint32_t row, uint32_t op);
/* i-th span of a worker; NULL past the end. */
const struct bn_prof_span *bn_prof_span(const struct bn_prof *p, uint32_t worker, size_t i);
size_t bn_prof_spans_room(const struct bn_prof *p);
uint64_t bn_prof_spans_lost(const struct bn_prof *p);
uint64_t bn_prof_marks(const struct bn_prof *p, uint32_t worker); /* since the last reset */
double bn_prof_mark_ns(const struct bn_prof *p); /* what one costs here, measured at open */

/* ---- inside; not to be called with NULL ---- */
void bn_prof_begin_on(struct bn_prof *p, uint32_t phase, uint32_t op, uint64_t since_ns);
void bn_prof_end_on(struct bn_prof *p, uint64_t units);
void bn_prof_enter_on(struct bn_prof *p, uint32_t worker);
void bn_prof_leave_on(struct bn_prof *p, uint32_t worker);
void bn_prof_mark_on(struct bn_prof *p, uint32_t worker, uint32_t op);
void bn_prof_row_on(struct bn_prof *p, uint32_t worker, uint32_t row);
void bn_prof_work_on(struct bn_prof *p, uint32_t worker, uint64_t bytes, uint64_t macs);

/* ---- marks ---- */

static inline bool bn_prof_on(const struct bn_prof *p) { return BN_PROF && p; }

/* A period of a phase has begun at since_ns, or now (0), the driver is at `op`; it ends, and has done
 * so many units. */
static inline void bn_prof_begin(struct bn_prof *p, uint32_t phase, uint32_t op, uint64_t since_ns)
{
    if (bn_prof_on(p)) bn_prof_begin_on(p, phase, op, since_ns);
}

static inline void bn_prof_end(struct bn_prof *p, uint64_t units)
{
    if (bn_prof_on(p)) bn_prof_end_on(p, units);
}

/* Another worker takes up a job, and is through with it. */
static inline void bn_prof_enter(struct bn_prof *p, uint32_t worker)
{
    if (bn_prof_on(p)) bn_prof_enter_on(p, worker);
}

static inline void bn_prof_leave(struct bn_prof *p, uint32_t worker)
{
    if (bn_prof_on(p)) bn_prof_leave_on(p, worker);
}

/* The worker goes on with `op`, a call of it. */
static inline void bn_prof_mark(struct bn_prof *p, uint32_t worker, uint32_t op)
{
    if (bn_prof_on(p)) bn_prof_mark_on(p, worker, op);
}

/* Its next marks are about this row; no mark itself. */
static inline void bn_prof_row(struct bn_prof *p, uint32_t worker, uint32_t row)
{
    if (bn_prof_on(p)) bn_prof_row_on(p, worker, row);
}

/* What the operation it is at reads of weights or cache, and multiplies. */
static inline void bn_prof_work(struct bn_prof *p, uint32_t worker, uint64_t bytes, uint64_t macs)
{
    if (bn_prof_on(p)) bn_prof_work_on(p, worker, bytes, macs);
}

#endif
