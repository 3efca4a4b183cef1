/* SPDX-License-Identifier: Apache-2.0
 *
 * The gated delta net. Registers hold neighbouring channels or columns, which do not know each
 * other, so that sums are those of the reference without any shuffle.
 *
 * One token passes over whole rows of the state, twice: that is how it comes from memory best, and the
 * second time it is in the second cache. Rows are asked for into that one before they are used, and
 * during the second time those of the next state, so that memory is never idle.
 *
 * Several tokens work on a few columns in a buffer: in the state itself the rows of a block of columns
 * would fall on the same few sets of the first cache. One pass serves the end of a token and the
 * beginning of the next one, whose decay is multiplied in before a row is stored: so the product that
 * both steps of a token need is made once. */
#include "kernels/wide/lanes.h"

#define ALWAYS static inline __attribute__((always_inline))

enum {
    ROWS = 4,     /* of a state at a time, for one token */
    AHEAD = 16,   /* rows from what is read to what is asked for */
    BUFFER = 2048 /* floats */
};

ALWAYS w_f32 get(const float *p, size_t n) { return n >= 8 ? w_loadu_ps(p) : bn_load_head(p, n); }

ALWAYS void put(float *p, size_t n, w_f32 v)
{
    if (n >= 8) w_storeu_ps(p, v);
    else bn_store_head(p, n, v);
}

/* ---- convolution ---- */

ALWAYS w_f32 silu(w_f32 s)
{
    w_f32 e = bn_exp8(w_xor_ps(s, w_set1_ps(-0.0f)));
    return w_div_ps(s, w_add_ps(w_set1_ps(1.0f), e));
}

/* One token */
ALWAYS void conv_token(const struct bn_conv_args *a, size_t t, const size_t taps)
{
    const float *in[BN_CONV_TAPS_MAX];
    for (size_t j = 0; j < taps; j++) in[j] = bn_conv_input(a, t, taps - 1 - j);
    for (size_t i = 0, n = a->n_channels; i < n; i += 8) {
        w_f32 s = w_setzero_ps();
        for (size_t j = 0; j < taps; j++) {
            w_f32 w = get(a->w + j * a->w_stride + i, n - i);
            s = w_add_ps(s, w_mul_ps(w, get(in[j] + i, n - i)));
        }
        put(a->x + t * a->x_stride + i, n - i, silu(s));
    }
}

/* From the last token to the first, as the reference. */
void W_NAME(conv_silu)(const struct bn_conv_args *a)
{
    for (size_t t = a->n; t-- > 0;)
        if (a->taps == 4) conv_token(a, t, 4);
        else conv_token(a, t, a->taps);
}

/* Asks for column j on of so many rows, whose columns [j, j + 8) are at work; p may be NULL. */
ALWAYS void fetch(const float *p, size_t stride, size_t j, const size_t rows)
{
    for (size_t r = 0; p && j % 16 == 0 && r < rows; r++)
        h_prefetch((const char *)(p + r * stride + j), H_T1);
}

/* ---- delta, one token ---- */

/* u += decay * s * k over `rows` rows of n columns. */
ALWAYS void sum_rows(float *u, const float *s, const float *k, w_f32 decay, size_t n,
                     const float *ahead, const size_t rows)
{
    w_f32 kb[ROWS];
    for (size_t r = 0; r < rows; r++) kb[r] = w_broadcast_ss(k + r);
    for (size_t j = 0; j < n; j += 8) {
        w_f32 sum = w_loadu_ps(u + j);
        fetch(ahead, n, j, rows);
        for (size_t r = 0; r < rows; r++) {
            w_f32 p = w_mul_ps(get(s + r * n + j, n - j), decay);
            sum = w_add_ps(sum, w_mul_ps(p, kb[r]));
        }
        w_storeu_ps(u + j, sum);
    }
}

/* What the rows of a state share: n columns. */
struct columns {
    float *o;
    const float *d;
    w_f32 decay;
    size_t n;
};

/* s = decay * s + k * d, o += s * q */
ALWAYS void move_rows(const struct columns *a, float *s, const float *k, const float *q,
                      const float *next, const size_t rows)
{
    const size_t n = a->n;
    w_f32 kb[ROWS], qb[ROWS];
    for (size_t r = 0; r < rows; r++) {
        kb[r] = w_broadcast_ss(k + r);
        qb[r] = w_broadcast_ss(q + r);
    }
    for (size_t j = 0; j < n; j += 8) {
        w_f32 sum = w_loadu_ps(a->o + j), dj = w_loadu_ps(a->d + j);
        fetch(next, n, j, rows);
        for (size_t r = 0; r < rows; r++) {
            w_f32 p = w_mul_ps(get(s + r * n + j, n - j), a->decay);
            p = w_add_ps(p, w_mul_ps(kb[r], dj));
            put(s + r * n + j, n - j, p);
            sum = w_add_ps(sum, w_mul_ps(p, qb[r]));
        }
        w_storeu_ps(a->o + j, sum);
    }
}

static void delta_one(const struct bn_delta_args *a)
{
    float u[BN_DELTA_DIM_MAX] = {0}, o[BN_DELTA_DIM_MAX] = {0}, *s = a->s;
    const float *k = a->k, *q = a->o ? a->q : k, *next = a->next;
    size_t n = a->v_dim, i = 0;
    w_f32 decay = w_broadcast_ss(a->decay), beta = w_broadcast_ss(a->beta);
    for (; i + ROWS <= a->k_dim; i += ROWS, s += ROWS * n)
        sum_rows(u, s, k + i, decay, n, i + AHEAD < a->k_dim ? s + AHEAD * n : NULL, ROWS);
    for (; i < a->k_dim; i++, s += n) sum_rows(u, s, k + i, decay, n, NULL, 1);
    for (size_t j = 0; j < n; j += 8) {
        w_f32 d = w_sub_ps(get(a->v + j, n - j), w_loadu_ps(u + j));
        w_storeu_ps(u + j, w_mul_ps(d, beta));
    }
    const struct columns c = {o, u, decay, n};
    for (i = 0, s = a->s; i + ROWS <= a->k_dim; i += ROWS, s += ROWS * n)
        move_rows(&c, s, k + i, q + i, next ? next + i * n : NULL, ROWS);
    for (; i < a->k_dim; i++, s += n) move_rows(&c, s, k + i, q + i, NULL, 1);
    if (a->o) memcpy(a->o, o, n * sizeof *o);
}

/* ---- delta, several tokens ---- */

/* n columns from j0 on in nr registers; buffer: [k_dim][nr] */
ALWAYS void delta_columns(const struct bn_delta_args *a, float *buffer, size_t j0, size_t n,
                          const size_t nr)
{
    w_f32 u[2], d[2], o[2], decay = w_broadcast_ss(a->decay);
    float *s = a->s + j0;
    for (size_t r = 0; r < nr; r++) u[r] = w_setzero_ps();
    for (size_t i = 0; i < a->k_dim; i++) {
        w_f32 kb = w_broadcast_ss(a->k + i);
        h_prefetch((const char *)(s + i * a->v_dim + 8 * nr), H_T1);
        for (size_t r = 0; r < nr; r++) {
            w_f32 p = w_mul_ps(get(s + i * a->v_dim + 8 * r, n - 8 * r), decay);
            w_storeu_ps(buffer + 8 * (i * nr + r), p);
            u[r] = w_add_ps(u[r], w_mul_ps(p, kb));
        }
    }
    for (size_t t = 0; t < a->n; t++) {
        const float *k = a->k + t * a->qk_stride, *v = a->v + t * a->v_stride + j0;
        const float *q = a->o ? a->q + t * a->qk_stride : k;
        w_f32 beta = w_broadcast_ss(a->beta + t * a->gate_stride);
        for (size_t r = 0; r < nr; r++) {
            d[r] = w_mul_ps(w_sub_ps(get(v + 8 * r, n - 8 * r), u[r]), beta);
            o[r] = u[r] = w_setzero_ps();
        }
        if (t + 1 < a->n) {
            const float *next = k + a->qk_stride;
            decay = w_broadcast_ss(a->decay + (t + 1) * a->gate_stride);
            for (size_t i = 0; i < a->k_dim; i++) {
                w_f32 kb = w_broadcast_ss(k + i), qb = w_broadcast_ss(q + i);
                w_f32 nb = w_broadcast_ss(next + i);
                for (size_t r = 0; r < nr; r++) {
                    float *at = buffer + 8 * (i * nr + r);
                    w_f32 p = w_add_ps(w_loadu_ps(at), w_mul_ps(kb, d[r]));
                    o[r] = w_add_ps(o[r], w_mul_ps(p, qb));
                    p = w_mul_ps(p, decay);
                    w_storeu_ps(at, p);
                    u[r] = w_add_ps(u[r], w_mul_ps(p, nb));
                }
            }
        } else
            for (size_t i = 0; i < a->k_dim; i++) {
                w_f32 kb = w_broadcast_ss(k + i), qb = w_broadcast_ss(q + i);
                for (size_t r = 0; r < nr; r++) {
                    w_f32 p = w_loadu_ps(buffer + 8 * (i * nr + r));
                    p = w_add_ps(p, w_mul_ps(kb, d[r]));
                    o[r] = w_add_ps(o[r], w_mul_ps(p, qb));
                    put(s + i * a->v_dim + 8 * r, n - 8 * r, p);
                }
            }
        for (size_t r = 0; a->o && r < nr; r++)
            put(a->o + t * a->o_stride + j0 + 8 * r, n - 8 * r, o[r]);
    }
}

void W_NAME(delta)(const struct bn_delta_args *a)
{
    if (a->n == 1) {
        delta_one(a);
        return;
    }
    float buffer[BUFFER];
    size_t j = 0;
    for (; a->k_dim * 16 <= BUFFER && j + 8 < a->v_dim; j += 16)
        delta_columns(a, buffer, j, a->v_dim - j, 2);
    for (; j < a->v_dim; j += 8) delta_columns(a, buffer, j, a->v_dim - j, 1);
}
