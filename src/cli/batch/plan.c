/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/batch/batch.h"
#include "app/interrupt.h"
#include "app/term.h"
#include "server/openai/reply.h"
#include <stdlib.h>

enum { BAD_SHOWN_MAX = 100 };

struct plan {
    struct batch_input *in;
    bitnet_engine *engine;
    bitnet_model_info model;
    bitnet_engine_info info;
    bitnet_event *events; /* [2 * max_seqs] */
    uint64_t n, n_bad;
    uint64_t prompt_tokens, prompt_tokens_max, answer_tokens_max;
    struct bn_json *bad; /* [{"line", "custom_id", "message"}], at most BAD_SHOWN_MAX */
};

/* The engine itself says what it would not take: the request is submitted and withdrawn. */
static bitnet_status try_prompt(struct plan *p, const bitnet_request *r, bitnet_error *err)
{
    uint64_t id;
    BN_TRY(bitnet_submit(p->engine, r, &id, err));
    bitnet_cancel(p->engine, id);
    for (size_t n = 1; n;) {
        n = 2 * (size_t)p->info.max_seqs;
        BN_TRY(bitnet_step(p->engine, p->events, &n, err));
    }
    uint32_t room = p->info.ctx_tokens - (uint32_t)r->n_tokens;
    uint32_t wanted = r->max_new_tokens;
    p->prompt_tokens += r->n_tokens;
    p->prompt_tokens_max = bn_max_size(p->prompt_tokens_max, r->n_tokens);
    p->answer_tokens_max += (uint64_t)r->n_choices * (wanted ? bn_min_size(wanted, room) : room);
    return BITNET_OK;
}

static bitnet_status try_request(struct plan *p, const struct openai_request *r, bitnet_error *err)
{
    for (size_t i = 0; i < r->n_prompts; i++) {
        bitnet_request one;
        openai_request_at(r, i, &one);
        BN_TRY(try_prompt(p, &one, err));
    }
    return BITNET_OK;
}

static bitnet_status look_at(struct plan *p, bitnet_error *err)
{
    struct openai_request r;
    char *custom_id;
    bitnet_error why = {0};
    bitnet_status s = batch_input_parse(p->in, &r, &custom_id, &why);
    if (s == BITNET_OK) {
        s = try_request(p, &r, &why);
        openai_request_free(&r);
    }
    p->n++;
    if (s != BITNET_OK && openai_error_code(s) == 400) {
        if (p->n_bad++ < BAD_SHOWN_MAX)
            bn_json_append(p->bad,
                           bn_json_pack("{s:I, s:s?, s:o}", "line", (int64_t)p->in->line.number,
                                        "custom_id", custom_id, "message",
                                        openai_text(why.text, strlen(why.text))));
        s = BITNET_OK;
    }
    free(custom_id);
    return s == BITNET_OK ? s : bn_fail(err, s, "%s", why.text);
}

static bitnet_status look_at_all(struct plan *p, bitnet_error *err)
{
    for (bool got = true;;) {
        BN_TRY(batch_input_next(p->in, &got, err));
        if (!got) return BITNET_OK;
        if (interrupt_pending()) return bn_fail(err, BITNET_E_CANCELLED, "interrupted");
        BN_TRY(look_at(p, err));
    }
}

/* ------------------------------------------------------------------ the report */

struct memory {
    uint64_t weights, kv, states, scratch, total, available;
    uint64_t sequence; /* KV cache of one sequence of full length, and its state */
    uint64_t fit;      /* such sequences in the memory that is available; 0: not known */
};

/* Matrices are packed, the head is used where it lies in the file. Called with the model in memory
 * and the engine's memory reserved, but not yet used. */
static struct memory estimate(const struct plan *p)
{
    size_t pages = bn_div_up(p->info.ctx_tokens, p->info.kv.page_tokens);
    struct memory m = {.weights = p->model.memory.packed_bytes + p->model.memory.head_bytes,
                       .kv = p->info.kv.bytes,
                       .states = p->info.states.bytes,
                       .scratch = p->info.scratch_bytes,
                       .sequence =
                           p->info.kv.bytes / p->info.kv.pages * pages + p->info.states.seq_bytes,
                       .available = term_available_bytes()};
    m.total = m.weights + m.kv + m.states + m.scratch;
    if (m.available > m.scratch && m.sequence) m.fit = (m.available - m.scratch) / m.sequence;
    return m;
}

static int print_json(struct plan *p, const struct memory *m)
{
    struct bn_json *bad = p->bad;
    p->bad = NULL;
    return term_print_json(bn_json_pack(
        "{s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:{s:I, s:I, s:I, s:I, s:I, s:I, s:I}}",
        "requests", (int64_t)p->n, "bad", (int64_t)p->n_bad, "bad_lines", bad, "prompt_tokens",
        (int64_t)p->prompt_tokens, "prompt_tokens_max", (int64_t)p->prompt_tokens_max,
        "answer_tokens_max", (int64_t)p->answer_tokens_max, "sequences", (int64_t)p->info.max_seqs,
        "sequences_fit", (int64_t)m->fit, "ctx_tokens", (int64_t)p->info.ctx_tokens, "memory",
        "weights_bytes", (int64_t)m->weights, "kv_bytes", (int64_t)m->kv, "state_bytes",
        (int64_t)m->states, "scratch_bytes", (int64_t)m->scratch, "total_bytes", (int64_t)m->total,
        "sequence_bytes", (int64_t)m->sequence, "available_bytes", (int64_t)m->available));
}

static void print_bad(const struct plan *p)
{
    size_t i;
    const struct bn_json *b;
    bn_json_each(p->bad, i, b)
    {
        printf("  line %lld: ", (long long)bn_json_integer(bn_json_get(b, "line")));
        term_print_clean(stdout, bn_json_text(bn_json_get(b, "message")));
        fputc('\n', stdout);
    }
    if (p->n_bad > BAD_SHOWN_MAX)
        printf("  and %llu more\n", (unsigned long long)(p->n_bad - BAD_SHOWN_MAX));
}

static void print_text(const struct plan *p, const struct memory *m)
{
    char a[TERM_SIZE_BYTES], b[TERM_SIZE_BYTES], c[TERM_SIZE_BYTES], d[TERM_SIZE_BYTES];
    printf("requests  %llu, %llu bad\n", (unsigned long long)p->n, (unsigned long long)p->n_bad);
    print_bad(p);
    printf("tokens    %llu in prompts, the longest %llu; at most %llu in answers\n",
           (unsigned long long)p->prompt_tokens, (unsigned long long)p->prompt_tokens_max,
           (unsigned long long)p->answer_tokens_max);
    printf("memory    %s: weights %s, KV cache %s, scratch %s\n", term_size(a, m->total),
           term_size(b, m->weights), term_size(c, m->kv), term_size(d, m->scratch));
    if (m->states)
        printf("states    %s of it: %s each, for %u sequences and %u snapshots\n",
               term_size(a, m->states), term_size(b, p->info.states.seq_bytes), p->info.max_seqs,
               p->info.states.snapshots);
    printf("sequences %u at a time, of up to %u tokens, %s each; about %llu fit the %s that are "
           "free beside the weights\n",
           p->info.max_seqs, p->info.ctx_tokens, term_size(a, m->sequence),
           (unsigned long long)m->fit, term_size(b, m->available));
}

int batch_plan(struct batch_input *in, bitnet_engine *e)
{
    struct plan p = {.in = in,
                     .engine = e,
                     .model.size = sizeof p.model,
                     .info.size = sizeof p.info,
                     .bad = bn_json_array()};
    bitnet_model_get_info(in->model, &p.model);
    bitnet_engine_get_info(e, &p.info);
    struct memory m = estimate(&p);
    bitnet_error err = {0};
    p.events = bn_calloc(2 * (size_t)p.info.max_seqs, sizeof *p.events);
    if (p.events) p.events->size = sizeof *p.events;
    bitnet_status s =
        p.events && p.bad ? look_at_all(&p, &err) : bn_fail_nomem(&err, 0, "the events");
    int code = EXIT_SUCCESS;
    if (s != BITNET_OK) code = term_fail(&err);
    else if (in->config->json) code = print_json(&p, &m);
    else print_text(&p, &m);
    free(p.events);
    bn_json_free(p.bad);
    return code;
}
