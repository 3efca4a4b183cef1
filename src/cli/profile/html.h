/* SPDX-License-Identifier: Apache-2.0
 *
 * html.h: a report of `bitnet profile` as one page that needs nothing else: no scripts, no
 * other files. Its markup is well-formed XML, too.
 */
#ifndef BN_CLI_PROFILE_HTML_H
#define BN_CLI_PROFILE_HTML_H

#include "json/json.h"

/* free(); NULL: out of memory. */
char *profile_html(const struct bn_json *report);

extern const char profile_style[]; /* style.c: the page's CSS */

#endif
