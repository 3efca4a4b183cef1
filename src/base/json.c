/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include "base/file.h"
#include "base/utf8.h"
#include <math.h>
#include <stdlib.h>

bitnet_status bn_json_parse(json_t **out, const char *text, size_t n, const char *what,
                            bitnet_error *err)
{
    json_error_t e;
    *out = json_loadb(text, n, JSON_ALLOW_NUL, &e);
    if (!*out)
        return bn_fail(err, BITNET_E_FORMAT, "%s: bad JSON in line %d: %s", what, e.line, e.text);
    return BITNET_OK;
}

bitnet_status bn_json_read(json_t **out, const char *path, size_t max_bytes, bitnet_error *err)
{
    *out = NULL;
    char *text;
    size_t n;
    BN_TRY(bn_read_file(&text, &n, path, max_bytes, err));
    bitnet_status s = bn_json_parse(out, text, n, path, err);
    free(text);
    return s;
}

static bool present(const json_t **v, const json_t *obj, const char *key)
{
    *v = json_object_get(obj, key);
    return *v && !json_is_null(*v);
}

bitnet_status bn_json_u32(uint32_t *out, const json_t *obj, const char *key, const char *what,
                          bitnet_error *err)
{
    const json_t *v;
    if (!present(&v, obj, key)) return BITNET_OK;
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > UINT32_MAX)
        return bn_fail(err, BITNET_E_FORMAT, "%s: '%s' is not a whole number from 0 to 2^32-1",
                       what, key);
    *out = (uint32_t)json_integer_value(v);
    return BITNET_OK;
}

bitnet_status bn_json_f32(float *out, const json_t *obj, const char *key, const char *what,
                          bitnet_error *err)
{
    const json_t *v;
    if (!present(&v, obj, key)) return BITNET_OK;
    if (!json_is_number(v) || !isfinite((float)json_number_value(v)))
        return bn_fail(err, BITNET_E_FORMAT, "%s: '%s' is not a number", what, key);
    *out = (float)json_number_value(v);
    return BITNET_OK;
}

bitnet_status bn_json_bool(bool *out, const json_t *obj, const char *key, const char *what,
                           bitnet_error *err)
{
    const json_t *v;
    if (!present(&v, obj, key)) return BITNET_OK;
    if (!json_is_boolean(v))
        return bn_fail(err, BITNET_E_FORMAT, "%s: '%s' is not true or false", what, key);
    *out = json_is_true(v);
    return BITNET_OK;
}

bitnet_status bn_json_str(const char **out, const json_t *obj, const char *key, const char *what,
                          bitnet_error *err)
{
    const json_t *v;
    if (!present(&v, obj, key)) return BITNET_OK;
    if (!json_is_string(v))
        return bn_fail(err, BITNET_E_FORMAT, "%s: '%s' is not a string", what, key);
    *out = json_string_value(v);
    return BITNET_OK;
}

static void put_escaped(struct bn_buf *b, unsigned char c)
{
    static const char named[] = "\bb\ff\nn\rr\tt\"\"\\\\";
    for (const char *p = named; *p; p += 2)
        if ((unsigned char)*p == c) {
            bn_buf_append(b, (char[]){'\\', p[1]}, 2);
            return;
        }
    bn_buf_printf(b, "\\u%04x", c);
}

bool bn_json_quote(struct bn_buf *b, const char *s, size_t n)
{
    size_t plain = 0; /* bytes before i that are not yet appended begin here */
    bn_buf_putc(b, '"');
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)s[i];
        uint32_t cp;
        size_t len = c < 0x80 ? 1 : bn_utf8_decode(s + i, n - i, &cp);
        if (len && c >= 0x20 && c != '"' && c != '\\') {
            i += len;
            continue;
        }
        bn_buf_append(b, s + plain, i - plain);
        if (len) put_escaped(b, c);
        else bn_buf_puts(b, "\xef\xbf\xbd");
        plain = ++i;
    }
    if (n > plain) bn_buf_append(b, s + plain, n - plain);
    return bn_buf_putc(b, '"') && !b->failed;
}

json_t *bn_json_real(double v) { return isfinite(v) ? json_real(v) : json_null(); }
