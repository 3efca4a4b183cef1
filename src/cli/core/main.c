/* SPDX-License-Identifier: Apache-2.0
 *
 * main.c: finds the command, by the name the program was started under or by the first argument,
 * hands it its options and returns its exit code. Knows no command but through commands.def.
 */
#include "base/suggest.h"
#include "cli/core/command.h"
#include "app/interrupt.h"
#include "cli/core/settings.h"
#include "app/term.h"
#include <ctype.h>
#include <fcntl.h>
#include <locale.h>
#include <stdlib.h>

struct entry {
    const char *name, *summary;
    const struct command *command; /* NULL: refused */
    bool planned;                  /* not in this version; else not in this build */
};

static const struct entry entries[] = {
#define CORE(name, summary) {#name, summary, &cmd_##name, false},
#if BN_MINIMAL
#define COMMAND(name, summary) {#name, summary, NULL, false},
#else
#define COMMAND(name, summary) CORE(name, summary)
#endif
#define PLANNED(name, summary) {#name, summary, NULL, true},
#include "cli/core/commands.def"
};

static const struct program {
    const char *file_name, *command;
} programs[] = {
#define PROGRAM(file_name, command) {file_name, command},
#include "cli/core/commands.def"
};

static const struct entry *find_entry(const char *name)
{
    for (size_t i = 0; i < BN_ARRAY_LEN(entries); i++)
        if (strcmp(entries[i].name, name) == 0) return &entries[i];
    return NULL;
}

static void print_refused(FILE *to, const char *title, bool planned)
{
    bool any = false;
    for (size_t i = 0; i < BN_ARRAY_LEN(entries); i++) {
        if (entries[i].command || entries[i].planned != planned) continue;
        fprintf(to, "%s%s", any ? " " : title, entries[i].name);
        any = true;
    }
    if (any) fputc('\n', to);
}

static void print_overview(FILE *to)
{
    fprintf(
        to,
        "usage: bitnet COMMAND [MODEL] [options]\n\n"
        "Runs 1-bit and 1.58-bit language models on CPUs. MODEL is a GGUF file, a safetensors "
        "file\n"
        "or a Hugging Face folder; without one, the small model inside this program is used:\n\n"
        "  bitnet run \"Once upon a time\"\n\n"
        "Commands:\n");
    for (size_t i = 0; i < BN_ARRAY_LEN(entries); i++)
        if (entries[i].command) fprintf(to, "  %-12s %s\n", entries[i].name, entries[i].summary);
    fprintf(to, "  %-12s %s\n", "help", "show this text, or the options of a command");
    fputc('\n', to);
    print_refused(to, "not in this minimal build: ", false);
    print_refused(to, "planned: ", true);
    fprintf(to, "\nEnvironment:\n"
                "  BITNET_BACKEND   the kernels to use, as --backend\n"
                "  BITNET_TUNING    the file of 'bench --autotune', or 'off', as --tuning\n"
                "  NO_COLOR         when set, no colours\n\n"
                "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.\n"
                "'bitnet help COMMAND' shows the options of a command.\n");
}

static int help_command(const struct entry *e)
{
    const struct command *c = e->command;
    printf("usage: bitnet %s %s\n\n%c%s.\n%s", c->name, c->usage, toupper(e->summary[0]),
           e->summary + 1, c->about);
    args_print_help(stdout, c->parts, term_is_tty(stdout) ? term_width(stdout) : 100);
    return term_finish(EXIT_DONE);
}

static int unknown_command(const char *name)
{
    struct bn_suggest s;
    bn_suggest_start(&s, name);
    bn_suggest_offer(&s, "help");
    for (size_t i = 0; i < BN_ARRAY_LEN(entries); i++)
        if (entries[i].command) bn_suggest_offer(&s, entries[i].name);
    if (s.best) return term_usage("", "unknown command '%s'; did you mean '%s'?", name, s.best);
    return term_usage("", "unknown command '%s'", name);
}

static int refuse(const struct entry *e)
{
    return term_usage("", "the command '%s' (%s) is not in this %s", e->name, e->summary,
                      e->planned ? "version" : "minimal build");
}

static int help(char **argv, size_t argc)
{
    if (argc == 0 || strcmp(argv[0], "help") == 0) {
        print_overview(stdout);
        return term_finish(EXIT_DONE);
    }
    const struct entry *e = find_entry(argv[0]);
    if (!e) return unknown_command(argv[0]);
    return e->command ? help_command(e) : refuse(e);
}

static int run_command(const struct entry *e, char **argv, size_t argc)
{
    const struct command *c = e->command;
    if (!c) return refuse(e);
    void *config = calloc(1, c->config_bytes ? c->config_bytes : 1);
    if (!config) return term_fail_text("out of memory");
    struct arg_words words;
    struct settings settings = {0};
    bool wants_help;
    bitnet_error err = {0};
    int code;
    bitnet_status s = args_defaults(config, c->parts, &err);
    if (s == BITNET_OK && c->settings)
        s = settings_read(&settings, config, c->parts, argv, argc, &err);
    if (s == BITNET_OK) s = args_parse(config, &words, &wants_help, c->parts, argv, argc, &err);
    if (s != BITNET_OK) code = term_usage(c->name, "%s", err.text);
    else if (wants_help) code = help_command(e);
    else if (words.n > c->max_words)
        code = term_usage(c->name, "'%s' is one argument too many", words.items[c->max_words]);
    else code = term_finish(c->run(config, &words));
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
            return run_command(find_entry(programs[i].command), argv + 1, (size_t)argc - 1);

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
    const struct entry *e = find_entry(word);
    return e ? run_command(e, rest, n_rest) : unknown_command(word);
}
