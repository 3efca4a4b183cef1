/* SPDX-License-Identifier: Apache-2.0
 * tokenizer.json of Hugging Face: the vocabulary, and from normalizer and pre-tokenizer the few
 * facts that describe the text's way (patterns, space marks, normal form). Whatever is not
 * understood is an error that names it: a tokenizer that is nearly right gives wrong text in
 * silence. */
#include "text/tokenizer/hf_impl.h"

#include <stdlib.h>

#define SPACE_MARK "\xe2\x96\x81"
/* ASCII punctuation and Unicode's, as the pre-tokenizer "Punctuation" counts it */
#define PUNCTUATION "[\\p{P}\\$\\+<=>\\^~\\|`]"

enum { MAX_STEPS = 64 }; /* normalizers and pre-tokenizers in a sequence */

struct reader {
    struct bn_vocab *v;
    const char *what; /* the path, for errors */
    bitnet_error *err;
    bool byte_level, space_mark; /* what the steps have shown so far */
};

static bitnet_status unsupported(struct reader *r, const char *kind, const char *name)
{
    return bn_fail(r->err, BITNET_E_UNSUPPORTED, "%s: %s '%.100s' is not supported", r->what, kind,
                   name);
}

static const char *type_of(const struct bn_json *step)
{
    const char *type = bn_json_text(bn_json_get(step, "type"));
    return type ? type : "without a type";
}

static bool is_text(const struct bn_json *s, const char *want)
{
    return bn_json_is_string(s) && strcmp(bn_json_text(s), want) == 0;
}

/* Runs fn over a step or over every step of a sequence. */
typedef bitnet_status (*step_fn)(struct reader *r, const struct bn_json *step);

static bitnet_status each_step(struct reader *r, const struct bn_json *step, const char *list,
                               step_fn fn)
{
    if (!step || bn_json_is_null(step)) return BITNET_OK;
    if (strcmp(type_of(step), "Sequence") != 0) return fn(r, step);
    const struct bn_json *steps = bn_json_get(step, list);
    if (!bn_json_is_array(steps) || bn_json_size(steps) > MAX_STEPS)
        return bn_fail(r->err, BITNET_E_FORMAT, "%s: '%s' is not a list of at most %d steps",
                       r->what, list, MAX_STEPS);
    for (size_t i = 0; i < bn_json_size(steps); i++) BN_TRY(fn(r, bn_json_at(steps, i)));
    return BITNET_OK;
}

/* ------------------------------------------------------------------ normalizer */

static bitnet_status read_normalizer(struct reader *r, const struct bn_json *step)
{
    const char *type = type_of(step);
    if (strcmp(type, "NFC") == 0) {
        r->v->normalizer = "nfc";
        return BITNET_OK;
    }
    if (strcmp(type, "Prepend") == 0 && is_text(bn_json_get(step, "prepend"), SPACE_MARK)) {
        r->v->add_space_prefix = true;
        return BITNET_OK;
    }
    const struct bn_json *pattern = bn_json_get(bn_json_get(step, "pattern"), "String");
    if (strcmp(type, "Replace") == 0 && is_text(pattern, " ") &&
        is_text(bn_json_get(step, "content"), SPACE_MARK)) {
        r->space_mark = true;
        return BITNET_OK;
    }
    return unsupported(r, "normalizer", type);
}

/* ------------------------------------------------------------------ pre-tokenizer */

static bitnet_status add_pattern(struct reader *r, const char *text, size_t n)
{
    struct bn_vocab *v = r->v;
    if (v->n_patterns == BN_VOCAB_MAX_PATTERNS || n > BN_VOCAB_MAX_PATTERN_BYTES ||
        strlen(text) != n)
        return bn_fail(r->err, BITNET_E_LIMIT, "%s: more than %d patterns, or one of %zu bytes",
                       r->what, BN_VOCAB_MAX_PATTERNS, n);
    const char *copy = bn_arena_strn(&v->arena, text, n);
    if (!copy) return bn_fail_nomem(r->err, n, "patterns");
    v->patterns[v->n_patterns++] = copy;
    return BITNET_OK;
}

/* plain text as a pattern that matches it */
static bitnet_status add_literal(struct reader *r, const char *text)
{
    char out[2 * 256 + 1];
    size_t k = 0;
    for (; *text && k + 2 < sizeof out; text++) {
        if (strchr("\\^$.[]|()?*+{}-#&", *text)) out[k++] = '\\';
        out[k++] = *text;
    }
    out[k] = 0;
    if (*text)
        return bn_fail(r->err, BITNET_E_LIMIT, "%s: a split string of more than 256 bytes",
                       r->what);
    return add_pattern(r, out, k);
}

static bitnet_status read_split(struct reader *r, const struct bn_json *step)
{
    const char *behavior = bn_json_text(bn_json_get(step, "behavior"));
    const struct bn_json *pattern = bn_json_get(step, "pattern");
    const struct bn_json *regex = bn_json_get(pattern, "Regex"),
                         *string = bn_json_get(pattern, "String");
    /* after the normalizer has turned spaces into marks there is nothing left to split at */
    if (r->space_mark && is_text(string, " ")) return BITNET_OK;
    if (!behavior || strcmp(behavior, "Isolated") != 0)
        return unsupported(r, "split behavior", behavior ? behavior : "none");
    if (bn_json_is_string(regex)) return add_pattern(r, bn_json_text(regex), bn_json_bytes(regex));
    if (bn_json_is_string(string)) return add_literal(r, bn_json_text(string));
    return bn_fail(r->err, BITNET_E_FORMAT, "%s: a split without a pattern", r->what);
}

static bitnet_status read_byte_level(struct reader *r, const struct bn_json *step)
{
    bool prefix = true, regex = true;
    BN_TRY(bn_json_read_bool(&prefix, step, "add_prefix_space", r->what, r->err));
    BN_TRY(bn_json_read_bool(&regex, step, "use_regex", r->what, r->err));
    if (prefix && r->v->n_patterns > 0)
        return unsupported(r, "pre-tokenizer option", "add_prefix_space after a split");
    r->byte_level = true;
    r->v->add_space_prefix = prefix;
    const char *gpt2 = bn_pre_patterns("gpt-2", NULL)[0];
    return regex ? add_pattern(r, gpt2, strlen(gpt2)) : BITNET_OK;
}

static bitnet_status read_digits(struct reader *r, const struct bn_json *step)
{
    bool single = false;
    BN_TRY(bn_json_read_bool(&single, step, "individual_digits", r->what, r->err));
    /* Behind ByteLevel the text is in the byte alphabet, where only ASCII digits are what they
     * were. */
    const char *digit =
        r->byte_level ? (single ? "[0-9]" : "[0-9]+") : (single ? "\\p{N}" : "\\p{N}+");
    return add_pattern(r, digit, strlen(digit));
}

static bitnet_status read_punctuation(struct reader *r, const struct bn_json *step)
{
    const char *behavior = "Isolated";
    BN_TRY(bn_json_read_str(&behavior, step, "behavior", r->what, r->err));
    if (strcmp(behavior, "Isolated") == 0) return add_pattern(r, PUNCTUATION, strlen(PUNCTUATION));
    if (strcmp(behavior, "Contiguous") == 0)
        return add_pattern(r, PUNCTUATION "+", strlen(PUNCTUATION "+"));
    return unsupported(r, "punctuation behavior", behavior);
}

static bitnet_status read_metaspace(struct reader *r, const struct bn_json *step)
{
    const char *mark = SPACE_MARK, *scheme = NULL;
    bool split = true, prefix = true;
    BN_TRY(bn_json_read_str(&mark, step, "replacement", r->what, r->err));
    BN_TRY(bn_json_read_str(&scheme, step, "prepend_scheme", r->what, r->err));
    BN_TRY(bn_json_read_bool(&split, step, "split", r->what, r->err));
    BN_TRY(bn_json_read_bool(&prefix, step, "add_prefix_space", r->what, r->err)); /* older files */
    if (strcmp(mark, SPACE_MARK) != 0) return unsupported(r, "space mark", mark);
    if (!scheme) scheme = prefix ? "always" : "never";
    r->space_mark = true;
    r->v->add_space_prefix = strcmp(scheme, "never") != 0;
    r->v->prefix_first_only = strcmp(scheme, "first") == 0;
    r->v->prefix_if_missing = true;
    return split ? add_pattern(r, SPACE_MARK "[^" SPACE_MARK "]*", 2 * strlen(SPACE_MARK) + 4)
                 : BITNET_OK;
}

static bitnet_status read_pre_tokenizer(struct reader *r, const struct bn_json *step)
{
    static const struct {
        const char *type;
        step_fn read;
    } kinds[] = {
        {"Split", read_split},         {"ByteLevel", read_byte_level},
        {"Digits", read_digits},       {"Punctuation", read_punctuation},
        {"Metaspace", read_metaspace},
    };
    for (size_t i = 0; i < BN_ARRAY_LEN(kinds); i++)
        if (strcmp(kinds[i].type, type_of(step)) == 0) return kinds[i].read(r, step);
    return unsupported(r, "pre-tokenizer", type_of(step));
}

/* ------------------------------------------------------------------ post-processor */

/* A template says which tokens stand around the text: at its two ends we can put them. */
static bitnet_status read_post_processor(struct reader *r, const struct bn_json *step)
{
    if (strcmp(type_of(step), "ByteLevel") == 0) return BITNET_OK; /* offsets only */
    if (strcmp(type_of(step), "TemplateProcessing") != 0)
        return unsupported(r, "post-processor", type_of(step));
    const struct bn_json *single = bn_json_get(step, "single");
    bool before = true;
    for (size_t i = 0; i < bn_json_size(single); i++) {
        const struct bn_json *special = bn_json_get(bn_json_at(single, i), "SpecialToken");
        const char *name = bn_json_text(bn_json_get(special, "id"));
        int32_t id = -1;
        if (!special) {
            before = false;
            continue;
        }
        if (!name || !bn_hf_find_token(r->v, name, &id))
            return bn_fail(r->err, BITNET_E_FORMAT,
                           "%s: the template's token '%.100s' is not in the vocabulary", r->what,
                           name ? name : "");
        if (before ? r->v->add_bos : r->v->add_eos)
            return unsupported(r, "post-processor", "with two tokens on a side");
        if (before) {
            r->v->bos = id;
            r->v->add_bos = true;
        } else {
            r->v->eos = id;
            r->v->add_eos = true;
        }
    }
    return BITNET_OK;
}

/* ------------------------------------------------------------------ model */

static bitnet_status read_model_options(struct reader *r, const struct bn_json *model,
                                        bool *byte_fallback)
{
    const char *type = bn_json_text(bn_json_get(model, "type")), *prefix = "", *suffix = "";
    float dropout = 0;
    if (!type && bn_json_get(model, "merges")) type = "BPE"; /* older files */
    if (!type || strcmp(type, "BPE") != 0)
        return unsupported(r, "tokenizer model", type ? type : "without a type");
    bool fuse_unk = false;
    BN_TRY(bn_json_read_f32(&dropout, model, "dropout", r->what, r->err));
    BN_TRY(bn_json_read_str(&prefix, model, "continuing_subword_prefix", r->what, r->err));
    BN_TRY(bn_json_read_str(&suffix, model, "end_of_word_suffix", r->what, r->err));
    BN_TRY(bn_json_read_bool(byte_fallback, model, "byte_fallback", r->what, r->err));
    BN_TRY(bn_json_read_bool(&fuse_unk, model, "fuse_unk", r->what, r->err));
    BN_TRY(bn_json_read_bool(&r->v->ignore_merges, model, "ignore_merges", r->what, r->err));
    if (dropout != 0) return unsupported(r, "tokenizer model option", "dropout");
    if (*prefix) return unsupported(r, "tokenizer model option", "continuing_subword_prefix");
    if (*suffix) return unsupported(r, "tokenizer model option", "end_of_word_suffix");
    if (!r->byte_level && !*byte_fallback && !fuse_unk)
        return unsupported(r, "tokenizer model option", "fuse_unk false without byte_fallback");
    return BITNET_OK;
}

static bool is_byte_name(const char *s, size_t n)
{
    static const char hex[] = "0123456789ABCDEFabcdef";
    return n == 6 && memcmp(s, "<0x", 3) == 0 && s[5] == '>' && strchr(hex, s[3]) &&
           strchr(hex, s[4]);
}

static bitnet_status token_id(struct reader *r, const struct bn_json *id, const char *name,
                              size_t *out)
{
    if (!bn_json_is_int(id) || bn_json_integer(id) < 0 ||
        bn_json_integer(id) >= BN_VOCAB_MAX_TOKENS)
        return bn_fail(r->err, BITNET_E_FORMAT,
                       "%s: the id of token '%.100s' is not a number from 0 to %d", r->what, name,
                       BN_VOCAB_MAX_TOKENS - 1);
    *out = (size_t)bn_json_integer(id);
    return BITNET_OK;
}

static bitnet_status read_tokens(struct reader *r, const struct bn_json *vocab,
                                 const struct bn_json *added, bool byte_fallback)
{
    size_t n = 0, id, i;
    const char *name;
    struct bn_json *item;
    bn_json_each_member(vocab, name, item)
    {
        BN_TRY(token_id(r, item, name, &id));
        n = bn_max_size(n, id + 1);
    }
    bn_json_each(added, i, item)
    {
        const struct bn_json *content = bn_json_get(item, "content");
        if (!bn_json_is_string(content))
            return bn_fail(r->err, BITNET_E_FORMAT, "%s: added token %zu has no content", r->what,
                           i);
        BN_TRY(token_id(r, bn_json_get(item, "id"), bn_json_text(content), &id));
        n = bn_max_size(n, id + 1);
    }
    BN_TRY(bn_hf_alloc_tokens(r->v, n, r->what, r->err));
    bn_json_each_member(vocab, name, item)
    {
        size_t len = strlen(name);
        uint8_t type = !r->byte_level && byte_fallback && is_byte_name(name, len) ? BN_TOKEN_BYTE
                                                                                  : BN_TOKEN_NORMAL;
        BN_TRY(
            bn_hf_set_token(r->v, (size_t)bn_json_integer(item), name, len, type, r->what, r->err));
    }
    bn_json_each(added, i, item)
    {
        const struct bn_json *content = bn_json_get(item, "content");
        uint8_t type;
        id = (size_t)bn_json_integer(bn_json_get(item, "id"));
        BN_TRY(bn_hf_added_flags(item, &type, &r->v->strip[id], r->what, r->err));
        BN_TRY(bn_hf_set_token(r->v, id, bn_json_text(content), bn_json_bytes(content), type,
                               r->what, r->err));
    }
    return BITNET_OK;
}

/* "left right", or ["left", "right"] */
static bitnet_status read_merges(struct reader *r, const struct bn_json *merges)
{
    struct bn_vocab *v = r->v;
    size_t n = bn_json_size(merges);
    if (n > BN_VOCAB_MAX_MERGES)
        return bn_fail(r->err, BITNET_E_LIMIT, "%s: %zu merges, the most is %d", r->what, n,
                       BN_VOCAB_MAX_MERGES);
    if (n == 0) return bn_fail(r->err, BITNET_E_FORMAT, "%s: no merges", r->what);
    v->merges = bn_arena_alloc(&v->arena, 2 * n * sizeof *v->merges);
    if (!v->merges) return bn_fail_nomem(r->err, 2 * n * sizeof *v->merges, "merges");
    v->n_merges = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        const struct bn_json *m = bn_json_at(merges, i), *a = bn_json_at(m, 0),
                             *b = bn_json_at(m, 1);
        const char *left = bn_json_text(a), *right = bn_json_text(b);
        size_t nl = bn_json_bytes(a), nr = bn_json_bytes(b);
        if (bn_json_is_string(m)) {
            const char *s = bn_json_text(m), *space = bn_json_bytes(m) ? strchr(s + 1, ' ') : NULL;
            left = s;
            nl = space ? (size_t)(space - s) : 0;
            right = space ? space + 1 : NULL;
            nr = right ? strlen(right) : 0;
        }
        if (!left || !right || nl == 0 || nr == 0 || nl + nr > BN_VOCAB_MAX_TOKEN_BYTES)
            return bn_fail(r->err, BITNET_E_FORMAT, "%s: merge %zu is not a pair of texts", r->what,
                           i);
        left = bn_arena_strn(&v->arena, left, nl);
        right = bn_arena_strn(&v->arena, right, nr);
        if (!left || !right) return bn_fail_nomem(r->err, nl + nr, "merges");
        v->merges[2 * i] = (struct bn_str){left, (uint32_t)nl};
        v->merges[2 * i + 1] = (struct bn_str){right, (uint32_t)nr};
    }
    return BITNET_OK;
}

static bitnet_status read_all(struct reader *r, const struct bn_json *root)
{
    struct bn_vocab *v = r->v;
    const struct bn_json *model = bn_json_get(root, "model"), *vocab = bn_json_get(model, "vocab");
    bool byte_fallback = false;
    BN_TRY(each_step(r, bn_json_get(root, "normalizer"), "normalizers", read_normalizer));
    BN_TRY(each_step(r, bn_json_get(root, "pre_tokenizer"), "pretokenizers", read_pre_tokenizer));
    BN_TRY(read_model_options(r, model, &byte_fallback));
    if (r->byte_level == r->space_mark)
        return bn_fail(r->err, BITNET_E_UNSUPPORTED, "%s: %s", r->what,
                       r->byte_level ? "byte-level and with space marks at once"
                                     : "neither byte-level nor with SentencePiece's space marks");
    v->model = r->byte_level ? BN_VOCAB_BPE : BN_VOCAB_SPM;
    if (!bn_json_is_object(vocab))
        return bn_fail(r->err, BITNET_E_FORMAT, "%s: no vocabulary", r->what);
    BN_TRY(read_tokens(r, vocab, bn_json_get(root, "added_tokens"), byte_fallback));
    BN_TRY(read_merges(r, bn_json_get(model, "merges")));
    const char *unk = bn_json_text(bn_json_get(model, "unk_token"));
    if (unk && bn_hf_find_token(v, unk, &v->unk)) v->types[v->unk] = BN_TOKEN_UNKNOWN;
    if (v->model == BN_VOCAB_BPE) {
        /* no pattern at all: the whole text is one piece */
        if (v->n_patterns == 0)
            BN_TRY(add_pattern(r, "[\\x{0}-\\x{10ffff}]+", strlen("[\\x{0}-\\x{10ffff}]+")));
        v->pre = bn_pre_name(v->patterns, v->n_patterns, v->ignore_merges);
    }
    return each_step(r, bn_json_get(root, "post_processor"), "processors", read_post_processor);
}

bitnet_status bn_vocab_read_hf(struct bn_vocab *v, const char *tokenizer_json_path,
                               bitnet_error *err)
{
    struct bn_json *root = NULL, *config = NULL;
    struct reader r = {.v = v, .what = tokenizer_json_path, .err = err};
    bn_vocab_init(v);
    bitnet_status st = bn_json_read_file(&root, tokenizer_json_path, BN_VOCAB_MAX_FILE_BYTES, err);
    if (st == BITNET_OK) st = read_all(&r, root);
    if (st == BITNET_OK)
        st = bn_hf_read_beside(&config, tokenizer_json_path, "tokenizer_config.json", err);
    if (st == BITNET_OK) st = bn_hf_read_config(v, tokenizer_json_path, config, err);
    if (st == BITNET_OK) st = bn_vocab_check(v, tokenizer_json_path, err);
    bn_json_free(root);
    bn_json_free(config);
    if (st != BITNET_OK) bn_vocab_free(v);
    return st;
}
