/* SPDX-License-Identifier: Apache-2.0 */
#include "base/parts.h"

#include <stdio.h>

/* five digits; false: they are none */
static bool five_digits(unsigned *out, const char *p)
{
    *out = 0;
    for (int i = 0; i < 5; i++) {
        if (p[i] < '0' || p[i] > '9') return false;
        *out = 10 * *out + (unsigned)(p[i] - '0');
    }
    return true;
}

bool bn_part_read(unsigned *part, unsigned *of, const char *name, const char *ending)
{
    size_t n = strlen(name), tail = BN_PART_BYTES + strlen(ending);
    if (n <= tail || !bn_ends_with(name, ending)) return false;
    const char *p = name + n - tail;
    return p[0] == '-' && five_digits(part, p + 1) && memcmp(p + 6, "-of-", 4) == 0 &&
           five_digits(of, p + 10) && *part >= 1 && *part <= *of;
}

bool bn_part_write(char *out, size_t room, const char *name, unsigned part, const char *ending)
{
    size_t n = strlen(name), number = n - strlen(ending) - BN_PART_BYTES + 1;
    int len = snprintf(out, room, "%.*s%05u%s", (int)number, name, part, name + number + 5);
    return len >= 0 && (size_t)len < room;
}
