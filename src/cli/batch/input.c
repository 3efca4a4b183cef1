/* SPDX-License-Identifier: Apache-2.0 */
#include "json/json.h"
#include "cli/batch/batch.h"
#include <stdio.h>
#include <stdlib.h>

/* ------------------------------------------------------------------ lines */

bool batch_line_is_blank(const struct line *l)
{
    for (size_t i = 0; i < l->n; i++)
        if (!strchr(" \t\r", l->text[i]) || !l->text[i]) return false;
    return true;
}

bitnet_status batch_input_open(struct batch_input *in, bitnet_error *err)
{
    BN_TRY(line_reader_open(&in->reader, in->config->input, err));
    bitnet_status s = batch_shards_open(&in->shards, in->config->shard.n, err);
    if (s != BITNET_OK) line_reader_close(&in->reader);
    return s;
}

void batch_input_close(struct batch_input *in)
{
    line_reader_close(&in->reader);
    batch_shards_close(&in->shards);
}

bitnet_status batch_input_next(struct batch_input *in, bool *got, bitnet_error *err)
{
    *got = true;
    if (in->held) {
        in->held = false;
        return BITNET_OK;
    }
    do {
        *got = !in->config->limit || in->index < in->config->limit;
        if (!*got) return BITNET_OK;
        do BN_TRY(line_reader_next(&in->reader, &in->line, got, err));
        while (*got && batch_line_is_blank(&in->line));
        if (!*got) return BITNET_OK;
        in->index++;
    } while (batch_shards_give(&in->shards, in->line.n) != in->config->shard.number);
    in->key = batch_key(in->run_key, in->index, &in->line);
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

/* A line may have an adapter as its model; otherwise all are used. */
static bitnet_status choose_adapter(struct batch_input *in, struct openai_request *r,
                                    bitnet_error *err)
{
    if (r->lora)
        return bn_fail(err, BITNET_E_ARG,
                       "'lora' is not possible in a batch; 'model' may name one of --lora");
    for (size_t i = 0; in->adapters && i < in->adapters->n; i++) {
        const struct adapter_item *x = &in->adapters->items[i];
        if (strcmp(x->spec.name, r->model) != 0) continue;
        in->use = (bitnet_adapter_use){x->adapter, x->spec.scale, 0};
        r->request.adapters = &in->use;
        r->request.n_adapters = 1;
    }
    return BITNET_OK;
}

static bitnet_status parse_object(struct batch_input *in, struct openai_request *r,
                                  char **custom_id, struct bn_json *j, bitnet_error *err)
{
    if (!bn_json_is_object(j)) return bn_fail(err, BITNET_E_ARG, "the line is not a JSON object");
    enum openai_kind kind;
    struct bn_json *body;
    BN_TRY(get_custom_id(custom_id, j, in->index, err));
    struct openai_defaults d = {.max_tokens = in->config->max_tokens,
                                .model = in->model,
                                .strict = true,
                                .seed = batch_seed(in->config->seed, *custom_id)};
    BN_TRY(unwrap(&body, &kind, j, err));
    BN_TRY(openai_request_read(r, kind, body, &d, err));
    bitnet_status s = BITNET_OK;
    if (r->stream) s = bn_fail(err, BITNET_E_ARG, "'stream' is not possible in a batch");
    if (s == BITNET_OK) s = choose_adapter(in, r, err);
    if (s == BITNET_OK) s = openai_request_encode(r, in->model, in->chat_template, err);
    if (s != BITNET_OK) openai_request_free(r);
    return s;
}

bitnet_status batch_input_parse(struct batch_input *in, struct openai_request *r, char **custom_id,
                                bitnet_error *err)
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
