/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/options/model_source.h"

#include "base/os/file.h"
#include "cli/options/hub_places.h"
#include "cli/options/model_opts.h"
#include "cli/options/pull_model.h"
#include "hub/catalogue.h"
#include "hub/local.h"
#include "app/term.h"
#include <stdlib.h>
#include <unistd.h>

bool model_source_is_name(const char *word)
{
    return !strpbrk(word, " \t\n") && hub_name_likeness(word) == HUB_SURE_NAME;
}

void model_source_hint(char *out, size_t n, const char *word)
{
    const char *near = hub_catalogue_suggest(word);
    if (near)
        snprintf(out, n,
                 "'%s' is no file and no name of a model, so it is read as the beginning of the "
                 "prompt; did you mean '%s'?",
                 word, near);
    else
        snprintf(out, n,
                 "'%s' is no file and no name of a model, so it is read as the beginning of the "
                 "prompt; 'bitnet list --known' shows the names",
                 word);
}

/* ------------------------------------------------------------------ finding */

/* One word without an ending: rather a mistyped name than a file. */
static int no_such_word(const char *word)
{
    const char *near = hub_catalogue_suggest(word);
    if (near)
        return term_fail_text("there is no file and no model named '%s'; did you mean '%s'?", word,
                              near);
    return term_fail_text("there is no file and no model named '%s'; 'bitnet list --known' shows "
                          "names, and hf:ORG/NAME is any repository of the hub",
                          word);
}

/* " (1.19 GB, MIT)" */
static const char *describe(char out[96], const struct hub_name *name)
{
    char size[TERM_SIZE_BYTES];
    const struct hub_model *m = name->known;
    *out = 0;
    if (m && m->bytes)
        snprintf(out, 96, " (%s%s%s)", term_size(size, m->bytes), *m->licence ? ", " : "",
                 m->licence);
    return out;
}

static bool ask(const char *text, const struct hub_name *name, bool partly)
{
    char about[96];
    fprintf(stderr, "%s%s is %son this machine. Download it? [Y/n] ", text, describe(about, name),
            partly ? "only partly " : "not ");
    fflush(stderr);
    int c = getchar(), first = c;
    while (c != '\n' && c != EOF) c = getchar();
    return first == '\n' || first == 'y' || first == 'Y';
}

static int get_it(struct hub_places *p, const struct hub_name *name, struct model_source *from,
                  bool partly, const char *word)
{
    char about[96], text[HUB_TYPED_BYTES];
    struct hub_local got;
    hub_name_text(text, name);
    if (p->offline)
        return term_fail_text("'%s' is %son this machine, and downloads are switched off "
                              "(--offline or HF_HUB_OFFLINE)",
                              word, partly ? "only partly " : "not ");
    bool person = isatty(STDIN_FILENO) && term_is_tty(stderr);
    if (!from->pull && !(person && ask(text, name, partly))) {
        if (person) return EXIT_FAILED;
        bool path = hub_name_likeness(word) == HUB_MAYBE_NAME;
        return term_fail_text("%s'%s' is %son this machine; 'bitnet pull %s' downloads it%s",
                              path ? "there is no such file, and the model " : "", word,
                              partly ? "only partly " : "not ", word, describe(about, name));
    }
    int code = pull_model(&got, p, name, false);
    if (code == EXIT_DONE) snprintf(from->path, sizeof from->path, "%s", got.path);
    return code;
}

int model_find(const char **typed, struct model_source *from, const char *command)
{
    const char *word = *typed;
    struct hub_places *p;
    struct hub_name name;
    struct hub_local local;
    bitnet_error err = {0};
    (void)command;
    if (!model_path_resolve(word) || bn_exists(word)) return EXIT_DONE;
    if (hub_name_likeness(word) == HUB_NO_NAME)
        return strpbrk(word, "/.\\ \t\n") ? EXIT_DONE : no_such_word(word);
    if (hub_name_parse(&name, word, &err) != BITNET_OK) return term_fail(&err);
    int code = hub_places_new(&p);
    if (code != EXIT_DONE) return code;
    p->offline |= from->offline;
    enum hub_here here = hub_local_find(&local, p, &name, &err);
    if (here == HUB_HERE) snprintf(from->path, sizeof from->path, "%s", local.path);
    else code = get_it(p, &name, from, here == HUB_PARTLY_HERE, word);
    free(p);
    if (code == EXIT_DONE) *typed = from->path;
    return code;
}
