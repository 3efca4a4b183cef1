/* SPDX-License-Identifier: Apache-2.0
 * Metadata of a GGUF: typed getters and a printed form. The entries' extents were checked when the
 * file was read (gguf.c), so nothing here can run past them. */
#include "model/files/source.h"

#include "base/buf.h"
#include "base/utf8.h"

const struct bn_meta *bn_meta_find(const struct bn_source *s, const char *key)
{
    uint32_t i;
    return bn_map_get(&s->meta_by_key, key, strlen(key), &i) ? &s->meta[i] : NULL;
}

/* An integer of any width and sign as (negative?, magnitude bits); false for other kinds. */
static bool integer_at(const uint8_t *p, enum bn_meta_type t, int64_t *i, uint64_t *u)
{
    *i = 0;
    switch (t) {
    case BN_META_U8: *u = p[0]; break;
    case BN_META_U16: *u = bn_load_u16(p); break;
    case BN_META_U32: *u = bn_load_u32(p); break;
    case BN_META_U64: *u = bn_load_u64(p); break;
    case BN_META_I8: *i = (int8_t)p[0]; break;
    case BN_META_I16: *i = (int16_t)bn_load_u16(p); break;
    case BN_META_I32: *i = (int32_t)bn_load_u32(p); break;
    case BN_META_I64: *i = (int64_t)bn_load_u64(p); break;
    default: return false;
    }
    if (t == BN_META_I8 || t == BN_META_I16 || t == BN_META_I32 || t == BN_META_I64)
        *u = (uint64_t)*i; /* the same number when *i >= 0 */
    return true;
}

static double float_at(const uint8_t *p, enum bn_meta_type t)
{
    if (t == BN_META_F32) return bn_load_f32(p);
    uint64_t u = bn_load_u64(p);
    double v;
    memcpy(&v, &u, sizeof v);
    return v;
}

bool bn_meta_u32(const struct bn_source *s, const char *key, uint32_t *out)
{
    const struct bn_meta *m = bn_meta_find(s, key);
    int64_t i;
    uint64_t u;
    if (!m || !integer_at(m->raw, m->type, &i, &u) || i < 0 || u > UINT32_MAX) return false;
    *out = (uint32_t)u;
    return true;
}

bool bn_meta_i64(const struct bn_source *s, const char *key, int64_t *out)
{
    const struct bn_meta *m = bn_meta_find(s, key);
    int64_t i;
    uint64_t u;
    if (!m || !integer_at(m->raw, m->type, &i, &u) || (i == 0 && u > INT64_MAX)) return false;
    *out = (int64_t)u;
    return true;
}

bool bn_meta_f32(const struct bn_source *s, const char *key, float *out)
{
    const struct bn_meta *m = bn_meta_find(s, key);
    if (!m || (m->type != BN_META_F32 && m->type != BN_META_F64)) return false;
    *out = (float)float_at(m->raw, m->type);
    return true;
}

bool bn_meta_bool(const struct bn_source *s, const char *key, bool *out)
{
    const struct bn_meta *m = bn_meta_find(s, key);
    if (!m || m->type != BN_META_BOOL) return false;
    *out = m->raw[0] != 0;
    return true;
}

bool bn_meta_str(const struct bn_source *s, const char *key, const char **out, size_t *n)
{
    const struct bn_meta *m = bn_meta_find(s, key);
    if (!m || m->type != BN_META_STR) return false;
    *out = (const char *)m->raw;
    *n = (size_t)m->count;
    return true;
}

bool bn_meta_u32s(const struct bn_source *s, const char *key, uint32_t *out, size_t room, size_t *n)
{
    const struct bn_meta *m = bn_meta_find(s, key);
    if (!m || m->type != BN_META_ARRAY || m->elem == BN_META_STR || m->count > room) return false;
    uint64_t each = m->count ? m->raw_bytes / m->count : 0;
    for (*n = 0; *n < m->count; ++*n) {
        int64_t i;
        uint64_t u;
        if (!integer_at(m->raw + *n * each, m->elem, &i, &u) || i < 0 || u > UINT32_MAX)
            return false;
        out[*n] = (uint32_t)u;
    }
    return true;
}

bool bn_meta_next_str(const struct bn_meta *m, uint64_t *cursor, const char **out, size_t *n)
{
    if (m->type != BN_META_ARRAY || m->elem != BN_META_STR || m->raw_bytes - *cursor < 8)
        return false;
    uint64_t len = bn_load_u64(m->raw + *cursor);
    if (len > m->raw_bytes - *cursor - 8) return false;
    *out = (const char *)m->raw + *cursor + 8;
    *n = (size_t)len;
    *cursor += 8 + len;
    return true;
}

bool bn_meta_int_at(const struct bn_meta *m, uint64_t i, int64_t *out)
{
    static const uint8_t sizes[] = {1, 1, 2, 2, 4, 4, 0, 1, 0, 0, 8, 8, 0}; /* of integers */
    int64_t v;
    uint64_t u;
    if (m->type != BN_META_ARRAY || i >= m->count || !sizes[m->elem]) return false;
    const uint8_t *p = m->raw + i * sizes[m->elem];
    if (m->elem == BN_META_BOOL) v = p[0] != 0;
    else if (!integer_at(p, m->elem, &v, &u) || (v >= 0 && u > INT64_MAX)) return false;
    else if (v >= 0) v = (int64_t)u;
    *out = v;
    return true;
}

/* ------------------------------------------------------------------ for people */

enum { PRINT_ITEMS = 8, PRINT_BYTES = 160 };

static const char *type_name(enum bn_meta_type t)
{
    static const char *const names[] = {"u8",   "i8",  "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "str", "array", "u64", "i64", "f64"};
    return (size_t)t < BN_ARRAY_LEN(names) ? names[t] : "?";
}

/* in quotes, control bytes and broken UTF-8 as \xNN, long ones cut with their length behind */
static void print_str(struct bn_buf *b, const char *s, size_t n, size_t max)
{
    bn_buf_putc(b, '"');
    size_t k = 0;
    while (k < n && k < max) {
        uint32_t cp;
        size_t len = bn_utf8_decode(s + k, n - k, &cp);
        if (len && cp >= 32 && cp != 127 && cp != '"' && cp != '\\') bn_buf_append(b, s + k, len);
        else if (len && cp == '\n') bn_buf_puts(b, "\\n");
        else if (len && (cp == '"' || cp == '\\')) bn_buf_printf(b, "\\%c", (char)cp);
        else bn_buf_printf(b, "\\x%02x", (unsigned)(uint8_t)s[k]), len = 1;
        k += len;
    }
    bn_buf_puts(b, k < n ? "\"..." : "\"");
    if (k < n) bn_buf_printf(b, " (%zu bytes)", n);
}

static void print_scalar(struct bn_buf *b, const uint8_t *p, enum bn_meta_type t)
{
    int64_t i;
    uint64_t u;
    if (t == BN_META_BOOL) {
        bn_buf_puts(b, p[0] ? "true" : "false");
    } else if (t == BN_META_F32 || t == BN_META_F64) {
        bn_buf_printf(b, "%.9g", float_at(p, t));
    } else if (integer_at(p, t, &i, &u)) {
        if (i < 0) bn_buf_printf(b, "%lld", (long long)i);
        else bn_buf_printf(b, "%llu", (unsigned long long)u);
    }
}

void bn_meta_print(const struct bn_meta *m, struct bn_buf *type, struct bn_buf *value)
{
    if (m->type != BN_META_ARRAY) {
        bn_buf_puts(type, type_name(m->type));
        if (m->type == BN_META_STR)
            print_str(value, (const char *)m->raw, (size_t)m->count, PRINT_BYTES);
        else print_scalar(value, m->raw, m->type);
        return;
    }
    bn_buf_printf(type, "%s[%llu]", type_name(m->elem), (unsigned long long)m->count);
    bn_buf_putc(value, '[');
    uint64_t cursor = 0, each = m->count ? m->raw_bytes / m->count : 0;
    for (uint64_t k = 0; k < m->count; k++) {
        if (k) bn_buf_puts(value, ", ");
        if (k == PRINT_ITEMS) {
            bn_buf_puts(value, "...");
            break;
        }
        const char *s;
        size_t n;
        if (m->elem == BN_META_STR && bn_meta_next_str(m, &cursor, &s, &n))
            print_str(value, s, n, PRINT_BYTES / 4);
        else print_scalar(value, m->raw + k * each, m->elem);
    }
    bn_buf_putc(value, ']');
}
