/* SPDX-License-Identifier: Apache-2.0
 *
 * registry.c: the list of commands.
 */
#include "cli/core/registry.h"

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

const char registry_environment[] =
    "  BITNET_<OPTION>  any option, as BITNET_THREADS=4 for --threads 4 ('bitnet help config')\n"
    "  BITNET_CONFIG    the settings file, as --config\n"
    "  NO_COLOR         when set, no colours\n";
const char registry_exit_codes[] = "0 done, 1 failed, 2 wrong usage, 130 interrupted.";

const struct entry *registry_at(size_t i) { return i < BN_ARRAY_LEN(entries) ? &entries[i] : NULL; }

const struct entry *registry_find(const char *name)
{
    for (size_t i = 0; i < BN_ARRAY_LEN(entries); i++)
        if (strcmp(entries[i].name, name) == 0) return &entries[i];
    return NULL;
}
