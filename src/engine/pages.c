/* SPDX-License-Identifier: Apache-2.0
 * Pages for sequences that run: the scheduler asks here. What a sequence has stored stays known to the
 * prefix cache when it ends or must give way, until its pages are needed. Full pages are known from the
 * step on that filled them, so giving way adds nothing. */
#include "engine/engine_impl.h"

/* A step cannot be stopped, so that Ctrl-C, a client that went away and the end of a server wait for
 * it. What it takes is learned; until then it is assumed that a core makes so many products a nanosecond. */
static const uint64_t STEP_MOST_NS = 4 * UINT64_C(1000000000);
static const double ASSUMED_MACS_NS = 100;

/* A page that is written to has one holder: start copies what it shares in part, and the prefix cache
 * gets pages only when they are full or their text has ended. */
bool bn_engine_reserve(struct bitnet_engine *e, struct bn_kv_seq *s, uint32_t n_tokens)
{
    uint32_t need = bn_kv_need(&e->kv, s, n_tokens);
    if (need > e->kv.n_free) {
        uint32_t missing = need - e->kv.n_free;
        if (!e->prefix || bn_prefix_evictable(e->prefix) < missing) return false;
        bn_prefix_evict(e->prefix, missing);
    }
    return bn_kv_reserve(&e->kv, s, n_tokens);
}

void bn_engine_remember(struct bitnet_engine *e, struct bn_sequence *seq, bool ended)
{
    if (!seq->kv || !e->prefix || seq->request->no_cache) return;
    bn_prefix_add(e->prefix, seq->request->mix.key, seq->tokens, seq->job.n_done, seq->kv, ended);
    bn_engine_finish_saves(e, seq, true);
}

void bn_engine_give_up(struct bitnet_engine *e, struct bn_sequence *seq)
{
    if (!seq->kv) return;
    bn_engine_finish_saves(e, seq, false);
    bn_kv_release(&e->kv, seq->kv);
    e->taken[seq->kv - e->seqs] = false;
    seq->kv = NULL;
}

/* Another choice of the same prompt that has it all in the cache, or NULL. */
static const struct bn_sequence *sibling_with_prompt(const struct bn_sequence *seq)
{
    const struct bn_request *r = seq->request;
    for (uint32_t i = 0; i < r->n_choices; i++) {
        const struct bn_sequence *other = &r->choices[i];
        if (other != seq && other->kv && other->kv->n_tokens >= r->n_prompt) return other;
    }
    return NULL;
}

/* Tokens that need not be computed if they are known: all but the last, or up to the first whose logits
 * are still wanted. */
static uint32_t most_known(const struct bn_sequence *seq)
{
    return seq->job.scored ? seq->request->n_scored : seq->job.n_tokens - 1;
}

/* Its empty KV sequence takes over what is in the cache and may be. False: n_tokens could not fit
 * anyway. */
static bool take_known(struct bitnet_engine *e, struct bn_sequence *seq, uint32_t n_tokens)
{
    uint32_t most = most_known(seq);
    if (seq->job.scored && most == 0) return true;
    if (e->random_kv) {
        uint32_t n = most / BN_ATTN_BLOCK * BN_ATTN_BLOCK;
        if (!bn_engine_reserve(e, seq->kv, n)) return false;
        seq->kv->n_tokens = n;
        return true;
    }
    /* a sibling's state has gone on: with states, the prefix cache is the only way */
    const struct bn_sequence *sibling = seq->kv->state ? NULL : sibling_with_prompt(seq);
    if (sibling && seq->job.n_tokens == seq->request->n_prompt) {
        uint32_t n = seq->request->n_prompt - 1;
        if (bn_kv_has_blocks(&e->kv)) n -= n % BN_ATTN_BLOCK;
        bn_kv_share(&e->kv, seq->kv, sibling->kv->pages, n);
    } else if (e->prefix && !seq->request->no_cache) {
        /* looked at first: a request that waits is not to be counted at every step */
        uint64_t key = seq->request->mix.key;
        uint32_t known = bn_prefix_peek(e->prefix, key, seq->tokens, most + 1) / BN_ATTN_BLOCK;
        if (bn_kv_pages_for(n_tokens) > known + e->kv.n_free + bn_prefix_evictable(e->prefix))
            return false;
        bn_prefix_match(e->prefix, key, seq->tokens, most + 1, seq->kv);
    }
    return true;
}

/* Room for n_tokens behind what is known. */
static bool take_place(struct bitnet_engine *e, struct bn_sequence *seq, uint32_t n_tokens)
{
    if (!take_known(e, seq, n_tokens)) return false;
    if (bn_engine_reserve(e, seq->kv, n_tokens)) return true;
    /* a page known in part is held twice while it is copied; without it there may be room */
    bn_kv_truncate(&e->kv, seq->kv, seq->kv->n_tokens - seq->kv->n_tokens % BN_ATTN_BLOCK);
    return bn_engine_reserve(e, seq->kv, n_tokens);
}

/* NULL: bitnet_eval has those that no choice has. */
static struct bn_kv_seq *take_seq(struct bitnet_engine *e)
{
    uint32_t i = 0;
    while (i < e->max_seqs && (e->taken[i] || e->seqs[i].n_pages)) i++;
    if (i == e->max_seqs) return NULL;
    e->taken[i] = true;
    return &e->seqs[i];
}

static bool start(void *user, struct bn_sched_job *j, uint32_t n_tokens)
{
    struct bitnet_engine *e = user;
    struct bn_sequence *seq = bn_sequence_of(j);
    seq->kv = take_seq(e);
    if (!seq->kv) return false;
    if (!take_place(e, seq, n_tokens)) {
        bn_engine_give_up(e, seq);
        return false;
    }
    j->n_done = seq->kv->n_tokens;
    bn_engine_restore(e, seq);
    if (!seq->started_ns) {
        seq->started_ns = e->now_ns;
        seq->n_cached = j->n_done;
        if (++seq->request->n_begun == seq->request->n_choices)
            bn_engine_unpin_prompt(e, seq->request);
        /* the others wait for the prompt that this one reads for all, not in a queue */
        if (seq->choice == 0) seq->request->queue_ns = e->now_ns - seq->request->submitted_ns;
    }
    return true;
}

static bool grow(void *user, struct bn_sched_job *j, uint32_t n_tokens)
{
    struct bitnet_engine *e = user;
    struct bn_kv_seq *s = bn_sequence_of(j)->kv;
    if (bn_engine_reserve(e, s, n_tokens)) return true;
    if (!e->prefix || n_tokens > j->n_tokens) return false; /* drafts are not worth more */
    /* The last one that runs must get on. What can still be in its way are pages that the prefix cache
     * keeps for the sake of pages behind them, which this one holds. */
    if (bn_sched_stats(e->sched)->n_running > 1) return false;
    bn_prefix_clear(e->prefix);
    return bn_kv_reserve(&e->kv, s, n_tokens);
}

static void drop(void *user, struct bn_sched_job *j)
{
    bn_engine_give_up(user, bn_sequence_of(j));
    j->n_done = j->n_draft = 0;
}

/* Also what stands in a page that is not full is kept: it goes on as soon as its turn comes. */
static void park(void *user, struct bn_sched_job *j)
{
    bn_engine_remember(user, bn_sequence_of(j), true);
    drop(user, j);
}

bitnet_status bn_engine_open_sched(struct bitnet_engine *e, uint64_t step_target_ns,
                                   bitnet_error *err)
{
    const struct bn_sched_limits limits = {
        .max_seqs = e->max_seqs,
        .max_batch_tokens = e->max_batch,
        .max_scored = e->score_rows,
        .step_target_ns = step_target_ns,
        .step_most_ns = STEP_MOST_NS,
        .prompt_assumed_ns =
            (uint64_t)((double)e->m->n_params / (ASSUMED_MACS_NS * bn_pool_threads(e->pool)))};
    const struct bn_sched_host host = {
        .user = e, .start = start, .grow = grow, .drop = drop, .park = park};
    return bn_sched_open(&e->sched, &limits, &host, err);
}
