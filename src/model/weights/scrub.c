/* SPDX-License-Identifier: Apache-2.0 */
#include "model/weights/scrub.h"

#include "base/checksum.h"
#include <stdio.h>
#include <stdlib.h>

enum { NOTE_BYTES = 16, NODE_BYTES = 16 };

/* A piece of the weights in memory. */
struct region {
    const uint8_t *data;
    size_t bytes;
    enum bn_part part;
    uint32_t layer;
    const char *note; /* what of the part it is, "" for the matrix itself; at most NOTE_BYTES */
    uint32_t node;    /* of a copy for another node; 0: the model's own */
    bool release;     /* mapped, and seldom read otherwise: not to be left in memory */
};

struct bn_scrub {
    const struct bn_model *m;
    struct region *regions;
    size_t n_regions, regions_room;
    uint64_t *sums; /* of all blocks, region after region */
    uint64_t total_bytes;
    /* the cursor */
    size_t region, block; /* block: of all */
    size_t at;            /* in the region */
    uint64_t pass_bytes;
    /* findings */
    uint64_t passes, mismatches, offset;
    char tensor[BN_MAX_NAME_BYTES + NOTE_BYTES + NODE_BYTES];
};

/* ------------------------------------------------------------------ what there is */

static bool add(struct bn_scrub *s, struct region r)
{
    if (!r.data || !r.bytes) return true;
    if (!bn_grow((void **)&s->regions, &s->regions_room, s->n_regions + 1, sizeof r)) return false;
    s->regions[s->n_regions++] = r;
    s->total_bytes += r.bytes;
    return true;
}

static bool add_vector(struct bn_scrub *s, const float *x, size_t n, enum bn_part p, uint32_t layer,
                       const char *note)
{
    return add(s, (struct region){.data = (const uint8_t *)x,
                                  .bytes = n * sizeof *x,
                                  .part = p,
                                  .layer = layer,
                                  .note = note});
}

static bool add_scales(struct bn_scrub *s, const struct bn_matrix *x, enum bn_part p,
                       uint32_t layer)
{
    const struct bn_packed *w = &x->packed;
    return add(s, (struct region){.data = (const uint8_t *)w->block_scale,
                                  .bytes = bn_matrix_scale_bytes(x),
                                  .part = p,
                                  .layer = layer,
                                  .note = " (scales)"}) &&
           add_vector(s, w->row_scale, w->row_scale ? w->rows : 0, p, layer, " (scales)");
}

static bool add_matrix(struct bn_scrub *s, const struct bn_matrix *w, enum bn_part p,
                       uint32_t layer)
{
    struct region r = {.data = w->dense ? w->stored.data : w->packed.data,
                       .bytes = bn_matrix_bytes(w),
                       .part = p,
                       .layer = layer,
                       .note = ""};
    return add(s, r) && (w->dense || add_scales(s, w, p, layer));
}

static bool add_copy(struct bn_scrub *s, const struct bn_part_copy *c, enum bn_part p,
                     uint32_t layer)
{
    return add(
        s, (struct region){
               .data = c->w.data, .bytes = c->bytes, .part = p, .layer = layer, .note = " (copy)"});
}

/* The matrices of a layer and their copies; those that are not packed only with `all`. */
static bool add_matrices(struct bn_scrub *s, const struct bn_layer *layer, uint32_t i, bool all)
{
    bool ok = true;
    for (int k = 0; ok && k < BN_N_PROJ; k++)
        ok = (layer->proj[k].dense && !all) ||
             add_matrix(s, &layer->proj[k], (enum bn_part)(BN_P_Q + k), i);
    return ok && add_copy(s, &layer->up_rows, BN_P_UP, i) &&
           add_copy(s, &layer->down_cols, BN_P_DOWN, i);
}

static bool add_head_copy(struct bn_scrub *s, const struct bn_screen *screen,
                          const struct bn_dense8 *int8)
{
    return add(s, (struct region){.data = bn_head_copy_data(screen, int8),
                                  .bytes = s->m->head_copy_bytes,
                                  .part = s->m->config.tied_head ? BN_P_EMBED : BN_P_HEAD,
                                  .note = " (copy)"});
}

static bool add_layer(struct bn_scrub *s, uint32_t i)
{
    const struct bn_layer *layer = &s->m->layers[i];
    const struct bn_config *c = &s->m->config;
    const struct {
        const float *x;
        enum bn_part part;
    } norms[] = {{layer->attn_norm, BN_P_ATTN_NORM},
                 {layer->ffn_norm, c->attn_gate ? BN_P_POST_NORM : BN_P_FFN_NORM},
                 {layer->attn_sub_norm, BN_P_ATTN_SUB_NORM},
                 {layer->ffn_sub_norm, BN_P_FFN_SUB_NORM},
                 {layer->q_norm, BN_P_Q_NORM},
                 {layer->k_norm, BN_P_K_NORM},
                 {layer->delta_norm, BN_P_DELTA_NORM},
                 {layer->delta_a, BN_P_DELTA_A},
                 {layer->delta_dt, BN_P_DELTA_DT},
                 {layer->conv, BN_P_DELTA_CONV},
                 {layer->mtp_embed_norm, BN_P_MTP_EMBED_NORM},
                 {layer->mtp_hidden_norm, BN_P_MTP_HIDDEN_NORM},
                 {layer->mtp_out_norm, BN_P_MTP_OUT_NORM}};
    bool ok = true;
    for (size_t k = 0; ok && k < BN_ARRAY_LEN(norms); k++) {
        uint64_t rows, cols;
        bn_part_shape(c, norms[k].part, &rows, &cols);
        ok = add_vector(s, norms[k].x, rows * cols, norms[k].part, i, "");
    }
    for (int k = 0; ok && k < BN_N_PROJ; k++) {
        const struct bn_matrix *w = &layer->proj[k];
        ok = add_vector(s, layer->in_norm[k], w->dense ? w->stored.cols : w->packed.cols,
                        (enum bn_part)(BN_P_Q + k), i, " (norm)");
    }
    return ok && add_matrices(s, layer, i, true);
}

/* Embedding and head lie in the file's mapping. An exact head is read all the time; else a pass must
 * not leave them in memory. */
static bool add_tables(struct bn_scrub *s)
{
    const struct bn_model *m = s->m;
    const struct bn_config *c = &m->config;
    bool copy = bn_head_copy_data(&m->screen, &m->head_int8) != NULL;
    bool ok = add_matrix(s, &m->embed, BN_P_EMBED, 0);
    if (ok) s->regions[s->n_regions - 1].release = !c->tied_head || copy || !m->head.dense;
    if (ok && (!c->tied_head || !m->head.dense)) {
        ok = add_matrix(s, &m->head, c->tied_head ? BN_P_EMBED : BN_P_HEAD, 0);
        if (ok && m->head.dense) s->regions[s->n_regions - 1].release = copy;
    }
    return ok && add_head_copy(s, &m->screen, &m->head_int8) &&
           add_vector(s, m->out_norm, c->n_embd, BN_P_OUT_NORM, 0, "") &&
           add_vector(s, m->rope_factors, c->rope_dim / 2, BN_P_ROPE_FREQS, 0, "");
}

/* What another node has. Dense matrices are the model's own there, too. */
static bool add_replica(struct bn_scrub *s, const struct bn_replica *r, uint32_t node)
{
    size_t first = s->n_regions;
    bool ok = add_head_copy(s, &r->screen, &r->head_int8);
    for (uint32_t i = 0; ok && i < bn_config_layers(&s->m->config); i++)
        ok = add_matrices(s, &r->layers[i], i, false);
    for (size_t i = first; i < s->n_regions; i++) s->regions[i].node = node;
    return ok;
}

/* ------------------------------------------------------------------ life */

bitnet_status bn_scrub_open(struct bn_scrub **out, const struct bn_model *m, bitnet_error *err)
{
    *out = NULL;
    struct bn_scrub *s = bn_calloc(1, sizeof *s);
    if (!s) return bn_fail_nomem(err, sizeof *s, "checksums of the weights");
    s->m = m;
    bool ok = add_tables(s);
    for (uint32_t i = 0; ok && i < bn_config_layers(&m->config); i++) ok = add_layer(s, i);
    for (uint32_t i = 0; ok && i < m->n_replicas; i++) ok = add_replica(s, &m->replicas[i], i + 1);
    size_t n = 0;
    for (size_t i = 0; i < s->n_regions; i++) n += bn_div_up(s->regions[i].bytes, BN_SCRUB_BLOCK);
    if (ok) s->sums = bn_calloc(n, sizeof *s->sums);
    if (!s->sums) {
        bn_scrub_close(s);
        return bn_fail_nomem(err, n * sizeof *s->sums, "checksums of the weights");
    }
    *out = s;
    return BITNET_OK;
}

void bn_scrub_close(struct bn_scrub *s)
{
    if (!s) return;
    free(s->regions);
    free(s->sums);
    free(s);
}

/* ------------------------------------------------------------------ walking */

static void found(struct bn_scrub *s, const struct region *r)
{
    bn_part_name(s->tensor, r->part, bn_config_named_layer(&s->m->config, r->layer),
                 s->m->source.is_gguf);
    strcat(s->tensor, r->note);
    size_t used = strlen(s->tensor);
    if (r->node) snprintf(s->tensor + used, sizeof s->tensor - used, " (node %u)", r->node);
    s->offset = s->at;
    s->mismatches++;
}

static void next_region(struct bn_scrub *s, const struct region *r, bool keep)
{
    if (r->release && !keep)
        bn_source_release(&s->m->source, bn_part_find(&s->m->source, r->part, 0));
    s->at = 0;
    if (++s->region < s->n_regions) return;
    s->region = s->block = 0;
    s->pass_bytes = 0;
    s->passes++;
}

/* One block; returns its bytes. */
static size_t walk_block(struct bn_scrub *s, bool keep)
{
    const struct region *r = &s->regions[s->region];
    size_t n = bn_min_size(BN_SCRUB_BLOCK, r->bytes - s->at);
    uint64_t sum = bn_checksum(r->data + s->at, n);
    if (s->passes && sum != s->sums[s->block]) found(s, r);
    s->sums[s->block++] = sum; /* so that a change is counted once */
    s->at += n;
    s->pass_bytes += n;
    if (s->at == r->bytes) next_region(s, r, keep);
    return n;
}

void bn_scrub_advance(struct bn_scrub *s, uint64_t max_bytes, bool keep)
{
    uint64_t pass = s->passes, left = max_bytes, n;
    do {
        n = walk_block(s, keep);
        left -= left < n ? left : n;
    } while (s->passes == pass && left >= BN_SCRUB_BLOCK);
}

void bn_scrub_info(const struct bn_scrub *s, bitnet_scrub *info)
{
    info->total_bytes = s->total_bytes;
    info->pass_bytes = s->pass_bytes;
    info->passes = s->passes;
    info->mismatches = s->mismatches;
    info->tensor = s->tensor;
    info->offset = s->offset;
}
