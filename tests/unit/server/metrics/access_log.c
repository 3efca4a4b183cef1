/* SPDX-License-Identifier: Apache-2.0
 * The access log: every line is one JSON object, whatever clients send; reopening. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/os/file.h"
#include "json_text.h"
#include "server/metrics/access_log.h"

static bitnet_error err;
static char folder[] = "/tmp/bitnet-log-XXXXXX";
static char path[64], moved[64];

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/access.log", folder);
    snprintf(moved, sizeof moved, "%s/access.log.1", folder);
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    unlink(path);
    unlink(moved);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

/* line i of a file, parsed */
static struct bn_json *read_line(const char *file, size_t i)
{
    char *text;
    size_t n;
    assert_int_equal(bn_read_file(&text, &n, file, 1 << 20, &err), BITNET_OK);
    char *p = text;
    while (i--) {
        p = strchr(p, '\n');
        assert_non_null(p);
        p++;
    }
    struct bn_json *j = json_of_bytes(p, strcspn(p, "\n"), 0);
    free(text);
    return j;
}

static const char *string(const struct bn_json *j, const char *key)
{
    return bn_json_text(bn_json_get(j, key));
}

static void test_line(void **state)
{
    (void)state;
    struct access_log l;
    assert_int_equal(access_log_open(&l, path, &err), BITNET_OK);
    access_log_write(&l, &(struct access_line){.request_id = "req-1",
                                               .peer = "127.0.0.1",
                                               .method = "POST",
                                               .path = "/v1/chat/completions",
                                               .status = 200,
                                               .stream = true,
                                               .total_ns = 1234567890,
                                               .first_ns = 1500000,
                                               .n_prompt = 12,
                                               .n_cached = 4,
                                               .n_generated = 34,
                                               .finish = "stop"});
    struct bn_json *j = read_line(path, 0); /* it is there before the log is closed */
    assert_non_null(j);
    assert_string_equal(string(j, "request_id"), "req-1");
    assert_string_equal(string(j, "path"), "/v1/chat/completions");
    assert_string_equal(string(j, "finish"), "stop");
    assert_int_equal(bn_json_integer(bn_json_get(j, "status")), 200);
    assert_true(bn_json_is_true(bn_json_get(j, "stream")));
    assert_true(bn_json_number(bn_json_get(j, "total_ms")) == 1234.568);
    assert_true(bn_json_number(bn_json_get(j, "first_ms")) == 1.5);
    assert_true(bn_json_is_null(bn_json_get(j, "queue_ms")));
    assert_true(bn_json_is_null(bn_json_get(j, "error")));
    assert_int_equal(bn_json_integer(bn_json_get(j, "generated_tokens")), 34);
    const char *when = string(j, "time");
    struct tm tm = {0};
    assert_int_equal(strlen(when), strlen("2026-01-02T03:04:05.678Z"));
    const char *rest = strptime(when, "%Y-%m-%dT%H:%M:%S.", &tm);
    assert_non_null(rest);
    assert_string_equal(rest + 3, "Z");
    assert_true(labs((long)(timegm(&tm) - time(NULL))) <= 2);
    bn_json_free(j);
    access_log_close(&l);
}

static void test_any_bytes(void **state)
{
    (void)state;
    struct access_log l;
    assert_int_equal(access_log_open(&l, path, &err), BITNET_OK);
    char all[256 + 1] = "";
    for (int i = 0; i < 255; i++) all[i] = (char)(i + 1);
    access_log_write(&l,
                     &(struct access_line){.path = all, .peer = "\"\\\n", .error = "caf\xc3\xa9"});
    struct bn_json *j = read_line(path, 0);
    assert_non_null(j);
    assert_string_equal(string(j, "peer"), "\"\\\n");
    assert_string_equal(string(j, "error"), "caf\xc3\xa9");
    assert_memory_equal(string(j, "path"), all, 127);
    assert_memory_equal(string(j, "path") + 127, "\xef\xbf\xbd", 3); /* no character */
    bn_json_free(j);
    /* every start of a string that is cut in a character, and one that is far too long */
    char longer[10000];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;
    const char *const cut[] = {"\xf0\x9f\x98", "\xf0", "\xed\xa0\x80",
                               "\xc2\x9b"
                               "31m",
                               longer};
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        access_log_write(&l, &(struct access_line){.path = cut[i]});
        bn_json_free(j = read_line(path, i + 1));
        assert_non_null(j);
    }
    access_log_close(&l);
    char *text;
    size_t n;
    assert_int_equal(bn_read_file(&text, &n, path, 1 << 20, &err), BITNET_OK);
    assert_true(n < 5000);
    assert_non_null(strstr(text, "\\u009b31m")); /* no order for a terminal */
    for (size_t i = 0; i < n; i++) assert_true((unsigned char)text[i] >= ' ' || text[i] == '\n');
    free(text);
}

static void test_reopen(void **state)
{
    (void)state;
    struct access_log l;
    assert_int_equal(access_log_open(&l, path, &err), BITNET_OK);
    access_log_write(&l, &(struct access_line){.path = "/a"});
    assert_int_equal(rename(path, moved), 0);
    access_log_write(&l, &(struct access_line){.path = "/b"}); /* still to the moved one */
    assert_int_equal(access_log_reopen(&l, &err), BITNET_OK);
    access_log_write(&l, &(struct access_line){.path = "/c"});
    struct bn_json *b = read_line(moved, 1), *c = read_line(path, 0);
    assert_string_equal(string(b, "path"), "/b");
    assert_string_equal(string(c, "path"), "/c");
    bn_json_free(b);
    bn_json_free(c);
    /* where it cannot be opened again, the old one goes on */
    l.path = "/nonexistent/access.log";
    assert_int_equal(access_log_reopen(&l, &err), BITNET_E_IO);
    assert_non_null(strstr(err.text, "/nonexistent/access.log"));
    access_log_write(&l, &(struct access_line){.path = "/d"});
    struct bn_json *d = read_line(path, 1);
    assert_string_equal(string(d, "path"), "/d");
    bn_json_free(d);
    access_log_close(&l);
    /* appended to, not begun anew */
    assert_int_equal(access_log_open(&l, path, &err), BITNET_OK);
    access_log_write(&l, &(struct access_line){.path = "/e"});
    struct bn_json *e = read_line(path, 2);
    assert_string_equal(string(e, "path"), "/e");
    bn_json_free(e);
    access_log_close(&l);
}

static void test_off(void **state)
{
    (void)state;
    struct access_log l;
    assert_int_equal(access_log_open(&l, NULL, &err), BITNET_OK);
    access_log_write(&l, &(struct access_line){.path = "/"});
    assert_int_equal(access_log_reopen(&l, &err), BITNET_OK);
    access_log_close(&l);
    assert_int_equal(access_log_open(&l, "/nonexistent/access.log", &err), BITNET_E_IO);
    assert_null(l.to);
    assert_int_equal(access_log_open(&l, "-", &err), BITNET_OK);
    assert_ptr_equal(l.to, stderr);
    assert_int_equal(access_log_reopen(&l, &err), BITNET_OK);
    access_log_close(&l);
    assert_int_not_equal(fileno(stderr), -1); /* standard error is not ours to close */
}

int main(void)
{
#define TEST(f) cmocka_unit_test_teardown(f, remove_files)
    const struct CMUnitTest tests[] = {TEST(test_line), TEST(test_any_bytes), TEST(test_reopen),
                                       TEST(test_off)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
