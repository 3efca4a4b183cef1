/* SPDX-License-Identifier: Apache-2.0
 *
 * serve_models.h: which models `bitnet serve` has: the words of its line, NAME=FILE, and the contents of a
 * folder; and options that are for one of them only.
 */
#ifndef BN_CLI_OPTIONS_SERVE_MODELS_H
#define BN_CLI_OPTIONS_SERVE_MODELS_H

#include "base/os/mem.h"
#include "cli/core/args.h"
#include "hub/places.h"
#include "server/server.h"

struct serve_models {
    struct serve_entry {
        char *name, *path;
        const char *alias; /* another name; NULL: none */
        void *config;      /* the command's, with options of its own */
    } items[SERVER_MAX_MODELS];
    size_t n;
    struct bn_arena texts;
    size_t config_bytes;
};

/* NAME=PATH, or a path, whose file gives the name. */
bitnet_status serve_models_add(struct serve_models *l, const char *typed, bitnet_error *err);
/* Every GGUF and every folder of a checkpoint in it, by its name, in the order of the alphabet. */
bitnet_status serve_models_scan(struct serve_models *l, const char *folder, bitnet_error *err);
/* Every model that was downloaded to this machine, by the name that it is found by; one from an Ollama store as its
 * clients call it. */
bitnet_status serve_models_stored(struct serve_models *l, const struct hub_places *p,
                                  bitnet_error *err);
/* What is meant by a name that a client of Ollama gives: one without a folder is in Ollama's registry, unless it is a short
 * name of ours. */
bitnet_status serve_models_meant(struct hub_name *out, const char *name, bitnet_error *err);
/* Gives each a copy of the config, then takes NAME:OPTION=VALUE. parts: the options that may be given. */
bitnet_status serve_models_configure(struct serve_models *l, const void *config, size_t bytes,
                                     const struct opt_part *parts, const struct opt_list *typed,
                                     bitnet_error *err);
/* About what the files of a model have; 0: not known. */
uint64_t serve_models_bytes(const char *path);
void serve_models_free(struct serve_models *l);

#endif
