/* SPDX-License-Identifier: Apache-2.0
 *
 * Vectors for kernels that one source has for several instruction sets: w_ operations on 256 bits (8
 * floats), h_ operations on 128. Their names are those of AVX2 with w_ in place of _mm256_ and h_ in
 * place of _mm_, and so is what they do; what differs is said where it is defined. AVX2 has them all as
 * instructions; elsewhere a wide vector is two halves: two registers of SSE4.1 or NEON. Sums are the
 * same bit for bit: lanes do not depend on how many registers they take.
 *
 * The build defines BN_WIDE, the name of the instruction set in the names of functions. */
#ifndef BN_KERNELS_WIDE_WIDE_H
#define BN_KERNELS_WIDE_WIDE_H

#if defined(__AVX2__)
#include "kernels/x86/wide_avx2.h"
#elif defined(__SSE4_1__)
#include "kernels/x86/half_sse41.h"

#include "kernels/wide/halves.h"
#else
#include "kernels/arm/half_neon.h"

#include "kernels/wide/halves.h"
#endif

/* ---- sums of codes times activations ----
 * w_add_pairs() and w_add_products() make 16-bit sums of pairs of bytes. With dot products (W_DOT) they
 * make 32-bit sums of fours, so that nothing can be too large: then these operations are of 32 bits. */
#if defined(W_DOT)
#define w_sum_add(a, b)   w_add_epi32(a, b)
#define h_sum_add(a, b)   h_add_epi32(a, b)
#define w_sum_sub(a, b)   w_sub_epi32(a, b)
#define w_sum_thrice(a)   w_add_epi32(a, w_slli_epi32(a, 1))
#define w_sum_fourfold(a) w_slli_epi32(a, 2)
#define w_sum_quarter(a)  w_srai_epi32(a, 2)
#define w_sum_32(a)       (a)
#else
#define w_sum_add(a, b)   w_add_epi16(a, b)
#define h_sum_add(a, b)   h_add_epi16(a, b)
#define w_sum_sub(a, b)   w_sub_epi16(a, b)
#define w_sum_thrice(a)   w_mullo_epi16(a, w_set1_epi16(3))
#define w_sum_fourfold(a) w_slli_epi16(a, 2)
#define w_sum_quarter(a)  w_srai_epi16(a, 2)
#define w_sum_32(a)       w_madd_epi16(a, w_set1_epi16(1))
#endif

/* Layouts with fewer bits than two a weight take more instructions: that pays with 256 bits only. */
#if defined(W_HALVES)
#define W_FRUGAL false
#else
#define W_FRUGAL true
#endif

/* bn_NAME_ISA; W_BASE: of the instruction set whose kernels these build upon, often the same */
#define W_PASTE_(name, isa) bn_##name##_##isa
#define W_PASTE(name, isa)  W_PASTE_(name, isa)
#define W_NAME(name)        W_PASTE(name, BN_WIDE)
#if defined(BN_WIDE_BASE)
#define W_BASE(name) W_PASTE(name, BN_WIDE_BASE)
#else
#define W_BASE(name) W_NAME(name)
#endif

#endif
