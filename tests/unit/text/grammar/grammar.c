/* SPDX-License-Identifier: Apache-2.0
 * Grammars: GBNF texts that fit and that do not, what is refused and how, limits, masks beside a
 * trial of every token, and memory: none is taken after open, and a refusal of any is an error. */
#include "grammar_common.h"

#include "alloc_refuse.h"
#include "base/rng.h"

/* ------------------------------------------------------------------ GBNF */

static void test_gbnf(void **state)
{
    (void)state;
    struct bytes b = open_bytes();
    EXPECT_TEXTS(&b, GBNF, "root ::= \"ab\" | \"abc\" x\nx ::= [0-9]+ # digits\n", "ab", "abc1",
                 "abc123", NOT, "", "a", "abc", "ab1", "abc12x");
    EXPECT_TEXTS(&b, GBNF, "root ::= (\"a\"\n  | \"b\"\n  | c)* \"!\"\nc ::=\n  \"c\" |\n  \"d\"",
                 "!", "abcd!", "dd!", NOT, "a", "!!", "e!");
    EXPECT_TEXTS(&b, GBNF, "root ::= [a-c]{2} [^a-c\\n]{1,} \"x\"{0,2} \"\"", "abz", "cc--xx", NOT,
                 "ab", "az", "aba", "ab\n");
    EXPECT_TEXTS(&b, GBNF, "root ::= \"\\x41\\u00e9\\\"\\\\\\t\" .", "A\xc3\xa9\"\\\tz",
                 "A\xc3\xa9\"\\\t\xf0\x9f\x98\x80", NOT, "A\xc3\xa9\"\\\t", "A\xc3\xa9\"\\\tzz",
                 "A\xc3\xa9\"\\\t\xff", "A\xc3\xa9\"\\\t\xed\xa0\x80");
    EXPECT_TEXTS(&b, GBNF, "root ::= [\xc3\xa4-\xc3\xb6\xe4\xb8\x80-\xe9\xbf\xbf\\-\\]]+",
                 "\xc3\xa4", "\xc3\xa5\xe5\x85\xad]", "-", NOT, "\xc3\xa3", "\xc3\xb7", "\xc3",
                 "\xe4\xb7\xbf", "\xea\x80\x80", "a");
    EXPECT_TEXTS(&b, GBNF,
                 "root ::= sum\nsum ::= atom (\"+\" atom)*\natom ::= [0-9] | \"(\" sum \")\"", "1",
                 "1+2", "((1+2)+3)", NOT, "", "1+", "(1", "1)", "()");
    EXPECT_TEXTS(&b, GBNF, "root ::= (\"a\"?)* (\"b\"* \"c\"*)* \"d\"", "d", "aaabbcbcd", NOT, "ca",
                 "ad d");
    EXPECT_TEXTS(&b, GBNF, "root ::= a a a \"x\"\na ::= \"y\"?", "x", "yx", "yyyx", NOT, "yyyyx");
    EXPECT_TEXTS(&b, GBNF,
                 "root ::= \"<\" (%json {\"$ref\": \"#/$defs/a\",\n \"$defs\": {\"a\": {\"enum\": "
                 "[1, \"#\"]}}} | b){1,2} \">\" # a comment\n"
                 "b ::= %json{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"type\":\"string\"}}}[!?]",
                 "<1>", "<\"#\">", "<\"x\"!>", "<1\"#\"?>", NOT, "<\"x\">", "<>", "<2>");
    close_bytes(&b);
}

/* Every range of code points becomes exactly its UTF-8 forms. */
static void test_ranges(void **state)
{
    (void)state;
    static const uint32_t edges[] = {0,      1,       0x7f,    0x80,    0x81,    0xbf,    0xc0,
                                     0x7ff,  0x800,   0xfff,   0x1000,  0x1041,  0xd7ff,  0xe000,
                                     0xffff, 0x10000, 0x10fff, 0x3ffff, 0x40001, 0x10ffff};
    struct bytes b = open_bytes();
    for (size_t i = 0; i < BN_ARRAY_LEN(edges); i++)
        for (size_t k = i; k < BN_ARRAY_LEN(edges); k++) {
            char text[64];
            snprintf(text, sizeof text, "root ::= [\\U%08x-\\U%08x]", edges[i], edges[k]);
            struct bn_grammar *g = open_grammar(b.tree, GBNF, text);
            for (size_t e = 0; e < BN_ARRAY_LEN(edges); e++)
                for (int d = -1; d <= 1; d++) {
                    uint32_t c = edges[e] + (uint32_t)d;
                    char form[5] = {0};
                    if (c == 0 || bn_utf8_encode(form, c) == 0) continue;
                    if (fits(g, form) != (c >= edges[i] && c <= edges[k]))
                        fail_msg("%s and U+%04X", text, c);
                }
            bn_grammar_close(g);
        }
    close_bytes(&b);
}

static void test_gbnf_errors(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "no rule 'root'"},
        {"x ::= \"a\"", "no rule 'root'"},
        {"root ::= \"a\"\n  | b", "line 2, column 3: the name of a rule is missing"},
        {"root ::= \"a\" b\n", "line 1, column 14: rule 'b' is not defined"},
        {"root ::= \"a", "line 1, column 10: '\"' is not closed"},
        {"root ::= [a-", "line 1, column 10: '[' is not closed"},
        {"root ::= [z-a]", "column 11: the range ends before it begins"},
        {"root ::= (\"a\"", "column 10: '(' is not closed"},
        {"root ::= \"a\" )", "column 14: not understood"},
        {"root ::= \"\\q\"", "column 11: unknown escape"},
        {"root ::= \"\\xg0\"", "hexadecimal digit"},
        {"root ::= \"\\ud800\"", "column 11: not a character"},
        {"root ::= \"a\"{2,1}", "column 13: the second number is smaller"},
        {"root ::= \"a\"{", "a number is missing after '{'"},
        {"root ::= \"a\"{1", "'{' is not closed"},
        {"root : \"a\"", "column 6: '::=' is missing"},
        {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: a rule of this name"},
        {"root ::= root \"a\"", "line 1, column 1: rule 'root' refers to itself before any"},
        {"root ::= a\na ::= b? \"x\"* c\nb ::= \"b\"\nc ::= a", "rule 'a' refers to itself"},
        {"root ::= \"a\" root", "rule 'root' can never be complete"},
        {"root ::= \"a\" | [^\\U00000000-\\U0010ffff] x\nx ::= \"x\" x", "'x' can never"},
        {"root ::= \"\xff\"", "not valid UTF-8"},
        {"root ::= \"a\"\n  %json {}", "line 2, column 3: the name of a rule is missing"},
        {"root ::= x\nx ::= %json {\"type\": string}", "line 2, column 22: bad JSON after '%json'"},
        {"root ::= %json", "line 1, column 15: bad JSON"},
        {"root ::= x\nx ::= %json {\"properties\":{\"y\":{\"type\":1}}}",
         "schema, at 'x#/properties/y': 'type' is"},
        {"root ::= %json {\"minimum\":\"1\"}", "root#"},
        {"root ::= %regex [a-z]", "no JSON string after '%regex'"},
    };
    struct bytes b = open_bytes();
    for (size_t i = 0; i < BN_ARRAY_LEN(cases); i++)
        expect_refused(&b, GBNF, cases[i].text, BITNET_E_FORMAT, cases[i].part);
    close_bytes(&b);
}

static void test_gbnf_limits(void **state)
{
    (void)state;
    struct bytes b = open_bytes();
    static char text[2 << 20];
    expect_refused(&b, GBNF, "root ::= \"a\"{16385}", BITNET_E_LIMIT, "16384 repetitions");
    expect_refused(&b, GBNF, "root ::= (\"a\"{10000}){10000}", BITNET_E_LIMIT, "131072 symbols");
    expect_refused(&b, GBNF, "root ::= (((\"\"){16000}){16000}){16000} (\"ab\"{9999}){9999}",
                   BITNET_E_LIMIT, "131072 symbols");
    memset(text, '(', 300);
    memcpy(text, "root ::= ", 9);
    expect_refused(&b, GBNF, text, BITNET_E_LIMIT, "256 parentheses");
    size_t n = 0;
    for (int i = 0; i < 9000; i++) n += (size_t)sprintf(text + n, "r%d ::= \"x\"\n", i);
    expect_refused(&b, GBNF, text, BITNET_E_LIMIT, "8193 rules, the most is 8192");
    n = (size_t)sprintf(text, "root ::= \"a\"");
    for (uint32_t i = 0; i < 1100; i++) /* as many pairs of bytes */
        n += (size_t)sprintf(text + n, " | [\\x%02x\\x%02x]", i % 64, 64 + i / 64);
    expect_refused(&b, GBNF, text, BITNET_E_LIMIT, "classes of bytes, the most is 1024");
    memset(text, ' ', sizeof text - 1);
    expect_refused(&b, GBNF, text, BITNET_E_LIMIT, "the most is 1048576");
    close_bytes(&b);
}

/* What is found out about rules passes from one to the next, in whatever order they stand; but not
 * round and round. */
static void test_gbnf_chains(void **state)
{
    (void)state;
    enum { N = 8000 };
    static char text[1 << 20];
    struct bytes b = open_bytes();
    for (int step = 1; step < N; step += N - 2) { /* upwards; downwards */
        size_t n = (size_t)sprintf(text, "root ::= \"a\" | r0\nr%d ::= \"z\"\n", N);
        for (int i = 0, at = step > 1 ? N - 1 : 0; i < N; i++, at = (at + step) % N)
            n += (size_t)sprintf(text + n, "r%d ::= \"x\" r%d\n", at, at + 1);
        bn_grammar_close(open_grammar(b.tree, GBNF, text));
    }
    size_t n = (size_t)sprintf(text, "root ::= \"x\" r0 | \"z\"\nr0 ::= \"x\" r1 | \"y\" root\n");
    for (int i = 1; i < N; i++)
        n += (size_t)sprintf(text + n, "r%d ::= \"x\" r%d | \"y\" r%d\n", i, i + 1, i - 1);
    sprintf(text + n, "r%d ::= \"y\" r%d\n", N, N - 1);
    expect_refused(&b, GBNF, text, BITNET_E_LIMIT, "circles that 16777216 steps do not settle");
    close_bytes(&b);
}

/* ------------------------------------------------------------------ the matcher */

static void test_end(void **state)
{
    (void)state;
    struct bytes b = open_bytes();
    struct bn_grammar *g = open_grammar(b.tree, GBNF, "root ::= \"a\" \"b\"* | \"c\"");
    struct bn_matcher *m = open_matcher(g);
    uint64_t mask[BYTE_VOCAB / 64 + 1];
    int32_t only;
    assert_int_equal(bn_matcher_mask(m, mask, &only), 3); /* a, c, ab */
    assert_false(bn_matcher_allows(m, BYTE_END));
    assert_false(bn_matcher_accept(m, BYTE_END));
    assert_false(bn_matcher_accept(m, 'b'));
    assert_false(bn_matcher_accept(m, -1));
    assert_false(bn_matcher_accept(m, BYTE_VOCAB));
    assert_true(bn_matcher_accept(m, BYTE_AB));
    assert_int_equal(bn_matcher_mask(m, mask, &only), 2);
    assert_true(bn_matcher_allows(m, BYTE_END));
    assert_false(bn_matcher_done(m)); /* more b may follow */
    assert_true(bn_matcher_accept(m, BYTE_END));
    assert_true(bn_matcher_done(m));
    assert_false(bn_matcher_accept(m, 'b'));
    assert_int_equal(bn_matcher_mask(m, mask, &only), 0);
    bn_matcher_close(m);
    m = open_matcher(g);
    assert_true(bn_matcher_accept(m, 'c'));
    assert_true(bn_matcher_done(m)); /* nothing can follow */
    assert_int_equal(bn_matcher_mask(m, mask, &only), 1);
    assert_int_equal(only, BYTE_END);
    bn_matcher_close(m);
    bn_grammar_close(g);
    close_bytes(&b);
}

/* A mask says of every token what a trial says. */
static uint32_t expect_mask(struct bn_matcher *m, uint32_t n_vocab, uint64_t *mask)
{
    int32_t only;
    uint32_t n = bn_matcher_mask(m, mask, &only), found = 0;
    for (uint32_t id = 0; id < n_vocab; id++) {
        bool set = mask[id / 64] >> id % 64 & 1;
        if (set != bn_matcher_allows(m, (int32_t)id)) fail_msg("token %u", id);
        found += set;
    }
    assert_int_equal(n, found);
    if (n) assert_true(mask[only / 64] >> only % 64 & 1);
    else assert_int_equal(only, -1);
    return n;
}

/* The stack is bounded, and whatever is begun can be ended within the bound. */
static void test_depth(void **state)
{
    (void)state;
    struct bytes b = open_bytes();
    struct bn_grammar *g =
        open_grammar(b.tree, GBNF, "root ::= \"(\" two \")\" | \"x\"\ntwo ::= \"[\" root \"]\"");
    struct bn_matcher *m = open_matcher(g);
    uint64_t mask[BYTE_VOCAB / 64 + 1];
    uint32_t depth = 0, n;
    while ((n = expect_mask(m, BYTE_VOCAB, mask)) > 0) {
        if (!bn_matcher_accept(m, depth % 2 ? '[' : '(')) break;
        depth++;
    }
    assert_int_equal(n, 1); /* the x */
    assert_int_equal(depth, 256);
    assert_true(bn_matcher_accept(m, 'x'));
    for (; depth > 0; depth--) assert_true(bn_matcher_accept(m, depth % 2 ? ')' : ']'));
    assert_true(bn_matcher_done(m));
    bn_matcher_close(m);
    bn_grammar_close(g);
    /* recursion at the end of a rule is a list: it needs no stack */
    g = open_grammar(b.tree, GBNF, "root ::= \"a\" | \"a,\" root");
    m = open_matcher(g);
    for (int i = 0; i < 5000; i++) assert_int_equal(feed(m, "a,"), 2);
    assert_int_equal(feed(m, "a"), 1);
    assert_true(bn_matcher_accept(m, BYTE_END));
    bn_matcher_close(m);
    bn_grammar_close(g);
    close_bytes(&b);
}

/* A grammar whose stacks double with every byte: at the bound tokens are refused, by mask and trial
 * alike. */
static void test_stacks(void **state)
{
    (void)state;
    struct bytes b = open_bytes();
    struct bn_grammar *g = open_grammar(
        b.tree, GBNF, "root ::= \"a\" root \"x\" | \"a\" root \"y\" | \"ab\" root \"z\" | \"b\"");
    struct bn_matcher *m = open_matcher(g);
    uint64_t mask[BYTE_VOCAB / 64 + 1];
    uint32_t n = 0;
    while (expect_mask(m, BYTE_VOCAB, mask) && bn_matcher_accept(m, 'a')) n++;
    assert_in_range(n, 8, 14);
    assert_true(bn_matcher_accept(m, 'b'));
    while (!bn_matcher_done(m)) {
        assert_true(expect_mask(m, BYTE_VOCAB, mask) > 0);
        if (!bn_matcher_accept(m, 'x')) break;
    }
    assert_true(bn_matcher_done(m));
    bn_matcher_close(m);
    bn_grammar_close(g);
    close_bytes(&b);
}

/* ------------------------------------------------------------------ a real vocabulary */

static const struct {
    enum grammar_kind kind;
    const char *text;
} mixed[] = {
    {SCHEMA, NULL},
    {GBNF, "root ::= [^<]* \"<\" [a-z]+ \">\" .{0,12}"},
    {GBNF, "root ::= line{2,5}\nline ::= \"- \" word (\" \" word)* \".\\n\"\nword ::= [a-zA-Z']+"},
    {GBNF, "root ::= \"\\\"\" text \"\\\"\" (\" \" root)?\ntext ::= ([^\"\\\\] | \"\\\\\" .)*"},
    {GBNF, "root ::= (\"a\" | \"an\" | \"ant\" | \" \" | [b-z])+ root | \"!\""},
    {GBNF, "root ::= [a-z ]* \"!\" | [a-z ]{0,9} \"?\" | [a-z ]{2,30} \"...\""},
    {GBNF, "root ::= (name \" and \"){0,20} name\nname ::= ([a-z] | \"th\" | \" \"){1,12}"},
    {GBNF,
     "root ::= text\ntext ::= [^<]* (\"<\" tag)?\ntag ::= (\"<\" tag | [^<>] text | \">\" %json "
     "{\"type\":\"array\",\"items\":{\"type\":\"string\"}})?"},
    {SCHEMA, "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":9}}"},
    {SCHEMA, "{\"properties\":{\"the\":{\"type\":\"number\",\"minimum\":-1.5},\"then\":{\"type\":"
             "\"string\",\"pattern\":\"^[a-z]+( and [a-z]+)?$\"}},\"required\":[\"the\"],"
             "\"additionalProperties\":true}"},
    {SCHEMA, "{\"anyOf\":[{\"$ref\":\"#/$defs/t\"},{\"enum\":[\"once\",\"upon\",\"a time\",12]}],"
             "\"$defs\":{\"t\":{\"type\":\"array\",\"items\":{\"$ref\":\"#\"},\"maxItems\":3}}}"},
};

static int32_t draw(struct bn_rng *r, const uint64_t *mask, uint32_t n_vocab, uint32_t n)
{
    uint32_t skip = bn_rng_below(r, n);
    for (uint32_t id = 0; id < n_vocab; id++)
        if ((mask[id / 64] >> id % 64 & 1) && skip-- == 0) return (int32_t)id;
    return -1;
}

static void test_masks(void **state)
{
    (void)state;
    enum { N_VOCAB = 4100, MASKS = 200, LONGEST = 60 }; /* a few more than there are tokens */
    struct bn_tokenizer *t = open_stories();
    struct bn_token_tree *tree;
    struct bn_rng rng = {3};
    static uint64_t mask[N_VOCAB / 64 + 1];
    assert_int_equal(bn_token_tree_open(&tree, t, N_VOCAB, NULL), BITNET_OK);
    for (size_t i = 0; i < BN_ARRAY_LEN(mixed); i++) {
        struct bn_grammar *g = open_grammar(tree, mixed[i].kind, mixed[i].text);
        for (uint32_t masks = 0; masks < MASKS;) {
            struct bn_matcher *m = open_matcher(g);
            long before = n_allocations;
            for (uint32_t k = 0; k < LONGEST; k++, masks++) {
                uint32_t n = expect_mask(m, N_VOCAB, mask);
                if (n == 0) break;
                int32_t id = draw(&rng, mask, N_VOCAB, n);
                const struct bn_vocab *v = bn_tokenizer_vocab(t);
                assert_true(bn_token_is_end(t, id) || v->types[id] != BN_TOKEN_CONTROL);
                assert_true(bn_matcher_accept(m, id));
                if (bn_matcher_done(m)) break;
            }
            assert_int_equal(n_allocations, before);
            bn_matcher_close(m);
        }
        bn_grammar_close(g);
    }
    bn_token_tree_close(tree);
    bn_tokenizer_close(t);
}

/* Text as the tokenizer cuts it passes, whatever the borders. */
static void test_real_tokens(void **state)
{
    (void)state;
    struct bn_tokenizer *t = open_stories();
    struct bn_token_tree *tree;
    assert_int_equal(bn_token_tree_open(&tree, t, 4096, NULL), BITNET_OK);
    struct bn_grammar *g = open_grammar(tree, SCHEMA, NULL);
    static const char text[] =
        "{\"name\": \"Lily \\u00e9\\ud83d\\ude00\\n \xf0\x9f\x98\x80\",\"n\":"
        "[1, -2.5e+3,{\"\":{}},[],true, null]}";
    struct bn_tokens ids = encode_n(t, text, strlen(text), 0);
    struct bn_matcher *m = open_matcher(g);
    for (size_t i = 0; i < ids.n; i++) {
        if (bn_matcher_done(m)) fail_msg("done before token %zu", i);
        if (!bn_matcher_accept(m, ids.ids[i])) fail_msg("token %zu", i);
    }
    assert_true(bn_matcher_done(m));
    bn_tokens_free(&ids);
    bn_matcher_close(m);
    bn_grammar_close(g);
    bn_token_tree_close(tree);
    bn_tokenizer_close(t);
}

/* ------------------------------------------------------------------ memory */

/* Everything opened with the k-th allocation refused; true: it went well. */
static bool open_all(const struct bn_tokenizer *t, enum grammar_kind kind, const char *text)
{
    struct bn_token_tree *tree = NULL;
    struct bn_grammar *g = NULL;
    struct bn_matcher *m = NULL;
    bitnet_error err = {0};
    bool good = bn_token_tree_open(&tree, t, 300, &err) == BITNET_OK &&
                make_grammar(&g, tree, kind, text, &err) == BITNET_OK &&
                bn_matcher_open(&m, g, &err) == BITNET_OK;
    long at = fail_at;
    fail_at = -1;
    if (!good && (at < 0 || !err.text[0])) fail_msg("%s", err.text);
    bn_matcher_close(m);
    bn_grammar_close(g);
    bn_token_tree_close(tree);
    return good;
}

static void test_no_memory(void **state)
{
    (void)state;
    struct bn_tokenizer *t = open_stories();
    for (size_t i = 0; i < BN_ARRAY_LEN(mixed); i++) {
        long k = 0;
        do {
            n_allocations = 0;
            fail_at = k++;
        } while (!open_all(t, mixed[i].kind, mixed[i].text) && k < 100000);
        assert_true(k > 10 && k < 100000);
    }
    bn_tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gbnf),        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_gbnf_errors), cmocka_unit_test(test_gbnf_chains),
        cmocka_unit_test(test_gbnf_limits), cmocka_unit_test(test_end),
        cmocka_unit_test(test_depth),       cmocka_unit_test(test_stacks),
        cmocka_unit_test(test_masks),       cmocka_unit_test(test_real_tokens),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
