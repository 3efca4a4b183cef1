/* SPDX-License-Identifier: Apache-2.0
 * Values from JSON (variables given by a caller) and to JSON (the tojson filter, which writes as
 * Python's json.dumps does: ", " and ": ", no escapes for characters outside ASCII, nothing made
 * safe for HTML). */
#include "text/template/jinja.h"

#include <math.h>
#include <stdio.h>

bool bn_jv_from_json(struct bn_jx *x, const struct bn_json *json, struct bn_jv *out)
{
    if (!bn_jx_enter(x)) return false;
    switch (bn_json_typeof(json)) {
    case BN_JSON_NONE:
    case BN_JSON_NULL: *out = bn_jv_kind_only(BN_JV_NONE); break;
    case BN_JSON_TRUE:
    case BN_JSON_FALSE: *out = bn_jv_bool(bn_json_is_true(json)); break;
    case BN_JSON_INT: *out = bn_jv_int(bn_json_integer(json)); break;
    case BN_JSON_REAL: *out = bn_jv_float(bn_json_number(json)); break;
    case BN_JSON_STRING:
        if (bn_json_bytes(json) > BN_JINJA_MAX_MEMORY)
            return bn_jx_fail(x, BITNET_E_LIMIT, "a variable is longer than %d bytes",
                              BN_JINJA_MAX_MEMORY);
        *out = bn_jv_str(bn_json_text(json), bn_json_bytes(json));
        break;
    case BN_JSON_ARRAY: {
        size_t n = bn_json_size(json);
        if (!bn_jv_list(x, BN_JV_LIST, n, out)) return false;
        for (size_t i = 0; i < n; i++)
            if (!bn_jv_from_json(x, bn_json_at(json, i), &out->list->v[out->list->n++]))
                return false;
        break;
    }
    case BN_JSON_OBJECT: {
        const char *key;
        struct bn_json *value;
        if (!bn_jv_dict(x, BN_JV_DICT, out)) return false;
        bn_json_each_member(json, key, value)
        {
            struct bn_jv v;
            if (!bn_jv_from_json(x, value, &v) ||
                !bn_jv_put(x, out->dict, bn_jv_str(key, strlen(key)), v))
                return false;
        }
        break;
    }
    }
    x->depth--;
    return true;
}

struct writer {
    struct bn_jx *x;
    struct bn_jv item_sep, key_sep, indent; /* indent: a string, or ABSENT for one line */
    bool sort_keys, ascii;
};

static bool write_string(struct writer *w, struct bn_jv v)
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    struct bn_jx *x = w->x;
    if (!bn_jx_put(x, "\"", 1)) return false;
    size_t plain = 0; /* start of the run that needs no escape */
    for (size_t i = 0, len; i < v.n; i += len) {
        uint32_t cp;
        len = bn_text_char(v.s + i, v.n - i, &cp);
        if (cp >= 0x20 && cp != '"' && cp != '\\' && !(w->ascii && cp >= 0x7f)) continue;
        char esc[16];
        const char *at = memchr(from, (int)cp, cp < 0x80 ? sizeof from - 1 : 0);
        size_t n = at             ? (size_t)snprintf(esc, sizeof esc, "\\%c", to[at - from])
                   : cp < 0x10000 ? (size_t)snprintf(esc, sizeof esc, "\\u%04x", (unsigned)cp)
                                  : (size_t)snprintf(esc, sizeof esc, "\\u%04x\\u%04x",
                                                     (unsigned)(0xd7c0 + (cp >> 10)),
                                                     (unsigned)(0xdc00 + (cp & 0x3ff)));
        if (cp == 0x7f) n = 1, esc[0] = 0x7f; /* Python leaves it */
        if (!bn_jx_put(x, v.s + plain, i - plain) || !bn_jx_put(x, esc, n)) return false;
        plain = i + len;
    }
    return bn_jx_put(x, v.s + plain, v.n - plain) && bn_jx_put(x, "\"", 1);
}

static bool write_break(struct writer *w, size_t level)
{
    if (w->indent.kind != BN_JV_STR) return true;
    if (!bn_jx_put(w->x, "\n", 1)) return false;
    for (size_t i = 0; i < level; i++)
        if (!bn_jx_put(w->x, w->indent.s, w->indent.n)) return false;
    return true;
}

static bool write_value(struct writer *w, struct bn_jv v, size_t level);

static bool write_list(struct writer *w, const struct bn_jlist *l, size_t level)
{
    if (l->n == 0) return bn_jx_put(w->x, "[]", 2);
    if (!bn_jx_put(w->x, "[", 1)) return false;
    for (size_t i = 0; i < l->n; i++) {
        if (i && !bn_jx_put(w->x, w->item_sep.s, w->item_sep.n)) return false;
        if (!write_break(w, level + 1) || !write_value(w, l->v[i], level + 1)) return false;
    }
    return write_break(w, level) && bn_jx_put(w->x, "]", 1);
}

static bool write_key(struct writer *w, struct bn_jv key)
{
    if (key.kind == BN_JV_STR) return write_string(w, key);
    if (key.kind < BN_JV_NONE || key.kind > BN_JV_FLOAT)
        return bn_jx_fail(w->x, BITNET_E_FORMAT, "a %s cannot be a key in JSON",
                          bn_jv_type_name(key.kind));
    return bn_jx_put(w->x, "\"", 1) && write_value(w, key, 0) && bn_jx_put(w->x, "\"", 1);
}

/* The pair with the smallest key above *last, by selection: sort_keys is rare and dictionaries are
 * small. */
static bool next_sorted(struct writer *w, const struct bn_jdict *d, const struct bn_jpair *last,
                        const struct bn_jpair **out)
{
    *out = NULL;
    for (size_t i = 0; i < d->n; i++) {
        int order;
        if (last && (!bn_jv_compare(w->x, d->p[i].key, last->key, &order))) return false;
        if (last && order <= 0) continue;
        if (*out && !bn_jv_compare(w->x, d->p[i].key, (*out)->key, &order)) return false;
        if (!*out || order < 0) *out = &d->p[i];
    }
    return bn_jx_charge(w->x, d->n / 16 + 1);
}

static bool write_dict(struct writer *w, const struct bn_jdict *d, size_t level)
{
    if (d->n == 0) return bn_jx_put(w->x, "{}", 2);
    if (!bn_jx_put(w->x, "{", 1)) return false;
    const struct bn_jpair *p = NULL;
    for (size_t i = 0; i < d->n; i++) {
        if (!w->sort_keys) p = &d->p[i];
        else if (!next_sorted(w, d, p, &p)) return false;
        if (!p) break;
        if (i && !bn_jx_put(w->x, w->item_sep.s, w->item_sep.n)) return false;
        if (!write_break(w, level + 1) || !write_key(w, p->key) ||
            !bn_jx_put(w->x, w->key_sep.s, w->key_sep.n) || !write_value(w, p->val, level + 1))
            return false;
    }
    return write_break(w, level) && bn_jx_put(w->x, "}", 1);
}

static bool write_value(struct writer *w, struct bn_jv v, size_t level)
{
    struct bn_jx *x = w->x;
    bool ok = false;
    if (!bn_jx_enter(x)) return false;
    switch (v.kind) {
    case BN_JV_NONE: ok = bn_jx_put(x, "null", 4); break;
    case BN_JV_BOOL: ok = v.b ? bn_jx_put(x, "true", 4) : bn_jx_put(x, "false", 5); break;
    case BN_JV_STR: ok = write_string(w, v); break;
    case BN_JV_LIST:
    case BN_JV_TUPLE: ok = write_list(w, v.list, level); break;
    case BN_JV_DICT: ok = write_dict(w, v.dict, level); break;
    case BN_JV_FLOAT:
        if (isnan(v.f)) ok = bn_jx_put(x, "NaN", 3);
        else if (isinf(v.f))
            ok = v.f < 0 ? bn_jx_put(x, "-Infinity", 9) : bn_jx_put(x, "Infinity", 8);
        else ok = bn_jv_print(x, v);
        break;
    case BN_JV_INT: ok = bn_jv_print(x, v); break;
    default: ok = bn_jx_fail(x, BITNET_E_FORMAT, "tojson: a value is %s", bn_jv_type_name(v.kind));
    }
    x->depth--;
    return ok;
}

/* params: ensure_ascii, indent, separators, sort_keys */
bool bn_jv_tojson(struct bn_jx *x, struct bn_jv *out, struct bn_jv self, struct bn_jargs *a)
{
    enum { MAX_INDENT = 64 };
    struct writer w = {.x = x,
                       .item_sep = bn_jv_str(", ", 2),
                       .key_sep = bn_jv_str(": ", 2),
                       .sort_keys = bn_jv_truth(a->v[3]),
                       .ascii = bn_jv_truth(a->v[0])};
    struct bn_jv indent = a->v[1], seps = a->v[2];
    int64_t width;
    if (bn_jv_as_int(indent, &width)) {
        static const char spaces[MAX_INDENT + 1] =
            "                                                                ";
        if (width > MAX_INDENT)
            return bn_jx_fail(x, BITNET_E_LIMIT, "tojson: indent is above %d", MAX_INDENT);
        w.indent = bn_jv_str(spaces, width < 0 ? 0 : (size_t)width);
    } else if (indent.kind == BN_JV_STR) {
        w.indent = indent;
    }
    if (w.indent.kind == BN_JV_STR) w.item_sep = bn_jv_str(",", 1);
    if (seps.kind == BN_JV_TUPLE || seps.kind == BN_JV_LIST) {
        if (seps.list->n != 2 || seps.list->v[0].kind != BN_JV_STR ||
            seps.list->v[1].kind != BN_JV_STR)
            return bn_jx_fail(x, BITNET_E_FORMAT, "tojson: separators must be two strings");
        w.item_sep = seps.list->v[0];
        w.key_sep = seps.list->v[1];
    }
    size_t mark = x->buf.len;
    return write_value(&w, self, 0) && bn_jx_cut(x, mark, out);
}
