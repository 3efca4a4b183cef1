/* SPDX-License-Identifier: Apache-2.0
 *
 * Scoring: how likely the model finds the end of given texts. Texts that begin alike, as the choices of a
 * question or questions behind the same examples, share what they have in common: it is computed once, in
 * a sequence of its own, a *stem*, from which they branch off. So a call costs little more than one pass
 * over the distinct tokens.
 *
 * Texts are taken in sorted order, so that those with a common beginning are neighbours. A stem ends before
 * the first token whose successor is scored, so that every scored row is computed in its own text's
 * sequence, its branch. Branches and stems that are ready fill ragged batches, the oldest first.
 *
 * That it cannot get stuck: stems have at most half of the sequences, and a text's missing stems are
 * opened together or not at all; they leave enough pages for the longest text. So a branch always finds a
 * sequence and pages when no other branch runs.
 */
#include "engine/engine_impl.h"

#include "base/os/mem.h"
#include <math.h>
#include <stdlib.h>

enum {
    STEMS_MAX = 4,           /* above each other */
    STEM_MIN_TOKENS = 4,     /* what is shorter is not worth a sequence */
    SEQS_MIN = 2 * STEMS_MAX /* of an engine */
};

/* A stem or a branch. */
struct twig {
    struct twig *stem; /* that it branches off from; NULL: the root, or it has branched off */
    size_t input;      /* one of those that it is the beginning of; of a branch, its own */
    uint32_t begin;    /* tokens below it */
    uint32_t
        end; /* of a stem: tokens it holds when it is complete; of a branch: all but the last */
    uint32_t done;
    uint32_t first_row;   /* from this position on logits are wanted; of a stem: never */
    uint32_t n_waiting;   /* twigs that have not branched off yet */
    bool is_stem, sealed; /* sealed: no more twigs will come */
    struct bn_kv_seq *kv; /* NULL: it waits for its stem */
    uint32_t batch_n;     /* tokens in this batch */
};

struct scoring {
    struct bitnet_engine *e;
    const bitnet_score_input *inputs;
    size_t n_inputs;
    const bitnet_score_options *o;
    bitnet_score_result *out;
    size_t *order;   /* [n_inputs] sorted by tokens */
    uint32_t *share; /* [n_inputs + 1] tokens in common with the one before that a stem may hold */
    size_t next;     /* in sorted order: the first that has no branch */
    struct twig *twigs, **active; /* [max_seqs] each; active: in order of opening */
    size_t n_active;
    struct twig *path[STEMS_MAX]; /* stems that the next input begins with */
    uint32_t n_path, n_stems;     /* n_stems: open ones in all */
    uint32_t spare_pages;         /* for the longest text */
    size_t max_rows;
    float *logits;            /* [max_rows][n_vocab] */
    uint64_t n_done, n_total; /* tokens that are scored */
    uint64_t n_computed;
};

/* ------------------------------------------------------------------ order */

static const bitnet_score_input *input_at(const struct scoring *s, size_t i)
{
    return &s->inputs[s->order[i]];
}

static size_t common(const bitnet_score_input *a, const bitnet_score_input *b)
{
    size_t n = bn_min_size(a->n_tokens, b->n_tokens), i = 0;
    while (i < n && a->tokens[i] == b->tokens[i]) i++;
    return i;
}

/* Sorts order[0..n) by merging; tmp: as long. Equal ones stay in order. */
static void sort(const struct scoring *s, size_t *order, size_t *tmp, size_t n)
{
    if (n < 2) return;
    size_t half = n / 2, i = 0, j = half, k = 0;
    sort(s, order, tmp, half);
    sort(s, order + half, tmp, n - half);
    memcpy(tmp, order, n * sizeof *order);
    while (i < half || j < n) {
        bool left = j == n;
        if (i < half && j < n) {
            const bitnet_score_input *a = &s->inputs[tmp[i]], *b = &s->inputs[tmp[j]];
            size_t c = common(a, b);
            left = c == a->n_tokens || (c < b->n_tokens && a->tokens[c] < b->tokens[c]);
        }
        order[k++] = left ? tmp[i++] : tmp[j++];
    }
}

/* What a stem of two neighbours may hold. */
static uint32_t shared(const struct scoring *s, size_t i)
{
    const bitnet_score_input *a = input_at(s, i - 1), *b = input_at(s, i);
    size_t n = bn_min_size(common(a, b), bn_min_size(a->n_context, b->n_context) - 1);
    if (bn_kv_has_blocks(&s->e->kv)) n -= n % BN_ATTN_BLOCK;
    return (uint32_t)n;
}

/* ------------------------------------------------------------------ twigs come and go */

static struct bn_kv_seq *free_seq(const struct scoring *s)
{
    struct bitnet_engine *e = s->e;
    for (uint32_t i = 0; i < e->max_seqs; i++) {
        bool used = e->taken[i] || e->seqs[i].n_pages;
        for (size_t k = 0; !used && k < s->n_active; k++) used = s->active[k]->kv == &e->seqs[i];
        if (!used) return &e->seqs[i];
    }
    return NULL;
}

static struct twig *new_twig(struct scoring *s, struct twig *stem, size_t input)
{
    struct twig *t = s->twigs;
    while (t->end) t++; /* there is one: each active one has a sequence or will get one */
    *t = (struct twig){.stem = stem, .input = input, .begin = stem ? stem->end : 0};
    t->done = t->begin;
    if (stem) stem->n_waiting++;
    s->active[s->n_active++] = t;
    return t;
}

static void close_twig(struct scoring *s, struct twig *t)
{
    if (t->kv) bn_kv_release(&s->e->kv, t->kv);
    if (t->is_stem) s->n_stems--;
    size_t i = 0;
    while (s->active[i] != t) i++;
    s->n_active--;
    memmove(s->active + i, s->active + i + 1, (s->n_active - i) * sizeof *s->active);
    t->end = 0;
}

/* A stem that nobody will need any more goes. */
static void close_stem(struct scoring *s, struct twig *t)
{
    if (t->sealed && !t->n_waiting && t->done == t->end) close_twig(s, t);
}

/* Takes over what the stem holds and room for the rest. False: not now. */
static bool branch_off(struct scoring *s, struct twig *t)
{
    struct bitnet_engine *e = s->e;
    struct bn_kv_seq *kv = free_seq(s);
    if (!kv) return false;
    if (t->stem) {
        bn_kv_share(&e->kv, kv, t->stem->kv->pages, t->begin);
        if (kv->state && t->begin)
            bn_state_restore(&e->states, kv->state, t->stem->kv->state->slot, t->begin);
    }
    if (!bn_engine_reserve(e, kv, t->end) ||
        (t->is_stem &&
         e->kv.n_free + (e->prefix ? bn_prefix_evictable(e->prefix) : 0) < s->spare_pages)) {
        bn_kv_release(&e->kv, kv);
        return false;
    }
    t->kv = kv;
    struct twig *stem = t->stem;
    t->stem = NULL;
    if (stem) {
        stem->n_waiting--;
        close_stem(s, stem);
    }
    return true;
}

/* ------------------------------------------------------------------ the next text */

/* Ends of the stems that the next text needs and that are not open, the shortest first. */
static uint32_t missing_stems(const struct scoring *s, uint32_t ends[STEMS_MAX])
{
    uint32_t below = s->n_path ? s->path[s->n_path - 1]->end : 0, least = UINT32_MAX, n = 0;
    uint32_t found[STEMS_MAX];
    for (size_t i = s->next + 1; i < s->n_inputs; i++) {
        if (s->share[i] >= least) continue;
        least = s->share[i];
        if (least < below + STEM_MIN_TOKENS) break;
        /* found from the longest on; a longer one that is hardly so is left out */
        if (n && found[n - 1] < least + STEM_MIN_TOKENS) n--;
        if (n < STEMS_MAX - s->n_path) found[n++] = least;
    }
    for (uint32_t i = 0; i < n; i++) ends[i] = found[n - 1 - i];
    return n;
}

/* Stems that hold more than n tokens: no more twigs will branch off. */
static void seal_above(struct scoring *s, uint32_t n)
{
    while (s->n_path && s->path[s->n_path - 1]->end > n) {
        struct twig *t = s->path[--s->n_path];
        t->sealed = true;
        close_stem(s, t);
    }
}

/* The next text and the stems it needs come in, if there is room. */
static bool open_next(struct scoring *s)
{
    uint32_t ends[STEMS_MAX];
    seal_above(s, s->share[s->next]);
    uint32_t n = missing_stems(s, ends), half = s->e->max_seqs / 2;
    if (s->n_stems + n > half || s->n_active + n + 1 > s->e->max_seqs) return false;
    size_t input = s->order[s->next];
    for (uint32_t i = 0; i < n; i++) {
        struct twig *t = new_twig(s, s->n_path ? s->path[s->n_path - 1] : NULL, input);
        t->end = ends[i];
        t->first_row = UINT32_MAX;
        t->is_stem = true;
        s->path[s->n_path++] = t;
        s->n_stems++;
    }
    const bitnet_score_input *in = &s->inputs[input];
    struct twig *t = new_twig(s, s->n_path ? s->path[s->n_path - 1] : NULL, input);
    t->end = (uint32_t)in->n_tokens - 1;
    t->first_row = (uint32_t)in->n_context - 1;
    s->next++;
    return true;
}

/* ------------------------------------------------------------------ batches */

/* Tokens of one twig go into the batch from place n on; returns how many. */
static uint32_t add_tokens(struct scoring *s, struct twig *t, size_t n, size_t *n_rows)
{
    const int32_t *tokens = s->inputs[t->input].tokens;
    uint32_t i = 0;
    for (; t->done + i < t->end && n + i < s->e->max_batch; i++) {
        uint32_t pos = t->done + i;
        bool row = pos >= t->first_row;
        if (row && *n_rows == s->max_rows) break;
        *n_rows += row;
        s->e->batch[n + i] =
            (struct bn_batch_token){.token = tokens[pos],
                                    .pos = pos,
                                    .seq = t->kv,
                                    .mix = bn_engine_mix(s->e),
                                    .want = {.kind = row ? BN_WANT_ALL : BN_WANT_NONE}};
    }
    t->batch_n = i;
    return i;
}

/* New texts come in until there is enough to do for a batch and more. */
static void open_some(struct scoring *s)
{
    uint64_t n = 0;
    for (size_t i = 0; i < s->n_active; i++) n += s->active[i]->end - s->active[i]->done;
    while (n < 2 * (uint64_t)s->e->max_batch && s->next < s->n_inputs) {
        uint64_t more = input_at(s, s->next)->n_tokens;
        if (!open_next(s)) break;
        n += more;
    }
    if (s->next == s->n_inputs) seal_above(s, 0);
}

/* Fills a batch with what can be computed, the oldest first. */
static size_t make_batch(struct scoring *s)
{
    size_t n = 0, rows = 0;
    open_some(s);
    for (size_t i = 0; i < s->n_active && n < s->e->max_batch && rows < s->max_rows; i++) {
        struct twig *t = s->active[i];
        if (!t->kv) {
            size_t before = s->n_active;
            if (t->stem && (!t->stem->kv || t->stem->done < t->stem->end)) continue;
            if (!branch_off(s, t)) continue;
            i -= before - s->n_active; /* its stem may have gone */
        }
        n += add_tokens(s, t, n, &rows);
    }
    return n;
}

/* ------------------------------------------------------------------ rows */

/* One position of a branch: the logits from which its successor would be drawn. */
static void take_row(struct scoring *s, const struct twig *t, uint32_t pos, const float *logits)
{
    const uint32_t n_vocab = s->e->m->config.n_vocab;
    bitnet_score_result *r = &s->out[t->input];
    int32_t token = s->inputs[t->input].tokens[pos + 1];
    r->logprob += bn_logprob(logits, n_vocab, token, NULL, 0);
    for (uint32_t i = 0; i < n_vocab; i++)
        if (logits[i] > logits[token] || (logits[i] == logits[token] && i < (uint32_t)token)) {
            r->greedy = 0;
            break;
        }
    s->n_done++;
    if (s->o->on_row) s->o->on_row(s->o->user, t->input, pos + 1, logits);
}

/* What a batch has brought. */
static void take_batch(struct scoring *s)
{
    const size_t n_vocab = s->e->m->config.n_vocab;
    const float *row = s->logits;
    for (size_t i = 0; i < s->n_active; i++) {
        struct twig *t = s->active[i];
        for (uint32_t k = 0; k < t->batch_n; k++) {
            if (t->done + k < t->first_row) continue;
            take_row(s, t, t->done + k, row);
            row += n_vocab;
        }
        t->done += t->batch_n;
        if (t->kv) t->kv->n_tokens = t->done;
        t->batch_n = 0;
    }
    for (size_t i = 0; i < s->n_active;) {
        struct twig *t = s->active[i];
        bool over = t->kv && t->done == t->end && (!t->is_stem || (t->sealed && !t->n_waiting));
        if (over) close_twig(s, t);
        else i++;
    }
}

/* ------------------------------------------------------------------ the call */

static bitnet_status check(const struct scoring *s, bitnet_error *err)
{
    struct bitnet_engine *e = s->e;
    if (e->max_seqs < SEQS_MIN)
        return bn_fail(err, BITNET_E_ARG,
                       "scoring needs an engine with %d sequences; this one has %u", SEQS_MIN,
                       e->max_seqs);
    for (size_t i = 0; i < s->n_inputs; i++) {
        const bitnet_score_input *in = &s->inputs[i];
        if (in->n_context < 1 || in->n_context >= in->n_tokens)
            return bn_fail(
                err, BITNET_E_ARG,
                "input %zu: a context of %zu of %zu tokens; at least one must stand before "
                "what is scored, and one behind",
                i, in->n_context, in->n_tokens);
        if (in->n_tokens > e->ctx)
            return bn_fail(err, BITNET_E_LIMIT,
                           "input %zu has %zu tokens and does not fit a context of %u", i,
                           in->n_tokens, e->ctx);
        BN_TRY(bn_engine_check_tokens(e, in->tokens, in->n_tokens, err));
    }
    return BITNET_OK;
}

static void prepare(struct scoring *s, size_t *tmp)
{
    size_t longest = 0;
    for (size_t i = 0; i < s->n_inputs; i++) {
        s->order[i] = i;
        s->out[i] = (bitnet_score_result){.greedy = 1};
        longest = bn_max_size(longest, s->inputs[i].n_tokens);
        s->n_total += s->inputs[i].n_tokens - s->inputs[i].n_context;
    }
    sort(s, s->order, tmp, s->n_inputs);
    for (size_t i = 1; i < s->n_inputs; i++) s->share[i] = shared(s, i);
    s->spare_pages = bn_kv_pages_for((uint32_t)longest) + 1;
}

static bitnet_status run(struct scoring *s, bitnet_error *err)
{
    struct bitnet_engine *e = s->e;
    while (s->next < s->n_inputs || s->n_active) {
        size_t n = make_batch(s);
        if (!n)
            return bn_fail(err, BITNET_E_STATE,
                           "texts of up to %u tokens find no room: the KV cache has %u pages of %d "
                           "tokens, %u of them free",
                           (s->spare_pages - 1) * BN_ATTN_BLOCK, e->kv.n_pages, BN_ATTN_BLOCK,
                           e->kv.n_free);
        bool finite = bn_engine_forward(e, n, s->logits);
        BN_TRY(bn_dist_check(e->m->dist, err));
        if (!finite)
            return bn_fail(err, BITNET_E_INTERNAL,
                           "the logits are not finite: the weights are damaged");
        s->n_computed += n;
        take_batch(s);
        if (s->o->progress && s->o->progress(s->o->user, "score", s->n_done, s->n_total))
            return bn_fail(err, BITNET_E_CANCELLED, "stopped on request after %llu of %llu tokens",
                           (unsigned long long)s->n_done, (unsigned long long)s->n_total);
    }
    return BITNET_OK;
}

bitnet_status bn_engine_score(struct bitnet_engine *e, const bitnet_score_input *inputs, size_t n,
                              const bitnet_score_options *o, bitnet_score_result *out,
                              bitnet_error *err)
{
    const size_t n_vocab = e->m->config.n_vocab;
    struct scoring s = {.e = e, .inputs = inputs, .n_inputs = n, .o = o, .out = out};
    BN_TRY(bn_model_check(e->m, err));
    BN_TRY(check(&s, err));
    s.max_rows = bn_score_rows(n_vocab);
    s.order = bn_calloc(n + 1, sizeof *s.order);
    s.share = bn_calloc(n + 1, sizeof *s.share);
    s.twigs = bn_calloc(e->max_seqs + 1, sizeof *s.twigs);
    s.active = bn_calloc(e->max_seqs + 1, sizeof(struct twig *));
    s.logits = bn_calloc(s.max_rows * n_vocab, sizeof *s.logits);
    size_t *tmp = bn_calloc(n + 1, sizeof *tmp);
    bitnet_status status = BITNET_OK;
    if (!s.order || !s.share || !s.twigs || !s.active || !s.logits || !tmp)
        status = bn_fail_nomem(err, s.max_rows * n_vocab * sizeof *s.logits, "scores");
    if (status == BITNET_OK) {
        prepare(&s, tmp);
        status = run(&s, err);
    }
    if (o->n_computed) *o->n_computed = s.n_computed;
    while (s.n_active) close_twig(&s, s.active[0]);
    free(tmp);
    free(s.logits);
    free(s.active);
    free(s.twigs);
    free(s.share);
    free(s.order);
    return status;
}
