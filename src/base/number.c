/* SPDX-License-Identifier: Apache-2.0 */
#include "base/number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char bn_locale_point(void)
{
    char text[8];
    snprintf(text, sizeof text, "%.1f", 0.5);
    return text[1];
}

int bn_number_text(char out[BN_NUMBER_BYTES], char style, int least, int most, double v)
{
    const char format[] = {'%', '.', '*', style, 0};
    int digits = least;
    do snprintf(out, BN_NUMBER_BYTES, format, digits, v);
    while (strtod(out, NULL) != v && ++digits <= most);
    char *point = strchr(out, bn_locale_point());
    if (point) *point = '.';
    return digits;
}
