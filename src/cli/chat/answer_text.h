/* SPDX-License-Identifier: Apache-2.0
 *
 * answer_text.h: an answer as it comes, on standard output. On a terminal lines are broken between words and what
 * the model thinks (<think>...</think>) is dim, or folded to one line; elsewhere every byte is as it came.
 */
#ifndef BN_CLI_CHAT_ANSWER_TEXT_H
#define BN_CLI_CHAT_ANSWER_TEXT_H

#include "base/base.h"
#include "base/buf.h"

struct answer_text {
    bool terminal, fold;
    bool thinking; /* inside of it now */
    uint32_t thought_words;
    bool failed; /* nobody can read it any more */
    /* private */
    bool may_think, in_word, fence, said, line_open;
    struct bn_buf held; /* bytes that may be a tag */
    struct bn_buf word; /* not shown yet: it may not fit */
    int column, width, word_columns, spaces, indent;
    bool at_start; /* of a line: its first word says how far the next ones are indented */
    int ticks;     /* ` at the start of the line */
};

/* thinks: the prompt has opened the block already. */
void answer_text_open(struct answer_text *a, bool fold, bool thinks);
/* false: stop, nobody can read it. */
bool answer_text_put(struct answer_text *a, const char *text, size_t n);
/* Shows what was held back, and ends the last line. */
void answer_text_end(struct answer_text *a);
void answer_text_close(struct answer_text *a);

/* The bytes of the thinking block at the start of an answer, its tags included; 0: none. */
size_t answer_text_thought(const char *text);

#endif
