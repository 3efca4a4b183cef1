/* SPDX-License-Identifier: Apache-2.0 */
#include "server/openai/thoughts.h"

enum { MAX_TEXT = 64 << 20 };                                       /* bytes */
static const char open_tag[] = "<think>", close_tag[] = "</think>"; /* '<' is not in them again */

enum step {
    PLAIN,
    TAG,   /* the answer may begin with one */
    BEGIN, /* line ends before the thought */
    THOUGHT,
    AFTER /* line ends behind it */
};

void thoughts_open(struct thoughts *t, enum thoughts_mode mode)
{
    static const uint8_t first[] = {
        [THOUGHTS_OFF] = PLAIN, [THOUGHTS_MAYBE] = TAG, [THOUGHTS_OPEN] = BEGIN};
    *t = (struct thoughts){.step = first[mode]};
    bn_buf_init(&t->text, MAX_TEXT);
}

void thoughts_close(struct thoughts *t) { bn_buf_free(&t->text); }

/* What was held back belongs to the thought. */
static bool put_held(struct thoughts *t)
{
    for (; t->line_ends; t->line_ends--) bn_buf_putc(&t->text, '\n');
    bool ok = bn_buf_append(&t->text, close_tag, t->matched);
    t->matched = 0;
    return ok;
}

static bool take_thought(struct thoughts *t, char c)
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

/* One byte before or in a thought; it may turn out that there is none. */
static bool take_byte(struct thoughts *t, char c, struct tools_parser *parser)
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
    if (c == '\n' && t->step != THOUGHT) return true;
    if (t->step == BEGIN) t->step = THOUGHT;
    if (t->step == THOUGHT) return take_thought(t, c);
    t->step = PLAIN;
    return tools_parser_feed(parser, &c, 1);
}

bool thoughts_feed(struct thoughts *t, const char *text, size_t n, struct tools_parser *parser)
{
    size_t i = 0;
    for (; i < n && t->step != PLAIN; i++)
        if (!take_byte(t, text[i], parser)) return false;
    return tools_parser_feed(parser, text + i, n - i);
}

bool thoughts_end(struct thoughts *t, struct tools_parser *parser)
{
    bool ok = true;
    if (t->step == TAG) ok = tools_parser_feed(parser, open_tag, t->matched);
    t->line_ends = 0;
    if (t->step == THOUGHT) ok = put_held(t);
    return tools_parser_end(parser) && ok;
}
