/* SPDX-License-Identifier: Apache-2.0
 * Values: making, comparing, walking and printing them with Python's rules. Lists and dictionaries
 * live in the arena of the rendering and never change once a template can see them; a namespace
 * may hold itself, which is why every walk counts its depth. */
#include "text/template/jinja.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const char *bn_jv_type_name(uint8_t kind)
{
    static const char names[][12] = {"nothing",   "undefined", "none", "bool",     "int",
                                     "float",     "str",       "list", "tuple",    "dict",
                                     "namespace", "macro",     "loop", "function", "method"};
    return kind < BN_ARRAY_LEN(names) ? names[kind] : "value";
}

bool bn_jv_truth(struct bn_jv v)
{
    switch (v.kind) {
    case BN_JV_ABSENT:
    case BN_JV_UNDEF:
    case BN_JV_NONE: return false;
    case BN_JV_BOOL: return v.b;
    case BN_JV_INT: return v.i != 0;
    case BN_JV_FLOAT: return v.f != 0;
    case BN_JV_STR: return v.n != 0;
    case BN_JV_LIST:
    case BN_JV_TUPLE: return v.list->n != 0;
    case BN_JV_DICT: return v.dict->n != 0;
    default: return true;
    }
}

bool bn_jv_is(struct bn_jv v, const char *s)
{
    return v.kind == BN_JV_STR && strlen(s) == v.n && memcmp(v.s, s, v.n) == 0;
}

bool bn_jv_as_int(struct bn_jv v, int64_t *i)
{
    if (v.kind == BN_JV_INT) *i = v.i;
    else if (v.kind == BN_JV_BOOL) *i = v.b;
    else return false;
    return true;
}

bool bn_jv_as_float(struct bn_jv v, double *f)
{
    int64_t i;
    if (v.kind == BN_JV_FLOAT) *f = v.f;
    else if (bn_jv_as_int(v, &i)) *f = (double)i;
    else return false;
    return true;
}

bool bn_jv_undefined(struct bn_jx *x, struct bn_jv v)
{
    int n = (int)bn_min_size(v.n, 100);
    if (v.owner)
        return bn_jx_fail(x, BITNET_E_FORMAT, "%s has no attribute '%.*s'",
                          bn_jv_type_name(v.owner), n, v.s);
    return bn_jx_fail(x, BITNET_E_FORMAT, "'%.*s' is undefined", n, v.s);
}

/* ------------------------------------------------------------------ lists and dictionaries */

bool bn_jv_list(struct bn_jx *x, uint8_t kind, size_t room, struct bn_jv *out)
{
    struct bn_jlist *l = bn_jx_alloc(x, 1, sizeof *l);
    if (!l) return false;
    if (room && !(l->v = bn_jx_alloc(x, room, sizeof *l->v))) return false;
    l->room = room;
    *out = (struct bn_jv){.kind = kind, .list = l};
    return true;
}

bool bn_jv_push(struct bn_jx *x, struct bn_jlist *l, struct bn_jv v)
{
    if (l->n == l->room) {
        size_t room = l->room ? l->room * 2 : 8;
        struct bn_jv *p = bn_jx_alloc(x, room, sizeof *p);
        if (!p) return false;
        if (l->n) memcpy(p, l->v, l->n * sizeof *p);
        l->v = p;
        l->room = room;
    }
    l->v[l->n++] = v;
    return true;
}

bool bn_jv_dict(struct bn_jx *x, uint8_t kind, struct bn_jv *out)
{
    struct bn_jdict *d = bn_jx_alloc(x, 1, sizeof *d);
    *out = (struct bn_jv){.kind = kind, .dict = d};
    return d != NULL;
}

bool bn_jv_find(struct bn_jx *x, const struct bn_jdict *d, struct bn_jv key, struct bn_jv **found)
{
    *found = NULL;
    if (!bn_jx_charge(x, d->n / 16)) return false;
    for (size_t i = 0; i < d->n; i++) {
        struct bn_jv k = d->p[i].key;
        bool equal = false;
        if (k.kind == BN_JV_STR && key.kind == BN_JV_STR)
            equal = k.n == key.n && memcmp(k.s, key.s, k.n) == 0;
        else if (!bn_jv_equal(x, k, key, &equal)) return false;
        if (equal) {
            *found = &d->p[i].val;
            return true;
        }
    }
    return true;
}

bool bn_jv_put(struct bn_jx *x, struct bn_jdict *d, struct bn_jv key, struct bn_jv val)
{
    if (key.kind > BN_JV_STR && key.kind != BN_JV_TUPLE)
        return bn_jx_fail(x, BITNET_E_FORMAT, "a %s cannot be a dictionary's key",
                          bn_jv_type_name(key.kind));
    struct bn_jv *old;
    if (!bn_jv_find(x, d, key, &old)) return false;
    if (old) {
        *old = val;
        return true;
    }
    if (d->n == d->room) {
        size_t room = d->room ? d->room * 2 : 8;
        struct bn_jpair *p = bn_jx_alloc(x, room, sizeof *p);
        if (!p) return false;
        if (d->n) memcpy(p, d->p, d->n * sizeof *p);
        d->p = p;
        d->room = room;
    }
    d->p[d->n++] = (struct bn_jpair){key, val};
    return true;
}

bool bn_jv_length(struct bn_jx *x, struct bn_jv v, size_t *n)
{
    switch (v.kind) {
    case BN_JV_UNDEF: *n = 0; return true;
    case BN_JV_STR: *n = bn_text_count(v.s, v.n); return bn_jx_charge(x, v.n / 64);
    case BN_JV_LIST:
    case BN_JV_TUPLE: *n = v.list->n; return true;
    case BN_JV_DICT: *n = v.dict->n; return true;
    default: return bn_jx_fail(x, BITNET_E_FORMAT, "a %s has no length", bn_jv_type_name(v.kind));
    }
}

bool bn_jv_items(struct bn_jx *x, struct bn_jv v, const struct bn_jlist **out)
{
    struct bn_jv l;
    switch (v.kind) {
    case BN_JV_LIST:
    case BN_JV_TUPLE: *out = v.list; return true;
    case BN_JV_UNDEF:
        if (!bn_jv_list(x, BN_JV_LIST, 0, &l)) return false;
        break;
    case BN_JV_DICT:
        if (!bn_jv_list(x, BN_JV_LIST, v.dict->n, &l) || !bn_jx_charge(x, v.dict->n / 16))
            return false;
        for (size_t i = 0; i < v.dict->n; i++) l.list->v[l.list->n++] = v.dict->p[i].key;
        break;
    case BN_JV_STR:
        if (!bn_jv_list(x, BN_JV_LIST, bn_text_count(v.s, v.n), &l) || !bn_jx_charge(x, v.n / 16))
            return false;
        for (size_t i = 0, len; i < v.n; i += len) {
            uint32_t cp;
            len = bn_text_char(v.s + i, v.n - i, &cp);
            l.list->v[l.list->n++] = bn_jv_str(v.s + i, len);
        }
        break;
    default:
        return bn_jx_fail(x, BITNET_E_FORMAT, "a %s cannot be iterated", bn_jv_type_name(v.kind));
    }
    *out = l.list;
    return true;
}

/* ------------------------------------------------------------------ comparing */

static bool dicts_equal(struct bn_jx *x, const struct bn_jdict *a, const struct bn_jdict *b,
                        bool *equal)
{
    *equal = a->n == b->n;
    for (size_t i = 0; i < a->n && *equal; i++) {
        struct bn_jv *other;
        if (!bn_jv_find(x, b, a->p[i].key, &other)) return false;
        if (!other) *equal = false;
        else if (!bn_jv_equal(x, a->p[i].val, *other, equal)) return false;
    }
    return true;
}

/* The order of two numbers, 2 where one is NaN. false: one is no number. */
static bool compare_numbers(struct bn_jv a, struct bn_jv b, int *order)
{
    double fa, fb;
    int64_t ia, ib;
    if (bn_jv_as_int(a, &ia) && bn_jv_as_int(b, &ib)) *order = (ia > ib) - (ia < ib);
    else if (bn_jv_as_float(a, &fa) && bn_jv_as_float(b, &fb))
        *order = fa > fb ? 1 : fa < fb ? -1 : fa == fb ? 0 : 2;
    else return false;
    return true;
}

bool bn_jv_equal(struct bn_jx *x, struct bn_jv a, struct bn_jv b, bool *equal)
{
    int order = 1;
    bool numbers = compare_numbers(a, b, &order);
    *equal = order == 0;
    if (numbers) return true;
    if (a.kind != b.kind) return true;
    switch (a.kind) {
    case BN_JV_STR:
        *equal = a.n == b.n && memcmp(a.s, b.s, a.n) == 0;
        return a.n != b.n || bn_jx_charge(x, a.n / 64);
    case BN_JV_LIST:
    case BN_JV_TUPLE:
        if (!bn_jx_enter(x)) return false;
        *equal = a.list->n == b.list->n;
        for (size_t i = 0; i < a.list->n && *equal; i++)
            if (!bn_jv_equal(x, a.list->v[i], b.list->v[i], equal)) return false;
        x->depth--;
        return true;
    case BN_JV_DICT:
        if (!bn_jx_enter(x) || !dicts_equal(x, a.dict, b.dict, equal)) return false;
        x->depth--;
        return true;
    case BN_JV_UNDEF:
    case BN_JV_NONE: *equal = true; return true;
    case BN_JV_METHOD: *equal = a.method == b.method; return true;
    default: *equal = a.s == b.s; return true; /* the same object */
    }
}

bool bn_jv_compare(struct bn_jx *x, struct bn_jv a, struct bn_jv b, int *order)
{
    if (compare_numbers(a, b, order)) return true;
    if (a.kind == BN_JV_STR && b.kind == BN_JV_STR) { /* byte order is the order of characters */
        int c = memcmp(a.s, b.s, bn_min_size(a.n, b.n));
        *order = c ? (c > 0) - (c < 0) : (a.n > b.n) - (a.n < b.n);
        return bn_jx_charge(x, bn_min_size(a.n, b.n) / 64);
    }
    if (a.kind == b.kind && (a.kind == BN_JV_LIST || a.kind == BN_JV_TUPLE)) {
        if (!bn_jx_enter(x)) return false;
        size_t n = bn_min_size(a.list->n, b.list->n);
        *order = (a.list->n > b.list->n) - (a.list->n < b.list->n);
        for (size_t i = 0; i < n; i++) {
            bool equal;
            if (!bn_jv_equal(x, a.list->v[i], b.list->v[i], &equal)) return false;
            if (equal) continue;
            if (!bn_jv_compare(x, a.list->v[i], b.list->v[i], order)) return false;
            break;
        }
        x->depth--;
        return true;
    }
    if (a.kind == BN_JV_UNDEF) return bn_jv_undefined(x, a);
    if (b.kind == BN_JV_UNDEF) return bn_jv_undefined(x, b);
    return bn_jx_fail(x, BITNET_E_FORMAT, "%s and %s cannot be ordered", bn_jv_type_name(a.kind),
                      bn_jv_type_name(b.kind));
}

bool bn_jv_contains(struct bn_jx *x, struct bn_jv item, struct bn_jv in, bool *yes)
{
    *yes = false;
    if (in.kind == BN_JV_STR) {
        if (item.kind != BN_JV_STR)
            return item.kind == BN_JV_UNDEF
                       ? bn_jv_undefined(x, item)
                       : bn_jx_fail(x, BITNET_E_FORMAT, "'in' a str needs a str, not a %s",
                                    bn_jv_type_name(item.kind));
        *yes = bn_text_find(in.s, in.n, item.s, item.n) != NULL;
        return bn_jx_charge(x, in.n / 64);
    }
    if (in.kind == BN_JV_DICT) {
        struct bn_jv *found;
        if (!bn_jv_find(x, in.dict, item, &found)) return false;
        *yes = found != NULL;
        return true;
    }
    const struct bn_jlist *l;
    if (!bn_jv_items(x, in, &l)) return false;
    for (size_t i = 0; i < l->n && !*yes; i++)
        if ((i % 16 == 0 && !bn_jx_charge(x, 1)) || !bn_jv_equal(x, item, l->v[i], yes))
            return false;
    return true;
}

/* ------------------------------------------------------------------ printing */

size_t bn_jv_format_float(char out[BN_NUMBER_BYTES], double f)
{
    if (isnan(f)) return (size_t)snprintf(out, BN_NUMBER_BYTES, "nan");
    if (isinf(f)) return (size_t)snprintf(out, BN_NUMBER_BYTES, f < 0 ? "-inf" : "inf");
    char sci[BN_NUMBER_BYTES];
    int behind_point = bn_number_text(sci, 'e', 0, 16, f);
    int exponent = atoi(strchr(sci, 'e') + 1);
    if (exponent >= -4 && exponent < 16) {
        int decimals = behind_point > exponent ? behind_point - exponent : 1;
        bn_number_text(out, 'f', decimals, decimals, f);
        return strlen(out);
    }
    char *e = strchr(sci, 'e');
    return (size_t)snprintf(out, BN_NUMBER_BYTES, "%.*se%c%02d", (int)(e - sci), sci,
                            exponent < 0 ? '-' : '+', abs(exponent));
}

/* A string as Python writes it in a list. */
static bool print_quoted(struct bn_jx *x, struct bn_jv v)
{
    bool single = memchr(v.s, '\'', v.n) != NULL, twice = memchr(v.s, '"', v.n) != NULL;
    char quote = single && !twice ? '"' : '\'';
    if (!bn_jx_put(x, &quote, 1)) return false;
    for (size_t i = 0, len; i < v.n; i += len) {
        uint32_t cp;
        char esc[12];
        len = bn_text_char(v.s + i, v.n - i, &cp);
        size_t n = 0;
        if (cp == '\n' || cp == '\r' || cp == '\t')
            n = (size_t)snprintf(esc, sizeof esc, "\\%c",
                                 cp == '\n'   ? 'n'
                                 : cp == '\r' ? 'r'
                                              : 't');
        else if (cp == '\\' || cp == (unsigned char)quote)
            n = (size_t)snprintf(esc, sizeof esc, "\\%c", (char)cp);
        else if (cp < 0x20 || (cp >= 0x7f && cp < 0xa1) || cp == 0xad)
            n = (size_t)snprintf(esc, sizeof esc, "\\x%02x", (unsigned)cp);
        else if (cp > 0xa0 && bn_text_is_space(cp))
            n = (size_t)snprintf(esc, sizeof esc, "\\u%04x", (unsigned)cp);
        if (!(n ? bn_jx_put(x, esc, n) : bn_jx_put(x, v.s + i, len))) return false;
    }
    return bn_jx_put(x, &quote, 1);
}

static bool print_inner(struct bn_jx *x, struct bn_jv v);

static bool print_list(struct bn_jx *x, const struct bn_jlist *l, const char *ends, bool tuple)
{
    if (!bn_jx_enter(x) || !bn_jx_put(x, ends, 1)) return false;
    for (size_t i = 0; i < l->n; i++)
        if ((i && !bn_jx_put(x, ", ", 2)) || !print_inner(x, l->v[i])) return false;
    x->depth--;
    if (tuple && l->n == 1 && !bn_jx_put(x, ",", 1)) return false;
    return bn_jx_put(x, ends + 1, 1);
}

static bool print_dict(struct bn_jx *x, const struct bn_jdict *d)
{
    if (!bn_jx_enter(x) || !bn_jx_put(x, "{", 1)) return false;
    for (size_t i = 0; i < d->n; i++)
        if ((i && !bn_jx_put(x, ", ", 2)) || !print_inner(x, d->p[i].key) ||
            !bn_jx_put(x, ": ", 2) || !print_inner(x, d->p[i].val))
            return false;
    x->depth--;
    return bn_jx_put(x, "}", 1);
}

/* A value inside a list or dictionary. */
static bool print_inner(struct bn_jx *x, struct bn_jv v)
{
    if (v.kind == BN_JV_STR) return print_quoted(x, v);
    if (v.kind == BN_JV_UNDEF) return bn_jx_put(x, "Undefined", 9);
    return bn_jv_print(x, v);
}

bool bn_jv_print(struct bn_jx *x, struct bn_jv v)
{
    char text[BN_NUMBER_BYTES];
    switch (v.kind) {
    case BN_JV_UNDEF: return true;
    case BN_JV_NONE: return bn_jx_put(x, "None", 4);
    case BN_JV_BOOL: return v.b ? bn_jx_put(x, "True", 4) : bn_jx_put(x, "False", 5);
    case BN_JV_INT:
        return bn_jx_put(x, text, (size_t)snprintf(text, sizeof text, "%lld", (long long)v.i));
    case BN_JV_FLOAT: return bn_jx_put(x, text, bn_jv_format_float(text, v.f));
    case BN_JV_STR: return bn_jx_put(x, v.s, v.n);
    case BN_JV_LIST: return print_list(x, v.list, "[]", false);
    case BN_JV_TUPLE: return print_list(x, v.list, "()", true);
    case BN_JV_DICT: return print_dict(x, v.dict);
    default:
        return bn_jx_fail(x, BITNET_E_UNSUPPORTED, "a %s cannot be printed",
                          bn_jv_type_name(v.kind));
    }
}

bool bn_jv_to_str(struct bn_jx *x, struct bn_jv v, struct bn_jv *out)
{
    if (v.kind == BN_JV_STR) {
        *out = v;
        return true;
    }
    size_t mark = x->buf.len;
    return bn_jv_print(x, v) && bn_jx_cut(x, mark, out);
}

bool bn_jv_concat(struct bn_jx *x, struct bn_jv a, struct bn_jv b, struct bn_jv *out)
{
    size_t n = (size_t)a.n + b.n;
    char *s = bn_jx_alloc(x, n, 1);
    if (!s || !bn_jx_charge(x, n / 64)) return false;
    if (a.n) memcpy(s, a.s, a.n);
    if (b.n) memcpy(s + a.n, b.s, b.n);
    *out = bn_jv_str(s, n);
    return true;
}
