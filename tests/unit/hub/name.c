/* SPDX-License-Identifier: Apache-2.0
 * Names of models: what is meant, and what is written for it. Wrong ones: tests/e2e/cli/cases_hub.py. */
#include "hub/catalogue.h"
#include "hub/name.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static void test_parse(void **state)
{
    static const struct {
        const char *typed, *text, *repo, *revision, *tag, *file;
    } cases[] = {
        {"org/name", "org/name", "org/name", "", "", ""},
        {"hf:org/name", "org/name", "org/name", "", "", ""},
        {"hf://org/name", "org/name", "org/name", "", "", ""},
        {"HF.co/org/name:Q2_0", "org/name:Q2_0", "org/name", "", "Q2_0", ""},
        {"hf:gpt2", "hf:gpt2", "gpt2", "", "", ""},
        {"org/name@v1.0", "org/name@v1.0", "org/name", "v1.0", "", ""},
        {"org/name@refs/pr/7:Q2_0", "org/name@refs/pr/7:Q2_0", "org/name", "refs/pr/7", "Q2_0", ""},
        {"hf:org/name@dev/a/b.gguf", "hf:org/name@dev/a/b.gguf", "org/name", "dev", "", "a/b.gguf"},
        {"https://huggingface.co/org/name", "org/name", "org/name", "", "", ""},
        {"https://huggingface.co/org/name/tree/v2", "org/name@v2", "org/name", "v2", "", ""},
        {"https://huggingface.co/org/name/resolve/main/x.gguf?download=true",
         "hf:org/name@main/x.gguf", "org/name", "main", "", "x.gguf"},
        {"ollama:qwen3:8b", "ollama:qwen3:8b", "library/qwen3", "", "8b", ""},
        {"ollama:me/mine", "ollama:me/mine:latest", "me/mine", "", "latest", ""},
        {"ollama:host.example:5000/me/mine", "ollama:host.example:5000/me/mine:latest", "me/mine",
         "", "latest", ""},
    };
    (void)state;
    for (size_t i = 0; i < BN_ARRAY_LEN(cases); i++) {
        struct hub_name n, again;
        bitnet_error err;
        char text[HUB_TYPED_BYTES], twice[HUB_TYPED_BYTES];
        if (hub_name_parse(&n, cases[i].typed, &err) != BITNET_OK)
            fail_msg("%s: %s", cases[i].typed, err.text);
        hub_name_text(text, &n);
        assert_string_equal(text, cases[i].text);
        assert_string_equal(n.repo, cases[i].repo);
        assert_string_equal(n.revision, cases[i].revision);
        assert_string_equal(n.tag, cases[i].tag);
        assert_string_equal(n.file, cases[i].file);
        assert_int_equal(hub_name_parse(&again, text, NULL), BITNET_OK);
        hub_name_text(twice, &again);
        assert_string_equal(twice, text);
    }
}

/* Files and prompts are not taken for names. */
static void test_likeness(void **state)
{
    static const char *const none[] = {"model.gguf", "./org/name", "/org/name",
                                       "a/b/c",      "dir/m.gguf", "x/y.safetensors",
                                       "llama3",     "Once upon",  "and/or what",
                                       "../x",       "~/m",        "org/"},
                             *const maybe[] = {"org/name", "org/name@v1", "org/name:Q2_0"},
                             *const sure[] = {"hf:x",      "hf.co/a/b",
                                              "ollama:x",  "https://h/x.gguf",
                                              "bitnet-2b", "Bitnet-2B"};
    (void)state;
    for (size_t i = 0; i < BN_ARRAY_LEN(none); i++)
        if (hub_name_likeness(none[i]) != HUB_NO_NAME) fail_msg("'%s' is a name", none[i]);
    for (size_t i = 0; i < BN_ARRAY_LEN(maybe); i++)
        if (hub_name_likeness(maybe[i]) != HUB_MAYBE_NAME) fail_msg("'%s'", maybe[i]);
    for (size_t i = 0; i < BN_ARRAY_LEN(sure); i++)
        if (hub_name_likeness(sure[i]) != HUB_SURE_NAME) fail_msg("'%s'", sure[i]);
}

static void test_catalogue(void **state)
{
    const struct hub_model *m;
    (void)state;
    for (size_t i = 0; (m = hub_catalogue_at(i)); i++) {
        struct hub_name n;
        char text[HUB_TYPED_BYTES];
        assert_int_equal(hub_name_parse(&n, m->name, NULL), BITNET_OK);
        assert_ptr_equal(n.known, m);
        assert_string_equal(n.repo, m->repo);
        hub_name_text(text, &n);
        assert_string_equal(text, m->name);
    }
    assert_null(hub_catalogue_suggest("teapot"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parse),
                                       cmocka_unit_test(test_likeness),
                                       cmocka_unit_test(test_catalogue)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
