/* SPDX-License-Identifier: Apache-2.0
 * Statements, scopes, macros and the limits of a rendering. Output grows at the end of one buffer;
 * a macro's or block's text is what was added there since it began, cut off again. */
#include "text/template/jinja.h"

#include <stdarg.h>
#include <stdio.h>

/* ------------------------------------------------------------------ limits and memory */

bool bn_jx_fail(struct bn_jx *x, bitnet_status s, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    if (x->status != BITNET_OK) return false; /* the first sentence counts */
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    x->status = bn_fail(x->err, s, "template line %u: %s", x->line, text);
    return false;
}

bool bn_jx_charge(struct bn_jx *x, size_t steps)
{
    x->steps += steps;
    if (x->steps <= BN_JINJA_MAX_STEPS) return true;
    return bn_jx_fail(x, BITNET_E_LIMIT, "more than %d steps", BN_JINJA_MAX_STEPS);
}

bool bn_jx_enter(struct bn_jx *x)
{
    if (++x->depth > BN_JINJA_MAX_STACK)
        return bn_jx_fail(x, BITNET_E_LIMIT, "evaluation is nested deeper than %d",
                          BN_JINJA_MAX_STACK);
    return bn_jx_charge(x, 1);
}

void *bn_jx_alloc(struct bn_jx *x, size_t n, size_t size)
{
    uint64_t bytes;
    if (!bn_mul_u64(&bytes, n, size) || bytes > BN_JINJA_MAX_MEMORY ||
        x->arena.used_bytes + bytes > BN_JINJA_MAX_MEMORY) {
        bn_jx_fail(x, BITNET_E_LIMIT, "more than %d bytes of memory are needed",
                   BN_JINJA_MAX_MEMORY);
        return NULL;
    }
    void *p = bn_arena_alloc(&x->arena, bytes);
    if (!p) bn_jx_fail(x, BITNET_E_NOMEM, "out of memory: %zu bytes", (size_t)bytes);
    return p;
}

bool bn_jx_put(struct bn_jx *x, const char *s, size_t n)
{
    if (!bn_jx_charge(x, n / 64)) return false;
    if (n == 0 || bn_buf_append(&x->buf, s, n)) return true;
    if (n > x->buf.max - x->buf.len)
        return bn_jx_fail(x, BITNET_E_LIMIT, "more than %d bytes of output", BN_JINJA_MAX_OUTPUT);
    return bn_jx_fail(x, BITNET_E_NOMEM, "out of memory: %zu bytes of output", x->buf.len + n);
}

bool bn_jx_cut(struct bn_jx *x, size_t mark, struct bn_jv *out)
{
    size_t n = x->buf.len - mark;
    char *s = bn_jx_alloc(x, n, 1);
    if (!s) return false;
    if (n) memcpy(s, x->buf.data + mark, n);
    *out = bn_jv_str(s, n);
    x->buf.len = mark;
    return bn_jx_charge(x, n / 64);
}

/* ------------------------------------------------------------------ scopes */

bool bn_jx_push_scope(struct bn_jx *x, struct bn_jscope *parent)
{
    struct bn_jscope *s = bn_jx_alloc(x, 1, sizeof *s);
    if (!s) return false;
    s->parent = parent;
    x->scope = s;
    return true;
}

bool bn_jx_lookup(struct bn_jx *x, uint32_t sym, struct bn_jv *out)
{
    size_t looked = 0;
    for (const struct bn_jscope *s = x->scope; s; s = s->parent) {
        looked += s->n + 1;
        for (size_t i = 0; i < s->n; i++)
            if (s->vars[i].sym == sym) {
                *out = s->vars[i].val;
                return true;
            }
    }
    x->steps += looked / 16; /* taken note of by the next charge */
    return false;
}

bool bn_jx_assign(struct bn_jx *x, uint32_t sym, struct bn_jv v)
{
    struct bn_jscope *s = x->scope;
    if (!bn_jx_charge(x, s->n / 16)) return false;
    for (size_t i = 0; i < s->n; i++)
        if (s->vars[i].sym == sym) {
            s->vars[i].val = v;
            return true;
        }
    if (s->n == s->room) {
        size_t room = s->room ? s->room * 2 : 4;
        struct bn_jvar *p = bn_jx_alloc(x, room, sizeof *p);
        if (!p) return false;
        if (s->n) memcpy(p, s->vars, s->n * sizeof *p);
        s->vars = p;
        s->room = room;
    }
    s->vars[s->n++] = (struct bn_jvar){sym, v};
    return true;
}

bool bn_jx_define(struct bn_jx *x, const char *name, struct bn_jv v)
{
    uint32_t sym;
    return !bn_map_get(&x->j->symbols, name, strlen(name), &sym) || bn_jx_assign(x, sym, v);
}

/* ------------------------------------------------------------------ statements */

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE, FLOW_FAILED };

static enum flow exec_list(struct bn_jx *x, const struct bn_jn *n);

static bool assign_target(struct bn_jx *x, const struct bn_jn *target, struct bn_jv v)
{
    if (target->kind == BN_JN_NAME) return bn_jx_assign(x, target->sym, v);
    if (target->kind == BN_JN_NSREF) {
        struct bn_jv ns;
        if (!bn_jx_lookup(x, target->sym, &ns) || ns.kind != BN_JV_NS)
            return bn_jx_fail(x, BITNET_E_FORMAT,
                              "attribute '%.*s' is set on something that is no namespace",
                              (int)bn_min_size(target->val.n, 50), target->val.s);
        return bn_jv_put(x, ns.dict, target->val, v);
    }
    const struct bn_jlist *l;
    size_t n = 0, k = 0;
    if (!bn_jv_items(x, v, &l)) return false;
    for (const struct bn_jn *p = target->a; p; p = p->next) n++;
    if (n != l->n) return bn_jx_fail(x, BITNET_E_FORMAT, "%zu names for %zu values", n, l->n);
    for (const struct bn_jn *p = target->a; p; p = p->next)
        if (!bn_jx_assign(x, p->sym, l->v[k++])) return false;
    return true;
}

/* The text that a body prints, as a value; sets inside stay inside. */
static bool capture(struct bn_jx *x, const struct bn_jn *body, struct bn_jv *out, enum flow *flow)
{
    struct bn_jscope *outer = x->scope;
    size_t mark = x->buf.len;
    if (!bn_jx_push_scope(x, outer)) return false;
    *flow = exec_list(x, body);
    x->scope = outer;
    return *flow != FLOW_FAILED && bn_jx_cut(x, mark, out);
}

/* Items for which the condition holds. */
static bool select_items(struct bn_jx *x, const struct bn_jn *n, const struct bn_jlist **items)
{
    struct bn_jscope *outer = x->scope;
    struct bn_jv chosen, v;
    if (!bn_jv_list(x, BN_JV_LIST, 0, &chosen)) return false;
    for (size_t i = 0; i < (*items)->n; i++) {
        if (!bn_jx_push_scope(x, outer) || !assign_target(x, n->a, (*items)->v[i]) ||
            !bn_jx_eval(x, n->e, &v))
            return false;
        x->scope = outer;
        if (bn_jv_truth(v) && !bn_jv_push(x, chosen.list, (*items)->v[i])) return false;
    }
    *items = chosen.list;
    return true;
}

static enum flow exec_for(struct bn_jx *x, const struct bn_jn *n)
{
    struct bn_jscope *outer = x->scope;
    const struct bn_jlist *items;
    struct bn_jv v;
    uint32_t loop_sym;
    bool wants_loop = bn_map_get(&x->j->symbols, "loop", 4, &loop_sym);
    if (!bn_jx_eval(x, n->b, &v) || !bn_jv_items(x, v, &items)) return FLOW_FAILED;
    if (n->e && !select_items(x, n, &items)) return FLOW_FAILED;
    struct bn_jloop *loop = bn_jx_alloc(x, 1, sizeof *loop);
    if (!loop) return FLOW_FAILED;
    loop->items = items;
    x->loop_depth++;
    enum flow flow = FLOW_ON;
    for (size_t i = 0; i < items->n && flow != FLOW_BREAK; i++) {
        loop->i = i;
        if (!bn_jx_charge(x, 1) || !bn_jx_push_scope(x, outer)) return FLOW_FAILED;
        if (wants_loop &&
            !bn_jx_assign(x, loop_sym, (struct bn_jv){.kind = BN_JV_LOOP, .loop = loop}))
            return FLOW_FAILED;
        if (!assign_target(x, n->a, items->v[i])) return FLOW_FAILED;
        flow = exec_list(x, n->c);
        if (flow == FLOW_FAILED) return flow;
    }
    x->loop_depth--;
    flow = FLOW_ON;
    if (items->n == 0 && n->d) {
        if (!bn_jx_push_scope(x, outer)) return FLOW_FAILED;
        flow = exec_list(x, n->d);
    }
    x->scope = outer;
    return flow;
}

static enum flow exec_if(struct bn_jx *x, const struct bn_jn *n)
{
    for (const struct bn_jn *b = n->a; b; b = b->next) {
        struct bn_jv v;
        if (b->a) {
            if (!bn_jx_eval(x, b->a, &v)) return FLOW_FAILED;
            if (!bn_jv_truth(v)) continue;
        }
        return exec_list(x, b->b);
    }
    return FLOW_ON;
}

static bool define_macro(struct bn_jx *x, const struct bn_jn *n)
{
    struct bn_jmacro *m = bn_jx_alloc(x, 1, sizeof *m);
    if (!m) return false;
    *m = (struct bn_jmacro){n, x->scope};
    return bn_jx_assign(x, n->sym, (struct bn_jv){.kind = BN_JV_MACRO, .macro = m});
}

static enum flow exec_with(struct bn_jx *x, const struct bn_jn *n)
{
    struct bn_jscope *outer = x->scope, *inner;
    if (!bn_jx_push_scope(x, outer)) return FLOW_FAILED;
    inner = x->scope;
    for (const struct bn_jn *p = n->a; p; p = p->next) {
        struct bn_jv v;
        x->scope = outer; /* the values do not see each other */
        if (!bn_jx_eval(x, p->b, &v)) return FLOW_FAILED;
        x->scope = inner;
        if (!bn_jx_assign(x, p->a->sym, v)) return FLOW_FAILED;
    }
    enum flow flow = exec_list(x, n->b);
    x->scope = outer;
    return flow;
}

static enum flow exec_one(struct bn_jx *x, const struct bn_jn *n)
{
    struct bn_jv v;
    enum flow flow = FLOW_ON;
    bool ok;
    switch (n->kind) {
    case BN_JN_TEXT: ok = n->val.n == 0 || bn_jx_put(x, n->val.s, n->val.n); break;
    case BN_JN_OUTPUT: ok = bn_jx_eval(x, n->a, &v) && bn_jv_print(x, v); break;
    case BN_JN_IF: return exec_if(x, n);
    case BN_JN_FOR: return exec_for(x, n);
    case BN_JN_SET: ok = bn_jx_eval(x, n->b, &v) && assign_target(x, n->a, v); break;
    case BN_JN_SET_BLOCK:
        ok = capture(x, n->b, &v, &flow) && bn_jx_filters(x, n->c, &v) && assign_target(x, n->a, v);
        break;
    case BN_JN_FILTERED:
        ok = capture(x, n->b, &v, &flow) && bn_jx_filters(x, n->c, &v) && bn_jv_print(x, v);
        break;
    case BN_JN_MACRO: ok = define_macro(x, n); break;
    case BN_JN_WITH: return exec_with(x, n);
    case BN_JN_BREAK:
    case BN_JN_CONTINUE:
        if (x->loop_depth) return n->kind == BN_JN_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
        ok = bn_jx_fail(x, BITNET_E_FORMAT, "'break' or 'continue' outside a loop");
        break;
    default: ok = bn_jx_fail(x, BITNET_E_INTERNAL, "node %d is no statement", n->kind);
    }
    return ok ? flow : FLOW_FAILED;
}

static enum flow exec_list(struct bn_jx *x, const struct bn_jn *n)
{
    for (; n; n = n->next) {
        x->line = n->line;
        if (!bn_jx_enter(x)) return FLOW_FAILED;
        enum flow flow = exec_one(x, n);
        x->depth--;
        if (flow != FLOW_ON) return flow;
    }
    return FLOW_ON;
}

/* A parameter's value out of the arguments; ABSENT if not given. Takes named arguments out of the
 * list. */
static struct bn_jv macro_arg(struct bn_jargs *a, size_t i, struct bn_jv name)
{
    for (size_t k = 0; k < a->n_kw; k++)
        if (a->kw_names[k].n == name.n && memcmp(a->kw_names[k].s, name.s, name.n) == 0) {
            a->kw_names[k].n = 0;
            return a->kw[k];
        }
    return i < a->n ? a->v[i] : bn_jv_kind_only(BN_JV_ABSENT);
}

bool bn_jx_call_macro(struct bn_jx *x, struct bn_jv *out, const struct bn_jmacro *m,
                      struct bn_jargs *a)
{
    struct bn_jscope *outer = x->scope;
    size_t mark = x->buf.len, n = 0;
    uint32_t loops = x->loop_depth;
    const struct bn_jn *def = m->node;
    if (!bn_jx_push_scope(x, m->scope)) return false;
    for (const struct bn_jn *p = def->a; p; p = p->next) {
        struct bn_jv v = macro_arg(a, n++, p->val);
        if (v.kind == BN_JV_ABSENT) {
            if (!p->a) v = bn_jv_undef(p->val, 0);
            else if (!bn_jx_eval(x, p->a, &v)) return false;
        }
        if (!bn_jx_assign(x, p->sym, v)) return false;
    }
    for (size_t k = 0; k < a->n_kw; k++)
        if (a->kw_names[k].n)
            return bn_jx_fail(x, BITNET_E_FORMAT, "macro '%.*s' has no argument '%.*s'",
                              (int)bn_min_size(def->val.n, 50), def->val.s,
                              (int)bn_min_size(a->kw_names[k].n, 50), a->kw_names[k].s);
    if (a->n > n)
        return bn_jx_fail(x, BITNET_E_FORMAT, "macro '%.*s' takes at most %zu arguments",
                          (int)bn_min_size(def->val.n, 50), def->val.s, n);
    x->loop_depth = 0;
    if (exec_list(x, def->b) == FLOW_FAILED) return false;
    x->loop_depth = loops;
    x->scope = outer;
    return bn_jx_cut(x, mark, out);
}

/* ------------------------------------------------------------------ rendering */

static bool define_chat(struct bn_jx *x, const struct bn_chat_vars *vars)
{
    struct bn_jv list, msg;
    if (!bn_jv_list(x, BN_JV_LIST, vars->n_msgs, &list)) return false;
    for (size_t i = 0; i < vars->n_msgs; i++) {
        const char *texts[2] = {vars->msgs[i].role, vars->msgs[i].content};
        static const char *const names[2] = {"role", "content"};
        if (!bn_jv_dict(x, BN_JV_DICT, &msg)) return false;
        for (int k = 0; k < 2; k++) {
            size_t n = texts[k] ? strlen(texts[k]) : 0;
            if (n > BN_JINJA_MAX_OUTPUT)
                return bn_jx_fail(x, BITNET_E_LIMIT, "message %zu is longer than %d bytes", i,
                                  BN_JINJA_MAX_OUTPUT);
            struct bn_jv v = texts[k] ? bn_jv_str(texts[k], n) : bn_jv_kind_only(BN_JV_NONE);
            if (!bn_jv_put(x, msg.dict, bn_jv_str(names[k], strlen(names[k])), v)) return false;
        }
        list.list->v[list.list->n++] = msg;
    }
    const char *bos = vars->bos_token ? vars->bos_token : "",
               *eos = vars->eos_token ? vars->eos_token : "";
    return bn_jx_define(x, "messages", list) &&
           bn_jx_define(x, "add_generation_prompt", bn_jv_bool(vars->add_generation_prompt)) &&
           bn_jx_define(x, "bos_token", bn_jv_str(bos, strlen(bos))) &&
           bn_jx_define(x, "eos_token", bn_jv_str(eos, strlen(eos))) &&
           bn_jx_define(x, "tools", bn_jv_kind_only(BN_JV_NONE)) &&
           bn_jx_define(x, "documents", bn_jv_kind_only(BN_JV_NONE));
}

static bool define_json(struct bn_jx *x, const struct bn_json *vars)
{
    const char *key;
    struct bn_json *value;
    bn_json_each_member(vars, key, value)
    {
        struct bn_jv v;
        if (!bn_jv_from_json(x, value, &v) || !bn_jx_define(x, key, v)) return false;
    }
    return true;
}

static bitnet_status render(const struct bn_jinja *j, const struct bn_chat_vars *vars,
                            const struct bn_json *json, int64_t now_s, struct bn_buf *out,
                            bitnet_error *err)
{
    struct bn_jx x = {.j = j, .err = err, .line = 1, .now_s = now_s};
    bn_buf_init(&x.buf, BN_JINJA_MAX_OUTPUT);
    bool ok = bn_jx_push_scope(&x, NULL) &&
              (json ? define_json(&x, json) : define_chat(&x, vars)) &&
              exec_list(&x, j->body) != FLOW_FAILED;
    if (ok && !bn_buf_append(out, x.buf.data ? x.buf.data : "", x.buf.len)) {
        bn_jx_fail(&x, out->full ? BITNET_E_LIMIT : BITNET_E_NOMEM,
                   "%zu bytes of output do not fit%s", x.buf.len, out->full ? "" : " in memory");
    }
    bn_buf_free(&x.buf);
    bn_arena_free(&x.arena);
    return x.status;
}

bitnet_status bn_jinja_render(const struct bn_jinja *j, const struct bn_chat_vars *vars,
                              struct bn_buf *out, bitnet_error *err)
{
    return render(j, vars, NULL, vars->now_s, out, err);
}

bitnet_status bn_jinja_render_json(const struct bn_jinja *j, const struct bn_json *vars,
                                   int64_t now_s, struct bn_buf *out, bitnet_error *err)
{
    if (!bn_json_is_object(vars))
        return bn_fail(err, BITNET_E_ARG, "template variables are no JSON object");
    return render(j, NULL, vars, now_s, out, err);
}
