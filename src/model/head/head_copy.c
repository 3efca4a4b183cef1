/* SPDX-License-Identifier: Apache-2.0
 *
 * The copy of the head that screening reads, with twice 2 bits a weight, or the one that stands in
 * the head's place, with 8; made once at open by all threads. The file's pages are let go on the
 * way: afterwards only rows that are really wanted are read there. */
#include "model/head/head.h"

#include "base/os/mem.h"
#include "model/head/head_codes.h"
#include "model/head/head_vector.h"
#include <stdatomic.h>
#include <stdlib.h>

enum {
    ROWS = BN_SCREEN2_ROWS, /* of a group */
    RELEASE_ROWS = 1024,    /* rows read between two releases of the file's pages */
    AUTO_BITS = 4           /* "auto" copies heads of at least so many bits a weight */
};

static const char *const names[] = {"auto", "exact", "screened", "int8", "plan"};

const char *bn_head_mode_name(enum bn_head_mode mode) { return names[mode]; }

bitnet_status bn_head_mode_parse(enum bn_head_mode *out, const char *name, bitnet_error *err)
{
    *out = BN_HEAD_AUTO;
    for (size_t i = 0; name && i < BN_ARRAY_LEN(names); i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum bn_head_mode)i;
            return BITNET_OK;
        }
    if (!name) return BITNET_OK;
    return bn_fail(err, BITNET_E_ARG,
                   "head '%s' is unknown; auto, exact, screened, int8 and plan exist", name);
}

/* What a worker has for a group. */
struct desk {
    float *rows, *scratch; /* [ROWS][padded] */
    uint8_t *coarse;       /* [ROWS][padded] */
    uint8_t *u;            /* [ROWS][blocks] */
    int8_t *fine;          /* [padded] */
    double *matrix;        /* [BN_ROTATE_BLOCK][BN_ROTATE_BLOCK] */
};

struct job {
    struct bn_model *m;
    struct bn_pool *pool;
    const struct bn_tensor *tensor;
    struct desk *desks; /* [threads] */
    bool int8;
    atomic_bool bad;
};

_Static_assert(ROWS % BN_DENSE8_ROWS == 0, "both copies are made in the same groups");

static size_t padded(size_t cols) { return bn_align_up(cols, BN_K_ALIGN); }

static void release(const struct job *j, size_t from, size_t to)
{
    if (bn_model_keeps_pages(j->m)) return;
    struct bn_tensor part = *j->tensor;
    uint64_t row_bytes = j->m->head.stored.bytes / j->m->head.stored.rows;
    part.data = j->m->head.stored.data + from * row_bytes;
    part.bytes = (to - from) * row_bytes;
    bn_source_release(&j->m->source, &part);
}

/* ------------------------------------------------------------------ the copies' parts */

void bn_screen_lay_out(struct bn_screen *s, struct bn_plan *p, size_t rows, size_t cols,
                       size_t ahead)
{
    size_t wide = padded(cols), groups = bn_div_up(rows, ROWS);
    s->coarse = (struct bn_screen2){bn_plan_piece(p, groups, bn_screen2_group_bytes(wide)), rows,
                                    wide, ahead};
    s->fine = (struct bn_packed){.data = bn_plan_piece(p, rows, bn_r2_row_bytes(wide)),
                                 .rows = rows,
                                 .cols = wide,
                                 .scale = 1};
    s->scale = bn_plan_piece(p, rows, sizeof *s->scale);
    s->noise = bn_plan_piece(p, rows, sizeof *s->noise);
    s->fine_scale = bn_plan_piece(p, rows, sizeof *s->fine_scale);
    s->fine_noise = bn_plan_piece(p, rows, sizeof *s->fine_noise);
    s->rotation =
        (struct bn_rotation){cols, bn_rotation_blocks(cols), bn_plan_piece(p, cols, sizeof(float)),
                             bn_plan_piece(p, bn_rotation_matrix_floats(cols), sizeof(float))};
    s->dither = bn_plan_piece(p, wide, sizeof *s->dither);
}

void bn_dense8_lay_out(struct bn_dense8 *w, struct bn_plan *p, size_t rows, size_t cols,
                       size_t ahead)
{
    size_t groups = bn_div_up(rows, BN_DENSE8_ROWS);
    *w = (struct bn_dense8){bn_plan_piece(p, groups, bn_dense8_group_bytes(cols)), rows, cols,
                            bn_plan_piece(p, rows, sizeof *w->scale), ahead};
}

static void lay_out(struct job *j, struct bn_plan *p)
{
    struct bn_model *m = j->m;
    size_t rows = m->head.stored.rows, cols = m->head.stored.cols;
    if (j->int8) bn_dense8_lay_out(&m->head_int8, p, rows, cols, m->prefetch_bytes);
    else bn_screen_lay_out(&m->screen, p, rows, cols, m->prefetch_bytes);
}

static void lay_out_desk(struct desk *d, struct bn_plan *p, size_t cols)
{
    size_t wide = padded(cols);
    d->rows = bn_plan_piece(p, ROWS * wide, sizeof *d->rows);
    d->scratch = bn_plan_piece(p, ROWS * wide, sizeof *d->scratch);
    d->coarse = bn_plan_piece(p, ROWS * wide, 1);
    d->u = bn_plan_piece(p, ROWS * bn_rotation_blocks(cols), 1);
    d->fine = bn_plan_piece(p, wide, 1);
    d->matrix = bn_plan_piece(p, BN_ROTATE_BLOCK * BN_ROTATE_BLOCK, sizeof *d->matrix);
}

/* ------------------------------------------------------------------ making them */

/* Rows r .. r + n - 1, which the desk holds. */
static void pack_int8(const struct job *j, const struct desk *d, size_t r, size_t n)
{
    const struct bn_dense8 *w = &j->m->head_int8;
    for (size_t i = 0; i < n; i += BN_DENSE8_ROWS)
        bn_dense8_pack((int8_t *)w->data +
                           (r + i) / BN_DENSE8_ROWS * bn_dense8_group_bytes(w->cols),
                       (float *)w->scale + r + i, d->rows + i * w->cols,
                       bn_min_size(BN_DENSE8_ROWS, n - i), w->cols);
}

static void put_row(const struct bn_screen *s, size_t r, struct bn_code_row row)
{
    ((float *)s->scale)[r] = row.scale;
    ((float *)s->noise)[r] = row.noise;
    ((float *)s->fine_scale)[r] = row.fine_scale;
    ((float *)s->fine_noise)[r] = row.fine_noise;
}

static void pack_screen(struct job *j, const struct desk *d, size_t r, size_t n)
{
    const struct bn_screen *s = &j->m->screen;
    size_t wide = s->coarse.cols, blocks = s->rotation.blocks;
    bn_rotate(&s->rotation, &j->m->kernels, d->rows, d->scratch, n);
    for (size_t i = 0; i < n; i++) {
        struct bn_code_row row;
        if (!bn_head_codes(&row, d->coarse + i * wide, d->u + i * blocks, d->fine,
                           d->rows + i * wide, s->rotation.cols)) {
            atomic_store(&j->bad, true);
            return;
        }
        put_row(s, r + i, row);
        bn_r2_pack((uint8_t *)s->fine.data + (r + i) * bn_r2_row_bytes(wide), d->fine, wide);
    }
    bn_screen2_pack((uint8_t *)s->coarse.data + r / ROWS * bn_screen2_group_bytes(wide), d->coarse,
                    d->u, n, wide);
}

/* What rows need of a screening copy before they can be made. */
static void draw_worker(void *arg, uint32_t worker)
{
    struct job *j = arg;
    const struct bn_screen *s = &j->m->screen;
    struct bn_range share = bn_pool_share(j->pool, worker, s->rotation.blocks, 1);
    for (size_t b = share.begin; b < share.end; b++)
        bn_rotation_draw_matrix((float *)s->rotation.matrix, s->rotation.cols, b,
                                j->desks[worker].matrix);
    if (worker) return;
    bn_rotation_draw_signs((float *)s->rotation.sign, s->rotation.cols);
    bn_head_draw_dither((float *)s->dither, s->coarse.cols);
}

static void copy_worker(void *arg, uint32_t worker)
{
    struct job *j = arg;
    const struct bn_stored *s = &j->m->head.stored;
    const struct desk *d = &j->desks[worker];
    size_t stride = j->int8 ? s->cols : padded(s->cols);
    struct bn_range share = bn_pool_share(j->pool, worker, s->rows, ROWS);
    size_t released = share.begin;
    for (size_t r = share.begin; r < share.end; r += ROWS) {
        size_t n = bn_min_size(ROWS, share.end - r);
        for (size_t i = 0; i < n; i++) {
            float *to = d->rows + i * stride;
            bn_stored_row(&j->m->kernels, to, s, r + i);
            memset(to + s->cols, 0, (stride - s->cols) * sizeof *to);
        }
        if (j->int8) pack_int8(j, d, r, n);
        else pack_screen(j, d, r, n);
        if (r + n - released < RELEASE_ROWS && r + n < share.end) continue;
        release(j, released, r + n);
        released = r + n;
    }
}

/* Screening reads about 2.5 bits a weight, without widening them to floats. The head's pages are let
 * go, so that the copy costs no memory for a head of four bits. */
static bool worth_it(const struct bn_model *m)
{
    const struct bn_stored *s = &m->head.stored;
    return m->config.n_vocab >= BN_HEAD_AUTO_ROWS && s->cols <= BN_SCREEN2_COLS_MAX &&
           s->bytes / s->rows * 8 >= s->cols * AUTO_BITS;
}

static bitnet_status take_memory(struct job *j, bitnet_error *err)
{
    struct bn_model *m = j->m;
    struct bn_plan p = {0};
    void *block;
    lay_out(j, &p);
    size_t bytes = p.used;
    BN_TRY(bn_block_take(&block, &bytes, &m->backing, "the copy of the head", err));
    p = (struct bn_plan){.base = block};
    lay_out(j, &p);
    m->head_copy_bytes = bytes;
    m->packed_bytes += bytes;
    return BITNET_OK;
}

void bn_head_copy_place(const struct bn_model *m, const struct bn_pool *pool)
{
    const struct bn_screen *s = &m->screen;
    size_t rows = m->head.stored.rows, wide = padded(m->head.stored.cols);
    if (m->head_copy_bytes < BN_HUGE_PAGE) return;
    if (m->head_int8.data) {
        bn_place_weights(m, pool, (void *)m->head_int8.data,
                         bn_div_up(rows, BN_DENSE8_ROWS) *
                             bn_dense8_group_bytes(m->head.stored.cols),
                         rows, BN_DENSE8_ROWS);
        return;
    }
    bn_place_weights(m, pool, (void *)s->coarse.data,
                     bn_div_up(rows, ROWS) * bn_screen2_group_bytes(wide), rows, ROWS);
    bn_place_weights(m, pool, (void *)s->fine.data, rows * bn_r2_row_bytes(wide), rows, ROWS);
}

static bitnet_status make(struct job *j, bitnet_error *err)
{
    size_t threads = bn_pool_threads(j->pool), cols = j->m->head.stored.cols;
    struct bn_plan p = {0};
    j->desks = bn_calloc(threads, sizeof *j->desks);
    if (!j->desks) return bn_fail_nomem(err, threads * sizeof *j->desks, "the copy of the head");
    for (size_t i = 0; i < threads; i++) lay_out_desk(&j->desks[i], &p, cols);
    size_t bytes = p.used;
    void *scratch = bn_block_alloc(bytes);
    if (!scratch) return bn_fail_nomem(err, bytes, "the making of the head's copy");
    p = (struct bn_plan){.base = scratch};
    for (size_t i = 0; i < threads; i++) lay_out_desk(&j->desks[i], &p, cols);
    bitnet_status s = take_memory(j, err);
    if (s == BITNET_OK) {
        bn_head_copy_place(j->m, j->pool);
        if (!j->int8) bn_pool_run(j->pool, draw_worker, j);
        bn_pool_run(j->pool, copy_worker, j);
    }
    bn_block_free(scratch, bytes);
    return s;
}

enum bn_head_mode bn_head_copy_wanted(const struct bn_model *m, enum bn_head_mode mode)
{
    if (!m->head.dense) return BN_HEAD_EXACT;
    if (mode != BN_HEAD_AUTO) return mode;
    return worth_it(m) ? BN_HEAD_SCREENED : BN_HEAD_EXACT;
}

bitnet_status bn_head_copy_make(struct bn_model *m, struct bn_pool *pool, enum bn_head_mode mode,
                                bitnet_error *err)
{
    const struct bn_stored *s = &m->head.stored;
    if (!m->head.dense && (mode == BN_HEAD_SCREENED || mode == BN_HEAD_INT8))
        return bn_fail(
            err, BITNET_E_UNSUPPORTED,
            "head '%s' needs a head of floats; this one is ternary and computed as it is "
            "('exact')",
            bn_head_mode_name(mode));
    if (bn_head_copy_wanted(m, mode) == BN_HEAD_EXACT || m->head_copy_bytes) return BITNET_OK;
    if (mode != BN_HEAD_INT8 && s->cols > BN_SCREEN2_COLS_MAX)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "a screened head has at most %d columns; this one has %llu",
                       BN_SCREEN2_COLS_MAX, (unsigned long long)s->cols);
    struct job j = {.m = m,
                    .pool = pool,
                    .int8 = mode == BN_HEAD_INT8,
                    .tensor =
                        bn_part_find(&m->source, m->config.tied_head ? BN_P_EMBED : BN_P_HEAD, 0)};
    bitnet_status status = make(&j, err);
    free(j.desks);
    /* damaged weights: the full pass finds them and says so */
    if (status == BITNET_OK && atomic_load(&j.bad)) {
        m->packed_bytes -= m->head_copy_bytes;
        bn_head_copy_free(m);
    }
    return status;
}

const void *bn_head_copy_data(const struct bn_screen *s, const struct bn_dense8 *int8)
{
    return s->coarse.data ? (const void *)s->coarse.data : int8->data;
}

uint64_t bn_head_coarse_bytes(const struct bn_model *m)
{
    const struct bn_screen *s = &m->screen;
    if (!s->coarse.data) return 0;
    size_t groups = bn_div_up(s->coarse.rows, ROWS);
    size_t floats = 2 * s->coarse.rows + bn_rotation_matrix_floats(s->rotation.cols);
    return groups * bn_screen2_group_bytes(s->coarse.cols) + floats * sizeof(float);
}

void bn_head_copy_free(struct bn_model *m)
{
    if (!m->image.head_copy)
        bn_block_free((void *)bn_head_copy_data(&m->screen, &m->head_int8), m->head_copy_bytes);
    m->image.head_copy = false;
    m->screen = (struct bn_screen){0};
    m->head_int8 = (struct bn_dense8){0};
    m->head_copy_bytes = 0;
}
