/* SPDX-License-Identifier: Apache-2.0
 *
 * command.h: what a command is. main.c finds it, parses its options into a zeroed config of its own
 * and calls run(); the exit code is what run() returns. Codes: 0 done, 1 failed, 2 usage, 130
 * interrupted.
 */
#ifndef BN_CLI_COMMAND_H
#define BN_CLI_COMMAND_H

#include "cli/args.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

struct command {
    const char *name;
    const char *usage; /* the words after the command's name: "[MODEL] [PROMPT...]"     */
    const char *about; /* shown by --help below the usage: what it does, then examples  */
    /* ends with a part without a table */
    const struct opt_part *parts;
    size_t config_bytes;
    size_t max_words; /* positional arguments taken */
    bool settings;    /* options may also come from a file and the environment (settings.h) */
    int (*run)(void *config, const struct arg_words *words);
};

#define CORE(name, summary)    extern const struct command cmd_##name;
#define COMMAND(name, summary) CORE(name, summary)
#include "cli/commands.def"

#endif
