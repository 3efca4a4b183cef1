/* SPDX-License-Identifier: Apache-2.0
 * Every token of the text has an entry with its counts, found by hashing; a push costs the same
 * whatever the text's length. DRY is computed when a token is drawn: one pass of the Z-algorithm over
 * the text read backwards gives for every place how much of the text's end stands there. */
#include "engine/sampler/sampler_history.h"

#include "base/det_math.h"
#include "base/os/mem.h"
#include "base/rng.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>

#define DRY_DEFAULT_BASE 1.75f
enum { DRY_DEFAULT_LENGTH = 2 };
static const double dry_most = 1e30; /* more than any logit, and far from overflow */
static const char *const default_breakers[] = {"\n", ":", "\"", "*"};

/* a token of the text */
struct word {
    int32_t id;
    uint32_t n_all, n_generated; /* in the window of the penalties */
    uint32_t repeats;            /* while DRY looks: longest repetition it would go on with */
};

/* the end of the text, as far as breakers can reach back */
struct breakers {
    const struct bn_tokenizer *t;
    size_t n;
    char text[BN_MAX_DRY_BREAKERS][BN_MAX_DRY_BREAKER_BYTES];
    size_t bytes[BN_MAX_DRY_BREAKERS];
    char end[BN_MAX_DRY_BREAKER_BYTES]; /* the newest byte last */
    size_t n_end;
};

struct bn_history {
    float repetition, presence, frequency;
    uint32_t last_n; /* 0: all */
    double dry_multiplier, dry_log_base;
    uint32_t dry_length, dry_last_n;
    uint32_t unbroken; /* tokens behind the last breaker */
    struct breakers breakers;
    uint32_t n_tokens, n_prompt, limit;
    uint32_t n_words, n_slots; /* n_slots: a power of two */
    int32_t *tokens;           /* [limit] */
    struct word *words;        /* [n_words], in order of appearance */
    uint32_t *slots;           /* [n_slots] index in words + 1; 0: free */
    uint32_t *z;               /* [limit], with DRY */
};

/* ------------------------------------------------------------------ options */

static bool counts_on(const bitnet_sampling *s)
{
    bool repetition = s->repetition_penalty != 0 && s->repetition_penalty != 1;
    return repetition || s->presence_penalty != 0 || s->frequency_penalty != 0;
}

bool bn_penalties_on(const bitnet_sampling *s) { return counts_on(s) || s->dry_multiplier > 0; }

static bitnet_status check_breakers(const bitnet_sampling *s, bitnet_error *err)
{
    if (!s->dry_breakers && s->n_dry_breakers)
        return bn_fail(err, BITNET_E_ARG, "%zu DRY breakers, but dry_breakers is NULL",
                       s->n_dry_breakers);
    if (s->n_dry_breakers > BN_MAX_DRY_BREAKERS)
        return bn_fail(err, BITNET_E_LIMIT, "%zu DRY breakers; at most %d are possible",
                       s->n_dry_breakers, BN_MAX_DRY_BREAKERS);
    for (size_t i = 0; i < s->n_dry_breakers; i++) {
        size_t n = s->dry_breakers[i] ? strlen(s->dry_breakers[i]) : 0;
        if (n == 0 || n > BN_MAX_DRY_BREAKER_BYTES)
            return bn_fail(err, BITNET_E_LIMIT,
                           "DRY breaker %zu has %zu bytes; 1 to %d is possible", i, n,
                           BN_MAX_DRY_BREAKER_BYTES);
    }
    return BITNET_OK;
}

bitnet_status bn_penalties_check(const bitnet_sampling *s, bitnet_error *err)
{
    const struct {
        const char *name;
        float value, min, max;
    } ranges[] = {{"the repetition penalty", s->repetition_penalty, 0, 100},
                  {"the presence penalty", s->presence_penalty, -100, 100},
                  {"the frequency penalty", s->frequency_penalty, -100, 100},
                  {"the DRY multiplier", s->dry_multiplier, 0, 100},
                  {"the DRY base", s->dry_base == 0 ? 1 : s->dry_base, 1, 100}};
    for (size_t i = 0; i < BN_ARRAY_LEN(ranges); i++)
        if (!(ranges[i].value >= ranges[i].min && ranges[i].value <= ranges[i].max))
            return bn_fail(err, BITNET_E_ARG, "%s is %g; %g to %g is possible", ranges[i].name,
                           (double)ranges[i].value, (double)ranges[i].min, (double)ranges[i].max);
    return check_breakers(s, err);
}

/* ------------------------------------------------------------------ life */

static void set_breakers(struct breakers *b, const bitnet_sampling *s, const struct bn_tokenizer *t)
{
    const char *const *text = s->dry_breakers ? s->dry_breakers : default_breakers;
    b->t = t;
    b->n = s->dry_breakers ? s->n_dry_breakers : BN_ARRAY_LEN(default_breakers);
    for (size_t i = 0; i < b->n; i++) {
        b->bytes[i] = strlen(text[i]);
        memcpy(b->text[i], text[i], b->bytes[i]);
    }
}

static void set_options(struct bn_history *h, const bitnet_sampling *s)
{
    h->repetition = s->repetition_penalty == 0 ? 1 : s->repetition_penalty;
    h->presence = s->presence_penalty;
    h->frequency = s->frequency_penalty;
    h->last_n = s->penalty_last_n;
    h->dry_multiplier = (double)s->dry_multiplier;
    h->dry_log_base = bn_det_log((double)(s->dry_base == 0 ? DRY_DEFAULT_BASE : s->dry_base));
    h->dry_length = s->dry_allowed_length ? s->dry_allowed_length : DRY_DEFAULT_LENGTH;
    h->dry_last_n = s->dry_last_n;
}

bitnet_status bn_history_open(struct bn_history **out, const bitnet_sampling *s, uint32_t n_vocab,
                              const struct bn_tokenizer *t, const int32_t *prompt,
                              uint32_t n_prompt, uint32_t limit, bitnet_error *err)
{
    struct bn_history *h = *out = bn_calloc(1, sizeof *h);
    if (!h) return bn_fail_nomem(err, sizeof *h, "a sampler");
    size_t most_words = bn_min_size(limit, n_vocab), n_slots = 16;
    while (n_slots < 2 * most_words) n_slots *= 2;
    set_options(h, s);
    set_breakers(&h->breakers, s, t);
    h->n_prompt = n_prompt;
    h->limit = limit;
    h->n_slots = (uint32_t)n_slots;
    h->tokens = bn_calloc_now(limit, sizeof *h->tokens);
    h->words = bn_calloc_now(most_words, sizeof *h->words);
    h->slots = bn_calloc_now(n_slots, sizeof *h->slots);
    if (s->dry_multiplier > 0) h->z = bn_calloc_now(limit, sizeof *h->z);
    if (!h->tokens || !h->words || !h->slots || (s->dry_multiplier > 0 && !h->z)) {
        bn_history_close(h);
        *out = NULL;
        return bn_fail_nomem(err, limit * sizeof *h->tokens, "a sampler");
    }
    for (uint32_t i = 0; i < n_prompt; i++) bn_history_push(h, prompt[i]);
    return BITNET_OK;
}

void bn_history_close(struct bn_history *h)
{
    if (!h) return;
    free(h->tokens);
    free(h->words);
    free(h->slots);
    free(h->z);
    free(h);
}

/* ------------------------------------------------------------------ the text grows */

/* The entry of a token; a new one where it has none. */
static struct word *word_of(struct bn_history *h, int32_t id)
{
    uint32_t at = (uint32_t)bn_mix64((uint64_t)id + 1) & (h->n_slots - 1);
    for (; h->slots[at]; at = (at + 1) & (h->n_slots - 1))
        if (h->words[h->slots[at] - 1].id == id) return &h->words[h->slots[at] - 1];
    struct word *w = &h->words[h->n_words++];
    h->slots[at] = h->n_words;
    w->id = id;
    return w;
}

/* Whether a breaker ends inside this token. */
static bool breaks(struct breakers *b, int32_t id)
{
    bool found = false;
    size_t n = 0;
#if BN_HAVE_TEXT
    const char *text = b->t && b->n ? bn_token_bytes(b->t, id, true, false, &n) : NULL;
#else
    const char *text = NULL;
    (void)id;
#endif
    for (size_t i = 0; i < n; i++) {
        char *end = b->end;
        memmove(end, end + 1, sizeof b->end - 1);
        end[sizeof b->end - 1] = text[i];
        b->n_end += b->n_end < sizeof b->end;
        for (size_t k = 0; !found && k < b->n; k++)
            found = b->bytes[k] <= b->n_end &&
                    memcmp(end + sizeof b->end - b->bytes[k], b->text[k], b->bytes[k]) == 0;
    }
    return found;
}

void bn_history_push(struct bn_history *h, int32_t token)
{
    struct word *w = word_of(h, token);
    w->n_all++;
    w->n_generated += h->n_tokens >= h->n_prompt;
    h->tokens[h->n_tokens++] = token;
    if (h->last_n && h->n_tokens > h->last_n) { /* the oldest leaves the window */
        uint32_t old = h->n_tokens - h->last_n - 1;
        w = word_of(h, h->tokens[old]);
        w->n_all--;
        w->n_generated -= old >= h->n_prompt;
    }
    if (h->z) h->unbroken = breaks(&h->breakers, token) ? 0 : h->unbroken + 1;
}

/* ------------------------------------------------------------------ penalties */

static void put(float *logit, double x)
{
    if (*logit == -INFINITY) return;
    *logit = (float)fmin(fmax(x, -(double)FLT_MAX), (double)FLT_MAX);
}

static void penalise_words(struct bn_history *h, float *logits)
{
    for (uint32_t i = 0; i < h->n_words; i++) {
        const struct word *w = &h->words[i];
        double x = (double)logits[w->id], r = (double)h->repetition;
        if (w->n_all) x = x > 0 ? x / r : x * r;
        if (w->n_generated) x -= (double)h->presence + (double)h->frequency * w->n_generated;
        if (w->n_all) put(&logits[w->id], x);
    }
}

/* z[i]: how many of the tokens before the i last ones are those at the text's end; of the last n. */
static void match_end(const struct bn_history *h, uint32_t n)
{
    const int32_t *last = h->tokens + h->n_tokens - 1;
    uint32_t *z = h->z, left = 0, right = 0; /* the match that reaches farthest */
    for (uint32_t i = 1; i < n; i++) {
        uint32_t k = i < right ? (uint32_t)bn_min_size(right - i, z[i - left]) : 0;
        while (i + k < n && last[-(int64_t)k] == last[-(int64_t)(i + k)]) k++;
        z[i] = k;
        if (i + k <= right) continue;
        left = i;
        right = i + k;
    }
}

static void penalise_repetition(struct bn_history *h, float *logits)
{
    uint32_t n = h->n_tokens;
    if (h->dry_last_n && h->dry_last_n < n) n = h->dry_last_n;
    if (h->unbroken < h->dry_length || n <= h->dry_length) return;
    match_end(h, n);
    for (uint32_t i = 1; i < n; i++) {
        uint32_t length = (uint32_t)bn_min_size(h->z[i], h->unbroken);
        if (length < h->dry_length) continue;
        struct word *next = word_of(h, h->tokens[h->n_tokens - i]);
        if (length > next->repeats) next->repeats = length;
    }
    for (uint32_t i = 1; i < n; i++) {
        if (h->z[i] < h->dry_length) continue;
        struct word *next = word_of(h, h->tokens[h->n_tokens - i]);
        if (!next->repeats) continue; /* has had it */
        double more = (double)(next->repeats - h->dry_length) * h->dry_log_base;
        double penalty = fmin(h->dry_multiplier * bn_det_exp(more), dry_most);
        put(&logits[next->id], (double)logits[next->id] - penalty);
        next->repeats = 0;
    }
}

void bn_history_penalise(struct bn_history *h, float *logits)
{
    penalise_words(h, logits);
    if (h->z) penalise_repetition(h, logits);
}
