/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_list.c: `bitnet list`: the models that are on this machine, and those that have a short name.
 */
#include "cli/core/command.h"
#include "cli/models/models.h"
#include "cli/options/hub_places.h"
#include "cli/options/model_opts.h"
#include "hub/catalogue.h"
#include "app/autotune_file.h"
#include "app/term.h"
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

struct list_config {
    bool known, json;
};

#define AT(field) offsetof(struct list_config, field)
static const struct opt table[] = {
    {.kind = OPT_FLAG,
     .name = "known",
     .help = "the short names that 'bitnet pull' knows, and what they stand for",
     .offset = AT(known)},
    {.kind = OPT_FLAG, .name = "json", .help = "print the list as JSON", .offset = AT(json)},
    {.kind = OPT_END},
};
static const struct opt_part parts[] = {{"List", table, 0}, {NULL, NULL, 0}};
#undef AT

struct bn_json *models_local_json(const struct hub_local *l)
{
    struct bn_json *j = bn_json_pack("{s:o, s:o, s:s, s:s, s:I, s:I, s:I}", "name",
                                     term_json_string(l->name, strlen(l->name)), "path",
                                     term_json_string(l->path, strlen(l->path)), "kind", l->kind,
                                     "where", l->where, "files", (int64_t)l->n_files, "bytes",
                                     (int64_t)l->bytes, "modified", (int64_t)l->modified_s);
    if (*l->revision)
        bn_json_set(j, "revision", term_json_string(l->revision, strlen(l->revision)));
    if (*l->commit) bn_json_set(j, "commit", bn_json_string(l->commit));
    double rate = autotune_file_decode_rate(l->path);
    if (rate > 0) bn_json_set(j, "decode_tok_s", bn_json_real(rate));
    return j;
}

/* ------------------------------------------------------------------ short names */

static int list_known(const struct list_config *c)
{
    char size[TERM_SIZE_BYTES];
    const struct hub_model *m;
    struct bn_json *all = c->json ? bn_json_array() : NULL;
    for (size_t i = 0; (m = hub_catalogue_at(i)); i++) {
        if (c->json) {
            bn_json_append(
                all,
                bn_json_pack(
                    "{s:s, s:s, s:s, s:o, s:o, s:o, s:s}", "name", m->name, "repository", m->repo,
                    "pick", m->pick, "bytes",
                    m->bytes ? bn_json_int((int64_t)m->bytes) : bn_json_null(), "memory_bytes",
                    m->bytes ? bn_json_int((int64_t)hub_memory_need(m->bytes)) : bn_json_null(),
                    "licence", *m->licence ? bn_json_string(m->licence) : bn_json_null(), "what",
                    m->what));
            continue;
        }
        printf("%-19s %9s  %s\n", m->name, m->bytes ? term_size(size, m->bytes) : "", m->what);
    }
    if (c->json) return term_print_json(all);
    puts("\n'bitnet show NAME' asks the hub for size and licence, 'bitnet pull NAME' downloads.");
    return EXIT_DONE;
}

/* ------------------------------------------------------------------ what is here */

struct listing {
    const struct list_config *c;
    struct bn_json *models;
    uint64_t bytes;
    size_t n;
};

static bool see_model(void *user, const struct hub_local *l)
{
    struct listing *x = user;
    char size[TERM_SIZE_BYTES], day[32] = "", speed[16] = "";
    time_t t = (time_t)l->modified_s;
    struct tm tm;
    if (localtime_r(&t, &tm)) strftime(day, sizeof day, "%Y-%m-%d", &tm);
    x->n++;
    x->bytes += l->bytes;
    if (x->c->json) return bn_json_append(x->models, models_local_json(l));
    double rate = autotune_file_decode_rate(l->path);
    if (rate > 0) snprintf(speed, sizeof speed, "%.4g", rate);
    if (x->n == 1)
        printf("%-9s %-11s %-6s %-10s %7s  %s\n", "SIZE", "KIND", "FROM", "DATE", "TOK/S", "NAME");
    printf("%-9s %-11s %-6s %-10s %7s  ", term_size(size, l->bytes), l->kind, l->where, day, speed);
    term_print_clean(stdout, l->name);
    putchar('\n');
    return true;
}

struct packed {
    uint64_t bytes;
    size_t n;
};

static int see_packed(void *user, const bitnet_cache_entry *e)
{
    struct packed *k = user;
    k->n++;
    k->bytes += e->bytes;
    return 0;
}

static int list_here(const struct list_config *c)
{
    struct hub_places *p;
    struct listing x = {.c = c, .models = c->json ? bn_json_array() : NULL};
    struct packed k = {0};
    char folder[CACHE_PATH_BYTES], size[TERM_SIZE_BYTES];
    int code = hub_places_new(&p);
    if (code != EXIT_DONE) return code;
    hub_local_each(p, see_model, &x);
    if (cache_folder(folder, "auto")) bitnet_cache_list(folder, see_packed, &k, NULL);
    struct bn_json *cache = term_json_string(p->cache, strlen(p->cache)),
                   *store = term_json_string(p->ollama, strlen(p->ollama));
    free(p);
    if (c->json)
        return term_print_json(bn_json_pack("{s:o, s:I, s:o, s:o, s:{s:I, s:I}}", "models",
                                            x.models, "bytes", (int64_t)x.bytes, "hub_cache", cache,
                                            "ollama_store", store, "packed", "n", (int64_t)k.n,
                                            "bytes", (int64_t)k.bytes));
    bn_json_free(cache);
    bn_json_free(store);
    if (!x.n)
        puts(
            "No models here beside the one inside this program. 'bitnet list --known' shows short\n"
            "names, 'bitnet pull NAME' downloads.");
    if (k.n)
        printf("\n%zu packed cop%s for a fast start, %s ('bitnet cache')\n", k.n,
               k.n == 1 ? "y" : "ies", term_size(size, k.bytes));
    return EXIT_DONE;
}

static int run(void *config, const struct arg_words *words)
{
    const struct list_config *c = config;
    (void)words;
    return c->known ? list_known(c) : list_here(c);
}

const struct command cmd_list = {
    .name = "list",
    .usage = "[options]",
    .about = "\n"
             "Lists the models in the hub's cache, in an Ollama store, and files that were "
             "downloaded by URL,\n"
             "whoever downloaded them. The name is what other commands take. TOK/S is what 'bench "
             "--autotune'\n"
             "measured here.\n"
             "\n"
             "  bitnet list\n"
             "  bitnet list --known\n",
    .parts = parts,
    .config_bytes = sizeof(struct list_config),
    .max_words = 0,
    .run = run,
};
