/* SPDX-License-Identifier: Apache-2.0
 *
 * embeddings.c: texts or token ids to vectors, computed by the worker between the steps of completions.
 */
#include "base/os/mem.h"
#include "server/openai/request.h"
#include "server/server_impl.h"
#include "app/tokens.h"
#include <stdlib.h>

enum {
    EMBED_MAX_INPUTS = 2048,
    NUMBER_BYTES = 24, /* one number of a vector as text */
};

struct embedding {
    struct exchange x; /* first */
    struct worker_task task;
    bitnet_embed_options options;
    bitnet_embed_input *inputs; /* [n] */
    size_t n;
    uint64_t n_bytes, n_tokens; /* of all inputs */
    float *vectors;             /* [n][n_embd] */
    bool base64;
    char *model; /* as the body names it */
};

static void embedding_free(struct embedding *e)
{
    for (size_t i = 0; e->inputs && i < e->n; i++) free((void *)e->inputs[i].tokens);
    exchange_close(&e->x);
    free(e->inputs);
    free(e->vectors);
    free(e->model);
    free(e);
}

/* ------------------------------------------------------------------ the body */

static bitnet_status take_input(struct embedding *e, size_t i, const struct bn_json *v,
                                bitnet_error *err)
{
    bitnet_embed_input *to = &e->inputs[i];
    uint32_t most = e->x.s->engine.ctx_tokens;
    int32_t *ids;
    size_t n;
    e->n_bytes += bn_json_bytes(v);
    if (e->n_bytes > TEXT_MAX_BYTES)
        return bn_fail(err, BITNET_E_LIMIT, "'input' has more than %d bytes of text",
                       TEXT_MAX_BYTES);
    if (bn_json_is_string(v))
        BN_TRY(tokens_encode(&ids, &n, e->x.s->m, bn_json_text(v), bn_json_bytes(v),
                             BITNET_TOK_BOS_AUTO, err));
    else BN_TRY(tokens_from_json(&ids, &n, v, "input", err));
    *to = (bitnet_embed_input){ids, n};
    if (to->n_tokens == 0) return bn_fail(err, BITNET_E_ARG, "'input' %zu has no tokens", i);
    if (to->n_tokens > most)
        return bn_fail(err, BITNET_E_LIMIT, "'input' %zu has %zu tokens; at most %u are possible",
                       i, to->n_tokens, most);
    e->n_tokens += to->n_tokens;
    return BITNET_OK;
}

/* A text, a list of token ids, or a list of either. */
static bitnet_status read_inputs(struct embedding *e, const struct bn_json *input,
                                 bitnet_error *err)
{
    bool several = bn_json_is_array(input) && !bn_json_is_int(bn_json_at(input, 0));
    if (!input) return bn_fail(err, BITNET_E_ARG, "the request has no 'input'");
    e->n = several ? bn_json_size(input) : 1;
    if (e->n == 0 || e->n > EMBED_MAX_INPUTS)
        return bn_fail(err, BITNET_E_LIMIT, "'input' holds %zu texts; 1 to %d are possible", e->n,
                       EMBED_MAX_INPUTS);
    e->inputs = bn_calloc(e->n, sizeof *e->inputs);
    if (!e->inputs) return bn_fail_nomem(err, e->n * sizeof *e->inputs, "'input'");
    for (size_t i = 0; i < e->n; i++)
        BN_TRY(take_input(e, i, several ? bn_json_at(input, i) : input, err));
    return BITNET_OK;
}

/* One of two words. */
static bitnet_status read_word(bool *second, const struct bn_json *body, const char *key,
                               const char *a, const char *b, bitnet_error *err)
{
    const char *word = a;
    BN_TRY(bn_json_read_str(&word, body, key, "body", err));
    *second = strcmp(word, b) == 0;
    if (!*second && strcmp(word, a) != 0)
        return bn_fail(err, BITNET_E_ARG, "'%s' is '%.40s'; '%s' and '%s' exist", key, word, a, b);
    return BITNET_OK;
}

static bitnet_status read_body(struct embedding *e, const struct bn_json *body, bitnet_error *err)
{
    static const char *const known[] = {
        "input", "model", "encoding_format", "dimensions", "pooling", "user", NULL};
    uint32_t n_embd = e->x.s->model.shape.n_embd, dimensions = n_embd;
    const char *model = e->x.s->c->model_name;
    bool last;
    BN_TRY(openai_check_members(body, known, "the body", err));
    BN_TRY(bn_json_read_str(&model, body, "model", "body", err));
    BN_TRY(bn_json_read_u32(&dimensions, body, "dimensions", "body", err));
    if (dimensions != n_embd)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "'dimensions' is %u; the vectors of this model have %u", dimensions, n_embd);
    BN_TRY(read_word(&e->base64, body, "encoding_format", "float", "base64", err));
    BN_TRY(read_word(&last, body, "pooling", "mean", "last", err));
    e->options = (bitnet_embed_options){.size = sizeof e->options};
    e->options.pooling = last ? BITNET_POOL_LAST : BITNET_POOL_MEAN;
    BN_TRY(read_inputs(e, bn_json_get(body, "input"), err));
    e->model = strdup(model);
    e->vectors = bn_calloc(e->n * n_embd, sizeof *e->vectors);
    if (!e->vectors || !e->model)
        return bn_fail_nomem(err, e->n * n_embd * sizeof *e->vectors, "vectors");
    return BITNET_OK;
}

/* ------------------------------------------------------------------ the reply */

static void put_base64(struct bn_buf *out, const void *data, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i += 3) {
        size_t k = bn_min_size(3, n - i);
        uint32_t bits =
            (uint32_t)p[i] << 16 | (k > 1 ? (uint32_t)p[i + 1] << 8 : 0) | (k > 2 ? p[i + 2] : 0);
        char four[4] = {digits[bits >> 18], digits[bits >> 12 & 63],
                        k > 1 ? digits[bits >> 6 & 63] : '=', k > 2 ? digits[bits & 63] : '='};
        bn_buf_append(out, four, sizeof four);
    }
}

static void put_vector(struct bn_buf *out, const float *x, size_t n, bool base64)
{
    if (base64) {
        bn_buf_putc(out, '"');
        put_base64(out, x, n * sizeof *x);
        bn_buf_putc(out, '"');
        return;
    }
    for (size_t i = 0; i < n; i++) /* nine digits give back the very float */
        bn_buf_printf(out, "%c%.9g", i ? ',' : '[', (double)x[i]);
    bn_buf_putc(out, ']');
}

static bool put_reply(struct bn_buf *out, const struct embedding *e, size_t n_embd)
{
    bn_buf_puts(out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < e->n; i++) {
        bn_buf_printf(out, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", i ? "," : "",
                      i);
        put_vector(out, e->vectors + i * n_embd, n_embd, e->base64);
        bn_buf_putc(out, '}');
    }
    unsigned long long n = e->n_tokens;
    bn_buf_puts(out, "],\"model\":");
    bn_json_quote(out, e->model, strlen(e->model));
    bn_buf_printf(out, ",\"usage\":{\"prompt_tokens\":%llu,\"total_tokens\":%llu}}", n, n);
    return !out->failed;
}

/* It is over for the worker. */
static void finish(struct embedding *e)
{
    e->x.s->n_taken--;
    e->x.s->n_running--;
    embedding_free(e);
}

static void on_embedded(struct worker_task *t)
{
    struct embedding *e = (struct embedding *)((char *)t - offsetof(struct embedding, task));
    size_t n_embd = e->x.s->model.shape.n_embd;
    if (e->x.request) {
        struct bn_buf out;
        bn_buf_init(&out, e->n * (n_embd * NUMBER_BYTES + 256) + 4096 + 6 * strlen(e->model));
        e->x.line.n_prompt = (uint32_t)e->n_tokens;
        if (put_reply(&out, e, n_embd))
            exchange_reply(&e->x, 200, "application/json", out.data, out.len);
        else exchange_refuse(&e->x, 500, NULL, "out of memory for %zu vectors", e->n);
        bn_buf_free(&out);
    }
    finish(e);
}

static void on_failed(struct worker_task *t, const bitnet_error *err)
{
    struct embedding *e = (struct embedding *)((char *)t - offsetof(struct embedding, task));
    if (e->x.request) exchange_fail(&e->x, err, NULL, NULL);
    finish(e);
}

static void on_disconnect(struct exchange *x)
{
    struct embedding *e = (struct embedding *)x;
    exchange_disconnected(x);
    worker_cancel(x->s->worker, &e->task);
}

static void on_late(struct exchange *x)
{
    struct embedding *e = (struct embedding *)x;
    exchange_refuse(x, 504, "timeout", "the vectors were not there within %u s",
                    x->s->c->timeout_s);
    worker_cancel(x->s->worker, &e->task);
}

void serve_embeddings(struct exchange *x)
{
    struct server *s = x->s;
    bitnet_error err = {0};
    struct bn_json *body;
    if (!exchange_check_places(x, 1) || !exchange_body(x, &body)) return;
    struct embedding *e = bn_calloc(1, sizeof *e);
    if (!e) {
        exchange_refuse(x, 500, NULL, "out of memory: %zu bytes for embeddings", sizeof *e);
    } else {
        e->x = *x;
        if (read_body(e, body, &err) != BITNET_OK) {
            exchange_fail(&e->x, &err, NULL, NULL);
            embedding_free(e);
        } else {
            s->n_taken++;
            s->n_running++;
            e->x.disconnected = on_disconnect;
            e->x.late = on_late;
            e->task.embedded = on_embedded;
            e->task.failed = on_failed;
            exchange_later(&e->x);
            worker_embed(s->worker, &e->task, e->inputs, e->n, &e->options, e->vectors);
        }
    }
    bn_json_free(body);
}
