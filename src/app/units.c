/* SPDX-License-Identifier: Apache-2.0 */
#include "app/units.h"

#include <math.h>
#include <stdio.h>

/* Each unit is a thousand of the one before it; the last is NULL. */
static const char *show(char out[UNITS_BYTES], double v, const char *const units[])
{
    while (fabs(v) >= 999.5 && units[1]) v /= 1000, units++;
    double size = fabs(v);
    int decimals = v == floor(v) || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
    if (size > 0 && size < 0.995) snprintf(out, UNITS_BYTES, "%.2g%s", v, *units);
    else snprintf(out, UNITS_BYTES, "%.*f%s", decimals, v, *units);
    return out;
}

const char *units_time(char out[UNITS_BYTES], double ns)
{
    static const char *const units[] = {" ns", " µs", " ms", " s", NULL};
    return show(out, ns, units);
}

const char *units_size(char out[UNITS_BYTES], double bytes)
{
    static const char *const units[] = {" B", " kB", " MB", " GB", " TB", NULL};
    return show(out, bytes, units);
}

const char *units_rate(char out[UNITS_BYTES], double bytes_per_s)
{
    static const char *const units[] = {" B/s", " kB/s", " MB/s", " GB/s", " TB/s", NULL};
    return show(out, bytes_per_s, units);
}

const char *units_count(char out[UNITS_BYTES], double n)
{
    static const char *const units[] = {"", " k", " M", " G", " T", NULL};
    return show(out, n, units);
}

const char *units_share(char out[UNITS_BYTES], double share)
{
    snprintf(out, UNITS_BYTES, "%.1f %%", share * 100);
    return out;
}
