/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_run.c: `bitnet run`: one prompt, one answer. The text goes to standard output as it is made,
 * the timing line to standard error; with --json one object at the end.
 */
#include "base/clock.h"
#include "cli/core/command.h"
#include "app/report.h"
#include "cli/commands/generate.h"
#include "cli/commands/health_report.h"
#include "app/interrupt.h"
#include "cli/options/model_opts.h"
#include "app/term.h"
#include "app/textio.h"
#include "app/tokens.h"
#include <stdlib.h>
#include <unistd.h>

enum { MAX_NAME_BYTES = 256 }; /* of a model, on the timing line */

struct run_config {
    struct model_opts model;
    struct engine_opts engine;
    struct adapter_opts adapters;
    struct generate_opts gen;
    struct scrub_opts scrub;
    const char *prompt, *file, *system, *chat_template;
    bool chat, raw, no_echo, quiet, json, logprobs, health;
    uint32_t n_top;
};

#define AT(field) offsetof(struct run_config, field)
static const struct opt prompt_table[] = {
    {.kind = OPT_STR,
     .letter = 'p',
     .name = "prompt",
     .metavar = "TEXT",
     .help = "the prompt, instead of the words on the command line",
     .offset = AT(prompt)},
    {.kind = OPT_STR,
     .letter = 'f',
     .name = "file",
     .metavar = "FILE",
     .help = "read the prompt from a file; - is standard input. One trailing newline is dropped",
     .offset = AT(file)},
    {.kind = OPT_FLAG,
     .name = "chat",
     .help = "put the prompt into a chat template, also where the model's file has none; with one "
             "in the "
             "file this is what happens anyway",
     .offset = AT(chat)},
    {.kind = OPT_FLAG,
     .name = "raw",
     .help = "continue the prompt as it is, also with a model that has a chat template",
     .offset = AT(raw),
     .aliases = "no-conversation no-cnv"},
    {.kind = OPT_STR,
     .name = "system",
     .metavar = "TEXT",
     .help = "system message",
     .offset = AT(system)},
    {.kind = OPT_STR,
     .name = "chat-template",
     .metavar = "NAME|FILE|TEXT",
     .help = "chat template to use instead of the model's",
     .offset = AT(chat_template)},
    {.kind = OPT_END},
};
static const struct opt output_table[] = {
    {.kind = OPT_FLAG,
     .name = "json",
     .help = "print one JSON object with text, counts, timings and memory",
     .offset = AT(json)},
    {.kind = OPT_U32,
     .name = "logprobs",
     .metavar = "N",
     .help = "with --json: log-probabilities of the tokens and of the N likeliest at each position",
     .offset = AT(n_top),
     .shown = "",
     .min = 0,
     .max = 20,
     .given = AT(logprobs)},
    {.kind = OPT_FLAG,
     .name = "health",
     .help = "after the answer, show health signals: repetition, state of the KV cache, "
             "feed-forward activity, checksums of the weights. Reads all weights twice more",
     .offset = AT(health)},
    {.kind = OPT_FLAG,
     .name = "no-echo",
     .help = "do not print the prompt before its continuation",
     .offset = AT(no_echo),
     .aliases = "no-display-prompt"},
    {.kind = OPT_FLAG,
     .letter = 'q',
     .name = "quiet",
     .help = "no timing line",
     .offset = AT(quiet)},
    {.kind = OPT_END},
};
static const struct opt_part parts[] = {
    {"Prompt", prompt_table, 0},
    GENERATE_PARTS(struct run_config),
    {"Checks", scrub_opts_table, AT(scrub)},
    {"Output", output_table, 0},
    {NULL, NULL, 0},
};
#undef AT

/* ------------------------------------------------------------------ the prompt */

static void drop_line_end(char *text, size_t *n)
{
    if (*n && text[*n - 1] == '\n') (*n)--;
    if (*n && text[*n - 1] == '\r') (*n)--;
    text[*n] = 0;
}

/* Where the prompt comes from: words, --prompt, --file, or standard input when it is no
 * terminal. */
static int get_prompt(char **out, size_t *n, const struct run_config *c, char **words,
                      size_t n_words)
{
    int sources = (n_words > 0) + (c->prompt != NULL) + (c->file != NULL);
    if (sources > 1)
        return term_usage("run", "give the prompt once: as words, with --prompt or with --file");
    if (sources == 0 && isatty(STDIN_FILENO)) return term_usage("run", "there is no prompt");
    bitnet_error err = {0};
    bitnet_status s;
    char *prompt_words[1] = {(char *)c->prompt};
    if (c->prompt) {
        s = textio_join(out, n, prompt_words, 1, &err);
    } else if (n_words) {
        s = textio_join(out, n, words, n_words, &err);
    } else {
        s = textio_read(out, n, c->file ? c->file : "-", &err);
        if (s == BITNET_OK) drop_line_end(*out, n);
    }
    return s == BITNET_OK ? EXIT_DONE : term_fail(&err);
}

static bitnet_status prompt_tokens(int32_t **ids, size_t *n, const struct run_config *c,
                                   const bitnet_model *m, const char *prompt, size_t len,
                                   bitnet_error *err)
{
    if (!c->chat) {
        uint32_t flags = BITNET_TOK_BOS_AUTO | (c->gen.special ? BITNET_TOK_SPECIAL : 0);
        return tokens_encode(ids, n, m, prompt, len, flags, err);
    }
    char *owned;
    const char *chat_template;
    BN_TRY(textio_chat_template(&owned, &chat_template, c->chat_template, err));
    bitnet_message msgs[2] = {{"system", c->system}, {"user", prompt}};
    size_t first = c->system ? 0 : 1;
    bitnet_status s = tokens_chat(ids, n, m, msgs + first, 2 - first, chat_template, err);
    free(owned);
    return s;
}

/* ------------------------------------------------------------------ the report */

struct report {
    const struct generation *g;
    const bitnet_model *m;
    bitnet_model_info model;
    bitnet_engine_info engine;
    uint64_t engine_ns;                 /* opening it */
    struct bn_json *ffn;                /* with --json; owned by print_report */
    const struct health_report *health; /* NULL: not asked for */
};

static double ms(uint64_t ns) { return (double)ns / 1e6; }

static void print_timing(const struct report *r)
{
    const struct generation *g = r->g;
    char rss[TERM_SIZE_BYTES];
    struct bn_buf name;
    bn_buf_init(&name, MAX_NAME_BYTES);
    term_clean(&name, r->model.name, strlen(r->model.name), false);
    fprintf(
        stderr,
        "%s%s: load %.0f ms, first token %.0f ms, prompt %u tok at %.1f tok/s, generated %u tok at "
        "%.1f tok/s, "
        "peak %s, %u thread%s, %s, seed %llu%s\n",
        term_style(stderr, TERM_DIM), name.data ? name.data : "", ms(r->model.load_ns),
        ms(g->first_token_ns), g->n_prompt, generation_prompt_rate(g), g->n_generated,
        generation_decode_rate(g), term_size(rss, term_peak_rss_bytes()), r->engine.threads,
        r->engine.threads == 1 ? "" : "s", r->model.backend, (unsigned long long)g->seed,
        term_style(stderr, TERM_PLAIN));
    bn_buf_free(&name);
}

static struct bn_json *json_ids(const int32_t *ids, size_t n)
{
    struct bn_json *a = bn_json_array();
    for (size_t i = 0; i < n; i++) bn_json_append(a, bn_json_int(ids[i]));
    return a;
}

static struct bn_json *json_model(const bitnet_model_info *m)
{
    return bn_json_pack("{s:o, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I}", "name",
                        term_json_string(m->name, strlen(m->name)), "architecture", m->architecture,
                        "weight_type", m->weight_type, "head_type", m->head_type, "activation",
                        m->activation, "act_quant", m->act_quant, "parameters",
                        (int64_t)m->shape.n_params, "parameters_ternary",
                        (int64_t)m->shape.n_params_ternary, "vocab", (int64_t)m->shape.n_vocab,
                        "file_bytes", (int64_t)m->memory.file_bytes);
}

static struct bn_json *json_head(const bitnet_engine_info *e)
{
    struct bn_json *histogram = bn_json_array();
    size_t n = sizeof e->head.histogram / sizeof e->head.histogram[0];
    while (n && !e->head.histogram[n - 1]) n--;
    for (size_t i = 0; i < n; i++)
        bn_json_append(histogram, bn_json_int((int64_t)e->head.histogram[i]));
    double mean = e->head.screened ? (double)e->head.survivors / (double)e->head.screened : 0;
    double tried = (double)(e->head.screened + e->head.fallbacks);
    double refined = tried > 0 ? (double)e->head.refined / tried : 0;
    return bn_json_pack("{s:s, s:I, s:I, s:I, s:f, s:f, s:I, s:o}", "mode", e->head.type,
                        "tokens_full", (int64_t)e->head.full, "tokens_screened",
                        (int64_t)e->head.screened, "fallbacks", (int64_t)e->head.fallbacks,
                        "mean_refined", refined, "mean_survivors", mean, "max_survivors",
                        (int64_t)e->head.survivors_max, "histogram", histogram);
}

static struct bn_json *json_logprob(const bitnet_model *m, const bitnet_logprob *p)
{
    const char *text = bitnet_token_text(m, p->token);
    text = text ? text : "";
    return bn_json_pack("{s:i, s:o, s:f}", "id", (int)p->token, "token",
                        term_json_string(text, strlen(text)), "logprob", (double)p->logprob);
}

/* One object a token, as llama.cpp's server words them. */
static struct bn_json *json_logprobs(const bitnet_model *m, const struct generation *g)
{
    struct bn_json *list = bn_json_array();
    for (size_t at = 0; at < g->n_probs; at += 1 + g->n_top) {
        const bitnet_logprob *p = &g->probs[at];
        struct bn_json *one = json_logprob(m, p), *top = bn_json_array();
        for (uint32_t i = 1; i <= g->n_top; i++) bn_json_append(top, json_logprob(m, &p[i]));
        bn_json_set(one, "top_logprobs", top);
        bn_json_append(list, one);
    }
    return list;
}

/* Of models with recurrent states. */
static struct bn_json *json_states(const bitnet_engine_info *e)
{
    return bn_json_pack("{s:I, s:I, s:I, s:I}", "bytes", (int64_t)e->states.bytes, "sequence_bytes",
                        (int64_t)e->states.seq_bytes, "snapshots", (int64_t)e->states.snapshots,
                        "snapshots_used", (int64_t)e->states.snapshots_used);
}

static int print_report(const struct report *r)
{
    const struct generation *g = r->g;
    struct bn_json *j = bn_json_pack(
        "{s:o, s:o, s:I, s:I, s:s, s:I, s:{s:f, s:f, s:f, s:f, s:f, s:f}, s:{s:I, s:I, s:I, s:I}, "
        "s:o, "
        "s:I, s:I, s:s, s:s, s:s, s:s, s:o, s:o}",
        "text", term_json_string(g->text.data ? g->text.data : "", g->text.len), "tokens",
        json_ids(g->ids, g->n_ids), "prompt_tokens", (int64_t)g->n_prompt, "generated_tokens",
        (int64_t)g->n_generated, "finish_reason", generation_finish_name(g->finish), "seed",
        (int64_t)g->seed, "timings", "load_ms", ms(r->model.load_ns), "engine_ms", ms(r->engine_ns),
        "ttft_ms", ms(g->first_token_ns), "prompt_tok_s", generation_prompt_rate(g), "gen_tok_s",
        generation_decode_rate(g), "total_ms", ms(g->total_ns), "memory", "peak_rss_bytes",
        (int64_t)term_peak_rss_bytes(), "kv_bytes", (int64_t)r->engine.kv.bytes, "scratch_bytes",
        (int64_t)r->engine.scratch_bytes, "packed_bytes", (int64_t)r->model.memory.packed_bytes,
        "model", json_model(&r->model), "threads", (int64_t)r->engine.threads, "ctx_size",
        (int64_t)r->engine.ctx_tokens, "kv_type", r->engine.kv.type, "kv_type_v",
        r->engine.kv.type_v, "backend", r->model.backend, "layout", r->model.layout, "head",
        json_head(&r->engine), "ffn", r->ffn);
    if (r->engine.states.seq_bytes) bn_json_set(j, "states", json_states(&r->engine));
    bn_json_set(
        j, "plan",
        bn_json_pack("{s:s, s:s}", "from", r->engine.plan.from, "saves", r->engine.plan.text));
    bn_json_set(j, "speculation",
                bn_json_pack("{s:I, s:I}", "draft_tokens", (int64_t)r->engine.draft.tokens,
                             "draft_accepted", (int64_t)r->engine.draft.accepted));
    if (g->logprobs) bn_json_set(j, "logprobs", json_logprobs(r->m, g));
    if (r->health) bn_json_set(j, "health", health_report_json(r->health));
    return term_print_json(j);
}

/* ------------------------------------------------------------------ the run */

static bool show_text(void *user, const char *text, size_t n)
{
    (void)user;
    return term_print_text(text, n);
}

static int answer(struct run_config *c, const bitnet_model *m, bitnet_engine *e, uint64_t engine_ns,
                  const char *prompt, size_t len)
{
    bitnet_error err = {0};
    int32_t *ids;
    size_t n_ids;
    if (prompt_tokens(&ids, &n_ids, c, m, prompt, len, &err) != BITNET_OK) return term_fail(&err);
    if (n_ids == 0) {
        free(ids);
        return term_fail_text("the prompt is empty and this model has no token to begin with");
    }
    /* text that follows a schema is meant for a program, which wants nothing before it */
    bool echo = !c->json && !c->chat && !c->no_echo && !constraint_given(&c->gen.constraint);
    struct generation g = {.engine = e,
                           .model = m,
                           .opts = &c->gen,
                           .tokens = ids,
                           .n_tokens = n_ids,
                           .seed = c->gen.seed,
                           .scrub = c->scrub,
                           .on_text = c->json ? NULL : show_text,
                           .echo = prompt,
                           .n_echo = echo ? len : 0,
                           .logprobs = c->logprobs,
                           .n_top = c->n_top};
    struct health_report health = {.engine = e};
    bitnet_status s = BITNET_OK;
    if (c->health) s = health_scrub(e, &health.scrub, &err);
    if (s == BITNET_OK) s = generation_run(&g, &err);
    if (s == BITNET_OK && c->health) s = health_scrub(e, &health.scrub, &err);
    health.repetition = g.repetition;
    bool cut_line = !c->json && (g.text.len == 0 || g.text.data[g.text.len - 1] != '\n');
    int code = EXIT_DONE;
    if (cut_line && (s == BITNET_OK || g.text.len)) fputc('\n', stdout);
    if (s != BITNET_OK) {
        code = term_fail(&err);
    } else {
        struct report r = {.g = &g,
                           .m = m,
                           .model.size = sizeof r.model,
                           .engine.size = sizeof r.engine,
                           .engine_ns = engine_ns,
                           .health = c->health ? &health : NULL};
        bitnet_model_get_info(m, &r.model);
        bitnet_engine_get_info(e, &r.engine);
        fflush(stdout);
        if (c->json) {
            r.ffn = ffn_report(e);
            code = print_report(&r);
        }
        if (c->health && !c->json) health_report_print(stderr, &health);
        if (g.text.len == 0 && !interrupt_pending() && constraint_given(&c->gen.constraint))
            term_note("the answer is empty: the grammar or schema allows an empty text, or the "
                      "model chose to end at once");
        if (!c->quiet && !c->json) print_timing(&r);
        if (interrupt_pending()) code = interrupt_exit_code();
    }
    generation_free(&g);
    free(ids);
    return code;
}

/* A name never becomes a prompt in silence. */
static void note_name(const char *word)
{
    char text[384];
    model_source_hint(text, sizeof text, word);
    term_note(text);
}

/* Sets c->chat if it is a model for questions, as its file says, and the text is not to be continued. A template that
 * cannot be used is no reason to fail; missing memory is. */
static bitnet_status settle_chat(struct run_config *c, const bitnet_model *m, bitnet_error *err)
{
    if (c->raw || c->chat) return BITNET_OK;
    const char *text;
    bitnet_status s = bitnet_chat_template_text(m, NULL, &text, err);
    c->chat = s == BITNET_OK && *text;
    return s == BITNET_E_NOMEM ? s : BITNET_OK;
}

static int run(void *config, const struct arg_words *words)
{
    struct run_config *c = config;
    char **prompt_words = words->items;
    size_t n_words = words->n;
    const char *model_word = c->model.model;
    if (!c->model.model_typed && n_words && model_path_looks_like(prompt_words[0])) {
        model_word = *prompt_words++;
        n_words--;
    }
    if (!c->json && c->logprobs) return term_usage("run", "--logprobs needs --json");
    c->chat = c->chat || c->system || c->chat_template;
    if (c->raw && c->chat)
        return term_usage("run", "--raw cannot go with %s",
                          c->system          ? "--system"
                          : c->chat_template ? "--chat-template"
                                             : "--chat");

    if (!model_word && n_words && model_name_looks_like(prompt_words[0]))
        note_name(prompt_words[0]);

    char *prompt = NULL;
    size_t len = 0;
    int code = get_prompt(&prompt, &len, c, prompt_words, n_words);
    if (code != EXIT_DONE) return code;
    generate_choose_seed(&c->gen);
    bitnet_model *m = NULL;
    bitnet_engine *e = NULL;
    struct adapters adapters = {.n = 0};
    code = model_open(&m, model_word, &c->model, c->engine.head, c->engine.ffn, "run");
    if (code == EXIT_DONE) {
        bitnet_error err = {0};
        bitnet_engine_options eo;
        bitnet_status s = settle_chat(c, m, &err);
        model_engine_options(&eo, &c->model, &c->engine);
        uint64_t start_ns = bn_now_ns();
        code = s == BITNET_OK && model_adapted_open(&e, &adapters, m, &eo, &c->adapters,
                                                    c->engine.warmup, &err) == BITNET_OK
                   ? answer(c, m, e, bn_now_ns() - start_ns, prompt, len)
                   : term_fail(&err);
    }
    bitnet_engine_close(e);
    adapters_close(&adapters);
    bitnet_model_close(m);
    free(prompt);
    return code;
}

const struct command cmd_run = {
    .name = "run",
    .ranks = true,
    .usage = "[MODEL] [PROMPT...] [options]",
    .about = "\n"
             "The first word is the model if it is an existing file or folder, ends in .gguf or "
             ".safetensors,\n"
             "is a path, or is 'embedded'; the other words are the prompt. Without a prompt, "
             "standard input is\n"
             "read unless it is a terminal. Ctrl-C ends the answer. A model with a chat template "
             "answers,\n"
             "others continue the prompt, which is then printed first, except with a schema or a "
             "grammar.\n"
             "--raw and --chat choose either.\n"
             "\n"
             "  bitnet run \"Once upon a time\"\n"
             "  bitnet run model.gguf --raw \"The capital of France is\" -n 20 --temp 0\n"
             "  bitnet run model.gguf --json -p \"Why is the sky blue?\"\n",
    .first = "prompt file model raw threads max-new-tokens temp seed json-schema json",
    .parts = parts,
    .config_bytes = sizeof(struct run_config),
    .max_words = SIZE_MAX,
    .run = run,
};
