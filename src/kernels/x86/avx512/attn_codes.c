/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX-512: attention over codes. Registers of 32 bytes, twice as many of them, and an instruction that
 * multiplies pairs and adds. */
#include <immintrin.h>

enum { ATTN_FULL_QUERIES = 4 /* up to so many all octets' sums are in registers at a time */ };

static inline __m256i dot_pairs(__m256i s, __m256i x, __m256i y)
{
    return _mm256_dpwssd_epi32(s, x, y);
}

#include "kernels/wide/attn_codes.h"

void bn_attn_codes_avx512(const struct bn_attn_codes *a) { attn_codes(a); }
