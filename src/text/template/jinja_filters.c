/* SPDX-License-Identifier: Apache-2.0
 * Filters. Each takes the value before the "|" as `self` and its arguments in declared order.
 * Where Jinja hands out a generator, these make a list at once. Strings are never marked as safe
 * HTML: nothing is escaped automatically in a chat template. */
#include "text/template/jinja.h"

#include <math.h>
#include <stdio.h>

#define FILTER(name) \
    static bool name(struct bn_jx *x, struct bn_jv *out, struct bn_jv self, struct bn_jargs *a)

static bool given(struct bn_jv v) { return v.kind != BN_JV_ABSENT && v.kind != BN_JV_NONE; }

/* ------------------------------------------------------------------ strings */

FILTER(f_string)
{
    (void)a;
    return bn_jv_to_str(x, self, out);
}

FILTER(f_trim)
{
    struct bn_jv s;
    return bn_jv_to_str(x, self, &s) &&
           bn_jinja_method(BN_JV_STR, bn_jv_str("strip", 5))->call(x, out, s, a);
}

static bool change_case(struct bn_jx *x, struct bn_jv *out, struct bn_jv self,
                        enum bn_text_case how)
{
    struct bn_jv s;
    return bn_jv_to_str(x, self, &s) && bn_text_case(x, out, s, how);
}
FILTER(f_upper)
{
    (void)a;
    return change_case(x, out, self, BN_TEXT_UPPER);
}
FILTER(f_lower)
{
    (void)a;
    return change_case(x, out, self, BN_TEXT_LOWER);
}
FILTER(f_capitalize)
{
    (void)a;
    return change_case(x, out, self, BN_TEXT_CAPITALIZE);
}
FILTER(f_title)
{
    (void)a;
    return change_case(x, out, self, BN_TEXT_TITLE);
}

FILTER(f_replace)
{
    struct bn_jv s, args[3];
    if (!bn_jv_to_str(x, self, &s)) return false;
    for (int i = 0; i < 2; i++)
        if (!bn_jv_to_str(x, a->v[i], &args[i])) return false;
    args[2] = a->v[2];
    struct bn_jargs b = {.n = 3, .v = args};
    return bn_jinja_method(BN_JV_STR, bn_jv_str("replace", 7))->call(x, out, s, &b);
}

FILTER(f_escape)
{
    static const struct {
        char c;
        char text[6];
    } map[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&#34;"}, {'\'', "&#39;"}};
    struct bn_jv s;
    (void)a;
    if (!bn_jv_to_str(x, self, &s)) return false;
    size_t mark = x->buf.len;
    for (size_t i = 0; i < s.n; i++) {
        size_t k = 0;
        while (k < BN_ARRAY_LEN(map) && map[k].c != s.s[i]) k++;
        bool hit = k < BN_ARRAY_LEN(map);
        if (!bn_jx_put(x, hit ? map[k].text : s.s + i, hit ? strlen(map[k].text) : 1)) return false;
    }
    return bn_jx_cut(x, mark, out);
}

/* width, first, blank */
FILTER(f_indent)
{
    struct bn_jv s, width = a->v[0].kind == BN_JV_ABSENT ? bn_jv_int(4) : a->v[0],
                    pad = bn_jv_str(" ", 1), times;
    int64_t n = 1;
    bool first = bn_jv_truth(a->v[1]), blank = bn_jv_truth(a->v[2]), line_first = true;
    if (width.kind == BN_JV_STR) pad = width;
    else if (!bn_jv_as_int(width, &n) || n > 1024)
        return bn_jx_fail(x, BITNET_E_FORMAT, "indent: the width is no number up to 1024");
    if (!bn_jv_to_str(x, self, &s)) return false;
    size_t mark = x->buf.len;
    for (int64_t i = 0; i < n; i++)
        if (!bn_jx_put(x, pad.s, pad.n)) return false;
    if (!bn_jx_cut(x, mark, &times)) return false;
    for (size_t i = 0; i <= s.n; line_first = false) {
        const char *end = i < s.n ? memchr(s.s + i, '\n', s.n - i) : NULL;
        size_t len = end ? (size_t)(end - s.s) - i : s.n - i;
        if (!line_first && !bn_jx_put(x, "\n", 1)) return false;
        bool padded = line_first ? first : len > 0 || blank;
        if ((padded && !bn_jx_put(x, times.s, times.n)) || !bn_jx_put(x, s.s + i, len))
            return false;
        i += len + 1;
    }
    return bn_jx_cut(x, mark, out);
}

FILTER(f_format)
{
    struct bn_jv s;
    return bn_jv_to_str(x, self, &s) && bn_jinja_percent(x, out, s, a->v, a->n);
}

/* ------------------------------------------------------------------ numbers */

FILTER(f_int) /* default, base */
{
    int64_t base = 10, i;
    double f;
    const char *s = self.s;
    size_t n = self.n;
    if (self.kind == BN_JV_UNDEF) return bn_jv_undefined(x, self);
    if (bn_jv_as_int(a->v[1], &base) && (base < 2 || base > 36))
        return bn_jx_fail(x, BITNET_E_FORMAT, "int: base %lld is not between 2 and 36",
                          (long long)base);
    *out = a->v[0].kind == BN_JV_ABSENT ? bn_jv_int(0) : a->v[0];
    if (self.kind == BN_JV_STR) {
        bn_text_strip(&s, &n, NULL, 0, 3);
        if (bn_text_int(s, n, (int)base, &i)) {
            *out = bn_jv_int(i);
            return true;
        }
        if (!bn_text_float(s, n, &f)) return true;
    } else if (bn_jv_as_int(self, &i)) {
        *out = bn_jv_int(i);
        return true;
    } else if (!bn_jv_as_float(self, &f)) {
        return true;
    }
    if (f > -9.2e18 && f < 9.2e18) *out = bn_jv_int((int64_t)f);
    return true;
}

FILTER(f_float)
{
    double f;
    const char *s = self.s;
    size_t n = self.n;
    if (self.kind == BN_JV_UNDEF) return bn_jv_undefined(x, self);
    *out = a->v[0].kind == BN_JV_ABSENT ? bn_jv_float(0) : a->v[0];
    if (self.kind == BN_JV_STR) {
        bn_text_strip(&s, &n, NULL, 0, 3);
        if (bn_text_float(s, n, &f)) *out = bn_jv_float(f);
    } else if (bn_jv_as_float(self, &f)) {
        *out = bn_jv_float(f);
    }
    return true;
}

FILTER(f_abs)
{
    int64_t i;
    (void)a;
    if (bn_jv_as_int(self, &i) && i != INT64_MIN) *out = bn_jv_int(i < 0 ? -i : i);
    else if (self.kind == BN_JV_FLOAT) *out = bn_jv_float(fabs(self.f));
    else
        return bn_jx_fail(x, BITNET_E_FORMAT, "abs: a %s is no number", bn_jv_type_name(self.kind));
    return true;
}

FILTER(f_round) /* precision, method */
{
    int64_t precision = 0, i;
    double f;
    bool up = bn_jv_is(a->v[1], "ceil"), down = bn_jv_is(a->v[1], "floor");
    if (!bn_jv_as_float(self, &f))
        return bn_jx_fail(x, BITNET_E_FORMAT, "round: a %s is no number",
                          bn_jv_type_name(self.kind));
    if ((given(a->v[0]) && !bn_jv_as_int(a->v[0], &precision)) || precision < 0 || precision > 15)
        return bn_jx_fail(x, BITNET_E_FORMAT, "round: the precision is not between 0 and 15");
    if (given(a->v[1]) && !up && !down && !bn_jv_is(a->v[1], "common"))
        return bn_jx_fail(x, BITNET_E_FORMAT, "round: the method must be common, ceil or floor");
    double scale = pow(10, (double)precision);
    if (up || down) {
        *out = bn_jv_float((up ? ceil(f * scale) : floor(f * scale)) / scale);
    } else if (bn_jv_as_int(self, &i)) {
        *out = bn_jv_int(i);
    } else { /* the decimal nearest to the binary value, as Python rounds */
        char text[400];
        int n = snprintf(text, sizeof text, "%.*f", (int)precision, f);
        for (char *p = text; *p; p++)
            if (!strchr("0123456789+-", *p)) *p = '.';
        *out = bn_jv_float(f);
        if (n > 0 && (size_t)n < sizeof text && bn_text_float(text, (size_t)n, &f))
            *out = bn_jv_float(f);
    }
    return true;
}

/* ------------------------------------------------------------------ sequences */

FILTER(f_length)
{
    size_t n;
    (void)a;
    if (!bn_jv_length(x, self, &n)) return false;
    *out = bn_jv_int((int64_t)n);
    return true;
}

FILTER(f_list)
{
    const struct bn_jlist *l;
    (void)a;
    if (!bn_jv_items(x, self, &l)) return false;
    *out =
        (struct bn_jv){.kind = BN_JV_LIST, .list = (struct bn_jlist *)l}; /* lists do not change */
    return true;
}

FILTER(f_first)
{
    const struct bn_jlist *l;
    (void)a;
    if (!bn_jv_items(x, self, &l)) return false;
    *out = l->n ? l->v[0] : bn_jv_undef(bn_jv_str("first", 5), self.kind);
    return true;
}

FILTER(f_last)
{
    const struct bn_jlist *l;
    (void)a;
    if (!bn_jv_items(x, self, &l)) return false;
    *out = l->n ? l->v[l->n - 1] : bn_jv_undef(bn_jv_str("last", 4), self.kind);
    return true;
}

FILTER(f_default) /* default_value, boolean */
{
    bool missing = self.kind == BN_JV_UNDEF || (bn_jv_truth(a->v[1]) && !bn_jv_truth(self));
    (void)x;
    *out = !missing ? self : a->v[0].kind == BN_JV_ABSENT ? bn_jv_str("", 0) : a->v[0];
    return true;
}

/* "a.b.0" of a value, or item `attr` if it is a number. */
static bool deep_attr(struct bn_jx *x, struct bn_jv *out, struct bn_jv v, struct bn_jv attr)
{
    if (attr.kind != BN_JV_STR) return bn_jx_getitem(x, out, v, attr);
    *out = v;
    for (size_t i = 0, len; i <= attr.n; i += len + 1) {
        const char *dot = memchr(attr.s + i, '.', attr.n - i);
        len = dot ? (size_t)(dot - attr.s) - i : attr.n - i;
        struct bn_jv key = bn_jv_str(attr.s + i, len), self = *out;
        int64_t index;
        if (bn_text_int(key.s, key.n, 10, &index) && key.s[0] != '-' && key.s[0] != '+')
            key = bn_jv_int(index);
        if (!bn_jx_getitem(x, out, self, key)) return false;
    }
    return true;
}

FILTER(f_attr) { return bn_jx_getattr(x, out, self, a->v[0]); }

FILTER(f_join) /* d, attribute */
{
    const struct bn_jlist *l;
    struct bn_jv sep = bn_jv_str("", 0), v;
    if (!bn_jv_items(x, self, &l)) return false;
    if (given(a->v[0]) && !bn_jv_to_str(x, a->v[0], &sep)) return false;
    size_t mark = x->buf.len;
    for (size_t i = 0; i < l->n; i++) {
        if (!bn_jx_charge(x, 1) || (i && !bn_jx_put(x, sep.s, sep.n))) return false;
        v = l->v[i];
        if (given(a->v[1]) && !deep_attr(x, &v, l->v[i], a->v[1])) return false;
        if (!bn_jv_print(x, v)) return false;
    }
    return bn_jx_cut(x, mark, out);
}

FILTER(f_reverse)
{
    const struct bn_jv bounds[3] = {{.kind = BN_JV_ABSENT}, {.kind = BN_JV_ABSENT}, bn_jv_int(-1)};
    (void)a;
    if (self.kind == BN_JV_STR) return bn_jx_slice(x, out, self, bounds);
    struct bn_jv l;
    return f_list(x, &l, self, a) && bn_jx_slice(x, out, l, bounds);
}

FILTER(f_items)
{
    struct bn_jargs none = {0};
    (void)a;
    if (self.kind == BN_JV_UNDEF) return bn_jv_list(x, BN_JV_LIST, 0, out);
    if (self.kind != BN_JV_DICT)
        return bn_jx_fail(x, BITNET_E_FORMAT, "items: a %s is no dict", bn_jv_type_name(self.kind));
    return bn_jinja_method(BN_JV_DICT, bn_jv_str("items", 5))->call(x, out, self, &none);
}

/* Arguments from number `skip` on. */
static struct bn_jargs rest(const struct bn_jargs *a, size_t skip)
{
    struct bn_jargs b = *a;
    b.v += bn_min_size(skip, a->n);
    b.n -= bn_min_size(skip, a->n);
    return b;
}

/* map('filter', args...) or map(attribute='name', default=value) */
FILTER(f_map)
{
    const struct bn_jlist *l;
    struct bn_jv attr = {.kind = BN_JV_ABSENT}, fallback = {.kind = BN_JV_ABSENT};
    if (!bn_jv_truth(self)) return bn_jv_list(x, BN_JV_LIST, 0, out);
    if (!bn_jv_items(x, self, &l) || !bn_jv_list(x, BN_JV_LIST, l->n, out)) return false;
    for (size_t k = 0; k < a->n_kw && a->n == 0; k++) {
        if (bn_jv_is(a->kw_names[k], "attribute")) attr = a->kw[k];
        else if (bn_jv_is(a->kw_names[k], "default")) fallback = a->kw[k];
    }
    const struct bn_jfn *fn = a->n ? bn_jinja_filter(a->v[0]) : NULL;
    if (!fn && attr.kind == BN_JV_ABSENT)
        return bn_jx_fail(x, BITNET_E_UNSUPPORTED,
                          "map: neither a known filter nor an attribute is named");
    for (size_t i = 0; i < l->n; i++) {
        struct bn_jv *v = &out->list->v[out->list->n++];
        if (!bn_jx_enter(x)) return false;
        if (fn) {
            struct bn_jargs b =
                rest(a, 1); /* binding marks names as taken: give every call its own */
            struct bn_jv *names = bn_jx_alloc(x, b.n_kw, sizeof *names);
            if (!names) return false;
            if (b.n_kw) memcpy(names, b.kw_names, b.n_kw * sizeof *names);
            b.kw_names = names;
            if (!bn_jx_call_fn(x, fn, "filter", v, l->v[i], &b)) return false;
        } else if (!deep_attr(x, v, l->v[i], attr)) {
            return false;
        }
        if (v->kind == BN_JV_UNDEF && fallback.kind != BN_JV_ABSENT) *v = fallback;
        x->depth--;
    }
    return true;
}

/* The four selections: by the item or by an attribute of it, with a test or by truth; keep: what
 * holds. */
static bool choose(struct bn_jx *x, struct bn_jv *out, struct bn_jv self, struct bn_jargs *a,
                   bool by_attr, bool keep)
{
    const struct bn_jlist *l;
    size_t at = by_attr;
    if (by_attr && a->n == 0)
        return bn_jx_fail(x, BITNET_E_FORMAT, "selectattr: no attribute is named");
    if (!bn_jv_list(x, BN_JV_LIST, 0, out)) return false;
    if (!bn_jv_truth(self))
        return true; /* also none: templates select from tools that were not given */
    if (!bn_jv_items(x, self, &l)) return false;
    const struct bn_jfn *test = a->n > at ? bn_jinja_test(a->v[at]) : NULL;
    if (a->n > at && !test)
        return bn_jx_fail(x, BITNET_E_UNSUPPORTED, "test '%.*s' is not supported",
                          (int)bn_min_size(a->v[at].n, 50),
                          a->v[at].kind == BN_JV_STR ? a->v[at].s : "");
    for (size_t i = 0; i < l->n; i++) {
        struct bn_jv v = l->v[i], yes;
        if (!bn_jx_enter(x)) return false;
        if (by_attr && !deep_attr(x, &v, l->v[i], a->v[0])) return false;
        yes = v;
        if (test) {
            struct bn_jargs b = rest(a, at + 1);
            if (!bn_jx_call_fn(x, test, "test", &yes, v, &b)) return false;
        }
        if (bn_jv_truth(yes) == keep && !bn_jv_push(x, out->list, l->v[i])) return false;
        x->depth--;
    }
    return true;
}
FILTER(f_select) { return choose(x, out, self, a, false, true); }
FILTER(f_reject) { return choose(x, out, self, a, false, false); }
FILTER(f_selectattr) { return choose(x, out, self, a, true, true); }
FILTER(f_rejectattr) { return choose(x, out, self, a, true, false); }

/* ------------------------------------------------------------------ order */

struct order {
    struct bn_jv attribute;
    bool exact_case, reverse;
};

/* What an item is compared by. */
static bool sort_key(struct bn_jx *x, struct bn_jv *key, struct bn_jv v, const struct order *o)
{
    *key = v;
    if (given(o->attribute) && !deep_attr(x, key, v, o->attribute)) return false;
    if (o->exact_case || key->kind != BN_JV_STR) return true;
    struct bn_jv s = *key;
    return bn_text_case(x, key, s, BN_TEXT_LOWER);
}

/* Merge sort: stable, and a comparison that fails ends it. room: as large as v. */
static bool sort_pairs(struct bn_jx *x, struct bn_jpair *v, struct bn_jpair *room, size_t n,
                       bool reverse)
{
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t lo = 0; lo < n; lo += 2 * width) {
            size_t mid = bn_min_size(lo + width, n), hi = bn_min_size(lo + 2 * width, n), i = lo,
                   j = mid;
            for (size_t k = lo; k < hi; k++) {
                int order = 0;
                if (i < mid && j < hi && !bn_jv_compare(x, v[i].key, v[j].key, &order))
                    return false;
                bool left = j >= hi || (i < mid && (reverse ? order >= 0 : order <= 0));
                room[k] = left ? v[i++] : v[j++];
            }
            if (!bn_jx_charge(x, (hi - lo) / 4 + 1)) return false;
        }
        memcpy(v, room, n * sizeof *v);
    }
    return true;
}

static bool sorted(struct bn_jx *x, struct bn_jv *out, const struct bn_jlist *l,
                   const struct order *o)
{
    struct bn_jpair *v = bn_jx_alloc(x, 2 * l->n, sizeof *v);
    if (!v || !bn_jv_list(x, BN_JV_LIST, l->n, out)) return false;
    for (size_t i = 0; i < l->n; i++) {
        v[i].val = l->v[i];
        if (!sort_key(x, &v[i].key, l->v[i], o)) return false;
    }
    if (!sort_pairs(x, v, v + l->n, l->n, o->reverse)) return false;
    for (size_t i = 0; i < l->n; i++) out->list->v[out->list->n++] = v[i].val;
    return true;
}

FILTER(f_sort) /* reverse, case_sensitive, attribute */
{
    const struct bn_jlist *l;
    struct order o = {a->v[2], bn_jv_truth(a->v[1]), bn_jv_truth(a->v[0])};
    return bn_jv_items(x, self, &l) && sorted(x, out, l, &o);
}

FILTER(f_dictsort) /* case_sensitive, by, reverse */
{
    struct bn_jv pairs;
    struct order o = {bn_jv_int(bn_jv_is(a->v[1], "value")), bn_jv_truth(a->v[0]),
                      bn_jv_truth(a->v[2])};
    return f_items(x, &pairs, self, a) && sorted(x, out, pairs.list, &o);
}

FILTER(f_unique) /* case_sensitive, attribute */
{
    const struct bn_jlist *l;
    struct bn_jv keys, key;
    struct order o = {a->v[1], bn_jv_truth(a->v[0]), false};
    if (!bn_jv_items(x, self, &l) || !bn_jv_list(x, BN_JV_LIST, 0, out) ||
        !bn_jv_list(x, BN_JV_LIST, 0, &keys))
        return false;
    for (size_t i = 0; i < l->n; i++) {
        bool seen;
        if (!sort_key(x, &key, l->v[i], &o) || !bn_jv_contains(x, key, keys, &seen)) return false;
        if (!seen && (!bn_jv_push(x, keys.list, key) || !bn_jv_push(x, out->list, l->v[i])))
            return false;
    }
    return true;
}

static bool extreme(struct bn_jx *x, struct bn_jv *out, struct bn_jv self, struct bn_jargs *a,
                    int sign)
{
    const struct bn_jlist *l;
    struct order o = {a->v[1], bn_jv_truth(a->v[0]), false};
    struct bn_jv best = {.kind = BN_JV_ABSENT}, key;
    if (!bn_jv_items(x, self, &l)) return false;
    *out = bn_jv_undef(bn_jv_str("item", 4), self.kind);
    for (size_t i = 0; i < l->n; i++) {
        int order = sign;
        if (!bn_jx_charge(x, 1) || !sort_key(x, &key, l->v[i], &o)) return false;
        if (i && !bn_jv_compare(x, key, best, &order)) return false;
        if (order != sign) continue;
        best = key;
        *out = l->v[i];
    }
    return true;
}
FILTER(f_max) { return extreme(x, out, self, a, 1); }
FILTER(f_min) { return extreme(x, out, self, a, -1); }

FILTER(f_sum) /* attribute, start */
{
    const struct bn_jlist *l;
    int64_t whole = 0, i;
    double real = 0, f;
    bool is_real = a->v[1].kind == BN_JV_FLOAT;
    if (!bn_jv_items(x, self, &l)) return false;
    if (given(a->v[1]) && !bn_jv_as_float(a->v[1], &real))
        return bn_jx_fail(x, BITNET_E_UNSUPPORTED, "sum: only numbers can be summed");
    bn_jv_as_int(a->v[1], &whole);
    for (size_t k = 0; k < l->n; k++) {
        struct bn_jv v = l->v[k];
        if (!bn_jx_charge(x, 1) || (given(a->v[0]) && !deep_attr(x, &v, l->v[k], a->v[0])))
            return false;
        if (!bn_jv_as_float(v, &f))
            return bn_jx_fail(x, BITNET_E_UNSUPPORTED, "sum: a %s is no number",
                              bn_jv_type_name(v.kind));
        real += f;
        is_real |= !bn_jv_as_int(v, &i);
        if (!is_real && __builtin_add_overflow(whole, i, &whole))
            return bn_jx_fail(x, BITNET_E_LIMIT, "sum: does not fit into 64 bits");
    }
    *out = is_real ? bn_jv_float(real) : bn_jv_int(whole);
    return true;
}

/* ------------------------------------------------------------------ the list */

static const struct bn_jfn filters[] = {
    {"trim", "chars", 0, 0, f_trim},
    {"tojson", "ensure_ascii,indent,separators,sort_keys", 0, 0, bn_jv_tojson},
    {"length", "", 0, 0, f_length},
    {"count", "", 0, 0, f_length},
    {"default", "default_value,boolean", 0, 0, f_default},
    {"d", "default_value,boolean", 0, 0, f_default},
    {"string", "", 0, 0, f_string},
    {"safe", "", 0, 0, f_string},
    {"upper", "", 0, 0, f_upper},
    {"lower", "", 0, 0, f_lower},
    {"capitalize", "", 0, 0, f_capitalize},
    {"title", "", 0, 0, f_title},
    {"join", "d,attribute", 0, 0, f_join},
    {"replace", "old,new,count", 2, 0, f_replace},
    {"first", "", 0, 0, f_first},
    {"last", "", 0, 0, f_last},
    {"list", "", 0, 0, f_list},
    {"items", "", 0, 0, f_items},
    {"int", "default,base", 0, 0, f_int},
    {"float", "default", 0, 0, f_float},
    {"abs", "", 0, 0, f_abs},
    {"round", "precision,method", 0, 0, f_round},
    {"map", NULL, 0, 0, f_map},
    {"select", NULL, 0, 0, f_select},
    {"reject", NULL, 0, 0, f_reject},
    {"selectattr", NULL, 0, 0, f_selectattr},
    {"rejectattr", NULL, 0, 0, f_rejectattr},
    {"reverse", "", 0, 0, f_reverse},
    {"unique", "case_sensitive,attribute", 0, 0, f_unique},
    {"sort", "reverse,case_sensitive,attribute", 0, 0, f_sort},
    {"dictsort", "case_sensitive,by,reverse", 0, 0, f_dictsort},
    {"indent", "width,first,blank", 0, 0, f_indent},
    {"sum", "attribute,start", 0, 0, f_sum},
    {"max", "case_sensitive,attribute", 0, 0, f_max},
    {"min", "case_sensitive,attribute", 0, 0, f_min},
    {"attr", "name", 1, 0, f_attr},
    {"format", NULL, 0, 0, f_format},
    {"escape", "", 0, 0, f_escape},
    {"e", "", 0, 0, f_escape},
};

const struct bn_jfn *bn_jinja_filter(struct bn_jv name)
{
    for (size_t i = 0; i < BN_ARRAY_LEN(filters); i++)
        if (bn_jv_is(name, filters[i].name)) return &filters[i];
    return NULL;
}
