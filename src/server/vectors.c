/* SPDX-License-Identifier: Apache-2.0
 *
 * vectors.c: the life of a request for vectors. It has one place in the queue, and lives until the worker
 * has let go of it, whether or not the client is still there.
 */
#include "app/tokens.h"
#include "base/clock.h"
#include "base/number.h"
#include "base/os/mem.h"
#include "server/vectors_impl.h"
#include <math.h>
#include <stdlib.h>

static void vectors_free(struct vectors *v)
{
    for (size_t i = 0; v->inputs && i < v->n; i++) free((void *)v->inputs[i].tokens);
    exchange_close(&v->x);
    bn_json_free(v->body);
    bn_buf_free(&v->out);
    free(v->inputs);
    free(v->vectors);
    free(v->model);
    free(v);
}

/* ------------------------------------------------------------------ the body */

bitnet_status vectors_add_input(struct vectors *v, const struct bn_json *one, const char *key,
                                bitnet_error *err)
{
    const struct tokens_how how = {key, TEXT_MAX_BYTES, BITNET_TOK_BOS_AUTO};
    uint32_t most = v->x.model->engine.ctx_tokens;
    int32_t *ids;
    size_t n;
    v->n_bytes += bn_json_bytes(one);
    if (v->n_bytes > TEXT_MAX_BYTES)
        return bn_fail(err, BITNET_E_LIMIT, "'%s' has more than %d bytes of text", key,
                       TEXT_MAX_BYTES);
    if (v->n >= VECTORS_MAX_INPUTS)
        return bn_fail(err, BITNET_E_LIMIT, "'%s' holds more than %d texts", key,
                       VECTORS_MAX_INPUTS);
    if (!bn_grow((void **)&v->inputs, &v->n_room, v->n + 1, sizeof *v->inputs))
        return bn_fail_nomem(err, (v->n + 1) * sizeof *v->inputs, key);
    BN_TRY(tokens_from_mixed(&ids, &n, v->x.model->m, one, &how, err));
    if (v->cut) n = bn_min_size(n, most);
    v->inputs[v->n++] = (bitnet_embed_input){ids, n};
    v->n_tokens += n;
    if (n == 0) return bn_fail(err, BITNET_E_ARG, "'%s' %zu has no tokens", key, v->n - 1);
    if (n > most)
        return bn_fail(err, BITNET_E_LIMIT,
                       "'%s' %zu is too large: it has %zu tokens; at most %u are possible", key,
                       v->n - 1, n, most);
    return BITNET_OK;
}

bitnet_status vectors_read_inputs(struct vectors *v, const struct bn_json *input, const char *key,
                                  bitnet_error *err)
{
    bool several = tokens_are_several(input);
    if (!input) return bn_fail(err, BITNET_E_ARG, "the request has no '%s'", key);
    size_t n = several ? bn_json_size(input) : 1;
    if (n == 0 || n > VECTORS_MAX_INPUTS)
        return bn_fail(err, BITNET_E_LIMIT, "'%s' holds %zu texts; 1 to %d are possible", key, n,
                       VECTORS_MAX_INPUTS);
    for (size_t i = 0; i < n; i++)
        BN_TRY(vectors_add_input(v, several ? bn_json_at(input, i) : input, key, err));
    return BITNET_OK;
}

bitnet_status vectors_read_model(struct vectors *v, const struct bn_json *body, bitnet_error *err)
{
    const char *model = v->x.model->name;
    BN_TRY(bn_json_read_str(&model, body, "model", "body", err));
    v->model = strdup(model);
    return v->model ? BITNET_OK : bn_fail_nomem(err, strlen(model), "a name");
}

bitnet_status vectors_read_pooling(struct vectors *v, const struct bn_json *body, bool allow_none,
                                   bitnet_error *err)
{
    static const char *const words[] = {
        [BITNET_POOL_MEAN] = "mean", [BITNET_POOL_LAST] = "last", [BITNET_POOL_NONE] = "none"};
    const char *word = words[v->options.pooling];
    size_t i = 0, n = allow_none ? 3 : 2;
    BN_TRY(bn_json_read_str(&word, body, "pooling", "body", err));
    while (i < n && strcmp(word, words[i]) != 0) i++;
    if (i == n)
        return bn_fail(err, BITNET_E_ARG, "'pooling' is '%.40s'; 'mean'%s 'last'%s exist", word,
                       allow_none ? "," : " and", allow_none ? " and 'none'" : "");
    v->options.pooling = (bitnet_pooling)i;
    if (i == BITNET_POOL_NONE) v->options.normalize = "off";
    return BITNET_OK;
}

bitnet_status vectors_read_dimensions(struct vectors *v, const struct bn_json *body,
                                      bitnet_error *err)
{
    BN_TRY(bn_json_read_u32(&v->n_told, body, "dimensions", "body", err));
    if (v->n_told >= 1 && v->n_told <= v->n_embd) return BITNET_OK;
    return bn_fail(err, BITNET_E_ARG, "'dimensions' is %u; 1 to %zu are possible", v->n_told,
                   v->n_embd);
}

/* On any thread. */
static bitnet_status read_body(struct vectors *v, bitnet_error *err)
{
    bitnet_pooling usual = v->x.s->c->pooling;
    v->options = (bitnet_embed_options){.size = sizeof v->options};
    v->options.pooling = usual == BITNET_POOL_NONE && v->form->one_each ? BITNET_POOL_MEAN : usual;
    v->n_embd = v->x.model->info.shape.n_embd;
    BN_TRY(v->form->read(v, v->body, err));
    if (!v->form->keeps_body) {
        bn_json_free(v->body);
        v->body = NULL;
    }
    v->n_rows = v->options.pooling == BITNET_POOL_NONE ? v->n_tokens : v->n;
    size_t bytes = v->n_rows * v->n_embd * sizeof *v->vectors;
    if (bytes > VECTORS_MAX_BYTES)
        return bn_fail(err, BITNET_E_LIMIT, "%zu vectors take %zu bytes; at most %d are possible",
                       v->n_rows, bytes, VECTORS_MAX_BYTES);
    v->vectors = bn_calloc(v->n_rows * v->n_embd, sizeof *v->vectors);
    return v->vectors ? BITNET_OK : bn_fail_nomem(err, bytes, "vectors");
}

/* ------------------------------------------------------------------ the reply */

void vectors_put(struct bn_buf *out, const float *x, size_t n)
{
    char text[BN_NUMBER_BYTES];
    for (size_t i = 0; i < n; i++) {
        bn_buf_putc(out, i ? ',' : '[');
        bn_buf_append(out, text, bn_number_float(text, x[i]));
    }
    bn_buf_putc(out, ']');
}

void vectors_shorten(float *x, size_t n, size_t n_embd)
{
    double sum = 0;
    if (n == n_embd) return;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    for (size_t i = 0; i < n && sum > 0; i++) x[i] = (float)((double)x[i] / sqrt(sum));
}

/* It is over for the worker. */
static void leave(struct vectors *v)
{
    exchange_settle(&v->x, v->n_tokens, 0);
    places_leave(v->x.model, v->x.user);
    v->x.model->n_running--;
}

static void finish(struct vectors *v)
{
    leave(v);
    vectors_free(v);
}

static struct vectors *of_task(struct worker_task *t)
{
    return (struct vectors *)((char *)t - offsetof(struct vectors, task));
}

static struct vectors *of_errand(struct errand *e)
{
    return (struct vectors *)((char *)e - offsetof(struct vectors, errand));
}

static void run_write(struct errand *e)
{
    struct vectors *v = of_errand(e);
    v->form->write(v, &v->out);
}

static void on_written(struct errand *e)
{
    struct vectors *v = of_errand(e);
    v->x.line.n_prompt = (uint32_t)v->n_tokens;
    if (v->x.request && v->out.failed)
        exchange_refuse(&v->x, 500, NULL, "out of memory for %zu vectors", v->n);
    else if (v->x.request) exchange_reply(&v->x, 200, "application/json", v->out.data, v->out.len);
    vectors_free(v);
}

static void on_late_unwritten(struct exchange *x) { (void)x; } /* it is there */

/* Many vectors take a while to be written, and would hold others up: that is an errand, too. */
static void on_embedded(struct worker_task *t)
{
    struct vectors *v = of_task(t);
    leave(v);
    if (!v->x.request) {
        vectors_free(v);
        return;
    }
    bn_buf_init(&v->out, SIZE_MAX / 2);
    v->errand = (struct errand){.run = run_write, .done = on_written};
    if (v->n_rows * v->n_embd * sizeof *v->vectors < LARGE_REPLY_BYTES) {
        run_write(&v->errand);
        on_written(&v->errand);
        return;
    }
    v->x.disconnected = exchange_disconnected;
    v->x.late = on_late_unwritten;
    errands_give(v->x.s->errands, &v->errand, true);
}

static void on_failed(struct worker_task *t, const bitnet_error *err)
{
    struct vectors *v = of_task(t);
    if (v->x.request) exchange_fail(&v->x, err, NULL, NULL);
    finish(v);
}

static void on_disconnect(struct exchange *x)
{
    struct vectors *v = (struct vectors *)x;
    exchange_disconnected(x);
    worker_cancel(x->model->worker, &v->task);
}

static void on_late(struct exchange *x)
{
    struct vectors *v = (struct vectors *)x;
    exchange_refuse(x, 504, "timeout", "the vectors were not there within %u s",
                    x->s->c->timeout_s);
    worker_cancel(x->model->worker, &v->task);
}

/* ------------------------------------------------------------------ from the client */

static void submit(struct vectors *v)
{
    struct served_model *s = v->x.model;
    places_take(s, v->x.user, 1);
    s->n_running++;
    v->x.disconnected = on_disconnect;
    v->x.late = on_late;
    v->task.done = on_embedded;
    v->task.failed = on_failed;
    exchange_later(&v->x);
    worker_embed(s->worker, &v->task, v->inputs, v->n, &v->options, v->vectors);
}

static void begin(struct vectors *v)
{
    if (v->status != BITNET_OK) {
        exchange_fail(&v->x, &v->err, NULL, NULL);
        vectors_free(v);
        return;
    }
    exchange_tell_ignored(&v->x, &v->ignored);
    if (exchange_check_places(&v->x, 1) && exchange_take_answers(&v->x, 1, v->n_tokens)) submit(v);
    else vectors_free(v);
}

static void run_errand(struct errand *e)
{
    struct vectors *v = of_errand(e);
    v->status = read_body(v, &v->err);
}

static void on_read(struct errand *e)
{
    struct vectors *v = of_errand(e);
    if (v->x.request) {
        exchange_resume(&v->x);
        begin(v);
    } else {
        vectors_free(v);
    }
}

void serve_vectors(struct exchange *x, const struct vectors_form *form)
{
    struct bn_json *body;
    if (!exchange_check_places(x, 1) || !exchange_body(x, &body)) return;
    struct vectors *v = exchange_copy(x, sizeof *v, body);
    if (!v) return;
    v->form = form;
    v->body = body;
    v->began_ns = net_began_ns(x->request);
    if (x->large) {
        v->errand = (struct errand){.run = run_errand, .done = on_read};
        exchange_elsewhere(&v->x, &v->errand, "the texts were not read");
        return;
    }
    v->status = read_body(v, &v->err);
    begin(v);
}
