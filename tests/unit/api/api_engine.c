/* SPDX-License-Identifier: Apache-2.0
 *
 * fork(): what was opened before belongs to the parent. In the child every use that would need the threads
 * is an error, closing works, an engine of its own does, and nothing hangs; the parent does not notice. */
#include "engine_model.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORKS = 20, HANGS_S = 60, N_LOGITS = 1 << 17 };

static float logits[N_LOGITS];
static const int32_t text[] = {1, 390, 389};

static bitnet_status next_token(bitnet_engine *e, int32_t *token)
{
    bitnet_error err;
    uint64_t id;
    bitnet_request r;
    bitnet_request_init(&r, sizeof r);
    r.tokens = text;
    r.n_tokens = 3;
    r.max_new_tokens = 1;
    r.sampling.temperature = 0;
    bitnet_status s = bitnet_submit(e, &r, &id, &err);
    *token = -1;
    while (s == BITNET_OK && *token < 0) {
        bitnet_event events[8] = {{.size = sizeof *events}};
        size_t n = 8;
        s = bitnet_step(e, events, &n, &err);
        for (size_t i = 0; s == BITNET_OK && i < n; i++)
            if (events[i].token >= 0) *token = events[i].token;
    }
    return s;
}

/* 0: all is as it should be, else which of the steps was not. */
static int in_the_child(bitnet_engine *e, int32_t expected)
{
    bitnet_error err = {0};
    bitnet_event events[8] = {{.size = sizeof *events}};
    bitnet_scrub scrub = {.size = sizeof scrub};
    bitnet_engine *own = NULL;
    size_t n = 8;
    int32_t token;
    uint64_t identity;
    if (bitnet_step(e, events, &n, &err) != BITNET_E_STATE || !strstr(err.text, "fork")) return 1;
    if (next_token(e, &token) != BITNET_E_STATE) return 2;
    if (bitnet_eval(e, 0, text, 3, 1, logits, &err) != BITNET_E_STATE) return 3;
    if (bitnet_engine_warmup(e, &err) != BITNET_E_STATE) return 4;
    if (bitnet_engine_scrub(e, 1, &scrub, &err) != BITNET_E_STATE) return 5;
    if (bitnet_engine_identity(e, NULL, 0, &identity, &err) != BITNET_E_STATE) return 6;
    bitnet_engine_close(e);
    if (bitnet_engine_open(&own, model, NULL, &err) != BITNET_OK) return 7;
    if (next_token(own, &token) != BITNET_OK || token != expected) return 8;
    bitnet_engine_close(own);
    bitnet_model_close(model);
    return 0;
}

static void test_fork(void **state)
{
    (void)state;
    bitnet_engine_options o = {.size = sizeof o, .threads = 3};
    bitnet_engine *e = NULL;
    int32_t first, again;
    assert_true(info.shape.n_vocab <= N_LOGITS);
    assert_int_equal(bitnet_engine_open(&e, model, &o, NULL), BITNET_OK);
    assert_int_equal(next_token(e, &first), BITNET_OK);
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(HANGS_S);
            _exit(in_the_child(e, first));
        }
        int how;
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFEXITED(how));
        assert_int_equal(WEXITSTATUS(how), 0);
        assert_int_equal(next_token(e, &again), BITNET_OK);
        assert_int_equal(again, first);
    }
    bitnet_engine_close(e);
}

/* The same weights are the same, whatever the types of caches do to answers is not. */
static void test_identity(void **state)
{
    (void)state;
    bitnet_engine_options o = {.size = sizeof o, .threads = 1};
    bitnet_engine *e = NULL;
    uint64_t found[4];
    for (int i = 0; i < 4; i++) {
        o.ctx_tokens = 64u << (i & 1);
        o.kv_type = i < 2 ? BITNET_KV_AUTO : BITNET_KV_INT8;
        assert_int_equal(bitnet_engine_open(&e, model, &o, NULL), BITNET_OK);
        assert_int_equal(bitnet_engine_identity(e, NULL, 0, &found[i], NULL), BITNET_OK);
        bitnet_engine_close(e);
    }
    assert_true(found[0] == found[1] && found[2] == found[3] && found[0] != found[2]);
    assert_int_equal(bitnet_engine_identity(NULL, NULL, 0, &found[0], NULL), BITNET_E_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fork),
                                       cmocka_unit_test(test_identity)};
    return cmocka_run_group_tests(tests, open_model, close_model);
}
