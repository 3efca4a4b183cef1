/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_bench.c: `bitnet bench`: options, the model (a file, the embedded one, or a synthetic one
 * that lives in memory only), the run, and where its report goes. `bitnet bench diff` compares two
 * reports.
 */
#include "base/os/file.h"
#include "cli/bench/bench.h"
#include "cli/core/command.h"
#include "cli/options/backend.h"
#include "cli/options/synthetic.h"
#include "app/term.h"
#include "cli/autotune/autotune.h"
#include <stdlib.h>

struct bench_config {
    struct model_opts model;
    struct engine_opts engine;
    struct synthetic_opts made;
    const char *mode, *report, *plot, *fail_over, *op, *text;
    struct opt_u32s prompt_tokens, batch_sizes, depths;
    uint32_t max_new_tokens, warmup, repeat;
    bool engine_warmup, random_keys;
    uint32_t pairs;
    bool json, run;
    struct autotune_opts autotune;
    char tuned[128]; /* what was taken from the tuning file */
};

#define AT(field) offsetof(struct bench_config, field)
static const struct opt measure_table[] = {
    {.kind = OPT_CHOICE,
     .name = "mode",
     .help = "what to measure",
     .offset = AT(mode),
     .shown = "stream and prefill",
     .choices = "stream|prefill|batch|depth|all|kernels|kv"},
    {.kind = OPT_STR,
     .name = "op",
     .metavar = "NAME",
     .help = "kernels: this operation only, by its name in the table",
     .offset = AT(op)},
    {.kind = OPT_STR,
     .name = "text",
     .metavar = "FILE",
     .help = "kv: also the perplexity of this text, with --synthetic by the embedded model",
     .offset = AT(text)},
    {.kind = OPT_U32,
     .letter = 'n',
     .name = "max-new-tokens",
     .metavar = "N",
     .help = "tokens to generate in one repeat",
     .offset = AT(max_new_tokens),
     .initial = "128",
     .aliases = "max-tokens n-predict",
     .min = 2,
     .max = 1 << 20},
    {.kind = OPT_U32S,
     .name = "prompt-tokens",
     .metavar = "LIST",
     .help = "prefill: lengths of the prompt",
     .offset = AT(prompt_tokens),
     .initial = "128,512",
     .min = 1,
     .max = 1 << 20,
     .own = true},
    {.kind = OPT_U32S,
     .name = "batch-sizes",
     .metavar = "LIST",
     .help = "batch: requests at a time; 1,4,8 or 1 4 8",
     .offset = AT(batch_sizes),
     .initial = "1,4,8",
     .min = 1,
     .max = 256},
    {.kind = OPT_U32S,
     .name = "depths",
     .metavar = "LIST",
     .help = "depth: tokens in the cache before decoding, as far as the context goes; kv: only the "
             "last one, with --random-keys all of them",
     .offset = AT(depths),
     .initial = "0,512,1024,2048,3072,4096",
     .min = 0,
     .max = 1 << 20},
    {.kind = OPT_FLAG,
     .name = "random-keys",
     .help = "kv: fill the cache with random keys and values instead of reading prompts; also "
             "shows the time of attention alone",
     .offset = AT(random_keys)},
    {.kind = OPT_U32,
     .name = "warmup-rounds",
     .metavar = "N",
     .help = "rounds that come first and are not counted",
     .offset = AT(warmup),
     .initial = "1",
     .min = 0,
     .max = 100,
     .aliases = "warmup"},
    {.kind = OPT_FLAG,
     .name = "warm-up",
     .help = "touch all memory before the first round, and keep the model's file in memory",
     .offset = AT(engine_warmup),
     .aliases = "engine-warmup"},
    {.kind = OPT_U32,
     .letter = 'r',
     .name = "repeat",
     .metavar = "N",
     .help = "measured rounds; 'diff' needs 5 to find anything significant",
     .offset = AT(repeat),
     .shown = "5; kernels 10",
     .aliases = "repeats repetitions",
     .min = 1,
     .max = 1000},
    {.kind = OPT_END},
};
static const struct opt output_table[] = {
    {.kind = OPT_STR,
     .name = "json-report",
     .metavar = "FILE",
     .help = "write the report, with every repeat, to a file, replacing an older one",
     .offset = AT(report)},
    {.kind = OPT_FLAG,
     .name = "json",
     .help = "print the report as JSON instead of a table",
     .offset = AT(json)},
    {.kind = OPT_STR,
     .name = "plot",
     .metavar = "FILE",
     .help = "plot the figures with their spread, as SVG, or as a page if FILE ends in .html",
     .offset = AT(plot)},
    {.kind = OPT_STR,
     .name = "fail-over",
     .metavar = "P%",
     .help = "diff: slower by more than this, and significantly, is a regression",
     .offset = AT(fail_over),
     .shown = "3%"},
    {.kind = OPT_FLAG,
     .name = "run",
     .help = "diff: OLD and NEW are programs, run in turn as PROGRAM bench ARGS; ARGS follow --",
     .offset = AT(run)},
    {.kind = OPT_U32,
     .name = "pairs",
     .metavar = "N",
     .help = "diff --run: runs of each program; 8 are needed to find anything significant, 40 find "
             "5 % reliably",
     .offset = AT(pairs),
     .initial = "40",
     .min = 1,
     .max = BENCH_PAIRS_MAX},
    {.kind = OPT_END},
};
static const struct opt_part parts[] = {
    {"Measurements", measure_table, 0},
    {"Model", model_opts_table, AT(model)},
    {"Synthetic model", synthetic_table, AT(made)},
    {NULL, synth_opts_table, AT(made.model)},
    {"Context", prompt_batch_table, AT(engine)},
    {NULL, engine_opts_table, AT(engine)},
    {"Tuning", autotune_opts_table, AT(autotune)},
    {"Output", output_table, 0},
    {NULL, NULL, 0},
};
#undef AT

/* ------------------------------------------------------------------ the model */

static bool kernels_only(const struct bench_config *c)
{
    return c->mode && strcmp(c->mode, "kernels") == 0;
}

static int open_model(bitnet_model **out, struct bench_config *c, const struct arg_words *words)
{
    struct synthetic_opts made = c->made;
    const char *head = c->engine.head, *ffn = c->engine.ffn;
    if (kernels_only(c)) {
        head = "exact"; /* no copies that nobody reads */
        ffn = "dense";
        if (made.shape && !made.model.layers)
            made.model.layers = 1; /* all layers have the same shapes */
    }
    return synthetic_or_word(out, &made, &c->model, words, head, ffn, "bench");
}

/* ------------------------------------------------------------------ the run */

/* After the model was opened: what is tuned is known then. */
static void fill_settings(struct bench_settings *s, struct bench_config *c)
{
    if (*c->model.tuned.date) autotune_file_describe(c->tuned, sizeof c->tuned, &c->model.tuned);
    *s = (struct bench_settings){.prompt_tokens = c->prompt_tokens,
                                 .batch_sizes = c->batch_sizes,
                                 .depths = c->depths,
                                 .max_new_tokens = c->max_new_tokens,
                                 .warmup = c->warmup,
                                 .no_mmap = c->model.no_mmap,
                                 .engine_warmup = c->engine_warmup,
                                 .repeat = c->repeat,
                                 .seed = c->made.seed,
                                 .op = c->op,
                                 .text = c->text,
                                 .random_keys = c->random_keys,
                                 .text_embedded = c->made.shape != NULL,
                                 .tuned = c->tuned};
    model_engine_options(&s->engine, &c->model, &c->engine);
    for (int m = 0; m < BENCH_MODES; m++)
        s->modes[m] = !c->mode ? m == BENCH_STREAM || m == BENCH_PREFILL
                      : strcmp(c->mode, "all") == 0
                          ? m != BENCH_KERNELS && m != BENCH_KV
                          : strcmp(c->mode, bench_mode_name((enum bench_mode)m)) == 0;
    if (!s->repeat) s->repeat = s->modes[BENCH_KERNELS] ? BENCH_REPEAT_KERNELS : BENCH_REPEAT;
}

/* Files are opened before the run: a wrong path should not cost minutes. */
struct outputs {
    struct bn_out report, plot;
};

static int write_files(struct outputs *out, const struct bn_json *report,
                       const struct bench_config *c)
{
    bitnet_error err = {0};
    bitnet_status s = BITNET_OK;
    char *text = NULL;
    if (c->report) {
        text = bn_json_dump(report, BN_JSON_INDENT(1) | BN_JSON_DIGITS(12));
        s = text ? bn_out_end(&out->report, text, strlen(text), &err)
                 : bn_fail_nomem(&err, 0, "the report");
        free(text);
    }
    if (s == BITNET_OK && c->plot) {
        text = bench_plot(report, bn_ends_with(c->plot, ".html"));
        s = text ? bn_out_end(&out->plot, text, strlen(text), &err)
                 : bn_fail_nomem(&err, 0, "the plot");
        free(text);
    }
    return s == BITNET_OK ? EXIT_DONE : term_fail(&err);
}

static int deliver(struct outputs *out, const struct bench *b, const struct bench_config *c)
{
    struct bn_json *report = bench_report(b);
    if (!report) return term_fail_text("out of memory while building the report");
    int code = write_files(out, report, c);
    if (code == EXIT_DONE && c->json) code = term_print_json(bn_json_ref(report));
    else if (code == EXIT_DONE) bench_print_report(report);
    fflush(stdout);
    for (size_t i = 0; !c->json && i < b->n_notes; i++) term_note(b->notes[i]);
    bn_json_free(report);
    return code;
}

static int measure(struct bench_config *c, const struct arg_words *words)
{
    bitnet_error err = {0};
    bitnet_model *model = NULL;
    struct outputs out = {.report.fd = -1, .plot.fd = -1};
    struct bench_settings settings;
    struct bench *b = NULL;
    int code = EXIT_DONE;
    if ((c->report && bn_out_open(&out.report, c->report, true, &err) != BITNET_OK) ||
        (c->plot && bn_out_open(&out.plot, c->plot, true, &err) != BITNET_OK))
        code = term_fail(&err);
    if (code == EXIT_DONE && !(b = calloc(1, sizeof *b))) code = term_fail_text("out of memory");
    if (code == EXIT_DONE) code = open_model(&model, c, words);
    if (code == EXIT_DONE) {
        fill_settings(&settings, c);
        b->settings = &settings;
        b->model = model;
        code = bench_run(b, &err) == BITNET_OK ? deliver(&out, b, c) : term_fail(&err);
    }
    if (b) bench_free(b);
    free(b);
    bitnet_model_close(model);
    bn_out_close(&out.report);
    bn_out_close(&out.plot);
    return code;
}

/* ------------------------------------------------------------------ autotune */

static int autotune(struct bench_config *c, const struct arg_words *words)
{
    const struct model_opts *m = &c->model;
    if (m->threads_given || m->layout_given || m->pin_given || m->prefetch_given ||
        c->engine.batch_tokens)
        return term_usage("bench", "--autotune chooses threads, layout, pinning, prefetch distance "
                                   "and batch itself: give none of them");
    if (c->mode || c->plot)
        return term_usage("bench", "--autotune takes neither --mode nor --plot");
    if (c->repeat > AUTOTUNE_ROUNDS_MAX)
        return term_usage("bench", "--repeat is %u; --exhaustive takes at most %d", c->repeat,
                          AUTOTUNE_ROUNDS_MAX);
    struct autotune_settings s = {.model = *m,
                                  .engine = c->engine,
                                  .budget_s = c->autotune.budget_s,
                                  .max_new_tokens = c->max_new_tokens,
                                  .seed = c->made.seed};
    for (int i = AUTOTUNE_DECODE; i <= AUTOTUNE_SERVE; i++)
        if (strcmp(c->autotune.objective, autotune_metric_name((enum autotune_metric)i)) == 0)
            s.metric = (enum autotune_metric)i;
    for (size_t i = 0; i < c->prompt_tokens.n; i++)
        s.prompt_tokens = (uint32_t)bn_max_size(s.prompt_tokens, c->prompt_tokens.items[i]);
    if (c->autotune.exhaustive) s.sweep_rounds = c->repeat ? c->repeat : BENCH_REPEAT;
    struct synthetic_source from = {.fd = -1};
    int code = backend_check(m->backend, "bench");
    if (code == EXIT_DONE) code = model_cpus_apply(m->cpus, "bench");
    if (code == EXIT_DONE) code = synthetic_find(&from, &c->made, m, words, "bench");
    if (code == EXIT_DONE) code = model_find(&from.typed, &c->model.from, "bench");
    s.path = model_path_resolve(from.typed);
    if (code == EXIT_DONE) backend_probe(&s.model.backend);
    if (code == EXIT_DONE) code = autotune_command(&s, c->report, c->json);
    synthetic_end(&from);
    return code;
}

/* ------------------------------------------------------------------ the command */

/* "3%", "3 %", "3": a share of 0.03. */
static bool parse_percent(double *out, const char *text)
{
    char number[32];
    size_t n = strlen(text);
    if (n && text[n - 1] == '%') n--;
    while (n && text[n - 1] == ' ') n--;
    if (n >= sizeof number) return false;
    memcpy(number, text, n);
    number[n] = 0;
    if (!args_double(out, number) || *out < 0 || *out >= 100) return false;
    *out /= 100;
    return true;
}

static int diff(const struct bench_config *c, const struct arg_words *words)
{
    struct bench_diff_options o = {.fail_over = 0.03, .json = c->json};
    if (c->run ? words->n < 3 : words->n != 3)
        return term_usage("bench", c->run
                                       ? "diff --run needs two programs: bitnet bench diff --run "
                                         "OLD NEW -- ARGS"
                                       : "diff needs two reports: bitnet bench diff OLD NEW");
    if (c->fail_over && !parse_percent(&o.fail_over, c->fail_over))
        return term_usage("bench", "--fail-over expects a percentage such as 3%%, not '%s'",
                          c->fail_over);
    o.old_name = words->items[1];
    o.new_name = words->items[2];
    return c->run ? bench_pairs(&o, c->pairs, words->items + 3, words->n - 3) : bench_diff(&o);
}

static int run(void *config, const struct arg_words *words)
{
    struct bench_config *c = config;
    if (words->n && strcmp(words->items[0], "diff") == 0) return diff(c, words);
    if (c->run) return term_usage("bench", "--run is for 'bitnet bench diff'");
    if (c->fail_over) return term_usage("bench", "--fail-over is for 'bitnet bench diff'");
    if (words->n > 1) return term_usage("bench", "'%s' is one argument too many", words->items[1]);
    if (c->op && !kernels_only(c)) return term_usage("bench", "--op needs --mode kernels");
    bool kv = c->mode && strcmp(c->mode, "kv") == 0;
    if (c->text && !kv) return term_usage("bench", "--text needs --mode kv");
    if (c->random_keys && !kv) return term_usage("bench", "--random-keys needs --mode kv");
    if (c->plot && (kv || kernels_only(c)))
        return term_usage("bench", "--plot does not draw %s", c->mode);
    if (c->autotune.exhaustive && !c->autotune.on)
        return term_usage("bench", "--exhaustive needs --autotune");
    return c->autotune.on ? autotune(c, words) : measure(c, words);
}

const struct command cmd_bench = {
    .name = "bench",
    .ranks = true,
    .usage = "[MODEL | diff OLD NEW] [options] [-- ARGS]",
    .about = "\n"
             "stream: one request, token after token. prefill: reading prompts. batch: several "
             "requests at\n"
             "once. depth: decoding after texts of growing length. all: these four. kernels: every "
             "operation\n"
             "in every variant this CPU can run, at the model's sizes, on one thread. kv: every "
             "type of the KV\n"
             "cache, or with --kv-type f16 and that one: memory, decoding after a long text, and "
             "with --text\n"
             "the perplexity. Every round takes each measurement once; the table shows medians "
             "over the rounds,\n"
             "spread is the distance between the quartiles. roofline is the bytes read per token "
             "as a share of\n"
             "the memory bandwidth measured in the same run; it can exceed 100 % if a model fits "
             "into the caches.\n"
             "\n"
             "'diff' compares two reports: exit code 1 on a significant slow-down, 2 if one cannot "
             "be read.\n"
             "With --run it compares two programs by running them in turn, so that whatever the "
             "machine does\n"
             "meanwhile affects both.\n"
             "\n"
             "--autotune finds the fastest options for this model on this machine; later runs of "
             "all commands\n"
             "use them for options that are not given (docs/tune/autotune.md).\n"
             "\n"
             "  bitnet bench model.gguf\n"
             "  bitnet bench --synthetic 2b-4t --mode all --json-report new.json --plot new.html\n"
             "  bitnet bench --mode batch --batch-sizes 1 4 8\n"
             "  bitnet bench --synthetic 2b-4t --mode kernels --op gemm_t2\n"
             "  bitnet bench --synthetic 2b-4t --mode kv --text story.txt\n"
             "  bitnet bench --autotune model.gguf --budget 300\n"
             "  bitnet bench diff old.json new.json --fail-over 3%\n"
             "  bitnet bench diff --run old/bitnet new/bitnet -- --mode stream --repeat 3\n",
    .first = "mode prompt-tokens max-new-tokens batch-sizes repeat model threads synthetic "
             "json-report plot",
    .first_word = "diff",
    .parts = parts,
    .config_bytes = sizeof(struct bench_config),
    .max_words = 64,
    .run = run,
};
