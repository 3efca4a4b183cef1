/* SPDX-License-Identifier: Apache-2.0
 *
 * The window: requests in the order of the input, those that are being computed and those that are
 * done and wait for one before them. Requests enter at its end while the engine can use more;
 * lines leave at its front. A line is only written if every other run would write it, too: what
 * could go better next time (no memory, an internal error) ends the run instead.
 */
#include "base/clock.h"
#include "cli/batch/batch.h"
#include "app/interrupt.h"
#include "app/term.h"
#include "server/openai/reply.h"
#include <stdlib.h>

/* For each sequence of the engine: requests in the window, and sequences asked for at a time, so
 * that whoever ends finds a successor waiting. */
enum { WINDOW_PER_SEQ = 16, AHEAD = 2 };

struct item {
    char *line; /* the output, once it is known */
    char *custom_id;
    uint64_t key;
    uint64_t *ids; /* [n_ids] in the engine, one a prompt */
    size_t n_ids;
    struct openai_reply reply;
};

struct window {
    struct batch_totals *totals;
    struct batch_input *in;
    struct batch_output *out;
    bitnet_engine *engine;
    uint32_t max_seqs, n_seqs; /* n_seqs: asked for and not yet done */
    struct item *items;        /* a ring */
    size_t room, first, n;
    bitnet_event *events; /* [2 * max_seqs] */
    struct scrub scrub;
    bool input_ended;
    struct term_progress bar;
    char note[64];
    uint64_t n_total, start_ns; /* n_total: 0 if not known */
};

static struct item *item_at(struct window *w, size_t i)
{
    return &w->items[(w->first + i) % w->room];
}

static void free_item(struct item *it)
{
    openai_reply_close(&it->reply);
    free(it->custom_id);
    free(it->line);
    free(it->ids);
    *it = (struct item){0};
}

/* ------------------------------------------------------------------ in */

static bitnet_status set_line(struct item *it, int status, struct bn_json *body, bitnet_error *err)
{
    it->line = batch_output_line(it->key, it->custom_id, status, body);
    return it->line ? BITNET_OK : bn_fail_nomem(err, 0, "an output line");
}

static bitnet_status set_error(struct window *w, struct item *it, const bitnet_error *why,
                               bitnet_error *err)
{
    w->totals->n_failed++;
    int status = openai_error_code(why->status);
    return set_line(it, status, openai_error_json(status, why->text, NULL, NULL), err);
}

/* Its events are not waited for. */
static void cancel(struct window *w, struct item *it)
{
    for (size_t i = 0; i < it->n_ids; i++) bitnet_cancel(w->engine, it->ids[i]);
    it->n_ids = 0;
}

static bitnet_status submit_prompts(struct window *w, struct item *it,
                                    const struct openai_request *r, bitnet_error *err)
{
    it->ids = bn_calloc(r->n_prompts, sizeof *it->ids);
    if (!it->ids) return bn_fail_nomem(err, r->n_prompts * sizeof *it->ids, "a request");
    for (size_t i = 0; i < r->n_prompts; i++) {
        bitnet_request one;
        openai_request_at(r, i, &one);
        BN_TRY(bitnet_submit(w->engine, &one, &it->ids[i], err));
        it->n_ids++;
    }
    return BITNET_OK;
}

static bitnet_status submit(struct window *w, struct item *it, bitnet_error *err)
{
    struct openai_request r;
    char id[BATCH_ID_BYTES];
    batch_id(id, it->key);
    BN_TRY(batch_input_parse(w->in, &r, &it->custom_id, err));
    /* when it was made is not part of an answer: 0 */
    bitnet_status s = openai_reply_open(&it->reply, &r, w->in->model, id, 0, err);
    if (s == BITNET_OK) s = submit_prompts(w, it, &r, err);
    if (s != BITNET_OK) cancel(w, it);
    openai_request_free(&r);
    return s;
}

/* The next request takes its place at the end of the window. */
static bitnet_status take_in(struct window *w, bitnet_error *err)
{
    bool got;
    BN_TRY(batch_input_next(w->in, &got, err));
    w->input_ended = !got;
    if (!got) return BITNET_OK;
    struct item *it = item_at(w, w->n++);
    it->key = w->in->key;
    bitnet_error why = {0};
    bitnet_status s = submit(w, it, &why);
    if (s == BITNET_OK) {
        w->n_seqs += it->reply.n_choices;
        return BITNET_OK;
    }
    if (openai_error_code(s) == 400) return set_error(w, it, &why, err);
    return bn_fail(err, s, "%s", why.text);
}

/* A request that is waited for elsewhere must not wait for the next one to be typed. */
static bool wants_more(const struct window *w)
{
    return !w->input_ended && w->n < w->room && w->n_seqs < AHEAD * w->max_seqs &&
           (w->n_seqs == 0 || line_reader_ready(&w->in->reader));
}

/* ------------------------------------------------------------------ on */

/* The item that a request of the engine belongs to, and which of its prompts it is. */
static struct item *find_item(struct window *w, uint64_t id, size_t *prompt)
{
    for (size_t i = 0; i < w->n; i++) {
        struct item *it = item_at(w, i);
        for (size_t p = 0; p < it->n_ids; p++)
            if (it->ids[p] == id) return *prompt = p, it;
    }
    return NULL;
}

static bitnet_status finish(struct window *w, struct item *it, bitnet_error *err)
{
    struct openai_reply *r = &it->reply;
    w->n_seqs -= r->n_choices;
    if (r->error.status != BITNET_OK) {
        cancel(w, it);
        BN_TRY(set_error(w, it, &r->error, err));
    } else {
        w->totals->prompt_tokens += r->n_prompt;
        BN_TRY(set_line(it, 200, openai_reply_json(r, false), err));
        it->n_ids = 0;
    }
    openai_reply_close(r);
    return BITNET_OK;
}

static bitnet_status step(struct window *w, bitnet_error *err)
{
    size_t n = 2 * (size_t)w->max_seqs;
    BN_TRY(bitnet_step(w->engine, w->events, &n, err));
    if (n == 0) return bn_fail(err, BITNET_E_INTERNAL, "the engine lost %u sequences", w->n_seqs);
    for (size_t i = 0; i < n; i++) {
        const bitnet_event *e = &w->events[i];
        size_t prompt;
        struct item *it = find_item(w, e->id, &prompt);
        if (!it) continue; /* another choice of a request that failed */
        w->totals->answer_tokens += e->token >= 0;
        BN_TRY(openai_reply_take(&it->reply, prompt, e, err));
        if (openai_reply_done(&it->reply)) BN_TRY(finish(w, it, err));
    }
    return BITNET_OK;
}

/* ------------------------------------------------------------------ out */

static bitnet_status write_out(struct window *w, bitnet_error *err)
{
    while (w->n && item_at(w, 0)->line) {
        BN_TRY(batch_output_write(w->out, item_at(w, 0)->line, err));
        free_item(item_at(w, 0));
        w->first = (w->first + 1) % w->room;
        w->n--;
        w->totals->n_done++;
    }
    return BITNET_OK;
}

/* Where the end can be known: the input is a file and somebody is looking. */
static bitnet_status count_requests(struct window *w, bitnet_error *err)
{
    const struct batch_config *c = w->in->config;
    if (c->quiet || !term_is_tty(stderr) || strcmp(c->input, "-") == 0) return BITNET_OK;
    struct batch_input all = {.config = c};
    bool got = true;
    BN_TRY(batch_input_open(&all, err));
    bitnet_status s = BITNET_OK;
    while (s == BITNET_OK && got) {
        s = batch_input_next(&all, &got, err);
        w->n_total += got;
    }
    batch_input_close(&all);
    return s;
}

static void show(struct window *w)
{
    if (!w->n_total) return;
    const struct batch_totals *t = w->totals;
    uint64_t done = t->n_found + t->n_done;
    double s = (double)(bn_now_ns() - w->start_ns) / 1e9;
    unsigned left = t->n_done ? (unsigned)(s * (double)(w->n_total - done) / (double)t->n_done) : 0;
    int n = snprintf(w->note, sizeof w->note, " %llu/%llu, %.0f tok/s", (unsigned long long)done,
                     (unsigned long long)w->n_total, s > 0 ? (double)t->answer_tokens / s : 0);
    if (t->n_done)
        snprintf(w->note + n, sizeof w->note - (size_t)n, ", %u:%02u left", left / 60, left % 60);
    w->bar.note = w->note;
    term_progress_show(&w->bar, "batch", done, w->n_total);
}

static bitnet_status run_window(struct window *w, bitnet_error *err)
{
    while (!w->input_ended || w->n) {
        if (interrupt_pending()) return bn_fail(err, BITNET_E_CANCELLED, "interrupted");
        while (wants_more(w)) BN_TRY(take_in(w, err));
        if (w->n_seqs) BN_TRY(step(w, err));
        BN_TRY(scrub_some(&w->scrub, err));
        BN_TRY(write_out(w, err));
        show(w);
    }
    return BITNET_OK;
}

bitnet_status batch_run(struct batch_totals *t, struct batch_input *in, struct batch_output *out,
                        bitnet_engine *e, bitnet_error *err)
{
    bitnet_engine_info info = {.size = sizeof info};
    bitnet_engine_get_info(e, &info);
    struct window w = {.totals = t,
                       .in = in,
                       .out = out,
                       .engine = e,
                       .max_seqs = info.max_seqs,
                       .room = (size_t)info.max_seqs * WINDOW_PER_SEQ,
                       .start_ns = bn_now_ns()};
    scrub_begin(&w.scrub, e, &in->config->scrub);
    w.items = bn_calloc(w.room, sizeof *w.items);
    w.events = bn_calloc(2 * (size_t)w.max_seqs, sizeof *w.events);
    if (w.events) w.events->size = sizeof *w.events;
    bitnet_status s = w.items && w.events ? count_requests(&w, err)
                                          : bn_fail_nomem(err, w.room * sizeof *w.items, "a batch");
    if (s == BITNET_OK) s = run_window(&w, err);
    term_progress_end(&w.bar);
    for (size_t i = 0; i < w.n; i++) free_item(item_at(&w, i));
    free(w.items);
    free(w.events);
    t->ns = bn_now_ns() - w.start_ns;
    return s;
}
