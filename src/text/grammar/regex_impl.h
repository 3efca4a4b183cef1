/* SPDX-License-Identifier: Apache-2.0
 * Regular expressions over characters, as 'pattern', 'format' and keys need them.
 *
 * text --regex_parse.c--> trees --regex_expr.c--> expressions, where the tree is plain
 *                           +--automaton.c--> an automaton, where it looks ahead --regex_expr.c--^
 *
 * A tree stands for the strings that it matches as a whole. Looking ahead is how two are demanded at
 * once, or one without the other; the automaton settles it. */
#ifndef BN_TEXT_GRAMMAR_REGEX_IMPL_H
#define BN_TEXT_GRAMMAR_REGEX_IMPL_H

#include "text/grammar/grammar_impl.h"

enum bn_re_kind {
    BN_RE_SET,
    BN_RE_SEQ,
    BN_RE_ALT,
    BN_RE_REPEAT,
    BN_RE_AHEAD,     /* what follows begins with the kid */
    BN_RE_NOT_AHEAD, /* it does not */
    BN_RE_START,
    BN_RE_END,
    BN_RE_EDGE, /* of a word */
    BN_RE_NOT_EDGE
};

struct bn_re {
    enum bn_re_kind kind;
    bool plain;        /* SET, SEQ, ALT and REPEAT only */
    uint32_t n;        /* of ranges or kids */
    uint32_t min, max; /* REPEAT */
    uint32_t nesting;
    const struct bn_range *range; /* SET: in order, apart from each other */
    const struct bn_re **kid;
};

/* ---- regex.c: trees; NULL parts are taken without complaint, as in expressions ---- */

const struct bn_re *bn_re_set(struct bn_builder *b, struct bn_ranges *r); /* frees r */
const struct bn_re *bn_re_any(struct bn_builder *b);                      /* any character */
const struct bn_re *bn_re_leaf(struct bn_builder *b, enum bn_re_kind kind);
const struct bn_re *bn_re_list(struct bn_builder *b, enum bn_re_kind kind,
                               const struct bn_re *const *kids, size_t n);
const struct bn_re *bn_re_pair(struct bn_builder *b, enum bn_re_kind kind, const struct bn_re *x,
                               const struct bn_re *y);
const struct bn_re *bn_re_repeat(struct bn_builder *b, const struct bn_re *kid, uint32_t min,
                                 uint32_t max);
/* AHEAD or NOT_AHEAD */
const struct bn_re *bn_re_look(struct bn_builder *b, enum bn_re_kind kind, const struct bn_re *kid);
const struct bn_re *bn_re_text(struct bn_builder *b, const char *text, size_t n);
/* What fits both; x may be NULL: then y. */
const struct bn_re *bn_re_both(struct bn_builder *b, const struct bn_re *x, const struct bn_re *y);
const struct bn_re *bn_re_but(struct bn_builder *b, const struct bn_re *x, const struct bn_re *no);
/* Strings in which it is found, with anchors taken into account. */
const struct bn_re *bn_re_found(struct bn_builder *b, const struct bn_re *re);
/* Strings that it matches from their beginning to their end. */
const struct bn_re *bn_re_whole(struct bn_builder *b, const struct bn_re *re);

struct bn_res {
    const struct bn_re **v;
    size_t n, room;
};
void bn_res_add(struct bn_builder *b, struct bn_res *l, const struct bn_re *e);
const struct bn_re *bn_res_take(struct bn_builder *b, struct bn_res *l, enum bn_re_kind kind);

/* ---- regex_parse.c ---- */

/* The syntax of ECMA-262 with its flag u; *what and *at say what is not understood. NULL with a
 * status that is still good: not understood. */
const struct bn_re *bn_re_parse(struct bn_builder *b, const char *text, size_t n, const char **what,
                                size_t *at);
/* The same for a text of our own. */
const struct bn_re *bn_re_known(struct bn_builder *b, const char *text);

/* ---- regex_unicode.c ---- */

/* The characters of \p{name}; false: there is no such property (or memory is out: see b). */
bool bn_re_property(struct bn_builder *b, const char *name, size_t n, struct bn_ranges *r);

/* ---- automaton.c ---- */

enum { BN_DFA_NONE = UINT32_MAX };

/* Deterministic; state 0 is the start. Every state can be finished. */
struct bn_dfa {
    uint32_t n_states; /* 0: nothing fits */
    uint32_t n_symbols, n_ranges;
    const struct bn_range *range; /* [n_ranges] all characters, in order */
    const uint16_t *symbol;       /* [n_ranges] */
    uint32_t *next;               /* [n_states][n_symbols] or BN_DFA_NONE */
    bool *final;                  /* [n_states] */
};

/* NULL: it would have too many states, or b has failed. Lives as long as b. */
const struct bn_dfa *bn_dfa_make(struct bn_builder *b, const struct bn_re *re);
bool bn_dfa_accepts(const struct bn_dfa *d, const char *text, size_t n);
/* Characters of the shortest and the longest text; BN_GRAMMAR_UNLIMITED: there is no longest. */
void bn_dfa_lengths(struct bn_builder *b, const struct bn_dfa *d, uint32_t *least, uint32_t *most);

/* ---- regex_expr.c ---- */

/* How a character stands in the text: as it is, or as within a JSON string. */
typedef const struct bn_expr *bn_re_writer(void *user, struct bn_ranges *r); /* frees r */
/* NULL: too many states, or b has failed. */
const struct bn_expr *bn_re_expr(struct bn_builder *b, const struct bn_re *re, bn_re_writer *write,
                                 void *user);
const struct bn_expr *bn_dfa_expr(struct bn_builder *b, const struct bn_dfa *d, bn_re_writer *write,
                                  void *user);

#endif
