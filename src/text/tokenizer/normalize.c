/* SPDX-License-Identifier: Apache-2.0
 * Unicode normal form C through utf8proc, in chunks: memory stays small, and the time stays linear
 * although the ordering of combining marks is quadratic in their number. */
#include "text/tokenizer/tokenizer_impl.h"

#include "base/utf8.h"
#include <stdlib.h>
#include <utf8proc.h>

enum {
    CHUNK_BYTES = 1 << 14,
    MAX_MARKS = 256 /* combining marks ordered together; of a longer run, group by group */
};

/* The end of a chunk that begins at p: before an ASCII character once the chunk is large enough
 * (nothing composes across that border), or amid an absurd run of marks. */
static size_t chunk_end(const char *p, size_t n, bool *plain)
{
    size_t marks = 0;
    *plain = true;
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)p[i];
        if (c < 0x80) {
            if (i >= CHUNK_BYTES) return i;
            marks = 0;
            i++;
            continue;
        }
        uint32_t cp = 0;
        size_t len = bn_utf8_decode(p + i, n - i, &cp);
        if (len == 0) len = 1;           /* the caller promised valid text: cp 0 is harmless */
        if (cp >= 0x300) *plain = false; /* below U+0300 every character is its own normal form */
        marks = utf8proc_get_property((utf8proc_int32_t)cp)->combining_class ? marks + 1 : 0;
        if (marks >= MAX_MARKS) return i;
        i += len;
    }
    return n;
}

bitnet_status bn_normalize_nfc(struct bn_buf *out, const char *p, size_t n, bitnet_error *err)
{
    for (size_t i = 0, len; i < n; i += len) {
        bool plain;
        len = chunk_end(p + i, n - i, &plain);
        if (plain) {
            bn_buf_append(out, p + i, len);
        } else {
            utf8proc_uint8_t *text = NULL;
            utf8proc_ssize_t k =
                utf8proc_map((const utf8proc_uint8_t *)p + i, (utf8proc_ssize_t)len, &text,
                             UTF8PROC_STABLE | UTF8PROC_COMPOSE);
            if (k >= 0) bn_buf_append(out, text, (size_t)k);
            free(text);
            if (k < 0)
                return bn_fail(err, k == UTF8PROC_ERROR_NOMEM ? BITNET_E_NOMEM : BITNET_E_ARG,
                               "Unicode normalization failed: %s", utf8proc_errmsg(k));
        }
        if (out->failed) return bn_fail_nomem(err, n, "normalized text");
    }
    return BITNET_OK;
}
