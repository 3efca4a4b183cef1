/* SPDX-License-Identifier: Apache-2.0
 * Methods of strings, lists, dictionaries and loops: those of Python that read. What would change
 * a value (append, update, pop, ...) does not exist, as in the sandbox that Hugging Face runs
 * templates in. */
#include "text/template/jinja.h"

#include <stdio.h>
#include <utf8proc.h>

#define METHOD(name) \
    static bool name(struct bn_jx *x, struct bn_jv *out, struct bn_jv self, struct bn_jargs *a)

/* Argument i must be a string. */
static bool need_str(struct bn_jx *x, const struct bn_jargs *a, size_t i)
{
    if (a->v[i].kind == BN_JV_STR) return true;
    if (a->v[i].kind == BN_JV_UNDEF) return bn_jv_undefined(x, a->v[i]);
    return bn_jx_fail(x, BITNET_E_FORMAT, "a str method got a %s as argument",
                      bn_jv_type_name(a->v[i].kind));
}

static bool is_given(struct bn_jv v) { return v.kind != BN_JV_ABSENT && v.kind != BN_JV_NONE; }

/* An optional count; below 0 or absent: no limit. */
static bool get_count(struct bn_jx *x, struct bn_jv v, uint64_t *count)
{
    int64_t i = -1;
    if (is_given(v) && !bn_jv_as_int(v, &i))
        return bn_jx_fail(x, BITNET_E_FORMAT, "a count is a %s", bn_jv_type_name(v.kind));
    *count = i < 0 ? UINT64_MAX : (uint64_t)i;
    return true;
}

/* ------------------------------------------------------------------ strings */

static bool strip(struct bn_jx *x, struct bn_jv *out, struct bn_jv self, struct bn_jargs *a,
                  int sides)
{
    bool chars = is_given(a->v[0]);
    if (chars && !need_str(x, a, 0)) return false;
    size_t n = self.n;
    const char *s = self.s;
    if (!bn_jx_charge(x, (n / 16 + 1) * (chars ? a->v[0].n / 16 : 0)))
        return false; /* at the worst */
    bn_text_strip(&s, &n, chars ? a->v[0].s : NULL, chars ? a->v[0].n : 0, sides);
    *out = bn_jv_str(s, n);
    return bn_jx_charge(x, (self.n - n) / 16);
}
METHOD(s_strip) { return strip(x, out, self, a, 3); }
METHOD(s_lstrip) { return strip(x, out, self, a, 1); }
METHOD(s_rstrip) { return strip(x, out, self, a, 2); }

METHOD(s_upper)
{
    (void)a;
    return bn_text_case(x, out, self, BN_TEXT_UPPER);
}
METHOD(s_lower)
{
    (void)a;
    return bn_text_case(x, out, self, BN_TEXT_LOWER);
}
METHOD(s_capitalize)
{
    (void)a;
    return bn_text_case(x, out, self, BN_TEXT_CAPITALIZE);
}
METHOD(s_title)
{
    (void)a;
    return bn_text_case(x, out, self, BN_TEXT_TITLE_WORDS);
}

static bool has_affix(struct bn_jv s, struct bn_jv affix, bool at_end)
{
    return affix.n <= s.n && memcmp(s.s + (at_end ? s.n - affix.n : 0), affix.s, affix.n) == 0;
}

/* One string, or a tuple of which one is enough. */
static bool affix(struct bn_jx *x, struct bn_jv *out, struct bn_jv self, struct bn_jargs *a,
                  bool at_end)
{
    *out = bn_jv_bool(false);
    if (a->v[0].kind != BN_JV_TUPLE) {
        if (!need_str(x, a, 0)) return false;
        out->b = has_affix(self, a->v[0], at_end);
        return true;
    }
    const struct bn_jlist *l = a->v[0].list;
    for (size_t i = 0; i < l->n; i++) {
        if (l->v[i].kind != BN_JV_STR)
            return bn_jx_fail(x, BITNET_E_FORMAT, "startswith: the tuple holds a %s",
                              bn_jv_type_name(l->v[i].kind));
        out->b |= has_affix(self, l->v[i], at_end);
    }
    return bn_jx_charge(x, l->n / 16);
}
METHOD(s_startswith) { return affix(x, out, self, a, false); }
METHOD(s_endswith) { return affix(x, out, self, a, true); }

METHOD(s_removeprefix)
{
    if (!need_str(x, a, 0)) return false;
    size_t cut = has_affix(self, a->v[0], false) ? a->v[0].n : 0;
    *out = bn_jv_str(self.s + cut, self.n - cut);
    return true;
}
METHOD(s_removesuffix)
{
    if (!need_str(x, a, 0)) return false;
    *out = bn_jv_str(self.s, self.n - (has_affix(self, a->v[0], true) ? a->v[0].n : 0));
    return true;
}

METHOD(s_replace) /* old, new, count */
{
    uint64_t count = 0;
    if (!need_str(x, a, 0) || !need_str(x, a, 1) || !get_count(x, a->v[2], &count)) return false;
    struct bn_jv old = a->v[0], by = a->v[1];
    size_t mark = x->buf.len, at = 0;
    for (; count > 0; count--) {
        const char *hit = bn_text_find(self.s + at, self.n - at, old.s, old.n);
        if (!hit) break;
        size_t end = (size_t)(hit - self.s);
        uint32_t cp;
        if (!bn_jx_charge(x, 1) || !bn_jx_put(x, self.s + at, end - at) ||
            !bn_jx_put(x, by.s, by.n))
            return false;
        at = end + old.n;
        if (old.n > 0) continue;
        if (at >= self.n)
            break; /* nothing replaced by something: before every character and at the end */
        size_t len = bn_text_char(self.s + at, self.n - at, &cp);
        if (!bn_jx_put(x, self.s + at, len)) return false;
        at += len;
    }
    return bn_jx_put(x, self.s + at, self.n - at) && bn_jx_cut(x, mark, out);
}

/* From the end. Quadratic in the worst case, and charged for it beforehand. false: failed. */
static bool find_last(struct bn_jx *x, struct bn_jv s, struct bn_jv what, const char **hit)
{
    *hit = NULL;
    if (what.n > s.n) return true;
    if (!bn_jx_charge(x, (size_t)(s.n / 16) * (what.n / 64 + 1))) return false;
    for (size_t i = s.n - what.n + 1; i-- > 0 && !*hit;)
        if (memcmp(s.s + i, what.s, what.n) == 0) *hit = s.s + i;
    return true;
}

static bool split_space(struct bn_jx *x, struct bn_jv *out, struct bn_jv s, uint64_t limit)
{
    size_t n = s.n;
    for (;; limit--) {
        bn_text_strip(&s.s, &n, NULL, 0, 1);
        if (n == 0) return true;
        size_t len = n;
        uint32_t cp;
        for (size_t i = 0, k; limit > 0 && i < n; i += k) { /* past the limit: all that is left */
            k = bn_text_char(s.s + i, n - i, &cp);
            if (bn_text_is_space(cp)) {
                len = i;
                break;
            }
        }
        if (!bn_jx_charge(x, 1 + len / 64) || !bn_jv_push(x, out->list, bn_jv_str(s.s, len)))
            return false;
        s.s += len;
        n -= len;
    }
}

METHOD(s_split) /* sep, maxsplit */
{
    uint64_t limit = 0;
    if (!get_count(x, a->v[1], &limit) || !bn_jv_list(x, BN_JV_LIST, 0, out)) return false;
    if (!is_given(a->v[0])) return split_space(x, out, self, limit);
    if (!need_str(x, a, 0)) return false;
    struct bn_jv sep = a->v[0];
    if (sep.n == 0) return bn_jx_fail(x, BITNET_E_FORMAT, "split: the separator is empty");
    size_t at = 0;
    for (; limit > 0; limit--) {
        const char *hit = bn_text_find(self.s + at, self.n - at, sep.s, sep.n);
        if (!hit) break;
        size_t end = (size_t)(hit - self.s);
        if (!bn_jx_charge(x, 1 + (end - at) / 64) ||
            !bn_jv_push(x, out->list, bn_jv_str(self.s + at, end - at)))
            return false;
        at = end + sep.n;
    }
    return bn_jx_charge(x, self.n / 64) &&
           bn_jv_push(x, out->list, bn_jv_str(self.s + at, self.n - at));
}

METHOD(s_rsplit) /* sep, maxsplit; from the right */
{
    uint64_t limit = 0;
    struct bn_jv parts, s = self, sep = a->v[0];
    if (!get_count(x, a->v[1], &limit)) return false;
    if (limit == UINT64_MAX) return s_split(x, out, self, a);
    if (!is_given(sep))
        return bn_jx_fail(x, BITNET_E_UNSUPPORTED,
                          "rsplit: a limit without a separator is not supported");
    if (!need_str(x, a, 0) || !bn_jv_list(x, BN_JV_LIST, 0, &parts)) return false;
    if (sep.n == 0) return bn_jx_fail(x, BITNET_E_FORMAT, "rsplit: the separator is empty");
    for (; limit > 0; limit--) {
        const char *hit;
        if (!find_last(x, s, sep, &hit)) return false;
        if (!hit) break;
        size_t end = (size_t)(hit - s.s) + sep.n;
        if (!bn_jx_charge(x, 1 + (s.n - end) / 16) ||
            !bn_jv_push(x, parts.list, bn_jv_str(s.s + end, s.n - end)))
            return false;
        s.n = (uint32_t)(end - sep.n);
    }
    const struct bn_jv bounds[3] = {{.kind = BN_JV_ABSENT}, {.kind = BN_JV_ABSENT}, bn_jv_int(-1)};
    return bn_jx_charge(x, s.n / 16) && bn_jv_push(x, parts.list, s) &&
           bn_jx_slice(x, out, parts, bounds);
}

METHOD(s_splitlines) /* keepends */
{
    bool keep = bn_jv_truth(a->v[0]);
    if (!bn_jv_list(x, BN_JV_LIST, 0, out)) return false;
    for (size_t i = 0; i < self.n;) {
        size_t len = 0, ends = 0;
        while (i + len < self.n && self.s[i + len] != '\n' && self.s[i + len] != '\r') len++;
        if (i + len < self.n)
            ends = self.s[i + len] == '\r' && i + len + 1 < self.n && self.s[i + len + 1] == '\n'
                       ? 2
                       : 1;
        if (!bn_jx_charge(x, 1 + len / 64) ||
            !bn_jv_push(x, out->list, bn_jv_str(self.s + i, len + (keep ? ends : 0))))
            return false;
        i += len + ends;
    }
    return true;
}

/* (before, separator, after) */
static bool partition(struct bn_jx *x, struct bn_jv *out, struct bn_jv self, struct bn_jargs *a,
                      bool last)
{
    if (!need_str(x, a, 0) || !bn_jv_list(x, BN_JV_TUPLE, 3, out)) return false;
    struct bn_jv sep = a->v[0], empty = bn_jv_str("", 0);
    if (sep.n == 0) return bn_jx_fail(x, BITNET_E_FORMAT, "partition: the separator is empty");
    const char *hit = bn_text_find(self.s, self.n, sep.s, sep.n);
    if (last && !find_last(x, self, sep, &hit)) return false;
    size_t at = hit ? (size_t)(hit - self.s) : 0;
    out->list->v[0] = hit ? bn_jv_str(self.s, at) : last ? empty : self;
    out->list->v[1] = hit ? sep : empty;
    out->list->v[2] = hit    ? bn_jv_str(self.s + at + sep.n, self.n - at - sep.n)
                      : last ? self
                             : empty;
    out->list->n = 3;
    return bn_jx_charge(x, self.n / 16);
}
METHOD(s_partition) { return partition(x, out, self, a, false); }
METHOD(s_rpartition) { return partition(x, out, self, a, true); }

static bool find(struct bn_jx *x, struct bn_jv *out, struct bn_jv self, struct bn_jargs *a,
                 bool last, bool must)
{
    if (!need_str(x, a, 0)) return false;
    const char *hit = bn_text_find(self.s, self.n, a->v[0].s, a->v[0].n);
    if (last && !find_last(x, self, a->v[0], &hit)) return false;
    if (!hit && must) return bn_jx_fail(x, BITNET_E_FORMAT, "index: the substring is not found");
    *out = bn_jv_int(hit ? (int64_t)bn_text_count(self.s, (size_t)(hit - self.s)) : -1);
    return bn_jx_charge(x, self.n / 16);
}
METHOD(s_find) { return find(x, out, self, a, false, false); }
METHOD(s_rfind) { return find(x, out, self, a, true, false); }
METHOD(s_index) { return find(x, out, self, a, false, true); }

METHOD(s_count)
{
    int64_t n = 0;
    if (!need_str(x, a, 0)) return false;
    if (a->v[0].n == 0) n = (int64_t)bn_text_count(self.s, self.n) + 1;
    else
        for (size_t at = 0;; n++) {
            const char *hit = bn_text_find(self.s + at, self.n - at, a->v[0].s, a->v[0].n);
            if (!hit) break;
            at = (size_t)(hit - self.s) + a->v[0].n;
        }
    *out = bn_jv_int(n);
    return bn_jx_charge(x, self.n / 16);
}

METHOD(s_join)
{
    const struct bn_jlist *l;
    if (!bn_jv_items(x, a->v[0], &l)) return false;
    size_t mark = x->buf.len;
    for (size_t i = 0; i < l->n; i++) {
        if (l->v[i].kind != BN_JV_STR)
            return bn_jx_fail(x, BITNET_E_FORMAT, "join: item %zu is a %s, not a str", i,
                              bn_jv_type_name(l->v[i].kind));
        if (!bn_jx_charge(x, 1) || (i && !bn_jx_put(x, self.s, self.n)) ||
            !bn_jx_put(x, l->v[i].s, l->v[i].n))
            return false;
    }
    return bn_jx_cut(x, mark, out);
}

/* Is every character of that kind, and is there one? kind: 'd'igit, 'a'lpha, 'n' for either,
 * 's'pace */
static bool all_are(struct bn_jx *x, struct bn_jv *out, struct bn_jv self, char kind)
{
    bool yes = self.n > 0;
    for (size_t i = 0, len; i < self.n && yes; i += len) {
        uint32_t cp;
        len = bn_text_char(self.s + i, self.n - i, &cp);
        utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
        bool alpha = c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO,
             digit = c == UTF8PROC_CATEGORY_ND;
        yes = kind == 's'   ? bn_text_is_space(cp)
              : kind == 'd' ? digit
              : kind == 'a' ? alpha
                            : alpha || digit;
    }
    *out = bn_jv_bool(yes);
    return bn_jx_charge(x, self.n / 16);
}
METHOD(s_isdigit)
{
    (void)a;
    return all_are(x, out, self, 'd');
}
METHOD(s_isalpha)
{
    (void)a;
    return all_are(x, out, self, 'a');
}
METHOD(s_isalnum)
{
    (void)a;
    return all_are(x, out, self, 'n');
}
METHOD(s_isspace)
{
    (void)a;
    return all_are(x, out, self, 's');
}
METHOD(s_islower) { return bn_jinja_test(bn_jv_str("lower", 5))->call(x, out, self, a); }
METHOD(s_isupper) { return bn_jinja_test(bn_jv_str("upper", 5))->call(x, out, self, a); }

/* The argument that "{...}" stands for: the next one, one by number, one by name. */
static bool format_field(struct bn_jx *x, struct bn_jv *out, const char *s, size_t n,
                         const struct bn_jargs *a, size_t *next)
{
    int64_t i;
    if (n == 0 || bn_text_int(s, n, 10, &i)) {
        size_t at = n == 0 ? (*next)++ : (size_t)i;
        if (at >= a->n)
            return bn_jx_fail(x, BITNET_E_FORMAT, "format: argument %zu is missing", at);
        *out = a->v[at];
        return true;
    }
    for (size_t k = 0; k < a->n_kw; k++)
        if (a->kw_names[k].n == n && memcmp(a->kw_names[k].s, s, n) == 0) {
            *out = a->kw[k];
            return true;
        }
    return bn_jx_fail(x, BITNET_E_UNSUPPORTED, "format: field '{%.*s}' is not supported",
                      (int)bn_min_size(n, 50), s);
}

METHOD(s_format)
{
    size_t mark = x->buf.len, next = 0;
    for (size_t i = 0; i < self.n;) {
        const char *s = self.s + i;
        size_t left = self.n - i, plain = 0;
        while (plain < left && s[plain] != '{' && s[plain] != '}') plain++;
        if (plain) {
            if (!bn_jx_put(x, s, plain)) return false;
            i += plain;
        } else if (left > 1 && s[1] == s[0]) { /* {{ and }} */
            if (!bn_jx_put(x, s, 1)) return false;
            i += 2;
        } else {
            const char *end = memchr(s, '}', left);
            struct bn_jv v;
            if (s[0] == '}' || !end)
                return bn_jx_fail(x, BITNET_E_FORMAT, "format: a single brace");
            if (!format_field(x, &v, s + 1, (size_t)(end - s) - 1, a, &next) || !bn_jv_print(x, v))
                return false;
            i += (size_t)(end - s) + 1;
        }
    }
    return bn_jx_cut(x, mark, out);
}

bool bn_jinja_percent(struct bn_jx *x, struct bn_jv *out, struct bn_jv fmt, const struct bn_jv *v,
                      size_t n)
{
    size_t mark = x->buf.len, next = 0;
    for (size_t i = 0; i < fmt.n;) {
        size_t plain = 0;
        while (i + plain < fmt.n && fmt.s[i + plain] != '%') plain++;
        if (!bn_jx_put(x, fmt.s + i, plain)) return false;
        i += plain;
        if (i >= fmt.n) break;
        int precision = 6;
        if (++i < fmt.n && fmt.s[i] == '.')
            for (precision = 0, i++;
                 i < fmt.n && fmt.s[i] >= '0' && fmt.s[i] <= '9' && precision < 100; i++)
                precision = precision * 10 + fmt.s[i] - '0';
        char c = i < fmt.n ? fmt.s[i++] : 0, text[400];
        double f;
        if (c == '%') {
            if (!bn_jx_put(x, "%", 1)) return false;
            continue;
        }
        if (next >= n)
            return bn_jx_fail(x, BITNET_E_FORMAT, "format: argument %zu is missing", next);
        struct bn_jv arg = v[next++];
        if (c == 's') {
            if (!bn_jv_print(x, arg)) return false;
        } else if ((c == 'd' || c == 'i' || c == 'f') && bn_jv_as_float(arg, &f)) {
            int64_t whole;
            if (!bn_jv_as_int(arg, &whole)) whole = f > -9.2e18 && f < 9.2e18 ? (int64_t)f : 0;
            int len = c == 'f'
                          ? snprintf(text, sizeof text, "%.*f", precision > 30 ? 30 : precision, f)
                          : snprintf(text, sizeof text, "%lld", (long long)whole);
            for (int k = 0; k < len && c == 'f'; k++)
                if (!strchr("0123456789+-", text[k])) text[k] = '.';
            if (!bn_jx_put(x, text, (size_t)len)) return false;
        } else {
            return bn_jx_fail(x, BITNET_E_UNSUPPORTED, "format: '%%%c' with a %s is not supported",
                              c ? c : ' ', bn_jv_type_name(arg.kind));
        }
    }
    if (next < n && !(n == 1 && v[0].kind == BN_JV_DICT))
        return bn_jx_fail(x, BITNET_E_FORMAT, "format: %zu arguments are left over", n - next);
    return bn_jx_cut(x, mark, out);
}

/* ------------------------------------------------------------------ lists, dictionaries, loops */

static bool list_search(struct bn_jx *x, const struct bn_jlist *l, struct bn_jv what,
                        int64_t *first, int64_t *count)
{
    *first = -1;
    *count = 0;
    for (size_t i = 0; i < l->n; i++) {
        bool equal;
        if (!bn_jx_charge(x, 1) || !bn_jv_equal(x, l->v[i], what, &equal)) return false;
        if (equal && (*count)++ == 0) *first = (int64_t)i;
    }
    return true;
}
METHOD(l_index)
{
    int64_t first, count;
    if (!list_search(x, self.list, a->v[0], &first, &count)) return false;
    *out = bn_jv_int(first);
    return first >= 0 || bn_jx_fail(x, BITNET_E_FORMAT, "index: the value is not in the list");
}
METHOD(l_count)
{
    int64_t first, count;
    if (!list_search(x, self.list, a->v[0], &first, &count)) return false;
    *out = bn_jv_int(count);
    return true;
}

/* part: 0 keys, 1 values, 2 both */
static bool walk_dict(struct bn_jx *x, struct bn_jv *out, const struct bn_jdict *d, int part)
{
    if (!bn_jv_list(x, BN_JV_LIST, d->n, out) || !bn_jx_charge(x, d->n / 4)) return false;
    for (size_t i = 0; i < d->n; i++) {
        struct bn_jv v = part ? d->p[i].val : d->p[i].key;
        if (part == 2) {
            if (!bn_jv_list(x, BN_JV_TUPLE, 2, &v)) return false;
            v.list->v[0] = d->p[i].key;
            v.list->v[1] = d->p[i].val;
            v.list->n = 2;
        }
        out->list->v[out->list->n++] = v;
    }
    return true;
}
METHOD(d_keys)
{
    (void)a;
    return walk_dict(x, out, self.dict, 0);
}
METHOD(d_values)
{
    (void)a;
    return walk_dict(x, out, self.dict, 1);
}
METHOD(d_items)
{
    (void)a;
    return walk_dict(x, out, self.dict, 2);
}
METHOD(d_copy)
{
    (void)x, (void)a;
    *out = self;
    return true;
}
METHOD(d_get) /* key, default */
{
    struct bn_jv *v;
    if (!bn_jv_find(x, self.dict, a->v[0], &v)) return false;
    *out = v ? *v : a->v[1].kind == BN_JV_ABSENT ? bn_jv_kind_only(BN_JV_NONE) : a->v[1];
    return true;
}

METHOD(loop_cycle)
{
    if (a->n == 0) return bn_jx_fail(x, BITNET_E_FORMAT, "loop.cycle: no values are given");
    *out = a->v[self.loop->i % a->n];
    return true;
}

static const struct bn_jfn methods[] = {
    {"strip", "chars", 0, BN_JV_STR, s_strip},
    {"lstrip", "chars", 0, BN_JV_STR, s_lstrip},
    {"rstrip", "chars", 0, BN_JV_STR, s_rstrip},
    {"split", "sep,maxsplit", 0, BN_JV_STR, s_split},
    {"rsplit", "sep,maxsplit", 0, BN_JV_STR, s_rsplit},
    {"splitlines", "keepends", 0, BN_JV_STR, s_splitlines},
    {"partition", "sep", 1, BN_JV_STR, s_partition},
    {"rpartition", "sep", 1, BN_JV_STR, s_rpartition},
    {"startswith", "prefix", 1, BN_JV_STR, s_startswith},
    {"endswith", "suffix", 1, BN_JV_STR, s_endswith},
    {"removeprefix", "prefix", 1, BN_JV_STR, s_removeprefix},
    {"removesuffix", "suffix", 1, BN_JV_STR, s_removesuffix},
    {"replace", "old,new,count", 2, BN_JV_STR, s_replace},
    {"upper", "", 0, BN_JV_STR, s_upper},
    {"lower", "", 0, BN_JV_STR, s_lower},
    {"capitalize", "", 0, BN_JV_STR, s_capitalize},
    {"title", "", 0, BN_JV_STR, s_title},
    {"join", "iterable", 1, BN_JV_STR, s_join},
    {"find", "sub", 1, BN_JV_STR, s_find},
    {"rfind", "sub", 1, BN_JV_STR, s_rfind},
    {"index", "sub", 1, BN_JV_STR, s_index},
    {"count", "sub", 1, BN_JV_STR, s_count},
    {"format", NULL, 0, BN_JV_STR, s_format},
    {"isdigit", "", 0, BN_JV_STR, s_isdigit},
    {"isalpha", "", 0, BN_JV_STR, s_isalpha},
    {"isalnum", "", 0, BN_JV_STR, s_isalnum},
    {"isspace", "", 0, BN_JV_STR, s_isspace},
    {"islower", "", 0, BN_JV_STR, s_islower},
    {"isupper", "", 0, BN_JV_STR, s_isupper},
    {"index", "value", 1, BN_JV_LIST, l_index},
    {"count", "value", 1, BN_JV_LIST, l_count},
    {"items", "", 0, BN_JV_DICT, d_items},
    {"keys", "", 0, BN_JV_DICT, d_keys},
    {"values", "", 0, BN_JV_DICT, d_values},
    {"get", "key,default", 1, BN_JV_DICT, d_get},
    {"copy", "", 0, BN_JV_DICT, d_copy},
    {"cycle", NULL, 0, BN_JV_LOOP, loop_cycle},
};

const struct bn_jfn *bn_jinja_method(uint8_t kind, struct bn_jv name)
{
    if (kind == BN_JV_TUPLE) kind = BN_JV_LIST;
    for (size_t i = 0; i < BN_ARRAY_LEN(methods); i++)
        if (methods[i].self_kind == kind && bn_jv_is(name, methods[i].name)) return &methods[i];
    return NULL;
}
