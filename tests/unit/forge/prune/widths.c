/* SPDX-License-Identifier: Apache-2.0
 * Narrower feed-forward layers: what was measured with channels taken as zero is what the file has, to the last
 * bit; those go that do least; budgets, what is refused, and files for other engines. */
#include "prune_common.h"

#include <math.h>

enum { N_FF = 1408, GRAIN = 128 };

static int tear_down(void **state)
{
    char command[96];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command) | close_model(state);
}

static bitnet_engine *engine_of(bitnet_model *m, uint32_t threads)
{
    bitnet_engine_options o = {.size = sizeof o};
    bitnet_engine *e = NULL;
    bitnet_error err = {0};
    o.threads = threads;
    o.ctx_tokens = o.max_batch_tokens = WINDOW;
    if (bitnet_engine_open(&e, m, &o, &err)) fail_msg("%s", err.text);
    return e;
}

static double measure(const char *path)
{
    bitnet_error err = {0};
    bitnet_model *m = NULL;
    bitnet_ppl_options o = {.size = sizeof o};
    bitnet_ppl_result r = {.size = sizeof r};
    o.ctx_tokens = WINDOW;
    if (bitnet_model_open(&m, path, NULL, &err)) fail_msg("%s", err.text);
    bitnet_engine *e = engine_of(m, 2);
    if (bitnet_perplexity(e, text, TOKENS, &o, &r, &err)) fail_msg("%s", err.text);
    bitnet_engine_close(e);
    bitnet_model_close(m);
    return r.nll_per_token;
}

struct found {
    bitnet_prune_step steps[LAYERS + BITNET_PRUNE_WIDTHS];
    uint32_t channels[LAYERS * N_FF];
    bitnet_prune_result r;
};
static struct found one, other;

static bitnet_prune_options options(uint32_t drop, uint32_t width)
{
    bitnet_prune_options o = {.size = sizeof o};
    o.drop = drop;
    o.ffn_width = width;
    return o;
}

static void find(struct found *f, const bitnet_prune_options *o, uint32_t threads)
{
    bitnet_error err = {0};
    bitnet_engine *e = engine_of(model, threads);
    memset(f, 0, sizeof *f);
    f->r =
        (bitnet_prune_result){.size = sizeof f->r, .steps = f->steps, .ffn_channels = f->channels};
    if (bitnet_prune_search(e, text, TOKENS, o, &f->r, &err)) fail_msg("%s", err.text);
    assert_int_equal(engine_info(e).kv.pages_free, engine_info(e).kv.pages);
    bitnet_engine_close(e);
}

static void write_narrow(const struct found *f, const char *to, bool portable)
{
    bitnet_error err = {0};
    bitnet_prune_output o = {.size = sizeof o};
    uint32_t gone[LAYERS];
    for (size_t i = 1; i < f->r.n_steps; i++)
        if (f->steps[i].n_layers) gone[o.n_layers++] = f->steps[i].first_layer;
    o.layers = gone;
    o.ffn_channels = f->channels;
    o.ffn_width = f->r.ffn_width;
    o.portable = portable;
    o.overwrite = 1;
    if (bitnet_prune(TEST_MODEL, to, &o, &err)) fail_msg("%s", err.text);
}

static void test_same_as_file(void **state)
{
    (void)state;
    bitnet_prune_options o = options(0, 1100);
    find(&one, &o, 1);
    find(&other, &o, 3);
    assert_memory_equal(one.steps, other.steps, sizeof one.steps);
    assert_memory_equal(one.channels, other.channels, sizeof one.channels);
    assert_int_equal(one.r.ffn_width, 1152); /* whole blocks */
    assert_int_equal(one.r.n_steps, 3);
    assert_int_equal(one.steps[0].ffn_width, N_FF);
    assert_int_equal(one.steps[1].ffn_width, 1280);
    assert_int_equal(one.steps[2].ffn_width, 1152);
    assert_int_equal(one.steps[2].layers_left, LAYERS);
    assert_true(one.steps[1].kl > 0 && one.steps[2].kl > one.steps[1].kl);
    assert_true(one.r.ffn_active > 0 && one.r.ffn_active < 0.5);
    write_narrow(&one, out_path, false);
    double nll = measure(out_path);
    assert_memory_equal(&one.steps[2].nll_per_token, &nll, sizeof nll);
    write_narrow(&one, again_path, true); /* the norm is scaled: equal but for rounding */
    assert_true(fabs(measure(again_path) - nll) < 0.01);
}

/* Each lane keeps as many, in their order; none twice. */
static void test_lanes(void **state)
{
    (void)state;
    for (uint32_t il = 0; il < LAYERS; il++) {
        const uint32_t *from = one.channels + (size_t)il * one.r.ffn_width;
        for (uint32_t i = 0; i < one.r.ffn_width; i++) {
            assert_int_equal(from[i] % 16, i % 16);
            if (i >= 16) assert_true(from[i] > from[i - 16]);
        }
    }
}

/* The channels that stay do less harm when they stay than those that go. */
static void test_weakest(void **state)
{
    (void)state;
    enum { HALF = 640 };
    bitnet_prune_options o = options(0, HALF);
    find(&one, &o, 2);
    assert_int_equal(one.r.ffn_width, HALF);
    double strong = one.steps[one.r.n_steps - 1].nll_per_token;
    other = one;
    for (uint32_t il = 0; il < LAYERS; il++) { /* of each lane the first ones that went */
        bool kept[N_FF] = {false};
        uint32_t filled[16] = {0};
        for (uint32_t i = 0; i < HALF; i++) kept[one.channels[il * HALF + i]] = true;
        for (uint32_t c = 0; c < N_FF; c++)
            if (!kept[c] && filled[c % 16] < HALF / 16)
                other.channels[il * HALF + filled[c % 16]++ * 16 + c % 16] = c;
    }
    write_narrow(&other, out_path, false);
    assert_true(measure(out_path) > strong + 1);
}

static void test_with_layers(void **state)
{
    (void)state;
    static const uint32_t gone[] = {5, 3};
    bitnet_prune_options o = options(2, 1280);
    o.layers = gone;
    o.n_layers = 2;
    find(&one, &o, 2);
    assert_int_equal(one.r.n_steps, 4);
    assert_int_equal(one.steps[3].layers_left, LAYERS - 2);
    assert_int_equal(one.steps[3].ffn_width, 1280);
    write_narrow(&one, out_path, false);
    double nll = measure(out_path);
    assert_memory_equal(&one.steps[3].nll_per_token, &nll, sizeof nll);
}

static void test_budget(void **state)
{
    (void)state;
    bitnet_prune_options o = options(0, 1);
    o.max_ppl_increase = 8;
    find(&one, &o, 2);
    const bitnet_prune_step *last = &one.steps[one.r.n_steps - 1];
    double most = one.steps[0].perplexity * 1.08;
    assert_true(one.r.n_steps > 1 && one.r.ffn_width == last->ffn_width && last->ffn_width < N_FF);
    assert_true(last->perplexity <= most && one.r.over_budget > most);
    write_narrow(&one, out_path, false);
    double nll = measure(out_path);
    assert_memory_equal(&last->nll_per_token, &nll, sizeof nll);
}

/* Narrow files become narrower, and checkpoints. */
static void test_again(void **state)
{
    (void)state;
    bitnet_error err = {0};
    bitnet_model *m = NULL, *narrow = model;
    bitnet_prune_output w = {.size = sizeof w};
    bitnet_prune_options o = options(0, 1280);
    char hf[96];
    find(&one, &o, 2);
    write_narrow(&one, out_path, false);
    if (bitnet_model_open(&m, out_path, NULL, &err)) fail_msg("%s", err.text);
    model = m;
    o = options(0, 1152);
    find(&other, &o, 2);
    model = narrow;
    bitnet_model_close(m);
    w.ffn_channels = other.channels;
    w.ffn_width = other.r.ffn_width;
    if (bitnet_prune(out_path, again_path, &w, &err)) {
        unlink(again_path);
        if (bitnet_prune(out_path, again_path, &w, &err)) fail_msg("%s", err.text);
    }
    double nll = measure(again_path), scaled;
    assert_memory_equal(&other.steps[1].nll_per_token, &nll, sizeof nll);
    w.portable = w.overwrite = 1;
    if (bitnet_prune(out_path, again_path, &w, &err)) fail_msg("%s", err.text);
    scaled = measure(again_path);
    assert_true(fabs(scaled - nll) < 0.01);
    snprintf(hf, sizeof hf, "%s/model.safetensors", folder); /* there norms are always scaled */
    if (bitnet_prune(out_path, hf, &w, &err)) fail_msg("%s", err.text);
    nll = measure(hf);
    assert_memory_equal(&nll, &scaled, sizeof nll);
    w = (bitnet_prune_output){.size = sizeof w, .overwrite = 1};
    assert_int_equal(bitnet_prune(out_path, hf, &w, &err), BITNET_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "--portable"));
}

static void refuse(const bitnet_prune_options *o, const char *part)
{
    bitnet_error err = {0};
    bitnet_engine *e = engine_of(model, 1);
    one.r = (bitnet_prune_result){.size = sizeof one.r, .steps = one.steps};
    assert_int_equal(bitnet_prune_search(e, text, TOKENS, o, &one.r, &err), BITNET_E_ARG);
    if (!strstr(err.text, part)) fail_msg("'%s' does not say '%s'", err.text, part);
    bitnet_engine_close(e);
}

static void test_refused(void **state)
{
    (void)state;
    bitnet_error err = {0};
    bitnet_prune_output w = {.size = sizeof w};
    static uint32_t list[LAYERS * GRAIN];
    bitnet_prune_options o = options(0, N_FF);
    refuse(&o, "the model has 1408");
    o = options(0, N_FF - 1);
    refuse(&o, "128 at a time");
    o = options(0, 1);
    refuse(&o, "how far may perplexity grow");
    w.overwrite = 1;
    w.ffn_width = GRAIN;
    assert_int_equal(bitnet_prune(TEST_MODEL, out_path, &w, &err), BITNET_E_ARG);
    w.ffn_channels = list; /* all of them channel 0 */
    assert_int_equal(bitnet_prune(TEST_MODEL, out_path, &w, &err), BITNET_E_ARG);
    assert_non_null(strstr(err.text, "named twice"));
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) list[i] = i % GRAIN;
    list[7] = N_FF;
    assert_int_equal(bitnet_prune(TEST_MODEL, out_path, &w, &err), BITNET_E_ARG);
    assert_non_null(strstr(err.text, "channel 1408"));
    w.ffn_width = GRAIN - 16;
    assert_int_equal(bitnet_prune(TEST_MODEL, out_path, &w, &err), BITNET_E_ARG);
    assert_non_null(strstr(err.text, "no multiple of 128"));
    w.ffn_width = GRAIN;
    w.ffn_dead = 1;
    assert_int_equal(bitnet_prune(TEST_MODEL, out_path, &w, &err), BITNET_E_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_file), cmocka_unit_test(test_lanes),
        cmocka_unit_test(test_weakest),      cmocka_unit_test(test_with_layers),
        cmocka_unit_test(test_budget),       cmocka_unit_test(test_again),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
