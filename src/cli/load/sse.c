/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/load/sse.h"

void load_sse_init(struct load_sse *s)
{
    *s = (struct load_sse){0};
    bn_buf_init(&s->line, LOAD_SSE_MAX_BYTES);
    bn_buf_init(&s->data, LOAD_SSE_MAX_BYTES);
}

void load_sse_reset(struct load_sse *s)
{
    bn_buf_clear(&s->line);
    bn_buf_clear(&s->data);
    s->after_cr = s->has_data = s->failed = false;
}

void load_sse_free(struct load_sse *s)
{
    bn_buf_free(&s->line);
    bn_buf_free(&s->data);
}

static void take_line(struct load_sse *s, load_sse_event *event, void *user)
{
    const char *text = s->line.len ? s->line.data : "";
    if (s->line.len == 0) {
        if (s->has_data) event(user, s->data.len ? s->data.data : "", s->data.len);
        bn_buf_clear(&s->data);
        s->has_data = false;
    } else if (strncmp(text, "data", 4) == 0 && (text[4] == ':' || s->line.len == 4)) {
        if (s->has_data) bn_buf_putc(&s->data, '\n');
        size_t from = text[4] == ':' ? 5 + (text[5] == ' ') : 4;
        bn_buf_append(&s->data, text + from, s->line.len - from);
        s->has_data = true;
    }
    bn_buf_clear(&s->line);
}

void load_sse_feed(struct load_sse *s, const char *p, size_t n, load_sse_event *event, void *user)
{
    for (size_t i = 0; i < n && !s->failed;) {
        if (s->after_cr && p[i] == '\n') i++;
        s->after_cr = false;
        size_t from = i;
        while (i < n && p[i] != '\n' && p[i] != '\r') i++;
        if (i > from) s->failed = !bn_buf_append(&s->line, p + from, i - from);
        if (i < n && !s->failed) {
            s->after_cr = p[i++] == '\r';
            take_line(s, event, user);
            s->failed = s->data.failed;
        }
    }
}
