/* SPDX-License-Identifier: Apache-2.0
 * What the two halves of the HTTP reader share. */
#ifndef BN_SERVER_HTTP_HTTP_IMPL_H
#define BN_SERVER_HTTP_HTTP_IMPL_H

#include "server/http/http.h"

/* Ends the message; is false. code: of the reply to a request. */
bool http_fail(struct http_reader *r, int code, const char *fmt, ...) BN_PRINTF(3, 4);
/* Takes the gathered head apart, in its place. Sets everything that is complete from HTTP_BODY on,
 * and length, chunked, until_close. */
bool http_head_parse(struct http_reader *r);
/* Does `length` fit under the limit, after what has come? Else fails. */
bool http_length_allowed(struct http_reader *r);

static inline int http_hex_digit(unsigned char c) /* -1: it is none */
{
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20; /* lower case */
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

#endif
