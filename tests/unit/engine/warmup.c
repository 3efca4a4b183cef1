/* SPDX-License-Identifier: Apache-2.0
 * A warmed-up engine: steps cause neither page faults nor allocations, and nothing is left of the
 * warm-up itself. */
#include "engine_common.h"

#include "alloc_count.h"
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { CTX = 256, PROMPT = 40, NEW = 64 };

static long faults(void)
{
    struct rusage u;
    assert_int_equal(getrusage(RUSAGE_SELF, &u), 0);
    return u.ru_minflt + u.ru_majflt;
}

/* A request of NEW tokens, from the first step to the last. */
static void count(bitnet_engine *e, float temperature, int32_t first, long *n_faults, long *n_heap)
{
    int32_t prompt[PROMPT];
    bitnet_request r;
    bitnet_event ev[16] = {{.size = sizeof *ev}};
    uint32_t n_tokens = 0;
    for (int32_t i = 0; i < PROMPT; i++) prompt[i] = first + i * 7;
    bitnet_request_init(&r, sizeof r);
    r.tokens = prompt;
    r.n_tokens = PROMPT;
    r.max_new_tokens = NEW;
    r.ignore_end = 1;
    r.sampling.temperature = temperature;
    submit(e, &r);
    *n_heap = n_allocs;
    *n_faults = faults();
    for (size_t n = 1; n;) {
        n = 16;
        if (bitnet_step(e, ev, &n, NULL)) fail();
        for (size_t i = 0; i < n; i++) n_tokens += ev[i].token >= 0;
    }
    *n_faults = faults() - *n_faults;
    *n_heap = n_allocs - *n_heap;
    assert_int_equal(n_tokens, NEW);
}

static void check(const bitnet_engine_options *o)
{
    long greedy, drawn, heap[2];
    bitnet_engine *e = open_engine(o);
    assert_int_equal(bitnet_engine_warmup(e, NULL), BITNET_OK);
    count(e, 0, 1, &greedy, &heap[0]);
    count(e, 1, 2, &drawn, &heap[1]);
    assert_int_equal(heap[0] + heap[1], 0);
#ifdef TEST_NATIVE
    assert_int_equal(greedy, 0);
    assert_int_equal(drawn, 0);
#endif
    bitnet_engine_close(e);
}

/* With one thread and two, and the first n_types types of the cache. */
static void check_all(size_t n_types)
{
    static const bitnet_kv_type types[] = {BITNET_KV_F16, BITNET_KV_INT8, BITNET_KV_INT4};
    bitnet_engine_options o;
    for (uint32_t threads = 1; threads <= 2; threads++)
        for (size_t i = 0; i < n_types; i++) {
            o = (bitnet_engine_options){.size = sizeof o};
            o.threads = threads;
            o.ctx_tokens = CTX;
            o.kv_type = types[i];
            check(&o);
        }
}

static void no_faults_small_model(void **state)
{
    (void)state;
    check_all(3);
}

/* A random model in memory that path[64] names, until its file is closed. */
static int synthetic(const char *shape, uint32_t n_layer, char *path)
{
    bitnet_synth_options so = {.size = sizeof so};
    bitnet_error err = {0};
    int fd = memfd_create("model", MFD_CLOEXEC);
    assert_true(fd >= 0);
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    so.n_layer = n_layer;
    so.overwrite = 1;
    if (bitnet_synth(shape, path, &so, &err)) fail_msg("%s", err.text);
    return fd;
}

/* States, drafts beside them and slots for snapshots. */
static void no_faults_hybrid(void **state)
{
    (void)state;
    bitnet_model *small = model;
    bitnet_error err = {0};
    char path[64];
    int fd = synthetic("qwen35-tiny", 0, path);
    if (bitnet_model_open(&model, path, NULL, &err)) fail_msg("%s", err.text);
    check_all(3);
    bitnet_model_close(model);
    close(fd);
    model = small;
}

/* A head so large that its pages are given back without a warm-up; read in the file, or not. */
static void no_faults_large_head(void **state)
{
    (void)state;
    bitnet_model *small = model;
    bitnet_model_options mo;
    bitnet_error err = {0};
    char path[64];
    int fd = synthetic("1bitllm-large", 2, path);
    for (uint32_t no_mmap = 0; no_mmap < 2; no_mmap++) {
        mo = (bitnet_model_options){.size = sizeof mo};
        mo.mmap = no_mmap ? "off" : "auto";
        if (bitnet_model_open(&model, path, &mo, &err)) fail_msg("%s", err.text);
        bitnet_model_info in = {.size = sizeof in};
        bitnet_model_get_info(model, &in);
        assert_true(in.memory.head_copy_bytes > 0 && in.memory.head_bytes > 64 << 20);
        check_all(no_mmap ? 1 : 2);
        bitnet_model_close(model);
    }
    close(fd);
    model = small;
}

static void answer(bitnet_engine *e, int32_t tokens[NEW])
{
    int32_t prompt[PROMPT];
    bitnet_request r;
    bitnet_event ev[16] = {{.size = sizeof *ev}};
    uint32_t n_tokens = 0;
    for (int32_t i = 0; i < PROMPT; i++) prompt[i] = 3 + i;
    bitnet_request_init(&r, sizeof r);
    r.tokens = prompt;
    r.n_tokens = PROMPT;
    r.max_new_tokens = NEW;
    r.ignore_end = 1;
    r.sampling.seed = 5;
    submit(e, &r);
    for (size_t n = 1; n;) {
        n = 16;
        assert_int_equal(bitnet_step(e, ev, &n, NULL), BITNET_OK);
        for (size_t i = 0; i < n; i++)
            if (ev[i].token >= 0) tokens[n_tokens++] = ev[i].token;
    }
    assert_int_equal(n_tokens, NEW);
}

/* Whatever an engine tells of itself, times aside. */
static bitnet_engine_info counts(const bitnet_engine *e)
{
    bitnet_engine_info in = engine_info(e);
    in.work.step_ns = in.work.forward_ns = 0;
    return in;
}

static void leaves_no_trace(void **state)
{
    (void)state;
    bitnet_engine_options o = {.size = sizeof o};
    int32_t cold[NEW], warm[NEW];
    o.ctx_tokens = CTX;
    o.head = "screened";
    bitnet_model *own = model;
    bitnet_model_options mo = {.size = sizeof mo};
    mo.head = "screened";
    mo.ffn = "skip";
    assert_int_equal(bitnet_model_open(&model, TEST_MODEL, &mo, NULL), BITNET_OK);
    bitnet_engine *a = open_engine(&o), *b = open_engine(&o);
    bitnet_engine_info before = counts(b);
    bitnet_health h = {.size = sizeof h}, g = {.size = sizeof g};
    assert_int_equal(bitnet_engine_warmup(b, NULL), BITNET_OK);
    bitnet_engine_info after = counts(b);
    assert_memory_equal(&before, &after, sizeof before);
    bitnet_engine_health(a, &h);
    bitnet_engine_health(b, &g);
    assert_memory_equal(&h, &g, sizeof h);
    answer(a, cold);
    answer(b, warm);
    assert_memory_equal(cold, warm, sizeof cold);
    /* also between answers: what is known of texts stays known */
    before = counts(b);
    assert_int_equal(bitnet_engine_warmup(b, NULL), BITNET_OK);
    after = counts(b);
    assert_memory_equal(&before, &after, sizeof before);
    answer(b, warm);
    assert_memory_equal(cold, warm, sizeof cold);
    assert_true(engine_info(b).prefix.hit_tokens > 0);
    bitnet_engine_close(a);
    bitnet_engine_close(b);
    bitnet_model_close(model);
    model = own;
}

/* All pages in the prefix cache: there is no room for a pass, and none is needed. */
static void full_prefix_cache(void **state)
{
    (void)state;
    bitnet_engine_options o = {.size = sizeof o};
    int32_t first[NEW], again[NEW];
    o.ctx_tokens = PROMPT + NEW;
    bitnet_engine *e = open_engine(&o);
    answer(e, first);
    bitnet_engine_info in = engine_info(e);
    assert_true(in.kv.pages_free < 2);
    assert_int_equal(bitnet_engine_warmup(e, NULL), BITNET_OK);
    assert_int_equal(engine_info(e).kv.pages_cached, in.kv.pages_cached);
    answer(e, again);
    assert_memory_equal(first, again, sizeof first);
    bitnet_engine_close(e);
}

static void refused(void **state)
{
    (void)state;
    bitnet_engine_options o = {.size = sizeof o};
    bitnet_error err = {0};
    int32_t tokens[PROMPT] = {1};
    o.ctx_tokens = CTX;
    bitnet_engine *e = open_engine(&o);
    assert_int_equal(bitnet_engine_warmup(NULL, &err), BITNET_E_ARG);
    assert_int_equal(bitnet_eval(e, 0, tokens, PROMPT, 1, NULL, NULL), BITNET_OK);
    assert_int_equal(bitnet_engine_warmup(e, &err), BITNET_E_STATE);
    assert_non_null(strstr(err.text, "hold 2 pages"));
    assert_int_equal(bitnet_eval_reset(e, 0, NULL), BITNET_OK);
    bitnet_request r;
    bitnet_request_init(&r, sizeof r);
    r.tokens = tokens;
    r.n_tokens = 1;
    submit(e, &r);
    assert_int_equal(bitnet_engine_warmup(e, &err), BITNET_E_STATE);
    assert_non_null(strstr(err.text, "1 choices"));
    bitnet_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_faults_small_model), cmocka_unit_test(no_faults_large_head),
        cmocka_unit_test(no_faults_hybrid),      cmocka_unit_test(leaves_no_trace),
        cmocka_unit_test(full_prefix_cache),     cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests_name("warm-up", tests, open_model, close_model);
}
