/* SPDX-License-Identifier: Apache-2.0
 *
 * anthropic.h: Anthropic's way to ask for text, /v1/messages, as a dialect. A body is rewritten as one of
 * OpenAI's chats, so that whatever a chat can do, messages can.
 */
#ifndef BN_SERVER_ANTHROPIC_ANTHROPIC_H
#define BN_SERVER_ANTHROPIC_ANTHROPIC_H

#include "server/dialect.h"

extern const struct dialect anthropic_dialect;

#endif
