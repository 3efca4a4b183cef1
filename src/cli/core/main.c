/* SPDX-License-Identifier: Apache-2.0
 *
 * main.c: finds the command, by the name the program was started under or by the first argument,
 * hands it its options and returns its exit code. Knows no command but through commands.def.
 */
#include "base/suggest.h"
#include "cli/core/man.h"
#include "app/interrupt.h"
#include "cli/core/settings.h"
#include "cli/ranks/ranks.h"
#include "app/term.h"
#include <ctype.h>
#include <fcntl.h>
#include <locale.h>
#include <stdlib.h>

static const struct program {
    const char *file_name, *command;
} programs[] = {
#define PROGRAM(file_name, command) {file_name, command},
#include "cli/core/commands.def"
};

static void print_refused(FILE *to, const char *title, bool planned)
{
    bool any = false;
    const struct entry *e;
    for (size_t i = 0; (e = registry_at(i)); i++) {
        if (e->command || e->planned != planned) continue;
        fprintf(to, "%s%s", any ? " " : title, e->name);
        any = true;
    }
    if (any) fputc('\n', to);
}

static void print_overview(FILE *to)
{
    fprintf(to,
            "usage: bitnet COMMAND [MODEL] [options]\n\n"
            "Runs 1-bit and 1.58-bit language models on CPUs. MODEL is a GGUF file, a safetensors "
            "file,\n"
            "a Hugging Face folder or a name ('bitnet list --known'); without one, the small model "
            "inside\n"
            "this program is used:\n\n"
            "  bitnet run \"Once upon a time\"\n\n"
            "Commands:\n");
    const struct entry *e;
    for (size_t i = 0; (e = registry_at(i)); i++)
        if (e->command) fprintf(to, "  %-12s %s\n", e->name, e->summary);
    fprintf(to, "  %-12s %s\n", "help", "show this text, or the options of a command");
    print_refused(to, "\nnot in this minimal build: ", false);
    print_refused(to, "\nplanned: ", true);
    fprintf(
        to,
        "\nEnvironment:\n%s\nExit codes: %s\n"
        "'bitnet COMMAND --help' shows the options people use first, 'bitnet help COMMAND' all of\n"
        "them; 'bitnet help --man [COMMAND]' is the man page.\n",
        registry_environment, registry_exit_codes);
}

static int help_command(const struct entry *e, enum args_help which)
{
    const struct command *c = e->command;
    printf("usage: bitnet %s %s\n\n%c%s.\n%s", c->name, c->usage, toupper(e->summary[0]),
           e->summary + 1, c->about);
    args_print_help(stdout, c->parts, which == HELP_ALL ? NULL : c->first,
                    term_is_tty(stdout) ? term_width(stdout) : 100);
    return term_finish(EXIT_DONE);
}

static int unknown_command(const char *name)
{
    struct bn_suggest s;
    bn_suggest_start(&s, name);
    bn_suggest_offer(&s, "help");
    const struct entry *e;
    for (size_t i = 0; (e = registry_at(i)); i++)
        if (e->command) bn_suggest_offer(&s, e->name);
    if (s.best) return term_usage("", "unknown command '%s'; did you mean '%s'?", name, s.best);
    return term_usage("", "unknown command '%s'", name);
}

static int refuse(const struct entry *e)
{
    return term_usage("", "the command '%s' (%s) is not in this %s", e->name, e->summary,
                      e->planned ? "version" : "minimal build");
}

static int print_man(const char *name)
{
    const struct entry *e = name ? registry_find(name) : NULL;
    if (name && !e) return unknown_command(name);
    if (e && !e->command) return refuse(e);
    if (!man_print(stdout, e)) return term_fail_text("out of memory");
    return term_finish(EXIT_DONE);
}

/* help [--man] [COMMAND] */
static int help(char **argv, size_t argc)
{
    if (argc && strcmp(argv[0], "--man") == 0) return print_man(argc > 1 ? argv[1] : NULL);
    if (argc == 0 || strcmp(argv[0], "help") == 0) {
        print_overview(stdout);
        return term_finish(EXIT_DONE);
    }
    const struct entry *e = registry_find(argv[0]);
    if (!e) return unknown_command(argv[0]);
    return e->command ? help_command(e, HELP_ALL) : refuse(e);
}

/* What the user has said for an option that takes a text; NULL: nothing, or there is no such option. */
static const char *text_of(const struct command *c, const void *config, const char *option)
{
    for (const struct opt_part *p = c->parts; p->table; p++)
        for (const struct opt *o = p->table; o->kind != OPT_END; o++) {
            const char *text;
            if (!o->name || strcmp(o->name, option) != 0) continue;
            memcpy(&text, (const char *)config + p->offset + o->offset, sizeof text);
            return text;
        }
    return NULL;
}

/* Started by mpirun, rank 0 runs the command and the others follow; otherwise it just runs. */
static int run_on_ranks(const struct command *c, void *config, const struct arg_words *words)
{
    const char *shard = text_of(c, config, "shard"); /* each answers its own part of a batch */
    if (ranks_started() == 1 || shard) return c->run(config, words);
    if (!c->ranks && ranks_number()) return EXIT_USAGE;
    if (!c->ranks)
        return term_usage(c->name, "'%s' is not for several ranks; start it without mpirun",
                          c->name);
    if (!ranks_open(text_of(c, config, "split"), text_of(c, config, "split-outputs")))
        return EXIT_FAILED;
    return ranks_close(ranks_here()->rank ? ranks_follow() : c->run(config, words));
}

/* What settings say, then the command line. A mistake in settings does not keep anybody from the help. */
static bitnet_status read_options(struct settings *settings, void *config, const struct command *c,
                                  struct arg_words *words, enum args_help *help, bitnet_error *err)
{
    struct arg_words all = *words;
    bitnet_error wrong = {0};
    bitnet_status s = args_defaults(config, c->parts, err);
    if (s != BITNET_OK) return s;
    if (!c->no_settings) s = settings_open(settings, all.items, all.n, &wrong);
    if (s == BITNET_OK && !c->no_settings) s = settings_apply(settings, config, c, NULL, &wrong);
    if (s == BITNET_OK && !c->no_settings) settings_note_variables();
    BN_TRY(args_parse(config, words, help, c->parts, all.items, all.n, err));
    if (s != BITNET_OK && !*help) *err = wrong;
    return *help ? BITNET_OK : s;
}

static int run_command(const struct entry *e, char **argv, size_t argc)
{
    const struct command *c = e->command;
    if (!c) return refuse(e);
    void *config = calloc(1, c->config_bytes ? c->config_bytes : 1);
    if (!config) return term_fail_text("out of memory");
    struct arg_words words = {.items = argv, .n = argc};
    struct settings settings = {.n = 0};
    enum args_help wants_help = HELP_NONE;
    bitnet_error err = {0};
    int code;
    bitnet_status s = read_options(&settings, config, c, &words, &wants_help, &err);
    if (s != BITNET_OK && ranks_number()) code = EXIT_USAGE; /* the first of them says it */
    else if (s == BITNET_E_NOMEM) code = term_fail(&err);
    else if (s != BITNET_OK) code = term_usage(c->name, "%s", err.text);
    else if (wants_help) code = help_command(e, wants_help);
    else if (words.n > c->max_words)
        code = term_usage(c->name, "'%s' is one argument too many", words.items[c->max_words]);
    else code = term_finish(run_on_ranks(c, config, &words));
    settings_free(&settings);
    free(config);
    return code;
}

/* Line editing and the width of characters need the user's characters to be UTF-8; numbers keep
 * their point. */
static void set_characters(void)
{
    if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX < 4) setlocale(LC_CTYPE, "C.UTF-8");
}

/* A file opened by a program that was started without its standard streams would take their
 * numbers, and messages would end up in it. What fills the gap here cannot be written to, so
 * that output is not lost in silence. */
static void fill_closed_streams(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            exit(EXIT_FAILED);
}

int main(int argc, char **argv)
{
    fill_closed_streams();
    interrupt_install();
    set_characters();
    const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
    const char *file_name = slash ? slash + 1 : argc > 0 ? argv[0] : "";
    for (size_t i = 0; i < BN_ARRAY_LEN(programs); i++)
        if (*programs[i].command && strcmp(programs[i].file_name, file_name) == 0)
            return run_command(registry_find(programs[i].command), argv + 1, (size_t)argc - 1);

    if (argc < 2) {
        print_overview(stderr);
        return EXIT_USAGE;
    }
    const char *word = argv[1];
    char **rest = argv + 2;
    size_t n_rest = (size_t)argc - 2;
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        printf("bitnet %s\n", bitnet_version());
        return term_finish(EXIT_DONE);
    }
    if (strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        return help(rest, n_rest);
    if (word[0] == '-') return term_usage("", "'%s' stands where a command should", word);
    const struct entry *e = registry_find(word);
    return e ? run_command(e, rest, n_rest) : unknown_command(word);
}
