/* SPDX-License-Identifier: Apache-2.0
 * What the two halves of the parser share: jinja_expr.c (expressions) and jinja_parse.c
 * (statements). */
#ifndef BN_TEXT_TEMPLATE_JINJA_PARSE_IMPL_H
#define BN_TEXT_TEMPLATE_JINJA_PARSE_IMPL_H

#include "text/template/jinja.h"

struct bn_jparser {
    struct bn_jinja *j;
    const struct bn_jt *t; /* the current token; the last one is EOF */
    bitnet_error *err;
    bitnet_status status;
    uint32_t depth;
};

/* The first failure writes the sentence; NULL, so that it can be returned. */
void *bn_jp_fail(struct bn_jparser *p, bitnet_status status, const char *fmt, ...) BN_PRINTF(3, 4);
void *bn_jp_unexpected(struct bn_jparser *p,
                       const char *wanted); /* "<wanted> expected, <token> found" */
bool bn_jp_enter(struct bn_jparser *p);     /* one level deeper; p->depth-- leaves */
struct bn_jn *bn_jp_node(struct bn_jparser *p, uint8_t kind); /* NULL: out of memory */
bool bn_jp_append(struct bn_jn ***tail, struct bn_jn *n);     /* *tail: where the next node goes */
bool bn_jp_symbol(struct bn_jparser *p, struct bn_jn *n);     /* the name at the current token */
bool bn_jp_is_op(const struct bn_jparser *p, uint8_t op);
bool bn_jp_is_name(const struct bn_jparser *p, const char *name);
bool bn_jp_skip_op(struct bn_jparser *p, uint8_t op);
bool bn_jp_skip_name(struct bn_jparser *p, const char *name);
bool bn_jp_expect_op(struct bn_jparser *p, uint8_t op);

struct bn_jn *bn_jp_expr(struct bn_jparser *p);
/* expr [, expr]*: one expression, or a tuple. ternary: whether "a if b else c" may stand here. */
struct bn_jn *bn_jp_tuple(struct bn_jparser *p, bool ternary);
struct bn_jn *bn_jp_filter(struct bn_jparser *p); /* after "|" */

#endif
