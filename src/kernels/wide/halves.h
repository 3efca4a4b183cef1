/* SPDX-License-Identifier: Apache-2.0
 *
 * Wide vectors of two halves, for instruction sets with 128 bits (kernels/wide/wide.h): one operation is
 * two. What moves numbers between halves takes none. Included after the operations on halves. */
#ifndef BN_KERNELS_WIDE_HALVES_H
#define BN_KERNELS_WIDE_HALVES_H

#define W_HALVES 1
#define W_INLINE static inline __attribute__((always_inline))

typedef struct {
    h_f32 lo, hi;
} w_f32;
typedef struct {
    h_int lo, hi;
} w_int;
typedef struct {
    h_f64 lo, hi;
} w_f64;

/* Keeps both halves in their registers, as they are here. */
#define W_KEEP(v)       \
    do {                \
        h_keep((v).lo); \
        h_keep((v).hi); \
    } while (0)

/* ---- operations on places: twice the same ---- */

#define W_TWO(type, op, h_op)                                      \
    W_INLINE type w_##op(type a, type b)                           \
    {                                                              \
        return (type){h_##h_op(a.lo, b.lo), h_##h_op(a.hi, b.hi)}; \
    }
W_TWO(w_f32, add_ps, add_ps)
W_TWO(w_f32, sub_ps, sub_ps)
W_TWO(w_f32, mul_ps, mul_ps)
W_TWO(w_f32, div_ps, div_ps)
W_TWO(w_f32, max_ps, max_ps)
W_TWO(w_f32, min_ps, min_ps)
W_TWO(w_f32, and_ps, and_ps)
W_TWO(w_f32, or_ps, or_ps)
W_TWO(w_f32, andnot_ps, andnot_ps)
W_TWO(w_f32, xor_ps, xor_ps)
W_TWO(w_f32, unpacklo_ps, unpacklo_ps)
W_TWO(w_f32, unpackhi_ps, unpackhi_ps)
W_TWO(w_int, add_epi8, add_epi8)
W_TWO(w_int, add_epi16, add_epi16)
W_TWO(w_int, add_epi32, add_epi32)
W_TWO(w_int, add_epi64, add_epi64)
W_TWO(w_int, sub_epi8, sub_epi8)
W_TWO(w_int, sub_epi16, sub_epi16)
W_TWO(w_int, sub_epi32, sub_epi32)
W_TWO(w_int, and_si256, and_si128)
W_TWO(w_int, or_si256, or_si128)
W_TWO(w_int, xor_si256, xor_si128)
W_TWO(w_int, madd_epi16, madd_epi16)
W_TWO(w_int, maddubs_epi16, maddubs_epi16)
W_TWO(w_int, mullo_epi16, mullo_epi16)
W_TWO(w_int, mullo_epi32, mullo_epi32)
W_TWO(w_int, mulhrs_epi16, mulhrs_epi16)
W_TWO(w_int, max_epi8, max_epi8)
W_TWO(w_int, max_epu16, max_epu16)
W_TWO(w_int, max_epu32, max_epu32)
W_TWO(w_int, packs_epi16, packs_epi16)
W_TWO(w_int, packs_epi32, packs_epi32)
W_TWO(w_int, packus_epi16, packus_epi16)
W_TWO(w_int, hadd_epi16, hadd_epi16)
W_TWO(w_int, hadd_epi32, hadd_epi32)
W_TWO(w_int, shuffle_epi8, shuffle_epi8)
W_TWO(w_int, shuffle_low_epi8, shuffle_low_epi8)
W_TWO(w_int, sign_epi8, sign_epi8)
W_TWO(w_int, sad_epu8, sad_epu8)
W_TWO(w_int, cmpeq_epi16, cmpeq_epi16)
W_TWO(w_int, cmpeq_epi32, cmpeq_epi32)
W_TWO(w_int, cmpgt_epi8, cmpgt_epi8)
W_TWO(w_int, cmpgt_epi16, cmpgt_epi16)
W_TWO(w_int, cmpgt_epi32, cmpgt_epi32)
W_TWO(w_int, unpacklo_epi8, unpacklo_epi8)
W_TWO(w_int, unpackhi_epi8, unpackhi_epi8)
W_TWO(w_int, unpacklo_epi16, unpacklo_epi16)
W_TWO(w_int, unpackhi_epi16, unpackhi_epi16)
W_TWO(w_int, unpacklo_epi32, unpacklo_epi32)
W_TWO(w_int, unpackhi_epi32, unpackhi_epi32)
W_TWO(w_int, unpacklo_epi64, unpacklo_epi64)
W_TWO(w_int, unpackhi_epi64, unpackhi_epi64)
W_TWO(w_f64, add_pd, add_pd)
W_TWO(w_f64, mul_pd, mul_pd)
W_TWO(w_f64, hadd_pd, hadd_pd)
W_TWO(w_f32, cmp_LT_OQ, cmp_LT_OQ)
W_TWO(w_f32, cmp_GT_OQ, cmp_GT_OQ)
W_TWO(w_f32, cmp_GE_OQ, cmp_GE_OQ)
W_TWO(w_f32, cmp_NLT_UQ, cmp_NLT_UQ)
W_TWO(w_f32, cmp_NEQ_UQ, cmp_NEQ_UQ)
W_TWO(w_f32, cmp_UNORD_Q, cmp_UNORD_Q)
#undef W_TWO
#define w_cmp_ps(a, b, how) w_cmp_##how(a, b)

#define W_SHIFT(op)                                       \
    W_INLINE w_int w_##op(w_int v, const int n)           \
    {                                                     \
        return (w_int){h_##op(v.lo, n), h_##op(v.hi, n)}; \
    }
W_SHIFT(slli_epi16)
W_SHIFT(srli_epi16)
W_SHIFT(srai_epi16)
W_SHIFT(slli_epi32)
W_SHIFT(srli_epi32)
W_SHIFT(srai_epi32)
#undef W_SHIFT
#define w_srl_epi16(v, n) ((w_int){h_srl_epi16((v).lo, n), h_srl_epi16((v).hi, n)})
#define w_srl_epi32(v, n) ((w_int){h_srl_epi32((v).lo, n), h_srl_epi32((v).hi, n)})
#define w_shuffle_ps(a, b, imm) \
    ((w_f32){h_shuffle_ps((a).lo, (b).lo, imm), h_shuffle_ps((a).hi, (b).hi, imm)})
#define w_permute_ps(v, imm) ((w_f32){h_permute_ps((v).lo, imm), h_permute_ps((v).hi, imm)})

W_INLINE w_f32 w_fmadd_ps(w_f32 a, w_f32 b, w_f32 c)
{
    return (w_f32){h_fmadd_ps(a.lo, b.lo, c.lo), h_fmadd_ps(a.hi, b.hi, c.hi)};
}

W_INLINE w_f32 w_blendv_ps(w_f32 a, w_f32 b, w_f32 m)
{
    return (w_f32){h_blendv_ps(a.lo, b.lo, m.lo), h_blendv_ps(a.hi, b.hi, m.hi)};
}

W_INLINE w_int w_blendv_epi8(w_int a, w_int b, w_int m)
{
    return (w_int){h_blendv_epi8(a.lo, b.lo, m.lo), h_blendv_epi8(a.hi, b.hi, m.hi)};
}

W_INLINE w_int w_abs_epi8(w_int v) { return (w_int){h_abs_epi8(v.lo), h_abs_epi8(v.hi)}; }

/* ---- from and to memory ---- */

W_INLINE w_f32 w_loadu_ps(const float *p) { return (w_f32){h_loadu_ps(p), h_loadu_ps(p + 4)}; }
#define w_load_ps w_loadu_ps

W_INLINE void w_storeu_ps(float *p, w_f32 v)
{
    h_storeu_ps(p, v.lo);
    h_storeu_ps(p + 4, v.hi);
}
#define w_store_ps w_storeu_ps

W_INLINE w_int w_loadu_si256(const void *p)
{
    return (w_int){h_loadu_si128(p), h_loadu_si128((const void *)((const char *)p + 16))};
}
#define w_load_si256 w_loadu_si256

W_INLINE void w_storeu_si256(void *p, w_int v)
{
    h_storeu_si128(p, v.lo);
    h_storeu_si128((void *)((char *)p + 16), v.hi);
}
#define w_store_si256 w_storeu_si256

/* ---- one number in all places, or given ones ---- */

#define W_SAME(name, type, from, h_name) \
    W_INLINE type w_##name(from x) { return (type){h_##h_name(x), h_##h_name(x)}; }
W_SAME(set1_ps, w_f32, float, set1_ps)
W_SAME(set1_pd, w_f64, double, set1_pd)
W_SAME(set1_epi8, w_int, char, set1_epi8)
W_SAME(set1_epi16, w_int, short, set1_epi16)
W_SAME(set1_epi32, w_int, int, set1_epi32)
W_SAME(set1_epi64x, w_int, int64_t, set1_epi64x)
#undef W_SAME
W_INLINE w_int w_broadcastsi128_si256(h_int v) { return (w_int){v, v}; }
W_INLINE w_f32 w_broadcast_ss(const float *p) { return w_set1_ps(*p); }
W_INLINE w_f32 w_setzero_ps(void) { return w_set1_ps(0); }
W_INLINE w_f64 w_setzero_pd(void) { return w_set1_pd(0); }
W_INLINE w_int w_setzero_si256(void) { return w_set1_epi32(0); }

#define w_setr_ps(a, b, c, d, e, f, g, h) ((w_f32){h_setr_ps(a, b, c, d), h_setr_ps(e, f, g, h)})
#define w_setr_epi32(a, b, c, d, e, f, g, h) \
    ((w_int){h_setr_epi32(a, b, c, d), h_setr_epi32(e, f, g, h)})
#define w_setr_epi16(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) \
    ((w_int){h_setr_epi16(a, b, c, d, e, f, g, h), h_setr_epi16(i, j, k, l, m, n, o, p)})
#define w_setr_epi8(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ...) \
    ((w_int){h_setr_epi8(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p), h_setr_epi8(__VA_ARGS__)})

/* ---- bits seen as another type; halves ---- */

W_INLINE w_int w_castps_si256(w_f32 v)
{
    return (w_int){h_castps_si128(v.lo), h_castps_si128(v.hi)};
}
W_INLINE w_f32 w_castsi256_ps(w_int v)
{
    return (w_f32){h_castsi128_ps(v.lo), h_castsi128_ps(v.hi)};
}
#define w_castps256_ps128(v)      ((v).lo)
#define w_castsi256_si128(v)      ((v).lo)
#define w_extractf128_ps(v, i)    ((v).hi) /* always half 1 */
#define w_extracti128_si256(v, i) ((v).hi)
#define w_set_m128(high, low)     ((w_f32){low, high})
#define w_blend_ps(a, b, imm)     ((w_f32){(a).lo, (b).hi}) /* always 0xf0 */

/* halves by number: 0 and 1 are a's, 2 and 3 are b's */
#define W_PERMUTE(name, type)                             \
    W_INLINE type w_##name(type a, type b, const int imm) \
    {                                                     \
        const int l = imm & 3, h = imm >> 4 & 3;          \
        return (type){l == 0   ? a.lo                     \
                      : l == 1 ? a.hi                     \
                      : l == 2 ? b.lo                     \
                               : b.hi,                    \
                      h == 0   ? a.lo                     \
                      : h == 1 ? a.hi                     \
                      : h == 2 ? b.lo                     \
                               : b.hi};                   \
    }
W_PERMUTE(permute2x128_si256, w_int)
W_PERMUTE(permute2f128_ps, w_f32)
W_PERMUTE(permute2f128_pd, w_f64)
#undef W_PERMUTE

/* ---- conversions ---- */

W_INLINE w_f32 w_cvtepi32_ps(w_int v) { return (w_f32){h_cvtepi32_ps(v.lo), h_cvtepi32_ps(v.hi)}; }
W_INLINE w_int w_cvtps_epi32(w_f32 v) { return (w_int){h_cvtps_epi32(v.lo), h_cvtps_epi32(v.hi)}; }
#define W_WIDEN(name) \
    W_INLINE w_int w_cvt##name(h_int v) { return (w_int){h_cvt##name(v), h_cvthi_##name(v)}; }
W_WIDEN(epi8_epi16)
W_WIDEN(epu8_epi16)
W_WIDEN(epi16_epi32)
W_WIDEN(epu16_epi32)
#undef W_WIDEN
W_INLINE w_int w_cvtepi8_epi32(h_int v) { return w_cvtepi16_epi32(h_cvtepi8_epi16(v)); }
W_INLINE w_int w_cvtepu8_epi32(h_int v) { return w_cvtepu16_epi32(h_cvtepu8_epi16(v)); }
W_INLINE w_f64 w_cvtepi32_pd(h_int v) { return (w_f64){h_cvtepi32_pd(v), h_cvthi_epi32_pd(v)}; }
W_INLINE w_f64 w_cvtps_pd(h_f32 v) { return (w_f64){h_cvtps_pd(v), h_cvthi_ps_pd(v)}; }
W_INLINE h_f32 w_cvtpd_ps(w_f64 v) { return h_join_pd_ps(v.lo, v.hi); }
W_INLINE w_f32 w_cvtph_ps(h_int v) { return (w_f32){h_cvtph_ps(v), h_cvthi_ph_ps(v)}; }
#define w_cvtps_ph(v, imm) h_join_ph((v).lo, (v).hi)

/* 2 x 8 integers to 16 bits and 4 x 8 to 8 bits, in order */
W_INLINE w_int w_pack_i16(w_int a, w_int b)
{
    return (w_int){h_packs_epi32(a.lo, a.hi), h_packs_epi32(b.lo, b.hi)};
}

W_INLINE w_int w_pack_i8(const w_int v[4])
{
    w_int a = w_pack_i16(v[0], v[1]), b = w_pack_i16(v[2], v[3]);
    return (w_int){h_packs_epi16(a.lo, a.hi), h_packs_epi16(b.lo, b.hi)};
}

/* ---- tests ---- */

W_INLINE int w_movemask_ps(w_f32 v) { return h_movemask_ps(v.lo) | h_movemask_ps(v.hi) << 4; }
W_INLINE int w_testz_si256(w_int a, w_int b)
{
    return h_testz_si128(a.lo, b.lo) && h_testz_si128(a.hi, b.hi);
}

/* ---- the first n of some elements; the others are +0, and are not stored ---- */

static inline w_int w_mask_head(size_t n)
{
    static const int32_t bits[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    return w_loadu_si256(bits + 8 - bn_min_size(n, 8));
}

static inline w_f32 w_load_head(const float *p, size_t n)
{
    float v[8] = {0};
    if (n >= 8) return w_loadu_ps(p);
    for (size_t i = 0; i < n; i++) v[i] = p[i];
    return w_loadu_ps(v);
}

static inline void w_store_head(float *p, size_t n, w_f32 v)
{
    float t[8];
    w_storeu_ps(t, v);
    for (size_t i = 0; i < 8 && i < n; i++) p[i] = t[i];
}

static inline void w_store_head_i32(int32_t *p, size_t n, w_int v)
{
    int32_t t[8];
    w_storeu_si256(t, v);
    for (size_t i = 0; i < 8 && i < n; i++) p[i] = t[i];
}

static inline h_f32 h_load_head(const float *p, size_t n) { return w_load_head(p, n).lo; }
static inline void h_store_head(float *p, size_t n, h_f32 v)
{
    w_store_head(p, bn_min_size(n, 4), (w_f32){v, v});
}

/* ---- what AVX2 has written out (kernels/x86/wide_avx2.h) ---- */

W_INLINE w_int w_add_pairs(w_int s, w_int codes, w_int x)
{
    s = w_add_epi16(s, w_maddubs_epi16(codes, x));
    W_KEEP(s);
    return s;
}

W_INLINE w_int w_add_products(w_int s, w_int codes, const int8_t *x)
{
    s.lo = h_add_products(s.lo, codes.lo, h_loadu_si128((const void *)x));
    s.hi = h_add_products(s.hi, codes.hi, h_loadu_si128((const void *)(x + 16)));
    W_KEEP(s);
    return s;
}

W_INLINE w_int w_load_by_sign(const int8_t *x, const int8_t *other, w_int sign)
{
    return w_blendv_epi8(w_loadu_si256(x), w_loadu_si256(other), sign);
}

W_INLINE w_f32 w_weights(w_int codes)
{
    w_int low = w_and_si256(codes, w_set1_epi32(3));
    return w_sub_ps(w_cvtepi32_ps(low), w_set1_ps(1));
}

W_INLINE w_f32 w_bit_signs(uint32_t four, const size_t byte)
{
    const w_int bit = w_slli_epi32(w_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128), 8 * (int)byte);
    w_int clear = w_cmpeq_epi32(w_and_si256(w_set1_epi32((int32_t)four), bit), w_setzero_si256());
    w_f32 sign = w_and_ps(w_castsi256_ps(clear), w_set1_ps(-0.0f));
    return w_or_ps(w_set1_ps(1), sign);
}

#endif
