/* SPDX-License-Identifier: Apache-2.0
 *
 * The copy of the head that screening reads, with 4 bits a weight, or the one that stands in its
 * place, with 8; made once at open by all threads. The file's pages are let go on the way:
 * afterwards only rows that are really wanted are read there. */
#include "model/head.h"

#include "base/mem.h"
#include "base/rng.h"
#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
    ROWS = BN_SCREEN_ROWS, /* of a group */
    RELEASE_ROWS = 1024,   /* rows read between two releases of the file's pages */
    AUTO_BITS = 4          /* "auto" copies heads of at least so many bits a weight */
};

/* Any fixed number: the error bound holds for a dither that was drawn without looking at the
 * weights. */
static const uint64_t dither_seed = 0x5eed0f4b17d17e52u;

static const char *const names[] = {"auto", "exact", "screened", "int8"}; /* of enum bn_head_mode */

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
    return bn_fail(err, BITNET_E_ARG, "head '%s' is unknown; auto, exact, screened and int8 exist",
                   name);
}

struct job {
    struct bn_model *m;
    struct bn_pool *pool;
    const struct bn_tensor *tensor;
    bool int8;
    uint8_t *data;
    float *step, *norm, *shift; /* step: of a screening copy, or the scale of an int8 row */
    float *dither;              /* [2][cols] */
    float *rows;                /* [threads][ROWS][cols] */
    atomic_bool bad;
};

_Static_assert(BN_DENSE8_ROWS == BN_SCREEN_ROWS, "both copies are made in the same groups");

static bool finite_row(const float *x, size_t n)
{
    bool good = true;
    for (size_t i = 0; i < n; i++) good &= fabsf(x[i]) <= FLT_MAX;
    return good;
}

static void release(const struct job *j, size_t from, size_t to)
{
    if (bn_model_keeps_pages(j->m)) return;
    struct bn_tensor part = *j->tensor;
    uint64_t row_bytes = part.bytes / j->m->head.stored.rows;
    part.data += from * row_bytes;
    part.bytes = (to - from) * row_bytes;
    bn_source_release(&j->m->source, &part);
}

static size_t group_bytes(const struct job *j)
{
    size_t cols = j->m->head.stored.cols;
    return j->int8 ? bn_dense8_group_bytes(cols) : bn_screen4_group_bytes(cols);
}

static void pack_screen(struct job *j, uint8_t *to, size_t r, const float *x, size_t n)
{
    size_t cols = j->m->head.stored.cols;
    struct bn_screen_row row[ROWS];
    bn_screen4_pack(to, row, x, n, cols, j->dither, j->dither + cols);
    for (size_t i = 0; i < n; i++) {
        j->step[r + i] = row[i].step;
        j->norm[r + i] = row[i].norm;
        j->shift[r + i] = row[i].shift;
    }
}

/* Rows r .. r+n-1, x[n][cols]. */
static void pack_group(struct job *j, size_t r, const float *x, size_t n)
{
    size_t cols = j->m->head.stored.cols;
    uint8_t *to = j->data + r / ROWS * group_bytes(j);
    if (j->int8) bn_dense8_pack((int8_t *)to, j->step + r, x, n, cols);
    else if (finite_row(x, n * cols)) pack_screen(j, to, r, x, n);
    else atomic_store(&j->bad, true);
}

static void copy_worker(void *arg, uint32_t worker)
{
    struct job *j = arg;
    const struct bn_stored *s = &j->m->head.stored;
    size_t cols = s->cols;
    float *x = j->rows + worker * ROWS * cols;
    struct bn_range share = bn_pool_share(j->pool, worker, s->rows, ROWS);
    size_t released = share.begin;
    for (size_t r = share.begin; r < share.end; r += ROWS) {
        size_t n = bn_min_size(ROWS, share.end - r);
        for (size_t i = 0; i < n; i++) bn_stored_row(&j->m->kernels, x + i * cols, s, r + i);
        pack_group(j, r, x, n);
        if (r + n - released < RELEASE_ROWS && r + n < share.end) continue;
        release(j, released, r + n);
        released = r + n;
    }
}

/* Screening reads 4 bits a weight. A head of four bits has no fewer, but must widen all of them to
 * floats; its pages are let go, so that the copy costs no memory. */
static bool worth_it(const struct bn_stored *s)
{
    return s->rows >= BN_HEAD_AUTO_ROWS && s->cols <= BN_SCREEN_COLS_MAX &&
           s->bytes / s->rows * 8 >= s->cols * AUTO_BITS;
}

/* The numbers of all columns that a screening copy needs before its rows. */
static bitnet_status draw_dither(struct job *j, bitnet_error *err)
{
    struct bn_model *m = j->m;
    size_t cols = m->head.stored.cols;
    struct bn_rng rng = {dither_seed};
    j->dither = bn_slab_alloc(&m->slab, 2 * cols * sizeof *j->dither);
    if (!j->dither)
        return bn_fail_nomem(err, 2 * cols * sizeof *j->dither, "the head's 4-bit copy");
    for (size_t i = 0; i < 2 * cols; i++)
        j->dither[i] = (float)(2 * (int32_t)bn_rng_below(&rng, 1 << 16) + 1 - (1 << 16)) * 0x1p-17f;
    m->screen_dither = j->dither;
    return BITNET_OK;
}

static bitnet_status make(struct job *j, bitnet_error *err)
{
    struct bn_model *m = j->m;
    uint64_t rows = m->head.stored.rows, cols = m->head.stored.cols;
    size_t codes = bn_div_up(rows, ROWS) * group_bytes(j);
    size_t bytes = codes + (j->int8 ? 1 : 3) * rows * sizeof(float);
    if (!j->int8) BN_TRY(draw_dither(j, err));
    j->rows = bn_calloc(bn_pool_threads(j->pool) * ROWS * cols, sizeof *j->rows);
    if (!j->rows) return bn_fail_nomem(err, bytes, "the copy of the head");
    BN_TRY(bn_block_take((void **)&j->data, &bytes, &m->backing, "the copy of the head", err));
    m->head_copy_bytes = bytes;
    if (j->int8) m->head_int8.data = (int8_t *)j->data;
    else m->screen.data = j->data;
    if (bytes >= BN_HUGE_PAGE) bn_place_weights(m, j->pool, j->data, codes, rows, ROWS);
    j->step = (float *)(void *)(j->data + codes);
    j->norm = j->step + rows;
    j->shift = j->norm + rows;
    bn_pool_run(j->pool, copy_worker, j);
    m->packed_bytes += bytes;
    if (j->int8) {
        m->head_int8 =
            (struct bn_dense8){m->head_int8.data, rows, cols, j->step, m->prefetch_bytes};
        return BITNET_OK;
    }
    m->screen =
        (struct bn_screen){j->data, rows, cols, j->step, j->norm, j->shift, m->prefetch_bytes};
    for (uint64_t r = 0; r < rows; r++) {
        if (j->step[r] > m->screen_step_max) m->screen_step_max = j->step[r];
        if (j->norm[r] > m->screen_norm_max) m->screen_norm_max = j->norm[r];
    }
    return BITNET_OK;
}

bitnet_status bn_head_copy_make(struct bn_model *m, struct bn_pool *pool, enum bn_head_mode mode,
                                bitnet_error *err)
{
    const struct bn_stored *s = &m->head.stored;
    if (mode == BN_HEAD_EXACT || (mode == BN_HEAD_AUTO && !worth_it(s))) return BITNET_OK;
    if (mode != BN_HEAD_INT8 && s->cols > BN_SCREEN_COLS_MAX)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "a screened head has at most %d columns; this one has %llu",
                       BN_SCREEN_COLS_MAX, (unsigned long long)s->cols);
    struct job j = {.m = m,
                    .pool = pool,
                    .int8 = mode == BN_HEAD_INT8,
                    .tensor =
                        bn_part_find(&m->source, m->config.tied_head ? BN_P_EMBED : BN_P_HEAD, 0)};
    bitnet_status status = make(&j, err);
    free(j.rows);
    /* damaged weights: the full pass finds them and says so */
    if (status == BITNET_OK && atomic_load(&j.bad)) {
        m->packed_bytes -= m->head_copy_bytes;
        bn_head_copy_free(m);
    }
    return status;
}

void bn_head_copy_free(struct bn_model *m)
{
    const void *data = m->screen.data ? (const void *)m->screen.data : m->head_int8.data;
    bn_block_free((void *)data, m->head_copy_bytes);
    m->screen = (struct bn_screen){0};
    m->head_int8 = (struct bn_dense8){0};
    m->head_copy_bytes = 0;
}
