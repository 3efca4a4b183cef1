/* SPDX-License-Identifier: Apache-2.0
 * Events made up for a request, given to a reply and to streams that are written out at different
 * rhythms. Include after cmocka.h. */
#ifndef TESTS_SERVER_OPENAI_SCRIPT_H
#define TESTS_SERVER_OPENAI_SCRIPT_H

#include "base/rng.h"
#include "base/utf8.h"
#include "server/openai/stream.h"
#include "openai_common.h"

#define STORY "Once \"upon\"\n a time \xe2\x82\xac there \\ was \xf0\x9f\x90\xb6 a \x01 dog."
#define CALL(name, arguments) \
    "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " arguments "}\n</tool_call>"

static uint64_t rng_state;
static uint32_t below(uint32_t n)
{
    rng_state++;
    return (uint32_t)(bn_mix64(rng_state) % n);
}

/* ------------------------------------------------------------------ events */

enum { MAX_EVENTS = 20000 };

static struct {
    size_t n;
    struct scripted {
        size_t prompt;
        bitnet_event e;
    } at[MAX_EVENTS];
} script;
static bitnet_logprob top[8];

/* Cuts an answer into tokens at ends of characters. */
static void script_answer(size_t prompt, uint32_t choice, const char *answer, bitnet_finish finish)
{
    uint32_t n = 0, n_prompt = 3 + (uint32_t)prompt;
    const bitnet_event like = {
        .choice = choice, .n_prompt = n_prompt, .n_cached = 1, .n_top = 2, .top = top, .text = ""};
    for (const char *p = answer; *p;) {
        bitnet_event e = like;
        uint32_t cp;
        for (uint32_t chars = below(6); chars && p[e.text_bytes]; chars--)
            e.text_bytes += bn_utf8_decode(p + e.text_bytes, strlen(p + e.text_bytes), &cp);
        e.text = p;
        e.token = (int32_t)below(4096);
        e.logprob = -(float)below(1000) / 7;
        e.n_generated = ++n;
        p += e.text_bytes;
        assert_true(script.n < MAX_EVENTS);
        script.at[script.n].prompt = prompt;
        script.at[script.n++].e = e;
    }
    bitnet_event last = like;
    last.token = -1;
    last.finish = finish;
    last.n_generated = n;
    script.at[script.n].prompt = prompt;
    script.at[script.n++].e = last;
}

/* Choices of a request come mixed, each in its own order. */
static inline void shuffle(void)
{
    for (size_t k = 0; k < 4 * script.n; k++) {
        size_t i = below((uint32_t)script.n - 1);
        if (script.at[i].prompt == script.at[i + 1].prompt &&
            script.at[i].e.choice == script.at[i + 1].e.choice)
            continue;
        struct scripted one = script.at[i];
        script.at[i] = script.at[i + 1];
        script.at[i + 1] = one;
    }
}

/* ------------------------------------------------------------------ running it */

static inline void begin(enum openai_kind kind, const char *body)
{
    accepts(kind, body);
    if (openai_request_encode(&r, model, NULL, &err) != BITNET_OK) fail_msg("%s", err.text);
    script.n = 0;
    top[0] = (bitnet_logprob){10, -0.5f};
    top[1] = (bitnet_logprob){300, -1.25f};
}

static struct bn_json *reply_of_script(void)
{
    struct openai_reply reply;
    assert_int_equal(openai_reply_open(&reply, &r, model, "7", 5, &err), BITNET_OK);
    for (size_t i = 0; i < script.n; i++)
        assert_int_equal(openai_reply_take(&reply, script.at[i].prompt, &script.at[i].e, &err),
                         BITNET_OK);
    assert_true(openai_reply_done(&reply));
    struct bn_json *j = openai_reply_json(&reply, true);
    assert_non_null(j);
    openai_reply_close(&reply);
    return j;
}

/* flush_every: about so many events are gathered; 0: all of them */
static char *stream_of_script(uint32_t flush_every)
{
    struct openai_stream *s;
    struct bn_buf out;
    bn_buf_init(&out, 1 << 26);
    assert_int_equal(openai_stream_open(&s, &r, model, "7", 5, &err), BITNET_OK);
    for (size_t i = 0; i < script.n; i++) {
        assert_false(openai_stream_done(s));
        assert_int_equal(openai_stream_take(s, script.at[i].prompt, &script.at[i].e, &err),
                         BITNET_OK);
        if (flush_every && below(flush_every) == 0) assert_true(openai_stream_flush(s, &out));
    }
    assert_true(openai_stream_done(s));
    assert_true(openai_stream_flush(s, &out));
    size_t n = out.len;
    assert_true(openai_stream_flush(s, &out)); /* after its end there is nothing more */
    assert_int_equal(out.len, n);
    openai_stream_close(s);
    return bn_buf_take(&out);
}

static const uint32_t patterns[] = {1, 2, 5, 50, 0};

/* ------------------------------------------------------------------ what came out */

static void append_text(struct bn_json *object, const char *key, const struct bn_json *more)
{
    if (!bn_json_is_string(more)) return;
    const char *old = bn_json_text(bn_json_get(object, key));
    bn_json_set(object, key, bn_json_printf("%s%s", old ? old : "", bn_json_text(more)));
}

/* The next event: its data; *name: what its event line says, "" if there is none. */
static struct bn_json *next_event(const char **at, char name[64])
{
    name[0] = 0;
    if (strncmp(*at, "event: ", 7) == 0) {
        size_t n = strcspn(*at + 7, "\n");
        assert_true(n < 64);
        memcpy(name, *at + 7, n);
        name[n] = 0;
        *at += 7 + n + 1;
    }
    if (strncmp(*at, "data: ", 6) != 0) fail_msg("no data: %.40s", *at);
    const char *end = strstr(*at, "\n\n");
    assert_non_null(end);
    struct bn_json *j = json_of_bytes(*at + 6, (size_t)(end - *at - 6), BN_JSON_UNIQUE);
    *at = end + 2;
    return j;
}

static void same_json(const struct bn_json *a, const struct bn_json *b)
{
    char *ta = bn_json_dump(a, OPENAI_DUMP_FLAGS | BN_JSON_SORT),
         *tb = bn_json_dump(b, OPENAI_DUMP_FLAGS | BN_JSON_SORT);
    assert_non_null(ta);
    assert_non_null(tb);
    if (strcmp(ta, tb) != 0) fail_msg("\n%s\n%s", ta, tb);
    free(ta);
    free(tb);
}

#endif
