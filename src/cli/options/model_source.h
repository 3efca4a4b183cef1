/* SPDX-License-Identifier: Apache-2.0
 *
 * model_source.h: models by the names under which they are published. A name that is here becomes the
 * path of its file; one that is not is downloaded if the user says so.
 */
#ifndef BN_CLI_OPTIONS_MODEL_SOURCE_H
#define BN_CLI_OPTIONS_MODEL_SOURCE_H

#include "cli/core/args.h"

enum { MODEL_PATH_BYTES = 4096 };

struct model_source {
    bool pull, offline;
    char path[MODEL_PATH_BYTES]; /* of a name that was found */
};
/* Its options, for tables. */
#if BN_MINIMAL
#define MODEL_SOURCE_OPTS(at)
#else
#define MODEL_SOURCE_OPTS(at)                                                              \
    {.kind = OPT_FLAG,                                                                     \
     .name = "pull",                                                                       \
     .help = "if the model is a name and not on this machine, download it without asking", \
     .offset = (at) + offsetof(struct model_source, pull)},                                \
        {.kind = OPT_FLAG,                                                                 \
         .name = "offline",                                                                \
         .help = "use what is on this machine, as with HF_HUB_OFFLINE=1",                  \
         .offset = (at) + offsetof(struct model_source, offline)},
#endif

/* Is the word the name of a published model, whatever files there are? */
bool model_source_is_name(const char *word);
/* Is it one that is here, or at least known? Then a line that explains it for `bitnet run WORD`. */
void model_source_hint(char *out, size_t n, const char *word);

/* Makes *typed, if it is a name and no file, the path of what was downloaded under it; downloads it with
 * --pull, or if the user says yes on a terminal. Anything else stays as it is, for the library to
 * explain. On failure the error line has been printed and the exit code is returned. */
int model_find(const char **typed, struct model_source *from, const char *command);

#endif
