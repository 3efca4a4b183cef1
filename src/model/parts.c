/* SPDX-License-Identifier: Apache-2.0
 * Who has which rows of a model that several ranks compute. A head of keys goes with the heads of
 * queries that share it, so that its part of the KV cache is in one place; gate and up have the same
 * channels. Matrices are cut by rows only: every product is computed by one rank, as ever. */
#include "model/image/image.h"

enum { GRAIN = 32 /* rows */, FEW_ROWS = 4096 /* are cut as evenly as can be */ };

static struct bn_range of_rank(const struct bn_model *m, const struct bn_cut *cut, size_t width)
{
    uint32_t i = bn_dist_rank(m->dist);
    return (struct bn_range){cut->at[i] * width, cut->at[i + 1] * width};
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
    if (c->delta.n_v_heads || c->attn_gate || c->n_mtp)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "models of architecture '%s' have recurrent layers, and are not split over "
                       "ranks; run it in one process",
                       c->arch);
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

struct bn_range bn_part_rows(const struct bn_model *m, enum bn_part p)
{
    uint64_t rows, cols;
    const struct bn_config *c = &m->config;
    bn_part_shape(c, p, &rows, &cols);
    if (!m->dist) return (struct bn_range){0, (size_t)rows};
    switch (p) {
    case BN_P_Q: return of_rank(m, &m->parts.heads, (size_t)c->n_head / c->n_head_kv * c->head_dim);
    case BN_P_K:
    case BN_P_V: return of_rank(m, &m->parts.heads, c->head_dim);
    case BN_P_GATE:
    case BN_P_UP: return of_rank(m, &m->parts.channels, 1);
    case BN_P_O:
    case BN_P_DOWN:
        if (m->parts.whole) return (struct bn_range){0, (size_t)rows};
        return of_rank(m, &m->parts.outputs, 1);
    case BN_P_HEAD: return of_rank(m, &m->parts.logits, 1);
    default: return (struct bn_range){0, (size_t)rows};
    }
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
