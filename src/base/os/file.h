/* SPDX-License-Identifier: Apache-2.0
 * Files: read-only mappings of regular files, small files read whole, and output that appears whole
 * or not at all. */
#ifndef BN_BASE_OS_FILE_H
#define BN_BASE_OS_FILE_H

#include "base/status.h"

/* Which file it is, and in which state. */
struct bn_file_id {
    uint64_t device, inode, bytes, links;
    int64_t modified_ns;
};

struct bn_mapping {
    const uint8_t *data; /* NULL if the file is empty */
    size_t bytes;
    struct bn_file_id id;       /* when it was mapped */
    int fd;                     /* of a file that is mapped for good, for bn_map_copy; 0: none */
    struct bn_reading *reading; /* NULL: mapped for good */
};

/* Only regular files: a folder, FIFO or device is refused with a sentence, never waited for. Large
 * ones lie as in huge pages, so that the system can use such pages for them. */
bitnet_status bn_map_file(struct bn_mapping *out, const char *path, bitnet_error *err);
void bn_unmap_file(struct bn_mapping *m);

/* Files that are not to stay mapped. bn_map_file_to_read maps one for a look at it; bn_map_detach puts
 * empty memory in the place of the mapping, at the same address, into which bn_map_read brings parts
 * of the file (or elsewhere); bn_map_read_end lets go of the file, and tells if it has changed. */
bitnet_status bn_map_file_to_read(struct bn_mapping *out, const char *path, bitnet_error *err);
bitnet_status bn_map_detach(struct bn_mapping *m, bitnet_error *err);
bitnet_status bn_map_read(const struct bn_mapping *m, void *to, uint64_t offset, size_t n,
                          bitnet_error *err);
bitnet_status bn_map_read_end(struct bn_mapping *m, bitnet_error *err);
/* The pages of [p, p+n) will not be needed again soon; they may leave memory (they stay
 * readable). */
void bn_map_release(const struct bn_mapping *m, const uint8_t *p, size_t n);

/* Copies n bytes at p, which the mapping has, from the file instead: where the mapping's own pages are
 * not in use, these are not brought in, which takes longer than copying a few of them and would have
 * to be undone by bn_map_release. false: that is not possible, `to` may be half written. */
bool bn_map_copy(const struct bn_mapping *m, void *to, const uint8_t *p, size_t n);

/* Whole file as 0-terminated bytes (free()); BITNET_E_LIMIT above max_bytes. */
bitnet_status bn_read_file(char **out, size_t *n, const char *path, size_t max_bytes,
                           bitnet_error *err);

bool bn_is_folder(const char *path);
bool bn_folder_make(const char *path); /* also those above it; true: it is there */
bool bn_exists(const char *path);

/* Output that appears whole or not at all: written beside the target under a temporary name, then
 * renamed over it by bn_out_commit. bn_out_close without commit removes every trace. What is open
 * already (/proc/self/fd/N, /dev/stdout), devices and pipes are written in place. */
struct bn_out {
    int fd;
    char *path, *temp_path;
    uint8_t *pending; /* write buffer */
    size_t n_pending;
    uint64_t offset; /* bytes written so far, pending ones included */
    uint64_t drained;
};
bitnet_status bn_out_open(struct bn_out *o, const char *path, bool overwrite, bitnet_error *err);
bitnet_status bn_out_write(struct bn_out *o, const void *p, size_t n, bitnet_error *err);
bitnet_status bn_out_zeros(struct bn_out *o, size_t n, bitnet_error *err);
/* What was written so far begins to go to the disk, all but the last few MiB have arrived: so that
 * commit has little left to wait for. */
void bn_out_drain(struct bn_out *o);
bitnet_status bn_out_commit(struct bn_out *o, bitnet_error *err); /* flushes to disk, renames */
/* The last piece, then commit. */
bitnet_status bn_out_end(struct bn_out *o, const void *p, size_t n, bitnet_error *err);
void bn_out_close(struct bn_out *o);

#endif
