/* SPDX-License-Identifier: Apache-2.0
 *
 * thoughts.h: an answer that begins with a thought, <think>...</think>, is parted from it as it comes
 * in. Many templates open the thought themselves, so that the answer begins inside of it.
 */
#ifndef BN_SERVER_OPENAI_THOUGHTS_H
#define BN_SERVER_OPENAI_THOUGHTS_H

#include "server/openai/tools.h"

enum thoughts_mode {
    THOUGHTS_OFF,   /* all is text */
    THOUGHTS_MAYBE, /* the answer may begin with one */
    THOUGHTS_OPEN   /* the prompt has begun one */
};

struct thoughts {
    struct bn_buf text; /* without the line ends around it; may be taken out (bn_buf_clear) */
    /* private */
    uint8_t step;
    size_t matched;   /* bytes of a tag */
    size_t line_ends; /* held back: they may be the last ones */
};

void thoughts_open(struct thoughts *t, enum thoughts_mode mode);
/* What is no thought goes to the parser of the answer. false: no memory. */
bool thoughts_feed(struct thoughts *t, const char *text, size_t n, struct tools_parser *parser);
bool thoughts_end(struct thoughts *t, struct tools_parser *parser); /* ends both */
void thoughts_close(struct thoughts *t);

#endif
