/* SPDX-License-Identifier: Apache-2.0
 *
 * rank.c: how alike texts are: the cosine of their vectors. Ranking in the words of Jina, which llama-server and
 * vLLM share ("documents"), and of text-embeddings-inference ("texts"); scores of pairs in those of vLLM. A model
 * that was trained to judge pairs would do better; there is none of that kind here.
 */
#include "base/os/mem.h"
#include "server/llamacpp/llamacpp.h"
#include "server/openai/request.h"
#include "server/vectors_impl.h"
#include <math.h>
#include <stdlib.h>

/* Vectors have length 1. */
static double cosine(const struct vectors *v, size_t a, size_t b)
{
    const float *x = v->vectors + a * v->n_embd, *y = v->vectors + b * v->n_embd;
    double sum = 0;
    for (size_t i = 0; i < v->n_embd; i++) sum += (double)x[i] * (double)y[i];
    return sum;
}

static bitnet_status add_text(struct vectors *v, const struct bn_json *text, const char *key,
                              bitnet_error *err)
{
    if (bn_json_is_object(text)) text = bn_json_get(text, "text");
    if (!bn_json_is_string(text)) return bn_fail(err, BITNET_E_ARG, "'%s' is not a text", key);
    return vectors_add_input(v, text, key, err);
}

static bitnet_status add_texts(struct vectors *v, const struct bn_json *list, const char *key,
                               bitnet_error *err)
{
    size_t i;
    const struct bn_json *text;
    if (!bn_json_is_array(list) || bn_json_size(list) == 0)
        return bn_fail(err, BITNET_E_ARG, "'%s' is not a list of texts", key);
    bn_json_each(list, i, text) BN_TRY(add_text(v, text, key, err));
    return BITNET_OK;
}

static void put_usage(const struct vectors *v, struct bn_buf *out)
{
    unsigned long long n = v->n_tokens;
    bn_buf_printf(out, "\"usage\":{\"prompt_tokens\":%llu,\"total_tokens\":%llu}", n, n);
}

/* ------------------------------------------------------------------ ranking */

static bitnet_status read_rerank(struct vectors *v, const struct bn_json *body, bitnet_error *err)
{
    static const char *const known[] = {
        "query",       "documents",  "texts",    "top_n", "model", "return_documents",
        "return_text", "raw_scores", "truncate", "user",  NULL};
    const char *key = bn_json_get(body, "documents") ? "documents" : "texts";
    uint32_t top = UINT32_MAX;
    bool unused = false;
    BN_TRY(openai_check_members(body, known, "the body", err));
    BN_TRY(vectors_read_model(v, body, err));
    BN_TRY(bn_json_read_u32(&top, body, "top_n", "body", err));
    BN_TRY(bn_json_read_bool(&unused, body, "return_documents", "body", err));
    BN_TRY(bn_json_read_bool(&v->cut, body, "truncate", "body", err));
    BN_TRY(add_text(v, bn_json_get(body, "query"), "query", err));
    BN_TRY(add_texts(v, bn_json_get(body, key), key, err));
    v->n_top = bn_min_size(top, v->n - 1);
    return BITNET_OK;
}

struct ranked {
    double score;
    size_t index;
};

static int by_score(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static void put_document(struct bn_buf *out, const struct bn_json *document, bool wrap)
{
    const struct bn_json *text =
        bn_json_is_object(document) ? bn_json_get(document, "text") : document;
    bn_buf_puts(out, wrap ? ",\"document\":{\"text\":" : ",\"text\":");
    bn_json_quote(out, bn_json_text(text), bn_json_bytes(text));
    if (wrap) bn_buf_putc(out, '}');
}

static void put_ranked(const struct vectors *v, const struct ranked *r, struct bn_buf *out)
{
    const struct bn_json *documents = bn_json_get(v->body, "documents");
    bool theirs = !documents; /* of text-embeddings-inference */
    bool with_text =
        bn_json_is_true(bn_json_get(v->body, theirs ? "return_text" : "return_documents"));
    if (theirs) documents = bn_json_get(v->body, "texts");
    for (size_t i = 0; i < v->n_top; i++) {
        bn_buf_printf(out, "%s{\"index\":%zu,\"%s\":%.9g", i ? "," : "", r[i].index,
                      theirs ? "score" : "relevance_score", r[i].score);
        if (with_text) put_document(out, bn_json_at(documents, r[i].index), !theirs);
        bn_buf_putc(out, '}');
    }
}

static void write_rerank(const struct vectors *v, struct bn_buf *out)
{
    size_t n = v->n - 1;
    struct ranked *r = calloc(n, sizeof *r);
    out->failed |= !r;
    if (!r) return;
    for (size_t i = 0; i < n; i++) r[i] = (struct ranked){cosine(v, 0, i + 1), i};
    qsort(r, n, sizeof *r, by_score);
    if (bn_json_get(v->body, "documents")) {
        bn_buf_puts(out, "{\"model\":");
        bn_json_quote(out, v->model, strlen(v->model));
        bn_buf_puts(out, ",\"object\":\"list\",");
        put_usage(v, out);
        bn_buf_puts(out, ",\"results\":[");
        put_ranked(v, r, out);
        bn_buf_puts(out, "]}");
    } else {
        bn_buf_putc(out, '[');
        put_ranked(v, r, out);
        bn_buf_putc(out, ']');
    }
    free(r);
}

/* ------------------------------------------------------------------ pairs */

/* One text beside one or many, or two lists of the same length. */
static bitnet_status read_score(struct vectors *v, const struct bn_json *body, bitnet_error *err)
{
    static const char *const known[] = {
        "text_1", "text_2", "model", "encoding_format", "user", "truncate_prompt_tokens", NULL};
    static const char *const keys[] = {"text_1", "text_2"};
    size_t n[2];
    BN_TRY(openai_check_members(body, known, "the body", err));
    BN_TRY(vectors_read_model(v, body, err));
    for (size_t i = 0; i < 2; i++) {
        const struct bn_json *text = bn_json_get(body, keys[i]);
        size_t before = v->n;
        if (bn_json_is_array(text)) BN_TRY(add_texts(v, text, keys[i], err));
        else BN_TRY(add_text(v, text, keys[i], err));
        n[i] = v->n - before;
    }
    if (n[0] != 1 && n[0] != n[1])
        return bn_fail(err, BITNET_E_ARG,
                       "'text_1' holds %zu texts and 'text_2' %zu; 1 and any, or "
                       "as many are possible",
                       n[0], n[1]);
    v->n_first = n[0];
    return BITNET_OK;
}

static void write_score(const struct vectors *v, struct bn_buf *out)
{
    bn_buf_printf(out,
                  "{\"id\":\"score-%s\",\"object\":\"list\",\"created\":%lld,\"model\":", v->x.id,
                  (long long)time(NULL));
    bn_json_quote(out, v->model, strlen(v->model));
    bn_buf_puts(out, ",\"data\":[");
    for (size_t i = 0; i < v->n - v->n_first; i++)
        bn_buf_printf(out, "%s{\"index\":%zu,\"object\":\"score\",\"score\":%.9g}", i ? "," : "", i,
                      cosine(v, v->n_first == 1 ? 0 : i, v->n_first + i));
    bn_buf_puts(out, "],");
    put_usage(v, out);
    bn_buf_putc(out, '}');
}

static const struct vectors_form rerank_form = {.read = read_rerank,
                                                .write = write_rerank,
                                                .keeps_body = true,
                                                .one_each = true},
                                 score_form = {
                                     .read = read_score, .write = write_score, .one_each = true};

void serve_rerank(struct exchange *x) { serve_vectors(x, &rerank_form); }
void serve_score(struct exchange *x) { serve_vectors(x, &score_form); }
