/* SPDX-License-Identifier: Apache-2.0 */
#include "json/json.h"
#include "base/rng.h"
#include "cli/batch/batch.h"
#include <stdio.h>
#include <stdlib.h>

/* ------------------------------------------------------------------ keys */

/* FNV-1a */
static uint64_t hash_bytes(uint64_t h, const void *p, size_t n)
{
    const unsigned char *s = p;
    for (size_t i = 0; i < n; i++) h = (h ^ s[i]) * 0x100000001b3u;
    return h;
}

static uint64_t hash_text(uint64_t h, const char *s)
{
    return s ? hash_bytes(h, s, strlen(s) + 1) : hash_bytes(h, "\1", 1);
}

static uint64_t hash_u64(uint64_t h, uint64_t v) { return hash_bytes(h, &v, sizeof v); }

uint64_t batch_run_key(const struct batch_config *c, const char *chat_template,
                       const bitnet_model_info *m, const bitnet_engine_info *e)
{
    uint64_t h = hash_text(0xcbf29ce484222325u, bitnet_version());
    h = hash_text(h, m->name);
    h = hash_text(h, m->architecture);
    h = hash_text(h, m->act_quant);
    h = hash_u64(h, m->shape.n_params);
    h = hash_u64(h, m->memory.file_bytes);
    h = hash_u64(h, e->ctx_tokens);
    /* a cache that is smaller than one context refuses what another would take */
    h = hash_u64(h, bn_min_size(e->ctx_tokens, (size_t)e->kv.pages * e->kv.page_tokens));
    h = hash_text(h, e->kv.type);
    h = hash_text(h, e->kv.type_v);
    h = hash_u64(h, strcmp(e->head.type, "int8") == 0); /* the other heads have the same tokens */
    h = hash_text(h, chat_template);
    h = hash_u64(h, c->max_tokens);
    return hash_u64(h, c->seed);
}

/* ------------------------------------------------------------------ lines */

static bool is_blank(const struct line *l)
{
    for (size_t i = 0; i < l->n; i++)
        if (!strchr(" \t\r", l->text[i]) || !l->text[i]) return false;
    return true;
}

bitnet_status batch_input_next(struct batch_input *in, bool *got, bitnet_error *err)
{
    *got = true;
    if (in->held) {
        in->held = false;
        return BITNET_OK;
    }
    *got = !in->config->limit || in->index < in->config->limit;
    if (!*got) return BITNET_OK;
    do BN_TRY(line_reader_next(&in->reader, &in->line, got, err));
    while (*got && is_blank(&in->line));
    if (!*got) return BITNET_OK;
    in->index++;
    in->key = bn_mix64(hash_bytes(hash_u64(in->run_key, in->index), in->line.text, in->line.n));
    return BITNET_OK;
}

/* ------------------------------------------------------------------ requests */

/* OpenAI's form wraps the body: {"custom_id", "method", "url", "body"}. A plain line is a body that
 * may have a custom_id. */
static bitnet_status unwrap(struct bn_json **body, enum openai_kind *kind, struct bn_json *j,
                            bitnet_error *err)
{
    *body = bn_json_get(j, "body");
    if (!*body) {
        bn_json_del(j, "custom_id");
        *kind = bn_json_get(j, "messages") ? OPENAI_CHAT : OPENAI_COMPLETION;
        *body = j;
        return BITNET_OK;
    }
    const char *method = "POST", *url = NULL;
    BN_TRY(bn_json_read_str(&method, j, "method", "request", err));
    BN_TRY(bn_json_read_str(&url, j, "url", "request", err));
    if (strcmp(method, "POST") != 0)
        return bn_fail(err, BITNET_E_ARG, "the method is '%.20s'; only POST is possible", method);
    if (!url) return bn_fail(err, BITNET_E_ARG, "the request has no 'url'");
    return openai_kind_of(kind, url, err);
}

static bitnet_status get_custom_id(char **out, const struct bn_json *j, uint64_t index,
                                   bitnet_error *err)
{
    const struct bn_json *v = bn_json_get(j, "custom_id");
    char numbered[32];
    snprintf(numbered, sizeof numbered, "request-%llu", (unsigned long long)index);
    if (v && (!bn_json_is_string(v) || strlen(bn_json_text(v)) != bn_json_bytes(v)))
        return bn_fail(err, BITNET_E_ARG, "'custom_id' is not a string");
    *out = strdup(v ? bn_json_text(v) : numbered);
    return *out ? BITNET_OK : bn_fail_nomem(err, sizeof numbered, "a custom_id");
}

static bitnet_status parse_object(const struct batch_input *in, struct openai_request *r,
                                  char **custom_id, struct bn_json *j, bitnet_error *err)
{
    if (!bn_json_is_object(j)) return bn_fail(err, BITNET_E_ARG, "the line is not a JSON object");
    enum openai_kind kind;
    struct bn_json *body;
    BN_TRY(get_custom_id(custom_id, j, in->index, err));
    struct openai_defaults d = {.max_tokens = in->config->max_tokens,
                                .model = in->model,
                                .seed =
                                    bn_mix64(hash_text(bn_mix64(in->config->seed), *custom_id))};
    BN_TRY(unwrap(&body, &kind, j, err));
    BN_TRY(openai_request_read(r, kind, body, &d, err));
    bitnet_status s = BITNET_OK;
    if (r->stream) s = bn_fail(err, BITNET_E_ARG, "'stream' is not possible in a batch");
    if (s == BITNET_OK) s = openai_request_encode(r, in->model, in->chat_template, err);
    if (s != BITNET_OK) openai_request_free(r);
    return s;
}

bitnet_status batch_input_parse(const struct batch_input *in, struct openai_request *r,
                                char **custom_id, bitnet_error *err)
{
    *custom_id = NULL;
    if (!in->line.whole)
        return bn_fail(err, BITNET_E_LIMIT, "the line is longer than %d bytes",
                       LINE_READER_MAX_BYTES);
    struct bn_json *j;
    BN_TRY(bn_json_parse(&j, in->line.text, in->line.n, BN_JSON_UNIQUE, NULL, err));
    bitnet_status s = parse_object(in, r, custom_id, j, err);
    bn_json_free(j);
    return s;
}
