/* SPDX-License-Identifier: Apache-2.0 */
#include "app/units.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

bool units_seconds(int64_t *out, const char *text)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"ms", 0.001}, {"us", 1e-6}, {"ns", 1e-9}, {"h", 3600},
                 {"m", 60},     {"s", 1},     {"d", 86400}};
    const char *at = *text == '-' ? text + 1 : text;
    double sum = 0;
    bool first = true;
    do {
        char *end;
        size_t k = 0, digits = strspn(at, "0123456789.");
        double n = strtod(at, &end); /* which takes more than that */
        if (end != at + digits) return false;
        while (k < BN_ARRAY_LEN(units) && strncmp(end, units[k].name, strlen(units[k].name)) != 0)
            k++;
        bool bare = k == BN_ARRAY_LEN(units);
        if (end == at || (bare && (*end || !first))) return false;
        sum += n * (bare ? 1 : units[k].seconds);
        at = bare ? end : end + strlen(units[k].name);
        first = false;
    } while (*at);
    if (!(sum < 1e12)) return false;
    *out = *text == '-' && sum > 0 ? -1 : (int64_t)sum;
    return true;
}
