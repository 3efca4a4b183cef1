/* SPDX-License-Identifier: Apache-2.0
 *
 * pages.h: the files of web/, which are part of the program.
 */
#ifndef BN_SERVER_PAGES_H
#define BN_SERVER_PAGES_H

#include "base/base.h"

struct page {
    const char *path; /* "/", "/dashboard", "/js/chat.js", ... */
    const char *content_type;
    const unsigned char *data;
    size_t bytes;
    const char *etag; /* quoted, changes with the data */
};
const struct page *page_find(const char *path); /* NULL: there is none */

#endif
