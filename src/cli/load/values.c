/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/load/values.h"

static const double max_seconds = 366 * 86400.0;

enum { WORD_BYTES = 32 };

/* The piece of text up to one of the marks, 0-terminated; NULL: it is longer than a piece can be.
 * Returns where the next piece begins, at the 0 if there is none. */
static const char *next_piece(char out[WORD_BYTES], const char *text, const char *marks)
{
    size_t n = strcspn(text, marks);
    if (n >= WORD_BYTES) return NULL;
    memcpy(out, text, n);
    out[n] = 0;
    return text + n + (text[n] != 0);
}

bool load_parse_seconds(double *out, const char *text)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"", 1}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}};
    char number[WORD_BYTES];
    size_t n = strspn(text, "0123456789.");
    double v;
    if (n >= sizeof number) return false;
    memcpy(number, text, n);
    number[n] = 0;
    if (!args_double(&v, number)) return false;
    for (size_t i = 0; i < BN_ARRAY_LEN(units); i++)
        if (strcmp(text + n, units[i].name) == 0) {
            *out = v * units[i].seconds;
            return *out <= max_seconds;
        }
    return false;
}

bool load_parse_warmup(double *seconds, uint64_t *requests, const char *text)
{
    return args_u64(requests, text, LOAD_MAX_RECORDS) || load_parse_seconds(seconds, text);
}

bool load_parse_goals(double goals_ms[LOAD_GOALS], const char *text)
{
    char piece[WORD_BYTES], name[WORD_BYTES];
    do {
        text = next_piece(piece, text, ", ");
        const char *number = text ? next_piece(name, piece, ":") : NULL;
        int g = 0;
        while (g < LOAD_GOALS && number && strcmp(name, load_goal_names[g]) != 0) g++;
        if (!number || g == LOAD_GOALS || !args_double(&goals_ms[g], number) || !(goals_ms[g] > 0))
            return false;
    } while (*text);
    return true;
}

bool load_parse_percentiles(double *out, size_t *n, const char *text)
{
    char piece[WORD_BYTES];
    *n = 0;
    do {
        text = next_piece(piece, text, ", ");
        if (!text || *n == LOAD_MAX_PERCENTILES || !args_double(&out[*n], piece) || out[*n] < 0 ||
            out[*n] > 100)
            return false;
        ++*n;
    } while (*text);
    return true;
}
