/* SPDX-License-Identifier: Apache-2.0
 * How fast the kernels are: every operation of kernels.def in every variant that this CPU can run,
 * on the sizes that a model needs, by one thread. The cases are planned at open and share their
 * operands; each can then be timed as often as wanted.
 *
 * A case in the cache takes the same operands again and again; one from memory takes the next piece
 * of a ring that is larger than the caches. The C reference is slow and its speed does not depend
 * on the number of rows: it gets fewer of them, and its time is scaled. */
#include "base/bandwidth.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "forge/forge.h"
#include "model/model.h"
#include <stdio.h>
#include <stdlib.h>

enum {
    DOTS_ROWS = 64,
    SCREEN_ROWS = 1024,
    SCALE_BLOCK = 128,
    MANY_TOKENS = 8, /* where two points suffice: one token, and this many */
    SAMPLES = 5,
    SAMPLE_NS = 300000,  /* of as many calls as fit */
    ENOUGH_NS = 4000000, /* of a slow case one sample is enough */
    REF_MACS = 4 << 20,
    MAX_CASES = 1024,
    WORK_BYTES = 64
};
static const uint32_t token_counts[] = {1, 4, 8, 32, 128};
enum { MAX_TOKENS = 128 };

enum op {
#define K_REF(op_, fn_)  OP_##op_,
#define G_REF(op_, obj_) OP_##op_,
#define K(op_, isa_, needs_, fn_)
#define G(op_, isa_, needs_, obj_)
#include "kernels/kernels.def"
    N_OPS
};

struct size {
    size_t rows, cols, tok; /* vectors: cols elements; heads: rows of cols */
    size_t block;           /* of scales; 0: one scale */
    bool f32, memory;       /* activations; where the weights come from */
};

struct task {
    const struct bn_kernel_info *v;
    enum op op;
    bool chosen;
    struct size s;
    size_t full_rows; /* s.rows, unless the reference got fewer */
    char work[WORK_BYTES];
    double macs, bytes; /* of a call with all rows */
};

struct bitnet_kernel_timer {
    const struct bn_config *c;
    const struct bn_kernels *chosen;
    const char *only; /* NULL: every operation */
    struct task *tasks;
    size_t n_tasks;
    /* operands; n_x: the most floats that a case reads */
    size_t n_x, n_y, n_scratch;
    float *x, *ones, *y, inv[MAX_TOKENS];
    float cs[BN_MAX_HEAD_DIM]; /* cosines 1, sines 0: repeating does not leave the range */
    int32_t sum[MAX_TOKENS];
    int8_t *q;
    uint16_t *half;   /* [n_x] x as halves */
    uint8_t *row;     /* one row in the storage type of the case last begun */
    void *scratch;    /* of mul_i8_many */
    uint8_t *weights; /* the ring */
    size_t ring_bytes, ring_at;
};

/* ------------------------------------------------------------------ the plan */

static bool is_chosen(const struct bn_kernels *k, enum op op, const struct bn_kernel_info *v)
{
#define K_REF(op_, fn_) \
    if (op == OP_##op_) return (bn_any_fn *)k->op_ == v->fn;
#define G_REF(op_, obj_) \
    if (op == OP_##op_) return k->op_ == v->gemm;
#define K(op_, isa_, needs_, fn_)
#define G(op_, isa_, needs_, obj_)
#include "kernels/kernels.def"
    return false;
}

static enum op op_of(const struct bn_kernel_info *v)
{
    static const char *const names[] = {
#define K_REF(op_, fn_)  #op_,
#define G_REF(op_, obj_) #op_,
#define K(op_, isa_, needs_, fn_)
#define G(op_, isa_, needs_, obj_)
#include "kernels/kernels.def"
    };
    size_t i = 0;
    while (i < N_OPS && strcmp(names[i], v->op) != 0) i++;
    return (enum op)i;
}

/* The storage type of row_*; BN_TYPE_COUNT for the other operations. */
static enum bn_type row_type(enum op op)
{
    switch (op) {
    case OP_row_f16: return BN_F16;
    case OP_row_bf16: return BN_BF16;
    case OP_row_q8_0: return BN_Q8_0;
    case OP_row_q4_0: return BN_Q4_0;
    case OP_row_q4_k: return BN_Q4_K;
    case OP_row_q6_k: return BN_Q6_K;
    default: return BN_TYPE_COUNT;
    }
}

static struct task *add(struct bitnet_kernel_timer *t, const struct bn_kernel_info *v,
                        struct size s)
{
    /* one too many is counted as well, and noticed at the end of the plan */
    struct task *k = &t->tasks[bn_min_size(t->n_tasks++, MAX_CASES)];
    *k = (struct task){.v = v, .op = op_of(v), .s = s, .full_rows = s.rows};
    k->chosen = is_chosen(t->chosen, k->op, v);
    return k;
}

/* n elements: floats, or a row in its storage type if it has whole blocks of it. */
static void add_vector(struct bitnet_kernel_timer *t, const struct bn_kernel_info *v, size_t n)
{
    enum bn_type type = row_type(op_of(v));
    uint64_t bytes = n * sizeof(float);
    if (type != BN_TYPE_COUNT && !bn_type_bytes(&bytes, type, 1, n)) return;
    struct task *k = add(t, v, (struct size){.cols = n});
    k->bytes = (double)bytes;
    snprintf(k->work, sizeof k->work, "%zu", n);
}

static void add_heads(struct bitnet_kernel_timer *t, const struct bn_kernel_info *v)
{
    struct task *k = add(t, v, (struct size){.rows = t->c->n_head, .cols = t->c->head_dim});
    k->bytes = (double)t->c->n_head * t->c->head_dim * sizeof(float);
    snprintf(k->work, sizeof k->work, "%u heads of %u", t->c->n_head, t->c->head_dim);
}

static void add_attention(struct bitnet_kernel_timer *t, const struct bn_kernel_info *v,
                          size_t tokens)
{
    size_t queries = tokens * (t->c->n_head / t->c->n_head_kv), dim = t->c->head_dim;
    struct task *k = add(t, v, (struct size){.rows = queries, .cols = dim});
    k->macs = 2.0 * BN_ATTN_BLOCK * (double)queries * (double)dim;
    k->bytes = 2.0 * BN_ATTN_BLOCK * (double)dim * (k->op == OP_attn_f16 ? 2 : 4);
    snprintf(k->work, sizeof k->work, "%zu queries of %zu, %d keys", queries, dim, BN_ATTN_BLOCK);
}

static void add_dots(struct bitnet_kernel_timer *t, const struct bn_kernel_info *v, size_t tok)
{
    size_t cols = t->c->n_embd;
    struct task *k = add(t, v, (struct size){.rows = DOTS_ROWS, .cols = cols, .tok = tok});
    k->bytes = (double)DOTS_ROWS * (double)cols * (k->op == OP_dots_f16 ? 2 : 4);
    k->macs = (double)DOTS_ROWS * (double)cols * (double)tok;
    snprintf(k->work, sizeof k->work, "%dx%zu, %zu token%s", DOTS_ROWS, cols, tok,
             tok == 1 ? "" : "s");
}

/* Rows of a copy of the head. */
static void add_copy(struct bitnet_kernel_timer *t, const struct bn_kernel_info *v,
                     size_t row_bytes, bool memory)
{
    size_t cols = t->c->n_embd;
    struct task *k = add(t, v, (struct size){.rows = SCREEN_ROWS, .cols = cols, .memory = memory});
    k->bytes = (double)row_bytes * SCREEN_ROWS;
    k->macs = (double)SCREEN_ROWS * (double)cols;
    snprintf(k->work, sizeof k->work, "%dx%zu, %s", SCREEN_ROWS, cols, memory ? "memory" : "cache");
}

static void add_product(struct bitnet_kernel_timer *t, const struct bn_kernel_info *v,
                        struct size s)
{
    const struct bn_gemm *g = v->gemm;
    struct task *k = add(t, v, s);
    k->bytes = (double)g->group_bytes(s.cols) * (double)bn_div_up(s.rows, g->group_rows);
    k->macs = (double)s.rows * (double)s.cols * (double)s.tok;
    char blocks[40] = "";
    if (s.block) snprintf(blocks, sizeof blocks, " blocks of %zu", s.block);
    snprintf(k->work, sizeof k->work, "%zux%zu%s%s, %zu token%s, %s", s.rows, s.cols, blocks,
             s.f32 ? " f32" : "", s.tok, s.tok == 1 ? "" : "s", s.memory ? "memory" : "cache");
    if (v->needs != 0) return;
    size_t few = REF_MACS / (s.cols * s.tok) / g->group_rows * g->group_rows;
    k->s.rows = bn_min_size(s.rows, bn_max_size(few, g->group_rows));
}

/* The different shapes of a layer's matrices; returns how many. */
static size_t layer_shapes(struct size *out, const struct bn_config *c)
{
    size_t n = 0;
    for (enum bn_part p = BN_P_Q; p <= BN_P_DOWN; p++) {
        uint64_t rows, cols;
        size_t i = 0;
        bn_part_shape(c, p, &rows, &cols);
        while (i < n && (out[i].rows != rows || out[i].cols != cols)) i++;
        if (i == n) out[n++] = (struct size){.rows = (size_t)rows, .cols = (size_t)cols};
    }
    return n;
}

static void add_matrices(struct bitnet_kernel_timer *t, const struct bn_kernel_info *v)
{
    struct size shapes[BN_N_PROJ], largest = {0};
    size_t n = layer_shapes(shapes, t->c);
    for (size_t i = 0; i < n; i++) {
        if (shapes[i].rows * shapes[i].cols > largest.rows * largest.cols) largest = shapes[i];
        for (size_t k = 0; k < BN_ARRAY_LEN(token_counts); k++)
            for (int memory = 0; memory < 2; memory++) {
                struct size s = shapes[i];
                s.tok = token_counts[k];
                s.memory = memory;
                add_product(t, v, s);
            }
    }
    for (largest.tok = 1; largest.tok <= MANY_TOKENS; largest.tok += MANY_TOKENS - 1) {
        struct size s = largest;
        s.block = SCALE_BLOCK;
        if (v->gemm->block_scales && s.cols % SCALE_BLOCK == 0) add_product(t, v, s);
        s.block = 0;
        s.f32 = true;
        add_product(t, v, s);
    }
}

static void plan(struct bitnet_kernel_timer *t, const struct bn_kernel_info *v)
{
    const struct bn_config *c = t->c;
    switch (op_of(v)) {
    case OP_rmsnorm:
    case OP_add:
    case OP_row_f16:
    case OP_row_bf16:
    case OP_row_q8_0:
    case OP_row_q4_0:
    case OP_row_q4_k:
    case OP_row_q6_k: add_vector(t, v, c->n_embd); break;
    case OP_quant_i8:
        add_vector(t, v, c->n_embd);
        add_vector(t, v, c->n_ff);
        break;
    case OP_relu2_mul:
    case OP_silu_mul: add_vector(t, v, c->n_ff); break;
    case OP_rope_neox:
    case OP_rope_norm: add_heads(t, v); break;
    case OP_f32_to_f16: add_vector(t, v, (size_t)c->n_head_kv * c->head_dim); break;
    case OP_dots:
        add_dots(t, v, 1);
        add_dots(t, v, MANY_TOKENS);
        break;
    case OP_dots_f16: add_dots(t, v, 1); break;
    case OP_screen4:
        if (c->n_embd > BN_SCREEN_COLS_MAX) break;
        add_copy(t, v, bn_screen4_group_bytes(c->n_embd) / BN_SCREEN_ROWS, false);
        add_copy(t, v, bn_screen4_group_bytes(c->n_embd) / BN_SCREEN_ROWS, true);
        break;
    case OP_dense8:
        add_copy(t, v, bn_dense8_group_bytes(c->n_embd) / BN_DENSE8_ROWS, false);
        add_copy(t, v, bn_dense8_group_bytes(c->n_embd) / BN_DENSE8_ROWS, true);
        break;
    case OP_attn_fold: add_vector(t, v, c->head_dim); break;
    case OP_attn_f32:
    case OP_attn_f16:
        add_attention(t, v, 1);
        add_attention(t, v, MANY_TOKENS);
        break;
    case OP_gemm_t2:
    case OP_gemm_t3:
    case OP_gemm_b1: add_matrices(t, v); break;
    case N_OPS: break;
    }
}

/* Variant after variant of one operation, so that the lines to compare stand together. */
static bitnet_status plan_all(struct bitnet_kernel_timer *t, bitnet_error *err)
{
    uint32_t features = bn_cpu_detect();
    for (int op = 0; op < N_OPS; op++)
        for (size_t i = 0; i < bn_kernel_count; i++) {
            const struct bn_kernel_info *v = &bn_kernel_list[i];
            if ((int)op_of(v) != op || (features & v->needs) != v->needs) continue;
            if (!t->only || strcmp(t->only, v->op) == 0) plan(t, v);
        }
    if (t->n_tasks == 0)
        return bn_fail(err, BITNET_E_ARG, "there is no operation '%s'", t->only ? t->only : "");
    if (t->n_tasks > MAX_CASES)
        return bn_fail(err, BITNET_E_LIMIT, "%zu cases; at most %d are possible", t->n_tasks,
                       MAX_CASES);
    return BITNET_OK;
}

/* ------------------------------------------------------------------ operands */

static void count_operands(struct bitnet_kernel_timer *t)
{
    const struct bn_config *c = t->c;
    size_t wide = bn_align_up(bn_max_size(c->n_ff, c->n_embd), BN_K_ALIGN);
    wide = bn_max_size(wide, bn_align_up((size_t)c->n_head * c->head_dim, BN_K_ALIGN));
    size_t kv = (size_t)BN_ATTN_BLOCK * c->n_head_kv * c->head_dim;
    t->n_x = bn_max_size(bn_max_size(MAX_TOKENS * wide, kv), wide * wide / SCALE_BLOCK);
    t->n_y = bn_max_size(MAX_TOKENS * wide, 4 * SCREEN_ROWS);
    size_t weights = 0;
    bool memory = false;
    for (size_t i = 0; i < t->n_tasks; i++) {
        const struct task *k = &t->tasks[i];
        if (k->v->gemm && k->v->gemm->mul_i8_many)
            t->n_scratch = bn_max_size(t->n_scratch, k->v->gemm->many_bytes(k->s.rows, k->s.cols));
        weights = bn_max_size(weights, (size_t)k->bytes);
        memory = memory || k->s.memory;
    }
    t->n_scratch = bn_align_up(t->n_scratch + 1, 64);
    weights = bn_align_up(weights, 64);
    t->ring_bytes = memory ? bn_max_size(weights, bn_beyond_caches_bytes()) : weights;
}

static bitnet_status make_operands(struct bitnet_kernel_timer *t, bitnet_error *err)
{
    count_operands(t);
    t->x = bn_block_alloc(t->n_x * sizeof *t->x);
    t->ones = bn_block_alloc(t->n_x * sizeof *t->ones);
    t->y = bn_block_alloc(t->n_y * sizeof *t->y);
    t->half = bn_block_alloc(t->n_x * sizeof *t->half);
    t->q = bn_block_alloc(t->n_x);
    t->row = bn_block_alloc(t->n_x);
    t->scratch = bn_block_alloc(t->n_scratch);
    t->weights = bn_block_alloc(t->ring_bytes);
    if (!t->x || !t->ones || !t->y || !t->half || !t->q || !t->row || !t->scratch || !t->weights)
        return bn_fail_nomem(err, t->ring_bytes, "timing the kernels");
    struct bn_rng r = {1};
    for (size_t i = 0; i < t->n_x; i++) {
        t->x[i] = (float)(bn_rng_unit(&r) * 8 - 4);
        t->ones[i] = 1;
    }
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
    if (row_type(k->op) != BN_TYPE_COUNT) bn_quant_row(t->row, row_type(k->op), t->x, k->s.cols);
    size_t stride = bn_align_up(k->s.cols, BN_K_ALIGN);
    if (k->op == OP_screen4)
        for (size_t i = 0; i < 2 * stride; i++) t->q[i] = (int8_t)(i % 127 - 63);
    if (k->op == OP_rope_neox || k->op == OP_rope_norm)
        for (size_t i = 0; i < k->s.cols; i++) t->cs[i] = i < k->s.cols / 2 ? 1 : 0;
    if (!k->v->gemm) return;
    for (size_t i = 0; i < k->s.tok; i++)
        t->inv[i] = bn_quant_i8_c(t->q + i * stride, &t->sum[i], t->x + i * stride, k->s.cols);
}

/* ------------------------------------------------------------------ calls */

/* The weights of the next call. */
static const uint8_t *next_weights(struct bitnet_kernel_timer *t, const struct task *k)
{
    if (!k->s.memory) return t->weights;
    size_t bytes = bn_align_up((size_t)(k->bytes * (double)k->s.rows / (double)k->full_rows), 64);
    if (t->ring_at + bytes > t->ring_bytes) t->ring_at = 0;
    const uint8_t *at = t->weights + t->ring_at;
    t->ring_at += bytes;
    return at;
}

static void call_gemm(struct bitnet_kernel_timer *t, const struct task *k)
{
    const struct bn_gemm *g = k->v->gemm;
    const struct size *s = &k->s;
    size_t stride = bn_align_up(s->cols, BN_K_ALIGN);
    struct bn_packed w = {.data = next_weights(t, k),
                          .rows = s->rows,
                          .cols = s->cols,
                          .scale_kind = s->block ? BN_SCALE_BLOCK : BN_SCALE_TENSOR,
                          .scale = 0.01f,
                          .block_scale = t->half,
                          .block = s->block};
    if (s->f32) g->mul_f32(t->y, s->rows, &w, 0, s->rows, t->x, stride, s->tok);
    else if (g->mul_i8_many && !s->block && s->tok >= g->many_from)
        g->mul_i8_many(t->y, s->rows, &w, 0, s->rows, t->q, stride, t->sum, t->inv, s->tok,
                       t->scratch);
    else g->mul_i8(t->y, s->rows, &w, 0, s->rows, t->q, stride, t->sum, t->inv, s->tok);
}

static void call_screen(struct bitnet_kernel_timer *t, const struct task *k)
{
    struct bn_screen w = {next_weights(t, k), k->s.rows, k->s.cols, t->ones, t->ones, t->ones};
    struct bn_screen_vector v = {t->q, NULL, 1e-4, 1, 3, 1e-4, 0};
    ((bn_screen4_fn *)k->v->fn)(t->y, t->y + SCREEN_ROWS, SCREEN_ROWS, &w, 0, k->s.rows, &v, 1);
}

static void call_dense8(struct bitnet_kernel_timer *t, const struct task *k)
{
    struct bn_dense8 w = {(const int8_t *)next_weights(t, k), k->s.rows, k->s.cols, t->ones};
    struct bn_dense8_vector v = {(const int16_t *)t->q, 1e-4};
    ((bn_dense8_fn *)k->v->fn)(t->y, SCREEN_ROWS, &w, 0, k->s.rows, &v, 1);
}

static void call_attention(struct bitnet_kernel_timer *t, const struct task *k)
{
    size_t n_q = k->s.rows, dim = k->s.cols, stride = (size_t)t->c->n_head_kv * dim;
    float *m = t->y + n_q * dim, *l = m + n_q;
    if (k->op == OP_attn_f16)
        ((bn_attn_f16_fn *)k->v->fn)(t->y, m, l, t->x, n_q, t->half, t->half, stride, BN_ATTN_BLOCK,
                                     dim, 0.1f, NULL, NULL);
    else
        ((bn_attn_f32_fn *)k->v->fn)(t->y, m, l, t->x, n_q, t->x, t->x, stride, BN_ATTN_BLOCK, dim,
                                     0.1f, NULL, NULL);
}

static void call(struct bitnet_kernel_timer *t, const struct task *k)
{
    const struct size *s = &k->s;
    bn_any_fn *fn = k->v->fn;
    switch (k->op) {
    case OP_rmsnorm: ((bn_rmsnorm_fn *)fn)(t->y, t->x, t->ones, s->cols, 1e-5f); break;
    case OP_quant_i8: ((bn_quant_i8_fn *)fn)(t->q, t->sum, t->x, s->cols); break;
    case OP_add: ((bn_add_fn *)fn)(t->y, t->ones, s->cols); break;
    case OP_relu2_mul: ((bn_relu2_mul_fn *)fn)(t->y, t->x, t->x, s->cols); break;
    case OP_silu_mul: ((bn_silu_mul_fn *)fn)(t->y, t->x, t->x, s->cols); break;
    case OP_rope_neox:
    case OP_rope_norm: ((bn_rope_fn *)fn)(t->y, s->rows, s->cols, s->cols / 2, t->cs); break;
    case OP_row_f16:
    case OP_row_bf16:
    case OP_row_q8_0:
    case OP_row_q4_0:
    case OP_row_q4_k:
    case OP_row_q6_k: ((bn_row_fn *)fn)(t->y, t->row, s->cols); break;
    case OP_f32_to_f16: ((bn_f32_to_f16_fn *)fn)((uint16_t *)t->q, t->x, s->cols); break;
    case OP_dots:
        ((bn_dots_fn *)fn)(t->y, s->rows, t->x, s->rows, t->x, s->cols, s->tok, s->cols);
        break;
    case OP_dots_f16: ((bn_dots_f16_fn *)fn)(t->y, t->half, s->rows, t->x, s->cols); break;
    case OP_screen4: call_screen(t, k); break;
    case OP_dense8: call_dense8(t, k); break;
    case OP_attn_fold:
        ((bn_attn_fold_fn *)fn)(t->y, t->inv, t->inv + 1, t->ones, 0.5f, 2, s->cols);
        break;
    case OP_attn_f32:
    case OP_attn_f16: call_attention(t, k); break;
    case OP_gemm_t2:
    case OP_gemm_t3:
    case OP_gemm_b1: call_gemm(t, k); break;
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
    t->chosen = &m->kernels;
    t->only = only;
    t->tasks = bn_calloc(MAX_CASES + 1, sizeof *t->tasks);
    bitnet_status s = t->tasks ? plan_all(t, err) : bn_fail_nomem(err, 0, "timing the kernels");
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
    bn_block_free(t->q, t->n_x);
    bn_block_free(t->row, t->n_x);
    bn_block_free(t->scratch, t->n_scratch);
    bn_block_free(t->weights, t->ring_bytes);
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
