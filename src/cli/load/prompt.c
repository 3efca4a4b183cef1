/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/load/prompt.h"

#include "base/os/mem.h"
#include "cli/core/args.h"
#include "app/line_reader.h"
#include "cli/load/arrivals.h"
#include <math.h>
#include <stdlib.h>

/* ------------------------------------------------------------------ lengths */

/* Two numbers with a mark between them. */
static bool parse_pair(double *a, double *b, const char *text, char mark)
{
    char first[32];
    const char *at = strchr(text, mark);
    if (!at || (size_t)(at - text) >= sizeof first) return false;
    memcpy(first, text, (size_t)(at - text));
    first[at - text] = 0;
    return args_double(a, first) && args_double(b, at + 1);
}

bool load_length_parse(struct load_length *out, const char *text)
{
    static const char normal[] = "normal:";
    struct load_length l = {.kind = LOAD_LENGTH_UNIFORM};
    if (strncmp(text, normal, sizeof normal - 1) == 0) {
        l.kind = LOAD_LENGTH_NORMAL;
        if (!parse_pair(&l.a, &l.b, text + sizeof normal - 1, ',') || l.b < 0) return false;
    } else if (strchr(text, '-')) {
        if (!parse_pair(&l.a, &l.b, text, '-') || l.b < l.a) return false;
    } else {
        if (!args_double(&l.a, text)) return false;
        l.b = l.a;
    }
    *out = l;
    return l.a >= 1 && l.a <= LOAD_MAX_TOKENS && l.b <= LOAD_MAX_TOKENS;
}

uint32_t load_length_draw(const struct load_length *l, struct bn_rng *r)
{
    double v = l->kind == LOAD_LENGTH_NORMAL ? round(l->a + l->b * load_draw_normal(r))
                                             : floor(l->a + (l->b - l->a + 1) * bn_rng_unit(r));
    return (uint32_t)fmin(fmax(v, 1), LOAD_MAX_TOKENS);
}

/* ------------------------------------------------------------------ a file of prompts */

static struct bn_json *user_message(struct bn_json *content)
{
    return bn_json_pack("[{s:s, s:O}]", "role", "user", "content", content);
}

/* The messages of one line; NULL: it has none. */
static struct bn_json *messages_of(const struct bn_json *line)
{
    struct bn_json *messages = bn_json_get(line, "messages"), *prompt = bn_json_get(line, "prompt");
    struct bn_json *turn = bn_json_at(bn_json_get(line, "turns"), 0);
    if (bn_json_size(messages)) return bn_json_ref(messages);
    if (bn_json_is_string(prompt)) return user_message(prompt);
    return bn_json_is_string(turn) ? user_message(turn) : NULL;
}

static bitnet_status read_prompt(struct load_dataset *d, const struct line *l, const char *path,
                                 uint64_t *bytes, bitnet_error *err)
{
    char what[300];
    struct bn_json *line = NULL;
    snprintf(what, sizeof what, "line %llu of '%.200s'", (unsigned long long)l->number, path);
    if (!l->whole || (*bytes += l->n) > LOAD_MAX_DATASET_BYTES ||
        bn_json_size(d->items) == LOAD_MAX_PROMPTS)
        return bn_fail(err, BITNET_E_LIMIT,
                       "%s is longer than %d bytes, or the file has more than %d prompts or %d "
                       "bytes",
                       what, LINE_READER_MAX_BYTES, LOAD_MAX_PROMPTS, LOAD_MAX_DATASET_BYTES);
    BN_TRY(bn_json_parse(&line, l->text, l->n, 0, what, err));
    struct bn_json *messages = messages_of(line);
    bn_json_free(line);
    if (!messages)
        return bn_fail(err, BITNET_E_FORMAT,
                       "%s has neither \"messages\" nor \"prompt\" nor \"turns\"", what);
    if (!bn_json_append(d->items, messages)) return bn_fail_nomem(err, l->n, what);
    return BITNET_OK;
}

bitnet_status load_dataset_read(struct load_dataset *d, const char *path, bitnet_error *err)
{
    struct line_reader reader;
    struct line l;
    bool got = true;
    uint64_t bytes = 0;
    d->items = bn_json_array();
    bitnet_status s = line_reader_open(&reader, path, err);
    while (s == BITNET_OK) {
        s = line_reader_next(&reader, &l, &got, err);
        if (s != BITNET_OK || !got) break;
        if (l.n) s = read_prompt(d, &l, path, &bytes, err);
    }
    line_reader_close(&reader);
    if (s == BITNET_OK && bn_json_size(d->items) == 0)
        s = bn_fail(err, BITNET_E_FORMAT, "'%.200s' holds no prompts", path);
    return s;
}

void load_dataset_free(struct load_dataset *d)
{
    bn_json_free(d->items);
    d->items = NULL;
}

/* ------------------------------------------------------------------ prompts of words */

/* Short and common, so that nearly every vocabulary has each of them as one token. */
static const char *const words[] = {
    "the",   "and",   "was",    "little", "girl",  "boy",    "day",    "big",   "tree",   "dog",
    "cat",   "play",  "very",   "happy",  "said",  "mom",    "dad",    "went",  "park",   "with",
    "her",   "his",   "they",   "saw",    "red",   "ball",   "house",  "time",  "friend", "old",
    "man",   "bird",  "fish",   "water",  "sun",   "home",   "like",   "look",  "good",   "new",
    "small", "box",   "car",    "run",    "fast",  "door",   "room",   "bed",   "night",  "morning",
    "food",  "eat",   "cake",   "share",  "help",  "wanted", "found",  "took",  "made",   "some",
    "many",  "one",   "two",    "three",  "under", "over",   "around", "near",  "long",   "short",
    "blue",  "green", "white",  "black",  "book",  "read",   "story",  "sing",  "song",   "walk",
    "talk",  "smile", "laugh",  "rain",   "snow",  "wind",   "hill",   "river", "sea",    "boat",
    "town",  "road",  "school", "game",   "toy",   "doll"};

static void put_words(struct bn_buf *out, uint32_t n, struct bn_rng r)
{
    for (uint32_t i = 0; i < n && !out->failed; i++) {
        if (out->len) bn_buf_putc(out, ' ');
        bn_buf_puts(out, words[bn_rng_below(&r, BN_ARRAY_LEN(words))]);
    }
}

/* A stream of random numbers for one use in one request. */
enum use { USE_LENGTHS = 1, USE_WORDS, USE_PREFIX };
static struct bn_rng rng_for(uint64_t seed, uint64_t index, enum use use)
{
    return (struct bn_rng){bn_mix64(bn_mix64(seed + 1) ^ bn_mix64(index * 4 + (uint64_t)use))};
}

static struct bn_json *word_message(const struct load_prompts *p, const struct load_ask *ask)
{
    struct bn_buf text;
    uint32_t shared = p->shared_prefix < ask->n_in ? p->shared_prefix : ask->n_in;
    bn_buf_init(&text, LOAD_MAX_BODY_BYTES);
    put_words(&text, shared, rng_for(p->seed, 0, USE_PREFIX));
    put_words(&text, ask->n_in - shared, rng_for(p->seed, ask->index, USE_WORDS));
    struct bn_json *content =
        text.failed ? NULL : bn_json_stringn(text.data ? text.data : "", text.len);
    bn_buf_free(&text);
    struct bn_json *messages = user_message(content);
    bn_json_free(content);
    return messages;
}

/* ------------------------------------------------------------------ requests */

struct load_ask load_prompts_ask(const struct load_prompts *p, uint64_t index)
{
    struct bn_rng r = rng_for(p->seed, index, USE_LENGTHS);
    uint32_t n_in = load_length_draw(&p->in, &r), n_out = load_length_draw(&p->out, &r);
    return (struct load_ask){index, p->dataset ? 0 : n_in, n_out};
}

/* For /v1/completions: the texts of the messages, one after the other. */
static struct bn_json *plain_prompt(const struct bn_json *messages)
{
    struct bn_buf text;
    bn_buf_init(&text, LOAD_MAX_BODY_BYTES);
    for (size_t i = 0; i < bn_json_size(messages); i++) {
        const char *s = bn_json_text(bn_json_get(bn_json_at(messages, i), "content"));
        if (text.len) bn_buf_putc(&text, '\n');
        bn_buf_puts(&text, s ? s : "");
    }
    struct bn_json *j = text.failed ? NULL : bn_json_stringn(text.data ? text.data : "", text.len);
    bn_buf_free(&text);
    return j;
}

static struct bn_json *messages_for(const struct load_prompts *p, const struct load_ask *ask)
{
    if (!p->dataset) return word_message(p, ask);
    size_t n = bn_json_size(p->dataset->items);
    return bn_json_ref(bn_json_at(p->dataset->items, ask->index % n));
}

bool load_prompts_body(const struct load_prompts *p, const struct load_ask *ask, struct bn_buf *out)
{
    struct bn_json *messages = messages_for(p, ask);
    struct bn_json *asked = p->chat ? bn_json_ref(messages) : plain_prompt(messages);
    bn_json_free(messages);
    struct bn_json *body = bn_json_pack(
        "{s:s, s:o, s:i, s:I, s:b, s:{s:b}}", "model", p->model, p->chat ? "messages" : "prompt",
        asked, "max_tokens", (int)ask->n_out, "seed", (int64_t)((p->seed + ask->index) & INT32_MAX),
        "stream", 1, "stream_options", "include_usage", 1);
    if (p->ignore_eos) bn_json_set(body, "ignore_eos", bn_json_bool(true));
    if (p->has_temperature) bn_json_set(body, "temperature", bn_json_real((double)p->temperature));
    bool ok = bn_json_write(out, body, BN_JSON_COMPACT | BN_JSON_DIGITS(6));
    bn_json_free(body);
    return ok;
}
