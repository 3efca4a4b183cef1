/* SPDX-License-Identifier: Apache-2.0
 * Tests ("x is defined") and global functions (range, namespace, ...). */
#include "text/template/jinja.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

#define TEST(name) \
    static bool name(struct bn_jx *x, struct bn_jv *out, struct bn_jv self, struct bn_jargs *a)
#define KIND_TEST(name, condition)    \
    TEST(name)                        \
    {                                 \
        (void)x, (void)a;             \
        *out = bn_jv_bool(condition); \
        return true;                  \
    }

static bool is_number(struct bn_jv v) { return v.kind >= BN_JV_BOOL && v.kind <= BN_JV_FLOAT; }
static bool is_sequence(struct bn_jv v)
{
    return v.kind == BN_JV_UNDEF || (v.kind >= BN_JV_STR && v.kind <= BN_JV_DICT);
}

KIND_TEST(t_defined, self.kind != BN_JV_UNDEF)
KIND_TEST(t_undefined, self.kind == BN_JV_UNDEF)
KIND_TEST(t_none, self.kind == BN_JV_NONE)
KIND_TEST(t_string, self.kind == BN_JV_STR)
KIND_TEST(t_number, is_number(self))
KIND_TEST(t_mapping, self.kind == BN_JV_DICT)
KIND_TEST(t_sequence, is_sequence(self))
KIND_TEST(t_boolean, self.kind == BN_JV_BOOL)
KIND_TEST(t_true, self.kind == BN_JV_BOOL && self.b)
KIND_TEST(t_false, self.kind == BN_JV_BOOL && !self.b)
KIND_TEST(t_integer, self.kind == BN_JV_INT)
KIND_TEST(t_float, self.kind == BN_JV_FLOAT)
KIND_TEST(t_callable,
          self.kind == BN_JV_MACRO || self.kind == BN_JV_FN || self.kind == BN_JV_METHOD)
KIND_TEST(t_filter, bn_jinja_filter(self) != NULL)
KIND_TEST(t_test, bn_jinja_test(self) != NULL)

static bool divides(struct bn_jx *x, struct bn_jv *out, struct bn_jv self, int64_t by,
                    int64_t remainder)
{
    int64_t i;
    if (self.kind == BN_JV_UNDEF) return bn_jv_undefined(x, self);
    if (!bn_jv_as_int(self, &i) || by == 0)
        return bn_jx_fail(x, BITNET_E_FORMAT, "a test needs whole numbers, not 0");
    int64_t r = by == -1 ? 0 : i % by;
    *out = bn_jv_bool((r < 0 ? -r : r) == remainder);
    return true;
}
TEST(t_odd)
{
    (void)a;
    return divides(x, out, self, 2, 1);
}
TEST(t_even)
{
    (void)a;
    return divides(x, out, self, 2, 0);
}
TEST(t_divisibleby)
{
    int64_t by = 0;
    bn_jv_as_int(a->v[0], &by);
    return divides(x, out, self, by, 0);
}

/* lower, upper: at least one letter that has a case, and none of the other */
static bool all_in_case(struct bn_jx *x, struct bn_jv *out, struct bn_jv self,
                        enum bn_text_case how)
{
    struct bn_jv s, same, other;
    bool equal, differs;
    enum bn_text_case opposite = how == BN_TEXT_UPPER ? BN_TEXT_LOWER : BN_TEXT_UPPER;
    if (!bn_jv_to_str(x, self, &s) || !bn_text_case(x, &same, s, how) ||
        !bn_text_case(x, &other, s, opposite) || !bn_jv_equal(x, s, same, &equal) ||
        !bn_jv_equal(x, s, other, &differs))
        return false;
    *out = bn_jv_bool(equal && !differs);
    return true;
}
TEST(t_lower)
{
    (void)a;
    return all_in_case(x, out, self, BN_TEXT_LOWER);
}
TEST(t_upper)
{
    (void)a;
    return all_in_case(x, out, self, BN_TEXT_UPPER);
}

TEST(t_eq)
{
    bool yes;
    if (!bn_jv_equal(x, self, a->v[0], &yes)) return false;
    *out = bn_jv_bool(yes);
    return true;
}
TEST(t_ne)
{
    if (!t_eq(x, out, self, a)) return false;
    out->b = !out->b;
    return true;
}
TEST(t_in)
{
    bool yes;
    if (!bn_jv_contains(x, self, a->v[0], &yes)) return false;
    *out = bn_jv_bool(yes);
    return true;
}
TEST(t_sameas)
{
    if (self.kind != a->v[0].kind) {
        *out = bn_jv_bool(false);
        return true;
    }
    if (self.kind <= BN_JV_FLOAT) return t_eq(x, out, self, a);
    *out = bn_jv_bool(self.s == a->v[0].s);
    return true;
}

static bool ordered(struct bn_jx *x, struct bn_jv *out, struct bn_jv self, struct bn_jargs *a,
                    int lo, int hi)
{
    int order;
    if (!bn_jv_compare(x, self, a->v[0], &order)) return false;
    *out = bn_jv_bool(order >= lo && order <= hi);
    return true;
}
TEST(t_lt) { return ordered(x, out, self, a, -1, -1); }
TEST(t_le) { return ordered(x, out, self, a, -1, 0); }
TEST(t_gt) { return ordered(x, out, self, a, 1, 1); }
TEST(t_ge) { return ordered(x, out, self, a, 0, 1); }

static const struct bn_jfn tests[] = {
    {"defined", "", 0, 0, t_defined},
    {"undefined", "", 0, 0, t_undefined},
    {"none", "", 0, 0, t_none},
    {"string", "", 0, 0, t_string},
    {"number", "", 0, 0, t_number},
    {"mapping", "", 0, 0, t_mapping},
    {"iterable", "", 0, 0, t_sequence},
    {"sequence", "", 0, 0, t_sequence},
    {"boolean", "", 0, 0, t_boolean},
    {"true", "", 0, 0, t_true},
    {"false", "", 0, 0, t_false},
    {"integer", "", 0, 0, t_integer},
    {"float", "", 0, 0, t_float},
    {"callable", "", 0, 0, t_callable},
    {"odd", "", 0, 0, t_odd},
    {"even", "", 0, 0, t_even},
    {"divisibleby", "num", 1, 0, t_divisibleby},
    {"lower", "", 0, 0, t_lower},
    {"upper", "", 0, 0, t_upper},
    {"eq", "other", 1, 0, t_eq},
    {"equalto", "other", 1, 0, t_eq},
    {"==", "other", 1, 0, t_eq},
    {"ne", "other", 1, 0, t_ne},
    {"!=", "other", 1, 0, t_ne},
    {"lt", "other", 1, 0, t_lt},
    {"lessthan", "other", 1, 0, t_lt},
    {"<", "other", 1, 0, t_lt},
    {"le", "other", 1, 0, t_le},
    {"<=", "other", 1, 0, t_le},
    {"gt", "other", 1, 0, t_gt},
    {"greaterthan", "other", 1, 0, t_gt},
    {">", "other", 1, 0, t_gt},
    {"ge", "other", 1, 0, t_ge},
    {">=", "other", 1, 0, t_ge},
    {"in", "seq", 1, 0, t_in},
    {"sameas", "other", 1, 0, t_sameas},
    {"filter", "", 0, 0, t_filter},
    {"test", "", 0, 0, t_test},
};

const struct bn_jfn *bn_jinja_test(struct bn_jv name)
{
    for (size_t i = 0; i < BN_ARRAY_LEN(tests); i++)
        if (bn_jv_is(name, tests[i].name)) return &tests[i];
    return NULL;
}

/* ------------------------------------------------------------------ functions */

static bool g_range(struct bn_jx *x, struct bn_jv *out, struct bn_jv self, struct bn_jargs *a)
{
    int64_t v[3] = {0, 0, 1};
    (void)self;
    for (size_t i = 0; i < 3; i++) {
        if (a->v[i].kind == BN_JV_UNDEF) return bn_jv_undefined(x, a->v[i]);
        if (a->v[i].kind != BN_JV_ABSENT && !bn_jv_as_int(a->v[i], &v[i]))
            return bn_jx_fail(x, BITNET_E_FORMAT, "range: a %s is no whole number",
                              bn_jv_type_name(a->v[i].kind));
    }
    if (a->v[1].kind == BN_JV_ABSENT) v[1] = v[0], v[0] = 0;
    if (v[2] == 0) return bn_jx_fail(x, BITNET_E_FORMAT, "range: the step is 0");
    uint64_t span = v[2] > 0 ? (v[1] > v[0] ? (uint64_t)v[1] - (uint64_t)v[0] : 0)
                             : (v[0] > v[1] ? (uint64_t)v[0] - (uint64_t)v[1] : 0);
    uint64_t step = v[2] > 0 ? (uint64_t)v[2] : 0 - (uint64_t)v[2],
             n = span / step + (span % step != 0);
    if (n > BN_JINJA_MAX_RANGE)
        return bn_jx_fail(x, BITNET_E_LIMIT, "range: more than %d numbers", BN_JINJA_MAX_RANGE);
    if (!bn_jv_list(x, BN_JV_LIST, (size_t)n, out) || !bn_jx_charge(x, n / 16)) return false;
    for (uint64_t i = 0; i < n; i++)
        out->list->v[out->list->n++] = bn_jv_int((int64_t)((uint64_t)v[0] + i * (uint64_t)v[2]));
    return true;
}

/* namespace(...), dict(...): a mapping, then named values */
static bool make_dict(struct bn_jx *x, struct bn_jv *out, struct bn_jargs *a, uint8_t kind)
{
    if (!bn_jv_dict(x, kind, out)) return false;
    if (a->n > 1 || (a->n == 1 && a->v[0].kind != BN_JV_DICT))
        return bn_jx_fail(x, BITNET_E_UNSUPPORTED, "%s() takes one dict and named values",
                          bn_jv_type_name(kind));
    for (size_t i = 0; a->n && i < a->v[0].dict->n; i++)
        if (!bn_jv_put(x, out->dict, a->v[0].dict->p[i].key, a->v[0].dict->p[i].val)) return false;
    for (size_t i = 0; i < a->n_kw; i++)
        if (!bn_jv_put(x, out->dict, a->kw_names[i], a->kw[i])) return false;
    return true;
}
static bool g_namespace(struct bn_jx *x, struct bn_jv *out, struct bn_jv self, struct bn_jargs *a)
{
    (void)self;
    return make_dict(x, out, a, BN_JV_NS);
}
static bool g_dict(struct bn_jx *x, struct bn_jv *out, struct bn_jv self, struct bn_jargs *a)
{
    (void)self;
    return make_dict(x, out, a, BN_JV_DICT);
}

static bool g_raise(struct bn_jx *x, struct bn_jv *out, struct bn_jv self, struct bn_jargs *a)
{
    struct bn_jv s;
    (void)self, (void)out;
    if (!bn_jv_to_str(x, a->v[0], &s)) return false;
    if (s.n == 0 || !s.s[0]) s = bn_jv_str("the template refuses this conversation", 38);
    x->status = bn_fail(x->err, BITNET_E_ARG, "%.*s", (int)bn_min_size(s.n, 500), s.s);
    return false;
}

/* strftime without the process's locale: the fields that dates in prompts use. */
static bool g_strftime(struct bn_jx *x, struct bn_jv *out, struct bn_jv self, struct bn_jargs *a)
{
    static const char days[] = "SundayMondayTuesdayWednesdayThursdayFridaySaturday";
    static const uint8_t day_at[] = {0, 6, 12, 19, 28, 36, 42, 50};
    static const char months[] =
        "JanuaryFebruaryMarchAprilMayJuneJulyAugustSeptemberOctoberNovemberDecember";
    static const uint8_t month_at[] = {0, 7, 15, 20, 25, 28, 32, 36, 42, 51, 58, 66, 74};
    time_t now = (time_t)x->now_s;
    struct tm t;
    struct bn_jv fmt;
    (void)self;
    if (!bn_jv_to_str(x, a->v[0], &fmt) || !gmtime_r(&now, &t))
        return bn_jx_fail(x, BITNET_E_ARG, "strftime_now: the time is out of range");
    size_t mark = x->buf.len;
    for (size_t i = 0; i < fmt.n; i++) {
        char text[24] = {fmt.s[i]};
        const char *s = text;
        size_t n = 1;
        if (fmt.s[i] == '%' && ++i < fmt.n) {
            bool bare = fmt.s[i] == '-' && i + 1 < fmt.n; /* "%-d": no leading zero */
            char c = fmt.s[i += bare];
            int number = -1, width = 2;
            switch (c) {
            case 'd': number = t.tm_mday; break;
            case 'm': number = t.tm_mon + 1; break;
            case 'Y': number = t.tm_year + 1900, width = 4; break;
            case 'y': number = t.tm_year % 100; break;
            case 'H': number = t.tm_hour; break;
            case 'I': number = (t.tm_hour + 11) % 12 + 1; break;
            case 'M': number = t.tm_min; break;
            case 'S': number = t.tm_sec; break;
            case 'j': number = t.tm_yday + 1, width = 3; break;
            case 'A':
                s = days + day_at[t.tm_wday], n = day_at[t.tm_wday + 1] - day_at[t.tm_wday];
                break;
            case 'a': s = days + day_at[t.tm_wday], n = 3; break;
            case 'B':
                s = months + month_at[t.tm_mon], n = month_at[t.tm_mon + 1] - month_at[t.tm_mon];
                break;
            case 'b': s = months + month_at[t.tm_mon], n = 3; break;
            case 'p': s = t.tm_hour < 12 ? "AM" : "PM", n = 2; break;
            case '%': break;
            default:
                return bn_jx_fail(x, BITNET_E_UNSUPPORTED, "strftime_now: '%%%c' is not supported",
                                  c);
            }
            if (number >= 0)
                n = (size_t)snprintf(text, sizeof text, "%0*d", bare ? 1 : width, number);
        }
        if (!bn_jx_put(x, s, n)) return false;
    }
    return bn_jx_cut(x, mark, out);
}

static const struct bn_jfn functions[] = {
    {"range", "start,stop,step", 1, 0, g_range},
    {"namespace", NULL, 0, 0, g_namespace},
    {"dict", NULL, 0, 0, g_dict},
    {"raise_exception", "message", 1, 0, g_raise},
    {"strftime_now", "format", 1, 0, g_strftime},
};

const struct bn_jfn *bn_jinja_function(struct bn_jv name)
{
    for (size_t i = 0; i < BN_ARRAY_LEN(functions); i++)
        if (bn_jv_is(name, functions[i].name)) return &functions[i];
    return NULL;
}
