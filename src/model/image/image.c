/* SPDX-License-Identifier: Apache-2.0
 * From an image to a model: the head is believed when its sum is right, the record when its sum is
 * right, and what it says is checked all the same. The data are checked by image_check.c. */
#include "model/image/image.h"

#include "base/checksum.h"
#include "model/ffn/ffn.h"
#include "model/head/head.h"
#include <stdlib.h>

enum {
    PROBES = 8,        /* huge pages that are looked at before a file stays mapped */
    PROBES_NEEDED = 6, /* those at the ends may have come in with their neighbours */
    COPY_GRAIN = 2 << 20
};

/* ------------------------------------------------------------------ looking */

size_t bn_image_pieces(const struct bn_image_view *v)
{
    return (size_t)bn_div_up(v->head.data_bytes, BN_IMAGE_PIECE);
}

bool bn_image_piece_good(const struct bn_image_view *v, const uint8_t *data, size_t i)
{
    size_t at = i * BN_IMAGE_PIECE;
    size_t n = bn_min_size(BN_IMAGE_PIECE, (size_t)v->head.data_bytes - at);
    return bn_checksum(data + at, n) == bn_load_u64(v->sums + i * sizeof(uint64_t));
}

static bool inside(uint64_t at, uint64_t n, uint64_t end) { return at <= end && n <= end - at; }

/* A text at *at of the record; *at goes behind it. */
static bool take_text(const struct bn_image_view *v, uint64_t *at, char out[BN_IMAGE_MAX_TEXT])
{
    uint64_t n;
    if (!inside(*at, sizeof n, v->head.record_bytes)) return false;
    n = bn_load_u64(v->record + *at);
    *at += sizeof n;
    if (n >= BN_IMAGE_MAX_TEXT || !inside(*at, n, v->head.record_bytes)) return false;
    memcpy(out, v->record + *at, (size_t)n);
    out[n] = 0;
    *at += n;
    return true;
}

static bitnet_status damaged(const char *path, const char *what, bitnet_error *err)
{
    return bn_fail(err, BITNET_E_FORMAT, "the packed weights in '%s' are damaged: %s", path, what);
}

bitnet_status bn_image_look(struct bn_image_view *v, const void *base, size_t bytes,
                            const char *path, bitnet_error *err)
{
    struct bn_image_head *h = &v->head;
    *v = (struct bn_image_view){.base = base};
    if (bytes < sizeof *h) return damaged(path, "they are cut off", err);
    memcpy(h, base, sizeof *h);
    if (memcmp(h->magic, "BNPACKED", sizeof h->magic) != 0)
        return damaged(path, "they do not begin as such", err);
    if (h->version != BN_IMAGE_VERSION)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "the packed weights in '%s' are of version %u; this is version %d: convert "
                       "the model again",
                       path, h->version, BN_IMAGE_VERSION);
    if (h->head_sum != bn_checksum(h, offsetof(struct bn_image_head, head_sum)))
        return damaged(path, "their head has another checksum", err);
    uint64_t sums = ((h->data_bytes + BN_IMAGE_PIECE - 1) / BN_IMAGE_PIECE + 1) * sizeof(uint64_t);
    if (h->piece_bytes != BN_IMAGE_PIECE || h->bytes > bytes ||
        !inside(h->record_at, h->record_bytes, h->bytes) ||
        !inside(h->data_at, h->data_bytes, h->bytes) || !inside(h->sums_at, sums, h->bytes) ||
        h->record_bytes > BN_IMAGE_MAX_RECORD_BYTES)
        return damaged(path, "they are cut off", err);
    v->record = v->base + h->record_at;
    v->data = v->base + h->data_at;
    v->sums = v->base + h->sums_at;
    if (h->record_sum != bn_checksum(v->record, (size_t)h->record_bytes))
        return damaged(path, "their record has another checksum", err);
    size_t n = bn_image_pieces(v) * sizeof(uint64_t);
    if (bn_load_u64(v->sums + n) != bn_checksum(v->sums, n))
        return damaged(path, "their checksums have another checksum", err);
    uint64_t at = 0;
    if (!take_text(v, &at, v->path) || !take_text(v, &at, v->key))
        return damaged(path, "their record is too short", err);
    v->record += at;
    h->record_bytes -= at;
    return BITNET_OK;
}

bitnet_status bn_image_map(struct bn_mapping *map, const char *path, bitnet_error *err)
{
    BN_TRY(bn_map_file(map, path, err));
    if (map->bytes) bn_wish_huge(map->data, map->bytes); /* before the first page comes in */
    return BITNET_OK;
}

size_t bn_image_bytes(const struct bn_model *m)
{
    return m->image.view ? (size_t)m->image.view->head.data_bytes : 0;
}

/* ------------------------------------------------------------------ mapped or copied */

/* A file in small pages is read a good deal slower than memory in huge ones; so it stays mapped where
 * the system caches it in huge pages. A few are brought in to see. */
static bool in_huge_pages(const struct bn_image_view *v)
{
    uint64_t pages = v->head.data_bytes / BN_HUGE_PAGE;
    if (pages < PROBES) return false;
    for (uint64_t i = 0; i < PROBES; i++)
        bn_touch_read(v->data + i * (pages - 1) / (PROBES - 1) * BN_HUGE_PAGE, 1);
    return bn_huge_bytes(v->data) >= PROBES_NEEDED * (uint64_t)BN_HUGE_PAGE;
}

struct job {
    struct bn_pool *pool;
    const struct bn_image_view *view;
    const struct bn_mapping *file; /* NULL: it stays mapped, and is touched */
    uint64_t at;
    uint8_t *to;
    bitnet_status status[BN_MAX_THREADS];
    bitnet_error errors[BN_MAX_THREADS];
};

static void bring_worker(void *arg, uint32_t worker)
{
    struct job *j = arg;
    struct bn_range r =
        bn_pool_share(j->pool, worker, (size_t)j->view->head.data_bytes, COPY_GRAIN);
    if (r.begin >= r.end) return;
    if (!j->file) bn_touch_file(j->view->data + r.begin, r.end - r.begin);
    else
        j->status[worker] = bn_map_read(j->file, j->to + r.begin, j->at + r.begin, r.end - r.begin,
                                        &j->errors[worker]);
}

/* All data come into memory, by all threads. */
static bitnet_status bring(const struct bn_model *m, struct bn_pool *pool,
                           const struct bn_mapping *file, uint8_t *to, bitnet_error *err)
{
    const struct bn_image_view *v = m->image.view;
    struct job *j = bn_calloc(1, sizeof *j);
    if (!j) return bn_fail_nomem(err, sizeof *j, "reading packed weights");
    *j = (struct job){
        .pool = pool, .view = v, .file = file, .at = m->image.file_at + v->head.data_at, .to = to};
    bn_pool_run(pool, bring_worker, j);
    bitnet_status s = BITNET_OK;
    for (uint32_t i = 0; s == BITNET_OK && i < bn_pool_threads(pool); i++)
        if ((s = j->status[i]) != BITNET_OK && err) *err = j->errors[i];
    free(j);
    return s;
}

/* Memory of a copy goes to its nodes before it is written. */
static void place(const struct bn_model *m, const struct bn_pool *pool)
{
    for (uint32_t i = 0; i < bn_config_layers(&m->config); i++) {
        const struct bn_layer *layer = &m->layers[i];
        for (int k = 0; k < BN_N_PROJ; k++) {
            const struct bn_matrix *x = &layer->proj[k];
            if (!x->dense)
                bn_place_weights(m, pool, (void *)x->packed.data, bn_matrix_bytes(x),
                                 x->packed.rows, x->gemm->group_rows);
        }
        if (layer->up_rows.w.data)
            bn_place_weights(m, pool, (void *)layer->up_rows.w.data, layer->up_rows.bytes,
                             layer->up_rows.w.rows, BN_PART_ROWS);
        if (layer->down_cols.w.data)
            bn_place_weights(m, pool, (void *)layer->down_cols.w.data, layer->down_cols.bytes, 0,
                             BN_PART_ROWS);
    }
    if (m->image.head_copy) bn_head_copy_place(m, pool);
}

static bitnet_status load_copy(struct bn_model *m, struct bn_pool *pool, bitnet_error *err)
{
    const struct bn_image_view *v = m->image.view;
    struct bn_mapping file;
    size_t bytes = (size_t)v->head.data_bytes;
    uint8_t *to = bn_slab_alloc(&m->slab, bytes);
    if (!to) return bn_fail_nomem(err, bytes, "the packed weights");
    m->image.data = to;
    BN_TRY(bn_image_record_read(m, v->record, (size_t)v->head.record_bytes, to, v->head.data_bytes,
                                err));
    place(m, pool);
    BN_TRY(bn_map_file_to_read(&file, m->image.path, err));
    bitnet_status s = bring(m, pool, &file, to, err);
    if (s == BITNET_OK) s = bn_map_read_end(&file, err);
    bn_unmap_file(&file);
    return s;
}

/* What the options leave out is not used, though it is there. */
static void leave_aside(struct bn_model *m, enum bn_head_mode head, enum bn_ffn_mode ffn)
{
    const void *copy = bn_head_copy_data(&m->screen, &m->head_int8);
    if (copy &&
        bn_head_copy_wanted(m, head) != (m->head_int8.data ? BN_HEAD_INT8 : BN_HEAD_SCREENED)) {
        m->packed_bytes -= m->head_copy_bytes;
        bn_head_copy_free(m);
        m->image.left_aside = true;
    }
    if (!m->ffn_bytes || bn_ffn_copy_wanted(m, ffn)) return;
    for (uint32_t i = 0; i < m->config.n_layer; i++)
        m->layers[i].up_rows = m->layers[i].down_cols = (struct bn_part_copy){0};
    m->packed_bytes -= m->ffn_bytes;
    m->ffn_bytes = 0;
    m->image.left_aside = true;
}

bitnet_status bn_image_load(struct bn_model *m, struct bn_pool *pool, enum bn_head_mode head,
                            enum bn_ffn_mode ffn, bitnet_error *err)
{
    const struct bn_image_view *v = m->image.view;
    bool usual = m->backing.pages == BN_PAGES_THP && !m->numa && !m->source.to_read;
    m->image.mapped = usual && in_huge_pages(v);
    if (m->image.mapped) {
        m->image.data = v->data;
        BN_TRY(bn_image_record_read(m, v->record, (size_t)v->head.record_bytes, v->data,
                                    v->head.data_bytes, err));
        BN_TRY(bring(m, pool, NULL, NULL, err));
    } else {
        BN_TRY(load_copy(m, pool, err));
    }
    leave_aside(m, head, ffn);
    return BITNET_OK;
}

void bn_image_close(struct bn_model *m)
{
    bn_image_check_stop(m);
    bn_unmap_file(&m->image.map);
    free(m->image.view);
    free(m->image.path);
    m->image = (struct bn_image){0};
}
