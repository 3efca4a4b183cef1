/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_rm.c: `bitnet rm`: takes downloaded models off this machine.
 */
#include "cli/core/command.h"
#include "cli/options/hub_places.h"
#include "hub/cache.h"
#include "hub/local.h"
#include "app/term.h"
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

struct rm_config {
    bool yes, dry_run;
};

#define AT(field) offsetof(struct rm_config, field)
static const struct opt table[] = {
    {.kind = OPT_FLAG, .letter = 'y', .name = "yes", .help = "do not ask", .offset = AT(yes)},
    {.kind = OPT_FLAG,
     .letter = 'n',
     .name = "dry-run",
     .help = "only say what would be removed",
     .offset = AT(dry_run)},
    {.kind = OPT_END},
};
static const struct opt_part parts[] = {{"Removal", table, 0}, {NULL, NULL, 0}};
#undef AT

static bool ask(const char *name, const char *size, size_t n_files)
{
    fprintf(stderr, "Remove %s (%zu file%s, %s freed)? [y/N] ", name, n_files,
            n_files == 1 ? "" : "s", size);
    fflush(stderr);
    int first = getchar(), c = first;
    while (c != '\n' && c != EOF) c = getchar();
    return first == 'y' || first == 'Y';
}

/* A file by URL: it and nothing else. */
static bitnet_status remove_url(struct hub_removal *out, const struct hub_places *p,
                                const struct hub_name *name, bool try, bitnet_error *err)
{
    struct hub_local l;
    if (hub_local_find(&l, p, name, NULL) != HUB_HERE)
        return bn_fail(err, BITNET_E_ARG, "'%.300s' was not downloaded to this machine", name->url);
    *out = (struct hub_removal){1, l.bytes};
    if (!try && unlink(l.path) != 0)
        return bn_fail(err, BITNET_E_IO, "cannot remove '%.300s': %s", l.path, strerror(errno));
    return BITNET_OK;
}

static bitnet_status take_away(struct hub_removal *out, const struct hub_places *p,
                               const struct hub_name *name, bool try, bitnet_error *err)
{
    return name->kind == HUB_URL ? remove_url(out, p, name, try, err)
                                 : hub_cache_remove(out, p, name, try, err);
}

static int remove_one(const struct hub_places *p, const char *typed, const struct rm_config *c)
{
    struct hub_name name;
    struct hub_removal r;
    bitnet_error err = {0};
    char text[HUB_TYPED_BYTES], size[TERM_SIZE_BYTES];
    if (hub_name_parse(&name, typed, &err) != BITNET_OK) return term_fail(&err);
    hub_name_text(text, &name);
    if (name.kind == HUB_OLLAMA)
        return term_fail_text(
            "'%s' is in Ollama's store, which shares layers among models; 'ollama "
            "rm %s' removes it",
            text, text + strlen("ollama:"));
    if (take_away(&r, p, &name, true, &err) != BITNET_OK) return term_fail(&err);
    term_size(size, r.bytes);
    if (c->dry_run) {
        printf("%s: %zu file%s, %s\n", text, r.n_files, r.n_files == 1 ? "" : "s", size);
        return EXIT_DONE;
    }
    bool person = isatty(STDIN_FILENO) && term_is_tty(stderr);
    if (!c->yes && !person)
        return term_fail_text("'%s' stays: nobody is there to say yes; --yes removes it", text);
    if (!c->yes && !ask(text, size, r.n_files)) return EXIT_FAILED;
    if (take_away(&r, p, &name, false, &err) != BITNET_OK) return term_fail(&err);
    printf("%s removed, %s freed\n", text, size);
    return EXIT_DONE;
}

static int run(void *config, const struct arg_words *words)
{
    const struct rm_config *c = config;
    struct hub_places *p;
    if (!words->n)
        return term_usage("rm", "name what is to be removed; 'bitnet list' shows what is here");
    int code = hub_places_new(&p);
    for (size_t i = 0; i < words->n && code == EXIT_DONE; i++)
        code = remove_one(p, words->items[i], c);
    free(p);
    return code;
}

const struct command cmd_rm = {
    .name = "rm",
    .usage = "NAME... [options]",
    .about = "\n"
             "NAME as for 'bitnet pull': ORG/NAME removes all of a repository, ORG/NAME@REVISION "
             "one state of it,\n"
             "hf:ORG/NAME/FILE one file. What other revisions share stays. Asks first.\n"
             "\n"
             "  bitnet rm bitnet-2b\n"
             "  bitnet rm hf:microsoft/bitnet-b1.58-2B-4T-gguf --yes\n",
    .parts = parts,
    .config_bytes = sizeof(struct rm_config),
    .max_words = 64,
    .run = run,
};
