/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/commands/generate.h"

#include "base/clock.h"
#include "base/os/mem.h"
#include "app/interrupt.h"
#include <stddef.h>
#include <stdlib.h>
#include <sys/random.h>

enum { EVENT_ROOM = 8 };
static const size_t answer_max_bytes = (size_t)256 << 20;

#define AT(field) offsetof(struct generate_opts, field)
const struct opt generate_opts_table[] = {
    {.kind = OPT_U32,
     .letter = 'n',
     .name = "max-new-tokens",
     .metavar = "N",
     .help = "tokens to generate at most; 0 fills the context",
     .offset = AT(max_new_tokens),
     .initial = "256",
     .aliases = "max-tokens n-predict predict",
     .min = 0,
     .max = 1 << 24},
    SEED_OPT("the same seed gives the same text", AT(seed), .shown = "random",
             .given = AT(seed_given)),
    {.kind = OPT_LIST,
     .name = "stop",
     .metavar = "TEXT",
     .help = "stop before this text appears; may be repeated",
     .offset = AT(stop)},
    {.kind = OPT_FLAG,
     .name = "ignore-eos",
     .help = "do not stop at the model's end token",
     .offset = AT(ignore_end)},
    {.kind = OPT_FLAG,
     .name = "special",
     .help = "recognise special tokens in the prompt, and show those that are generated",
     .offset = AT(special)},
    {.kind = OPT_END},
};
#undef AT

void generate_choose_seed(struct generate_opts *o)
{
    if (o->seed_given) return;
    uint32_t seed;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed) seed = (uint32_t)bn_now_ns();
    o->seed = seed;
}

static bitnet_status fill_request(bitnet_request *r, bitnet_logit_bias biases[OPT_LIST_MAX],
                                  const struct generation *g, bitnet_error *err)
{
    const struct generate_opts *o = g->opts;
    bitnet_request_init(r, sizeof *r);
    r->tokens = g->tokens;
    r->n_tokens = g->n_tokens;
    r->max_new_tokens = o->max_new_tokens;
    r->sampling.seed = g->seed;
    r->stop = o->stop.n ? o->stop.items : NULL;
    r->n_stop = o->stop.n;
    r->ignore_end = o->ignore_end;
    r->show_special = o->special;
    r->logprobs = g->logprobs;
    r->n_top_logprobs = g->n_top;
    return sampling_from_opts(&r->sampling, biases, &o->sampling, g->model, err);
}

static bitnet_status take_logprobs(struct generation *g, const bitnet_event *e, bitnet_error *err)
{
    size_t need = g->n_probs + 1 + e->n_top;
    if (!bn_grow((void **)&g->probs, &g->probs_room, need, sizeof *g->probs))
        return bn_fail_nomem(err, need * sizeof *g->probs, "log-probabilities");
    g->probs[g->n_probs] = (bitnet_logprob){e->token, e->logprob};
    if (e->n_top) memcpy(g->probs + g->n_probs + 1, e->top, e->n_top * sizeof *e->top);
    g->n_probs = need;
    g->n_top = e->n_top;
    return BITNET_OK;
}

/* Takes one event; *go_on becomes false when the text can no longer be delivered. */
static bitnet_status take_event(struct generation *g, const bitnet_event *e, uint64_t start_ns,
                                bool *go_on, bitnet_error *err)
{
    if (e->token >= 0) {
        if (g->n_ids == 0) g->first_token_ns = bn_now_ns() - start_ns;
        if (!bn_grow((void **)&g->ids, &g->ids_room, g->n_ids + 1, sizeof *g->ids))
            return bn_fail_nomem(err, (g->n_ids + 1) * sizeof *g->ids, "generated tokens");
        g->ids[g->n_ids++] = e->token;
        if (g->logprobs) BN_TRY(take_logprobs(g, e, err));
    }
    if (e->text_bytes) {
        if (!bn_buf_append(&g->text, e->text, e->text_bytes))
            return bn_fail(err, BITNET_E_LIMIT, "the answer is longer than %zu bytes",
                           answer_max_bytes);
        if (*go_on && g->on_text) *go_on = g->on_text(g->user, e->text, e->text_bytes);
    }
    g->n_prompt = e->n_prompt;
    g->n_cached = e->n_cached;
    g->n_generated = e->n_generated;
    g->prefill_ns = e->prefill_ns;
    g->decode_ns = e->decode_ns;
    g->repetition = e->repetition;
    g->finish = e->finish;
    if (e->finish == BITNET_FINISH_ERROR)
        return bn_fail(err, BITNET_E_INTERNAL, "%s", e->error ? e->error : "the request failed");
    return BITNET_OK;
}

static bitnet_status submit(const struct generation *g, uint64_t *id, bitnet_error *err)
{
    bitnet_request r;
    bitnet_logit_bias biases[OPT_LIST_MAX];
    char *owned = NULL;
    bitnet_status s = fill_request(&r, biases, g, err);
    if (s == BITNET_OK) s = constraint_from_opts(&r, &owned, &g->opts->constraint, err);
    if (s == BITNET_OK) s = bitnet_submit(g->engine, &r, id, err);
    free(owned);
    return s;
}

bitnet_status generation_run(struct generation *g, bitnet_error *err)
{
    uint64_t id, start_ns = bn_now_ns();
    bn_buf_init(&g->text, answer_max_bytes);
    g->finish = BITNET_FINISH_NONE;
    BN_TRY(submit(g, &id, err));
    bool go_on = true, cancelled = false;
    struct scrub scrub;
    scrub_begin(&scrub, g->engine, &g->scrub);
    if (g->n_echo && g->on_text) go_on = g->on_text(g->user, g->echo, g->n_echo);
    bitnet_status s = BITNET_OK;
    while (s == BITNET_OK && g->finish == BITNET_FINISH_NONE) {
        if (!cancelled && (!go_on || interrupt_pending())) {
            cancelled = true;
            bitnet_cancel(g->engine, id);
        }
        bitnet_event events[EVENT_ROOM] = {{.size = sizeof *events}};
        size_t n = EVENT_ROOM;
        s = bitnet_step(g->engine, events, &n, err);
        if (s == BITNET_OK && n == 0)
            s = bn_fail(err, BITNET_E_INTERNAL, "the engine lost the request");
        for (size_t i = 0; s == BITNET_OK && i < n; i++)
            if (events[i].id == id) s = take_event(g, &events[i], start_ns, &go_on, err);
        if (s == BITNET_OK) s = scrub_some(&scrub, err);
    }
    /* after an error of ours the request must not linger in the engine */
    if (s != BITNET_OK) bitnet_cancel(g->engine, id);
    g->total_ns = bn_now_ns() - start_ns;
    return s;
}

void generation_free(struct generation *g)
{
    bn_buf_free(&g->text);
    free(g->ids);
    free(g->probs);
    g->ids = NULL;
    g->probs = NULL;
    g->n_ids = g->ids_room = g->n_probs = g->probs_room = 0;
}

const char *generation_finish_name(bitnet_finish f)
{
    switch (f) {
    case BITNET_FINISH_NONE: return "none";
    case BITNET_FINISH_END: return "end";
    case BITNET_FINISH_STOP: return "stop";
    case BITNET_FINISH_LENGTH: return "length";
    case BITNET_FINISH_CANCELLED: return "cancelled";
    case BITNET_FINISH_ERROR: return "error";
    case BITNET_FINISH_TIMEOUT: return "timeout";
    }
    return "unknown";
}

static double rate(uint32_t tokens, uint64_t ns) { return ns ? tokens * 1e9 / (double)ns : 0; }

double generation_prompt_rate(const struct generation *g)
{
    return rate(g->n_prompt - g->n_cached, g->prefill_ns);
}

double generation_decode_rate(const struct generation *g)
{
    /* the first token falls out of the prompt; decoding makes the others */
    return g->n_generated > 1 ? rate(g->n_generated - 1, g->decode_ns) : 0;
}
