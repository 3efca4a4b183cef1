/* SPDX-License-Identifier: Apache-2.0
 * The small text files in which a system describes itself (/proc, /sys): those of this machine, or
 * of one that was recorded, as a folder or as one file (tools/record_machine.sh).
 *
 * A recording has a line a file, its path and its text with a tab in between; in the text \n, \t and
 * \\ stand for a line feed, a tab and a backslash. Lines that begin with # are comments. */
#ifndef BN_BASE_OS_SYSFILES_H
#define BN_BASE_OS_SYSFILES_H

#include "base/status.h"

enum {
    BN_SYSFILES_MAX_BYTES = 64 << 20,
    BN_SYSFILES_MAX_FILES = 1 << 18,
    BN_SYSFILES_MAX_PATH = 512
};

struct bn_sysfiles {
    const char *root;   /* put before every path; "" is this machine */
    char *text;         /* of a recording, or NULL */
    const char **files; /* [n_files] its lines, sorted by path */
    size_t n_files;
};

extern const struct bn_sysfiles bn_sysfiles_here;

/* path: a folder or a recording; borrowed until closed. */
bitnet_status bn_sysfiles_open(struct bn_sysfiles *out, const char *path, bitnet_error *err);
void bn_sysfiles_close(struct bn_sysfiles *sys);

/* The beginning of a file, as much as there is room for, without the line feeds at its end. false,
 * and "": there is no such file. */
bool bn_sysfiles_text(const struct bn_sysfiles *sys, char *out, size_t room, const char *fmt, ...)
    BN_PRINTF(4, 5);
/* The number that a file begins with, K or M right behind it counted in; false: there is none. */
bool bn_sysfiles_u64(const struct bn_sysfiles *sys, uint64_t *out, const char *fmt, ...)
    BN_PRINTF(3, 4);

#endif
