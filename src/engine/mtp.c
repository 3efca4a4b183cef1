/* SPDX-License-Identifier: Apache-2.0
 *
 * Drafts by the model's own layer (multi-token prediction). It sees, for every token of a text, the
 * hidden state behind it and the token that follows, and says what may come after that. So it runs
 * behind the step: then the tokens that follow are known. All tokens that the step has computed and
 * that were accepted pass through it, prompts too, since it has keys and values of its own; only where a
 * draft is worth its price are logits made. Further drafts are chained, each behind the last.
 *
 * What it puts into the last place of a page depends on the token behind that page. Who shares the
 * page may have another one there: then a draft may be a little worse. No result depends on it.
 */
#include "engine/engine_impl.h"

#include "base/clock.h"
#include <math.h>

static const struct bn_want best = {.kind = BN_WANT_BEST, .k = 1, .below = INFINITY};

static bool is_decoding(const struct bn_sequence *seq)
{
    return seq->draft && seq->job.running && seq->job.take &&
           seq->job.n_tokens - seq->job.n_done == 1;
}

/* How many drafts this sequence is to get. */
static uint32_t drafts_for(struct bitnet_engine *e, struct bn_sequence *seq)
{
    if (!is_decoding(seq)) return 0;
    uint32_t room =
        seq->request->limit - seq->job.n_tokens - 1; /* its last token is not computed */
    return bn_draft_wants(seq->draft, (uint32_t)bn_min_size(e->draft, room), e->always_draft);
}

/* The tokens of this step that stay: hidden state and next token. Returns how many. */
static size_t gather(struct bitnet_engine *e, uint32_t *n_rows)
{
    size_t n = 0;
    *n_rows = 0;
    for (struct bn_sched_job *j = bn_sched_running(e->sched); j; j = j->next) {
        struct bn_sequence *seq = bn_sequence_of(j);
        seq->n_offer = 0;
        if (!j->take || !seq->draft) continue;
        for (uint32_t pos = seq->first_pos; pos < j->n_done; pos++) {
            e->behind[n] = seq->first + pos - seq->first_pos;
            e->batch[n++] =
                (struct bn_batch_token){.token = seq->tokens[pos + 1], .pos = pos, .seq = seq->kv};
        }
        seq->first = (uint32_t)n - 1; /* its last token in the pass */
        seq->n_offer = drafts_for(e, seq);
        if (!seq->n_offer) continue;
        seq->row = (*n_rows)++;
        e->batch[n - 1].want = best;
    }
    return n;
}

/* Draft i of those that want so many; each goes on behind its last one, where there is a page for it.
 * Returns how many do. */
static size_t chain(struct bitnet_engine *e, uint32_t i)
{
    size_t n = 0;
    for (struct bn_sched_job *j = bn_sched_running(e->sched); j; j = j->next) {
        struct bn_sequence *seq = bn_sequence_of(j);
        uint32_t pos = j->n_done - 1 + i;
        if (seq->n_offer <= i) continue;
        if (pos / BN_ATTN_BLOCK >= seq->kv->n_pages) {
            seq->n_offer = i;
            continue;
        }
        e->behind[n] = seq->first;
        seq->first = seq->row = (uint32_t)n;
        e->batch[n++] = (struct bn_batch_token){
            .token = seq->offer[i - 1], .pos = pos, .seq = seq->kv, .want = best};
    }
    return n;
}

static int32_t likeliest(const float *logits, uint32_t n)
{
    uint32_t at = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[at]) at = i;
    return (int32_t)at;
}

static void take_guesses(struct bitnet_engine *e, uint32_t i)
{
    uint32_t n_vocab = e->m->config.n_vocab;
    for (struct bn_sched_job *j = bn_sched_running(e->sched); j; j = j->next) {
        struct bn_sequence *seq = bn_sequence_of(j);
        if (seq->n_offer > i)
            seq->offer[i] = likeliest(e->logits + (size_t)seq->row * n_vocab, n_vocab);
    }
}

void bn_engine_draft(struct bitnet_engine *e)
{
    uint32_t n_rows;
    uint64_t begin_ns = bn_now_ns();
    size_t n = gather(e, &n_rows);
    for (uint32_t i = 0; n; i++) {
        bn_forward_draft(e->forward, e->batch, e->behind, i > 0, n, n_rows ? e->logits : NULL);
        e->weight_bytes += bn_forward_read_bytes(e->forward);
        bn_prof_mark(e->prof, 0, BN_OP_SAMPLE);
        take_guesses(e, i);
        bn_prof_mark(e->prof, 0, BN_OP_PLAN);
        n = chain(e, i + 1);
    }
    uint32_t n_drafts = 0;
    for (struct bn_sched_job *j = bn_sched_running(e->sched); j; j = j->next) {
        struct bn_sequence *seq = bn_sequence_of(j);
        if (seq->n_offer) bn_draft_offer(seq->draft, seq->offer, seq->n_offer, j->n_tokens);
        n_drafts += seq->n_offer;
    }
    if (!n_drafts) return;
    double ns = (double)(bn_now_ns() - begin_ns) / n_drafts;
    e->draft_ns = e->draft_ns > 0 ? e->draft_ns + (ns - e->draft_ns) / 8 : ns;
}
