/* SPDX-License-Identifier: Apache-2.0
 *
 * dialects.h: OpenAI's three ways to ask for text, as dialects: chats, completions and responses.
 */
#ifndef BN_SERVER_OPENAI_DIALECTS_H
#define BN_SERVER_OPENAI_DIALECTS_H

#include "server/dialect.h"

extern const struct dialect openai_dialects[]; /* by enum openai_kind */

#endif
