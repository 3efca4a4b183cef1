/* SPDX-License-Identifier: Apache-2.0
 * Tokens to nodes, second half: expressions, with Jinja's grammar. Operators of one level and
 * everything that follows a value (attributes, subscripts, calls, filters, tests) become flat
 * lists, so that a long expression is not a deep one. Names of filters and tests are resolved
 * here; unknown ones fail only when they are reached, because templates carry branches for tools
 * that a plain conversation never enters. */
#include "text/template/jinja_parse_impl.h"

static struct bn_jn *parse_or(struct bn_jparser *p);
static struct bn_jn *parse_unary(struct bn_jparser *p, bool with_filters);

/* expr [, expr]*: one expression, or a tuple. ternary: whether "a if b else c" may stand here. */
struct bn_jn *bn_jp_tuple(struct bn_jparser *p, bool ternary)
{
    struct bn_jn *first = ternary ? bn_jp_expr(p) : parse_or(p);
    if (!first || !bn_jp_is_op(p, ',')) return first;
    struct bn_jn *t = bn_jp_node(p, BN_JN_TUPLE), **tail;
    if (!t) return NULL;
    t->a = first;
    tail = &first->next;
    while (bn_jp_skip_op(p, ',')) {
        if (p->t->kind != BN_JT_NAME && p->t->kind != BN_JT_CONST && !bn_jp_is_op(p, '(') &&
            !bn_jp_is_op(p, '[') && !bn_jp_is_op(p, '{') && !bn_jp_is_op(p, '-') &&
            !bn_jp_is_op(p, '+'))
            break; /* a trailing comma */
        if (!bn_jp_append(&tail, ternary ? bn_jp_expr(p) : parse_or(p))) return NULL;
    }
    return t;
}

/* The arguments after "(", up to and with ")". */
static bool parse_args(struct bn_jparser *p, struct bn_jn **list)
{
    struct bn_jn **tail = list;
    while (!bn_jp_skip_op(p, ')')) {
        struct bn_jn *arg = bn_jp_node(p, BN_JN_ARG);
        if (!arg) return false;
        if (bn_jp_is_op(p, '*') || bn_jp_is_op(p, BN_OP_POW))
            return bn_jp_fail(p, BITNET_E_UNSUPPORTED, "'*' arguments are not supported");
        if (p->t->kind == BN_JT_NAME && p->t[1].kind == BN_JT_OP && p->t[1].op == '=') {
            arg->val = p->t->val;
            p->t += 2;
        }
        if (!(arg->a = bn_jp_expr(p)) || !bn_jp_append(&tail, arg)) return false;
        if (!bn_jp_is_op(p, ')') && !bn_jp_expect_op(p, ',')) return false;
    }
    return true;
}

struct bn_jn *bn_jp_filter(struct bn_jparser *p)
{
    struct bn_jn *f = bn_jp_node(p, BN_JN_FILTER);
    if (!f) return NULL;
    if (p->t->kind != BN_JT_NAME) return bn_jp_unexpected(p, "a filter's name");
    f->val = p->t++->val;
    f->fn = bn_jinja_filter(f->val);
    return bn_jp_skip_op(p, '(') && !parse_args(p, &f->a) ? NULL : f;
}

static struct bn_jn *parse_primary(struct bn_jparser *p);
static struct bn_jn *parse_postfix(struct bn_jparser *p, struct bn_jn *base, bool with_filters);

/* After "is": a test takes its argument in parentheses or, if it is one simple value, without. */
static struct bn_jn *parse_test(struct bn_jparser *p)
{
    struct bn_jn *t = bn_jp_node(p, BN_JN_TEST);
    if (!t) return NULL;
    t->flag = bn_jp_skip_name(p, "not");
    if (p->t->kind != BN_JT_NAME) return bn_jp_unexpected(p, "a test's name");
    t->val = p->t++->val;
    t->fn = bn_jinja_test(t->val);
    if (bn_jp_skip_op(p, '(')) return parse_args(p, &t->a) ? t : NULL;
    bool word = p->t->kind == BN_JT_NAME && !bn_jp_is_name(p, "else") && !bn_jp_is_name(p, "or") &&
                !bn_jp_is_name(p, "and") && !bn_jp_is_name(p, "if") && !bn_jp_is_name(p, "is") &&
                !bn_jp_is_name(p, "in") && !bn_jp_is_name(p, "not");
    if (!word && p->t->kind != BN_JT_CONST && !bn_jp_is_op(p, '[') && !bn_jp_is_op(p, '{'))
        return t;
    struct bn_jn *arg = bn_jp_node(p, BN_JN_ARG);
    if (!arg || !bn_jp_enter(p) || !(arg->a = parse_primary(p)) ||
        !(arg->a = parse_postfix(p, arg->a, false)))
        return NULL;
    p->depth--;
    t->a = arg;
    return t;
}

/* After "[". */
static struct bn_jn *parse_subscript(struct bn_jparser *p)
{
    struct bn_jn *s = bn_jp_node(p, BN_JN_ITEM), *part[3] = {NULL, NULL, NULL};
    if (!s) return NULL;
    size_t n = 0;
    for (;;) {
        if (!bn_jp_is_op(p, ':') && !bn_jp_is_op(p, ']') &&
            !(part[n] = n ? bn_jp_expr(p) : bn_jp_tuple(p, true)))
            return NULL;
        if (n == 2 || !bn_jp_skip_op(p, ':')) break;
        s->kind = BN_JN_SLICE;
        n++;
    }
    s->a = part[0];
    s->b = part[1];
    s->c = part[2];
    if (s->kind == BN_JN_ITEM && !s->a) return bn_jp_unexpected(p, "a subscript");
    return bn_jp_expect_op(p, ']') ? s : NULL;
}

/* Everything that follows a value and applies to it, as one list. */
static struct bn_jn *parse_postfix(struct bn_jparser *p, struct bn_jn *base, bool with_filters)
{
    struct bn_jn *list = NULL, **tail = &list;
    for (;;) {
        struct bn_jn *n = NULL;
        if (bn_jp_skip_op(p, '.')) {
            if (!(n = bn_jp_node(p, BN_JN_ATTR))) return NULL;
            n->val = p->t->val;
            if (p->t->kind == BN_JT_CONST && n->val.kind == BN_JV_INT) {
                struct bn_jn *index = bn_jp_node(p, BN_JN_CONST);
                if (!index) return NULL;
                index->val = n->val;
                n->kind = BN_JN_ITEM;
                n->a = index;
            } else if (p->t->kind != BN_JT_NAME) {
                return bn_jp_unexpected(p, "an attribute's name");
            }
            p->t++;
        } else if (bn_jp_skip_op(p, '[')) {
            n = parse_subscript(p);
        } else if (bn_jp_skip_op(p, '(')) {
            if ((n = bn_jp_node(p, BN_JN_CALL)) && !parse_args(p, &n->a)) return NULL;
        } else if (with_filters && bn_jp_skip_op(p, '|')) {
            n = bn_jp_filter(p);
        } else if (with_filters && bn_jp_skip_name(p, "is")) {
            n = parse_test(p);
        } else {
            break;
        }
        if (!bn_jp_append(&tail, n)) return NULL;
    }
    if (!list) return base;
    struct bn_jn *post = bn_jp_node(p, BN_JN_POSTFIX);
    if (!post) return NULL;
    post->line = base->line;
    post->a = base;
    post->b = list;
    return post;
}

static struct bn_jn *parse_list(struct bn_jparser *p)
{
    struct bn_jn *l = bn_jp_node(p, BN_JN_LIST), **tail;
    if (!l) return NULL;
    tail = &l->a;
    while (!bn_jp_skip_op(p, ']')) {
        if (!bn_jp_append(&tail, bn_jp_expr(p))) return NULL;
        if (!bn_jp_is_op(p, ']') && !bn_jp_expect_op(p, ',')) return NULL;
    }
    return l;
}

static struct bn_jn *parse_dict(struct bn_jparser *p)
{
    struct bn_jn *d = bn_jp_node(p, BN_JN_DICT), **tail;
    if (!d) return NULL;
    tail = &d->a;
    while (!bn_jp_skip_op(p, '}')) {
        struct bn_jn *pair = bn_jp_node(p, BN_JN_ARG);
        if (!pair || !(pair->b = bn_jp_expr(p)) || !bn_jp_expect_op(p, ':') ||
            !(pair->a = bn_jp_expr(p)))
            return NULL;
        if (!bn_jp_append(&tail, pair)) return NULL;
        if (!bn_jp_is_op(p, '}') && !bn_jp_expect_op(p, ',')) return NULL;
    }
    return d;
}

static struct bn_jn *parse_word(struct bn_jparser *p)
{
    struct bn_jn *n = bn_jp_node(p, BN_JN_CONST);
    if (!n) return NULL;
    if (bn_jp_is_name(p, "true") || bn_jp_is_name(p, "True")) n->val = bn_jv_bool(true);
    else if (bn_jp_is_name(p, "false") || bn_jp_is_name(p, "False")) n->val = bn_jv_bool(false);
    else if (bn_jp_is_name(p, "none") || bn_jp_is_name(p, "None"))
        n->val = bn_jv_kind_only(BN_JV_NONE);
    else {
        n->kind = BN_JN_NAME;
        return bn_jp_symbol(p, n) ? n : NULL;
    }
    p->t++;
    return n;
}

/* 'a' 'b' is one string. */
static struct bn_jn *parse_const(struct bn_jparser *p)
{
    struct bn_jn *n = bn_jp_node(p, BN_JN_CONST);
    if (!n) return NULL;
    const struct bn_jt *first = p->t++;
    n->val = first->val;
    size_t bytes = n->val.n;
    if (n->val.kind != BN_JV_STR || p->t->kind != BN_JT_CONST || p->t->val.kind != BN_JV_STR)
        return n;
    for (; p->t->kind == BN_JT_CONST && p->t->val.kind == BN_JV_STR; p->t++) bytes += p->t->val.n;
    char *s = bn_arena_alloc(&p->j->arena, bytes);
    if (!s) return bn_jp_fail(p, BITNET_E_NOMEM, "out of memory for a string");
    n->val = bn_jv_str(s, bytes);
    for (const struct bn_jt *t = first; t < p->t; t++) {
        memcpy(s, t->val.s, t->val.n);
        s += t->val.n;
    }
    return n;
}

static struct bn_jn *parse_primary(struct bn_jparser *p)
{
    if (p->t->kind == BN_JT_NAME) return parse_word(p);
    if (p->t->kind == BN_JT_CONST) return parse_const(p);
    if (!bn_jp_is_op(p, '(') && !bn_jp_is_op(p, '[') && !bn_jp_is_op(p, '{'))
        return bn_jp_unexpected(p, "an expression");
    uint8_t open = p->t++->op;
    struct bn_jn *n;
    if (!bn_jp_enter(p)) return NULL;
    if (open == '[') n = parse_list(p);
    else if (open == '{') n = parse_dict(p);
    else if (bn_jp_skip_op(p, ')')) n = bn_jp_node(p, BN_JN_TUPLE);
    else if ((n = bn_jp_tuple(p, true)) && !bn_jp_expect_op(p, ')')) n = NULL;
    p->depth--;
    return n;
}

static struct bn_jn *parse_unary(struct bn_jparser *p, bool with_filters)
{
    struct bn_jn *n;
    if (bn_jp_is_op(p, '-') || bn_jp_is_op(p, '+')) {
        n = bn_jp_node(p, bn_jp_is_op(p, '-') ? BN_JN_NEG : BN_JN_POS);
        p->t++;
        if (!n || !bn_jp_enter(p) || !(n->a = parse_unary(p, false))) return NULL;
        p->depth--;
    } else if (!(n = parse_primary(p))) {
        return NULL;
    }
    return parse_postfix(p, n, with_filters);
}

/* The binary levels of Jinja, loosest first; every level is one flat list. */
enum level { LEVEL_SUM, LEVEL_CONCAT, LEVEL_PRODUCT, LEVEL_POWER, LEVEL_UNARY };

static bool is_level_op(const struct bn_jparser *p, enum level level)
{
    switch (level) {
    case LEVEL_SUM: return bn_jp_is_op(p, '+') || bn_jp_is_op(p, '-');
    case LEVEL_CONCAT: return bn_jp_is_op(p, '~');
    case LEVEL_PRODUCT:
        return bn_jp_is_op(p, '*') || bn_jp_is_op(p, '/') || bn_jp_is_op(p, BN_OP_FLOORDIV) ||
               bn_jp_is_op(p, '%');
    case LEVEL_POWER: return bn_jp_is_op(p, BN_OP_POW);
    default: return false;
    }
}

static struct bn_jn *parse_binary(struct bn_jparser *p, enum level level)
{
    if (level == LEVEL_UNARY) return parse_unary(p, true);
    struct bn_jn *first = parse_binary(p, level + 1);
    if (!first || !is_level_op(p, level)) return first;
    struct bn_jn *n = bn_jp_node(p, level == LEVEL_CONCAT ? BN_JN_CONCAT : BN_JN_MATH);
    if (!n) return NULL;
    struct bn_jn **tail = level == LEVEL_CONCAT ? &first->next : &n->b;
    n->a = first;
    while (is_level_op(p, level)) {
        struct bn_jn *operand = NULL, *value;
        if (level != LEVEL_CONCAT) {
            if (!(operand = bn_jp_node(p, BN_JN_OPERAND))) return NULL;
            operand->op = p->t->op;
        }
        p->t++;
        if (!(value = parse_binary(p, level + 1))) return NULL;
        if (operand) operand->a = value;
        bn_jp_append(&tail, operand ? operand : value);
    }
    return n;
}

/* The comparison operator at the current token, 0 if there is none; skipped. */
static uint8_t compare_op(struct bn_jparser *p)
{
    uint8_t op = p->t->op;
    if (p->t->kind == BN_JT_OP && (op == BN_OP_EQ || op == BN_OP_NE || op == BN_OP_LE ||
                                   op == BN_OP_GE || op == '<' || op == '>')) {
        p->t++;
        return op;
    }
    if (bn_jp_skip_name(p, "in")) return BN_OP_IN;
    if (bn_jp_is_name(p, "not") && p->t[1].kind == BN_JT_NAME && bn_jv_is(p->t[1].val, "in")) {
        p->t += 2;
        return BN_OP_NOT_IN;
    }
    return 0;
}

static struct bn_jn *parse_not(struct bn_jparser *p)
{
    struct bn_jn *n;
    if (bn_jp_is_name(p, "not")) {
        if (!(n = bn_jp_node(p, BN_JN_NOT)) || !bn_jp_enter(p)) return NULL;
        p->t++;
        if (!(n->a = parse_not(p))) return NULL;
        p->depth--;
        return n;
    }
    struct bn_jn *first = parse_binary(p, LEVEL_SUM);
    uint8_t op;
    if (!first || !(op = compare_op(p))) return first;
    if (!(n = bn_jp_node(p, BN_JN_COMPARE))) return NULL;
    struct bn_jn **tail = &n->b;
    n->a = first;
    for (; op; op = compare_op(p)) {
        struct bn_jn *operand = bn_jp_node(p, BN_JN_OPERAND);
        if (!operand || !(operand->a = parse_binary(p, LEVEL_SUM))) return NULL;
        operand->op = op;
        bn_jp_append(&tail, operand);
    }
    return n;
}

static struct bn_jn *parse_logic(struct bn_jparser *p, const char *word)
{
    bool is_or = word[0] == 'o';
    struct bn_jn *first = is_or ? parse_logic(p, "and") : parse_not(p);
    if (!first || !bn_jp_is_name(p, word)) return first;
    struct bn_jn *n = bn_jp_node(p, is_or ? BN_JN_OR : BN_JN_AND), **tail;
    if (!n) return NULL;
    n->a = first;
    tail = &first->next;
    while (bn_jp_skip_name(p, word))
        if (!bn_jp_append(&tail, is_or ? parse_logic(p, "and") : parse_not(p))) return NULL;
    return n;
}

static struct bn_jn *parse_or(struct bn_jparser *p) { return parse_logic(p, "or"); }

struct bn_jn *bn_jp_expr(struct bn_jparser *p)
{
    if (!bn_jp_enter(p)) return NULL;
    struct bn_jn *n = parse_or(p);
    while (n && bn_jp_skip_name(p, "if")) {
        struct bn_jn *cond = bn_jp_node(p, BN_JN_COND);
        if (!cond || !(cond->b = parse_or(p))) return NULL;
        if (bn_jp_skip_name(p, "else") && !(cond->c = bn_jp_expr(p))) return NULL;
        cond->a = n;
        n = cond;
    }
    p->depth--;
    return n;
}
