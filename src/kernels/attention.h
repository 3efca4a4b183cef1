/* SPDX-License-Identifier: Apache-2.0
 *
 * A part of kernels.h: keys and values in fewer bits, and attention over them. */
#ifndef BN_KERNELS_ATTENTION_H
#define BN_KERNELS_ATTENTION_H

enum {
    BN_ATTN_BLOCK = 32, /* keys in one step of attention */
    BN_KV_GROUP = 32,   /* values that share a step */
    BN_KV_ROWS = 16,    /* rows of a tile of codes */
    BN_KV_DIM_MAX = 512,
    BN_F16_NAN = 0x7e00
};

/* ---- keys and values in fewer bits ----
 * Elements: bf16, and the 8-bit floats of kernels/fp8.h; rounded half to even. Numbers beyond the
 * largest 8-bit float become that; an infinity stays one in e5m2 and is a NaN in e4m3.
 * f32_to_q8_0: blocks of 32 (n is a multiple): d = f16(max|x| / 127), inv = 1 / d (0 if d is 0),
 * q = round_half_even(x * inv) within +-127; if a value or d is not finite, d is BN_F16_NAN and
 * q = 0, so that all are NaNs when read. */
typedef bn_row_fn bn_row_e4m3_fn, bn_row_e5m2_fn;
typedef void bn_narrow_fn(void *row, const float *x, size_t n);
typedef bn_narrow_fn bn_f32_to_bf16_fn, bn_f32_to_e4m3_fn, bn_f32_to_e5m2_fn, bn_f32_to_q8_0_fn;

/* A block of BN_ATTN_BLOCK tokens of `dim` channels, a multiple of BN_KV_GROUP, in codes of `bits`,
 * 8, 4 or 2. Groups of 32 values have a step, and with 4 and 2 bits a minimum. These are groups of 32
 * channels of a token; of keys with 4 and 2 bits the tokens of a channel, since channels differ in
 * size. With 8 bits a token has the steps and codes of f32_to_q8_0. Otherwise
 *   step = f16((max - min) / most), most = 2^bits - 1; min = f16(min + 0); inv = 1 / step (or 0)
 *   q = round_half_even((x - min) * inv) within 0 .. most;  read as  min + q * step
 * and if a value, step or min is not finite, step is BN_F16_NAN, min 0, q = 0. The block:
 *   f16 step[dim], with 4 and 2 bits f16 min[dim]: by channel, or [dim / 32][BN_ATTN_BLOCK]: those
 *   of the first 32 channels of all tokens, of the next ones, ...
 *   tiles of 32 channels, BN_KV_ROWS rows of 64 codes each, 8 * bits bytes. Row r has the codes of
 *   two channels for every token (keys) or of two tokens for every channel (values), side by side, as
 *   products of pairs of 16 bits want them: those of channels 2r, 2r + 1 and tokens 0, 1, 2, ...; or
 *   of tokens 2r, 2r + 1 and channels 0, 1, 2, ... of the tile. Sixteen codes are an octet, of eight
 *   tokens or channels; 16 bytes hold 8 / bits octets, the first one in the lowest bits. */
static inline size_t bn_kv_block_bytes(size_t dim, unsigned bits)
{
    return dim * (bits == 8 ? 2 : 4) + dim * BN_ATTN_BLOCK * bits / 8;
}

static inline size_t bn_kv_tile_bytes(unsigned bits) { return (size_t)BN_KV_ROWS * 8 * bits; }

/* The tile of 32 channels from the first one on, which is 32 * tile. */
static inline size_t bn_kv_tile_at(size_t dim, unsigned bits, size_t tile)
{
    return dim * (bits == 8 ? 2 : 4) + tile * bn_kv_tile_bytes(bits);
}

/* A code's place: its byte in the block, and the shift there. */
struct bn_kv_place {
    size_t byte;
    unsigned shift;
};
static inline struct bn_kv_place bn_kv_code_at(size_t dim, unsigned bits, bool values, size_t token,
                                               size_t channel)
{
    size_t in_tile = channel % BN_KV_GROUP, per = 8 / bits;
    size_t row = (values ? token : in_tile) / 2, lane = values ? in_tile : token;
    size_t octet = lane / 8, i = lane % 8 * 2 + (values ? token : in_tile) % 2;
    return (struct bn_kv_place){bn_kv_tile_at(dim, bits, channel / BN_KV_GROUP) + row * 8 * bits +
                                    octet / per * 16 + i,
                                (unsigned)(octet % per) * bits};
}

/* x: [BN_ATTN_BLOCK][dim]; bits: 4 or 2. With 8 bits tokens are put one by one (model/attention/kv_types.c). */
typedef void bn_kv_put_fn(uint8_t *block, const float *x, size_t dim, unsigned bits);
typedef bn_kv_put_fn bn_kv_put_keys_fn, bn_kv_put_values_fn;
/* y: [n][dim], tokens t0 to t0 + n - 1 */
typedef void bn_kv_get_fn(float *y, const uint8_t *block, size_t t0, size_t n, size_t dim,
                          unsigned bits);
typedef bn_kv_get_fn bn_kv_get_keys_fn, bn_kv_get_values_fn;

/* ---- attention: one block of keys for the query heads that share a KV head ----
 * For each of n_q queries (q: [n_q][dim]): s_j = dot(q, k_j) * scale for the n keys
 * (1 <= n <= BN_ATTN_BLOCK), mb = max s_j + 0 (so that a zero is +0; NaNs count as nothing),
 * p_j = exp(s_j - mb), lb = lane sum of p_j, ob[d] = sum over j in order of p_j * v_j[d] (from +0);
 * then folded into the running state, which starts as m = -inf, l = 0, o = 0 (m, l: [n_q],
 * o: [n_q][dim]):
 *   mn = max(m, mb), a = exp(m - mn), c = exp(mb - mn), l = l * a + lb * c,
 *   o[d] = o[d] * a + ob[d] * c, m = mn.
 * Blocks are taken in order; the answer is o / l. */
struct bn_attn_args {
    float *o, *m, *l; /* the state: [n_q][dim], [n_q], [n_q]; read and written */
    const float *q;   /* [n_q][dim] */
    size_t n_q;
    const void *k, *v; /* [n][kv_stride], dim used: elements of the kernel's type, f32 or f16 */
    size_t kv_stride;  /* elements from one token to the next */
    size_t n, dim;
    float scale;
    /* What the caller will ask for next, laid out like k and v, so that it can be on its way from
     * memory meanwhile; NULL if nothing. A hint: nothing there is read. */
    const void *next_k, *next_v;
};
typedef void bn_attn_rows_fn(const struct bn_attn_args *a);
typedef bn_attn_rows_fn bn_attn_f32_fn, bn_attn_f16_fn;

/* The same for the queries from one of them on. */
static inline struct bn_attn_args bn_attn_from(const struct bn_attn_args *a, size_t query)
{
    struct bn_attn_args rest = *a;
    rest.o += query * a->dim;
    rest.m += query;
    rest.l += query;
    rest.q += query * a->dim;
    rest.n_q -= query;
    return rest;
}

/* bf16: the same over rows of bf16. e4m3, e5m2: over 8-bit floats, with short floats: queries are those
 * of short_query, and so are weights in ob, not those in lb. Their products are exact. A row of e4m3
 * that has a NaN has nothing else. */
typedef bn_attn_rows_fn bn_attn_bf16_fn, bn_attn_e4m3_fn, bn_attn_e5m2_fn;

/* y = x rounded half to even to 16 bits of significand, 0 below 2^-60, and a NaN from 2^100 on. */
typedef void bn_short_query_fn(float *y, const float *x, size_t n);

/* Queries for attention over codes: y = round_half_even(x * inv), inv = 32767 / max|x|, or 0 where the
 * maximum is below 2^-100; returns the unit max|x| / 32767. If a value is not finite, the unit is a
 * NaN and y 0. */
typedef float bn_quant_query_fn(int16_t *y, const float *x, size_t n);

/* The same attention over codes in their blocks, by integers. Of a block's steps d_i,
 *   D = max d_i (a NaN if one is not finite), e_i = round_half_even(d_i * (32767 / D)) (0 if D is 0)
 * and h(x, y) = (x * y + 2^14) >> 15. For a query with values q_c, integers k_c and a unit:
 *   8 bits:  s_j = (sum over groups of 32 channels, in order and from +0, of (float)S * d) *
 *            (unit * scale), S = sum of k_c * code, d the step of group and key
 *   else:    s_j = ((float)S * (unit * (D * BN_CODES_UNIT)) + dot(q, min)) * scale,
 *            S = sum over all channels of h(k_c, e_c) * code; the dot in lanes; D and e of all channels
 * mb, p_j and lb as above. Values, 32 channels at a time, D and e of their n steps:
 *   i_j = round_half_even(p_j * 32767),  S_d = sum over keys of h(i_j, e_j) * code,
 *   ob[d] = (float)S_d * f, f = D * (BN_CODES_UNIT / 32767) + (lb - lb), so that a NaN stays one;
 *   with 4 and 2 bits + the lane sum of p_j * min_j.
 * Sums S are exact: |S| < 2^28. dim is a multiple of BN_KV_GROUP up to BN_KV_DIM_MAX. Of a block all
 * bytes may be read, results do not depend on keys and values from n on; with keys of 4 and 2 bits n
 * is BN_ATTN_BLOCK. */
#define BN_CODES_UNIT (32768.0f / 32767.0f)
struct bn_attn_codes {
    float *o, *m, *l;      /* as in struct bn_attn_args */
    const float *q;        /* [n_q][dim] */
    const int16_t *q_code; /* [n_q][dim], of quant_query */
    const float *q_unit;   /* [n_q], likewise */
    size_t n_q;
    const uint8_t *k, *v;    /* one block each: bn_kv_block_bytes() */
    unsigned k_bits, v_bits; /* 8, 4 or 2 */
    size_t n, dim;           /* n: 1 .. BN_ATTN_BLOCK keys */
    float scale;
    const uint8_t *next_k, *next_v; /* as in struct bn_attn_args */
};
typedef void bn_attn_codes_fn(const struct bn_attn_codes *a);

/* The folding alone, of one query: o, m, l take in ob[dim], mb, lb of a block. For blocks that were
 * computed apart, each into a state of its own that was new: that leaves mb, lb and ob in it. */
typedef void bn_attn_fold_fn(float *o, float *m, float *l, const float *ob, float mb, float lb,
                             size_t dim);

#endif
