/* SPDX-License-Identifier: Apache-2.0
 *
 * embeddings.c: texts or token ids to vectors, in the words of OpenAI.
 */
#include "server/openai/request.h"
#include "server/vectors_impl.h"
#include <stdlib.h>

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

static bitnet_status read_embeddings(struct vectors *v, const struct bn_json *body,
                                     bitnet_error *err)
{
    static const char *const known[] = {
        "input", "model", "encoding_format", "dimensions", "pooling", "user", NULL};
    v->ignored.strict = v->x.s->c->strict;
    v->n_told = (uint32_t)v->n_embd;
    BN_TRY(openai_known_members(&v->ignored, body, known, "", err));
    BN_TRY(vectors_read_model(v, body, err));
    BN_TRY(vectors_read_dimensions(v, body, err));
    BN_TRY(read_word(&v->base64, body, "encoding_format", "float", "base64", err));
    BN_TRY(vectors_read_pooling(v, body, false, err));
    return vectors_read_inputs(v, bn_json_get(body, "input"), "input", err);
}

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
    if (!base64) {
        vectors_put(out, x, n);
        return;
    }
    bn_buf_putc(out, '"');
    put_base64(out, x, n * sizeof *x);
    bn_buf_putc(out, '"');
}

static void write_embeddings(const struct vectors *v, struct bn_buf *out)
{
    bn_buf_puts(out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < v->n; i++) {
        bn_buf_printf(out, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", i ? "," : "",
                      i);
        vectors_shorten(v->vectors + i * v->n_embd, v->n_told, v->n_embd);
        put_vector(out, v->vectors + i * v->n_embd, v->n_told, v->base64);
        bn_buf_putc(out, '}');
    }
    unsigned long long n = v->n_tokens;
    bn_buf_puts(out, "],\"model\":");
    bn_json_quote(out, v->model, strlen(v->model));
    bn_buf_printf(out, ",\"usage\":{\"prompt_tokens\":%llu,\"total_tokens\":%llu}}", n, n);
}

static const struct vectors_form openai_embeddings = {.read = read_embeddings,
                                                      .write = write_embeddings};

void serve_embeddings(struct exchange *x) { serve_vectors(x, &openai_embeddings); }
