/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_loadtest.c: `bitnet loadtest`: load for a server with OpenAI's interface, and what it made of
 * it. The parts are in load.h.
 */
#include "base/os/mem.h"
#include "cli/core/command.h"
#include "app/interrupt.h"
#include "cli/load/options.h"
#include "app/term.h"
#include <signal.h>
#include <stdlib.h>

enum { GET_TIMEOUT_S = 10, FILE_MAX_BYTES = 64 << 20 };

struct job {
    struct load_test test;
    char *model;           /* as the server told */
    struct load_run *runs; /* [n_runs] */
    size_t n_runs;
    struct bn_out csv, requests, plot;
};

/* ------------------------------------------------------------------ the server */

static bitnet_status ask_model(struct job *j, bitnet_error *err)
{
    char *body = NULL;
    int status;
    BN_TRY(load_get(&j->test.target, "/v1/models", GET_TIMEOUT_S, &status, &body, err));
    struct bn_json *models = NULL;
    if (body) bn_json_try(&models, body, strlen(body), 0);
    const struct bn_json *first = bn_json_at(bn_json_get(models, "data"), 0);
    const char *id = bn_json_text(bn_json_get(first, "id"));
    j->model = id ? strdup(id) : NULL;
    bn_json_free(models);
    free(body);
    if (!j->model)
        return bn_fail(err, BITNET_E_IO,
                       "%s does not say which models it has (GET /v1/models: %d); see --model",
                       j->test.target.authority, status);
    j->test.settings.prompts.model = j->model;
    return BITNET_OK;
}

/* Metrics are welcome, not needed. */
static void scrape(struct load_scrape *out, const struct job *j)
{
    char *body = NULL;
    int status;
    bitnet_error ignored = {0};
    if (load_get(&j->test.target, "/metrics", GET_TIMEOUT_S, &status, &body, &ignored) ==
            BITNET_OK &&
        body)
        load_scrape_parse(out, body);
    free(body);
}

static bitnet_status run_all(struct job *j, const struct load_options *c, bitnet_error *err)
{
    size_t n = c->batch_sizes.n ? c->batch_sizes.n : 1;
    j->runs = bn_calloc(n, sizeof *j->runs);
    if (!j->runs) return bn_fail_nomem(err, n * sizeof *j->runs, "the runs");
    for (size_t i = 0; i < n && !interrupt_pending(); i++) {
        struct load_run *run = &j->runs[j->n_runs++];
        uint32_t at_a_time = c->batch_sizes.n                       ? c->batch_sizes.items[i]
                             : j->test.settings.loop == LOAD_CLOSED ? c->concurrency
                                                                    : c->max_outstanding;
        if (i) run->first_prompt = run[-1].first_prompt + run[-1].n_records;
        scrape(&run->before, j);
        BN_TRY(load_run(run, &j->test.settings, at_a_time, &j->test.target, err));
        scrape(&run->after, j);
    }
    return BITNET_OK;
}

/* ------------------------------------------------------------------ files */

static bitnet_status open_files(struct job *j, const struct load_options *c, bitnet_error *err)
{
    if (c->csv) BN_TRY(bn_out_open(&j->csv, c->csv, true, err));
    if (c->save_requests) BN_TRY(bn_out_open(&j->requests, c->save_requests, true, err));
    if (c->plot) BN_TRY(bn_out_open(&j->plot, c->plot, true, err));
    return BITNET_OK;
}

static bitnet_status put_file(struct bn_out *out, struct bn_buf *text, bitnet_error *err)
{
    bitnet_status s = text->failed || !text->len
                          ? bn_fail_nomem(err, text->len, "a file of the report")
                          : bn_out_end(out, text->data, text->len, err);
    bn_buf_free(text);
    return s;
}

static bitnet_status write_files(struct job *j, const struct load_options *c,
                                 const struct bn_json *report, bitnet_error *err)
{
    struct bn_buf text;
    bn_buf_init(&text, FILE_MAX_BYTES);
    if (c->csv) {
        load_csv(&text, report);
        BN_TRY(put_file(&j->csv, &text, err));
    }
    if (c->save_requests) {
        BN_TRY(load_requests_jsonl(&j->requests, j->runs, j->n_runs, err));
        BN_TRY(bn_out_commit(&j->requests, err));
    }
    if (c->plot) {
        load_plot(&text, bn_ends_with(c->plot, ".html"), report, j->runs, j->n_runs);
        BN_TRY(put_file(&j->plot, &text, err));
    }
    return BITNET_OK;
}

/* ------------------------------------------------------------------ the command */

static bool any_ok(const struct job *j)
{
    for (size_t i = 0; i < j->n_runs; i++)
        for (size_t k = 0; k < j->runs[i].n_records; k++)
            if (j->runs[i].records[k].counted && j->runs[i].records[k].outcome == LOAD_OK)
                return true;
    return false;
}

static int deliver(struct job *j, const struct load_options *c)
{
    bitnet_error err = {0};
    struct bn_json *report = load_report(&j->test.settings, j->runs, j->n_runs);
    if (!report) return term_fail_text("out of memory while building the report");
    int code = EXIT_DONE;
    if (write_files(j, c, report, &err) != BITNET_OK) code = term_fail(&err);
    if (c->json) code = term_print_json(bn_json_ref(report)) == EXIT_DONE ? code : EXIT_FAILED;
    else load_print_table(report);
    bn_json_free(report);
    if (code == EXIT_DONE && interrupt_pending()) return interrupt_exit_code();
    if (code == EXIT_DONE && !any_ok(j)) return term_fail_text("not one request went well");
    return code;
}

static void close_job(struct job *j)
{
    for (size_t i = 0; i < j->n_runs; i++) load_run_free(&j->runs[i]);
    free(j->runs);
    free(j->model);
    load_test_free(&j->test);
    bn_out_close(&j->csv);
    bn_out_close(&j->requests);
    bn_out_close(&j->plot);
}

static bitnet_status ask_and_run(struct job *j, const struct load_options *c, bitnet_error *err)
{
    BN_TRY(load_target_open(&j->test.target, err));
    if (!c->model) BN_TRY(ask_model(j, err));
    BN_TRY(open_files(j, c, err));
    return run_all(j, c, err);
}

static int run(void *config, const struct arg_words *words)
{
    const struct load_options *c = config;
    struct job j = {.csv.fd = -1, .requests.fd = -1, .plot.fd = -1};
    bitnet_error err = {0};
    int code;
    (void)words;
    signal(SIGPIPE, SIG_IGN); /* a server that has left is an outcome, not our end */
    bitnet_status s = load_test_read(&j.test, c, &err);
    if (s == BITNET_OK) s = ask_and_run(&j, c, &err);
    signal(SIGPIPE, SIG_DFL);
    if (s == BITNET_OK) code = deliver(&j, c);
    else code = s == BITNET_E_ARG ? term_usage("loadtest", "%s", err.text) : term_fail(&err);
    close_job(&j);
    return code;
}

const struct command cmd_loadtest = {
    .name = "loadtest",
    .usage = "[options]",
    .about =
        "\n"
        "Sends requests to an OpenAI-compatible server and reports how long users wait: time\n"
        "to the first token (ttft), between tokens (itl), per token on average (tpot), in total\n"
        "(e2e). With --rps or --trace requests are due by a schedule, and times count from then:\n"
        "a server that stalls cannot hide it. Otherwise clients ask, wait and ask again.\n"
        "\n"
        "  bitnet loadtest --concurrency 8 --duration 1m\n"
        "  bitnet loadtest --rps 5 --duration 10m --warmup 10s --goodput ttft:200,itl:50\n"
        "  bitnet loadtest --batch-sizes 1,4,8 --requests 100 --csv sizes.csv --plot sizes.svg\n"
        "  bitnet loadtest --trace AzureLLMInferenceTrace_conv.csv --trace-scale 10\n",
    .first = "host endpoint rps concurrency duration input-len output-len model json plot",
    .parts = load_option_parts,
    .config_bytes = sizeof(struct load_options),
    .max_words = 0,
    .run = run,
};
