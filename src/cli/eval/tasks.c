/* SPDX-License-Identifier: Apache-2.0
 *
 * eval/tasks.c: which tasks there are, and where their data lie.
 */
#include "app/line_reader.h"
#include "cli/eval/read.h"

#include "base/buf.h"
#include "base/os/file.h"
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 4096, WHERE_BYTES = 512 };

const struct eval_task eval_tasks[] = {
    {.name = "arc_challenge",
     .about = "grade-school science, hard questions; acc_norm",
     .kind = EVAL_CHOICE,
     .normed = true,
     .files = "arc_challenge.jsonl|ARC-Challenge-Test.jsonl",
     .origin = "allenai/ai2_arc, ARC-Challenge, test",
     .read = eval_read_arc},
    {.name = "arc_easy",
     .about = "grade-school science; acc_norm",
     .kind = EVAL_CHOICE,
     .normed = true,
     .files = "arc_easy.jsonl|ARC-Easy-Test.jsonl",
     .origin = "allenai/ai2_arc, ARC-Easy, test",
     .read = eval_read_arc},
    {.name = "boolq",
     .about = "yes or no, about a passage; acc",
     .kind = EVAL_CHOICE,
     .files = "boolq.jsonl|boolq_val.jsonl",
     .origin = "aps/super_glue, boolq, validation",
     .read = eval_read_boolq},
    {.name = "gsm8k",
     .about = "word problems, the answer is written; exact match",
     .kind = EVAL_WRITTEN,
     .shots = 5,
     .files = "gsm8k_test.jsonl|gsm8k.jsonl",
     .origin =
         "openai/grade-school-math, test.jsonl; examples from train.jsonl as gsm8k_train.jsonl",
     .read = eval_read_gsm8k},
    {.name = "hellaswag",
     .about = "how a scene goes on; acc_norm",
     .kind = EVAL_CHOICE,
     .normed = true,
     .files = "hellaswag.jsonl|hellaswag_val.jsonl|hellaswag_val_full.txt",
     .origin = "Rowan/hellaswag, validation; or klosax/hellaswag_text_data (unpacked)",
     .read = eval_read_hellaswag},
    {.name = "lambada_openai",
     .about = "the last word of a passage; acc and perplexity",
     .kind = EVAL_CLOZE,
     .files = "lambada_openai.jsonl|lambada_test.jsonl",
     .origin = "EleutherAI/lambada_openai, test",
     .read = eval_read_lambada},
    {.name = "mmlu",
     .about = "57 subjects, five examples each; acc",
     .kind = EVAL_CHOICE,
     .shots = 5,
     .files = "mmlu",
     .origin = "hendrycks/test: its data with the folders test and dev"},
    {.name = "openbookqa",
     .about = "elementary science; acc_norm",
     .kind = EVAL_CHOICE,
     .normed = true,
     .files = "openbook_qa.jsonl|openbookqa.jsonl",
     .origin = "allenai/openbookqa, main, test",
     .read = eval_read_openbookqa},
    {.name = "piqa",
     .about = "everyday physics; acc_norm",
     .kind = EVAL_CHOICE,
     .normed = true,
     .files = "piqa.jsonl|piqa_val.jsonl",
     .origin = "ybisk/piqa, valid.jsonl with its labels as member 'label'",
     .read = eval_read_piqa},
    {.name = "winogrande",
     .about = "whom a pronoun means; acc",
     .kind = EVAL_CHOICE,
     .files = "winogrande.jsonl|winogrande_val.jsonl",
     .origin = "allenai/winogrande, winogrande_xl, validation",
     .read = eval_read_winogrande},
    {.name = NULL},
};

const struct eval_task *eval_task_find(const char *name)
{
    for (const struct eval_task *t = eval_tasks; t->name; t++)
        if (strcmp(t->name, name) == 0) return t;
    return NULL;
}

/* The first of the task's files that is there. */
static bool find_file(char out[PATH_BYTES], const struct eval_task *t, const char *folder)
{
    for (const char *name = t->files; *name;) {
        size_t n = strcspn(name, "|");
        int len = snprintf(out, PATH_BYTES, "%s/%.*s", folder, (int)n, name);
        if (len < PATH_BYTES && bn_exists(out)) return true;
        name += n + (name[n] == '|');
    }
    return false;
}

bool eval_task_ready(const struct eval_task *t, const char *folder)
{
    char path[PATH_BYTES];
    return find_file(path, t, folder);
}

static bitnet_status read_lines(struct eval_set *s, const char *path, size_t limit,
                                eval_reader read, bitnet_error *err)
{
    struct line_reader lines;
    struct line line;
    bool got = true;
    BN_TRY(line_reader_open(&lines, path, err));
    bitnet_status status = BITNET_OK;
    while (status == BITNET_OK && (!limit || s->n < limit)) {
        status = line_reader_next(&lines, &line, &got, err);
        if (status != BITNET_OK || !got) break;
        if (line.n == 0) continue;
        char where[WHERE_BYTES];
        struct bn_json *j = NULL;
        snprintf(where, sizeof where, "'%s', line %llu", path, (unsigned long long)line.number);
        status = bn_json_parse(&j, line.text, line.n, 0, where, err);
        if (status == BITNET_OK) status = read(s, j, where, err);
        bn_json_free(j);
    }
    line_reader_close(&lines);
    if (status == BITNET_OK && s->n == 0)
        status = bn_fail(err, BITNET_E_FORMAT, "'%s' holds no items", path);
    return status;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

/* Worked examples stand before every question, from a file of their own. */
static bitnet_status add_examples(struct eval_set *s, const struct eval_task *t, const char *folder,
                                  bitnet_error *err)
{
    char path[PATH_BYTES];
    struct eval_set shots = {0};
    snprintf(path, sizeof path, "%s/%s_train.jsonl", folder, t->name);
    if (!bn_exists(path))
        return bn_fail(err, BITNET_E_IO, "task %s takes its %u examples from '%s', from %s",
                       t->name, t->shots, path, t->origin);
    struct bn_buf before;
    bn_buf_init(&before, EVAL_FILE_MAX_BYTES);
    bitnet_status status = read_lines(&shots, path, t->shots, t->read, err);
    for (size_t i = 0; status == BITNET_OK && i < shots.n; i++)
        bn_buf_printf(&before, "%s%s\n\n", shots.items[i].options->context,
                      shots.items[i].options->continuation);
    for (size_t i = 0; status == BITNET_OK && i < s->n; i++) {
        struct eval_option *o = s->items[i].options;
        o->context = before.failed ? NULL : eval_text(s, "%s%s", before.data, o->context);
        if (!o->context) status = bn_fail_nomem(err, before.len, "examples");
    }
    bn_buf_free(&before);
    eval_set_free(&shots);
    return status;
}

bitnet_status eval_read_task(struct eval_set *out, const struct eval_task *t, const char *folder,
                             size_t limit, bitnet_error *err)
{
    char path[PATH_BYTES], packed[PATH_BYTES + 8];
    *out = (struct eval_set){0};
    if (!find_file(path, t, folder)) {
        snprintf(path, sizeof path, "%s/%.*s", folder, (int)strcspn(t->files, "|"), t->files);
        snprintf(packed, sizeof packed, "%s/hellaswag_val_full.txt.bz2", folder);
        if (ends_with(t->files, ".txt") && bn_exists(packed))
            return bn_fail(err, BITNET_E_IO, "unpack '%s' first: bunzip2 -k", packed);
        return bn_fail(err, BITNET_E_IO, "task %s needs '%s'; its data come from %s", t->name, path,
                       t->origin);
    }
    struct eval_source from = {.path = path, .limit = limit, .shots = t->shots};
    bitnet_status status;
    if (!t->read) status = eval_read_mmlu(out, &from, err);
    else if (ends_with(path, ".txt")) status = eval_read_hellaswag_text(out, &from, err);
    else status = read_lines(out, path, limit, t->read, err);
    if (status == BITNET_OK && t->kind == EVAL_WRITTEN && t->shots)
        status = add_examples(out, t, folder, err);
    if (status != BITNET_OK) eval_set_free(out);
    return status;
}

bitnet_status eval_read_file(struct eval_set *out, enum eval_kind *kind, const char *path,
                             size_t limit, bitnet_error *err)
{
    *out = (struct eval_set){0};
    bitnet_status status = read_lines(out, path, limit, eval_read_open, err);
    if (status != BITNET_OK) {
        eval_set_free(out);
        return status;
    }
    /* a file is of one kind: what must be written exactly has no choices */
    *kind = out->items[0].n_options == 1 ? EVAL_CLOZE : EVAL_CHOICE;
    for (size_t i = 1; i < out->n; i++) {
        if ((out->items[i].n_options == 1) == (*kind == EVAL_CLOZE)) continue;
        eval_set_free(out);
        return bn_fail(err, BITNET_E_FORMAT,
                       "'%s': item %zu has %s, unlike those before it: they belong in different "
                       "files",
                       path, i + 1, *kind == EVAL_CLOZE ? "choices" : "nothing to choose from");
    }
    return BITNET_OK;
}
