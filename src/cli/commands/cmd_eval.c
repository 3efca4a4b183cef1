/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_eval.c: `bitnet eval`: scores on tasks, the divergence between two models or settings, and the
 * comparison of two results.
 */
#include "app/calibration.h"
#include "app/machine_report.h"
#include "app/report.h"
#include "base/os/file.h"
#include "cli/core/command.h"
#include "cli/eval/eval.h"
#include "cli/eval/kl.h"
#include "cli/eval/read.h"
#include "cli/options/model_opts.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { TASKS_MAX = 64, WITH_MAX = 64, MAX_SEQS = 64, CTX_DEFAULT = 4096, KL_CTX = 512 };

struct eval_config {
    struct model_opts model;
    struct kv_opts kv;
    const char *tasks, *data, *head, *json_report, *page;
    struct opt_list files;
    const char *hellaswag, *winogrande, *multiple_choice;
    uint32_t limit, ctx_tokens, max_new_tokens;
    bool add_bos, items, json, list;
    /* kl */
    const char *text, *with, *base;
    /* what stands on the command line, of the options that only some of the three questions have */
    struct {
        bool tasks, file, hellaswag, winogrande, multiple_choice, limit, add_bos, max_new_tokens;
        bool text, with, base, items, json_report, page;
    } typed;
};

#define AT(field) offsetof(struct eval_config, field)
static const struct opt tasks_table[] = {
    {.kind = OPT_STR,
     .name = "tasks",
     .metavar = "LIST",
     .help = "tasks to run, separated by commas; 'all' runs those whose data is there",
     .offset = AT(tasks),
     .typed = AT(typed.tasks)},
    {.kind = OPT_FLAG,
     .name = "list",
     .help = "list the tasks and their data files",
     .offset = AT(list)},
    DATA_FOLDER_OPT(AT(data), "tasks' data files"),
    {.kind = OPT_LIST,
     .name = "file",
     .metavar = "FILE",
     .help = "also run this file of JSON lines (docs/use/eval.md); may be repeated",
     .offset = AT(files),
     .typed = AT(typed.file)},
    {.kind = OPT_STR,
     .name = "hellaswag",
     .metavar = "FILE",
     .help = "HellaSwag as text, as llama-perplexity reads it",
     .offset = AT(hellaswag),
     .typed = AT(typed.hellaswag)},
    {.kind = OPT_STR,
     .name = "winogrande",
     .metavar = "FILE",
     .help = "WinoGrande as CSV, as llama-perplexity reads it",
     .offset = AT(winogrande),
     .typed = AT(typed.winogrande)},
    {.kind = OPT_STR,
     .name = "multiple-choice",
     .metavar = "FILE",
     .help = "multiple choice as a binary file, as llama-perplexity reads it",
     .offset = AT(multiple_choice),
     .typed = AT(typed.multiple_choice)},
    {.kind = OPT_U32,
     .name = "limit",
     .metavar = "N",
     .help = "the first N items of each task only; 0 takes all",
     .offset = AT(limit),
     .initial = "0",
     .min = 0,
     .max = 1e7,
     .typed = AT(typed.limit)},
    {.kind = OPT_FLAG,
     .name = "add-bos",
     .help = "put the token that begins a text before every context",
     .offset = AT(add_bos),
     .typed = AT(typed.add_bos)},
    {.kind = OPT_U32,
     .letter = 'n',
     .name = "max-new-tokens",
     .metavar = "N",
     .help = "length limit of answers that are generated (gsm8k)",
     .offset = AT(max_new_tokens),
     .initial = "256",
     .aliases = "max-tokens",
     .min = 1,
     .max = 1 << 20,
     .typed = AT(typed.max_new_tokens)},
    {.kind = OPT_END},
};
static const struct opt kl_table[] = {
    {.kind = OPT_STR,
     .letter = 'f',
     .name = "text",
     .metavar = "FILE",
     .help = "kl: the text to compare on; - is standard input",
     .offset = AT(text),
     .typed = AT(typed.text)},
    {.kind = OPT_STR,
     .name = "with",
     .metavar = "OPTIONS",
     .help = "kl: options of the second model, in one argument: \"--kv-type int8 --head int8\"",
     .offset = AT(with),
     .typed = AT(typed.with)},
    {.kind = OPT_STR,
     .name = "base",
     .metavar = "FILE",
     .help = "kl: compare with what llama-perplexity --kl-divergence-base wrote",
     .offset = AT(base),
     .typed = AT(typed.base)},
    {.kind = OPT_END},
};
static const struct opt engine_table[] = {
    {.kind = OPT_U32,
     .letter = 'c',
     .name = "ctx",
     .metavar = "N",
     .help = "tokens of context; 0 takes the model's, at most 4096; kl: of a window, 0 takes 512",
     .offset = AT(ctx_tokens),
     .initial = "0",
     .aliases = "ctx-size",
     .min = 0,
     .max = 1 << 24},
    {.kind = OPT_END},
};
static const struct opt types_table[] = {
    MODEL_KV_OPTS(AT(kv), "f16"),
    MODEL_HEAD_OPT(AT(head)),
    {.kind = OPT_END},
};
static const struct opt output_table[] = {
    {.kind = OPT_FLAG, .name = "json", .help = "print the report as JSON", .offset = AT(json)},
    {.kind = OPT_FLAG,
     .name = "items",
     .help = "with every item's scores in the report, as 'eval diff' needs them",
     .offset = AT(items),
     .typed = AT(typed.items)},
    {.kind = OPT_STR,
     .name = "json-report",
     .metavar = "FILE",
     .help = "write the report to a file, that of tasks with all items",
     .offset = AT(json_report),
     .typed = AT(typed.json_report)},
    {.kind = OPT_STR,
     .name = "page",
     .metavar = "FILE",
     .help = "write a page with bars",
     .offset = AT(page),
     .typed = AT(typed.page)},
    {.kind = OPT_END},
};
static const struct opt_part parts[] = {
    {"Tasks", tasks_table, 0}, {"Divergence", kl_table, 0}, {"Engine", engine_table, 0},
    {NULL, types_table, 0},    {"Output", output_table, 0}, {"Model", model_opts_table, AT(model)},
    {NULL, NULL, 0},
};
/* In which the second model of a comparison may differ. */
static const struct opt_part with_parts[] = {
    {"Engine", types_table, 0},
    {"Model", model_opts_table, AT(model)},
    {NULL, NULL, 0},
};

/* ------------------------------------------------------------------ three questions */

enum { ASK_TASKS = 1, ASK_KL = 2, ASK_DIFF = 4 };

/* Options that this question would not look at. */
static int check_options(const struct eval_config *c, unsigned asked)
{
    static const struct {
        const char *name;
        size_t typed;
        unsigned of;
    } rules[] = {
        {"tasks", AT(typed.tasks), ASK_TASKS},
        {"file", AT(typed.file), ASK_TASKS},
        {"hellaswag", AT(typed.hellaswag), ASK_TASKS},
        {"winogrande", AT(typed.winogrande), ASK_TASKS},
        {"multiple-choice", AT(typed.multiple_choice), ASK_TASKS},
        {"limit", AT(typed.limit), ASK_TASKS},
        {"add-bos", AT(typed.add_bos), ASK_TASKS},
        {"max-new-tokens", AT(typed.max_new_tokens), ASK_TASKS},
        {"items", AT(typed.items), ASK_TASKS},
        {"page", AT(typed.page), ASK_TASKS},
        {"text", AT(typed.text), ASK_KL},
        {"with", AT(typed.with), ASK_KL},
        {"base", AT(typed.base), ASK_KL},
        {"json-report", AT(typed.json_report), ASK_TASKS | ASK_KL},
    };
    for (size_t i = 0; i < BN_ARRAY_LEN(rules); i++)
        if (*((const bool *)c + rules[i].typed) && !(rules[i].of & asked))
            return term_usage("eval", "%s --%s",
                              asked == ASK_KL     ? "'eval kl' has no"
                              : asked == ASK_DIFF ? "'eval diff' has no"
                                                  : "only 'eval kl' has",
                              rules[i].name);
    if (c->base && c->typed.text)
        return term_usage("eval", "the text is that of --base: --text is not read");
    return EXIT_DONE;
}
#undef AT

/* ------------------------------------------------------------------ engines */

static bitnet_status open_engine(bitnet_engine **out, const struct eval_config *c,
                                 const bitnet_model *m, uint32_t ctx, uint32_t max_seqs,
                                 bitnet_error *err)
{
    bitnet_engine_options o = {.size = sizeof o};
    o.threads = c->model.threads;
    o.pin = c->model.pin;
    o.ctx_tokens = ctx;
    o.max_seqs = max_seqs;
    /* several texts of full length, and as many short ones as run beside them */
    o.kv_tokens = max_seqs > 1 ? 8 * ctx + max_seqs * 64 : 0;
    o.head = c->head;
    model_kv_types(&o, &c->kv);
    return bitnet_engine_open(out, m, &o, err);
}

static uint32_t context_of(const struct eval_config *c, const bitnet_model *m, uint32_t most)
{
    bitnet_model_info info = {.size = sizeof info};
    bitnet_model_get_info(m, &info);
    if (c->ctx_tokens) return c->ctx_tokens;
    return info.shape.n_ctx_train && info.shape.n_ctx_train < most ? info.shape.n_ctx_train : most;
}

/* ------------------------------------------------------------------ which tasks */

static int list_tasks(const struct eval_config *c)
{
    char folder[DATA_PATH_BYTES];
    bool known = data_folder(folder, c->data);
    printf("Data files are looked for in %s\n\n", known ? folder : "no folder: give --data DIR");
    for (const struct eval_task *t = eval_tasks; t->name; t++) {
        printf("%-16s %s\n", t->name, t->about);
        printf("%-16s %.*s%s  (%s)\n", "", (int)strcspn(t->files, "|"), t->files,
               known && eval_task_ready(t, folder) ? ", found" : "", t->origin);
    }
    return term_finish(EXIT_DONE);
}

/* One thing to run: a task of the list, or a file. */
struct job {
    const struct eval_task *task; /* NULL: a file */
    const char *path;
    bitnet_status (*read)(struct eval_set *s, const struct eval_source *from, bitnet_error *err);
    const char *name;
};

static int add_tasks(struct job *jobs, size_t *n, const char *folder, char *names)
{
    bool all = strcmp(names, "all") == 0;
    for (const struct eval_task *t = eval_tasks; all && t->name; t++)
        if (eval_task_ready(t, folder)) jobs[(*n)++] = (struct job){.task = t, .name = t->name};
    if (all && !*n) return term_fail_text("'%s' has no data file of any task; see --list", folder);
    for (char *rest = names, *name; !all && (name = strsep(&rest, ",")) && *n < TASKS_MAX;) {
        const struct eval_task *t = eval_task_find(name);
        if (!t) return term_usage("eval", "there is no task '%s'; --list shows them", name);
        jobs[(*n)++] = (struct job){.task = t, .name = t->name};
    }
    return EXIT_DONE;
}

static int find_jobs(struct job *jobs, size_t *n, const struct eval_config *c, const char *folder,
                     char *names)
{
    *n = 0;
    if (names) {
        int code = add_tasks(jobs, n, folder, names);
        if (code != EXIT_DONE) return code;
    }
    for (size_t i = 0; i < c->files.n && *n < TASKS_MAX; i++)
        jobs[(*n)++] = (struct job){.path = c->files.items[i], .name = c->files.items[i]};
    const struct job others[] = {
        {.path = c->hellaswag, .read = eval_read_hellaswag_text, .name = "hellaswag"},
        {.path = c->winogrande, .read = eval_read_winogrande_csv, .name = "winogrande"},
        {.path = c->multiple_choice, .read = eval_read_binary, .name = "multiple_choice"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others && *n < TASKS_MAX; i++)
        if (others[i].path) jobs[(*n)++] = others[i];
    if (*n) return EXIT_DONE;
    return term_usage("eval", "nothing to run: --tasks LIST or --file FILE is missing");
}

/* ------------------------------------------------------------------ running them */

static bitnet_status read_items(struct eval_run *r, const struct job *j,
                                const struct eval_config *c, const char *folder, bitnet_error *err)
{
    struct eval_source from = {.path = j->path, .limit = c->limit};
    r->name = j->name;
    if (j->task) {
        r->kind = j->task->kind;
        r->normed = j->task->normed;
        return eval_read_task(&r->set, j->task, folder, c->limit, err);
    }
    if (!j->read) return eval_read_file(&r->set, &r->kind, j->path, c->limit, err);
    r->kind = EVAL_CHOICE;
    r->normed = j->read == eval_read_hellaswag_text;
    return j->read(&r->set, &from, err);
}

static bitnet_status run_job(struct bn_json *tasks, const struct job *j,
                             const struct eval_config *c, const char *folder, bitnet_engine *e,
                             const bitnet_model *m, bitnet_error *err)
{
    struct eval_run r = {0};
    struct term_progress bar = {.note = j->name};
    struct eval_settings o = {.max_new_tokens = c->max_new_tokens,
                              .add_bos = c->add_bos,
                              .progress = term_progress_show,
                              .progress_user = &bar};
    bitnet_status status = read_items(&r, j, c, folder, err);
    if (status == BITNET_OK)
        status = r.kind == EVAL_WRITTEN ? eval_judge_written(&r, e, m, &o, err)
                                        : eval_judge(&r, e, m, &o, err);
    term_progress_end(&bar);
    if (status == BITNET_OK)
        bn_json_append(tasks, eval_task_json(&r, c->items || c->json_report != NULL));
    eval_run_free(&r);
    return status;
}

static struct bn_json *begin_report(const bitnet_model *m)
{
    char date[32];
    bitnet_model_info info = {.size = sizeof info};
    bitnet_model_get_info(m, &info);
    machine_date(date, sizeof date);
    struct bn_json *report = bn_json_object();
    set_text(report, "format", EVAL_FORMAT);
    set_text(report, "date", date);
    set_text(report, "version", bitnet_version());
    bn_json_set(report, "model", report_model(&info));
    return report;
}

/* Files that are wanted: opened before the work, so that a bad path costs nothing. */
struct outputs {
    struct bn_out report, page;
};

static bitnet_status open_outputs(struct outputs *out, const struct eval_config *c,
                                  bitnet_error *err)
{
    if (c->json_report) BN_TRY(bn_out_open(&out->report, c->json_report, true, err));
    return c->page ? bn_out_open(&out->page, c->page, true, err) : BITNET_OK;
}

static void close_outputs(struct outputs *out)
{
    bn_out_close(&out->report);
    bn_out_close(&out->page);
}

static bitnet_status write_text(struct bn_out *out, char *text, bitnet_error *err)
{
    bitnet_status status =
        text ? bn_out_end(out, text, strlen(text), err) : bn_fail_nomem(err, 0, "a report");
    free(text);
    return status;
}

static bitnet_status write_report(struct outputs *out, const struct bn_json *report,
                                  const struct eval_config *c, bitnet_error *err)
{
    if (!c->json_report) return BITNET_OK;
    return write_text(&out->report, bn_json_dump(report, BN_JSON_INDENT(1)), err);
}

static int finish_report(struct bn_json *report, struct outputs *out, const struct eval_config *c)
{
    bitnet_error err = {0};
    bitnet_status status = write_report(out, report, c, &err);
    if (status == BITNET_OK && c->page) status = write_text(&out->page, eval_page(report), &err);
    if (status != BITNET_OK) {
        bn_json_free(report);
        return term_fail(&err);
    }
    if (c->json) return term_print_json(report);
    eval_print_table(report);
    bn_json_free(report);
    return term_finish(EXIT_DONE);
}

static int run_tasks(struct eval_config *c, const char *model)
{
    char folder[DATA_PATH_BYTES] = "", *names = c->tasks ? strdup(c->tasks) : NULL;
    struct job jobs[TASKS_MAX + 8];
    size_t n = 0;
    if (c->tasks && !data_folder(folder, c->data))
        return term_usage("eval", "no folder for data: give --data DIR");
    int code = find_jobs(jobs, &n, c, folder, names);
    bitnet_model *m = NULL;
    bitnet_engine *e = NULL;
    bitnet_error err = {0};
    struct outputs out = {{.fd = -1}, {.fd = -1}};
    struct bn_json *report = NULL, *tasks = bn_json_array();
    if (code == EXIT_DONE && open_outputs(&out, c, &err) != BITNET_OK) code = term_fail(&err);
    if (code == EXIT_DONE) code = model_open(&m, model, &c->model, c->head, "dense", "eval");
    if (code == EXIT_DONE &&
        open_engine(&e, c, m, context_of(c, m, CTX_DEFAULT), MAX_SEQS, &err) != BITNET_OK)
        code = term_fail(&err);
    for (size_t i = 0; code == EXIT_DONE && i < n; i++)
        if (run_job(tasks, &jobs[i], c, folder, e, m, &err) != BITNET_OK) code = term_fail(&err);
    if (code == EXIT_DONE) {
        report = begin_report(m);
        bn_json_set(report, "tasks", bn_json_ref(tasks));
        code = finish_report(report, &out, c);
    }
    close_outputs(&out);
    bn_json_free(tasks);
    bitnet_engine_close(e);
    bitnet_model_close(m);
    free(names);
    return code;
}

/* ------------------------------------------------------------------ divergence */

static struct bn_json *kl_report(const bitnet_divergence *r, uint32_t ctx)
{
    return bn_json_pack(
        "{s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "positions",
        (int64_t)r->n_positions, "ctx", (int64_t)ctx, "kl_mean", r->kl_mean, "kl_stderr",
        r->kl_mean_error, "kl_median", r->kl_median, "kl_p99", r->kl_p99, "kl_max", r->kl_max,
        "top1_agreement", r->same_top, "top1_stderr", r->same_top_error, "perplexity_a",
        r->ppl_base, "perplexity_b", r->ppl, "perplexity_ratio", r->ppl_ratio,
        "perplexity_ratio_stderr", r->ppl_ratio_error, "seconds", (double)r->ns / 1e9);
}

static int print_kl(const bitnet_divergence *r, struct outputs *out, const struct eval_config *c,
                    uint32_t ctx)
{
    struct bn_json *report = kl_report(r, ctx);
    bitnet_error err = {0};
    if (write_report(out, report, c, &err) != BITNET_OK) {
        bn_json_free(report);
        return term_fail(&err);
    }
    if (c->json) return term_print_json(report);
    bn_json_free(report);
    printf("KL divergence    mean %.6f +/- %.6f   median %.6f   P99 %.6f   max %.6f\n"
           "same best token  %.3f %% +/- %.3f\n"
           "perplexity       %.4f -> %.4f   ratio %.6f +/- %.6f\n"
           "positions        %zu, windows of %u, second half of each\n",
           r->kl_mean, r->kl_mean_error, r->kl_median, r->kl_p99, r->kl_max, r->same_top * 100,
           r->same_top_error * 100, r->ppl_base, r->ppl, r->ppl_ratio, r->ppl_ratio_error,
           (size_t)r->n_positions, ctx);
    return term_finish(EXIT_DONE);
}

/* The options of the second model: those of the first, and what --with says on top. */
static int second_config(struct eval_config *b, char **kept, const struct eval_config *a)
{
    char *argv[WITH_MAX];
    size_t argc = 0;
    enum args_help help;
    struct arg_words words;
    bitnet_error err = {0};
    *b = *a;
    *kept = a->with ? strdup(a->with) : NULL;
    for (char *rest = *kept, *word; (word = strsep(&rest, " "));) {
        if (!*word) continue;
        if (argc == WITH_MAX) return term_usage("eval", "--with: more than %d words", WITH_MAX);
        argv[argc++] = word;
    }
    if (args_parse(b, &words, &help, with_parts, argv, argc, &err) != BITNET_OK)
        return term_usage("eval", "--with: %s", err.text);
    if (words.n || help)
        return term_usage("eval", "--with takes options only, not '%s'",
                          words.n ? words.items[0] : "--help");
    return EXIT_DONE;
}

struct sides {
    bitnet_model *m[2];
    bitnet_engine *e[2];
    struct kl_base base;
    struct calibration text; /* empty with a base, which has its own */
};

/* The base is a file: its windows count. */
static bitnet_status open_base(struct sides *s, bitnet_compare_options *o, const char *path,
                               bitnet_error *err)
{
    bitnet_model_info info = {.size = sizeof info};
    bitnet_model_get_info(s->m[1], &info);
    BN_TRY(kl_base_open(&s->base, path, err));
    if (s->base.n_vocab != info.shape.n_vocab)
        return bn_fail(err, BITNET_E_ARG, "vocabularies of %u and %u tokens cannot be compared",
                       s->base.n_vocab, info.shape.n_vocab);
    o->ctx_tokens = s->base.ctx;
    o->base = kl_base_row;
    o->base_user = &s->base;
    o->base_least = KL_BASE_LEAST;
    return BITNET_OK;
}

static bitnet_status measure_kl(struct sides *s, const struct eval_config *a,
                                const struct eval_config *b, bitnet_divergence *r, uint32_t *ctx,
                                bitnet_error *err)
{
    struct term_progress bar = {0};
    bitnet_compare_options o = {.size = sizeof o};
    o.progress = term_progress_show;
    o.progress_user = &bar;
    o.ctx_tokens = context_of(a, s->m[1], KL_CTX);
    if (a->base) {
        BN_TRY(open_base(s, &o, a->base, err));
    } else {
        BN_TRY(calibration_read(&s->text, s->m[1], a->text, 0, err));
        BN_TRY(open_engine(&s->e[0], a, s->m[0], o.ctx_tokens, 1, err));
    }
    const int32_t *ids = a->base ? s->base.tokens : s->text.ids;
    size_t n = a->base ? (size_t)s->base.ctx * s->base.n_chunks : s->text.n;
    *ctx = o.ctx_tokens;
    BN_TRY(open_engine(&s->e[1], b, s->m[1], *ctx, 1, err));
    bitnet_status status = bitnet_compare(s->e[0], s->e[1], ids, n, &o, r, err);
    term_progress_end(&bar);
    return status;
}

static int kl(struct eval_config *c, const struct arg_words *words)
{
    if (words->n < 2 || words->n > 3)
        return term_usage("eval",
                          "'eval kl' takes one model with --with OPTIONS or --base FILE, or "
                          "two models");
    if (!c->text && !c->base) return term_usage("eval", "--text FILE is missing");
    if (words->n == 2 && !c->with && !c->base)
        return term_usage("eval", "one model and nothing to compare it with: --with OPTIONS");
    struct eval_config b;
    char *kept = NULL;
    struct sides s = {0};
    bitnet_divergence r = {.size = sizeof r};
    bitnet_error err = {0};
    uint32_t ctx = 0;
    struct outputs out = {{.fd = -1}, {.fd = -1}};
    int code = second_config(&b, &kept, c);
    if (code == EXIT_DONE && open_outputs(&out, c, &err) != BITNET_OK) code = term_fail(&err);
    if (code == EXIT_DONE && !c->base)
        code = model_open(&s.m[0], words->items[1], &c->model, c->head, "dense", "eval");
    if (code == EXIT_DONE)
        code = model_open(&s.m[1], words->items[words->n - 1], &b.model, b.head, "dense", "eval");
    if (code == EXIT_DONE)
        code = measure_kl(&s, c, &b, &r, &ctx, &err) == BITNET_OK ? print_kl(&r, &out, c, ctx)
                                                                  : term_fail(&err);
    close_outputs(&out);
    for (int i = 0; i < 2; i++) {
        bitnet_engine_close(s.e[i]);
        bitnet_model_close(s.m[i]);
    }
    kl_base_close(&s.base);
    calibration_free(&s.text);
    free(kept);
    return code;
}

/* ------------------------------------------------------------------ the command */

static int run(void *config, const struct arg_words *words)
{
    struct eval_config *c = config;
    const char *model, *first = words->n ? words->items[0] : "";
    bool is_kl = strcmp(first, "kl") == 0, is_diff = strcmp(first, "diff") == 0;
    if (c->list) return list_tasks(c);
    int wrong = check_options(c, is_kl ? ASK_KL : is_diff ? ASK_DIFF : ASK_TASKS);
    if (wrong != EXIT_DONE) return wrong;
    if (is_kl) return kl(c, words);
    if (is_diff) {
        if (words->n != 3) return term_usage("eval", "'eval diff' takes two reports");
        return eval_diff(words->items[1], words->items[2], c->json);
    }
    int code = model_word(&model, c->model.model, c->model.model_typed, words, "eval");
    return code == EXIT_DONE ? run_tasks(c, model) : code;
}

const struct command cmd_eval = {
    .name = "eval",
    .ranks = true,
    .usage = "[MODEL | kl A [B] | diff OLD NEW] [options]",
    .about =
        "\n"
        "Scores a model on tasks as lm-evaluation-harness does: the log-likelihood of every "
        "choice\n"
        "behind its context. What texts have in common is computed once. Data is read from files "
        "of\n"
        "yours; nothing is downloaded.\n"
        "\n"
        "'kl' measures how far a second model, or the same one with other options, is from the\n"
        "first: KL divergence, agreement of the best token, perplexity. 'diff' compares two "
        "reports\n"
        "item by item, and says whether the difference is more than noise.\n"
        "\n"
        "  bitnet eval --list\n"
        "  bitnet eval model.gguf --tasks arc_easy,hellaswag --data ~/eval --json-report a.json\n"
        "  bitnet eval model.gguf --file my-questions.jsonl\n"
        "  bitnet eval kl model.gguf --with \"--kv-type int4\" --text wiki.test.raw\n"
        "  bitnet eval kl model.gguf pruned.gguf --text wiki.test.raw\n"
        "  bitnet eval diff a.json b.json\n",
    .first = "tasks list data file limit text with json model threads",
    .first_word = "kl|diff",
    .parts = parts,
    .config_bytes = sizeof(struct eval_config),
    .max_words = 3,
    .run = run,
};
