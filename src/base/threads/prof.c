/* SPDX-License-Identifier: Apache-2.0
 * Every worker writes to memory of its own only. The driver reads it, and reckons the others' idle
 * time, when they have left the period's last job: the barrier at its end orders that. */
#include "base/threads/prof.h"

#include "base/clock.h"
#include "base/os/mem.h"
#include <stdlib.h>

enum { COST_MARKS = 2000, COST_TRIES = 5 };

struct worker {
    _Alignas(64) uint64_t last_ns; /* time of the last mark */
    uint64_t period_ns;            /* put down in this period */
    uint64_t marks, lost;
    uint32_t op, row;         /* where it is */
    uint32_t next_row;        /* of its next marks */
    struct bn_prof_sum *sums; /* [n_phases][n_rows][n_ops] */
    struct bn_prof_span *spans;
    size_t n_spans;
};

struct bn_prof {
    struct bn_prof_sizes n;
    struct bn_prof_phase *phases;
    struct worker *workers;
    uint32_t phase, period; /* in progress */
    uint64_t begin_ns;
    double mark_ns;
    void *block;
    size_t block_bytes;
};

/* ------------------------------------------------------------------ life */

static size_t n_sums(const struct bn_prof *p)
{
    return (size_t)p->n.n_phases * p->n.n_rows * p->n.n_ops;
}

static void lay_out(struct bn_prof *p, struct bn_plan *plan)
{
    p->phases = bn_plan_piece(plan, p->n.n_phases, sizeof *p->phases);
    p->workers = bn_plan_piece(plan, p->n.n_workers, sizeof *p->workers);
    for (uint32_t i = 0; i < p->n.n_workers; i++) {
        void *sums = bn_plan_piece(plan, n_sums(p), sizeof(struct bn_prof_sum));
        void *spans = bn_plan_piece(plan, p->n.n_spans, sizeof(struct bn_prof_span));
        if (!plan->base) continue;
        p->workers[i].sums = sums;
        p->workers[i].spans = spans;
    }
}

/* The least of a few tries: what is more is not the mark's. */
static double mark_cost(struct bn_prof *p)
{
    double best = 0;
    for (int i = 0; i < COST_TRIES; i++) {
        uint64_t begin_ns = bn_now_ns();
        bn_prof_begin_on(p, 0, BN_PROF_OTHER, begin_ns);
        for (int k = 0; k < COST_MARKS; k++) bn_prof_mark_on(p, 0, BN_PROF_OTHER);
        bn_prof_end_on(p, 0);
        double ns = (double)(bn_now_ns() - begin_ns) / COST_MARKS;
        if (i == 0 || ns < best) best = ns;
    }
    return best;
}

bitnet_status bn_prof_open(struct bn_prof **out, const struct bn_prof_sizes *s, bitnet_error *err)
{
    *out = NULL;
    struct bn_prof *p = bn_calloc(1, sizeof *p);
    if (!p) return bn_fail_nomem(err, sizeof *p, "the profile");
    p->n = *s;
    struct bn_plan plan = {0};
    lay_out(p, &plan);
    p->block_bytes = plan.used;
    p->block = bn_block_alloc(plan.used);
    if (!p->block) {
        bn_prof_close(p);
        return bn_fail_nomem(err, plan.used, "the profile");
    }
    plan = (struct bn_plan){.base = p->block};
    lay_out(p, &plan);
    p->mark_ns = mark_cost(p);
    bn_prof_reset(p);
    *out = p;
    return BITNET_OK;
}

void bn_prof_close(struct bn_prof *p)
{
    if (!p) return;
    bn_block_free(p->block, p->block_bytes);
    free(p);
}

/* Spans are written as well, so that their pages are there when they are needed. */
void bn_prof_reset(struct bn_prof *p)
{
    p->period = 0;
    memset(p->phases, 0, p->n.n_phases * sizeof *p->phases);
    for (uint32_t i = 0; i < p->n.n_workers; i++) {
        struct worker *w = &p->workers[i];
        memset(w->sums, 0, n_sums(p) * sizeof *w->sums);
        memset(w->spans, 0, p->n.n_spans * sizeof *w->spans);
        w->n_spans = 0;
        w->marks = w->lost = 0;
    }
}

/* ------------------------------------------------------------------ marks */

static struct bn_prof_sum *sum_at(const struct bn_prof *p, const struct worker *w, uint32_t phase,
                                  uint32_t row, uint32_t op)
{
    return &w->sums[((size_t)phase * p->n.n_rows + row) * p->n.n_ops + op];
}

static void put_span(struct bn_prof *p, struct worker *w, uint64_t now_ns)
{
    if (!p->n.n_spans) return;
    if (w->n_spans == p->n.n_spans) {
        w->lost++;
        return;
    }
    w->spans[w->n_spans++] =
        (struct bn_prof_span){now_ns, (uint16_t)w->op, (uint16_t)w->row, p->period};
}

/* From now on the worker is at `op` of its next row. */
static void go_to(struct bn_prof *p, struct worker *w, uint32_t op, uint64_t now_ns)
{
    w->last_ns = now_ns;
    w->op = op;
    w->row = w->next_row;
    put_span(p, w, now_ns);
}

/* What has passed is put down to the place that it leaves for `op`. */
static void leave_for(struct bn_prof *p, struct worker *w, uint32_t op)
{
    uint64_t now_ns = bn_now_ns(), ns = now_ns - w->last_ns;
    sum_at(p, w, p->phase, w->row, w->op)->ns += ns;
    w->period_ns += ns;
    w->marks++;
    go_to(p, w, op, now_ns);
}

void bn_prof_begin_on(struct bn_prof *p, uint32_t phase, uint32_t op, uint64_t since_ns)
{
    struct worker *me = &p->workers[0];
    p->phase = phase;
    p->begin_ns = since_ns ? since_ns : bn_now_ns();
    for (uint32_t i = 0; i < p->n.n_workers; i++) p->workers[i].period_ns = 0;
    me->next_row = 0;
    go_to(p, me, op, p->begin_ns);
    sum_at(p, me, phase, 0, op)->calls++;
}

void bn_prof_end_on(struct bn_prof *p, uint64_t units)
{
    struct worker *me = &p->workers[0];
    struct bn_prof_phase *phase = &p->phases[p->phase];
    me->next_row = 0;
    leave_for(p, me, BN_PROF_IDLE);
    uint64_t ns = me->last_ns - p->begin_ns;
    for (uint32_t i = 1; i < p->n.n_workers; i++) {
        struct bn_prof_sum *idle = sum_at(p, &p->workers[i], p->phase, 0, BN_PROF_IDLE);
        idle->ns += ns - p->workers[i].period_ns;
        idle->calls++;
    }
    phase->periods++;
    phase->ns += ns;
    phase->units += units;
    p->period++;
}

void bn_prof_enter_on(struct bn_prof *p, uint32_t worker)
{
    struct worker *w = &p->workers[worker];
    w->next_row = 0;
    go_to(p, w, BN_PROF_OTHER, bn_now_ns());
}

void bn_prof_leave_on(struct bn_prof *p, uint32_t worker)
{
    struct worker *w = &p->workers[worker];
    w->next_row = 0;
    leave_for(p, w, BN_PROF_IDLE);
}

void bn_prof_mark_on(struct bn_prof *p, uint32_t worker, uint32_t op)
{
    struct worker *w = &p->workers[worker];
    leave_for(p, w, op);
    sum_at(p, w, p->phase, w->row, op)->calls++;
}

void bn_prof_row_on(struct bn_prof *p, uint32_t worker, uint32_t row)
{
    p->workers[worker].next_row = row;
}

void bn_prof_work_on(struct bn_prof *p, uint32_t worker, uint64_t bytes, uint64_t macs)
{
    struct worker *w = &p->workers[worker];
    struct bn_prof_sum *s = sum_at(p, w, p->phase, w->row, w->op);
    s->bytes += bytes;
    s->macs += macs;
}

/* ------------------------------------------------------------------ reading */

const struct bn_prof_phase *bn_prof_phase(const struct bn_prof *p, uint32_t phase)
{
    return &p->phases[phase];
}

const struct bn_prof_sum *bn_prof_sum(const struct bn_prof *p, uint32_t worker, uint32_t phase,
                                      uint32_t row, uint32_t op)
{
    return sum_at(p, &p->workers[worker], phase, row, op);
}

const struct bn_prof_span *bn_prof_span(const struct bn_prof *p, uint32_t worker, size_t i)
{
    const struct worker *w = &p->workers[worker];
    return i < w->n_spans ? &w->spans[i] : NULL;
}

size_t bn_prof_spans_room(const struct bn_prof *p) { return p->n.n_spans; }

uint64_t bn_prof_spans_lost(const struct bn_prof *p)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < p->n.n_workers; i++) n += p->workers[i].lost;
    return n;
}

uint64_t bn_prof_marks(const struct bn_prof *p, uint32_t worker)
{
    return p->workers[worker].marks;
}

double bn_prof_mark_ns(const struct bn_prof *p) { return p->mark_ns; }
