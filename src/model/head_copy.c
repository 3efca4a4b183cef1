/* SPDX-License-Identifier: Apache-2.0
 *
 * The 4-bit copy of the head that screening reads, made once at open by all threads. The file's
 * pages are let go on the way: afterwards only rows that are really wanted are read there. */
#include "model/head.h"

#include "base/mem.h"
#include "base/rng.h"
#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
    RELEASE_ROWS = 1024, /* rows read between two releases of the file's pages */
    AUTO_BITS = 6        /* "auto" copies heads of at least so many bits a weight */
};

/* Any fixed number: the error bound holds for a dither that was drawn without looking at the
 * weights. */
static const uint64_t dither_seed = 0x5eed0f4b17d17e52u;

bitnet_status bn_head_mode_parse(enum bn_head_mode *out, const char *name, bitnet_error *err)
{
    static const char *const names[] = {"auto", "exact", "screened"};
    *out = BN_HEAD_AUTO;
    for (size_t i = 0; name && i < BN_ARRAY_LEN(names); i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum bn_head_mode)i;
            return BITNET_OK;
        }
    if (!name) return BITNET_OK;
    return bn_fail(err, BITNET_E_ARG, "head '%s' is unknown; auto, exact and screened exist", name);
}

struct job {
    struct bn_model *m;
    struct bn_pool *pool;
    const struct bn_tensor *tensor;
    uint8_t *data;
    float *step, *mass, *u, *rows; /* rows: [threads][BN_SCREEN_ROWS][cols] */
    atomic_bool bad;
};

static bool finite_row(const float *x, size_t n)
{
    bool good = true;
    for (size_t i = 0; i < n; i++) good &= fabsf(x[i]) <= FLT_MAX;
    return good;
}

static void release(const struct job *j, size_t from, size_t to)
{
    struct bn_tensor part = *j->tensor;
    uint64_t row_bytes = part.bytes / j->m->screen.rows;
    part.data += from * row_bytes;
    part.bytes = (to - from) * row_bytes;
    bn_source_release(&j->m->source, &part);
}

static void copy_worker(void *arg, uint32_t worker)
{
    struct job *j = arg;
    const struct bn_stored *s = &j->m->head.stored;
    size_t cols = s->cols, bytes = bn_screen4_group_bytes(cols);
    float *x = j->rows + worker * BN_SCREEN_ROWS * cols;
    struct bn_range share = bn_pool_share(j->pool, worker, s->rows, BN_SCREEN_ROWS);
    size_t released = share.begin;
    for (size_t r = share.begin; r < share.end; r += BN_SCREEN_ROWS) {
        size_t n = bn_min_size(BN_SCREEN_ROWS, share.end - r);
        for (size_t i = 0; i < n; i++) bn_stored_row(&j->m->kernels, x + i * cols, s, r + i);
        if (finite_row(x, n * cols))
            bn_screen4_pack(j->data + r / BN_SCREEN_ROWS * bytes, j->step + r, j->mass + r, x, n,
                            cols, j->u);
        else atomic_store(&j->bad, true);
        if (r + n - released < RELEASE_ROWS && r + n < share.end) continue;
        release(j, released, r + n);
        released = r + n;
    }
}

/* Screening reads 4 bits a weight: a head that is not much larger gains nothing. */
static bool worth_it(const struct bn_stored *s)
{
    return s->rows >= BN_HEAD_AUTO_ROWS && s->cols <= BN_SCREEN_COLS_MAX &&
           s->bytes / s->rows * 8 >= s->cols * AUTO_BITS;
}

static bitnet_status make(struct job *j, bitnet_error *err)
{
    struct bn_model *m = j->m;
    uint64_t rows = m->head.stored.rows, cols = m->head.stored.cols;
    size_t codes = bn_div_up(rows, BN_SCREEN_ROWS) * bn_screen4_group_bytes(cols);
    size_t bytes = codes + 2 * rows * sizeof(float);
    j->u = bn_arena_alloc(&m->arena, cols * sizeof *j->u);
    j->rows = bn_calloc(bn_pool_threads(j->pool) * BN_SCREEN_ROWS * cols, sizeof *j->rows);
    j->data = bn_block_alloc(bytes);
    if (j->data) {
        m->screen_bytes = bytes;
        m->screen.data = j->data;
    }
    if (!j->u || !j->rows || !j->data) return bn_fail_nomem(err, bytes, "the head's 4-bit copy");
    j->step = (float *)(void *)(j->data + codes);
    j->mass = j->step + rows;
    struct bn_rng rng = {dither_seed};
    for (uint64_t i = 0; i < cols; i++)
        j->u[i] = (float)(2 * (int32_t)bn_rng_below(&rng, 1 << 16) + 1 - (1 << 16)) * 0x1p-17f;
    m->screen.rows = rows;
    m->screen.cols = cols;
    m->screen.step = j->step;
    m->screen.mass = j->mass;
    m->screen_dither = j->u;
    bn_pool_run(j->pool, copy_worker, j);
    for (uint64_t r = 0; r < rows; r++)
        if (j->step[r] > m->screen_step_max) m->screen_step_max = j->step[r];
    m->packed_bytes += bytes;
    return BITNET_OK;
}

bitnet_status bn_head_copy_make(struct bn_model *m, struct bn_pool *pool, enum bn_head_mode mode,
                                bitnet_error *err)
{
    const struct bn_stored *s = &m->head.stored;
    if (mode == BN_HEAD_EXACT || (mode == BN_HEAD_AUTO && !worth_it(s))) return BITNET_OK;
    if (s->cols > BN_SCREEN_COLS_MAX)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "a screened head has at most %d columns; this one has %llu",
                       BN_SCREEN_COLS_MAX, (unsigned long long)s->cols);
    struct job j = {.m = m,
                    .pool = pool,
                    .tensor =
                        bn_part_find(&m->source, m->config.tied_head ? BN_P_EMBED : BN_P_HEAD, 0)};
    bitnet_status status = make(&j, err);
    free(j.rows);
    /* damaged weights: the full pass finds them and says so */
    if (status == BITNET_OK && atomic_load(&j.bad)) {
        m->packed_bytes -= m->screen_bytes;
        bn_head_copy_free(m);
    }
    return status;
}

void bn_head_copy_free(struct bn_model *m)
{
    bn_block_free((void *)m->screen.data, m->screen_bytes);
    m->screen = (struct bn_screen){0};
    m->screen_bytes = 0;
}
