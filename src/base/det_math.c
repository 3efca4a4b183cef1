/* SPDX-License-Identifier: Apache-2.0
 * Range reduction followed by a Taylor series summed from the smallest term: slow, short, and easy
 * to check. */
#include "base/det_math.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static double pow2(int n) /* -1022 <= n <= 1023 */
{
    uint64_t bits = (uint64_t)(n + 1023) << 52;
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}

double bn_det_exp(double x)
{
    if (isnan(x)) return x;
    if (x > 709.0) return (double)INFINITY;
    if (x < -745.0) return 0.0;
    /* x = n ln 2 + r, |r| <= ln 2 / 2; ln 2 in two parts so that n * hi is exact */
    const double ln2_hi = 0x1.62e42fee00000p-1, ln2_lo = 0x1.a39ef35793c76p-33;
    double n = rint(x * 0x1.71547652b82fep0);
    double r = (x - n * ln2_hi) - n * ln2_lo;
    double sum = 1.0;
    for (int k = 18; k >= 1; k--) sum = 1.0 + sum * r / k; /* Horner: 1 + r/1 (1 + r/2 (1 + ...)) */
    int e = (int)n;
    if (e < -1000) return sum * pow2(e + 100) * pow2(-100); /* subnormal results round once, here */
    return e > 1000 ? sum * pow2(e - 100) * pow2(100) : sum * pow2(e);
}

double bn_det_log(double x)
{
    int e;
    double m = frexp(x, &e); /* exact */
    if (m < 0.70710678118654752) {
        m *= 2.0;
        e--;
    }
    /* ln m = 2 atanh(t), t = (m-1)/(m+1), |t| <= 0.1716 */
    double t = (m - 1.0) / (m + 1.0), t2 = t * t, sum = 0.0;
    for (int k = 25; k >= 1; k -= 2) sum = sum * t2 + 1.0 / k;
    const double ln2_hi = 0x1.62e42fee00000p-1, ln2_lo = 0x1.a39ef35793c76p-33;
    return e * ln2_hi + (2.0 * t * sum + e * ln2_lo);
}

void bn_det_sincos(double x, double *sin_out, double *cos_out)
{
    /* x = n pi/2 + r with pi/2 in three parts of 33 bits: n * part is exact for n < 2^20, and good
     * to 1e-10 of a radian at 2^30 */
    const double p1 = 0x1.921fb54400000p0, p2 = 0x1.0b4611a600000p-34, p3 = 0x1.3198a2e037073p-69;
    double n = rint(x * 0x1.45f306dc9c883p-1);
    double r = ((x - n * p1) - n * p2) - n * p3, r2 = r * r;
    double s = 1.0, c = 1.0;
    for (int k = 20; k >= 2; k -= 2) {
        s = 1.0 - s * r2 / (double)(k * (k + 1));
        c = 1.0 - c * r2 / (double)((k - 1) * k);
    }
    s *= r;
    switch ((int64_t)n & 3) {
    case 0:
        *sin_out = s;
        *cos_out = c;
        break;
    case 1:
        *sin_out = c;
        *cos_out = -s;
        break;
    case 2:
        *sin_out = -s;
        *cos_out = -c;
        break;
    default:
        *sin_out = -c;
        *cos_out = s;
        break;
    }
}
