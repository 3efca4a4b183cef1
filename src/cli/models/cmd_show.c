/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_show.c: `bitnet show`: one model: where it comes from, its size, licence and memory, and what its
 * file says, if it is here.
 */
#include "cli/core/command.h"
#include "cli/models/models.h"
#include "cli/options/hub_places.h"
#include "cli/options/pull_model.h"
#include "hub/catalogue.h"
#include "app/report.h"
#include "app/term.h"
#include <stddef.h>
#include <stdlib.h>

struct show_config {
    bool offline, json;
};

#define AT(field) offsetof(struct show_config, field)
static const struct opt table[] = {
    {.kind = OPT_FLAG,
     .name = "offline",
     .help = "say what is known here, ask nobody",
     .offset = AT(offline)},
    {.kind = OPT_FLAG, .name = "json", .help = "print it as JSON", .offset = AT(json)},
    {.kind = OPT_END},
};
static const struct opt_part parts[] = {{"Report", table, 0}, {NULL, NULL, 0}};
#undef AT

enum { VALUE_BYTES = 512 };

/* A text of the file's metadata; false: it has none. */
static bool meta_text(char out[VALUE_BYTES], const bitnet_file *f, const char *wanted)
{
    for (size_t i = 0; i < bitnet_file_n_meta(f); i++) {
        const char *key, *type;
        size_t n = VALUE_BYTES;
        if (bitnet_file_meta(f, i, &key, &type, out, &n) != BITNET_OK || strcmp(key, wanted) != 0 ||
            strcmp(type, "str") != 0)
            continue;
        struct bn_json *j = NULL;
        bool good = bn_json_try(&j, out, strlen(out), BN_JSON_ANY) && bn_json_is_string(j);
        if (good) snprintf(out, VALUE_BYTES, "%s", bn_json_text(j));
        bn_json_free(j);
        return good;
    }
    return false;
}

/* What the file itself says, as members of j. */
static void add_contents(struct bn_json *j, const char *path)
{
    bitnet_file *f = NULL;
    bitnet_error err = {0};
    bitnet_file_model m = {.size = sizeof m};
    char text[VALUE_BYTES];
    if (bitnet_file_open(&f, path, &err) != BITNET_OK) {
        set_text(j, "cannot_run", err.text);
        return;
    }
    if (bitnet_file_get_model(f, &m, &err) == BITNET_OK) {
        set_text(j, "architecture", m.architecture);
        set_int(j, "layers", m.n_layer);
        set_int(j, "width", m.n_embd);
        set_int(j, "vocabulary", m.n_vocab);
        set_int(j, "context", m.n_ctx_train);
    } else set_text(j, "cannot_run", err.text);
    if (!bn_json_get(j, "licence") && meta_text(text, f, "general.license"))
        set_text(j, "licence", text);
    bitnet_file_close(f);
}

static void print_line(const char *label, const struct bn_json *v)
{
    char size[TERM_SIZE_BYTES];
    if (!v || bn_json_is_null(v)) return;
    printf("%-13s ", label);
    if (bn_json_is_string(v)) term_print_clean(stdout, bn_json_text(v));
    else if (strcmp(label, "size") == 0 || strcmp(label, "memory") == 0)
        printf("%s%s", *label == 'm' ? "about " : "",
               term_size(size, (uint64_t)bn_json_integer(v)));
    else printf("%lld", (long long)bn_json_integer(v));
    putchar('\n');
}

static int print(struct bn_json *j)
{
    static const char *const lines[][2] = {{"name", "name"},
                                           {"repository", "repository"},
                                           {"what", "what"},
                                           {"kind", "kind"},
                                           {"size", "bytes"},
                                           {"files", "files"},
                                           {"licence", "licence"},
                                           {"memory", "memory_bytes"},
                                           {"here", "path"},
                                           {"commit", "commit"},
                                           {"architecture", "architecture"},
                                           {"layers", "layers"},
                                           {"width", "width"},
                                           {"vocabulary", "vocabulary"},
                                           {"context", "context"},
                                           {"cannot run", "cannot_run"}};
    for (size_t i = 0; i < BN_ARRAY_LEN(lines); i++)
        print_line(lines[i][0], bn_json_get(j, lines[i][1]));
    if (!bn_json_get(j, "path")) puts("here          no; 'bitnet pull' downloads it");
    bn_json_free(j);
    return EXIT_DONE;
}

static int show_one(const struct hub_places *p, const struct hub_name *name, bool json)
{
    char text[HUB_TYPED_BYTES];
    struct hub_local l;
    struct pull_plan plan;
    bitnet_error err = {0};
    enum hub_here here = hub_local_find(&l, p, name, &err);
    struct bn_json *j = here == HUB_HERE ? models_local_json(&l) : bn_json_object();
    uint64_t bytes = here == HUB_HERE ? l.bytes : 0;
    hub_name_text(text, name);
    if (here != HUB_HERE) set_text(j, "name", text);
    if (name->kind == HUB_REPO) set_text(j, "repository", name->repo);
    if (name->known) set_text(j, "what", name->known->what);
    if (name->known && *name->known->licence) set_text(j, "licence", name->known->licence);
    if (here != HUB_HERE && p->offline && name->known) bytes = name->known->bytes;
    if (here != HUB_HERE && p->offline && !name->known) {
        bn_json_free(j);
        return term_fail_text("'%s' is not on this machine, and nobody may be asked (--offline or "
                              "HF_HUB_OFFLINE)",
                              text);
    }
    if (here != HUB_HERE && !p->offline) {
        int code = pull_look(&plan, p, name);
        if (code != EXIT_DONE) {
            bn_json_free(j);
            return code;
        }
        bytes = plan.bytes;
        set_int(j, "files", plan.n_files);
        if (*plan.licence) set_text(j, "licence", plan.licence);
    }
    if (bytes) {
        set_int(j, "bytes", bytes);
        set_int(j, "memory_bytes", hub_memory_need(bytes));
    }
    if (here == HUB_HERE) add_contents(j, l.path);
    return json ? term_print_json(j) : print(j);
}

static int run(void *config, const struct arg_words *words)
{
    const struct show_config *c = config;
    struct hub_places *p;
    struct hub_name name;
    bitnet_error err = {0};
    if (words->n != 1) return term_usage("show", "name one model");
    if (hub_name_parse(&name, words->items[0], &err) != BITNET_OK) return term_fail(&err);
    int code = hub_places_new(&p);
    if (code != EXIT_DONE) return code;
    p->offline |= c->offline;
    code = show_one(p, &name, c->json);
    free(p);
    return code;
}

const struct command cmd_show = {
    .name = "show",
    .usage = "NAME [options]",
    .about = "\n"
             "NAME as for 'bitnet pull'. Of a model that is not here the hub is asked. What is "
             "really inside the\n"
             "file of one that is, 'bitnet inspect NAME' counts.\n"
             "\n"
             "  bitnet show bitnet-2b\n"
             "  bitnet show hf:prism-ml/Bonsai-27B-gguf --json\n",
    .parts = parts,
    .config_bytes = sizeof(struct show_config),
    .max_words = 1,
    .run = run,
};
