/* SPDX-License-Identifier: Apache-2.0
 *
 * eval/tables.c: items from files that are no lines of JSON: MMLU's comma-separated values, HellaSwag as
 * lines of text, and the files of llama-perplexity.
 */
#include "cli/eval/read.h"

#include "base/os/file.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIELDS_MAX = 16, SUBJECTS_MAX = 1024, WHERE_BYTES = 512 };

static bool enough(const struct eval_set *s, const struct eval_source *from)
{
    return from->limit && s->n >= from->limit;
}

/* ------------------------------------------------------------------ comma-separated values */

/* A text as records (RFC 4180): fields in quotes may hold commas, quotes (twice) and line ends. */
struct table {
    char *at; /* the rest; fields are cut out of it in place */
    char *field[FIELDS_MAX];
    size_t n;
};

/* Cuts the field that begins at t->at; returns the character that ended it. */
static char cut_field(struct table *t)
{
    char *to = t->at;
    t->field[t->n++] = to;
    bool quoted = *t->at == '"';
    char *p = t->at + quoted;
    for (; *p; p++) {
        if (quoted && p[0] == '"' && p[1] == '"') p++;
        else if (quoted && *p == '"') {
            quoted = false;
            continue;
        } else if (!quoted && (*p == ',' || *p == '\n' || *p == '\r')) {
            break;
        }
        *to++ = *p;
    }
    char end = *p;
    if (end == '\r' && p[1] == '\n') end = *++p;
    t->at = end ? p + 1 : p;
    *to = 0;
    return end;
}

/* The next record; false at the end. */
static bool next_record(struct table *t)
{
    while (*t->at == '\n' || *t->at == '\r') t->at++;
    t->n = 0;
    if (!*t->at) return false;
    while (t->n < FIELDS_MAX && cut_field(t) == ',') {
    }
    return true;
}

/* ------------------------------------------------------------------ MMLU */

enum { MMLU_CHOICES = 4, MMLU_FIELDS = MMLU_CHOICES + 2 };

/* "Q\nA. ...\nB. ...\nC. ...\nD. ...\nAnswer:" */
static void put_question(struct bn_buf *b, char *const *field)
{
    char *question = field[0];
    size_t n = strlen(question);
    while (n && strchr(" \n\t", question[n - 1])) n--;
    while (n && strchr(" \n\t", *question)) question++, n--;
    bn_buf_append(b, question, n);
    for (int i = 0; i < MMLU_CHOICES; i++) bn_buf_printf(b, "\n%c. %s", 'A' + i, field[1 + i]);
    bn_buf_puts(b, "\nAnswer:");
}

static bitnet_status check_record(const struct table *t, const char *path, size_t i,
                                  bitnet_error *err)
{
    if (t->n == MMLU_FIELDS && t->field[5][0] >= 'A' && t->field[5][0] <= 'D' && !t->field[5][1])
        return BITNET_OK;
    return bn_fail(err, BITNET_E_FORMAT,
                   "'%s': record %zu is no question with four choices and a letter from A to D",
                   path, i + 1);
}

/* What stands before each question of a subject. */
static bitnet_status put_shots(struct bn_buf *b, const char *path, const char *subject,
                               uint32_t shots, bitnet_error *err)
{
    bn_buf_printf(b, "The following are multiple choice questions (with answers) about %s.\n\n",
                  subject);
    if (!shots) return BITNET_OK;
    char *text;
    size_t n;
    BN_TRY(bn_read_file(&text, &n, path, EVAL_FILE_MAX_BYTES, err));
    struct table t = {.at = text};
    bitnet_status status = BITNET_OK;
    uint32_t i = 0;
    for (; status == BITNET_OK && i < shots && next_record(&t); i++) {
        status = check_record(&t, path, i, err);
        if (status != BITNET_OK) break;
        put_question(b, t.field);
        bn_buf_printf(b, " %s\n\n", t.field[5]);
    }
    free(text);
    if (status == BITNET_OK && i < shots)
        status = bn_fail(err, BITNET_E_FORMAT, "'%s' has %u examples, and %u are wanted", path, i,
                         shots);
    return status;
}

static bitnet_status add_question(struct eval_set *s, const struct bn_buf *before,
                                  char *const *field, uint32_t group, const char *where,
                                  bitnet_error *err)
{
    struct bn_buf b;
    bn_buf_init(&b, EVAL_FILE_MAX_BYTES);
    bn_buf_append(&b, before->data, before->len);
    put_question(&b, field);
    const char *context = b.failed ? NULL : bn_arena_strn(&s->texts, b.data, b.len);
    bn_buf_free(&b);
    struct eval_item *item;
    BN_TRY(eval_add(&item, s, MMLU_CHOICES, field[5][0] - 'A', where, err));
    item->group = group;
    for (int i = 0; i < MMLU_CHOICES; i++)
        BN_TRY(eval_option_set(s, &item->options[i], context, (char[]){(char)('A' + i), 0}, err));
    return BITNET_OK;
}

static bitnet_status read_subject(struct eval_set *s, const struct eval_source *from,
                                  const char *stem, bitnet_error *err)
{
    char path[WHERE_BYTES], dev[WHERE_BYTES], subject[128], *text;
    size_t n;
    snprintf(path, sizeof path, "%s/test/%s_test.csv", from->path, stem);
    snprintf(dev, sizeof dev, "%s/dev/%s_dev.csv", from->path, stem);
    snprintf(subject, sizeof subject, "%s", stem);
    for (char *p = subject; *p; p++) *p = *p == '_' ? ' ' : *p;
    struct bn_buf before;
    bn_buf_init(&before, EVAL_FILE_MAX_BYTES);
    uint32_t group;
    bitnet_status status = eval_group(&group, s, subject, err);
    if (status == BITNET_OK) status = put_shots(&before, dev, subject, from->shots, err);
    if (status == BITNET_OK && before.failed) status = bn_fail_nomem(err, before.len, "examples");
    if (status == BITNET_OK) status = bn_read_file(&text, &n, path, EVAL_FILE_MAX_BYTES, err);
    if (status == BITNET_OK) {
        struct table t = {.at = text};
        for (size_t i = 0; status == BITNET_OK && !enough(s, from) && next_record(&t); i++) {
            status = check_record(&t, path, i, err);
            if (status == BITNET_OK) status = add_question(s, &before, t.field, group, path, err);
        }
        free(text);
    }
    bn_buf_free(&before);
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

bitnet_status eval_read_mmlu(struct eval_set *s, const struct eval_source *from, bitnet_error *err)
{
    static const char SUFFIX[] = "_test.csv";
    char folder[WHERE_BYTES], *names[SUBJECTS_MAX];
    size_t n = 0;
    snprintf(folder, sizeof folder, "%s/test", from->path);
    DIR *d = opendir(folder);
    if (!d) return bn_fail(err, BITNET_E_IO, "the folder '%s' cannot be read", folder);
    for (struct dirent *e; n < SUBJECTS_MAX && (e = readdir(d));) {
        size_t len = strlen(e->d_name);
        if (len < sizeof SUFFIX || strcmp(e->d_name + len - (sizeof SUFFIX - 1), SUFFIX) != 0)
            continue;
        if ((names[n] = strndup(e->d_name, len - (sizeof SUFFIX - 1)))) n++;
    }
    closedir(d);
    qsort(names, n, sizeof *names, by_name);
    bitnet_status status = BITNET_OK;
    if (n == 0) status = bn_fail(err, BITNET_E_FORMAT, "'%s' has no file *%s", folder, SUFFIX);
    for (size_t i = 0; status == BITNET_OK && i < n && !enough(s, from); i++)
        status = read_subject(s, from, names[i], err);
    for (size_t i = 0; i < n; i++) free(names[i]);
    return status;
}

/* ------------------------------------------------------------------ llama-perplexity's files */

bitnet_status eval_read_winogrande_csv(struct eval_set *s, const struct eval_source *from,
                                       bitnet_error *err)
{
    char *text, where[WHERE_BYTES];
    size_t n;
    BN_TRY(bn_read_file(&text, &n, from->path, EVAL_FILE_MAX_BYTES, err));
    struct table t = {.at = text};
    bitnet_status status = BITNET_OK;
    for (size_t i = 0; status == BITNET_OK && !enough(s, from) && next_record(&t); i++) {
        snprintf(where, sizeof where, "'%s': record %zu", from->path, i + 1);
        const char *names[2] = {t.field[2], t.field[3]};
        if (t.n != 5)
            status = bn_fail(err, BITNET_E_FORMAT, "%s has %zu fields, not 5", where, t.n);
        else status = eval_add_winogrande(s, t.field[1], names, atoi(t.field[4]), where, err);
    }
    free(text);
    return status;
}

/* The next line of *at, cut off; NULL at the end. */
static char *next_line(char **at)
{
    char *line = *at;
    if (!*line) return NULL;
    char *end = strchr(line, '\n');
    *at = end ? end + 1 : line + strlen(line);
    if (end) *end = 0;
    if (end > line && end[-1] == '\r') end[-1] = 0;
    return line;
}

bitnet_status eval_read_hellaswag_text(struct eval_set *s, const struct eval_source *from,
                                       bitnet_error *err)
{
    enum { ENDINGS = 4 };
    char *text, where[WHERE_BYTES], *context;
    size_t n;
    BN_TRY(bn_read_file(&text, &n, from->path, EVAL_FILE_MAX_BYTES, err));
    bitnet_status status = BITNET_OK;
    char *at = text;
    for (size_t line = 1; status == BITNET_OK && !enough(s, from) && (context = next_line(&at));
         line += 2 + ENDINGS) {
        char *gold = next_line(&at), *ending[ENDINGS] = {0};
        for (int i = 0; i < ENDINGS; i++) ending[i] = next_line(&at);
        snprintf(where, sizeof where, "'%s', line %zu", from->path, line);
        struct eval_item *item;
        if (!ending[ENDINGS - 1] || gold[0] < '0' || gold[0] > '3' || gold[1])
            status = bn_fail(err, BITNET_E_FORMAT,
                             "%s: no context, number from 0 to 3 and four endings", where);
        else status = eval_add(&item, s, ENDINGS, gold[0] - '0', where, err);
        const char *kept = status == BITNET_OK ? eval_text(s, "%s", context) : NULL;
        for (int i = 0; status == BITNET_OK && i < ENDINGS; i++)
            status = eval_option_set(s, &item->options[i], kept, ending[i], err);
    }
    free(text);
    return status;
}

/* A binary file: the number of tasks, the place of each behind that table, and the tasks: a question, the
 * choices of which one is right with a label each, and others of which several may be. */
struct bytes {
    const uint8_t *at, *end;
    bool short_of; /* something was read past the end */
};

static uint32_t take_u32(struct bytes *b)
{
    if (b->end - b->at < 4) {
        b->short_of = true;
        return 0;
    }
    uint32_t v = (uint32_t)b->at[0] | (uint32_t)b->at[1] << 8 | (uint32_t)b->at[2] << 16 |
                 (uint32_t)b->at[3] << 24;
    b->at += 4;
    return v;
}

static const char *take_text(struct bytes *b, struct eval_set *s)
{
    uint32_t n = take_u32(b);
    if (b->short_of || (size_t)(b->end - b->at) < n) {
        b->short_of = true;
        return NULL;
    }
    const char *text = bn_arena_strn(&s->texts, (const char *)b->at, n);
    b->at += n;
    return text;
}

static bitnet_status read_task(struct eval_set *s, struct bytes *b, const char *where,
                               bitnet_error *err)
{
    const char *question = take_text(b, s), *choices[EVAL_OPTIONS_MAX];
    uint32_t n = take_u32(b), gold = 0, n_right = 0;
    if (n > EVAL_OPTIONS_MAX)
        return bn_fail(err, BITNET_E_LIMIT, "%s: %u choices; at most %d are possible", where, n,
                       EVAL_OPTIONS_MAX);
    for (uint32_t i = 0; i < n; i++) choices[i] = take_text(b, s);
    for (uint32_t i = 0; i < n; i++)
        if (take_u32(b)) gold = i, n_right++;
    if (b->short_of) return bn_fail(err, BITNET_E_FORMAT, "%s: the file ends in it", where);
    if (n_right != 1)
        return bn_fail(err, BITNET_E_FORMAT, "%s: %u right choices, not one", where, n_right);
    struct eval_item *item;
    BN_TRY(eval_add(&item, s, n, gold, where, err));
    for (uint32_t i = 0; i < n; i++) {
        if (!choices[i]) return bn_fail_nomem(err, 0, "the text of an item");
        BN_TRY(eval_option_set(s, &item->options[i], question, choices[i], err));
    }
    return BITNET_OK;
}

bitnet_status eval_read_binary(struct eval_set *s, const struct eval_source *from,
                               bitnet_error *err)
{
    char *data, where[WHERE_BYTES];
    size_t n;
    BN_TRY(bn_read_file(&data, &n, from->path, EVAL_FILE_MAX_BYTES, err));
    const uint8_t *p = (const uint8_t *)data;
    struct bytes head = {.at = p, .end = p + n};
    uint32_t n_tasks = take_u32(&head);
    bitnet_status status = BITNET_OK;
    if (head.short_of || (size_t)(head.end - head.at) / 4 < n_tasks)
        status =
            bn_fail(err, BITNET_E_FORMAT, "'%s' is no file of multiple-choice tasks", from->path);
    const uint8_t *tasks = p + 4 + 4 * (size_t)n_tasks;
    for (uint32_t i = 0; status == BITNET_OK && i < n_tasks && !enough(s, from); i++) {
        uint32_t place = take_u32(&head);
        snprintf(where, sizeof where, "'%s', task %u", from->path, i);
        struct bytes task = {.at = tasks, .end = p + n};
        if (place > (size_t)(task.end - task.at))
            status = bn_fail(err, BITNET_E_FORMAT, "%s lies behind the end of the file", where);
        task.at += status == BITNET_OK ? place : 0;
        if (status == BITNET_OK) status = read_task(s, &task, where, err);
    }
    free(data);
    return status;
}
