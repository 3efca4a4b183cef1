/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts through part of the stack, one at a time: for searches that leave out layers. A text has its
 * sequence for the time of the call only, so nothing of one walk is seen by the next.
 */
#include "engine/engine_impl.h"

uint32_t bn_engine_batch_tokens(const struct bitnet_engine *e) { return e->max_batch; }

static struct bn_kv_seq *free_seq(const struct bitnet_engine *e)
{
    for (uint32_t i = 0; i < e->max_seqs; i++)
        if (!e->taken[i] && !e->seqs[i].n_tokens && !e->seqs[i].n_pages) return &e->seqs[i];
    return NULL;
}

bitnet_status bn_engine_walk(struct bitnet_engine *e, const int32_t *tokens, size_t n,
                             const struct bn_walk *part, float *logits, bitnet_error *err)
{
    BN_TRY(bn_engine_alone(e, "layers are left out", err));
    struct bn_kv_seq *s = free_seq(e);
    if (!s) return bn_fail(err, BITNET_E_STATE, "no sequence of the engine is free");
    if (n > e->max_batch || n > e->ctx)
        return bn_fail(err, BITNET_E_LIMIT,
                       "%zu tokens do not fit batches of %u and a context of %u", n, e->max_batch,
                       e->ctx);
    BN_TRY(bn_engine_check_tokens(e, tokens, n, err));
    BN_TRY(bn_model_check(e->m, err));
    if (!bn_engine_reserve(e, s, (uint32_t)n))
        return bn_fail(err, BITNET_E_STATE,
                       "%zu tokens do not fit the KV cache: %u of %u pages are free", n,
                       e->kv.n_free, e->kv.n_pages);
    for (size_t i = 0; i < n; i++)
        e->batch[i] =
            (struct bn_batch_token){.token = tokens[i],
                                    .pos = (uint32_t)i,
                                    .seq = s,
                                    .mix = bn_engine_mix(e),
                                    .want = {.kind = logits ? BN_WANT_ALL : BN_WANT_NONE}};
    bn_prof_begin(e->prof, BN_PHASE_PREFILL, BN_OP_PLAN, 0);
    bn_forward_walk(e->forward, e->batch, n, part, logits);
    bn_prof_mark(e->prof, 0, BN_OP_CHECK);
    bool finite = bn_health_logits(&e->health, logits, logits ? n : 0, e->m->config.n_vocab, false);
    bn_prof_end(e->prof, n);
    s->n_tokens = (uint32_t)n; /* so that the state goes back, too */
    bn_kv_release(&e->kv, s);
    if (finite) return BITNET_OK;
    return bn_fail(err, BITNET_E_INTERNAL, "the logits are not finite: the weights are damaged");
}
