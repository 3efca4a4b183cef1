/* SPDX-License-Identifier: Apache-2.0
 *
 * part.h: a file on its way: its bytes under PATH.bitnet.incomplete, and beside them, in
 * PATH.bitnet.blocks, how far each block has come. Both are written as the bytes arrive, so a process that
 * is killed loses nothing; the next one goes on where it was.
 */
#ifndef BN_HUB_PART_H
#define BN_HUB_PART_H

#include "hub/places.h"

enum { HUB_BLOCK_BYTES = 8 << 20, HUB_ID_BYTES = 160 };

struct hub_part {
    char path[HUB_PATH_BYTES], state_path[HUB_PATH_BYTES]; /* of both files */
    int fd;
    uint64_t bytes; /* of the whole file */
    uint32_t n;     /* blocks */
    uint32_t *done; /* [n] bytes of each that are there; in the mapped file */
    void *map;
    size_t map_bytes;
};

/* Who waits where another process has a file. waiting: called once, before it waits. */
struct hub_waiter {
    const struct hub_cancel *cancel;
    void (*waiting)(void *user);
    void *user;
};
/* Until the file is locked by this process. false: cancelled. On a disk without locks nobody waits. */
bool hub_lock_file(int fd, const struct hub_waiter *w);

/* Opens or begins one. id: what it is, a checksum or an ETag; what was begun of another is thrown away.
 * Waits while another process has it; where that finishes the file, *there is true, and nothing is open. */
bitnet_status hub_part_open(struct hub_part *p, bool *there, const char *path, uint64_t bytes,
                            const char *id, const struct hub_waiter *w, bitnet_error *err);
uint64_t hub_part_here(const struct hub_part *p); /* bytes that are there */
uint64_t hub_part_block_bytes(const struct hub_part *p, uint32_t i);
/* Bytes of block i, behind those that are there. Blocks may be written by different threads. */
bitnet_status hub_part_write(struct hub_part *p, uint32_t i, const char *data, size_t n,
                             bitnet_error *err);
void hub_part_forget(struct hub_part *p); /* all that is there */
/* It is whole: it takes its name. */
bitnet_status hub_part_finish(struct hub_part *p, const char *path, bitnet_error *err);
void hub_part_discard(struct hub_part *p); /* removes both files */
void hub_part_close(struct hub_part *p);

/* What an earlier download left of it, without opening: bytes on the disk. */
uint64_t hub_part_left(const char *path);

#endif
