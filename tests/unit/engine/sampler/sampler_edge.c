/* SPDX-License-Identifier: Apache-2.0
 * The sampler at its edges: rows of a screened head give the same token; breakers of DRY in real text;
 * log-probabilities; bad options and extreme logits. */
#include <float.h>

#include "sampler_common.h"

/* ---- rows of a screened head ---- */

/* Leaves what was asked for and some more; the rest becomes -infinity. */
static void screen(float *row, const struct slow *c, struct bn_want w, struct bn_rng *r)
{
    double most = -(double)INFINITY, noisy = most;
    uint32_t at = 0;
    for (uint32_t v = 0; v < c->n_vocab; v++) {
        double y = (double)c->logits[v] * w.inv_t + bn_gumbel(bn_gumbel_unit(w.noise, v));
        most = fmax(most, (double)c->logits[v]);
        if (y > noisy) {
            noisy = y;
            at = v;
        }
    }
    for (uint32_t v = 0; v < c->n_vocab; v++) {
        uint32_t rank = 0;
        for (uint32_t k = 0; k < c->n_vocab; k++) rank += c->logits[k] > c->logits[v];
        bool wanted = w.kind == BN_WANT_DRAW
                          ? v == at
                          : (!w.k || rank < w.k) && (double)c->logits[v] >= most - w.below;
        row[v] = wanted || bn_rng_below(r, 5) == 0 ? c->logits[v] : -INFINITY;
    }
}

static void screened_rows_give_the_same_token(void **state)
{
    (void)state;
    static struct slow c;
    bitnet_logit_bias bias[4];
    struct bn_rng r = {31};
    int screened[4] = {0}, biased = 0;
    for (uint64_t i = 0; i < 20000; i++) {
        random_case(&c, &r, bias, true);
        struct bn_sampler *s = sampler_for(&c, NULL);
        struct bn_want w = bn_sampler_want(s, i, false);
        assert_int_equal(bn_sampler_want(s, i, true).kind, BN_WANT_ALL);
        screened[w.kind]++;
        if (w.kind != BN_WANT_ALL) {
            float row[SLOW_MAX_VOCAB];
            screen(row, &c, w, &r);
            assert_int_equal(draw(s, &c, row, i), draw(s, &c, c.logits, i));
            biased += c.s.n_logit_bias > 0;
        }
        bn_sampler_close(s);
    }
    assert_true(screened[BN_WANT_BEST] > 1000 && screened[BN_WANT_DRAW] > 10 && biased > 1000);
}

/* Penalties may make any token the best: the whole row is asked for. */
static void penalties_want_the_whole_row(void **state)
{
    (void)state;
    static struct slow c;
    bitnet_logit_bias bias[4];
    struct bn_rng r = {8};
    static const bitnet_logit_bias up = {1, 0.5f}, down = {1, -0.5f};
    const bitnet_sampling ways[] = {{.top_p = 1, .repetition_penalty = 1.1f},
                                    {.top_p = 1, .presence_penalty = 1},
                                    {.top_p = 1, .frequency_penalty = 1},
                                    {.top_p = 1, .dry_multiplier = 1},
                                    {.top_p = 1, .logit_bias = &up, .n_logit_bias = 1},
                                    {.temperature = 1,
                                     .top_p = 1,
                                     .top_k = UINT32_MAX,
                                     .logit_bias = &down,
                                     .n_logit_bias = 1}};
    for (size_t i = 0; i < BN_ARRAY_LEN(ways); i++) {
        random_case(&c, &r, bias, true);
        c.s = ways[i];
        struct bn_sampler *s = sampler_for(&c, NULL);
        assert_int_equal(bn_sampler_want(s, 0, false).kind, BN_WANT_ALL);
        bn_sampler_close(s);
    }
}

/* ---- breakers of DRY ---- */

#if BN_HAVE_TEXT
/* Tokens behind the last one in which a breaker ends. */
static uint32_t slow_unbroken(const struct bn_tokenizer *t, const struct slow *c,
                              const char *const *breakers, size_t n_breakers)
{
    char text[4096];
    size_t n = 0;
    uint32_t behind = 0;
    for (uint32_t i = 0; i < c->n_tokens; i++) {
        size_t some, before = n;
        const char *bytes = bn_token_bytes(t, c->tokens[i], true, false, &some);
        if (some) memcpy(text + n, bytes, some);
        n += some;
        behind++;
        for (size_t k = 0; k < n_breakers; k++)
            for (size_t end = before + 1; end <= n; end++) {
                size_t len = strlen(breakers[k]);
                if (len <= end && memcmp(text + end - len, breakers[k], len) == 0) behind = 0;
            }
    }
    return behind;
}

/* One token of the text after the other is a little better than the rest: is it penalised? Returns
 * how many are. */
static int penalised(const struct bn_tokenizer *t, const struct slow *c)
{
    struct bn_sampler_room large;
    struct bn_sampler *s;
    int n = 0;
    float *logits = calloc(c->n_vocab, sizeof *logits);
    assert_true(logits && bn_sampler_room_open(&large, c->n_vocab));
    assert_int_equal(
        bn_sampler_open(&s, &c->s, c->n_vocab, t, c->tokens, c->n_tokens, c->n_tokens, NULL),
        BITNET_OK);
    for (uint32_t at = 1; at < c->n_tokens; at++) {
        int32_t token = c->tokens[at];
        bool free_of_it = slow_repeats(c, 0, token) < 2;
        logits[token] = 1;
        int32_t got = bn_sampler_draw(s, logits, c->n_vocab, c->n_tokens, NULL, &large);
        assert_int_equal(got == token, free_of_it);
        n += !free_of_it;
        logits[token] = 0;
    }
    bn_sampler_close(s);
    bn_sampler_room_close(&large);
    free(logits);
    return n;
}

static void breakers_end_repetitions(void **state)
{
    (void)state;
    static const char *const usual[] = {"\n", ":", "\"", "*"}, *const own[] = {"little dog", "xyz"};
    static const struct {
        const char *const *asked, *const *meant;
        size_t n;
    } ways[] = {{NULL, usual, 4}, {own, own, 2}, {own, own, 0}};
    const char *text =
        "The little dog said: \"I am a little dog.\" The little dog ran. Tom said: \"I "
        "am a little dog.\" The little dog ran. The little dog said";
    struct bn_vocab v;
    struct bn_tokenizer *t;
    struct bn_tokens ids = {0};
    bitnet_error err = {0};
    int n_broken = 0, n_penalised = 0;
    if (bn_vocab_read_hf(&v, TEST_DATA "/stories/tokenizer.json", &err) ||
        bn_tokenizer_open(&t, &v, &err) || bn_encode(t, text, strlen(text), 0, &ids, &err))
        fail_msg("%s", err.text);
    assert_true(ids.n > 30 && ids.n <= SLOW_MAX_TEXT);
    for (size_t w = 0; w < BN_ARRAY_LEN(ways); w++)
        for (uint32_t n = 2; n <= ids.n; n++) {
            struct slow c = {.n_vocab = bn_tokenizer_vocab(t)->n_tokens, .n_tokens = n};
            c.s = (bitnet_sampling){.top_p = 1, .dry_multiplier = 3, .dry_breakers = ways[w].asked};
            c.s.n_dry_breakers = ways[w].asked ? ways[w].n : 0;
            memcpy(c.tokens, ids.ids, n * sizeof *c.tokens);
            c.unbroken = slow_unbroken(t, &c, ways[w].meant, ways[w].n);
            n_broken += c.unbroken < n;
            n_penalised += penalised(t, &c);
        }
    assert_true(n_broken > 40 && n_penalised > 40);
    bn_tokens_free(&ids);
    bn_tokenizer_close(t);
}
#endif

/* ---- log-probabilities ---- */

static void logprobs_are_those_of_the_model(void **state)
{
    (void)state;
    static struct slow c;
    bitnet_logit_bias bias[4];
    struct bn_rng r = {7};
    for (int i = 0; i < 2000; i++) {
        bitnet_logprob top[BN_MAX_TOP_LOGPROBS];
        random_case(&c, &r, bias, false);
        c.s = (bitnet_sampling){.temperature = 1, .top_p = 1};
        c.masked = false;
        slow_distribution(&c);
        uint32_t n_top = bn_rng_below(&r, 1 + BN_MAX_TOP_LOGPROBS);
        int at = (int)bn_rng_below(&r, c.n_vocab);
        float got = bn_logprob(c.logits, c.n_vocab, c.order[at], top, n_top), sum = 0;
        assert_true(fabs((double)got - log(c.p[at])) < 1e-5);
        for (uint32_t k = 0; k < n_top; k++) {
            assert_int_equal(top[k].token, c.order[k]);
            assert_true(fabs((double)top[k].logprob - log(c.p[k])) < 1e-5);
            float alone = bn_logprob(c.logits, c.n_vocab, top[k].token, NULL, 0);
            assert_memory_equal(&alone, &top[k].logprob, sizeof alone);
        }
        for (uint32_t v = 0; v < c.n_vocab; v++)
            sum += expf(bn_logprob(c.logits, c.n_vocab, (int32_t)v, NULL, 0));
        assert_true(fabsf(sum - 1) < 1e-4f);
    }
    const float far[] = {-FLT_MAX, FLT_MAX, 0};
    assert_true(bn_logprob(far, 3, 1, NULL, 0) == 0);
    assert_true(bn_logprob(far, 3, 0, NULL, 0) < -FLT_MAX / 2);
}

/* Is what the sampler tells the distribution of the slow way? */
static bool same_distribution(const struct slow *c, const struct bn_drawn_probs *got, int at)
{
    double want = at < c->kept ? log(c->p[at]) : -(double)INFINITY;
    uint32_t n = bn_min_size((size_t)c->kept, BN_MAX_TOP_LOGPROBS);
    if (got->n_top != n || fabs((double)got->logprob - want) > 1e-4) return false;
    for (uint32_t k = 0; k < n; k++)
        if (got->top[k].token != c->order[k] ||
            fabs((double)got->top[k].logprob - log(c->p[k])) > 1e-4)
            return false;
    return true;
}

/* -1: none is. */
static int32_t one_that_is_cut(const struct slow *c)
{
    bool kept[SLOW_MAX_VOCAB] = {false};
    for (int i = 0; i < c->kept; i++) kept[c->order[i]] = true;
    for (uint32_t v = 0; v < c->n_vocab; v++)
        if (!kept[v]) return (int32_t)v;
    return -1;
}

static void drawn_logprobs_are_those_of_what_was_left(void **state)
{
    (void)state;
    enum { CASES = 10000 };
    static struct slow c;
    bitnet_logit_bias bias[4];
    struct bn_rng r = {77};
    int n_other = 0, n_cut = 0;
    for (int i = 0; i < CASES; i++) {
        bitnet_logprob top[BN_MAX_TOP_LOGPROBS];
        random_case(&c, &r, bias, false);
        struct bn_sampler *s = sampler_for(&c, NULL);
        slow_distribution(&c);
        if (c.kept) {
            int at = (int)bn_rng_below(&r, (uint32_t)c.kept + 1);
            struct bn_drawn_probs got = {.token = at < c.kept ? c.order[at] : one_that_is_cut(&c),
                                         .top = top,
                                         .n_top = BN_MAX_TOP_LOGPROBS};
            if (got.token < 0) got.token = c.order[at = 0];
            bn_sampler_probs(s, c.logits, c.n_vocab, c.masked ? c.mask : NULL, &room, &got);
            n_other += !same_distribution(&c, &got, at);
            n_cut += at == c.kept;
        }
        bn_sampler_close(s);
    }
    assert_true(n_cut > CASES / 50);
    assert_true(n_other < CASES / 100); /* cuts that fall between two equal sums */
}

/* ---- edges ---- */

/* Whatever the options, a token comes out, and -1 only if all are forbidden. */
static void extreme_logits_are_no_trouble(void **state)
{
    (void)state;
    static struct slow c;
    bitnet_logit_bias bias[4];
    struct bn_rng r = {5};
    const float odd[] = {FLT_MAX, -FLT_MAX, 0, -0.0f, FLT_MIN, 1e30f, -1e30f, -INFINITY, 88};
    for (uint64_t i = 0; i < 20000; i++) {
        random_case(&c, &r, bias, false);
        c.s.repetition_penalty = ONE_OF(&r, 1, 100, 1e-30f);
        c.s.dry_multiplier = 100;
        c.s.dry_base = 100;
        for (uint32_t v = 0; v < c.n_vocab; v++) c.logits[v] = odd[bn_rng_below(&r, 9)];
        struct bn_sampler *s = sampler_for(&c, NULL);
        int32_t id = draw(s, &c, c.logits, i);
        assert_in_range(id, 0, c.n_vocab - 1);
        assert_true(c.logits[id] > -INFINITY);
        assert_true(!c.masked || (c.mask[id / 64] >> id % 64 & 1));
        memset(c.mask, 0, sizeof c.mask);
        c.masked = true;
        assert_int_equal(draw(s, &c, c.logits, i), -1);
        bn_sampler_close(s);
    }
}

static void ties_go_to_the_smaller_id(void **state)
{
    (void)state;
    static struct slow c;
    bitnet_logit_bias bias[4];
    struct bn_rng r = {9};
    random_case(&c, &r, bias, true);
    c.s = (bitnet_sampling){.temperature = 0, .top_p = 1};
    c.logits[3] = c.logits[9] = 100;
    struct bn_sampler *s = sampler_for(&c, NULL);
    assert_int_equal(draw(s, &c, c.logits, 0), 3);
    bn_sampler_close(s);
}

static void bad_options_get_a_sentence(void **state)
{
    (void)state;
    static const bitnet_logit_bias no_token = {24, 1}, endless = {2, INFINITY}, nan_bias = {2, NAN};
    static const char *const empty = "", *const text = "x";
    const struct {
        bitnet_sampling s;
        const char *says;
    } bad[] = {
        {{.temperature = NAN, .top_p = 1}, "temperature is nan"},
        {{.top_p = 0}, "top-p is 0"},
        {{.top_p = 1, .min_p = 1.5f}, "min-p is 1.5"},
        {{.top_p = 1, .typical_p = -1}, "typical-p is -1"},
        {{.top_p = 1, .top_n_sigma = NAN}, "top-n-sigma is nan"},
        {{.top_p = 1, .repetition_penalty = -2}, "repetition penalty is -2"},
        {{.top_p = 1, .presence_penalty = NAN}, "presence penalty is nan"},
        {{.top_p = 1, .frequency_penalty = 101}, "frequency penalty is 101"},
        {{.top_p = 1, .dry_multiplier = -1}, "DRY multiplier is -1"},
        {{.top_p = 1, .dry_base = 0.5f}, "DRY base is 0.5"},
        {{.top_p = 1, .n_dry_breakers = 1}, "dry_breakers is NULL"},
        {{.top_p = 1, .dry_breakers = &text, .n_dry_breakers = 99}, "99 DRY breakers"},
        {{.top_p = 1, .dry_breakers = &empty, .n_dry_breakers = 1}, "breaker 0 has 0 bytes"},
        {{.top_p = 1, .n_logit_bias = 1}, "logit_bias is NULL"},
        {{.top_p = 1, .logit_bias = &no_token, .n_logit_bias = 1}, "token 24"},
        {{.top_p = 1, .logit_bias = &endless, .n_logit_bias = 1}, "bias of token 2 is inf"},
        {{.top_p = 1, .logit_bias = &nan_bias, .n_logit_bias = 1}, "bias of token 2 is nan"},
        {{.top_p = 1, .logit_bias = &no_token, .n_logit_bias = 5000}, "5000 biases"},
    };
    for (size_t i = 0; i < BN_ARRAY_LEN(bad); i++) {
        bitnet_error err = {0};
        assert_int_not_equal(bn_sampling_check(&bad[i].s, 24, &err), BITNET_OK);
        if (!strstr(err.text, bad[i].says)) fail_msg("'%s' in '%s'", bad[i].says, err.text);
    }
    bitnet_sampling s;
    bitnet_sampling_init(&s, sizeof s);
    assert_int_equal(bn_sampling_check(&s, 24, NULL), BITNET_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(screened_rows_give_the_same_token),
        cmocka_unit_test(penalties_want_the_whole_row),
#if BN_HAVE_TEXT
        cmocka_unit_test(breakers_end_repetitions),
#endif
        cmocka_unit_test(logprobs_are_those_of_the_model),
        cmocka_unit_test(drawn_logprobs_are_those_of_what_was_left),
        cmocka_unit_test(extreme_logits_are_no_trouble),
        cmocka_unit_test(ties_go_to_the_smaller_id),
        cmocka_unit_test(bad_options_get_a_sentence),
    };
    return cmocka_run_group_tests(tests, open_room, close_room);
}
