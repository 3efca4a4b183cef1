/* SPDX-License-Identifier: Apache-2.0 */
#include "app/calibration.h"

#include "app/textio.h"
#include "app/tokens.h"
#include "base/checksum.h"
#include "base/os/mem.h"
#include "base/utf8.h"
#include <stdlib.h>

static bitnet_status add(struct calibration *c, size_t *room, const bitnet_model *m,
                         const char *text, size_t len, bitnet_error *err)
{
    int32_t *ids;
    size_t n;
    BN_TRY(tokens_encode(&ids, &n, m, text, len, BITNET_TOK_BOS_AUTO, err));
    bool ok = bn_grow((void **)&c->ids, room, c->n + n + 1, sizeof *c->ids);
    if (ok) memcpy(c->ids + c->n, ids, n * sizeof *ids);
    free(ids);
    if (!ok) return bn_fail_nomem(err, (c->n + n) * sizeof *c->ids, "the calibration text");
    c->n += n;
    c->n_texts++;
    return BITNET_OK;
}

/* One line of JSON: the text in it. */
static bitnet_status add_line(struct calibration *c, size_t *room, const bitnet_model *m,
                              const char *line, size_t len, bitnet_error *err)
{
    struct bn_json *v = NULL;
    BN_TRY(bn_json_parse(&v, line, len, BN_JSON_ANY, NULL, err));
    const struct bn_json *text = bn_json_is_object(v) ? bn_json_get(v, "text") : v;
    if (!text && bn_json_is_object(v)) text = bn_json_get(v, "content");
    bitnet_status s = BITNET_OK;
    if (!bn_json_is_string(text))
        s = bn_fail(err, BITNET_E_FORMAT, "no string called \"text\" or \"content\"");
    else s = add(c, room, m, bn_json_text(text), bn_json_bytes(text), err);
    bn_json_free(v);
    return s;
}

static bitnet_status add_lines(struct calibration *c, size_t *room, const bitnet_model *m,
                               const char *path, const char *text, size_t len, uint64_t max_tokens,
                               bitnet_error *err)
{
    size_t number = 1;
    for (size_t at = 0, end; at < len && (!max_tokens || c->n < max_tokens); at = end + 1) {
        const char *stop = memchr(text + at, '\n', len - at);
        end = stop ? (size_t)(stop - text) : len;
        size_t n = end - at;
        while (n && (text[at + n - 1] == '\r' || text[at + n - 1] == ' ')) n--;
        bitnet_error inner = {0};
        bitnet_status s = n ? add_line(c, room, m, text + at, n, &inner) : BITNET_OK;
        if (s != BITNET_OK) return bn_fail(err, s, "'%s', line %zu: %s", path, number, inner.text);
        number++;
    }
    return BITNET_OK;
}

static bool is_jsonl(const char *path, const char *text, size_t len)
{
    static const char ending[] = ".jsonl";
    size_t n = strlen(path), k = sizeof ending - 1, i = 0;
    while (i < len && (text[i] == ' ' || text[i] == '\n' || text[i] == '\r')) i++;
    return (n >= k && strcmp(path + n - k, ending) == 0) || (i < len && text[i] == '{');
}

static bitnet_status read_text(struct calibration *c, const bitnet_model *m, const char *path,
                               uint64_t max_tokens, bitnet_error *err)
{
    char *text;
    size_t len, bad = 0, room = 0;
    BN_TRY(textio_read(&text, &len, path, err));
    c->checksum = bn_checksum(text, len);
    bitnet_status s;
    if (!bn_utf8_valid(text, len, &bad))
        s = bn_fail(err, BITNET_E_FORMAT, "'%s' is not UTF-8: byte %zu is 0x%02x", path, bad,
                    (unsigned char)text[bad]);
    else if (is_jsonl(path, text, len))
        s = add_lines(c, &room, m, path, text, len, max_tokens, err);
    else s = add(c, &room, m, text, len, err);
    free(text);
    return s;
}

bitnet_status calibration_read(struct calibration *c, const bitnet_model *m, const char *path,
                               uint64_t max_tokens, bitnet_error *err)
{
    *c = (struct calibration){0};
    bitnet_status s = read_text(c, m, path, max_tokens, err);
    if (max_tokens && c->n > max_tokens) c->n = (size_t)max_tokens;
    if (s == BITNET_OK && c->n < CALIBRATION_MIN_TOKENS)
        s = bn_fail(err, BITNET_E_ARG,
                    "'%s' holds %zu token%s, which is too little to measure a model on: at least "
                    "%d are needed",
                    path, c->n, c->n == 1 ? "" : "s", CALIBRATION_MIN_TOKENS);
    if (s != BITNET_OK) calibration_free(c);
    return s;
}

void calibration_free(struct calibration *c)
{
    free(c->ids);
    *c = (struct calibration){0};
}
