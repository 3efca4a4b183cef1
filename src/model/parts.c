/* SPDX-License-Identifier: Apache-2.0
 * Who has which rows of a model that several ranks compute. A head of keys goes with the heads of
 * queries that share it, so that its part of the KV cache is in one place; so does a delta net's with
 * its value heads and their state; gate and up have the same channels. Matrices are cut by rows only:
 * every product is computed by one rank, as ever. */
#include "model/image/image.h"

enum { GRAIN = 32 /* rows */, FEW_ROWS = 4096 /* are cut as evenly as can be */ };

static struct bn_range of_rank(const struct bn_model *m, const struct bn_cut *cut, size_t width)
{
    uint32_t i = bn_dist_rank(m->dist);
    return (struct bn_range){cut->at[i] * width, cut->at[i + 1] * width};
}

static void add_rows(struct bn_here *h, struct bn_range rows, size_t offset)
{
    h->piece[h->n_pieces++] = (struct bn_range){rows.begin + offset, rows.end + offset};
    h->n_rows += rows.end - rows.begin;
}

/* What it takes to read all rows of `o` and `down` of a layer instead of a part: about two bits a weight,
 * with the memory of a usual machine. */
static double whole_extra_ns(const struct bn_model *m)
{
    static const double bytes_a_ns = 16;
    const struct bn_config *c = &m->config;
    double cols = (double)c->n_head * c->head_dim + c->n_ff, n = bn_dist_ranks(m->dist);
    return (double)c->n_embd * cols / 4 * (1 - 1 / n) / bytes_a_ns;
}

bitnet_status bn_parts_choose(struct bn_model *m, bitnet_error *err)
{
    const struct bn_config *c = &m->config;
    struct bn_parts *p = &m->parts;
    if (!m->dist) return BITNET_OK;
    if (m->numa)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "numa is for one process; with ranks, start one on each node");
    if (bn_source_tensor(&m->source, BN_IMAGE_TENSOR))
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "'%s' holds packed weights, which are not split over ranks; use the file it "
                       "was made of",
                       m->source.path);
    p->whole = bn_dist_whole(m->dist, whole_extra_ns(m));
    bn_dist_cut(m->dist, &p->heads, c->n_head_kv, 1);
    bn_dist_cut(m->dist, &p->delta_heads, c->delta.n_k_heads, 1);
    bn_dist_cut(m->dist, &p->channels, c->n_ff, GRAIN);
    bn_dist_cut(m->dist, &p->outputs, c->n_embd, GRAIN);
    bn_dist_cut(m->dist, &p->logits, c->n_vocab, c->n_vocab < FEW_ROWS ? 1 : GRAIN);
    for (uint32_t i = 0; i < bn_dist_ranks(m->dist); i++)
        if (p->logits.at[i] == p->logits.at[i + 1])
            return bn_fail(err, BITNET_E_UNSUPPORTED,
                           "rank %u of %u would have nothing to do: use fewer, or a larger share",
                           i, bn_dist_ranks(m->dist));
    return BITNET_OK;
}

/* Queries, keys and values of a delta net's heads; share: value heads of a key head. */
static void add_delta_qkv(struct bn_here *h, const struct bn_model *m, size_t share)
{
    const struct bn_delta_shape *d = &m->config.delta;
    const struct bn_cut *cut = &m->parts.delta_heads;
    size_t keys = bn_delta_key_width(d);
    add_rows(h, of_rank(m, cut, d->k_dim), 0);
    add_rows(h, of_rank(m, cut, d->k_dim), keys);
    add_rows(h, of_rank(m, cut, share * d->v_dim), 2 * keys);
}

struct bn_here bn_part_here(const struct bn_model *m, enum bn_part p)
{
    uint64_t rows, cols;
    struct bn_here h = {0};
    const struct bn_config *c = &m->config;
    const struct bn_delta_shape *d = &c->delta;
    const struct bn_parts *parts = &m->parts;
    size_t queries = (size_t)c->n_head / c->n_head_kv * c->head_dim;
    size_t share = d->n_k_heads ? d->n_v_heads / d->n_k_heads : 0;
    bn_part_shape(c, p, &rows, &cols);
    const struct bn_range all = {0, (size_t)rows};
    if (!m->dist) {
        add_rows(&h, all, 0);
        return h;
    }
    switch (p) {
    case BN_P_Q:
        add_rows(&h, of_rank(m, &parts->heads, queries), 0);
        if (c->attn_gate) add_rows(&h, of_rank(m, &parts->heads, queries), (size_t)rows / 2);
        break;
    case BN_P_K:
    case BN_P_V: add_rows(&h, of_rank(m, &parts->heads, c->head_dim), 0); break;
    case BN_P_DELTA_QKV: add_delta_qkv(&h, m, share); break;
    case BN_P_DELTA_Z: add_rows(&h, of_rank(m, &parts->delta_heads, share * d->v_dim), 0); break;
    case BN_P_DELTA_ALPHA:
    case BN_P_DELTA_BETA: add_rows(&h, of_rank(m, &parts->delta_heads, share), 0); break;
    case BN_P_GATE:
    case BN_P_UP: add_rows(&h, of_rank(m, &parts->channels, 1), 0); break;
    case BN_P_O:
    case BN_P_DOWN:
    case BN_P_DELTA_OUT:
    case BN_P_MTP_IN: add_rows(&h, parts->whole ? all : of_rank(m, &parts->outputs, 1), 0); break;
    case BN_P_HEAD: add_rows(&h, of_rank(m, &parts->logits, 1), 0); break;
    default: add_rows(&h, all, 0);
    }
    return h;
}

struct bn_range bn_parts_delta_heads(const struct bn_model *m)
{
    if (!m->dist) return (struct bn_range){0, m->config.delta.n_k_heads};
    return of_rank(m, &m->parts.delta_heads, 1);
}

struct bn_delta_shape bn_parts_delta(const struct bn_model *m)
{
    struct bn_delta_shape d = m->config.delta;
    const struct bn_range heads = bn_parts_delta_heads(m);
    if (!d.n_k_heads) return d;
    d.n_v_heads = (uint32_t)(heads.end - heads.begin) * (d.n_v_heads / d.n_k_heads);
    d.n_k_heads = (uint32_t)(heads.end - heads.begin);
    return d;
}

struct bn_range bn_parts_heads(const struct bn_model *m)
{
    if (!m->dist) return (struct bn_range){0, m->config.n_head_kv};
    return of_rank(m, &m->parts.heads, 1);
}

struct bn_range bn_parts_logits(const struct bn_model *m)
{
    if (!m->dist) return (struct bn_range){0, m->config.n_vocab};
    return of_rank(m, &m->parts.logits, 1);
}

void bn_stored_cut(struct bn_stored *t, struct bn_range rows)
{
    size_t row_bytes = (size_t)(t->bytes / t->rows);
    t->data += rows.begin * row_bytes;
    t->rows = rows.end - rows.begin;
    t->bytes = t->rows * row_bytes;
}
