/* SPDX-License-Identifier: Apache-2.0
 * UTF-8: strict (no surrogates, no overlong forms, nothing above U+10FFFF). */
#ifndef BN_BASE_UTF8_H
#define BN_BASE_UTF8_H

#include "base/base.h"

/* Decodes one character of s[0..n): its length 1..4 and *cp; 0 if the bytes are not valid UTF-8 or
 * cut (bn_utf8_tail tells which). n must be at least 1. */
size_t bn_utf8_decode(const char *s, size_t n, uint32_t *cp);
size_t bn_utf8_encode(char out[4], uint32_t cp); /* 1..4; 0 for what is no character */
bool bn_utf8_valid(const char *s, size_t n,
                   size_t *bad_at); /* *bad_at (may be NULL): first bad byte */
/* How many bytes at the end of s could be the start of a character whose rest is still to come:
 * 0..3. */
size_t bn_utf8_tail(const char *s, size_t n);

#endif
