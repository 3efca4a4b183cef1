/* SPDX-License-Identifier: Apache-2.0 */
#include "server/openai/reasoning.h"

enum { MAX_TEXT = 64 << 20 };                                       /* bytes */
static const char open_tag[] = "<think>", close_tag[] = "</think>"; /* '<' is not in them again */

enum step {
    PLAIN,
    TAG,   /* the choice may begin with it */
    BEGIN, /* line ends before it */
    REASONING,
    AFTER /* line ends behind it */
};

void reasoning_open(struct reasoning *t, enum reasoning_mode mode)
{
    static const uint8_t first[] = {
        [REASONING_OFF] = PLAIN, [REASONING_MAYBE] = TAG, [REASONING_OPEN] = BEGIN};
    *t = (struct reasoning){.step = first[mode]};
    bn_buf_init(&t->text, MAX_TEXT);
}

void reasoning_close(struct reasoning *t) { bn_buf_free(&t->text); }

/* What was held back belongs to the reasoning. */
static bool put_held(struct reasoning *t)
{
    for (; t->line_ends; t->line_ends--) bn_buf_putc(&t->text, '\n');
    bool ok = bn_buf_append(&t->text, close_tag, t->matched);
    t->matched = 0;
    return ok;
}

static bool take_reasoning(struct reasoning *t, char c)
{
    if (c == close_tag[t->matched]) {
        if (close_tag[++t->matched]) return true;
        t->matched = t->line_ends = 0;
        t->step = AFTER;
        return true;
    }
    if (t->matched && !put_held(t)) return false;
    if (c == close_tag[0]) t->matched = 1;
    else if (c == '\n') t->line_ends++;
    else return put_held(t) && bn_buf_putc(&t->text, c);
    return true;
}

/* One byte before or in reasoning; it may turn out that there is none. */
static bool take_byte(struct reasoning *t, char c, struct tools_parser *parser)
{
    if (t->step == TAG) {
        if (c == open_tag[t->matched]) {
            if (open_tag[++t->matched]) return true;
            t->matched = 0;
            t->step = BEGIN;
            return true;
        }
        t->step = PLAIN;
        return tools_parser_feed(parser, open_tag, t->matched) && tools_parser_feed(parser, &c, 1);
    }
    if (c == '\n' && t->step != REASONING) return true;
    if (t->step == BEGIN) t->step = REASONING;
    if (t->step == REASONING) return take_reasoning(t, c);
    t->step = PLAIN;
    return tools_parser_feed(parser, &c, 1);
}

bool reasoning_feed(struct reasoning *t, const char *text, size_t n, struct tools_parser *parser)
{
    size_t i = 0;
    for (; i < n && t->step != PLAIN; i++)
        if (!take_byte(t, text[i], parser)) return false;
    return tools_parser_feed(parser, text + i, n - i);
}

bool reasoning_end(struct reasoning *t, struct tools_parser *parser)
{
    bool ok = true;
    if (t->step == TAG) ok = tools_parser_feed(parser, open_tag, t->matched);
    t->line_ends = 0;
    if (t->step == REASONING) ok = put_held(t);
    return tools_parser_end(parser) && ok;
}
