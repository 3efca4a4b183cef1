/* SPDX-License-Identifier: Apache-2.0
 * The way to the end of a text: what it costs beside a search through all texts, and texts drawn at
 * random that are brought to their end within a limit, whatever the limit. */
#include "grammar_common.h"

#include "alloc_count.h"
#include "base/os/file.h"
#include "base/rng.h"

/* ------------------------------------------------------------------ costs */

enum { MAX_SEARCH = 9 };

/* The fewest tokens that end a text which begins with tokens[n], by trying them all; at most `most`,
 * or most + 1. */
static uint32_t search(const struct bn_grammar *g, int32_t *tokens, uint32_t n, uint32_t most)
{
    struct bn_matcher *m = open_matcher(g);
    for (uint32_t i = 0; i < n; i++) assert_true(bn_matcher_accept(m, tokens[i]));
    uint32_t best = bn_matcher_allows(m, BYTE_END) ? 0 : most + 1;
    for (int32_t id = 0; id < BYTE_END && best > 1 && most > 0; id++) {
        if (!bn_matcher_allows(m, id)) continue;
        tokens[n] = id;
        uint32_t found = 1 + search(g, tokens, n + 1, (best < most ? best : most) - 1);
        if (found < best) best = found;
    }
    bn_matcher_close(m);
    return best;
}

/* Costs of all beginnings of up to `length` tokens. */
static void expect_costs(const struct bn_grammar *g, int32_t *tokens, uint32_t n, uint32_t length)
{
    struct bn_matcher *m = open_matcher(g);
    for (uint32_t i = 0; i < n; i++) assert_true(bn_matcher_accept(m, tokens[i]));
    assert_int_equal(bn_matcher_cost(m), search(g, tokens, n, MAX_SEARCH));
    for (int32_t id = 0; id < BYTE_END && n < length; id++) {
        uint32_t after = bn_matcher_cost_after(m, id);
        if (!bn_matcher_allows(m, id)) {
            assert_int_equal(after, BN_NO_COST);
            continue;
        }
        tokens[n] = id;
        assert_int_equal(after, search(g, tokens, n + 1, MAX_SEARCH));
        expect_costs(g, tokens, n + 1, length);
    }
    bn_matcher_close(m);
}

static void test_costs(void **state)
{
    (void)state;
    static const char *const grammars[] = {
        "root ::= \"xyz\"",
        "root ::= \"aaaa\" | \"xab\" | \"xxy\"",
        "root ::= \"abab\" | \"xyz\"",
        "root ::= \"a\"* \"b\"? | \"ab\" [x-z]{2,4}",
        "root ::= \"(\" root \")\" root | \"x\"",
        "root ::= two \"!\" | \"yyyyy\"\ntwo ::= three \"!\"\nthree ::= \"x\" | \"y\" \"z\"",
        "root ::= (\"x\" | \"\")* \"y\" (\"\" | \"z\"){3} | more\nmore ::= \"x\" more | \"x\"",
        "root ::= ([ab] \",\"){2} \"x\"{0,20} \"y\"",
    };
    struct bytes b = open_bytes();
    int32_t tokens[2 * MAX_SEARCH];
    for (size_t i = 0; i < BN_ARRAY_LEN(grammars); i++) {
        struct bn_grammar *g = open_grammar(b.tree, GBNF, grammars[i]);
        expect_costs(g, tokens, 0, 3);
        bn_grammar_close(g);
    }
    close_bytes(&b);
}

/* The cost of the empty text, of no more than n_vocab tokens of the bytes. */
static uint32_t first_cost(const struct bytes *b, uint32_t n_vocab, const char *grammar)
{
    struct bn_token_tree *tree;
    uint64_t mask[BYTE_VOCAB / 64 + 1];
    assert_int_equal(bn_token_tree_open(&tree, b->tokenizer, n_vocab, NULL), BITNET_OK);
    struct bn_grammar *g = open_grammar(tree, GBNF, grammar);
    struct bn_matcher *m = open_matcher(g);
    uint32_t cost = bn_matcher_cost(m);
    assert_int_equal(bn_matcher_closing_mask(m, cost - 1, mask), cost != BN_NO_COST);
    bn_matcher_close(m);
    bn_grammar_close(g);
    bn_token_tree_close(tree);
    return cost;
}

static void test_missing_tokens(void **state)
{
    (void)state;
    struct bytes b = open_bytes();
    assert_int_equal(first_cost(&b, BYTE_VOCAB, "root ::= \"x\""), 1);
    assert_int_equal(first_cost(&b, 'x', "root ::= \"x\""), BN_NO_COST);
    assert_int_equal(first_cost(&b, 'x', "root ::= \"x\" | \"aaa\""), 3);
    assert_int_equal(first_cost(&b, 'x', "root ::= [c-z]{4}"), 4);
    assert_int_equal(first_cost(&b, 'x', "root ::= \"aaa\" [x-z]"), BN_NO_COST);
    close_bytes(&b);
}

/* The tokens of a text that nobody could write: beyond what the numbers hold. */
static void test_endless(void **state)
{
    (void)state;
    char text[2048] = "root ::= a0 a0\n";
    for (int i = 0; i < 40; i++) {
        size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, "a%d ::= a%d a%d\n", i, i + 1, i + 1);
    }
    strcat(text, "a40 ::= \"x\"\n");
    struct bytes b = open_bytes();
    assert_int_equal(first_cost(&b, BYTE_VOCAB, text), BN_NO_COST);
    close_bytes(&b);
}

/* ------------------------------------------------------------------ texts with a limit */

static int32_t pick(struct bn_rng *r, const uint64_t *mask, uint32_t n_vocab)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_vocab; i++) n += mask[i / 64] >> i % 64 & 1;
    uint32_t skip = bn_rng_below(r, n);
    for (uint32_t id = 0; id < n_vocab; id++)
        if ((mask[id / 64] >> id % 64 & 1) && skip-- == 0) return (int32_t)id;
    fail_msg("an empty mask");
    return -1;
}

/* A text of at most `limit` tokens as the engine makes it; how many of them the limit chose. */
static uint32_t draw_text(const struct bn_grammar *g, uint32_t n_vocab, uint32_t limit,
                          struct bn_rng *r)
{
    uint64_t mask[4100 / 64 + 1];
    struct bn_matcher *m = open_matcher(g);
    uint32_t steered = 0;
    long before = n_allocs;
    for (uint32_t n = 0; n < limit && !bn_matcher_done(m); n++) {
        int32_t only;
        assert_true(bn_matcher_mask(m, mask, &only) > 0);
        int32_t id = pick(r, mask, n_vocab);
        uint32_t after = bn_matcher_cost_after(m, id), left = limit - n - 1;
        if (after > left) {
            if (!bn_matcher_closing_mask(m, left, mask)) fail_msg("no way at %u of %u", n, limit);
            id = pick(r, mask, n_vocab);
            after = bn_matcher_cost_after(m, id);
            steered++;
        }
        assert_true(after <= left);
        assert_true(bn_matcher_accept(m, id));
        assert_int_equal(bn_matcher_cost(m), after);
    }
    assert_int_equal(n_allocs, before);
    assert_int_equal(bn_matcher_cost(m), 0);
    bn_matcher_close(m);
    return steered;
}

/* Texts of limits from the least on; most of them meet it. */
static void expect_texts_end(const struct bn_token_tree *tree, uint32_t n_vocab,
                             enum grammar_kind kind, const char *text)
{
    static const uint32_t more[] = {0, 1, 5, 50};
    struct bn_grammar *g = open_grammar(tree, kind, text);
    struct bn_matcher *m = open_matcher(g);
    struct bn_rng rng = {11};
    uint32_t cost = bn_matcher_cost(m), steered = 0;
    assert_in_range(cost, 1, 200);
    for (size_t i = 0; i < BN_ARRAY_LEN(more); i++)
        for (int k = 0; k < 8; k++) steered += draw_text(g, n_vocab, cost + more[i], &rng);
    assert_true(steered > 0);
    bn_matcher_close(m);
    bn_grammar_close(g);
}

static void test_schemas(void **state)
{
    (void)state;
    static const char *const names[] = {
        "01-person",   "02-weather", "03-nested",        "04-array-of-objects", "05-enums",
        "06-integers", "07-numbers", "08-tree",          "09-linked-list",      "10-any-of",
        "11-one-of",   "12-all-of",  "13-formats",       "14-patterns",         "15-additional",
        "16-map",      "17-tuple",   "18-many-optional", "19-expression",       "20-function-call"};
    struct bn_tokenizer *t = open_stories();
    struct bn_token_tree *tree;
    assert_int_equal(bn_token_tree_open(&tree, t, 4096, NULL), BITNET_OK);
    for (size_t i = 0; i < BN_ARRAY_LEN(names); i++) {
        char path[512], *text;
        size_t n;
        snprintf(path, sizeof path, "%s/schemas/%s.json", TEST_DATA, names[i]);
        assert_int_equal(bn_read_file(&text, &n, path, 1 << 20, NULL), BITNET_OK);
        expect_texts_end(tree, 4096, SCHEMA, text);
        free(text);
    }
    expect_texts_end(tree, 4096, SCHEMA, NULL);
    bn_token_tree_close(tree);
    bn_tokenizer_close(t);
}

static void test_gbnf(void **state)
{
    (void)state;
    static const char *const grammars[] = {
        "root ::= [^<]* \"<\" [a-z]+ \">\" .{0,12} | .* \"\xf0\x9f\x98\x80!\"",
        "root ::= line{2,5}\nline ::= \"- \" word (\" \" word)* \".\\n\"\nword ::= [a-zA-Z']+",
        "root ::= [0-9]+ (\".\" [0-9]+)?",
        "root ::= \"(\" root \")\" | \"[\" root \"]\" root | \"x\"",
        /* the cheapest way is the one that needs most of the stack */
        "root ::= \"(\" root \")\" | \"<\" root \">\" | a | \"xyzxyz\"\na ::= b \"!\"\nb ::= c "
        "\"!\"\n"
        "c ::= d \"!\"\nd ::= \"y\"",
    };
    struct bytes b = open_bytes();
    for (size_t i = 0; i < BN_ARRAY_LEN(grammars); i++)
        expect_texts_end(b.tree, BYTE_VOCAB, GBNF, grammars[i]);
    close_bytes(&b);
}

/* Nesting to the bound: where the cheapest way does not fit on the stack any more, nothing goes. */
static void test_depth(void **state)
{
    (void)state;
    struct bytes b = open_bytes();
    struct bn_grammar *g =
        open_grammar(b.tree, GBNF,
                     "root ::= \"(\" root \")\" | a | \"xyzxyz\"\na ::= b \"!\"\n"
                     "b ::= c \"!\"\nc ::= \"y\"");
    struct bn_matcher *m = open_matcher(g);
    uint64_t mask[BYTE_VOCAB / 64 + 1];
    uint32_t depth = 0, steps = 0;
    for (; bn_matcher_cost_after(m, '(') != BN_NO_COST; depth++)
        assert_true(bn_matcher_accept(m, '('));
    assert_in_range(depth, 250, 256);
    assert_true(bn_matcher_allows(m, '('));
    uint32_t cost = bn_matcher_cost(m);
    assert_int_equal(cost, depth + 3);
    for (; !bn_matcher_done(m); steps++) {
        assert_true(bn_matcher_closing_mask(m, cost - steps - 1, mask));
        assert_true(bn_matcher_accept(m, pick(&(struct bn_rng){1}, mask, BYTE_VOCAB)));
    }
    assert_int_equal(steps, cost);
    bn_matcher_close(m);
    bn_grammar_close(g);
    close_bytes(&b);
}

/* Where a text may end and go on, the way to the end is a token that ends it. */
static void test_end(void **state)
{
    (void)state;
    struct bytes b = open_bytes();
    struct bn_grammar *g = open_grammar(b.tree, GBNF, "root ::= [a-z]+");
    struct bn_matcher *m = open_matcher(g);
    uint64_t mask[BYTE_VOCAB / 64 + 1];
    assert_int_equal(bn_matcher_cost(m), 1);
    assert_false(bn_matcher_closing_mask(m, 0, mask) && (mask[BYTE_END / 64] >> BYTE_END % 64 & 1));
    assert_true(bn_matcher_accept(m, 'q'));
    assert_int_equal(bn_matcher_cost(m), 0);
    assert_int_equal(bn_matcher_cost_after(m, BYTE_END), 0);
    assert_true(bn_matcher_closing_mask(m, 0, mask));
    for (uint32_t i = 0; i < BYTE_VOCAB; i++)
        assert_int_equal(mask[i / 64] >> i % 64 & 1, i == BYTE_END);
    assert_true(bn_matcher_accept(m, BYTE_END));
    assert_false(bn_matcher_closing_mask(m, 9, mask));
    bn_matcher_close(m);
    bn_grammar_close(g);
    close_bytes(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_costs),   cmocka_unit_test(test_missing_tokens),
        cmocka_unit_test(test_endless), cmocka_unit_test(test_schemas),
        cmocka_unit_test(test_gbnf),    cmocka_unit_test(test_depth),
        cmocka_unit_test(test_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
