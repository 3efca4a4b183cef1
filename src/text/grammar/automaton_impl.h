/* SPDX-License-Identifier: Apache-2.0
 * Nondeterministic automata, from which automaton.c makes deterministic ones; only automaton*.c
 * include it. */
#ifndef BN_TEXT_GRAMMAR_AUTOMATON_IMPL_H
#define BN_TEXT_GRAMMAR_AUTOMATON_IMPL_H

#include "text/grammar/regex_impl.h"

/* All characters in classes that no set of the tree tells apart. */
struct bn_alphabet {
    struct bn_range *range;
    uint16_t *symbol; /* [n] */
    uint32_t n, n_symbols;
    uint32_t *example; /* [n_symbols] one character of each */
};
/* In the builder's arena; false: more than BN_DFA_MAX_SYMBOLS, or b has failed. */
bool bn_alphabet_make(struct bn_alphabet *a, struct bn_builder *b, const struct bn_re *re);

enum { BN_DFA_MAX_SYMBOLS = 1024, BN_NFA_MAX_STATES = 1 << 16, BN_NFA_MAX_LOOKS = 64 };

enum bn_nfa_kind {
    BN_NFA_CHAR, /* one of set a, then b */
    BN_NFA_FORK, /* a or b */
    BN_NFA_LOOK, /* look a holds from here on, then b */
    BN_NFA_START,
    BN_NFA_EDGE, /* look a after a letter, otherwise look a + 1; then b */
    BN_NFA_MATCH
};
struct bn_nfa_state {
    uint8_t kind;
    uint32_t a, b;
};

struct bn_look {
    const struct bn_re *re; /* what follows begins with it */
    bool not ;              /* or does not */
};

struct bn_nfa {
    struct bn_builder *b;
    const struct bn_alphabet *alphabet;
    struct bn_nfa_state *states;
    size_t n_states, state_room;
    uint8_t **sets; /* [n_sets][n_symbols] */
    const struct bn_re **set_of;
    size_t n_sets, set_room, set_of_room;
    struct bn_look looks[BN_NFA_MAX_LOOKS];
    uint32_t n_looks;
    uint32_t start;
    bool edges, large;
};
/* false: too large (large), or b has failed */
bool bn_nfa_make(struct bn_nfa *n, struct bn_builder *b, const struct bn_alphabet *a,
                 const struct bn_re *re);
void bn_nfa_free(struct bn_nfa *n);

bool bn_is_letter(uint32_t c); /* of words, as \b sees them */

#endif
