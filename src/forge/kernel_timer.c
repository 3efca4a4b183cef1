/* SPDX-License-Identifier: Apache-2.0
 * How fast the kernels are: every operation of kernels.def in every variant that this CPU can run,
 * on the sizes that a model needs, by one thread. The cases are planned at open and share their
 * operands; each can then be timed as often as wanted.
 *
 * A case in the cache takes the same operands again and again; one from memory takes the next piece
 * of a ring that is larger than the caches. */
#include "forge/kernel_timer_impl.h"

#include "base/threads/bandwidth.h"
#include "base/clock.h"
#include "base/os/mem.h"
#include "base/rng.h"
#include "forge/forge.h"
#include <stdlib.h>

enum {
    SAMPLES = 5,
    SAMPLE_NS = 300000, /* of as many calls as fit */
    ENOUGH_NS = 4000000 /* of a slow case one sample is enough */
};

/* ------------------------------------------------------------------ operands */

/* What the weights of a case take in memory; one that lists some of them reads fewer. */
static size_t weights_bytes(const struct task *k)
{
    if (k->op == OP_rows_r2) return k->s.rows * bn_r2_row_bytes(k->s.cols);
    if (k->op == OP_cols_c2) return k->s.cols * bn_c2_column_bytes(k->s.rows);
    if (!k->s.memory) return (size_t)k->bytes;
    return (size_t)(k->bytes * (double)k->s.rows / (double)k->full_rows);
}

static void count_operands(struct bitnet_kernel_timer *t)
{
    const struct bn_config *c = t->c;
    size_t wide = bn_q8_stride(bn_max_size(c->n_ff, c->n_embd));
    wide = bn_max_size(wide, bn_q8_stride((size_t)c->n_head * c->head_dim));
    size_t kv = (size_t)BN_ATTN_BLOCK * c->n_head_kv * c->head_dim;
    t->n_x =
        bn_max_size(bn_max_size(BN_TIMER_TOKENS * wide, kv), wide * wide / BN_TIMER_SCALE_BLOCK);
    t->n_x = bn_max_size(t->n_x, BN_TIMER_TOKENS * bn_q8_stride(BN_TIMER_CHANNELS));
    t->n_y = bn_max_size(BN_TIMER_TOKENS * wide, 4 * BN_TIMER_HEAD_ROWS);
    t->n_y = bn_max_size(t->n_y, BN_TIMER_TOKENS * bn_q8_stride(BN_TIMER_CHANNELS));
    size_t weights = 0;
    bool memory = false;
    for (size_t i = 0; i < t->n_tasks; i++) {
        const struct task *k = &t->tasks[i];
        if (k->v->gemm && (k->v->gemm->mul_i8_many || k->v->gemm->mul_planes_many))
            t->n_scratch = bn_max_size(t->n_scratch, k->v->gemm->many_bytes(k->s.rows, k->s.cols));
        if (k->op == OP_delta) {
            t->states_bytes = bn_beyond_caches_bytes();
            continue;
        }
        weights = bn_max_size(weights, weights_bytes(k));
        memory = memory || k->s.memory;
    }
    t->n_scratch = bn_align_up(t->n_scratch + 1, 64);
    weights = bn_align_up(weights, 64);
    t->ring_bytes = memory ? bn_max_size(weights, bn_beyond_caches_bytes()) : weights;
}

/* Of every BN_TIMER_PARTS rows or columns each list has one, and no two the same: with another list
 * on every turn round the ring, what is read is always long out of the caches. */
static void fill_lists(struct bitnet_kernel_timer *t, struct bn_rng *r)
{
    size_t n = t->c->n_ff / BN_TIMER_PARTS;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < BN_TIMER_PARTS; k++) { /* a shuffle, from the inside out */
            size_t j = (size_t)bn_rng_below(r, (uint32_t)k + 1);
            t->lists[k * n + i] = t->lists[j * n + i];
            t->lists[j * n + i] = (uint32_t)(i * BN_TIMER_PARTS + k);
        }
}

static bitnet_status make_operands(struct bitnet_kernel_timer *t, bitnet_error *err)
{
    count_operands(t);
    t->x = bn_block_alloc(t->n_x * sizeof *t->x);
    t->ones = bn_block_alloc(t->n_x * sizeof *t->ones);
    t->y = bn_block_alloc(t->n_y * sizeof *t->y);
    t->half = bn_block_alloc(t->n_x * sizeof *t->half);
    t->q = bn_block_alloc(2 * t->n_x);
    t->row = bn_block_alloc(t->n_x);
    t->scratch = bn_block_alloc(t->n_scratch);
    t->weights = bn_block_alloc(t->ring_bytes);
    if (t->states_bytes) t->states = bn_block_alloc(t->states_bytes);
    t->lists = bn_calloc(t->c->n_ff, sizeof *t->lists);
    if (!t->x || !t->ones || !t->y || !t->half || !t->q || !t->row || !t->scratch || !t->weights ||
        !t->lists || (t->states_bytes && !t->states))
        return bn_fail_nomem(err, t->ring_bytes + t->states_bytes, "timing the kernels");
    struct bn_rng r = {1};
    for (size_t i = 0; i < t->n_x; i++) {
        t->x[i] = (float)(bn_rng_unit(&r) * 8 - 4);
        t->ones[i] = 1;
    }
    for (size_t i = 0; i < t->states_bytes / sizeof *t->states; i++)
        t->states[i] = t->x[i % t->n_x];
    fill_lists(t, &r);
    bn_f32_to_f16_c(t->half, t->x, t->n_x);
    for (size_t i = 0; i < t->ring_bytes / 8; i++) { /* two bits a weight: no +2, as in models */
        uint64_t bits = bn_rng_u64(&r);
        bits &= ~(bits >> 1 & 0x5555555555555555u);
        memcpy(t->weights + 8 * i, &bits, sizeof bits);
    }
    return BITNET_OK;
}

/* What a case needs beyond the common operands; its time does not count. */
static void begin(struct bitnet_kernel_timer *t, const struct task *k)
{
    if (bn_timer_row_type(k->op) != BN_TYPE_COUNT)
        bn_quant_row(t->row, bn_timer_row_type(k->op), t->x, k->s.cols);
    size_t stride = bn_q8_stride(k->s.cols);
    if (k->op == OP_screen2)
        for (size_t i = 0; i < 2 * stride; i++) t->q[i] = (int8_t)(i % 127 - 63);
    if (k->op == OP_rope)
        for (size_t i = 0; i < k->s.cols; i++) t->cs[i] = i < k->s.cols / 2 ? 1 : 0;
    for (size_t i = 0; k->s.planes && i < k->s.tok; i++)
        bn_quant_planes_c(t->q + k->s.planes * i * stride, stride, k->s.planes, t->y,
                          t->x + i * stride, k->s.cols);
    for (size_t i = 0; !k->s.planes && i < k->s.tok; i++)
        t->inv[i] = bn_quant_i8_c(t->q + i * stride, &t->sum[i], t->x + i * stride, k->s.cols);
    for (size_t i = 0; k->op == OP_delta && i < k->s.tok; i++) t->inv[i] = 0x1p-10f;
}

/* ------------------------------------------------------------------ calls */

/* The weights of the next call. */
static const uint8_t *next_weights(struct bitnet_kernel_timer *t, const struct task *k)
{
    if (!k->s.memory) return t->weights;
    size_t bytes = bn_align_up(weights_bytes(k), 64);
    if (t->ring_at + bytes > t->ring_bytes) {
        t->ring_at = 0;
        t->ring_turns++;
    }
    const uint8_t *at = t->weights + t->ring_at;
    t->ring_at += bytes;
    return at;
}

static void call_gemm(struct bitnet_kernel_timer *t, const struct task *k)
{
    const struct bn_gemm *g = k->v->gemm;
    const struct size *s = &k->s;
    size_t stride = bn_q8_stride(s->cols);
    struct bn_packed w = {.data = next_weights(t, k),
                          .rows = s->rows,
                          .cols = s->cols,
                          .scale_kind = s->block ? BN_SCALE_BLOCK : BN_SCALE_TENSOR,
                          .scale = 0.01f,
                          .block_scale = t->half,
                          .block = s->block,
                          .ahead = t->ahead};
    if (s->planes && s->memory && s->block) /* in the ring as well, behind the codes */
        w.block_scale =
            (const void *)(w.data + g->group_bytes(s->cols) * bn_div_up(s->rows, g->group_rows));
    const struct bn_gemm_args a = {.y = t->y,
                                   .y_stride = s->rows,
                                   .w = &w,
                                   .r1 = s->rows,
                                   .n_tok = s->tok,
                                   .scratch = t->scratch};
    const struct bn_planes planes = {t->q, s->planes, stride, s->planes * stride, t->ones, 0};
    const struct bn_q8 bytes = {t->q, stride, t->sum, t->inv};
    const bool many = s->tok >= g->many_from;
    if (s->planes) (many && g->mul_planes_many ? g->mul_planes_many : g->mul_planes)(&a, &planes);
    else if (s->f32) g->mul_f32(&a, t->x, stride);
    else (many && g->mul_i8_many && !s->block ? g->mul_i8_many : g->mul_i8)(&a, &bytes);
}

static void call_screen2(struct bitnet_kernel_timer *t, const struct task *k)
{
    struct bn_screen2 w = {next_weights(t, k), k->s.rows, k->s.cols, t->ahead};
    static const int32_t block_sum[BN_SCREEN2_COLS_MAX / BN_SCREEN2_BLOCK];
    struct bn_screen2_vector v = {t->q, block_sum};
    ((bn_screen2_fn *)k->v->fn)((int32_t *)(void *)t->y, BN_TIMER_HEAD_ROWS, &w, 0, k->s.rows, &v,
                                1);
}

static void call_dense8(struct bitnet_kernel_timer *t, const struct task *k)
{
    struct bn_dense8 w = {(const int8_t *)next_weights(t, k), k->s.rows, k->s.cols, t->ones,
                          t->ahead};
    struct bn_dense8_vector v = {(const int16_t *)t->q, 1e-4};
    ((bn_dense8_fn *)k->v->fn)(t->y, BN_TIMER_HEAD_ROWS, &w, 0, k->s.rows, &v, 1);
}

static void call_parts(struct bitnet_kernel_timer *t, const struct task *k)
{
    const struct size *s = &k->s;
    struct bn_packed w = {
        .data = next_weights(t, k), .rows = s->rows, .cols = s->cols, .scale = 0.01f};
    const uint32_t *list = t->lists + t->ring_turns % BN_TIMER_PARTS * s->listed;
    if (k->op == OP_rows_r2)
        ((bn_rows_r2_fn *)k->v->fn)(t->y, &w, list, s->listed, t->q, t->sum[0], t->inv[0]);
    else ((bn_cols_c2_fn *)k->v->fn)(t->y, &w, 0, s->rows, list, s->listed, t->q, t->inv[0]);
}

static void call_attention(struct bitnet_kernel_timer *t, const struct task *k)
{
    size_t n_q = k->s.rows, dim = k->s.cols, stride = (size_t)t->c->n_head_kv * dim;
    float *m = t->y + n_q * dim, *l = m + n_q;
    /* ones: their bytes are numbers in all of the narrower types */
    const void *kv = k->op == OP_attn_f16   ? (const void *)t->half
                     : k->op == OP_attn_f32 ? (const void *)t->x
                                            : (const void *)t->ones;
    const struct bn_attn_args a = {.o = t->y,
                                   .m = m,
                                   .l = l,
                                   .q = t->x,
                                   .n_q = n_q,
                                   .k = kv,
                                   .v = kv,
                                   .kv_stride = stride,
                                   .n = BN_ATTN_BLOCK,
                                   .dim = dim,
                                   .scale = 0.1f};
    ((bn_attn_rows_fn *)k->v->fn)(&a);
}

/* Halves serve as blocks and as queries: the time does not depend on what is there. */
static void call_attn_codes(struct bitnet_kernel_timer *t, const struct task *k)
{
    size_t n_q = k->s.rows, dim = k->s.cols;
    float *m = t->y + n_q * dim, *l = m + n_q;
    const uint8_t *block = (const uint8_t *)t->half;
    unsigned bits = (unsigned)k->s.block;
    ((bn_attn_codes_fn *)k->v->fn)(
        &(struct bn_attn_codes){t->y, m, l, t->x, (const int16_t *)t->half, t->ones, n_q, block,
                                block, bits, bits, BN_ATTN_BLOCK, dim, 0.1f, NULL, NULL});
}

static void call_conv(struct bitnet_kernel_timer *t, const struct task *k)
{
    struct bn_conv_args a = {.x = t->y,
                             .x_stride = k->s.cols,
                             .n = k->s.tok,
                             .before = t->x,
                             .before_stride = k->s.cols,
                             .w = t->ones,
                             .w_stride = k->s.cols,
                             .n_channels = k->s.cols,
                             .taps = BN_TIMER_TAPS};
    ((bn_conv_silu_fn *)k->v->fn)(&a);
}

/* Tokens lie as far apart as in a model. With a decay of 1 and gates this small the state stays in
 * range, and no number of it fades away. */
static void call_delta(struct bitnet_kernel_timer *t, const struct task *k)
{
    size_t bytes = k->s.rows * k->s.cols * sizeof *t->states;
    if (!k->s.memory || t->states_at + bytes > t->states_bytes) t->states_at = 0;
    struct bn_delta_args a = {.s = t->states + t->states_at / sizeof *t->states,
                              .k_dim = k->s.rows,
                              .v_dim = k->s.cols,
                              .q = t->x,
                              .k = t->x + k->s.rows,
                              .v = t->x + 2 * k->s.rows,
                              .decay = t->ones,
                              .beta = t->inv,
                              .o = t->y,
                              .qk_stride = BN_TIMER_CHANNELS,
                              .v_stride = BN_TIMER_CHANNELS,
                              .gate_stride = 1,
                              .o_stride = BN_TIMER_CHANNELS,
                              .n = k->s.tok};
    t->states_at += bytes;
    if (k->s.memory && t->states_at + bytes <= t->states_bytes)
        a.next = t->states + t->states_at / sizeof *t->states;
    ((bn_delta_fn *)k->v->fn)(&a);
}

static void call_hadamard(struct bitnet_kernel_timer *t, const struct task *k)
{
    struct bn_hadamard_args a = {.y = t->y,
                                 .x = t->x,
                                 .before = t->ones,
                                 .n = k->s.cols,
                                 .block = k->s.block,
                                 .scale = 0x1p-5f};
    ((bn_hadamard_fn *)k->v->fn)(&a);
}

static void call(struct bitnet_kernel_timer *t, const struct task *k)
{
    const struct size *s = &k->s;
    bn_any_fn *fn = k->v->fn;
    switch (k->op) {
    case OP_rmsnorm: ((bn_rmsnorm_fn *)fn)(t->y, t->x, t->ones, s->cols, 1e-5f); break;
    case OP_quant_i8: ((bn_quant_i8_fn *)fn)(t->q, t->sum, t->x, s->cols); break;
    case OP_quant_planes:
        ((bn_quant_planes_fn *)fn)(t->q, t->n_x, s->planes, t->y, t->x, s->cols);
        break;
    case OP_add: ((bn_add_fn *)fn)(t->y, t->ones, s->cols); break;
    case OP_relu2_mul: ((bn_relu2_mul_fn *)fn)(t->y, t->x, t->x, s->cols); break;
    case OP_silu_mul: ((bn_silu_mul_fn *)fn)(t->y, t->x, t->x, s->cols); break;
    case OP_sigmoid_mul: ((bn_sigmoid_mul_fn *)fn)(t->y, t->x, t->x, s->cols); break;
    case OP_l2norm: ((bn_l2norm_fn *)fn)(t->y, t->x, s->cols, 1e-6f, 0.1f); break;
    case OP_rope: ((bn_rope_fn *)fn)(t->y, s->rows, s->cols, s->cols / 2, t->cs); break;
    case OP_row_f16:
    case OP_row_bf16:
    case OP_row_q8_0:
    case OP_row_q4_0:
    case OP_row_q4_k:
    case OP_row_q6_k:
    case OP_row_e4m3:
    case OP_row_e5m2: ((bn_row_fn *)fn)(t->y, t->row, s->cols); break;
    case OP_f32_to_f16: ((bn_f32_to_f16_fn *)fn)((uint16_t *)t->q, t->x, s->cols); break;
    case OP_f32_to_bf16:
    case OP_f32_to_e4m3:
    case OP_f32_to_e5m2:
    case OP_f32_to_q8_0: ((bn_narrow_fn *)fn)(t->q, t->x, s->cols); break;
    case OP_kv_put_keys:
    case OP_kv_put_values: ((bn_kv_put_fn *)fn)(t->row, t->x, s->cols, (unsigned)s->block); break;
    case OP_kv_get_keys:
    case OP_kv_get_values:
        ((bn_kv_get_fn *)fn)(t->y, t->row, 0, s->rows, s->cols, (unsigned)s->block);
        break;
    case OP_dots:
        ((bn_dots_fn *)fn)(t->y, s->rows, t->x, s->rows, t->x, s->cols, s->tok, s->cols);
        break;
    case OP_dots_f16: ((bn_dots_f16_fn *)fn)(t->y, t->half, s->rows, t->x, s->cols); break;
    case OP_low_rank:
        ((bn_low_rank_fn *)fn)(t->y, t->x, s->cols, t->x, s->rows, s->cols, 0.1f);
        break;
    case OP_rotate: ((bn_rotate_fn *)fn)(t->y, t->x, t->x, BN_ROTATE_BLOCK, s->tok); break;
    case OP_screen2: call_screen2(t, k); break;
    case OP_dense8: call_dense8(t, k); break;
    case OP_rows_r2:
    case OP_cols_c2: call_parts(t, k); break;
    case OP_attn_fold:
        ((bn_attn_fold_fn *)fn)(t->y, t->inv, t->inv + 1, t->ones, 0.5f, 2, s->cols);
        break;
    case OP_attn_f32:
    case OP_attn_f16:
    case OP_attn_bf16:
    case OP_attn_e4m3:
    case OP_attn_e5m2: call_attention(t, k); break;
    case OP_short_query: ((bn_short_query_fn *)fn)(t->y, t->x, s->cols); break;
    case OP_attn_codes: call_attn_codes(t, k); break;
    case OP_quant_query: ((bn_quant_query_fn *)fn)((int16_t *)t->row, t->x, s->cols); break;
    case OP_conv_silu: call_conv(t, k); break;
    case OP_delta: call_delta(t, k); break;
    case OP_hadamard: call_hadamard(t, k); break;
    case OP_gemm_t2:
    case OP_gemm_t3:
    case OP_gemm_t5:
    case OP_gemm_b1:
    case OP_gemm_g2:
    case OP_gemm_g3:
    case OP_gemm_g5: call_gemm(t, k); break;
    case N_OPS: break;
    }
}

static double sample_ns(struct bitnet_kernel_timer *t, const struct task *k, size_t calls)
{
    uint64_t start_ns = bn_now_ns();
    for (size_t i = 0; i < calls; i++) call(t, k);
    return (double)(bn_now_ns() - start_ns) / (double)calls;
}

/* ------------------------------------------------------------------ the door */

bitnet_status bn_kernel_timer_open(struct bitnet_kernel_timer **out, const struct bn_model *m,
                                   const char *only, bitnet_error *err)
{
    *out = NULL;
    if (!m->layers)
        return bn_fail(err, BITNET_E_STATE, "the model was opened for its vocabulary only");
    struct bitnet_kernel_timer *t = bn_calloc(1, sizeof *t);
    if (!t) return bn_fail_nomem(err, sizeof *t, "timing the kernels");
    t->c = &m->config;
    t->ahead = m->prefetch_bytes;
    t->chosen = &m->kernels;
    t->only = only;
    t->tasks = bn_calloc(BN_TIMER_CASES + 1, sizeof *t->tasks);
    bitnet_status s =
        t->tasks ? bn_timer_plan(t, err) : bn_fail_nomem(err, 0, "timing the kernels");
    if (s == BITNET_OK) s = make_operands(t, err);
    t->only = NULL; /* the caller's */
    if (s == BITNET_OK) *out = t;
    else bn_kernel_timer_close(t);
    return s;
}

void bn_kernel_timer_close(struct bitnet_kernel_timer *t)
{
    if (!t) return;
    bn_block_free(t->x, t->n_x * sizeof *t->x);
    bn_block_free(t->ones, t->n_x * sizeof *t->ones);
    bn_block_free(t->y, t->n_y * sizeof *t->y);
    bn_block_free(t->half, t->n_x * sizeof *t->half);
    bn_block_free(t->q, 2 * t->n_x);
    bn_block_free(t->row, t->n_x);
    bn_block_free(t->scratch, t->n_scratch);
    bn_block_free(t->weights, t->ring_bytes);
    bn_block_free(t->states, t->states_bytes);
    free(t->lists);
    free(t->tasks);
    free(t);
}

bool bn_kernel_timer_case(const struct bitnet_kernel_timer *t, size_t i, bitnet_kernel_case *c)
{
    if (i >= t->n_tasks) return false;
    const struct task *k = &t->tasks[i];
    *c = (bitnet_kernel_case){.size = sizeof *c,
                              .op = k->v->op,
                              .isa = k->v->isa,
                              .work = k->work,
                              .chosen = k->chosen,
                              .reference = k->v->needs == 0,
                              .macs = k->macs,
                              .bytes = k->bytes};
    return true;
}

double bn_kernel_timer_run(struct bitnet_kernel_timer *t, size_t i)
{
    const struct task *k = &t->tasks[i];
    begin(t, k);
    double best = sample_ns(t, k, 1), spent = best; /* also brings operands into the cache */
    size_t calls = best < SAMPLE_NS ? (size_t)(SAMPLE_NS / (best + 1)) + 1 : 1;
    for (int n = 0; n < SAMPLES && spent < ENOUGH_NS; n++) {
        double ns = sample_ns(t, k, calls);
        spent += ns * (double)calls;
        if (ns < best) best = ns;
    }
    return k->s.rows ? best * (double)k->full_rows / (double)k->s.rows : best;
}
