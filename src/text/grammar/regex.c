/* SPDX-License-Identifier: Apache-2.0
 * Trees of regular expressions. */
#include "text/grammar/regex_impl.h"

#include "base/utf8.h"
#include <stdlib.h>

static struct bn_re *make(struct bn_builder *b, enum bn_re_kind kind)
{
    if (b->status != BITNET_OK) return NULL;
    struct bn_re *e = bn_arena_alloc(&b->arena, sizeof *e);
    if (!e) return bn_builder_nomem(b), NULL;
    *e = (struct bn_re){.kind = kind};
    return e;
}

const struct bn_re *bn_re_set(struct bn_builder *b, struct bn_ranges *r)
{
    struct bn_re *e = make(b, BN_RE_SET);
    bn_ranges_invert(b, r);
    bn_ranges_invert(b, r); /* in order */
    struct bn_range *copy = e ? bn_arena_alloc(&b->arena, (r->n + 1) * sizeof *copy) : NULL;
    if (e && !copy) bn_builder_nomem(b);
    if (copy && b->status == BITNET_OK) {
        if (r->n) memcpy(copy, r->v, r->n * sizeof *copy);
        e->range = copy;
        e->n = (uint32_t)r->n;
        e->plain = true;
    }
    bn_ranges_free(r);
    return b->status == BITNET_OK ? e : NULL;
}

const struct bn_re *bn_re_any(struct bn_builder *b)
{
    struct bn_ranges r = {0};
    bn_ranges_invert(b, &r);
    return bn_re_set(b, &r);
}

const struct bn_re *bn_re_leaf(struct bn_builder *b, enum bn_re_kind kind) { return make(b, kind); }

const struct bn_re *bn_re_list(struct bn_builder *b, enum bn_re_kind kind,
                               const struct bn_re *const *kids, size_t n)
{
    if (b->status != BITNET_OK) return NULL;
    if (n == 1 && (kind == BN_RE_SEQ || kind == BN_RE_ALT)) return kids[0];
    struct bn_re *e = make(b, kind);
    if (!e) return NULL;
    e->kid = bn_arena_alloc(&b->arena, (n + 1) * sizeof *e->kid);
    if (!e->kid) return bn_builder_nomem(b), NULL;
    e->plain = kind == BN_RE_SEQ || kind == BN_RE_ALT || kind == BN_RE_REPEAT;
    for (size_t i = 0; i < n; i++) {
        e->kid[i] = kids[i];
        e->plain = e->plain && kids[i]->plain;
        if (kids[i]->nesting >= e->nesting) e->nesting = kids[i]->nesting + 1;
    }
    e->n = (uint32_t)n;
    if (e->nesting > BN_GRAMMAR_MAX_NESTING)
        b->status = bn_fail(b->err, BITNET_E_LIMIT,
                            "a regular expression with more than %d levels of nesting",
                            BN_GRAMMAR_MAX_NESTING);
    return b->status == BITNET_OK ? e : NULL;
}

const struct bn_re *bn_re_pair(struct bn_builder *b, enum bn_re_kind kind, const struct bn_re *x,
                               const struct bn_re *y)
{
    return bn_re_list(b, kind, (const struct bn_re *const[]){x, y}, 2);
}

const struct bn_re *bn_re_repeat(struct bn_builder *b, const struct bn_re *kid, uint32_t min,
                                 uint32_t max)
{
    if (b->status != BITNET_OK || (min == 1 && max == 1)) return kid;
    struct bn_re *e = (struct bn_re *)bn_re_list(b, BN_RE_REPEAT, &kid, 1);
    if (!e) return NULL;
    e->min = min;
    e->max = max;
    return e;
}

const struct bn_re *bn_re_look(struct bn_builder *b, enum bn_re_kind kind, const struct bn_re *kid)
{
    return bn_re_list(b, kind, &kid, 1);
}

const struct bn_re *bn_re_text(struct bn_builder *b, const char *text, size_t n)
{
    struct bn_res seq = {0};
    for (size_t i = 0; i < n && b->status == BITNET_OK;) {
        uint32_t c = 0;
        struct bn_ranges r = {0};
        size_t k = bn_utf8_decode(text + i, n - i, &c);
        i += k ? k : 1;
        bn_ranges_add(b, &r, c, c);
        bn_res_add(b, &seq, bn_re_set(b, &r));
    }
    return bn_res_take(b, &seq, BN_RE_SEQ);
}

/* The kid and then the end of the text. */
static const struct bn_re *whole(struct bn_builder *b, const struct bn_re *kid)
{
    return bn_re_pair(b, BN_RE_SEQ, kid, bn_re_leaf(b, BN_RE_END));
}

const struct bn_re *bn_re_both(struct bn_builder *b, const struct bn_re *x, const struct bn_re *y)
{
    if (!x || !y) return x ? x : y;
    return bn_re_pair(b, BN_RE_SEQ, bn_re_look(b, BN_RE_AHEAD, whole(b, x)), y);
}

const struct bn_re *bn_re_but(struct bn_builder *b, const struct bn_re *x, const struct bn_re *no)
{
    return bn_re_pair(b, BN_RE_SEQ, bn_re_look(b, BN_RE_NOT_AHEAD, whole(b, no)), x);
}

/* Anchors at the ends of a sequence say that nothing comes before or behind: `around` otherwise. */
static const struct bn_re *placed(struct bn_builder *b, const struct bn_re *re,
                                  const struct bn_re *around)
{
    if (b->status != BITNET_OK) return NULL;
    struct bn_res parts = {0};
    if (re->kind == BN_RE_ALT) {
        for (uint32_t i = 0; i < re->n; i++) bn_res_add(b, &parts, placed(b, re->kid[i], around));
        return bn_res_take(b, &parts, BN_RE_ALT);
    }
    const struct bn_re *const *kid = re->kind == BN_RE_SEQ ? re->kid : &re;
    size_t n = re->kind == BN_RE_SEQ ? re->n : 1, from = 0;
    if (n > 0 && kid[0]->kind == BN_RE_START) from++;
    else if (around) bn_res_add(b, &parts, around);
    bool end = n > from && kid[n - 1]->kind == BN_RE_END;
    for (size_t i = from; i < n - end; i++) bn_res_add(b, &parts, kid[i]);
    if (!end && around) bn_res_add(b, &parts, around);
    return bn_res_take(b, &parts, BN_RE_SEQ);
}

const struct bn_re *bn_re_found(struct bn_builder *b, const struct bn_re *re)
{
    return placed(b, re, bn_re_repeat(b, bn_re_any(b), 0, BN_GRAMMAR_UNLIMITED));
}

const struct bn_re *bn_re_whole(struct bn_builder *b, const struct bn_re *re)
{
    return placed(b, re, NULL);
}

void bn_res_add(struct bn_builder *b, struct bn_res *l, const struct bn_re *e)
{
    if (b->status != BITNET_OK) return;
    if (!bn_grow((void **)&l->v, &l->room, l->n + 1, sizeof *l->v)) bn_builder_nomem(b);
    else l->v[l->n++] = e;
}

const struct bn_re *bn_res_take(struct bn_builder *b, struct bn_res *l, enum bn_re_kind kind)
{
    const struct bn_re *e = bn_re_list(b, kind, l->v, l->n);
    free(l->v);
    *l = (struct bn_res){0};
    return e;
}
