/* SPDX-License-Identifier: Apache-2.0
 * The screened head's rotation and codes: products stay as they are, and estimates made from the
 * codes are off by no more than the rows' noise says, for rows and hidden states of many kinds. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "model/head/head_codes.h"
#include "model/head/head_vector.h"

enum { ROWS = 48, MAX_WIDE = 2560, MAX_BLOCKS = MAX_WIDE / BN_ROTATE_BLOCK };

static struct bn_rng rng = {5};

static double gauss(void)
{
    double s = 0;
    for (int i = 0; i < 12; i++) s += bn_rng_unit(&rng);
    return s - 6;
}

/* ---- a rotation and a copy in memory of the test ---- */

static float sign[MAX_WIDE], matrix[MAX_BLOCKS * BN_ROTATE_BLOCK * BN_ROTATE_BLOCK],
    dither[MAX_WIDE];

static void make_screen(struct bn_screen *s, size_t cols)
{
    static double scratch[BN_ROTATE_BLOCK * BN_ROTATE_BLOCK];
    size_t blocks = bn_rotation_blocks(cols), wide = blocks * BN_ROTATE_BLOCK;
    assert_true(wide <= MAX_WIDE &&
                bn_rotation_matrix_floats(cols) <= sizeof matrix / sizeof *matrix);
    bn_rotation_draw_signs(sign, cols);
    for (size_t b = 0; b < blocks; b++) bn_rotation_draw_matrix(matrix, cols, b, scratch);
    bn_head_draw_dither(dither, wide);
    *s = (struct bn_screen){.coarse = {.rows = ROWS, .cols = wide},
                            .fine = {.rows = ROWS, .cols = wide, .scale = 1},
                            .rotation = {cols, blocks, sign, matrix},
                            .dither = dither};
}

static void rotate(const struct bn_screen *s, float *to, const float *x)
{
    static float scratch[MAX_WIDE];
    static const struct bn_kernels k = {.rotate = bn_rotate_c};
    memset(to, 0, s->coarse.cols * sizeof *to);
    memcpy(to, x, s->rotation.cols * sizeof *to);
    bn_rotate(&s->rotation, &k, to, scratch, 1);
}

static double dot(const float *a, const float *b, size_t n)
{
    double s = 0;
    for (size_t i = 0; i < n; i++) s += (double)a[i] * (double)b[i];
    return s;
}

/* ---- the rotation ---- */

static void blocks_are_fair(void **state)
{
    (void)state;
    for (size_t cols = 1; cols <= 3000; cols++) {
        size_t blocks = bn_rotation_blocks(cols), sum = 0, least = SIZE_MAX;
        for (size_t b = 0; b < blocks; b++) {
            size_t n = bn_rotation_size(cols, b);
            assert_true(n > 0 && n <= BN_ROTATE_BLOCK && n <= bn_rotation_size(cols, 0));
            least = n < least ? n : least;
            sum += n;
        }
        assert_int_equal(sum, cols);
        assert_true(bn_rotation_size(cols, 0) - least <= 7);
    }
}

static void products_stay(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 2, 5, 100, 128, 129, 256, 320, 333, 640, 2560};
    static float x[2][MAX_WIDE], y[2][MAX_WIDE];
    double worst = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct bn_screen s;
        size_t cols = sizes[i];
        make_screen(&s, cols);
        for (int k = 0; k < 20; k++) {
            for (size_t c = 0; c < cols; c++) {
                x[0][c] = (float)(k % 2 ? gauss() : c == (size_t)k % cols);
                x[1][c] = (float)(gauss() * (c % 37 ? 1 : 20));
            }
            rotate(&s, y[0], x[0]);
            rotate(&s, y[1], x[1]);
            double norms = sqrt(dot(x[0], x[0], cols) * dot(x[1], x[1], cols));
            double error = dot(y[0], y[1], s.coarse.cols) - dot(x[0], x[1], cols);
            worst = fmax(worst, fabs(error) / norms);
            for (size_t b = 0; b < s.rotation.blocks; b++)
                for (size_t c = bn_rotation_size(cols, b); c < BN_ROTATE_BLOCK; c++)
                    assert_true(y[0][b * BN_ROTATE_BLOCK + c] == 0);
        }
    }
    printf("# products off by at most %.2g of the norms\n", worst);
    assert_true(worst < 0x1p-15); /* half of what bounds allow for */
}

/* ---- estimates ---- */

enum row_kind { NORMAL, HEAVY, ONE_HOT, CONSTANT, TERNARY, FEW_COLUMNS, ROW_KINDS };
enum state_kind { PLAIN, OUTLIERS, ALIKE, ONE_COLUMN, STATE_KINDS };

static void fill_row(float *x, size_t cols, enum row_kind kind)
{
    size_t hot = bn_rng_below(&rng, (uint32_t)cols);
    for (size_t i = 0; i < cols; i++) switch (kind) {
        case NORMAL: x[i] = (float)(gauss() * 0.02); break;
        case HEAVY: x[i] = (float)(gauss() * gauss() * gauss()); break;
        case ONE_HOT: x[i] = i == hot ? 3 : 0; break;
        case CONSTANT: x[i] = 0.5f; break;
        case TERNARY: x[i] = (float)bn_rng_below(&rng, 3) - 1; break;
        default: x[i] = i % 128 == hot % 128 ? (float)gauss() : 0;
        }
}

/* alike: the row's own direction, so that all that is left is what codes leave along it */
static void fill_state(float *x, size_t cols, enum state_kind kind, const float *row)
{
    size_t hot = bn_rng_below(&rng, (uint32_t)cols);
    for (size_t i = 0; i < cols; i++) switch (kind) {
        case PLAIN: x[i] = (float)gauss(); break;
        case OUTLIERS: x[i] = (float)(gauss() * (i % 97 ? 1 : 60)); break;
        case ALIKE: x[i] = row[i]; break;
        default: x[i] = i == hot ? -2 : 0;
        }
}

struct copy {
    struct bn_screen s;
    struct bn_code_row row[ROWS];
    uint8_t coarse[ROWS * MAX_WIDE], fine[ROWS * MAX_WIDE];
};

static void make_copy(struct copy *c, const float *rows, size_t cols)
{
    static uint8_t code[BN_SCREEN2_ROWS * MAX_WIDE], u[BN_SCREEN2_ROWS * MAX_BLOCKS];
    static int8_t fine[MAX_WIDE];
    static float y[MAX_WIDE];
    size_t wide = c->s.coarse.cols, blocks = c->s.rotation.blocks;
    for (size_t r = 0; r < ROWS; r++) {
        size_t in_group = r % BN_SCREEN2_ROWS;
        rotate(&c->s, y, rows + r * cols);
        assert_true(bn_head_codes(&c->row[r], code + in_group * wide, u + in_group * blocks, fine,
                                  y, cols));
        bn_r2_pack(c->fine + r * bn_r2_row_bytes(wide), fine, wide);
        if (in_group + 1 == BN_SCREEN2_ROWS)
            bn_screen2_pack(c->coarse + r / BN_SCREEN2_ROWS * bn_screen2_group_bytes(wide), code, u,
                            BN_SCREEN2_ROWS, wide);
    }
    c->s.coarse.data = c->coarse;
    c->s.fine.data = c->fine;
}

struct tally {
    double squares, worst;
    size_t n;
};

static void count(struct tally *t, double error)
{
    t->squares += error * error;
    t->worst = fmax(t->worst, error);
    t->n++;
}

/* Errors of both estimates of all rows, in standard deviations as the noise claims them. */
static void measure(struct copy *c, const float *rows, const float *x, struct tally t[2])
{
    static float y[MAX_WIDE];
    static int8_t k[MAX_WIDE];
    int32_t block_sum[MAX_BLOCKS], sum[ROWS];
    uint32_t all[ROWS];
    float fine[ROWS];
    struct bn_head_vector v;
    size_t cols = c->s.rotation.cols;
    rotate(&c->s, y, x);
    assert_true(bn_head_vector(&v, &c->s, k, block_sum, y, 1));
    for (uint32_t r = 0; r < ROWS; r++) all[r] = r;
    bn_screen2_c(sum, ROWS, &c->s.coarse, 0, ROWS, &v.coarse, 1);
    bn_rows_r2_c(fine, &c->s.fine, all, ROWS, k, v.sum, 1);
    for (size_t r = 0; r < ROWS; r++) {
        const struct bn_code_row *w = &c->row[r];
        double truth = dot(rows + r * cols, x, cols), unit = (double)v.unit;
        double first = (double)w->scale * unit * sum[r];
        double second =
            first + (double)w->fine_scale * unit * ((double)fine[r] - (double)v.sum / 2);
        count(&t[0], (truth - first) / ((double)w->noise * (double)v.margin));
        count(&t[1], (truth - second) / ((double)w->fine_noise * (double)v.margin));
    }
}

static void errors_are_as_claimed(void **state)
{
    (void)state;
    static const size_t sizes[] = {100, 320, 640};
    static float rows[ROWS * MAX_WIDE], x[MAX_WIDE];
    static struct copy c;
    double noise = 0, fine_noise = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (enum row_kind kind = 0; kind < ROW_KINDS; kind++)
            for (enum state_kind sk = 0; sk < STATE_KINDS; sk++) {
                size_t cols = sizes[i];
                struct tally t[2] = {{0}};
                make_screen(&c.s, cols);
                for (size_t r = 0; r < ROWS; r++) fill_row(rows + r * cols, cols, kind);
                make_copy(&c, rows, cols);
                for (int draw = 0; draw < 40; draw++) {
                    fill_state(x, cols, sk, rows + (size_t)draw * cols);
                    measure(&c, rows, x, t);
                }
                for (int k = 0; k < 2; k++) { /* constant rows are all one row */
                    assert_true(t[k].worst < 6);
                    assert_true(kind == CONSTANT || sqrt(t[k].squares / (double)t[k].n) < 1.15);
                }
                if (kind != NORMAL || sk != PLAIN) continue;
                printf("# %zu columns: rms %.3f and %.3f, worst %.2f and %.2f\n", cols,
                       sqrt(t[0].squares / (double)t[0].n), sqrt(t[1].squares / (double)t[1].n),
                       t[0].worst, t[1].worst);
                assert_true(t[0].squares / (double)t[0].n > 0.5); /* nor is much given away */
                assert_true(t[1].squares / (double)t[1].n > 0.3);
                noise = (double)c.row[0].noise / sqrt(dot(rows, rows, cols) / (double)cols);
                fine_noise = (double)c.row[0].fine_noise / (double)c.row[0].noise * noise;
            }
    printf("# noise of normal rows: %.3f and %.3f of the root mean square\n", noise, fine_noise);
    assert_true(noise < 0.41 && fine_noise < 0.17);
}

/* ---- rows of no use ---- */

static void odd_rows(void **state)
{
    (void)state;
    enum { COLS = 320, WIDE = 384 };
    static float x[COLS], y[WIDE];
    uint8_t coarse[WIDE], u[WIDE / BN_ROTATE_BLOCK];
    int8_t fine[WIDE];
    struct bn_screen s;
    struct bn_code_row row;
    make_screen(&s, COLS);
    static const float small[] = {0, 0x1p-140f, 0x1p-90f};
    for (size_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < COLS; k++) x[k] = small[i];
        rotate(&s, y, x);
        assert_true(bn_head_codes(&row, coarse, u, fine, y, COLS));
        double norm = (double)small[i] * sqrt(COLS);
        assert_true(row.scale == 0 && row.fine_scale == 0);
        assert_true((double)row.noise * bn_code_z_min >= norm && row.noise > 0);
        assert_true(row.noise == row.fine_noise);
    }
    static const float large[] = {INFINITY, NAN, 0x1p100f};
    for (size_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < WIDE; k++) y[k] = k == 77 ? large[i] : 1;
        assert_false(bn_head_codes(&row, coarse, u, fine, y, COLS));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_fair),
        cmocka_unit_test(products_stay),
        cmocka_unit_test(errors_are_as_claimed),
        cmocka_unit_test(odd_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
