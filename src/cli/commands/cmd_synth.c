/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_synth.c: `bitnet synth`: a random ternary model of a true shape: the right sizes for timing,
 * memory and tests without a download; its words mean nothing.
 */
#include "base/clock.h"
#include "cli/core/command.h"
#include "cli/options/synthetic.h"
#include "app/term.h"
#include "cli/commands/output_model.h"

struct synth_config {
    struct synth_opts model;
    const char *vocab;
    uint64_t seed;
    bool list, force, json;
};

#define AT(field) offsetof(struct synth_config, field)
static const struct opt table[] = {
    {.kind = OPT_FLAG, .name = "list", .help = "list the shapes", .offset = AT(list)},
    {.kind = OPT_STR,
     .name = "vocab",
     .metavar = "FILE",
     .help = "GGUF or tokenizer.json to take the tokenizer from",
     .offset = AT(vocab),
     .shown = "one token a byte"},
    SEED_OPT("the same seed gives the same file", AT(seed), .initial = "0"),
    {.kind = OPT_FLAG, .name = "force", .help = "replace OUT if it exists", .offset = AT(force)},
    {.kind = OPT_FLAG,
     .name = "json",
     .help = "print the summary, or the list, as JSON",
     .offset = AT(json)},
    {.kind = OPT_END},
};
static const struct opt_part parts[] = {
    {"Model", synth_opts_table, AT(model)}, {NULL, table, 0}, {NULL, NULL, 0}};
#undef AT

static int list_shapes(bool json)
{
    struct bn_json *all = bn_json_array();
    const char *name, *text = NULL;
    for (size_t i = 0; (name = bitnet_synth_shape(i, &text)); i++) {
        if (json)
            bn_json_append(
                all, bn_json_pack("{s:s, s:s}", "name", name, "description", text ? text : ""));
        else printf("%-20s %s\n", name, text ? text : "");
    }
    if (json) return term_print_json(all);
    bn_json_free(all);
    return EXIT_DONE;
}

static int run(void *config, const struct arg_words *words)
{
    const struct synth_config *c = config;
    if (c->list) {
        if (words->n) return term_usage("synth", "--list takes no words");
        return list_shapes(c->json);
    }
    if (words->n != 2)
        return term_usage("synth", "a shape and a path are needed: bitnet synth SHAPE OUT");
    int code = model_shape_check(words->items[0], "synth");
    if (code == EXIT_DONE) code = output_model_check(words->items[1], c->force);
    if (code != EXIT_DONE) return code;
    struct term_progress bar = {0};
    bitnet_error err = {0};
    bitnet_synth_options o = {.size = sizeof o};
    synth_opts_apply(&o, &c->model);
    o.vocab_path = c->vocab;
    o.seed = c->seed;
    o.overwrite = c->force;
    o.progress = term_progress_show;
    o.progress_user = &bar;
    uint64_t start_ns = bn_now_ns();
    bitnet_status s = bitnet_synth(words->items[0], words->items[1], &o, &err);
    term_progress_end(&bar);
    if (s != BITNET_OK) return term_fail(&err);
    return output_model_report(words->items[1], bn_now_ns() - start_ns, c->json);
}

const struct command cmd_synth = {
    .name = "synth",
    .usage = "SHAPE OUT [options]",
    .about = "\n"
             "Writes a GGUF file with random ternary weights and the exact dimensions of a "
             "published model.\n"
             "\n"
             "  bitnet synth --list\n"
             "  bitnet synth 2b-4t random.gguf --vocab ggml-vocab-llama-bpe.gguf\n",
    .parts = parts,
    .config_bytes = sizeof(struct synth_config),
    .max_words = 2,
    .run = run,
};
