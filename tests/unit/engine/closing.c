/* SPDX-License-Identifier: Apache-2.0
 * Choices with a constraint and a limit, through bitnet.h: they end in time, with any batch neighbours, and what
 * could not end is refused. */
#include "engine_common.h"

#include <math.h>
#include <pthread.h>

static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"title\":{\"type\":\"string\"},\"tags\":{\"type\":"
    "\"array\","
    "\"items\":{\"type\":\"string\"},\"minItems\":1},\"pages\":{\"type\":\"integer\"}},"
    "\"required\":[\"title\",\"tags\",\"pages\"]}";
static const char numbers[] = "root ::= [0-9]+ (\",\" [0-9]+)* | [a-z ]{3,} \".\"";

static bitnet_request make_request(const char *text, uint32_t n_new, uint64_t seed)
{
    static int32_t prompt[32];
    size_t n = 32;
    bitnet_request r;
    bitnet_request_init(&r, sizeof r);
    if (bitnet_encode(model, text, strlen(text), BITNET_TOK_BOS_AUTO, prompt, &n, NULL))
        fail_msg("%s", text);
    r.tokens = prompt;
    r.n_tokens = n;
    r.max_new_tokens = n_new;
    r.sampling.temperature = 1;
    r.sampling.seed = seed;
    return r;
}

static bitnet_engine *open_small(const char *speculation, uint32_t seqs)
{
    bitnet_engine_options o = {.size = sizeof o};
    o.threads = 1;
    o.ctx_tokens = 256;
    o.max_seqs = seqs;
    o.draft = speculation;
    return open_engine(&o);
}

/* The least max_new_tokens that is not refused. */
static uint32_t least_limit(bitnet_engine *e, bitnet_request r)
{
    char want[80];
    bitnet_error err = {0};
    uint64_t id;
    r.max_new_tokens = 1;
    if (bitnet_submit(e, &r, &id, &err) == BITNET_OK) return 1;
    const char *number = strstr(err.text, "takes up to ");
    assert_non_null(number);
    uint32_t least = (uint32_t)strtoul(number + 12, NULL, 10);
    assert_non_null(strstr(err.text, "there is room for 1"));
    r.max_new_tokens = least - 1;
    assert_int_equal(bitnet_submit(e, &r, &id, &err), BITNET_E_LIMIT);
    snprintf(want, sizeof want, "takes up to %u tokens; there is room for %u", least, least - 1);
    assert_non_null(strstr(err.text, want));
    return least;
}

enum { N_LIMITS = 12, MAX_LEAST = ANSWER_TOKENS - 3 * N_LIMITS };

static void answers_end_in_time(void **state)
{
    (void)state;
    bitnet_engine *e = open_small("off", 4), *drafting = open_small("on", N_LIMITS);
    for (int form = 0; form < 2; form++) {
        static struct choice alone[N_LIMITS], together[N_LIMITS];
        struct ask asks[N_LIMITS];
        memset(alone, 0, sizeof alone);
        memset(together, 0, sizeof together);
        uint32_t least = 0, n_full = 0;
        for (uint32_t i = 0; i < N_LIMITS; i++) {
            bitnet_request r = make_request("Once upon a time", 0, i);
            if (form == 0) r.json_schema = schema;
            else r.grammar = numbers;
            if (i == 0) least = least_limit(e, r);
            assert_in_range(least, 1, MAX_LEAST);
            r.max_new_tokens = least + 3 * i;
            struct ask ask = {submit(e, &r), 1, &alone[i]};
            finish_all(e, &ask, 1, 64);
            asks[i] = (struct ask){submit(drafting, &r), 1, &together[i]};
            assert_int_equal(alone[i].finish, BITNET_FINISH_END);
            assert_in_range(alone[i].n, 1, r.max_new_tokens);
            n_full += alone[i].n == r.max_new_tokens;
            const char *text = alone[i].text;
            size_t n = alone[i].text_bytes;
            assert_true(n > 0);
            if (form == 0) assert_true(text[0] == '{' && text[n - 1] == '}');
            else assert_true(text[n - 1] == '.' || (text[n - 1] >= '0' && text[n - 1] <= '9'));
        }
        assert_true(n_full >= 3); /* the limit was felt */
        finish_all(drafting, asks, N_LIMITS, 64);
        assert_memory_equal(alone, together, sizeof alone);
    }
    bitnet_engine_close(e);
    bitnet_engine_close(drafting);
}

/* A bias may forbid what would end the text: then it is cut, and says so. */
static void a_bias_against_the_end_counts(void **state)
{
    (void)state;
    bitnet_engine *e = open_small("off", 1);
    static struct choice answer;
    int32_t id;
    size_t n = 1;
    assert_int_equal(bitnet_encode(model, ".", 1, 0, &id, &n, NULL), BITNET_OK);
    bitnet_logit_bias bias = {id, -INFINITY};
    bitnet_request r = make_request("Once upon a time", 12, 3);
    r.grammar = "root ::= [a-z ]+ \".\"";
    r.sampling.logit_bias = &bias;
    r.sampling.n_logit_bias = 1;
    struct ask ask = {submit(e, &r), 1, &answer};
    finish_all(e, &ask, 1, 64);
    assert_int_equal(answer.finish, BITNET_FINISH_LENGTH);
    assert_int_equal(answer.n, 12);
    bitnet_engine_close(e);
}

/* Constraints are compiled once, by whichever thread comes first, and failures are kept as well. */
struct preparing {
    bitnet_engine *e;
    const bitnet_request *r;
    bitnet_status status;
};

static void *prepare(void *user)
{
    struct preparing *p = user;
    for (int i = 0; i < 200 && p->status == BITNET_OK; i++)
        p->status = bitnet_prepare(p->e, p->r, NULL);
    return NULL;
}

static void constraints_are_kept(void **state)
{
    (void)state;
    enum { N_THREADS = 3, N_OTHERS = 150 };
    bitnet_engine *e = open_small("off", 2);
    bitnet_request r = make_request("Once upon a time", MAX_LEAST, 1);
    bitnet_error first = {0}, again = {0};
    static struct choice plain, prepared;
    struct preparing p[N_THREADS];
    pthread_t threads[N_THREADS];
    uint64_t id;
    r.json_schema = schema;
    finish_all(e, &(struct ask){submit(e, &r), 1, &plain}, 1, 64);
    for (int i = 0; i < N_THREADS; i++) {
        p[i] = (struct preparing){e, &r, BITNET_OK};
        assert_int_equal(pthread_create(&threads[i], NULL, prepare, &p[i]), 0);
    }
    finish_all(e, &(struct ask){submit(e, &r), 1, &prepared}, 1, 64);
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(p[i].status, BITNET_OK);
    }
    assert_memory_equal(&plain, &prepared, sizeof plain);
    for (int i = 0; i < N_OTHERS; i++) { /* more than are kept */
        char other[40];
        snprintf(other, sizeof other, "{\"const\":%d}", i);
        r.json_schema = other;
        assert_int_equal(bitnet_prepare(e, &r, NULL), BITNET_OK);
    }
    r.json_schema = "{\"items\":5}";
    assert_int_equal(bitnet_prepare(e, &r, &first), BITNET_E_FORMAT);
    assert_int_equal(bitnet_submit(e, &r, &id, &again), BITNET_E_FORMAT);
    assert_string_equal(first.text, again.text);
    assert_non_null(strstr(first.text, "'items' is not a schema"));
    r.grammar = numbers;
    assert_int_equal(bitnet_prepare(e, &r, NULL), BITNET_E_ARG);
    bitnet_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_end_in_time),
        cmocka_unit_test(a_bias_against_the_end_counts),
        cmocka_unit_test(constraints_are_kept),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
