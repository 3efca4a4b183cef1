/* SPDX-License-Identifier: Apache-2.0
 * Plans: which are refused and in what words; that one without savings changes no bit; that the same
 * text has the same bits under the same plan whatever computes it; that options count more than a
 * plan, and that what a plan saves is not read. */
#include <stdlib.h>
#include <unistd.h>

#include "effort.h"
#include "engine_common.h"
#include "model/savings.h"
#include <sys/mman.h>

enum { N_TOKENS = 100, THREADS = 3 };

#define PLAN(layers) "{\"format\":\"bitnet-plan-1\",\"layers\":[" layers "]}"
#define TEN(layer)   FIVE(layer) "," FIVE(layer)
#define FIVE(layer)  layer "," layer "," layer "," layer "," layer
#define FIRST(layer) PLAN(layer ",{},{},{},{},{},{},{},{},{}")
#define WITH(member) "{\"format\":\"bitnet-plan-1\"," member "}"

static const char mixed[] = PLAN(
    "{\"down_codes\":1,\"keys\":\"int8\",\"values\":\"int4\"},{\"gate_min\":0.2},"
    "{\"down_codes\":3,\"gate_min\":0.1,\"keys\":\"int4\",\"values\":\"int2\"},"
    "{\"keys\":\"f32\",\"values\":\"fp8_e4m3\"},{\"keys\":\"fp8_e5m2\",\"values\":\"fp8_e5m2\"},"
    "{\"down_codes\":2},{\"keys\":\"int8\",\"values\":\"int8\"},{\"values\":\"int4\"},"
    "{\"down_codes\":8,\"keys\":\"bf16\"},{\"gate_min\":0.05}");

/* ------------------------------------------------------------------ logits */

static int32_t text[N_TOKENS];

static void make_text(void)
{
    static const char story[] =
        "Once upon a time, there was a little girl named Lily. She loved to play outside in the "
        "park with her dog Max. One day, Max found a big red ball. Lily threw the ball and Max ran "
        "to get it. Then a boy named Tom came to the park. Tom wanted to play with the ball, too. "
        "They all played together until the sun went down, and then they went home to eat. The "
        "end.";
    size_t n = N_TOKENS;
    bitnet_error err = {0};
    bitnet_status s = bitnet_encode(model, story, sizeof story - 1, BITNET_TOK_BOS, text, &n, &err);
    if (s != BITNET_OK && s != BITNET_E_LIMIT) fail_msg("%s", err.text);
    for (size_t i = n; i < N_TOKENS; i++) text[i] = text[i - n];
}

/* Of all tokens, [N_TOKENS][n_vocab], read in pieces of `chunk`; to be freed. */
static float *logits_of(const bitnet_model *m, const bitnet_engine_options *o, size_t chunk,
                        bitnet_engine_info *in)
{
    bitnet_error err = {0};
    bitnet_engine *e = NULL;
    float *out = malloc((size_t)N_TOKENS * info.shape.n_vocab * sizeof *out);
    assert_non_null(out);
    if (bitnet_engine_open(&e, m, o, &err)) fail_msg("%s", err.text);
    for (size_t i = 0; i < N_TOKENS; i += chunk) {
        size_t n = chunk < N_TOKENS - i ? chunk : N_TOKENS - i;
        if (bitnet_eval(e, 0, text + i, n, 0, out + i * info.shape.n_vocab, &err))
            fail_msg("%s", err.text);
    }
    if (in) *in = engine_info(e);
    bitnet_engine_close(e);
    return out;
}

static bool same(const float *a, const float *b)
{
    return memcmp(a, b, (size_t)N_TOKENS * info.shape.n_vocab * sizeof *a) == 0;
}

static float *logits_with(const char *plan)
{
    bitnet_engine_options o = {.size = sizeof o, .threads = 2, .plan = plan};
    return logits_of(model, &o, N_TOKENS, NULL);
}

static void a_plan_without_savings_changes_no_bit(void **state)
{
    (void)state;
    static const char *const empty[] = {
        WITH("\"notes\":{}"), PLAN(TEN("{}")),
        PLAN(TEN("{\"down_codes\":0,\"gate_min\":0,\"keys\":\"f16\",\"values\":\"f16\"}"))};
    float *want = logits_with("off");
    for (size_t i = 0; i < BN_ARRAY_LEN(empty); i++) {
        float *got = logits_with(empty[i]);
        if (!same(want, got)) fail_msg("plan %zu changes something", i);
        free(got);
    }
    free(want);
}

static void every_saving_has_an_effect(void **state)
{
    (void)state;
    static const char *const plans[] = {FIRST("{\"down_codes\":3}"), FIRST("{\"gate_min\":0.2}"),
                                        FIRST("{\"keys\":\"int4\"}"),
                                        FIRST("{\"values\":\"int4\"}")};
    float *want = logits_with("off");
    for (size_t i = 0; i < BN_ARRAY_LEN(plans); i++) {
        float *got = logits_with(plans[i]);
        if (same(want, got)) fail_msg("%s changes nothing", plans[i]);
        free(got);
    }
    free(want);
}

/* ------------------------------------------------------------------ the same bits */

/* By threads, pieces and with feed-forward lists or without them. */
static void try_model(const float *want, const char *backend, const char *ffn)
{
    static const size_t chunks[] = {N_TOKENS, 1, 7, 64};
    bitnet_model_options mo = {.size = sizeof mo, .backend = backend, .ffn = ffn, .plan = mixed};
    bitnet_error err = {0};
    bitnet_model *m = NULL;
    if (bitnet_model_open(&m, TEST_MODEL, &mo, &err)) fail_msg("%s", err.text);
    for (size_t c = 0; c < repeats(BN_ARRAY_LEN(chunks), 2); c++) {
        bitnet_engine_options o = {.size = sizeof o, .ffn = ffn};
        bitnet_engine_info in;
        o.threads = 1 + (uint32_t)c % THREADS;
        float *got = logits_of(m, &o, chunks[c], &in);
        assert_string_equal(in.plan.from, "given");
        assert_string_equal(in.kv.type, "mixed");
        if (!same(want, got)) fail_msg("%s, %s, pieces of %zu differ", backend, ffn, chunks[c]);
        free(got);
    }
    bitnet_model_close(m);
}

static void bits_depend_on_the_plan_alone(void **state)
{
    (void)state;
    float *want = logits_with(mixed);
    const char *backend;
    int here;
    for (size_t i = 0; (backend = bitnet_backend_name(i, &here)); i++) {
        if (!here) continue;
        try_model(want, backend, "dense");
        if (strcmp(backend, "scalar") != 0) try_model(want, backend, "skip");
    }
    free(want);
}

static void options_count_more(void **state)
{
    (void)state;
    bitnet_engine_options o = {.size = sizeof o, .kv_type = BITNET_KV_INT8};
    float *want = logits_of(model, &o, N_TOKENS, NULL);
    o.plan = PLAN(TEN("{\"keys\":\"int4\",\"values\":\"int2\"}"));
    float *got = logits_of(model, &o, N_TOKENS, NULL);
    assert_true(same(want, got));
    free(want);
    free(got);
}

/* Decoded token by token, with copies of which parts can be read. */
static uint64_t ffn_bytes_read(const bitnet_model *m, const char *plan)
{
    bitnet_engine_options o = {.size = sizeof o, .threads = 2, .ffn = "skip", .plan = plan};
    bitnet_engine_info in;
    free(logits_of(m, &o, 1, &in));
    assert_int_equal(in.ffn.tokens, N_TOKENS);
    return in.ffn.read_bytes;
}

static void what_is_saved_is_not_read(void **state)
{
    (void)state;
    bitnet_model_options mo = {.size = sizeof mo, .ffn = "skip"};
    bitnet_error err = {0};
    bitnet_model *m = NULL;
    if (bitnet_model_open(&m, TEST_MODEL, &mo, &err)) fail_msg("%s", err.text);
    uint64_t all = ffn_bytes_read(m, "off");
    uint64_t codes = ffn_bytes_read(m, PLAN(TEN("{\"down_codes\":2}")));
    uint64_t gates = ffn_bytes_read(m, PLAN(TEN("{\"gate_min\":0.2}")));
    assert_true(codes < all - all / 50);
    assert_true(gates < all - all / 50);
    bitnet_model_close(m);
}

/* ------------------------------------------------------------------ plans in the model's file */

/* The small model with a plan in its metadata, in memory, opened with another one or its own. */
static bitnet_model *open_baked(const char *baked, const char *plan)
{
    bitnet_convert_options co = {.size = sizeof co, .type = "keep", .head_type = "keep"};
    bitnet_model_options mo = {.size = sizeof mo, .plan = plan};
    bitnet_error err = {0};
    bitnet_model *m = NULL;
    char path[64];
    int fd = memfd_create("model", MFD_CLOEXEC);
    assert_true(fd >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    co.overwrite = 1;
    co.plan = baked;
    if (bitnet_convert(TEST_MODEL, path, &co, &err) || bitnet_model_open(&m, path, &mo, &err))
        fail_msg("%s", err.text);
    close(fd);
    return m;
}

static void check_baked(bitnet_model *m, const char *from, const char *same_as, const char *note)
{
    bitnet_engine_options o = {.size = sizeof o};
    bitnet_model_info mi = {.size = sizeof mi};
    bitnet_engine_info in;
    float *want = logits_with(same_as), *got = logits_of(m, &o, N_TOKENS, &in);
    bitnet_model_get_info(m, &mi);
    assert_string_equal(in.plan.from, from);
    assert_string_equal(mi.plan, from);
    assert_non_null(strstr(mi.note, note));
    assert_true(mi.checksum == info.checksum);
    assert_true(same(want, got));
    free(want);
    free(got);
    bitnet_model_close(m);
}

static void a_plan_in_the_file_is_used(void **state)
{
    (void)state;
    static const char codes[] = PLAN(TEN("{\"down_codes\":2}"));
    check_baked(open_baked(mixed, NULL), "file", mixed, "codes in 4 layers");
    check_baked(open_baked(mixed, codes), "given", codes, "codes in 10 layers");
    check_baked(open_baked(mixed, "off"), "off", "off", "");
}

static void one_that_does_not_fit_is_left_aside(void **state)
{
    (void)state;
    static const char other[] =
        WITH("\"model\":{\"name\":\"x\",\"checksum\":\"0123456789abcdef\"}");
    check_baked(open_baked(other, NULL), "off", "off",
                "left aside: the plan was made for another model");
}

/* ------------------------------------------------------------------ plans that are refused */

static void refused(const char *plan, bitnet_status status, const char *words)
{
    bitnet_engine_options o = {.size = sizeof o, .plan = plan};
    bitnet_error err = {0};
    bitnet_engine *e = NULL;
    bitnet_status s = bitnet_engine_open(&e, model, &o, &err);
    if (s == BITNET_OK || e) fail_msg("%s is taken", plan);
    if (s != status || !strstr(err.text, words))
        fail_msg("%s: status %d, \"%s\"; \"%s\" is expected", plan, (int)s, err.text, words);
}

static void bad_plans_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *plan;
        bitnet_status status;
        const char *words;
    } bad[] = {
        {"{\"format\":", BITNET_E_FORMAT, "the plan"},
        {"{}", BITNET_E_FORMAT, "has no \"format\""},
        {"{\"format\":\"bitnet-plan-2\"}", BITNET_E_UNSUPPORTED, "reads bitnet-plan-1"},
        {WITH("\"model\":{\"name\":\"other\",\"checksum\":\"0123456789abcdef\"}"), BITNET_E_ARG,
         "made for another model, 'other' with the checksum 0123456789abcdef"},
        {WITH("\"model\":{\"checksum\":\"12\"}"), BITNET_E_FORMAT, "16 hex digits"},
        {WITH("\"model\":7"), BITNET_E_FORMAT, "\"model\" is no object"},
        {WITH("\"layers\":{}"), BITNET_E_FORMAT, "\"layers\" is no array"},
        {PLAN("{},{}"), BITNET_E_ARG, "is for 2 layers; this model has 10"},
        {WITH("\"heads\":\"int8\""), BITNET_E_FORMAT, "'heads' is unknown"},
        {WITH("\"head\":\"int4\""), BITNET_E_FORMAT, "exact or int8, not 'int4'"},
        {WITH("\"head\":\"int8\""), BITNET_E_STATE, "opened with head 'int8'"},
        {FIRST("7"), BITNET_E_FORMAT, "layer 0: it is no object"},
        {FIRST("{\"layer\":1}"), BITNET_E_FORMAT, "it is called layer 1"},
        {FIRST("{\"down_code\":1}"), BITNET_E_FORMAT, "'down_code' is unknown"},
        {FIRST("{\"down_codes\":127}"), BITNET_E_FORMAT, "at most 126"},
        {FIRST("{\"down_codes\":1.5}"), BITNET_E_FORMAT, "not a whole number"},
        {FIRST("{\"gate_min\":-1}"), BITNET_E_FORMAT, "\"gate_min\" is below 0"},
        {FIRST("{\"keys\":\"int3\"}"), BITNET_E_FORMAT, "'int3' is no type of the KV cache"},
        {FIRST("{\"state\":\"bf16\"}"), BITNET_E_FORMAT, "it has attention, and no state"},
        {FIRST("{\"state\":\"f16\"}"), BITNET_E_FORMAT, "f32 or bf16, not 'f16'"},
        {FIRST("{\"activations\":{\"down\":\"int16\"}}"), BITNET_E_UNSUPPORTED,
         "trained with int8 activations"},
        {FIRST("{\"activations\":{\"up\":\"int8\"}}"), BITNET_E_FORMAT, "'up' is unknown"},
        {"/nowhere/plan.json", BITNET_E_IO, "/nowhere/plan.json"},
    };
    for (size_t i = 0; i < BN_ARRAY_LEN(bad); i++)
        refused(bad[i].plan, bad[i].status, bad[i].words);
}

static void a_file_that_is_no_plan_is_refused(void **state)
{
    (void)state;
    char path[] = "/tmp/bitnet-plan-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, "once upon", 9) == 9);
    close(fd);
    refused(path, BITNET_E_FORMAT, path);
    unlink(path);
}

/* ------------------------------------------------------------------ writing */

static void what_is_written_is_read_again(void **state)
{
    (void)state;
    bitnet_model_options mo = {.size = sizeof mo};
    bitnet_error err = {0};
    struct bn_model *m;
    struct bn_savings *a = NULL, *b = NULL;
    if (bn_model_open(&m, TEST_MODEL, &mo, &err) || bn_savings_open(&a, m, mixed, &err))
        fail_msg("%s", err.text);
    a->head = BN_HEAD_INT8;
    struct bn_json *j = bn_savings_json(a, m);
    char *written = bn_json_dump(j, BN_JSON_INDENT(2));
    assert_non_null(written);
    if (bn_savings_open(&b, m, written, &err) || bn_savings_check(b, m, &err))
        fail_msg("%s", err.text);
    assert_true(b->tied && b->checksum == m->checksum && b->head == BN_HEAD_INT8);
    assert_int_equal(a->n_layer, b->n_layer);
    assert_memory_equal(a->layers, b->layers, a->n_layer * sizeof *a->layers);
    m->checksum++;
    assert_int_equal(bn_savings_check(b, m, &err), BITNET_E_ARG);
    bn_json_free(j);
    free(written);
    free(a);
    free(b);
    bn_model_close(m);
}

static int open_all(void **state)
{
    if (open_model(state)) return -1;
    make_text();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_without_savings_changes_no_bit),
        cmocka_unit_test(every_saving_has_an_effect),
        cmocka_unit_test(bits_depend_on_the_plan_alone),
        cmocka_unit_test(options_count_more),
        cmocka_unit_test(what_is_saved_is_not_read),
        cmocka_unit_test(a_plan_in_the_file_is_used),
        cmocka_unit_test(one_that_does_not_fit_is_left_aside),
        cmocka_unit_test(bad_plans_are_refused),
        cmocka_unit_test(a_file_that_is_no_plan_is_refused),
        cmocka_unit_test(what_is_written_is_read_again),
    };
    return cmocka_run_group_tests(tests, open_all, close_model);
}
