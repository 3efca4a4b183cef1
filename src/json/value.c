/* SPDX-License-Identifier: Apache-2.0
 * Values: their life, what is in them, and putting more in. */
#include "base/os/mem.h"
#include "base/utf8.h"
#include "json/value_impl.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEARCHED = 8 }; /* members, above which an object gets an index */

/* ------------------------------------------------------------------ life */

static void *make(enum bn_json_type type, size_t bytes)
{
    struct bn_json *v = bn_calloc(1, bytes);
    if (!v) return NULL;
    atomic_init(&v->refs, 1);
    v->type = (uint8_t)type;
    return v;
}

struct bn_json *bn_json_ref(const struct bn_json *v)
{
    struct bn_json *own = (struct bn_json *)v; /* the count is no part of the value */
    if (own) atomic_fetch_add_explicit(&own->refs, 1, memory_order_relaxed);
    return own;
}

static const struct bn_json_array_value *array_of(const struct bn_json *v)
{
    return bn_json_is_array(v) ? (const void *)v : NULL;
}

static const struct bn_json_object_value *object_of(const struct bn_json *v)
{
    return bn_json_is_object(v) ? (const void *)v : NULL;
}

void bn_json_free(struct bn_json *v)
{
    if (!v || atomic_fetch_sub_explicit(&v->refs, 1, memory_order_acq_rel) != 1) return;
    if (v->type == BN_JSON_ARRAY) {
        struct bn_json_array_value *a = (void *)v;
        for (size_t i = 0; i < a->n; i++) bn_json_free(a->items[i]);
        free(a->items);
    } else if (v->type == BN_JSON_OBJECT) {
        struct bn_json_object_value *o = (void *)v;
        for (size_t i = 0; i < o->n; i++) {
            bn_json_free(o->members[i].value);
            free(o->members[i].key);
        }
        free(o->members);
        free(o->index);
    }
    free(v);
}

/* ------------------------------------------------------------------ plain values */

struct bn_json *bn_json_null(void) { return make(BN_JSON_NULL, sizeof(struct bn_json)); }

struct bn_json *bn_json_bool(bool v)
{
    return make(v ? BN_JSON_TRUE : BN_JSON_FALSE, sizeof(struct bn_json));
}

struct bn_json *bn_json_int(int64_t v)
{
    struct bn_json_int_value *i = make(BN_JSON_INT, sizeof *i);
    if (!i) return NULL;
    i->v = v;
    return &i->head;
}

struct bn_json *bn_json_real(double v)
{
    if (!isfinite(v)) return bn_json_null();
    struct bn_json_real_value *r = make(BN_JSON_REAL, sizeof *r);
    if (!r) return NULL;
    r->v = v;
    return &r->head;
}

struct bn_json_string_value *bn_json_string_room(size_t n)
{
    struct bn_json_string_value *s = NULL;
    if (n < SIZE_MAX - sizeof *s - 1) s = make(BN_JSON_STRING, sizeof *s + n + 1);
    if (s) s->n = n;
    return s;
}

struct bn_json *bn_json_raw(const char *s, size_t n)
{
    struct bn_json_string_value *v = bn_json_string_room(n);
    if (!v) return NULL;
    memcpy(v->s, s, n);
    return &v->head;
}

struct bn_json *bn_json_stringn(const char *s, size_t n)
{
    return s && bn_utf8_valid(s, n, NULL) ? bn_json_raw(s, n) : NULL;
}

struct bn_json *bn_json_string(const char *s) { return s ? bn_json_stringn(s, strlen(s)) : NULL; }

struct bn_json *bn_json_printf(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    struct bn_json_string_value *v = n < 0 ? NULL : bn_json_string_room((size_t)n);
    if (!v) return NULL;
    va_start(args, fmt);
    vsnprintf(v->s, (size_t)n + 1, fmt, args);
    va_end(args);
    if (bn_utf8_valid(v->s, v->n, NULL)) return &v->head;
    bn_json_free(&v->head);
    return NULL;
}

enum bn_json_type bn_json_typeof(const struct bn_json *v)
{
    return v ? (enum bn_json_type)v->type : BN_JSON_NONE;
}

int64_t bn_json_integer(const struct bn_json *v)
{
    return bn_json_is_int(v) ? ((const struct bn_json_int_value *)(const void *)v)->v : 0;
}

double bn_json_number(const struct bn_json *v)
{
    if (!bn_json_is_real(v)) return (double)bn_json_integer(v);
    return ((const struct bn_json_real_value *)(const void *)v)->v;
}

const char *bn_json_text(const struct bn_json *v)
{
    return bn_json_is_string(v) ? ((const struct bn_json_string_value *)(const void *)v)->s : NULL;
}

size_t bn_json_bytes(const struct bn_json *v)
{
    return bn_json_is_string(v) ? ((const struct bn_json_string_value *)(const void *)v)->n : 0;
}

/* ------------------------------------------------------------------ arrays */

struct bn_json *bn_json_array(void)
{
    return make(BN_JSON_ARRAY, sizeof(struct bn_json_array_value));
}

size_t bn_json_size(const struct bn_json *v)
{
    if (array_of(v)) return array_of(v)->n;
    return object_of(v) ? object_of(v)->n : 0;
}

struct bn_json *bn_json_at(const struct bn_json *array, size_t i)
{
    const struct bn_json_array_value *a = array_of(array);
    return a && i < a->n ? a->items[i] : NULL;
}

/* Nothing more can be told of v: it is broken from now on. */
static bool refuse(struct bn_json *to, struct bn_json *v)
{
    if (to) to->broken = true;
    bn_json_free(v);
    return false;
}

bool bn_json_insert(struct bn_json *array, size_t at, struct bn_json *v)
{
    struct bn_json_array_value *a = bn_json_is_array(array) ? (void *)array : NULL;
    if (!a || !v || at > a->n || !bn_grow((void **)&a->items, &a->room, a->n + 1, sizeof *a->items))
        return refuse(array, v);
    memmove(a->items + at + 1, a->items + at, (a->n - at) * sizeof *a->items);
    a->items[at] = v;
    a->n++;
    return true;
}

bool bn_json_append(struct bn_json *array, struct bn_json *v)
{
    return bn_json_insert(array, bn_json_size(array), v);
}

void bn_json_remove(struct bn_json *array, size_t at)
{
    struct bn_json_array_value *a = (void *)array;
    if (!bn_json_at(array, at)) return;
    bn_json_free(a->items[at]);
    a->n--;
    memmove(a->items + at, a->items + at + 1, (a->n - at) * sizeof *a->items);
}

bool bn_json_extend(struct bn_json *array, const struct bn_json *more)
{
    size_t n = bn_json_size(more); /* array and more may be the same */
    bool ok = bn_json_is_array(more) && !more->broken;
    for (size_t i = 0; ok && i < n; i++)
        ok = bn_json_append(array, bn_json_ref(bn_json_at(more, i)));
    return ok || refuse(array, NULL);
}

/* ------------------------------------------------------------------ objects */

struct bn_json *bn_json_object(void)
{
    return make(BN_JSON_OBJECT, sizeof(struct bn_json_object_value));
}

/* Begins differently for every object, so that nobody can choose keys that meet: where it lies. */
static uint32_t hash_of(const struct bn_json_object_value *o, const char *key, size_t n)
{
    uint64_t h = (uintptr_t)o / 16 * 0x9e3779b97f4a7c15u ^ n;
    for (; n > 0;) {
        uint64_t word = 0;
        size_t take = n < sizeof word ? n : sizeof word;
        memcpy(&word, key, take);
        h = (h ^ word) * 0xd6e8feb86659fd93u;
        h ^= h >> 32;
        key += take;
        n -= take;
    }
    h *= 0xd6e8feb86659fd93u;
    return (uint32_t)(h >> 32);
}

static bool is_key(const struct bn_json_member *m, const char *key, size_t n)
{
    return strncmp(m->key, key, n) == 0 && m->key[n] == 0;
}

static const struct bn_json_member *find(const struct bn_json_object_value *o, const char *key,
                                         size_t n)
{
    if (!o->places) {
        for (size_t i = 0; i < o->n; i++)
            if (is_key(&o->members[i], key, n)) return &o->members[i];
        return NULL;
    }
    uint32_t hash = hash_of(o, key, n);
    for (size_t at = hash; o->index[at & (o->places - 1)]; at++) {
        const struct bn_json_member *m = &o->members[o->index[at & (o->places - 1)] - 1];
        if (m->hash == hash && is_key(m, key, n)) return m;
    }
    return NULL;
}

struct bn_json *bn_json_get(const struct bn_json *object, const char *key)
{
    const struct bn_json_object_value *o = object_of(object);
    const struct bn_json_member *m = o && key ? find(o, key, strlen(key)) : NULL;
    return m ? m->value : NULL;
}

const char *bn_json_key_at(const struct bn_json *object, size_t i)
{
    const struct bn_json_object_value *o = object_of(object);
    return o && i < o->n ? o->members[i].key : NULL;
}

struct bn_json *bn_json_value_at(const struct bn_json *object, size_t i)
{
    const struct bn_json_object_value *o = object_of(object);
    return o && i < o->n ? o->members[i].value : NULL;
}

static void put_in_index(struct bn_json_object_value *o, size_t i)
{
    size_t at = o->members[i].hash;
    while (o->index[at & (o->places - 1)]) at++;
    o->index[at & (o->places - 1)] = (uint32_t)(i + 1);
}

/* Members from 0 on, in an index with room for as many again. */
static bool make_index(struct bn_json_object_value *o, size_t need)
{
    size_t places = 4 * SEARCHED;
    while (places < 2 * need) places *= 2;
    if (places > o->places) {
        uint32_t *index = bn_calloc(places, sizeof *index);
        if (!index) return false;
        free(o->index);
        o->index = index;
        o->places = places;
    } else {
        memset(o->index, 0, o->places * sizeof *o->index);
    }
    for (size_t i = 0; i < o->n; i++) {
        o->members[i].hash = hash_of(o, o->members[i].key, strlen(o->members[i].key));
        put_in_index(o, i);
    }
    return true;
}

bool bn_json_set_key(struct bn_json *object, const char *key, size_t n, struct bn_json *v)
{
    struct bn_json_object_value *o = bn_json_is_object(object) ? (void *)object : NULL;
    if (!o || !v || !key) return refuse(object, v);
    struct bn_json_member *old = (struct bn_json_member *)find(o, key, n);
    if (old) {
        bn_json_free(old->value);
        old->value = v;
        return true;
    }
    char *own = o->n < UINT32_MAX / 2 ? bn_calloc(1, n + 1) : NULL;
    if (!own || !bn_grow((void **)&o->members, &o->room, o->n + 1, sizeof *o->members) ||
        (o->n + 1 > SEARCHED && 2 * (o->n + 1) > o->places && !make_index(o, 2 * (o->n + 1)))) {
        free(own);
        return refuse(object, v);
    }
    memcpy(own, key, n);
    o->members[o->n] = (struct bn_json_member){v, own, o->places ? hash_of(o, key, n) : 0};
    if (o->places) put_in_index(o, o->n);
    o->n++;
    return true;
}

bool bn_json_set(struct bn_json *object, const char *key, struct bn_json *v)
{
    size_t n = key ? strlen(key) : 0;
    if (!key || !bn_utf8_valid(key, n, NULL)) return refuse(object, v);
    return bn_json_set_key(object, key, n, v);
}

void bn_json_del(struct bn_json *object, const char *key)
{
    struct bn_json_object_value *o = bn_json_is_object(object) ? (void *)object : NULL;
    const struct bn_json_member *m = o && key ? find(o, key, strlen(key)) : NULL;
    if (!m) return;
    size_t i = (size_t)(m - o->members);
    bn_json_free(m->value);
    free(m->key);
    o->n--;
    memmove(o->members + i, o->members + i + 1, (o->n - i) * sizeof *o->members);
    if (o->places) make_index(o, 0); /* in the room it has: cannot fail */
}

bool bn_json_update(struct bn_json *object, const struct bn_json *from, bool replace)
{
    bool ok = bn_json_is_object(from) && !from->broken;
    for (size_t i = 0; ok && i < bn_json_size(from); i++) {
        const char *key = bn_json_key_at(from, i);
        if (replace || !bn_json_get(object, key))
            ok = bn_json_set(object, key, bn_json_ref(bn_json_value_at(from, i)));
    }
    return ok || refuse(object, NULL);
}

/* ------------------------------------------------------------------ whole values */

bool bn_json_whole(const struct bn_json *v)
{
    if (!v || v->broken) return false;
    if (array_of(v)) {
        for (size_t i = 0; i < array_of(v)->n; i++)
            if (!bn_json_whole(array_of(v)->items[i])) return false;
    } else if (object_of(v)) {
        for (size_t i = 0; i < object_of(v)->n; i++)
            if (!bn_json_whole(object_of(v)->members[i].value)) return false;
    }
    return true;
}

bool bn_json_equal(const struct bn_json *a, const struct bn_json *b)
{
    enum bn_json_type type = bn_json_typeof(a);
    if (type != bn_json_typeof(b) || bn_json_size(a) != bn_json_size(b)) return false;
    switch (type) {
    case BN_JSON_INT: return bn_json_integer(a) == bn_json_integer(b);
    case BN_JSON_REAL: return bn_json_number(a) == bn_json_number(b);
    case BN_JSON_STRING:
        return bn_json_bytes(a) == bn_json_bytes(b) &&
               memcmp(bn_json_text(a), bn_json_text(b), bn_json_bytes(a)) == 0;
    case BN_JSON_ARRAY:
        for (size_t i = 0; i < bn_json_size(a); i++)
            if (!bn_json_equal(bn_json_at(a, i), bn_json_at(b, i))) return false;
        return true;
    case BN_JSON_OBJECT:
        for (size_t i = 0; i < bn_json_size(a); i++)
            if (!bn_json_equal(bn_json_value_at(a, i), bn_json_get(b, bn_json_key_at(a, i))))
                return false;
        return true;
    default: return true;
    }
}

static struct bn_json *copy(const struct bn_json *v, bool deep)
{
    if (!array_of(v) && !object_of(v)) return bn_json_ref(v); /* nothing can change in it */
    struct bn_json *out = array_of(v) ? bn_json_array() : bn_json_object();
    if (!out) return NULL;
    out->broken = v->broken;
    for (size_t i = 0; i < bn_json_size(v); i++) {
        struct bn_json *item = array_of(v) ? bn_json_at(v, i) : bn_json_value_at(v, i);
        item = deep ? copy(item, true) : bn_json_ref(item);
        if (array_of(v)) bn_json_append(out, item);
        else bn_json_set(out, bn_json_key_at(v, i), item);
    }
    return out;
}

struct bn_json *bn_json_copy(const struct bn_json *v) { return copy(v, false); }
struct bn_json *bn_json_deep_copy(const struct bn_json *v) { return copy(v, true); }
