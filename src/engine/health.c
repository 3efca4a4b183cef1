/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/health.h"

#include "base/det_math.h"
#include "engine/engine_impl.h"
#include "model/weights/scrub.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>

void bn_health_close(struct bn_health *h) { bn_scrub_close(h->scrub); }

/* ------------------------------------------------------------------ in passing */

/* Without a branch or an early end: a row is nearly always good, and so compilers vectorise it. */
static bool within(const float *x, size_t n, float least, float most)
{
    int ok = 1;
    for (size_t i = 0; i < n; i++) ok &= (x[i] >= least) & (x[i] <= most);
    return ok;
}

bool bn_health_logits(struct bn_health *h, const float *logits, size_t n, size_t n_vocab,
                      bool screened)
{
    uint64_t bad = 0;
    for (size_t r = 0; r < n; r++)
        bad += !within(logits + r * n_vocab, n_vocab, screened ? -INFINITY : -FLT_MAX, FLT_MAX);
    h->logit_rows += n;
    h->nonfinite_rows += bad;
    return bad == 0;
}

void bn_health_sequence(struct bn_health *h, const struct bn_repetition *r)
{
    if (!r->n_grams) return;
    h->n_ended++;
    double weight =
        1.0 / (double)(h->n_ended < BN_HEALTH_SEQUENCES ? h->n_ended : BN_HEALTH_SEQUENCES);
    h->repetition += (bn_repetition_score(r) - h->repetition) * weight;
}

void bn_engine_health(const struct bitnet_engine *e, bitnet_health *out)
{
    const struct bn_health *h = &e->health;
    const struct bn_activity *a = bn_forward_activity(e->forward);
    uint32_t cached = e->prefix ? bn_prefix_evictable(e->prefix) : 0;
    out->choices = h->n_ended;
    out->repetition = h->repetition;
    out->logit_rows = h->logit_rows;
    out->nonfinite_rows = h->nonfinite_rows;
    out->ffn_samples = a->samples;
    for (uint32_t i = 0; i < a->n_layer; i++) {
        out->gates_open += bn_activity_gates(a, i) / a->n_layer;
        out->inputs_zero += bn_activity_zeros(a, i) / a->n_layer;
    }
    out->kv_used = (double)(e->kv.n_pages - e->kv.n_free - cached) / e->kv.n_pages;
    out->kv_cached = (double)cached / e->kv.n_pages;
    if (!h->scrub) return;
    bitnet_scrub s;
    bn_scrub_info(h->scrub, &s);
    out->scrub_passes = s.passes;
    out->scrub_mismatches = s.mismatches;
}

/* ------------------------------------------------------------------ the KV cache */

double bn_code_entropy(const struct bn_code_counts *c)
{
    double n = 0, bits = 0, ln2 = bn_det_log(2.0);
    for (size_t i = 0; i < BN_ARRAY_LEN(c->code); i++) n += (double)c->code[i];
    for (size_t i = 0; i < BN_ARRAY_LEN(c->code); i++) {
        double p = (double)c->code[i] / n;
        if (c->code[i]) bits -= p * bn_det_log(p) / ln2;
    }
    return bits;
}

/* A walk over the pages of one layer. */
struct look {
    const struct bitnet_engine *e;
    uint32_t layer, every, seen;
    float *rows; /* [BN_ATTN_BLOCK][wide] */
    uint64_t n_rows;
    struct bn_code_counts keys, values;
};

/* Integers have a scale of their own for every group, so nothing is beyond them. */
static float largest(bitnet_kv_type t)
{
    return t == BITNET_KV_F16        ? 65504.0f
           : t == BITNET_KV_FP8_E4M3 ? 448.0f
           : t == BITNET_KV_FP8_E5M2 ? 57344.0f
                                     : FLT_MAX;
}

static void count_row(struct look *l, struct bn_code_counts *c, const float *x, size_t dim,
                      float limit)
{
    int8_t codes[BN_MAX_HEAD_DIM + BN_K_ALIGN];
    int32_t sum;
    bool finite = true;
    for (size_t i = 0; i < dim; i++) {
        float a = fabsf(x[i]);
        finite &= a <= FLT_MAX;
        c->beyond += !(a < limit);
        if (a > c->max_abs) c->max_abs = a;
    }
    c->values += dim;
    if (!finite) return;
    l->e->m->kernels.quant_i8(codes, &sum, x, dim);
    for (size_t i = 0; i < dim; i++) c->code[codes[i] + 128]++;
}

/* The first n tokens of a page, one head of it; heads take turns. */
static void look_at_page(struct look *l, uint32_t page, uint32_t n)
{
    const struct bn_kv *kv = &l->e->kv;
    uint32_t turn = l->seen++;
    if (turn % l->every) return;
    uint32_t head = turn / l->every % kv->n_head_kv;
    for (int v = 0; v < 2; v++) {
        const struct bn_kv_side *side = bn_kv_side(kv, l->layer, v);
        bn_kv_get(l->rows, side, &l->e->m->kernels, bn_kv_head(kv, l->layer, page, head, v), n,
                  NULL);
        for (uint32_t i = 0; i < n; i++)
            count_row(l, v ? &l->values : &l->keys, l->rows + i * side->wide, side->dim,
                      largest(side->type));
    }
    l->n_rows += n;
}

/* Pages of a sequence that the prefix cache does not know. One that is not full is there only with
 * types that are stored token by token. */
static void look_at_seq(struct look *l, const struct bn_kv_seq *s)
{
    for (uint32_t i = 0, left = s->n_tokens; left > 0; i++) {
        uint32_t n = (uint32_t)bn_min_size(left, BN_ATTN_BLOCK);
        bool known = l->e->prefix && bn_prefix_page_tokens(l->e->prefix, s->pages[i]);
        bool there = n == BN_ATTN_BLOCK || !bn_kv_layer_has_blocks(&l->e->kv, l->layer);
        if (!known && there) look_at_page(l, s->pages[i], n);
        left -= n;
    }
}

static void look_at_all(struct look *l)
{
    const struct bitnet_engine *e = l->e;
    for (uint32_t p = 0; e->prefix && p < e->kv.n_pages; p++) {
        uint32_t n = bn_prefix_page_tokens(e->prefix, p);
        if (n) look_at_page(l, p, n);
    }
    for (uint32_t i = 0; i < e->max_seqs; i++) look_at_seq(l, &e->seqs[i]);
}

static bitnet_kv_side_health summary(const struct bn_code_counts *c)
{
    uint64_t n = c->values ? c->values : 1;
    return (bitnet_kv_side_health){.entropy_bits = bn_code_entropy(c),
                                   .peaks = (double)(c->code[1] + c->code[255]) / (double)n,
                                   .saturated = (double)c->beyond / (double)n,
                                   .max_abs = (double)c->max_abs};
}

bitnet_status bn_engine_kv_health(const struct bitnet_engine *e, uint32_t layer,
                                  bitnet_kv_health *out, bitnet_error *err)
{
    if (layer >= e->m->config.n_layer)
        return bn_fail(err, BITNET_E_ARG, "layer %u; this model has 0 to %u", layer,
                       e->m->config.n_layer - 1);
    size_t wide = e->kv.wide;
    struct look l = {.e = e, .layer = bn_config_attn_before(&e->m->config, layer)};
    l.every = (e->kv.n_pages - e->kv.n_free) / BN_HEALTH_PAGES;
    if (!l.every) l.every = 1;
    l.rows = bn_calloc(BN_ATTN_BLOCK * wide, sizeof *l.rows);
    if (!l.rows)
        return bn_fail_nomem(err, BN_ATTN_BLOCK * wide * sizeof *l.rows, "rows of the KV cache");
    if (!bn_config_is_delta(&e->m->config, layer)) look_at_all(&l);
    free(l.rows);
    out->rows = l.n_rows;
    out->keys = summary(&l.keys);
    out->values = summary(&l.values);
    return BITNET_OK;
}

/* ------------------------------------------------------------------ the weights */

bitnet_status bn_engine_scrub(struct bitnet_engine *e, uint64_t max_bytes, bitnet_scrub *out,
                              bitnet_error *err)
{
    if (!e->health.scrub) BN_TRY(bn_scrub_open(&e->health.scrub, e->m, err));
    bn_scrub_advance(e->health.scrub, max_bytes, e->warm || bn_model_keeps_pages(e->m));
    bn_scrub_info(e->health.scrub, out);
    return BITNET_OK;
}
