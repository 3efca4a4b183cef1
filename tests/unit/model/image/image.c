/* SPDX-License-Identifier: Apache-2.0
 * Packed weights in files: an image gives the bits that packing gives, in the cache and in a GGUF; what
 * is damaged, cut off, of another version or of another file is noticed and never computed with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "base/checksum.h"
#include "effort.h"
#include "model/image/cache.h"
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TOKENS = 12, PATH = 256 };

static char folder[PATH], cache[PATH], model_path[PATH], packed_path[PATH];

static const char *const shapes[] = {"embedded", "hybrid", "tiny", "qwen35-tiny",
                                     "qwen35-tiny-rotated"};
static const char *head_mode; /* ternary heads have no copy */

/* ------------------------------------------------------------------ helpers */

static void empty_cache(void)
{
    uint64_t n, bytes;
    bn_cache_clear(cache, &n, &bytes);
}

static int begin(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/bitnet-image-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(cache, sizeof cache, "%.200s/cache/deep", folder);
    snprintf(model_path, sizeof model_path, "%.200s/model.gguf", folder);
    snprintf(packed_path, sizeof packed_path, "%.200s/packed.gguf", folder);
    return 0;
}

/* The logits of the model as it is, without a cache: computed once for every model that is put. */
static float *plain_logits;
static size_t n_plain;

static void forget_logits(void)
{
    free(plain_logits);
    plain_logits = NULL;
}

static int end(void **state)
{
    (void)state;
    char command[2 * PATH];
    forget_logits();
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void put_model(const char *shape)
{
    forget_logits();
    bitnet_error err = {0};
    bitnet_synth_options o = {.size = sizeof o};
    bitnet_convert_options c = {.size = sizeof c};
    o.overwrite = c.overwrite = 1;
    c.type = c.head_type = "keep";
    bool embedded = strcmp(shape, "embedded") == 0, hybrid = strcmp(shape, "hybrid") == 0;
    head_mode = embedded || strcmp(shape, "tiny") == 0 ? "screened" : NULL;
    bitnet_status s =
        embedded ? bitnet_convert(TEST_MODEL, model_path, &c, &err)
        : hybrid ? bitnet_convert(TEST_DATA "/hybrid/hybrid-28m.gguf", model_path, &c, &err)
                 : bitnet_synth(shape, model_path, &o, &err);
    if (s != BITNET_OK) fail_msg("%s", err.text);
}

/* What is opened, and how. */
struct opening {
    const char *path;
    bitnet_model_options o;
};

static struct opening usual(void)
{
    return (struct opening){.path = model_path,
                            .o = {.size = sizeof(bitnet_model_options),
                                  .cache = cache,
                                  .cache_min_bytes = 1,
                                  .head = head_mode,
                                  .ffn = "skip",
                                  .threads = 2}};
}

static struct bn_model *open_by(const struct opening *a)
{
    struct bn_model *m;
    bitnet_error err = {0};
    if (bn_model_open(&m, a->path, &a->o, &err) != BITNET_OK) fail_msg("%s", err.text);
    bn_cache_wait(m);
    bn_image_check_wait(m);
    return m;
}

static void logits_of(float **out, size_t *n, const struct opening *a)
{
    bitnet_engine_options e = {.size = sizeof e};
    bitnet_model_info info = {.size = sizeof info};
    bitnet_error err = {0};
    bitnet_model *m;
    bitnet_engine *engine;
    int32_t tokens[TOKENS];
    e.threads = a->o.threads;
    if (bitnet_model_open(&m, a->path, &a->o, &err) || bitnet_engine_open(&engine, m, &e, &err))
        fail_msg("%s", err.text);
    bitnet_model_get_info(m, &info);
    *n = (size_t)TOKENS * info.shape.n_vocab;
    *out = malloc(*n * sizeof **out);
    for (int32_t i = 0; i < TOKENS; i++)
        tokens[i] = (int32_t)(17 * i % (int32_t)info.shape.n_vocab);
    if (bitnet_eval(engine, 0, tokens, TOKENS, 0, *out, &err)) fail_msg("%s", err.text);
    bitnet_engine_close(engine);
    bitnet_model_close(m);
}

static void same_logits(const struct opening *a)
{
    float *x;
    size_t n;
    if (!plain_logits) {
        struct opening plain = usual();
        plain.o.cache = NULL;
        logits_of(&plain_logits, &n_plain, &plain);
    }
    logits_of(&x, &n, a);
    assert_int_equal(n, n_plain);
    assert_memory_equal(x, plain_logits, n * sizeof *x);
    free(x);
}

static void same_facts(const struct bn_model *a, const struct bn_model *b)
{
    assert_int_equal(a->n_params, b->n_params);
    assert_int_equal(a->n_params_ternary, b->n_params_ternary);
    assert_int_equal(a->packed_bytes, b->packed_bytes);
    assert_int_equal(a->head_packed_bytes, b->head_packed_bytes);
    assert_int_equal(a->head_copy_bytes, b->head_copy_bytes);
    assert_int_equal(a->ffn_bytes, b->ffn_bytes);
    assert_int_equal(a->mtp_bytes, b->mtp_bytes);
    assert_int_equal(bn_model_layer_bytes(a), bn_model_layer_bytes(b));
    assert_string_equal(a->weight_type, b->weight_type);
    assert_string_equal(a->layout, b->layout);
    assert_int_equal(a->embed_rotated, b->embed_rotated);
    assert_int_equal(a->delta_out_tiled, b->delta_out_tiled);
}

/* The one entry there is. */
static char *entry(void)
{
    static char path[2 * PATH];
    DIR *dir = opendir(cache);
    assert_non_null(dir);
    size_t n = 0;
    for (struct dirent *d; (d = readdir(dir));) {
        assert_null(strstr(d->d_name, ".part"));
        if (!bn_ends_with(d->d_name, ".bnp")) continue;
        snprintf(path, sizeof path, "%s/%.200s", cache, d->d_name);
        n++;
    }
    closedir(dir);
    assert_int_equal(n, 1);
    return path;
}

static void flip(const char *path, off_t at)
{
    uint8_t byte;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static struct bn_image_head head_of(const char *path)
{
    struct bn_image_head h;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &h, sizeof h, 0), sizeof h);
    close(fd);
    return h;
}

/* ------------------------------------------------------------------ the cache */

static void second_time_is_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < BN_ARRAY_LEN(shapes); i++) {
        put_model(shapes[i]);
        empty_cache();
        struct opening a = usual();
        struct bn_model *first = open_by(&a), *second = open_by(&a);
        assert_null(first->image.view);
        assert_non_null(strstr(first->note.data, "A packed copy"));
        assert_non_null(second->image.view);
        assert_true(!second->note.data || !strstr(second->note.data, "packed copy"));
        assert_int_equal(bn_model_check(second, NULL), BITNET_OK);
        same_facts(first, second);
        bn_model_close(first);
        bn_model_close(second);
        same_logits(&a);
        a.o.verify = true;
        same_logits(&a);
        a.o.hugepages = "off";
        same_logits(&a);
        /* less is taken of it, and it stays as it is */
        a = usual();
        a.o.head = "exact";
        a.o.ffn = "dense";
        struct stat before, after;
        assert_int_equal(stat(entry(), &before), 0);
        struct bn_model *less = open_by(&a);
        assert_non_null(less->image.view);
        assert_int_equal(less->head_copy_bytes + less->ffn_bytes, 0);
        bn_model_close(less);
        assert_int_equal(stat(entry(), &after), 0);
        assert_int_equal(before.st_ino, after.st_ino);
        same_logits(&a);
    }
}

/* An entry that lacks what is wanted is replaced by one that has it. */
static void more_replaces_less(void **state)
{
    (void)state;
    put_model("embedded");
    empty_cache();
    struct opening a = usual();
    a.o.head = "exact";
    a.o.ffn = "dense";
    bn_model_close(open_by(&a));
    uint64_t less = head_of(entry()).data_bytes;
    a = usual();
    struct bn_model *m = open_by(&a);
    assert_non_null(m->image.view);
    assert_true(m->head_copy_bytes > 0 && m->ffn_bytes > 0);
    bn_model_close(m);
    assert_true(head_of(entry()).data_bytes > less);
    m = open_by(&a);
    assert_true(m->image.head_copy && m->ffn_bytes > 0);
    bn_model_close(m);
    same_logits(&a);
}

static void others_are_not_taken(void **state)
{
    (void)state;
    put_model("embedded");
    empty_cache();
    struct opening a = usual();
    bn_model_close(open_by(&a));
    /* another layout */
    a.o.layout = "t3";
    struct bn_model *m = open_by(&a);
    assert_null(m->image.view);
    assert_string_equal(m->layout, "t3");
    bn_model_close(m);
    empty_cache();
    /* the file has another time, then another byte with the old time */
    a = usual();
    bn_model_close(open_by(&a));
    struct stat st;
    assert_int_equal(stat(model_path, &st), 0);
    struct timespec times[2] = {st.st_atim, st.st_mtim};
    times[1].tv_nsec = (times[1].tv_nsec + 1) % 1000000000;
    assert_int_equal(utimensat(AT_FDCWD, model_path, times, 0), 0);
    m = open_by(&a);
    assert_null(m->image.view);
    bn_model_close(m);
    entry(); /* the old one is gone */
    flip(model_path, 64);
    assert_int_equal(utimensat(AT_FDCWD, model_path, times, 0), 0);
    m = NULL;
    if (bn_model_open(&m, a.path, &a.o, NULL) == BITNET_OK) {
        assert_null(m->image.view);
        bn_model_close(m);
    }
    /* below the limit, read only, too large: nothing is kept */
    put_model("embedded");
    empty_cache();
    a.o.cache_read_only = true;
    bn_model_close(open_by(&a));
    a = usual();
    a.o.cache_min_bytes = 0;
    bn_model_close(open_by(&a));
    a = usual();
    a.o.cache_max_bytes = 4096;
    m = open_by(&a);
    assert_non_null(strstr(m->note.data, "No packed copy"));
    bn_model_close(m);
    a = usual();
    a.o.mmap = "off";
    bn_model_close(open_by(&a));
    a = usual();
    m = open_by(&a);
    assert_null(m->image.view);
    bn_model_close(m);
}

/* ------------------------------------------------------------------ damage */

static void damage_is_noticed(void **state)
{
    (void)state;
    put_model("embedded");
    struct opening a = usual();
    for (int where = 0; where < 3; where++) {
        empty_cache();
        bn_model_close(open_by(&a));
        struct bn_image_head h = head_of(entry());
        const uint64_t data[] = {h.data_at, h.data_at + h.data_bytes / 2,
                                 h.data_at + h.data_bytes - 1};
        char path[2 * PATH];
        snprintf(path, sizeof path, "%s", entry());
        flip(path, (off_t)data[where]);
        assert_int_equal(bn_cache_verify(path, NULL, NULL, NULL), BITNET_E_FORMAT);
        struct bn_model *m = open_by(&a);
        bitnet_error err = {0};
        assert_non_null(m->image.view);
        assert_int_equal(bn_model_check(m, &err), BITNET_E_FORMAT);
        assert_non_null(strstr(err.text, "damaged"));
        bn_model_close(m);
        assert_int_not_equal(access(path, F_OK), 0);
        /* checked first, it is packed anew */
        bn_model_close(open_by(&a));
        flip(entry(), (off_t)data[where]);
        a.o.verify = true;
        m = open_by(&a);
        assert_null(m->image.view);
        assert_non_null(strstr(m->note.data, "damaged"));
        bn_model_close(m);
        m = open_by(&a);
        assert_non_null(m->image.view);
        bn_model_close(m);
        same_logits(&a);
        a.o.verify = false;
    }
}

/* Wherever head, record or sums were changed or cut off, it is as if there were no entry. */
static void what_does_not_fit_is_packed_anew(void **state)
{
    (void)state;
    put_model("qwen35-tiny");
    struct opening a = usual();
    for (int what = 0; what < 8; what++) {
        empty_cache();
        bn_model_close(open_by(&a));
        char *path = entry();
        struct bn_image_head h = head_of(path);
        const off_t at[] = {0,
                            8, /* the version */
                            20,
                            (off_t)h.record_at + 4,
                            (off_t)(h.record_at + h.record_bytes / 2),
                            (off_t)(h.record_at + h.record_bytes - 1),
                            (off_t)h.sums_at};
        if (what < 7) flip(path, at[what]);
        else assert_int_equal(truncate(path, (off_t)h.bytes - 1), 0);
        assert_int_not_equal(bn_cache_verify(path, NULL, NULL, NULL), BITNET_OK);
        struct bn_model *m = open_by(&a);
        assert_null(m->image.view);
        bn_model_close(m);
        m = open_by(&a);
        assert_non_null(m->image.view);
        bn_model_close(m);
    }
    /* a record that says something else, with the right sums */
    struct bn_image_head h = head_of(entry());
    int fd = open(entry(), O_RDWR | O_CLOEXEC);
    uint8_t *record = malloc((size_t)h.record_bytes);
    assert_int_equal(pread(fd, record, (size_t)h.record_bytes, (off_t)h.record_at),
                     (ssize_t)h.record_bytes);
    uint64_t changes = repeats(200, 40);
    for (uint64_t i = 0; i < changes; i++) {
        size_t place = (size_t)(h.record_bytes - 1 - i * (h.record_bytes - 400) / changes);
        record[place] ^= 0x81;
        struct bn_image_head other = h;
        other.record_sum = bn_checksum(record, (size_t)h.record_bytes);
        other.head_sum = bn_checksum(&other, offsetof(struct bn_image_head, head_sum));
        assert_int_equal(pwrite(fd, record, (size_t)h.record_bytes, (off_t)h.record_at),
                         (ssize_t)h.record_bytes);
        assert_int_equal(pwrite(fd, &other, sizeof other, 0), sizeof other);
        struct bn_model *m = NULL;
        a.o.cache_read_only = true;
        if (bn_model_open(&m, a.path, &a.o, NULL) == BITNET_OK) bn_model_close(m); /* no crash */
        record[place] ^= 0x81;
    }
    free(record);
    close(fd);
    empty_cache();
}

/* ------------------------------------------------------------------ packed files */

static void pack(const char *layout)
{
    bitnet_error err = {0};
    bitnet_convert_options o = {.size = sizeof o};
    o.overwrite = o.packed = 1;
    o.layout = layout;
    o.threads = 2;
    if (bitnet_convert(model_path, packed_path, &o, &err)) fail_msg("%s", err.text);
}

static void packed_file_is_the_same(void **state)
{
    (void)state;
    static const char *const layouts[] = {"auto", "t2", "t3", "t5", "g2", "g3", "g5"};
    for (size_t i = 0; i < BN_ARRAY_LEN(shapes); i++) {
        put_model(shapes[i]);
        struct opening a = usual();
        a.o.cache = NULL;
        a.path = packed_path;
        for (size_t k = 0; k < BN_ARRAY_LEN(layouts); k++) {
            if (!full_effort() && i < 2 && k % 3) continue;        /* the two large ones */
            size_t turn = full_effort() ? 3 : (i + k + k / 3) % 3; /* all ways, or one */
            pack(layouts[k]);
            a.o.layout = a.o.backend = NULL;
            if (turn == 0 || turn == 3) same_logits(&a);
            a.o.backend = "scalar";
            if (turn == 1 || turn == 3) same_logits(&a);
            a.o.backend = NULL;
            a.o.layout = layouts[(k + 1) % BN_ARRAY_LEN(layouts)];
            if (turn == 2 || turn == 3) same_logits(&a);
        }
        a.o.mmap = "off";
        same_logits(&a);
        a.o.mmap = NULL;
        a.o.verify = true;
        same_logits(&a);
        assert_int_equal(bn_cache_verify(packed_path, NULL, NULL, NULL), BITNET_OK);
    }
}

static void packed_file_in_another_layout(void **state)
{
    (void)state;
    put_model("embedded");
    pack("t3");
    struct opening a = usual();
    a.path = packed_path;
    a.o.layout = "t2";
    struct bn_model *m = open_by(&a);
    assert_string_equal(m->layout, "t2");
    assert_non_null(strstr(m->note.data, "packed again as t2"));
    bn_model_close(m);
    a.o.layout = "t3";
    m = open_by(&a);
    assert_string_equal(m->layout, "t3");
    assert_true(!m->note.data || !strstr(m->note.data, "packed again"));
    bn_model_close(m);
}

static void packed_file_damaged(void **state)
{
    (void)state;
    put_model("embedded");
    pack("auto");
    struct opening a = usual();
    a.path = packed_path;
    struct bn_model *m = open_by(&a);
    uint64_t at = m->image.file_at + m->image.view->head.data_at + 12345;
    bn_model_close(m);
    flip(packed_path, (off_t)at);
    m = open_by(&a);
    assert_int_equal(bn_model_check(m, NULL), BITNET_E_FORMAT);
    bn_model_close(m);
    assert_int_equal(access(packed_path, F_OK), 0); /* it is the user's */
    bitnet_error err = {0};
    a.o.verify = true;
    assert_int_equal(bn_model_open(&m, a.path, &a.o, &err), BITNET_E_FORMAT);
    assert_non_null(strstr(err.text, "damaged"));
    bitnet_convert_options o = {.size = sizeof o};
    o.overwrite = 1;
    assert_int_equal(bitnet_convert(packed_path, model_path, &o, &err), BITNET_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "packed form only"));
}

/* ------------------------------------------------------------------ locks */

static void locks_among_descriptors(void **state)
{
    (void)state;
    struct bn_lock a, b, c;
    char path[2 * PATH];
    snprintf(path, sizeof path, "%s/lock", folder);
    assert_true(bn_lock_open(&a, path, 77) && bn_lock_open(&b, path, 77));
    assert_true(bn_lock_open(&c, path, UINT64_MAX));
    assert_true(bn_lock_take(&a));
    assert_false(bn_lock_take(&b));
    assert_true(bn_lock_take(&c)); /* another place */
    assert_false(bn_lock_is_asked(&a));
    bn_lock_ask(&b);
    assert_true(bn_lock_is_asked(&a));
    bn_lock_close(&a);
    assert_true(bn_lock_take(&b));
    assert_false(bn_lock_is_asked(&b));
    bn_lock_close(&b);
    bn_lock_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(second_time_is_the_same),
                                       cmocka_unit_test(more_replaces_less),
                                       cmocka_unit_test(others_are_not_taken),
                                       cmocka_unit_test(damage_is_noticed),
                                       cmocka_unit_test(what_does_not_fit_is_packed_anew),
                                       cmocka_unit_test(packed_file_is_the_same),
                                       cmocka_unit_test(packed_file_in_another_layout),
                                       cmocka_unit_test(packed_file_damaged),
                                       cmocka_unit_test(locks_among_descriptors)};
    return cmocka_run_group_tests(tests, begin, end);
}
