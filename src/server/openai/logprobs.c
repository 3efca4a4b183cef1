/* SPDX-License-Identifier: Apache-2.0 */
#include "server/openai/logprobs.h"

#include "base/utf8.h"
#include "app/tokens.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const size_t list_max_bytes = (size_t)1 << 30;
static const char *const list_names[OPENAI_LOGPROBS_LISTS] = {"tokens", "token_logprobs",
                                                              "top_logprobs", "text_offset"};

void openai_logprobs_open(struct openai_logprobs *l, enum openai_kind kind, const bitnet_model *m)
{
    *l = (struct openai_logprobs){.kind = kind, .m = m};
    for (size_t i = 0; i < OPENAI_LOGPROBS_LISTS; i++) bn_buf_init(&l->lists[i], list_max_bytes);
}

void openai_logprobs_close(struct openai_logprobs *l)
{
    for (size_t i = 0; i < OPENAI_LOGPROBS_LISTS; i++) bn_buf_free(&l->lists[i]);
}

void openai_logprobs_clear(struct openai_logprobs *l)
{
    for (size_t i = 0; i < OPENAI_LOGPROBS_LISTS; i++) bn_buf_clear(&l->lists[i]);
}

size_t openai_logprobs_bytes(const struct openai_logprobs *l)
{
    size_t n = 0;
    for (size_t i = 0; i < OPENAI_LOGPROBS_LISTS; i++) n += l->lists[i].len;
    return n;
}

bool openai_logprobs_any(const struct openai_logprobs *l) { return l->lists[0].len > 0; }

/* ------------------------------------------------------------------ one token */

/* Nine digits: a float comes back as it was. JSON has no infinities; -9999.0 is how OpenAI writes
 * "as good as impossible". */
void openai_put_logprob(struct bn_buf *b, float logprob)
{
    char text[32];
    snprintf(text, sizeof text, "%.9g", isfinite(logprob) ? (double)logprob : -9999.0);
    bn_buf_puts(b, text);
    if (!strpbrk(text, ".e")) bn_buf_puts(b, ".0");
}

/* A token's own text: part of a character may be all there is of it. */
static bitnet_status token_bytes(char **bytes, size_t *n, const struct openai_logprobs *l,
                                 int32_t token, bitnet_error *err)
{
    return tokens_decode(bytes, n, l->m, &token, 1, BITNET_TOK_SPECIAL, err);
}

/* {"token", "logprob", "bytes", without the closing brace */
static bitnet_status put_chat_token(struct bn_buf *b, const struct openai_logprobs *l,
                                    int32_t token, float logprob, bitnet_error *err)
{
    char *bytes;
    size_t n;
    BN_TRY(token_bytes(&bytes, &n, l, token, err));
    bn_buf_puts(b, "{\"token\":");
    bn_json_quote(b, bytes, n);
    bn_buf_puts(b, ",\"logprob\":");
    openai_put_logprob(b, logprob);
    bn_buf_puts(b, ",\"bytes\":[");
    for (size_t i = 0; i < n; i++) bn_buf_printf(b, "%s%d", i ? "," : "", (unsigned char)bytes[i]);
    bn_buf_putc(b, ']');
    free(bytes);
    return BITNET_OK;
}

static bitnet_status add_chat(struct openai_logprobs *l, const struct openai_token *t,
                              bitnet_error *err)
{
    struct bn_buf *b = &l->lists[0];
    if (b->len) bn_buf_putc(b, ',');
    BN_TRY(put_chat_token(b, l, t->id, t->logprob, err));
    bn_buf_puts(b, ",\"top_logprobs\":[");
    for (size_t i = 0; i < t->n_top; i++) {
        if (i) bn_buf_putc(b, ',');
        BN_TRY(put_chat_token(b, l, t->top[i].token, t->top[i].logprob, err));
        bn_buf_putc(b, '}');
    }
    bn_buf_puts(b, "]}");
    return BITNET_OK;
}

static size_t count_chars(const char *s, size_t n)
{
    size_t n_chars = 0;
    uint32_t cp;
    for (size_t i = 0, len; i < n; i += len ? len : 1, n_chars++)
        len = bn_utf8_decode(s + i, n - i, &cp);
    return n_chars;
}

/* {"token": logprob, ...}. Tokens may look the same; the likeliest one counts. */
static bitnet_status put_top(struct bn_buf *b, const struct openai_logprobs *l,
                             const struct openai_token *t, bitnet_error *err)
{
    struct {
        size_t at, n;
    } keys[OPENAI_MAX_TOP_LOGPROBS];
    size_t n_keys = 0;
    bn_buf_putc(b, '{');
    for (size_t i = 0; i < t->n_top && n_keys < OPENAI_MAX_TOP_LOGPROBS; i++) {
        char *bytes;
        size_t n, before = b->len, same = 0;
        BN_TRY(token_bytes(&bytes, &n, l, t->top[i].token, err));
        if (n_keys) bn_buf_putc(b, ',');
        size_t at = b->len;
        bn_json_quote(b, bytes, strnlen(bytes, n)); /* readers know no U+0000 in names */
        free(bytes);
        if (b->failed) break;
        n = b->len - at;
        while (same < n_keys &&
               (keys[same].n != n || memcmp(b->data + keys[same].at, b->data + at, n) != 0))
            same++;
        if (same < n_keys) {
            b->len = before;
            continue;
        }
        keys[n_keys].at = at;
        keys[n_keys++].n = n;
        bn_buf_putc(b, ':');
        openai_put_logprob(b, t->top[i].logprob);
    }
    bn_buf_putc(b, '}');
    return BITNET_OK;
}

/* Special tokens are not part of a text. */
static bitnet_status is_shown(bool *shown, const struct openai_logprobs *l, int32_t token,
                              bitnet_error *err)
{
    char *bytes;
    size_t n;
    BN_TRY(tokens_decode(&bytes, &n, l->m, &token, 1, 0, err));
    *shown = n > 0;
    free(bytes);
    return BITNET_OK;
}

static bitnet_status add_text(struct openai_logprobs *l, const struct openai_token *t,
                              bitnet_error *err)
{
    char *bytes;
    size_t n;
    bool shown;
    BN_TRY(is_shown(&shown, l, t->id, err));
    BN_TRY(token_bytes(&bytes, &n, l, t->id, err));
    for (size_t i = 0; l->lists[0].len && i < OPENAI_LOGPROBS_LISTS; i++)
        bn_buf_putc(&l->lists[i], ',');
    bn_json_quote(&l->lists[0], bytes, n);
    bn_buf_printf(&l->lists[3], "%zu", l->n_chars);
    if (shown) l->n_chars += count_chars(bytes, n);
    free(bytes);
    if (t->first) {
        bn_buf_puts(&l->lists[1], "null");
        bn_buf_puts(&l->lists[2], "null");
        return BITNET_OK;
    }
    openai_put_logprob(&l->lists[1], t->logprob);
    return put_top(&l->lists[2], l, t, err);
}

/* ------------------------------------------------------------------ the value */

static bitnet_status add(struct openai_logprobs *l, const struct openai_token *t, bitnet_error *err)
{
    BN_TRY(l->kind == OPENAI_COMPLETION ? add_text(l, t, err) : add_chat(l, t, err));
    for (size_t i = 0; i < OPENAI_LOGPROBS_LISTS; i++) {
        const struct bn_buf *b = &l->lists[i];
        if (b->full)
            return bn_fail(err, BITNET_E_LIMIT, "log-probabilities need more than %zu bytes",
                           list_max_bytes);
        if (b->failed) return bn_fail_nomem(err, b->len, "log-probabilities");
    }
    return BITNET_OK;
}

/* A token that was not added leaves nothing behind: the others may still be written. */
bitnet_status openai_logprobs_add(struct openai_logprobs *l, const struct openai_token *t,
                                  bitnet_error *err)
{
    size_t before[OPENAI_LOGPROBS_LISTS];
    for (size_t i = 0; i < OPENAI_LOGPROBS_LISTS; i++) before[i] = l->lists[i].len;
    bitnet_status s = add(l, t, err);
    for (size_t i = 0; s != BITNET_OK && i < OPENAI_LOGPROBS_LISTS; i++)
        l->lists[i].len = before[i];
    return s;
}

static void put_list(struct bn_buf *out, const struct bn_buf *list)
{
    bn_buf_putc(out, '[');
    if (list->len) bn_buf_append(out, list->data, list->len);
    bn_buf_putc(out, ']');
}

bool openai_logprobs_write(const struct openai_logprobs *l, struct bn_buf *out)
{
    switch (l->kind) {
    case OPENAI_RESPONSE: put_list(out, &l->lists[0]); break;
    case OPENAI_CHAT:
        bn_buf_puts(out, "{\"content\":");
        put_list(out, &l->lists[0]);
        bn_buf_puts(out, ",\"refusal\":null}");
        break;
    case OPENAI_COMPLETION:
        for (size_t i = 0; i < OPENAI_LOGPROBS_LISTS; i++) {
            bn_buf_printf(out, "%c\"%s\":", i ? ',' : '{', list_names[i]);
            put_list(out, &l->lists[i]);
        }
        bn_buf_putc(out, '}');
        break;
    }
    return !out->failed;
}
