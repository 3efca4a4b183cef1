/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_profile.c: `bitnet profile`: options, the model, the run, and where its report goes.
 */
#include "cli/core/command.h"
#include "cli/profile/profile.h"
#include "cli/profile/html.h"
#include "cli/options/synthetic.h"
#include "app/term.h"
#include <stdlib.h>

struct profile_config {
    struct model_opts model;
    struct engine_opts engine;
    struct adapter_opts adapters;
    struct synthetic_opts made;
    const char *report, *html, *trace, *folded;
    uint32_t new_tokens, prompt_tokens, batch;
    bool json, by_layer;
};

#define AT(field) offsetof(struct profile_config, field)
static const struct opt run_table[] = {
    {.kind = OPT_U32,
     .letter = 'n',
     .name = "max-new-tokens",
     .metavar = "N",
     .help = "tokens to decode per answer",
     .offset = AT(new_tokens),
     .initial = "64",
     .aliases = "max-tokens n-predict",
     .min = 1,
     .max = PROFILE_TOKENS_MAX},
    {.kind = OPT_U32,
     .name = "prompt-tokens",
     .metavar = "N",
     .help = "length of the prompt before decoding",
     .offset = AT(prompt_tokens),
     .initial = "128",
     .min = 2,
     .max = PROFILE_TOKENS_MAX},
    {.kind = OPT_U32,
     .name = "batch",
     .metavar = "N",
     .help = "answers decoded together",
     .offset = AT(batch),
     .initial = "1",
     .min = 1,
     .max = PROFILE_BATCH_MAX},
    {.kind = OPT_END},
};
static const struct opt output_table[] = {
    {.kind = OPT_FLAG,
     .name = "by-layer",
     .help = "one line per layer, with its operations in microseconds per token",
     .offset = AT(by_layer)},
    {.kind = OPT_FLAG,
     .name = "json",
     .help = "print the report as JSON instead of tables",
     .offset = AT(json)},
    {.kind = OPT_STR,
     .name = "json-report",
     .metavar = "FILE",
     .help = "write the report as JSON to a file, replacing an older one",
     .offset = AT(report)},
    {.kind = OPT_STR,
     .name = "html",
     .metavar = "FILE",
     .help = "write the report as a self-contained HTML page",
     .offset = AT(html)},
    {.kind = OPT_STR,
     .name = "trace",
     .metavar = "FILE",
     .help = "write a trace of every worker, for Chrome's or Perfetto's trace viewer",
     .offset = AT(trace)},
    {.kind = OPT_STR,
     .name = "folded",
     .metavar = "FILE",
     .help = "write folded stacks for flame graph tools; nanoseconds, all workers added up",
     .offset = AT(folded)},
    {.kind = OPT_END},
};
static const struct opt_part parts[] = {
    {"Run", run_table, 0},
    {"Model", model_opts_table, AT(model)},
    {"Synthetic model", synthetic_table, AT(made)},
    {NULL, synth_opts_table, AT(made.model)},
    {"Context", prompt_batch_table, AT(engine)},
    {NULL, engine_opts_table, AT(engine)},
    {"Adapters", adapter_opts_table, AT(adapters)},
    {"Output", output_table, 0},
    {NULL, NULL, 0},
};
#undef AT

/* Files are opened before the run: a wrong path should not cost minutes. */
struct outputs {
    struct bn_out report, html, trace, folded;
};

static bitnet_status open_outputs(struct outputs *out, const struct profile_config *c,
                                  bitnet_error *err)
{
    if (c->report) BN_TRY(bn_out_open(&out->report, c->report, true, err));
    if (c->html) BN_TRY(bn_out_open(&out->html, c->html, true, err));
    if (c->trace) BN_TRY(bn_out_open(&out->trace, c->trace, true, err));
    if (c->folded) BN_TRY(bn_out_open(&out->folded, c->folded, true, err));
    return BITNET_OK;
}

/* text: taken; NULL: out of memory. */
static bitnet_status write_text(struct bn_out *out, char *text, bitnet_error *err)
{
    bitnet_status s =
        text ? bn_out_end(out, text, strlen(text), err) : bn_fail_nomem(err, 0, "the report");
    free(text);
    return s;
}

static int deliver(struct outputs *out, const struct profile *p, const struct profile_config *c)
{
    bitnet_error err = {0};
    struct bn_json *report = profile_report(p);
    if (!report) return term_fail_text("out of memory while building the report");
    bitnet_status s = BITNET_OK;
    if (c->report)
        s = write_text(&out->report, bn_json_dump(report, BN_JSON_INDENT(1) | BN_JSON_DIGITS(12)),
                       &err);
    if (s == BITNET_OK && c->html) s = write_text(&out->html, profile_html(report), &err);
    if (s == BITNET_OK && c->trace) s = profile_trace(&out->trace, p, &err);
    if (s == BITNET_OK && c->folded) s = profile_folded(&out->folded, p, &err);
    int code = s == BITNET_OK ? EXIT_DONE : term_fail(&err);
    if (code == EXIT_DONE && c->json) code = term_print_json(bn_json_ref(report));
    else if (code == EXIT_DONE) profile_print(report, c->by_layer);
    fflush(stdout);
    for (size_t i = 0; code == EXIT_DONE && !c->json && i < p->n_notes; i++) term_note(p->notes[i]);
    bn_json_free(report);
    return code;
}

static int measure(struct profile_config *c, const struct arg_words *words)
{
    bitnet_error err = {0};
    bitnet_model *model = NULL;
    struct outputs out = {.report.fd = -1, .html.fd = -1, .trace.fd = -1, .folded.fd = -1};
    struct profile_settings settings = {.adapters = c->adapters,
                                        .new_tokens = c->new_tokens,
                                        .prompt_tokens = c->prompt_tokens,
                                        .batch = c->batch,
                                        .seed = c->made.seed,
                                        .trace = c->trace != NULL};
    model_engine_options(&settings.engine, &c->model, &c->engine);
    struct profile *p = calloc(1, sizeof *p);
    int code = p ? EXIT_DONE : term_fail_text("out of memory");
    if (p && open_outputs(&out, c, &err) != BITNET_OK) code = term_fail(&err);
    if (code == EXIT_DONE)
        code = synthetic_or_word(&model, &c->made, &c->model, words, c->engine.head, c->engine.ffn,
                                 "profile");
    if (code == EXIT_DONE) {
        p->settings = &settings;
        p->model = model;
        code = profile_run(p, &err) == BITNET_OK ? deliver(&out, p, c) : term_fail(&err);
    }
    if (p) profile_free(p);
    free(p);
    bitnet_model_close(model);
    bn_out_close(&out.report);
    bn_out_close(&out.html);
    bn_out_close(&out.trace);
    bn_out_close(&out.folded);
    return code;
}

static int run(void *config, const struct arg_words *words) { return measure(config, words); }

const struct command cmd_profile = {
    .name = "profile",
    .ranks = true,
    .usage = "[MODEL] [options]",
    .about =
        "\n"
        "Reads a prompt, decodes after it, and shows where the time went: by operation, layer and\n"
        "thread, separately for prefill and decode, with the bytes read and the share of memory\n"
        "bandwidth; hardware counters, clock and energy where the system has them; page faults "
        "and\n"
        "heap allocations, of which decoding should have none; and a verdict in words.\n"
        "\n"
        "  bitnet profile\n"
        "  bitnet profile model.gguf --prompt-tokens 1024 --by-layer\n"
        "  bitnet profile --synthetic 2b-4t --html profile.html\n"
        "  bitnet profile --batch 8 --trace trace.json --folded stacks.txt\n",
    .first = "max-new-tokens prompt-tokens batch model threads synthetic by-layer html trace json",
    .parts = parts,
    .config_bytes = sizeof(struct profile_config),
    .max_words = 1,
    .run = run,
};
