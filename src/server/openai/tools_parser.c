/* SPDX-License-Identifier: Apache-2.0
 * Calls in a choice, found byte by byte: where a piece of text ends makes no difference. What begins
 * like a call is held back until it is one, or is text after all; that is short, up to the name's end.
 * The grammar of tools allows only what is understood here. */
#include "server/openai/tools_impl.h"

#include "base/os/mem.h"
#include <stdio.h>
#include <stdlib.h>

enum { MAX_TEXT = 64 << 20 }; /* bytes of a choice */

enum step {
    TEXT,
    PLAIN, /* text, and no call can come any more */
    HEAD,  /* in the marker and what follows it, up to the name */
    NAME,
    MIDDLE,
    ARGUMENTS,
    CLOSE,
    AFTER, /* a call, before the next */
    /* arguments written one by one */
    PARAMETER, /* before one, or the end of the call */
    KEY,
    KEY_END,
    VALUE,
    VALUE_END
};

void tools_parser_open(struct tools_parser *p, const struct tools *t, uint64_t id)
{
    *p = (struct tools_parser){.id = id, .step = PLAIN};
    bn_buf_init(&p->pending, MAX_TEXT);
    bn_buf_init(&p->text, MAX_TEXT);
    if (!t || t->choice == TOOLS_NONE) return;
    p->format = t->format;
    p->list = p->format->parameter ? bn_json_ref(t->list) : NULL;
    p->step = p->format->at_start ? HEAD : TEXT;
}

void tools_parser_close(struct tools_parser *p)
{
    for (size_t i = 0; i < p->n_calls; i++) {
        free(p->calls[i].id);
        free(p->calls[i].name);
        bn_buf_free(&p->calls[i].arguments);
    }
    free(p->calls);
    bn_json_free(p->list);
    bn_buf_free(&p->pending);
    bn_buf_free(&p->text);
}

static char *format_id(uint64_t id, size_t i)
{
    enum { ROOM = 32 };
    char *text = bn_calloc(ROOM, 1);
    if (text) snprintf(text, ROOM, "call_%016llx%02zx", (unsigned long long)id, i);
    return text;
}

/* It is a call: all that was held back is known. */
static bool begin_call(struct tools_parser *p)
{
    if (!bn_grow((void **)&p->calls, &p->call_room, p->n_calls + 1, sizeof *p->calls)) return false;
    struct tools_call *c = &p->calls[p->n_calls];
    *c = (struct tools_call){.id = format_id(p->id, p->n_calls),
                             .name = bn_calloc(p->name_bytes + 1, 1)};
    bn_buf_init(&c->arguments, MAX_TEXT);
    p->n_calls++;
    if (!c->id || !c->name) return false;
    memcpy(c->name, p->pending.data + p->name_at, p->name_bytes);
    bn_buf_clear(&p->pending);
    p->depth = 0;
    p->in_string = p->escaped = false;
    return true;
}

static bool flush(struct tools_parser *p)
{
    bool ok = p->pending.len == 0 || bn_buf_append(&p->text, p->pending.data, p->pending.len);
    bn_buf_clear(&p->pending);
    p->matched = 0;
    return ok;
}

static void turn(struct tools_parser *p, enum step step)
{
    p->step = (uint8_t)step;
    p->matched = 0;
}

/* The byte does not belong to a call: what was held back is text, and it may begin anew. */
static bool give_up(struct tools_parser *p, char c)
{
    bool ok = flush(p);
    turn(p, p->format->at_start ? PLAIN : TEXT);
    if (p->step == PLAIN || c != p->format->marker[0]) return bn_buf_putc(&p->text, c) && ok;
    p->step = HEAD;
    p->matched = 1;
    return bn_buf_putc(&p->pending, c) && ok;
}

/* The byte at a place of two texts, one after the other; 0: past their end. */
static char byte_at(const char *a, const char *b, size_t i)
{
    size_t n = strlen(a);
    return i < n ? a[i] : b[i - n];
}

/* The next byte of a fixed text, at the end of which comes another step. */
static bool take_fixed(struct tools_parser *p, const char *a, const char *b, char c, enum step next)
{
    if (c != byte_at(a, b, p->matched)) return give_up(p, c);
    p->matched++;
    if (byte_at(a, b, p->matched) == '\0') turn(p, next);
    return bn_buf_putc(&p->pending, c);
}

/* Behind the name; where no object follows, it is a call at the end of this. */
static bool take_middle(struct tools_parser *p, char c)
{
    if (!p->format->parameter) return take_fixed(p, p->format->middle, "", c, ARGUMENTS);
    if (p->n_calls == TOOLS_MAX_CALLS) return give_up(p, c);
    if (!take_fixed(p, p->format->middle, "", c, PARAMETER)) return false;
    if (p->step != PARAMETER) return true;
    p->any_value = false;
    return begin_call(p) && bn_buf_putc(&p->calls[p->n_calls - 1].arguments, '{');
}

static bool take_name(struct tools_parser *p, char c)
{
    if (p->matched == 0) p->name_at = p->pending.len;
    if (tools_name_char(c) && p->matched < TOOLS_MAX_NAME) {
        p->matched++;
        return bn_buf_putc(&p->pending, c);
    }
    if (p->matched == 0) return give_up(p, c);
    p->name_bytes = p->matched;
    turn(p, MIDDLE);
    return take_middle(p, c);
}

/* Where the arguments end: at the brace that closes the first one. */
static bool take_argument(struct tools_parser *p, char c)
{
    if (p->pending.len) {
        if (c != '{' || p->n_calls == TOOLS_MAX_CALLS) return give_up(p, c);
        if (!begin_call(p)) return false;
    }
    struct tools_call *call = &p->calls[p->n_calls - 1];
    if (p->escaped) p->escaped = false;
    else if (c == '\\') p->escaped = p->in_string;
    else if (c == '"') p->in_string = !p->in_string;
    else if (!p->in_string && (c == '{' || c == '[')) p->depth++;
    else if (!p->in_string && (c == '}' || c == ']')) p->depth--;
    if (p->depth == 0) {
        call->complete = true;
        turn(p, CLOSE);
    }
    return bn_buf_putc(&call->arguments, c);
}

static bool take_close(struct tools_parser *p, char c)
{
    enum step next = p->format->between ? AFTER : PLAIN;
    bool ok = take_fixed(p, p->format->close, "", c, next);
    if (p->step == next) bn_buf_clear(&p->pending);
    return ok;
}

/* What stands between two calls goes with them. */
static bool take_after(struct tools_parser *p, char c)
{
    const char *between = p->format->between;
    if (c != byte_at(between, p->format->marker, p->matched)) return give_up(p, c);
    if (++p->matched > strlen(between)) {
        turn(p, HEAD);
        p->matched = 1;
    }
    return bn_buf_putc(&p->pending, c);
}

/* ------------------------------------------------------------------ arguments one by one */

static struct bn_buf *arguments(const struct tools_parser *p)
{
    return &p->calls[p->n_calls - 1].arguments;
}

/* All its arguments are here. */
static bool end_call(struct tools_parser *p)
{
    p->calls[p->n_calls - 1].complete = true;
    return bn_buf_putc(arguments(p), '}');
}

/* A parameter, or the end of the call: they differ after their first byte. */
static bool take_parameter(struct tools_parser *p, char c)
{
    const struct tools_format *f = p->format;
    if (p->matched == 1 && c == f->close[1]) {
        bool ok = end_call(p) && bn_buf_putc(&p->pending, c);
        turn(p, CLOSE);
        p->matched = 2;
        return ok;
    }
    if (c != f->parameter[p->matched]) return end_call(p) && give_up(p, c);
    p->matched++;
    if (f->parameter[p->matched]) return bn_buf_putc(&p->pending, c);
    turn(p, KEY);
    bn_buf_clear(&p->pending);
    return true;
}

static bool begin_value(struct tools_parser *p)
{
    struct bn_buf *key = &p->pending, *to = arguments(p);
    const char *function = p->calls[p->n_calls - 1].name;
    bool ok = bn_buf_putc(key, '\0');
    if (!ok) return false;
    p->as_json = !tools_is_text(tools_parameter(p->list, function, key->data));
    if (p->any_value) bn_buf_puts(to, ", ");
    p->any_value = true;
    bn_json_quote(to, key->data, key->len - 1);
    bn_buf_puts(to, p->as_json ? ": " : ": \"");
    bn_buf_clear(key);
    return !to->failed;
}

static bool take_key(struct tools_parser *p, char c)
{
    if (c == p->format->parameter_open[0] && p->pending.len) {
        turn(p, KEY_END);
        p->matched = 1;
        return begin_value(p);
    }
    if (p->pending.len == TOOLS_MAX_KEY || c == '\n') return end_call(p) && give_up(p, c);
    return bn_buf_putc(&p->pending, c);
}

static bool put_value_byte(struct tools_parser *p, char c)
{
    if (p->as_json) return bn_buf_putc(&p->pending, c);
    unsigned char u = (unsigned char)c;
    if (c == '"' || c == '\\') return bn_buf_printf(arguments(p), "\\%c", c);
    if (c == '\n') return bn_buf_puts(arguments(p), "\\n");
    if (u < 0x20) return bn_buf_printf(arguments(p), "\\u%04x", u);
    return bn_buf_putc(arguments(p), c);
}

/* A value that is no JSON is told as the text it is. */
static bool end_value(struct tools_parser *p)
{
    struct bn_buf *to = arguments(p);
    if (!p->as_json) return bn_buf_putc(to, '"');
    const char *text = p->pending.data ? p->pending.data : "";
    size_t n = p->pending.len;
    struct bn_json *v;
    if (!bn_json_try(&v, text, n, BN_JSON_ANY)) to->failed = true;
    else if (v) bn_buf_append(to, text, n);
    else bn_json_quote(to, text, n);
    bn_json_free(v);
    bn_buf_clear(&p->pending);
    return !to->failed;
}

static bool take_value(struct tools_parser *p, char c)
{
    const char *end = p->format->parameter_close;
    bool ok = true;
    if (c == end[p->matched]) {
        if (end[++p->matched]) return true;
        turn(p, VALUE_END);
        return end_value(p);
    }
    for (size_t i = 0; i < p->matched; i++) ok = ok && put_value_byte(p, end[i]);
    p->matched = c == end[0];
    return ok && (p->matched || put_value_byte(p, c));
}

/* One line end, behind the name of a parameter or its value. */
static bool take_line_end(struct tools_parser *p, char c)
{
    bool behind_key = p->step == KEY_END;
    if (c != '\n' && behind_key) { /* the value begins at once */
        turn(p, VALUE);
        return take_value(p, c);
    }
    if (c != '\n') return end_call(p) && give_up(p, c);
    turn(p, behind_key ? VALUE : PARAMETER);
    return true;
}

static bool take_byte(struct tools_parser *p, char c)
{
    const struct tools_format *f = p->format;
    switch ((enum step)p->step) {
    case TEXT: return give_up(p, c);
    case PLAIN: return bn_buf_putc(&p->text, c);
    case HEAD: return take_fixed(p, f->marker, f->open, c, NAME);
    case NAME: return take_name(p, c);
    case MIDDLE: return take_middle(p, c);
    case ARGUMENTS: return take_argument(p, c);
    case CLOSE: return take_close(p, c);
    case AFTER: return take_after(p, c);
    case PARAMETER: return take_parameter(p, c);
    case KEY: return take_key(p, c);
    case VALUE: return take_value(p, c);
    case KEY_END:
    case VALUE_END: return take_line_end(p, c);
    }
    return false;
}

bool tools_parser_feed(struct tools_parser *p, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!take_byte(p, text[i])) return false;
    return true;
}

bool tools_parser_end(struct tools_parser *p)
{
    /* a call, its tag cut short; or one that is cut, and says so */
    if (p->step == CLOSE || p->step >= PARAMETER) bn_buf_clear(&p->pending);
    return flush(p);
}
