/* SPDX-License-Identifier: Apache-2.0
 * Constrained texts without a model: what bn_matcher_mask allows is drawn from at random.
 *
 *   grammar_draw draw TOKENIZER.json SCHEMA N SEED    N whole texts, one a line
 *   grammar_draw check TOKENIZER.json SCHEMA N SEED   N masks compared with a trial of every token
 *   grammar_draw time TOKENIZER.json SCHEMA N SEED    microseconds a mask, first and second time
 *   grammar_draw many TOKENIZER.json LINES N SEED     N texts for each of many schemas
 *
 * LINES: a file of {"schema": ..., "instances": [[text, ...], ...]}. For each line comes one with "us", the time
 * that the grammar took, and "error", or "texts" and "rejected": the instances none of whose texts fit.
 * SCHEMA: a file; one that ends in .gbnf is a grammar; "json" is any object. */
#include "base/os/file.h"
#include "base/rng.h"
#include "json/json.h"
#include "text/grammar/grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SOON = 60, NOW = 200, LATE = 400, MAX_TOKENS = 4000 };

struct drawer {
    struct bn_tokenizer *tokenizer;
    struct bn_token_tree *tree;
    struct bn_grammar *grammar;
    struct bn_matcher *m;
    uint32_t n_vocab;
    uint64_t *mask;
    int32_t *allowed;
    int32_t tokens[MAX_TOKENS];
    uint32_t n;
    struct bn_rng rng;
};

/* time on a core: what else the machine does counts little */
static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void ok(bitnet_status st, const bitnet_error *err)
{
    if (st != BITNET_OK) die(err->text);
}

static struct bn_grammar *read_grammar(const struct drawer *d, const char *path)
{
    char *text = NULL;
    size_t n = 0, len = strlen(path);
    bitnet_error err = {0};
    struct bn_grammar *g;
    if (strcmp(path, "json") != 0) ok(bn_read_file(&text, &n, path, 1 << 20, &err), &err);
    bool gbnf = len > 5 && strcmp(path + len - 5, ".gbnf") == 0;
    uint64_t start = cpu_ns();
    ok(gbnf ? bn_grammar_from_gbnf(&g, d->tree, text, n, &err)
            : bn_grammar_from_schema(&g, d->tree, text, n, &err),
       &err);
    fprintf(stderr, "grammar: %.0f us\n", (double)(cpu_ns() - start) / 1e3);
    free(text);
    return g;
}

static struct drawer *open_drawer(const char *tokenizer, const char *schema, uint64_t seed)
{
    struct drawer *d = calloc(1, sizeof *d);
    struct bn_vocab v;
    bitnet_error err = {0};
    if (!d) die("out of memory");
    ok(bn_vocab_read_hf(&v, tokenizer, &err), &err);
    ok(bn_tokenizer_open(&d->tokenizer, &v, &err), &err);
    d->n_vocab = bn_tokenizer_vocab(d->tokenizer)->n_tokens;
    ok(bn_token_tree_open(&d->tree, d->tokenizer, d->n_vocab, &err), &err);
    if (schema) d->grammar = read_grammar(d, schema);
    d->mask = calloc(d->n_vocab / 64 + 1, sizeof *d->mask);
    d->allowed = calloc(d->n_vocab, sizeof *d->allowed);
    d->rng.state = seed;
    return d;
}

static void close_drawer(struct drawer *d)
{
    bn_matcher_close(d->m);
    bn_grammar_close(d->grammar);
    bn_token_tree_close(d->tree);
    bn_tokenizer_close(d->tokenizer);
    free(d->mask);
    free(d->allowed);
    free(d);
}

static void begin(struct drawer *d)
{
    bitnet_error err = {0};
    bn_matcher_close(d->m);
    ok(bn_matcher_open(&d->m, d->grammar, &err), &err);
    d->n = 0;
}

static bool closes(const struct drawer *d, int32_t id)
{
    size_t n;
    const char *p = bn_token_bytes(d->tokenizer, id, false, false, &n);
    return bn_token_is_end(d->tokenizer, id) || (n == 1 && strchr("\"}]", p[0]));
}

/* One of the allowed tokens; late in a text, sooner one that closes something, then one on the shortest
 * way to the end. -1: none is */
static int32_t draw(struct drawer *d)
{
    int32_t only;
    uint32_t n = 0, n_close = 0, want = bn_matcher_mask(d->m, d->mask, &only);
    uint32_t cost = bn_matcher_cost(d->m);
    if (d->n > LATE && cost != BN_NO_COST) {
        want = 0;
        if (bn_matcher_closing_mask(d->m, cost ? cost - 1 : 0, d->mask))
            for (uint32_t i = 0; i < d->n_vocab; i++) want += d->mask[i / 64] >> i % 64 & 1;
    }
    bool hurry = d->n > NOW || (d->n > SOON && bn_rng_below(&d->rng, 2));
    for (uint32_t i = 0; i < d->n_vocab; i++)
        if (d->mask[i / 64] >> i % 64 & 1) d->allowed[n++] = (int32_t)i;
    if (n != want) die("the mask has another number of tokens than it says");
    if (n == 0) return -1;
    for (uint32_t i = 0; i < n && hurry; i++)
        if (closes(d, d->allowed[i])) d->allowed[n_close++] = d->allowed[i];
    return d->allowed[bn_rng_below(&d->rng, n_close ? n_close : n)];
}

/* Goes on by one token; false: the text is at its end. */
static bool advance(struct drawer *d)
{
    int32_t id = draw(d);
    if (id < 0 && !bn_matcher_done(d->m)) die("no token is allowed and the text is not done");
    if (id < 0 || d->n == MAX_TOKENS) return false;
    if (!bn_matcher_accept(d->m, id)) die("a token of the mask is not accepted");
    if (bn_token_is_end(d->tokenizer, id)) return false;
    d->tokens[d->n++] = id;
    return true;
}

static void print_text(const struct drawer *d)
{
    for (uint32_t i = 0; i < d->n; i++) {
        size_t n;
        const char *p = bn_token_bytes(d->tokenizer, d->tokens[i], false, false, &n);
        fwrite(p, 1, n, stdout);
    }
    putchar('\n');
}

static void draw_texts(struct drawer *d, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        begin(d);
        while (advance(d)) continue;
        if (!bn_matcher_done(d->m)) die("a text does not come to an end");
        print_text(d);
    }
}

static void check_masks(struct drawer *d, uint32_t n)
{
    for (uint32_t i = 0; i < n;) {
        begin(d);
        do {
            int32_t only;
            bn_matcher_mask(d->m, d->mask, &only);
            for (uint32_t id = 0; id < d->n_vocab; id++)
                if (bn_matcher_allows(d->m, (int32_t)id) != (d->mask[id / 64] >> id % 64 & 1)) {
                    print_text(d);
                    fprintf(stderr, "token %u: mask and trial differ\n", id);
                    exit(1);
                }
        } while (++i < n && advance(d));
    }
    printf("%u masks\n", n);
}

static void time_masks(struct drawer *d, uint32_t n)
{
    double cold = 0, warm = 0, accept = 0, worst = 0;
    uint32_t masks = 0;
    for (uint32_t i = 0; i < n; i++) {
        begin(d);
        for (bool going = true; going; masks++) {
            int32_t only;
            uint64_t t0 = cpu_ns();
            bn_matcher_mask(d->m, d->mask, &only);
            uint64_t t1 = cpu_ns();
            bn_matcher_mask(d->m, d->mask, &only);
            uint64_t t2 = cpu_ns();
            cold += (double)(t1 - t0);
            warm += (double)(t2 - t1);
            if ((double)(t1 - t0) > worst) worst = (double)(t1 - t0);
            int32_t id = draw(d);
            t0 = cpu_ns();
            going = id >= 0 && bn_matcher_accept(d->m, id) && !bn_token_is_end(d->tokenizer, id) &&
                    ++d->n < MAX_TOKENS;
            accept += (double)(cpu_ns() - t0);
        }
    }
    printf("%u masks: %.1f us as they come (worst %.0f), %.1f us again, accept %.2f us\n", masks,
           cold / 1e3 / masks, worst / 1e3, warm / 1e3 / masks, accept / 1e3 / masks);
}

/* ------------------------------------------------------------------ many schemas */

static struct bn_json *text_of(const struct drawer *d)
{
    struct bn_buf b;
    bn_buf_init(&b, 1 << 20);
    for (uint32_t i = 0; i < d->n; i++) {
        size_t n;
        const char *p = bn_token_bytes(d->tokenizer, d->tokens[i], false, false, &n);
        bn_buf_append(&b, p, n);
    }
    struct bn_json *v = bn_json_stringn(b.data ? b.data : "", b.len);
    bn_buf_free(&b);
    return v;
}

/* Whether a text fits, byte by byte: every byte is a token. */
static bool fits(struct drawer *d, const int32_t *byte_token, const struct bn_json *text)
{
    const char *p = bn_json_text(text);
    begin(d);
    for (size_t i = 0; p && i < bn_json_bytes(text); i++) {
        int32_t id = byte_token[(uint8_t)p[i]];
        if (id < 0 || !bn_matcher_accept(d->m, id)) return false;
    }
    return p && bn_matcher_cost(d->m) == 0;
}

static struct bn_json *rejected(struct drawer *d, const int32_t *byte_token,
                                const struct bn_json *instances)
{
    struct bn_json *out = bn_json_array(), *forms, *form;
    size_t i, k;
    bn_json_each(instances, i, forms)
    {
        bool any = false;
        bn_json_each(forms, k, form) any = any || fits(d, byte_token, form);
        if (!any) bn_json_append(out, bn_json_ref(bn_json_at(forms, 0)));
    }
    return out;
}

static struct bn_json *try_schema(struct drawer *d, const int32_t *byte_token,
                                  const struct bn_json *line, uint32_t n)
{
    char *schema = bn_json_dump(bn_json_get(line, "schema"), BN_JSON_COMPACT);
    struct bn_json *out = bn_json_object(), *texts = bn_json_array();
    bitnet_error err = {0};
    uint64_t start = cpu_ns();
    bitnet_status s =
        schema ? bn_grammar_from_schema(&d->grammar, d->tree, schema, strlen(schema), &err)
               : BITNET_E_NOMEM;
    bn_json_set(out, "us", bn_json_int((int64_t)(cpu_ns() - start) / 1000));
    if (s != BITNET_OK) bn_json_set(out, "error", bn_json_string(err.text));
    for (uint32_t i = 0; s == BITNET_OK && i < n; i++) {
        begin(d);
        while (advance(d)) continue;
        if (bn_matcher_cost(d->m) == 0) bn_json_append(texts, text_of(d));
    }
    if (s == BITNET_OK)
        bn_json_set(out, "rejected", rejected(d, byte_token, bn_json_get(line, "instances")));
    bn_json_set(out, "texts", texts);
    bn_matcher_close(d->m);
    d->m = NULL;
    bn_grammar_close(d->grammar);
    d->grammar = NULL;
    free(schema);
    return out;
}

static void draw_many(struct drawer *d, const char *path, uint32_t n)
{
    int32_t byte_token[256];
    char *text;
    size_t size, used;
    bitnet_error err = {0};
    memset(byte_token, 0xff, sizeof byte_token);
    for (uint32_t id = d->n_vocab; id-- > 0;) {
        size_t len;
        const char *p = bn_token_bytes(d->tokenizer, (int32_t)id, false, false, &len);
        if (p && len == 1) byte_token[(uint8_t)p[0]] = (int32_t)id;
    }
    ok(bn_read_file(&text, &size, path, 64 << 20, &err), &err);
    for (size_t at = 0; at < size; at += used) {
        struct bn_json *line;
        ok(bn_json_parse_prefix(&line, text + at, size - at, 0, &used, path, &err), &err);
        struct bn_json *out = try_schema(d, byte_token, line, n);
        char *dump = bn_json_dump(out, BN_JSON_COMPACT);
        puts(dump ? dump : "{}");
        fflush(stdout);
        free(dump);
        bn_json_free(out);
        bn_json_free(line);
        while (at + used < size && (text[at + used] == '\n' || text[at + used] == ' ')) used++;
    }
    free(text);
}

int main(int argc, char **argv)
{
    if (argc != 6) die("usage: grammar_draw draw|check|time|many TOKENIZER.json SCHEMA N SEED");
    bool many = strcmp(argv[1], "many") == 0;
    struct drawer *d = open_drawer(argv[2], many ? NULL : argv[3], strtoull(argv[5], NULL, 10));
    uint32_t n = (uint32_t)strtoul(argv[4], NULL, 10);
    if (strcmp(argv[1], "draw") == 0) draw_texts(d, n);
    else if (many) draw_many(d, argv[3], n);
    else if (strcmp(argv[1], "check") == 0) check_masks(d, n);
    else time_masks(d, n);
    close_drawer(d);
    return 0;
}
