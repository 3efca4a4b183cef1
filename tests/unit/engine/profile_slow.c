/* SPDX-License-Identifier: Apache-2.0
 * A planted slow operation shows up at its true cost: kernels of the small model lose time that they
 * measure themselves, with the clock of the marks. The entry of the operation holds at least what was
 * lost in it; and since all entries add up to the whole, none of it can be with the others. */
#include <stdatomic.h>

#include "base/clock.h"
#include "profile_common.h"

enum { LOSS_NS = 20000, PROMPT = 20, NEW = 6, SLOW_LAYER = 3 };

static struct bn_kernels honest; /* the model's own */
static struct bn_gemm slow_gemm;
static const struct bn_gemm *honest_gemm;
static _Atomic uint64_t lost_ns, n_lost;

static void lose_time(void)
{
    uint64_t begin_ns = bn_now_ns(), now_ns;
    do now_ns = bn_now_ns();
    while (now_ns - begin_ns < LOSS_NS);
    atomic_fetch_add(&lost_ns, now_ns - begin_ns);
    atomic_fetch_add(&n_lost, 1);
}

static void slow_rmsnorm(float *y, const float *x, const float *g, size_t n, float eps)
{
    lose_time();
    honest.rmsnorm(y, x, g, n, eps);
}

static float slow_quant_i8(int8_t *q, int32_t *sum, const float *x, size_t n)
{
    lose_time();
    return honest.quant_i8(q, sum, x, n);
}

static void slow_add(float *y, const float *x, size_t n)
{
    lose_time();
    honest.add(y, x, n);
}

static void slow_relu2_mul(float *y, const float *g, const float *u, size_t n)
{
    lose_time();
    honest.relu2_mul(y, g, u, n);
}

static void slow_rope(float *x, size_t n_heads, size_t dim, size_t half, const float *cs)
{
    bn_rope_fn *rope = honest.rope;
    lose_time();
    rope(x, n_heads, dim, half, cs);
}

static void slow_attn_f16(const struct bn_attn_args *a)
{
    lose_time();
    honest.attn_f16(a);
}

static void slow_mul_i8(const struct bn_gemm_args *a, const struct bn_q8 *x)
{
    lose_time();
    honest_gemm->mul_i8(a, x);
}

static void slow_rows_r2(float *y, const struct bn_packed *w, const uint32_t *list, size_t n,
                         const int8_t *q, int32_t sum, float inv)
{
    lose_time();
    honest.rows_r2(y, w, list, n, q, sum, inv);
}

static void slow_cols_c2(float *y, const struct bn_packed *w, size_t r0, size_t r1,
                         const uint32_t *list, size_t n, const int8_t *q, float inv)
{
    lose_time();
    honest.cols_c2(y, w, r0, r1, list, n, q, inv);
}

static void slow_screen2(int32_t *sum, size_t stride, const struct bn_screen2 *w, size_t r0,
                         size_t r1, const struct bn_screen2_vector *v, size_t n_vec)
{
    lose_time();
    honest.screen2(sum, stride, w, r0, r1, v, n_vec);
}

static void plant_rmsnorm(struct bn_model *m) { m->kernels.rmsnorm = slow_rmsnorm; }
static void plant_quant(struct bn_model *m) { m->kernels.quant_i8 = slow_quant_i8; }
static void plant_add(struct bn_model *m) { m->kernels.add = slow_add; }
static void plant_act(struct bn_model *m) { m->kernels.relu2_mul = slow_relu2_mul; }
static void plant_rope(struct bn_model *m) { m->kernels.rope = slow_rope; }
static void plant_attn(struct bn_model *m) { m->kernels.attn_f16 = slow_attn_f16; }
static void plant_rows(struct bn_model *m) { m->kernels.rows_r2 = slow_rows_r2; }
static void plant_cols(struct bn_model *m) { m->kernels.cols_c2 = slow_cols_c2; }
static void plant_screen(struct bn_model *m) { m->kernels.screen2 = slow_screen2; }

/* `down` of one layer, and that with one kernel for any number of tokens */
static void plant_down(struct bn_model *m)
{
    struct bn_matrix *w = &m->layers[SLOW_LAYER].proj[BN_P_DOWN - BN_P_Q];
    honest_gemm = w->gemm;
    slow_gemm = *w->gemm;
    slow_gemm.mul_i8 = slow_mul_i8;
    slow_gemm.mul_i8_many = NULL;
    w->gemm = &slow_gemm;
}

static void remove_all(struct bn_model *m)
{
    m->kernels = honest;
    if (honest_gemm) m->layers[SLOW_LAYER].proj[BN_P_DOWN - BN_P_Q].gemm = honest_gemm;
    honest_gemm = NULL;
}

struct plant {
    void (*plant)(struct bn_model *m);
    const char *op, *also; /* where its time must be; also: NULL, or another one */
    int layer;
    const char *ffn, *head;
    bool once_a_call; /* of the entries' calls, each loses time once */
};

static const struct plant plants[] = {
    {plant_rmsnorm, "norm", "head norm", ALL_LAYERS, "dense", "exact", true},
    {plant_quant, "quantise", NULL, ALL_LAYERS, "dense", "exact", true},
    {plant_add, "residual", NULL, ALL_LAYERS, "dense", "exact", false}, /* once a token */
    {plant_act, "activation", NULL, ALL_LAYERS, "dense", "exact", false},
    {plant_act, "activation", NULL, ALL_LAYERS, "skip", "exact", false},
    {plant_rope, "rope+store", NULL, ALL_LAYERS, "dense", "exact", false},
    {plant_attn, "attention", NULL, ALL_LAYERS, "dense", "exact", false},
    {plant_down, "down", NULL, SLOW_LAYER, "dense", "exact", true},
    {plant_rows, "up", NULL, ALL_LAYERS, "skip", "exact", false},
    {plant_cols, "down", NULL, ALL_LAYERS, "skip", "exact", false},
    {plant_screen, "head screen", NULL, ALL_LAYERS, "dense", "screened", false},
    {plant_rows, "head refine", NULL, ALL_LAYERS, "dense", "screened", false},
};

static void check_plant(const struct plant *t, uint32_t threads)
{
    bitnet_engine_options o = profile_options("on", threads);
    o.ffn = t->ffn;
    o.head = t->head;
    t->plant(model->m);
    bitnet_engine *e = open_engine(&o);
    atomic_store(&lost_ns, 0);
    atomic_store(&n_lost, 0);
    run_answer(e, PROMPT, NEW);
    remove_all(model->m);
    uint64_t lost = atomic_load(&lost_ns), n = atomic_load(&n_lost);
    bitnet_profile_entry at = sum_entries(e, ALL_PHASES, t->layer, t->op, NULL);
    if (t->also) {
        bitnet_profile_entry also = sum_entries(e, ALL_PHASES, t->layer, t->also, NULL);
        at.ns += also.ns;
        at.calls += also.calls;
    }
    assert_true(n > 0 && lost >= n * LOSS_NS);
    if (t->once_a_call && threads == 1) assert_int_equal(n, at.calls);
    assert_true(at.ns >= lost);
    bitnet_profile_info in = profile_info(e);
    uint64_t whole = (in.phases[0].ns + in.phases[1].ns) * threads;
    bitnet_profile_entry all = sum_entries(e, ALL_PHASES, ALL_LAYERS, NULL, NULL);
    assert_int_equal(all.ns, whole);
    assert_true(all.ns - at.ns <= whole - lost); /* nothing of it is with the others */
    parts_are_the_whole(e);
    bitnet_engine_close(e);
}

static void slow_operations_show(void **state)
{
    (void)state;
    honest = model->m->kernels;
    for (uint32_t threads = 1; threads <= 3; threads++)
        for (size_t i = 0; i < BN_ARRAY_LEN(plants); i++) check_plant(&plants[i], threads);
}

static int open_all(void **state)
{
    (void)state;
    bitnet_error err;
    bitnet_model_options o = {.size = sizeof o};
    o.layout = "t2";
    o.head = "screened";
    o.ffn = "skip";
    if (bitnet_model_open(&model, TEST_MODEL, &o, &err)) {
        printf("%s\n", err.text);
        return -1;
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slow_operations_show),
    };
    if (!BN_PROF) return 77; /* built without profiling */
    return cmocka_run_group_tests(tests, open_all, close_model);
}
