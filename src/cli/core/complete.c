/* SPDX-License-Identifier: Apache-2.0
 *
 * complete.c: candidates from the list of commands and their option tables, so that completion never
 * knows less than --help.
 */
#include "cli/core/complete.h"
#include "cli/core/registry.h"

struct completion {
    FILE *to;
    const char *typed; /* candidates begin with it */
    size_t typed_bytes;
    const char *before; /* what stands before every candidate: "--name=" */
    int before_bytes;
    const char *beside; /* the last line */
    complete_names_fn *names;
};

/* A candidate of n bytes; of its meaning the first sentence, or what stands before a colon or semicolon. */
static void offer(const struct completion *c, const char *word, size_t n, const char *meaning)
{
    if (n < c->typed_bytes || memcmp(word, c->typed, c->typed_bytes) != 0) return;
    fprintf(c->to, "%.*s%.*s", c->before_bytes, c->before, (int)n, word);
    if (meaning) fprintf(c->to, "\t%.*s", (int)strcspn(meaning, ";:"), meaning);
    fputc('\n', c->to);
}

static void offer_name(void *to, const char *name, const char *meaning)
{
    offer(to, name, strlen(name), meaning);
}

static void offer_list(const struct completion *c, const char *list)
{
    while (list && *list) {
        size_t n = strcspn(list, "|");
        offer(c, list, n, NULL);
        list += n + (list[n] == '|');
    }
}

static void offer_commands(struct completion *c)
{
    const struct entry *e;
    for (size_t i = 0; (e = registry_at(i)); i++)
        if (e->command) offer(c, e->name, strlen(e->name), e->summary);
    offer(c, "help", 4, "show the options of a command");
}

static void offer_options(const struct completion *c, const struct opt_part *parts)
{
    char name[80];
    for (; parts->table; parts++)
        for (const struct opt *o = parts->table; o->kind != OPT_END; o++)
            offer(c, name, (size_t)snprintf(name, sizeof name, "--%s", o->name), o->help);
    for (const struct opt *o = args_common; o->kind != OPT_END; o++)
        offer(c, name, (size_t)snprintf(name, sizeof name, "--%s", o->name), o->help);
    offer(c, "--help", 6, "show the options that people use first");
    offer(c, "--help-all", 10, "show all options");
}

static bool is_word(const char *form, const char *list)
{
    size_t n = strlen(form);
    for (const char *p = list; *p;) {
        size_t len = strcspn(p, " ");
        if (len == n && memcmp(p, form, n) == 0) return true;
        p += len + (p[len] == ' ');
    }
    return false;
}

/* Lower-case words between bars, as auto|thp|2m: the values themselves. */
static bool is_choice_form(const char *form)
{
    return strchr(form, '|') && form[strspn(form, "abcdefghijklmnopqrstuvwxyz0123456789_|")] == 0;
}

static void offer_values(struct completion *c, const struct opt *o)
{
    const char *form = args_form(o), *name;
    if (o->kind == OPT_CHOICE || is_choice_form(form)) offer_list(c, form);
    else if (strcmp(o->name, "model") == 0) {
        c->names(false, offer_name, c);
        c->beside = ":models";
    } else if (is_word(form, "FILE PATH OUT NAME|FILE|TEXT LIST|@FILE")) c->beside = ":files";
    else if (strcmp(form, "DIR") == 0) c->beside = ":dirs";
    if (strcmp(o->name, "backend") != 0) return;
    offer(c, "auto", 4, NULL);
    for (size_t i = 0; (name = bitnet_backend_name(i, NULL)); i++)
        offer(c, name, strlen(name), NULL);
}

/* Does the command take a model or its file at that place among the words? */
static bool takes_model(const struct command *cmd, size_t place)
{
    if (place > 0) return strstr(cmd->usage, "OLD NEW") || strstr(cmd->usage, "kl A");
    return strstr(cmd->usage, "MODEL") || strncmp(cmd->usage, "IN ", 3) == 0;
}

static void offer_words(struct completion *c, const struct command *cmd, size_t place)
{
    if (place == 0) offer_list(c, cmd->first_word);
    if (place >= cmd->max_words) return;
    if (takes_model(cmd, place)) {
        offer(c, "embedded", 8, "the model inside this program");
        c->names(false, offer_name, c);
        c->beside = ":models";
    } else if (strncmp(cmd->usage, "NAME", 4) == 0) {
        c->names(strcmp(cmd->name, "rm") != 0, offer_name, c);
    } else if (place > 0) {
        c->beside = ":files";
    }
}

/* An option that wants a value which is not attached to it. */
static const struct opt *wants_value(const struct command *cmd, const char *word)
{
    const struct opt *o = strchr(word, '=') ? NULL : args_find(cmd->parts, word);
    return o && o->kind != OPT_FLAG ? o : NULL;
}

/* How many words before the last one are neither options nor their values; *open: the option that the
 * last one is a value of. */
static size_t count_words(const struct opt **open, const struct command *cmd, char **words,
                          size_t n)
{
    size_t place = 0;
    *open = NULL;
    for (size_t i = 0; i + 1 < n; i++) {
        const struct opt *before = *open;
        *open = NULL;
        if (strcmp(words[i], "=") == 0) *open = before ? before : wants_value(cmd, words[i - 1]);
        else if (!before && words[i][0] == '-' && words[i][1]) *open = wants_value(cmd, words[i]);
        else if (!before) place++;
    }
    return place;
}

static void complete_command(struct completion *c, const struct command *cmd, char **words,
                             size_t n)
{
    char *last = words[n - 1];
    const struct opt *open;
    size_t place = count_words(&open, cmd, words, n);
    const char *equals = strchr(last, '=');
    if (open) {
        if (strcmp(last, "=") == 0) c->typed_bytes = 0; /* some shells part --name=value so */
        offer_values(c, open);
    } else if (last[0] == '-' && equals) {
        const struct opt *o = args_find(cmd->parts, last);
        c->before = last;
        c->before_bytes = (int)(equals + 1 - last);
        c->typed = equals + 1;
        c->typed_bytes = strlen(c->typed);
        if (o && o->kind != OPT_FLAG) offer_values(c, o);
    } else if (last[0] == '-') {
        offer_options(c, cmd->parts);
    } else {
        offer_words(c, cmd, place);
    }
}

void complete_print(FILE *to, char **words, size_t n, complete_names_fn *names)
{
    struct completion c = {.to = to, .typed = "", .before = "", .beside = ":none", .names = names};
    if (n) {
        c.typed = words[n - 1];
        c.typed_bytes = strlen(c.typed);
    }
    const struct entry *e = n > 1 ? registry_find(words[0]) : NULL;
    if (n <= 1 || (n == 2 && strcmp(words[0], "help") == 0)) offer_commands(&c);
    else if (e && e->command) complete_command(&c, e->command, words + 1, n - 1);
    fprintf(to, "%s\n", c.beside);
}
