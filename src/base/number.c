/* SPDX-License-Identifier: Apache-2.0 */
#include "base/number.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FLOAT_DIGITS = 9 };

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

/* 10^n; its error is far below that of the ninth digit. */
static double power_of_ten(int n)
{
    static const double exact[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                   1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                   1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    double x = 1;
    int k = n < 0 ? -n : n;
    for (; k > 22; k -= 22) x *= 1e22;
    x *= exact[k];
    return n < 0 ? 1 / x : x;
}

/* Digits without the zeros at their end, with a point behind the first `whole` ones. */
static char *put_digits(char *to, uint32_t digits, int whole)
{
    char text[FLOAT_DIGITS];
    int n = FLOAT_DIGITS;
    for (int i = FLOAT_DIGITS - 1; i >= 0; i--, digits /= 10) text[i] = (char)('0' + digits % 10);
    while (n > 1 && n > whole && text[n - 1] == '0') n--;
    for (int i = 0; i < n; i++) {
        if (i == whole) *to++ = '.';
        *to++ = text[i];
    }
    return to;
}

size_t bn_number_float(char out[BN_NUMBER_BYTES], float v)
{
    char *to = out;
    double a = fabs((double)v);
    int e = 0;
    if (!isfinite(v)) return (size_t)snprintf(out, BN_NUMBER_BYTES, "null");
    if (signbit(v)) *to++ = '-';
    if (a == 0) {
        *to++ = '0';
        *to = 0;
        return (size_t)(to - out);
    }
    e = (int)floor(log10(a));
    uint64_t digits = (uint64_t)llrint(a * power_of_ten(FLOAT_DIGITS - 1 - e));
    if (digits < 100000000) /* log10 was rounded up */
        digits = (uint64_t)llrint(a * power_of_ten(FLOAT_DIGITS - 1 - --e));
    if (digits >= 1000000000) {
        digits = (digits + 5) / 10;
        e++;
    }
    if (e < -4 || e >= FLOAT_DIGITS) {
        to = put_digits(to, (uint32_t)digits, 1);
        to += snprintf(to, 8, "e%c%02d", e < 0 ? '-' : '+', e < 0 ? -e : e);
    } else if (e < 0) {
        memcpy(to, "0.0000", 6);
        to = put_digits(to + 1 - e, (uint32_t)digits, FLOAT_DIGITS);
        while (to[-1] == '0') to--;
    } else to = put_digits(to, (uint32_t)digits, e + 1);
    *to = 0;
    return (size_t)(to - out);
}
