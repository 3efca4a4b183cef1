/* SPDX-License-Identifier: Apache-2.0
 * Attention of batches over caches full of random keys and values: with any number of workers and in
 * any neighbours in the batch, with contexts short enough for whole tasks and long enough for split ones, the bits
 * are those of the reference kernels, block after block. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "model/attention/attention.h"
#include "model/forward.h"
#include "model/config/rope.h"

enum { CTX = 4096, SEQS = 4, LAYERS = 2, MAX_PAGES = 200, MAX_TOKENS = 12 };

struct shape {
    uint32_t n_head, n_head_kv, head_dim;
};

/* n tokens of each sequence in the batch, the first of them at a position; n 0 ends the list */
struct batch {
    struct {
        uint32_t pos, n;
    } seqs[SEQS];
};

static const struct shape shapes[] = {{20, 5, 128}, {4, 2, 64}, {3, 3, 100}};
static const struct batch batches[] = {
    {{{4079, 1}}},                            /* 5 heads on 2 workers: split */
    {{{4064, 1}}},                            /* a new block of one key */
    {{{20, 1}}},                              /* one block: too short */
    {{{3000, 1}, {31, 1}, {700, 1}, {0, 1}}}, /* neighbours of all lengths */
    {{{1500, 1}, {1500, 1}}},                 /* the same length */
    {{{900, 8}, {2000, 1}}},                  /* a piece of a prompt among single tokens */
};
static const uint32_t thread_counts[] = {1, 2, 3, 5, 16};

struct job {
    struct bn_attention *attention;
    struct bn_attention_layer layer;
};

static void work(void *arg, uint32_t worker)
{
    struct job *j = arg;
    bn_attention_work(j->attention, &j->layer, worker);
}

static float *random_floats(uint64_t seed, size_t n)
{
    struct bn_rng r = {seed};
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) x[i] = (float)bn_rng_below(&r, 2001) * 0.002f - 2.0f;
    return x;
}

/* The whole cache, the same in every run; PERIOD is prime, so that no two rows are alike. */
static void fill_cache(struct bn_kv *kv)
{
    enum { PERIOD = 4093 };
    float *x = random_floats(7, PERIOD);
    uint16_t half[PERIOD];
    bn_f32_to_f16_c(half, x, PERIOD);
    bool f16 = bn_kv_side(kv, 0, false)->type == BITNET_KV_F16;
    for (size_t i = 0; i < kv->bytes / (f16 ? 2 : 4); i++) {
        if (f16) ((uint16_t *)kv->data)[i] = half[i % PERIOD];
        else ((float *)kv->data)[i] = x[i % PERIOD];
    }
    free(x);
}

/* One token's output from its rotated queries and the filled cache. */
static void expect(float *out, const struct bn_kv *kv, const struct shape *s, const float *q,
                   const struct bn_batch_token *b)
{
    size_t dim = s->head_dim, group = s->n_head / s->n_head_kv;
    float m[8], l[8], scale = 1.0f / sqrtf((float)dim);
    for (uint32_t head = 0; head < s->n_head_kv; head++) {
        float *o = out + head * group * dim;
        const float *qh = q + head * group * dim;
        memset(o, 0, group * dim * sizeof *o);
        for (size_t i = 0; i < group; i++) m[i] = -INFINITY, l[i] = 0;
        for (uint32_t at = 0; at <= b->pos; at += BN_ATTN_BLOCK) {
            size_t n = bn_min_size(BN_ATTN_BLOCK, b->pos + 1 - at);
            uint32_t page = b->seq->pages[at / BN_ATTN_BLOCK];
            const void *k = bn_kv_head(kv, 1, page, head, false);
            const void *v = bn_kv_head(kv, 1, page, head, true);
            const struct bn_attn_args a = {o,   m, l,   qh,    group, k,   v,
                                           dim, n, dim, scale, NULL,  NULL};
            if (bn_kv_side(kv, 0, false)->type == BITNET_KV_F16) bn_attn_f16_c(&a);
            else bn_attn_f32_c(&a);
        }
        for (size_t i = 0; i < group * dim; i++) o[i] /= l[i / dim];
    }
}

/* Tokens of the batch and the pages of their sequences, which lie backwards in the cache. */
static size_t lay_out(struct bn_batch_token *tokens, struct bn_kv_seq *seqs, struct bn_kv *kv,
                      const struct batch *b)
{
    size_t n = 0;
    for (size_t i = 0; i < SEQS && b->seqs[i].n; i++) {
        assert_true(bn_kv_seq_open(&seqs[i], kv, CTX));
        assert_true(bn_kv_reserve(kv, &seqs[i], b->seqs[i].pos + b->seqs[i].n));
        for (uint32_t j = 0; j < b->seqs[i].n; j++)
            tokens[n++] = (struct bn_batch_token){.pos = b->seqs[i].pos + j, .seq = &seqs[i]};
    }
    return n;
}

/* Runs a batch. first_q: its rotated queries, as one thread makes them. */
static void check(const struct bn_model *m, const struct shape *s, const struct batch *b,
                  bitnet_kv_type type, uint32_t threads, float *first_q)
{
    struct bn_kv kv;
    struct bn_kv_seq seqs[SEQS] = {{0}};
    struct bn_batch_token tokens[MAX_TOKENS];
    struct bn_pool *pool;
    struct job j = {.layer = {.weights = &m->layers[1], .index = 1}};
    assert_int_equal(bn_kv_open_uniform(&kv, &m->config, (struct bn_kv_types){type, type},
                                        MAX_PAGES, NULL, NULL),
                     BITNET_OK);
    fill_cache(&kv);
    assert_int_equal(bn_pool_open(&pool, threads, NULL), BITNET_OK);
    assert_int_equal(bn_attention_open(&j.attention, m, pool, &kv, CTX, MAX_TOKENS, NULL, NULL),
                     BITNET_OK);
    size_t n = lay_out(tokens, seqs, &kv, b), row = (size_t)s->n_head * s->head_dim;
    j.layer.q_stride = j.layer.out_stride = row;
    j.layer.q = random_floats(1, n * row);
    j.layer.k = random_floats(2, n * s->n_head_kv * s->head_dim);
    j.layer.v = random_floats(3, n * s->n_head_kv * s->head_dim);
    j.layer.out = random_floats(4, n * row);
    float *want = random_floats(5, row);
    bn_attention_begin(j.attention, tokens, n);
    bn_pool_run(pool, work, &j);
    if (threads == 1) memcpy(first_q, j.layer.q, n * row * sizeof *first_q);
    assert_memory_equal(first_q, j.layer.q, n * row * sizeof *first_q);
    for (size_t t = 0; t < n; t++) {
        expect(want, &kv, s, j.layer.q + t * row, &tokens[t]);
        assert_memory_equal(want, j.layer.out + t * row, row * sizeof *want);
    }
    free(want);
    free(j.layer.q);
    free(j.layer.k);
    free(j.layer.v);
    free(j.layer.out);
    bn_attention_close(j.attention);
    bn_pool_close(pool);
    for (size_t i = 0; i < SEQS; i++) bn_kv_seq_close(&seqs[i]);
    bn_kv_close(&kv);
}

static void check_shape(const struct shape *s, bitnet_kv_type type)
{
    float factors[128];
    struct bn_layer *layers = calloc(LAYERS, sizeof *layers);
    assert_non_null(layers);
    struct bn_model m = {.layers = layers, .rope_factors = factors};
    m.kernels = bn_kernels_select(bn_cpu_detect());
    m.config = (struct bn_config){.n_layer = LAYERS,
                                  .n_head = s->n_head,
                                  .n_head_kv = s->n_head_kv,
                                  .head_dim = s->head_dim,
                                  .n_ctx = CTX,
                                  .rope_dim = s->head_dim,
                                  .rope_theta = 10000.0f};
    bn_rope_factors(factors, &m.config);
    float *q = random_floats(6, (size_t)MAX_TOKENS * s->n_head * s->head_dim);
    for (size_t b = 0; b < BN_ARRAY_LEN(batches); b++)
        for (size_t t = 0; t < BN_ARRAY_LEN(thread_counts); t++)
            check(&m, s, &batches[b], type, thread_counts[t], q);
    free(q);
    free(layers);
}

static void shares_change_no_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < BN_ARRAY_LEN(shapes); i++) check_shape(&shapes[i], BITNET_KV_F16);
    check_shape(&shapes[1], BITNET_KV_F32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(shares_change_no_bit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
