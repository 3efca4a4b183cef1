/* SPDX-License-Identifier: Apache-2.0
 * Streams of servers as `bitnet loadtest` reads them, cut at every byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/load/reply.h"
#include <stdio.h>

/* ------------------------------------------------------------------ events */

struct events {
    char text[512];
    int n;
};

static void collect(void *user, const char *data, size_t n)
{
    struct events *e = user;
    size_t at = strlen(e->text);
    assert_int_equal(strlen(data), n);
    snprintf(e->text + at, sizeof e->text - at, "<%s>", data);
    e->n++;
}

static const char sse[] = ": hello\n\ndata: one\n\nevent: x\r\ndata:two\r\ndata: lines\r\n\r\n"
                          "data\n\nid: 3\rdata:  spaced\r\rdatax: no\n\ndata: {\"a\": 1}\n\n"
                          "data: cut off\n";
static const char want[] = "<one><two\nlines><>< spaced><{\"a\": 1}>";

static void events_are_the_same_however_they_are_cut(void **state)
{
    (void)state;
    const size_t n = sizeof sse - 1;
    struct load_sse s;
    load_sse_init(&s);
    for (size_t i = 0; i <= n; i++)
        for (size_t k = i; k <= n; k++) { /* three pieces */
            struct events e = {0};
            load_sse_reset(&s);
            load_sse_feed(&s, sse, i, collect, &e);
            load_sse_feed(&s, sse + i, k - i, collect, &e);
            load_sse_feed(&s, sse + k, n - k, collect, &e);
            assert_string_equal(e.text, want);
        }
    struct events e = {0};
    load_sse_reset(&s);
    for (size_t i = 0; i < n; i++) load_sse_feed(&s, sse + i, 1, collect, &e);
    assert_string_equal(e.text, want);
    load_sse_free(&s);
}

static void an_event_without_end_is_refused(void **state)
{
    (void)state;
    struct load_sse s;
    struct events e = {0};
    char piece[4096];
    memset(piece, 'x', sizeof piece);
    load_sse_init(&s);
    for (int i = 0; i < 2 * LOAD_SSE_MAX_BYTES / (int)sizeof piece; i++)
        load_sse_feed(&s, piece, sizeof piece, collect, &e);
    assert_true(s.failed);
    load_sse_reset(&s);
    for (int i = 0; i < 2 * LOAD_SSE_MAX_BYTES / 1000 && !s.failed; i++) { /* many lines of data */
        load_sse_feed(&s, "data: ", 6, collect, &e);
        load_sse_feed(&s, piece, 1000, collect, &e);
        load_sse_feed(&s, "\n", 1, collect, &e);
    }
    assert_true(s.failed);
    assert_int_equal(e.n, 0);
    load_sse_free(&s);
}

/* ------------------------------------------------------------------ replies */

/* As OpenAI's, vLLM's and llama.cpp's servers write them. */
static const char chat[] =
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"One\"},\"finish_reason\":null}]}\n\n"
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" t\\u00e9\"}}],\"usage\":null}\n\n"
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"x\"}}]}\n\n"
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":5,"
    "\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n"
    "data: [DONE]\n\n";

static void check_chat(const struct load_reply *r)
{
    assert_int_equal(r->n_chunks, 3);
    assert_true(r->finished && r->has_usage);
    assert_string_equal(r->error, "");
    assert_int_equal(r->n_prompt, 12);
    assert_int_equal(r->n_output, 5);
    assert_int_equal(r->n_cached, 4);
}

/* The time of a chunk is that of the piece with its last byte. */
static void replies_are_the_same_however_they_are_cut(void **state)
{
    (void)state;
    static struct load_hist gaps;
    const size_t n = sizeof chat - 1;
    struct load_reply r;
    load_reply_init(&r);
    for (size_t i = 0; i <= n; i++) {
        memset(&gaps, 0, sizeof gaps);
        load_reply_start(&r, &gaps);
        load_reply_feed(&r, chat, i, 100);
        uint32_t before = r.n_chunks;
        load_reply_feed(&r, chat + i, n - i, 150);
        check_chat(&r);
        assert_int_equal(r.first_ns, before ? 100 : 150);
        assert_int_equal(r.last_ns, before == 3 ? 100 : 150);
        assert_int_equal(r.worst_gap_ns, before == 0 || before == 3 ? 0 : 50);
        assert_int_equal(gaps.n, 2);
    }
    memset(&gaps, 0, sizeof gaps);
    load_reply_start(&r, &gaps);
    for (size_t i = 0; i < n; i++) load_reply_feed(&r, chat + i, 1, 1000 + i);
    check_chat(&r);
    assert_true(r.first_ns < r.last_ns);
    assert_int_equal(gaps.max, r.worst_gap_ns);
    load_reply_free(&r);
}

static void feed_one(struct load_reply *r, const char *text)
{
    load_reply_start(r, NULL);
    load_reply_feed(r, text, strlen(text), 1);
}

static void other_replies(void **state)
{
    (void)state;
    struct load_reply r;
    load_reply_init(&r);
    feed_one(&r, "data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: {\"choices\":[{\"text\":\"\","
                 "\"finish_reason\":\"length\"}]}\n\n");
    assert_true(r.finished && r.n_chunks == 1 && !r.has_usage);
    feed_one(&r, "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}\n\n");
    assert_int_equal(r.n_chunks, 1);
    feed_one(&r, "data: {\"error\":{\"message\":\"out of pages\",\"code\":500}}\n\n");
    assert_non_null(strstr(r.error, "out of pages"));
    feed_one(&r, "data: {\"error\":\"plain\"}\n\n");
    assert_non_null(strstr(r.error, "plain"));
    feed_one(&r, "data: {\"error\":null,\"choices\":[{\"text\":\"a\"}]}\n\n");
    assert_string_equal(r.error, "");
    feed_one(&r, "data: nonsense\n\n");
    assert_non_null(strstr(r.error, "no JSON"));
    feed_one(&r, "data: {\"choices\":[{\"text\":\"a\"}]}\n\n");
    assert_false(r.finished);
    feed_one(&r, "data: {\"usage\":{\"completion_tokens\":-1,\"prompt_tokens\":99999999999}}\n\n");
    assert_int_equal(r.n_output, 0);
    assert_int_equal(r.n_prompt, UINT32_MAX);
    load_reply_free(&r);
}

static void messages_of_errors_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *body, *want;
    } cases[] = {{"{\"error\":{\"message\":\"too long\"}}", "too long"},
                 {"{\"error\":\"plain\"}", "plain"},
                 {"{\"message\":\"here\"}", "here"},
                 {"<html>", "<html>"},
                 {"", ""}};
    for (size_t i = 0; i < BN_ARRAY_LEN(cases); i++) {
        char out[16];
        load_reply_error(out, sizeof out, cases[i].body, strlen(cases[i].body));
        assert_string_equal(out, cases[i].want);
    }
    char small[5];
    load_reply_error(small, sizeof small, "0123456789", 10);
    assert_string_equal(small, "0123");
    load_reply_error(small, sizeof small, NULL, 0);
    assert_string_equal(small, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_the_same_however_they_are_cut),
        cmocka_unit_test(an_event_without_end_is_refused),
        cmocka_unit_test(replies_are_the_same_however_they_are_cut),
        cmocka_unit_test(other_replies),
        cmocka_unit_test(messages_of_errors_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
