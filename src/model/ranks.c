/* SPDX-License-Identifier: Apache-2.0
 *
 * A message: its word, counts, pages and states that were copied since the last one, the sequences with
 * their pages, the tokens. Sent between machines of one kind: numbers are as they lie in memory. Pages
 * and states are handed out by rank 0 alone, and have the same numbers everywhere.
 */
#include "model/ranks.h"

#include "base/os/mem.h"
#include <stdlib.h>

enum { MAX_BYTES = 1 << 30 };

struct head {
    uint32_t word, n_tokens, n_seqs, n_pages_copied, n_states_copied, logits, drafts, chained;
};
struct pair { /* of pages, or of states */
    uint32_t from, to;
};
struct seq {
    uint32_t id, n_pages;
    int64_t tail[BN_KV_TAIL_PAGES];
    struct bn_state state; /* its drafts are everybody's own */
};
struct token {
    int32_t token;
    uint32_t pos, id, draft, save, behind; /* id: of its sequence */
    struct bn_want want;
};

struct bn_ranks {
    struct bn_dist *dist;
    struct bn_kv *kv;
    struct bn_states *states; /* NULL: none */
    struct bn_cut attention, delta;
    uint32_t n_vocab;
    struct bn_buf message, pages_copied, states_copied;
    float *logits; /* [n_logits], of ranks that follow */
    size_t n_logits;
};

bitnet_status bn_ranks_open(struct bn_ranks **out, const struct bn_model *m, struct bn_kv *kv,
                            struct bn_states *states, size_t exchange_floats, bitnet_error *err)
{
    const struct bn_config *c = &m->config;
    const struct bn_delta_shape *d = &c->delta;
    struct bn_ranks *r = bn_calloc(1, sizeof *r);
    *out = r;
    if (!r) return bn_fail_nomem(err, sizeof *r, "ranks");
    r->dist = m->dist;
    r->kv = kv;
    r->states = states && states->n_layer ? states : NULL;
    r->n_vocab = c->n_vocab;
    bn_buf_init(&r->message, MAX_BYTES);
    bn_buf_init(&r->pages_copied, MAX_BYTES);
    bn_buf_init(&r->states_copied, MAX_BYTES);
    for (uint32_t i = 0; i <= bn_dist_ranks(m->dist); i++) {
        r->attention.at[i] = m->parts.heads.at[i] * (c->n_head / c->n_head_kv) * c->head_dim;
        if (r->states)
            r->delta.at[i] = m->parts.delta_heads.at[i] * (d->n_v_heads / d->n_k_heads) * d->v_dim;
    }
    if (bn_dist_rank(m->dist) == 0) {
        kv->copies = &r->pages_copied;
        if (r->states) r->states->copies = &r->states_copied;
    }
    return bn_dist_reserve(m->dist, exchange_floats, err);
}

void bn_ranks_close(struct bn_ranks *r)
{
    if (!r) return;
    r->kv->copies = NULL;
    if (r->states) r->states->copies = NULL;
    bn_buf_free(&r->message);
    bn_buf_free(&r->pages_copied);
    bn_buf_free(&r->states_copied);
    free(r->logits);
    free(r);
}

const struct bn_cut *bn_ranks_mixed(const struct bn_ranks *r, bool delta)
{
    if (!r) return NULL;
    return delta ? &r->delta : &r->attention;
}

struct bn_buf *bn_ranks_room(struct bn_ranks *r) { return &r->message; }

/* ------------------------------------------------------------------ rank 0 */

static uint32_t put_copies(struct bn_buf *b, struct bn_buf *copies)
{
    uint32_t n = (uint32_t)(copies->len / sizeof(struct pair));
    bn_buf_append(b, copies->data, copies->len);
    b->failed |= copies->failed;
    bn_buf_clear(copies);
    return n;
}

static void put_seq(struct bn_buf *b, const struct bn_kv_seq *s)
{
    struct seq q = {.id = s->id, .n_pages = s->n_pages};
    for (int i = 0; i < BN_KV_TAIL_PAGES; i++)
        q.tail[i] = s->tail ? s->tail->page[i] : BN_KV_NO_PAGE;
    if (s->state) q.state = *s->state;
    bn_buf_append(b, &q, sizeof q);
    bn_buf_append(b, s->pages, s->n_pages * sizeof *s->pages);
}

void bn_ranks_announce(struct bn_ranks *r, const struct bn_ranks_pass *pass)
{
    struct bn_buf *b = &r->message;
    const struct bn_batch_token *batch = pass->batch;
    struct head h = {.word = BN_RANKS_PASS,
                     .n_tokens = (uint32_t)pass->n,
                     .logits = pass->logits != NULL,
                     .drafts = pass->behind != NULL,
                     .chained = pass->chained};
    if (bn_dist_rank(r->dist)) return;
    for (size_t t = 0; t < pass->n; t++) h.n_seqs += t == 0 || batch[t].seq != batch[t - 1].seq;
    bn_buf_clear(b);
    bn_buf_append(b, &h, sizeof h);
    h.n_pages_copied = put_copies(b, &r->pages_copied);
    h.n_states_copied = put_copies(b, &r->states_copied);
    if (!b->failed) memcpy(b->data, &h, sizeof h);
    for (size_t t = 0; t < pass->n; t++)
        if (t == 0 || batch[t].seq != batch[t - 1].seq) put_seq(b, batch[t].seq);
    for (size_t t = 0; t < pass->n; t++) {
        struct token k = {.token = batch[t].token,
                          .pos = batch[t].pos,
                          .id = batch[t].seq->id,
                          .draft = batch[t].draft,
                          .save = batch[t].save,
                          .behind = pass->behind ? pass->behind[t] : 0,
                          .want = batch[t].want};
        bn_buf_append(b, &k, sizeof k);
    }
    bn_dist_send(r->dist, b);
}

/* ------------------------------------------------------------------ the others */

static void take_pages(struct bn_ranks *r, struct bn_reader *in, uint32_t n)
{
    for (uint32_t i = 0; i < n && !in->bad; i++) {
        struct pair p;
        bn_reader_take(in, &p, sizeof p);
        in->bad |= p.from >= r->kv->n_pages || p.to >= r->kv->n_pages;
        if (!in->bad) bn_kv_copy_page(r->kv, p.from, p.to);
    }
}

static bool has_slot(const struct bn_ranks *r, uint32_t slot)
{
    return r->states &&
           (slot < r->states->n_slots || (slot == r->states->n_slots && r->states->lent));
}

static void take_states(struct bn_ranks *r, struct bn_reader *in, uint32_t n)
{
    for (uint32_t i = 0; i < n && !in->bad; i++) {
        struct pair p;
        bn_reader_take(in, &p, sizeof p);
        in->bad |= !has_slot(r, p.from) || !has_slot(r, p.to);
        if (!in->bad) bn_states_copy(r->states, p.from, p.to);
    }
}

static void take_state(struct bn_ranks *r, struct bn_reader *in, struct bn_state *to,
                       const struct bn_state *from)
{
    float *drafts = to->drafts;
    in->bad |= !has_slot(r, from->slot) || from->n_accepted > r->states->max_drafts;
    if (in->bad) return;
    *to = *from;
    to->drafts = drafts;
}

static void take_seq(struct bn_ranks *r, struct bn_reader *in, const struct bn_ranks_desk *desk)
{
    struct seq q;
    bn_reader_take(in, &q, sizeof q);
    in->bad |= q.id >= desk->n_seqs || q.n_pages > desk->seqs[q.id].room;
    if (in->bad) return;
    struct bn_kv_seq *s = &desk->seqs[q.id];
    bn_reader_take(in, s->pages, q.n_pages * sizeof *s->pages);
    s->n_pages = q.n_pages;
    for (int i = 0; s->tail && i < BN_KV_TAIL_PAGES; i++) s->tail->page[i] = q.tail[i];
    if (s->state) take_state(r, in, s->state, &q.state);
}

/* Returns whether its logits are wanted. */
static bool take_token(struct bn_ranks *r, struct bn_reader *in, const struct bn_ranks_desk *desk,
                       size_t t)
{
    struct token k;
    bn_reader_take(in, &k, sizeof k);
    in->bad |= k.id >= desk->n_seqs || (k.save && !has_slot(r, k.save - 1));
    if (in->bad) return false;
    desk->batch[t] = (struct bn_batch_token){.token = k.token,
                                             .pos = k.pos,
                                             .seq = &desk->seqs[k.id],
                                             .draft = k.draft != 0,
                                             .save = k.save,
                                             .want = k.want};
    if (desk->behind) desk->behind[t] = k.behind;
    return k.want.kind != BN_WANT_NONE;
}

static bool make_room(struct bn_ranks *r, size_t n)
{
    if (n <= r->n_logits) return true;
    free(r->logits);
    r->logits = bn_calloc(n, sizeof *r->logits);
    r->n_logits = r->logits ? n : 0;
    return r->logits != NULL;
}

bool bn_ranks_read(struct bn_ranks *r, const struct bn_buf *message,
                   const struct bn_ranks_desk *desk, struct bn_ranks_pass *pass)
{
    struct bn_reader in = {message->data, message->data + message->len, false};
    struct head h;
    size_t rows = 0;
    bn_reader_take(&in, &h, sizeof h);
    take_pages(r, &in, h.n_pages_copied);
    take_states(r, &in, h.n_states_copied);
    for (uint32_t i = 0; i < h.n_seqs && !in.bad; i++) take_seq(r, &in, desk);
    in.bad |= !h.n_tokens || h.n_tokens > desk->max_tokens || (h.drafts && !desk->behind);
    for (uint32_t t = 0; t < h.n_tokens && !in.bad; t++) rows += take_token(r, &in, desk, t);
    if (in.bad || (h.logits && rows && !make_room(r, rows * r->n_vocab))) return false;
    *pass = (struct bn_ranks_pass){.batch = desk->batch,
                                   .n = h.n_tokens,
                                   .logits = h.logits && rows ? r->logits : NULL,
                                   .behind = h.drafts ? desk->behind : NULL,
                                   .chained = h.chained != 0};
    return true;
}
