/* SPDX-License-Identifier: Apache-2.0
 * What memory lies in: blocks, files that are read, and models opened with every switch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "base/os/file.h"
#include "base/os/mem.h"
#include <cmocka.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MIB = 1 << 20, BYTES = 3 * MIB, SMALL = 64 << 10, TOKENS = 24 };

/* ------------------------------------------------------------------ blocks */

static void names_of_pages(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum bn_pages pages;
    } known[] = {{NULL, BN_PAGES_THP},    {"auto", BN_PAGES_THP}, {"thp", BN_PAGES_THP},
                 {"off", BN_PAGES_SMALL}, {"2m", BN_PAGES_2M},    {"1g", BN_PAGES_1G}};
    enum bn_pages p;
    bitnet_error err = {0};
    for (size_t i = 0; i < BN_ARRAY_LEN(known); i++) {
        assert_int_equal(bn_pages_parse(&p, known[i].name, NULL), BITNET_OK);
        assert_int_equal(p, known[i].pages);
    }
    assert_string_equal(bn_pages_name(BN_PAGES_1G), "1g");
    assert_int_equal(bn_pages_parse(&p, "4m", &err), BITNET_E_ARG);
    assert_non_null(strstr(err.text, "'4m'"));
}

static size_t resident(const void *p, size_t bytes)
{
    unsigned char there[BYTES / 4096];
    size_t n = bytes / (size_t)sysconf(_SC_PAGESIZE), sum = 0;
    assert_true(n <= sizeof there && mincore((void *)p, bytes, there) == 0);
    for (size_t i = 0; i < n; i++) sum += there[i] & 1;
    return sum;
}

static void touching_brings_pages(void **state)
{
    (void)state;
    struct bn_backing how = {.pages = BN_PAGES_SMALL};
    size_t bytes = BYTES;
    uint8_t *p;
    assert_int_equal(bn_block_take((void **)&p, &bytes, &how, "a test", NULL), BITNET_OK);
    assert_int_equal(bytes, BYTES);
    assert_string_equal(bn_backing_pages(&how), "off");
    p[MIB] = 7;
    assert_int_equal(resident(p, bytes), 1);
    bn_touch(p + 1, bytes - 1); /* the first page, too */
    assert_int_equal(resident(p, bytes), bytes / (size_t)sysconf(_SC_PAGESIZE));
    assert_int_equal(p[MIB], 7);
    assert_int_equal(p[0], 0);
    bn_touch_read(p, bytes);
    bn_touch(p, 0);
    bn_block_free(p, bytes);
}

static void zeroed_and_aligned(const struct bn_backing *asked)
{
    struct bn_backing how = *asked;
    size_t bytes = BYTES;
    uint8_t *p;
    assert_int_equal(bn_block_take((void **)&p, &bytes, &how, "a test", NULL), BITNET_OK);
    assert_true(bytes >= BYTES);
    assert_int_equal((uintptr_t)p % BN_HUGE_PAGE, 0);
    for (size_t i = 0; i < bytes; i++) assert_int_equal(p[i], 0);
    memset(p, 1, bytes);
    bool reserved = how.pages == BN_PAGES_2M || how.pages == BN_PAGES_1G;
    bool asks = how.pages == BN_PAGES_2M; /* the block is far below a page of 1 GiB */
    assert_int_equal(how.reserved_bytes + how.missed_bytes, asks ? bytes : 0);
    bool got = how.reserved_bytes > 0;
    assert_true(!got || bytes % BN_HUGE_PAGE == 0);
    assert_string_equal(bn_backing_pages(&how),
                        reserved && !got ? "thp" : bn_pages_name(how.pages));
    bn_block_free(p, bytes);
}

static void every_kind_of_page(void **state)
{
    (void)state;
    for (enum bn_pages p = BN_PAGES_THP; p <= BN_PAGES_1G; p++)
        zeroed_and_aligned(&(struct bn_backing){.pages = p});
}

/* Reserved pages are whole, and those that are not there are counted. */
static void slabs_follow(void **state)
{
    (void)state;
    for (enum bn_pages p = BN_PAGES_THP; p <= BN_PAGES_1G; p++) {
        struct bn_backing how = {.pages = p};
        struct bn_slab s = {.how = &how};
        for (size_t i = 0; i < 8; i++) {
            uint8_t *piece = bn_slab_alloc(&s, BYTES);
            assert_non_null(piece);
            assert_int_equal((uintptr_t)piece % 64, 0);
            assert_int_equal(piece[0] | piece[BYTES - 1], 0);
            memset(piece, (int)i + 1, BYTES);
        }
        bn_slab_touch(&s);
        assert_int_equal(bn_slab_lock(&s, "a test", NULL), BITNET_OK); /* nobody asked for it */
        assert_int_equal(how.locked_bytes, 0);
        bool asks = p == BN_PAGES_2M || p == BN_PAGES_1G;
        assert_int_equal(how.reserved_bytes + how.missed_bytes > 0, asks);
        bn_slab_free(&s);
        assert_null(s.chunk);
    }
}

#ifdef TEST_NATIVE

/* This thread may lock SMALL bytes from now on, even if it is root's. */
static void narrow_limit(void)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct caps[2] = {{0}};
    struct rlimit limit = {SMALL, SMALL};
    assert_int_equal(syscall(SYS_capget, &head, caps), 0);
    caps[0].effective &= ~(1u << CAP_IPC_LOCK);
    assert_int_equal(syscall(SYS_capset, &head, caps), 0);
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
}

static void locking_has_limits(void **state)
{
    (void)state;
    struct bn_backing how = {.lock = true};
    bitnet_error err = {0};
    void *p;
    size_t bytes = SMALL / 2;
    narrow_limit();
    assert_int_equal(bn_block_take(&p, &bytes, &how, "a test", &err), BITNET_OK);
    assert_int_equal(how.locked_bytes, SMALL / 2);
    bn_block_free(p, bytes);
    bytes = BYTES;
    assert_int_equal(bn_block_take(&p, &bytes, &how, "a test", &err), BITNET_E_LIMIT);
    assert_null(p);
    assert_string_equal(err.text,
                        "3145728 bytes for a test cannot be locked in memory, with 32768 locked "
                        "before: RLIMIT_MEMLOCK is 65536 bytes; 'ulimit -l', "
                        "LimitMEMLOCK=infinity in a systemd unit or CAP_IPC_LOCK allow more");
    struct bn_slab s = {.how = &how};
    assert_non_null(bn_slab_alloc(&s, BYTES));
    assert_int_equal(bn_slab_lock(&s, "a slab", &err), BITNET_E_LIMIT);
    assert_non_null(strstr(err.text, "a slab"));
    bn_slab_free(&s);
}

/* A model and an engine say what they need. */
static void models_have_limits(void **state)
{
    (void)state;
    bitnet_model_options o = {.size = sizeof o};
    bitnet_model *m;
    bitnet_error err = {0};
    o.mlock = 1;
    assert_int_equal(bitnet_model_open(&m, TEST_MODEL, &o, &err), BITNET_E_LIMIT);
    assert_non_null(strstr(err.text, "RLIMIT_MEMLOCK is 65536 bytes"));
    assert_null(m);
}

#endif

/* ------------------------------------------------------------------ files that are read */

static void write_bytes(const char *path, size_t n, uint8_t first)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (size_t i = 0; i < n; i++) fputc((int)(uint8_t)(first + i * 13), f);
    assert_int_equal(fclose(f), 0);
}

static void files_are_read(void **state)
{
    (void)state;
    enum { N = 10000 };
    char path[] = "/tmp/bn-memory-XXXXXX";
    int fd = mkstemp(path);
    struct bn_mapping m;
    bitnet_error err = {0};
    uint8_t own[100];
    assert_true(fd >= 0);
    close(fd);
    write_bytes(path, N, 3);
    assert_int_equal(bn_map_file_to_read(&m, path, &err), BITNET_OK);
    const uint8_t *at = m.data;
    assert_int_equal(m.bytes, N);
    assert_int_equal(at[1], 16);
    assert_int_equal(bn_map_detach(&m, &err), BITNET_OK);
    assert_ptr_equal(m.data, at);
    assert_int_equal(at[1], 0); /* nothing is there before it was read */
    assert_int_equal(bn_map_read(&m, (void *)m.data, 0, 2, &err), BITNET_OK);
    assert_int_equal(at[1], 16);
    assert_int_equal(at[2], 0);
    assert_int_equal(bn_map_read(&m, own, 5000, sizeof own, &err), BITNET_OK);
    for (size_t i = 0; i < sizeof own; i++)
        assert_int_equal(own[i], (uint8_t)(3 + (5000 + i) * 13));
    assert_int_equal(bn_map_read_end(&m, &err), BITNET_OK);
    bn_unmap_file(&m);

    /* it becomes shorter, and it changes */
    assert_int_equal(bn_map_file_to_read(&m, path, &err), BITNET_OK);
    assert_int_equal(bn_map_detach(&m, &err), BITNET_OK);
    assert_int_equal(truncate(path, 4000), 0);
    assert_int_equal(bn_map_read(&m, own, 3950, sizeof own, &err), BITNET_E_IO);
    assert_non_null(strstr(err.text, "ends at byte 4000 of 10000"));
    assert_int_equal(bn_map_read_end(&m, &err), BITNET_E_IO);
    assert_non_null(strstr(err.text, "has changed while it was read: 10000 bytes, now 4000"));
    bn_unmap_file(&m);
    assert_int_equal(bn_map_file_to_read(&m, path, &err), BITNET_OK);
    assert_int_equal(bn_map_detach(&m, &err), BITNET_OK);
    struct timespec times[2] = {{1, 0}, {1, 0}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_int_equal(bn_map_read_end(&m, &err), BITNET_E_IO);
    bn_unmap_file(&m);

    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(bn_map_file_to_read(&m, path, &err), BITNET_OK);
    assert_null(m.data);
    assert_int_equal(bn_map_detach(&m, &err), BITNET_OK);
    assert_int_equal(bn_map_read_end(&m, &err), BITNET_OK);
    bn_unmap_file(&m);
    unlink(path);
    assert_int_equal(bn_map_file_to_read(&m, path, &err), BITNET_E_IO);
    assert_null(m.reading);
}

/* ------------------------------------------------------------------ models */

/* Is a file mapped whose path has this end? */
static bool is_mapped(const char *end)
{
    char line[4096 + 128];
    bool found = false;
    FILE *f = fopen("/proc/self/maps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        found |= bn_ends_with(line, end);
    }
    fclose(f);
    return found;
}

static bitnet_model_info open_with(bitnet_model **m, const bitnet_model_options *o)
{
    bitnet_error err = {0};
    bitnet_model_info in = {.size = sizeof in};
    if (bitnet_model_open(m, TEST_MODEL, o, &err)) fail_msg("%s", err.text);
    bitnet_model_get_info(*m, &in);
    return in;
}

/* Logits after some tokens: [n_vocab], to be freed. */
static float *logits_of(const bitnet_model *m, uint32_t n_vocab)
{
    bitnet_engine_options o;
    bitnet_engine *e;
    bitnet_error err = {0};
    int32_t tokens[TOKENS];
    float *logits = malloc(n_vocab * sizeof *logits);
    for (int32_t i = 0; i < TOKENS; i++) tokens[i] = 100 + 3 * i;
    o = (bitnet_engine_options){.size = sizeof o};
    o.ctx_tokens = 64;
    o.threads = 2;
    if (!logits || bitnet_engine_open(&e, m, &o, &err)) fail_msg("%s", err.text);
    for (int32_t i = 0; i < TOKENS; i += 8) /* prefill, then single tokens */
        assert_int_equal(bitnet_eval(e, 0, tokens + i, i ? 1 : 8, 1, logits, NULL), BITNET_OK);
    bitnet_engine_close(e);
    return logits;
}

static void same_logits_with_every_switch(void **state)
{
    (void)state;
    static const struct {
        const char *hugepages, *layout, *head;
        uint32_t mlock, no_mmap;
        int32_t prefetch, in_use;
    } cases[] = {
        {NULL, NULL, NULL, 0, 0, 0, 4096},        {"off", NULL, NULL, 0, 0, BITNET_OFF, 0},
        {"thp", "t3", NULL, 0, 0, 100, 128},      {"2m", "t2", NULL, 0, 1, 65536, 65536},
        {"1g", NULL, "screened", 0, 1, 64, 64},   {NULL, NULL, "int8", 0, 1, 1, 64},
        {"off", NULL, "screened", 1, 0, 0, 4096}, {NULL, NULL, NULL, 1, 1, 0, 4096},
    };
    float *first = NULL;
    for (size_t i = 0; i < BN_ARRAY_LEN(cases); i++) {
        bitnet_model_options o = {.size = sizeof o};
        bitnet_model *m;
        bitnet_error err = {0};
        o.hugepages = cases[i].hugepages;
        o.layout = cases[i].layout;
        o.head = cases[i].head;
        o.mlock = cases[i].mlock;
        o.mmap = cases[i].no_mmap ? "off" : "auto";
        o.prefetch_bytes = cases[i].prefetch;
        if (o.mlock && bitnet_model_open(&m, TEST_MODEL, &o, &err) == BITNET_E_LIMIT) {
            assert_non_null(strstr(err.text, "RLIMIT_MEMLOCK")); /* not allowed to this user */
            continue;
        }
        if (o.mlock) bitnet_model_close(m);
        bitnet_model_info in = open_with(&m, &o);
        float *logits = logits_of(m, in.shape.n_vocab);
        assert_int_equal(in.memory.prefetch_bytes, cases[i].in_use);
        assert_int_equal(is_mapped("stories-31m.gguf"), !cases[i].no_mmap);
        if (o.mlock)
            assert_true(in.memory.locked_bytes >= in.memory.packed_bytes + in.memory.head_bytes);
        else assert_int_equal(in.memory.locked_bytes, 0);
        bool reserved = o.hugepages && strchr("12", o.hugepages[0]);
        if (!reserved) assert_string_equal(in.memory.hugepages, o.hugepages ? o.hugepages : "thp");
        /* either they are there, or it says that they are not */
        else if (strcmp(in.memory.hugepages, "thp") == 0)
            assert_non_null(strstr(in.note, "were asked for"));
        else assert_string_equal(in.memory.hugepages, o.hugepages);
        if (first) assert_memory_equal(first, logits, in.shape.n_vocab * sizeof *logits);
        else first = logits;
        if (first != logits) free(logits);
        bitnet_model_close(m);
    }
    free(first);
}

static void wrong_values(void **state)
{
    (void)state;
    bitnet_model_options o = {.size = sizeof o};
    bitnet_model *m;
    bitnet_error err = {0};
    o.prefetch_bytes = 65537;
    assert_int_equal(bitnet_model_open(&m, TEST_MODEL, &o, &err), BITNET_E_LIMIT);
    assert_non_null(strstr(err.text, "65537"));
    o.prefetch_bytes = -2;
    assert_int_equal(bitnet_model_open(&m, TEST_MODEL, &o, &err), BITNET_E_LIMIT);
    o.prefetch_bytes = 0;
    o.mmap = "never";
    assert_int_equal(bitnet_model_open(&m, TEST_MODEL, &o, &err), BITNET_E_ARG);
    assert_non_null(strstr(err.text, "mmap 'never'"));
    o.mmap = NULL;
    o.hugepages = "huge";
    assert_int_equal(bitnet_model_open(&m, TEST_MODEL, &o, &err), BITNET_E_ARG);
    assert_non_null(strstr(err.text, "'huge'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_pages),
        cmocka_unit_test(touching_brings_pages),
        cmocka_unit_test(every_kind_of_page),
        cmocka_unit_test(slabs_follow),
        cmocka_unit_test(files_are_read),
        cmocka_unit_test(same_logits_with_every_switch),
        cmocka_unit_test(wrong_values),
#ifdef TEST_NATIVE
        /* the last ones: what they give up does not come back */
        cmocka_unit_test(locking_has_limits),
        cmocka_unit_test(models_have_limits),
#endif
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
