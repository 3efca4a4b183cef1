/* SPDX-License-Identifier: Apache-2.0 */
#include "forge/calibrate/lab.h"

#include "base/clock.h"
#include "base/os/mem.h"
#include <stdlib.h>

enum { ROOM_MAX = 64, DECODED = 24 };

/* ------------------------------------------------------------------ life */

bitnet_status bn_lab_open(struct bn_lab *lab, bitnet_error *err)
{
    lab->first = lab->sample / 4;
    lab->counted = lab->sample - 1 - lab->first;
    lab->n_vocab = lab->m->config.n_vocab;
    size_t row = lab->n_vocab * sizeof(float);
    lab->room = (size_t)lab->memory_bytes / (lab->counted * row);
    lab->room = bn_max_size(1, bn_min_size(lab->room, bn_min_size(ROOM_MAX, lab->n_samples)));
    BN_TRY(bn_pool_open(&lab->pool, lab->threads, err));
    size_t threads = bn_pool_threads(lab->pool), kept = lab->room * lab->counted;
    lab->base = bn_calloc(kept * lab->n_vocab, sizeof *lab->base);
    lab->base_lse = bn_calloc(kept, sizeof *lab->base_lse);
    lab->logits = bn_calloc(lab->counted * lab->n_vocab, sizeof *lab->logits);
    lab->scratch = bn_calloc(threads * 2 * lab->n_vocab, sizeof *lab->scratch);
    lab->rows = bn_calloc(lab->counted, sizeof *lab->rows);
    if (!lab->base || !lab->base_lse || !lab->logits || !lab->scratch || !lab->rows)
        return bn_fail_nomem(err, bn_lab_bytes(lab), "logits");
    return bn_lab_engine(lab, NULL, &lab->untouched, err);
}

void bn_lab_close(struct bn_lab *lab)
{
    bn_engine_close(lab->untouched);
    bn_pool_close(lab->pool);
    free(lab->base);
    free(lab->base_lse);
    free(lab->logits);
    free(lab->scratch);
    free(lab->rows);
}

uint64_t bn_lab_bytes(const struct bn_lab *lab)
{
    return (lab->room + 1) * lab->counted * lab->n_vocab * sizeof(float);
}

bitnet_status bn_lab_engine(struct bn_lab *lab, const struct bn_savings *s,
                            struct bitnet_engine **out, bitnet_error *err)
{
    char *text = NULL;
    struct bn_json *plan = s ? bn_savings_json(s, lab->m) : NULL;
    *out = NULL;
    if (s) text = bn_json_dump(plan, 0);
    bn_json_free(plan);
    if (s && !text) return bn_fail_nomem(err, 0, "a plan");
    bitnet_engine_options o = {.size = sizeof o,
                               .threads = lab->threads,
                               .ctx_tokens = (uint32_t)lab->sample,
                               .max_batch_tokens = (uint32_t)lab->sample,
                               .prefix_cache = "off",
                               .state_cache_bytes = BITNET_OFF,
                               .head = "plan",
                               .draft = "off",
                               .plan = text ? text : "off"};
    bitnet_status status = bn_engine_open(out, lab->m, &o, err);
    free(text);
    return status;
}

static bitnet_status went_on(struct bn_lab *lab, size_t n_samples, bitnet_error *err)
{
    lab->done += n_samples * lab->sample;
    if (lab->total < lab->done) lab->total = lab->done;
    if (!lab->progress || !lab->progress(lab->progress_user, "calibrate", lab->done, lab->total))
        return BITNET_OK;
    return bn_fail(err, BITNET_E_CANCELLED, "stopped on request after %llu of %llu tokens",
                   (unsigned long long)lab->done, (unsigned long long)lab->total);
}

/* ------------------------------------------------------------------ samples */

/* One sample: logits of the positions that count. NULL: none are wanted. */
static bitnet_status run_sample(struct bn_lab *lab, struct bitnet_engine *e, size_t sample,
                                float *logits, bitnet_error *err)
{
    const int32_t *ids = lab->tokens + sample * lab->sample;
    BN_TRY(bn_engine_eval_reset(e, 0, err));
    BN_TRY(bn_engine_eval(e, 0, ids, lab->first, false, NULL, err));
    BN_TRY(bn_engine_eval(e, 0, ids + lab->first, lab->counted, false, logits, err));
    return went_on(lab, 1, err);
}

struct sums {
    struct bn_lab *lab;
    size_t n; /* rows */
};

static void sum_rows(void *arg, uint32_t worker)
{
    const struct sums *job = arg;
    struct bn_lab *lab = job->lab;
    struct bn_range r = bn_pool_share(lab->pool, worker, job->n, 1);
    for (size_t i = r.begin; i < r.end; i++)
        lab->base_lse[i] = bn_log_sum_exp(lab->base + i * lab->n_vocab, lab->n_vocab);
}

bitnet_status bn_lab_base(struct bn_lab *lab, const size_t *samples, size_t n, bitnet_error *err)
{
    for (size_t i = 0; i < n; i++)
        BN_TRY(run_sample(lab, lab->untouched, samples[i],
                          lab->base + i * lab->counted * lab->n_vocab, err));
    struct sums job = {lab, n * lab->counted};
    bn_pool_run(lab->pool, sum_rows, &job);
    return BITNET_OK;
}

struct comparison {
    struct bn_lab *lab;
    const float *base;
    const double *lse;
    const int32_t *next;
    double least;
};

static void compare_rows(void *arg, uint32_t worker)
{
    const struct comparison *c = arg;
    struct bn_lab *lab = c->lab;
    size_t n = lab->n_vocab;
    double *base = lab->scratch + worker * 2 * n, *other = base + n;
    struct bn_range r = bn_pool_share(lab->pool, worker, lab->counted, 1);
    for (size_t i = r.begin; i < r.end; i++) {
        for (size_t k = 0; k < n; k++) base[k] = (double)c->base[i * n + k] - c->lse[i];
        bn_log_softmax(lab->logits + i * n, n, other);
        lab->rows[i] = bn_harm_compare(base, other, n, c->next[i], c->least);
    }
}

bitnet_status bn_lab_try(struct bn_lab *lab, struct bitnet_engine *e, const size_t *samples,
                         size_t n, struct bn_harm *harm, bitnet_error *err)
{
    for (size_t i = 0; i < n; i++) {
        BN_TRY(run_sample(lab, e, samples[i], lab->logits, err));
        struct comparison c = {
            .lab = lab,
            .base = lab->base + i * lab->counted * lab->n_vocab,
            .lse = lab->base_lse + i * lab->counted,
            .next = lab->tokens + samples[i] * lab->sample + lab->first + 1,
            .least = harm->least,
        };
        bn_pool_run(lab->pool, compare_rows, &c);
        for (size_t k = 0; k < lab->counted; k++)
            if (!bn_harm_add(harm, &lab->rows[k]))
                return bn_fail_nomem(err, harm->n * sizeof(double), "divergences");
    }
    return BITNET_OK;
}

bitnet_status bn_lab_measure(struct bn_lab *lab, struct bitnet_engine *e, const size_t *samples,
                             size_t n, bitnet_divergence *out, bitnet_error *err)
{
    struct bn_harm harm = {.least = BN_HARM_ALL};
    bitnet_status s = BITNET_OK;
    for (size_t at = 0; s == BITNET_OK && at < n; at += lab->room) {
        size_t some = bn_min_size(lab->room, n - at);
        s = bn_lab_base(lab, samples + at, some, err);
        if (s == BITNET_OK) s = bn_lab_try(lab, e, samples + at, some, &harm, err);
    }
    if (s == BITNET_OK) bn_harm_figures(&harm, out);
    bn_harm_free(&harm);
    return s;
}

bitnet_status bn_lab_read(struct bn_lab *lab, struct bitnet_engine *e, const size_t *samples,
                          size_t n, bitnet_error *err)
{
    for (size_t i = 0; i < n; i++) BN_TRY(run_sample(lab, e, samples[i], NULL, err));
    return BITNET_OK;
}

bitnet_status bn_lab_decode_ns(struct bn_lab *lab, struct bitnet_engine *e, double *ns,
                               bitnet_error *err)
{
    size_t half = lab->sample / 2, n = bn_min_size(DECODED, lab->sample - half);
    *ns = 0;
    BN_TRY(bn_engine_eval_reset(e, 0, err));
    BN_TRY(bn_engine_eval(e, 0, lab->tokens, half, false, NULL, err));
    for (size_t i = 0; i < n; i++) {
        uint64_t start = bn_now_ns();
        BN_TRY(bn_engine_eval(e, 0, lab->tokens + half + i, 1, true, lab->logits, err));
        double took = (double)(bn_now_ns() - start);
        *ns = i == 0 || took < *ns ? took : *ns;
    }
    return BITNET_OK;
}
