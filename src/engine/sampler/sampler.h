/* SPDX-License-Identifier: Apache-2.0
 * From logits to a token. Each step works on what the one before has left:
 *
 *   bias             added to the logits of its tokens
 *   penalties        repetition, then presence and frequency, then DRY (sampler_history.h)
 *   mask             what a grammar does not allow leaves
 *   (temperature 0 takes the largest logit now)
 *   top-n-sigma      logits at least the largest - n standard deviations of all of them
 *   top-k            the k largest; adaptive: top-p at this place, too, the smaller set counts
 *   typical          those whose surprise is nearest to the mean surprise, up to a share
 *   top-p            the likeliest, up to a share of what is left
 *   min-p            those at least min-p times as likely as the likeliest that is left
 *   temperature      and a draw
 *
 * Where nothing cuts (top-n-sigma to min-p) the draw is the largest of logit / temperature + Gumbel
 * noise. Ties go to the smaller id. The draw depends on (seed, position) only, and exp and log are our
 * own, so the same seed gives the same text on every machine and whatever is computed beside it. */
#ifndef BN_ENGINE_SAMPLER_SAMPLER_H
#define BN_ENGINE_SAMPLER_SAMPLER_H

#include "model/head/best.h"
#include "model/head/head.h"
#include "text/tokenizer/tokenizer.h"

enum {
    BN_MAX_BIASES = 1024,    /* of one request */
    BN_MAX_TOP_LOGPROBS = 20 /* likeliest tokens of one event */
};

/* ---- options alone: what they cut, without a history ---- */

bitnet_status bn_sampling_check(const bitnet_sampling *s, uint32_t n_vocab, bitnet_error *err);

/* The logits of a token that bn_sample will look at. */
struct bn_want bn_sampling_want(const bitnet_sampling *s, uint64_t position);

/* top-n-sigma to the draw. Logits of -infinity are never drawn; -1: there are no others. scratch: [n].
 * position: index of the token to be made in its sequence. No allocation. */
int32_t bn_sample(const bitnet_sampling *s, const float *logits, uint32_t n, uint64_t position,
                  struct bn_scored *scratch);

/* ---- a request's sampler: options and the text so far ---- */

struct bn_sampler;

/* Copies what it needs of the options, which must have passed bn_sampling_check. limit: tokens of
 * prompt and generated tokens together. t may be NULL: DRY has no breakers then. */
bitnet_status bn_sampler_open(struct bn_sampler **out, const bitnet_sampling *s, uint32_t n_vocab,
                              const struct bn_tokenizer *t, const int32_t *prompt,
                              uint32_t n_prompt, uint32_t limit, bitnet_error *err);
void bn_sampler_close(struct bn_sampler *s); /* NULL is fine */
/* The sequence goes on with this token. */
void bn_sampler_push(struct bn_sampler *s, int32_t token);
/* What the head must give for the token at this position. whole: somebody else needs all logits, a
 * mask or log-probabilities. Does not depend on the text so far. */
struct bn_want bn_sampler_want(const struct bn_sampler *s, uint64_t position, bool whole);

/* Memory for one draw at a time, shared by all samplers of an engine. */
struct bn_sampler_room {
    struct bn_scored *candidates; /* [n_vocab] */
    float *logits;                /* [n_vocab] */
};
bool bn_sampler_room_open(struct bn_sampler_room *r, uint32_t n_vocab); /* false: out of memory */
void bn_sampler_room_close(struct bn_sampler_room *r);

/* The token at this position: index in prompt and generated tokens. mask: bit id % 64 of mask[id / 64] allows a
 * token; NULL: all are allowed. -1: none is left. No allocation. */
int32_t bn_sampler_draw(struct bn_sampler *s, const float *logits, uint32_t n, uint64_t position,
                        const uint64_t *mask, struct bn_sampler_room *room);

/* ---- log-probabilities ---- */

/* What a token was drawn from. */
struct bn_drawn_probs {
    int32_t token;       /* that was drawn */
    float logprob;       /* of it; -infinity: it was not possible */
    bitnet_logprob *top; /* [n_top] the likeliest, best first */
    uint32_t n_top;      /* room; then how many there are: no more than were possible */
};
/* top-n-sigma to temperature, as bn_sample cuts. */
void bn_sample_probs(const bitnet_sampling *s, const float *logits, uint32_t n,
                     struct bn_scored *scratch, struct bn_drawn_probs *out);
/* The same of what bn_sampler_draw drew from just now, with the same arguments. */
void bn_sampler_probs(struct bn_sampler *s, const float *logits, uint32_t n, const uint64_t *mask,
                      struct bn_sampler_room *room, struct bn_drawn_probs *out);

/* ln softmax of the model's own logits, all of them, before any option: that of a token, and the n_top
 * (at most BN_MAX_TOP_LOGPROBS and n) likeliest, best first. */
float bn_logprob(const float *logits, uint32_t n, int32_t token, bitnet_logprob *top,
                 uint32_t n_top);

#endif
