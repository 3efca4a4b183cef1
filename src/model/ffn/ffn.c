/* SPDX-License-Identifier: Apache-2.0
 *
 * Decisions, lists, counts. What a worker decides in a pass depends on the data alone, which all
 * see, and on what was settled before the pass: so all decide alike. */
#include "model/ffn/ffn.h"

#include "base/os/mem.h"
#include "model/ops.h"
#include "model/savings.h"
#include <math.h>
#include <stdlib.h>

enum { LINE = 64, NOT_SEEN = -1, ROWS_GRAIN = 4, COLUMNS_GRAIN = 8 };
static const float mean_weight = 0.125f; /* of a token in the running means */

/* One of the two matrices of a layer. */
struct side {
    uint64_t dense_bytes, item_bytes; /* the whole matrix; a row or column of its copy */
    size_t items, limit;              /* rows or columns; as many at most are taken from the copy */
    uint64_t seen, skipped, listed;   /* tokens, those that used the list, items in all lists */
    float mean;                       /* of the listed items, running */
    bool wanted;                      /* in this pass */
    bool used;                        /* the rest: written by worker 0 during the pass */
    int64_t found;
};

struct layer {
    struct side up, down;
    float gate_min; /* gates up to this are closed */
};

struct own { /* memory of a worker, [n_ff] each */
    uint32_t *list;
    float *gate, *up;
    float *sum, *more; /* [n_embd] */
};

struct bn_ffn {
    const struct bn_model *m;
    struct bn_pool *pool;
    struct bn_prof *prof; /* NULL: off */
    enum bn_ffn_mode mode;
    bool alone; /* the pass in progress is over one token, and there are copies */
    uint64_t tokens, dense_bytes, read_bytes;
    int64_t
        left_out; /* bytes of the last pass; a copy read in whole may be larger than its matrix */
    struct layer *layers; /* [n_layer] */
    struct own *own;      /* [threads] */
    uint8_t *block;
    size_t block_bytes;
};

/* ------------------------------------------------------------------ life */

static struct side side_of(const struct bn_part_copy *copy, const struct bn_matrix *w, size_t items,
                           size_t percent, enum bn_ffn_mode mode)
{
    struct side s = {.dense_bytes = bn_matrix_bytes(w), .items = items, .found = NOT_SEEN};
    if (!copy->w.data || mode == BN_FFN_DENSE) return s; /* limit 0: never wanted */
    s.item_bytes = copy->bytes / items;
    s.limit = mode == BN_FFN_SKIP ? items : items * percent / 100;
    return s;
}

static void open_layers(struct bn_ffn *f)
{
    for (uint32_t i = 0; i < bn_config_layers(&f->m->config); i++) {
        const struct bn_layer *layer = &f->m->layers[i];
        f->layers[i].up = side_of(&layer->up_rows, &layer->proj[BN_P_UP - BN_P_Q],
                                  f->m->config.n_ff, BN_FFN_UP_PERCENT, f->mode);
        f->layers[i].down = side_of(&layer->down_cols, &layer->proj[BN_P_DOWN - BN_P_Q],
                                    f->m->config.n_ff, BN_FFN_DOWN_PERCENT, f->mode);
    }
}

bitnet_status bn_ffn_open(struct bn_ffn **out, const struct bn_model *m, struct bn_pool *pool,
                          enum bn_ffn_mode mode, const struct bn_savings *savings,
                          struct bn_backing *how, bitnet_error *err)
{
    *out = NULL;
    size_t threads = bn_pool_threads(pool), piece = bn_align_up(m->config.n_ff * 4, LINE);
    size_t row = bn_align_up(m->config.n_embd * 4, LINE), bytes = 3 * piece + 2 * row;
    struct bn_ffn *f = bn_calloc(1, sizeof *f);
    if (!f) return bn_fail_nomem(err, sizeof *f, "the feed-forward lists");
    f->m = m;
    f->pool = pool;
    f->prof = bn_pool_prof(pool);
    f->mode = m->ffn_bytes ? mode : BN_FFN_DENSE;
    f->layers = bn_calloc_now(bn_config_layers(&m->config), sizeof *f->layers);
    f->own = bn_calloc_now(threads, sizeof *f->own);
    bitnet_status s = BITNET_OK;
    if (!f->layers || !f->own) s = bn_fail_nomem(err, sizeof *f->layers, "the feed-forward lists");
    f->block_bytes = threads * bytes;
    if (s == BITNET_OK && f->mode != BN_FFN_DENSE)
        s = bn_block_take((void **)&f->block, &f->block_bytes, how, "the feed-forward lists", err);
    if (s != BITNET_OK) {
        bn_ffn_close(f);
        return s;
    }
    for (size_t i = 0; f->block && i < threads; i++) {
        uint8_t *at = f->block + i * bytes;
        f->own[i] = (struct own){(void *)at, (void *)(at + piece), (void *)(at + 2 * piece),
                                 (void *)(at + 3 * piece), (void *)(at + 3 * piece + row)};
    }
    open_layers(f);
    for (uint32_t i = 0; savings && i < savings->n_layer; i++)
        f->layers[i].gate_min = savings->layers[i].gate_min;
    *out = f;
    return BITNET_OK;
}

void bn_ffn_close(struct bn_ffn *f)
{
    if (!f) return;
    bn_block_free(f->block, f->block_bytes);
    free(f->layers);
    free(f->own);
    free(f);
}

void bn_ffn_touch(struct bn_ffn *f) { bn_touch(f->block, bn_ffn_bytes(f)); }
size_t bn_ffn_bytes(const struct bn_ffn *f) { return f->block ? f->block_bytes : 0; }

void bn_ffn_info(const struct bn_ffn *f, bitnet_engine_info *info)
{
    static const char *const names[] = {"auto", "dense", "skip"};
    info->ffn.type = names[f->mode];
    info->ffn.tokens = f->tokens;
    info->ffn.dense_bytes = f->dense_bytes;
    info->ffn.read_bytes = f->read_bytes;
    for (uint32_t i = 0; i < f->m->config.n_layer; i++) {
        info->ffn.up_skipped += f->layers[i].up.skipped;
        info->ffn.down_skipped += f->layers[i].down.skipped;
    }
}

static double listed_share(const struct side *s)
{
    return s->seen ? (double)s->listed / ((double)s->seen * (double)s->items) : 0;
}

bool bn_ffn_layer_info(const struct bn_ffn *f, uint32_t layer, bitnet_ffn_layer *info)
{
    if (layer >= f->m->config.n_layer) return false;
    const struct side *up = &f->layers[layer].up, *down = &f->layers[layer].down;
    info->up_seen = up->seen;
    info->up_skipped = up->skipped;
    info->gates = listed_share(up);
    info->down_seen = down->seen;
    info->down_skipped = down->skipped;
    info->inputs = listed_share(down);
    return true;
}

/* ------------------------------------------------------------------ between passes */

static void begin_side(struct side *s, bool probe)
{
    s->wanted = s->limit > 0 && (probe || s->mean <= (float)s->limit);
    s->used = false;
    s->found = NOT_SEEN;
}

static void end_side(struct bn_ffn *f, struct side *s)
{
    uint64_t read = s->used ? (uint64_t)s->found * s->item_bytes : s->dense_bytes;
    f->dense_bytes += s->dense_bytes;
    f->read_bytes += read;
    f->left_out += (int64_t)(s->dense_bytes - read);
    if (s->found == NOT_SEEN) return;
    float n = (float)s->found;
    s->mean = s->seen ? s->mean + (n - s->mean) * mean_weight : n;
    s->listed += (uint64_t)s->found;
    s->seen++;
    s->skipped += s->used;
}

void bn_ffn_begin(struct bn_ffn *f, size_t n, bool adapted)
{
    f->alone = n == 1 && !adapted && f->mode != BN_FFN_DENSE;
    f->left_out = 0;
    bool probe = f->tokens % BN_FFN_PROBE_TOKENS == 0;
    for (uint32_t i = 0; f->alone && i < f->m->config.n_layer; i++) {
        begin_side(&f->layers[i].up, probe);
        begin_side(&f->layers[i].down, probe);
    }
}

void bn_ffn_end(struct bn_ffn *f)
{
    for (uint32_t i = 0; f->alone && i < f->m->config.n_layer; i++) {
        end_side(f, &f->layers[i].up);
        end_side(f, &f->layers[i].down);
    }
    f->tokens += f->alone;
}

int64_t bn_ffn_left_out(const struct bn_ffn *f) { return f->left_out; }

/* ------------------------------------------------------------------ in a pass */

/* Without a branch: whether an item is listed is a matter of chance. */
static size_t list_above(uint32_t *list, const float *x, size_t n, float least)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        list[k] = (uint32_t)i;
        k += !(x[i] <= least); /* a NaN as well */
    }
    return k;
}

static size_t list_nonzero(uint32_t *list, const int8_t *q, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        list[k] = (uint32_t)i;
        k += q[i] != 0;
    }
    return k;
}

/* Is a list of n to be used? Worker 0 also notes it down. */
static bool decide(struct side *s, size_t n, bool possible, uint32_t worker)
{
    bool use = possible && n <= s->limit;
    if (worker != 0) return use;
    s->found = (int64_t)n;
    s->used = use;
    return use;
}

/* As the worker's node has it. */
static const struct bn_layer *layer_of(const struct bn_ffn *f, uint32_t layer, uint32_t worker)
{
    return bn_model_layers(f->m, bn_pool_node(f->pool, worker)) + layer;
}

bool bn_ffn_wants_up(const struct bn_ffn *f, uint32_t layer)
{
    return f->alone && f->layers[layer].up.wanted;
}

bool bn_ffn_up(struct bn_ffn *f, uint32_t il, float *act, const float *gate, const int8_t *q,
               int32_t sum, float inv, uint32_t worker)
{
    const struct bn_kernels *k = &f->m->kernels;
    const struct bn_layer *layer = layer_of(f, il, worker);
    const struct bn_packed *w = &layer->up_rows.w;
    struct own *own = &f->own[worker];
    bn_prof_mark(f->prof, worker, BN_OP_LIST);
    size_t n = list_above(own->list, gate, w->rows, f->layers[il].gate_min);
    /* no row of `up` can be larger than this: 127 * 2 a column */
    bool finite = isfinite((float)(254 * w->cols) * (layer->up_scale_max * inv));
    if (!decide(&f->layers[il].up, n, finite, worker)) return false;
    if (n == 0 && worker == 0) memset(act, 0, w->rows * sizeof *act);
    bn_pool_deal(f->pool, worker, n, ROWS_GRAIN, true);
    for (struct bn_range r; bn_pool_take(f->pool, worker, &r);) {
        const uint32_t *list = own->list + r.begin;
        size_t some = r.end - r.begin;
        /* to write, it has the rows from its first listed one up to the first behind it */
        size_t from = r.begin == 0 ? 0 : *list, to = r.end < n ? own->list[r.end] : w->rows;
        bn_prof_mark(f->prof, worker, BN_OP_UP);
        bn_prof_work(f->prof, worker, some * f->layers[il].up.item_bytes, some * w->cols);
        k->rows_r2(own->up, w, list, some, q, sum, inv);
        bn_prof_mark(f->prof, worker, BN_OP_ACT);
        for (size_t i = 0; i < some; i++) own->gate[i] = gate[list[i]];
        k->relu2_mul(own->up, own->gate, own->up, some);
        memset(act + from, 0, (to - from) * sizeof *act);
        for (size_t i = 0; i < some; i++) act[list[i]] = own->up[i];
    }
    return true;
}

/* y = the workers' sums, added up in some rows, times the scales. */
static void scale_sums(const struct bn_ffn *f, float *y, const struct bn_packed *w, float inv,
                       struct bn_range rows)
{
    const float *first = f->own[0].sum;
    for (size_t r = rows.begin; r < rows.end; r++) y[r] = first[r];
    for (uint32_t i = 1; i < bn_pool_threads(f->pool); i++) {
        const float *sum = f->own[i].sum;
        for (size_t r = rows.begin; r < rows.end; r++) y[r] += sum[r];
    }
    for (size_t r = rows.begin; r < rows.end; r++) y[r] = y[r] * (bn_row_scale(w, r) * inv);
}

/* Each worker takes all rows of some columns: half a column is too short a piece of memory to come
 * fast. What they multiply are integers below 2^23 in size (kernels.h), and so are all of their sums:
 * as floats, with a scale of one, they are exact, whichever columns are whose. */
static void sum_columns(struct bn_ffn *f, const struct bn_packed *w, const uint32_t *list, size_t n,
                        size_t column_bytes, const int8_t *q, uint32_t worker)
{
    const struct own *own = &f->own[worker];
    const struct bn_kernels *k = &f->m->kernels;
    struct bn_packed unit = *w;
    unit.scale_kind = BN_SCALE_TENSOR;
    unit.scale = 1;
    bn_prof_mark(f->prof, worker, BN_OP_DOWN);
    bool first = true;
    bn_pool_deal(f->pool, worker, n, COLUMNS_GRAIN, true);
    for (struct bn_range r; bn_pool_take(f->pool, worker, &r); first = false) {
        size_t count = r.end - r.begin;
        bn_prof_work(f->prof, worker, count * column_bytes, count * w->rows);
        k->cols_c2(first ? own->sum : own->more, &unit, 0, w->rows, list + r.begin, count, q, 1);
        if (!first) k->add(own->sum, own->more, w->rows);
    }
    if (first) memset(own->sum, 0, w->rows * sizeof *own->sum);
}

bool bn_ffn_down(struct bn_ffn *f, uint32_t layer, float *y, const int8_t *q, float inv,
                 struct bn_range *rows, uint32_t worker)
{
    struct side *s = &f->layers[layer].down;
    const struct bn_packed *w = &layer_of(f, layer, worker)->down_cols.w;
    uint32_t *list = f->own[worker].list;
    if (!f->alone || !s->wanted) return false;
    bn_prof_mark(f->prof, worker, BN_OP_LIST);
    size_t n = list_nonzero(list, q, w->cols);
    if (!decide(s, n, true, worker)) return false;
    *rows = bn_pool_share(f->pool, worker, w->rows, BN_PART_ROWS);
    sum_columns(f, w, list, n, s->item_bytes, q, worker);
    bn_pool_barrier(f->pool, worker);
    scale_sums(f, y, w, inv, *rows);
    return true;
}
