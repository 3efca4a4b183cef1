/* SPDX-License-Identifier: Apache-2.0 */
#include "server/access/keys.h"

#include "base/os/file.h"
#include "base/os/mem.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { KEYS_FILE_MAX_BYTES = 1 << 20 };

/* where: names the place of the key in errors */
static bitnet_status add(struct keys *k, const char *key, size_t n, const char *where,
                         bitnet_error *err)
{
    if (n == 0 || n > KEY_MAX_BYTES)
        return bn_fail(err, BITNET_E_LIMIT, "%s has %zu characters; 1 to %d are possible", where, n,
                       KEY_MAX_BYTES);
    for (size_t i = 0; i < n; i++)
        if (key[i] <= ' ' || key[i] > '~')
            return bn_fail(err, BITNET_E_ARG, "%s: character %zu is not a visible ASCII character",
                           where, i + 1);
    if (k->n == KEYS_MAX)
        return bn_fail(err, BITNET_E_LIMIT, "%s: more than %d keys", where, KEYS_MAX);
    /* all at once: growing would leave copies of keys in memory */
    if (!k->padded && !(k->padded = bn_calloc(KEYS_MAX, KEY_MAX_BYTES)))
        return bn_fail_nomem(err, (size_t)KEYS_MAX * KEY_MAX_BYTES, "keys");
    struct quota_account *a = quota_account_new();
    if (!a) return bn_fail_nomem(err, sizeof *a, "keys");
    snprintf(a->name, sizeof a->name, "key-%zu", k->n + 1);
    k->accounts[k->n] = a;
    memset(k->padded[k->n], 0, KEY_MAX_BYTES);
    memcpy(k->padded[k->n++], key, n);
    return BITNET_OK;
}

bitnet_status keys_add(struct keys *k, const char *key, bitnet_error *err)
{
    return add(k, key, strlen(key), "the key", err);
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/* Takes those from the n-th on away again. */
static void cut(struct keys *k, size_t n)
{
    while (k->n > n) {
        k->n--;
        explicit_bzero(k->padded[k->n], KEY_MAX_BYTES);
        quota_let_go(k->accounts[k->n]);
    }
}

/* A key, then what its holder may use. */
static bitnet_status add_line(struct keys *k, const char *from, const char *to, const char *path,
                              size_t number, bitnet_error *err)
{
    char where[320];
    const char *p = from;
    while (p < to && !is_blank(*p)) p++;
    snprintf(where, sizeof where, "'%.250s', line %zu: the key", path, number);
    BN_TRY(add(k, from, (size_t)(p - from), where, err));
    snprintf(where, sizeof where, "'%.250s', line %zu", path, number);
    for (const char *word; p < to;) {
        while (is_blank(*p)) p++; /* the line does not end with a blank */
        for (word = p; p < to && !is_blank(*p);) p++;
        BN_TRY(quota_read_word(k->accounts[k->n - 1], word, (size_t)(p - word), where, err));
    }
    return BITNET_OK;
}

static bitnet_status add_lines(struct keys *k, const char *text, size_t n, const char *path,
                               bitnet_error *err)
{
    size_t before = k->n, number = 0;
    for (const char *p = text, *end = text + n; p < end;) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        const char *from = p, *to = newline ? newline : end;
        p = to + 1;
        number++;
        while (from < to && is_blank(*from)) from++;
        while (from < to && is_blank(to[-1])) to--;
        if (from == to || *from == '#') continue;
        BN_TRY(add_line(k, from, to, path, number, err));
    }
    if (k->n == before) return bn_fail(err, BITNET_E_ARG, "'%.250s' holds no key", path);
    return BITNET_OK;
}

bitnet_status keys_load(struct keys *k, const char *path, bitnet_error *err)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return bn_fail(err, BITNET_E_IO, "cannot read '%.250s': %s", path, strerror(errno));
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return bn_fail(err, BITNET_E_ARG,
                       "others than its owner may write to '%.250s' (mode %03o): chmod go-w", path,
                       (unsigned)st.st_mode & 0777u);
    char *text;
    size_t n, before = k->n;
    BN_TRY(bn_read_file(&text, &n, path, KEYS_FILE_MAX_BYTES, err));
    bitnet_status s = add_lines(k, text, n, path, err);
    if (s != BITNET_OK) cut(k, before);
    explicit_bzero(text, n);
    free(text);
    return s;
}

void keys_free(struct keys *k)
{
    cut(k, 0);
    free(k->padded);
    *k = (struct keys){0};
}

/* The last place of the key, or k->n. The index is made of all comparisons, without a branch. */
static size_t place_of(const struct keys *k, const uint8_t padded[KEY_MAX_BYTES])
{
    size_t found = 0;
    for (size_t i = 0; i < k->n; i++) {
        unsigned differs = 0;
        for (size_t j = 0; j < KEY_MAX_BYTES; j++) differs |= padded[j] ^ k->padded[i][j];
        __asm__("" : "+r"(differs)); /* the compiler must not know that one match is enough */
        size_t same = -(size_t)((differs - 1) >> 31);
        found = (found & ~same) | ((i + 1) & same);
    }
    return found ? found - 1 : k->n;
}

struct quota_account *keys_find(const struct keys *k, const char *shown, size_t n)
{
    /* What is decided here depends on what was shown alone. A zero would look like padding. */
    if (n == 0 || n > KEY_MAX_BYTES || memchr(shown, 0, n)) return NULL;
    uint8_t padded[KEY_MAX_BYTES] = {0};
    memcpy(padded, shown, n);
    size_t i = place_of(k, padded);
    return i < k->n ? k->accounts[i] : NULL;
}

bool keys_match(const struct keys *k, const char *shown, size_t n)
{
    return keys_find(k, shown, n) != NULL;
}

void keys_take_over(struct keys *fresh, const struct keys *old)
{
    for (size_t i = 0; i < fresh->n; i++) {
        size_t at = place_of(old, fresh->padded[i]);
        if (at == old->n) continue;
        struct quota_account *a = old->accounts[at], *now = fresh->accounts[i];
        memcpy(a->name, now->name, sizeof a->name);
        a->limits = now->limits;
        quota_let_go(now);
        fresh->accounts[i] = quota_hold(a);
    }
}
