/* SPDX-License-Identifier: Apache-2.0
 *
 * The copies of `up` by rows and of `down` by columns, made once at open by all threads out of the
 * packed matrices. */
#include "model/ffn/ffn.h"

#include "base/os/mem.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>

bitnet_status bn_ffn_mode_parse(enum bn_ffn_mode *out, const char *name, bitnet_error *err)
{
    static const char *const names[] = {"auto", "dense", "skip"};
    *out = BN_FFN_AUTO;
    for (size_t i = 0; name && i < BN_ARRAY_LEN(names); i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum bn_ffn_mode)i;
            return BITNET_OK;
        }
    if (!name) return BITNET_OK;
    return bn_fail(err, BITNET_E_ARG, "ffn '%s' is unknown; auto, dense and skip exist", name);
}

struct job {
    struct bn_pool *pool;
    const struct bn_matrix *from;
    uint8_t *data;
    int8_t *trits; /* [threads][room] */
    size_t room;
    bool by_rows;
};

/* Whole groups that hold rows r0 .. r1 - 1; returns where row r0 is. */
static const int8_t *unpack(int8_t *to, const struct bn_matrix *m, size_t r0, size_t r1)
{
    const struct bn_gemm *g = m->gemm;
    size_t cols = m->packed.cols, bytes = g->group_bytes(cols), first = r0 / g->group_rows;
    for (size_t i = first; i * g->group_rows < r1; i++)
        g->unpack(to + (i - first) * g->group_rows * cols, m->packed.data + i * bytes,
                  bn_min_size(g->group_rows, m->packed.rows - i * g->group_rows), cols);
    return to + (r0 - first * g->group_rows) * cols;
}

static void copy_worker(void *arg, uint32_t worker)
{
    struct job *j = arg;
    size_t rows = j->from->packed.rows, cols = j->from->packed.cols;
    int8_t *room = j->trits + worker * j->room;
    struct bn_range share = bn_pool_share(j->pool, worker, rows, BN_PART_ROWS);
    for (size_t r = share.begin; r < share.end; r += BN_PART_ROWS) {
        size_t n = bn_min_size(BN_PART_ROWS, share.end - r);
        const int8_t *w = unpack(room, j->from, r, r + n);
        if (!j->by_rows) bn_c2_pack(j->data, rows, r, w, n, cols);
        for (size_t i = 0; j->by_rows && i < n; i++)
            bn_r2_pack(j->data + (r + i) * bn_r2_row_bytes(cols), w + i * cols, cols);
    }
}

static bitnet_status copy(struct bn_model *m, struct bn_part_copy *out, struct job *j,
                          bitnet_error *err)
{
    const struct bn_packed *w = &j->from->packed;
    out->bytes =
        j->by_rows ? w->rows * bn_r2_row_bytes(w->cols) : w->cols * bn_c2_column_bytes(w->rows);
    out->w = *w;
    out->w.data = j->data = bn_slab_alloc(&m->slab, out->bytes);
    if (!j->data) return bn_fail_nomem(err, out->bytes, "the copies of the feed-forward layers");
    bn_place_weights(m, j->pool, j->data, out->bytes, j->by_rows ? w->rows : 0, BN_PART_ROWS);
    bn_pool_run(j->pool, copy_worker, j);
    m->ffn_bytes += out->bytes;
    m->packed_bytes += out->bytes;
    return BITNET_OK;
}

/* The largest size of a scale; infinite if one is not a number. */
static float scale_max(const struct bn_packed *w)
{
    float most = 0;
    for (size_t r = 0; r < w->rows; r++) {
        float s = fabsf(bn_row_scale(w, r));
        if (!(s <= FLT_MAX)) return INFINITY;
        if (s > most) most = s;
    }
    return most;
}

/* In "b1" the whole matrix takes half as much as a copy. */
static bool allowed(const struct bn_matrix *w)
{
    return !w->dense && w->packed.scale_kind != BN_SCALE_BLOCK && !w->gemm->binary;
}

/* From the caches a whole matrix is read as fast as it can be multiplied, and lists only cost; and
 * the plain C versions of the list kernels lose to vector kernels for whole matrices. */
static bool worth_it(const struct bn_model *m)
{
    uint64_t bytes = m->packed_bytes - m->ffn_bytes - m->head_copy_bytes;
    return bytes >= BN_FFN_AUTO_BYTES && m->kernels.rows_r2 != bn_rows_r2_c &&
           m->kernels.cols_c2 != bn_cols_c2_c;
}

static bitnet_status make(struct bn_model *m, struct job *j, bitnet_error *err)
{
    for (uint32_t i = 0; i < m->config.n_layer; i++) {
        struct bn_layer *layer = &m->layers[i];
        const struct bn_matrix *up = &layer->proj[BN_P_UP - BN_P_Q];
        const struct bn_matrix *down = &layer->proj[BN_P_DOWN - BN_P_Q];
        j->by_rows = true;
        j->from = up;
        layer->up_scale_max = allowed(up) ? scale_max(&up->packed) : INFINITY;
        if (layer->up_scale_max <= FLT_MAX) BN_TRY(copy(m, &layer->up_rows, j, err));
        j->by_rows = false;
        j->from = down;
        if (allowed(down)) BN_TRY(copy(m, &layer->down_cols, j, err));
    }
    return BITNET_OK;
}

bool bn_ffn_copy_wanted(const struct bn_model *m, enum bn_ffn_mode mode)
{
    return mode != BN_FFN_DENSE && (mode != BN_FFN_AUTO || worth_it(m)) &&
           m->config.act == BN_ACT_RELU2 && m->activations == BN_AQ_INT8;
}

/* Rows of a group of any matrix that is copied. */
static size_t largest_group(const struct bn_model *m)
{
    size_t most = 0;
    for (uint32_t i = 0; i < m->config.n_layer; i++) {
        const struct bn_matrix *proj = m->layers[i].proj;
        most = bn_max_size(most, proj[BN_P_UP - BN_P_Q].gemm->group_rows);
        most = bn_max_size(most, proj[BN_P_DOWN - BN_P_Q].gemm->group_rows);
    }
    return most;
}

bitnet_status bn_ffn_copy_make(struct bn_model *m, struct bn_pool *pool, enum bn_ffn_mode mode,
                               bitnet_error *err)
{
    const struct bn_config *c = &m->config;
    if (m->ffn_bytes || !bn_ffn_copy_wanted(m, mode)) return BITNET_OK;
    size_t group = largest_group(m), threads = bn_pool_threads(pool);
    struct job j = {.pool = pool,
                    .room = (BN_PART_ROWS + 2 * group) * bn_max_size(c->n_embd, c->n_ff)};
    j.trits = bn_calloc(threads, j.room);
    if (!j.trits) return bn_fail_nomem(err, threads * j.room, "the copies of the layers");
    bitnet_status s = make(m, &j, err);
    free(j.trits);
    return s;
}
