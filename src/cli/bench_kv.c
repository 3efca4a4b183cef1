/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_kv.c: `bitnet bench --mode kv`: what each type of the KV cache takes, how fast decoding is with
 * it behind a long text, and what it does to the perplexity of a text. Every type has an engine with
 * one request, whose prompt is read once; every round takes some of its tokens.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "cli/bench.h"
#include "cli/term.h"
#include "cli/textio.h"
#include "server/tokens.h"
#include <stdio.h>
#include <stdlib.h>

enum { ROUND_TOKENS = 32, PPL_CTX_TOKENS = 512, EVENTS = 2 };

/* From the largest to the smallest; the default first of its size. */
static const bitnet_kv_type types[] = {
    BITNET_KV_F32,      BITNET_KV_F16,  BITNET_KV_BF16, BITNET_KV_FP8_E4M3,
    BITNET_KV_FP8_E5M2, BITNET_KV_INT8, BITNET_KV_INT4, BITNET_KV_INT2,
};

const struct bench_measurement *bench_kv_base(const struct bench *b)
{
    size_t i = 0;
    while (types[i] != BITNET_KV_F16) i++;
    return &b->items[i];
}

void bench_kv_free(struct bench_kv *kv)
{
    if (kv) bitnet_engine_close(kv->engine);
    free(kv);
}

/* ------------------------------------------------------------------ the plan */

static bitnet_status open_type(struct bench *b, struct bench_measurement *m, bitnet_kv_type type,
                               uint32_t ctx, bitnet_error *err)
{
    bitnet_engine_options o = b->settings->engine;
    o.ctx_tokens = ctx;
    o.max_seqs = 1;
    o.kv_type = type;
    o.kv_type_v = BITNET_KV_AUTO;
    o.prefix_cache = o.speculation = "off"; /* a step is to be a token */
    m->kv = bn_calloc(1, sizeof *m->kv);
    if (!m->kv) return bn_fail_nomem(err, sizeof *m->kv, "the results");
    BN_TRY(model_engine_open(&m->kv->engine, b->model, &o, b->settings->engine_warmup, err));
    m->kv->info.size = sizeof m->kv->info;
    bitnet_engine_get_info(m->kv->engine, &m->kv->info);
    double layers = b->info.n_layer_attention + b->info.n_layer_mtp;
    double numbers = 2.0 * layers * b->info.n_head_kv * b->info.head_dim;
    m->kv->bits = (double)m->kv->info.kv_token_bytes * 8 / numbers;
    return BITNET_OK;
}

/* The last of the depths, or less where the context ends before. */
bitnet_status bench_kv_plan(struct bench *b, bitnet_error *err)
{
    const struct bench_settings *s = b->settings;
    uint32_t n_new = (uint32_t)bn_min_size(s->max_new_tokens, ROUND_TOKENS);
    uint32_t want = bn_max_size(s->depths.items[s->depths.n - 1], 1);
    /* the prompt gives one token before the rounds begin */
    size_t all_new = (size_t)n_new * (s->warmup + s->repeat) + 1;
    size_t most = s->engine.ctx_tokens ? s->engine.ctx_tokens : b->info.n_ctx_train;
    if (most < all_new + 1)
        return bn_fail(err, BITNET_E_ARG, "a context of %zu tokens is too small: at least %zu",
                       most, all_new + 1);
    uint32_t depth = (uint32_t)bn_min_size(want, most - all_new);
    b->items = bn_calloc(BN_ARRAY_LEN(types), sizeof *b->items);
    if (!b->items) return bn_fail_nomem(err, sizeof *b->items, "the results");
    for (size_t i = 0; i < BN_ARRAY_LEN(types); i++) {
        struct bench_measurement *m = &b->items[b->n_items++];
        *m = (struct bench_measurement){.mode = BENCH_KV, .at = depth, .n_new = n_new};
        snprintf(m->name, sizeof m->name, "kv %s", bitnet_kv_type_name(types[i]));
        BN_TRY(open_type(b, m, types[i], depth + (uint32_t)all_new, err));
    }
    b->single_info = bench_kv_base(b)->kv->info;
    b->single_info.kv_type = "";
    return BITNET_OK;
}

/* ------------------------------------------------------------------ speed */

/* One step; *token: whether it gave one. */
static bitnet_status step(struct bench_kv *kv, bool *token, bitnet_error *err)
{
    bitnet_event events[EVENTS];
    size_t n = EVENTS;
    BN_TRY(bitnet_step(kv->engine, events, &n, err));
    if (n == 0) return bn_fail(err, BITNET_E_INTERNAL, "the engine lost a request");
    *token = false;
    for (size_t i = 0; i < n; i++) {
        if (events[i].finish == BITNET_FINISH_ERROR)
            return bn_fail(err, BITNET_E_INTERNAL, "%s",
                           events[i].error ? events[i].error : "a request failed");
        *token |= events[i].token >= 0;
    }
    return BITNET_OK;
}

static bitnet_status start(struct bench *b, const struct bench_measurement *m, bitnet_error *err)
{
    int32_t *tokens = bn_calloc(m->at, sizeof *tokens);
    if (!tokens) return bn_fail_nomem(err, m->at * sizeof *tokens, "a prompt");
    uint64_t id;
    bitnet_request r;
    b->prompts.n_made = 0; /* the same for all types */
    bench_make_prompt(b, tokens, m->at);
    bitnet_request_init(&r);
    r.tokens = tokens;
    r.n_tokens = m->at;
    r.sampling.temperature = 0;
    r.ignore_end = 1;
    bitnet_status s = bitnet_submit(m->kv->engine, &r, &id, err);
    free(tokens);
    for (bool token = false; s == BITNET_OK && !token;) s = step(m->kv, &token, err);
    return s;
}

bitnet_status bench_kv_measure(struct bench *b, struct bench_measurement *m, bool keep,
                               bitnet_error *err)
{
    if (!m->kv->started) BN_TRY(start(b, m, err));
    m->kv->started = true;
    double sum_ms = 0;
    for (uint32_t i = 0; i < m->n_new; i++) {
        bool token;
        uint64_t start_ns = bn_now_ns();
        BN_TRY(step(m->kv, &token, err));
        double ms = (double)(bn_now_ns() - start_ns) / 1e6;
        sum_ms += ms;
        if (keep) m->step_ms[m->n_steps++] = ms;
    }
    if (keep) m->rates[m->n_repeats++] = m->n_new * 1e3 / sum_ms;
    return BITNET_OK;
}

/* ------------------------------------------------------------------ perplexity */

static bitnet_status perplexity(struct bench *b, const bitnet_model *model, const int32_t *ids,
                                size_t n, bitnet_error *err)
{
    struct term_progress bar = {0};
    bitnet_status s = BITNET_OK;
    bitnet_model_info info = {.size = sizeof info};
    bitnet_model_get_info(model, &info);
    bitnet_engine_options o = b->settings->engine;
    bitnet_ppl_options p;
    bitnet_ppl_options_init(&p);
    p.progress = term_progress_show;
    p.progress_user = &bar;
    p.ctx_tokens = o.ctx_tokens = (uint32_t)bn_min_size(PPL_CTX_TOKENS, info.n_ctx_train);
    o.head = "exact";
    o.kv_type_v = BITNET_KV_AUTO;
    for (size_t i = 0; s == BITNET_OK && i < b->n_items; i++) {
        bitnet_engine *e = NULL;
        struct bench_kv *kv = b->items[i].kv;
        o.kv_type = types[i];
        kv->ppl.size = sizeof kv->ppl;
        s = bitnet_engine_open(&e, model, &o, err);
        if (s == BITNET_OK) s = bitnet_perplexity(e, ids, n, &p, &kv->ppl, err);
        bitnet_engine_close(e);
    }
    term_progress_end(&bar);
    return s;
}

bitnet_status bench_kv_perplexity(struct bench *b, bitnet_error *err)
{
    const struct bench_settings *s = b->settings;
    if (!s->text) return BITNET_OK;
    bitnet_model *embedded = NULL;
    char *text = NULL;
    int32_t *ids = NULL;
    size_t len, n;
    bitnet_status status = textio_read(&text, &len, s->text, err);
    if (status == BITNET_OK && s->text_embedded)
        status = bitnet_model_open(&embedded, NULL, NULL, err);
    const bitnet_model *model = embedded ? embedded : b->model;
    if (status == BITNET_OK)
        status = tokens_encode(&ids, &n, model, text, len, BITNET_TOK_BOS_AUTO, err);
    if (status == BITNET_OK) status = perplexity(b, model, ids, n, err);
    free(ids);
    free(text);
    bitnet_model_close(embedded);
    return status;
}

/* ------------------------------------------------------------------ the table */

static void print_type(const json_t *m)
{
    printf("%-10s %13.0f %6.2f %9.2f %7.1f %% %+7.1f %%", bench_text(m, "kv_type"),
           bench_number(m, "kv_token_bytes"), bench_number(m, "bits_per_value"),
           bench_number(m, "median"), bench_number(m, "spread") * 100,
           bench_number(m, "speed_change") * 100);
    if (json_object_get(m, "perplexity"))
        printf(" %11.4f %+8.2f %%\n", bench_number(m, "perplexity"),
               bench_number(m, "perplexity_change") * 100);
    else printf(" %11s %10s\n", "-", "-");
}

void bench_print_kv(const json_t *items)
{
    const json_t *first = json_array_get(items, 0);
    printf("%s%-10s %13s %6s %9s %9s %9s %11s %10s%s\n", term_style(stdout, TERM_BOLD), "",
           "bytes a token", "bits", "tok/s", "spread", "change", "perplexity", "change",
           term_style(stdout, TERM_PLAIN));
    for (size_t i = 0; i < json_array_size(items); i++) print_type(json_array_get(items, i));
    printf("\ntok/s: decoding behind %.0f tokens and more; changes: from f16\n",
           bench_number(first, "at"));
}
