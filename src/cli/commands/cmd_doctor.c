/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_doctor.c: `bitnet doctor`: what this machine is, what it lets the engine have, and what to
 * change. It reads and measures; it never changes the system.
 */
#include "cli/core/command.h"
#include "cli/doctor/doctor.h"
#include "cli/options/backend.h"
#include "cli/options/model_opts.h"
#include "app/term.h"
#include <stdlib.h>

struct doctor_config {
    struct model_opts model;
    const char *root;
    bool json, isa, no_measure;
};

#define AT(field) offsetof(struct doctor_config, field)
static const struct opt table[] = {
    {.kind = OPT_FLAG,
     .name = "isa",
     .help =
         "show only the operations, the instruction sets they were compiled for and the one in use",
     .offset = AT(isa)},
    {.kind = OPT_FLAG,
     .name = "no-measure",
     .help = "do not measure memory bandwidth",
     .offset = AT(no_measure)},
    {.kind = OPT_STR,
     .name = "root",
     .metavar = "PATH",
     .help = "examine a recorded machine: a file made by tools/record_machine.sh, or a folder with "
             "its /proc and /sys",
     .offset = AT(root)},
    {.kind = OPT_FLAG, .name = "json", .help = "print as JSON", .offset = AT(json)},
    {.kind = OPT_END},
};
static const struct opt_part parts[] = {
    {"Doctor", table, 0},
    {"Model", model_opts_table, AT(model)},
    {NULL, NULL, 0},
};
#undef AT

/* The user's model, or the two that everybody knows. The machine has been read by then: what the
 * model takes is not missing from the memory that it is compared with. */
static int add_models(struct doctor_facts *f, const char *typed, struct model_opts *o)
{
    bitnet_model *model = NULL;
    if (f->recorded && !typed) return EXIT_DONE; /* nothing to reckon with */
    o->cache_read_only = true;
    int code = model_open(&model, typed, o, "auto", "auto", "doctor");
    if (code == EXIT_DONE) doctor_add_model(f, model);
    bitnet_model_close(model);
    f->model_given = typed != NULL;
    if (!typed) doctor_add_known_model(f);
    return code;
}

static int show_isa(const struct doctor_facts *f, const struct doctor_config *c)
{
    if (c->json) return term_print_json(doctor_json_kernels(f));
    doctor_print_backends(f);
    doctor_print_kernels(f);
    return EXIT_DONE;
}

/* Exit code 1 with the reasons, if something costs too much. */
static int conclude(const struct doctor_findings *d)
{
    struct bn_buf reasons;
    bn_buf_init(&reasons, 1024);
    for (size_t i = 0; i < d->n; i++)
        if (d->items[i].cost > doctor_serious)
            bn_buf_printf(&reasons, "%s%s (%.0f %%)", reasons.len ? ", " : "", d->items[i].id,
                          d->items[i].cost * 100);
    fflush(stdout); /* the report stands before the reasons */
    int code = reasons.len ? term_fail_text("more than %.0f %% of the speed is lost: %s",
                                            doctor_serious * 100, reasons.data)
                           : EXIT_DONE;
    bn_buf_free(&reasons);
    return code;
}

static int report(struct doctor_facts *f, struct doctor_config *c, const char *typed)
{
    struct doctor_findings *d = calloc(1, sizeof *d);
    if (!d) return term_fail_text("out of memory");
    int code = f->selftest.status == BITNET_OK ? add_models(f, typed, &c->model) : EXIT_DONE;
    if (code == EXIT_DONE) {
        doctor_judge(d, f);
        if (c->json) code = term_print_json(doctor_json(f, d));
        else doctor_print(f, d);
    }
    if (code == EXIT_DONE) code = conclude(d);
    free(d);
    return code;
}

static int run(void *config, const struct arg_words *words)
{
    struct doctor_config *c = config;
    const char *typed;
    bitnet_error err = {0};
    int code = model_word(&typed, c->model.model, c->model.model_typed, words, "doctor");
    if (code == EXIT_DONE && c->isa && (c->root || typed))
        code = term_usage("doctor", "--isa is about this program: no %s with it",
                          c->root ? "--root" : "model");
    if (code == EXIT_DONE && c->root && c->model.cpus)
        code = term_usage("doctor", "--cpus is for this machine, not for --root");
    if (code == EXIT_DONE) code = backend_check(c->model.backend, "doctor");
    if (code == EXIT_DONE) code = model_cpus_apply(c->model.cpus, "doctor");
    if (code != EXIT_DONE) return code;
    const char *illegal = c->root ? NULL : backend_probe(&c->model.backend);
    struct doctor_facts *f = calloc(1, sizeof *f);
    if (!f) return term_fail_text("out of memory");
    struct doctor_wishes wishes = {.root = c->root,
                                   .backend = c->model.backend,
                                   .illegal = illegal,
                                   .threads = c->model.threads,
                                   .cpus_given = c->model.cpus != NULL,
                                   .numa_given = strcmp(c->model.numa, "off") != 0,
                                   .measure = !c->no_measure && !c->isa};
    if (doctor_gather(f, &wishes, &err) != BITNET_OK) code = term_fail(&err);
    else code = c->isa ? show_isa(f, c) : report(f, c, typed);
    free(f);
    return code;
}

const struct command cmd_doctor = {
    .name = "doctor",
    .usage = "[MODEL] [options]",
    .about =
        "\n"
        "Examines CPU, kernels, caches, memory, limits and frequency, measures how fast memory can "
        "be\n"
        "read, and says what costs speed, how that was estimated, and what to do about it. It "
        "never\n"
        "changes the system. With a MODEL it also estimates tokens per second and memory use.\n"
        "\n"
        "Exit code 1: something costs more than 10 %, or it failed; the last line says what.\n"
        "\n"
        "  bitnet doctor\n"
        "  bitnet doctor model.gguf --json\n"
        "  bitnet doctor --isa\n",
    .first = "isa no-measure json model threads",
    .parts = parts,
    .config_bytes = sizeof(struct doctor_config),
    .max_words = 1,
    .run = run,
};
