/* SPDX-License-Identifier: Apache-2.0
 * What is timed: the cases of every operation, on the sizes of a model. The C reference is slow and
 * its speed does not depend on the number of rows: it gets fewer of them, and its time is scaled. */
#include "forge/kernel_timer_impl.h"
#include <stdio.h>

enum {
    DOTS_ROWS = 64,
    MANY_TOKENS = 8, /* where two points suffice: one token, and this many */
    REF_MACS = 4 << 20,
    STATE_DIM = 128, /* keys and values of a delta net's head, as in 27B */
    BLOCK = 1024     /* of a transform */
};
static const uint32_t token_counts[] = {1, 2, 4, 8, 16, 32, BN_TIMER_TOKENS};

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

enum bn_type bn_timer_row_type(enum op op)
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
    struct task *k = &t->tasks[bn_min_size(t->n_tasks++, BN_TIMER_CASES)];
    *k = (struct task){.v = v, .op = op_of(v), .s = s, .full_rows = s.rows};
    k->chosen = is_chosen(t->chosen, k->op, v);
    return k;
}

/* n elements: floats, or a row in its storage type if it has whole blocks of it. */
static void add_vector(struct bitnet_kernel_timer *t, const struct bn_kernel_info *v, size_t n)
{
    enum bn_type type = bn_timer_row_type(op_of(v));
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
    bool half = k->op == OP_attn_f16 || k->op == OP_attn_bf16;
    k->bytes = 2.0 * BN_ATTN_BLOCK * (double)dim * (k->op == OP_attn_f32 ? 4 : half ? 2 : 1);
    snprintf(k->work, sizeof k->work, "%zu queries of %zu, %d keys", queries, dim, BN_ATTN_BLOCK);
}

/* The same over codes; s.block: their bits. */
static void add_attention_codes(struct bitnet_kernel_timer *t, const struct bn_kernel_info *v,
                                size_t tokens, unsigned bits)
{
    size_t queries = tokens * (t->c->n_head / t->c->n_head_kv), dim = t->c->head_dim;
    if (dim % BN_KV_GROUP != 0) return;
    struct task *k = add(t, v, (struct size){.rows = queries, .cols = dim, .block = bits});
    k->macs = 2.0 * BN_ATTN_BLOCK * (double)queries * (double)dim;
    k->bytes = 2.0 * (double)bn_kv_block_bytes(dim, bits);
    snprintf(k->work, sizeof k->work, "%zu queries of %zu, %d keys, %u bits", queries, dim,
             BN_ATTN_BLOCK, bits);
}

/* Keys or values of a block; s.block: bits of a code. */
static void add_kv_block(struct bitnet_kernel_timer *t, const struct bn_kernel_info *v,
                         unsigned bits)
{
    size_t dim = bn_align_up(t->c->head_dim, BN_KV_GROUP);
    struct task *k = add(t, v, (struct size){.rows = BN_ATTN_BLOCK, .cols = dim, .block = bits});
    k->bytes = (double)(BN_ATTN_BLOCK * dim * sizeof(float));
    snprintf(k->work, sizeof k->work, "%d rows of %zu, %u bits", BN_ATTN_BLOCK, dim, bits);
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

/* Of an adapter of a usual rank, for one token. */
static void add_low_rank(struct bitnet_kernel_timer *t, const struct bn_kernel_info *v)
{
    size_t cols = t->c->n_embd;
    struct task *k = add(t, v, (struct size){.rows = DOTS_ROWS, .cols = cols});
    k->bytes = (double)DOTS_ROWS * (double)cols * sizeof(float);
    k->macs = (double)DOTS_ROWS * (double)cols;
    snprintf(k->work, sizeof k->work, "%zu, rank %d", cols, DOTS_ROWS);
}

/* Blocks of rows that are rotated. */
static void add_rotate(struct bitnet_kernel_timer *t, const struct bn_kernel_info *v, size_t n)
{
    struct task *k = add(t, v, (struct size){.cols = BN_ROTATE_BLOCK, .tok = n});
    k->bytes = (double)BN_ROTATE_BLOCK * BN_ROTATE_BLOCK * sizeof(float);
    k->macs = (double)BN_ROTATE_BLOCK * BN_ROTATE_BLOCK * (double)n;
    snprintf(k->work, sizeof k->work, "%zu of %d", n, BN_ROTATE_BLOCK);
}

static void add_conv(struct bitnet_kernel_timer *t, const struct bn_kernel_info *v, size_t tok)
{
    struct task *k = add(t, v, (struct size){.cols = BN_TIMER_CHANNELS, .tok = tok});
    k->bytes = (double)BN_TIMER_CHANNELS * (double)tok * sizeof(float);
    k->macs = (double)BN_TIMER_CHANNELS * BN_TIMER_TAPS * (double)tok;
    snprintf(k->work, sizeof k->work, "%d channels, %zu token%s", BN_TIMER_CHANNELS, tok,
             tok == 1 ? "" : "s");
}

/* The state is read and written. */
static void add_delta(struct bitnet_kernel_timer *t, const struct bn_kernel_info *v, size_t tok,
                      bool memory)
{
    struct task *k = add(
        t, v, (struct size){.rows = STATE_DIM, .cols = STATE_DIM, .tok = tok, .memory = memory});
    k->bytes = 2.0 * STATE_DIM * STATE_DIM * sizeof(float);
    k->macs = 3.0 * STATE_DIM * STATE_DIM * (double)tok;
    snprintf(k->work, sizeof k->work, "%dx%d, %zu token%s, %s", STATE_DIM, STATE_DIM, tok,
             tok == 1 ? "" : "s", memory ? "memory" : "cache");
}

static void add_hadamard(struct bitnet_kernel_timer *t, const struct bn_kernel_info *v, size_t n)
{
    struct task *k = add(t, v, (struct size){.cols = n, .block = BLOCK});
    k->bytes = (double)n * sizeof(float);
    snprintf(k->work, sizeof k->work, "%zu in blocks of %d", n, BLOCK);
}

/* Rows of a copy of the head. */
static void add_copy(struct bitnet_kernel_timer *t, const struct bn_kernel_info *v,
                     size_t row_bytes, bool memory)
{
    size_t cols = t->c->n_embd;
    struct task *k =
        add(t, v, (struct size){.rows = BN_TIMER_HEAD_ROWS, .cols = cols, .memory = memory});
    k->bytes = (double)row_bytes * BN_TIMER_HEAD_ROWS;
    k->macs = (double)BN_TIMER_HEAD_ROWS * (double)cols;
    snprintf(k->work, sizeof k->work, "%dx%zu, %s", BN_TIMER_HEAD_ROWS, cols,
             memory ? "memory" : "cache");
}

/* A list of the rows of `up` or the columns of `down`; from memory, where leaving out counts. */
static void add_parts(struct bitnet_kernel_timer *t, const struct bn_kernel_info *v)
{
    bool by_rows = op_of(v) == OP_rows_r2;
    size_t all = t->c->n_ff, across = t->c->n_embd, n = all / BN_TIMER_PARTS;
    struct size s = {.rows = by_rows ? all : across,
                     .cols = by_rows ? across : all,
                     .tok = 1,
                     .listed = n,
                     .memory = true};
    struct task *k = add(t, v, s);
    k->bytes = (double)n * (double)(by_rows ? bn_r2_row_bytes(across) : bn_c2_column_bytes(across));
    k->macs = (double)n * (double)across;
    snprintf(k->work, sizeof k->work, "%zu of %zu %s of %zu, memory", n, all,
             by_rows ? "rows" : "columns", across);
}

static void add_product(struct bitnet_kernel_timer *t, const struct bn_kernel_info *v,
                        struct size s)
{
    const struct bn_gemm *g = v->gemm;
    struct task *k = add(t, v, s);
    k->bytes = (double)g->group_bytes(s.cols) * (double)bn_div_up(s.rows, g->group_rows);
    k->macs = (double)s.rows * (double)s.cols * (double)s.tok;
    static const char *const planes[] = {"", " int8", " int16"};
    char blocks[40] = "";
    if (s.block) {
        snprintf(blocks, sizeof blocks, " blocks of %zu", s.block);
        k->bytes += (double)bn_scale_count(g, s.cols / s.block, s.rows) * sizeof(uint16_t);
    }
    snprintf(k->work, sizeof k->work, "%zux%zu%s%s, %zu token%s, %s", s.rows, s.cols, blocks,
             s.f32 ? " f32" : planes[s.planes], s.tok, s.tok == 1 ? "" : "s",
             s.memory ? "memory" : "cache");
    if (v->needs != 0) return;
    size_t few = REF_MACS / (s.cols * s.tok) / g->group_rows * g->group_rows;
    k->s.rows = bn_min_size(s.rows, bn_max_size(few, g->group_rows));
}

/* The different shapes of a layer's matrices; returns how many. */
static size_t layer_shapes(struct size *out, const struct bn_config *c)
{
    size_t n = 0;
    for (enum bn_part p = BN_P_Q; p < BN_P_COUNT; p++) {
        uint64_t rows, cols;
        uint32_t layer = 0;
        size_t i = 0;
        while (layer < c->n_layer && !bn_part_in_layer(c, p, layer)) layer++;
        if (layer == c->n_layer) continue;
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
        s.block = BN_TIMER_SCALE_BLOCK;
        if (v->gemm->block_scales && s.cols % BN_TIMER_SCALE_BLOCK == 0) add_product(t, v, s);
        s.block = 0;
        s.f32 = true;
        add_product(t, v, s);
    }
}

/* Activations in planes, from memory. */
static void add_planes(struct bitnet_kernel_timer *t, const struct bn_kernel_info *v)
{
    struct size shapes[BN_N_PROJ];
    size_t n = layer_shapes(shapes, t->c);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < BN_ARRAY_LEN(token_counts); k++)
            for (size_t planes = 1; planes <= 2; planes++) {
                struct size s = shapes[i];
                s.tok = token_counts[k];
                s.memory = true;
                s.planes = planes;
                s.block = s.cols % BN_TIMER_SCALE_BLOCK == 0 ? BN_TIMER_SCALE_BLOCK : 0;
                add_product(t, v, s);
            }
}

static void add_quant_planes(struct bitnet_kernel_timer *t, const struct bn_kernel_info *v,
                             size_t planes)
{
    struct task *k = add(t, v, (struct size){.cols = t->c->n_ff, .planes = planes});
    k->bytes = (double)t->c->n_ff * sizeof(float);
    snprintf(k->work, sizeof k->work, "%u to int%zu", t->c->n_ff, 8 * planes);
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
    case OP_quant_planes:
        add_quant_planes(t, v, 1);
        add_quant_planes(t, v, 2);
        break;
    case OP_relu2_mul:
    case OP_silu_mul: add_vector(t, v, c->n_ff); break;
    case OP_sigmoid_mul: add_vector(t, v, (size_t)c->n_head * c->head_dim); break;
    case OP_l2norm: add_vector(t, v, STATE_DIM); break;
    case OP_rope: add_heads(t, v); break;
    case OP_row_e4m3:
    case OP_row_e5m2:
    case OP_f32_to_f16:
    case OP_f32_to_bf16:
    case OP_f32_to_e4m3:
    case OP_f32_to_e5m2:
    case OP_f32_to_q8_0:
        add_vector(t, v, c->n_head_kv * bn_align_up(c->head_dim, BN_KV_GROUP));
        break;
    case OP_kv_put_keys:
    case OP_kv_put_values:
    case OP_kv_get_keys:
    case OP_kv_get_values:
        add_kv_block(t, v, 4);
        add_kv_block(t, v, 2);
        break;
    case OP_dots:
        add_dots(t, v, 1);
        add_dots(t, v, MANY_TOKENS);
        break;
    case OP_dots_f16: add_dots(t, v, 1); break;
    case OP_low_rank: add_low_rank(t, v); break;
    case OP_rotate:
        add_rotate(t, v, 1);
        add_rotate(t, v, BN_SCREEN2_ROWS);
        break;
    case OP_screen2:
        if (c->n_embd > BN_SCREEN2_COLS_MAX) break;
        add_copy(t, v, bn_screen2_group_bytes(c->n_embd) / BN_SCREEN2_ROWS, false);
        add_copy(t, v, bn_screen2_group_bytes(c->n_embd) / BN_SCREEN2_ROWS, true);
        break;
    case OP_dense8:
        add_copy(t, v, bn_dense8_group_bytes(c->n_embd) / BN_DENSE8_ROWS, false);
        add_copy(t, v, bn_dense8_group_bytes(c->n_embd) / BN_DENSE8_ROWS, true);
        break;
    case OP_rows_r2:
    case OP_cols_c2: add_parts(t, v); break;
    case OP_attn_fold: add_vector(t, v, c->head_dim); break;
    case OP_attn_f32:
    case OP_attn_f16:
    case OP_attn_bf16:
    case OP_attn_e4m3:
    case OP_attn_e5m2:
        add_attention(t, v, 1);
        add_attention(t, v, MANY_TOKENS);
        break;
    case OP_attn_codes:
        for (unsigned bits = 8; bits >= 2; bits /= 2) {
            add_attention_codes(t, v, 1, bits);
            add_attention_codes(t, v, MANY_TOKENS, bits);
        }
        break;
    case OP_short_query:
    case OP_quant_query: add_vector(t, v, c->head_dim); break;
    case OP_conv_silu:
        add_conv(t, v, 1);
        add_conv(t, v, BN_TIMER_TOKENS);
        break;
    case OP_delta:
        add_delta(t, v, 1, false);
        add_delta(t, v, 1, true);
        add_delta(t, v, BN_TIMER_TOKENS, false);
        break;
    case OP_hadamard: add_hadamard(t, v, bn_align_up(c->n_ff, BLOCK)); break;
    case OP_gemm_t2:
    case OP_gemm_t3:
    case OP_gemm_t5: add_matrices(t, v); break;
    case OP_gemm_b1:
        add_matrices(t, v);
        add_planes(t, v);
        break;
    case OP_gemm_g2:
    case OP_gemm_g3:
    case OP_gemm_g5: add_planes(t, v); break;
    case N_OPS: break;
    }
}

/* Variant after variant of one operation, so that the lines to compare stand together. */
bitnet_status bn_timer_plan(struct bitnet_kernel_timer *t, bitnet_error *err)
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
    if (t->n_tasks > BN_TIMER_CASES)
        return bn_fail(err, BITNET_E_LIMIT, "%zu cases; at most %d are possible", t->n_tasks,
                       BN_TIMER_CASES);
    return BITNET_OK;
}
