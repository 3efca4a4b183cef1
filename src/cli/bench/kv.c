/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/kv.c: `bitnet bench --mode kv`: what each type of the KV cache takes, how fast decoding is with
 * it behind a long text, and what it does to the perplexity of a text. Every type has an engine with
 * one request, whose prompt is read once; every round takes some of its tokens. With random keys there
 * is a request for every depth and round.
 */
#include "base/clock.h"
#include "app/report.h"
#include "base/os/mem.h"
#include "cli/bench/bench.h"
#include "app/term.h"
#include "app/textio.h"
#include "app/tokens.h"
#include <stdio.h>
#include <stdlib.h>

enum { ROUND_TOKENS = 32, PPL_CTX_TOKENS = 512, EVENTS = 2 };

/* From the largest to the smallest; the default first of its size. */
static const bitnet_kv_type types[] = {
    BITNET_KV_F32,      BITNET_KV_F16,  BITNET_KV_BF16, BITNET_KV_FP8_E4M3,
    BITNET_KV_FP8_E5M2, BITNET_KV_INT8, BITNET_KV_INT4, BITNET_KV_INT2,
};

const struct bench_measurement *bench_kv_base(const struct bench *b,
                                              const struct bench_measurement *m)
{
    size_t i = 0;
    while (b->items[i].kv->type != BITNET_KV_F16 || b->items[i].at != m->at) i++;
    return &b->items[i];
}

void bench_kv_free(struct bench_kv *kv)
{
    if (kv && !kv->borrowed) bitnet_engine_close(kv->engine);
    free(kv);
}

/* ------------------------------------------------------------------ the plan */

static bitnet_status open_type(struct bench *b, struct bench_measurement *m, uint32_t ctx,
                               bitnet_error *err)
{
    bitnet_engine_options o = b->settings->engine;
    o.ctx_tokens = ctx;
    o.max_seqs = 1;
    o.kv_type = m->kv->type;
    o.kv_type_v = BITNET_KV_AUTO;
    o.prefix_cache = o.draft = "off"; /* a step is to be a token */
    o.random_kv = b->settings->random_keys;
    if (o.random_kv) o.profile = "on";
    return model_engine_open(&m->kv->engine, b->model, &o, b->settings->engine_warmup, err);
}

/* An item; its engine is that of the item before if that is of the same type. */
static bitnet_status add(struct bench *b, bitnet_kv_type type, uint32_t depth, uint32_t ctx,
                         uint32_t n_new, bitnet_error *err)
{
    struct bench_measurement *m = &b->items[b->n_items++];
    const struct bench_kv *last = b->n_items > 1 ? m[-1].kv : NULL;
    *m = (struct bench_measurement){.mode = BENCH_KV, .at = depth, .n_new = n_new};
    const char *name = bitnet_kv_type_name(type);
    if (b->settings->random_keys) snprintf(m->name, sizeof m->name, "kv %s %u", name, depth);
    else snprintf(m->name, sizeof m->name, "kv %s", name);
    m->kv = bn_calloc(1, sizeof *m->kv);
    if (!m->kv) return bn_fail_nomem(err, sizeof *m->kv, "the results");
    m->kv->type = type;
    m->kv->borrowed = last && last->type == type;
    if (m->kv->borrowed) m->kv->engine = last->engine;
    else BN_TRY(open_type(b, m, ctx, err));
    m->kv->info.size = sizeof m->kv->info;
    bitnet_engine_get_info(m->kv->engine, &m->kv->info);
    double layers = b->info.shape.n_layer_attention + b->info.shape.n_layer_mtp;
    double numbers = 2.0 * layers * b->info.shape.n_head_kv * b->info.shape.head_dim;
    m->kv->bits = (double)m->kv->info.kv.token_bytes * 8 / numbers;
    return BITNET_OK;
}

/* Depths: the last one, with random keys all of them; less where the context ends before. Types: all,
 * or f16 and the one that was asked for. */
bitnet_status bench_kv_plan(struct bench *b, bitnet_error *err)
{
    const struct bench_settings *s = b->settings;
    bool random = s->random_keys;
    uint32_t n_new = (uint32_t)bn_min_size(s->max_new_tokens, ROUND_TOKENS);
    /* the prompt gives one token before the rounds begin, and has one that is not random */
    size_t all_new = (size_t)n_new * (random ? 1 : s->warmup + s->repeat) + (random ? 2 : 1);
    size_t most = s->engine.ctx_tokens ? s->engine.ctx_tokens : b->info.shape.n_ctx_train;
    if (most < all_new + 1)
        return bn_fail(err, BITNET_E_ARG, "a context of %zu tokens is too small: at least %zu",
                       most, all_new + 1);
    most -= all_new;
    size_t first = random ? 0 : s->depths.n - 1, deepest = 1;
    for (size_t d = first; d < s->depths.n; d++)
        deepest = bn_max_size(deepest, bn_min_size(s->depths.items[d], most));
    b->items = bn_calloc(BN_ARRAY_LEN(types) * s->depths.n, sizeof *b->items);
    if (!b->items) return bn_fail_nomem(err, sizeof *b->items, "the results");
    for (size_t i = 0; i < BN_ARRAY_LEN(types); i++) {
        bitnet_kv_type only = s->engine.kv_type;
        bool all = only == BITNET_KV_AUTO || only == BITNET_KV_F16;
        if (!all && types[i] != only && types[i] != BITNET_KV_F16) continue;
        for (size_t d = first; d < s->depths.n; d++)
            BN_TRY(add(b, types[i], (uint32_t)bn_min_size(bn_max_size(s->depths.items[d], 1), most),
                       (uint32_t)(deepest + all_new), n_new, err));
    }
    b->single_info = b->items[0].kv->info;
    b->single_info.kv.type = "";
    return BITNET_OK;
}

/* ------------------------------------------------------------------ speed */

/* One step; *token: whether it gave one. */
static bitnet_status step(struct bench_kv *kv, bool *token, bitnet_error *err)
{
    bitnet_event events[EVENTS] = {{.size = sizeof *events}};
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

/* A request, up to its first token. With random keys its prompt counts as read but for one token; depth
 * is then the first multiple of a page's tokens. */
static bitnet_status start(struct bench *b, const struct bench_measurement *m, bitnet_error *err)
{
    bool random = b->settings->random_keys;
    uint32_t page = m->kv->info.kv.page_tokens;
    uint32_t n = random ? m->at / page * page + 1 : m->at;
    int32_t *tokens = bn_calloc(n, sizeof *tokens);
    if (!tokens) return bn_fail_nomem(err, n * sizeof *tokens, "a prompt");
    uint64_t id;
    bitnet_request r;
    b->prompts.n_made = 0; /* the same for all types */
    bench_make_prompt(b, tokens, n);
    bitnet_request_init(&r, sizeof r);
    r.tokens = tokens;
    r.n_tokens = n;
    r.sampling.temperature = 0;
    r.ignore_end = 1;
    if (random) r.max_new_tokens = m->n_new + 1;
    bitnet_status s = bitnet_submit(m->kv->engine, &r, &id, err);
    free(tokens);
    for (bool token = false; s == BITNET_OK && !token;) s = step(m->kv, &token, err);
    return s;
}

/* A token's time in attention, a worker's share; of all rounds the shortest counts. */
static void take_attention(struct bench_kv *kv, uint32_t tokens)
{
    bitnet_profile_entry e = {.size = sizeof e};
    double ns = 0;
    for (size_t i = 0; bitnet_profile_get(kv->engine, i, &e); i++)
        if (strcmp(e.kind, "attention") == 0) ns += (double)e.ns;
    double ms = ns / 1e6 / kv->info.threads / tokens;
    if (!kv->attention_ms || ms < kv->attention_ms) kv->attention_ms = ms;
}

bitnet_status bench_kv_measure(struct bench *b, struct bench_measurement *m, bool keep,
                               bitnet_error *err)
{
    bool random = b->settings->random_keys;
    if (random || !m->kv->started) BN_TRY(start(b, m, err));
    m->kv->started = true;
    if (random) bitnet_profile_reset(m->kv->engine);
    double sum_ms = 0;
    for (uint32_t i = 0; i < m->n_new; i++) {
        bool token;
        uint64_t start_ns = bn_now_ns();
        BN_TRY(step(m->kv, &token, err));
        double ms = (double)(bn_now_ns() - start_ns) / 1e6;
        sum_ms += ms;
        if (keep) m->step_ms[m->n_steps++] = ms;
    }
    if (random && keep) take_attention(m->kv, m->n_new);
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
    bitnet_ppl_options p = {.size = sizeof p};
    p.progress = term_progress_show;
    p.progress_user = &bar;
    p.ctx_tokens = o.ctx_tokens = (uint32_t)bn_min_size(PPL_CTX_TOKENS, info.shape.n_ctx_train);
    o.head = "exact";
    o.kv_type_v = BITNET_KV_AUTO;
    for (size_t i = 0; s == BITNET_OK && i < b->n_items; i++) {
        bitnet_engine *e = NULL;
        struct bench_kv *kv = b->items[i].kv;
        o.kv_type = kv->type;
        if (kv->borrowed) continue;
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

static void print_type(const struct bn_json *m)
{
    const struct bn_json *attention = bn_json_get(m, "attention_ms");
    printf("%-10s %7.0f %13.0f %6.2f %9.2f %9.2f %7.1f %% %+7.1f %%", report_text(m, "kv_type"),
           report_number(m, "at"), report_number(m, "kv_token_bytes"),
           report_number(m, "bits_per_value"), report_number(m, "median"),
           1e3 / report_number(m, "median"), report_number(m, "spread") * 100,
           report_number(m, "speed_change") * 100);
    if (attention) printf(" %9.2f", bn_json_number(attention));
    if (bn_json_get(m, "perplexity"))
        printf(" %11.4f %+8.2f %%", report_number(m, "perplexity"),
               report_number(m, "perplexity_change") * 100);
    putchar('\n');
}

void bench_print_kv(const struct bn_json *items)
{
    const struct bn_json *first = bn_json_at(items, 0);
    printf("%s%-10s %7s %13s %6s %9s %9s %9s %9s", term_style(stdout, TERM_BOLD), "", "behind",
           "bytes a token", "bits", "tok/s", "ms", "spread", "change");
    if (bn_json_get(first, "attention_ms")) printf(" %9s", "attention");
    if (bn_json_get(first, "perplexity")) printf(" %11s %10s", "perplexity", "change");
    printf("%s\n", term_style(stdout, TERM_PLAIN));
    for (size_t i = 0; i < bn_json_size(items); i++) print_type(bn_json_at(items, i));
    printf("\ntok/s, ms: decoding behind so many tokens and more; changes: from f16%s\n",
           bn_json_get(first, "attention_ms")
               ? "; attention: its ms a token, the least of all rounds"
               : "");
}
