/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_perplexity.c: `bitnet perplexity`: how well a model predicts a text, in nats a token.
 */
#include "cli/core/command.h"
#include "cli/options/model_opts.h"
#include "app/term.h"
#include "app/textio.h"
#include "app/tokens.h"
#include <stdlib.h>

enum { CTX_DEFAULT_TOKENS = 512 };

struct perplexity_config {
    struct model_opts model;
    struct adapter_opts adapters;
    const char *file, *protocol, *head;
    struct kv_opts kv;
    uint32_t ctx_tokens;
    uint64_t max_tokens;
    bool ids, json;
};

#define AT(field) offsetof(struct perplexity_config, field)
static const struct opt table[] = {
    {.kind = OPT_STR,
     .letter = 'f',
     .name = "file",
     .metavar = "FILE",
     .help = "the text to predict; - is standard input",
     .offset = AT(file)},
    {.kind = OPT_FLAG,
     .name = "ids",
     .help = "the file holds token ids instead of text",
     .offset = AT(ids)},
    {.kind = OPT_U32,
     .letter = 'c',
     .name = "ctx",
     .metavar = "N",
     .help = "tokens per window; 0 is 512, or the model's context if that is smaller",
     .offset = AT(ctx_tokens),
     .initial = "0",
     .aliases = "ctx-size",
     .min = 0,
     .max = 1 << 24},
    {.kind = OPT_CHOICE,
     .name = "protocol",
     .help = "windows: every position of consecutive windows counts; llama.cpp: the second half of "
             "each, as that tool does",
     .offset = AT(protocol),
     .initial = "windows",
     .choices = "windows|llama.cpp"},
    {.kind = OPT_U64,
     .name = "limit",
     .metavar = "N",
     .help = "use the first N tokens only; 0 takes all",
     .offset = AT(max_tokens),
     .initial = "0",
     .min = 0,
     .max = OPT_MAX_INTEGER},
    MODEL_KV_OPTS(AT(kv), "f16"),
    MODEL_HEAD_OPT(AT(head)),
    {.kind = OPT_FLAG, .name = "json", .help = "print the result as JSON", .offset = AT(json)},
    {.kind = OPT_END},
};
static const struct opt_part parts[] = {
    {"Text", table, 0},
    {"Model", model_opts_table, AT(model)},
    {"Adapters", adapter_opts_table, AT(adapters)},
    {NULL, NULL, 0},
};
#undef AT

static bitnet_status read_tokens(int32_t **ids, size_t *n, const struct perplexity_config *c,
                                 const bitnet_model *m, bitnet_error *err)
{
    char *text;
    size_t len;
    BN_TRY(textio_read(&text, &len, c->file, err));
    bitnet_status s = c->ids ? textio_parse_ids(ids, n, text, len, c->file, err)
                             : tokens_encode(ids, n, m, text, len, BITNET_TOK_BOS_AUTO, err);
    free(text);
    if (s == BITNET_OK && c->max_tokens && *n > c->max_tokens) *n = (size_t)c->max_tokens;
    return s;
}

static int print_result(const struct perplexity_config *c, const bitnet_ppl_result *r,
                        const bitnet_engine_info *info)
{
    uint32_t ctx = info->ctx_tokens;
    double seconds = (double)r->ns / 1e9, speed = seconds > 0 ? (double)r->n_tokens / seconds : 0;
    if (c->json)
        return term_print_json(
            bn_json_pack("{s:I, s:f, s:f, s:f, s:I, s:I, s:s, s:s, s:s, s:f, s:f}", "tokens",
                         (int64_t)r->n_tokens, "nll_per_token", r->nll_per_token, "perplexity",
                         r->perplexity, "std_error", r->std_error, "windows", (int64_t)r->n_windows,
                         "ctx", (int64_t)ctx, "protocol", c->protocol, "head", info->head.type,
                         "plan", info->plan.from, "seconds", seconds, "tok_s", speed));
    printf("perplexity     %.4f +/- %.4f\n"
           "nll per token  %.6f\n"
           "tokens         %llu in %llu windows of %u (%s)\n",
           r->perplexity, r->std_error, r->nll_per_token, (unsigned long long)r->n_tokens,
           (unsigned long long)r->n_windows, ctx, c->protocol);
    fprintf(stderr, "%.1f s, %.1f tok/s\n", seconds, speed);
    return EXIT_DONE;
}

static int measure(const struct perplexity_config *c, const bitnet_model *m)
{
    bitnet_error err = {0};
    int32_t *ids = NULL;
    size_t n;
    if (read_tokens(&ids, &n, c, m, &err) != BITNET_OK) return term_fail(&err);
    if (n < 2) {
        free(ids);
        return term_fail_text("%s holds %s; perplexity needs at least two tokens", c->file,
                              n ? "one token" : "no tokens");
    }
    bitnet_model_info info = {.size = sizeof info};
    bitnet_model_get_info(m, &info);
    uint32_t ctx = c->ctx_tokens ? c->ctx_tokens : CTX_DEFAULT_TOKENS;
    if (!c->ctx_tokens && info.shape.n_ctx_train && info.shape.n_ctx_train < ctx)
        ctx = info.shape.n_ctx_train;

    bitnet_engine_options eo = {.size = sizeof eo};
    eo.threads = c->model.threads;
    eo.pin = c->model.pin;
    eo.ctx_tokens = ctx;
    model_kv_types(&eo, &c->kv);
    eo.head = c->head;
    bitnet_ppl_options po = {.size = sizeof po};
    struct term_progress bar = {0};
    po.ctx_tokens = ctx;
    po.protocol = strcmp(c->protocol, "windows") == 0 ? BITNET_PPL_WINDOWS : BITNET_PPL_LLAMA_CPP;
    po.progress = term_progress_show;
    po.progress_user = &bar;

    bitnet_engine *e = NULL;
    struct adapters adapters = {.n = 0};
    bitnet_ppl_result result = {.size = sizeof result};
    bitnet_status s = model_adapted_open(&e, &adapters, m, &eo, &c->adapters, false, &err);
    if (s == BITNET_OK) s = bitnet_perplexity(e, ids, n, &po, &result, &err);
    term_progress_end(&bar);
    bitnet_engine_info engine = {.size = sizeof engine};
    int code = EXIT_DONE;
    if (s == BITNET_OK) s = bitnet_engine_get_info(e, &engine);
    if (s == BITNET_OK) code = print_result(c, &result, &engine);
    bitnet_engine_close(e);
    adapters_close(&adapters);
    free(ids);
    return s == BITNET_OK ? code : term_fail(&err);
}

static int run(void *config, const struct arg_words *words)
{
    struct perplexity_config *c = config;
    const char *model;
    int code = model_word(&model, c->model.model, c->model.model_typed, words, "perplexity");
    if (code != EXIT_DONE) return code;
    if (!c->file)
        return term_usage("perplexity",
                          "--file is missing: --file FILE, or --file - for standard input");
    bitnet_model *m;
    code = model_open(&m, model, &c->model, c->head, "dense", "perplexity");
    if (code == EXIT_DONE) code = measure(c, m);
    bitnet_model_close(m);
    return code;
}

const struct command cmd_perplexity = {
    .name = "perplexity",
    .ranks = true,
    .usage = "[MODEL] --file FILE [options]",
    .about = "\n"
             "Prints the mean negative log likelihood of a token (nats) and its exponential, the "
             "perplexity.\n"
             "\n"
             "  bitnet perplexity model.gguf --file wiki.test.raw --ctx 512 --protocol llama.cpp "
             "--json\n",
    .first = "file ctx json model threads kv-type",
    .parts = parts,
    .config_bytes = sizeof(struct perplexity_config),
    .max_words = 1,
    .run = run,
};
