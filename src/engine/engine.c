/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's life, what it tells about itself, and bitnet_eval. Requests come and go in submit.c
 * and are computed in step.c.
 */
#include "engine/engine_impl.h"

#include "base/switch.h"
#include "base/machine/cgroup.h"
#include "base/os/mem.h"
#include "model/ranks.h"
#include <stdlib.h>

/* ------------------------------------------------------------------ options */

static bitnet_status choose_plan(struct bitnet_engine *e, const char *plan, bitnet_error *err)
{
    e->savings = e->m->savings;
    if (plan) {
        BN_TRY(bn_savings_open(&e->own_savings, e->m, plan, err));
        BN_TRY(bn_savings_check(e->own_savings, e->m, err));
        e->savings = e->own_savings;
    }
    if (e->savings) bn_savings_describe(e->savings_text, sizeof e->savings_text, e->savings, e->m);
    return BITNET_OK;
}

static bitnet_status choose_head(struct bitnet_engine *e, const char *name, bitnet_error *err)
{
    const struct bn_model *m = e->m;
    BN_TRY(bn_head_mode_parse(&e->head, name, err));
    e->head = bn_savings_head(e->savings, e->head);
    if (e->head == BN_HEAD_SCREENED && !m->screen.coarse.data)
        return bn_fail(err, BITNET_E_STATE,
                       "a screened head needs a model opened with head 'screened'");
    if (e->head == BN_HEAD_INT8 && !m->head_int8.data)
        return bn_fail(err, BITNET_E_STATE, "an int8 head needs a model opened with head 'int8'");
    if (e->head == BN_HEAD_AUTO)
        e->head = m->screen.coarse.data && m->config.n_vocab >= BN_HEAD_AUTO_ROWS ? BN_HEAD_SCREENED
                                                                                  : BN_HEAD_EXACT;
    return BITNET_OK;
}

/* Drafts need rows of logits. Many sequences have enough to compute anyway, so that all of them
 * together get few. */
static bitnet_status choose_draft(struct bitnet_engine *e, const bitnet_engine_options *o,
                                  bitnet_error *err)
{
    enum bn_switch c;
    BN_TRY(bn_switch_parse(&c, "draft", o->draft, err));
    if (o->draft_tokens > BN_DRAFT_MAX)
        return bn_fail(err, BITNET_E_LIMIT, "%u drafts a step; at most %d are possible",
                       o->draft_tokens, BN_DRAFT_MAX);
    if (c != BN_OFF) e->draft = o->draft_tokens ? o->draft_tokens : BN_DEFAULT_DRAFT;
    e->draft_rows = (uint32_t)bn_min_size((size_t)e->max_seqs * e->draft, BN_MAX_DRAFT_ROWS);
    e->always_draft = c == BN_ON;
    e->max_rows = (uint32_t)bn_min_size(e->max_batch, (size_t)e->max_seqs + e->draft_rows);
    /* one for each, so that nobody waits */
    e->score_rows = (uint32_t)bn_max_size(bn_score_rows(e->m->config.n_vocab), e->max_seqs);
    return BITNET_OK;
}

static bitnet_status choose_sizes(struct bitnet_engine *e, const bitnet_engine_options *o,
                                  bitnet_error *err)
{
    const struct bn_config *c = &e->m->config;
    uint32_t batch = o->max_batch_tokens ? o->max_batch_tokens : BN_DEFAULT_BATCH_TOKENS;
    e->ctx = o->ctx_tokens ? o->ctx_tokens : (uint32_t)bn_min_size(c->n_ctx, BN_DEFAULT_CTX);
    e->max_seqs = o->max_seqs ? o->max_seqs : 1;
    if (e->ctx > BN_MAX_CTX)
        return bn_fail(err, BITNET_E_LIMIT, "a context of %u tokens; at most %d is possible",
                       e->ctx, BN_MAX_CTX);
    if (e->ctx > c->n_ctx)
        return bn_fail(err, BITNET_E_LIMIT,
                       "a context of %u tokens was asked for; this model knows %u", e->ctx,
                       c->n_ctx);
    if (e->max_seqs > BN_MAX_SEQS)
        return bn_fail(err, BITNET_E_LIMIT, "%u sequences; at most %d are possible", e->max_seqs,
                       BN_MAX_SEQS);
    if (batch > BN_MAX_BATCH_TOKENS)
        return bn_fail(err, BITNET_E_LIMIT, "batches of %u tokens; at most %d is possible", batch,
                       BN_MAX_BATCH_TOKENS);
    if (o->kv_tokens > BN_MAX_KV_TOKENS)
        return bn_fail(err, BITNET_E_LIMIT, "a KV cache of %u tokens; at most %d is possible",
                       o->kv_tokens, BN_MAX_KV_TOKENS);
    /* every running sequence must find room for its next token */
    e->max_batch =
        (uint32_t)bn_max_size(bn_min_size(batch, (size_t)e->max_seqs * e->ctx), e->max_seqs);
    return BITNET_OK;
}

/* ------------------------------------------------------------------ life */

static bitnet_status open_pool(struct bitnet_engine *e, const bitnet_engine_options *o,
                               bitnet_error *err)
{
    enum bn_switch pin; /* auto is off: docs/tune/tuning.md says why */
    BN_TRY(bn_switch_parse(&pin, "pin", o->pin, err));
    BN_TRY(bn_pool_open(&e->pool, o->threads ? o->threads : bn_numa_threads(e->m->numa), err));
    if (e->m->numa) bn_pool_place(e->pool, e->m->numa);
    if (pin == BN_ON) e->n_pinned = bn_pool_pin(e->pool);
    return bn_engine_open_profile(e, o->profile, err);
}

/* The option counts more than the plan; what neither says is f32. */
static bitnet_status choose_state_types(struct bn_states_types *out, const struct bitnet_engine *e,
                                        const char *name, bitnet_error *err)
{
    const struct bn_config *c = &e->m->config;
    bool all = name && strcmp(name, "bf16") == 0, planned = !name && e->savings;
    uint32_t n = 0;
    *out = (struct bn_states_types){0};
    for (uint32_t i = 0; i < c->n_layer; i++) {
        if (!bn_config_is_delta(c, i)) continue;
        if (all || (planned && e->savings->layers[i].state_bf16)) bn_states_set_bf16(out, n);
        n++;
    }
    if (all || !name || strcmp(name, "f32") == 0) return BITNET_OK;
    return bn_fail(err, BITNET_E_ARG, "states of type '%s' are unknown; f32 and bf16 exist", name);
}

int64_t bn_engine_state_cache(const bitnet_engine_options *o)
{
    if (o->state_cache_bytes) return o->state_cache_bytes;
    return (int64_t)bn_max_size(bn_memory_available(&bn_sysfiles_here) / BN_STATE_CACHE_SHARE, 1);
}

/* Slots for snapshots; more than pages have no node to belong to. Of the whole model's states where
 * there are ranks: all have as many. */
static uint32_t choose_snapshots(const struct bitnet_engine *e, const bitnet_engine_options *o,
                                 uint32_t n_pages, const struct bn_states_types *types)
{
    uint64_t slot_bytes = bn_state_slot_bytes(&e->m->config, types);
    if (!slot_bytes || o->state_cache_bytes == BITNET_OFF) return 0;
    uint64_t bytes = (uint64_t)bn_engine_state_cache(o);
    return (uint32_t)bn_min_size(bytes / slot_bytes, bn_min_size(n_pages, BN_MAX_SNAPSHOTS));
}

static bitnet_status fill_cache(struct bitnet_engine *e, bool random, bitnet_error *err)
{
    e->random_kv = random;
    if (!random) return BITNET_OK;
    if (e->m->dist)
        return bn_fail(err, BITNET_E_ARG, "random keys are not for models split over ranks");
    if (bn_state_slot_bytes(&e->m->config, NULL))
        return bn_fail(err, BITNET_E_ARG, "random keys are not for models that also have states");
    if (!bn_kv_fill(&e->kv, &e->m->kernels, 1))
        return bn_fail(err, BITNET_E_NOMEM, "out of memory while the KV cache is filled");
    return BITNET_OK;
}

/* Options count more than the plan. */
static struct bn_kv_types choose_kv_types(const struct bitnet_engine *e,
                                          const bitnet_engine_options *o, uint32_t layer)
{
    bool planned = e->savings && layer < e->savings->n_layer;
    bitnet_kv_type keys = planned ? e->savings->layers[layer].keys : BITNET_KV_AUTO;
    bitnet_kv_type values = planned ? e->savings->layers[layer].values : BITNET_KV_AUTO;
    if (o->kv_type) keys = values = o->kv_type;
    if (o->kv_type_v) values = o->kv_type_v;
    bitnet_kv_type other = o->kv_type_otherwise ? o->kv_type_otherwise : BITNET_KV_F16;
    return (struct bn_kv_types){keys ? keys : other, values ? values : other};
}

static bitnet_status open_kv(struct bitnet_engine *e, const bitnet_engine_options *o,
                             uint32_t n_pages, bitnet_error *err)
{
    const struct bn_config *c = &e->m->config;
    uint32_t n = 0;
    struct bn_kv_types *types = bn_calloc_now(bn_config_layers(c), sizeof *types);
    if (!types) return bn_fail_nomem(err, bn_config_layers(c) * sizeof *types, "the KV cache");
    for (uint32_t i = 0; i < bn_config_layers(c); i++)
        if (!bn_config_is_delta(c, i)) types[n++] = choose_kv_types(e, o, i);
    const struct bn_range heads = bn_parts_heads(e->m);
    struct bn_config here =
        *c; /* a rank keeps its own heads; one without any, one that is not used */
    here.n_head_kv = (uint32_t)bn_max_size(heads.end - heads.begin, 1);
    bitnet_status s = bn_kv_open(&e->kv, &here, types, n_pages, &e->backing, err);
    free(types);
    return s;
}

static bitnet_status open_cache(struct bitnet_engine *e, const bitnet_engine_options *o,
                                bitnet_error *err)
{
    enum bn_switch prefix;
    struct bn_states_types types;
    uint32_t n_pages =
        o->kv_tokens ? bn_kv_pages_for(o->kv_tokens) : e->max_seqs * bn_kv_pages_for(e->ctx);
    BN_TRY(bn_switch_parse(&prefix, "prefix_cache", o->prefix_cache, err));
    BN_TRY(open_kv(e, o, n_pages, err));
    bn_place_shared(e->m, e->kv.data, e->kv.bytes);
    BN_TRY(fill_cache(e, o->random_kv != 0, err));
    BN_TRY(choose_state_types(&types, e, o->state_type, err));
    uint32_t n_snapshots = prefix == BN_OFF ? 0 : choose_snapshots(e, o, n_pages, &types);
    struct bn_config here = e->m->config;
    here.delta = bn_parts_delta(e->m);
    BN_TRY(bn_states_open(&e->states, &here, &types, e->max_seqs + n_snapshots, e->draft,
                          &e->backing, err));
    bool has_states = e->states.n_layer > 0;
    if (has_states) bn_place_shared(e->m, e->states.data, e->states.bytes);
    if (prefix == BN_OFF || (has_states && !n_snapshots)) return BITNET_OK;
    return bn_prefix_open(&e->prefix, &e->kv, has_states || bn_kv_has_blocks(&e->kv), n_snapshots,
                          err);
}

/* Ranks that follow have one more sequence than rank 0 hands out: that of an embedding (embed.c). */
static uint32_t n_seqs_of(const struct bitnet_engine *e)
{
    return e->max_seqs + (bn_dist_rank(e->m->dist) ? 1 : 0);
}

static bitnet_status open_scratch(struct bitnet_engine *e, bitnet_error *err)
{
    size_t n_vocab = e->m->config.n_vocab;
    e->logits_bytes = e->max_rows * n_vocab * sizeof *e->logits;
    BN_TRY(bn_block_take((void **)&e->logits, &e->logits_bytes, &e->backing, "logits", err));
    uint32_t n_seqs = n_seqs_of(e);
    e->seqs = bn_calloc_now(n_seqs, sizeof *e->seqs);
    e->taken = bn_calloc_now(e->max_seqs, sizeof *e->taken);
    e->batch = bn_calloc_now(e->max_batch, sizeof *e->batch);
    e->mask = bn_calloc_now(bn_div_up(n_vocab, 64), sizeof *e->mask);
    bool ok = e->seqs && e->taken && e->batch && e->mask &&
              bn_sampler_room_open(&e->sampler_room, (uint32_t)n_vocab);
    for (uint32_t i = 0; ok && i < n_seqs; i++)
        if ((ok = bn_kv_seq_open(&e->seqs[i], &e->kv, e->ctx))) e->seqs[i].id = i;
    if (ok && e->m->config.n_mtp && e->draft) {
        e->behind = bn_calloc_now(e->max_batch, sizeof *e->behind);
        ok = e->behind != NULL;
    }
    if (ok && e->states.n_layer) {
        e->seq_states = bn_calloc_now(n_seqs, sizeof *e->seq_states);
        ok = e->seq_states && (n_seqs == e->max_seqs || bn_states_lend(&e->states));
    }
    for (uint32_t i = 0; ok && e->seq_states && i < n_seqs; i++) {
        e->seqs[i].state = &e->seq_states[i];
        ok = bn_state_open(&e->seq_states[i], &e->states, i); /* rank 0 says the slot */
    }
    return ok ? BITNET_OK : bn_fail_nomem(err, e->max_batch * sizeof *e->batch, "the engine");
}

static bitnet_status open_parts(struct bitnet_engine *e, const bitnet_engine_options *o,
                                bitnet_error *err)
{
    enum bn_ffn_mode ffn;
    BN_TRY(bn_ffn_mode_parse(&ffn, o->ffn, err));
    BN_TRY(choose_plan(e, o->plan, err));
    BN_TRY(choose_head(e, o->head, err));
    BN_TRY(choose_sizes(e, o, err));
    BN_TRY(choose_draft(e, o, err));
    BN_TRY(open_pool(e, o, err));
    BN_TRY(open_cache(e, o, err));
    struct bn_forward_options forward = {.kv = &e->kv,
                                         .states = &e->states,
                                         .n_ctx = e->ctx,
                                         .max_tokens = e->max_batch,
                                         .head = {.screened = e->head == BN_HEAD_SCREENED,
                                                  .int8 = e->head == BN_HEAD_INT8,
                                                  .max_screened = e->max_rows},
                                         .ffn = ffn,
                                         .savings = e->savings};
    BN_TRY(bn_forward_open(&e->forward, e->m, e->pool, &forward, &e->backing, err));
    BN_TRY(bn_engine_open_sched(e, o->itl_target_ms * UINT64_C(1000000), err));
    return open_scratch(e, err);
}

bitnet_status bn_engine_open(struct bitnet_engine **out, const struct bn_model *m,
                             const bitnet_engine_options *o, bitnet_error *err)
{
    *out = NULL;
    if (!m->layers)
        return bn_fail(err, BITNET_E_STATE, "the model was opened for its vocabulary only");
    struct bitnet_engine *e = bn_calloc(1, sizeof *e);
    if (!e) return bn_fail_nomem(err, sizeof *e, "the engine");
    e->m = m;
    e->backing = (struct bn_backing){.pages = m->backing.pages, .lock = m->backing.lock};
    e->next_id = 1;
    e->next_deadline_ns = UINT64_MAX;
#if BN_HAVE_TEXT
    bn_grammars_open(&e->grammars, m->tokenizer, m->config.n_vocab);
#endif
    bitnet_status s = open_parts(e, o, err);
    if (s != BITNET_OK) {
        bn_engine_close(e);
        return s;
    }
    *out = e;
    return BITNET_OK;
}

bitnet_status bn_engine_own(const struct bitnet_engine *e, bitnet_error *err)
{
    if (!bn_pool_is_foreign(e->pool)) return BITNET_OK;
    return bn_fail(
        err, BITNET_E_STATE,
        "the engine was opened before fork() and belongs to the parent process: open one "
        "in this process");
}

void bn_engine_close(struct bitnet_engine *e)
{
    if (!e) return;
    bn_engine_free_requests(e);
    bn_mix_let_go(&e->mix);
    free(e->mixes);
    for (uint32_t i = 0; e->seqs && i < n_seqs_of(e); i++) bn_kv_seq_close(&e->seqs[i]);
    for (uint32_t i = 0; e->seq_states && i < n_seqs_of(e); i++) bn_state_close(&e->seq_states[i]);
    free(e->seq_states);
#if BN_HAVE_TEXT
    bn_grammars_close(&e->grammars);
#endif
    free(e->seqs);
    free(e->taken);
    free(e->batch);
    free(e->behind);
    bn_block_free(e->logits, e->logits_bytes);
    free(e->mask);
    free(e->events);
    bn_sampler_room_close(&e->sampler_room);
    bn_health_close(&e->health);
    bn_sched_close(e->sched);
    bn_forward_close(e->forward);
    bn_prefix_close(e->prefix);
    bn_kv_close(&e->kv);
    bn_states_close(&e->states);
    bn_pool_close(e->pool);
    bn_prof_close(e->prof);
    free(e->own_savings);
    free(e);
}

/* ------------------------------------------------------------------ what it tells */

/* "mixed" where layers have more than one. */
static const char *kv_type_of_all(const struct bn_kv *kv, bool values)
{
    if (!kv->n_layer) return bn_kv_type_name(BITNET_KV_F16);
    bitnet_kv_type first = bn_kv_side(kv, 0, values)->type;
    for (uint32_t i = 1; i < kv->n_layer; i++)
        if (bn_kv_side(kv, i, values)->type != first) return "mixed";
    return bn_kv_type_name(first);
}

static void cache_info(const struct bitnet_engine *e, bitnet_engine_info *info)
{
    info->kv.type = kv_type_of_all(&e->kv, false);
    info->kv.type_v = kv_type_of_all(&e->kv, true);
    info->kv.bytes = e->kv.bytes + e->max_seqs * e->kv.tail_bytes;
    info->kv.page_tokens = BN_ATTN_BLOCK;
    info->kv.pages = e->kv.n_pages;
    info->kv.pages_free = e->kv.n_free;
    info->kv.seqs_full = e->kv.n_pages / bn_kv_pages_for(e->ctx);
    info->kv.token_bytes = bn_kv_token_bytes(&e->kv);
    info->states.seq_bytes = e->states.slot_bytes;
    uint64_t drafts = bn_state_draft_bytes(&e->m->config, e->states.max_drafts);
    info->states.bytes = e->states.bytes + e->max_seqs * drafts;
    if (!e->prefix) return;
    if (bn_prefix_snapshots(e->prefix)) {
        const struct bn_snapshots_stats *s = bn_snapshots_stats(bn_prefix_snapshots(e->prefix));
        info->states.snapshots = s->slots;
        info->states.snapshots_used = s->kept;
        info->states.saves = s->saved;
        info->states.restores = s->used;
        info->states.evictions = s->thinned;
    }
    const struct bn_prefix_stats *p = bn_prefix_stats(e->prefix);
    info->kv.pages_cached = bn_prefix_evictable(e->prefix);
    info->prefix.queries = p->queries;
    info->prefix.hits = p->hits;
    info->prefix.queried_tokens = p->queried_tokens;
    info->prefix.hit_tokens = p->hit_tokens;
}

static void request_info(const struct bitnet_engine *e, bitnet_engine_info *info)
{
    const struct bn_sched_stats *s = bn_sched_stats(e->sched);
    info->n_running = s->n_running;
    info->n_waiting = e->n_choices - s->n_running;
    info->work.steps = s->steps;
    info->work.preemptions = s->preemptions;
    info->work.yields = s->yields;
    info->work.recomputed_tokens = s->recomputed;
    info->work.prompt_tokens = e->n_prompt_tokens;
    info->work.generated_tokens = e->n_generated;
    info->draft.tokens = e->n_drafted;
    info->draft.accepted = e->n_accepted;
    info->work.step_ns = e->total_ns;
    info->work.forward_ns = e->forward_ns;
    info->work.weight_bytes = e->weight_bytes;
}

static void head_info(const struct bitnet_engine *e, bitnet_engine_info *info)
{
    const struct bn_head_stats *s = bn_head_stats(bn_forward_head(e->forward));
    _Static_assert(BN_ARRAY_LEN(info->head.histogram) == BN_HEAD_HISTOGRAM, "one histogram");
    info->head.type = bn_head_mode_name(e->head);
    info->head.full = s->full;
    info->head.screened = s->screened;
    info->head.fallbacks = s->fallbacks;
    info->head.refined = s->refined;
    info->head.survivors = s->survivors;
    info->head.survivors_max = s->survivors_max;
    memcpy(info->head.histogram, s->histogram, sizeof s->histogram);
}

void bn_engine_info(const struct bitnet_engine *e, bitnet_engine_info *info)
{
    info->threads = bn_pool_threads(e->pool);
    info->pinned = e->n_pinned;
    info->ctx_tokens = e->ctx;
    info->max_seqs = e->max_seqs;
    info->max_batch_tokens = e->max_batch;
    info->scratch_bytes = bn_forward_bytes(e->forward) + e->logits_bytes;
    info->hugepages = bn_backing_pages(&e->backing);
    info->locked_bytes = e->backing.locked_bytes;
    cache_info(e, info);
    request_info(e, info);
    head_info(e, info);
    bn_ffn_info(bn_forward_ffn(e->forward), info);
    if (e->m->dist) {
        const struct bn_dist_stats *s = bn_dist_stats(e->m->dist);
        info->ranks.n = bn_dist_ranks(e->m->dist);
        info->ranks.exchanges = s->exchanges;
        info->ranks.bytes = s->bytes;
        info->ranks.ns = s->ns;
    }
    info->plan.from = bn_savings_from(e->savings);
    info->plan.text = e->savings_text;
}

bool bn_engine_ffn_layer(const struct bitnet_engine *e, uint32_t layer, bitnet_ffn_layer *info)
{
    const struct bn_activity *a = bn_forward_activity(e->forward);
    if (!bn_ffn_layer_info(bn_forward_ffn(e->forward), layer, info)) return false;
    info->sampled = a->samples;
    info->sampled_gates = bn_activity_gates(a, layer);
    info->sampled_zeros = bn_activity_zeros(a, layer);
    return true;
}

uint32_t bn_engine_ctx(const struct bitnet_engine *e) { return e->ctx; }
const struct bn_model *bn_engine_model(const struct bitnet_engine *e) { return e->m; }

bitnet_status bn_engine_follow(struct bitnet_engine *e, const struct bn_buf *message,
                               bitnet_error *err)
{
    const struct bn_ranks_desk desk = {e->batch, e->max_batch, e->behind, e->seqs, n_seqs_of(e)};
    if (!bn_forward_follow(e->forward, message, &desk))
        return bn_fail(err, BITNET_E_INTERNAL, "rank 0 has sent a batch that is not understood");
    return bn_dist_check(e->m->dist, err);
}

bitnet_status bn_engine_watch(struct bitnet_engine *e, bitnet_error *err)
{
    BN_TRY(bn_engine_alone(e, "inputs of matrices are counted", err));
    return bn_forward_watch(e->forward, err);
}

const struct bn_census *bn_engine_census(const struct bitnet_engine *e)
{
    return bn_forward_census(e->forward);
}

/* ------------------------------------------------------------------ bitnet_eval */

bool bn_engine_forward(struct bitnet_engine *e, size_t n, float *logits)
{
    size_t rows = 0;
    for (size_t i = 0; logits && i < n; i++) rows += e->batch[i].want.kind != BN_WANT_NONE;
    bn_prof_begin(e->prof, n > 1 ? BN_PHASE_PREFILL : BN_PHASE_DECODE, BN_OP_PLAN, 0);
    bn_forward_run(e->forward, e->batch, n, logits);
    bn_prof_mark(e->prof, 0, BN_OP_CHECK);
    bool finite = bn_health_logits(&e->health, logits, rows, e->m->config.n_vocab, false);
    bn_prof_end(e->prof, n);
    return finite;
}

uint32_t bn_engine_eval_pages(const struct bitnet_engine *e)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->max_seqs; i++) n += e->taken[i] ? 0 : e->seqs[i].n_pages;
    return n;
}

static bitnet_status find_seq(struct bitnet_engine *e, uint32_t seq, struct bn_kv_seq **out,
                              bitnet_error *err)
{
    if (seq >= e->max_seqs)
        return bn_fail(err, BITNET_E_ARG, "sequence %u; this engine has 0 to %u", seq,
                       e->max_seqs - 1);
    if (e->taken[seq])
        return bn_fail(err, BITNET_E_STATE, "sequence %u is in use by a request", seq);
    *out = &e->seqs[seq];
    return BITNET_OK;
}

bitnet_status bn_engine_eval(struct bitnet_engine *e, uint32_t seq, const int32_t *tokens, size_t n,
                             bool last_only, float *logits, bitnet_error *err)
{
    struct bn_kv_seq *s = NULL;
    BN_TRY(find_seq(e, seq, &s, err));
    BN_TRY(bn_engine_check_tokens(e, tokens, n, err));
    BN_TRY(bn_model_check(e->m, err));
    if (n > e->ctx - s->n_tokens)
        return bn_fail(err, BITNET_E_LIMIT, "%zu tokens after %u do not fit a context of %u", n,
                       s->n_tokens, e->ctx);
    if (!bn_engine_reserve(e, s, s->n_tokens + (uint32_t)n))
        return bn_fail(err, BITNET_E_STATE,
                       "%zu tokens after %u do not fit the KV cache: %u of %u pages are free", n,
                       s->n_tokens, e->kv.n_free, e->kv.n_pages);
    size_t n_vocab = e->m->config.n_vocab;
    const struct bn_want all = {.kind = BN_WANT_ALL}, none = {.kind = BN_WANT_NONE};
    for (size_t done = 0; done < n;) {
        size_t some = bn_min_size(n - done, e->max_batch);
        for (size_t i = 0; i < some; i++)
            e->batch[i] = (struct bn_batch_token){
                .token = tokens[done + i],
                .pos = s->n_tokens + (uint32_t)i,
                .seq = s,
                .mix = bn_engine_mix(e),
                .want = logits && (!last_only || done + i + 1 == n) ? all : none};
        float *to = last_only || !logits ? logits : logits + done * n_vocab;
        bool finite = bn_engine_forward(e, some, to);
        s->n_tokens += (uint32_t)some; /* in any case: a state has gone on */
        done += some;
        BN_TRY(bn_dist_check(e->m->dist, err));
        if (!finite)
            return bn_fail(err, BITNET_E_INTERNAL,
                           "the logits at positions %u to %u are not finite: the weights are "
                           "damaged",
                           s->n_tokens - (uint32_t)some, s->n_tokens - 1);
    }
    return BITNET_OK;
}

bitnet_status bn_engine_eval_reset(struct bitnet_engine *e, uint32_t seq, bitnet_error *err)
{
    struct bn_kv_seq *s = NULL;
    BN_TRY(find_seq(e, seq, &s, err));
    bn_kv_release(&e->kv, s);
    return BITNET_OK;
}
