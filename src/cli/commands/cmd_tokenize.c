/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_tokenize.c: `bitnet tokenize`: standard input to token ids, and back with --decode. Input of
 * tens of megabytes is ordinary, so the ids are printed as they stand, never gathered in a JSON
 * tree.
 */
#include "base/utf8.h"
#include "cli/core/command.h"
#include "cli/options/model_opts.h"
#include "app/term.h"
#include "app/textio.h"
#include "app/tokens.h"
#include <stdlib.h>

struct tokenize_config {
    struct model_path path;
    bool special, bos, json, decode;
};

#define AT(field) offsetof(struct tokenize_config, field)
static const struct opt table[] = {
    {.kind = OPT_FLAG,
     .name = "special",
     .help = "recognise special tokens in the text; with --decode, show them",
     .offset = AT(special)},
    {.kind = OPT_FLAG,
     .name = "bos",
     .help = "put the beginning-of-text token first",
     .offset = AT(bos)},
    {.kind = OPT_FLAG,
     .letter = 'd',
     .name = "decode",
     .help = "read ids (spaces, commas, lines or a JSON array) and write their bytes",
     .offset = AT(decode)},
    {.kind = OPT_FLAG,
     .name = "json",
     .help = "print {\"ids\": [...], \"tokens\": [...]}; with --decode, {\"text\": ...}",
     .offset = AT(json)},
    {.kind = OPT_END},
};
static const struct opt_part parts[] = {
    {"Text", table, 0},
    {"Model", model_path_table, AT(path)},
    {NULL, NULL, 0},
};
#undef AT

static void print_ids(const int32_t *ids, size_t n, const char *separator)
{
    for (size_t i = 0; i < n; i++) printf("%s%d", i ? separator : "", (int)ids[i]);
}

static int print_json(const bitnet_model *m, const int32_t *ids, size_t n)
{
    printf("{\"ids\": [");
    print_ids(ids, n, ", ");
    printf("], \"tokens\": [");
    for (size_t i = 0; i < n; i++) {
        const char *text = bitnet_token_text(m, ids[i]);
        if (!text) text = "";
        struct bn_json *s = term_json_string(text, strlen(text));
        char *quoted = bn_json_dump(s, 0);
        bn_json_free(s);
        if (!quoted) return term_fail_text("out of memory while printing tokens");
        if (i) fputs(", ", stdout);
        fputs(quoted, stdout);
        free(quoted);
    }
    printf("]}\n");
    return EXIT_DONE;
}

static int encode(const struct tokenize_config *c, const bitnet_model *m, const char *text,
                  size_t len)
{
    bitnet_error err = {0};
    int32_t *ids;
    size_t n;
    uint32_t flags = (c->bos ? BITNET_TOK_BOS : 0) | (c->special ? BITNET_TOK_SPECIAL : 0);
    if (tokens_encode(&ids, &n, m, text, len, flags, &err) != BITNET_OK) return term_fail(&err);
    int code = EXIT_DONE;
    if (c->json) {
        code = print_json(m, ids, n);
    } else {
        print_ids(ids, n, " ");
        fputc('\n', stdout);
    }
    free(ids);
    return code;
}

static int print_decoded(const struct tokenize_config *c, const char *text, size_t n)
{
    if (!c->json) {
        fwrite(text, 1, n, stdout);
        return EXIT_DONE;
    }
    size_t bad_at;
    if (!bn_utf8_valid(text, n, &bad_at))
        return term_fail_text(
            "the ids give bytes that are not UTF-8 (byte %zu), which JSON cannot hold; "
            "leave out --json to have them as they are",
            bad_at);
    return term_print_json(bn_json_pack("{s:o}", "text", bn_json_stringn(text, n)));
}

static int decode(const struct tokenize_config *c, const bitnet_model *m, const char *input,
                  size_t len, const char *what)
{
    bitnet_error err = {0};
    int32_t *ids;
    size_t n, n_text;
    if (textio_parse_ids(&ids, &n, input, len, what, &err) != BITNET_OK) return term_fail(&err);
    char *text;
    bitnet_status s =
        tokens_decode(&text, &n_text, m, ids, n, c->special ? BITNET_TOK_SPECIAL : 0, &err);
    free(ids);
    if (s != BITNET_OK) return term_fail(&err);
    int code = print_decoded(c, text, n_text);
    free(text);
    return code;
}

static int run(void *config, const struct arg_words *words)
{
    struct tokenize_config *c = config;
    char **typed = words->items;
    size_t n_typed = words->n;
    if (!c->path.typed && n_typed && model_path_looks_like(typed[0])) {
        c->path.model = *typed++;
        n_typed--;
    }
    if (c->decode && c->bos) return term_usage("tokenize", "--bos has no meaning with --decode");
    bitnet_model *m;
    int code = model_open_vocab(&m, &c->path, "tokenize");
    if (code != EXIT_DONE) return code;
    bitnet_error err = {0};
    char *input;
    size_t len;
    bitnet_status s = n_typed ? textio_join(&input, &len, typed, n_typed, &err)
                              : textio_read(&input, &len, "-", &err);
    if (s == BITNET_OK) {
        code = c->decode ? decode(c, m, input, len, n_typed ? "the words" : "standard input")
                         : encode(c, m, input, len);
        free(input);
    } else {
        code = term_fail(&err);
    }
    bitnet_model_close(m);
    return code;
}

const struct command cmd_tokenize = {
    .name = "tokenize",
    .usage = "[MODEL] [TEXT...] [options]",
    .about =
        "\n"
        "Prints the ids of the words, or of standard input exactly as it is, line ends included. "
        "A file\n"
        "with a vocabulary and no weights is enough. The first word is the model if it is a file "
        "or path.\n"
        "\n"
        "  bitnet tokenize \"Once upon a time\"\n"
        "  bitnet tokenize model.gguf --bos < text.txt\n"
        "  bitnet tokenize --decode 390 389 262\n",
    .parts = parts,
    .config_bytes = sizeof(struct tokenize_config),
    .max_words = 4096,
    .run = run,
};
