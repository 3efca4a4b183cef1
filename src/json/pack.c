/* SPDX-License-Identifier: Apache-2.0
 * Values after a pattern. What fails makes the rest fail, but the pattern is walked to its end: every
 * value that is to be taken is taken. */
#include "json/json.h"
#include <stdarg.h>
#include <string.h>

struct packer {
    const char *at;
    va_list args;
};

static char next(struct packer *p)
{
    while (*p->at && strchr(" ,:\n", *p->at)) p->at++;
    return *p->at ? *p->at++ : 0;
}

static bool take(struct packer *p, char c)
{
    if (*p->at != c) return false;
    p->at++;
    return true;
}

static struct bn_json *optional(struct packer *p, const void *given, struct bn_json *made)
{
    return take(p, '?') && !given ? bn_json_null() : made;
}

static struct bn_json *pack_string(struct packer *p)
{
    const char *s = va_arg(p->args, const char *);
    if (take(p, '%')) {
        size_t n = va_arg(p->args, size_t);
        return bn_json_stringn(s, n);
    }
    return optional(p, s, bn_json_string(s));
}

static struct bn_json *pack_value(struct packer *p, char c);

static struct bn_json *pack_object(struct packer *p)
{
    struct bn_json *out = bn_json_object();
    for (char c; (c = next(p)) == 's';) {
        const char *key = va_arg(p->args, const char *);
        bn_json_set(out, key, pack_value(p, next(p)));
    }
    return out;
}

static struct bn_json *pack_array(struct packer *p)
{
    struct bn_json *out = bn_json_array();
    for (char c; (c = next(p)) && c != ']';) bn_json_append(out, pack_value(p, c));
    return out;
}

static struct bn_json *pack_value(struct packer *p, char c)
{
    struct bn_json *v;
    switch (c) {
    case '{': return pack_object(p);
    case '[': return pack_array(p);
    case 's': return pack_string(p);
    case 'i': return bn_json_int(va_arg(p->args, int));
    case 'I': return bn_json_int(va_arg(p->args, int64_t));
    case 'f': return bn_json_real(va_arg(p->args, double));
    case 'b': return bn_json_bool(va_arg(p->args, int) != 0);
    case 'n': return bn_json_null();
    case 'o': v = va_arg(p->args, struct bn_json *); return optional(p, v, v);
    case 'O': v = va_arg(p->args, struct bn_json *); return optional(p, v, bn_json_ref(v));
    default: return NULL;
    }
}

struct bn_json *bn_json_pack(const char *pattern, ...)
{
    struct packer p = {.at = pattern};
    va_start(p.args, pattern);
    struct bn_json *out = pack_value(&p, next(&p));
    va_end(p.args);
    if (bn_json_whole(out)) return out;
    bn_json_free(out);
    return NULL;
}
