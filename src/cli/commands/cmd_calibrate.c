/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_calibrate.c: `bitnet calibrate`: a plan of what a model can save, made from a text. The library
 * measures and chooses; here are the options, the text, and the folder that plan and report go to.
 */
#include "app/calibration.h"
#include "app/machine_report.h"
#include "app/report.h"
#include "base/clock.h"
#include "base/os/file.h"
#include "base/os/mem.h"
#include "cli/calibrate/calibrate.h"
#include "cli/core/command.h"
#include "cli/options/model_opts.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum {
    PATH_BYTES = DATA_PATH_BYTES,
    SAMPLES_MIN = 8,
    SAMPLE_DEFAULT = 128,
    CURVE_MAX = 32,
    SPREAD = 4 /* of a long file so many times the samples' tokens are looked at */
};

struct calibrate_config {
    struct model_opts model;
    const char *dataset, *data, *output, *savings, *curve;
    uint32_t samples, sample_tokens, context;
    uint64_t memory;
    float kl_budget, entropy;
    bool budget_given, entropy_given, bake, force, json;
};

#define AT(field) offsetof(struct calibrate_config, field)
static const struct opt text_table[] = {
    {.kind = OPT_STR,
     .name = "dataset",
     .metavar = "T",
     .help =
         "the text: a file, plain or JSONL with \"text\" in each line; - is standard input; or a "
         "name such as c4, for c4.jsonl or c4.txt in the data folder",
     .offset = AT(dataset),
     .aliases = "calibration-data text"},
    DATA_FOLDER_OPT(AT(data), "data sets"),
    {.kind = OPT_U32,
     .name = "calibration-samples",
     .metavar = "N",
     .help = "samples of the text; every second one is held out to judge the plan",
     .offset = AT(samples),
     .initial = "512",
     .aliases = "samples",
     .min = SAMPLES_MIN,
     .max = 1 << 20},
    {.kind = OPT_U32,
     .name = "sample-tokens",
     .metavar = "N",
     .help = "tokens of a sample; 0 is 128, or the model's context if that is smaller",
     .offset = AT(sample_tokens),
     .initial = "0",
     .min = 0,
     .max = 8192},
    {.kind = OPT_END},
};
static const struct opt plan_table[] = {
    {.kind = OPT_F32,
     .name = "kl-budget",
     .metavar = "K",
     .help = "mean KL divergence from the untouched model that the plan may cause, in nats",
     .offset = AT(kl_budget),
     .shown = "",
     .min = 0,
     .max = 100,
     .given = AT(budget_given)},
    {.kind = OPT_F32,
     .name = "entropy-threshold",
     .metavar = "BITS",
     .help = "instead of a budget: save where the codes of an input have less entropy than this",
     .offset = AT(entropy),
     .shown = "",
     .min = 0,
     .max = 8,
     .given = AT(entropy_given)},
    {.kind = OPT_STR,
     .name = "savings",
     .metavar = "LIST",
     .help = "what may be saved: some of codes,gates,keys,values,state,activations,head",
     .offset = AT(savings),
     .initial = "all"},
    {.kind = OPT_STR,
     .name = "curve",
     .metavar = "LIST",
     .help = "also judge the plans of these budgets, and the same steps in all layers: "
             "0.001,0.003,0.01",
     .offset = AT(curve)},
    {.kind = OPT_U32,
     .letter = 'c',
     .name = "ctx",
     .metavar = "N",
     .help = "context for which bytes are reckoned; 0 is half the model's, at most 2048",
     .offset = AT(context),
     .initial = "0",
     .aliases = "ctx-size",
     .min = 0,
     .max = 1 << 24},
    {.kind = OPT_SIZE,
     .name = "memory",
     .metavar = "BYTES",
     .help = "memory for logits of the untouched model; auto is 256M",
     .offset = AT(memory),
     .initial = "auto"},
    {.kind = OPT_END},
};
static const struct opt output_table[] = {
    {.kind = OPT_STR,
     .letter = 'o',
     .name = "output-dir",
     .metavar = "DIR",
     .help = "folder for plan.json, report.json and report.html; made if it is not there",
     .offset = AT(output)},
    {.kind = OPT_FLAG,
     .name = "bake",
     .help = "also write model.gguf there, with the plan in its metadata",
     .offset = AT(bake)},
    {.kind = OPT_FLAG, .name = "force", .help = "replace files that exist", .offset = AT(force)},
    {.kind = OPT_FLAG, .name = "json", .help = "print the report as JSON", .offset = AT(json)},
    {.kind = OPT_END},
};
static const struct opt_part parts[] = {
    {"Text", text_table, 0},
    {"Plan", plan_table, 0},
    {"Output", output_table, 0},
    {"Model", model_opts_table, AT(model)},
    {NULL, NULL, 0},
};
#undef AT

/* ------------------------------------------------------------------ the text */

/* The file that is meant: as typed, or by name in the data folder. */
static int find_text(char out[PATH_BYTES], const struct calibrate_config *c)
{
    static const char *const endings[] = {".jsonl", ".txt"};
    char folder[PATH_BYTES];
    if (strcmp(c->dataset, "-") == 0 || bn_exists(c->dataset)) {
        snprintf(out, PATH_BYTES, "%s", c->dataset);
        return EXIT_DONE;
    }
    bool name = !strpbrk(c->dataset, "/.");
    if (!name) return term_fail_text("there is no file '%s'", c->dataset);
    if (!data_folder(folder, c->data))
        return term_usage("calibrate", "no folder for data: give --data DIR");
    for (size_t i = 0; i < BN_ARRAY_LEN(endings); i++) {
        int n = snprintf(out, PATH_BYTES, "%s/%s%s", folder, c->dataset, endings[i]);
        if (n > 0 && n < PATH_BYTES && bn_exists(out)) return EXIT_DONE;
    }
    return term_fail_text("there is no data set '%s': neither %s.jsonl nor %s.txt is in '%s'. "
                          "Nothing is downloaded; put a file of that name there, name its folder "
                          "with --data, or give the file itself",
                          c->dataset, c->dataset, c->dataset, folder);
}

/* Samples at equal distances, one after the other. */
static bitnet_status take_samples(int32_t **out, size_t *n_out, const struct calibration *text,
                                  size_t wanted, size_t sample, bitnet_error *err)
{
    size_t n = text->n / sample;
    if (n > wanted) n = wanted;
    if (n < SAMPLES_MIN)
        return bn_fail(err, BITNET_E_ARG,
                       "the text has %zu tokens, which is %zu samples of %zu, and at least %d are "
                       "needed",
                       text->n, text->n / sample, sample, SAMPLES_MIN);
    *out = bn_calloc(n * sample, sizeof **out);
    if (!*out) return bn_fail_nomem(err, n * sample * sizeof **out, "samples");
    for (size_t i = 0; i < n; i++)
        memcpy(*out + i * sample, text->ids + text->n / n * i, sample * sizeof **out);
    *n_out = n * sample;
    if (n < wanted) {
        char note[128];
        snprintf(note, sizeof note, "the text has %zu samples of %zu tokens, not %zu", n, sample,
                 wanted);
        term_note(note);
    }
    return BITNET_OK;
}

/* ------------------------------------------------------------------ files */

enum { PLAN, REPORT, PAGE, N_FILES };
static const char *const file_names[N_FILES] = {"plan.json", "report.json", "report.html"};
static const char model_name[] = "model.gguf";

struct files {
    struct bn_out out[N_FILES];
    char model[PATH_BYTES];
    bool folder_made; /* so it goes again if nothing is written */
};

/* Before the work, so that a bad folder costs nothing. */
static int open_files(struct files *f, const struct calibrate_config *c)
{
    bitnet_error err = {0};
    char path[PATH_BYTES];
    if (!bn_is_folder(c->output)) {
        if (!bn_folder_make(c->output))
            return term_fail_text("the folder '%s' cannot be made", c->output);
        f->folder_made = true;
    }
    int n = snprintf(f->model, sizeof f->model, "%s/%s", c->output, model_name);
    if (n < 0 || n >= PATH_BYTES) return term_fail_text("'%s' is too long a name", c->output);
    if (c->bake && !c->force && bn_exists(f->model))
        return term_fail_text("'%s' exists already; --force replaces it", f->model);
    for (int i = 0; i < N_FILES; i++) {
        snprintf(path, sizeof path, "%.*s/%s", PATH_BYTES - 32, c->output, file_names[i]);
        if (!c->force && bn_exists(path))
            return term_fail_text("'%s' exists already; --force replaces it", path);
        if (bn_out_open(&f->out[i], path, true, &err) != BITNET_OK) return term_fail(&err);
    }
    return EXIT_DONE;
}

static bitnet_status write_text(struct bn_out *out, char *text, bitnet_error *err)
{
    bitnet_status s =
        text ? bn_out_end(out, text, strlen(text), err) : bn_fail_nomem(err, 0, "a report");
    free(text);
    return s;
}

static bitnet_status bake(const struct files *f, const struct calibrate_config *c,
                          const char *model, const char *plan, bitnet_error *err)
{
    struct term_progress bar = {0};
    bitnet_convert_options o = {.size = sizeof o};
    o.type = o.head_type = "keep";
    o.i2s_layout = c->model.i2s_layout;
    o.overwrite = c->force;
    o.plan = plan;
    o.progress = term_progress_show;
    o.progress_user = &bar;
    bitnet_status s = bitnet_convert(model_path_resolve(model), f->model, &o, err);
    term_progress_end(&bar);
    return s;
}

/* ------------------------------------------------------------------ progress */

/* A bar that also says how long it will take. */
struct waiting {
    struct term_progress bar;
    uint64_t start_ns;
    char note[48];
};

static int show(void *user, const char *what, uint64_t done, uint64_t total)
{
    struct waiting *w = user;
    double gone = (double)(bn_now_ns() - w->start_ns) / 1e9;
    double left = done ? gone * ((double)total / (double)done - 1) : 0;
    if (gone > 2) snprintf(w->note, sizeof w->note, "  about %.0f s left", left);
    w->bar.note = w->note;
    return term_progress_show(&w->bar, what, done, total);
}

/* ------------------------------------------------------------------ the work */

static bool parse_curve(double out[CURVE_MAX], size_t *n, const char *list)
{
    char *copy = list ? strdup(list) : NULL, *rest = copy, *item;
    bool ok = !list || copy;
    for (*n = 0; ok && (item = strsep(&rest, ","));) {
        ok = *n < CURVE_MAX && args_double(&out[*n], item) && out[*n] > 0;
        *n += ok;
    }
    free(copy);
    return ok;
}

static bitnet_status calibrate(bitnet_calibration **out, const struct calibrate_config *c,
                               const bitnet_model *m, const char *path, uint64_t *checksum,
                               bitnet_error *err)
{
    struct waiting w = {.start_ns = bn_now_ns()};
    struct calibration text;
    bitnet_calibrate_options o = {.size = sizeof o};
    double curve[CURVE_MAX];
    bitnet_model_info info = {.size = sizeof info};
    int32_t *samples = NULL;
    bitnet_model_get_info(m, &info);
    size_t sample = c->sample_tokens ? c->sample_tokens : SAMPLE_DEFAULT;
    if (!c->sample_tokens && info.shape.n_ctx_train < sample) sample = info.shape.n_ctx_train;
    o.sample_tokens = (uint32_t)sample;
    if (sample > info.shape.n_ctx_train)
        return bn_fail(err, BITNET_E_ARG, "samples of %zu tokens exceed the model's context, %u",
                       sample, info.shape.n_ctx_train);
    BN_TRY(calibration_read(&text, m, path, (uint64_t)c->samples * sample * SPREAD, err));
    *checksum = text.checksum;
    bitnet_status s = take_samples(&samples, &o.n_tokens, &text, c->samples, sample, err);
    calibration_free(&text);
    o.tokens = samples;
    o.kl_budget = (double)c->kl_budget;
    o.entropy_bits = (double)c->entropy;
    o.savings = strcmp(c->savings, "all") == 0 ? NULL : c->savings;
    o.memory_bytes = c->memory;
    o.threads = c->model.threads;
    o.context_tokens = c->context;
    o.curve = curve;
    o.progress = show;
    o.progress_user = &w;
    if (s == BITNET_OK && !parse_curve(curve, &o.n_curve, c->curve))
        s = bn_fail(err, BITNET_E_ARG, "--curve '%.60s' is no list of budgets above 0", c->curve);
    if (s == BITNET_OK) s = bitnet_calibrate(out, m, &o, err);
    term_progress_end(&w.bar);
    free(samples);
    return s;
}

/* What the library does not know: where it comes from. Into a report, or the notes of a plan. */
static void add_origin(struct bn_json *o, const char *path, uint64_t checksum)
{
    char date[32], sum[24];
    machine_date(date, sizeof date);
    snprintf(sum, sizeof sum, "%016llx", (unsigned long long)checksum);
    set_text(o, "date", date);
    set_text(o, "version", bitnet_version());
    set_text(o, "text", path);
    set_text(o, "text_checksum", sum);
}

static int finish(const struct calibrate_config *c, struct files *f, const char *model,
                  const struct bn_json *plan, struct bn_json *report)
{
    bitnet_error err = {0};
    char *text = bn_json_dump(plan, BN_JSON_INDENT(1));
    bitnet_status s = text ? BITNET_OK : bn_fail_nomem(&err, 0, "a plan");
    if (s == BITNET_OK && c->bake) s = bake(f, c, model, text, &err);
    if (s == BITNET_OK)
        s = write_text(&f->out[REPORT], bn_json_dump(report, BN_JSON_INDENT(1)), &err);
    if (s == BITNET_OK) s = write_text(&f->out[PAGE], calibrate_page(report), &err);
    if (s == BITNET_OK) s = bn_out_end(&f->out[PLAN], text, strlen(text), &err);
    free(text);
    if (s != BITNET_OK) return term_fail(&err);
    if (c->json) return term_print_json(bn_json_ref(report));
    calibrate_print(report);
    printf("\n%s/plan.json, report.json and report.html are written%s\n", c->output,
           c->bake ? ", and model.gguf with the plan in it" : "");
    return term_finish(EXIT_DONE);
}

static int work(const struct calibrate_config *c, struct files *f, const bitnet_model *m,
                const char *model, const char *path)
{
    bitnet_error err = {0};
    bitnet_calibration *done = NULL;
    struct bn_json *report = NULL, *plan = NULL;
    uint64_t checksum = 0;
    int code;
    bitnet_status s = calibrate(&done, c, m, path, &checksum, &err);
    const char *text = bitnet_calibration_report(done), *made = bitnet_calibration_plan(done);
    if (s == BITNET_OK) s = bn_json_parse(&report, text, strlen(text), 0, "the report", &err);
    if (s == BITNET_OK) s = bn_json_parse(&plan, made, strlen(made), 0, "the plan", &err);
    if (s == BITNET_OK) {
        bitnet_model_info info = {.size = sizeof info};
        bitnet_model_get_info(m, &info);
        bn_json_set(report, "model", report_model(&info));
        add_origin(report, path, checksum);
        add_origin(bn_json_get(plan, "notes"), path, checksum);
        code = finish(c, f, model, plan, report);
    } else code = term_fail(&err);
    bn_json_free(report);
    bn_json_free(plan);
    bitnet_calibration_close(done);
    return code;
}

static int run(void *config, const struct arg_words *words)
{
    struct calibrate_config *c = config;
    const char *model;
    char path[PATH_BYTES];
    struct files f = {.out = {{.fd = -1}, {.fd = -1}, {.fd = -1}}};
    bitnet_model *m = NULL;
    int code = model_word(&model, c->model.model, c->model.model_typed, words, "calibrate");
    if (code != EXIT_DONE) return code;
    if (!c->dataset) return term_usage("calibrate", "--dataset T is missing");
    if (!c->output) return term_usage("calibrate", "--output-dir DIR is missing");
    if (c->budget_given == c->entropy_given)
        return term_usage("calibrate", c->budget_given
                                           ? "--kl-budget and --entropy-threshold exclude each "
                                             "other"
                                           : "--kl-budget K or --entropy-threshold BITS is "
                                             "missing");
    if (strcmp(c->model.plan, "auto") != 0 && strcmp(c->model.plan, "off") != 0)
        return term_usage("calibrate", "--plan: a plan is what this command makes, from the model "
                                       "without one");
    code = model_find(&model, &c->model.from, "calibrate");
    if (code != EXIT_DONE) return code;
    c->model.plan = "off"; /* what a model's file says is to be found anew */
    code = find_text(path, c);
    if (code == EXIT_DONE) code = open_files(&f, c);
    if (code == EXIT_DONE) code = model_open(&m, model, &c->model, "int8", "dense", "calibrate");
    if (code == EXIT_DONE) code = work(c, &f, m, model, path);
    bitnet_model_close(m);
    for (int i = 0; i < N_FILES; i++) bn_out_close(&f.out[i]);
    if (code != EXIT_DONE && f.folder_made) remove(c->output); /* if it is empty */
    return code;
}

const struct command cmd_calibrate = {
    .name = "calibrate",
    .usage = "[MODEL] --dataset T --kl-budget K --output-dir DIR "
             "[options]",
    .about =
        "\n"
        "Measures, layer by layer, what a model's activations are like and what each saving would\n"
        "harm: small codes and gates counted as zero, narrower keys, values, states and\n"
        "activations, an int8 head. Then chooses the savings that buy most within a budget of\n"
        "harm, and judges them on text that was held out. --plan runs a model by the plan.\n"
        "\n"
        "  bitnet calibrate model.gguf --dataset c4 --kl-budget 0.01 --output-dir plan\n"
        "  bitnet run model.gguf --plan plan/plan.json -p \"Once upon a time\"\n",
    .first = "dataset calibration-samples kl-budget entropy-threshold savings output-dir bake json "
             "model threads",
    .parts = parts,
    .config_bytes = sizeof(struct calibrate_config),
    .max_words = 1,
    .run = run,
};
