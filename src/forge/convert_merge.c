/* SPDX-License-Identifier: Apache-2.0
 * Adapters that go into the weights: W + scale * B A, added in double and rounded to float32 once.
 *
 * That is only done where the new file computes what base model and adapter compute, but for that
 * rounding. Ternary matrices cannot hold the sum, and one that is rounded while loading would lose it.
 * A matrix with a norm of its own in front gets another input than its adapter does, and one that is
 * embedding and head at once would change in both places. These are refused by name. */
#include "forge/convert_impl.h"

#include "base/half.h"
#include "model/config/hadamard.h"
#include "model/config/order.h"
#include "model/model.h"
#include <stdlib.h>

enum { STRIP = 256 }; /* columns worked on at a time */

struct bn_merge {
    struct bn_model *like; /* what adapters look at of a model */
    const struct bn_source *src;
    size_t n;
    struct {
        struct bitnet_adapter *adapter;
        float scale;
    } items[BITNET_MAX_ADAPTERS];
};

bitnet_status bn_merge_open(struct bn_merge **out, const struct bn_source *src,
                            const struct bn_config *c, const bitnet_convert_options *o,
                            bitnet_error *err)
{
    *out = NULL;
    if (!o->n_adapters) return BITNET_OK;
    if (o->n_adapters > BITNET_MAX_ADAPTERS)
        return bn_fail(err, BITNET_E_LIMIT, "%llu adapters to merge; at most %d are possible",
                       (unsigned long long)o->n_adapters, BITNET_MAX_ADAPTERS);
    struct bn_merge *m = bn_calloc(1, sizeof *m);
    struct bn_model *like = bn_calloc(1, sizeof *like);
    if (!m || !like) {
        free(m);
        free(like);
        return bn_fail_nomem(err, sizeof *m + sizeof *like, "adapters to merge");
    }
    m->like = like;
    m->src = src;
    like->config = *c;
    /* columns of A as those of the output */
    struct bn_config to = src->is_gguf ? *c : bn_config_as_gguf(c);
    like->delta_out_tiled = to.v_tiled && !(to.hadamard.block && to.hadamard.v_grouped);
    bitnet_status s = BITNET_OK;
    for (; m->n < o->n_adapters && s == BITNET_OK; m->n++) {
        m->items[m->n].scale = o->adapter_scales ? o->adapter_scales[m->n] : 1;
        s = bn_adapter_read(&m->items[m->n].adapter, like, o->adapters[m->n], err);
    }
    if (s == BITNET_OK) *out = m;
    else bn_merge_close(m);
    return s;
}

void bn_merge_close(struct bn_merge *m)
{
    if (!m) return;
    for (size_t i = 0; i < m->n; i++) bn_adapter_let_go(m->items[i].adapter);
    free(m->like);
    free(m);
}

/* NULL: there is none. */
static const struct bn_low_rank *pair_of(const struct bn_merge *m, size_t i, enum bn_part part,
                                         uint32_t layer)
{
    const struct bitnet_adapter *a = m->items[i].adapter;
    const struct bn_low_rank *x = NULL;
    if (part == BN_P_EMBED) x = &a->embed;
    else if (part == BN_P_HEAD) x = &a->head;
    else if (bn_part_is_projection(part) && layer < m->like->config.n_layer)
        x = bn_adapter_part(a, layer, part);
    return x && x->rank ? x : NULL;
}

bool bn_merge_has(const struct bn_merge *m, enum bn_part part, uint32_t layer)
{
    for (size_t i = 0; m && i < m->n; i++)
        if (pair_of(m, i, part, layer)) return true;
    return false;
}

/* Why the pairs cannot go into this matrix; NULL: they can. */
static const char *why_not(const struct bn_merge *m, const struct bn_convert_item *it,
                           enum bn_part part, bool dense)
{
    const struct bn_config *c = &m->like->config;
    if (it->ternary.online) return "it is rounded to ternary values when it is loaded";
    if (!dense) return "it is ternary, and the sum would not be";
    if (c->tied_head && (part == BN_P_EMBED || part == BN_P_HEAD))
        return "it is embedding and head at once, and both would change";
    if (c->in_norms && bn_part_is_projection(part))
        return "a norm stands between the adapter's input and its own";
    if (c->hadamard.block && (bn_hadamard_has(m->src, it->from->name, false) ||
                              bn_hadamard_has(m->src, it->from->name, true)))
        return "its columns or rows are rotated, and the adapter's are not";
    if (it->type > BN_BF16 || (it->type != it->from->type && it->type != BN_F32))
        return "the sum would be rounded to the type it is to be stored in; a table can become f32 "
               "(head_type f32, --head-type f32)";
    return NULL;
}

/* Output rows of a part to those of pairs, which stand as in memory; *out: NULL where all are the same. */
static bitnet_status find_rows(const uint32_t **out, struct bn_convert_plan *p, enum bn_part part,
                               uint64_t rows, bitnet_error *err)
{
    uint32_t *row_of = bn_arena_alloc(&p->arena, (size_t)rows * sizeof *row_of);
    if (!row_of) return bn_fail_nomem(err, (size_t)rows * sizeof *row_of, "an order of rows");
    for (uint64_t r = 0; r < rows; r++) row_of[bn_order_row(&p->to, part, r)] = (uint32_t)r;
    *out = row_of;
    return BITNET_OK;
}

bitnet_status bn_merge_take(struct bn_convert_item *it, struct bn_convert_plan *p,
                            enum bn_part part, uint32_t layer, bool dense, bitnet_error *err)
{
    const struct bn_merge *m = p->merge;
    const char *why = why_not(m, it, part, dense);
    if (why)
        for (size_t i = 0; i < m->n; i++)
            if (pair_of(m, i, part, layer))
                return bn_fail(err, BITNET_E_UNSUPPORTED,
                               "adapter '%s' cannot be merged into '%s': %s. It works beside the "
                               "model (--lora)",
                               m->items[i].adapter->path, it->from->name, why);
    struct bn_convert_merged *x = bn_arena_alloc(&p->arena, sizeof *x + m->n * sizeof x->pairs[0]);
    if (!x) return bn_fail_nomem(err, sizeof *x, "an adapter to merge");
    *x = (struct bn_convert_merged){.table = part == BN_P_EMBED};
    for (size_t i = 0; i < m->n; i++) {
        const struct bn_low_rank *pair = pair_of(m, i, part, layer);
        if (pair)
            x->pairs[x->n++] = (struct bn_convert_pair){pair, pair->scale * m->items[i].scale};
    }
    if (bn_part_is_projection(part)) BN_TRY(find_rows(&x->row_of, p, part, it->rows, err));
    it->merged = x;
    it->type = BN_F32;
    return BITNET_OK;
}

/* One element of a matrix of floats. */
static double element(const struct bn_stored *st, size_t row, size_t col)
{
    size_t at = row * (size_t)st->cols + col;
    const uint8_t *data = st->data;
    if (st->type == BN_F32) {
        float v;
        memcpy(&v, data + 4 * at, sizeof v);
        return (double)v;
    }
    uint16_t bits;
    memcpy(&bits, data + 2 * at, sizeof bits);
    return (double)(st->type == BN_F16 ? bn_f16_to_f32(bits) : bn_bf16_to_f32(bits));
}

/* sums[] += s * B A, of columns [from, from + n). */
static void add_pair(double *sums, const struct bn_convert_merged *x, size_t i, size_t row,
                     size_t from, size_t n)
{
    const struct bn_low_rank *p = x->pairs[i].pair;
    double part[STRIP] = {0};
    for (uint32_t k = 0; k < p->rank; k++) {
        double of_row = x->table ? element(&p->a, row, k) : element(&p->b, k, row);
        for (size_t c = 0; c < n; c++)
            part[c] += of_row * element(x->table ? &p->b : &p->a, k, from + c);
    }
    for (size_t c = 0; c < n; c++) sums[c] += (double)x->pairs[i].scale * part[c];
}

void bn_merge_add(float *values, const struct bn_convert_item *it, uint64_t row)
{
    const struct bn_convert_merged *x = it->merged;
    size_t cols = (size_t)it->cols, r = (size_t)(x->row_of ? x->row_of[row] : row);
    double sums[STRIP];
    for (size_t from = 0; from < cols; from += STRIP) {
        size_t n = bn_min_size(STRIP, cols - from);
        for (size_t c = 0; c < n; c++) sums[c] = (double)values[from + c];
        for (size_t i = 0; i < x->n; i++) add_pair(sums, x, i, r, from, n);
        for (size_t c = 0; c < n; c++) values[from + c] = (float)sums[c];
    }
}
