/* SPDX-License-Identifier: Apache-2.0
 * From a model to an image. The plan is made while nobody computes; writing only reads, and may run
 * beside the forward pass. Data pass through a buffer of one huge page, so that a system that caches
 * files in such pages has this one in them. */
#include "model/image/image.h"

#include "base/checksum.h"
#include <stdlib.h>

enum { BUFFER = BN_HUGE_PAGE };

static bool add_span(struct bn_image_plan *p, const void *from, size_t bytes)
{
    if (!from || !bytes) return true;
    if (!bn_grow((void **)&p->spans, &p->spans_room, p->n_spans + 1, sizeof *p->spans))
        return false;
    p->spans[p->n_spans++] = (struct bn_image_span){from, bytes, 0};
    return true;
}

/* An image that was taken up, what was made beside it, and the head's copy. */
static bool add_spans(struct bn_image_plan *p, const struct bn_model *m)
{
    const uint8_t *from;
    size_t bytes, n = 0;
    bool ok = !m->image.mapped || add_span(p, m->image.data, bn_image_bytes(m));
    while (bn_slab_span(&m->slab, n, &from, &bytes)) n++;
    while (ok && n--) ok = bn_slab_span(&m->slab, n, &from, &bytes) && add_span(p, from, bytes);
    const void *head = bn_head_copy_data(&m->screen, &m->head_int8);
    if (ok && !m->image.head_copy) ok = add_span(p, head, m->head_copy_bytes);
    uint64_t at = 0;
    for (size_t i = 0; i < p->n_spans; i++) {
        p->spans[i].at = at;
        at += bn_align_up(p->spans[i].bytes, 64);
    }
    p->head.data_bytes = at;
    return ok;
}

static void put_text(struct bn_buf *b, const char *text)
{
    uint64_t n = bn_min_size(strlen(text), BN_IMAGE_MAX_TEXT - 1);
    bn_buf_append(b, &n, sizeof n);
    bn_buf_append(b, text, (size_t)n);
}

static void lay_out(struct bn_image_head *h, size_t record_bytes)
{
    memcpy(h->magic, "BNPACKED", sizeof h->magic);
    h->version = BN_IMAGE_VERSION;
    h->piece_bytes = BN_IMAGE_PIECE;
    h->record_at = bn_align_up(sizeof *h, 64);
    h->record_bytes = record_bytes;
    h->data_at = bn_align_up(h->record_at + h->record_bytes, BN_HUGE_PAGE);
    h->sums_at = bn_align_up(h->data_at + h->data_bytes, 64);
    h->bytes = h->sums_at + (bn_div_up(h->data_bytes, BN_IMAGE_PIECE) + 1) * sizeof(uint64_t);
}

bitnet_status bn_image_plan_make(struct bn_image_plan *p, const struct bn_model *m,
                                 const char *path, const char *key, bitnet_error *err)
{
    *p = (struct bn_image_plan){0};
    bn_buf_init(&p->record, BN_IMAGE_MAX_RECORD_BYTES);
    p->kept = bn_calloc(m->source.n_tensors, 1);
    bitnet_status s = BITNET_OK;
    if (!p->kept || !add_spans(p, m))
        s = bn_fail_nomem(err, m->source.n_tensors, "the plan of a packed file");
    put_text(&p->record, path);
    put_text(&p->record, key);
    if (s == BITNET_OK && !bn_image_record_write(m, p->spans, p->n_spans, &p->record, p->kept))
        s = bn_fail(err, BITNET_E_INTERNAL, "'%s': a part of the weights cannot be found in memory",
                    m->source.path);
    if (s != BITNET_OK) {
        bn_image_plan_free(p);
        return s;
    }
    lay_out(&p->head, p->record.len);
    p->head.record_sum = bn_checksum(p->record.data, p->record.len);
    p->head.head_sum = bn_checksum(&p->head, offsetof(struct bn_image_head, head_sum));
    return BITNET_OK;
}

void bn_image_plan_free(struct bn_image_plan *p)
{
    bn_buf_free(&p->record);
    free(p->spans);
    free(p->kept);
    *p = (struct bn_image_plan){0};
}

/* ------------------------------------------------------------------ the stream */

struct stream {
    bn_image_put_fn *put;
    void *user;
    uint8_t *buffer; /* [BUFFER] */
    size_t used;
    uint64_t *sums; /* of the data; NULL: of something else */
    size_t n_sums;
    bitnet_error *err;
};

static bitnet_status flush(struct stream *s)
{
    for (size_t at = 0; s->sums && at < s->used; at += BN_IMAGE_PIECE)
        s->sums[s->n_sums++] =
            bn_checksum(s->buffer + at, bn_min_size(BN_IMAGE_PIECE, s->used - at));
    size_t n = s->used;
    s->used = 0;
    return n ? s->put(s->user, s->buffer, n, s->err) : BITNET_OK;
}

/* from NULL: zeros */
static bitnet_status put(struct stream *s, const uint8_t *from, size_t n)
{
    while (n) {
        size_t some = bn_min_size(n, BUFFER - s->used);
        if (from) memcpy(s->buffer + s->used, from, some);
        else memset(s->buffer + s->used, 0, some);
        if (from) from += some;
        s->used += some;
        n -= some;
        if (s->used == BUFFER) BN_TRY(flush(s));
    }
    return BITNET_OK;
}

static bitnet_status put_all(struct stream *s, const struct bn_image_plan *p, uint64_t *sums)
{
    const struct bn_image_head *h = &p->head;
    BN_TRY(put(s, (const uint8_t *)h, sizeof *h));
    BN_TRY(put(s, NULL, h->record_at - sizeof *h));
    BN_TRY(put(s, (const uint8_t *)p->record.data, p->record.len));
    BN_TRY(put(s, NULL, (size_t)(h->data_at - h->record_at - h->record_bytes)));
    BN_TRY(flush(s));
    s->sums = sums;
    for (size_t i = 0; i < p->n_spans; i++) {
        size_t n = p->spans[i].bytes;
        BN_TRY(put(s, p->spans[i].from, n));
        BN_TRY(put(s, NULL, bn_align_up(n, 64) - n));
    }
    BN_TRY(flush(s));
    s->sums = NULL;
    BN_TRY(put(s, NULL, (size_t)(h->sums_at - h->data_at - h->data_bytes)));
    sums[s->n_sums] = bn_checksum(sums, s->n_sums * sizeof *sums);
    BN_TRY(put(s, (const uint8_t *)sums, (s->n_sums + 1) * sizeof *sums));
    return flush(s);
}

bitnet_status bn_image_write(const struct bn_image_plan *p, bn_image_put_fn *put_fn, void *user,
                             bitnet_error *err)
{
    size_t n = (size_t)bn_div_up(p->head.data_bytes, BN_IMAGE_PIECE) + 1;
    uint64_t *sums = bn_calloc(n, sizeof *sums);
    struct stream s = {.put = put_fn, .user = user, .buffer = malloc(BUFFER), .err = err};
    bitnet_status status = sums && s.buffer ? put_all(&s, p, sums)
                                            : bn_fail_nomem(err, BUFFER, "writing packed weights");
    free(s.buffer);
    free(sums);
    return status;
}
