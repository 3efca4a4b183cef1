/* SPDX-License-Identifier: Apache-2.0
 *
 * settings.h: options of a command that runs for long: beside the command line they may stand in a JSON
 * file, {"port": 8080, "max-num-seqs": 16}, and in the environment, BITNET_PORT=8080. The line counts
 * more than the environment, this more than the file, this more than the default; lists add up.
 */
#ifndef BN_CLI_CORE_SETTINGS_H
#define BN_CLI_CORE_SETTINGS_H

#include "json/json.h"
#include "base/os/mem.h"
#include "cli/core/args.h"

struct settings {
    struct bn_arena texts; /* strings in the config point into it */
};

/* The option --config of such a command names the file. */
#define SETTINGS_FILE_OPT(at)                                                                  \
    {                                                                                          \
        .kind = OPT_STR, .name = "config", .metavar = "FILE",                                  \
        .help = "options as a JSON object, by their long names; every option may also be set " \
                "in the environment: --max-num-seqs as BITNET_MAX_NUM_SEQS",                   \
        .offset = at                                                                           \
    }
#define SETTINGS_PRINT_OPT(at)                                                                  \
    {                                                                                           \
        .kind = OPT_FLAG, .name = "print-config",                                               \
        .help = "print the effective options in the format of --config, and exit", .offset = at \
    }

/* Applies the file and the environment to a config that has its defaults. */
bitnet_status settings_read(struct settings *s, void *config, const struct opt_part *parts,
                            char **argv, size_t argc, bitnet_error *err);
/* All options but secrets and those above. NULL: out of memory. */
struct bn_json *settings_json(const void *config, const struct opt_part *parts);
void settings_free(struct settings *s);

#endif
