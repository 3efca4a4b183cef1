/* SPDX-License-Identifier: Apache-2.0
 *
 * A message: its word, counts, pages that were copied since the last one, the sequences with their pages,
 * the tokens. Sent between machines of one kind: numbers are as they lie in memory. Pages are handed out
 * by rank 0 alone, and have the same numbers everywhere.
 */
#include "model/ranks.h"

#include "base/os/mem.h"
#include <stdlib.h>

enum { MAX_BYTES = 1 << 30 };

struct head {
    uint32_t word, n_tokens, n_seqs, n_copies, logits;
};
struct seq {
    uint32_t id, n_pages;
    int64_t tail[BN_KV_TAIL_PAGES];
};
struct token {
    int32_t token;
    uint32_t pos, id, draft; /* id: of its sequence */
    struct bn_want want;
};

struct bn_ranks {
    struct bn_dist *dist;
    struct bn_kv *kv;
    struct bn_cut attention;
    uint32_t n_vocab;
    struct bn_buf message, copies;
    float *logits; /* [n_logits], of ranks that follow */
    size_t n_logits;
};

bitnet_status bn_ranks_open(struct bn_ranks **out, const struct bn_model *m, struct bn_kv *kv,
                            size_t exchange_floats, bitnet_error *err)
{
    const struct bn_config *c = &m->config;
    struct bn_ranks *r = bn_calloc(1, sizeof *r);
    *out = r;
    if (!r) return bn_fail_nomem(err, sizeof *r, "ranks");
    r->dist = m->dist;
    r->kv = kv;
    r->n_vocab = c->n_vocab;
    bn_buf_init(&r->message, MAX_BYTES);
    bn_buf_init(&r->copies, MAX_BYTES);
    for (uint32_t i = 0; i <= bn_dist_ranks(m->dist); i++)
        r->attention.at[i] = m->parts.heads.at[i] * (c->n_head / c->n_head_kv) * c->head_dim;
    if (bn_dist_rank(m->dist) == 0) kv->copies = &r->copies;
    return bn_dist_reserve(m->dist, exchange_floats, err);
}

void bn_ranks_close(struct bn_ranks *r)
{
    if (!r) return;
    r->kv->copies = NULL;
    bn_buf_free(&r->message);
    bn_buf_free(&r->copies);
    free(r->logits);
    free(r);
}

const struct bn_cut *bn_ranks_attention(const struct bn_ranks *r)
{
    return r ? &r->attention : NULL;
}

struct bn_buf *bn_ranks_room(struct bn_ranks *r) { return &r->message; }

/* ------------------------------------------------------------------ rank 0 */

static void put_seq(struct bn_buf *b, const struct bn_kv_seq *s)
{
    struct seq q = {.id = s->id, .n_pages = s->n_pages};
    for (int i = 0; i < BN_KV_TAIL_PAGES; i++)
        q.tail[i] = s->tail ? s->tail->page[i] : BN_KV_NO_PAGE;
    bn_buf_append(b, &q, sizeof q);
    bn_buf_append(b, s->pages, s->n_pages * sizeof *s->pages);
}

void bn_ranks_announce(struct bn_ranks *r, const struct bn_batch_token *batch, size_t n,
                       bool logits)
{
    struct bn_buf *b = &r->message;
    struct head h = {.word = BN_RANKS_PASS, .n_tokens = (uint32_t)n, .logits = logits};
    if (bn_dist_rank(r->dist)) return;
    for (size_t t = 0; t < n; t++) h.n_seqs += t == 0 || batch[t].seq != batch[t - 1].seq;
    h.n_copies = (uint32_t)(r->copies.len / (2 * sizeof(uint32_t)));
    bn_buf_clear(b);
    bn_buf_append(b, &h, sizeof h);
    bn_buf_append(b, r->copies.data, r->copies.len);
    for (size_t t = 0; t < n; t++)
        if (t == 0 || batch[t].seq != batch[t - 1].seq) put_seq(b, batch[t].seq);
    for (size_t t = 0; t < n; t++) {
        struct token k = {batch[t].token, batch[t].pos, batch[t].seq->id, batch[t].draft,
                          batch[t].want};
        bn_buf_append(b, &k, sizeof k);
    }
    bn_buf_clear(&r->copies);
    bn_dist_send(r->dist, b);
}

/* ------------------------------------------------------------------ the others */

struct reader {
    const char *at, *end;
    bool bad;
};

static void take(struct reader *in, void *to, size_t n)
{
    in->bad |= (size_t)(in->end - in->at) < n;
    if (in->bad) {
        memset(to, 0, n);
        return;
    }
    memcpy(to, in->at, n);
    in->at += n;
}

static void take_copies(struct bn_ranks *r, struct reader *in, uint32_t n)
{
    for (uint32_t i = 0; i < n && !in->bad; i++) {
        uint32_t pair[2];
        take(in, pair, sizeof pair);
        if (pair[0] < r->kv->n_pages && pair[1] < r->kv->n_pages)
            bn_kv_copy_page(r->kv, pair[0], pair[1]);
        else in->bad = true;
    }
}

static void take_seq(struct reader *in, struct bn_kv_seq *seqs, uint32_t n_seqs)
{
    struct seq q;
    take(in, &q, sizeof q);
    in->bad |= q.id >= n_seqs || q.n_pages > seqs[q.id].room;
    if (in->bad) return;
    struct bn_kv_seq *s = &seqs[q.id];
    take(in, s->pages, q.n_pages * sizeof *s->pages);
    s->n_pages = q.n_pages;
    for (int i = 0; s->tail && i < BN_KV_TAIL_PAGES; i++) s->tail->page[i] = q.tail[i];
}

static bool make_room(struct bn_ranks *r, size_t n)
{
    if (n <= r->n_logits) return true;
    free(r->logits);
    r->logits = bn_calloc(n, sizeof *r->logits);
    r->n_logits = r->logits ? n : 0;
    return r->logits != NULL;
}

size_t bn_ranks_read(struct bn_ranks *r, const struct bn_buf *message, struct bn_batch_token *batch,
                     struct bn_kv_seq *seqs, uint32_t n_seqs, float **logits)
{
    struct reader in = {message->data, message->data + message->len, false};
    struct head h;
    size_t rows = 0;
    *logits = NULL;
    take(&in, &h, sizeof h);
    take_copies(r, &in, h.n_copies);
    for (uint32_t i = 0; i < h.n_seqs && !in.bad; i++) take_seq(&in, seqs, n_seqs);
    for (uint32_t t = 0; t < h.n_tokens && !in.bad; t++) {
        struct token k;
        take(&in, &k, sizeof k);
        in.bad |= k.id >= n_seqs;
        batch[t] = (struct bn_batch_token){.token = k.token,
                                           .pos = k.pos,
                                           .seq = &seqs[in.bad ? 0 : k.id],
                                           .draft = k.draft != 0,
                                           .want = k.want};
        rows += k.want.kind != BN_WANT_NONE;
    }
    if (in.bad || (h.logits && rows && !make_room(r, rows * r->n_vocab))) return 0;
    if (h.logits && rows) *logits = r->logits;
    return h.n_tokens;
}
