/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of attention over codes: the reference against attention in double precision over what the
 * codes stand for, within a bound that follows from the rounding of queries and weights. */
#include "check.h"

#include <math.h>

struct query {
    bn_quant_query_fn *fn;
    int16_t *y;
    const float *x;
    float unit;
    size_t n;
};

static void run_query(void *p)
{
    struct query *a = p;
    a->unit = a->fn(a->y, a->x, a->n);
}

static void naive_query(struct ck *c, const struct query *a)
{
    double max = 0;
    bool finite = true;
    for (size_t i = 0; i < a->n; i++) {
        if (!isfinite(a->x[i])) finite = false;
        else if (fabs((double)a->x[i]) > max) max = fabs((double)a->x[i]);
    }
    if (finite != isfinite(a->unit)) ck_fail(c, "the unit is %a", (double)a->unit);
    for (size_t i = 0; finite && i < a->n; i++)
        if (!ck_near(c, "x", a->x[i], a->y[i] * (double)a->unit,
                     max / 32767 * 0.505 + (max < 0x1p-100 ? 0x1p-100 : 0), i))
            return;
}

void check_quant_query(struct ck *c)
{
    for (size_t n = 1; n <= 512; n += n < 40 ? 1 : 59)
        for (enum ck_fill f = 0; f < CK_FILLS; f++) {
            ck_case(c, "n=%zu fill=%s", n, ck_fill_name(f));
            float *x = ck_buffer(c, n * sizeof *x);
            ck_fill_f32(c, x, n, f);
            struct query a = {.fn = (bn_quant_query_fn *)c->ref->fn, .x = x, .n = n};
            a.y = ck_buffer(c, n * sizeof *a.y);
            if (!ck_run(c, run_query, &a)) continue;
            if (c->naive) naive_query(c, &a);
            if (c->naive) continue;
            struct query b = a;
            b.fn = (bn_quant_query_fn *)c->v->fn;
            b.y = ck_buffer(c, n * sizeof *b.y);
            if (!ck_run(c, run_query, &b)) continue;
            ck_same_f32(c, "unit", &a.unit, &b.unit, 1, 1);
            ck_same_bytes(c, "y", a.y, b.y, n * sizeof *a.y);
        }
}

/* ---- blocks ---- */

struct codes {
    bn_attn_codes_fn *fn;
    struct bn_attn_codes a;
};

static void run_codes(void *p)
{
    struct codes *x = p;
    x->fn(&x->a);
}

struct shape {
    size_t n_q, dim, n; /* n: keys, in blocks; the last one may not be full with 8 bits */
    unsigned k_bits, v_bits;
};

/* A block of random codes; steps and minima as they would be there. */
static void fill_block(struct ck *c, uint8_t *block, size_t dim, unsigned bits, enum ck_fill f)
{
    size_t bytes = bn_kv_block_bytes(dim, bits), n = bits == 8 ? dim : 2 * dim;
    for (size_t i = 2 * n; i < bytes; i++) {
        block[i] = (uint8_t)bn_rng_u64(&c->rng);
        if (bits == 8 && block[i] == 0x80) block[i] = 0;
    }
    for (size_t i = 0; i < n; i++) {
        double size = f == CK_WIDE ? ldexp(1, (int)bn_rng_below(&c->rng, 12) - 8) : 0.02;
        double x = (i < dim ? bn_rng_unit(&c->rng) : bn_rng_unit(&c->rng) * 16 - 8) * size;
        uint16_t half = f == CK_ZERO ? 0 : bn_f32_to_f16((float)x);
        if (f == CK_TINY) half &= 0x81ff;
        if (f == CK_HUGE) half = 0x7bff;
        if (f == CK_SPECIAL && i < dim && bn_rng_below(&c->rng, 3 * (uint32_t)dim) == 0)
            half = BN_F16_NAN;
        bn_store_u16(block + 2 * i, half);
    }
}

/* What a code stands for, and the step. */
static double value(const struct bn_attn_codes *a, size_t t, size_t ch, bool values, double *step)
{
    unsigned bits = values ? a->v_bits : a->k_bits;
    const uint8_t *block = values ? a->v : a->k;
    size_t g = values || bits == 8 ? ch / 32 * 32 + t : ch;
    struct bn_kv_place at = bn_kv_code_at(a->dim, bits, values, t, ch);
    *step = bn_f16_to_f32(bn_load_u16(block + 2 * g));
    if (bits == 8) return *step * (int8_t)block[at.byte];
    double min = bn_f16_to_f32(bn_load_u16(block + 2 * (a->dim + g)));
    return min + *step * (block[at.byte] >> at.shift & ((1 << bits) - 1));
}

static double most_step(const struct bn_attn_codes *a, bool values)
{
    double most = 0, step;
    for (size_t t = 0; t < a->n; t++)
        for (size_t ch = 0; ch < a->dim; ch++) {
            value(a, t, ch, values, &step);
            if (step > most) most = step;
        }
    return most;
}

/* One block into a new state, in double. A query's integers are off by half a unit, its products with
 * steps by one more of the largest step; weights likewise. */
static void naive_codes(struct ck *c, const struct bn_attn_codes *a)
{
    double top = 1 << (a->v_bits == 8 ? 7 : a->v_bits),
           k_top = 1 << (a->k_bits == 8 ? 7 : a->k_bits);
    double k_step = most_step(a, false), v_step = most_step(a, true);
    for (size_t h = 0; h < a->n_q; h++) {
        double s[BN_ATTN_BLOCK], max = -INFINITY, sum = 0, err = 0, step;
        for (size_t j = 0; j < a->n; j++) {
            double size = 0;
            s[j] = 0;
            for (size_t d = 0; d < a->dim; d++) {
                double p = (double)a->q[h * a->dim + d] * value(a, j, d, false, &step) * a->scale;
                s[j] += p;
                size += fabs(p);
            }
            double e = 2 * (double)a->q_unit[h] * k_step * k_top * (double)a->dim * a->scale;
            err = fmax(err, e + size * ((double)a->dim / 16 + 16) * 0x1p-23);
            max = fmax(max, s[j]);
        }
        for (size_t j = 0; j < a->n; j++) sum += s[j] = exp(s[j] - max);
        for (size_t d = 0; d < a->dim; d++) {
            double want = 0, size = 0;
            for (size_t j = 0; j < a->n; j++) {
                double v = value(a, j, d, true, &step);
                want += s[j] / sum * v;
                size += s[j] / sum * fabs(v);
            }
            double rounding = (double)a->n * 2 / 32767 * v_step * top / sum;
            double bound = size * (4 * err + 200 * 0x1p-23) + rounding + 0x1p-110;
            if (!ck_near(c, "o / l", want, a->o[h * a->dim + d] / (double)a->l[h], bound,
                         h * a->dim + d))
                return;
        }
    }
}

static bool run_blocks(struct ck *c, struct codes *x, const uint8_t *k, const uint8_t *v, size_t n)
{
    struct bn_attn_codes *a = &x->a;
    size_t k_bytes = bn_kv_block_bytes(a->dim, a->k_bits);
    size_t v_bytes = bn_kv_block_bytes(a->dim, a->v_bits);
    a->o = ck_buffer(c, a->n_q * a->dim * sizeof *a->o);
    a->m = ck_buffer(c, a->n_q * sizeof *a->m);
    a->l = ck_buffer(c, a->n_q * sizeof *a->l);
    for (size_t i = 0; i < a->n_q * a->dim; i++) a->o[i] = 0;
    for (size_t h = 0; h < a->n_q; h++) a->m[h] = -INFINITY, a->l[h] = 0;
    for (size_t j = 0; j < n; j += BN_ATTN_BLOCK) {
        size_t block = j / BN_ATTN_BLOCK;
        a->k = k + block * k_bytes;
        a->v = v + block * v_bytes;
        a->n = bn_min_size(n - j, BN_ATTN_BLOCK);
        /* the last block's hint points behind the buffers: nothing may be read there */
        a->next_k = block % 2 ? NULL : a->k + k_bytes;
        a->next_v = block % 2 ? NULL : a->v + v_bytes;
        if (!ck_run(c, run_codes, x)) return false;
    }
    return true;
}

static void check_case(struct ck *c, struct shape s, enum ck_fill f)
{
    ck_case(c, "queries=%zu dim=%zu keys=%zu bits=%u,%u fill=%s", s.n_q, s.dim, s.n, s.k_bits,
            s.v_bits, ck_fill_name(f));
    size_t blocks = bn_div_up(s.n, BN_ATTN_BLOCK), k_bytes = bn_kv_block_bytes(s.dim, s.k_bits);
    size_t v_bytes = bn_kv_block_bytes(s.dim, s.v_bits), n_x = s.n_q * s.dim;
    uint8_t *k = ck_buffer(c, blocks * k_bytes), *v = ck_buffer(c, blocks * v_bytes);
    float *q = ck_buffer(c, n_x * sizeof *q), *unit = ck_buffer(c, s.n_q * sizeof *unit);
    int16_t *code = ck_buffer(c, n_x * sizeof *code);
    ck_fill_f32(c, q, n_x, f == CK_SPECIAL || f == CK_ZERO ? f : CK_RANDOM);
    for (size_t i = 0; i < s.n_q; i++)
        unit[i] = bn_quant_query_c(code + i * s.dim, q + i * s.dim, s.dim);
    for (size_t i = 0; i < blocks; i++) {
        fill_block(c, k + i * k_bytes, s.dim, s.k_bits, f);
        fill_block(c, v + i * v_bytes, s.dim, s.v_bits, f);
    }
    struct codes a = {(bn_attn_codes_fn *)c->ref->fn,
                      {.q = q,
                       .q_code = code,
                       .q_unit = unit,
                       .n_q = s.n_q,
                       .k_bits = s.k_bits,
                       .v_bits = s.v_bits,
                       .dim = s.dim,
                       .scale = f == CK_WIDE ? 1e-4f : 0.0884f}};
    struct codes b = a;
    b.fn = (bn_attn_codes_fn *)c->v->fn;
    if (!run_blocks(c, &a, k, v, s.n)) return;
    if (c->naive && f <= CK_WIDE && blocks == 1) naive_codes(c, &a.a);
    if (c->naive || !run_blocks(c, &b, k, v, s.n)) return;
    ck_same_f32(c, "m", a.a.m, b.a.m, s.n_q, s.n_q);
    ck_same_f32(c, "l", a.a.l, b.a.l, s.n_q, s.n_q);
    ck_same_f32(c, "o", a.a.o, b.a.o, n_x, s.dim);
}

void check_attn_codes(struct ck *c)
{
    static const size_t dims[] = {32, 64, 96, 128, 160, 256, 512};
    for (unsigned i = 0; i < 9; i++) {
        unsigned k_bits = 8u >> i % 3, v_bits = 8u >> i / 3;
        size_t n = k_bits == 8 ? 0 : BN_ATTN_BLOCK;
        for (size_t d = 0; d < BN_ARRAY_LEN(dims); d++)
            for (size_t n_q = 1; n_q <= 9; n_q++)
                check_case(c,
                           (struct shape){n_q, dims[d], n ? n : 1 + (5 * d + 7 * n_q) % 40, k_bits,
                                          v_bits},
                           CK_RANDOM);
        for (enum ck_fill f = 0; f < CK_FILLS; f++)
            for (size_t n_q = 1; n_q <= 33; n_q += n_q < 8 ? 1 : 5)
                check_case(
                    c, (struct shape){n_q, 64, n ? n * (1 + n_q % 3) : 20 + n_q, k_bits, v_bits},
                    f);
        for (size_t k = 1; k_bits == 8 && k <= 2 * BN_ATTN_BLOCK + 1; k++)
            check_case(c, (struct shape){4, 64, k, k_bits, v_bits}, k % 2 ? CK_RANDOM : CK_SPECIAL);
    }
}
