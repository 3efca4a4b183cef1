/* SPDX-License-Identifier: Apache-2.0
 *
 * command.h: what a command is. main.c finds it, parses its options into a zeroed config of its own
 * and calls run(); the exit code is what run() returns (app/term.h).
 */
#ifndef BN_CLI_CORE_COMMAND_H
#define BN_CLI_CORE_COMMAND_H

#include "app/term.h"
#include "cli/core/args.h"

struct command {
    const char *name;
    const char *usage; /* the words after the command's name: "[MODEL] [PROMPT...]"     */
    const char *about; /* shown by --help below the usage: what it does, then examples  */
    /* the options that --help shows, separated by spaces: the ten or so that people use first; NULL: all */
    const char *first;
    /* what the first word may be beside a model or a file, as "list|verify"; for completion */
    const char *first_word;
    /* ends with a part without a table */
    const struct opt_part *parts;
    size_t config_bytes;
    size_t max_words; /* positional arguments taken */
    bool ranks;       /* several processes may compute its model together (ranks.h) */
    bool no_settings; /* options come from the command line only, not from settings.h */
    int (*run)(void *config, const struct arg_words *words);
};

#define CORE(name, summary)    extern const struct command cmd_##name;
#define COMMAND(name, summary) CORE(name, summary)
#include "cli/core/commands.def"

#endif
