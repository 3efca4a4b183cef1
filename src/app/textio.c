/* SPDX-License-Identifier: Apache-2.0 */
#include "app/textio.h"

#include "base/buf.h"
#include "base/os/file.h"
#include "base/os/mem.h"
#include "app/interrupt.h"
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { TEMPLATE_MAX_BYTES = 1 << 20, READ_BYTES = 8192 };
static const size_t text_max_bytes = (size_t)1 << 30; /* of one input */

static bitnet_status read_stdin(char **out, size_t *n, bitnet_error *err)
{
    struct bn_buf b;
    bn_buf_init(&b, text_max_bytes);
    char piece[READ_BYTES];
    bitnet_status s = BITNET_OK;
    for (;;) {
        if (!interrupt_wait_readable(STDIN_FILENO)) {
            s = bn_fail(err, BITNET_E_CANCELLED, "interrupted");
            break;
        }
        ssize_t r = read(STDIN_FILENO, piece, sizeof piece);
        if (r == 0) break;
        if (r < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (r < 0) {
            s = bn_fail(err, BITNET_E_IO, "cannot read standard input: %s", strerror(errno));
        } else if (!bn_buf_append(&b, piece, (size_t)r)) {
            s = bn_fail(err, BITNET_E_LIMIT,
                        "standard input is too long: at most %zu bytes are read", text_max_bytes);
        }
        if (s != BITNET_OK) break;
    }
    *n = b.len;
    *out = s == BITNET_OK ? bn_buf_take(&b) : NULL;
    bn_buf_free(&b);
    if (s == BITNET_OK && !*out) s = bn_fail_nomem(err, *n + 1, "standard input");
    return s;
}

bitnet_status textio_read(char **out, size_t *n, const char *path, bitnet_error *err)
{
    if (strcmp(path, "-") == 0) return read_stdin(out, n, err);
    return bn_read_file(out, n, path, text_max_bytes, err);
}

/* ------------------------------------------------------------------ ids */

static bool is_separator(char c)
{
    return c == ' ' || c == ',' || c == '\n' || c == '\r' || c == '\t';
}

bitnet_status textio_parse_ids(int32_t **ids, size_t *n, const char *text, size_t len,
                               const char *what, bitnet_error *err)
{
    int32_t *list = NULL;
    size_t room = 0, count = 0, i = 0, end = len;
    *ids = NULL;
    *n = 0;
    while (i < end && is_separator(text[i])) i++;
    while (end > i && is_separator(text[end - 1])) end--;
    if (end - i >= 2 && text[i] == '[' && text[end - 1] == ']') {
        i++;
        end--;
    }
    while (i < end) {
        if (is_separator(text[i])) {
            i++;
            continue;
        }
        size_t start = i;
        uint64_t v = 0;
        for (; i < end && text[i] >= '0' && text[i] <= '9' && v <= INT32_MAX; i++)
            v = v * 10 + (uint64_t)(text[i] - '0');
        if (i == start || v > INT32_MAX || (i < end && !is_separator(text[i]))) {
            size_t shown = start;
            while (shown < end && shown - start < 20 && !is_separator(text[shown])) shown++;
            free(list);
            return bn_fail(err, BITNET_E_ARG, "%s: '%.*s' (item %zu) is not a token id", what,
                           (int)(shown - start), text + start, count + 1);
        }
        if (!bn_grow((void **)&list, &room, count + 1, sizeof *list)) {
            free(list);
            return bn_fail_nomem(err, (count + 1) * sizeof *list, what);
        }
        list[count++] = (int32_t)v;
    }
    *ids = list;
    *n = count;
    return BITNET_OK;
}

/* ------------------------------------------------------------------ templates */

bitnet_status textio_chat_template(char **owned, const char **out, const char *typed,
                                   bitnet_error *err)
{
    *owned = NULL;
    *out = typed;
    if (!typed || strstr(typed, "{{") || strstr(typed, "{%")) return BITNET_OK;
    struct bn_buf known;
    bn_buf_init(&known, 1024);
    const char *name;
    for (size_t i = 0; (name = bitnet_chat_template_name(i)); i++) {
        if (strcmp(name, typed) == 0) {
            bn_buf_free(&known);
            return BITNET_OK;
        }
        bn_buf_printf(&known, "%s%s", i ? ", " : "", name);
    }
    bitnet_status s = BITNET_OK;
    size_t n;
    if (bn_exists(typed)) {
        s = bn_read_file(owned, &n, typed, TEMPLATE_MAX_BYTES, err);
        *out = *owned;
    } else {
        s = bn_fail(err, BITNET_E_ARG,
                    "--chat-template '%.80s' is neither a built-in name, nor a file, nor template "
                    "text; built in: %s",
                    typed, known.data ? known.data : "none");
    }
    bn_buf_free(&known);
    return s;
}

bitnet_status textio_join(char **out, size_t *n, char **words, size_t n_words, bitnet_error *err)
{
    struct bn_buf b;
    bn_buf_init(&b, SIZE_MAX / 2);
    for (size_t i = 0; i < n_words; i++) {
        if (i) bn_buf_putc(&b, ' ');
        bn_buf_puts(&b, words[i]);
    }
    *n = b.len;
    *out = bn_buf_take(&b);
    return *out ? BITNET_OK : bn_fail_nomem(err, *n, "words");
}
