/* SPDX-License-Identifier: Apache-2.0
 * One request on its way, with its choices: the tokens so far, where each stands, and how its text
 * comes out. All memory is taken when it is made. */
#ifndef BN_ENGINE_REQUEST_H
#define BN_ENGINE_REQUEST_H

#include "engine/draft.h"
#include "engine/sampler/repetition.h"
#include "engine/sampler/sampler.h"
#include "engine/sched.h"
#include "engine/prefix/snapshots.h"
#include "model/adapter/adapter.h"
#include "model/attention/kv.h"
#include "engine/grammars.h"

enum {
    BN_MAX_CHOICES = 128, /* of one prompt */
    BN_MAX_STOP_TOKENS = 64,
    BN_MAX_END_TOKENS = 128
};

enum bn_sequence_state {
    BN_SEQUENCE_HELD,   /* until the first choice has read the prompt */
    BN_SEQUENCE_QUEUED, /* the scheduler has it */
    BN_SEQUENCE_OVER
};

/* One choice as a sequence: what the scheduler sees of it, its place in the cache, and the state of its text. */
struct bn_sequence {
    struct bn_sched_job job;
    struct bn_request *request;
    uint32_t choice, n_vocab;
    enum bn_sequence_state state;
    int32_t *tokens;      /* prompt, generated tokens, and drafts behind them: [limit] */
    struct bn_kv_seq *kv; /* its place in the cache; NULL: it does not run */
    struct bn_sampler *sampler;
    struct bn_matcher *matcher; /* NULL: any text */
    struct bn_draft *draft;     /* NULL: no drafts */
    struct bn_detok *detok;     /* NULL: the model has no tokenizer */
    struct bn_repetition repetition;
    uint32_t row;              /* first of its logits in this step */
    uint32_t first, first_pos; /* of its tokens in this step's batch: place and position */
    uint32_t n_offer;          /* drafts that the model is to make for it (mtp.c) */
    int32_t offer[BN_DRAFT_MAX];
    /* of models with states: slots in the batch that are not kept yet; the snapshot that goes along with
     * the text, and behind how many tokens it is put next */
    uint32_t n_saves, moving_at;
    struct bn_snapshot_ref moving;
    /* what the events of a step borrow: text, and the likeliest tokens [1 + drafts][n_top] */
    char *text;
    size_t n_text;
    bitnet_logprob *top;
    bitnet_logprob *scored; /* of choice 0: the prompt's, as an event has them */
    uint32_t n_drawn;       /* tokens of this step */
    /* of the token that was drawn last, where its request wants the distribution that it was drawn from */
    float drawn_logprob;
    uint32_t n_drawn_top;
    uint32_t n_cached;
    uint64_t started_ns, prefill_ns, decode_ns; /* started_ns 0: it has not */
};

struct bn_request {
    struct bn_request *next;
    uint64_t id;
    uint32_t n_prompt, limit; /* limit: prompt and generated tokens together */
    uint32_t n_choices, n_left, n_begun;
    struct bn_snapshot_ref pinned; /* for choices that have not begun */
    uint32_t n_top;
    uint32_t n_scored; /* tokens of the prompt whose logits were looked at */
    uint32_t n_top_scored;
    bool logprobs, drawn_logprobs, ignore_end, no_cache, prompt_only, show_stop, cancelled;
    int32_t stop_tokens[BN_MAX_STOP_TOKENS];
    uint32_t n_stop_tokens;
    uint32_t min_new;                /* tokens before one of these may be drawn: */
    int32_t ends[BN_MAX_END_TOKENS]; /* stop tokens, and those that end a text */
    uint32_t n_ends;
    uint64_t deadline_ns;            /* UINT64_MAX: none */
    uint64_t submitted_ns, queue_ns; /* queue_ns: until its first choice began; 0: it has not */
    const struct bn_tokenizer *tokenizer;
    struct bn_grammars *grammars;
    struct bn_kept_grammar *grammar; /* theirs; NULL: no constraint */
    struct bn_mix mix;               /* holds its adapters */
    struct bn_sequence choices[];    /* [n_choices] */
};

/* What a request needs of the engine. */
struct bn_request_place {
    const struct bn_tokenizer *tokenizer; /* NULL: none */
    struct bn_grammars *grammars;         /* constraints that are compiled already */
    uint32_t n_vocab;
    uint32_t limit;           /* tokens of a choice, its prompt included */
    uint32_t draft;           /* drafts of a step; 0: none */
    uint32_t score_rows;      /* tokens of a prompt that are scored in a step */
    const struct bn_mix *mix; /* its adapters */
};

/* Copies what it needs. */
bitnet_status bn_request_make(struct bn_request **out, const bitnet_request *r,
                              const struct bn_request_place *p, bitnet_error *err);
void bn_request_free(struct bn_request *r);
/* Compiles the constraint, which is kept for bn_request_make; by any thread. */
bitnet_status bn_request_prepare(const bitnet_request *r, struct bn_grammars *g,
                                 const struct bn_tokenizer *t, bitnet_error *err);

static inline struct bn_sequence *bn_sequence_of(struct bn_sched_job *j)
{
    return (struct bn_sequence *)((char *)j - offsetof(struct bn_sequence, job));
}

/* A new step begins: what the last one's events borrowed is free again. */
void bn_sequence_begin_step(struct bn_sequence *seq);
/* Are the logits behind token `pos` of the prompt wanted to judge the one that follows? */
static inline bool bn_sequence_scores(const struct bn_sequence *seq, uint32_t pos)
{
    return seq->job.scored && pos >= seq->request->n_scored && pos + 1 < seq->request->n_prompt;
}
/* Does something say which tokens may come next? */
static inline bool bn_sequence_is_masked(const struct bn_sequence *seq)
{
    return seq->matcher || seq->job.n_tokens - seq->request->n_prompt < seq->request->min_new;
}
/* The tokens that may come next; false: there are none. Only of one that is masked. */
bool bn_sequence_mask(struct bn_sequence *seq, uint64_t *mask);
/* Whether the constraint could not be brought to its end after this token, in the tokens that are left.
 * Then the mask becomes those that lead there. Only with a matcher. */
bool bn_sequence_must_close(struct bn_sequence *seq, int32_t token, uint64_t *mask);
/* The sequence goes on with this token; *text is what it completes, kept until bn_sequence_begin_step.
 * Returns why the sequence is over, BITNET_FINISH_NONE if it is not. */
bitnet_finish bn_sequence_push(struct bn_sequence *seq, int32_t token, const char **text,
                               size_t *n);
/* The stop string that has ended it; NULL: none has. Lives as long as the request. */
const char *bn_sequence_stop(const struct bn_sequence *seq);
/* The end: text still held back. */
void bn_sequence_flush(struct bn_sequence *seq, const char **text, size_t *n);

#endif
