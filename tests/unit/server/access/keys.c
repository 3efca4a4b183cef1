/* SPDX-License-Identifier: Apache-2.0
 * Keys of the server: what opens, what does not, and which files are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/access/keys.h"

static bitnet_error err;
static struct keys keys;
static char path[] = "/tmp/bitnet-keys-XXXXXX";

static int open_file(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 || close(fd) != 0;
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static int free_keys(void **state)
{
    (void)state;
    keys_free(&keys);
    return 0;
}

static void write_file(const char *bytes, size_t n)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static bitnet_status load(const char *text)
{
    write_file(text, strlen(text));
    err = (bitnet_error){0};
    return keys_load(&keys, path, &err);
}

static bool opens(const char *shown) { return keys_match(&keys, shown, strlen(shown)); }

static void test_match(void **state)
{
    (void)state;
    assert_false(opens("anything")); /* there is no key */
    assert_false(opens(""));
    assert_int_equal(keys_add(&keys, "sk-abc", &err), BITNET_OK);
    assert_int_equal(keys_add(&keys, "sk-other", &err), BITNET_OK);
    char longest[KEY_MAX_BYTES + 2];
    memset(longest, 'k', sizeof longest);
    longest[KEY_MAX_BYTES] = 0;
    assert_int_equal(keys_add(&keys, longest, &err), BITNET_OK);
    assert_true(opens("sk-abc") && opens("sk-other") && opens(longest));
    assert_false(opens("") || opens("sk-ab") || opens("sk-abcd") || opens("sk-abC"));
    assert_false(opens("tk-abc") || opens(" sk-abc") || opens("sk-abc "));
    assert_false(keys_match(&keys, "sk-abc\0", 7)); /* zeros are not padding when shown */
    assert_false(keys_match(&keys, "\0\0\0\0", 4));
    longest[KEY_MAX_BYTES] = 'k';
    assert_false(keys_match(&keys, longest, KEY_MAX_BYTES + 1));
    assert_false(keys_match(&keys, longest, KEY_MAX_BYTES - 1));
    /* one bit, anywhere */
    for (size_t i = 0; i < KEY_MAX_BYTES; i++) {
        for (int bit = 0; bit < 8; bit++) {
            longest[i] ^= (char)(1 << bit);
            assert_false(keys_match(&keys, longest, KEY_MAX_BYTES));
            longest[i] ^= (char)(1 << bit);
        }
    }
    assert_true(keys_match(&keys, longest, KEY_MAX_BYTES));
}

static void test_refused(void **state)
{
    (void)state;
    char longer[KEY_MAX_BYTES + 2];
    memset(longer, 'k', sizeof longer);
    longer[KEY_MAX_BYTES + 1] = 0;
    const char *const bad[] = {"", longer, "two words", "tab\t", "caf\xc3\xa9", "\x7f"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_not_equal(keys_add(&keys, bad[i], &err), BITNET_OK);
        assert_int_equal(keys.n, 0);
    }
    for (int i = 0; i < KEYS_MAX; i++) {
        char key[16];
        snprintf(key, sizeof key, "key-%d", i);
        assert_int_equal(keys_add(&keys, key, &err), BITNET_OK);
    }
    assert_int_equal(keys_add(&keys, "one-more", &err), BITNET_E_LIMIT);
    assert_non_null(strstr(err.text, "1000"));
    assert_true(opens("key-0") && opens("key-999"));
    assert_false(opens("one-more"));
}

static void test_file(void **state)
{
    (void)state;
    assert_int_equal(load("# ours\r\n\r\nsk-one\r\n  sk-two\t\n#sk-not\n\n \t \nsk-last"),
                     BITNET_OK);
    assert_int_equal(keys.n, 3);
    assert_true(opens("sk-one") && opens("sk-two") && opens("sk-last"));
    assert_false(opens("#sk-not") || opens("sk-not") || opens("sk-one\r"));
    assert_int_equal(load("sk-more"), BITNET_OK); /* adds */
    assert_true(opens("sk-one") && opens("sk-more"));
}

/* What a server does at SIGHUP: a new set, taken over only if it is whole. */
static void test_reload(void **state)
{
    (void)state;
    assert_int_equal(load("sk-old\n"), BITNET_OK);
    const char *const bad[] = {"sk-new\nsecret words\n", "# nothing\n", ""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_not_equal(load(bad[i]), BITNET_OK);
        assert_non_null(strstr(err.text, path));
        assert_null(strstr(err.text, "secret")); /* keys are not told */
        assert_int_equal(keys.n, 1);
        assert_true(opens("sk-old"));
        assert_false(opens("sk-new"));
    }
    assert_int_not_equal(load("sk-new\nsecret words\n"), BITNET_OK);
    assert_non_null(strstr(err.text, "line 2"));
    write_file("sk-a\0b\n", 7);
    assert_int_not_equal(keys_load(&keys, path, &err), BITNET_OK);
    assert_int_equal(keys_load(&keys, "/nonexistent/keys", &err), BITNET_E_IO);
    assert_int_equal(keys_load(&keys, "/tmp", &err), BITNET_E_ARG); /* all may write there */
    assert_int_not_equal(keys_load(&keys, "/", &err), BITNET_OK);   /* a folder */
    assert_true(opens("sk-old"));
}

static void test_permissions(void **state)
{
    (void)state;
    const mode_t modes[] = {0620, 0602, 0666, 0660};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        assert_int_equal(chmod(path, modes[i]), 0);
        assert_int_equal(load("sk-one\n"), BITNET_E_ARG);
        assert_non_null(strstr(err.text, "chmod go-w"));
        assert_int_equal(keys.n, 0);
    }
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(load("sk-one\n"), BITNET_OK);
    assert_int_equal(chmod(path, 0600), 0);
}

/* What its holder may use stands behind a key; a new set goes on with what the old one has counted. */
static void test_quotas(void **state)
{
    (void)state;
    assert_int_equal(load("sk-a name=alice requests=2\nsk-b\tweight=4 \nsk-c\n"), BITNET_OK);
    struct quota_account *a = keys_find(&keys, "sk-a", 4);
    assert_non_null(a);
    assert_string_equal(a->name, "alice");
    assert_int_equal(a->limits.requests, 2);
    assert_int_equal(keys_find(&keys, "sk-b", 4)->limits.weight, 4);
    assert_string_equal(keys_find(&keys, "sk-c", 4)->name, "key-3");
    assert_int_equal(quota_take_request(a, 1), 0);
    struct keys old = keys;
    keys = (struct keys){0};
    assert_int_equal(load("sk-d\nsk-a name=anna requests=5\n"), BITNET_OK);
    keys_take_over(&keys, &old);
    keys_free(&old);
    assert_ptr_equal(keys_find(&keys, "sk-a", 4), a);
    assert_string_equal(a->name, "anna");
    assert_int_equal(quota_requests_state(a, 1).left, 4);
    assert_null(keys_find(&keys, "sk-b", 4));
    /* of a key that stands twice the last line counts */
    assert_int_equal(load("sk-a requests=7\n"), BITNET_OK);
    assert_int_equal(keys_find(&keys, "sk-a", 4)->limits.requests, 7);
    assert_int_not_equal(load("sk-x requests=0\n"), BITNET_OK);
    assert_false(opens("sk-x"));
}

/* A file larger than any set of keys. */
static void test_large_file(void **state)
{
    (void)state;
    size_t n = (1 << 20) + 1;
    char *text = malloc(n);
    assert_non_null(text);
    memset(text, '\n', n);
    write_file(text, n);
    free(text);
    assert_int_equal(keys_load(&keys, path, &err), BITNET_E_LIMIT);
    assert_int_equal(keys.n, 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_teardown(f, free_keys)
    const struct CMUnitTest tests[] = {
        TEST(test_match),       TEST(test_refused),    TEST(test_file),   TEST(test_reload),
        TEST(test_permissions), TEST(test_large_file), TEST(test_quotas),
    };
    return cmocka_run_group_tests(tests, open_file, remove_file);
}
