/* SPDX-License-Identifier: Apache-2.0
 * Included before a kernel's file by planted.py: lanes of one kind of access change places. Kernels load and store by
 * these instructions, whatever names they give to them. */
#if defined(__aarch64__)
#include <arm_neon.h>
#if PLANT == 0
#define vst1q_f32(p, v) (vst1q_f32)(p, vrev64q_f32(v))
#define vst1_f32(p, v)  (vst1_f32)(p, vrev64_f32(v))
#elif PLANT == 1
#define vld1q_u8(p) vrev16q_u8((vld1q_u8)(p))
#define vld1q_s8(p) vrev16q_s8((vld1q_s8)(p))
#elif PLANT == 2
#define vld1q_f32(p) vrev64q_f32((vld1q_f32)(p))
#elif PLANT == 3
#define vst1q_u8(p, v)  (vst1q_u8)(p, vrev16q_u8(v))
#define vst1q_s8(p, v)  (vst1q_s8)(p, vrev16q_s8(v))
#define vst1q_s16(p, v) (vst1q_s16)(p, vrev32q_s16(v))
#define vst1q_s32(p, v) (vst1q_s32)(p, vrev64q_s32(v))
#endif
#else
#include <immintrin.h>
enum { PLANT_SWAP = 0xb1 };
#if PLANT == 0
#define _mm_storeu_ps(p, v)          (_mm_storeu_ps)(p, _mm_shuffle_ps(v, v, PLANT_SWAP))
#define _mm_store_ps(p, v)           (_mm_store_ps)(p, _mm_shuffle_ps(v, v, PLANT_SWAP))
#define _mm256_storeu_ps(p, v)       (_mm256_storeu_ps)(p, _mm256_permute_ps(v, PLANT_SWAP))
#define _mm256_store_ps(p, v)        (_mm256_store_ps)(p, _mm256_permute_ps(v, PLANT_SWAP))
#define _mm256_maskstore_ps(p, m, v) (_mm256_maskstore_ps)(p, m, _mm256_permute_ps(v, PLANT_SWAP))
#define _mm512_storeu_ps(p, v)       (_mm512_storeu_ps)(p, _mm512_permute_ps(v, PLANT_SWAP))
#define _mm512_mask_storeu_ps(p, m, v) \
    (_mm512_mask_storeu_ps)(p, m, _mm512_permute_ps(v, PLANT_SWAP))
#elif PLANT == 1
#define PLANT_BYTES        _mm_setr_epi8(1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14)
#define _mm_loadu_si128(p) _mm_shuffle_epi8((_mm_loadu_si128)(p), PLANT_BYTES)
#define _mm256_loadu_si256(p) \
    _mm256_shuffle_epi8((_mm256_loadu_si256)(p), _mm256_broadcastsi128_si256(PLANT_BYTES))
#define _mm512_loadu_si512(p) \
    _mm512_shuffle_epi8((_mm512_loadu_si512)(p), _mm512_broadcast_i32x4(PLANT_BYTES))
#define _mm512_load_si512(p) \
    _mm512_shuffle_epi8((_mm512_load_si512)(p), _mm512_broadcast_i32x4(PLANT_BYTES))
#elif PLANT == 2
#define _mm_loadu_ps(p)    _mm_shuffle_ps((_mm_loadu_ps)(p), (_mm_loadu_ps)(p), PLANT_SWAP)
#define _mm256_loadu_ps(p) _mm256_permute_ps((_mm256_loadu_ps)(p), PLANT_SWAP)
#define _mm512_loadu_ps(p) _mm512_permute_ps((_mm512_loadu_ps)(p), PLANT_SWAP)
#elif PLANT == 3
#define _mm_storeu_si128(p, v)    (_mm_storeu_si128)(p, _mm_shuffle_epi32(v, PLANT_SWAP))
#define _mm_store_si128(p, v)     (_mm_store_si128)(p, _mm_shuffle_epi32(v, PLANT_SWAP))
#define _mm256_storeu_si256(p, v) (_mm256_storeu_si256)(p, _mm256_shuffle_epi32(v, PLANT_SWAP))
#define _mm256_store_si256(p, v)  (_mm256_store_si256)(p, _mm256_shuffle_epi32(v, PLANT_SWAP))
#define _mm512_storeu_si512(p, v) (_mm512_storeu_si512)(p, _mm512_shuffle_epi32(v, PLANT_SWAP))
#define _mm512_store_si512(p, v)  (_mm512_store_si512)(p, _mm512_shuffle_epi32(v, PLANT_SWAP))
#endif
#endif
