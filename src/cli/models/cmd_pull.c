/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_pull.c: `bitnet pull`: models by name onto this machine.
 */
#include "cli/core/command.h"
#include "cli/models/models.h"
#include "cli/options/hub_places.h"
#include "cli/options/pull_model.h"
#include "app/term.h"
#include <stddef.h>
#include <stdlib.h>

struct pull_config {
    const char *cache, *ca_file;
    uint32_t connections;
    bool offline, quiet, json, dry_run;
};

#define AT(field) offsetof(struct pull_config, field)
static const struct opt table[] = {
    {.kind = OPT_FLAG,
     .letter = 'n',
     .name = "dry-run",
     .help = "say what would be downloaded, and how much",
     .offset = AT(dry_run)},
    {.kind = OPT_U32,
     .name = "connections",
     .metavar = "N",
     .help = "connections at a time",
     .offset = AT(connections),
     .initial = "4",
     .min = 1,
     .max = 32},
    {.kind = OPT_STR,
     .name = "cache-dir",
     .metavar = "DIR",
     .help = "the hub's cache to download into",
     .offset = AT(cache),
     .shown = "$HF_HUB_CACHE, $HF_HOME/hub or ~/.cache/huggingface/hub"},
    {.kind = OPT_STR,
     .name = "ca-file",
     .metavar = "FILE",
     .help = "trust these certificates (PEM) instead of the system's",
     .offset = AT(ca_file),
     .shown = "$SSL_CERT_FILE, or the system's"},
    {.kind = OPT_FLAG,
     .name = "offline",
     .help = "ask nobody: only say whether it is here",
     .offset = AT(offline)},
    {.kind = OPT_FLAG,
     .letter = 'q',
     .name = "quiet",
     .help = "print the path only",
     .offset = AT(quiet)},
    {.kind = OPT_FLAG,
     .name = "json",
     .help = "print what is here then as JSON",
     .offset = AT(json)},
    {.kind = OPT_END},
};
static const struct opt_part parts[] = {{"Download", table, 0}, {NULL, NULL, 0}};
#undef AT

static int dry_run(const struct hub_places *p, const struct hub_name *name,
                   const struct pull_config *c)
{
    struct pull_plan plan;
    char text[HUB_TYPED_BYTES], size[TERM_SIZE_BYTES], missing[TERM_SIZE_BYTES];
    int code = pull_look(&plan, p, name);
    if (code != EXIT_DONE) return code;
    hub_name_text(text, name);
    if (c->json)
        return term_print_json(bn_json_pack(
            "{s:o, s:I, s:I, s:I, s:o}", "name", term_json_string(text, strlen(text)), "files",
            (int64_t)plan.n_files, "bytes", (int64_t)plan.bytes, "missing_bytes",
            (int64_t)plan.missing_bytes, "licence",
            *plan.licence ? term_json_string(plan.licence, strlen(plan.licence)) : bn_json_null()));
    printf("%s: %s in %zu file%s, %s to download", text, term_size(size, plan.bytes), plan.n_files,
           plan.n_files == 1 ? "" : "s", term_size(missing, plan.missing_bytes));
    if (*plan.licence) {
        printf(", licence ");
        term_print_clean(stdout, plan.licence);
    }
    putchar('\n');
    return EXIT_DONE;
}

static int pull_one(const struct hub_places *p, const char *typed, const struct pull_config *c)
{
    struct hub_name name;
    struct hub_local got;
    bitnet_error err = {0};
    if (hub_name_parse(&name, typed, &err) != BITNET_OK) return term_fail(&err);
    int code = EXIT_DONE;
    if (c->dry_run && !p->offline) return dry_run(p, &name, c);
    /* offline, what is here is enough; otherwise the hub may have something newer */
    bool here = p->offline && hub_local_find(&got, p, &name, NULL) == HUB_HERE;
    if (!here) code = pull_model(&got, p, &name, c->quiet || c->json);
    if (code != EXIT_DONE) return code;
    if (c->json) return term_print_json(models_local_json(&got));
    term_print_clean(stdout, got.path);
    putchar('\n');
    return EXIT_DONE;
}

static int run(void *config, const struct arg_words *words)
{
    const struct pull_config *c = config;
    struct hub_places *p;
    if (!words->n)
        return term_usage("pull", "name a model; 'bitnet list --known' shows the short names");
    int code = hub_places_new(&p);
    if (code != EXIT_DONE) return code;
    p->offline |= c->offline;
    p->connections = c->connections;
    if (c->cache) snprintf(p->cache, sizeof p->cache, "%s", c->cache);
    if (c->ca_file) snprintf(p->ca_file, sizeof p->ca_file, "%s", c->ca_file);
    for (size_t i = 0; i < words->n && code == EXIT_DONE; i++)
        code = pull_one(p, words->items[i], c);
    free(p);
    return code;
}

const struct command cmd_pull = {
    .name = "pull",
    .usage = "NAME... [options]",
    .about = "\n"
             "NAME is one of the short names of 'bitnet list --known', a repository of the hub as\n"
             "ORG/NAME, hf:ORG/NAME or hf.co/ORG/NAME, perhaps with @REVISION, :TYPE or /FILE "
             "behind it,\n"
             "a registry's model as ollama:NAME[:TAG], or the https URL of a file. The path of the "
             "model\n"
             "is printed. Files lie where the hub's own clients keep and find them. A download "
             "that was\n"
             "cut short goes on where it ended; checksums are compared. HF_TOKEN, HF_HOME, "
             "HF_HUB_CACHE,\n"
             "HF_ENDPOINT, HF_HUB_OFFLINE, OLLAMA_MODELS, HTTPS_PROXY and NO_PROXY are obeyed.\n"
             "\n"
             "  bitnet pull bitnet-2b\n"
             "  bitnet pull microsoft/bitnet-b1.58-2B-4T-gguf\n"
             "  bitnet pull hf:prism-ml/Bonsai-27B-gguf:Q1_0\n"
             "  bitnet run \"$(bitnet pull -q bitnet-2b)\" \"Why is the sky blue?\"\n",
    .parts = parts,
    .config_bytes = sizeof(struct pull_config),
    .max_words = 64,
    .run = run,
};
