/* SPDX-License-Identifier: Apache-2.0
 *
 * folders.h: the user's folders, as the XDG Base Directory Specification names them.
 */
#ifndef BN_APP_CONFIG_FOLDERS_H
#define BN_APP_CONFIG_FOLDERS_H

#include "base/base.h"

/* The program's folder of one kind: in $VARIABLE, else below the home folder. false: there is none. */
bool user_folder(char *out, size_t n, const char *variable, const char *below_home);
/* The one for settings: bitnet in $XDG_CONFIG_HOME or ~/.config. */
bool user_config_folder(char *out, size_t n);

#endif
