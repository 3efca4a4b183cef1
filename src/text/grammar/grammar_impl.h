/* SPDX-License-Identifier: Apache-2.0
 * Grammars from inside; only files of text/ include it.
 *
 * GBNF --grammar_gbnf.c--> expressions --grammar.c--> nodes --stacks.c--> sets of stacks
 * JSON Schema --json_schema*.c--^       (grammar_cost.c)                     |
 * patterns --regex*.c, automaton*.c--^                                      |
 * vocabulary --token_tree.c--> tree of token bytes --token_walk.c--> masks <-+-- matcher.c
 *
 * A grammar is a network of nodes over bytes with calls between rules: a pushdown automaton. A text
 * is somewhere in it on one or more stacks; a token may come next if its bytes leave any of them. */
#ifndef BN_TEXT_GRAMMAR_GRAMMAR_IMPL_H
#define BN_TEXT_GRAMMAR_GRAMMAR_IMPL_H

#include "text/grammar/grammar.h"

enum {
    BN_GRAMMAR_MAX_TEXT = 1 << 20, /* bytes of a grammar or schema */
    BN_GRAMMAR_MAX_RULES = 8192,
    BN_GRAMMAR_MAX_NODES = 1 << 17,  /* symbols, every repetition counted */
    BN_GRAMMAR_MAX_SETS = 1024,      /* different sets of bytes */
    BN_GRAMMAR_MAX_NESTING = 256,    /* of groups and of schemas */
    BN_GRAMMAR_MAX_REPEAT = 1 << 14, /* the numbers in {n,m} */
    BN_GRAMMAR_MAX_DEPTH = 256,      /* of a stack */
    BN_GRAMMAR_MAX_VISITS = 1 << 24, /* of nodes, until what is asked of them is settled */
    BN_GRAMMAR_MAX_STACKS = 8192,    /* at one place of a text */
    BN_GRAMMAR_MAX_FRAMES = 1 << 14, /* of all stacks together; common lower parts count once */
    BN_GRAMMAR_MAX_LOOPS = 32,       /* loops whose masks are made in advance */
    BN_GRAMMAR_MAX_EXITS = 4096,     /* places in the token tree where such a loop's rule may end */
    BN_WALK_MAX_STATES = 2048,       /* sets of stacks met in one walk over the token tree */
    BN_WALK_MAX_CONFIGS = 1 << 15,   /* members of all of them */
    BN_WALK_MAX_STEPS = 1 << 17,     /* room for what follows a set by classes of bytes */
    BN_SYSFILES_MAX_ENDS = 10,       /* eos, eot and the room of bn_vocab.ends */
    BN_GRAMMAR_NO_NEED = UINT16_MAX, /* a node from which no text can end */
    BN_GRAMMAR_UNLIMITED = UINT32_MAX, /* repetitions */
    BN_NO_BYTE = UINT16_MAX
};

/* ---- grammar_expr.c: expressions, what the readers of grammars make ---- */

enum bn_expr_kind {
    BN_EXPR_LITERAL,
    BN_EXPR_BYTES,
    BN_EXPR_SEQ,
    BN_EXPR_ALT,
    BN_EXPR_REPEAT,
    BN_EXPR_RULE,
    BN_EXPR_GRAPH
};

struct bn_edge {
    uint32_t from, to;          /* states; those of a graph are sorted by from */
    const struct bn_expr *expr; /* takes at least one byte */
};

struct bn_expr {
    enum bn_expr_kind kind;
    uint32_t nesting;
    uint32_t n;                  /* bytes of the literal, number of kids */
    uint32_t min, max;           /* REPEAT */
    uint32_t index;              /* RULE: the rule; BYTES: the set */
    const char *bytes;           /* LITERAL */
    const struct bn_expr **kids; /* SEQ, ALT; REPEAT: one */
    const struct bn_edge *edges; /* GRAPH: [n] */
    const bool *final;           /* [min], its states; the first is the start */
};

struct bn_byte_set {
    uint64_t bits[4];
};
static inline bool bn_byte_set_has(const struct bn_byte_set *s, uint8_t b)
{
    return s->bits[b / 64] >> b % 64 & 1;
}

struct bn_range { /* of code points, both ends included */
    uint32_t lo, hi;
};

struct bn_rule {
    const char *name;
    const struct bn_expr *expr; /* NULL: not defined (yet) */
    uint32_t line, column;      /* where it is first named; 0: the name tells the place */
    uint32_t start;             /* its first node */
};

/* Makes expressions. The first failure stays in status and err; from then on every expression is
 * NULL, and NULL parts are taken without complaint: look once, at the end. */
struct bn_builder {
    struct bn_arena arena;
    struct bn_rule *rules;
    size_t n_rules, rule_room;
    struct bn_byte_set *sets;
    size_t n_sets, set_room;
    bitnet_status status;
    bitnet_error *err;
};
void bn_builder_free(struct bn_builder *b);
bool bn_builder_nomem(struct bn_builder *b); /* remembers it; false */

/* A new rule without expression; its index. The name is copied. */
uint32_t bn_rule_add(struct bn_builder *b, const char *name, size_t n);
const struct bn_expr *bn_expr_rule(struct bn_builder *b, uint32_t rule);
const struct bn_expr *bn_expr_literal(struct bn_builder *b, const char *s, size_t n);
const struct bn_expr *bn_expr_text(struct bn_builder *b, const char *s); /* 0-terminated */
const struct bn_expr *bn_expr_repeat(struct bn_builder *b, const struct bn_expr *e, uint32_t min,
                                     uint32_t max);
/* kind: SEQ or ALT. The list is copied; SEQ of nothing is the empty text. */
const struct bn_expr *bn_expr_list(struct bn_builder *b, enum bn_expr_kind kind,
                                   const struct bn_expr *const *kids, size_t n);
/* One character of these ranges (any order, overlaps allowed), as UTF-8; none: nothing fits. */
const struct bn_expr *bn_expr_class(struct bn_builder *b, const struct bn_range *r, size_t n);
#define BN_EXPR_LIST(b, kind, ...)                                      \
    bn_expr_list(b, kind, (const struct bn_expr *const[]){__VA_ARGS__}, \
                 sizeof((const struct bn_expr *const[]){__VA_ARGS__}) / sizeof(void *))
#define BN_SEQ(b, ...) BN_EXPR_LIST(b, BN_EXPR_SEQ, __VA_ARGS__)
#define BN_ALT(b, ...) BN_EXPR_LIST(b, BN_EXPR_ALT, __VA_ARGS__)

/* A growing list of expressions. */
struct bn_exprs {
    const struct bn_expr **v;
    size_t n, room;
};
void bn_exprs_add(struct bn_builder *b, struct bn_exprs *l, const struct bn_expr *e);
/* The list as one expression; the list is empty afterwards. */
const struct bn_expr *bn_exprs_take(struct bn_builder *b, struct bn_exprs *l,
                                    enum bn_expr_kind kind);

/* The edges of a graph: from state to state, in the order of where they begin. */
struct bn_edges {
    struct bn_edge *v;
    size_t n, room;
};
void bn_edges_add(struct bn_builder *b, struct bn_edges *l, uint32_t from, uint32_t to,
                  const struct bn_expr *e);
/* The graph of these states; the list is empty afterwards. */
const struct bn_expr *bn_edges_take(struct bn_builder *b, struct bn_edges *l, const bool *final,
                                    uint32_t n_states);

/* A growing set of code points. */
struct bn_ranges {
    struct bn_range *v;
    size_t n, room;
};
void bn_ranges_add(struct bn_builder *b, struct bn_ranges *r, uint32_t lo, uint32_t hi);
void bn_ranges_invert(struct bn_builder *b, struct bn_ranges *r); /* also sorts and joins */
void bn_ranges_free(struct bn_ranges *r);

/* ---- grammar.c: nodes ---- */

enum bn_node_kind {
    BN_NODE_RETURN, /* the rule is complete */
    BN_NODE_BYTES,  /* a byte of set a, then node b */
    BN_NODE_SPLIT,  /* node a or node b */
    BN_NODE_CALL    /* the rule that starts at node a, then node b */
};
enum { BN_LOOP_FOREVER = UINT16_MAX };

/* A way to finish a rule: fewest tokens first, then fewest frames. */
struct bn_cost {
    uint32_t tokens; /* BN_NO_COST: there is no way */
    uint32_t frames; /* that it puts on the stack */
};
static inline uint32_t bn_cost_sum(uint32_t a, uint32_t b)
{
    return a < BN_NO_COST - b ? a + b : BN_NO_COST;
}

struct bn_node {
    uint8_t kind;
    uint8_t mask;  /* of the head of a loop: 1 + index of its mask, 0: none */
    uint16_t need; /* frames that must still fit on the stack to finish the rule from here */
    uint16_t left; /* of a node with a head: rounds that are left */
    uint32_t head; /* the head of a loop that goes on from here as this node does; 0: none */
    uint32_t a, b;
    struct bn_cost cost;
};

/* Nodes of the token tree where a rule may end and tokens go on. */
struct bn_exits {
    uint32_t *nodes;
    uint32_t n;
};

/* What may follow in the middle of a loop, whatever lies below on the stack. */
struct bn_loop_mask {
    uint64_t *bits;                 /* tokens allowed in any case */
    struct bn_exits exits;          /* where its rule may end */
    uint32_t width, height, frames; /* the most that the walk met, as in bn_stacks */
};

struct bn_grammar {
    const struct bn_token_tree *tree;
    struct bn_node *nodes; /* [0] is the RETURN of every rule */
    uint32_t n_nodes, root;
    struct bn_byte_set *sets;
    uint32_t n_sets;
    uint16_t *chosen;      /* [n_sets] the byte that stands for a set, or BN_NO_BYTE */
    uint8_t class_of[256]; /* bytes that no set tells apart are one class */
    uint8_t byte_of[256];  /* one byte of each class */
    uint32_t n_classes;
    struct bn_loop_mask loops[BN_GRAMMAR_MAX_LOOPS];
    uint32_t n_loops;
    struct bn_arena arena; /* of the masks */
};

/* From the rules of a builder, the first being the root. Takes nothing over. */
bitnet_status bn_grammar_build(struct bn_grammar **out, const struct bn_token_tree *t,
                               struct bn_builder *b, bitnet_error *err);

/* ---- grammar_cost.c ---- */

/* The cheaper side of a SPLIT; of equals the second, which leaves a loop. */
uint32_t bn_cheaper(const struct bn_node *nodes, const struct bn_node *split);
/* Fills chosen and the costs of all nodes. */
bitnet_status bn_grammar_find_costs(struct bn_grammar *g, bitnet_error *err);

/* Updates all nodes until none changes (update: did this one?). What a node refers to comes before it, so
 * that only circles need more than one sweep. */
bitnet_status bn_grammar_settle(const struct bn_grammar *g,
                                bool (*update)(void *user, uint32_t node), void *user,
                                bitnet_error *err);

/* ---- stacks.c: where a text is in a grammar ---- */

struct bn_frame {
    uint32_t node, below; /* where to go on when the rule returns; the next frame */
};
typedef uint64_t bn_config; /* frame << 32 | node */
static inline bn_config bn_config_make(uint32_t node, uint32_t frame)
{
    return (uint64_t)frame << 32 | node;
}
static inline uint32_t bn_config_node(bn_config c) { return (uint32_t)c; }
static inline uint32_t bn_config_frame(bn_config c) { return (uint32_t)(c >> 32); }

/* A stack is a frame and what lies below it; equal stacks are the same frame. Frame 0 is the bottom. */
struct bn_stacks {
    const struct bn_grammar *g;
    struct bn_frame *frames;
    uint16_t *depth; /* [frames] */
    uint32_t *cost;  /* [frames] tokens that finish it and all below, as in bn_cost */
    uint32_t *slots; /* frames by content */
    uint32_t n_frames;
    bn_config *open; /* what bn_stacks_close found */
    uint32_t n_open;
    struct bn_seen *seen;
    uint32_t round;
    bool complete;          /* bn_stacks_close reached the bottom: the text may end */
    bool overflow;          /* a limit was met; stays until it is cleared */
    uint32_t width, height; /* the largest n_open and depth met; stay until cleared */
    void *block;            /* all arrays: as large as limits allow, and mostly never touched */
    size_t block_bytes;
};
bool bn_stacks_init(struct bn_stacks *s, const struct bn_grammar *g); /* false: out of memory */
void bn_stacks_free(struct bn_stacks *s);
/* Everything that can be reached from a set without a byte: open[n_open], complete. */
void bn_stacks_close(struct bn_stacks *s, const bn_config *set, uint32_t n);
/* What closed stacks become with a byte: sorted, each once; their number, 0 also on overflow.
 * out: room for BN_GRAMMAR_MAX_STACKS. */
uint32_t bn_stacks_step(struct bn_stacks *s, uint8_t byte, bn_config *out);
void bn_stacks_truncate(struct bn_stacks *s, uint32_t n_frames); /* forgets the newest frames */
/* The tokens that finish a text from here; BN_NO_COST: no way is known within the limits. */
uint32_t bn_stacks_cost(const struct bn_stacks *s, bn_config c);
/* The next place on the cheapest way to the end that takes a byte, or the end itself; only where
 * there is a way. May push frames. */
bn_config bn_stacks_cheapest(struct bn_stacks *s, bn_config c);
/* Keeps only the frames that a set refers to, and renumbers them there. */
void bn_stacks_collect(struct bn_stacks *s, bn_config *set, uint32_t n);

/* ---- token_tree.c ---- */

/* Nodes in the order of a walk that visits a node before its children: a subtree is node..end. */
struct bn_token_tree {
    const struct bn_tokenizer *tokenizer;
    uint32_t n_vocab, n_words; /* words of a mask */
    uint32_t n_nodes, n_tokens;
    uint32_t max_depth;
    uint32_t top[256];  /* the root's children by byte; 0: none */
    uint32_t *end;      /* [n_nodes] the node after the subtree */
    uint32_t *first;    /* [n_nodes + 1] its tokens: ids[first[i]] up to ids[first[i + 1]] */
    uint16_t *depth;    /* [n_nodes] bytes on the way; node 0 is the root */
    uint16_t *deepest;  /* [n_nodes] the largest depth in the subtree */
    uint8_t *byte;      /* [n_nodes] */
    int32_t *ids;       /* [n_tokens] in the order of their bytes */
    int32_t *by_length; /* [n_tokens] the longest first */
    uint32_t *n_longer; /* [max_depth + 1] tokens of more bytes than this */
    uint32_t n_ends;
    int32_t ends[BN_SYSFILES_MAX_ENDS]; /* tokens that end a text */
};
/* The node below this one for a byte; 0: there is none. */
uint32_t bn_token_tree_child(const struct bn_token_tree *t, uint32_t node, uint8_t byte);
/* What a token adds to a text; NULL for tokens that are no text and for those that end it. */
const char *bn_token_text(const struct bn_token_tree *t, int32_t id, size_t *n);

/* ---- token_walk.c: which tokens fit ---- */

/* Sets of stacks met so far and what bytes make of them: a deterministic automaton, built as the
 * walk goes. */
struct bn_walk {
    struct bn_stacks *stacks;
    const struct bn_token_tree *tree;
    struct bn_walk_state *states;
    uint32_t n_states, max_states;
    bn_config *configs;
    uint32_t n_configs;
    uint16_t *steps; /* [max_states][n_classes] */
    uint16_t *slots; /* states by content */
    uint16_t *path;  /* [tree depth + 1] */
    bn_config *scratch;
    void *block; /* as in bn_stacks */
    size_t block_bytes;
};
bool bn_walk_init(struct bn_walk *w, struct bn_stacks *s); /* false: out of memory */
void bn_walk_free(struct bn_walk *w);
void bn_walk_forget(struct bn_walk *w); /* all sets: needed when frames were forgotten */
/* Sets the bits of all tokens of more than `longer` bytes below node `from` whose bytes after it fit
 * the set. exits (may be NULL) gets the nodes where the bottom of the stacks is reached. A limit that was met is in
 * stacks->overflow: then the bits mean nothing. */
void bn_walk_tokens(struct bn_walk *w, const bn_config *set, uint32_t n, uint32_t from,
                    uint32_t longer, uint64_t *bits, struct bn_exits *exits);

#endif
