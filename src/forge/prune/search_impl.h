/* SPDX-License-Identifier: Apache-2.0
 * A search in progress, shared by search.c (layers) and widths.c (feed-forward channels). */
#ifndef BN_FORGE_PRUNE_SEARCH_IMPL_H
#define BN_FORGE_PRUNE_SEARCH_IMPL_H

#include "engine/engine.h"
#include "forge/forge.h"
#include "forge/harm.h"
#include "model/forward.h"

struct bn_search_sums {
    double nll, nll_squares, kl;
    uint64_t n;
};

struct bn_search_window {
    const int32_t *tokens;
    size_t n; /* that are computed; one more follows, to be foretold */
};

struct bn_search {
    struct bitnet_engine *e;
    const bitnet_prune_options *o;
    const int32_t *tokens;
    size_t n;
    uint32_t n_layer, unit, n_vocab, n_embd;
    size_t window, piece;
    uint32_t *all, *kept;         /* [n_layer]: 0 and following; those that are left */
    uint32_t *before;             /* [n_layer] kept, of the step before */
    bool *is_protected;           /* [n_layer] */
    double *score;                /* [n_layer] of what begins there; the lowest goes */
    struct bn_search_sums *tried; /* [n_layer] */
    double *moments;              /* [n_layer][2][n_embd] sums and squares, of variances */
    float *x, *y, *whole;         /* [window][n_embd] */
    float *logits, *logits0;      /* [piece][n_vocab]; logits0: of the whole model */
    double *log_p, *log_q;        /* [n_vocab] */
    uint32_t n_kept;
    uint64_t head_cost, done, total; /* in layers times tokens */
    bitnet_prune_result *r;
    /* channels; all of it only where some are to go */
    uint32_t n_ff, grain, target, step; /* target 0: all stay; widths are multiples of grain */
    uint8_t *off;                       /* [n_layer][n_ff] not 0: taken as zero */
    uint32_t *rank;                     /* [n_layer][n_ff] in its lane; the first ones stay */
    bool narrow;                        /* off is to be heeded */
    struct bn_channel_sums sums;
};

/* The next window of the text, as perplexity.c has it; begins with one of zeros. */
bool bn_search_next(const struct bn_search *s, struct bn_search_window *w);
/* The stack as it is now, from the embeddings on, over one window. sums: as bn_walk has it. */
bitnet_status bn_search_pass(struct bn_search *s, const struct bn_search_window *w,
                             const struct bn_channel_sums *sums, bitnet_error *err);
/* What the stack as it is now does to the whole text. */
bitnet_status bn_search_measure(struct bn_search *s, bitnet_prune_step *step, bitnet_error *err);
/* Is this step beyond what perplexity may grow by? Then the result says so. */
bool bn_search_is_over(struct bn_search *s, const bitnet_prune_step *step);

/* ---- widths.c ---- */

/* Is the width possible? Sets grain, target and step. */
bitnet_status bn_search_check_width(struct bn_search *s, bitnet_error *err);
bitnet_status bn_search_open_widths(struct bn_search *s, bitnet_error *err);
void bn_search_close_widths(struct bn_search *s);
uint64_t bn_search_widths_cost(const struct bn_search *s, uint64_t layers_left);
/* Steps of fewer and fewer channels, behind those of layers. */
bitnet_status bn_search_widths(struct bn_search *s, bitnet_error *err);

#endif
