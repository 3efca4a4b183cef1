/* SPDX-License-Identifier: Apache-2.0 */
#include "base/suggest.h"

enum { NAME_MAX_BYTES = 40 }; /* longer words are no mistyped names */

static size_t min3(size_t a, size_t b, size_t c) { return bn_min_size(a, bn_min_size(b, c)); }

/* Edits (insert, delete, replace, swap of neighbours) from a to b; both at most NAME_MAX_BYTES
 * long. Three rows of the usual table are enough, since a swap looks two rows back. */
static size_t edits(const char *a, size_t n_a, const char *b, size_t n_b)
{
    size_t rows[3][NAME_MAX_BYTES + 1];
    for (size_t j = 0; j <= n_b; j++) rows[0][j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        size_t *row = rows[i % 3], *up = rows[(i + 2) % 3], *up2 = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            row[j] = min3(up[j] + 1, row[j - 1] + 1, up[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = bn_min_size(row[j], up2[j - 2] + 1);
        }
    }
    return rows[n_a % 3][n_b];
}

void bn_suggest_start(struct bn_suggest *s, const char *typed)
{
    /* a third of the letters may be wrong, but a short word must be nearly right */
    size_t n = strlen(typed);
    *s = (struct bn_suggest){.typed = typed, .distance = n < 4 ? 1 : n / 3 + 1};
}

void bn_suggest_offer(struct bn_suggest *s, const char *name)
{
    size_t n_typed = strlen(s->typed), n_name = strlen(name);
    if (n_typed > NAME_MAX_BYTES || n_name > NAME_MAX_BYTES) return;
    size_t d = edits(s->typed, n_typed, name, n_name);
    if (d < s->distance + (s->best == NULL) && d < n_name) {
        s->distance = d;
        s->best = name;
    }
}
