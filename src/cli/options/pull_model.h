/* SPDX-License-Identifier: Apache-2.0
 *
 * pull_model.h: a download as the user sees it: what is coming, whether it fits, a bar with rate and time
 * left.
 */
#ifndef BN_CLI_OPTIONS_PULL_MODEL_H
#define BN_CLI_OPTIONS_PULL_MODEL_H

#include "hub/local.h"
#include "hub/pull.h"

struct pull_plan {
    char licence[64]; /* "": not said */
    size_t n_files;
    uint64_t bytes, missing_bytes;
};

/* Downloads a model. quiet: nothing is said. On failure the error line has been printed and the exit code is
 * returned. */
int pull_model(struct hub_local *got, const struct hub_places *p, const struct hub_name *name,
               bool quiet);
/* The same for others than a user at a terminal; on any thread of a program that ignores SIGPIPE. */
bitnet_status pull_quietly(struct hub_local *got, const struct hub_places *p,
                           const struct hub_name *name, const struct hub_pull_view *view,
                           const struct hub_cancel *cancel, bitnet_error *err);
/* What pull_model would do; asks the hub. */
int pull_look(struct pull_plan *out, const struct hub_places *p, const struct hub_name *name);

/* " ... needs about 1.6 GB of memory; 3.2 GB are available here" to standard error; with a warning, if it is
 * more than the machine has. */
void pull_tell_memory(uint64_t file_bytes);

#endif
