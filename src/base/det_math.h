/* SPDX-License-Identifier: Apache-2.0
 * exp, log, sin and cos in double from nothing but IEEE +, -, *, / in a stated order: the same bits
 * on every machine and with every C library. Accurate to a few units in the 15th digit; meant for
 * tables and sampling, not for inner loops. */
#ifndef BN_BASE_DET_MATH_H
#define BN_BASE_DET_MATH_H

double bn_det_exp(double x);                            /* 0 below -745, infinity above 709 */
double bn_det_log(double x);                            /* x > 0, normal                    */
void bn_det_sincos(double x, double *sin, double *cos); /* |x| <= 2^30                      */

#endif
