/* SPDX-License-Identifier: Apache-2.0
 *
 * settings.h: options that are not typed each time. One file and the environment say what an option is
 * where the command line does not:
 *
 *   [all]                  # every command that has the option
 *   threads = 4
 *   [serve]                # this one; counts more than [all]
 *   port = 9000
 *
 * The file is TOML, or JSON if it begins with '{' (sections are objects in it). In the environment an
 * option is BITNET_PORT=9000, or for one command BITNET_SERVE_PORT=9000, which counts more. The command
 * line counts more than the environment, this more than the file, this more than the default; lists add
 * up. An option that is the command's own (struct opt) is taken from its section and BITNET_COMMAND_… only.
 */
#ifndef BN_CLI_CORE_SETTINGS_H
#define BN_CLI_CORE_SETTINGS_H

#include "json/json.h"
#include "base/os/mem.h"
#include "cli/core/command.h"

enum { SETTINGS_PATH_BYTES = 4096 };

/* One value of one option, as the file has it. */
struct setting {
    const char *section; /* "all", or a command */
    const char *name, *value;
    unsigned line; /* 0: a JSON file, whose lines are not counted */
};

struct settings {
    struct bn_arena texts;          /* strings in configs point into it */
    char path[SETTINGS_PATH_BYTES]; /* of the file; "" where there is none to look for */
    bool there;                     /* it exists, and has been read */
    struct setting *items;
    size_t n, room;
};

/* Where an option of a command has its value from. */
enum settings_from { FROM_DEFAULT, FROM_FILE, FROM_ENVIRONMENT };
struct settings_origin {
    enum settings_from from;
    const char *section; /* of the file */
    unsigned line;
    const char *variable;
};

/* Finds the file and reads it. argv: arguments, for --config, which counts more than BITNET_CONFIG, and
 * this more than the user's config.toml; 'off' is no file. *s is zeroed by the caller, and freed by
 * settings_free in any case. */
bitnet_status settings_open(struct settings *s, char **argv, size_t argc, bitnet_error *err);
/* Only the place of the file is looked for. */
bitnet_status settings_find(struct settings *s, char **argv, size_t argc, bitnet_error *err);

/* What file and environment say about a command, into a config that has its defaults. origins: NULL, or
 * one for each option, in the order of the tables, zeroed. */
bitnet_status settings_apply(struct settings *s, void *config, const struct command *c,
                             struct settings_origin *origins, bitnet_error *err);

/* Says every mistake in the file and the environment, by calling tell with sentences; how many. */
typedef void settings_tell_fn(void *user, const char *sentence);
size_t settings_check(struct settings *s, settings_tell_fn *tell, void *user);
/* A variable of the environment that is no option but looks like one: a note. */
void settings_note_variables(void);

/* The value of an option; for secrets a text that says so. */
struct bn_json *settings_value(const struct opt *o, const void *at);
/* All options but secrets. NULL: out of memory. */
struct bn_json *settings_json(const void *config, const struct opt_part *parts);
void settings_free(struct settings *s);

/* An option that prints settings_json, which can be read again as a file. */
#define SETTINGS_PRINT_OPT(at)                                                                  \
    {                                                                                           \
        .kind = OPT_FLAG, .name = "print-config",                                               \
        .help = "print the effective options in the format of --config, and exit", .offset = at \
    }

#endif
