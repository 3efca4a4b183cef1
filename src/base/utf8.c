/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

/* Length announced by a first byte, and the range allowed for the second: it excludes overlong
 * forms, surrogates and values above U+10FFFF. 0 for bytes that cannot begin a character. */
static size_t lead(unsigned char c, unsigned char *lo, unsigned char *hi)
{
    *lo = 0x80;
    *hi = 0xbf;
    if (c < 0x80) return 1;
    if (c < 0xc2) return 0;
    if (c < 0xe0) return 2;
    if (c < 0xf0) {
        if (c == 0xe0) *lo = 0xa0;
        if (c == 0xed) *hi = 0x9f;
        return 3;
    }
    if (c < 0xf5) {
        if (c == 0xf0) *lo = 0x90;
        if (c == 0xf4) *hi = 0x8f;
        return 4;
    }
    return 0;
}

size_t bn_utf8_decode(const char *s, size_t n, uint32_t *cp)
{
    const unsigned char *p = (const unsigned char *)s;
    unsigned char lo, hi;
    size_t len = lead(p[0], &lo, &hi);
    if (len == 0 || len > n) return 0;
    if (len == 1) {
        *cp = p[0];
        return 1;
    }
    if (p[1] < lo || p[1] > hi) return 0;
    uint32_t v = p[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        v = v << 6 | (p[i] & 0x3f);
    }
    *cp = v;
    return len;
}

size_t bn_utf8_encode(char out[4], uint32_t cp)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        if (cp >= 0xd800 && cp < 0xe000) return 0;
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    if (cp > 0x10ffff) return 0;
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

bool bn_utf8_valid(const char *s, size_t n, size_t *bad_at)
{
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t len = bn_utf8_decode(s + i, n - i, &cp);
        if (len == 0) {
            if (bad_at) *bad_at = i;
            return false;
        }
        i += len;
    }
    return true;
}

size_t bn_utf8_tail(const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = p[n - back], lo, hi;
        if ((c & 0xc0) == 0x80) continue; /* a continuation byte: look further back */
        size_t len = lead(c, &lo, &hi);
        if (len <= back) return 0; /* complete, or no beginning at all */
        if (back >= 2 && (p[n - back + 1] < lo || p[n - back + 1] > hi)) return 0;
        return back;
    }
    return 0;
}
