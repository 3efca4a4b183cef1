/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_prune.c: `bitnet prune`: finds the layers and feed-forward channels that a text can best do
 * without, and writes the model without them. Search and writing are the library's; here are the
 * options, the order of things, and the report.
 */
#include "base/clock.h"
#include "base/os/file.h"
#include "base/os/mem.h"
#include "cli/commands/output_model.h"
#include "cli/core/command.h"
#include "cli/options/model_opts.h"
#include "cli/prune/prune.h"
#include <math.h>
#include <stdlib.h>

enum { WINDOW = 256, PERIOD = 4, NOTE_BYTES = 48, RECORD_BYTES = 512, PATH_BYTES = 4096 };

struct prune_config {
    struct model_opts model;
    const char *text, *output, *criterion, *json_report, *page, *name, *ffn_width;
    uint32_t target, drop, ctx_tokens;
    uint64_t max_tokens;
    struct opt_u32s layers, protect;
    float max_ppl_increase;
    bool target_given, drop_given, periods, ffn_dead, portable, dry_run, force, json, no_speed;
};

#define AT(field) offsetof(struct prune_config, field)
static const struct opt table[] = {
    {.kind = OPT_STR,
     .name = "calibration-data",
     .metavar = "FILE",
     .help = "text to measure on: plain, or JSONL with \"text\" in each line; - is standard input",
     .offset = AT(text),
     .aliases = "text"},
    {.kind = OPT_U32,
     .name = "target-layers",
     .metavar = "N",
     .help = "layers that are to be left",
     .offset = AT(target),
     .shown = "",
     .min = 1,
     .max = 1023,
     .given = AT(target_given)},
    {.kind = OPT_U32,
     .name = "drop",
     .metavar = "K",
     .help = "layers that are to go",
     .offset = AT(drop),
     .shown = "",
     .min = 1,
     .max = 1023,
     .given = AT(drop_given)},
    {.kind = OPT_U32S,
     .name = "layers",
     .metavar = "LIST",
     .help = "remove exactly these, in this order; the first is 0",
     .offset = AT(layers),
     .min = 0,
     .max = 1023,
     .own = true},
    {.kind = OPT_F32,
     .name = "max-ppl-increase",
     .metavar = "PCT",
     .help = "stop before perplexity grows by more than PCT percent; without a number of layers, "
             "remove as many as that allows; 0: no limit",
     .offset = AT(max_ppl_increase),
     .initial = "0",
     .min = 0,
     .max = 1e9},
    {.kind = OPT_CHOICE,
     .name = "criterion",
     .help = "what goes next. ppl, kl: the layer without which the text is likeliest, or the "
             "predictions change least, measured again after each removal; bi: block influence, "
             "1 - cosine of a layer's input and output; variance: of what a layer adds",
     .offset = AT(criterion),
     .initial = "ppl",
     .choices = "ppl|kl|bi|variance"},
    {.kind = OPT_U32S,
     .name = "protect",
     .metavar = "LIST",
     .help = "layers that stay",
     .offset = AT(protect),
     .min = 0,
     .max = 1023},
    {.kind = OPT_FLAG,
     .name = "periods",
     .help = "hybrids: remove whole periods of 4 layers, so that engines which know layer kinds "
             "by a rule can read the file",
     .offset = AT(periods)},
    {.kind = OPT_STR,
     .name = "ffn-width",
     .metavar = "WIDTH",
     .help = "also narrow feed-forward layers to WIDTH channels, or to a share such as 75%; auto: "
             "as far as --max-ppl-increase allows. Those go that are least active on the text; "
             "layers go first",
     .offset = AT(ffn_width)},
    {.kind = OPT_FLAG,
     .name = "ffn-dead",
     .help = "also remove feed-forward channels that are always zero, as many as go in every "
             "layer: the logits stay the same, bit for bit; alone, it needs no text",
     .offset = AT(ffn_dead)},
    {.kind = OPT_FLAG,
     .name = "portable",
     .help = "--ffn-width, --ffn-dead: scale the norms to the new width, for other engines; equal "
             "up to rounding only",
     .offset = AT(portable)},
    {.kind = OPT_U32,
     .letter = 'c',
     .name = "ctx",
     .metavar = "N",
     .help = "tokens per window of the text; 0 is 256, or the model's context if that is smaller",
     .offset = AT(ctx_tokens),
     .initial = "0",
     .aliases = "ctx-size",
     .min = 0,
     .max = 8192},
    {.kind = OPT_U64,
     .name = "limit",
     .metavar = "N",
     .help = "use the first N tokens of the text; 0 takes all",
     .offset = AT(max_tokens),
     .initial = "16384",
     .min = 0,
     .max = OPT_MAX_INTEGER},
    {.kind = OPT_END},
};
static const struct opt output_table[] = {
    {.kind = OPT_STR,
     .letter = 'o',
     .name = "output",
     .metavar = "OUT",
     .help = "the file to write: GGUF; or, if it ends in .safetensors, a checkpoint, with "
             "config.json and tokenizer beside it",
     .offset = AT(output),
     .own = true},
    {.kind = OPT_FLAG,
     .name = "dry-run",
     .help = "search and report, write no model",
     .offset = AT(dry_run)},
    {.kind = OPT_STR,
     .name = "name",
     .metavar = "TEXT",
     .help = "the model's name in the new file",
     .offset = AT(name),
     .shown = "as in the input"},
    {.kind = OPT_FLAG, .name = "force", .help = "replace OUT if it exists", .offset = AT(force)},
    {.kind = OPT_FLAG,
     .name = "no-speed",
     .help = "do not time decoding before and after",
     .offset = AT(no_speed)},
    {.kind = OPT_FLAG, .name = "json", .help = "print the report as JSON", .offset = AT(json)},
    {.kind = OPT_STR,
     .name = "json-report",
     .metavar = "FILE",
     .help = "also write the report there",
     .offset = AT(json_report)},
    {.kind = OPT_STR,
     .name = "page",
     .metavar = "FILE",
     .help = "also write a page with table and curves",
     .offset = AT(page)},
    {.kind = OPT_END},
};
static const struct opt_part parts[] = {
    {"Pruning", table, 0},
    {"Output", output_table, 0},
    {"Model", model_opts_table, AT(model)},
    {NULL, NULL, 0},
};
#undef AT

/* Everything that is open while the command works. */
struct job {
    struct prune_config *c;
    const char *path; /* of the model, for the library */
    bitnet_model *model;
    bitnet_model_info info;
    bitnet_engine *engine;
    struct calibration text;
    uint32_t window, drop, unit, width;
    bitnet_prune_step *steps; /* [drop / unit + 1 + BITNET_PRUNE_WIDTHS] */
    double *scores;           /* [n_layer] */
    uint32_t *channels;       /* [n_layer][n_ff] */
    bitnet_prune_result result;
    double tok_s, tok_s_after;
    uint64_t start_ns;
    char note[NOTE_BYTES];
    struct term_progress bar;
    struct bn_out json, page;
};

/* ------------------------------------------------------------------ what is wanted */

/* How many layers are to go, once the model is known. */
static int choose_drop(struct job *j)
{
    const struct prune_config *c = j->c;
    uint32_t n = j->info.shape.n_layer;
    j->unit = c->periods ? PERIOD : 1;
    if (c->target_given && c->target >= n)
        return term_fail_text("%u layers are to be left, and the model has %u", c->target, n);
    if (c->drop_given && c->drop >= n)
        return term_fail_text("%u layers are to go, and the model has %u; one must stay", c->drop,
                              n);
    if (c->target_given) j->drop = n - c->target;
    else if (c->drop_given) j->drop = c->drop;
    else if (c->layers.n) j->drop = (uint32_t)c->layers.n * j->unit;
    else if (c->ffn_width) return EXIT_DONE; /* channels alone */
    else j->drop = n > j->unit ? n - j->unit : 0;
    if (j->drop == 0) return term_fail_text("the model has %u layers: none can go", n);
    if (j->drop >= n)
        return term_fail_text("%u layers are to go, and the model has %u; one must stay", j->drop,
                              n);
    return EXIT_DONE;
}

/* How many channels are to be left: a number, a share, or as few as possible. */
static int choose_width(struct job *j)
{
    const char *text = j->c->ffn_width;
    uint32_t n_ff = j->info.shape.n_ff;
    char *end;
    if (!text) return EXIT_DONE;
    j->width = 1;
    if (strcmp(text, "auto") == 0) return EXIT_DONE;
    double v = strtod(text, &end);
    bool share = end != text && strcmp(end, "%") == 0;
    if (!share && (end == text || *end || v != floor(v)))
        return term_fail_text("--ffn-width '%.32s' is no number of channels, share such as 75%%, "
                              "or auto",
                              text);
    if (share) v = floor(v / 100 * n_ff);
    if (!(v >= 2 && v < n_ff))
        return term_fail_text("--ffn-width %.32s: feed-forward layers have %u channels, and fewer "
                              "are to be left, at least 2",
                              text, n_ff);
    j->width = (uint32_t)v;
    return EXIT_DONE;
}

/* Nothing is to go that a text could tell. */
static bool only_dead(const struct prune_config *c)
{
    return c->ffn_dead && !c->target_given && !c->drop_given && !c->layers.n &&
           !(c->max_ppl_increase > 0);
}

static int check_options(const struct prune_config *c)
{
    int ways = c->target_given + c->drop_given + (c->layers.n > 0);
    if (c->portable && !c->ffn_dead && !c->ffn_width)
        return term_usage("prune", "--portable goes with --ffn-width and --ffn-dead only");
    if (c->ffn_dead && c->ffn_width)
        return term_usage("prune", "--ffn-width removes dead channels first: leave --ffn-dead out");
    if (c->ffn_width && strcmp(c->ffn_width, "auto") == 0 && !(c->max_ppl_increase > 0))
        return term_usage("prune", "--ffn-width auto: how far? --max-ppl-increase PCT");
    if (!c->text && !only_dead(c)) return term_usage("prune", "--calibration-data FILE is missing");
    if (strcmp(c->model.plan, "auto") != 0 && strcmp(c->model.plan, "off") != 0)
        return term_usage("prune", "a plan is for a model as it is: prune first, then calibrate");
    if (ways > 1)
        return term_usage("prune", "--target-layers, --drop and --layers say the same thing: give "
                                   "one of them");
    if (!ways && !(c->max_ppl_increase > 0) && !c->ffn_dead && !c->ffn_width)
        return term_usage("prune", "how many layers? --target-layers N, --drop K, --layers LIST or "
                                   "--max-ppl-increase PCT; or how wide? --ffn-width WIDTH");
    if (c->dry_run && c->output)
        return term_usage("prune", "--dry-run writes no model, and --output names one");
    if (!c->dry_run && !c->output)
        return term_usage("prune", "--output OUT is missing; --dry-run writes none");
    char path[PATH_BYTES];
    if (c->output && !c->force && prune_in_the_way(path, sizeof path, c->output))
        return term_fail_text("'%s' exists already, and OUT needs one of its own: choose an empty "
                              "folder; --force replaces it",
                              path);
    return c->output ? output_model_check(c->output, c->force) : EXIT_DONE;
}

/* ------------------------------------------------------------------ the search */

/* The bar, and how long it will still take. */
static int show_progress(void *user, const char *what, uint64_t done, uint64_t total)
{
    struct job *j = user;
    double passed = (double)(bn_now_ns() - j->start_ns) / 1e9;
    double left = done ? passed * (double)(total - done) / (double)done : 0;
    if (passed < 2) j->note[0] = 0;
    else if (left < 100) snprintf(j->note, sizeof j->note, "  %.0f s left", left);
    else if (left < 6000) snprintf(j->note, sizeof j->note, "  %.0f min left", left / 60);
    else snprintf(j->note, sizeof j->note, "  %.1f h left", left / 3600);
    j->bar.note = j->note;
    return term_progress_show(&j->bar, what, done, total);
}

static bitnet_status open_engine(bitnet_engine **out, const struct job *j, const bitnet_model *m,
                                 bitnet_error *err)
{
    bitnet_engine_options o = {.size = sizeof o};
    o.threads = j->c->model.threads;
    o.pin = j->c->model.pin;
    o.ctx_tokens = j->window;
    o.max_batch_tokens = j->window;
    o.prefix_cache = "off";
    o.plan = "off"; /* the whole model is judged, and the output has no plan */
    return bitnet_engine_open(out, m, &o, err);
}

static bitnet_prune_criterion criterion_of(const char *name)
{
    return strcmp(name, "kl") == 0         ? BITNET_PRUNE_KL
           : strcmp(name, "bi") == 0       ? BITNET_PRUNE_INFLUENCE
           : strcmp(name, "variance") == 0 ? BITNET_PRUNE_VARIANCE
                                           : BITNET_PRUNE_PERPLEXITY;
}

static bitnet_status search(struct job *j, bitnet_error *err)
{
    const struct prune_config *c = j->c;
    bitnet_prune_options o = {.size = sizeof o};
    o.criterion = criterion_of(c->criterion);
    o.drop = j->drop;
    o.unit = j->unit;
    o.ctx_tokens = j->window;
    o.layers = c->layers.items;
    o.n_layers = c->layers.n;
    o.protect = c->protect.items;
    o.n_protect = c->protect.n;
    o.max_ppl_increase = (double)c->max_ppl_increase;
    o.progress = show_progress;
    o.progress_user = j;
    o.ffn_width = j->width;
    size_t n_layer = j->info.shape.n_layer, n_channels = n_layer * j->info.shape.n_ff;
    j->steps = bn_calloc(j->drop / j->unit + 1 + BITNET_PRUNE_WIDTHS, sizeof *j->steps);
    j->scores = bn_calloc(n_layer, sizeof *j->scores);
    j->channels = bn_calloc(j->width ? n_channels : 1, sizeof *j->channels);
    if (!j->steps || !j->scores || !j->channels)
        return bn_fail_nomem(err, n_channels * sizeof *j->channels, "steps");
    j->result = (bitnet_prune_result){.size = sizeof j->result,
                                      .steps = j->steps,
                                      .scores = c->layers.n || !j->drop ? NULL : j->scores,
                                      .ffn_channels = j->channels};
    j->start_ns = bn_now_ns();
    bitnet_status s = bitnet_prune_search(j->engine, j->text.ids, j->text.n, &o, &j->result, err);
    term_progress_end(&j->bar);
    return s;
}

/* Decoding with this model, as far as it is wanted. */
static bitnet_status time_model(double *tok_s, const struct job *j, bitnet_engine *e,
                                bitnet_error *err)
{
    if (j->c->no_speed) return BITNET_OK;
    return prune_speed(tok_s, e, j->text.ids, bn_min_size(j->text.n, j->window),
                       j->info.shape.n_vocab, err);
}

/* ------------------------------------------------------------------ the file */

static const char *criterion_name(const struct job *j)
{
    return j->c->layers.n ? "list" : j->drop ? j->c->criterion : "channels";
}

static bitnet_status write_model(struct job *j, bitnet_error *err)
{
    const struct prune_config *c = j->c;
    const bitnet_prune_result *r = &j->result;
    uint32_t *gone = bn_calloc(j->drop + 1, sizeof *gone);
    char record[RECORD_BYTES];
    size_t n = 0;
    if (!gone) return bn_fail_nomem(err, j->drop * sizeof *gone, "a list of layers");
    for (size_t i = 1; i < r->n_steps; i++)
        for (uint32_t k = 0; k < r->steps[i].n_layers; k++) gone[n++] = r->steps[i].first_layer + k;
    snprintf(record, sizeof record, "%zu tokens, windows of %u, checksum %016llx", j->text.n,
             j->window, (unsigned long long)j->text.checksum);
    bitnet_prune_output o = {.size = sizeof o};
    o.layers = gone;
    o.n_layers = n;
    o.criterion = criterion_name(j);
    o.calibration = record;
    if (r->ffn_width < j->info.shape.n_ff) {
        o.ffn_channels = j->channels;
        o.ffn_width = r->ffn_width;
    }
    o.ppl_before = r->steps[0].perplexity;
    o.ppl_after = r->steps[r->n_steps - 1].perplexity;
    o.kl = r->steps[r->n_steps - 1].kl;
    o.name = c->name;
    o.overwrite = c->force;
    o.ffn_dead = c->ffn_dead;
    o.portable = c->portable;
    o.progress = term_progress_show;
    o.progress_user = &j->bar;
    bitnet_status s = bitnet_prune(j->path, c->output, &o, err);
    term_progress_end(&j->bar);
    free(gone);
    return s;
}

/* What was written is opened as anyone would, and timed. */
static bitnet_status time_output(struct job *j, bitnet_error *err)
{
    bitnet_model_options o = {.size = sizeof o};
    bitnet_model *m = NULL;
    bitnet_engine *e = NULL;
    model_options(&o, &j->c->model, "exact", "dense");
    o.cache = "off";
    bitnet_status s = bitnet_model_open(&m, j->c->output, &o, err);
    if (s == BITNET_OK) s = open_engine(&e, j, m, err);
    if (s == BITNET_OK) s = time_model(&j->tok_s_after, j, e, err);
    bitnet_engine_close(e);
    bitnet_model_close(m);
    return s;
}

/* ------------------------------------------------------------------ the report */

static struct bn_json *make_report(struct job *j, bitnet_error *err)
{
    struct prune_facts f = {.model = &j->info,
                            .text_path = j->c->text,
                            .text = &j->text,
                            .criterion = criterion_name(j),
                            .window = j->window,
                            .unit = j->unit,
                            .result = &j->result,
                            .tok_s = j->tok_s,
                            .tok_s_after = j->tok_s_after,
                            .output = j->c->output};
    bitnet_file *out = NULL;
    if (prune_sum_tensors(&f.bytes, j->path, err) != BITNET_OK) return NULL;
    if (f.output) {
        if (bitnet_file_open(&out, f.output, err) != BITNET_OK) return NULL;
        f.output_bytes = bitnet_file_bytes(out);
        f.readers = prune_readers(out);
    }
    struct bn_json *report = prune_report(&f);
    bitnet_file_close(out);
    if (!report) bn_fail_nomem(err, 0, "a report");
    return report;
}

static bitnet_status write_text(struct bn_out *out, char *text, bitnet_error *err)
{
    bitnet_status s =
        text ? bn_out_end(out, text, strlen(text), err) : bn_fail_nomem(err, 0, "a report");
    free(text);
    return s;
}

static int finish(struct job *j, bitnet_error *err)
{
    struct bn_json *report = make_report(j, err);
    if (!report) return term_fail(err);
    bitnet_status s = BITNET_OK;
    if (j->c->json_report) s = write_text(&j->json, bn_json_dump(report, BN_JSON_INDENT(1)), err);
    if (s == BITNET_OK && j->c->page) s = write_text(&j->page, prune_page(report), err);
    if (s != BITNET_OK) {
        bn_json_free(report);
        return term_fail(err);
    }
    if (j->c->json) return term_print_json(report);
    prune_print_table(report);
    bn_json_free(report);
    return EXIT_DONE;
}

/* ------------------------------------------------------------------ the command */

static bitnet_status open_reports(struct job *j, bitnet_error *err)
{
    if (j->c->json_report) BN_TRY(bn_out_open(&j->json, j->c->json_report, true, err));
    return j->c->page ? bn_out_open(&j->page, j->c->page, true, err) : BITNET_OK;
}

/* From the open model to the written one. */
static bitnet_status work(struct job *j, bitnet_error *err)
{
    const struct prune_config *c = j->c;
    BN_TRY(calibration_read(&j->text, j->model, c->text, c->max_tokens, err));
    BN_TRY(open_engine(&j->engine, j, j->model, err));
    BN_TRY(time_model(&j->tok_s, j, j->engine, err));
    BN_TRY(search(j, err));
    if (j->result.n_steps < 2)
        return bn_fail(err, BITNET_E_ARG,
                       "%s can go: the first would raise perplexity from %.4f to %.4f, by "
                       "more than %g %%",
                       j->drop ? "no layer" : "no channel", j->steps[0].perplexity,
                       j->result.over_budget, (double)c->max_ppl_increase);
    if (c->dry_run) return BITNET_OK;
    BN_TRY(write_model(j, err));
    return c->no_speed ? BITNET_OK : time_output(j, err);
}

/* Dead channels alone: nothing to measure, since nothing changes. */
static int run_dead(const struct prune_config *c, const char *typed)
{
    struct term_progress bar = {0};
    bitnet_error err = {0};
    bitnet_prune_output o = {.size = sizeof o};
    uint64_t start = bn_now_ns();
    if (c->dry_run) return term_usage("prune", "--ffn-dead alone has nothing to report");
    o.criterion = "dead channels";
    o.name = c->name;
    o.overwrite = c->force;
    o.ffn_dead = 1;
    o.portable = c->portable;
    o.progress = term_progress_show;
    o.progress_user = &bar;
    bitnet_status s = bitnet_prune(model_path_resolve(typed), c->output, &o, &err);
    term_progress_end(&bar);
    if (s != BITNET_OK) return term_fail(&err);
    return output_model_report(c->output, bn_now_ns() - start, c->json);
}

static int run_job(struct job *j, const char *typed)
{
    bitnet_error err = {0};
    if (open_reports(j, &err) != BITNET_OK) return term_fail(&err);
    int code = model_open(&j->model, typed, &j->c->model, "exact", "dense", "prune");
    if (code != EXIT_DONE) return code;
    j->path = model_path_resolve(typed);
    j->info.size = sizeof j->info;
    bitnet_model_get_info(j->model, &j->info);
    j->window = j->c->ctx_tokens ? j->c->ctx_tokens : WINDOW;
    if (!j->c->ctx_tokens && j->info.shape.n_ctx_train < j->window)
        j->window = j->info.shape.n_ctx_train;
    code = choose_drop(j);
    if (code == EXIT_DONE) code = choose_width(j);
    if (code != EXIT_DONE) return code;
    return work(j, &err) == BITNET_OK ? finish(j, &err) : term_fail(&err);
}

static int run(void *config, const struct arg_words *words)
{
    struct prune_config *c = config;
    const char *typed;
    int code = model_word(&typed, c->model.model, c->model.model_typed, words, "prune");
    if (code == EXIT_DONE) code = model_find(&typed, &c->model.from, "prune");
    if (code == EXIT_DONE) code = check_options(c);
    if (code != EXIT_DONE) return code;
    if (only_dead(c)) return run_dead(c, typed);
    struct job j = {.c = c, .json = {.fd = -1}, .page = {.fd = -1}};
    code = run_job(&j, typed);
    bn_out_close(&j.json);
    bn_out_close(&j.page);
    bitnet_engine_close(j.engine);
    calibration_free(&j.text);
    free(j.steps);
    free(j.scores);
    free(j.channels);
    bitnet_model_close(j.model);
    return code;
}

const struct command cmd_prune = {
    .name = "prune",
    .usage = "[MODEL] --calibration-data FILE --target-layers N --output OUT [options]",
    .about = "\n"
             "Removes layer after layer, each time the one whose loss harms least, measured on a "
             "text of\n"
             "yours; prints perplexity, KL divergence from the whole model, bytes and speed for "
             "every step.\n"
             "Weights are copied as they are. OUT appears whole or not at all.\n"
             "\n"
             "  bitnet prune model.gguf --calibration-data wiki.txt --target-layers 24 --output "
             "24.gguf\n"
             "  bitnet prune model.gguf --calibration-data wiki.jsonl --max-ppl-increase 10 "
             "--output small.gguf\n"
             "  bitnet prune model.gguf --calibration-data wiki.txt --ffn-width 75% --output "
             "narrow.gguf\n"
             "  bitnet prune model.gguf --calibration-data wiki.txt --drop 6 --dry-run --page "
             "harm.html\n",
    .first = "calibration-data target-layers drop layers max-ppl-increase criterion output dry-run "
             "model threads",
    .parts = parts,
    .config_bytes = sizeof(struct prune_config),
    .max_words = 1,
    .run = run,
};
