/* SPDX-License-Identifier: Apache-2.0
 * Hidden states in the screened head: their rounding against its bound, margins, and the choice
 * against the exact head's, with outliers and without. */
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
#include "model/head/head.h"
#include "model/head/head_codes.h"
#include "model/head/head_vector.h"

static double gauss(struct bn_rng *r)
{
    double s = 0;
    for (int i = 0; i < 12; i++) s += bn_rng_unit(r);
    return s - 6;
}

/* ---- the rounding ---- */

enum { COLS = 640, BLOCKS = COLS / BN_ROTATE_BLOCK };

static struct bn_screen screen_of(float *dither)
{
    bn_head_draw_dither(dither, COLS);
    return (struct bn_screen){.rotation = {.cols = COLS, .blocks = BLOCKS}, .dither = dither};
}

/* Every number is off by less than a unit, and on average by what the dither is; a product with any vector by
 * half its norm in units, at most, in the root mean square. */
static void rounding_is_fair(void **state)
{
    (void)state;
    enum { DRAWS = 400 };
    static float x[COLS], dither[COLS];
    static double w[COLS];
    static int8_t k[COLS];
    struct bn_screen s = screen_of(dither);
    struct bn_rng r = {9};
    double sum = 0, squares = 0, worst = 0;
    for (int i = 0; i < DRAWS; i++) {
        struct bn_head_vector v;
        int32_t block_sum[BLOCKS], all = 0;
        double norm = 0, error = 0;
        for (size_t c = 0; c < COLS; c++) {
            x[c] = (float)gauss(&r);
            w[c] = gauss(&r);
            norm += w[c] * w[c];
        }
        assert_true(bn_head_vector(&v, &s, k, block_sum, x, 8));
        for (size_t b = 0; b < BLOCKS; b++) {
            int32_t in_block = 0;
            for (size_t c = b * BN_ROTATE_BLOCK; c < (b + 1) * BN_ROTATE_BLOCK; c++) {
                double e = k[c] - (double)x[c] / (double)v.unit;
                assert_true(fabs(e) <= 1 + 1e-4);
                sum += e;
                error += w[c] * e;
                in_block += k[c];
            }
            assert_int_equal(block_sum[b], in_block);
            all += in_block;
        }
        assert_int_equal(v.sum, all);
        error /= sqrt(norm);
        squares += error * error;
        worst = fmax(worst, fabs(error));
    }
    double rms = sqrt(squares / DRAWS);
    printf("# errors: mean %.4f, rms %.3f, worst %.2f, in units\n", sum / (DRAWS * COLS), rms,
           worst);
    assert_true(fabs(sum / (DRAWS * COLS)) < 0.06); /* its mean has a deviation of 0.011 */
    assert_true(rms > 0.3 && rms < 0.5);
    assert_true(worst < 3);
}

/* The margin is z norms, and more where blocks differ or one number takes all the room. */
static void margins_follow_the_state(void **state)
{
    (void)state;
    static float x[COLS], dither[COLS];
    static int8_t k[COLS];
    int32_t block_sum[BLOCKS];
    struct bn_screen s = screen_of(dither);
    struct bn_head_vector v;
    for (size_t c = 0; c < COLS; c++) x[c] = c % 2 ? 1 : -1;
    assert_true(bn_head_vector(&v, &s, k, block_sum, x, 8));
    assert_true((double)v.margin >= 8 * sqrt(COLS) && (double)v.margin < 8.1 * sqrt(COLS));
    for (size_t c = BN_ROTATE_BLOCK; c < COLS; c++) x[c] = 0; /* all in one block */
    assert_true(bn_head_vector(&v, &s, k, block_sum, x, 8));
    double spread = sqrt(sqrt(BLOCKS - 1) / 0.25);
    assert_true((double)v.margin >= 8 * sqrt(BN_ROTATE_BLOCK) * spread * 0.999);
    for (size_t c = 0; c < COLS; c++) x[c] = 1;
    x[5] = 126;
    double norm = sqrt(126 * 126 + COLS - 1);
    assert_true(bn_head_vector(&v, &s, k, block_sum, x, 8));
    assert_true(fabs((double)v.unit - 1) < 1e-6);
    assert_true((double)v.margin >= 8 * sqrt(COLS) * 28 * 0.999 && (double)v.margin >= 8 * norm);
    for (size_t c = 0; c < COLS; c++) assert_true(k[c] == (c == 5 ? 126 : 1));
}

/* States of which bounds would not be numbers, or not hold. */
static void odd_states_are_refused(void **state)
{
    (void)state;
    static const float odd[] = {INFINITY, -INFINITY, NAN, 0x1p100f, 0};
    static float x[COLS], dither[COLS];
    static int8_t k[COLS];
    int32_t block_sum[BLOCKS];
    struct bn_screen s = screen_of(dither);
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct bn_head_vector v;
        for (size_t c = 0; c < COLS; c++) x[c] = c == 77 ? odd[i] : 0;
        assert_false(bn_head_vector(&v, &s, k, block_sum, x, 8));
        for (size_t c = 0; c < COLS; c++) assert_int_equal(k[c], 0);
    }
}

/* With n wanted rows, two chances to lose each. */
static void margins_are_wide_enough(void **state)
{
    (void)state;
    static const uint64_t wanted[] = {1, 40, 128, 128256};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        double z = bn_head_z(wanted[i]), lost = 2 * (double)wanted[i] * exp(-z * z / 2);
        assert_true(lost <= 0x1p-48 * (1 + 1e-9) && lost > 0x1p-49);
        assert_true(z >= bn_code_z_min);
    }
}

/* ---- the choice ---- */

static void run_head(struct bn_head *h, const float *norm, float *logits, float *normed,
                     const float *x, struct bn_want want)
{
    bn_head_begin(h, logits, norm, NULL);
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
    bitnet_model_options o = {.size = sizeof o};
    bitnet_error err = {0};
    bitnet_model *model = NULL;
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
        run_head(exact, m->out_norm, want, normed, x, best);
        run_head(other, m->out_norm, got, normed, x, best);
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
        cmocka_unit_test(rounding_is_fair),         cmocka_unit_test(margins_follow_the_state),
        cmocka_unit_test(odd_states_are_refused),   cmocka_unit_test(margins_are_wide_enough),
        cmocka_unit_test(outliers_are_no_obstacle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
