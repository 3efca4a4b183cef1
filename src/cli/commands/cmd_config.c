/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_config.c: `bitnet config`: where options have their values from, which file is read, and whether
 * it is right.
 */
#include "cli/core/registry.h"
#include "cli/core/settings.h"
#include "app/term.h"
#include <stdlib.h>

struct config_config {
    bool json;
};

enum { SHOWN_COMMANDS = 4 }; /* more are a number */

static const struct opt table[] = {{.kind = OPT_FLAG,
                                    .name = "json",
                                    .help = "print as JSON",
                                    .offset = offsetof(struct config_config, json)},
                                   {.kind = OPT_END}};
static const struct opt_part parts[] = {{"Output", table, 0}, {NULL, NULL, 0}};

/* ------------------------------------------------------------------ rows */

/* An option as it stands for one command, or for several alike. */
struct row {
    struct row *next;
    const struct opt *opt;
    struct settings_origin origin;
    struct bn_json *value;    /* owned */
    struct bn_json *commands; /* names; owned */
};

struct rows {
    struct row *head, **end;
    bool failed; /* memory is out */
};

static void rows_free(struct rows *r)
{
    for (struct row *next; r->head; r->head = next) {
        next = r->head->next;
        bn_json_free(r->head->value);
        bn_json_free(r->head->commands);
        free(r->head);
    }
}

static bool same_origin(const struct settings_origin *a, const struct settings_origin *b)
{
    return a->from == b->from && a->line == b->line && a->section == b->section &&
           (a->variable == b->variable ||
            (a->variable && b->variable && strcmp(a->variable, b->variable) == 0));
}

static struct row *find_row(const struct rows *rows, const struct opt *o,
                            const struct settings_origin *origin, const struct bn_json *value)
{
    for (struct row *r = rows->head; r; r = r->next)
        if (strcmp(r->opt->name, o->name) == 0 && same_origin(&r->origin, origin) &&
            bn_json_equal(r->value, value))
            return r;
    return NULL;
}

/* Takes value. */
static void add_row(struct rows *rows, const char *command, const struct opt *o,
                    const struct settings_origin *origin, struct bn_json *value)
{
    struct row *r = find_row(rows, o, origin, value);
    if (r) {
        bn_json_free(value);
    } else if ((r = calloc(1, sizeof *r))) {
        *r = (struct row){NULL, o, *origin, value, bn_json_array()};
        *rows->end = r;
        rows->end = &r->next;
    } else {
        bn_json_free(value);
        rows->failed = true;
        return;
    }
    bn_json_append(r->commands, bn_json_string(command));
}

static size_t n_options(const struct opt_part *p)
{
    size_t n = 0;
    for (; p->table; p++)
        for (const struct opt *o = p->table; o->kind != OPT_END; o++) n++;
    return n;
}

/* changed: only what is not the default. */
static bitnet_status collect(struct rows *rows, struct settings *s, const struct command *c,
                             bool changed, bitnet_error *err)
{
    char *config = calloc(1, c->config_bytes + 1);
    struct settings_origin *from = calloc(n_options(c->parts) + 1, sizeof *from);
    bitnet_status status = config && from ? args_defaults(config, c->parts, err)
                                          : bn_fail_nomem(err, c->config_bytes, "the options");
    if (status == BITNET_OK) status = settings_apply(s, config, c, from, err);
    size_t i = 0;
    for (const struct opt_part *p = c->parts; status == BITNET_OK && p->table; p++)
        for (const struct opt *o = p->table; o->kind != OPT_END; o++, i++)
            if (!changed || from[i].from != FROM_DEFAULT)
                add_row(rows, c->name, o, &from[i],
                        settings_value(o, config + p->offset + o->offset));
    free(from);
    free(config);
    return status;
}

/* ------------------------------------------------------------------ shown */

static void print_origin(const struct settings *s, const struct settings_origin *o)
{
    if (o->from == FROM_DEFAULT) fputs("default", stdout);
    else if (o->from == FROM_ENVIRONMENT) fputs(o->variable, stdout);
    else {
        term_print_clean(stdout, s->path);
        if (o->line) printf(":%u", o->line);
        printf(" [%s]", o->section);
    }
}

static void print_value(const struct row *r)
{
    const struct opt *o = r->opt;
    /* where nothing was said, the help knows better than the member */
    if (r->origin.from == FROM_DEFAULT && o->shown && *o->shown) {
        printf("%-24s ", o->shown);
        return;
    }
    char *text = bn_json_is_string(r->value) ? NULL : bn_json_dump(r->value, 0);
    bool nothing =
        bn_json_is_null(r->value) || (bn_json_is_array(r->value) && !bn_json_size(r->value));
    const char *shown = nothing ? "-" : text ? text : bn_json_text(r->value);
    struct bn_buf clean;
    bn_buf_init(&clean, 1 << 20);
    if (shown) term_clean(&clean, shown, strlen(shown), false);
    printf("%-24s ", clean.data ? clean.data : "");
    bn_buf_free(&clean);
    free(text);
}

static void print_table(const struct settings *s, const struct rows *rows, bool with_commands)
{
    const char *dim = term_style(stdout, TERM_DIM), *plain = term_style(stdout, TERM_PLAIN);
    for (const struct row *r = rows->head; r; r = r->next) {
        bool set = r->origin.from != FROM_DEFAULT;
        printf("%-22s ", r->opt->name);
        print_value(r);
        fputs(set ? "" : dim, stdout);
        print_origin(s, &r->origin);
        fputs(set ? "" : plain, stdout);
        const struct bn_json *name;
        size_t i;
        if (with_commands) {
            fputs(" ->", stdout);
            bn_json_each(r->commands, i, name) printf(" %s", bn_json_text(name));
        }
        fputc('\n', stdout);
    }
}

static struct bn_json *row_json(const struct row *r)
{
    static const char *const names[] = {"default", "file", "environment"};
    const struct settings_origin *o = &r->origin;
    struct bn_json *j = bn_json_pack("{s:s, s:O, s:s, s:O}", "name", r->opt->name, "value",
                                     r->value, "origin", names[o->from], "commands", r->commands);
    if (o->section) bn_json_set(j, "section", bn_json_string(o->section));
    if (o->line) bn_json_set(j, "line", bn_json_int(o->line));
    if (o->variable) bn_json_set(j, "variable", bn_json_string(o->variable));
    if (r->opt->kind != OPT_FLAG) bn_json_set(j, "form", bn_json_string(args_form(r->opt)));
    if (r->opt->own) bn_json_set(j, "own", bn_json_bool(true));
    return j;
}

static int print_json(const struct settings *s, const struct rows *rows)
{
    struct bn_json *list = bn_json_array();
    for (const struct row *r = rows->head; r; r = r->next) bn_json_append(list, row_json(r));
    return term_print_json(
        bn_json_pack("{s:o, s:b, s:o}", "path",
                     *s->path ? term_json_string(s->path, strlen(s->path)) : bn_json_null(), "read",
                     s->there, "options", list));
}

static int print_rows(const struct settings *s, const struct rows *rows, bool json,
                      bool with_commands)
{
    if (json) return print_json(s, rows);
    if (*s->path) {
        term_print_clean(stdout, s->path);
        puts(s->there ? "" : " (not there)");
    }
    if (!rows->head) puts("nothing is set; 'bitnet config show COMMAND' shows the defaults");
    print_table(s, rows, with_commands);
    return EXIT_DONE;
}

static int refuse(const bitnet_error *err)
{
    return err->status == BITNET_E_NOMEM ? term_fail(err) : term_usage("config", "%s", err->text);
}

static int show(struct settings *s, const char *name, bool json)
{
    const struct entry *e = name ? registry_find(name) : NULL;
    if (name && (!e || !e->command))
        return term_usage("config", "there is no command '%s' to show", name);
    struct rows rows = {.head = NULL};
    rows.end = &rows.head;
    bitnet_error err = {0};
    bitnet_status status = BITNET_OK;
    if (e) status = collect(&rows, s, e->command, false, &err);
    for (size_t i = 0; !e && status == BITNET_OK; i++) {
        const struct entry *one = registry_at(i);
        if (!one) break;
        if (one->command) status = collect(&rows, s, one->command, true, &err);
    }
    if (status == BITNET_OK && rows.failed) status = bn_fail_nomem(&err, 0, "the options");
    int code = status == BITNET_OK ? print_rows(s, &rows, json, e == NULL) : refuse(&err);
    rows_free(&rows);
    return code;
}

/* ------------------------------------------------------------------ check, path */

struct told {
    struct bn_json *list; /* NULL: printed at once */
};

static void tell(void *user, const char *sentence)
{
    struct told *t = user;
    if (t->list) bn_json_append(t->list, term_json_string(sentence, strlen(sentence)));
    else {
        term_print_clean(stdout, sentence);
        putchar('\n');
    }
}

/* A file that cannot be taken apart has one mistake, the first. */
static int check(struct settings *s, const bitnet_error *unread, bool json)
{
    struct told told = {json ? bn_json_array() : NULL};
    if (unread->status != BITNET_OK) tell(&told, unread->text);
    size_t n = settings_check(s, tell, &told) + (unread->status != BITNET_OK);
    if (json) {
        int code = term_print_json(
            bn_json_pack("{s:o, s:b, s:o}", "path",
                         *s->path ? term_json_string(s->path, strlen(s->path)) : bn_json_null(),
                         "read", s->there, "mistakes", told.list));
        return code == EXIT_DONE && n ? EXIT_FAILED : code;
    }
    if (n) return EXIT_FAILED;
    term_print_clean(stdout, *s->path ? s->path : "no file");
    puts(s->there ? ": no mistakes, nor in the environment"
                  : " is not there; no mistakes in the environment");
    return EXIT_DONE;
}

/* Where the user's own file would be is printed even if it is not there. */
static int print_path(const struct settings *s, bool json)
{
    if (json)
        return term_print_json(
            bn_json_pack("{s:o, s:b}", "path",
                         *s->path ? term_json_string(s->path, strlen(s->path)) : bn_json_null(),
                         "exists", s->there));
    if (!*s->path) return term_fail_text("no settings file is read");
    puts(s->path);
    return EXIT_DONE;
}

static int run(void *config, const struct arg_words *words)
{
    const struct config_config *c = config;
    const char *action = words->n ? words->items[0] : "show",
               *what = words->n > 1 ? words->items[1] : NULL;
    bool showing = strcmp(action, "show") == 0, checking = strcmp(action, "check") == 0,
         path = strcmp(action, "path") == 0;
    if (!showing && !checking && !path)
        return term_usage("config", "'%s' is none of show, path and check", action);
    if (path && what) return term_usage("config", "'%s' is one argument too many", what);
    /* main has let --config through without a look at the file */
    char *argv[] = {"--config", checking && what ? (char *)what : (char *)words->config};
    size_t argc = argv[1] ? 2 : 0;
    struct settings s = {.n = 0};
    bitnet_error err = {0};
    bitnet_status status =
        path ? settings_find(&s, argv, argc, &err) : settings_open(&s, argv, argc, &err);
    int code;
    if (checking && status != BITNET_E_NOMEM) code = check(&s, &err, c->json);
    else if (status != BITNET_OK) code = refuse(&err);
    else code = path ? print_path(&s, c->json) : show(&s, what, c->json);
    settings_free(&s);
    return code;
}

const struct command cmd_config = {
    .name = "config",
    .usage = "[show [COMMAND] | path | check [FILE]] [options]",
    .about =
        "\n"
        "Options that are not to be typed each time stand in a file, bitnet/config.toml in\n"
        "$XDG_CONFIG_HOME or ~/.config, under their long names:\n"
        "\n"
        "  [all]                       # every command that has the option\n"
        "  threads = 4\n"
        "  model = \"/srv/models/bitnet-2b.gguf\"\n"
        "\n"
        "  [chat]                      # this command; counts more than [all]\n"
        "  temp = 0.6\n"
        "  system = \"You answer in one sentence.\"\n"
        "\n"
        "or in the environment: BITNET_TEMP=0.6, for one command BITNET_CHAT_TEMP=0.6. The "
        "command\n"
        "line counts more than the environment, this more than the file, this more than the "
        "default.\n"
        "Lists add up. Flags are true or false; --flag=false takes one back. Another file is "
        "named\n"
        "by --config FILE or BITNET_CONFIG; 'off' is none; it may also be JSON.\n"
        "\n"
        "'show' lists what is set, and where; with a COMMAND, all its options. 'path' names the\n"
        "file. 'check' says what is wrong with it and with the environment.\n"
        "\n"
        "  bitnet config show run\n"
        "  BITNET_TEMP=0 bitnet config show\n"
        "  bitnet config check\n",
    .first_word = "show|path|check",
    .parts = parts,
    .config_bytes = sizeof(struct config_config),
    .max_words = 2,
    .no_settings = true,
    .run = run,
};
