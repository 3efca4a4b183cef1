/* SPDX-License-Identifier: Apache-2.0
 * Bytes and products of a profile: those of weights are the engine's own count, whatever layout, head
 * and feed-forward layers it has; those of attention are the positions that tokens see. */
#include "profile_common.h"

enum { PROMPT = 40, NEW = 12 };

static bitnet_model *open_as(const char *path, const char *layout, const char *head,
                             const char *ffn)
{
    bitnet_model *m = NULL;
    bitnet_error err = {0};
    bitnet_model_options o = {.size = sizeof o};
    o.layout = layout;
    o.head = head;
    o.ffn = ffn;
    if (bitnet_model_open(&m, path, &o, &err)) fail_msg("%s", err.text);
    return m;
}

/* Keys and values of all positions that tokens have seen; those of a prompt, RUN together, once. */
static uint64_t positions_read(uint32_t n_prompt, uint32_t n_new)
{
    enum { RUN = 8 };
    uint64_t n = 0;
    for (uint32_t t = RUN; t < n_prompt; t += RUN) n += t;
    n += n_prompt;
    for (uint32_t i = 1; i < n_new; i++) n += n_prompt + i;
    return n;
}

static void bytes_are_the_engines(bitnet_model *m, const char *head, const char *ffn,
                                  uint32_t threads)
{
    bitnet_model_info mi = {.size = sizeof mi};
    bitnet_engine_options o = profile_options("on", threads);
    o.head = head;
    o.ffn = ffn;
    o.kv_type = threads == 2 ? BITNET_KV_F32 : BITNET_KV_F16;
    bitnet_engine *e = open_on(m, &o);
    bitnet_model_get_info(m, &mi);
    run_answer(e, PROMPT, NEW);
    bitnet_engine_info in = engine_info(e);
    assert_string_equal(in.head.type, head);
    assert_string_equal(in.ffn.type, ffn);
    assert_int_equal(weight_bytes(e), in.work.weight_bytes);
    assert_int_equal(sum_op(e, ALL_PHASES, "attention").bytes,
                     in.kv.token_bytes * positions_read(PROMPT, NEW));
    if (strcmp(ffn, "dense") == 0) { /* every weight of the layers meets every token */
        uint64_t att = (uint64_t)mi.shape.n_head * mi.shape.head_dim,
                 kv = (uint64_t)mi.shape.n_head_kv * mi.shape.head_dim;
        uint64_t layer =
            mi.shape.n_embd * (2 * att + 2 * kv) + UINT64_C(3) * mi.shape.n_embd * mi.shape.n_ff;
        assert_int_equal(sum_entries(e, ALL_PHASES, ALL_LAYERS, NULL, "matrix").macs,
                         layer * mi.shape.n_layer * (PROMPT + NEW - 1));
    }
    /* every query head with every position that its token sees, for keys and for values */
    uint64_t seen = (uint64_t)(PROMPT + NEW - 1) * (PROMPT + NEW) / 2;
    assert_int_equal(sum_op(e, ALL_PHASES, "attention").macs,
                     2 * seen * mi.shape.n_layer * mi.shape.n_head * mi.shape.head_dim);
    parts_are_the_whole(e);
    bitnet_engine_close(e);
}

static void bytes_of_heads_and_layouts(void **state)
{
    (void)state;
    static const char *const layouts[] = {"t2", "t3", "t5"}, *const heads[] = {"exact", "screened",
                                                                               "int8"};
    static const char *const ffns[] = {"dense", "skip", "auto"};
    for (int i = 0; i < 3; i++) {
        bitnet_model *m = open_as(TEST_MODEL, layouts[i], heads[i], "skip");
        for (uint32_t threads = 1; threads <= 3; threads++)
            for (int k = 0; k < 3; k++) bytes_are_the_engines(m, heads[i], ffns[k], threads);
        bitnet_model_close(m);
    }
}

/* One matrix of the model as if the file had it as floats. */
static void bytes_of_dense_matrices(void **state)
{
    (void)state;
    bitnet_model *m = open_as(TEST_MODEL, "t3", "exact", "dense");
    struct bn_matrix *w = &m->m->layers[1].proj[BN_P_O - BN_P_Q], was = *w;
    size_t bytes = was.packed.rows * was.packed.cols * sizeof(float);
    float *zeros = calloc(1, bytes);
    m->m->packed_bytes -= bn_matrix_bytes(w);
    *w = (struct bn_matrix){.dense = true, .gemm = was.gemm};
    w->stored = (struct bn_stored){.type = BN_F32,
                                   .data = (const uint8_t *)zeros,
                                   .bytes = bytes,
                                   .rows = was.packed.rows,
                                   .cols = was.packed.cols};
    for (uint32_t threads = 1; threads <= 3; threads++)
        bytes_are_the_engines(m, "exact", "dense", threads);
    *w = was;
    m->m->packed_bytes += bn_matrix_bytes(w);
    bitnet_model_close(m);
    free(zeros);
}

#if BN_HAVE_TEXT
static void bytes_of_binary_matrices(void **state)
{
    (void)state;
    char path[] = "/tmp/bitnet-profile-test-XXXXXX.gguf";
    bitnet_error err = {0};
    bitnet_synth_options o = {.size = sizeof o};
    bitnet_model_info mi = {.size = sizeof mi};
    o.overwrite = 1;
    o.type = "q1_0";
    int fd = mkstemps(path, 5);
    assert_true(fd >= 0);
    if (bitnet_synth("tiny", path, &o, &err)) fail_msg("%s", err.text);
    bitnet_model *m = open_as(path, "b1", "exact", "dense");
    bitnet_model_get_info(m, &mi);
    assert_string_equal(mi.layout, "b1");
    for (uint32_t threads = 1; threads <= 3; threads++)
        bytes_are_the_engines(m, "exact", "dense", threads);
    bitnet_model_close(m);
    fclose(fdopen(fd, "r"));
    remove(path);
}
#endif

/* Long texts are cut into blocks of keys, and folded. */
static void bytes_of_shared_attention(void **state)
{
    (void)state;
    enum { LONG = 480 };
    bitnet_engine_options o = profile_options("on", 3);
    bitnet_engine *e = open_engine(&o);
    run_answer(e, LONG, NEW);
    bitnet_engine_info in = engine_info(e);
    assert_true(sum_op(e, BITNET_PHASE_DECODE, "fold").calls > 0);
    uint64_t positions = 0;
    for (uint64_t i = 1; i < NEW; i++) positions += LONG + i;
    bitnet_profile_entry a = sum_op(e, BITNET_PHASE_DECODE, "attention");
    assert_int_equal(a.bytes, in.kv.token_bytes * positions);
    assert_int_equal(a.macs,
                     2 * positions * info.shape.n_layer * info.shape.n_head * info.shape.head_dim);
    parts_are_the_whole(e);
    bitnet_engine_close(e);
}

/* Caches of blocks have more to store, under the same name. */
static void every_type_of_cache(void **state)
{
    (void)state;
    for (int type = BITNET_KV_F16; type <= BITNET_KV_INT2; type++) {
        bitnet_engine_options o = profile_options("on", 2);
        o.kv_type = (bitnet_kv_type)type;
        bitnet_engine *e = open_engine(&o);
        run_answer(e, PROMPT, NEW);
        bitnet_engine_info in = engine_info(e);
        bool blocks = type == BITNET_KV_INT4 || type == BITNET_KV_INT2;
        assert_int_equal(sum_op(e, BITNET_PHASE_DECODE, "rope+store").calls,
                         (uint64_t)info.shape.n_layer * info.shape.n_head_kv * (NEW - 1) *
                             (blocks ? 2 : 1));
        assert_int_equal(sum_op(e, ALL_PHASES, "attention").bytes,
                         in.kv.token_bytes * positions_read(PROMPT, NEW));
        parts_are_the_whole(e);
        bitnet_engine_close(e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_of_heads_and_layouts),
        cmocka_unit_test(bytes_of_dense_matrices),
#if BN_HAVE_TEXT
        cmocka_unit_test(bytes_of_binary_matrices),
#endif
        cmocka_unit_test(bytes_of_shared_attention),
        cmocka_unit_test(every_type_of_cache),
    };
    if (!BN_PROF) return 77; /* built without profiling */
    return cmocka_run_group_tests(tests, open_model, close_model);
}
