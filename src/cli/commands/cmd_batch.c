/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_batch.c: `bitnet batch`: many requests from a file, their answers to another. The parts are in
 * batch.h.
 */
#include "cli/batch/batch.h"
#include "cli/core/command.h"
#include "app/term.h"
#include "app/textio.h"
#include <stdlib.h>

#define AT(field) offsetof(struct batch_config, field)
static const struct opt file_table[] = {
    {.kind = OPT_STR,
     .letter = 'i',
     .name = "input",
     .metavar = "FILE",
     .help = "the requests, one JSON object per line; - is standard input",
     .offset = AT(input)},
    {.kind = OPT_STR,
     .letter = 'o',
     .name = "output",
     .metavar = "FILE",
     .help = "the answers, in the same order; answers of this batch that it already holds are "
             "kept. - is standard output",
     .offset = AT(output)},
    {.kind = OPT_FLAG,
     .name = "restart",
     .help = "discard the answers in the output file and start over",
     .offset = AT(restart)},
    {.kind = OPT_U64,
     .name = "limit",
     .metavar = "N",
     .help = "stop after the first N requests; 0 is all",
     .offset = AT(limit),
     .initial = "0",
     .min = 0,
     .max = OPT_MAX_INTEGER},
    {.kind = OPT_STR,
     .name = "shard",
     .metavar = "I/N",
     .help =
         "answer only part I of N: 1/4 to 4/4 on four machines, then bitnet batch merge; auto: the "
         "part of this process of mpirun or task of a Slurm array, its number for % in --output",
     .offset = AT(shard_typed)},
    {.kind = OPT_FLAG,
     .name = "dry-run",
     .help = "check all requests, list invalid ones, report tokens and memory; compute and write "
             "nothing",
     .offset = AT(dry_run)},
    {.kind = OPT_END},
};
static const struct opt request_table[] = {
    MAX_TOKENS_OPT(AT(max_tokens), "256"),
    SEED_OPT("requests without a seed get one derived from this and their custom_id", AT(seed),
             .initial = "0"),
    MODEL_TEMPLATE_OPT(AT(chat_template)),
    {.kind = OPT_END},
};
static const struct opt output_table[] = {
    {.kind = OPT_FLAG,
     .name = "json",
     .help = "print the summary, or what --dry-run found, as a JSON object on standard output",
     .offset = AT(json)},
    {.kind = OPT_FLAG,
     .letter = 'q',
     .name = "quiet",
     .help = "no progress bar, no summary",
     .offset = AT(quiet)},
    {.kind = OPT_END},
};
static const struct opt_part parts[] = {
    {"Files", file_table, 0},
    {"Requests", request_table, 0},
    {"Model", model_opts_table, AT(model)},
    {"Batch and context", seqs_opts_table, AT(seqs)},
    {NULL, engine_opts_table, AT(engine)},
    {NULL, draft_table, AT(engine)},
    {NULL, state_table, AT(engine)},
    {NULL, warmup_table, AT(engine)},
    {"Adapters", named_adapters_table, AT(adapters)},
    {"Checks", scrub_opts_table, AT(scrub)},
    {"Output", output_table, 0},
    {NULL, NULL, 0},
};
#undef AT

static int print_totals(const struct batch_config *c, const struct batch_totals *t,
                        const bitnet_engine *e)
{
    bitnet_engine_info info = {.size = sizeof info};
    bitnet_engine_get_info(e, &info);
    double seconds = (double)t->ns / 1e9;
    double speed = seconds > 0 ? (double)t->answer_tokens / seconds : 0;
    if (c->json)
        return term_print_json(bn_json_pack(
            "{s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:{s:I, s:I, s:I, s:I, s:I}}", "requests",
            (int64_t)(t->n_found + t->n_done), "found", (int64_t)t->n_found, "failed",
            (int64_t)t->n_failed, "prompt_tokens", (int64_t)t->prompt_tokens, "answer_tokens",
            (int64_t)t->answer_tokens, "seconds", seconds, "tok_s", speed, "engine", "steps",
            (int64_t)info.work.steps, "preemptions", (int64_t)info.work.preemptions,
            "prefix_hit_tokens", (int64_t)info.prefix.hit_tokens, "draft_tokens",
            (int64_t)info.draft.tokens, "draft_accepted", (int64_t)info.draft.accepted));
    if (c->quiet) return EXIT_DONE;
    fprintf(stderr, "%llu requests answered", (unsigned long long)t->n_done);
    if (t->n_failed) fprintf(stderr, ", %llu with an error", (unsigned long long)t->n_failed);
    if (t->n_found) fprintf(stderr, ", %llu were there", (unsigned long long)t->n_found);
    fprintf(stderr, "; %llu tokens in %.1f s, %.1f tok/s\n", (unsigned long long)t->answer_tokens,
            seconds, speed);
    return EXIT_DONE;
}

static int answer(struct batch_input *in, bitnet_engine *e)
{
    bitnet_error err = {0}, at_close = {0};
    struct batch_output out;
    struct batch_totals totals = {0};
    if (batch_output_open(&out, in, &totals.n_found, &err) != BITNET_OK) return term_fail(&err);
    bitnet_status s = batch_run(&totals, in, &out, e, &err);
    if (batch_output_close(&out, &at_close) != BITNET_OK && s == BITNET_OK) {
        s = at_close.status;
        err = at_close;
    }
    if (s == BITNET_E_CANCELLED && out.is_file && !in->config->quiet)
        fprintf(stderr, "%llu requests are answered; the same command goes on from here\n",
                (unsigned long long)(totals.n_found + totals.n_done));
    return s == BITNET_OK ? print_totals(in->config, &totals, e) : term_fail(&err);
}

static int with_input(const struct batch_config *c, const bitnet_model *m, bitnet_engine *e,
                      const struct adapters *adapters)
{
    struct batch_input in = {.config = c, .model = m, .adapters = adapters};
    bitnet_error err = {0};
    char *owned = NULL;
    int code;
    bitnet_status s = textio_chat_template(&owned, &in.chat_template, c->chat_template, &err);
    if (s == BITNET_OK) s = batch_run_key(&in.run_key, &in, e, &err);
    if (s == BITNET_OK) s = batch_input_open(&in, &err);
    if (s == BITNET_OK) {
        code = c->dry_run ? batch_plan(&in, e) : answer(&in, e);
        batch_input_close(&in);
    } else {
        code = term_fail(&err);
    }
    free(owned);
    return code;
}

enum { MAX_NAME_BYTES = 1 << 16 };

static int merge(const struct batch_config *c, const struct arg_words *words)
{
    if (c->dry_run) return term_usage("batch", "'batch merge' has no --dry-run");
    if (c->shard_typed)
        return term_usage("batch", "'batch merge' takes the answers of all shards, not --shard");
    if (words->n < 2)
        return term_usage("batch", "'batch merge' takes the answers of all shards, in their order");
    return batch_merge(c, words->items + 1, words->n - 1);
}

/* Which part, and with "auto" also where its answers go: `name` holds that. */
static bitnet_status choose_shard(struct batch_config *c, struct bn_buf *name, bitnet_error *err)
{
    if (strcmp(c->shard_typed, "auto") != 0)
        return batch_shard_parse(&c->shard, c->shard_typed, err);
    BN_TRY(batch_shard_here(&c->shard, err));
    if (c->dry_run) return BITNET_OK;
    BN_TRY(batch_shard_name(name, c->output, &c->shard, err));
    c->output = name->data;
    return BITNET_OK;
}

static int open_and_answer(struct batch_config *c, const struct arg_words *words)
{
    const char *model;
    if (words->n > 1) return term_usage("batch", "'%s' is one argument too many", words->items[1]);
    int code = model_word(&model, c->model.model, c->model.model_typed, words, "batch");
    if (code != EXIT_DONE) return code;
    bitnet_model *m = NULL;
    bitnet_engine *e = NULL;
    struct adapters adapters = {.n = 0};
    c->adapters.by_name = true;
    code = model_open(&m, model, &c->model, c->engine.head, c->engine.ffn, "batch");
    if (code == EXIT_DONE) {
        bitnet_error err = {0};
        bitnet_engine_options eo;
        model_engine_options(&eo, &c->model, &c->engine);
        model_seqs_options(&eo, &c->seqs);
        code = model_adapted_open(&e, &adapters, m, &eo, &c->adapters, c->engine.warmup, &err) ==
                       BITNET_OK
                   ? with_input(c, m, e, &adapters)
                   : term_fail(&err);
    }
    bitnet_engine_close(e);
    adapters_close(&adapters);
    bitnet_model_close(m);
    return code;
}

static int run(void *config, const struct arg_words *words)
{
    struct batch_config *c = config;
    bool merging = words->n && strcmp(words->items[0], "merge") == 0;
    bitnet_error shard = {0};
    struct bn_buf name;
    if (!c->input) return term_usage("batch", "--input is missing: --input FILE, or --input -");
    if (!c->output && !c->dry_run)
        return term_usage("batch", "--output is missing: --output FILE, or --output -");
    if (c->json && !c->dry_run && strcmp(c->output, "-") == 0)
        return term_usage("batch", "--json and the answers cannot both go to standard output");
    if (merging) return merge(c, words);
    bn_buf_init(&name, MAX_NAME_BYTES);
    int code = c->shard_typed && choose_shard(c, &name, &shard) != BITNET_OK
                   ? term_usage("batch", "%s", shard.text)
                   : open_and_answer(c, words);
    bn_buf_free(&name);
    return code;
}

const struct command cmd_batch = {
    .name = "batch",
    .ranks = true,
    .usage = "[MODEL | merge SHARD...] --input FILE --output FILE [options]",
    .about =
        "\n"
        "Takes the lines of OpenAI's batch files ({\"custom_id\", \"method\", \"url\", "
        "\"body\"}, for\n"
        "/v1/chat/completions, /v1/completions and /v1/responses), and plain ones: "
        "{\"prompt\": \"...\"} or\n"
        "{\"messages\": [...]} with the options beside it. An invalid line is answered with "
        "an error.\n"
        "However a run was interrupted, the same command resumes it; the output is the same "
        "as that of\n"
        "one run, byte for byte.\n"
        "\n"
        "  bitnet batch --input prompts.jsonl --output out.jsonl\n"
        "  bitnet batch model.gguf --input prompts.jsonl --dry-run --max-num-seqs 32\n"
        "  bitnet batch --input prompts.jsonl --output 1.jsonl --shard 1/2    # and 2/2 elsewhere\n"
        "  bitnet batch merge --input prompts.jsonl --output out.jsonl 1.jsonl 2.jsonl\n"
        "  echo '{\"prompt\": \"Once upon a time\"}' | bitnet batch -i - -o -\n",
    .first = "input output restart limit dry-run model threads max-tokens seed json",
    .parts = parts,
    .config_bytes = sizeof(struct batch_config),
    .max_words = 1 + BATCH_MAX_SHARDS,
    .run = run,
};
