/* SPDX-License-Identifier: Apache-2.0
 * Types of the KV cache. A text's attention has the same bits in pieces of any size, with any number of
 * workers, with batch neighbours, after drafts were taken back, and over pages of another sequence; and it is
 * as close to that of float32 as each type promises. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "effort.h"
#include "model/attention/attention.h"
#include "model/forward.h"
#include "model/config/rope.h"

enum { CTX = 640, LAYERS = 2, SEQS = 3, MAX_TOKENS = 700, DRAFTS = 8, WRONG = 1000, PERIOD = 8191 };

static const struct shape {
    uint32_t n_head, n_head_kv, head_dim;
} shapes[] = {{4, 1, 128}, {3, 3, 100}, {4, 2, 64}, {7, 1, 256}}; /* the first one is split */

/* error: of the outputs against float32, as a share of their size (root mean squares) */
static const struct types {
    bitnet_kv_type keys, values;
    double error;
} all_types[] = {
    {BITNET_KV_F32, BITNET_KV_F32, 0},
    {BITNET_KV_F16, BITNET_KV_F16, 0.0004},
    {BITNET_KV_BF16, BITNET_KV_BF16, 0.003},
    {BITNET_KV_FP8_E4M3, BITNET_KV_FP8_E4M3, 0.05},
    {BITNET_KV_FP8_E5M2, BITNET_KV_FP8_E5M2, 0.1},
    {BITNET_KV_INT8, BITNET_KV_INT8, 0.008},
    {BITNET_KV_INT4, BITNET_KV_INT4, 0.1},
    {BITNET_KV_INT2, BITNET_KV_INT2, 0.5},
    {BITNET_KV_INT4, BITNET_KV_F16, 0.08},
    {BITNET_KV_F32, BITNET_KV_INT2, 0.3},
    {BITNET_KV_INT8, BITNET_KV_INT4, 0.06},
    {BITNET_KV_FP8_E4M3, BITNET_KV_INT8, 0.04},
};

/* A cache with its workers, and sequences in it. */
struct world {
    const struct shape *s;
    struct bn_layer layers[LAYERS];
    float factors[64];
    struct bn_model m;
    struct bn_kv kv;
    struct bn_pool *pool;
    struct bn_attention *attention;
    struct bn_kv_seq seqs[SEQS];
    struct bn_batch_token *batch; /* [MAX_TOKENS] */
    uint64_t *seeds;              /* [MAX_TOKENS] what the tokens of the batch are */
    float *numbers;               /* [PERIOD] that everything is made of */
    size_t n;
    float *q, *k, *v, *out; /* of the batch */
};

static size_t q_row(const struct world *w) { return (size_t)w->s->n_head * w->s->head_dim; }
static size_t kv_row(const struct world *w) { return (size_t)w->s->n_head_kv * w->s->head_dim; }

static void open_world(struct world *w, const struct shape *s, const struct types *t,
                       uint32_t threads)
{
    *w = (struct world){.s = s};
    w->m = (struct bn_model){.layers = w->layers,
                             .rope_factors = w->factors,
                             .kernels = bn_kernels_select(bn_cpu_detect())};
    w->m.config = (struct bn_config){.n_layer = LAYERS,
                                     .n_head = s->n_head,
                                     .n_head_kv = s->n_head_kv,
                                     .head_dim = s->head_dim,
                                     .n_ctx = CTX,
                                     .rope_dim = s->head_dim,
                                     .rope_theta = 10000.0f};
    bn_rope_factors(w->factors, &w->m.config);
    assert_int_equal(bn_kv_open_uniform(&w->kv, &w->m.config,
                                        (struct bn_kv_types){t->keys, t->values},
                                        SEQS * bn_kv_pages_for(CTX), NULL, NULL),
                     BITNET_OK);
    assert_int_equal(bn_pool_open(&w->pool, threads, NULL), BITNET_OK);
    assert_int_equal(
        bn_attention_open(&w->attention, &w->m, w->pool, &w->kv, CTX, MAX_TOKENS, NULL, NULL),
        BITNET_OK);
    for (size_t i = 0; i < SEQS; i++) assert_true(bn_kv_seq_open(&w->seqs[i], &w->kv, CTX));
    w->q = malloc(MAX_TOKENS * q_row(w) * sizeof(float));
    w->k = malloc(MAX_TOKENS * kv_row(w) * sizeof(float));
    w->v = malloc(MAX_TOKENS * kv_row(w) * sizeof(float));
    w->out = malloc(MAX_TOKENS * q_row(w) * sizeof(float));
    w->batch = malloc(MAX_TOKENS * sizeof *w->batch);
    w->seeds = malloc(MAX_TOKENS * sizeof *w->seeds);
    w->numbers = malloc(PERIOD * sizeof *w->numbers);
    assert_true(w->q && w->k && w->v && w->out && w->batch && w->seeds && w->numbers);
    struct bn_rng r = {1};
    for (size_t i = 0; i < PERIOD; i++) w->numbers[i] = (float)(bn_rng_unit(&r) * 4 - 2);
}

static void close_world(struct world *w)
{
    for (size_t i = 0; i < SEQS; i++) {
        bn_kv_release(&w->kv, &w->seqs[i]);
        bn_kv_seq_close(&w->seqs[i]);
    }
    assert_int_equal(w->kv.n_free, w->kv.n_pages);
    bn_attention_close(w->attention);
    bn_pool_close(w->pool);
    bn_kv_close(&w->kv);
    free(w->q);
    free(w->k);
    free(w->v);
    free(w->out);
    free(w->batch);
    free(w->seeds);
    free(w->numbers);
}

/* n next tokens of sequence i; token p of text `text`. */
static void add(struct world *w, size_t i, uint32_t n, uint64_t text)
{
    struct bn_kv_seq *s = &w->seqs[i];
    assert_true(bn_kv_reserve(&w->kv, s, s->n_tokens + n));
    for (uint32_t j = 0; j < n; j++) {
        w->seeds[w->n] = text << 32 | s->n_tokens;
        w->batch[w->n++] = (struct bn_batch_token){.pos = s->n_tokens++, .seq = s};
    }
}

static void fill(const struct world *w, float *x, size_t n, uint64_t seed)
{
    for (size_t at = bn_mix64(seed) % PERIOD; n; at = 0) {
        size_t part = bn_min_size(n, PERIOD - at);
        memcpy(x, w->numbers + at, part * sizeof *x);
        x += part;
        n -= part;
    }
}

struct job {
    struct world *w;
    uint32_t layer;
};

static void work(void *arg, uint32_t worker)
{
    struct job *j = arg;
    struct world *w = j->w;
    size_t q_row = (size_t)w->m.config.n_head * w->m.config.head_dim;
    struct bn_attention_layer y = {
        &w->layers[j->layer], j->layer, w->out, q_row, w->q, q_row, w->k, w->v};
    bn_attention_work(w->attention, &y, worker);
}

/* The batch, all layers; the last one's outputs stay. */
static void run(struct world *w)
{
    bn_attention_begin(w->attention, w->batch, w->n);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        for (size_t t = 0; t < w->n; t++) {
            uint64_t seed = w->seeds[t] * 8 + layer * 4;
            fill(w, w->q + t * q_row(w), q_row(w), seed);
            fill(w, w->k + t * kv_row(w), kv_row(w), seed + 1);
            fill(w, w->v + t * kv_row(w), kv_row(w), seed + 2);
        }
        bn_pool_run(w->pool, work, &(struct job){w, layer});
    }
    w->n = 0;
}

/* The whole text 1 as sequence 0, in pieces; neighbours: other texts before and behind it. */
static void read_text(float *out, struct world *w, uint32_t chunk, bool neighbours)
{
    while (w->seqs[0].n_tokens < CTX) {
        uint32_t from = w->seqs[0].n_tokens;
        uint32_t n = (uint32_t)bn_min_size(chunk, CTX - from);
        size_t before = 0;
        if (neighbours && w->seqs[1].n_tokens + 3 <= CTX) add(w, 1, before = 3, 2);
        add(w, 0, n, 1);
        if (neighbours && w->seqs[2].n_tokens < CTX) add(w, 2, 1, 3);
        run(w);
        memcpy(out + from * q_row(w), w->out + before * q_row(w), n * q_row(w) * sizeof *out);
    }
}

/* As one piece, by one worker; kept for all tests. */
static float *kept[BN_ARRAY_LEN(shapes)][BN_ARRAY_LEN(all_types)];

static const float *expected(const struct shape *s, const struct types *t)
{
    struct world w;
    float **keep = &kept[s - shapes][t - all_types];
    if (*keep) return *keep;
    open_world(&w, s, t, 1);
    float *out = malloc(CTX * q_row(&w) * sizeof *out);
    assert_non_null(out);
    read_text(out, &w, CTX, false);
    close_world(&w);
    return *keep = out;
}

static int forget(void **state)
{
    (void)state;
    for (size_t i = 0; i < BN_ARRAY_LEN(shapes); i++)
        for (size_t j = 0; j < BN_ARRAY_LEN(all_types); j++) free(kept[i][j]);
    return 0;
}

/* The first shape with all types, the others with half, the large one with a quarter; with less effort
 * every other one with a quarter. */
static bool is_pair(size_t i, size_t j)
{
    return i == 0 || (i + j) % (i == 3 || !full_effort() ? 4 : 2) == 0;
}

static void for_all(void (*check)(const struct shape *, const struct types *, const float *))
{
    for (size_t i = 0; i < BN_ARRAY_LEN(shapes); i++)
        for (size_t j = 0; j < BN_ARRAY_LEN(all_types); j++) {
            if (!is_pair(i, j)) continue;
            check(&shapes[i], &all_types[j], expected(&shapes[i], &all_types[j]));
        }
}

static void check_pieces(const struct shape *s, const struct types *t, const float *want)
{
    static const struct {
        uint32_t chunk, threads;
        bool neighbours;
    } runs[] = {{1, 1, false}, {1, 2, false},  {1, 3, true},    {7, 1, true},  {7, 3, false},
                {64, 2, true}, {64, 3, false}, {512, 2, false}, {512, 3, true}};
    size_t bytes = (size_t)CTX * s->n_head * s->head_dim * sizeof(float);
    float *got = malloc(bytes);
    assert_non_null(got);
    size_t pair = (size_t)(s - shapes) + (size_t)(t - all_types);
    for (size_t i = 0; i < BN_ARRAY_LEN(runs); i++) {
        struct world w;
        /* with less effort by turns: every way with some types, every type in some ways */
        if (!full_effort() && (i + pair) % 4 != 0) continue;
        open_world(&w, s, t, runs[i].threads);
        read_text(got, &w, runs[i].chunk, runs[i].neighbours);
        assert_memory_equal(got, want, bytes);
        close_world(&w);
    }
    free(got);
}

static void pieces_change_no_bit(void **state)
{
    (void)state;
    for_all(check_pieces);
}

/* Drafts of every number follow every token, and are taken back. */
static void check_guesses(const struct shape *s, const struct types *t, const float *want)
{
    struct world w;
    open_world(&w, s, t, 2);
    uint32_t n = (uint32_t)repeats(CTX / 2 - DRAFTS, 3 * BN_ATTN_BLOCK);
    for (uint32_t pos = 0; pos < n; pos++) {
        add(&w, 0, 1, 1);
        add(&w, 0, pos % (DRAFTS + 1), WRONG);
        run(&w);
        assert_memory_equal(w.out, want + pos * q_row(&w), q_row(&w) * sizeof *want);
        bn_kv_truncate(&w.kv, &w.seqs[0], pos + 1);
        assert_int_equal(w.seqs[0].n_tokens, pos + 1);
    }
    close_world(&w);
}

static void drafts_are_taken_back(void **state)
{
    (void)state;
    for_all(check_guesses);
}

/* Back by more than a tail holds: to the page's beginning, from where it is read again. */
static void check_far_back(const struct shape *s, const struct types *t, const float *want)
{
    struct world w;
    open_world(&w, s, t, 2);
    add(&w, 0, 150, 1);
    run(&w);
    bn_kv_truncate(&w.kv, &w.seqs[0], 40);
    uint32_t from = w.seqs[0].n_tokens;
    assert_int_equal(from, bn_kv_has_blocks(&w.kv) ? 32 : 40);
    add(&w, 0, 100, 1);
    run(&w);
    assert_memory_equal(w.out, want + from * q_row(&w), 100 * q_row(&w) * sizeof *want);
    close_world(&w);
}

/* Another sequence goes on behind whole pages of the first one. */
static void check_shared(const struct shape *s, const struct types *t, const float *want)
{
    struct world w;
    open_world(&w, s, t, 2);
    add(&w, 0, 100, 1);
    run(&w);
    bn_kv_share(&w.kv, &w.seqs[1], w.seqs[0].pages, 96);
    add(&w, 1, 70, 1);
    run(&w);
    assert_memory_equal(w.out, want + 96 * q_row(&w), 70 * q_row(&w) * sizeof *want);
    /* the first one back into a page that both hold: it gets its own */
    bn_kv_truncate(&w.kv, &w.seqs[0], 90);
    assert_int_equal(w.seqs[0].n_tokens, 90);
    add(&w, 0, 20, WRONG);
    run(&w);
    assert_int_not_equal(w.seqs[0].pages[2], w.seqs[1].pages[2]);
    add(&w, 1, 5, 1);
    run(&w);
    assert_memory_equal(w.out, want + 166 * q_row(&w), 5 * q_row(&w) * sizeof *want);
    close_world(&w);
}

static void pages_are_shared_and_left(void **state)
{
    (void)state;
    for_all(check_far_back);
    for_all(check_shared);
}

static void errors_are_small(void **state)
{
    (void)state;
    for (size_t i = 0; i < BN_ARRAY_LEN(shapes); i++) {
        size_t n = (size_t)CTX * shapes[i].n_head * shapes[i].head_dim;
        const float *exact = expected(&shapes[i], &all_types[0]);
        for (size_t j = 0; j < BN_ARRAY_LEN(all_types); j++) {
            if (!full_effort() && !is_pair(i, j)) continue;
            const float *got = expected(&shapes[i], &all_types[j]);
            double error = 0, size = 0;
            for (size_t x = 0; x < n; x++) {
                double d = (double)got[x] - exact[x];
                error += d * d;
                size += (double)exact[x] * exact[x];
            }
            error = sqrt(error / size);
            assert_true(error <= all_types[j].error);
            assert_true(error >= all_types[j].error / 2); /* a bound that says something */
        }
    }
}

static void memory_is_as_documented(void **state)
{
    (void)state;
    static const struct {
        bitnet_kv_type type;
        double bits; /* of a number, scales included */
    } types[] = {{BITNET_KV_F32, 32},     {BITNET_KV_F16, 16},     {BITNET_KV_BF16, 16},
                 {BITNET_KV_FP8_E4M3, 8}, {BITNET_KV_FP8_E5M2, 8}, {BITNET_KV_INT8, 8.5},
                 {BITNET_KV_INT4, 5},     {BITNET_KV_INT2, 3}};
    struct bn_config c = {.n_layer = 30, .n_head = 20, .n_head_kv = 5, .head_dim = 128};
    for (size_t i = 0; i < BN_ARRAY_LEN(types); i++) {
        struct bn_kv kv;
        struct bn_kv_seq seq;
        assert_int_equal(bn_kv_open_uniform(&kv, &c,
                                            (struct bn_kv_types){types[i].type, types[i].type}, 3,
                                            NULL, NULL),
                         BITNET_OK);
        assert_int_equal(bn_kv_token_bytes(&kv), (uint64_t)(2 * 30 * 5 * 128 * types[i].bits / 8));
        assert_int_equal(kv.bytes, 3 * BN_ATTN_BLOCK * bn_kv_token_bytes(&kv));
        /* with blocks, two pages of float16 a sequence */
        assert_int_equal(kv.tail_bytes, types[i].bits < 8 ? 2 * 32 * 2 * 30 * 5 * 128 * 2 : 0);
        assert_true(bn_kv_seq_open(&seq, &kv, 96));
        assert_int_equal(seq.tail != NULL, bn_kv_has_blocks(&kv));
        bn_kv_seq_close(&seq);
        bn_kv_close(&kv);
    }
    assert_null(bn_kv_type_name(BITNET_KV_AUTO));
    assert_null(bn_kv_type_name((bitnet_kv_type)(BITNET_KV_INT2 + 1)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_as_documented),   cmocka_unit_test(errors_are_small),
        cmocka_unit_test(pieces_change_no_bit),      cmocka_unit_test(drafts_are_taken_back),
        cmocka_unit_test(pages_are_shared_and_left),
    };
    return cmocka_run_group_tests(tests, NULL, forget);
}
