/* SPDX-License-Identifier: Apache-2.0
 *
 * eval/read.c: items from lines of JSON. Every task is read in the form its authors publish (as the
 * Hugging Face datasets have it) and in the open forms, which are also those of a user's own files:
 *
 *   {"query": T, "choices": [T, ...], "gold": 0}                one context, several continuations
 *   {"context_options": [T, ...], "continuation": T, "gold": 0}  several contexts, one continuation
 *   {"context": T, "continuation": T}                            what must be written exactly
 */
#include "cli/eval/read.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ the set */

void eval_set_free(struct eval_set *s)
{
    free(s->items);
    free(s->groups);
    bn_arena_free(&s->texts);
    *s = (struct eval_set){0};
}

const char *eval_text(struct eval_set *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *out = n < 0 ? NULL : bn_arena_alloc(&s->texts, (size_t)n + 1);
    if (!out) return NULL;
    va_start(ap, fmt);
    vsnprintf(out, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return out;
}

bitnet_status eval_group(uint32_t *out, struct eval_set *s, const char *name, bitnet_error *err)
{
    for (size_t i = 0; i < s->n_groups; i++)
        if (strcmp(s->groups[i], name) == 0) {
            *out = (uint32_t)i;
            return BITNET_OK;
        }
    const char *kept = eval_text(s, "%s", name);
    if (!kept || !bn_grow((void **)&s->groups, &s->groups_room, s->n_groups + 1, sizeof *s->groups))
        return bn_fail_nomem(err, strlen(name), "the name of a subject");
    *out = (uint32_t)s->n_groups;
    s->groups[s->n_groups++] = kept;
    return BITNET_OK;
}

bitnet_status eval_add(struct eval_item **out, struct eval_set *s, size_t n_options, int64_t gold,
                       const char *where, bitnet_error *err)
{
    *out = NULL;
    if (n_options < 1 || n_options > EVAL_OPTIONS_MAX)
        return bn_fail(err, BITNET_E_FORMAT, "%s: %zu choices; 1 to %d are possible", where,
                       n_options, EVAL_OPTIONS_MAX);
    if (gold < 0 || (size_t)gold >= n_options)
        return bn_fail(err, BITNET_E_FORMAT, "%s: the right choice is number %lld of %zu", where,
                       (long long)gold, n_options);
    if (s->n >= EVAL_ITEMS_MAX)
        return bn_fail(err, BITNET_E_LIMIT, "%s: more than %d items", where, EVAL_ITEMS_MAX);
    struct eval_option *options = bn_arena_alloc(&s->texts, n_options * sizeof *options);
    if (!options || !bn_grow((void **)&s->items, &s->room, s->n + 1, sizeof *s->items))
        return bn_fail_nomem(err, n_options * sizeof *options, "an item");
    *out = &s->items[s->n++];
    **out = (struct eval_item){
        .options = options, .n_options = (uint32_t)n_options, .gold = (uint32_t)gold};
    return BITNET_OK;
}

/* Characters, as Python counts them. */
static uint32_t count_chars(const char *text)
{
    uint32_t n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

bitnet_status eval_option_set(struct eval_set *s, struct eval_option *o, const char *context,
                              const char *choice, bitnet_error *err)
{
    o->context = context;
    o->continuation = eval_text(s, " %s", choice);
    o->chars = count_chars(choice);
    if (context && o->continuation) return BITNET_OK;
    return bn_fail_nomem(err, strlen(choice), "the text of an item");
}

/* ------------------------------------------------------------------ members */

static bitnet_status text_of(const char **out, const struct bn_json *line, const char *key,
                             const char *where, bitnet_error *err)
{
    const struct bn_json *v = bn_json_get(line, key);
    *out = bn_json_text(v);
    if (*out && strlen(*out) == bn_json_bytes(v)) return BITNET_OK;
    return bn_fail(err, BITNET_E_FORMAT, "%s: '%s' is missing or no text", where, key);
}

/* A number, also as text: labels come in both ways. */
static bitnet_status number_of(int64_t *out, const struct bn_json *v, const char *key,
                               const char *where, bitnet_error *err)
{
    const char *text = bn_json_text(v);
    char *end = NULL;
    if (bn_json_is_int(v)) *out = bn_json_integer(v);
    else if (bn_json_is_bool(v)) *out = bn_json_is_true(v);
    else if (text && *text) *out = strtoll(text, &end, 10);
    if (bn_json_is_int(v) || bn_json_is_bool(v) || (end && !*end)) return BITNET_OK;
    return bn_fail(err, BITNET_E_FORMAT, "%s: '%s' is missing or no number", where, key);
}

static const struct bn_json *either(const struct bn_json *o, const char *a, const char *b)
{
    const struct bn_json *v = bn_json_get(o, a);
    return v ? v : bn_json_get(o, b);
}

/* One context, its choices from a list of texts. */
static bitnet_status add_choices(struct eval_set *s, const char *context,
                                 const struct bn_json *choices, int64_t gold, const char *where,
                                 bitnet_error *err)
{
    struct eval_item *item;
    BN_TRY(eval_add(&item, s, bn_json_size(choices), gold, where, err));
    for (uint32_t i = 0; i < item->n_options; i++) {
        const char *choice = bn_json_text(bn_json_at(choices, i));
        if (!choice) return bn_fail(err, BITNET_E_FORMAT, "%s: choice %u is no text", where, i);
        BN_TRY(eval_option_set(s, &item->options[i], context, choice, err));
    }
    return BITNET_OK;
}

/* ------------------------------------------------------------------ the open forms */

static bitnet_status read_contexts(struct eval_set *s, const struct bn_json *line,
                                   const char *where, bitnet_error *err)
{
    const struct bn_json *contexts = bn_json_get(line, "context_options");
    struct eval_item *item;
    const char *rest;
    int64_t gold;
    BN_TRY(number_of(&gold, bn_json_get(line, "gold"), "gold", where, err));
    BN_TRY(text_of(&rest, line, "continuation", where, err));
    BN_TRY(eval_add(&item, s, bn_json_size(contexts), gold, where, err));
    for (uint32_t i = 0; i < item->n_options; i++) {
        const char *context = bn_json_text(bn_json_at(contexts, i));
        if (!context) return bn_fail(err, BITNET_E_FORMAT, "%s: context %u is no text", where, i);
        BN_TRY(eval_option_set(s, &item->options[i], eval_text(s, "%s", context), rest, err));
    }
    return BITNET_OK;
}

static bitnet_status read_cloze(struct eval_set *s, const struct bn_json *line, const char *where,
                                bitnet_error *err)
{
    struct eval_item *item;
    const char *context, *rest;
    BN_TRY(text_of(&context, line, "context", where, err));
    BN_TRY(text_of(&rest, line, "continuation", where, err));
    BN_TRY(eval_add(&item, s, 1, 0, where, err));
    return eval_option_set(s, item->options, eval_text(s, "%s", context), rest, err);
}

bitnet_status eval_read_open(struct eval_set *s, const struct bn_json *line, const char *where,
                             bitnet_error *err)
{
    if (bn_json_get(line, "context_options")) return read_contexts(s, line, where, err);
    if (!bn_json_get(line, "choices") && bn_json_get(line, "continuation"))
        return read_cloze(s, line, where, err);
    const char *query;
    int64_t gold;
    BN_TRY(text_of(&query, line, bn_json_get(line, "query") ? "query" : "context", where, err));
    BN_TRY(number_of(&gold, bn_json_get(line, "gold"), "gold", where, err));
    return add_choices(s, eval_text(s, "%s", query), bn_json_get(line, "choices"), gold, where,
                       err);
}

/* A question in an open form, without the words around it that several collections put there. */
static bitnet_status bare_query(char **out, struct eval_set *s, const struct bn_json *line,
                                const char *prefix, const char *where, bitnet_error *err)
{
    static const char SUFFIX[] = "\nAnswer:";
    const char *query;
    BN_TRY(text_of(&query, line, "query", where, err));
    size_t skip = strlen(prefix);
    if (strncmp(query, prefix, skip) == 0) query += skip;
    size_t n = strlen(query);
    if (n >= sizeof SUFFIX - 1 && strcmp(query + n - (sizeof SUFFIX - 1), SUFFIX) == 0)
        n -= sizeof SUFFIX - 1;
    while (n && (query[n - 1] == '\n' || query[n - 1] == ' ')) n--;
    *out = bn_arena_strn(&s->texts, query, n);
    return *out ? BITNET_OK : bn_fail_nomem(err, n, "a question");
}

/* ------------------------------------------------------------------ questions with answers to choose from */

/* {"text": [...], "label": [...]}, or [{"text", "label"}, ...]: the texts as a list, and the place of
 * the right label. */
static bitnet_status labelled(struct bn_json **texts, int64_t *gold, const struct bn_json *choices,
                              const char *key, const char *where, bitnet_error *err)
{
    const struct bn_json *labels = bn_json_get(choices, "label"), *v;
    bool apart = bn_json_is_object(choices);
    size_t n = apart ? bn_json_size(labels) : bn_json_size(choices), i;
    *texts = bn_json_array();
    *gold = -1;
    for (i = 0; i < n; i++) {
        v = apart ? bn_json_at(labels, i) : bn_json_get(bn_json_at(choices, i), "label");
        const char *label = bn_json_text(v);
        if (label && strcmp(label, key) == 0) *gold = (int64_t)i;
        v = apart ? bn_json_at(bn_json_get(choices, "text"), i)
                  : bn_json_get(bn_json_at(choices, i), "text");
        bn_json_append(*texts, v ? bn_json_ref(v) : NULL);
    }
    if (bn_json_whole(*texts) && *gold >= 0) return BITNET_OK;
    bn_json_free(*texts);
    *texts = NULL;
    return bn_fail(err, BITNET_E_FORMAT, "%s: no choice has the label '%s', or one has no text",
                   where, key);
}

static bitnet_status add_labelled(struct eval_set *s, const char *context,
                                  const struct bn_json *choices, const struct bn_json *line,
                                  const char *where, bitnet_error *err)
{
    const char *key;
    struct bn_json *texts;
    int64_t gold;
    BN_TRY(text_of(&key, line, "answerKey", where, err));
    BN_TRY(labelled(&texts, &gold, choices, key, where, err));
    bitnet_status status = add_choices(s, context, texts, gold, where, err);
    bn_json_free(texts);
    return status;
}

/* An open form whose query, without `prefix` and an "Answer:" behind it, stands in the place of the task's own
 * question: after `before`. */
static bitnet_status add_query(struct eval_set *s, const struct bn_json *line, const char *prefix,
                               const char *before, const char *where, bitnet_error *err)
{
    char *query;
    int64_t gold;
    BN_TRY(bare_query(&query, s, line, prefix, where, err));
    BN_TRY(number_of(&gold, bn_json_get(line, "gold"), "gold", where, err));
    return add_choices(s, eval_text(s, "%s%s\nAnswer:", before, query),
                       bn_json_get(line, "choices"), gold, where, err);
}

bitnet_status eval_read_arc(struct eval_set *s, const struct bn_json *line, const char *where,
                            bitnet_error *err)
{
    const char *question;
    if (bn_json_get(line, "query"))
        return add_query(s, line, "Question: ", "Question: ", where, err);
    BN_TRY(text_of(&question, line, "question", where, err));
    return add_labelled(s, eval_text(s, "Question: %s\nAnswer:", question),
                        bn_json_get(line, "choices"), line, where, err);
}

bitnet_status eval_read_openbookqa(struct eval_set *s, const struct bn_json *line,
                                   const char *where, bitnet_error *err)
{
    const char *stem;
    if (bn_json_get(line, "query")) return eval_read_open(s, line, where, err);
    const struct bn_json *question = bn_json_get(line, "question");
    if (!bn_json_is_object(question)) question = line;
    BN_TRY(text_of(&stem, question, bn_json_get(question, "stem") ? "stem" : "question_stem", where,
                   err));
    return add_labelled(s, eval_text(s, "%s", stem), bn_json_get(question, "choices"), line, where,
                        err);
}

bitnet_status eval_read_piqa(struct eval_set *s, const struct bn_json *line, const char *where,
                             bitnet_error *err)
{
    const char *goal, *solution[2];
    struct eval_item *item;
    int64_t gold;
    if (bn_json_get(line, "query"))
        return add_query(s, line, "Question: ", "Question: ", where, err);
    BN_TRY(text_of(&goal, line, "goal", where, err));
    BN_TRY(text_of(&solution[0], line, "sol1", where, err));
    BN_TRY(text_of(&solution[1], line, "sol2", where, err));
    BN_TRY(number_of(&gold, bn_json_get(line, "label"), "label", where, err));
    BN_TRY(eval_add(&item, s, 2, gold, where, err));
    const char *context = eval_text(s, "Question: %s\nAnswer:", goal);
    for (int i = 0; i < 2; i++)
        BN_TRY(eval_option_set(s, &item->options[i], context, solution[i], err));
    return BITNET_OK;
}

bitnet_status eval_read_boolq(struct eval_set *s, const struct bn_json *line, const char *where,
                              bitnet_error *err)
{
    static const char *const CHOICES[] = {"no", "yes"};
    const char *passage, *question;
    struct eval_item *item;
    int64_t gold;
    if (bn_json_get(line, "query")) return add_query(s, line, "Passage: ", "", where, err);
    BN_TRY(text_of(&passage, line, "passage", where, err));
    BN_TRY(text_of(&question, line, "question", where, err));
    BN_TRY(number_of(&gold, either(line, "label", "answer"), "answer", where, err));
    BN_TRY(eval_add(&item, s, 2, gold, where, err));
    const char *context = eval_text(s, "%s\nQuestion: %s?\nAnswer:", passage, question);
    for (int i = 0; i < 2; i++)
        BN_TRY(eval_option_set(s, &item->options[i], context, CHOICES[i], err));
    return BITNET_OK;
}

/* ------------------------------------------------------------------ sentences that go on */

bitnet_status eval_read_winogrande(struct eval_set *s, const struct bn_json *line,
                                   const char *where, bitnet_error *err)
{
    const char *sentence, *name[2];
    int64_t answer;
    if (bn_json_get(line, "context_options")) return eval_read_open(s, line, where, err);
    BN_TRY(text_of(&sentence, line, "sentence", where, err));
    BN_TRY(text_of(&name[0], line, "option1", where, err));
    BN_TRY(text_of(&name[1], line, "option2", where, err));
    BN_TRY(number_of(&answer, bn_json_get(line, "answer"), "answer", where, err));
    return eval_add_winogrande(s, sentence, name, answer, where, err);
}

bitnet_status eval_add_winogrande(struct eval_set *s, const char *sentence,
                                  const char *const name[2], int64_t answer, const char *where,
                                  bitnet_error *err)
{
    const char *gap = strchr(sentence, '_');
    struct eval_item *item;
    if (!gap) return bn_fail(err, BITNET_E_FORMAT, "%s: the sentence has no gap, '_'", where);
    BN_TRY(eval_add(&item, s, 2, answer - 1, where, err));
    const char *rest = gap + 1;
    while (*rest == ' ') rest++;
    size_t n = strlen(rest);
    while (n && (rest[n - 1] == ' ' || rest[n - 1] == '\n')) n--;
    const char *kept = bn_arena_strn(&s->texts, rest, n);
    if (!kept) return bn_fail_nomem(err, n, "the text of an item");
    for (int i = 0; i < 2; i++) {
        const char *context = eval_text(s, "%.*s%s", (int)(gap - sentence), sentence, name[i]);
        BN_TRY(eval_option_set(s, &item->options[i], context, kept, err));
    }
    return BITNET_OK;
}

/* Texts of WikiHow carry marks: " [title]" ends a sentence, what else stands in brackets goes. */
static char *clean_hellaswag(struct eval_set *s, const char *text)
{
    static const char TITLE[] = " [title]";
    while (*text == ' ' || *text == '\n') text++;
    const char *last = text + strlen(text);
    while (last > text && (last[-1] == ' ' || last[-1] == '\n')) last--;
    char *out = bn_arena_alloc(&s->texts, (size_t)(last - text) + 1), *to = out;
    if (!out) return NULL;
    while (text < last) {
        const char *end;
        if (strncmp(text, TITLE, sizeof TITLE - 1) == 0) {
            *to++ = '.';
            *to++ = ' ';
            text += sizeof TITLE - 1;
        } else if (*text == '[' && (end = memchr(text, ']', (size_t)(last - text)))) {
            text = end + 1;
        } else {
            *to++ = *text++;
        }
    }
    *to = 0;
    /* two spaces become one, once, from left to right */
    for (char *from = to = out; (*to = *from) != 0; to++, from++)
        if (from[0] == ' ' && from[1] == ' ') from++;
    return out;
}

/* The first letter large, the others small, as Python's capitalize() does it in ASCII. */
static void capitalize(char *text)
{
    for (bool first = true; *text; text++, first = false) {
        if (first && *text >= 'a' && *text <= 'z') *text = (char)(*text - 'a' + 'A');
        if (!first && *text >= 'A' && *text <= 'Z') *text = (char)(*text - 'A' + 'a');
    }
}

bitnet_status eval_read_hellaswag(struct eval_set *s, const struct bn_json *line, const char *where,
                                  bitnet_error *err)
{
    const char *label, *a, *b;
    const struct bn_json *endings = bn_json_get(line, "endings");
    struct eval_item *item;
    int64_t gold;
    if (bn_json_get(line, "query")) return eval_read_open(s, line, where, err);
    BN_TRY(text_of(&label, line, "activity_label", where, err));
    BN_TRY(text_of(&a, line, "ctx_a", where, err));
    BN_TRY(text_of(&b, line, "ctx_b", where, err));
    BN_TRY(number_of(&gold, bn_json_get(line, "label"), "label", where, err));
    BN_TRY(eval_add(&item, s, bn_json_size(endings), gold, where, err));
    char *second = bn_arena_strn(&s->texts, b, strlen(b));
    if (second) capitalize(second);
    const char *joined = second ? eval_text(s, "%s: %s %s", label, a, second) : NULL;
    const char *context = joined ? clean_hellaswag(s, joined) : NULL;
    for (uint32_t i = 0; i < item->n_options; i++) {
        const char *ending = bn_json_text(bn_json_at(endings, i));
        if (!ending) return bn_fail(err, BITNET_E_FORMAT, "%s: ending %u is no text", where, i);
        const char *clean = clean_hellaswag(s, ending);
        if (!clean) return bn_fail_nomem(err, strlen(ending), "the text of an item");
        BN_TRY(eval_option_set(s, &item->options[i], context, clean, err));
    }
    return BITNET_OK;
}

bitnet_status eval_read_lambada(struct eval_set *s, const struct bn_json *line, const char *where,
                                bitnet_error *err)
{
    const char *text;
    struct eval_item *item;
    if (bn_json_get(line, "continuation")) return read_cloze(s, line, where, err);
    BN_TRY(text_of(&text, line, "text", where, err));
    const char *last = strrchr(text, ' ');
    if (!last || !last[1])
        return bn_fail(err, BITNET_E_FORMAT, "%s: the text has no last word", where);
    BN_TRY(eval_add(&item, s, 1, 0, where, err));
    return eval_option_set(s, item->options, eval_text(s, "%.*s", (int)(last - text), text),
                           last + 1, err);
}

bitnet_status eval_read_gsm8k(struct eval_set *s, const struct bn_json *line, const char *where,
                              bitnet_error *err)
{
    const char *question, *answer;
    struct eval_item *item;
    BN_TRY(text_of(&question, line, "question", where, err));
    BN_TRY(text_of(&answer, line, "answer", where, err));
    BN_TRY(eval_add(&item, s, 1, 0, where, err));
    BN_TRY(eval_option_set(s, item->options, eval_text(s, "Question: %s\nAnswer:", question),
                           answer, err));
    item->answer = item->options->continuation + 1;
    return BITNET_OK;
}
