/* SPDX-License-Identifier: Apache-2.0 */
#include "app/adapters.h"

#include "app/term.h"
#include "base/os/mem.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

bitnet_status adapter_name_check(const char *name, bitnet_error *err)
{
    size_t n = strlen(name);
    if (!n) return bn_fail(err, BITNET_E_ARG, "the name of an adapter is empty");
    if (n >= ADAPTER_NAME_BYTES)
        return bn_fail(err, BITNET_E_LIMIT,
                       "the name of an adapter has %zu bytes; at most %d are possible", n,
                       ADAPTER_NAME_BYTES - 1);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return bn_fail(err, BITNET_E_ARG, "the name of an adapter holds a control character");
    return BITNET_OK;
}

/* What a file or folder is called, without slashes behind it and without ".gguf". */
static void name_of(char out[ADAPTER_NAME_BYTES], const char *path)
{
    size_t end = strlen(path), from;
    while (end && path[end - 1] == '/') end--;
    for (from = end; from && path[from - 1] != '/';) from--;
    if (end - from > 5 && strncmp(path + end - 5, ".gguf", 5) == 0) end -= 5;
    snprintf(out, ADAPTER_NAME_BYTES, "%.*s", (int)bn_min_size(end - from, ADAPTER_NAME_BYTES - 1),
             path + from);
}

/* A number with a point, all of the text. */
static bool read_scale(float *out, const char *text)
{
    char *end;
    if (!*text || !strchr("+-.0123456789", *text)) return false;
    *out = strtof(text, &end);
    return !*end && isfinite(*out);
}

bitnet_status adapter_spec_parse(struct adapter_spec *out, const char *typed, bitnet_error *err)
{
    *out = (struct adapter_spec){.scale = 1};
    const char *equals = strchr(typed, '='), *slash = strchr(typed, '/');
    bool named = equals && (!slash || equals < slash);
    out->named = named;
    const char *path = named ? equals + 1 : typed, *colon = strrchr(path, ':');
    size_t n = strlen(path);
    if (colon && read_scale(&out->scale, colon + 1)) {
        out->scale_given = true;
        n = (size_t)(colon - path);
    }
    if (!n)
        return bn_fail(err, BITNET_E_ARG, "--lora '%s' names no path: NAME=PATH[:SCALE]", typed);
    out->path = strndup(path, n);
    if (!out->path) return bn_fail_nomem(err, n, "an adapter");
    if (!named) name_of(out->name, out->path);
    else if ((size_t)(equals - typed) < sizeof out->name)
        memcpy(out->name, typed, (size_t)(equals - typed));
    else memset(out->name, 'x', sizeof out->name - 1); /* too long: told below, by its length */
    bitnet_status s = adapter_name_check(out->name, err);
    if (named && (size_t)(equals - typed) >= sizeof out->name)
        s = bn_fail(err, BITNET_E_LIMIT,
                    "the name of an adapter has %zu bytes; at most %d are possible",
                    (size_t)(equals - typed), ADAPTER_NAME_BYTES - 1);
    if (s != BITNET_OK) {
        free(out->path);
        out->path = NULL;
    }
    return s;
}

bitnet_status adapter_open(bitnet_adapter **out, const bitnet_model *m, const char *name,
                           const char *path, bitnet_error *err)
{
    bitnet_adapter_info i = {.size = sizeof i};
    char size[TERM_SIZE_BYTES], text[ADAPTER_NAME_BYTES + 128];
    BN_TRY(bitnet_adapter_open(out, m, path, err));
    bitnet_adapter_get_info(*out, &i);
    snprintf(text, sizeof text, "adapter %s: %s, rank %u, beside %u matrices, %s of memory", name,
             i.format, i.rank_max, i.n_matrices, term_size(size, i.bytes));
    term_note(text);
    return BITNET_OK;
}

bitnet_status adapters_read(struct adapters *a, const char *const *typed, size_t n,
                            bitnet_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (a->n == ADAPTERS_MAX)
            return bn_fail(err, BITNET_E_LIMIT, "%zu adapters; at most %d are possible", n,
                           ADAPTERS_MAX);
        struct adapter_item *x = &a->items[a->n];
        *x = (struct adapter_item){0};
        BN_TRY(adapter_spec_parse(&x->spec, typed[i], err));
        a->n++;
        for (size_t k = 0; k + 1 < a->n; k++)
            if (strcmp(a->items[k].spec.name, x->spec.name) == 0)
                return bn_fail(err, BITNET_E_ARG,
                               "two adapters are called '%s'; give names: NAME=PATH", x->spec.name);
    }
    return BITNET_OK;
}

bitnet_status adapters_open(struct adapters *a, const bitnet_model *m, const char *const *typed,
                            size_t n, bitnet_error *err)
{
    BN_TRY(adapters_read(a, typed, n, err));
    for (size_t i = 0; i < a->n; i++) {
        struct adapter_item *x = &a->items[i];
        BN_TRY(adapter_open(&x->adapter, m, x->spec.name, x->spec.path, err));
    }
    return BITNET_OK;
}

void adapters_close(struct adapters *a)
{
    for (size_t i = 0; i < a->n; i++) {
        bitnet_adapter_close(a->items[i].adapter);
        free(a->items[i].spec.path);
    }
    a->n = 0;
}

float adapter_spec_usual(const struct adapter_spec *s)
{
    return s->named && !s->scale_given ? 0 : s->scale;
}

bitnet_status adapters_apply(const struct adapters *a, bitnet_engine *e, bool by_name,
                             bitnet_error *err)
{
    bitnet_adapter_use uses[ADAPTERS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < a->n; i++) {
        const struct adapter_spec *s = &a->items[i].spec;
        float scale = by_name ? adapter_spec_usual(s) : s->scale;
        if (scale != 0) uses[n++] = (bitnet_adapter_use){a->items[i].adapter, scale, 0};
    }
    return bitnet_engine_set_adapters(e, uses, n, err);
}
