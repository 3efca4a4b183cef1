/* SPDX-License-Identifier: Apache-2.0
 * Calls in an answer, found byte by byte: where a piece of text ends makes no difference. What begins
 * like a call is held back until it is one, or is text after all; that is short, up to the name's end.
 * The grammar of tools allows only what is understood here. */
#include "server/tools_impl.h"

#include "base/mem.h"
#include <stdio.h>
#include <stdlib.h>

enum { MAX_TEXT = 64 << 20 }; /* bytes of an answer */

enum step {
    TEXT,
    PLAIN, /* text, and no call can come any more */
    HEAD,  /* in the marker and what follows it, up to the name */
    NAME,
    MIDDLE,
    ARGUMENTS,
    CLOSE,
    AFTER /* a call, before the next */
};

void tools_parser_open(struct tools_parser *p, const struct tools *t, uint64_t id)
{
    *p = (struct tools_parser){.id = id, .step = PLAIN};
    bn_buf_init(&p->pending, MAX_TEXT);
    bn_buf_init(&p->text, MAX_TEXT);
    if (!t || t->choice == TOOLS_NONE) return;
    p->form = t->form;
    p->step = p->form->at_start ? HEAD : TEXT;
}

void tools_parser_close(struct tools_parser *p)
{
    for (size_t i = 0; i < p->n_calls; i++) {
        free(p->calls[i].id);
        free(p->calls[i].name);
        bn_buf_free(&p->calls[i].arguments);
    }
    free(p->calls);
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

/* It is a call: all that was held back is known, and the first byte of its arguments is here. */
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
    turn(p, p->form->at_start ? PLAIN : TEXT);
    if (p->step == PLAIN || c != p->form->marker[0]) return bn_buf_putc(&p->text, c) && ok;
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
    return take_fixed(p, p->form->middle, "", c, ARGUMENTS);
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
    enum step next = p->form->between ? AFTER : PLAIN;
    bool ok = take_fixed(p, p->form->close, "", c, next);
    if (p->step == next) bn_buf_clear(&p->pending);
    return ok;
}

/* What stands between two calls goes with them. */
static bool take_after(struct tools_parser *p, char c)
{
    const char *between = p->form->between;
    if (c != byte_at(between, p->form->marker, p->matched)) return give_up(p, c);
    if (++p->matched > strlen(between)) {
        turn(p, HEAD);
        p->matched = 1;
    }
    return bn_buf_putc(&p->pending, c);
}

static bool take_byte(struct tools_parser *p, char c)
{
    const struct tools_form *f = p->form;
    switch ((enum step)p->step) {
    case TEXT: return give_up(p, c);
    case PLAIN: return bn_buf_putc(&p->text, c);
    case HEAD: return take_fixed(p, f->marker, f->open, c, NAME);
    case NAME: return take_name(p, c);
    case MIDDLE: return take_fixed(p, f->middle, "", c, ARGUMENTS);
    case ARGUMENTS: return take_argument(p, c);
    case CLOSE: return take_close(p, c);
    case AFTER: return take_after(p, c);
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
    if (p->step == CLOSE) bn_buf_clear(&p->pending); /* a whole call, its tag cut short */
    return flush(p);
}
