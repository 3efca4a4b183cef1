/* SPDX-License-Identifier: Apache-2.0
 * Inside of the template interpreter: what its files share. Users include text/template/chat.h.
 *
 *   source -> jinja_lex.c -> tokens -> jinja_parse.c (statements), jinja_expr.c (expressions)
 *   -> nodes (struct bn_jinja, immutable)
 *   nodes + variables -> jinja_exec.c (statements) and jinja_eval.c (expressions) -> bytes
 *   values: jinja_value.c (make, compare, print), jinja_json.c (from and to JSON), jinja_text.c
 *   named things: jinja_filters.c, jinja_methods.c, jinja_is.c
 *
 * Everything made while rendering lies in one arena with a maximum (BN_JINJA_MAX_MEMORY) and dies
 * with the rendering. Work is counted in steps: one for a node, one for every 64 bytes or 16 items
 * that a builtin looks at, so that the step limit bounds time whatever the template does.
 * Functions that may fail return false after bn_jx_fail() has written the sentence. */
#ifndef BN_TEXT_TEMPLATE_JINJA_H
#define BN_TEXT_TEMPLATE_JINJA_H

#include "base/map.h"
#include "base/number.h"
#include "text/template/chat.h"
#include "json/json.h"

/* ------------------------------------------------------------------ values */

enum bn_jv_kind {
    BN_JV_ABSENT = 0, /* an argument that was not given; never seen by a template */
    BN_JV_UNDEF,
    BN_JV_NONE,
    BN_JV_BOOL,
    BN_JV_INT,
    BN_JV_FLOAT,
    BN_JV_STR,
    BN_JV_LIST,
    BN_JV_TUPLE,
    BN_JV_DICT,
    BN_JV_NS, /* namespace(): the only thing a template can change */
    BN_JV_MACRO,
    BN_JV_LOOP,
    BN_JV_FN,
    BN_JV_METHOD
};

struct bn_jv {
    uint8_t kind;
    uint8_t owner; /* UNDEF: 0 for a variable, else kind of the value that lacks the attribute */
    uint32_t n;    /* STR: bytes; UNDEF: bytes of the name */
    union {
        bool b;
        int64_t i;
        double f;
        const char *s;         /* STR, UNDEF */
        struct bn_jlist *list; /* LIST, TUPLE */
        struct bn_jdict *dict; /* DICT, NS */
        struct bn_jmacro *macro;
        struct bn_jloop *loop;
        const struct bn_jfn *fn;
        struct bn_jmethod *method;
    };
};

struct bn_jlist {
    size_t n, room;
    struct bn_jv *v;
};
struct bn_jpair {
    struct bn_jv key, val;
};
struct bn_jdict { /* keeps the order of insertion; searched from front to back */
    size_t n, room;
    struct bn_jpair *p;
};
struct bn_jloop {
    const struct bn_jlist *items;
    size_t i;
};

/* Arguments of a call. After binding, v[] holds the declared parameters in order, ABSENT where not
 * given. */
struct bn_jargs {
    size_t n, n_kw;
    struct bn_jv *v;
    struct bn_jv *kw_names, *kw; /* [n_kw] */
};

struct bn_jx;
typedef bool bn_jfn_call(struct bn_jx *x, struct bn_jv *out, struct bn_jv self, struct bn_jargs *a);

/* A filter, test, method or function. params: names separated by commas, "" for none, NULL: the
 * function looks at its arguments itself. The first n_min of them are needed. */
struct bn_jfn {
    const char *name, *params;
    uint8_t n_min;
    uint8_t self_kind; /* methods: kind of the value they belong to */
    bn_jfn_call *call;
};
struct bn_jmethod {
    const struct bn_jfn *fn;
    struct bn_jv self;
};
struct bn_jmacro {
    const struct bn_jn *node;
    struct bn_jscope *scope; /* where it was defined */
};

/* ------------------------------------------------------------------ tokens and nodes */

enum bn_jt_kind {
    BN_JT_EOF,
    BN_JT_TEXT,
    BN_JT_VAR_BEGIN,
    BN_JT_VAR_END,
    BN_JT_BLOCK_BEGIN,
    BN_JT_BLOCK_END,
    BN_JT_NAME,
    BN_JT_CONST, /* string or number */
    BN_JT_OP
};
/* Operators of one character are that character. */
enum {
    BN_OP_EQ = 128,
    BN_OP_NE,
    BN_OP_LE,
    BN_OP_GE,
    BN_OP_POW,
    BN_OP_FLOORDIV,
    BN_OP_IN,
    BN_OP_NOT_IN
};

struct bn_jt {
    uint8_t kind, op;
    uint32_t line;
    struct bn_jv val; /* TEXT, NAME, CONST */
};
bitnet_status bn_jinja_lex(struct bn_arena *arena, const char *source, size_t n,
                           struct bn_jt **tokens, size_t *n_tokens, bitnet_error *err);

/* expressions */
enum bn_jn_kind {
    BN_JN_CONST,   /* val                                                              */
    BN_JN_NAME,    /* sym, val: the name                                               */
    BN_JN_LIST,    /* a: items                                                         */
    BN_JN_TUPLE,   /* a: items                                                         */
    BN_JN_DICT,    /* a: ARGs, b of each: the key                                      */
    BN_JN_NEG,     /* a                                                                */
    BN_JN_POS,     /* a                                                                */
    BN_JN_NOT,     /* a                                                                */
    BN_JN_AND,     /* a: operands                                                      */
    BN_JN_OR,      /* a: operands                                                      */
    BN_JN_MATH,    /* a: first operand, b: OPERANDs, from left to right                */
    BN_JN_CONCAT,  /* a: operands of ~                                                 */
    BN_JN_COMPARE, /* a: first operand, b: OPERANDs                                    */
    BN_JN_OPERAND, /* op, a                                                            */
    BN_JN_COND,    /* a if b else c; c may be NULL                                     */
    BN_JN_POSTFIX, /* a: base, b: ATTR ITEM SLICE CALL FILTER TEST, from left to right */
    BN_JN_ATTR,    /* val: the name                                                    */
    BN_JN_ITEM,    /* a                                                                */
    BN_JN_SLICE,   /* a, b, c: start, stop, step; each may be NULL                     */
    BN_JN_CALL,    /* a: ARGs                                                          */
    BN_JN_FILTER,  /* val: the name, fn (NULL: not supported), a: ARGs                 */
    BN_JN_TEST,    /* the same; flag: "is not"                                         */
    BN_JN_ARG,     /* a; val: the keyword or ABSENT                                    */
    /* statements */
    BN_JN_TEXT,      /* val                                                            */
    BN_JN_OUTPUT,    /* a                                                              */
    BN_JN_IF,        /* a: BRANCHes                                                    */
    BN_JN_BRANCH,    /* a: condition or NULL for else, b: body                         */
    BN_JN_FOR,       /* a: target, b: items, c: body, d: else body, e: condition       */
    BN_JN_SET,       /* a: target, b: value                                            */
    BN_JN_SET_BLOCK, /* a: target, b: body, c: FILTERs                                 */
    BN_JN_NSREF,     /* sym, val: attribute: target "ns.x"                             */
    BN_JN_MACRO,     /* sym, a: PARAMs, b: body                                        */
    BN_JN_PARAM,     /* sym, val: the name, a: default or NULL                         */
    BN_JN_WITH,      /* a: SETs, b: body                                               */
    BN_JN_FILTERED,  /* b: body, c: FILTERs                                            */
    BN_JN_BREAK,
    BN_JN_CONTINUE
};

struct bn_jn {
    uint8_t kind, op;
    bool flag;
    uint32_t line, sym;
    struct bn_jv val;
    const struct bn_jfn *fn;
    struct bn_jn *a, *b, *c, *d, *e;
    struct bn_jn *next; /* in the list that it belongs to */
};

struct bn_jinja {
    struct bn_arena arena; /* source, tokens, nodes, names */
    struct bn_map symbols; /* variable names -> sym */
    struct bn_jn *body;
};

/* ------------------------------------------------------------------ a rendering */

struct bn_jvar {
    uint32_t sym;
    struct bn_jv val;
};
struct bn_jscope {
    struct bn_jscope *parent;
    size_t n, room;
    struct bn_jvar *vars;
};

struct bn_jx {
    const struct bn_jinja *j;
    struct bn_arena arena;
    struct bn_buf buf; /* output so far; its end also serves to build strings (bn_jx_cut) */
    struct bn_jscope *scope;
    bitnet_error *err;
    bitnet_status status;
    uint32_t line, depth, loop_depth;
    uint64_t steps;
    int64_t now_s; /* for strftime_now; 0: not defined */
};

bool bn_jx_fail(struct bn_jx *x, bitnet_status s, const char *fmt, ...) BN_PRINTF(3, 4);
bool bn_jx_charge(struct bn_jx *x, size_t steps);
bool bn_jx_enter(struct bn_jx *x);                         /* one level deeper; x->depth-- leaves */
void *bn_jx_alloc(struct bn_jx *x, size_t n, size_t size); /* NULL: failed */
bool bn_jx_put(struct bn_jx *x, const char *s, size_t n);
/* Everything put since the length was `mark`, as a string; the buffer is cut back to the mark. */
bool bn_jx_cut(struct bn_jx *x, size_t mark, struct bn_jv *out);

bool bn_jx_eval(struct bn_jx *x, const struct bn_jn *n, struct bn_jv *out);
bool bn_jx_filters(struct bn_jx *x, const struct bn_jn *chain, struct bn_jv *v); /* in place */
bool bn_jx_call(struct bn_jx *x, struct bn_jv *out, struct bn_jv callee, struct bn_jargs *a);
bool bn_jx_call_fn(struct bn_jx *x, const struct bn_jfn *fn, const char *what, struct bn_jv *out,
                   struct bn_jv self, struct bn_jargs *a);
bool bn_jx_call_macro(struct bn_jx *x, struct bn_jv *out, const struct bn_jmacro *m,
                      struct bn_jargs *a);
bool bn_jx_getattr(struct bn_jx *x, struct bn_jv *out, struct bn_jv v, struct bn_jv name);
bool bn_jx_getitem(struct bn_jx *x, struct bn_jv *out, struct bn_jv v, struct bn_jv key);
bool bn_jx_slice(struct bn_jx *x, struct bn_jv *out, struct bn_jv v, const struct bn_jv bound[3]);
bool bn_jx_lookup(struct bn_jx *x, uint32_t sym, struct bn_jv *out); /* false: no such variable */
bool bn_jx_assign(struct bn_jx *x, uint32_t sym, struct bn_jv v);
bool bn_jx_define(struct bn_jx *x, const char *name, struct bn_jv v); /* unused names are skipped */
bool bn_jx_push_scope(struct bn_jx *x, struct bn_jscope *parent);

/* Renders with any JSON variables: {"messages": [...], "tools": [...], ...}; borrows strings. */
bitnet_status bn_jinja_render_json(const struct bn_jinja *j, const struct bn_json *vars,
                                   int64_t now_s, struct bn_buf *out, bitnet_error *err);

/* ------------------------------------------------------------------ jinja_value.c, jinja_json.c */

static inline struct bn_jv bn_jv_kind_only(uint8_t kind) { return (struct bn_jv){.kind = kind}; }
static inline struct bn_jv bn_jv_bool(bool b) { return (struct bn_jv){.kind = BN_JV_BOOL, .b = b}; }
static inline struct bn_jv bn_jv_int(int64_t i)
{
    return (struct bn_jv){.kind = BN_JV_INT, .i = i};
}
static inline struct bn_jv bn_jv_float(double f)
{
    return (struct bn_jv){.kind = BN_JV_FLOAT, .f = f};
}
static inline struct bn_jv bn_jv_str(const char *s, size_t n) /* borrows; n < 4 GiB */
{
    return (struct bn_jv){.kind = BN_JV_STR, .n = (uint32_t)n, .s = s};
}
static inline struct bn_jv bn_jv_undef(struct bn_jv name, uint8_t owner)
{
    bool named = name.kind == BN_JV_STR;
    return (struct bn_jv){
        .kind = BN_JV_UNDEF, .owner = owner, .n = named ? name.n : 0, .s = named ? name.s : ""};
}

const char *bn_jv_type_name(uint8_t kind);
bool bn_jv_truth(struct bn_jv v);
bool bn_jv_is(struct bn_jv v, const char *s);   /* a string with exactly these bytes */
bool bn_jv_as_int(struct bn_jv v, int64_t *i);  /* INT and BOOL */
bool bn_jv_as_float(struct bn_jv v, double *f); /* INT, BOOL and FLOAT */
bool bn_jv_list(struct bn_jx *x, uint8_t kind, size_t room, struct bn_jv *out);
bool bn_jv_push(struct bn_jx *x, struct bn_jlist *l, struct bn_jv v);
bool bn_jv_dict(struct bn_jx *x, uint8_t kind, struct bn_jv *out);
bool bn_jv_put(struct bn_jx *x, struct bn_jdict *d, struct bn_jv key, struct bn_jv val);
/* *found may be NULL: not there. false: failed. */
bool bn_jv_find(struct bn_jx *x, const struct bn_jdict *d, struct bn_jv key, struct bn_jv **found);
bool bn_jv_equal(struct bn_jx *x, struct bn_jv a, struct bn_jv b, bool *equal);
bool bn_jv_compare(struct bn_jx *x, struct bn_jv a, struct bn_jv b, int *order);
bool bn_jv_contains(struct bn_jx *x, struct bn_jv item, struct bn_jv in, bool *yes);
bool bn_jv_length(struct bn_jx *x, struct bn_jv v, size_t *n);
/* What a loop walks over, as a list: characters, keys, items. */
bool bn_jv_items(struct bn_jx *x, struct bn_jv v, const struct bn_jlist **out);
bool bn_jv_print(struct bn_jx *x, struct bn_jv v); /* as {{ }} does, to the buffer */
bool bn_jv_to_str(struct bn_jx *x, struct bn_jv v, struct bn_jv *out);
bool bn_jv_concat(struct bn_jx *x, struct bn_jv a, struct bn_jv b,
                  struct bn_jv *out);                           /* two strings */
size_t bn_jv_format_float(char out[BN_NUMBER_BYTES], double f); /* as Python prints it */
bool bn_jv_undefined(struct bn_jx *x, struct bn_jv v);          /* fails with "'x' is undefined" */

bool bn_jv_from_json(struct bn_jx *x, const struct bn_json *json, struct bn_jv *out);
bool bn_jv_tojson(struct bn_jx *x, struct bn_jv *out, struct bn_jv self, struct bn_jargs *a);

/* ------------------------------------------------------------------ jinja_text.c: characters */

/* Length of the character at s (n > 0); a byte that is no UTF-8 counts as a character. */
size_t bn_text_char(const char *s, size_t n, uint32_t *cp);
size_t bn_text_count(const char *s, size_t n);
size_t bn_text_offset(const char *s, size_t n,
                      size_t i_char); /* byte offset of a character, at most n */
bool bn_text_is_space(uint32_t cp);   /* as Python's str.isspace */
/* sides: 1 left, 2 right, 3 both. chars NULL: white space. */
void bn_text_strip(const char **s, size_t *n, const char *chars, size_t n_chars, int sides);
const char *bn_text_find(const char *s, size_t n, const char *what, size_t n_what);
enum bn_text_case {
    BN_TEXT_UPPER,
    BN_TEXT_LOWER,
    BN_TEXT_CAPITALIZE,
    BN_TEXT_TITLE,
    BN_TEXT_TITLE_WORDS
};
bool bn_text_case(struct bn_jx *x, struct bn_jv *out, struct bn_jv s, enum bn_text_case how);
/* "1.5e3": digits with optional point and exponent, nothing else. false: not a number. */
bool bn_text_float(const char *s, size_t n, double *out);
bool bn_text_int(const char *s, size_t n, int base, int64_t *out);

/* ------------------------------------------------------------------ named things */

const struct bn_jfn *bn_jinja_filter(struct bn_jv name); /* NULL: none of that name */
const struct bn_jfn *bn_jinja_test(struct bn_jv name);
const struct bn_jfn *bn_jinja_method(uint8_t kind, struct bn_jv name);
const struct bn_jfn *bn_jinja_function(struct bn_jv name);
/* printf-like formatting: "%s" % x and the format filter. */
bool bn_jinja_percent(struct bn_jx *x, struct bn_jv *out, struct bn_jv fmt, const struct bn_jv *v,
                      size_t n);

#endif
