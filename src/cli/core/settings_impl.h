/* SPDX-License-Identifier: Apache-2.0
 *
 * settings_impl.h: what the two files of settings.h share.
 */
#ifndef BN_CLI_CORE_SETTINGS_IMPL_H
#define BN_CLI_CORE_SETTINGS_IMPL_H

#include "cli/core/registry.h"
#include "cli/core/settings.h"

enum { SETTINGS_NAME_BYTES = 64 };
#define SETTINGS_ALL "all" /* the section for every command */

static const char settings_print_option[] = "print-config";

/* "PATH:LINE: what" */
bitnet_status settings_fail(const struct settings *s, unsigned line, bitnet_error *err,
                            const char *what);

#endif
