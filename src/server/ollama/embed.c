/* SPDX-License-Identifier: Apache-2.0
 *
 * embed.c: vectors in the words of Ollama: "/api/embed", and "/api/embeddings", which is older.
 */
#include "base/clock.h"
#include "server/ollama/ollama.h"
#include "server/openai/request.h"
#include "server/vectors_impl.h"

static bitnet_status read_embed(struct vectors *v, const struct bn_json *body, bitnet_error *err)
{
    static const char *const known[] = {"model",      "input",      "truncate", "options",
                                        "keep_alive", "dimensions", NULL};
    v->cut = true;
    v->n_told = (uint32_t)v->n_embd;
    BN_TRY(openai_check_members(body, known, "the body", err));
    BN_TRY(vectors_read_model(v, body, err));
    BN_TRY(bn_json_read_bool(&v->cut, body, "truncate", "body", err));
    BN_TRY(vectors_read_dimensions(v, body, err));
    return vectors_read_inputs(v, bn_json_get(body, "input"), "input", err);
}

static void write_embed(const struct vectors *v, struct bn_buf *out)
{
    bn_buf_puts(out, "{\"model\":");
    bn_json_quote(out, v->model, strlen(v->model));
    bn_buf_puts(out, ",\"embeddings\":[");
    for (size_t i = 0; i < v->n; i++) {
        if (i) bn_buf_putc(out, ',');
        vectors_shorten(v->vectors + i * v->n_embd, v->n_told, v->n_embd);
        vectors_put(out, v->vectors + i * v->n_embd, v->n_told);
    }
    bn_buf_printf(out, "],\"total_duration\":%llu,\"load_duration\":0,\"prompt_eval_count\":%llu}",
                  (unsigned long long)(bn_now_ns() - v->began_ns), (unsigned long long)v->n_tokens);
}

/* One text, and its vector as it is: not divided by its length. */
static bitnet_status read_old(struct vectors *v, const struct bn_json *body, bitnet_error *err)
{
    static const char *const known[] = {"model", "prompt", "options", "keep_alive", NULL};
    const struct bn_json *prompt = bn_json_get(body, "prompt");
    v->cut = true;
    v->options.normalize = "off";
    BN_TRY(openai_check_members(body, known, "the body", err));
    BN_TRY(vectors_read_model(v, body, err));
    if (!bn_json_is_string(prompt))
        return bn_fail(err, BITNET_E_ARG, "the request has no 'prompt', a string");
    return vectors_add_input(v, prompt, "prompt", err);
}

static void write_old(const struct vectors *v, struct bn_buf *out)
{
    bn_buf_puts(out, "{\"embedding\":");
    vectors_put(out, v->vectors, v->n_embd);
    bn_buf_putc(out, '}');
}

static const struct vectors_form embed_form = {.read = read_embed,
                                               .write = write_embed,
                                               .one_each = true},
                                 old_form = {
                                     .read = read_old, .write = write_old, .one_each = true};

void serve_ollama_embed(struct exchange *x) { serve_vectors(x, &embed_form); }
void serve_ollama_embeddings(struct exchange *x) { serve_vectors(x, &old_form); }
