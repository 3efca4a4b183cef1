/* SPDX-License-Identifier: Apache-2.0
 *
 * endpoints_adapters.c: adapters that come and go while the server runs, in the words of vLLM
 * (/v1/load_lora_adapter, /v1/unload_lora_adapter) and of llama-server (/lora-adapters). Files are read
 * on a thread of their own, one adapter at a time; requests go on meanwhile.
 */
#include "base/os/mem.h"
#include "server/adapters.h"
#include "server/server_impl.h"
#include <errno.h>
#include <event2/event.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ------------------------------------------------------------------ the list */

static struct bn_json *adapter_json(const struct served_adapter *a)
{
    bitnet_adapter_info i = {.size = sizeof i};
    bitnet_adapter_get_info(a->adapter, &i);
    return bn_json_pack("{s:I, s:s, s:s, s:f, s:s, s:I, s:I, s:I, s:s, s:s}", "id", (int64_t)a->id,
                        "name", a->name, "path", a->path, "scale", (double)a->scale, "format",
                        i.format, "rank", (int64_t)i.rank_max, "matrices", (int64_t)i.n_matrices,
                        "bytes", (int64_t)i.bytes, "task_name", "", "prompt_prefix", "");
}

static void list_adapters(struct exchange *x)
{
    struct bn_json *all = bn_json_array();
    for (size_t i = 0; i < x->model->adapters.n; i++)
        bn_json_append(all, adapter_json(x->model->adapters.items[i]));
    exchange_reply_json(x, 200, all);
}

/* [{"id", "scale"}]: what requests use from now on that name neither an adapter nor a list; those that
 * are not named get 0. All of it is looked at before anything changes. */
static void set_scales(struct exchange *x)
{
    struct adapter_list *l = &x->model->adapters;
    struct bn_json *body, *one;
    struct openai_lora *list;
    size_t n, used = 0;
    bitnet_error err = {0};
    if (!exchange_body_list(x, &body)) return;
    n = bn_json_size(body);
    list = bn_calloc(n + 1, sizeof *list);
    bitnet_status s = list ? BITNET_OK : bn_fail_nomem(&err, n * sizeof *list, "scales");
    for (size_t i = 0; s == BITNET_OK && (one = bn_json_at(body, i)); i++) {
        s = openai_lora_read(&list[i], one, "body", &err);
        if (s == BITNET_OK && !adapter_list_at(l, list[i].id))
            s = bn_fail(&err, BITNET_E_ARG, "there is no adapter %u", list[i].id);
        used += list[i].scale != 0;
    }
    if (s == BITNET_OK && used > BITNET_MAX_ADAPTERS)
        s = bn_fail(&err, BITNET_E_LIMIT, "%zu adapters for every request; at most %d are possible",
                    used, BITNET_MAX_ADAPTERS);
    for (size_t i = 0; s == BITNET_OK && i < l->n; i++) l->items[i]->scale = 0;
    for (size_t i = 0; s == BITNET_OK && i < n; i++)
        adapter_list_at(l, list[i].id)->scale = list[i].scale;
    free(list);
    bn_json_free(body);
    if (s != BITNET_OK) exchange_fail(x, &err, NULL, NULL);
    else exchange_reply_json(x, 200, bn_json_pack("{s:b}", "success", 1));
}

void serve_lora_adapters(struct exchange *x)
{
    (strcmp(net_http(x->request)->method, "POST") == 0 ? set_scales : list_adapters)(x);
}

/* ------------------------------------------------------------------ loading */

struct adapter_load {
    struct exchange x; /* first */
    struct served_model *s;
    char name[ADAPTER_NAME_BYTES], *path;
    bool in_place; /* another one of that name goes */
    pthread_t thread;
    int fd;
    struct event *done;
    bitnet_status status;
    bitnet_adapter *adapter;
    bitnet_error err;
};

static void free_load(struct adapter_load *load)
{
    exchange_close(&load->x);
    if (load->done) event_free(load->done);
    if (load->fd >= 0) close(load->fd);
    bitnet_adapter_close(load->adapter);
    free(load->path);
    free(load);
}

static void *read_adapter(void *arg)
{
    struct adapter_load *load = arg;
    uint64_t one = 1;
    load->status = bitnet_adapter_open(&load->adapter, load->s->m, load->path, &load->err);
    if (write(load->fd, &one, sizeof one) != sizeof one) return NULL; /* it cannot be full */
    return NULL;
}

static void reply_text(struct exchange *x, const char *what, const char *name)
{
    char text[ADAPTER_NAME_BYTES + 64];
    int n = snprintf(text, sizeof text, "Success: LoRA adapter '%s' %s successfully.", name, what);
    exchange_reply(x, 200, "text/plain; charset=utf-8", text, (size_t)n);
}

/* A new one takes the scale of the one whose place it takes. */
static void take_adapter(struct adapter_load *load)
{
    struct adapter_list *l = &load->s->adapters;
    struct served_adapter *old = adapter_list_find(l, load->name);
    float scale = old ? old->scale : 0;
    if (old) adapter_list_remove(l, old);
    load->status = adapter_list_add(l, load->name, load->path, load->adapter, scale, &load->err);
    if (load->status == BITNET_OK) load->adapter = NULL;
}

static void on_loaded(int fd, short what, void *user)
{
    (void)fd, (void)what;
    struct adapter_load *load = user;
    pthread_join(load->thread, NULL);
    load->s->loading = NULL;
    if (load->status == BITNET_OK) take_adapter(load);
    if (!load->x.request) {
        /* nobody waits for the answer */
    } else if (load->status == BITNET_E_IO) { /* the path is the client's */
        exchange_refuse(&load->x, 400, NULL, "%s", load->err.text);
    } else if (load->status != BITNET_OK) {
        exchange_fail(&load->x, &load->err, NULL, NULL);
    } else {
        reply_text(&load->x, "added", load->name);
    }
    free_load(load);
}

void adapters_end_loading(struct served_model *s)
{
    if (!s->loading) return;
    pthread_join(s->loading->thread, NULL);
    free_load(s->loading);
    s->loading = NULL;
}

/* Signals are for the thread of the event loop. */
static int start_thread(struct adapter_load *load)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int e = pthread_create(&load->thread, NULL, read_adapter, load);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return e;
}

/* false: updates are not allowed, and the client was told */
static bool may_update(struct exchange *x)
{
    if (x->s->c->lora_updates) return true;
    exchange_refuse(x, 403, NULL,
                    "adapters cannot be loaded or unloaded: the server was started without "
                    "--lora-updates");
    return false;
}

static bitnet_status read_name(const char **name, const struct bn_json *body, bitnet_error *err)
{
    *name = NULL;
    BN_TRY(bn_json_read_str(name, body, "lora_name", "body", err));
    if (!*name) return bn_fail(err, BITNET_E_ARG, "'lora_name' is missing");
    return adapter_name_check(*name, err);
}

static bitnet_status read_load(struct adapter_load *load, const struct bn_json *body,
                               bitnet_error *err)
{
    const char *name, *path = NULL;
    BN_TRY(read_name(&name, body, err));
    BN_TRY(bn_json_read_str(&path, body, "lora_path", "body", err));
    BN_TRY(bn_json_read_bool(&load->in_place, body, "load_inplace", "body", err));
    if (!path || !*path) return bn_fail(err, BITNET_E_ARG, "'lora_path' is missing");
    snprintf(load->name, sizeof load->name, "%s", name);
    load->path = strdup(path);
    if (!load->path) return bn_fail_nomem(err, strlen(path), "a path");
    const struct adapter_list *l = &load->s->adapters;
    bool there = adapter_list_find(l, name) != NULL;
    if (strcmp(name, load->s->name) == 0)
        return bn_fail(err, BITNET_E_ARG, "'%s' is the name of the model", name);
    if (there && !load->in_place)
        return bn_fail(err, BITNET_E_ARG,
                       "The lora adapter '%s' has already been loaded; 'load_inplace' replaces it",
                       name);
    if (!there && l->n == ADAPTERS_MAX)
        return bn_fail(err, BITNET_E_LIMIT, "%zu adapters are loaded; unload one first", l->n);
    return BITNET_OK;
}

static bitnet_status start_load(struct adapter_load *load, bitnet_error *err)
{
    load->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (load->fd < 0)
        return bn_fail(err, BITNET_E_IO, "no event counter can be had (error %d)", errno);
    load->done = event_new(load->s->s->base, load->fd, EV_READ, on_loaded, load);
    if (!load->done || event_add(load->done, NULL) != 0)
        return bn_fail_nomem(err, sizeof *load, "loading an adapter");
    int e = start_thread(load);
    if (e) return bn_fail(err, BITNET_E_NOMEM, "cannot start a thread (error %d)", e);
    return BITNET_OK;
}

void serve_load_lora(struct exchange *x)
{
    struct bn_json *body;
    bitnet_error err = {0};
    if (!may_update(x) || !exchange_body(x, &body)) return;
    if (x->model->loading) {
        bn_json_free(body);
        exchange_refuse(x, 409, NULL, "another adapter is being loaded");
        return;
    }
    struct adapter_load *load = bn_calloc(1, sizeof *load);
    bitnet_status s = load ? BITNET_OK : bn_fail_nomem(&err, sizeof *load, "loading an adapter");
    if (load) {
        load->s = x->model;
        load->fd = -1;
        s = read_load(load, body, &err);
    }
    if (s == BITNET_OK) s = start_load(load, &err);
    bn_json_free(body);
    if (s != BITNET_OK) {
        if (load) free_load(load);
        exchange_fail(x, &err, NULL, NULL);
        return;
    }
    load->x = *x;
    x->model->loading = load;
    exchange_wait(&load->x, "the adapter was not loaded");
}

void serve_unload_lora(struct exchange *x)
{
    struct bn_json *body;
    const char *name;
    bitnet_error err = {0};
    if (!may_update(x) || !exchange_body(x, &body)) return;
    bitnet_status s = read_name(&name, body, &err);
    struct served_adapter *a = s == BITNET_OK ? adapter_list_find(&x->model->adapters, name) : NULL;
    char known[ADAPTER_NAME_BYTES] = "";
    if (s == BITNET_OK) snprintf(known, sizeof known, "%s", name);
    bn_json_free(body);
    if (s != BITNET_OK) {
        exchange_fail(x, &err, NULL, NULL);
    } else if (!a) {
        exchange_refuse(x, 404, NULL, "The lora adapter '%s' cannot be found.", known);
    } else {
        adapter_list_remove(&x->model->adapters, a);
        reply_text(x, "removed", known);
    }
}
