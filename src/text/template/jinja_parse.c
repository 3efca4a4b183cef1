/* SPDX-License-Identifier: Apache-2.0
 * Tokens to nodes, first half: statements, and the helpers of both halves. Nesting is counted
 * (BN_JINJA_MAX_DEPTH), so that no source can exhaust the stack. */
#include "text/template/jinja_parse_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void *bn_jp_fail(struct bn_jparser *p, bitnet_status status, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    if (p->status != BITNET_OK) return NULL; /* the first sentence counts */
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    p->status = bn_fail(p->err, status, "template line %u: %s", p->t->line, text);
    return NULL;
}

struct bn_jn *bn_jp_node(struct bn_jparser *p, uint8_t kind)
{
    struct bn_jn *n = bn_arena_alloc(&p->j->arena, sizeof *n);
    if (!n) {
        p->status = bn_fail_nomem(p->err, sizeof *n, "a template node");
        return NULL;
    }
    n->kind = kind;
    n->line = p->t->line;
    return n;
}

/* A list under construction: *tail is where the next node goes. */
bool bn_jp_append(struct bn_jn ***tail, struct bn_jn *n)
{
    if (!n) return false;
    **tail = n;
    *tail = &n->next;
    return true;
}

bool bn_jp_is_op(const struct bn_jparser *p, uint8_t op)
{
    return p->t->kind == BN_JT_OP && p->t->op == op;
}
bool bn_jp_is_name(const struct bn_jparser *p, const char *name)
{
    return p->t->kind == BN_JT_NAME && bn_jv_is(p->t->val, name);
}
bool bn_jp_skip_op(struct bn_jparser *p, uint8_t op)
{
    if (!bn_jp_is_op(p, op)) return false;
    p->t++;
    return true;
}
bool bn_jp_skip_name(struct bn_jparser *p, const char *name)
{
    if (!bn_jp_is_name(p, name)) return false;
    p->t++;
    return true;
}

void *bn_jp_unexpected(struct bn_jparser *p, const char *wanted)
{
    static const struct {
        uint8_t op;
        char text[8];
    } ops[] = {{BN_OP_EQ, "=="}, {BN_OP_NE, "!="},  {BN_OP_LE, "<="},
               {BN_OP_GE, ">="}, {BN_OP_POW, "**"}, {BN_OP_FLOORDIV, "//"}};
    const struct bn_jt *t = p->t;
    char text[64] = "";
    if (t->kind == BN_JT_NAME)
        snprintf(text, sizeof text, "'%.*s'", (int)bn_min_size(t->val.n, 50), t->val.s);
    else if (t->kind == BN_JT_OP && t->op < 128) snprintf(text, sizeof text, "'%c'", t->op);
    else if (t->kind == BN_JT_OP)
        for (size_t i = 0; i < BN_ARRAY_LEN(ops); i++) {
            if (ops[i].op == t->op) snprintf(text, sizeof text, "'%s'", ops[i].text);
        }
    else
        snprintf(text, sizeof text, "%s",
                 t->kind == BN_JT_CONST ? "a constant"
                 : t->kind == BN_JT_EOF ? "the end"
                                        : "the end of the tag");
    return bn_jp_fail(p, BITNET_E_FORMAT, "%s expected, %s found", wanted, text);
}

bool bn_jp_expect_op(struct bn_jparser *p, uint8_t op)
{
    char wanted[4] = {'\'', (char)op, '\'', 0};
    return bn_jp_skip_op(p, op) || bn_jp_unexpected(p, wanted);
}

bool bn_jp_enter(struct bn_jparser *p)
{
    if (++p->depth <= BN_JINJA_MAX_DEPTH) return true;
    bn_jp_fail(p, BITNET_E_LIMIT, "nested deeper than %d", BN_JINJA_MAX_DEPTH);
    return false;
}

/* The name at the current token, as a symbol. */
bool bn_jp_symbol(struct bn_jparser *p, struct bn_jn *n)
{
    if (!n) return false;
    if (p->t->kind != BN_JT_NAME) return bn_jp_unexpected(p, "a name");
    n->val = p->t->val;
    n->sym = (uint32_t)p->j->symbols.n;
    bool existing;
    if (!bn_map_add(&p->j->symbols, n->val.s, n->val.n, &n->sym, &existing)) {
        p->status = bn_fail_nomem(p->err, n->val.n, "a template's name");
        return false;
    }
    p->t++;
    return true;
}

/* ------------------------------------------------------------------ statements */

static struct bn_jn *parse_body(struct bn_jparser *p, const char *const *ends,
                                const char *opened_by);

static bool end_block(struct bn_jparser *p)
{
    if (p->t->kind != BN_JT_BLOCK_END) return bn_jp_unexpected(p, "the end of the tag");
    p->t++;
    return true;
}

/* After a body: skips the name of the tag that ended it. */
static bool end_body(struct bn_jparser *p)
{
    if (p->status != BITNET_OK) return false;
    p->t++;
    return true;
}

/* name | name, name | (name, name): what a for or set assigns to. */
static struct bn_jn *parse_target(struct bn_jparser *p)
{
    bool paren = bn_jp_skip_op(p, '(');
    struct bn_jn *first = bn_jp_node(p, BN_JN_NAME);
    if (!bn_jp_symbol(p, first)) return NULL;
    if (!paren && bn_jp_skip_op(p, '.')) {
        first->kind = BN_JN_NSREF;
        if (p->t->kind != BN_JT_NAME) return bn_jp_unexpected(p, "an attribute's name");
        first->val = p->t++->val;
        return first;
    }
    if (bn_jp_is_op(p, ',')) {
        struct bn_jn *tuple = bn_jp_node(p, BN_JN_TUPLE), **tail = &first->next;
        if (!tuple) return NULL;
        tuple->a = first;
        while (bn_jp_skip_op(p, ',') && p->t->kind == BN_JT_NAME && !bn_jp_is_name(p, "in")) {
            struct bn_jn *n = bn_jp_node(p, BN_JN_NAME);
            if (!bn_jp_symbol(p, n)) return NULL;
            bn_jp_append(&tail, n);
        }
        first = tuple;
    }
    return paren && !bn_jp_expect_op(p, ')') ? NULL : first;
}

static struct bn_jn *parse_if(struct bn_jparser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const end[] = {"endif",
                                                                                       NULL};
    struct bn_jn *n = bn_jp_node(p, BN_JN_IF);
    if (!n) return NULL;
    for (struct bn_jn **tail = &n->a;;) {
        struct bn_jn *branch = bn_jp_node(p, BN_JN_BRANCH);
        if (!branch || !(branch->a = bn_jp_tuple(p, true)) || !end_block(p)) return NULL;
        branch->b = parse_body(p, ends, "if");
        if (p->status != BITNET_OK) return NULL;
        bn_jp_append(&tail, branch);
        if (bn_jp_skip_name(p, "elif")) continue;
        if (bn_jp_skip_name(p, "else")) {
            if (!(branch = bn_jp_node(p, BN_JN_BRANCH)) || !end_block(p)) return NULL;
            branch->b = parse_body(p, end, "if");
            bn_jp_append(&tail, branch);
        }
        break;
    }
    return end_body(p) ? n : NULL;
}

static struct bn_jn *parse_for(struct bn_jparser *p)
{
    static const char *const ends[] = {"else", "endfor", NULL}, *const end[] = {"endfor", NULL};
    struct bn_jn *n = bn_jp_node(p, BN_JN_FOR);
    if (!n || !(n->a = parse_target(p))) return NULL;
    if (n->a->kind == BN_JN_NSREF)
        return bn_jp_fail(p, BITNET_E_FORMAT, "a for loop cannot assign to an attribute");
    if (!bn_jp_skip_name(p, "in")) return bn_jp_unexpected(p, "'in'");
    if (!(n->b = bn_jp_tuple(p, false))) return NULL;
    if (bn_jp_skip_name(p, "if") && !(n->e = bn_jp_expr(p))) return NULL;
    if (bn_jp_is_name(p, "recursive"))
        return bn_jp_fail(p, BITNET_E_UNSUPPORTED, "recursive loops are not supported");
    if (!end_block(p)) return NULL;
    n->c = parse_body(p, ends, "for");
    if (p->status != BITNET_OK) return NULL;
    if (bn_jp_skip_name(p, "else")) {
        if (!end_block(p)) return NULL;
        n->d = parse_body(p, end, "for");
    }
    return end_body(p) ? n : NULL;
}

static struct bn_jn *parse_set(struct bn_jparser *p)
{
    static const char *const end[] = {"endset", NULL};
    struct bn_jn *n = bn_jp_node(p, BN_JN_SET);
    if (!n || !(n->a = parse_target(p))) return NULL;
    if (bn_jp_skip_op(p, '=')) {
        n->b = bn_jp_tuple(p, true);
        return n->b ? n : NULL;
    }
    n->kind = BN_JN_SET_BLOCK;
    if (n->a->kind == BN_JN_TUPLE) return bn_jp_unexpected(p, "'='");
    struct bn_jn **tail = &n->c;
    while (bn_jp_skip_op(p, '|'))
        if (!bn_jp_append(&tail, bn_jp_filter(p))) return NULL;
    if (!end_block(p)) return NULL;
    n->b = parse_body(p, end, "set");
    return end_body(p) ? n : NULL;
}

static struct bn_jn *parse_macro(struct bn_jparser *p)
{
    static const char *const end[] = {"endmacro", NULL};
    struct bn_jn *n = bn_jp_node(p, BN_JN_MACRO);
    if (!bn_jp_symbol(p, n) || !bn_jp_expect_op(p, '(')) return NULL;
    for (struct bn_jn **tail = &n->a; !bn_jp_skip_op(p, ')');) {
        struct bn_jn *param = bn_jp_node(p, BN_JN_PARAM);
        if (!bn_jp_symbol(p, param)) return NULL;
        if (bn_jp_skip_op(p, '=') && !(param->a = bn_jp_expr(p))) return NULL;
        bn_jp_append(&tail, param);
        if (!bn_jp_is_op(p, ')') && !bn_jp_expect_op(p, ',')) return NULL;
    }
    if (!end_block(p)) return NULL;
    n->b = parse_body(p, end, "macro");
    if (!end_body(p)) return NULL;
    if (p->t->kind == BN_JT_NAME) p->t++; /* endmacro may repeat the name */
    return n;
}

static struct bn_jn *parse_with(struct bn_jparser *p)
{
    static const char *const end[] = {"endwith", NULL};
    struct bn_jn *n = bn_jp_node(p, BN_JN_WITH), **tail;
    if (!n) return NULL;
    tail = &n->a;
    while (p->t->kind == BN_JT_NAME) {
        struct bn_jn *set = bn_jp_node(p, BN_JN_SET), *name = bn_jp_node(p, BN_JN_NAME);
        if (!set || !bn_jp_symbol(p, name) || !bn_jp_expect_op(p, '=') || !(set->b = bn_jp_expr(p)))
            return NULL;
        set->a = name;
        bn_jp_append(&tail, set);
        if (!bn_jp_skip_op(p, ',')) break;
    }
    if (!end_block(p)) return NULL;
    n->b = parse_body(p, end, "with");
    return end_body(p) ? n : NULL;
}

static struct bn_jn *parse_filter_block(struct bn_jparser *p)
{
    static const char *const end[] = {"endfilter", NULL};
    struct bn_jn *n = bn_jp_node(p, BN_JN_FILTERED), **tail;
    if (!n) return NULL;
    tail = &n->c;
    do {
        if (!bn_jp_append(&tail, bn_jp_filter(p))) return NULL;
    } while (bn_jp_skip_op(p, '|'));
    if (!end_block(p)) return NULL;
    n->b = parse_body(p, end, "filter");
    return end_body(p) ? n : NULL;
}

/* The tag whose name is at p->t. */
static struct bn_jn *parse_statement(struct bn_jparser *p)
{
    if (p->t->kind != BN_JT_NAME) return bn_jp_unexpected(p, "a tag's name");
    if (bn_jp_skip_name(p, "if")) return parse_if(p);
    if (bn_jp_skip_name(p, "for")) return parse_for(p);
    if (bn_jp_skip_name(p, "set")) return parse_set(p);
    if (bn_jp_skip_name(p, "macro")) return parse_macro(p);
    if (bn_jp_skip_name(p, "with")) return parse_with(p);
    if (bn_jp_skip_name(p, "filter")) return parse_filter_block(p);
    if (bn_jp_skip_name(p, "break")) return bn_jp_node(p, BN_JN_BREAK);
    if (bn_jp_skip_name(p, "continue")) return bn_jp_node(p, BN_JN_CONTINUE);
    int n = (int)bn_min_size(p->t->val.n, 50);
    return bn_jp_fail(p, BITNET_E_UNSUPPORTED, "tag '%.*s' is not known or not supported here", n,
                      p->t->val.s);
}

/* Statements up to a tag named in `ends`, which is left as the current token (NULL: up to the
 * end). */
static struct bn_jn *parse_body(struct bn_jparser *p, const char *const *ends,
                                const char *opened_by)
{
    struct bn_jn *list = NULL, **tail = &list, *n;
    uint32_t line = p->t->line;
    if (!bn_jp_enter(p)) return NULL;
    for (;; bn_jp_append(&tail, n)) {
        const struct bn_jt *t = p->t;
        if (t->kind == BN_JT_EOF) {
            if (ends)
                bn_jp_fail(p, BITNET_E_FORMAT, "'%s' of line %u is not ended", opened_by, line);
            break;
        }
        if (t->kind == BN_JT_TEXT) {
            if (!(n = bn_jp_node(p, BN_JN_TEXT))) return NULL;
            n->val = p->t++->val;
        } else if (t->kind == BN_JT_VAR_BEGIN) {
            p->t++;
            if (!(n = bn_jp_node(p, BN_JN_OUTPUT)) || !(n->a = bn_jp_tuple(p, true))) return NULL;
            if (p->t->kind != BN_JT_VAR_END) return bn_jp_unexpected(p, "the end of the tag");
            p->t++;
        } else {
            p->t++;
            for (const char *const *e = ends; e && *e; e++)
                if (bn_jp_is_name(p, *e)) {
                    p->depth--;
                    return list;
                }
            if (bn_jp_skip_name(p, "generation") || bn_jp_skip_name(p, "endgeneration"))
                n = bn_jp_node(p, BN_JN_TEXT); /* prints nothing */
            else n = parse_statement(p);
            if (!n || p->status != BITNET_OK || !end_block(p)) return NULL;
        }
    }
    p->depth--;
    return list;
}

bitnet_status bn_jinja_parse(struct bn_jinja **out, const char *source, size_t n, bitnet_error *err)
{
    struct bn_jt *tokens = NULL;
    size_t n_tokens = 0;
    *out = NULL;
    if (n > BN_JINJA_MAX_SOURCE)
        return bn_fail(err, BITNET_E_LIMIT, "template has %zu bytes, at most %d are allowed", n,
                       BN_JINJA_MAX_SOURCE);
    struct bn_jinja *j = bn_calloc(1, sizeof *j);
    if (!j) return bn_fail_nomem(err, sizeof *j, "a template");
    bitnet_status st =
        bn_map_init(&j->symbols, 64) ? BITNET_OK : bn_fail_nomem(err, 64, "a template's names");
    if (st == BITNET_OK) st = bn_jinja_lex(&j->arena, source, n, &tokens, &n_tokens, err);
    if (st == BITNET_OK) {
        struct bn_jparser p = {.j = j, .t = tokens, .err = err, .status = BITNET_OK};
        j->body = parse_body(&p, NULL, "");
        st = p.status;
    }
    free(tokens); /* what the nodes need of them was copied, their text is in the arena */
    if (st != BITNET_OK) {
        bn_jinja_free(j);
        return st;
    }
    *out = j;
    return BITNET_OK;
}

void bn_jinja_free(struct bn_jinja *j)
{
    if (!j) return;
    bn_map_free(&j->symbols);
    bn_arena_free(&j->arena);
    free(j);
}
