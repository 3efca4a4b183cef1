/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's profile: memory for it, and its sums in the words of bitnet.h. The marks stand where
 * the work is done: step.c, model/forward, attention, ffn and head, base/pool.
 */
#include "engine/engine_impl.h"

/* 16 bytes each: of a worker, some thousand tokens of a small model; of all workers together */
enum { SPANS = 1 << 20, SPANS_ALL = 1 << 24 };

_Static_assert((int)BN_PHASE_PREFILL == BITNET_PHASE_PREFILL &&
                   (int)BN_PHASE_DECODE == BITNET_PHASE_DECODE,
               "the same phases");

bitnet_status bn_engine_open_profile(struct bitnet_engine *e, const char *mode, bitnet_error *err)
{
    if (!mode || strcmp(mode, "off") == 0) return BITNET_OK;
    bool trace = strcmp(mode, "trace") == 0;
    if (!trace && strcmp(mode, "on") != 0)
        return bn_fail(err, BITNET_E_ARG, "profile '%s' is unknown; off, on and trace exist", mode);
    if (!BN_PROF)
        return bn_fail(err, BITNET_E_UNSUPPORTED, "this library was built without profiling");
    uint32_t threads = bn_pool_threads(e->pool);
    struct bn_prof_sizes n = {.n_workers = threads,
                              .n_phases = BN_N_PHASES,
                              .n_rows = bn_config_layers(&e->m->config) + 1,
                              .n_ops = BN_N_OPS,
                              .n_spans = trace ? bn_min_size(SPANS, SPANS_ALL / threads) : 0};
    BN_TRY(bn_prof_open(&e->prof, &n, err));
    bn_pool_set_prof(e->pool, e->prof);
    return BITNET_OK;
}

bool bn_engine_profile_entry(const struct bitnet_engine *e, size_t i, bitnet_profile_entry *out)
{
    size_t n_rows = bn_config_layers(&e->m->config) + 1, threads = bn_pool_threads(e->pool);
    uint32_t op = (uint32_t)(i % BN_N_OPS), row = (uint32_t)(i / BN_N_OPS % n_rows);
    uint32_t worker = (uint32_t)(i / BN_N_OPS / n_rows % threads);
    size_t phase = i / BN_N_OPS / n_rows / threads;
    if (!e->prof || phase >= BN_N_PHASES) return false;
    const struct bn_prof_sum *s = bn_prof_sum(e->prof, worker, (uint32_t)phase, row, op);
    out->phase = (bitnet_phase)phase;
    out->worker = worker;
    out->layer = (int32_t)row - 1;
    out->op = bn_op_name(op);
    out->kind = bn_op_kind(op);
    out->ns = s->ns;
    out->calls = s->calls;
    out->bytes = s->bytes;
    out->macs = s->macs;
    return true;
}

bool bn_engine_profile_info(const struct bitnet_engine *e, bitnet_profile_info *info)
{
    if (!e->prof) return false;
    for (uint32_t i = 0; i < BN_N_PHASES; i++) {
        const struct bn_prof_phase *p = bn_prof_phase(e->prof, i);
        info->phases[i].steps = p->periods;
        info->phases[i].tokens = p->units;
        info->phases[i].ns = p->ns;
    }
    info->workers = bn_pool_threads(e->pool);
    info->mark_ns = bn_prof_mark_ns(e->prof);
    for (uint32_t w = 0; w < info->workers; w++) {
        uint64_t n = bn_prof_marks(e->prof, w);
        if (n > info->marks) info->marks = n;
    }
    info->spans_lost = bn_prof_spans_lost(e->prof);
    info->spans_room = bn_prof_spans_room(e->prof);
    return true;
}

bool bn_engine_profile_span(const struct bitnet_engine *e, uint32_t worker, size_t i,
                            bitnet_profile_span *out)
{
    const struct bn_prof_span *s =
        e->prof && worker < bn_pool_threads(e->pool) ? bn_prof_span(e->prof, worker, i) : NULL;
    if (!s) return false;
    out->begin_ns = s->begin_ns;
    out->step = s->period;
    out->layer = (int32_t)s->row - 1;
    out->op = bn_op_name(s->op);
    out->kind = bn_op_kind(s->op);
    return true;
}

void bn_engine_profile_reset(struct bitnet_engine *e)
{
    if (e->prof) bn_prof_reset(e->prof);
}
