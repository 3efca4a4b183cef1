/* SPDX-License-Identifier: Apache-2.0
 * Texts through part of the stack: pieces of a walk put together are the whole pass, to the bit, with any
 * number of threads, for dense and hybrid models and all kinds of caches; and nothing is left behind. */
#include "engine_common.h"

#include "base/rng.h"
#include "effort.h"
#include "engine/engine.h"
#include "model/forward.h"

enum { TOKENS = 70 };

static int32_t tokens[TOKENS];

static bitnet_engine *engine_of(bitnet_model *m, uint32_t threads, bitnet_kv_type kv)
{
    bitnet_engine_options o = {.size = sizeof o};
    bitnet_engine *e = NULL;
    bitnet_error err = {0};
    o.threads = threads;
    o.ctx_tokens = o.max_batch_tokens = TOKENS;
    o.kv_type = kv;
    if (bitnet_engine_open(&e, m, &o, &err)) fail_msg("%s", err.text);
    return e;
}

static void walk(bitnet_engine *e, const uint32_t *layers, uint32_t n, const float *from, float *to,
                 float *logits)
{
    bitnet_error err = {0};
    struct bn_walk part = {.layers = layers, .n_layers = n, .from = from, .to = to};
    if (bn_engine_walk(e, tokens, TOKENS, &part, logits, &err)) fail_msg("%s", err.text);
}

/* The stack cut behind every layer beside bitnet_eval; and two layers left out, in one walk and in two. */
static void check(bitnet_model *m, uint32_t threads, bitnet_kv_type kv)
{
    bitnet_model_info in = {.size = sizeof in};
    bitnet_error err = {0};
    bitnet_model_get_info(m, &in);
    const uint32_t n_layer = in.shape.n_layer, n_vocab = in.shape.n_vocab;
    struct bn_rng rng = {.state = 5};
    for (size_t i = 0; i < TOKENS; i++) tokens[i] = (int32_t)bn_rng_below(&rng, n_vocab);
    size_t bytes = (size_t)TOKENS * n_vocab * sizeof(float);
    float *want = malloc(bytes), *got = malloc(bytes);
    float *x = malloc((size_t)TOKENS * in.shape.n_embd * sizeof *x);
    uint32_t all[64], some[64], n_some = 0;
    assert_true(want && got && x && n_layer <= 64);
    for (uint32_t i = 0; i < n_layer; i++) {
        all[i] = i;
        if (i != 2 && i != n_layer - 2) some[n_some++] = i;
    }
    bitnet_engine *e = engine_of(m, threads, kv);
    if (bitnet_eval(e, 0, tokens, TOKENS, 0, want, &err)) fail_msg("%s", err.text);
    bitnet_eval_reset(e, 0, &err);
    for (uint32_t cut = 0; cut <= n_layer; cut++) {
        memset(got, 0x55, bytes);
        walk(e, all, cut, NULL, x, NULL);
        walk(e, all + cut, n_layer - cut, x, x, got);
        assert_memory_equal(got, want, bytes);
        walk(e, NULL, 0, x, NULL, got); /* the head alone */
        assert_memory_equal(got, want, bytes);
    }
    walk(e, some, n_some, NULL, NULL, want);
    walk(e, some, 3, NULL, x, NULL);
    walk(e, some + 3, n_some - 3, x, NULL, got);
    assert_memory_equal(got, want, bytes);
    assert_int_equal(engine_info(e).kv.pages_free, engine_info(e).kv.pages);
    bitnet_engine_close(e);
    free(want);
    free(got);
    free(x);
}

static void test_dense(void **state)
{
    (void)state;
    for (uint32_t threads = full_effort() ? 1 : 3; threads <= 3; threads++)
        check(model, threads, BITNET_KV_F16);
    check(model, 2, BITNET_KV_INT4);
}

static void test_hybrid(void **state)
{
    (void)state;
    bitnet_model *m = NULL;
    bitnet_error err = {0};
    if (bitnet_model_open(&m, TEST_DATA "/hybrid/hybrid-28m.gguf", NULL, &err))
        fail_msg("%s", err.text);
    if (full_effort()) check(m, 1, BITNET_KV_F16);
    check(m, 3, BITNET_KV_F16);
    bitnet_model_close(m);
}

static void test_refused(void **state)
{
    (void)state;
    bitnet_error err = {0};
    struct bn_walk part = {0};
    int32_t bad = -1;
    bitnet_engine *e = engine_of(model, 1, BITNET_KV_F16);
    assert_int_equal(bn_engine_walk(e, tokens, TOKENS + 1, &part, NULL, &err), BITNET_E_LIMIT);
    assert_int_equal(bn_engine_walk(e, &bad, 1, &part, NULL, &err), BITNET_E_ARG);
    assert_int_equal(bitnet_eval(e, 0, tokens, 1, 0, NULL, &err), BITNET_OK);
    assert_int_equal(bn_engine_walk(e, tokens, 1, &part, NULL, &err), BITNET_E_STATE);
    bitnet_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_hybrid),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
