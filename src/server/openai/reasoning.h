/* SPDX-License-Identifier: Apache-2.0
 *
 * reasoning.h: a choice that begins with reasoning, <think>...</think>, is parted from it as it comes
 * in. Many templates open it themselves, so that the choice begins inside of it.
 */
#ifndef BN_SERVER_OPENAI_REASONING_H
#define BN_SERVER_OPENAI_REASONING_H

#include "server/openai/tools.h"

enum reasoning_mode {
    REASONING_OFF,   /* all is text */
    REASONING_MAYBE, /* the choice may begin with it */
    REASONING_OPEN   /* the prompt has begun it */
};

struct reasoning {
    struct bn_buf text; /* without the line ends around it; may be taken out (bn_buf_clear) */
    /* private */
    uint8_t step;
    size_t matched;   /* bytes of a tag */
    size_t line_ends; /* held back: they may be the last ones */
};

void reasoning_open(struct reasoning *t, enum reasoning_mode mode);
/* What is no reasoning goes on to the parser. false: no memory. */
bool reasoning_feed(struct reasoning *t, const char *text, size_t n, struct tools_parser *parser);
bool reasoning_end(struct reasoning *t, struct tools_parser *parser); /* ends both */
void reasoning_close(struct reasoning *t);

#endif
