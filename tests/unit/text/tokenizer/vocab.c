/* SPDX-License-Identifier: Apache-2.0
 * Vocabularies: what is refused, and the readers of tokenizer.json and tokenizer.model. */
#include "text_common.h"

#include <unistd.h>

/* ------------------------------------------------------------------ checks */

static void expect_open_error(struct bn_vocab *v, bitnet_status want, const char *part)
{
    struct bn_tokenizer *t;
    bitnet_error err = {0};
    assert_int_equal(bn_tokenizer_open(&t, v, &err), want);
    assert_null(t);
    if (!strstr(err.text, part)) fail_msg("'%s' lacks '%s'", err.text, part);
}

static void test_bad_vocabularies(void **state)
{
    (void)state;
    struct bn_vocab v;
    bn_vocab_init(&v);
    expect_open_error(&v, BITNET_E_LIMIT, "0 tokens");
    byte_vocab(&v, "klingon");
    add_merge(&v, "a", "b", "ab");
    expect_open_error(&v, BITNET_E_UNSUPPORTED, "'klingon'");
    byte_vocab(&v, NULL);
    add_merge(&v, "a", "b", "ab");
    expect_open_error(&v, BITNET_E_UNSUPPORTED, "names no pre-tokenizer");
    byte_vocab(&v, "gpt-2");
    v.merges = NULL;
    expect_open_error(&v, BITNET_E_FORMAT, "without merges");
    byte_vocab(&v, "gpt-2");
    add_merge(&v, "a", "", "ab");
    expect_open_error(&v, BITNET_E_FORMAT, "merge 0");
    byte_vocab(&v, NULL);
    add_merge(&v, "a", "b", "ab");
    v.patterns[0] = "(", v.n_patterns = 1;
    expect_open_error(&v, BITNET_E_UNSUPPORTED, "not understood");
    byte_vocab(&v, NULL);
    add_merge(&v, "a", "b", "ab");
    v.patterns[0] = "[a[b]]", v.n_patterns = 1;
    expect_open_error(&v, BITNET_E_UNSUPPORTED, "class inside a class");
    spm_vocab(&v);
    v.eos = 1000;
    expect_open_error(&v, BITNET_E_FORMAT, "1000");
    spm_vocab(&v);
    v.types[5] = 9;
    expect_open_error(&v, BITNET_E_FORMAT, "token 5");
    spm_vocab(&v);
    v.scores[5] = 0.0f / 0.0f;
    expect_open_error(&v, BITNET_E_FORMAT, "score of token 5");
    spm_vocab(&v);
    v.unk = -1;
    v.types[7] = BN_TOKEN_UNUSED;
    expect_open_error(&v, BITNET_E_FORMAT, "255 of 256 byte tokens");
}

/* ------------------------------------------------------------------ readers */

static void write_file(const char *dir, const char *name, const void *data, size_t n)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

static void remove_files(const char *dir, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
}

#define BPE_MODEL                                                                                  \
    "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a " \
    "b\"]"
#define BYTES "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}"

static void test_json_errors(void **state)
{
    (void)state;
    static const struct {
        const char *json, *part;
        bitnet_status status;
    } cases[] = {
        {"{", "bad JSON", BITNET_E_FORMAT},
        {"[]", "tokenizer model", BITNET_E_UNSUPPORTED},
        {"{\"model\": {\"type\": \"Unigram\"}}", "'Unigram'", BITNET_E_UNSUPPORTED},
        {"{\"model\": {\"type\": \"WordPiece\"}}", "'WordPiece'", BITNET_E_UNSUPPORTED},
        {"{\"normalizer\": {\"type\": \"Lowercase\"}, " BPE_MODEL "}}", "'Lowercase'",
         BITNET_E_UNSUPPORTED},
        {"{\"pre_tokenizer\": {\"type\": \"Whitespace\"}, " BPE_MODEL "}}", "'Whitespace'",
         BITNET_E_UNSUPPORTED},
        {"{\"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Removed\", \"pattern\": "
         "{\"String\": \"x\"}}, " BPE_MODEL "}}",
         "'Removed'", BITNET_E_UNSUPPORTED},
        {"{" BYTES ", " BPE_MODEL ", \"dropout\": 0.1}}", "'dropout'", BITNET_E_UNSUPPORTED},
        {"{" BYTES ", " BPE_MODEL ", \"end_of_word_suffix\": \"</w>\"}}", "'end_of_word_suffix'",
         BITNET_E_UNSUPPORTED},
        {"{" BPE_MODEL ", \"byte_fallback\": true}}", "neither byte-level", BITNET_E_UNSUPPORTED},
        {"{" BYTES
         ", \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": -1}, \"merges\": [\"a b\"]}}",
         "'a'", BITNET_E_FORMAT},
        {"{" BYTES
         ", \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 99999999}, \"merges\": [\"a b\"]}}",
         "'a'", BITNET_E_FORMAT},
        {"{" BYTES ", \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"ab\"]}}",
         "merge 0", BITNET_E_FORMAT},
        {"{" BYTES
         ", \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [[\"a\"]]}}",
         "merge 0", BITNET_E_FORMAT},
        {"{" BYTES ", \"model\": {\"type\": \"BPE\", \"vocab\": [], \"merges\": []}}",
         "no vocabulary", BITNET_E_FORMAT},
        {"{" BYTES ", " BPE_MODEL "}, \"added_tokens\": [{\"id\": 5}]}", "added token 0",
         BITNET_E_FORMAT},
        {"{" BYTES ", " BPE_MODEL "}, \"post_processor\": {\"type\": \"BertProcessing\"}}",
         "'BertProcessing'", BITNET_E_UNSUPPORTED},
    };
    char dir[] = "/tmp/bitnet-test-XXXXXX", path[256];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    for (size_t i = 0; i < BN_ARRAY_LEN(cases); i++) {
        struct bn_vocab v;
        bitnet_error err = {0};
        write_file(dir, "tokenizer.json", cases[i].json, strlen(cases[i].json));
        bitnet_status st = bn_vocab_read_hf(&v, path, &err);
        if (st != cases[i].status || !strstr(err.text, cases[i].part))
            fail_msg("case %zu: status %d, '%s'", i, st, err.text);
        assert_int_equal(v.n_tokens, 0);
    }
    struct bn_vocab v;
    assert_int_equal(bn_vocab_read_hf(&v, "/nowhere/tokenizer.json", NULL), BITNET_E_IO);
    remove_files(dir, (const char *const[]){"tokenizer.json"}, 1);
}

static void test_json_folder(void **state)
{
    (void)state;
    static const char json[] =
        "{\"normalizer\": {\"type\": \"NFC\"}, \"pre_tokenizer\": {\"type\": \"Sequence\", "
        "\"pretokenizers\": ["
        "{\"type\": \"Punctuation\", \"behavior\": \"Contiguous\"}, {\"type\": \"ByteLevel\", "
        "\"add_prefix_space\": false},"
        "{\"type\": \"Digits\", \"individual_digits\": false},"
        "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"[0-9][0-9][0-9]\"}, \"behavior\": "
        "\"Isolated\"}]},"
        "\"post_processor\": {\"type\": \"Sequence\", \"processors\": [{\"type\": \"ByteLevel\"}, "
        "{\"type\": "
        "\"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}, "
        "{\"Sequence\": {\"id\": \"A\"}}]}]},"
        "\"added_tokens\": [{\"id\": 3, \"content\": \"<s>\", \"special\": true, \"lstrip\": true},"
        "{\"id\": 5, \"content\": \"<u v>\", \"special\": false}]," BPE_MODEL "}}";
    static const char config[] = "{\"model_max_length\": 1000000000000000019884624838656, "
                                 "\"eos_token\": {\"content\": \"<u v>\"},"
                                 "\"chat_template\": [{\"name\": \"tool\", \"template\": \"T\"}, "
                                 "{\"name\": \"default\", \"template\": \"D\"}]}";
    static const char generation[] = "{\"eos_token_id\": [5, 3, 77]}";
    char dir[] = "/tmp/bitnet-test-XXXXXX", path[256];
    assert_non_null(mkdtemp(dir));
    write_file(dir, "tokenizer.json", json, strlen(json));
    write_file(dir, "tokenizer_config.json", config, strlen(config));
    write_file(dir, "generation_config.json", generation, strlen(generation));
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    struct bn_vocab v;
    bitnet_error err = {0};
    if (bn_vocab_read_hf(&v, path, &err) != BITNET_OK) fail_msg("%s", err.text);
    assert_int_equal(v.n_tokens, 6);
    assert_int_equal(v.types[4], BN_TOKEN_UNUSED);
    assert_int_equal(v.types[5], BN_TOKEN_USER);
    assert_int_equal(v.strip[3], BN_STRIP_LEFT);
    assert_string_equal(v.pre, "falcon");
    assert_string_equal(v.normalizer, "nfc");
    assert_string_equal(v.chat_template, "D");
    assert_int_equal(v.bos, 3);
    assert_true(v.add_bos && !v.add_eos);
    assert_int_equal(v.eos, 5);
    assert_int_equal(v.n_ends, 1);
    assert_int_equal(v.ends[0], 3);
    write_file(dir, "chat_template.jinja", "J", 1);
    bn_vocab_free(&v);
    assert_int_equal(bn_vocab_read_hf(&v, path, NULL), BITNET_OK);
    assert_string_equal(v.chat_template, "J");
    bn_vocab_free(&v);
    remove_files(dir,
                 (const char *const[]){"tokenizer.json", "tokenizer_config.json",
                                       "generation_config.json", "chat_template.jinja"},
                 4);
}

/* Qwen3.5's way: NFC, its pattern, merges as pairs, several end tokens. */
static void test_json_qwen35(void **state)
{
    (void)state;
    static const char json[] =
        "{\"added_tokens\": [{\"id\": 4, \"content\": \"<|im_end|>\", \"special\": true},"
        "{\"id\": 5, \"content\": \"<|endoftext|>\", \"special\": true},"
        "{\"id\": 6, \"content\": \"<think>\", \"special\": false}],"
        "\"normalizer\": {\"type\": \"NFC\"}, \"pre_tokenizer\": {\"type\": \"Sequence\", "
        "\"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": "
        "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{L}\\\\p{M}]+|\\\\p{N}|"
        " ?"
        "[^\\\\s\\\\p{L}\\\\p{M}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
        "\"},"
        "\"behavior\": \"Isolated\", \"invert\": false}, {\"type\": \"ByteLevel\", "
        "\"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": false}]},"
        "\"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
        "\"trim_offsets\": false, \"use_regex\": false},"
        "\"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
        "\"trim_offsets\": false, \"use_regex\": false},"
        "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
        "\"continuing_subword_prefix\": \"\", \"end_of_word_suffix\": \"\", \"fuse_unk\": false, "
        "\"byte_fallback\": false, \"ignore_merges\": false, "
        "\"vocab\": {\"e\": 0, \"\xc3\x83\": 1, \"\xc2\xa9\": 2, \"\xc3\x83\xc2\xa9\": 3},"
        "\"merges\": [[\"\xc3\x83\", \"\xc2\xa9\"]]}}";
    static const char config[] = "{\"eos_token\": \"<|im_end|>\", \"bos_token\": null, "
                                 "\"add_prefix_space\": false}";
    static const char generation[] = "{\"eos_token_id\": [4, 5]}";
    char dir[] = "/tmp/bitnet-test-XXXXXX", path[256];
    assert_non_null(mkdtemp(dir));
    write_file(dir, "tokenizer.json", json, strlen(json));
    write_file(dir, "tokenizer_config.json", config, strlen(config));
    write_file(dir, "generation_config.json", generation, strlen(generation));
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    struct bn_vocab v;
    bitnet_error err = {0};
    if (bn_vocab_read_hf(&v, path, &err) != BITNET_OK) fail_msg("%s", err.text);
    assert_string_equal(v.pre, "qwen35");
    assert_string_equal(v.normalizer, "nfc");
    assert_false(v.add_bos || v.add_space_prefix);
    assert_int_equal(v.eos, 4);
    assert_int_equal(v.n_ends, 1);
    assert_int_equal(v.ends[0], 5);
    struct bn_tokenizer *t = open_vocab(&v);
    EXPECT(t, "e\xcc\x81", 0, 3);
    EXPECT(t, "<think>e\xcc\x81", 0, 6, 3);
    bn_tokenizer_close(t);
    /* where that file has none, config.json tells the ends */
    static const char nested[] = "{\"text_config\": {\"eos_token_id\": [5]}}";
    static const char none[] = "{\"temperature\": 0.6}";
    write_file(dir, "generation_config.json", none, strlen(none));
    write_file(dir, "config.json", nested, strlen(nested));
    assert_int_equal(bn_vocab_read_hf(&v, path, &err), BITNET_OK);
    assert_true(v.eos == 4 && v.n_ends == 1 && v.ends[0] == 5);
    bn_vocab_free(&v);
    remove_files(dir,
                 (const char *const[]){"config.json", "tokenizer.json", "tokenizer_config.json",
                                       "generation_config.json"},
                 4);
}

/* Llama-2's way: marks by normalizer, merges by list, byte fallback. */
static void test_json_space_marks(void **state)
{
    (void)state;
    static const char json[] =
        "{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", "
        "\"prepend\": \"" MARK "\"},"
        "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"" MARK "\"}]},"
        "\"model\": {\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"fuse_unk\": true, "
        "\"byte_fallback\": true, \"vocab\": "
        "{\"<unk>\": 0, \"" MARK "\": 1, \"a\": 2, \"" MARK
        "a\": 3, \"<0x0A>\": 4}, \"merges\": [[\"" MARK "\", \"a\"]]}}";
    char dir[] = "/tmp/bitnet-test-XXXXXX", path[256];
    assert_non_null(mkdtemp(dir));
    write_file(dir, "tokenizer.json", json, strlen(json));
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    struct bn_vocab v;
    bitnet_error err = {0};
    if (bn_vocab_read_hf(&v, path, &err) != BITNET_OK) fail_msg("%s", err.text);
    assert_int_equal(v.model, BN_VOCAB_SPM);
    assert_int_equal(v.types[4], BN_TOKEN_BYTE);
    assert_int_equal(v.unk, 0);
    struct bn_tokenizer *t = open_vocab(&v);
    EXPECT(t,
           "a a\n\xc3\xa9\xc3\xa9"
           "a",
           0, 3, 3, 4, 0, 2);
    bn_tokenizer_close(t);
    remove_files(dir, (const char *const[]){"tokenizer.json"}, 1);
}

/* ---- a SentencePiece model, written by hand ---- */

static size_t put_piece(uint8_t *out, const char *text, float score, uint8_t type)
{
    size_t n = strlen(text);
    out[0] = 1 << 3 | 2, out[1] = (uint8_t)(n + 9);
    out[2] = 1 << 3 | 2, out[3] = (uint8_t)n;
    memcpy(out + 4, text, n);
    out[4 + n] = 2 << 3 | 5;
    bn_store_f32(out + 5 + n, score);
    out[9 + n] = 3 << 3, out[10 + n] = type;
    return n + 11;
}

static void test_sentencepiece(void **state)
{
    (void)state;
    uint8_t data[512];
    size_t n = 0;
    n += put_piece(data + n, "<unk>", 0, BN_TOKEN_UNKNOWN);
    n += put_piece(data + n, "<s>", 0, BN_TOKEN_CONTROL);
    n += put_piece(data + n, "</s>", 0, BN_TOKEN_CONTROL);
    n += put_piece(data + n, MARK, -5, BN_TOKEN_NORMAL);
    n += put_piece(data + n, "a", -6, BN_TOKEN_NORMAL);
    n += put_piece(data + n, MARK "a", -1, BN_TOKEN_NORMAL);
    size_t trainer = n;
    static const uint8_t tail[] = {2 << 3 | 2, 2,      3 << 3, 2 /* BPE */, 3 << 3 | 2,
                                   4,          4 << 3, 0,      3 << 3,      1};
    memcpy(data + n, tail, sizeof tail);
    n += sizeof tail;
    char dir[] = "/tmp/bitnet-test-XXXXXX", path[256];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/tokenizer.model", dir);
    write_file(dir, "tokenizer.model", data, n);
    static const char config[] = "{\"added_tokens_decoder\": {\"6\": {\"content\": \"<pad>\", "
                                 "\"special\": true}}, \"pad_token\": \"<pad>\"}";
    write_file(dir, "tokenizer_config.json", config, strlen(config));
    struct bn_vocab v;
    bitnet_error err = {0};
    if (bn_vocab_read_sentencepiece(&v, path, &err) != BITNET_OK) fail_msg("%s", err.text);
    assert_int_equal(v.n_tokens, 7);
    assert_int_equal(v.bos, 1);
    assert_int_equal(v.eos, 2);
    assert_int_equal(v.pad, 6);
    assert_true(v.add_bos && v.add_space_prefix);
    struct bn_tokenizer *t = open_vocab(&v);
    EXPECT(t, "a xa<pad>", BITNET_TOK_BOS_AUTO | BITNET_TOK_SPECIAL, 1, 5, 3, 0, 4, 6);
    bn_tokenizer_close(t);

    for (size_t cut = 0; cut < n; cut++) { /* never more than an error */
        write_file(dir, "tokenizer.model", data, cut);
        if (bn_vocab_read_sentencepiece(&v, path, NULL) == BITNET_OK) bn_vocab_free(&v);
    }
    for (size_t at = 0; at < n; at++)
        for (int bit = 0; bit < 8; bit++) {
            data[at] ^= (uint8_t)(1 << bit);
            write_file(dir, "tokenizer.model", data, n);
            if (bn_vocab_read_sentencepiece(&v, path, NULL) == BITNET_OK) bn_vocab_free(&v);
            data[at] ^= (uint8_t)(1 << bit);
        }
    data[trainer + 3] = 1;
    write_file(dir, "tokenizer.model", data, n);
    assert_int_equal(bn_vocab_read_sentencepiece(&v, path, &err), BITNET_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "Unigram"));
    remove_files(dir, (const char *const[]){"tokenizer.model", "tokenizer_config.json"}, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_vocabularies), cmocka_unit_test(test_json_errors),
        cmocka_unit_test(test_json_folder),      cmocka_unit_test(test_json_space_marks),
        cmocka_unit_test(test_sentencepiece),    cmocka_unit_test(test_json_qwen35),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
