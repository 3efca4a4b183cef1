/* SPDX-License-Identifier: Apache-2.0
 * The engine's inside, shared by its files: engine.c (life, bitnet_eval), submit.c (requests come
 * and go), pages.c (pages for those that run), saves.c (states that are put aside), step.c (the step),
 * embed.c, health.c, profile.c, warmup.c. */
#ifndef BN_ENGINE_ENGINE_IMPL_H
#define BN_ENGINE_ENGINE_IMPL_H

#include "engine/grammars.h"
#include "engine/engine.h"
#include "engine/health.h"
#include "engine/prefix/prefix.h"
#include "engine/request.h"
#include "engine/sampler/sampler.h"
#include "model/forward.h"
#include "model/ops.h"
#include "model/savings.h"

enum {
    BN_STEP_SIZES = 128,  /* steps of up to so many tokens are timed by their size */
    BN_SAVE_EVERY = 1024, /* tokens from one snapshot of a state to the next, at most */
    /* of one pass, for texts that are scored: rows of logits, and their bytes */
    BN_SCORE_ROWS = 64,
    BN_SCORE_BYTES = 64 << 20
};

struct bitnet_engine {
    const struct bn_model *m;
    const struct bn_savings *savings; /* the plan, own or the model's; NULL: none */
    struct bn_savings *own_savings;
    char savings_text[160]; /* for the user */
    struct bn_pool *pool;
    struct bn_prof *prof;      /* NULL: off */
    struct bn_backing backing; /* of what follows, as the model's */
    bool warm;                 /* pages of the model's file stay in memory */
    struct bn_kv kv;
    struct bn_states states; /* of hybrid models: one a sequence, then snapshots */
    struct bn_forward *forward;
    struct bn_sched *sched;
    struct bn_prefix *prefix; /* NULL: off */
    uint32_t ctx, max_seqs, max_batch;
    uint32_t draft, draft_rows; /* drafts of one sequence, and of all, in a step */
    bool always_draft;
    bool random_kv;               /* what is known of a prompt are random pages */
    uint32_t n_pinned;            /* workers bound to a CPU */
    enum bn_head_mode head;       /* screened: where sampling allows it; never auto */
    struct bn_kv_seq *seqs;       /* [max_seqs] of choices that run, and of bitnet_eval */
    struct bn_state *seq_states;  /* [max_seqs] of hybrid models */
    bool *taken;                  /* [max_seqs] by a sequence */
    struct bn_batch_token *batch; /* [max_batch] */
    uint32_t *behind;             /* [max_batch] with a layer that drafts: as bn_forward_draft */
    uint32_t max_rows;            /* logits that tokens of one step are drawn from */
    uint32_t score_rows;          /* further ones, for prompts that are scored */
    bool scores;                  /* there is room for these */
    float *logits;                /* [max_rows, then score_rows][n_vocab] */
    size_t logits_bytes;
    struct bn_sampler_room sampler_room;
    uint64_t *mask; /* [n_vocab / 64, rounded up] tokens a grammar allows */
    struct bn_grammars grammars;

    struct bn_request *requests; /* that have choices to come, in order of arrival */
    struct bn_request *ended;    /* kept while events borrow their text */
    uint32_t n_choices;          /* to come */
    bool any_cancelled;
    uint64_t next_deadline_ns; /* not after the first one; UINT64_MAX: there is none */
    uint64_t next_id;
    /* of the last step, given out from next_event on; room for all that one step can make */
    bitnet_event *events;
    size_t n_events, next_event, events_room;

    uint64_t now_ns;                   /* when the step began */
    double step_ns[BN_STEP_SIZES + 1]; /* running means of steps that only decode, by tokens */
    double draft_ns;                   /* that of a draft by the layer that drafts */
    uint64_t n_prompt_tokens, n_generated, n_drafted, n_accepted;
    uint64_t total_ns, forward_ns, weight_bytes; /* of all steps */
    struct bn_health health;
    struct bn_mix mix; /* of requests that name no adapters, and of all else that is computed */
    struct bn_mixes *mixes; /* that have been seen (adapters.c) */
};

/* A forward pass that is no step of requests, of n tokens of e->batch. False: its logits are not
 * finite. (engine.c) */
bool bn_engine_forward(struct bitnet_engine *e, size_t n, float *logits);

/* Rows of logits that a pass of scoring may have. */
static inline size_t bn_score_rows(size_t n_vocab)
{
    size_t fit = BN_SCORE_BYTES / sizeof(float) / n_vocab;
    return bn_min_size(BN_SCORE_ROWS, bn_max_size(1, fit));
}

/* For what needs the whole model in one process; `what` happens. */
static inline bitnet_status bn_engine_alone(const struct bitnet_engine *e, const char *what,
                                            bitnet_error *err)
{
    if (!e->m->dist) return BITNET_OK;
    return bn_fail(err, BITNET_E_UNSUPPORTED,
                   "%s only where one process computes the model, not several ranks", what);
}

/* Pages of the KV cache that sequences of bitnet_eval hold. */
uint32_t bn_engine_eval_pages(const struct bitnet_engine *e);

/* ---- pages.c ---- */

/* Room for n_tokens of a sequence, at the expense of the prefix cache. False: there is not enough,
 * nothing has changed. */
bool bn_engine_reserve(struct bitnet_engine *e, struct bn_kv_seq *s, uint32_t n_tokens);
bitnet_status bn_engine_open_sched(struct bitnet_engine *e, uint64_t step_target_ns,
                                   bitnet_error *err);
/* What a sequence has stored becomes known to the prefix cache. */
void bn_engine_remember(struct bitnet_engine *e, struct bn_sequence *seq, bool ended);
/* It gives up its sequence, if it has one. */
void bn_engine_give_up(struct bitnet_engine *e, struct bn_sequence *seq);

/* ---- adapters.c ---- */

struct bn_mixes;
/* The adapters of a request, with their key; the mix does not hold them yet. */
bitnet_status bn_engine_choose_mix(struct bitnet_engine *e, struct bn_mix *out,
                                   const bitnet_request *r, bitnet_error *err);
/* Of tokens that belong to no request; NULL: they have none. */
static inline const struct bn_mix *bn_engine_mix(const struct bitnet_engine *e)
{
    return e->mix.n ? &e->mix : NULL;
}

/* ---- identity.c ---- */

/* The model, and how this engine computes and keeps what it has computed. */
bitnet_status bn_cache_identity(uint64_t *sum, const struct bitnet_engine *e, bitnet_error *err);
uint64_t bn_mix_identity(const struct bn_mix *mix);

/* ---- mtp.c ---- */

/* After a step's tokens were taken: the layer that drafts reads them, and drafts what comes next. */
void bn_engine_draft(struct bitnet_engine *e);

/* ---- saves.c ---- */

/* Is the state behind n tokens (whole pages) of a text worth a slot at others' expense? t: NULL if there
 * is none. */
bool bn_save_lasts(const struct bn_tokenizer *t, const int32_t *tokens, uint32_t n_prompt,
                   uint32_t n);
/* Finds slots for states that the batch, which is complete, will pass. */
void bn_engine_plan_saves(struct bitnet_engine *e);
/* After the pass: a sequence's slots are kept with the nodes of its text, which are there; or given
 * back. */
void bn_engine_finish_saves(struct bitnet_engine *e, struct bn_sequence *seq, bool keep);
/* The state of what the sequence has taken over from the prefix cache. */
void bn_engine_restore(struct bitnet_engine *e, struct bn_sequence *seq);
void bn_engine_unpin_prompt(struct bitnet_engine *e, struct bn_request *q);

/* ---- profile.c ---- */

/* "off" (NULL), "on", "trace": after the pool, before those that work in it. */
bitnet_status bn_engine_open_profile(struct bitnet_engine *e, const char *mode, bitnet_error *err);

/* ---- submit.c ---- */

bitnet_status bn_engine_check_tokens(const struct bitnet_engine *e, const int32_t *tokens, size_t n,
                                     bitnet_error *err);
/* The next event, about this sequence; there is always room. */
bitnet_event *bn_engine_event(struct bitnet_engine *e, const struct bn_sequence *seq);
/* A sequence is over: its last event, and its pages go. error: with BITNET_FINISH_ERROR. */
void bn_engine_end_sequence(struct bitnet_engine *e, struct bn_sequence *seq, bitnet_finish why,
                            const char *error);
/* The first choice has read the prompt: the others may begin. */
void bn_engine_release_held(struct bitnet_engine *e, struct bn_request *q);
/* Cancelled and expired requests leave. */
void bn_engine_leave(struct bitnet_engine *e);
void bn_engine_free_ended(struct bitnet_engine *e);
void bn_engine_free_requests(struct bitnet_engine *e); /* all of them */

#endif
