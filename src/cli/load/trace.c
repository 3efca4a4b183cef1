/* SPDX-License-Identifier: Apache-2.0 */
#include "base/os/mem.h"
#include "cli/core/args.h"
#include "app/line_reader.h"
#include "cli/load/arrivals.h"
#include <math.h>
#include <stdlib.h>

enum { COLUMN_TIME, COLUMN_IN, COLUMN_OUT, N_COLUMNS, MAX_FIELDS = 32, FIELD_BYTES = 64 };
static const char *const column_names[N_COLUMNS] = {"TIMESTAMP", "ContextTokens",
                                                    "GeneratedTokens"};

static const double max_trace_s = 3650 * 86400.0; /* ten years */

struct parser {
    const char *path;
    const struct load_trace_config *config;
    size_t at[N_COLUMNS]; /* which field of a line is which column */
    double first_s, last_s;
    bool begun;
};

/* Cuts a line at its commas into 0-terminated fields. false: too many, or one too long. */
static bool split(const struct line *l, char fields[MAX_FIELDS][FIELD_BYTES], size_t *n)
{
    *n = 0;
    for (size_t i = 0, from = 0; i <= l->n; i++) {
        if (i < l->n && l->text[i] != ',') continue;
        if (*n == MAX_FIELDS || i - from >= FIELD_BYTES) return false;
        memcpy(fields[*n], l->text + from, i - from);
        fields[(*n)++][i - from] = 0;
        from = i + 1;
    }
    return true;
}

static bitnet_status read_names(struct parser *p, char fields[MAX_FIELDS][FIELD_BYTES], size_t n,
                                bitnet_error *err)
{
    for (size_t c = 0; c < N_COLUMNS; c++) {
        p->at[c] = MAX_FIELDS;
        for (size_t i = 0; i < n; i++)
            if (strcmp(fields[i], column_names[c]) == 0) p->at[c] = i;
        if (p->at[c] == MAX_FIELDS)
            return bn_fail(err, BITNET_E_FORMAT,
                           "the first line of '%.200s' names no column '%s'; a trace has "
                           "TIMESTAMP,ContextTokens,GeneratedTokens",
                           p->path, column_names[c]);
    }
    return BITNET_OK;
}

/* Days since 1970 of a date of the Gregorian calendar; years begin in March, so that a leap day is
 * the last of its year. */
static double days_from_date(int year, int month, int day)
{
    int y = year - (month <= 2), m = (month + 9) % 12;
    return 365.0 * y + floor(y / 4.0) - floor(y / 100.0) + floor(y / 400.0) +
           floor((153.0 * m + 2) / 5) + day - 1 - 719468;
}

static bool parse_time(double *seconds, const char *text)
{
    int year, month, day, hour, minute, end = 0;
    if (args_double(seconds, text)) return true;
    if (sscanf(text, "%4d-%2d-%2d%*1[ T]%2d:%2d:%n", &year, &month, &day, &hour, &minute, &end) !=
            5 ||
        !end)
        return false;
    char second[FIELD_BYTES];
    snprintf(second, sizeof second, "%.*s", (int)strspn(text + end, ".0123456789"), text + end);
    double s;
    if (month < 1 || month > 12 || day < 1 || day > 31 || !args_double(&s, second)) return false;
    *seconds = days_from_date(year, month, day) * 86400 + hour * 3600.0 + minute * 60.0 + s;
    return true;
}

static bool parse_tokens(uint32_t *out, const char *text, double factor)
{
    uint64_t n;
    if (!args_u64(&n, text, UINT32_MAX)) return false;
    *out = (uint32_t)fmin(fmax(1, round((double)n * factor)), UINT32_MAX);
    return true;
}

static bitnet_status read_row(struct parser *p, struct load_trace *t, const struct line *l,
                              char fields[MAX_FIELDS][FIELD_BYTES], size_t n, bitnet_error *err)
{
    struct load_trace_row row;
    double seconds;
    for (size_t c = 0; c < N_COLUMNS; c++)
        if (p->at[c] >= n)
            return bn_fail(err, BITNET_E_FORMAT, "line %llu of '%.200s' has %zu fields, too few",
                           (unsigned long long)l->number, p->path, n);
    if (!parse_time(&seconds, fields[p->at[COLUMN_TIME]]) ||
        !parse_tokens(&row.n_in, fields[p->at[COLUMN_IN]], p->config->token_factor) ||
        !parse_tokens(&row.n_out, fields[p->at[COLUMN_OUT]], p->config->token_factor))
        return bn_fail(err, BITNET_E_FORMAT,
                       "line %llu of '%.200s' is no time and two token counts",
                       (unsigned long long)l->number, p->path);
    if (!p->begun) p->first_s = p->last_s = seconds;
    p->begun = true;
    if (seconds < p->last_s || seconds - p->first_s > max_trace_s)
        return bn_fail(err, BITNET_E_FORMAT,
                       "line %llu of '%.200s': its time is before that of the line above, or years "
                       "after the first",
                       (unsigned long long)l->number, p->path);
    p->last_s = seconds;
    row.due_ns = (uint64_t)((seconds - p->first_s) * p->config->time_factor * 1e9);
    if (t->n == LOAD_MAX_TRACE)
        return bn_fail(err, BITNET_E_LIMIT, "'%.200s' has more than %d requests; see --trace-limit",
                       p->path, LOAD_MAX_TRACE);
    if (!bn_grow((void **)&t->rows, &t->room, t->n + 1, sizeof *t->rows))
        return bn_fail_nomem(err, (t->n + 1) * sizeof *t->rows, "the trace");
    t->rows[t->n++] = row;
    return BITNET_OK;
}

static bitnet_status read_line(struct parser *p, struct load_trace *t, const struct line *l,
                               bitnet_error *err)
{
    char fields[MAX_FIELDS][FIELD_BYTES];
    size_t n;
    if (!split(l, fields, &n))
        return bn_fail(err, BITNET_E_FORMAT,
                       "line %llu of '%.200s' has more than %d fields, or one longer than %d bytes",
                       (unsigned long long)l->number, p->path, MAX_FIELDS, FIELD_BYTES - 1);
    return l->number == 1 ? read_names(p, fields, n, err) : read_row(p, t, l, fields, n, err);
}

bitnet_status load_trace_read(struct load_trace *t, const char *path,
                              const struct load_trace_config *c, bitnet_error *err)
{
    struct parser p = {.path = path, .config = c};
    struct line_reader reader;
    struct line l;
    bool got = true;
    bitnet_status s = line_reader_open(&reader, path, err);
    while (s == BITNET_OK && (!c->limit || t->n < c->limit)) {
        s = line_reader_next(&reader, &l, &got, err);
        if (s != BITNET_OK || !got) break;
        if (l.n) s = read_line(&p, t, &l, err);
    }
    line_reader_close(&reader);
    if (s == BITNET_OK && !t->n)
        s = bn_fail(err, BITNET_E_FORMAT, "'%.200s' holds no requests", path);
    return s;
}

void load_trace_free(struct load_trace *t)
{
    free(t->rows);
    *t = (struct load_trace){0};
}
