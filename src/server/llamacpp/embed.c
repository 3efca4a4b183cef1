/* SPDX-License-Identifier: Apache-2.0
 *
 * embed.c: vectors in the words of llama-server: a list with an object for each text, and in it a list of
 * vectors: one, or one for each token.
 */
#include "server/llamacpp/llamacpp.h"
#include "server/openai/request.h"
#include "server/vectors_impl.h"

static bitnet_status read_embedding(struct vectors *v, const struct bn_json *body,
                                    bitnet_error *err)
{
    static const char *const known[] = {"content",        "input",           "model", "pooling",
                                        "embd_normalize", "encoding_format", NULL};
    const struct bn_json *content = bn_json_get(body, "content"),
                         *normalize = bn_json_get(body, "embd_normalize");
    const char *key = content ? "content" : "input";
    BN_TRY(openai_check_members(body, known, "the body", err));
    BN_TRY(vectors_read_model(v, body, err));
    BN_TRY(vectors_read_pooling(v, body, true, err));
    if (normalize && !bn_json_is_int(normalize))
        return bn_fail(err, BITNET_E_ARG, "'embd_normalize' is not a whole number");
    if (normalize && bn_json_integer(normalize) != 2 && bn_json_integer(normalize) != -1)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "'embd_normalize' is %lld; 2 (length 1) and -1 (as it is) are possible",
                       (long long)bn_json_integer(normalize));
    if (normalize && v->options.pooling != BITNET_POOL_NONE)
        v->options.normalize = bn_json_integer(normalize) == 2 ? "auto" : "off";
    return vectors_read_inputs(v, bn_json_get(body, key), key, err);
}

static void write_embedding(const struct vectors *v, struct bn_buf *out)
{
    const float *at = v->vectors;
    bn_buf_putc(out, '[');
    for (size_t i = 0; i < v->n; i++) {
        size_t rows = v->options.pooling == BITNET_POOL_NONE ? v->inputs[i].n_tokens : 1;
        bn_buf_printf(out, "%s{\"index\":%zu,\"embedding\":[", i ? "," : "", i);
        for (size_t k = 0; k < rows; k++, at += v->n_embd) {
            if (k) bn_buf_putc(out, ',');
            vectors_put(out, at, v->n_embd);
        }
        bn_buf_puts(out, "]}");
    }
    bn_buf_putc(out, ']');
}

static const struct vectors_form embedding_form = {.read = read_embedding,
                                                   .write = write_embedding};

void serve_llamacpp_embedding(struct exchange *x) { serve_vectors(x, &embedding_form); }

void serve_embeddings_bare(struct exchange *x)
{
    const char *pooling = bn_json_text(bn_json_get(x->body, "pooling"));
    bool none = pooling ? strcmp(pooling, "none") == 0 : x->s->c->pooling == BITNET_POOL_NONE;
    if (x->body && (bn_json_get(x->body, "content") || none)) serve_llamacpp_embedding(x);
    else serve_embeddings(x);
}
