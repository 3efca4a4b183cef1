/* SPDX-License-Identifier: Apache-2.0
 *
 * line_reader.h: a file or standard input line by line, in bounded memory. A line ends with LF or CR LF;
 * the last one may do without. A byte order mark before the first line is dropped.
 */
#ifndef BN_APP_LINE_READER_H
#define BN_APP_LINE_READER_H

#include "base/status.h"

enum { LINE_READER_MAX_BYTES = 16 << 20 }; /* of one line; what is longer is cut off */

struct line {
    const char *text; /* without its end; borrowed until the next line; not 0-terminated */
    size_t n;
    uint64_t number; /* the first is 1 */
    uint64_t offset; /* of the line in the file */
    bool whole;      /* false: there was more than LINE_READER_MAX_BYTES */
    bool ended;      /* false: the file ended before the line did  */
};

struct line_reader {
    int fd;
    bool owns_fd;
    const char *name; /* for errors; borrowed */
    char *data;
    size_t room, start, end; /* data[start..end): read, not yet handed out */
    uint64_t offset;         /* of data[start] in the file */
    uint64_t n;              /* lines so far */
    bool at_end;
};

/* path "-": standard input */
bitnet_status line_reader_open(struct line_reader *r, const char *path, bitnet_error *err);
void line_reader_from(struct line_reader *r, int fd, const char *name); /* fd stays the caller's */
/* *got: false at the end. BITNET_E_CANCELLED when Ctrl-C ends the wait for more. */
bitnet_status line_reader_next(struct line_reader *r, struct line *out, bool *got,
                               bitnet_error *err);
/* Is there something to read already? Also true at the end. */
bool line_reader_ready(const struct line_reader *r);
void line_reader_close(struct line_reader *r);

#endif
