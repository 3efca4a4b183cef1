/* SPDX-License-Identifier: Apache-2.0
 * Expressions: nodes and variables to values. Every node costs a step and a level of depth, so
 * that both endless and endlessly deep evaluations stop with a sentence. */
#include "text/template/jinja.h"

#include <math.h>

/* ------------------------------------------------------------------ arithmetic */

static bool fail_operands(struct bn_jx *x, const char *op, struct bn_jv a, struct bn_jv b)
{
    if (a.kind == BN_JV_UNDEF) return bn_jv_undefined(x, a);
    if (b.kind == BN_JV_UNDEF) return bn_jv_undefined(x, b);
    return bn_jx_fail(x, BITNET_E_FORMAT, "operator %s does not take %s and %s", op,
                      bn_jv_type_name(a.kind), bn_jv_type_name(b.kind));
}

static bool fail_overflow(struct bn_jx *x)
{
    return bn_jx_fail(x, BITNET_E_LIMIT, "a number does not fit into 64 bits");
}

static bool int_power(struct bn_jx *x, struct bn_jv *out, int64_t base, int64_t exponent)
{
    int64_t result = 1;
    if (exponent < 0) {
        if (base == 0) return bn_jx_fail(x, BITNET_E_FORMAT, "division by zero");
        *out = bn_jv_float(pow((double)base, (double)exponent));
        return true;
    }
    for (; exponent > 0; exponent >>= 1) {
        if ((exponent & 1) && __builtin_mul_overflow(result, base, &result))
            return fail_overflow(x);
        if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) return fail_overflow(x);
    }
    *out = bn_jv_int(result);
    return true;
}

static bool int_math(struct bn_jx *x, struct bn_jv *out, uint8_t op, int64_t a, int64_t b)
{
    int64_t r;
    bool over = false;
    switch (op) {
    case '+': over = __builtin_add_overflow(a, b, &r); break;
    case '-': over = __builtin_sub_overflow(a, b, &r); break;
    case '*': over = __builtin_mul_overflow(a, b, &r); break;
    case BN_OP_POW: return int_power(x, out, a, b);
    default:
        if (b == 0) return bn_jx_fail(x, BITNET_E_FORMAT, "division by zero");
        if (op == '/') {
            *out = bn_jv_float((double)a / (double)b);
            return true;
        }
        if (b == -1) { /* the one quotient that overflows */
            over = op == BN_OP_FLOORDIV && a == INT64_MIN;
            r = op == '%' || over ? 0 : -a;
            break;
        }
        r = op == '%' ? a % b : a / b;
        if (a % b != 0 && (a < 0) != (b < 0)) r += op == '%' ? b : -1; /* towards minus infinity */
    }
    if (over) return fail_overflow(x);
    *out = bn_jv_int(r);
    return true;
}

static bool float_math(struct bn_jx *x, struct bn_jv *out, uint8_t op, double a, double b)
{
    double r;
    if (b == 0 && (op == '/' || op == '%' || op == BN_OP_FLOORDIV))
        return bn_jx_fail(x, BITNET_E_FORMAT, "division by zero");
    switch (op) {
    case '+': r = a + b; break;
    case '-': r = a - b; break;
    case '*': r = a * b; break;
    case '/': r = a / b; break;
    case BN_OP_POW: r = pow(a, b); break;
    default:
        r = fmod(a, b);
        if (r != 0 && (r < 0) != (b < 0)) r += b;
        if (op == BN_OP_FLOORDIV) r = floor((a - r) / b + 0.5);
    }
    *out = bn_jv_float(r);
    return true;
}

static bool repeat(struct bn_jx *x, struct bn_jv *out, struct bn_jv v, int64_t times)
{
    bool str = v.kind == BN_JV_STR;
    uint64_t n = times < 0 ? 0 : (uint64_t)times, total;
    if (!bn_mul_u64(&total, str ? v.n : v.list->n, n) || total > BN_JINJA_MAX_OUTPUT)
        return bn_jx_fail(x, BITNET_E_LIMIT, "a repetition makes more than %d bytes",
                          BN_JINJA_MAX_OUTPUT);
    if (total == 0) n = 0;
    if (!bn_jx_charge(x, n / 16 + total / 64)) return false;
    if (str) {
        char *s = bn_jx_alloc(x, total, 1);
        if (!s) return false;
        for (uint64_t i = 0; i < n; i++) memcpy(s + i * v.n, v.s, v.n);
        *out = bn_jv_str(s, total);
        return true;
    }
    if (!bn_jv_list(x, v.kind, total, out)) return false;
    for (uint64_t i = 0; i < total; i++) out->list->v[out->list->n++] = v.list->v[i % v.list->n];
    return true;
}

static bool join_lists(struct bn_jx *x, struct bn_jv *out, struct bn_jv a, struct bn_jv b)
{
    size_t n = a.list->n + b.list->n;
    struct bn_jv l;
    if (!bn_jv_list(x, a.kind, n, &l) || !bn_jx_charge(x, n / 16)) return false;
    if (a.list->n) memcpy(l.list->v, a.list->v, a.list->n * sizeof l);
    if (b.list->n) memcpy(l.list->v + a.list->n, b.list->v, b.list->n * sizeof l);
    l.list->n = n;
    *out = l;
    return true;
}

static bool math(struct bn_jx *x, struct bn_jv *out, uint8_t op, struct bn_jv a, struct bn_jv b)
{
    int64_t ia, ib;
    double fa, fb;
    bool a_int = bn_jv_as_int(a, &ia), b_int = bn_jv_as_int(b, &ib);
    bool a_seq = a.kind == BN_JV_LIST || a.kind == BN_JV_TUPLE,
         b_seq = b.kind == BN_JV_LIST || b.kind == BN_JV_TUPLE;
    if (a_int && b_int) return int_math(x, out, op, ia, ib);
    if (bn_jv_as_float(a, &fa) && bn_jv_as_float(b, &fb)) return float_math(x, out, op, fa, fb);
    if (op == '+' && a.kind == BN_JV_STR && b.kind == BN_JV_STR) return bn_jv_concat(x, a, b, out);
    if (op == '+' && a_seq && a.kind == b.kind) return join_lists(x, out, a, b);
    if (op == '*' && (a.kind == BN_JV_STR || a_seq) && b_int) return repeat(x, out, a, ib);
    if (op == '*' && (b.kind == BN_JV_STR || b_seq) && a_int) return repeat(x, out, b, ia);
    if (op == '%' && a.kind == BN_JV_STR) {
        bool tuple = b.kind == BN_JV_TUPLE;
        return bn_jinja_percent(x, out, a, tuple ? b.list->v : &b, tuple ? b.list->n : 1);
    }
    char text[5] = {'\'', (char)op, '\'', 0};
    return fail_operands(x, op == BN_OP_POW ? "'**'" : op == BN_OP_FLOORDIV ? "'//'" : text, a, b);
}

static bool compare(struct bn_jx *x, uint8_t op, struct bn_jv a, struct bn_jv b, bool *yes)
{
    int order;
    if (op == BN_OP_IN || op == BN_OP_NOT_IN) {
        if (!bn_jv_contains(x, a, b, yes)) return false;
        *yes ^= op == BN_OP_NOT_IN;
        return true;
    }
    if (op == BN_OP_EQ || op == BN_OP_NE) {
        if (!bn_jv_equal(x, a, b, yes)) return false;
        *yes ^= op == BN_OP_NE;
        return true;
    }
    if (!bn_jv_compare(x, a, b, &order)) return false;
    *yes = order != 2 && (op == '<'        ? order < 0
                          : op == '>'      ? order > 0
                          : op == BN_OP_LE ? order <= 0
                                           : order >= 0);
    return true;
}

/* ------------------------------------------------------------------ attributes, items, slices */

static bool loop_attr(struct bn_jx *x, struct bn_jv *out, struct bn_jv self, struct bn_jv name)
{
    const struct bn_jloop *l = self.loop;
    const size_t i = l->i, n = l->items->n;
    if (bn_jv_is(name, "index")) *out = bn_jv_int((int64_t)i + 1);
    else if (bn_jv_is(name, "index0")) *out = bn_jv_int((int64_t)i);
    else if (bn_jv_is(name, "revindex")) *out = bn_jv_int((int64_t)(n - i));
    else if (bn_jv_is(name, "revindex0")) *out = bn_jv_int((int64_t)(n - i) - 1);
    else if (bn_jv_is(name, "first")) *out = bn_jv_bool(i == 0);
    else if (bn_jv_is(name, "last")) *out = bn_jv_bool(i + 1 == n);
    else if (bn_jv_is(name, "length")) *out = bn_jv_int((int64_t)n);
    else if (bn_jv_is(name, "depth"))
        *out = bn_jv_int(1); /* counts recursive loops, of which there are none */
    else if (bn_jv_is(name, "depth0")) *out = bn_jv_int(0);
    else if (bn_jv_is(name, "previtem"))
        *out = i > 0 ? l->items->v[i - 1] : bn_jv_undef(name, BN_JV_LOOP);
    else if (bn_jv_is(name, "nextitem"))
        *out = i + 1 < n ? l->items->v[i + 1] : bn_jv_undef(name, BN_JV_LOOP);
    else
        return bn_jx_fail(x, BITNET_E_UNSUPPORTED, "'loop.%.*s' is not supported",
                          (int)bn_min_size(name.n, 50), name.s);
    return true;
}

static bool method(struct bn_jx *x, struct bn_jv *out, struct bn_jv v, struct bn_jv name,
                   bool *found)
{
    const struct bn_jfn *fn = bn_jinja_method(v.kind, name);
    *found = fn != NULL;
    if (!fn) return true;
    struct bn_jmethod *m = bn_jx_alloc(x, 1, sizeof *m);
    if (!m) return false;
    *m = (struct bn_jmethod){fn, v};
    *out = (struct bn_jv){.kind = BN_JV_METHOD, .method = m};
    return true;
}

/* v.name: a method before an item of that name, as Python objects have it. */
bool bn_jx_getattr(struct bn_jx *x, struct bn_jv *out, struct bn_jv v, struct bn_jv name)
{
    bool found;
    struct bn_jv *item = NULL;
    if (v.kind == BN_JV_UNDEF) return bn_jv_undefined(x, v);
    if (!method(x, out, v, name, &found) || found) return found;
    if (v.kind == BN_JV_LOOP) return loop_attr(x, out, v, name);
    if ((v.kind == BN_JV_DICT || v.kind == BN_JV_NS) && !bn_jv_find(x, v.dict, name, &item))
        return false;
    *out = item ? *item : bn_jv_undef(name, v.kind);
    return true;
}

/* v[key]: an item before a method. */
bool bn_jx_getitem(struct bn_jx *x, struct bn_jv *out, struct bn_jv v, struct bn_jv key)
{
    int64_t i;
    struct bn_jv *item = NULL;
    if (v.kind == BN_JV_UNDEF) return bn_jv_undefined(x, v);
    if (v.kind == BN_JV_DICT) {
        if (!bn_jv_find(x, v.dict, key, &item)) return false;
    } else if ((v.kind == BN_JV_LIST || v.kind == BN_JV_TUPLE) && bn_jv_as_int(key, &i)) {
        if (i < 0) i += (int64_t)v.list->n;
        if (i >= 0 && i < (int64_t)v.list->n) item = &v.list->v[i];
    } else if (v.kind == BN_JV_STR && bn_jv_as_int(key, &i)) {
        if (!bn_jx_charge(x, v.n / 64)) return false;
        if (i < 0) i += (int64_t)bn_text_count(v.s, v.n);
        size_t at = i < 0 ? v.n : bn_text_offset(v.s, v.n, (size_t)i);
        uint32_t cp;
        if (at < v.n) {
            *out = bn_jv_str(v.s + at, bn_text_char(v.s + at, v.n - at, &cp));
            return true;
        }
    }
    if (item) *out = *item;
    else if (key.kind == BN_JV_STR) return bn_jx_getattr(x, out, v, key);
    else *out = bn_jv_undef(bn_jv_str("item", 4), v.kind);
    return true;
}

bool bn_jx_slice(struct bn_jx *x, struct bn_jv *out, struct bn_jv v, const struct bn_jv bound[3])
{
    bool str = v.kind == BN_JV_STR;
    size_t n;
    int64_t lim[3] = {0, 0, 1};
    if (v.kind == BN_JV_UNDEF) return bn_jv_undefined(x, v);
    if (!str && v.kind != BN_JV_LIST && v.kind != BN_JV_TUPLE) {
        *out = bn_jv_undef(bn_jv_str("slice", 5), v.kind);
        return true;
    }
    if (!bn_jv_length(x, v, &n)) return false;
    for (int k = 2; k >= 0; k--) { /* the step first: it decides what a missing bound means */
        bool given = bound[k].kind != BN_JV_ABSENT && bound[k].kind != BN_JV_NONE;
        int64_t len = (int64_t)n, low = lim[2] < 0 ? -1 : 0, high = lim[2] < 0 ? len - 1 : len;
        if (!given) {
            if (k < 2) lim[k] = (k == 0) == (lim[2] > 0) ? low : high;
            continue;
        }
        if (!bn_jv_as_int(bound[k], &lim[k]))
            return bn_jx_fail(x, BITNET_E_FORMAT, "a slice bound is a %s",
                              bn_jv_type_name(bound[k].kind));
        if (k == 2) continue;
        if (lim[k] < 0) lim[k] += len;
        lim[k] = lim[k] < low ? low : lim[k] > high ? high : lim[k];
    }
    if (lim[2] == 0) return bn_jx_fail(x, BITNET_E_FORMAT, "a slice step is 0");
    if (str && lim[2] == 1) {
        size_t from = bn_text_offset(v.s, v.n, (size_t)lim[0]);
        size_t to = lim[1] <= lim[0]
                        ? from
                        : from + bn_text_offset(v.s + from, v.n - from, (size_t)(lim[1] - lim[0]));
        *out = bn_jv_str(v.s + from, to - from);
        return true;
    }
    const struct bn_jlist *items;
    struct bn_jv l;
    uint64_t count =
        lim[2] > 0
            ? (lim[1] > lim[0] ? ((uint64_t)(lim[1] - lim[0]) - 1) / (uint64_t)lim[2] + 1 : 0)
            : (lim[0] > lim[1] ? ((uint64_t)(lim[0] - lim[1]) - 1) / (0 - (uint64_t)lim[2]) + 1
                               : 0);
    if (!bn_jv_items(x, v, &items) || !bn_jx_charge(x, count / 16)) return false;
    if (!bn_jv_list(x, str ? BN_JV_LIST : v.kind, (size_t)count, &l)) return false;
    for (uint64_t i = 0; i < count; i++)
        l.list->v[l.list->n++] =
            items->v[(uint64_t)lim[0] + i * (uint64_t)lim[2]]; /* wraps for steps below 0 */
    *out = l;
    if (!str) return true;
    size_t mark = x->buf.len;
    for (size_t i = 0; i < l.list->n; i++)
        if (!bn_jx_put(x, l.list->v[i].s, l.list->v[i].n)) return false;
    return bn_jx_cut(x, mark, out);
}

/* ------------------------------------------------------------------ calls */

static bool eval_args(struct bn_jx *x, const struct bn_jn *list, struct bn_jargs *a)
{
    *a = (struct bn_jargs){0};
    size_t n = 0, n_kw = 0;
    for (const struct bn_jn *p = list; p; p = p->next)
        *(p->val.kind == BN_JV_STR ? &n_kw : &n) += 1;
    if (n + n_kw == 0) return true;
    struct bn_jv *v = bn_jx_alloc(x, n + 2 * n_kw, sizeof *v);
    if (!v) return false;
    a->v = v;
    a->kw_names = v + n;
    a->kw = v + n + n_kw;
    for (const struct bn_jn *p = list; p; p = p->next) {
        if (p->val.kind == BN_JV_STR) {
            a->kw_names[a->n_kw] = p->val;
            if (!bn_jx_eval(x, p->a, &a->kw[a->n_kw++])) return false;
        } else {
            if (a->n_kw) return bn_jx_fail(x, BITNET_E_FORMAT, "an argument follows a named one");
            if (!bn_jx_eval(x, p->a, &a->v[a->n++])) return false;
        }
    }
    return true;
}

/* Arguments in the order of the declared parameters. */
static bool bind(struct bn_jx *x, const struct bn_jfn *fn, const char *what, struct bn_jargs *a)
{
    enum { MAX_PARAMS = 8 };
    struct bn_jv *bound = bn_jx_alloc(x, MAX_PARAMS, sizeof *bound);
    size_t n = 0;
    if (!bound) return false;
    for (const char *p = fn->params; *p && n < MAX_PARAMS; n++) {
        size_t len = strcspn(p, ",");
        if (n < a->n) bound[n] = a->v[n];
        for (size_t k = 0; k < a->n_kw; k++)
            if (a->kw_names[k].n == len && memcmp(a->kw_names[k].s, p, len) == 0) {
                bound[n] = a->kw[k];
                a->kw_names[k].n = 0; /* taken */
            }
        if (bound[n].kind == BN_JV_ABSENT && n < fn->n_min)
            return bn_jx_fail(x, BITNET_E_FORMAT, "%s '%s' needs the argument '%.*s'", what,
                              fn->name, (int)len, p);
        p += len + (p[len] == ',');
    }
    for (size_t k = 0; k < a->n_kw; k++)
        if (a->kw_names[k].n)
            return bn_jx_fail(x, BITNET_E_UNSUPPORTED, "%s '%s' has no argument '%.*s'", what,
                              fn->name, (int)bn_min_size(a->kw_names[k].n, 50), a->kw_names[k].s);
    if (a->n > n)
        return bn_jx_fail(x, BITNET_E_FORMAT, "%s '%s' takes at most %zu arguments", what, fn->name,
                          n);
    a->v = bound;
    a->n = n;
    a->n_kw = 0;
    return true;
}

bool bn_jx_call_fn(struct bn_jx *x, const struct bn_jfn *fn, const char *what, struct bn_jv *out,
                   struct bn_jv self, struct bn_jargs *a)
{
    if (fn->params && !bind(x, fn, what, a)) return false;
    *out = bn_jv_kind_only(BN_JV_NONE);
    return fn->call(x, out, self, a);
}

bool bn_jx_call(struct bn_jx *x, struct bn_jv *out, struct bn_jv callee, struct bn_jargs *a)
{
    if (callee.kind == BN_JV_MACRO) return bn_jx_call_macro(x, out, callee.macro, a);
    if (callee.kind == BN_JV_FN)
        return bn_jx_call_fn(x, callee.fn, "function", out, bn_jv_kind_only(BN_JV_ABSENT), a);
    if (callee.kind == BN_JV_METHOD)
        return bn_jx_call_fn(x, callee.method->fn, "method", out, callee.method->self, a);
    if (callee.kind == BN_JV_UNDEF && callee.owner)
        return bn_jx_fail(x, BITNET_E_UNSUPPORTED, "method '%.*s' of %s is not supported",
                          (int)bn_min_size(callee.n, 50), callee.s, bn_jv_type_name(callee.owner));
    if (callee.kind == BN_JV_UNDEF) return bn_jv_undefined(x, callee);
    return bn_jx_fail(x, BITNET_E_FORMAT, "a %s cannot be called", bn_jv_type_name(callee.kind));
}

/* A filter or test applied to *v. */
static bool apply(struct bn_jx *x, const struct bn_jn *n, struct bn_jv *v)
{
    const char *what = n->kind == BN_JN_FILTER ? "filter" : "test";
    struct bn_jargs a;
    struct bn_jv out;
    if (!n->fn)
        return bn_jx_fail(x, BITNET_E_UNSUPPORTED, "%s '%.*s' is not supported", what,
                          (int)bn_min_size(n->val.n, 50), n->val.s);
    if (!eval_args(x, n->a, &a) || !bn_jx_call_fn(x, n->fn, what, &out, *v, &a)) return false;
    *v = n->kind == BN_JN_TEST && n->flag ? bn_jv_bool(!bn_jv_truth(out)) : out;
    return true;
}

bool bn_jx_filters(struct bn_jx *x, const struct bn_jn *chain, struct bn_jv *v)
{
    for (; chain; chain = chain->next)
        if (!apply(x, chain, v)) return false;
    return true;
}

static bool eval_slice(struct bn_jx *x, const struct bn_jn *n, struct bn_jv *v)
{
    const struct bn_jn *parts[3] = {n->a, n->b, n->c};
    struct bn_jv bound[3], self = *v;
    for (int i = 0; i < 3; i++) {
        bound[i] = bn_jv_kind_only(BN_JV_ABSENT);
        if (parts[i] && !bn_jx_eval(x, parts[i], &bound[i])) return false;
    }
    return bn_jx_slice(x, v, self, bound);
}

static bool eval_postfix(struct bn_jx *x, const struct bn_jn *n, struct bn_jv *v)
{
    if (!bn_jx_eval(x, n->a, v)) return false;
    for (const struct bn_jn *p = n->b; p; p = p->next) {
        struct bn_jv self = *v, key;
        struct bn_jargs a;
        bool ok;
        x->line = p->line;
        if (!bn_jx_charge(x, 1)) return false;
        switch (p->kind) {
        case BN_JN_ATTR: ok = bn_jx_getattr(x, v, self, p->val); break;
        case BN_JN_ITEM: ok = bn_jx_eval(x, p->a, &key) && bn_jx_getitem(x, v, self, key); break;
        case BN_JN_SLICE: ok = eval_slice(x, p, v); break;
        case BN_JN_CALL: ok = eval_args(x, p->a, &a) && bn_jx_call(x, v, self, &a); break;
        default: ok = apply(x, p, v);
        }
        if (!ok) return false;
    }
    return true;
}

/* ------------------------------------------------------------------ the rest */

static bool eval_name(struct bn_jx *x, const struct bn_jn *n, struct bn_jv *out)
{
    if (bn_jx_lookup(x, n->sym, out)) return true;
    const struct bn_jfn *fn = bn_jinja_function(n->val);
    if (fn && x->now_s == 0 && bn_jv_is(n->val, "strftime_now")) fn = NULL;
    *out = fn ? (struct bn_jv){.kind = BN_JV_FN, .fn = fn} : bn_jv_undef(n->val, 0);
    return true;
}

static bool eval_sequence(struct bn_jx *x, const struct bn_jn *n, struct bn_jv *out)
{
    struct bn_jv l, v;
    if (!bn_jv_list(x, n->kind == BN_JN_LIST ? BN_JV_LIST : BN_JV_TUPLE, 0, &l)) return false;
    for (const struct bn_jn *p = n->a; p; p = p->next)
        if (!bn_jx_eval(x, p, &v) || !bn_jv_push(x, l.list, v)) return false;
    *out = l;
    return true;
}

static bool eval_dict(struct bn_jx *x, const struct bn_jn *n, struct bn_jv *out)
{
    struct bn_jv d, key, v;
    if (!bn_jv_dict(x, BN_JV_DICT, &d)) return false;
    for (const struct bn_jn *p = n->a; p; p = p->next)
        if (!bn_jx_eval(x, p->b, &key) || !bn_jx_eval(x, p->a, &v) || !bn_jv_put(x, d.dict, key, v))
            return false;
    *out = d;
    return true;
}

static bool eval_concat(struct bn_jx *x, const struct bn_jn *n, struct bn_jv *out)
{
    size_t mark = x->buf.len;
    for (const struct bn_jn *p = n->a; p; p = p->next) {
        struct bn_jv v;
        if (!bn_jx_eval(x, p, &v) || !bn_jv_print(x, v)) return false;
    }
    return bn_jx_cut(x, mark, out);
}

static bool eval_compare(struct bn_jx *x, const struct bn_jn *n, struct bn_jv *out)
{
    struct bn_jv left, right;
    bool yes = true;
    if (!bn_jx_eval(x, n->a, &left)) return false;
    for (const struct bn_jn *p = n->b; p && yes; p = p->next, left = right)
        if (!bn_jx_eval(x, p->a, &right) || !compare(x, p->op, left, right, &yes)) return false;
    *out = bn_jv_bool(yes);
    return true;
}

static bool eval_sign(struct bn_jx *x, const struct bn_jn *n, struct bn_jv *out)
{
    struct bn_jv v;
    int64_t i;
    if (!bn_jx_eval(x, n->a, &v)) return false;
    if (bn_jv_as_int(v, &i)) {
        if (n->kind == BN_JN_NEG && i == INT64_MIN) return fail_overflow(x);
        *out = bn_jv_int(n->kind == BN_JN_NEG ? -i : i);
    } else if (v.kind == BN_JV_FLOAT) {
        *out = bn_jv_float(n->kind == BN_JN_NEG ? -v.f : v.f);
    } else {
        return fail_operands(x, n->kind == BN_JN_NEG ? "'-'" : "'+'", v,
                             bn_jv_kind_only(BN_JV_ABSENT));
    }
    return true;
}

/* and, or: the value that decides, as in Python. */
static bool eval_logic(struct bn_jx *x, const struct bn_jn *n, struct bn_jv *out)
{
    for (const struct bn_jn *p = n->a; p; p = p->next) {
        if (!bn_jx_eval(x, p, out)) return false;
        if (bn_jv_truth(*out) == (n->kind == BN_JN_OR)) return true;
    }
    return true;
}

static bool eval_math(struct bn_jx *x, const struct bn_jn *n, struct bn_jv *out)
{
    struct bn_jv right;
    if (!bn_jx_eval(x, n->a, out)) return false;
    for (const struct bn_jn *p = n->b; p; p = p->next) {
        struct bn_jv left = *out;
        if (!bn_jx_eval(x, p->a, &right)) return false;
        x->line = p->line;
        if (!math(x, out, p->op, left, right)) return false;
    }
    return true;
}

static bool eval_cond(struct bn_jx *x, const struct bn_jn *n, struct bn_jv *out)
{
    struct bn_jv v;
    if (!bn_jx_eval(x, n->b, &v)) return false;
    if (bn_jv_truth(v)) return bn_jx_eval(x, n->a, out);
    if (n->c) return bn_jx_eval(x, n->c, out);
    *out = bn_jv_undef(bn_jv_str("if without else", 15), 0);
    return true;
}

bool bn_jx_eval(struct bn_jx *x, const struct bn_jn *n, struct bn_jv *out)
{
    bool ok;
    x->line = n->line;
    if (!bn_jx_enter(x)) return false;
    switch (n->kind) {
    case BN_JN_CONST:
        *out = n->val;
        ok = true;
        break;
    case BN_JN_NAME: ok = eval_name(x, n, out); break;
    case BN_JN_LIST:
    case BN_JN_TUPLE: ok = eval_sequence(x, n, out); break;
    case BN_JN_DICT: ok = eval_dict(x, n, out); break;
    case BN_JN_NEG:
    case BN_JN_POS: ok = eval_sign(x, n, out); break;
    case BN_JN_NOT:
        ok = bn_jx_eval(x, n->a, out);
        if (ok) *out = bn_jv_bool(!bn_jv_truth(*out));
        break;
    case BN_JN_AND:
    case BN_JN_OR: ok = eval_logic(x, n, out); break;
    case BN_JN_MATH: ok = eval_math(x, n, out); break;
    case BN_JN_CONCAT: ok = eval_concat(x, n, out); break;
    case BN_JN_COMPARE: ok = eval_compare(x, n, out); break;
    case BN_JN_COND: ok = eval_cond(x, n, out); break;
    case BN_JN_POSTFIX: ok = eval_postfix(x, n, out); break;
    default: ok = bn_jx_fail(x, BITNET_E_INTERNAL, "node %d is no expression", n->kind);
    }
    x->depth--;
    return ok;
}
