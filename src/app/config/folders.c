/* SPDX-License-Identifier: Apache-2.0 */
#include "app/config/folders.h"

#include <stdio.h>
#include <stdlib.h>

bool user_folder(char *out, size_t n, const char *variable, const char *below_home)
{
    const char *xdg = getenv(variable), *home = getenv("HOME");
    int len = -1;
    if (xdg && *xdg == '/') len = snprintf(out, n, "%s/bitnet", xdg);
    else if (home && *home == '/') len = snprintf(out, n, "%s/%s/bitnet", home, below_home);
    return len > 0 && (size_t)len < n;
}

bool user_config_folder(char *out, size_t n)
{
    return user_folder(out, n, "XDG_CONFIG_HOME", ".config");
}
