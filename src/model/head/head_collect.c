/* SPDX-License-Identifier: Apache-2.0
 *
 * Logits of other ranks, by which rank 0 becomes whole. Each has made those of its rows of the matrix, as if
 * there were no others: what one of them screens by its own best logits is a superset of what all together
 * would leave. A row that was screened is sent as its few survivors. */
#include "model/head/head_impl.h"

#include <math.h>

enum { WHOLE = -1 }; /* in place of a count */

struct survivor {
    uint32_t id; /* among the rank's rows */
    float logit;
};

static void put_survivors(struct bn_buf *b, const float *logits, size_t n)
{
    size_t at = b->len;
    int32_t count = 0;
    bn_buf_append(b, &count, sizeof count);
    for (size_t i = 0; i < n; i++) {
        struct survivor s = {(uint32_t)i, logits[i]};
        if (logits[i] == -INFINITY) continue;
        bn_buf_append(b, &s, sizeof s);
        count++;
    }
    if (!b->failed) memcpy(b->data + at, &count, sizeof count);
}

static void put_rows(const struct bn_head *h, struct bn_buf *b)
{
    bn_buf_clear(b);
    for (size_t i = 0; i < h->n_rows; i++) {
        const float *logits = h->logits + i * h->m->config.n_vocab;
        const int32_t whole = WHOLE;
        if (bn_head_how(h, &h->rows[i]) == BN_HEAD_BY_SCREEN) {
            put_survivors(b, logits, h->n_here);
            continue;
        }
        bn_buf_append(b, &whole, sizeof whole);
        bn_buf_append(b, logits, h->n_here * sizeof *logits);
    }
}

/* One row of a rank that has n of its logits; returns where the next one begins. NULL: it ends too soon. */
static const char *take_row(struct bn_head_row *row, float *logits, size_t n, const char *at,
                            const char *end)
{
    int32_t count;
    if ((size_t)(end - at) < sizeof count) return NULL;
    memcpy(&count, at, sizeof count);
    at += sizeof count;
    size_t bytes = count == WHOLE ? n * sizeof *logits : (size_t)count * sizeof(struct survivor);
    if ((size_t)(end - at) < bytes) return NULL;
    if (count == WHOLE) {
        memcpy(logits, at, bytes);
        return at + bytes;
    }
    row->partial = true;
    for (size_t i = 0; i < n; i++) logits[i] = -INFINITY;
    for (int32_t i = 0; i < count; i++) {
        struct survivor s;
        memcpy(&s, at + (size_t)i * sizeof s, sizeof s);
        if (s.id < n) logits[s.id] = s.logit;
    }
    return at + bytes;
}

void bn_head_collect(struct bn_head *h, struct bn_buf *room)
{
    const struct bn_model *m = h->m;
    size_t at[BITNET_MAX_RANKS + 1], vocab = m->config.n_vocab;
    if (bn_dist_rank(m->dist)) {
        put_rows(h, room);
        bn_dist_collect(m->dist, room->data, room->len, NULL, NULL);
        return;
    }
    bn_dist_collect(m->dist, NULL, 0, room, at);
    if (bn_dist_check(m->dist, NULL) != BITNET_OK) return;
    for (uint32_t rank = 1; rank < bn_dist_ranks(m->dist); rank++) {
        const size_t *part = m->parts.logits.at + rank;
        const char *next = room->data + at[rank], *end = room->data + at[rank + 1];
        float *logits = h->logits - h->here.begin + part[0];
        for (size_t i = 0; next && i < h->n_rows; i++)
            next = take_row(&h->rows[i], logits + i * vocab, part[1] - part[0], next, end);
    }
}
