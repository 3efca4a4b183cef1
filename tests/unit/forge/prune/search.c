/* SPDX-License-Identifier: Apache-2.0
 * The search for layers beside brute force: every candidate as a file of its own, measured by bitnet_perplexity.
 * The same figures to the last bit, and so the same choices. Then budgets, lists, what is refused, and what the
 * files say. */
#include "prune_common.h"

#include "base/rng.h"
#include "engine/engine.h"
#include "model/forward.h"
#include <math.h>

static int tear_down(void **state)
{
    unlink(out_path);
    unlink(again_path);
    rmdir(folder);
    return close_model(state);
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

static void write_without(const char *from, const char *to, const uint32_t *layers, size_t n)
{
    bitnet_error err = {0};
    bitnet_prune_output o = {.size = sizeof o};
    o.layers = layers;
    o.n_layers = n;
    o.overwrite = 1;
    if (bitnet_prune(from, to, &o, &err)) fail_msg("%s", err.text);
}

static bitnet_ppl_result measure(const char *path)
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
    return r;
}

struct found {
    bitnet_prune_step steps[LAYERS];
    double scores[LAYERS];
    bitnet_prune_result r;
};

static void find(struct found *f, const bitnet_prune_options *o, uint32_t threads)
{
    bitnet_error err = {0};
    bitnet_engine *e = engine_of(model, threads);
    memset(f, 0, sizeof *f);
    f->r = (bitnet_prune_result){.size = sizeof f->r, .steps = f->steps, .scores = f->scores};
    if (bitnet_prune_search(e, text, TOKENS, o, &f->r, &err)) fail_msg("%s", err.text);
    assert_int_equal(engine_info(e).kv.pages_free, engine_info(e).kv.pages);
    bitnet_engine_close(e);
}

static bitnet_prune_options options(uint32_t drop)
{
    bitnet_prune_options o = {.size = sizeof o};
    o.drop = drop;
    return o;
}

/* Step by step the lowest of all files with one layer less. */
static void test_greedy(void **state)
{
    (void)state;
    struct found f;
    bitnet_prune_options o = options(2);
    uint32_t gone[2];
    find(&f, &o, 2);
    assert_int_equal(f.r.n_steps, 3);
    assert_int_equal(f.r.n_tokens, TOKENS - 3);
    double whole = measure(TEST_MODEL).nll_per_token;
    assert_memory_equal(&f.steps[0].nll_per_token, &whole, sizeof whole);
    for (size_t step = 0; step < 2; step++) {
        double best = INFINITY;
        uint32_t choice = LAYERS;
        for (uint32_t il = 0; il < LAYERS; il++) {
            if (step && il == gone[0]) continue;
            gone[step] = il;
            write_without(TEST_MODEL, out_path, gone, step + 1);
            double nll = measure(out_path).nll_per_token;
            if (step == 0) assert_memory_equal(&f.scores[il], &nll, sizeof nll);
            if (nll < best) {
                best = nll;
                choice = il;
            }
        }
        gone[step] = choice;
        assert_int_equal(f.steps[step + 1].first_layer, choice);
        assert_int_equal(f.steps[step + 1].layers_left, LAYERS - step - 1);
        assert_memory_equal(&f.steps[step + 1].nll_per_token, &best, sizeof best);
        assert_true(f.steps[step + 1].kl > f.steps[step].kl);
    }
    /* each step: the states before each layer but the last, half of the stack behind a candidate, and one
     * pass of the whole model and one of what is left, to measure */
    uint64_t windows = TOKENS - 3, walked = LAYERS;
    for (uint64_t n = LAYERS; n > LAYERS - 2; n--)
        walked += n * (n - 1) / 2 + (n - 1) + LAYERS + n - 1;
    assert_int_equal(f.r.layer_tokens, windows * walked);
}

static void test_same_bits(void **state)
{
    (void)state;
    for (bitnet_prune_criterion c = BITNET_PRUNE_PERPLEXITY; c <= BITNET_PRUNE_VARIANCE; c++) {
        struct found one, three;
        bitnet_prune_options o = options(2);
        o.criterion = c;
        find(&one, &o, 1);
        find(&three, &o, 3);
        assert_memory_equal(one.steps, three.steps, sizeof one.steps);
        assert_memory_equal(one.scores, three.scores, sizeof one.scores);
    }
}

/* One pass orders all layers; the lowest go, and none is looked at again. */
static void test_ranks(void **state)
{
    (void)state;
    for (bitnet_prune_criterion c = BITNET_PRUNE_INFLUENCE; c <= BITNET_PRUNE_VARIANCE; c++) {
        struct found f;
        bitnet_prune_options o = options(3);
        bool gone[LAYERS] = {0};
        o.criterion = c;
        find(&f, &o, 2);
        for (size_t step = 1; step <= 3; step++) {
            uint32_t il = f.steps[step].first_layer;
            for (uint32_t k = 0; k < LAYERS; k++)
                if (!gone[k] && k != il) assert_true(f.scores[il] <= f.scores[k]);
            gone[il] = true;
        }
        for (uint32_t k = 0; k < LAYERS; k++) assert_true(f.scores[k] > 0);
        if (c == BITNET_PRUNE_INFLUENCE)
            for (uint32_t k = 0; k < LAYERS; k++) assert_true(f.scores[k] < 2);
    }
}

static void test_limits(void **state)
{
    (void)state;
    struct found f, g;
    bitnet_prune_options o = options(8);
    static const uint32_t kept[] = {0, 5}, list[] = {7, 2};
    o.max_ppl_increase = 10;
    find(&f, &o, 2);
    assert_true(f.r.n_steps > 1 && f.r.n_steps < 9);
    double most = f.steps[0].perplexity * 1.1;
    for (size_t i = 0; i < f.r.n_steps; i++) assert_true(f.steps[i].perplexity <= most);
    assert_true(f.r.over_budget > most);

    o = options(8);
    o.protect = kept;
    o.n_protect = 2;
    find(&f, &o, 2);
    assert_true(isnan(f.scores[0]) && isnan(f.scores[5]) && !isnan(f.scores[1]));
    for (size_t i = 1; i < f.r.n_steps; i++)
        assert_true(f.steps[i].first_layer != 0 && f.steps[i].first_layer != 5);

    o = options(2);
    o.layers = list;
    o.n_layers = 2;
    find(&g, &o, 2);
    assert_int_equal(g.steps[1].first_layer, 7);
    assert_int_equal(g.steps[2].first_layer, 2);
    write_without(TEST_MODEL, out_path, list, 2);
    double nll = measure(out_path).nll_per_token;
    assert_memory_equal(&g.steps[2].nll_per_token, &nll, sizeof nll);

    o = options(4); /* pairs */
    o.unit = 2;
    find(&g, &o, 2);
    assert_int_equal(g.r.n_steps, 3);
    for (size_t i = 1; i < 3; i++) assert_int_equal(g.steps[i].first_layer % 2, 0);
}

static void refuse(const bitnet_prune_options *o, size_t n, const char *part)
{
    bitnet_error err = {0};
    struct found f = {0};
    bitnet_engine *e = engine_of(model, 1);
    f.r = (bitnet_prune_result){.size = sizeof f.r, .steps = f.steps};
    assert_int_equal(bitnet_prune_search(e, text, n, o, &f.r, &err), BITNET_E_ARG);
    if (!strstr(err.text, part)) fail_msg("'%s' does not say '%s'", err.text, part);
    bitnet_engine_close(e);
}

static void test_refused(void **state)
{
    (void)state;
    static const uint32_t twice[] = {3, 3}, far[] = {10}, most[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    bitnet_prune_options o = options(0);
    refuse(&o, TOKENS, "at least one must go");
    o = options(10);
    refuse(&o, TOKENS, "at least one must go");
    o = options(1);
    refuse(&o, 1, "at least 2");
    o.ctx_tokens = WINDOW + 1;
    refuse(&o, TOKENS, "window of 65");
    o = options(1);
    o.unit = 3;
    refuse(&o, TOKENS, "periods of 3");
    o = options(2);
    o.layers = twice;
    o.n_layers = 2;
    refuse(&o, TOKENS, "twice");
    o.n_layers = 1;
    refuse(&o, TOKENS, "1 layers are listed");
    o = options(1);
    o.layers = far;
    o.n_layers = 1;
    refuse(&o, TOKENS, "no layer 10");
    o = options(2);
    o.protect = most;
    o.n_protect = 9;
    refuse(&o, TOKENS, "all but 1 are protected");
}

static int stop(void *user, const char *what, uint64_t done, uint64_t total)
{
    (void)what;
    assert_true(done <= total);
    return --*(int *)user == 0;
}

static void test_cancelled(void **state)
{
    (void)state;
    bitnet_error err = {0};
    struct found f = {0};
    bitnet_prune_options o = options(2);
    int calls = 7;
    o.progress = stop;
    o.progress_user = &calls;
    bitnet_engine *e = engine_of(model, 2);
    f.r = (bitnet_prune_result){.size = sizeof f.r, .steps = f.steps};
    assert_int_equal(bitnet_prune_search(e, text, TOKENS, &o, &f.r, &err), BITNET_E_CANCELLED);
    assert_int_equal(engine_info(e).kv.pages_free, engine_info(e).kv.pages);
    bitnet_engine_close(e);

    static const uint32_t gone[] = {4};
    bitnet_prune_output w = {.size = sizeof w};
    w.layers = gone;
    w.n_layers = 1;
    w.progress = stop;
    w.progress_user = &calls;
    calls = 3;
    unlink(again_path);
    assert_int_equal(bitnet_prune(TEST_MODEL, again_path, &w, &err), BITNET_E_CANCELLED);
    assert_int_equal(access(again_path, F_OK), -1);
}

/* The value of a metadata entry as JSON text. */
static void expect_meta(const char *path, const char *key, const char *want)
{
    bitnet_file *file = NULL;
    bitnet_error err = {0};
    char value[256] = "";
    if (bitnet_file_open(&file, path, &err)) fail_msg("%s", err.text);
    for (size_t i = 0; i < bitnet_file_n_meta(file); i++) {
        const char *name, *type;
        char v[256];
        size_t n = sizeof v - 1;
        if (bitnet_file_meta(file, i, &name, &type, v, &n) != BITNET_OK) continue;
        v[n] = 0;
        if (strcmp(name, key) == 0) memcpy(value, v, sizeof v);
    }
    bitnet_file_close(file);
    assert_string_equal(value, want);
}

/* Pruned twice: the numbers are those of the model that was never pruned. */
static void test_record(void **state)
{
    (void)state;
    static const uint32_t first[] = {6, 1}, second[] = {1, 7};
    write_without(TEST_MODEL, out_path, first, 2);
    expect_meta(out_path, "bitnet.pruned_layers", "[1, 6]");
    write_without(out_path, again_path, second, 2); /* 2 and 9 of the first model */
    expect_meta(again_path, "bitnet.pruned_layers", "[1, 2, 6, 9]");
    static const uint32_t all[] = {1, 2, 6, 9};
    double twice = measure(again_path).nll_per_token;
    write_without(TEST_MODEL, out_path, all, 4);
    double once = measure(out_path).nll_per_token;
    assert_memory_equal(&twice, &once, sizeof once);
}

enum { IDS = 12 };

/* Logits of the model at `path`; all but its first `skip` layers are walked. */
static float *logits_without(const char *path, uint32_t skip, size_t *bytes)
{
    bitnet_error err = {0};
    bitnet_model *m = NULL;
    bitnet_model_info x = {.size = sizeof x};
    bitnet_engine *e = NULL;
    int32_t ids[IDS];
    uint32_t layers[16];
    if (bitnet_model_open(&m, path, NULL, &err)) fail_msg("%s", err.text);
    bitnet_model_get_info(m, &x);
    assert_true(x.shape.n_layer <= 16 && x.shape.n_layer > skip);
    for (uint32_t i = 0; i < x.shape.n_layer; i++) layers[i] = i;
    for (int t = 0; t < IDS; t++) ids[t] = (t * 37 + 5) % (int32_t)x.shape.n_vocab;
    *bytes = IDS * x.shape.n_vocab * sizeof(float);
    float *y = malloc(*bytes);
    assert_non_null(y);
    if (bitnet_engine_open(&e, m, NULL, &err)) fail_msg("%s", err.text);
    struct bn_walk part = {.layers = layers + skip, .n_layers = x.shape.n_layer - skip};
    if (bn_engine_walk(e, ids, IDS, &part, y, &err)) fail_msg("%s", err.text);
    bitnet_engine_close(e);
    bitnet_model_close(m);
    return y;
}

/* A checkpoint without a layer as a checkpoint: the logits of the whole one that leaves it out. */
static void test_checkpoints(void **state)
{
    (void)state;
    static const char *const names[] = {"bitnet-packed-mul", "bitnet-master", "llama-packed-div",
                                        "1bitllm-master", "qwen3-values"};
    static const uint32_t gone[] = {0};
    char in[256], out[96], config[96];
    snprintf(out, sizeof out, "%s/model.safetensors", folder);
    snprintf(config, sizeof config, "%s/config.json", folder);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t bytes, again;
        snprintf(in, sizeof in, TEST_DATA "/golden/%s", names[i]);
        write_without(in, out, gone, 1);
        float *want = logits_without(in, 1, &bytes), *got = logits_without(out, 0, &again);
        assert_int_equal(bytes, again);
        assert_memory_equal(got, want, bytes);
        free(got);
        free(want);
    }
    bitnet_prune_output o = {.size = sizeof o};
    bitnet_error err = {0};
    o.layers = gone;
    o.n_layers = 1;
    unlink(out); /* config.json alone is in the way */
    assert_int_equal(bitnet_prune(in, out, &o, &err), BITNET_E_IO);
    assert_non_null(strstr(err.text, "config.json"));
    assert_int_equal(access(out, F_OK), -1);
    unlink(config);
}

/* A GGUF without a layer as a checkpoint: the same logits again, and the same tokens. What config.json has
 * no words for is refused, and nothing is left. */
static void test_from_gguf(void **state)
{
    (void)state;
    static const struct {
        const char *name, *type, *refused;
    } cases[] = {{"bitnet-packed-mul", NULL, NULL},
                 {"llama-packed-div", "q2_0", NULL},
                 {"qwen3-values", NULL, NULL},
                 {"llama-yarn-mscale", NULL, NULL},
                 {"qwen3-yarn-binary", NULL, NULL},
                 {"qwen3-yarn-options", NULL, NULL},
                 {"llama-values-rope3", NULL, "rope_freqs"}};
    static const uint32_t gone[] = {0};
    bitnet_error err = {0};
    char in[256], out[96], command[160];
    snprintf(out, sizeof out, "%s/hf/model.safetensors", folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bitnet_convert_options c = {.size = sizeof c};
        bitnet_prune_output o = {.size = sizeof o};
        size_t bytes, again;
        snprintf(in, sizeof in, TEST_DATA "/golden/%s", cases[i].name);
        snprintf(command, sizeof command, "rm -rf '%s/hf' && mkdir '%s/hf'", folder, folder);
        assert_int_equal(system(command), 0);
        c.overwrite = c.allow_scale_rounding = 1;
        c.type = cases[i].type;
        if (bitnet_convert(in, out_path, &c, &err)) fail_msg("%s: %s", cases[i].name, err.text);
        o.layers = gone;
        o.n_layers = 1;
        bitnet_status status = bitnet_prune(out_path, out, &o, &err);
        if (cases[i].refused) {
            assert_int_equal(status, BITNET_E_UNSUPPORTED);
            if (!strstr(err.text, cases[i].refused)) fail_msg("'%s'", err.text);
            snprintf(command, sizeof command, "rmdir '%s/hf'", folder); /* it is empty */
            assert_int_equal(system(command), 0);
            continue;
        }
        if (status) fail_msg("%s: %s", cases[i].name, err.text);
        float *want = logits_without(out_path, 1, &bytes), *got = logits_without(out, 0, &again);
        assert_int_equal(bytes, again);
        if (memcmp(got, want, bytes)) fail_msg("%s: other logits", cases[i].name);
        free(got);
        free(want);
    }
    bitnet_prune_output o = {.size = sizeof o, .layers = gone, .n_layers = 1};
    snprintf(in, sizeof in, "%s/pruned.safetensors", folder);
    assert_int_equal(bitnet_prune(TEST_DATA "/hybrid/hybrid-28m.gguf", in, &o, &err),
                     BITNET_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "hybrid"));
    assert_int_equal(access(in, F_OK), -1);
    snprintf(command, sizeof command, "rm -rf '%s/hf'", folder);
    assert_int_equal(system(command), 0);
}

/* A hybrid's layers keep their kinds. */
static void test_hybrid(void **state)
{
    (void)state;
    static const char hybrid[] = TEST_DATA "/hybrid/hybrid-28m.gguf";
    static const uint32_t one[] = {2}, period[] = {0, 1, 2, 3};
    bitnet_model *m = NULL;
    bitnet_error err = {0};
    struct found f = {0};
    bitnet_prune_options o = options(1);
    if (bitnet_model_open(&m, hybrid, NULL, &err)) fail_msg("%s", err.text);
    bitnet_engine *e = engine_of(m, 2);
    o.layers = one;
    o.n_layers = 1;
    f.r = (bitnet_prune_result){.size = sizeof f.r, .steps = f.steps};
    if (bitnet_prune_search(e, text, TOKENS, &o, &f.r, &err)) fail_msg("%s", err.text);
    write_without(hybrid, out_path, one, 1);
    expect_meta(out_path, "qwen35.attention.recurrent_layers", "[1, 1, 0, 1, 1, 1, 0]");
    double nll = measure(out_path).nll_per_token;
    assert_memory_equal(&f.steps[1].nll_per_token, &nll, sizeof nll);

    o = options(4);
    o.unit = 4;
    f.r = (bitnet_prune_result){.size = sizeof f.r, .steps = f.steps};
    if (bitnet_prune_search(e, text, TOKENS, &o, &f.r, &err)) fail_msg("%s", err.text);
    uint32_t gone[4];
    for (uint32_t i = 0; i < 4; i++) gone[i] = f.steps[1].first_layer + i;
    write_without(hybrid, out_path, gone, 4);
    expect_meta(out_path, "qwen35.attention.recurrent_layers", "");
    nll = measure(out_path).nll_per_token;
    assert_memory_equal(&f.steps[1].nll_per_token, &nll, sizeof nll);
    write_without(hybrid, out_path, period, 4);
    bitnet_engine_close(e);
    bitnet_model_close(m);
}

/* ---- channels that are always zero ---- */

enum {
    ROW_BYTES = 128,
    N_FF = 1408
}; /* of gate and up: 512 columns of I2_S, whose code 1 is a zero */

static uint8_t *file_bytes(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    uint8_t *b = malloc(*n);
    assert_non_null(b);
    assert_int_equal(fread(b, 1, *n, f), *n);
    fclose(f);
    return b;
}

/* The test model with rows of zeros in `gate` and `up`, about one in `rare`; other ones in each layer. */
static void write_with_dead(const char *path, uint32_t rare)
{
    bitnet_file *file = NULL;
    bitnet_error err = {0};
    size_t n;
    struct bn_rng rng = {.state = 3};
    uint8_t *b = file_bytes(TEST_MODEL, &n);
    if (bitnet_file_open(&file, TEST_MODEL, &err)) fail_msg("%s", err.text);
    for (size_t i = 0; i < bitnet_file_n_tensors(file); i++) {
        bitnet_tensor_info t = {.size = sizeof t};
        bitnet_file_tensor(file, i, &t);
        if (!strstr(t.name, "ffn_gate.weight") && !strstr(t.name, "ffn_up.weight")) continue;
        assert_string_equal(t.type, "I2_S");
        assert_true(t.dims[0] == 4 * ROW_BYTES && t.dims[1] == N_FF);
        for (size_t r = 0; r < N_FF; r++)
            if (bn_rng_below(&rng, rare) == 0)
                memset(b + t.offset + r * ROW_BYTES, 0x55, ROW_BYTES);
    }
    bitnet_file_close(file);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    free(b);
}

/* All logits of the text, its first half at once and then token by token. */
static float *logits_of(const char *path, const char *backend, uint32_t *n_ff)
{
    bitnet_error err = {0};
    bitnet_model *m = NULL;
    bitnet_model_options o = {.size = sizeof o};
    bitnet_model_info in = {.size = sizeof in};
    o.backend = backend;
    if (bitnet_model_open(&m, path, &o, &err)) fail_msg("%s", err.text);
    bitnet_model_get_info(m, &in);
    *n_ff = in.shape.n_ff;
    bitnet_engine *e = engine_of(m, 2);
    float *y = malloc((size_t)WINDOW * in.shape.n_vocab * sizeof *y);
    assert_non_null(y);
    if (bitnet_eval(e, 0, text, WINDOW / 2, 0, y, &err)) fail_msg("%s", err.text);
    for (size_t i = WINDOW / 2; i < WINDOW; i++)
        if (bitnet_eval(e, 0, text + i, 1, 0, y + i * in.shape.n_vocab, &err))
            fail_msg("%s", err.text);
    bitnet_engine_close(e);
    bitnet_model_close(m);
    return y;
}

static void test_dead(void **state)
{
    (void)state;
    static const char *const backends[] = {"scalar", NULL};
    bitnet_error err = {0};
    bitnet_prune_output o = {.size = sizeof o};
    uint32_t whole, narrow, scaled;
    o.ffn_dead = 1;
    o.overwrite = 1;
    write_with_dead(out_path, 3);
    for (size_t i = 0; i < 2; i++) {
        o.portable = 0;
        if (bitnet_prune(out_path, again_path, &o, &err)) fail_msg("%s", err.text);
        float *want = logits_of(out_path, backends[i], &whole);
        float *got = logits_of(again_path, backends[i], &narrow);
        assert_int_equal(whole, N_FF);
        assert_true(narrow < N_FF - 256 && narrow % 128 == 0);
        assert_memory_equal(got, want, (size_t)WINDOW * info.shape.n_vocab * sizeof *got);
        expect_meta(again_path, "bitnet.ffn_norm_width", "1408");
        free(got);
        o.portable = 1; /* close, but not the same */
        if (bitnet_prune(out_path, again_path, &o, &err)) fail_msg("%s", err.text);
        got = logits_of(again_path, backends[i], &scaled);
        expect_meta(again_path, "bitnet.ffn_norm_width", "");
        assert_int_equal(scaled, narrow);
        double most = 0;
        for (size_t k = 0; k < (size_t)WINDOW * info.shape.n_vocab; k++)
            most = fmax(most, fabs((double)got[k] - (double)want[k]));
        assert_true(most < 1);
        free(got);
        free(want);
    }
    /* narrowed twice, with layers out of it in between: the divisor is still the first one */
    static const uint32_t gone[] = {3};
    o.portable = 0;
    if (bitnet_prune(out_path, again_path, &o, &err)) fail_msg("%s", err.text);
    write_without(again_path, out_path, gone, 1);
    expect_meta(out_path, "bitnet.ffn_norm_width", "1408");
    double one_way = measure(out_path).nll_per_token;
    write_with_dead(again_path, 3);
    write_without(again_path, out_path, gone, 1);
    double other_way = measure(out_path).nll_per_token;
    assert_memory_equal(&one_way, &other_way, sizeof one_way);
}

/* Too few that are dead, or none: all channels stay, and so does the file. */
static void test_none_dead(void **state)
{
    (void)state;
    bitnet_error err = {0};
    bitnet_prune_output o = {.size = sizeof o};
    uint32_t n_ff;
    o.ffn_dead = 1;
    o.overwrite = 1;
    if (bitnet_prune(TEST_MODEL, again_path, &o, &err)) fail_msg("%s", err.text);
    free(logits_of(again_path, NULL, &n_ff));
    assert_int_equal(n_ff, N_FF);
    expect_meta(again_path, "bitnet.ffn_norm_width", "");
    assert_int_equal(bitnet_prune(TEST_DATA "/hybrid/hybrid-28m.gguf", out_path, &o, &err),
                     BITNET_E_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy),      cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_ranks),       cmocka_unit_test(test_limits),
        cmocka_unit_test(test_refused),     cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_record),      cmocka_unit_test(test_hybrid),
        cmocka_unit_test(test_checkpoints), cmocka_unit_test(test_from_gguf),
        cmocka_unit_test(test_dead),        cmocka_unit_test(test_none_dead),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
