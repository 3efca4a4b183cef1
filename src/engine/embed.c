/* SPDX-License-Identifier: Apache-2.0
 *
 * Embeddings. Token lists follow each other in ragged batches; only the last one of a batch may be cut,
 * and goes on in the next. Each takes a sequence that nobody uses and gives it back; one more is there
 * for the time of the call, for when there are no others. The hidden states of a list come in the order
 * of their positions whatever the batches were, and one sum takes them in that order: so do the same
 * bits.
 */
#include "engine/engine_impl.h"

#include "base/switch.h"
#include "base/os/mem.h"
#include <math.h>
#include <stdlib.h>

struct embedding {
    struct bitnet_engine *e;
    const bitnet_embed_input *inputs;
    size_t n_inputs;
    const bitnet_embed_options *o;
    enum bn_switch normalize;
    float *out; /* where the next vector goes */
    size_t n_embd;
    double *sum;   /* [n_embd] of the list in progress */
    float *hidden; /* [n_embd] */
    /* lists that have a sequence, from the first unfinished one on */
    size_t first, n_open;
    size_t done;                 /* tokens of the first one */
    struct bn_kv_seq **seq;      /* [max_seqs + 1] */
    struct bn_kv_seq spare;      /* of this call */
    struct bn_state spare_state; /* of models that have states */
};

static bitnet_status check(const struct embedding *m, bitnet_error *err)
{
    for (size_t i = 0; i < m->n_inputs; i++) {
        if (!m->inputs[i].n_tokens) return bn_fail(err, BITNET_E_ARG, "input %zu has no tokens", i);
        if (m->inputs[i].n_tokens > m->e->ctx)
            return bn_fail(err, BITNET_E_LIMIT,
                           "input %zu has %zu tokens and does not fit a context of %u", i,
                           m->inputs[i].n_tokens, m->e->ctx);
        BN_TRY(bn_engine_check_tokens(m->e, m->inputs[i].tokens, m->inputs[i].n_tokens, err));
    }
    return BITNET_OK;
}

/* A sequence that nobody uses, or NULL. */
static struct bn_kv_seq *free_seq(struct embedding *m)
{
    struct bitnet_engine *e = m->e;
    for (uint32_t i = 0; i < e->max_seqs; i++)
        if (!e->taken[i] && !e->seqs[i].n_pages) return &e->seqs[i];
    return m->spare.n_pages ? NULL : &m->spare;
}

/* The next list gets a sequence with pages for all its tokens. False: not possible now. */
static bool open_next(struct embedding *m)
{
    struct bn_kv_seq *s = free_seq(m);
    uint32_t n = (uint32_t)m->inputs[m->first + m->n_open].n_tokens;
    if (!s || !bn_engine_reserve(m->e, s, n)) return false;
    m->seq[m->n_open++] = s;
    return true;
}

static void close_first(struct embedding *m)
{
    bn_kv_release(&m->e->kv, m->seq[0]);
    m->n_open--;
    memmove(m->seq, m->seq + 1, m->n_open * sizeof *m->seq);
    m->first++;
    m->done = 0;
}

/* Fills a batch, list after list. */
static size_t make_batch(struct embedding *m)
{
    size_t n = 0, from = m->done;
    for (size_t k = 0; m->first + k < m->n_inputs && n < m->e->max_batch; k++, from = 0) {
        const bitnet_embed_input *in = &m->inputs[m->first + k];
        if (k == m->n_open && !open_next(m)) break;
        for (size_t i = from; i < in->n_tokens && n < m->e->max_batch; i++)
            m->e->batch[n++] = (struct bn_batch_token){.token = in->tokens[i],
                                                       .pos = (uint32_t)i,
                                                       .seq = m->seq[k],
                                                       .mix = bn_engine_mix(m->e)};
    }
    return n;
}

/* A vector is complete: the mean, or one state, and its length. */
static bitnet_status write_out(struct embedding *m, bitnet_error *err)
{
    size_t n = m->o->pooling == BITNET_POOL_MEAN ? m->inputs[m->first].n_tokens : 1;
    double squares = 0, unit = 1;
    for (size_t i = 0; i < m->n_embd; i++) {
        m->sum[i] /= (double)n;
        squares += m->sum[i] * m->sum[i];
    }
    if (!isfinite(squares))
        return bn_fail(err, BITNET_E_INTERNAL,
                       "the hidden states of input %zu are not finite: the weights are damaged",
                       m->first);
    if (m->normalize != BN_OFF && squares > 0) unit = sqrt(squares);
    for (size_t i = 0; i < m->n_embd; i++) {
        m->out[i] = (float)(m->sum[i] / unit);
        m->sum[i] = 0;
    }
    m->out += m->n_embd;
    return BITNET_OK;
}

/* The hidden states of a batch go to their lists. */
static bitnet_status take_batch(struct embedding *m, size_t n, bitnet_error *err)
{
    bool mean = m->o->pooling == BITNET_POOL_MEAN, every = m->o->pooling == BITNET_POOL_NONE;
    for (size_t t = 0; t < n; t++) {
        size_t n_tokens = m->inputs[m->first].n_tokens;
        m->seq[0]->n_tokens = (uint32_t)++m->done;
        bool last = m->done == n_tokens;
        if (!mean && !every && !last) continue;
        bn_forward_hidden(m->e->forward, t, m->hidden);
        for (size_t i = 0; i < m->n_embd; i++) m->sum[i] += (double)m->hidden[i];
        if (last || every) BN_TRY(write_out(m, err));
        if (last) close_first(m);
    }
    return BITNET_OK;
}

static bitnet_status run(struct embedding *m, bitnet_error *err)
{
    struct bitnet_engine *e = m->e;
    BN_TRY(check(m, err));
    while (m->first < m->n_inputs) {
        size_t n = make_batch(m);
        if (!n)
            return bn_fail(err, BITNET_E_STATE,
                           "input %zu of %zu tokens finds no room: %u choices run, and sequences "
                           "of bitnet_eval "
                           "hold %u of %u pages of the KV cache; bitnet_eval_reset frees them",
                           m->first, m->inputs[m->first].n_tokens,
                           bn_sched_stats(e->sched)->n_running, bn_engine_eval_pages(e),
                           e->kv.n_pages);
        bn_engine_forward(e, n, NULL);
        BN_TRY(bn_dist_check(e->m->dist, err));
        BN_TRY(take_batch(m, n, err));
    }
    return BITNET_OK;
}

bitnet_status bn_engine_embed(struct bitnet_engine *e, const bitnet_embed_input *inputs, size_t n,
                              const bitnet_embed_options *o, float *out, bitnet_error *err)
{
    BN_TRY(bn_model_check(e->m, err));
    struct embedding m = {
        .e = e, .inputs = inputs, .n_inputs = n, .o = o, .out = out, .n_embd = e->m->config.n_embd};
    BN_TRY(bn_switch_parse(&m.normalize, "normalize", o->normalize, err));
    m.sum = bn_calloc(m.n_embd, sizeof *m.sum);
    m.hidden = bn_calloc(m.n_embd, sizeof *m.hidden);
    m.seq = bn_calloc(e->max_seqs + 1, sizeof(struct bn_kv_seq *));
    bool spare = bn_kv_seq_open(&m.spare, &e->kv, e->ctx);
    m.spare.id = e->max_seqs;
    if (spare && e->states.n_layer) {
        m.spare_state.slot = e->states.n_slots;
        m.spare.state = &m.spare_state;
        spare = bn_states_lend(&e->states);
    }
    bitnet_status s = BITNET_OK;
    if (!m.sum || !m.hidden || !m.seq || !spare)
        s = bn_fail_nomem(err, m.n_embd * (sizeof *m.sum + sizeof *m.hidden), "an embedding");
    else s = run(&m, err);
    while (m.n_open) close_first(&m);
    bn_kv_seq_close(&m.spare);
    bn_states_take_back(&e->states);
    free(m.sum);
    free(m.hidden);
    free(m.seq);
    return s;
}
