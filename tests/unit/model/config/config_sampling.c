/* SPDX-License-Identifier: Apache-2.0
 * What files recommend for sampling: generation_config.json, GGUF metadata, and the way between. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/config/config_sampling.h"
#include "model/files/gguf_write.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct bn_config from_json(const char *text, bitnet_status want, const char *says)
{
    char dir[] = "/tmp/bitnet-test-XXXXXX", path[64];
    struct bn_config c = {0};
    struct bn_buf note;
    bitnet_error err = {0};
    bn_buf_init(&note, 1 << 12);
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/generation_config.json", dir);
    if (text) {
        FILE *f = fopen(path, "w");
        assert_true(f && fputs(text, f) >= 0 && fclose(f) == 0);
    }
    assert_int_equal(bn_config_sampling_from_hf(&c, dir, &note, &err), want);
    bn_buf_putc(&note, '\0');
    const char *said = want == BITNET_OK ? note.data : err.text;
    if (!strstr(said, says)) fail_msg("'%s' lacks '%s'", said, says);
    bn_buf_free(&note);
    unlink(path);
    rmdir(dir);
    return c;
}

static void test_json(void **state)
{
    (void)state;
    assert_int_equal(from_json(NULL, BITNET_OK, "").sampling_given, 0);
    assert_int_equal(from_json("{}", BITNET_OK, "").sampling_given, 0);
    struct bn_config c = from_json("{\"do_sample\": true, \"temperature\": 0.6, \"top_k\": 20, "
                                   "\"top_p\": 0.95, \"min_p\": 0, \"repetition_penalty\": 1.05, "
                                   "\"eos_token_id\": [1, 2]}",
                                   BITNET_OK, "");
    assert_int_equal(c.sampling_given, BITNET_SAMPLING_TEMPERATURE | BITNET_SAMPLING_TOP_K |
                                           BITNET_SAMPLING_TOP_P | BITNET_SAMPLING_MIN_P |
                                           BITNET_SAMPLING_REPETITION_PENALTY);
    assert_true(c.sampling.temperature == 0.6f && c.sampling.top_k == 20 &&
                c.sampling.top_p == 0.95f && c.sampling.min_p == 0 &&
                c.sampling.repetition_penalty == 1.05f);
    /* members that are silent stay what they were */
    bitnet_sampling s = {.temperature = 9, .top_k = 9, .penalty_last_n = 9};
    assert_int_equal(bn_config_sampling(&c, &s), c.sampling_given);
    assert_true(s.temperature == 0.6f && s.top_k == 20 && s.penalty_last_n == 9);
    assert_int_equal(bn_config_sampling(&c, NULL), c.sampling_given);
    /* no sampling is greedy, whatever else is there */
    c = from_json("{\"do_sample\": false, \"temperature\": 0.6}", BITNET_OK, "");
    assert_true(c.sampling_given == BITNET_SAMPLING_TEMPERATURE && c.sampling.temperature == 0);
    c = from_json("{\"temperature\": -1, \"top_k\": 2.5, \"top_p\": null, \"min_p\": \"x\"}",
                  BITNET_OK,
                  "The temperature of -1 that the file recommends is not used. The top_k of 2.5");
    assert_int_equal(c.sampling_given, 0);
    from_json("[]", BITNET_E_FORMAT, "generation_config.json: not a JSON object");
    from_json("{", BITNET_E_FORMAT, "generation_config.json");
    from_json("{\"do_sample\": 1}", BITNET_E_FORMAT, "'do_sample' is not true or false");
}

/* Written to a GGUF and read from there. */
static void test_gguf(void **state)
{
    (void)state;
    char path[] = "/tmp/bitnet-test-XXXXXX";
    struct bn_config c = {.sampling = {.temperature = 0.7f, .top_k = 20, .penalty_last_n = 64},
                          .sampling_given = BITNET_SAMPLING_TEMPERATURE | BITNET_SAMPLING_TOP_K |
                                            BITNET_SAMPLING_PENALTY_LAST_N},
                     got = {0};
    struct bn_gguf_writer w;
    struct bn_source s;
    bitnet_error err;
    int32_t top_k;
    int fd = mkstemp(path);
    assert_true(fd >= 0 && close(fd) == 0);
    assert_int_equal(bn_gguf_create(&w, path, true, &err), BITNET_OK);
    bn_config_sampling_put(&c, &w);
    bn_gguf_put_u32(&w, "general.sampling.min_p", 0); /* a whole number where others put a float */
    assert_int_equal(bn_gguf_commit(&w, &err), BITNET_OK);
    bn_gguf_discard(&w);
    assert_int_equal(bn_source_open(&s, path, BN_I2S_AUTO, &err), BITNET_OK);
    bn_config_sampling_from_gguf(&got, &s, NULL);
    const struct bn_meta *m =
        bn_meta_find(&s, "general.sampling.top_k"); /* as llama.cpp writes it */
    assert_true(m && m->type == BN_META_I32);
    memcpy(&top_k, m->raw, 4);
    assert_int_equal(top_k, 20);
    bn_source_close(&s);
    unlink(path);
    assert_int_equal(got.sampling_given, c.sampling_given | BITNET_SAMPLING_MIN_P);
    assert_true(got.sampling.temperature == 0.7f && got.sampling.top_k == 20 &&
                got.sampling.penalty_last_n == 64 && got.sampling.min_p == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_json), cmocka_unit_test(test_gguf)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
