/* SPDX-License-Identifier: Apache-2.0
 *
 * read.c: bodies of llama-server's completions, rewritten as OpenAI's.
 */
#include "server/llamacpp/llamacpp_impl.h"

#include "app/tokens.h"
#include "server/fim.h"
#include <math.h>
#include <stdlib.h>

/* ------------------------------------------------------------------ prompts */

/* A list with texts in it becomes ids. */
static bitnet_status mixed(struct bn_json **out, const bitnet_model *m, const struct bn_json *v,
                           bitnet_error *err)
{
    const struct tokens_how how = {"prompt", TEXT_MAX_BYTES,
                                   BITNET_TOK_BOS_AUTO | BITNET_TOK_SPECIAL};
    int32_t *ids;
    size_t n;
    BN_TRY(tokens_from_mixed(&ids, &n, m, v, &how, err));
    *out = bn_json_array();
    for (size_t i = 0; i < n; i++) bn_json_append(*out, bn_json_int(ids[i]));
    free(ids);
    return bn_json_whole(*out) ? BITNET_OK : bn_fail_nomem(err, n, "a prompt");
}

/* A text, a list of ids and texts, or {"prompt_string": text}. *out is a new reference. */
static bitnet_status one_prompt(struct bn_json **out, const bitnet_model *m,
                                const struct bn_json *v, bitnet_error *err)
{
    size_t i;
    const struct bn_json *item;
    bool texts = false;
    *out = NULL;
    if (bn_json_is_object(v)) {
        if (bn_json_size(bn_json_get(v, "multimodal_data")) ||
            bn_json_bytes(bn_json_get(v, "multimodal_data")))
            return bn_fail(err, BITNET_E_UNSUPPORTED,
                           "'multimodal_data' is not possible: the model reads text only");
        v = bn_json_get(v, "prompt_string");
        if (!bn_json_is_string(v))
            return bn_fail(err, BITNET_E_ARG,
                           "a 'prompt' that is an object has no 'prompt_string'");
    }
    bn_json_each(v, i, item) texts |= bn_json_is_string(item);
    if (texts) return mixed(out, m, v, err);
    *out = bn_json_ref(v);
    return BITNET_OK;
}

static bitnet_status take_prompt(struct bn_json *to, const bitnet_model *m, const struct bn_json *v,
                                 bitnet_error *err)
{
    struct bn_json *one;
    if (!v) return bn_fail(err, BITNET_E_ARG, "the request has no 'prompt'");
    if (!tokens_are_several(v)) {
        BN_TRY(one_prompt(&one, m, v, err));
        bn_json_set(to, "prompt", one);
        return BITNET_OK;
    }
    struct bn_json *list = bn_json_array();
    bitnet_status s = BITNET_OK;
    for (size_t i = 0; s == BITNET_OK && i < bn_json_size(v) && i <= OPENAI_MAX_PROMPTS; i++) {
        s = one_prompt(&one, m, bn_json_at(v, i), err);
        if (s == BITNET_OK) bn_json_append(list, one);
    }
    bn_json_set(to, "prompt", list);
    return s;
}

/* ------------------------------------------------------------------ sampling */

static bool is_int(const struct bn_json *v, int64_t value)
{
    return bn_json_is_int(v) && bn_json_integer(v) == value;
}

/* What is not done here, as long as it asks for nothing. */
static bitnet_status refuse_unknown_samplers(const struct bn_json *body, bitnet_error *err)
{
    static const char *const off[] = {"mirostat", "dynatemp_range", "xtc_probability"};
    for (size_t i = 0; i < BN_ARRAY_LEN(off); i++) {
        const struct bn_json *v = bn_json_get(body, off[i]);
        if (bn_json_is_number(v) && bn_json_number(v) != 0)
            return bn_fail(err, BITNET_E_UNSUPPORTED, "'%s' is %g; only 0 is possible here", off[i],
                           bn_json_number(v));
    }
    return BITNET_OK;
}

/* A sampler that is not in the list is off. Their order is always ours. */
static bitnet_status take_samplers(struct bn_json *to, const struct bn_json *list,
                                   bitnet_error *err)
{
    static const struct {
        const char *name, *other, *key;
        double off;
    } samplers[] = {
        {"top_k", "top-k", "top_k", 0},
        {"top_p", "top-p", "top_p", 1},
        {"min_p", "min-p", "min_p", 0},
        {"typ_p", "typical_p", "typical_p", 1},
        {"temperature", "temp", "temperature", 1},
        {"dry", "dry", "dry_multiplier", 0},
        {"top_n_sigma", "top-n-sigma", "top_n_sigma", 0},
        {"penalties", "penalties", "repeat_penalty", 1},
        {"penalties", "penalties", "presence_penalty", 0},
        {"penalties", "penalties", "frequency_penalty", 0},
    };
    if (!list || bn_json_is_null(list)) return BITNET_OK;
    if (!bn_json_is_array(list))
        return bn_fail(err, BITNET_E_ARG, "'samplers' is not a list of names");
    for (size_t k = 0; k < BN_ARRAY_LEN(samplers); k++) {
        size_t i;
        const struct bn_json *v;
        bool there = false;
        bn_json_each(list, i, v)
        {
            const char *name = bn_json_text(v);
            if (!name) return bn_fail(err, BITNET_E_ARG, "item %zu of 'samplers' is not a name", i);
            there |= strcmp(name, samplers[k].name) == 0 || strcmp(name, samplers[k].other) == 0;
        }
        bool whole = strcmp(samplers[k].key, "top_k") == 0;
        if (!there)
            bn_json_set(to, samplers[k].key,
                        whole ? bn_json_int(0) : bn_json_real(samplers[k].off));
    }
    return BITNET_OK;
}

/* Numbers that mean "off" or "all" there and something else here. */
static void take_numbers(struct bn_json *to, const struct bn_json *body)
{
    const struct bn_json *n = bn_json_get(body, "n_predict"),
                         *last = bn_json_get(body, "repeat_last_n"),
                         *dry = bn_json_get(body, "dry_penalty_last_n"),
                         *sigma = bn_json_get(body, "top_n_sigma"),
                         *seed = bn_json_get(body, "seed");
    if (!n) n = bn_json_get(body, "max_tokens");
    if (n && !(bn_json_is_int(n) && bn_json_integer(n) <= 0))
        bn_json_set(to, "max_tokens", bn_json_ref(n));
    if (seed && !(bn_json_is_int(seed) && bn_json_integer(seed) < 0))
        bn_json_set(to, "seed", bn_json_ref(seed));
    if (is_int(last, -1)) bn_json_set(to, "repeat_last_n", bn_json_int(0));
    else if (last && !is_int(last, 0)) bn_json_set(to, "repeat_last_n", bn_json_ref(last));
    if (is_int(last, 0)) {
        bn_json_del(to, "repeat_penalty");
        bn_json_del(to, "presence_penalty");
        bn_json_del(to, "frequency_penalty");
    }
    if (is_int(dry, 0)) bn_json_del(to, "dry_multiplier");
    else if (dry)
        bn_json_set(to, "dry_last_n", is_int(dry, -1) ? bn_json_int(0) : bn_json_ref(dry));
    if (sigma)
        bn_json_set(to, "top_n_sigma",
                    bn_json_number(sigma) < 0 ? bn_json_int(0) : bn_json_ref(sigma));
}

static bitnet_status take_schema(struct bn_json *to, const struct bn_json *schema,
                                 bitnet_error *err)
{
    if (!schema || bn_json_is_null(schema)) return BITNET_OK;
    if (!bn_json_is_object(schema))
        return bn_fail(err, BITNET_E_ARG, "'json_schema' is not an object");
    bn_json_set(to, "response_format",
                bn_json_pack("{s:s, s:{s:s, s:O}}", "type", "json_schema", "json_schema", "name",
                             "schema", "schema", schema));
    return BITNET_OK;
}

/* ------------------------------------------------------------------ biases */

struct biases {
    bitnet_logit_bias *list; /* [OPENAI_MAX_BIASES] */
    size_t n;
};

static bitnet_status add_bias(struct biases *b, int64_t token, const struct bn_json *bias,
                              bitnet_error *err)
{
    if (b->n == OPENAI_MAX_BIASES)
        return bn_fail(err, BITNET_E_LIMIT, "'logit_bias' names more than %d tokens",
                       OPENAI_MAX_BIASES);
    if (token < 0 || token > INT32_MAX)
        return bn_fail(err, BITNET_E_ARG, "'logit_bias': %lld is not a token id", (long long)token);
    if (!bn_json_is_number(bias) && !bn_json_is_false(bias))
        return bn_fail(err, BITNET_E_ARG,
                       "'logit_bias' of token %lld is neither a number nor false",
                       (long long)token);
    float value = bn_json_is_number(bias) ? (float)bn_json_number(bias) : -INFINITY;
    b->list[b->n++] = (bitnet_logit_bias){(int32_t)token, value};
    return BITNET_OK;
}

/* All tokens that a text consists of. */
static bitnet_status add_words(struct biases *b, const bitnet_model *m, const char *text, size_t n,
                               const struct bn_json *bias, bitnet_error *err)
{
    int32_t *ids;
    size_t n_ids;
    BN_TRY(tokens_encode(&ids, &n_ids, m, text, n, 0, err));
    bitnet_status s = BITNET_OK;
    for (size_t i = 0; s == BITNET_OK && i < n_ids; i++) s = add_bias(b, ids[i], bias, err);
    free(ids);
    return s;
}

/* A name in an object is an id if it is a number. */
static bitnet_status add_named(struct biases *b, const bitnet_model *m, const char *name,
                               const struct bn_json *bias, bitnet_error *err)
{
    char *end;
    long token = strtol(name, &end, 10);
    if (*name >= '0' && *name <= '9' && !*end) return add_bias(b, token, bias, err);
    return add_words(b, m, name, strlen(name), bias, err);
}

static bitnet_status add_pair(struct biases *b, const bitnet_model *m, const struct bn_json *pair,
                              bitnet_error *err)
{
    const struct bn_json *what = bn_json_at(pair, 0), *bias = bn_json_at(pair, 1);
    if (bn_json_size(pair) != 2)
        return bn_fail(err, BITNET_E_ARG, "'logit_bias' has an item that is not [token, bias]");
    if (bn_json_is_string(what))
        return add_words(b, m, bn_json_text(what), bn_json_bytes(what), bias, err);
    if (!bn_json_is_int(what))
        return bn_fail(err, BITNET_E_ARG, "'logit_bias' has an item without a token id or a text");
    return add_bias(b, bn_json_integer(what), bias, err);
}

/* [[id or text, bias or false], ...], or {"id or text": bias, ...} */
static bitnet_status set_biases(struct openai_request *q, const bitnet_model *m,
                                const struct bn_json *v, bitnet_error *err)
{
    struct biases b = {0};
    size_t i;
    const char *key;
    struct bn_json *item;
    if (bn_json_size(v) == 0) return BITNET_OK;
    b.list = bn_arena_alloc(&q->arena, OPENAI_MAX_BIASES * sizeof *b.list);
    if (!b.list) return bn_fail_nomem(err, OPENAI_MAX_BIASES * sizeof *b.list, "'logit_bias'");
    if (bn_json_is_object(v)) {
        bn_json_each_member(v, key, item) BN_TRY(add_named(&b, m, key, item, err));
    } else {
        bn_json_each(v, i, item) BN_TRY(add_pair(&b, m, item, err));
    }
    q->request.sampling.logit_bias = b.list;
    q->request.sampling.n_logit_bias = b.n;
    return BITNET_OK;
}

/* ------------------------------------------------------------------ bodies */

/* Read here, or of no meaning: what is computed does not depend on it. */
static const char *const own[] = {"prompt",
                                  "n_predict",
                                  "max_tokens",
                                  "seed",
                                  "repeat_last_n",
                                  "dry_penalty_last_n",
                                  "dry_sequence_breakers",
                                  "top_n_sigma",
                                  "samplers",
                                  "logit_bias",
                                  "json_schema",
                                  "n_probs",
                                  "n_cmpl",
                                  "mirostat",
                                  "mirostat_tau",
                                  "mirostat_eta",
                                  "dynatemp_range",
                                  "dynatemp_exponent",
                                  "xtc_probability",
                                  "xtc_threshold",
                                  "post_sampling_probs",
                                  "min_keep",
                                  "n_keep",
                                  "n_discard",
                                  "n_indent",
                                  "n_cache_reuse",
                                  "return_tokens",
                                  "response_fields",
                                  "timings_per_token",
                                  "t_max_predict_ms",
                                  "t_max_prompt_ms",
                                  "sse_ping_interval",
                                  "input_prefix",
                                  "input_suffix",
                                  "input_extra",
                                  "backend_sampling",
                                  NULL};

static struct bn_json *copy_others(const struct bn_json *body)
{
    struct bn_json *to = bn_json_object(), *v;
    const char *key;
    bn_json_each_member(body, key, v)
    {
        size_t i = 0;
        while (own[i] && strcmp(own[i], key) != 0) i++;
        if (!own[i] && !bn_json_is_null(v)) bn_json_set(to, key, bn_json_ref(v));
    }
    return to;
}

static bitnet_status rewrite(struct bn_json *to, const struct bn_json *body,
                             const struct openai_defaults *d, bitnet_error *err)
{
    const struct bn_json *probs = bn_json_get(body, "n_probs"), *n = bn_json_get(body, "n_cmpl"),
                         *breakers = bn_json_get(body, "dry_sequence_breakers");
    BN_TRY(refuse_unknown_samplers(body, err));
    BN_TRY(take_prompt(to, d->model, bn_json_get(body, "prompt"), err));
    take_numbers(to, body);
    if (probs && !is_int(probs, 0)) bn_json_set(to, "logprobs", bn_json_ref(probs));
    if (n) bn_json_set(to, "n", bn_json_ref(n));
    if (breakers) bn_json_set(to, "dry_breakers", bn_json_ref(breakers));
    BN_TRY(take_schema(to, bn_json_get(body, "json_schema"), err));
    BN_TRY(take_samplers(to, bn_json_get(body, "samplers"), err));
    return bn_json_whole(to) ? BITNET_OK : bn_fail_nomem(err, 0, "a request");
}

static bitnet_status read_own(struct openai_request *q, const struct bn_json *body,
                              const struct openai_defaults *d, bitnet_error *err)
{
    uint32_t ms = 0;
    bool drawn = false;
    BN_TRY(bn_json_read_bool(&drawn, body, "post_sampling_probs", "body", err));
    BN_TRY(set_biases(q, d->model, bn_json_get(body, "logit_bias"), err));
    if (!is_int(bn_json_get(body, "t_max_predict_ms"), -1))
        BN_TRY(bn_json_read_u32(&ms, body, "t_max_predict_ms", "body", err));
    q->request.timeout_ms = ms;
    q->request.drawn_logprobs = drawn;
    q->request.prompt_only = is_int(bn_json_get(body, "n_predict"), 0);
    q->special = true;
    q->dialect = &llamacpp_dialect;
    return BITNET_OK;
}

static bitnet_status read_completion(struct openai_request *q, struct bn_json *body,
                                     const struct openai_defaults *d, bitnet_error *err)
{
    struct bn_json *to = copy_others(body);
    bitnet_status s = to ? rewrite(to, body, d, err) : bn_fail_nomem(err, 0, "a request");
    if (s == BITNET_OK) s = openai_request_read(q, OPENAI_COMPLETION, to, d, err);
    if (s == BITNET_OK) {
        dialect_look_back(q, to, d);
        bn_json_free(q->body); /* replies repeat what was asked for; texts are in both */
        q->body = bn_json_ref(body);
        s = read_own(q, body, d, err);
        if (s != BITNET_OK) openai_request_free(q);
    }
    bn_json_free(to);
    return s;
}

const struct dialect llamacpp_dialect = {.id_prefix = "",
                                         .stream_type = "text/event-stream",
                                         .read = read_completion,
                                         .echo = llamacpp_echo,
                                         .take = llamacpp_take,
                                         .reply = llamacpp_reply,
                                         .flush = llamacpp_flush,
                                         .fail = llamacpp_fail,
                                         .error = llamacpp_error_json};

struct bn_json *llamacpp_defaults(const struct openai_defaults *d)
{
    struct openai_request q;
    struct bn_json *body = bn_json_pack("{s:s}", "prompt", ""), *j = NULL;
    if (body && read_completion(&q, body, d, NULL) == BITNET_OK) {
        j = llamacpp_settings(&q);
        openai_request_free(&q);
    }
    bn_json_free(body);
    return j;
}

/* ------------------------------------------------------------------ endpoints */

/* Where a path is shared: OpenAI's clients name a model. */
void serve_completions_bare(struct exchange *x)
{
    static const struct route ours = {"/completion", ROUTE_POST, serve_generate, &llamacpp_dialect,
                                      NULL};
    struct bn_json *body;
    if (!exchange_check_places(x, 1) || !exchange_body(x, &body)) return;
    if (!bn_json_get(body, "model")) x->route = &ours;
    completions_serve(x, body, NULL);
}

static bitnet_status check_files(const struct bn_json *files, bitnet_error *err)
{
    size_t i;
    const struct bn_json *one;
    bn_json_each(files, i, one)
    {
        const struct bn_json *name = bn_json_get(one, "filename");
        if (!bn_json_is_string(bn_json_get(one, "text")) || (name && !bn_json_is_string(name)))
            return bn_fail(err, BITNET_E_ARG,
                           "item %zu of 'input_extra' is not {\"filename\": ..., \"text\": ...}",
                           i);
    }
    return BITNET_OK;
}

static bitnet_status make_infill(struct bn_json *body, const struct served_model *s,
                                 bitnet_error *err)
{
    BN_TRY(check_files(bn_json_get(body, "input_extra"), err));
    const struct fim_text t = {bn_json_get(body, "input_prefix"), bn_json_get(body, "input_suffix"),
                               bn_json_get(body, "prompt"), bn_json_get(body, "input_extra")};
    struct bn_json *ids;
    BN_TRY(fim_prompt(&ids, s->m, &t, err));
    return bn_json_set(body, "prompt", ids) ? BITNET_OK : bn_fail_nomem(err, 0, "a prompt");
}

void serve_llamacpp_infill(struct exchange *x)
{
    struct bn_json *body;
    struct fim f;
    if (!exchange_check_places(x, 1) || !exchange_body(x, &body)) return;
    if (fim_find(&f, x->model->m)) {
        completions_serve(x, body, make_infill);
        return;
    }
    bitnet_error err = {0};
    bitnet_status s = check_files(bn_json_get(body, "input_extra"), &err);
    bn_json_free(body);
    if (s != BITNET_OK) exchange_fail(x, &err, NULL, NULL);
    else
        exchange_refuse(x, 501, NULL,
                        "this model has no tokens for a prefix, a suffix and what is between them");
}
