/* SPDX-License-Identifier: Apache-2.0
 *
 * files.h: the files of a repository, here or on the hub, and which of them are the model.
 */
#ifndef BN_HUB_FILES_H
#define BN_HUB_FILES_H

#include "base/os/mem.h"
#include "hub/name.h"

enum { HUB_MAX_FILES = 20000 };

struct hub_file {
    const char *path; /* in the repository */
    uint64_t bytes;
    const char *digest; /* SHA-256, or SHA-1 as git has it: 64 or 40 digits; "" here */
    bool picked;        /* part of the model */
};

/* Zero-initialise it. */
struct hub_files {
    struct hub_file *items;
    size_t n, room;
    struct bn_arena texts;
};

bitnet_status hub_files_add(struct hub_files *f, const char *path, uint64_t bytes,
                            const char *digest, bitnet_error *err);
void hub_files_free(struct hub_files *f);

struct hub_choice {
    const char *main; /* what is opened: a file, or "" for the folder; borrowed from the list */
    size_t n;         /* files picked */
    uint64_t bytes;   /* of them */
};

/* Picks what a name asks for. Of a file in several parts all are picked. Without a file or a type: the
 * only GGUF, else the first of the types made for ternary weights; without any GGUF a folder of
 * safetensors. BITNET_E_ARG: none fits, or several; the sentence lists what there is. */
bitnet_status hub_files_choose(struct hub_choice *out, struct hub_files *f,
                               const struct hub_name *name, bitnet_error *err);
/* Are all parts of what was picked in the list? Of a download that was begun some may be missing. */
bool hub_files_whole(const struct hub_files *f, const struct hub_choice *c);

#endif
