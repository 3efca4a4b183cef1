/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_embed.c: `bitnet embed`: texts to vectors, one line of output a text. Texts are the words of the
 * command line or the lines of a file; they are computed some at a time, so that output begins early.
 */
#include "base/os/mem.h"
#include "cli/core/command.h"
#include "cli/options/model_opts.h"
#include "app/term.h"
#include "app/textio.h"
#include "app/tokens.h"
#include <stdlib.h>

enum {
    AT_ONCE = 64, /* texts of one call */
    MAX_SEQS = 16 /* texts of one step */
};

struct embed_config {
    struct model_opts model;
    struct adapter_opts adapters;
    struct kv_opts kv;
    const char *input, *pooling, *format;
    uint32_t batch_tokens;
    bool no_normalize, json, ids;
};

#define AT(field) offsetof(struct embed_config, field)
static const struct opt table[] = {
    {.kind = OPT_STR,
     .letter = 'i',
     .name = "input",
     .metavar = "FILE",
     .help = "read texts from a file, one per line; - is standard input",
     .offset = AT(input)},
    {.kind = OPT_FLAG,
     .name = "ids",
     .help = "texts are token ids, as 1,2,3; no token is prepended",
     .offset = AT(ids)},
    {.kind = OPT_CHOICE,
     .name = "pooling",
     .help = "pool hidden states: the mean of all tokens, or the last token",
     .offset = AT(pooling),
     .initial = "mean",
     .own = true,
     .choices = "mean|last"},
    {.kind = OPT_FLAG,
     .name = "no-normalize",
     .help = "do not scale the vector to length 1",
     .offset = AT(no_normalize)},
    {.kind = OPT_CHOICE,
     .name = "format",
     .help = "one line per text: numbers, or JSON like OpenAI's embeddings",
     .offset = AT(format),
     .initial = "floats",
     .choices = "floats|json"},
    {.kind = OPT_FLAG, .name = "json", .help = "the same as --format json", .offset = AT(json)},
    {.kind = OPT_U32,
     .letter = 'b',
     .name = "batch-size",
     .metavar = "N",
     .help = "tokens computed together; the result is the same",
     .offset = AT(batch_tokens),
     .initial = "512",
     .min = 1,
     .max = 8192},
    MODEL_KV_OPTS(AT(kv), "f16"),
    {.kind = OPT_END},
};
static const struct opt_part parts[] = {
    {"Embeddings", table, 0},
    {"Model", model_opts_table, AT(model)},
    {"Adapters", adapter_opts_table, AT(adapters)},
    {NULL, NULL, 0},
};
#undef AT

/* ------------------------------------------------------------------ texts */

struct texts {
    const bitnet_model *m;
    bool are_ids;
    bitnet_embed_input *items;
    size_t n, room, longest;
};

static void free_texts(struct texts *t)
{
    for (size_t i = 0; i < t->n; i++) free((void *)t->items[i].tokens);
    free(t->items);
}

static bitnet_status add_text(struct texts *t, const char *text, size_t len, bitnet_error *err)
{
    int32_t *ids;
    size_t n;
    BN_TRY(t->are_ids ? textio_parse_ids(&ids, &n, text, len, "a text", err)
                      : tokens_encode(&ids, &n, t->m, text, len, BITNET_TOK_BOS_AUTO, err));
    if (n == 0) {
        free(ids);
        return bn_fail(err, BITNET_E_ARG, "text %zu has no tokens", t->n);
    }
    if (!bn_grow((void **)&t->items, &t->room, t->n + 1, sizeof *t->items)) {
        free(ids);
        return bn_fail_nomem(err, (t->n + 1) * sizeof *t->items, "texts");
    }
    t->items[t->n++] = (bitnet_embed_input){ids, n};
    t->longest = bn_max_size(t->longest, n);
    return BITNET_OK;
}

/* Lines end with \n or \r\n; an end at the end of the file begins no further text. */
static bitnet_status add_lines(struct texts *t, const char *path, bitnet_error *err)
{
    char *data;
    size_t len;
    BN_TRY(textio_read(&data, &len, path, err));
    bitnet_status s = BITNET_OK;
    for (size_t at = 0, end; s == BITNET_OK && at < len; at = end + 1) {
        const char *stop = memchr(data + at, '\n', len - at);
        end = stop ? (size_t)(stop - data) : len;
        size_t n = end - at;
        if (n && data[end - 1] == '\r') n--;
        s = add_text(t, data + at, n, err);
    }
    free(data);
    return s;
}

static bitnet_status get_texts(struct texts *t, const struct embed_config *c, char **words,
                               size_t n_words, bitnet_error *err)
{
    if (c->input) return add_lines(t, c->input, err);
    for (size_t i = 0; i < n_words; i++) BN_TRY(add_text(t, words[i], strlen(words[i]), err));
    return BITNET_OK;
}

/* ------------------------------------------------------------------ vectors */

/* Nine digits give back the very float. */
static void print_vector(const float *x, size_t n, size_t index, bool json)
{
    if (json) printf("{\"object\": \"embedding\", \"index\": %zu, \"embedding\": [", index);
    for (size_t i = 0; i < n; i++) printf("%s%.9g", i == 0 ? "" : json ? ", " : " ", (double)x[i]);
    fputs(json ? "]}\n" : "\n", stdout);
}

static bitnet_status print_all(bitnet_engine *e, const struct texts *t,
                               const struct embed_config *c, size_t n_embd, bitnet_error *err)
{
    bool json = c->json || strcmp(c->format, "json") == 0;
    bitnet_embed_options o = {.size = sizeof o};
    o.pooling = strcmp(c->pooling, "last") == 0 ? BITNET_POOL_LAST : BITNET_POOL_MEAN;
    o.normalize = c->no_normalize ? "off" : "auto";
    float *out = bn_calloc(AT_ONCE * n_embd, sizeof *out);
    if (!out) return bn_fail_nomem(err, AT_ONCE * n_embd * sizeof *out, "vectors");
    struct term_progress bar = {0};
    bitnet_status s = BITNET_OK;
    for (size_t i = 0; s == BITNET_OK && i < t->n; i += AT_ONCE) {
        size_t n = bn_min_size(AT_ONCE, t->n - i);
        s = bitnet_embed(e, t->items + i, n, &o, out, err);
        for (size_t k = 0; s == BITNET_OK && k < n; k++)
            print_vector(out + k * n_embd, n_embd, i + k, json);
        if (s == BITNET_OK && term_progress_show(&bar, "embedding", i + n, t->n))
            s = bn_fail(err, BITNET_E_CANCELLED, "interrupted");
    }
    term_progress_end(&bar);
    free(out);
    return s;
}

static bitnet_status embed(const struct embed_config *c, const bitnet_model *m, char **words,
                           size_t n_words, bitnet_error *err)
{
    bitnet_model_info info = {.size = sizeof info};
    bitnet_model_get_info(m, &info);
    struct texts t = {.m = m, .are_ids = c->ids};
    bitnet_engine *e = NULL;
    struct adapters adapters = {.n = 0};
    bitnet_engine_options eo = {.size = sizeof eo};
    bitnet_status s = get_texts(&t, c, words, n_words, err);
    if (s == BITNET_OK && t.longest > info.shape.n_ctx_train)
        s = bn_fail(err, BITNET_E_LIMIT, "a text has %zu tokens; this model knows %u", t.longest,
                    info.shape.n_ctx_train);
    if (s == BITNET_OK && t.n) {
        eo.threads = c->model.threads;
        eo.pin = c->model.pin;
        eo.ctx_tokens = (uint32_t)t.longest;
        eo.max_seqs = (uint32_t)bn_min_size(t.n, MAX_SEQS);
        eo.max_batch_tokens = c->batch_tokens;
        eo.head = "exact";
        model_kv_types(&eo, &c->kv);
        s = model_adapted_open(&e, &adapters, m, &eo, &c->adapters, false, err);
        if (s == BITNET_OK) s = print_all(e, &t, c, info.shape.n_embd, err);
    }
    bitnet_engine_close(e);
    adapters_close(&adapters);
    free_texts(&t);
    return s;
}

static int run(void *config, const struct arg_words *words)
{
    struct embed_config *c = config;
    char **texts = words->items;
    size_t n = words->n;
    const char *model = c->model.model;
    if (!c->model.model_typed && n && model_path_looks_like(texts[0])) {
        model = *texts++;
        n--;
    }
    if (!n && !c->input) return term_usage("embed", "there is no text: give words or --input FILE");
    if (n && c->input) return term_usage("embed", "give texts once: as words or with --input");
    bitnet_model *m;
    bitnet_error err = {0};
    int code = model_open(&m, model, &c->model, "exact", "dense", "embed");
    if (code == EXIT_DONE && embed(c, m, texts, n, &err) != BITNET_OK) code = term_fail(&err);
    bitnet_model_close(m);
    return code;
}

const struct command cmd_embed = {
    .name = "embed",
    .ranks = true,
    .usage = "[MODEL] TEXT...|--input FILE [options]",
    .about = "\n"
             "Every word after the model is one text (quote it); so is every line of FILE. The "
             "vector is pooled\n"
             "from the hidden states after the final norm and has length 1 unless --no-normalize "
             "is given: the\n"
             "dot product of two vectors is then the cosine between the texts.\n"
             "\n"
             "  bitnet embed \"A cat sat on the mat\" \"A dog ran to the park\"\n"
             "  bitnet embed model.gguf --input lines.txt --json > vectors.jsonl\n",
    .first = "input pooling format json model threads",
    .parts = parts,
    .config_bytes = sizeof(struct embed_config),
    .max_words = SIZE_MAX,
    .run = run,
};
