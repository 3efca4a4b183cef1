/* SPDX-License-Identifier: Apache-2.0
 * Hidden states of both kinds in the screened head: rounded to one plane of int8, and, with
 * outliers, to two. The error of the rounding against its bound, and the choice against the exact
 * head's. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bitnet/bitnet.h>
#include <cmocka.h>

#include "api/api.h"
#include "base/rng.h"
#include "model/head.h"

static double gauss(struct bn_rng *r)
{
    double s = 0;
    for (int i = 0; i < 12; i++) s += bn_rng_unit(r);
    return s - 6;
}

static void fill_dither(float *u, size_t n, struct bn_rng *r)
{
    for (size_t i = 0; i < n; i++)
        u[i] = (float)(2 * (int)bn_rng_below(r, 1 << 16) + 1 - (1 << 16)) * 0x1p-17f;
}

/* What rounding the vector does to a product, in units of unit * norm: a standard deviation of
 * sqrt(1/12), and a bound of 3. Seen through the kernel: a step of 1, no offset, no margins. */
static void errors_of_the_vector_stay_within_the_bound(void **state)
{
    (void)state;
    enum { ROWS = 64, COLS = 640, MATRICES = 40 };
    static float x[ROWS * COLS], u[COLS], d[COLS], h[COLS], score[ROWS], upper[ROWS];
    static float step[ROWS], norm[ROWS], shift[ROWS];
    static uint8_t data[ROWS * COLS / 2];
    static int8_t k[COLS];
    struct bn_rng r = {9};
    double squares = 0, worst = 0;
    for (int m = 0; m < MATRICES; m++) {
        struct bn_screen w = {data, ROWS, COLS, step, norm, shift, 0};
        struct bn_screen_row row[4];
        fill_dither(u, COLS, &r);
        fill_dither(d, COLS, &r);
        for (size_t i = 0; i < ROWS * COLS; i++)
            x[i] = (float)(m % 2 ? gauss(&r) : bn_rng_unit(&r) - 0.5);
        for (size_t i = 0; i < ROWS; i++) {
            if (i % 4 == 0)
                bn_screen4_pack(data + i / 4 * bn_screen4_group_bytes(COLS), row, x + i * COLS, 4,
                                COLS, u, d);
            step[i] = 1;
            norm[i] = row[i % 4].norm;
            shift[i] = row[i % 4].shift;
        }
        double most = 0;
        for (size_t i = 0; i < COLS; i++) {
            h[i] = (float)gauss(&r);
            most = fmax(most, fabs((double)h[i]));
        }
        for (size_t i = 0; i < COLS; i++)
            k[i] = (int8_t)rint((double)h[i] * (127 / most) + (double)d[i]);
        struct bn_screen_vector v = {.high = k, .unit = most / 127};
        bn_screen4_c(score, upper, ROWS, &w, 0, ROWS, &v, 1);
        for (size_t i = 0; i < ROWS; i++) {
            const uint8_t *p = data + i / 4 * bn_screen4_group_bytes(COLS) + i % 4 * 32;
            double y = 0;
            for (size_t c = 0; c < COLS; c++) {
                int byte = p[c / 64 * 128 + c % 32];
                y += ((c % 64 < 32 ? byte & 15 : byte >> 4) - 8) * (double)h[c];
            }
            double e = ((double)score[i] - y) / (v.unit * (double)norm[i]);
            squares += e * e;
            worst = fmax(worst, fabs(e));
        }
    }
    double rms = sqrt(squares / (ROWS * MATRICES));
    printf("# errors: rms %.3f, worst %.2f, in units of unit * norm\n", rms, worst);
    assert_true(rms > 0.2 && rms < 0.35);
    assert_true(worst < 2);
}

static void run_head(struct bn_head *h, float *logits, float *normed, const float *x,
                     struct bn_want want)
{
    bn_head_begin(h, logits);
    bn_head_add(h, 0, want);
    bn_head_work(h, x, normed, 0);
    bn_head_end(h);
}

static uint32_t best_of(const float *y, size_t n)
{
    uint32_t at = 0;
    for (uint32_t i = 1; i < n; i++)
        if (y[i] > y[at]) at = i;
    return at;
}

/* Hidden states near a row of the head, so that there is something to find; every other one with an
 * outlier that takes 200 times the room of the rest. */
static void outliers_are_no_obstacle(void **state)
{
    (void)state;
    bitnet_model_options o;
    bitnet_error err = {0};
    bitnet_model *model = NULL;
    bitnet_model_options_init(&o);
    o.head = "screened";
    if (bitnet_model_open(&model, TEST_MODEL, &o, &err)) fail_msg("%s", err.text);
    const struct bn_model *m = model->m;
    size_t vocab = m->config.n_vocab, cols = m->config.n_embd;
    struct bn_pool *pool = NULL;
    struct bn_head *exact = NULL, *other = NULL;
    if (bn_pool_open(&pool, 1, &err) ||
        bn_head_open(&exact, m, pool, 1, &(struct bn_head_options){0}, NULL, &err) ||
        bn_head_open(&other, m, pool, 1,
                     &(struct bn_head_options){.screened = true, .max_screened = 1}, NULL, &err))
        fail_msg("%s", err.text);
    float *x = malloc(cols * sizeof *x), *normed = malloc(cols * sizeof *x);
    float *want = malloc(vocab * sizeof *x), *got = malloc(vocab * sizeof *x);
    assert_true(x && normed && want && got);
    struct bn_rng r = {13};
    for (int i = 0; i < 200; i++) {
        bn_stored_row(&m->kernels, x, &m->head.stored, bn_rng_below(&r, (uint32_t)vocab));
        for (size_t k = 0; k < cols; k++) x[k] = x[k] * 20 + (float)(gauss(&r) * 0.1);
        if (i % 2) x[bn_rng_below(&r, (uint32_t)cols)] = 200;
        struct bn_want best = {
            .kind = BN_WANT_BEST, .k = 1 + (uint32_t)i % 7, .below = (double)INFINITY};
        run_head(exact, want, normed, x, best);
        run_head(other, got, normed, x, best);
        assert_int_equal(best_of(want, vocab), best_of(got, vocab));
        for (size_t k = 0; k < vocab; k++)
            if (got[k] != -INFINITY) assert_memory_equal(&got[k], &want[k], sizeof(float));
    }
    const struct bn_head_stats *s = bn_head_stats(other);
    printf("# %llu screened, %llu fell back, %llu survivors\n", (unsigned long long)s->screened,
           (unsigned long long)s->fallbacks, (unsigned long long)s->survivors);
    assert_true(s->screened > 100);
    free(x);
    free(normed);
    free(want);
    free(got);
    bn_head_close(exact);
    bn_head_close(other);
    bn_pool_close(pool);
    bitnet_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_of_the_vector_stay_within_the_bound),
        cmocka_unit_test(outliers_are_no_obstacle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
