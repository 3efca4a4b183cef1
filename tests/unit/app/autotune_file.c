/* SPDX-License-Identifier: Apache-2.0
 * The tuning file: where it is, whom its entries belong to, what is written comes back, what belongs
 * to others stays, and what is damaged is said and left alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/os/file.h"
#include "app/autotune_file.h"
#include "json_text.h"

static char folder[] = "/tmp/bitnet-tuning-XXXXXX";
static char path[64];

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/t.json", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static int remove_file(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

static struct bn_json *parse(const char *text)
{
    struct bn_json *j = json_of(text);
    assert_non_null(j);
    return j;
}

static struct bn_json *key_of(const char *cpu, const char *shapes)
{
    return bn_json_pack("{s:{s:s}, s:{s:s}, s:{s:s}}", "machine", "cpu", cpu, "model", "shapes",
                        shapes, "options", "backend", "auto");
}

static void put(const struct bn_json *key, const char *entry_text)
{
    bitnet_error err = {0};
    struct bn_json *entry = parse(entry_text);
    if (autotune_file_write(path, key, entry, &err) != BITNET_OK) fail_msg("%s", err.text);
    bn_json_free(entry);
}

/* threads of the key's entry; 0: it has none */
static uint32_t threads_of(const struct bn_json *key, size_t *n_entries)
{
    bitnet_error err = {0};
    struct bn_json *file;
    struct autotune_values t = {0};
    assert_int_equal(autotune_file_read(&file, path, &err), BITNET_OK);
    const struct bn_json *entry = autotune_file_find(file, key);
    if (entry) assert_int_equal(autotune_file_values(&t, entry, path, &err), BITNET_OK);
    *n_entries = bn_json_size(bn_json_get(file, "entries"));
    bn_json_free(file);
    return t.threads;
}

static void write_text(const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void paths(void **state)
{
    (void)state;
    char out[AUTOTUNE_FILE_PATH_BYTES];
    assert_false(autotune_file_path(out, "off"));
    assert_true(autotune_file_path(out, "some/file.json"));
    assert_string_equal(out, "some/file.json");
    setenv("HOME", "/home/a", 1);
    unsetenv("XDG_CONFIG_HOME");
    assert_true(autotune_file_path(out, "auto"));
    assert_string_equal(out, "/home/a/.config/bitnet/tuning.json");
    setenv("XDG_CONFIG_HOME", "relative", 1); /* to be ignored, says its specification */
    assert_true(autotune_file_path(out, "auto"));
    assert_string_equal(out, "/home/a/.config/bitnet/tuning.json");
    setenv("XDG_CONFIG_HOME", "/etc/x", 1);
    assert_true(autotune_file_path(out, "auto"));
    assert_string_equal(out, "/etc/x/bitnet/tuning.json");
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("HOME");
    assert_false(autotune_file_path(out, "auto"));
}

static void round_trip(void **state)
{
    (void)state;
    bitnet_error err = {0};
    const struct autotune_values in = {.date = "2026-11-15",
                                       .threads = 3,
                                       .prefetch_bytes = 8192,
                                       .batch_tokens = 256,
                                       .layout = "t3",
                                       .pin = "on"};
    struct autotune_values out;
    struct bn_json *entry = bn_json_pack("{s:s, s:o}", "date", "2026-11-15T10:00:00Z", "use",
                                         autotune_file_use_json(&in));
    assert_int_equal(autotune_file_values(&out, entry, path, &err), BITNET_OK);
    assert_memory_equal(&in, &out, sizeof in);
    bn_json_free(entry);
    char text[128];
    autotune_file_describe(text, sizeof text, &out);
    assert_string_equal(text, "3 threads, t3, pinned, prefetch 8192, batch 256");
    entry = parse("{\"date\": \"2026-11-15\", \"use\": {}}");
    assert_int_equal(autotune_file_values(&out, entry, path, &err), BITNET_OK);
    assert_string_equal(out.date, "2026-11-15");
    autotune_file_describe(text, sizeof text, &out);
    assert_string_equal(text, "the defaults");
    bn_json_free(entry);
}

static void others_are_kept(void **state)
{
    (void)state;
    size_t n;
    struct bn_json *mine = key_of("A", "1"), *other_cpu = key_of("B", "1"),
                   *other_model = key_of("A", "2");
    put(mine, "{\"use\": {\"threads\": 1}}");
    put(other_cpu, "{\"use\": {\"threads\": 2}, \"more\": [\"kept\"]}");
    assert_int_equal(threads_of(other_model, &n), 0);
    put(other_model, "{\"use\": {\"threads\": 3}}");
    put(mine, "{\"use\": {\"threads\": 4}}");
    assert_int_equal(threads_of(mine, &n), 4);
    assert_int_equal(threads_of(other_cpu, &n), 2);
    assert_int_equal(threads_of(other_model, &n), 3);
    assert_int_equal(n, 3);
    char *text;
    size_t len;
    bitnet_error err;
    assert_int_equal(bn_read_file(&text, &len, path, 1 << 20, &err), BITNET_OK);
    assert_non_null(strstr(text, "\"kept\""));
    free(text);
    bn_json_free(mine);
    bn_json_free(other_cpu);
    bn_json_free(other_model);
}

static void the_oldest_go(void **state)
{
    (void)state;
    size_t n;
    struct bn_json *first = key_of("CPU", "0");
    struct bn_json *file = bn_json_pack("{s:s, s:[]}", "format", AUTOTUNE_FILE_FORMAT, "entries");
    for (int i = 0; i < AUTOTUNE_FILE_MAX_ENTRIES; i++) {
        char shapes[16];
        snprintf(shapes, sizeof shapes, "%d", i);
        struct bn_json *entry = key_of("CPU", shapes);
        bn_json_set(entry, "use", bn_json_pack("{s:i}", "threads", i + 1));
        bn_json_append(bn_json_get(file, "entries"), entry);
    }
    char *text = bn_json_dump(file, 0);
    FILE *f = fopen(path, "w");
    assert_true(text && f && fputs(text, f) >= 0 && fclose(f) == 0);
    free(text);
    bn_json_free(file);
    assert_int_equal(threads_of(first, &n), 1);
    struct bn_json *key = key_of("CPU", "new");
    put(key, "{\"use\": {\"threads\": 7}}");
    assert_int_equal(threads_of(first, &n), 0);
    assert_int_equal(threads_of(key, &n), 7);
    assert_int_equal(n, AUTOTUNE_FILE_MAX_ENTRIES);
    bn_json_free(key);
    bn_json_free(first);
}

static void damaged_files_stay(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "{",
        "[]",
        "{\"format\": \"bitnet-tuning-2\", \"entries\": []}",
        "{\"format\": \"bitnet-tuning-1\"}",
        "{\"format\": \"bitnet-tuning-1\", \"entries\": {}}",
        "{\"format\": \"bitnet-tuning-1\", \"entries\": [1]}",
    };
    struct bn_json *key = key_of("A", "1"), *entry = parse("{\"use\": {}}");
    for (size_t i = 0; i < BN_ARRAY_LEN(texts); i++) {
        bitnet_error err = {0};
        char *after;
        size_t n;
        write_text(texts[i]);
        assert_int_not_equal(autotune_file_write(path, key, entry, &err), BITNET_OK);
        assert_non_null(strstr(err.text, path));
        assert_int_equal(bn_read_file(&after, &n, path, 1 << 20, &err), BITNET_OK);
        assert_string_equal(after, texts[i]);
        free(after);
    }
    bn_json_free(entry);
    bn_json_free(key);
}

static void wrong_values_are_named(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{}", "use"},
        {"{\"use\": []}", "use"},
        {"{\"use\": {\"threads\": \"2\"}}", "threads"},
        {"{\"use\": {\"threads\": 5000}}", "5000"},
        {"{\"use\": {\"layout\": \"t9\"}}", "t9"},
        {"{\"use\": {\"layout\": \"a very long name of no layout\"}}", "layout"},
        {"{\"use\": {\"pin\": true}}", "pin"},
        {"{\"use\": {\"prefetch\": -1}}", "prefetch"},
        {"{\"use\": {\"batch\": 100000}}", "100000"},
        {"{\"use\": {}, \"date\": 7}", "date"},
    };
    for (size_t i = 0; i < BN_ARRAY_LEN(cases); i++) {
        bitnet_error err = {0};
        struct autotune_values t;
        struct bn_json *entry = parse(cases[i][0]);
        assert_int_not_equal(autotune_file_values(&t, entry, path, &err), BITNET_OK);
        assert_non_null(strstr(err.text, cases[i][1]));
        assert_non_null(strstr(err.text, path));
        bn_json_free(entry);
    }
}

static void keys_tell_apart(void **state)
{
    (void)state;
    bitnet_error err = {0};
    struct bn_json *a, *b, *c, *missing;
    assert_int_equal(autotune_file_key(&a, NULL, "auto", "auto", &err), BITNET_OK);
    assert_int_equal(autotune_file_key(&b, NULL, "auto", "auto", &err), BITNET_OK);
    assert_int_equal(autotune_file_key(&c, NULL, "scalar", "auto", &err), BITNET_OK);
    assert_true(bn_json_equal(a, b));
    assert_false(bn_json_equal(a, c));
    assert_true(bn_json_is_string(bn_json_get(bn_json_get(a, "model"), "architecture")));
    assert_int_not_equal(autotune_file_key(&missing, "/no/such/model.gguf", "auto", "auto", &err),
                         BITNET_OK);
    assert_null(missing);
    bn_json_free(a);
    bn_json_free(b);
    bn_json_free(c);
}

/* What a command does before it opens a model. */
static void looking(void **state)
{
    (void)state;
    bitnet_error err = {0};
    struct autotune_values t;
    struct bn_json *key;
    assert_int_equal(autotune_file_key(&key, NULL, "auto", "auto", &err), BITNET_OK);
    put(key, "{\"date\": \"2026-11-15T10:00:00Z\", \"use\": {\"threads\": 5}}");
    assert_int_equal(autotune_file_look(&t, path, NULL, "auto", "auto", &err), BITNET_OK);
    assert_int_equal(t.threads, 5);
    assert_string_equal(t.date, "2026-11-15");
    assert_int_equal(autotune_file_look(&t, path, NULL, "scalar", "auto", &err), BITNET_OK);
    assert_string_equal(t.date, "");
    assert_int_equal(autotune_file_look(&t, "off", NULL, "auto", "auto", &err), BITNET_OK);
    assert_string_equal(t.date, "");
    /* the model's own fault is not this one's to tell */
    assert_int_equal(autotune_file_look(&t, path, "/no/such.gguf", "auto", "auto", &err),
                     BITNET_OK);
    assert_string_equal(t.date, "");
    write_text("{");
    assert_int_not_equal(autotune_file_look(&t, path, NULL, "auto", "auto", &err), BITNET_OK);
    assert_string_equal(t.date, "");
    unlink(path);
    assert_int_not_equal(autotune_file_look(&t, path, NULL, "auto", "auto", &err), BITNET_OK);
    setenv("XDG_CONFIG_HOME", folder, 1); /* the usual file need not be there */
    assert_int_equal(autotune_file_look(&t, "auto", NULL, "auto", "auto", &err), BITNET_OK);
    bn_json_free(key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths),
        cmocka_unit_test(round_trip),
        cmocka_unit_test_teardown(others_are_kept, remove_file),
        cmocka_unit_test_teardown(the_oldest_go, remove_file),
        cmocka_unit_test_teardown(damaged_files_stay, remove_file),
        cmocka_unit_test(wrong_values_are_named),
        cmocka_unit_test(keys_tell_apart),
        cmocka_unit_test_teardown(looking, remove_file),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
