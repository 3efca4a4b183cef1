/* SPDX-License-Identifier: Apache-2.0 */
#include "server/adapters.h"

#include "app/term.h"
#include "base/os/mem.h"
#include <stdio.h>
#include <stdlib.h>

static void free_adapter(struct served_adapter *a)
{
    bitnet_adapter_close(a->adapter);
    free(a->path);
    free(a);
}

bitnet_status adapter_list_add(struct adapter_list *l, const char *name, const char *path,
                               bitnet_adapter *adapter, float scale, bitnet_error *err)
{
    if (l->n == ADAPTERS_MAX)
        return bn_fail(err, BITNET_E_LIMIT, "%zu adapters are loaded; more are not possible", l->n);
    struct served_adapter *a = bn_calloc(1, sizeof *a);
    char *kept = strdup(path);
    if (!a || !kept) {
        free(a);
        free(kept);
        return bn_fail_nomem(err, sizeof *a, "an adapter");
    }
    *a = (struct served_adapter){.id = l->next_id++,
                                 .path = kept,
                                 .adapter = adapter,
                                 .scale = scale,
                                 .named = scale != 0 ? scale : 1,
                                 .listed = true,
                                 .by_request = adapter != NULL};
    snprintf(a->name, sizeof a->name, "%s", name);
    l->items[l->n++] = a;
    return BITNET_OK;
}

void adapter_list_remove(struct adapter_list *l, struct served_adapter *a)
{
    size_t i = 0;
    while (l->items[i] != a) i++;
    memmove(l->items + i, l->items + i + 1, (--l->n - i) * sizeof l->items[i]);
    a->listed = false;
    if (!a->n_users) free_adapter(a);
}

bitnet_status adapter_list_open(struct adapter_list *l, const char *const *typed, size_t n,
                                bitnet_error *err)
{
    struct adapters a = {.n = 0};
    bitnet_status s = adapters_read(&a, typed, n, err);
    for (size_t i = 0; s == BITNET_OK && i < a.n; i++) {
        const struct adapter_spec *x = &a.items[i].spec;
        s = adapter_list_add(l, x->name, x->path, NULL, adapter_spec_usual(x), err);
    }
    adapters_close(&a);
    return s;
}

void adapter_list_close(struct adapter_list *l)
{
    while (l->n) adapter_list_remove(l, l->items[l->n - 1]);
}

struct served_adapter *adapter_list_find(const struct adapter_list *l, const char *name)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->items[i]->name, name) == 0) return l->items[i];
    return NULL;
}

struct served_adapter *adapter_list_at(const struct adapter_list *l, uint32_t id)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->items[i]->id == id) return l->items[i];
    return NULL;
}

/* ------------------------------------------------------------------ coming and going */

/* Requests that name one that is missing are told so; the others would be answered wrongly. */
static bool may_be_missing(const struct served_adapter *a)
{
    return a->by_request && a->scale == 0;
}

static void tell_missing(const struct served_adapter *a, const bitnet_error *why)
{
    char text[sizeof a->name + sizeof why->text + 64];
    snprintf(text, sizeof text, "adapter %s is not loaded again with its model: %s", a->name,
             why->text);
    term_note(text);
}

bitnet_status adapter_set_open(struct adapter_set *out, const struct adapter_list *l,
                               const bitnet_model *m, bitnet_error *err)
{
    *out = (struct adapter_set){.items = {NULL}};
    for (size_t i = 0; i < l->n; i++) {
        const struct served_adapter *a = l->items[i];
        bitnet_error why = {0};
        bitnet_status s = adapter_open(&out->items[i], m, a->name, a->path, &why);
        if (s != BITNET_OK && (s == BITNET_E_NOMEM || !may_be_missing(a))) {
            adapter_set_close(out);
            if (err) *err = why;
            return s;
        }
        if (s != BITNET_OK) tell_missing(a, &why);
    }
    return BITNET_OK;
}

void adapter_set_close(struct adapter_set *set)
{
    for (size_t i = 0; i < ADAPTERS_MAX; i++) {
        bitnet_adapter_close(set->items[i]);
        set->items[i] = NULL;
    }
}

void adapter_list_take(struct adapter_list *l, struct adapter_set *set)
{
    for (size_t i = l->n; i-- > 0;) {
        l->items[i]->adapter = set->items[i];
        set->items[i] = NULL;
        if (!l->items[i]->adapter) adapter_list_remove(l, l->items[i]);
    }
}

void adapter_list_give(struct adapter_list *l, struct adapter_set *set)
{
    for (size_t i = 0; i < l->n; i++) {
        set->items[i] = l->items[i]->adapter;
        l->items[i]->adapter = NULL;
    }
}

/* ------------------------------------------------------------------ of a request */

static bitnet_status choose_one(struct adapter_choice *c, struct served_adapter *a, float scale,
                                bitnet_error *err)
{
    if (scale == 0) return BITNET_OK;
    if (c->n == BITNET_MAX_ADAPTERS)
        return bn_fail(err, BITNET_E_LIMIT, "more than %d adapters of a request",
                       BITNET_MAX_ADAPTERS);
    for (size_t i = 0; i < c->n; i++)
        if (c->items[i] == a)
            return bn_fail(err, BITNET_E_ARG, "'lora' names adapter %u twice", a->id);
    c->items[c->n] = a;
    c->uses[c->n++] = (bitnet_adapter_use){a->adapter, scale, 0};
    return BITNET_OK;
}

static bitnet_status choose_listed(struct adapter_choice *c, const struct adapter_list *l,
                                   const struct openai_request *q, bitnet_error *err)
{
    for (size_t i = 0; i < q->n_lora; i++) {
        struct served_adapter *a = adapter_list_at(l, q->lora[i].id);
        if (!a)
            return bn_fail(err, BITNET_E_ARG,
                           "'lora': there is no adapter %u; GET /lora-adapters lists them",
                           q->lora[i].id);
        BN_TRY(choose_one(c, a, q->lora[i].scale, err));
    }
    return BITNET_OK;
}

bitnet_status adapter_choose(struct adapter_choice *out, const struct adapter_list *l,
                             const struct openai_request *q, bitnet_error *err)
{
    struct served_adapter *named = q->model && *q->model ? adapter_list_find(l, q->model) : NULL;
    bitnet_status s = BITNET_OK;
    *out = (struct adapter_choice){.n = 0};
    if (q->lora) s = choose_listed(out, l, q, err);
    else if (named) s = choose_one(out, named, named->named, err);
    else
        for (size_t i = 0; s == BITNET_OK && i < l->n; i++)
            s = choose_one(out, l->items[i], l->items[i]->scale, err);
    if (s != BITNET_OK) out->n = 0;
    for (size_t i = 0; i < out->n; i++) out->items[i]->n_users++;
    return s;
}

void adapter_begin(struct adapter_choice *c)
{
    for (size_t i = 0; !c->running && i < c->n; i++) c->items[i]->n_running++;
    c->running = true;
}

void adapter_list_names(const struct adapter_list *l, bool running, struct bn_buf *out)
{
    const char *comma = "";
    for (size_t i = 0; i < l->n; i++) {
        const struct served_adapter *a = l->items[i];
        if (running ? !a->n_running : a->n_users <= a->n_running) continue;
        bn_buf_printf(out, "%s%s", comma, a->name);
        comma = ",";
    }
}

void adapter_release(struct adapter_choice *c)
{
    for (size_t i = 0; c->running && i < c->n; i++) c->items[i]->n_running--;
    for (size_t i = 0; i < c->n; i++)
        if (--c->items[i]->n_users == 0 && !c->items[i]->listed) free_adapter(c->items[i]);
    c->n = 0;
}
