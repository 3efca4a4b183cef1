/* SPDX-License-Identifier: Apache-2.0
 * Writing JSON. */
#include "base/number.h"
#include "base/os/mem.h"
#include "base/utf8.h"
#include "json/value_impl.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct writer {
    struct bn_buf *b;
    unsigned indent, digits;
    bool compact, sort;
};

static void put_escaped(struct bn_buf *b, unsigned char c)
{
    static const char named[] = "\bb\ff\nn\rr\tt\"\"\\\\";
    for (const char *p = named; *p; p += 2)
        if ((unsigned char)*p == c) {
            bn_buf_append(b, (char[]){'\\', p[1]}, 2);
            return;
        }
    bn_buf_printf(b, "\\u%04x", c);
}

bool bn_json_quote(struct bn_buf *b, const char *s, size_t n)
{
    size_t plain = 0; /* bytes before i that are not yet appended begin here */
    bn_buf_putc(b, '"');
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)s[i];
        uint32_t cp;
        size_t len = c < 0x80 ? 1 : bn_utf8_decode(s + i, n - i, &cp);
        if (len && c >= 0x20 && c != '"' && c != '\\') {
            i += len;
            continue;
        }
        bn_buf_append(b, s + plain, i - plain);
        if (len) put_escaped(b, c);
        else bn_buf_puts(b, "\xef\xbf\xbd");
        plain = ++i;
    }
    if (n > plain) bn_buf_append(b, s + plain, n - plain);
    return bn_buf_putc(b, '"') && !b->failed;
}

/* In the fewest digits that give v back, or as many as asked for, with a point or an exponent. */
static void put_real(const struct writer *w, double v)
{
    char text[BN_NUMBER_BYTES];
    bn_number_text(text, 'g', w->digits ? (int)w->digits : 15, w->digits ? (int)w->digits : 17, v);
    bn_buf_puts(w->b, text);
    if (!strpbrk(text, ".e")) bn_buf_puts(w->b, ".0");
}

static void new_line(const struct writer *w, unsigned level)
{
    if (!w->indent) return;
    bn_buf_putc(w->b, '\n');
    for (unsigned i = 0; i < level * w->indent; i++) bn_buf_putc(w->b, ' ');
}

/* What stands before an item */
static void begin_item(const struct writer *w, bool first, unsigned level)
{
    if (!first) bn_buf_puts(w->b, w->compact || w->indent ? "," : ", ");
    new_line(w, level);
}

static void put_value(const struct writer *w, const struct bn_json *v, unsigned level);

static void put_array(const struct writer *w, const struct bn_json *array, unsigned level)
{
    size_t n = bn_json_size(array);
    bn_buf_putc(w->b, '[');
    for (size_t i = 0; i < n; i++) {
        begin_item(w, i == 0, level + 1);
        put_value(w, bn_json_at(array, i), level + 1);
    }
    if (n) new_line(w, level);
    bn_buf_putc(w->b, ']');
}

static void put_member(const struct writer *w, const struct bn_json_member *m, bool first,
                       unsigned level)
{
    begin_item(w, first, level);
    bn_json_quote(w->b, m->key, strlen(m->key));
    bn_buf_puts(w->b, w->compact ? ":" : ": ");
    put_value(w, m->value, level);
}

static int by_key(const void *a, const void *b)
{
    const struct bn_json_member *x = *(const struct bn_json_member *const *)a;
    const struct bn_json_member *y = *(const struct bn_json_member *const *)b;
    return strcmp(x->key, y->key);
}

static void put_object(const struct writer *w, const struct bn_json *v, unsigned level)
{
    const struct bn_json_object_value *o = (const void *)v;
    const struct bn_json_member **sorted = NULL;
    if (w->sort && o->n > 1) {
        sorted = bn_calloc(o->n, sizeof *sorted);
        if (!sorted) {
            w->b->failed = true;
            return;
        }
        for (size_t i = 0; i < o->n; i++) sorted[i] = &o->members[i];
        qsort(sorted, o->n, sizeof *sorted, by_key);
    }
    bn_buf_putc(w->b, '{');
    for (size_t i = 0; i < o->n; i++)
        put_member(w, sorted ? sorted[i] : &o->members[i], i == 0, level + 1);
    if (o->n) new_line(w, level);
    bn_buf_putc(w->b, '}');
    free(sorted);
}

static void put_value(const struct writer *w, const struct bn_json *v, unsigned level)
{
    if (!v || v->broken) {
        w->b->failed = true;
        return;
    }
    switch (bn_json_typeof(v)) {
    case BN_JSON_FALSE: bn_buf_puts(w->b, "false"); break;
    case BN_JSON_TRUE: bn_buf_puts(w->b, "true"); break;
    case BN_JSON_INT: bn_buf_printf(w->b, "%lld", (long long)bn_json_integer(v)); break;
    case BN_JSON_REAL: put_real(w, bn_json_number(v)); break;
    case BN_JSON_STRING: bn_json_quote(w->b, bn_json_text(v), bn_json_bytes(v)); break;
    case BN_JSON_ARRAY: put_array(w, v, level); break;
    case BN_JSON_OBJECT: put_object(w, v, level); break;
    default: bn_buf_puts(w->b, "null"); break;
    }
}

bool bn_json_write(struct bn_buf *b, const struct bn_json *v, unsigned how)
{
    struct writer w = {b, how & 15, how >> 4 & 15, how & BN_JSON_COMPACT, how & BN_JSON_SORT};
    put_value(&w, v, 0);
    return !b->failed;
}

char *bn_json_dump(const struct bn_json *v, unsigned how)
{
    struct bn_buf b;
    bn_buf_init(&b, SIZE_MAX);
    bn_json_write(&b, v, how);
    char *text = bn_buf_take(&b);
    bn_buf_free(&b);
    return text;
}
