/* SPDX-License-Identifier: Apache-2.0
 *
 * eval/kl.c: how far one way to compute a model is from another: at every position of a text the
 * distributions of the next token are compared. The text goes through both in the windows of
 * llama-perplexity, of which the second half counts; so the base may also be a file that it wrote.
 */
#include "cli/eval/kl.h"

#include "app/stats.h"
#include "base/clock.h"
#include "base/os/file.h"
#include "base/os/mem.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ a file of llama-perplexity */

/* "_logits_", context, vocabulary, chunks, tokens; then for every position that counts a scale, the
 * least log-probability, and a 16-bit number for each token. */
enum { MAGIC_BYTES = 8, HEAD_BYTES = MAGIC_BYTES + 3 * 4, ROW_HEAD = 4 /* 16-bit words */ };
/* What is less likely was stored as this; there is nothing to compare it by. */
static const double BASE_LEAST = -16;
static const double EXP_IS_ZERO = -745;

static uint32_t u32_at(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

bitnet_status kl_base_open(struct kl_base *out, const char *path, bitnet_error *err)
{
    *out = (struct kl_base){0};
    BN_TRY(bn_map_file(&out->file, path, err));
    const uint8_t *p = out->file.data;
    size_t bytes = out->file.bytes;
    if (bytes < HEAD_BYTES || memcmp(p, "_logits_", MAGIC_BYTES) != 0) {
        kl_base_close(out);
        return bn_fail(err, BITNET_E_FORMAT,
                       "'%s' is no file that llama-perplexity --kl-divergence-base writes", path);
    }
    out->ctx = u32_at(p + 8);
    out->n_vocab = u32_at(p + 12);
    out->n_chunks = u32_at(p + 16);
    out->row_words = ROW_HEAD + 2 * (((size_t)out->n_vocab + 1) / 2);
    size_t n_tokens = (size_t)out->ctx * out->n_chunks;
    size_t n_rows = (size_t)out->n_chunks * (out->ctx ? out->ctx - 1 - out->ctx / 2 : 0);
    size_t need = HEAD_BYTES + n_tokens * 4 + n_rows * out->row_words * 2;
    if (out->ctx < 4 || !out->n_vocab || !out->n_chunks || out->ctx > 1 << 24 ||
        out->n_vocab > 1 << 24 || out->n_chunks > 1 << 24 || bytes < need) {
        kl_base_close(out);
        return bn_fail(err, BITNET_E_FORMAT, "'%s' is cut off or damaged", path);
    }
    out->tokens = (const int32_t *)(const void *)(p + HEAD_BYTES);
    out->rows = p + HEAD_BYTES + n_tokens * 4;
    return BITNET_OK;
}

void kl_base_close(struct kl_base *b)
{
    bn_unmap_file(&b->file);
    *b = (struct kl_base){0};
}

/* Log-probabilities of row i. */
static void base_row(const struct kl_base *b, size_t i, double *out)
{
    const uint8_t *p = b->rows + i * b->row_words * 2;
    float scale, least;
    memcpy(&scale, p, 4);
    memcpy(&least, p + 4, 4);
    for (uint32_t k = 0; k < b->n_vocab; k++) {
        uint16_t q;
        memcpy(&q, p + 8 + 2 * (size_t)k, 2);
        out[k] = (double)scale * q + (double)least;
    }
}

/* ------------------------------------------------------------------ rows */

static void log_softmax(const float *logits, uint32_t n, double *out)
{
    float top = logits[0];
    for (uint32_t i = 1; i < n; i++) top = logits[i] > top ? logits[i] : top;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += exp((double)logits[i] - (double)top);
    double all = log(sum) + (double)top;
    for (uint32_t i = 0; i < n; i++) out[i] = (double)logits[i] - all;
}

static uint32_t best_of(const double *x, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++) best = x[i] > x[best] ? i : best;
    return best;
}

/* One position: p of the base, q of the other, and the token that stands there. What is not above
 * s->least in p counts as impossible. */
static bool take_row(struct kl_sums *s, const double *p, const double *q, uint32_t n, int32_t token)
{
    double kl = 0;
    for (uint32_t i = 0; i < n; i++)
        if (p[i] > s->least) kl += exp(p[i]) * (p[i] - q[i]);
    if (!bn_grow((void **)&s->kl, &s->room, s->n + 1, sizeof *s->kl)) return false;
    s->kl[s->n++] = kl < 0 ? 0 : kl; /* rounding */
    s->n_same_top += best_of(p, n) == best_of(q, n);
    double a = -p[token], b = -q[token];
    s->nll_a += a;
    s->nll_b += b;
    s->diff_squares += (b - a) * (b - a);
    return true;
}

/* ------------------------------------------------------------------ the walk */

struct walk {
    const struct kl_sources *from;
    struct kl_sums *sums;
    uint32_t n_vocab;
    size_t ctx, first, piece;
    float *logits[2]; /* [piece][n_vocab] */
    double *rows[2];  /* [n_vocab] */
    size_t base_at;   /* next row of the base file */
};

/* Tokens [at, at + n) of a window go through one engine. */
static bitnet_status compute(bitnet_engine *e, const int32_t *ids, size_t n, float *logits,
                             bitnet_error *err)
{
    return e ? bitnet_eval(e, 0, ids, n, 0, logits, err) : BITNET_OK;
}

static bitnet_status walk_window(struct walk *w, const int32_t *ids, bitnet_error *err)
{
    bitnet_engine *a = w->from->a, *b = w->from->b;
    if (a) BN_TRY(bitnet_eval_reset(a, 0, err));
    BN_TRY(bitnet_eval_reset(b, 0, err));
    for (size_t at = 0; at + 1 < w->ctx;) {
        size_t end = at < w->first ? w->first : w->ctx - 1, n = end - at;
        bool counts = at >= w->first;
        n = n < w->piece ? n : w->piece;
        BN_TRY(compute(a, ids + at, n, counts ? w->logits[0] : NULL, err));
        BN_TRY(compute(b, ids + at, n, counts ? w->logits[1] : NULL, err));
        for (size_t i = 0; counts && i < n; i++) {
            size_t row = i * w->n_vocab;
            if (a) log_softmax(w->logits[0] + row, w->n_vocab, w->rows[0]);
            else base_row(w->from->base, w->base_at++, w->rows[0]);
            log_softmax(w->logits[1] + row, w->n_vocab, w->rows[1]);
            if (!take_row(w->sums, w->rows[0], w->rows[1], w->n_vocab, ids[at + i + 1]))
                return bn_fail_nomem(err, w->sums->n * sizeof(double), "divergences");
        }
        at += n;
    }
    return BITNET_OK;
}

static void summarize(struct kl_result *r, struct kl_sums *s)
{
    double n = (double)s->n, sum = 0, squares = 0, diff = (s->nll_b - s->nll_a) / n;
    for (size_t i = 0; i < s->n; i++) sum += s->kl[i];
    r->mean = sum / n;
    for (size_t i = 0; i < s->n; i++) squares += (s->kl[i] - r->mean) * (s->kl[i] - r->mean);
    r->mean_error = s->n > 1 ? sqrt(squares / (n - 1) / n) : 0;
    stats_sort(s->kl, s->n);
    r->median = stats_quantile(s->kl, s->n, 0.5);
    r->p99 = stats_quantile(s->kl, s->n, 0.99);
    r->most = s->kl[s->n - 1];
    r->same_top = (double)s->n_same_top / n;
    r->same_top_error = sqrt(r->same_top * (1 - r->same_top) / n);
    r->ppl_a = exp(s->nll_a / n);
    r->ppl_b = exp(s->nll_b / n);
    r->ppl_ratio = exp(diff);
    double variance = s->diff_squares / n - diff * diff;
    r->ppl_ratio_error = s->n > 1 && variance > 0 ? exp(diff) * sqrt(variance / (n - 1)) : 0;
    r->n = s->n;
}

bitnet_status kl_measure(struct kl_result *out, const struct kl_sources *from, bitnet_error *err)
{
    enum { PIECE = 64, PIECE_MAX_BYTES = 64 << 20 };
    uint64_t start = bn_now_ns();
    struct kl_sums sums = {.least = from->a ? EXP_IS_ZERO : BASE_LEAST};
    struct walk w = {.from = from, .sums = &sums, .n_vocab = from->n_vocab, .ctx = from->ctx};
    *out = (struct kl_result){0};
    w.first = w.ctx / 2;
    w.piece = PIECE_MAX_BYTES / sizeof(float) / w.n_vocab;
    w.piece = w.piece > PIECE ? PIECE : w.piece ? w.piece : 1;
    bool ok = true;
    for (int i = 0; i < 2; i++) {
        w.logits[i] = bn_calloc(w.piece * w.n_vocab, sizeof(float));
        w.rows[i] = bn_calloc(w.n_vocab, sizeof(double));
        ok = ok && w.logits[i] && w.rows[i];
    }
    bitnet_status status =
        ok ? BITNET_OK : bn_fail_nomem(err, w.piece * w.n_vocab * sizeof(float), "logits");
    size_t n_windows = from->n_tokens / w.ctx;
    for (size_t i = 0; status == BITNET_OK && i < n_windows; i++) {
        status = walk_window(&w, from->tokens + i * w.ctx, err);
        if (status == BITNET_OK && from->progress &&
            from->progress(from->progress_user, "compare", i + 1, n_windows))
            status = bn_fail(err, BITNET_E_CANCELLED, "stopped after %zu of %zu windows", i + 1,
                             n_windows);
    }
    if (status == BITNET_OK && sums.n == 0)
        status =
            bn_fail(err, BITNET_E_ARG, "the text has %zu tokens, and a window of %zu is needed",
                    from->n_tokens, w.ctx);
    if (status == BITNET_OK) summarize(out, &sums);
    out->ns = bn_now_ns() - start;
    for (int i = 0; i < 2; i++) {
        free(w.logits[i]);
        free(w.rows[i]);
    }
    free(sums.kl);
    return status;
}
