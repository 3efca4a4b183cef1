/* SPDX-License-Identifier: Apache-2.0
 *
 * talk.h: a conversation as messages: what was said, how much of it the model still sees, and the file it is kept in.
 */
#ifndef BN_CLI_CHAT_TALK_H
#define BN_CLI_CHAT_TALK_H

#include "base/status.h"
#include <bitnet/bitnet.h>

/* The first message is the system's if has_system; then user and assistant, as a rule in turn. Texts are owned,
 * roles are literals. */
struct talk {
    bitnet_message *msgs, *seen; /* seen: room for talk_seen */
    size_t n, room, seen_room;
    bool has_system;
    size_t forgotten; /* messages behind the system's that no longer fit the context */
    char *path;       /* last saved to or loaded from: that file may be replaced */
};

bitnet_status talk_add(struct talk *t, const char *role, const char *text, bitnet_error *err);
void talk_drop_last(struct talk *t);
void talk_reset(struct talk *t); /* keeps the system message */
/* Begins anew; NULL or "": without one. */
bitnet_status talk_set_system(struct talk *t, const char *text, bitnet_error *err);

/* The text of the last message if it has that role, else NULL. */
const char *talk_last(const struct talk *t, const char *role);

/* What the model sees: borrowed until the next call. NULL: out of memory. */
const bitnet_message *talk_seen(struct talk *t, size_t *n);
/* Forgets the oldest exchange; false: there is none but the last message. */
bool talk_forget(struct talk *t);

/* All of it as JSON, {"messages": [{"role", "content"}, ...]}. force: replace a file of someone else. *replaced: a
 * file was there. */
bitnet_status talk_save(struct talk *t, const char *path, bool force, bool *replaced,
                        bitnet_error *err);
/* In place of what is there, which stays if the file is not good. */
bitnet_status talk_load(struct talk *t, const char *path, bitnet_error *err);
void talk_close(struct talk *t);

#endif
