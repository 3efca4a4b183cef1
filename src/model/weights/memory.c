/* SPDX-License-Identifier: Apache-2.0
 * What a model's memory lies in: the choices, locks, what is to be told of it, and touching it. */
#include "model/image/image.h"

bitnet_status bn_memory_choose(struct bn_model *m, const bitnet_model_options *o, bitnet_error *err)
{
    int32_t ahead = o->prefetch_bytes;
    if (ahead > BN_PREFETCH_MAX || ahead < BITNET_OFF)
        return bn_fail(err, BITNET_E_LIMIT,
                       "a prefetch distance of %d bytes; at most %d is possible", ahead,
                       BN_PREFETCH_MAX);
    if (ahead == 0) m->prefetch_bytes = BN_PREFETCH_DEFAULT;
    else if (ahead != BITNET_OFF) m->prefetch_bytes = (uint32_t)bn_align_up((size_t)ahead, 64);
    m->backing.lock = o->mlock != 0;
    m->slab.how = &m->backing;
    return bn_pages_parse(&m->backing.pages, o->hugepages, err);
}

/* i-th matrix, NULL past the end; a tied head is the embedding. */
static const struct bn_matrix *matrix_at(const struct bn_model *m, size_t i)
{
    size_t n = (size_t)bn_config_layers(&m->config) * BN_N_PROJ;
    if (i < n) return &m->layers[i / BN_N_PROJ].proj[i % BN_N_PROJ];
    if (i == n) return &m->embed;
    return i == n + 1 && !m->config.tied_head ? &m->head : NULL;
}

/* Is it used where it lies in the file? */
static bool is_mapped(const struct bn_model *m, const struct bn_matrix *w)
{
    return w->dense && !m->source.to_read;
}

static bitnet_status lock_weights(struct bn_model *m, bitnet_error *err)
{
    const struct bn_matrix *w;
    BN_TRY(bn_slab_lock(&m->slab, "the weights", err));
    if (m->image.mapped)
        BN_TRY(bn_backing_lock(&m->backing, m->image.data, bn_image_bytes(m), "the packed weights",
                               err));
    for (size_t i = 0; (w = matrix_at(m, i)); i++)
        if (is_mapped(m, w))
            BN_TRY(bn_backing_lock(&m->backing, w->stored.data, w->stored.bytes,
                                   "a tensor in the file", err));
    return BITNET_OK;
}

/* Reserved pages that were not there are no error, but not what was asked for either. */
static void note_pages(struct bn_model *m)
{
    const struct bn_backing *b = &m->backing;
    if (!b->missed_bytes) return;
    if (m->note.len) bn_buf_putc(&m->note, ' ');
    bn_buf_printf(
        &m->note,
        "%s pages were asked for: blocks of %zu bytes for weights lie in them, and of %zu "
        "bytes in transparent huge pages, since %llu such pages are free.",
        bn_pages_name(b->pages), b->reserved_bytes, b->missed_bytes,
        (unsigned long long)bn_pages_free(b->pages));
}

bitnet_status bn_memory_settle(struct bn_model *m, bitnet_error *err)
{
    BN_TRY(lock_weights(m, err));
    note_pages(m);
    return BITNET_OK;
}

void bn_model_touch(const struct bn_model *m)
{
    const struct bn_matrix *w;
    bn_slab_touch(&m->slab);
    if (m->image.mapped) bn_touch_read(m->image.data, bn_image_bytes(m));
    bn_touch_read(bn_head_copy_data(&m->screen, &m->head_int8), m->head_copy_bytes);
    for (size_t i = 0; (w = matrix_at(m, i)); i++)
        if (is_mapped(m, w)) bn_touch_read(w->stored.data, w->stored.bytes);
}
