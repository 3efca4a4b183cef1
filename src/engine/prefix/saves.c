/* SPDX-License-Identifier: Apache-2.0
 * States of texts that are put aside, of models with recurrent states: a text can be taken up again only
 * where its state is known. Decided when a batch is made, so that the forward pass leaves the state in
 * a slot while it goes by; afterwards the slot belongs to a node of the prefix cache. So it is always
 * behind a whole page.
 *
 * Lasting ones, for which others are given up:
 *   - the last page's end of a prompt, and the one before: the next turn of a chat often changes the last
 *     tokens of this one, which ask for a reply;
 *   - the last page's end at or before the end of each message in it: where conversations part;
 *   - every BN_SAVE_EVERY tokens, of generated text as well.
 * And one that goes along with a text: at the last page's end of every step's tokens, in place of the one
 * before, if there is a free slot. A sequence that ends or gives way is taken up there, and a prompt that
 * is still being read by those who share it. Drafts are not saved: a page's end among them passes by.
 */
#include "engine/engine_impl.h"

static bool is_end(const struct bn_tokenizer *t, int32_t token)
{
#if BN_HAVE_TEXT
    return t && bn_token_is_end(t, token);
#else
    (void)t;
    (void)token;
    return false;
#endif
}

bool bn_save_lasts(const struct bn_tokenizer *t, const int32_t *tokens, uint32_t n_prompt,
                   uint32_t n)
{
    uint32_t last = n_prompt - n_prompt % BN_ATTN_BLOCK;
    if (n % BN_SAVE_EVERY == 0) return true;
    if (n > n_prompt) return false;
    if (n == last || n + BN_ATTN_BLOCK == last) return true;
    /* a message ends here, or before the next page does */
    for (uint32_t i = n - 1; i < n + BN_ATTN_BLOCK - 1 && i < n_prompt; i++)
        if (is_end(t, tokens[i])) return true;
    return false;
}

/* Those of one sequence, the last first: where slots are few, it is worth most. */
static void plan_sequence(struct bitnet_engine *e, struct bn_sequence *seq)
{
    struct bn_snapshots *s = bn_prefix_snapshots(e->prefix);
    const struct bn_request *q = seq->request;
    struct bn_batch_token *batch = e->batch + seq->first;
    uint32_t from = seq->job.n_done, end = from + seq->job.take;
    bool any = false;
    for (uint32_t n = end - end % BN_ATTN_BLOCK; n > from; n -= BN_ATTN_BLOCK) {
        uint32_t slot = BN_NO_SLOT;
        if (bn_save_lasts(q->tokenizer, seq->tokens, q->n_prompt, n)) {
            slot = bn_snapshots_take(s, false);
        } else if (!any) {
            slot = bn_snapshots_retake(s, seq->moving);
            if (slot == BN_NO_SLOT) slot = bn_snapshots_take(s, true);
            seq->moving_at = n;
        }
        if (slot == BN_NO_SLOT) continue;
        batch[n - 1 - from].save = e->max_seqs + slot + 1;
        seq->n_saves++;
        any = true;
    }
}

void bn_engine_plan_saves(struct bitnet_engine *e)
{
    if (!e->prefix || !bn_prefix_snapshots(e->prefix)) return;
    for (struct bn_sched_job *j = bn_sched_running(e->sched); j; j = j->next) {
        struct bn_sequence *seq = bn_sequence_of(j);
        if (!seq->request->no_cache) plan_sequence(e, seq);
    }
}

/* Of several choices of a prompt those to come begin with the state behind its last page. */
static void pin_prompt(struct bitnet_engine *e, struct bn_request *q, uint32_t slot, uint32_t n)
{
    if (q->pinned.stamp || q->n_begun == q->n_choices || slot == BN_NO_SLOT) return;
    if (n != (q->n_prompt - 1) / BN_ATTN_BLOCK * BN_ATTN_BLOCK) return;
    struct bn_snapshots *s = bn_prefix_snapshots(e->prefix);
    q->pinned = bn_snapshots_ref(s, slot);
    bn_snapshots_pin(s, q->pinned);
}

void bn_engine_unpin_prompt(struct bitnet_engine *e, struct bn_request *q)
{
    if (q->pinned.stamp) bn_snapshots_unpin(bn_prefix_snapshots(e->prefix), q->pinned);
    q->pinned = (struct bn_snapshot_ref){0};
}

void bn_engine_finish_saves(struct bitnet_engine *e, struct bn_sequence *seq, bool keep)
{
    struct bn_snapshots *s = seq->n_saves ? bn_prefix_snapshots(e->prefix) : NULL;
    for (struct bn_batch_token *b = e->batch + seq->first; seq->n_saves; b++) {
        if (!b->save) continue;
        uint32_t slot = b->save - 1 - e->max_seqs, n = b->pos + 1;
        b->save = 0;
        seq->n_saves--;
        if (!keep) {
            bn_snapshots_give_back(s, slot);
            continue;
        }
        uint64_t key = seq->request->mix.key;
        uint32_t kept = bn_prefix_keep(e->prefix, key, seq->tokens, n, seq->kv, slot);
        if (kept == slot && n == seq->moving_at) seq->moving = bn_snapshots_ref(s, slot);
        pin_prompt(e, seq->request, kept, n);
    }
}

void bn_engine_restore(struct bitnet_engine *e, struct bn_sequence *seq)
{
    uint32_t n = seq->kv->n_tokens;
    if (!seq->kv->state || !n) return;
    uint32_t slot = bn_prefix_matched_slot(e->prefix, seq->kv);
    bn_state_restore(&e->states, seq->kv->state, e->max_seqs + slot, n);
    bn_snapshots_use(bn_prefix_snapshots(e->prefix), slot);
    pin_prompt(e, seq->request, slot, n);
}
