/* SPDX-License-Identifier: Apache-2.0
 *
 * Two indexes tell where the last three tokens, else the last two, stood most recently with something
 * behind them; the tokens behind them are the draft. A draft that reaches the end of the text goes on
 * with its own beginning, so a short loop is drafted to full length.
 *
 * Whether it pays. For each index right[k] estimates how often token k of a draft is right if those
 * before it were, as a mean that forgets (RATE); one token more is taken to lengthen a step by
 * `cost`, a mean of the same kind. n drafts give
 *     (1 + right[0] + right[0] right[1] + ...) / (1 + n cost)
 * tokens in the time of a plain step; the n with the most is used, none where it is not above 1. What
 * lies behind the longest draft is never seen, so whenever all of a draft was accepted, the estimate of
 * the token after it moves up a little (HOPE).
 *
 * Where none pays, one token is tried now and then. What drafts have cost beyond what they gave, in
 * plain steps, is a debt between 0 and MAX_DEBT; a try is made every 2^debt occasions. So tries thin
 * out exactly while they lose, come back soon once they win, and a text on which drafting never pays
 * costs MAX_DEBT steps an index and, from then on, a 64th of a draft at each occasion.
 * Nothing but the calls decides, so the same calls get the same drafts.
 */
#include "engine/draft.h"

#include "base/map.h"
#include "base/os/mem.h"
#include <stdlib.h>

static const double RATE = 1.0 / 16, HOPE = 1.0 / 64, MAX_COST = 2, MAX_DEBT = 6;
/* To begin with: 2B-4T on two cores takes 0.2 to 0.3 of a step for a token more; three tokens that
 * come again are a hint, two are a weak one. */
static const double FIRST_COST = 0.25, FIRST_RIGHT[2] = {0.5, 0.25}, NEXT_RIGHT = 0.8;
static const double MODEL_RIGHT = 0.7; /* as published for trained heads */

struct index {
    uint32_t length;            /* of its n-grams */
    uint32_t *slots;            /* [n_slots] where the last one ends, for each n-gram; 0: free */
    double right[BN_DRAFT_MAX]; /* chance of token k, given those before it */
    double debt;
    uint32_t passed; /* occasions since the last try */
};

struct bn_draft {
    int32_t *text; /* [max_tokens] */
    uint32_t n, max_tokens;
    size_t n_slots; /* a power of two, at least 2 * max_tokens */
    struct index indexes[2];
    struct index model; /* of what the model offers: the estimates alone */
    struct index *used; /* for the last draft; NULL: there was none */
    int32_t offer[BN_DRAFT_MAX];
    uint32_t n_offer, offer_at; /* behind so many tokens of the text */
    double cost;
};

bitnet_status bn_draft_open(struct bn_draft **out, uint32_t max_tokens, bitnet_error *err)
{
    *out = NULL;
    size_t n_slots = 16;
    while (n_slots / 2 < max_tokens) n_slots *= 2;
    struct bn_draft *d = bn_calloc(1, sizeof *d);
    if (!d) return bn_fail_nomem(err, sizeof *d, "drafts");
    d->text = bn_calloc_now(max_tokens, sizeof *d->text);
    d->max_tokens = max_tokens;
    d->n_slots = n_slots;
    d->cost = FIRST_COST;
    for (uint32_t i = 0; i < BN_ARRAY_LEN(d->indexes); i++) {
        struct index *x = &d->indexes[i];
        *x = (struct index){.length = 3 - i};
        x->slots = bn_calloc_now(n_slots, sizeof *x->slots);
        for (uint32_t k = 0; k < BN_DRAFT_MAX; k++) x->right[k] = k ? NEXT_RIGHT : FIRST_RIGHT[i];
    }
    for (uint32_t k = 0; k < BN_DRAFT_MAX; k++) d->model.right[k] = MODEL_RIGHT;
    if (!d->text || !d->indexes[0].slots || !d->indexes[1].slots) {
        bn_draft_close(d);
        return bn_fail_nomem(err, 2 * n_slots * sizeof(uint32_t) + max_tokens * sizeof(int32_t),
                             "drafts");
    }
    *out = d;
    return BITNET_OK;
}

void bn_draft_close(struct bn_draft *d)
{
    if (!d) return;
    for (size_t i = 0; i < BN_ARRAY_LEN(d->indexes); i++) free(d->indexes[i].slots);
    free(d->text);
    free(d);
}

/* The slot of the n-gram that ends before position `end`. */
static uint32_t *slot_of(const struct bn_draft *d, const struct index *x, uint32_t end)
{
    const int32_t *gram = d->text + end - x->length;
    size_t bytes = x->length * sizeof *gram;
    for (size_t i = (size_t)bn_hash(gram, bytes);; i++) {
        uint32_t *slot = &x->slots[i & (d->n_slots - 1)];
        if (!*slot || memcmp(d->text + *slot - x->length, gram, bytes) == 0) return slot;
    }
}

void bn_draft_update(struct bn_draft *d, const int32_t *tokens, uint32_t n)
{
    uint32_t end = n < d->max_tokens ? n : d->max_tokens;
    for (; d->n < end; d->n++) {
        d->text[d->n] = tokens[d->n];
        for (size_t i = 0; i < BN_ARRAY_LEN(d->indexes); i++) {
            struct index *x = &d->indexes[i];
            if (d->n >= x->length) *slot_of(d, x, d->n) = d->n;
        }
    }
}

/* Where the text's last tokens ended before, by the longest n-gram; 0: nowhere. */
static uint32_t find_earlier(struct bn_draft *d)
{
    for (size_t i = 0; i < BN_ARRAY_LEN(d->indexes); i++) {
        struct index *x = &d->indexes[i];
        uint32_t at = d->n >= x->length ? *slot_of(d, x, d->n) : 0;
        if (!at) continue;
        d->used = x;
        return at;
    }
    return 0;
}

/* How many drafts, at most so many, give the most tokens in a time; *rate: how many, in that of one
 * without any. */
static uint32_t best_count(const struct bn_draft *d, const struct index *x, uint32_t most,
                           double *best_rate)
{
    uint32_t best = 0;
    double tokens = 1, reached = 1;
    *best_rate = 1;
    for (uint32_t n = 1; n <= most; n++) {
        reached *= x->right[n - 1];
        tokens += reached;
        double rate = tokens / (1 + n * d->cost);
        if (rate > *best_rate) best = n, *best_rate = rate;
    }
    return best;
}

/* Where drafting does not pay: is one to be tried? */
static bool try_due(struct index *x)
{
    if (++x->passed < 1u << (uint32_t)x->debt) return false;
    x->passed = 0;
    return true;
}

uint32_t bn_draft_wants(struct bn_draft *d, uint32_t most, bool always)
{
    double rate;
    uint32_t n = always ? BN_DRAFT_MAX : best_count(d, &d->model, BN_DRAFT_MAX, &rate);
    if (!n && try_due(&d->model)) n = 1;
    return n < most ? n : most;
}

void bn_draft_offer(struct bn_draft *d, const int32_t *tokens, uint32_t n, uint32_t n_text)
{
    memcpy(d->offer, tokens, n * sizeof *tokens);
    d->n_offer = n;
    d->offer_at = n_text;
}

bool bn_draft_was_offered(const struct bn_draft *d) { return d->used == &d->model; }

/* What the model has offered for the text as it is, if looking up has nothing better. */
static uint32_t take_offer(struct bn_draft *d, int32_t *out, uint32_t most, bool found, bool always)
{
    double looked_up = 0, offered;
    uint32_t n = d->n_offer < most ? d->n_offer : most;
    if (d->offer_at != d->n || !n || (found && always)) return 0;
    if (found) best_count(d, d->used, most, &looked_up);
    best_count(d, &d->model, n, &offered);
    if (found && looked_up >= offered) return 0;
    memcpy(out, d->offer, n * sizeof *out);
    d->used = &d->model;
    return n;
}

uint32_t bn_draft_make(struct bn_draft *d, int32_t *out, uint32_t most, bool always)
{
    uint32_t at = find_earlier(d), n = BN_DRAFT_MAX, offered;
    double rate;
    if (!most) return 0;
    offered = take_offer(d, out, most, at != 0, always);
    if (offered || !at) return offered;
    if (!always) n = best_count(d, d->used, BN_DRAFT_MAX, &rate);
    if (!n) {
        if (!try_due(d->used)) return 0;
        n = 1;
    }
    if (n > most) n = most;
    for (uint32_t i = 0; i < n; i++) out[i] = at + i < d->n ? d->text[at + i] : out[at + i - d->n];
    return n;
}

static void move_to(double *mean, double to, double rate) { *mean += (to - *mean) * rate; }

static double clamp(double x, double most) { return x < 0 ? 0 : x > most ? most : x; }

void bn_draft_learn(struct bn_draft *d, uint32_t n_draft, uint32_t n_accepted, double cost)
{
    struct index *x = d->used;
    if (!x || !n_draft) return;
    for (uint32_t k = 0; k < n_accepted; k++) move_to(&x->right[k], 1, RATE);
    if (n_accepted < n_draft) move_to(&x->right[n_accepted], 0, RATE);
    else if (n_draft < BN_DRAFT_MAX) move_to(&x->right[n_draft], 1, HOPE);
    double each = cost > 0 ? clamp((cost - 1) / n_draft, MAX_COST) : d->cost;
    move_to(&d->cost, each, RATE);
    x->debt = clamp(x->debt + n_draft * each - n_accepted, MAX_DEBT);
}
