/* SPDX-License-Identifier: Apache-2.0
 *
 * sums.c: the engine's entries, one a phase, worker, layer and operation, added up over
 * workers and over layers.
 */
#include "base/os/mem.h"
#include "cli/profile/profile.h"

const char *profile_phase_name(bitnet_phase phase)
{
    return phase == BITNET_PHASE_PREFILL ? "prefill" : "decode";
}

/* The operations: those of the first worker and layer. */
static bitnet_status find_ops(struct profile *p, bitnet_error *err)
{
    bitnet_profile_entry e = {.size = sizeof e};
    for (size_t i = 0; bitnet_profile_get(p->engine, i, &e) && e.layer < 0 && e.worker == 0; i++) {
        if (i == PROFILE_OPS_MAX)
            return bn_fail(err, BITNET_E_LIMIT, "more than %d operations in the profile",
                           PROFILE_OPS_MAX);
        p->ops[p->n_ops++] = (struct profile_op){e.op, e.kind};
    }
    return BITNET_OK;
}

static void add(struct profile_sum *to, const bitnet_profile_entry *e)
{
    to->ns += e->ns;
    to->calls += e->calls;
    to->bytes += e->bytes;
    to->macs += e->macs;
}

bitnet_status profile_sum_up(struct profile *p, bitnet_error *err)
{
    p->prof.size = sizeof p->prof;
    BN_TRY(bitnet_profile_get_info(p->engine, &p->prof, err));
    BN_TRY(find_ops(p, err));
    p->n_rows = p->info.shape.n_layer + p->info.shape.n_layer_mtp + 1;
    p->n_workers = p->prof.workers;
    for (int i = 0; i < PROFILE_PHASES; i++) {
        struct profile_phase *x = &p->phases[i];
        x->by_row = bn_calloc((size_t)p->n_rows * p->n_ops, sizeof *x->by_row);
        x->by_worker = bn_calloc((size_t)p->n_workers * p->n_ops, sizeof *x->by_worker);
        if (!x->by_row || !x->by_worker)
            return bn_fail_nomem(err, p->n_rows * p->n_ops * sizeof *x->by_row, "the profile");
    }
    bitnet_profile_entry e = {.size = sizeof e};
    for (size_t i = 0; bitnet_profile_get(p->engine, i, &e); i++) {
        struct profile_phase *x = &p->phases[e.phase];
        size_t op = i % p->n_ops;
        add(&x->by_row[(size_t)(e.layer + 1) * p->n_ops + op], &e);
        add(&x->by_worker[(size_t)e.worker * p->n_ops + op], &e);
    }
    return BITNET_OK;
}
