/* SPDX-License-Identifier: Apache-2.0
 * The screened head on the small model: the same tokens as the full pass, for greedy and sampled
 * requests, with any batch neighbours and any kernels; that a head without its margin is noticed; and the way back to the full pass when too many rows survive.
 *
 * HEAD_MODEL in the environment asks for the comparison side by side alone, of another model. It
 * costs one forward pass for both heads. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_common.h"

#include "api/api.h"
#include "base/rng.h"
#include "effort.h"
#include "engine/sampler/sampler.h"
#include "model/forward.h"

enum { CTX = 256, STEPS = 2000 };

static int open_model(void **state)
{
    (void)state;
    model = open_with(NULL, "screened");
    return 0;
}

static uint32_t steps_wanted(void) { return full_effort() ? STEPS : CTX; }

/* ---- one sequence after the other through the forward pass ---- */

struct walk {
    struct bn_pool *pool;
    struct bn_kv kv;
    struct bn_kv_seq seq;
    struct bn_forward *forward;
    float *logits;
    struct bn_scored *scratch;
};

static void walk_open(struct walk *w, const struct bn_head_options *o)
{
    const struct bn_model *m = model->m;
    bitnet_error err = {0};
    memset(w, 0, sizeof *w);
    w->logits = calloc(m->config.n_vocab, sizeof *w->logits);
    w->scratch = calloc(m->config.n_vocab, sizeof *w->scratch);
    if (bn_pool_open(&w->pool, 1, &err) ||
        bn_kv_open_uniform(&w->kv, &m->config, (struct bn_kv_types){BITNET_KV_F16, BITNET_KV_F16},
                           bn_kv_pages_for(CTX), NULL, &err) ||
        !bn_kv_seq_open(&w->seq, &w->kv, CTX) ||
        bn_forward_open(
            &w->forward, m, w->pool,
            &(struct bn_forward_options){
                .kv = &w->kv, .n_ctx = CTX, .max_tokens = CTX, .head = *o, .ffn = BN_FFN_DENSE},
            NULL, &err))
        fail_msg("%s", err.text);
}

static void walk_close(struct walk *w)
{
    bn_forward_close(w->forward);
    bn_kv_seq_close(&w->seq);
    bn_kv_close(&w->kv);
    bn_pool_close(w->pool);
    free(w->logits);
    free(w->scratch);
}

static void next_logits(struct walk *w, int32_t token, struct bn_want want)
{
    if (!w->seq.n_tokens) assert_true(bn_kv_reserve(&w->kv, &w->seq, CTX));
    struct bn_batch_token b = {
        .token = token, .pos = w->seq.n_tokens, .seq = &w->seq, .want = want};
    bn_forward_run(w->forward, &b, 1, w->logits);
    if (++w->seq.n_tokens == CTX) {
        bn_kv_release(&w->kv, &w->seq);
        w->seq.n_tokens = 0;
    }
}

/* Follows the exact head's tokens; at every step the other head's token is compared, and every
 * logit it gives must have the same bits. Returns the steps at which the tokens differ. */
static uint32_t compare(const struct bn_head_options *o, bitnet_sampling s, uint32_t steps,
                        struct bn_head_stats *stats)
{
    struct walk exact, other;
    uint32_t differ = 0, vocab = model->m->config.n_vocab;
    walk_open(&exact, &(struct bn_head_options){0});
    walk_open(&other, o);
    struct bn_rng rng = {s.seed + 99};
    int32_t token = 0;
    for (uint32_t i = 0; i < steps; i++) {
        if (i % CTX == 0) token = (int32_t)bn_rng_below(&rng, vocab); /* another beginning */
        struct bn_want want = bn_sampling_want(&s, i);
        next_logits(&exact, token, want);
        next_logits(&other, token, want);
        for (uint32_t k = 0; k < vocab; k++)
            if (other.logits[k] != -INFINITY)
                assert_memory_equal(&other.logits[k], &exact.logits[k], sizeof(float));
        token = bn_sample(&s, exact.logits, vocab, i, exact.scratch);
        differ += bn_sample(&s, other.logits, vocab, i, other.scratch) != token;
    }
    *stats = *bn_head_stats(bn_forward_head(other.forward));
    walk_close(&exact);
    walk_close(&other);
    return differ;
}

static void report(const char *what, const struct bn_head_stats *s)
{
    double n = s->screened ? (double)s->screened : 1;
    printf("# %s: %llu screened, %llu full, ", what, (unsigned long long)s->screened,
           (unsigned long long)s->full);
    if (s->refined) printf("refined mean %.0f, ", (double)s->refined / n);
    printf("survivors mean %.1f, most %llu; up to 1, 2, 4, ...:", (double)s->survivors / n,
           (unsigned long long)s->survivors_max);
    for (int i = 0; i < BN_HEAD_HISTOGRAM; i++)
        if (i < 16) printf(" %llu", (unsigned long long)s->histogram[i]);
    printf("\n");
}

static const struct {
    const char *name;
    bitnet_sampling s;
} ways[] = {
    {"greedy", {.temperature = 0, .top_p = 1}},
    {"top-k 40", {.temperature = 0.9f, .top_p = 1, .top_k = 40, .seed = 1}},
    {"top-k 40, top-p 0.95, min-p 0.05",
     {.temperature = 0.8f, .top_p = 0.95f, .min_p = 0.05f, .top_k = 40, .seed = 2}},
    /* top-p is a share of all of the top-k, also of those that min-p cuts afterwards */
    {"top-k 40, top-p 0.7, min-p 0.3",
     {.temperature = 0.8f, .top_p = 0.7f, .min_p = 0.3f, .top_k = 40, .seed = 7}},
    {"min-p 0.1", {.temperature = 1.2f, .top_p = 1, .min_p = 0.1f, .seed = 3}},
    {"top-k 5, hot", {.temperature = 2, .top_p = 0.9f, .top_k = 5, .seed = 4}},
    {"plain", {.temperature = 1, .top_p = 1, .seed = 5}},
    {"plain, cold", {.temperature = 0.3f, .top_p = 1, .seed = 6}},
};

static void the_same_tokens(void **state)
{
    (void)state;
    struct bn_head_options o = {.screened = true, .max_screened = 1};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct bn_head_stats stats;
        uint32_t steps = i < 2 ? steps_wanted() : steps_wanted() / 8;
        assert_int_equal(compare(&o, ways[i].s, steps, &stats), 0);
        report(ways[i].name, &stats);
        assert_int_equal(stats.screened + stats.fallbacks, steps);
        assert_true(stats.screened > 0);
    }
    /* without a limit on survivors nothing falls back */
    struct bn_head_stats stats;
    o.limit = model->m->config.n_vocab;
    assert_int_equal(compare(&o, ways[1].s, steps_wanted() / 4, &stats), 0);
    report("top-k 40, no limit", &stats);
    assert_int_equal(stats.screened, steps_wanted() / 4);
}

/* ---- side by side: the same texts through one forward pass, once for every head ---- */

enum { TEXTS = 4, HEADS = 4, SIDES = TEXTS * HEADS, SIDE_CTX = 128 };

static const int side_ways[HEADS - 1] = {0, 1, 6};

struct sides {
    const struct bn_model *m;
    struct bn_pool *pool;
    struct bn_kv kv;
    struct bn_kv_seq seq[SIDES];
    struct bn_forward *forward;
    float *logits; /* [TEXTS][HEADS][vocab]: exact, then screened: greedy, top-k, plain */
    struct bn_scored *scratch;
    struct bn_head_stats stats[HEADS];
    uint32_t differ;
};

static void sides_open(struct sides *d, const struct bn_model *m)
{
    struct bn_head_options o = {.screened = true, .max_screened = SIDES};
    bitnet_error err = {0};
    memset(d, 0, sizeof *d);
    d->m = m;
    d->logits = calloc((size_t)SIDES * m->config.n_vocab, sizeof *d->logits);
    d->scratch = calloc(m->config.n_vocab, sizeof *d->scratch);
    if (bn_pool_open(&d->pool, 0, &err) ||
        bn_kv_open_uniform(&d->kv, &m->config, (struct bn_kv_types){BITNET_KV_F16, BITNET_KV_F16},
                           SIDES * bn_kv_pages_for(SIDE_CTX), NULL, &err) ||
        bn_forward_open(&d->forward, m, d->pool,
                        &(struct bn_forward_options){.kv = &d->kv,
                                                     .n_ctx = SIDE_CTX,
                                                     .max_tokens = SIDES,
                                                     .head = o,
                                                     .ffn = BN_FFN_DENSE},
                        NULL, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < SIDES; i++)
        assert_true(bn_kv_seq_open(&d->seq[i], &d->kv, SIDE_CTX) &&
                    bn_kv_reserve(&d->kv, &d->seq[i], SIDE_CTX));
}

static void sides_close(struct sides *d)
{
    bn_forward_close(d->forward);
    for (int i = 0; i < SIDES; i++) bn_kv_seq_close(&d->seq[i]);
    bn_kv_close(&d->kv);
    bn_pool_close(d->pool);
    free(d->logits);
    free(d->scratch);
}

/* The screened logits of a text against the exact ones; returns the exact head's token. */
static int32_t judge(struct sides *d, int text, int head, uint32_t position)
{
    uint32_t vocab = d->m->config.n_vocab, n = 0, log2 = 0;
    const float *exact = d->logits + (size_t)text * HEADS * vocab, *got = exact + head * vocab;
    struct bn_head_stats *s = &d->stats[head];
    const bitnet_sampling *way = &ways[side_ways[head - 1]].s;
    int32_t token = bn_sample(way, exact, vocab, position, d->scratch);
    d->differ += bn_sample(way, got, vocab, position, d->scratch) != token;
    for (uint32_t k = 0; k < vocab; k++)
        if (got[k] != -INFINITY) {
            assert_memory_equal(&got[k], &exact[k], sizeof(float));
            n++;
        }
    if (!bn_head_was_screened(bn_forward_head(d->forward), (size_t)(text * HEADS + head))) {
        s->full++;
        return token;
    }
    while (n > 1u << log2) log2++;
    s->histogram[log2]++;
    s->screened++;
    s->survivors += n;
    if (n > s->survivors_max) s->survivors_max = n;
    return token;
}

static void side_by_side(void **state)
{
    (void)state;
    const char *path = getenv("HEAD_MODEL");
    bitnet_model *own = path ? open_file(path, NULL, "screened") : NULL;
    uint32_t steps = path ? steps_wanted() : STEPS / 8;
    int32_t token[TEXTS], next[HEADS];
    struct bn_rng rng = {77};
    struct sides d;
    sides_open(&d, own ? own->m : model->m);
    for (uint32_t i = 0; i < steps / TEXTS; i++) {
        struct bn_batch_token b[SIDES];
        for (int t = 0; t < TEXTS && i % SIDE_CTX == 0; t++)
            token[t] = (int32_t)bn_rng_below(&rng, d.m->config.n_vocab); /* another beginning */
        for (int k = 0; k < SIDES; k++)
            b[k] = (struct bn_batch_token){
                .token = token[k / HEADS],
                .pos = i % SIDE_CTX,
                .seq = &d.seq[k],
                .want = k % HEADS ? bn_sampling_want(&ways[side_ways[k % HEADS - 1]].s, i)
                                  : (struct bn_want){.kind = BN_WANT_ALL}};
        bn_forward_run(d.forward, b, SIDES, d.logits);
        for (int t = 0; t < TEXTS; t++) {
            for (int h = 1; h < HEADS; h++) next[h] = judge(&d, t, h, i);
            token[t] = next[1 + t % (HEADS - 1)]; /* texts of all kinds */
        }
    }
    for (int h = 1; h < HEADS; h++) report(ways[side_ways[h - 1]].name, &d.stats[h]);
    printf("# side by side, %u steps: %u tokens differ\n", steps, d.differ);
    assert_int_equal(d.differ, 0);
    for (int h = 1; h < HEADS; h++) assert_true(d.stats[h].screened > 0);
    sides_close(&d);
    if (own) bitnet_model_close(own);
}

/* The comparison must be able to fail. */
static void a_head_without_margin_is_noticed(void **state)
{
    (void)state;
    struct bn_head_options o = {.screened = true, .max_screened = 1, .no_margin = true};
    struct bn_head_stats stats;
    uint32_t differ = 0;
    for (size_t i = 0; i < 2 && (full_effort() || !differ); i++)
        differ += compare(&o, ways[i].s, STEPS / 8, &stats);
    printf("# %u tokens differ without a margin\n", differ);
    assert_true(differ > 0);
}

/* Of a large matrix rows are copied from the file instead of being read where it is mapped. */
static void rows_copied_from_the_file_are_the_same(void **state)
{
    (void)state;
    struct bn_head_options o = {
        .screened = true, .max_screened = 1, .limit = model->m->config.n_vocab, .release_bytes = 1};
    struct bn_head_stats stats;
    const struct bn_stored *w = &model->m->head.stored;
    uint8_t row[4096];
    size_t bytes = w->bytes / w->rows;
    assert_true(bytes <= sizeof row);
    for (size_t r = 0; r < w->rows; r += w->rows / 7) {
        const uint8_t *p = (const uint8_t *)w->data + r * bytes;
        assert_true(bn_source_copy(&model->m->source, row, p, bytes));
        assert_memory_equal(row, p, bytes);
    }
    assert_false(bn_source_copy(&model->m->source, row, row, 1));
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(compare(&o, ways[i].s, steps_wanted() / 4, &stats), 0);
        assert_int_equal(stats.screened, steps_wanted() / 4);
        assert_int_equal(stats.full, 0);
    }
}

static void many_survivors_take_the_full_pass(void **state)
{
    (void)state;
    struct bn_head_options o = {.screened = true, .max_screened = 1, .limit = 1};
    struct bn_head_stats stats;
    bitnet_sampling s = ways[1].s;
    assert_int_equal(compare(&o, s, 100, &stats), 0);
    assert_int_equal(stats.fallbacks, 100);
    assert_int_equal(stats.full, 100);
    o.limit = 0;
    s.top_k = 0; /* top-p alone wants them all */
    s.top_p = 0.9f;
    assert_int_equal(compare(&o, s, 50, &stats), 0);
    assert_int_equal(stats.full, 50);
    assert_int_equal(stats.fallbacks, 0);
    s.top_k = 1000; /* more than are looked for */
    assert_int_equal(compare(&o, s, 50, &stats), 0);
    assert_int_equal(stats.full, 50);
}

/* ---- through the door ---- */

enum { N_REQUESTS = 8, MAX_NEW = 16 };

static void answers(int32_t *out, bitnet_model *m, const char *head, uint32_t threads,
                    uint32_t seqs, bitnet_engine_info *info)
{
    bitnet_engine_options o = {.size = sizeof o};
    bitnet_engine *e = NULL;
    bitnet_error err = {0};
    uint64_t ids[N_REQUESTS];
    uint32_t got[N_REQUESTS] = {0};
    o.threads = threads;
    o.max_seqs = seqs;
    o.head = head;
    if (bitnet_engine_open(&e, m, &o, &err)) fail_msg("%s", err.text);
    for (int i = 0; i < N_REQUESTS; i++) {
        int32_t prompt[] = {0, 390, 389 + i};
        bitnet_request r;
        bitnet_request_init(&r, sizeof r);
        r.tokens = prompt;
        r.n_tokens = 3;
        r.max_new_tokens = MAX_NEW;
        r.ignore_end = 1;
        r.sampling = ways[i % 7].s;
        if (i == 7) /* one that wants all logits, in the same batch */
            r.sampling = (bitnet_sampling){.temperature = 1, .top_p = 0.9f, .seed = 7};
        r.sampling.size = sizeof r.sampling;
        if (bitnet_submit(e, &r, &ids[i], &err)) fail_msg("%s", err.text);
    }
    for (;;) {
        bitnet_event ev[2 * N_REQUESTS] = {{.size = sizeof *ev}};
        size_t n = sizeof ev / sizeof *ev;
        if (bitnet_step(e, ev, &n, &err)) fail_msg("%s", err.text);
        if (!n) break;
        for (size_t k = 0; k < n; k++)
            for (int i = 0; i < N_REQUESTS; i++)
                if (ids[i] == ev[k].id && ev[k].token >= 0)
                    out[i * MAX_NEW + (int)got[i]++] = ev[k].token;
    }
    *info = (bitnet_engine_info){.size = sizeof *info};
    bitnet_engine_get_info(e, info);
    bitnet_engine_close(e);
}

static void answers_are_those_of_the_exact_head(void **state)
{
    (void)state;
    static int32_t want[N_REQUESTS * MAX_NEW], got[N_REQUESTS * MAX_NEW];
    bitnet_engine_info info, first = {0};
    answers(want, model, "exact", 2, 1, &info);
    assert_string_equal(info.head.type, "exact");
    assert_int_equal(info.head.screened, 0);
    answers(got, model, "auto", 2, 1, &info); /* the small model's head is small */
    assert_string_equal(info.head.type, "exact");
    static const char *const backends[] = {"auto", "scalar"};
    for (int b = 0; b < 2; b++) {
        bitnet_model *m = open_with(backends[b], "screened");
        for (uint32_t threads = 1; threads <= 3; threads += 1 + (uint32_t)b)
            for (uint32_t seqs = 1; seqs <= N_REQUESTS; seqs += 7) {
                memset(got, -1, sizeof got);
                answers(got, m, "screened", threads, seqs, &info);
                assert_memory_equal(want, got, sizeof want);
                assert_string_equal(info.head.type, "screened");
                assert_true(info.head.screened > 0);
                /* not only the tokens: also what was looked at, everywhere */
                if (!first.size) first = info;
                assert_int_equal(info.head.survivors, first.head.survivors);
                assert_memory_equal(info.head.histogram, first.head.histogram,
                                    sizeof first.head.histogram);
            }
        bitnet_model_close(m);
    }
}

static void modes_are_checked(void **state)
{
    (void)state;
    bitnet_error err;
    bitnet_engine *e;
    bitnet_model *plain = open_with(NULL, NULL), *none = NULL;
    bitnet_engine_options o = {.size = sizeof o};
    bitnet_model_options mo = {.size = sizeof mo};
    bitnet_model_info info = {.size = sizeof info};
    o.head = "screened"; /* the small model has no copy unless asked */
    assert_int_equal(bitnet_engine_open(&e, plain, &o, &err), BITNET_E_STATE);
    o.head = "best";
    assert_int_equal(bitnet_engine_open(&e, model, &o, &err), BITNET_E_ARG);
    mo.head = "best";
    assert_int_equal(bitnet_model_open(&none, TEST_MODEL, &mo, &err), BITNET_E_ARG);
    bitnet_model_get_info(plain, &info);
    assert_int_equal(info.memory.head_copy_bytes, 0);
    uint64_t layer_bytes = info.memory.layer_bytes;
    bitnet_model_get_info(model, &info);
    assert_true(info.memory.head_copy_bytes > (uint64_t)info.shape.n_vocab * info.shape.n_embd / 2);
    assert_int_equal(info.memory.layer_bytes,
                     layer_bytes); /* the copy is not counted with the layers */
    assert_int_equal(info.memory.packed_bytes, layer_bytes + info.memory.head_copy_bytes);
    bitnet_model_close(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_tokens),
        cmocka_unit_test(side_by_side),
        cmocka_unit_test(a_head_without_margin_is_noticed),
        cmocka_unit_test(rows_copied_from_the_file_are_the_same),
        cmocka_unit_test(many_survivors_take_the_full_pass),
        cmocka_unit_test(answers_are_those_of_the_exact_head),
        cmocka_unit_test(modes_are_checked),
    };
    const struct CMUnitTest other_model[] = {cmocka_unit_test(side_by_side)};
    if (getenv("HEAD_MODEL")) return cmocka_run_group_tests(other_model, open_model, close_model);
    return cmocka_run_group_tests(tests, open_model, close_model);
}
