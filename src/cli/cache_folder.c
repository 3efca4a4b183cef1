/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cache_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool cache_folder(char out[CACHE_PATH_BYTES], const char *typed)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (strcmp(typed, "off") == 0) return false;
    if (strcmp(typed, "auto") != 0) n = snprintf(out, CACHE_PATH_BYTES, "%s", typed);
    else if (xdg && *xdg == '/') n = snprintf(out, CACHE_PATH_BYTES, "%s/bitnet", xdg);
    else if (home && *home == '/') n = snprintf(out, CACHE_PATH_BYTES, "%s/.cache/bitnet", home);
    return n > 0 && n < CACHE_PATH_BYTES;
}
