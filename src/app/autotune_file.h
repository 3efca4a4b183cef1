/* SPDX-License-Identifier: Apache-2.0
 *
 * autotune_file.h: the file in which `bitnet bench --autotune` leaves what it found, and in which later
 * commands look. An entry belongs to a machine (CPU, usable cores, cache), a model (architecture, and
 * name, type and shape of every tensor; neither path nor weights) and the options that change what
 * is computed. docs/tune/autotune.md describes it.
 */
#ifndef BN_APP_AUTOTUNE_FILE_H
#define BN_APP_AUTOTUNE_FILE_H

#include "json/json.h"

#define AUTOTUNE_FILE_FORMAT "bitnet-tuning-1" /* first member of the file */
enum {
    AUTOTUNE_FILE_MAX_BYTES = 1 << 20, /* of the file */
    AUTOTUNE_FILE_MAX_ENTRIES = 256,   /* the oldest go first */
    AUTOTUNE_FILE_PATH_BYTES = 4096,
    AUTOTUNE_FILE_MAX_THREADS = 1024,
    AUTOTUNE_FILE_MAX_BATCH = 8192,
    AUTOTUNE_FILE_MAX_PREFETCH = 64 << 10
};

/* What an entry says to use. */
struct autotune_values {
    char date[32];                                  /* of the measurements; "": no entry */
    uint32_t threads, prefetch_bytes, batch_tokens; /* 0: the default */
    char layout[8], pin[8];                         /* "": the default */
};

/* The file that --tuning means: "auto" is the one in the user's folder. false: "off", or the user
 * has no folder. */
bool autotune_file_path(char out[AUTOTUNE_FILE_PATH_BYTES], const char *typed);

/* Whom an entry belongs to. model_path: NULL for the embedded model. */
bitnet_status autotune_file_key(struct bn_json **out, const char *model_path, const char *backend,
                                const char *activations, bitnet_error *err);

/* Reads and checks a file. */
bitnet_status autotune_file_read(struct bn_json **out, const char *path, bitnet_error *err);
/* The entry for the key in a file that was read; NULL: none. Borrowed. */
const struct bn_json *autotune_file_find(const struct bn_json *file, const struct bn_json *key);
/* The values of an entry of the file `path`. */
bitnet_status autotune_file_values(struct autotune_values *out, const struct bn_json *entry,
                                   const char *path, bitnet_error *err);
/* As the "use" of an entry. NULL: out of memory. */
struct bn_json *autotune_file_use_json(const struct autotune_values *t);

/* Puts the entry, an object that is added to the key's members, into the file, in place of an older
 * one for the same key; those of others stay. A file that is damaged is an error and stays as it is. */
bitnet_status autotune_file_write(const char *path, const struct bn_json *key,
                                  const struct bn_json *entry, bitnet_error *err);

/* All of the above for a command that is about to open a model: out->date is "" if nothing was
 * found. */
bitnet_status autotune_file_look(struct autotune_values *out, const char *typed,
                                 const char *model_path, const char *backend,
                                 const char *activations, bitnet_error *err);

/* Tokens a second that decoding was measured at for this model on this machine, in the user's file; 0: not
 * known. */
double autotune_file_decode_rate(const char *model_path);

/* "2 threads, t3, prefetch 8192"; n bytes at out. */
void autotune_file_describe(char *out, size_t n, const struct autotune_values *t);

#endif
