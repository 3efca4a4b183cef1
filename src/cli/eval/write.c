/* SPDX-License-Identifier: Apache-2.0
 *
 * eval/write.c: items whose answer the model writes: greedy, up to a stop text, several at once. What it
 * wrote is right if the number it ends with is.
 */
#include "app/tokens.h"
#include "base/clock.h"
#include "cli/eval/eval.h"

#include <stdlib.h>
#include <string.h>

enum { IN_FLIGHT = 64, EVENTS = 64, ANSWER_MAX_BYTES = 1 << 20 };
static const char *const STOPS[] = {"Question:", "</s>", "<|im_end|>"};

/* An item under way. */
struct writing {
    uint64_t id; /* of the request; 0: this place is free */
    size_t item;
    struct bn_buf text;
};

struct writer {
    struct eval_run *run;
    bitnet_engine *engine;
    const bitnet_model *model;
    const struct eval_settings *o;
    struct writing open[IN_FLIGHT];
    size_t next, n_done;
};

static bitnet_status begin(struct writer *w, struct writing *at, bitnet_error *err)
{
    const struct eval_item *item = &w->run->set.items[w->next];
    bitnet_request r;
    int32_t *ids;
    size_t n;
    uint32_t flags = BITNET_TOK_SPECIAL | (w->o->add_bos ? BITNET_TOK_BOS : 0);
    const char *prompt = item->options->context;
    BN_TRY(tokens_encode(&ids, &n, w->model, prompt, strlen(prompt), flags, err));
    bitnet_request_init(&r, sizeof r);
    r.tokens = ids;
    r.n_tokens = n;
    r.max_new_tokens = w->o->max_new_tokens;
    r.sampling.temperature = 0;
    r.stop = STOPS;
    r.n_stop = sizeof STOPS / sizeof *STOPS;
    bitnet_status status = bitnet_submit(w->engine, &r, &at->id, err);
    free(ids);
    if (status != BITNET_OK) return status;
    at->item = w->next++;
    bn_buf_init(&at->text, ANSWER_MAX_BYTES);
    w->run->n_tokens += n;
    return BITNET_OK;
}

/* The answer is complete: is its number the right one? */
static bitnet_status end(struct writer *w, struct writing *at, bitnet_error *err)
{
    char gold[EVAL_NUMBER_BYTES], got[EVAL_NUMBER_BYTES];
    bool failed = at->text.failed;
    const char *text = at->text.data ? at->text.data : "";
    eval_number_strict(gold, w->run->set.items[at->item].answer);
    eval_number_strict(got, text);
    w->run->right[at->item] = *gold && strcmp(gold, got) == 0;
    eval_number_flexible(got, text);
    w->run->right_norm[at->item] = *gold && strcmp(gold, got) == 0;
    bn_buf_free(&at->text);
    at->id = 0;
    w->n_done++;
    return failed ? bn_fail_nomem(err, ANSWER_MAX_BYTES, "a written answer") : BITNET_OK;
}

static bitnet_status take_event(struct writer *w, const bitnet_event *ev, bitnet_error *err)
{
    for (size_t i = 0; i < IN_FLIGHT; i++) {
        struct writing *at = &w->open[i];
        if (!at->id || at->id != ev->id) continue;
        bn_buf_append(&at->text, ev->text, ev->text_bytes);
        if (ev->finish == BITNET_FINISH_ERROR)
            return bn_fail(err, BITNET_E_INTERNAL, "item %zu: %s", at->item, ev->error);
        w->run->n_computed = w->run->n_computed + (ev->token >= 0);
        if (ev->finish != BITNET_FINISH_NONE) return end(w, at, err);
        return BITNET_OK;
    }
    return BITNET_OK;
}

static bitnet_status work(struct writer *w, bitnet_error *err)
{
    const size_t n_items = w->run->set.n;
    while (w->n_done < n_items) {
        for (size_t i = 0; i < IN_FLIGHT && w->next < n_items; i++)
            if (!w->open[i].id) BN_TRY(begin(w, &w->open[i], err));
        bitnet_event events[EVENTS] = {{.size = sizeof *events}};
        size_t n = EVENTS;
        BN_TRY(bitnet_step(w->engine, events, &n, err));
        for (size_t i = 0; i < n; i++) BN_TRY(take_event(w, &events[i], err));
        if (w->o->progress && w->o->progress(w->o->progress_user, "answers", w->n_done, n_items))
            return bn_fail(err, BITNET_E_CANCELLED, "stopped after %zu of %zu items", w->n_done,
                           n_items);
    }
    return BITNET_OK;
}

bitnet_status eval_judge_written(struct eval_run *r, bitnet_engine *e, const bitnet_model *m,
                                 const struct eval_settings *o, bitnet_error *err)
{
    uint64_t start = bn_now_ns();
    struct writer w = {.run = r, .engine = e, .model = m, .o = o};
    r->right = bn_calloc(r->set.n + 1, sizeof *r->right);
    r->right_norm = bn_calloc(r->set.n + 1, sizeof *r->right_norm);
    if (!r->right || !r->right_norm) return bn_fail_nomem(err, r->set.n, "verdicts");
    bitnet_status status = work(&w, err);
    for (size_t i = 0; i < IN_FLIGHT; i++)
        if (w.open[i].id) {
            bitnet_cancel(e, w.open[i].id);
            bn_buf_free(&w.open[i].text);
        }
    r->ns = bn_now_ns() - start;
    return status;
}
