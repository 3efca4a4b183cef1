/* SPDX-License-Identifier: Apache-2.0
 *
 * textio.h: text and token ids on their way in: whole inputs from files and standard input, lists
 * of ids, and the library's "ask for the room, then call again" turned into one call that returns
 * memory (free()).
 */
#ifndef BN_CLI_TEXTIO_H
#define BN_CLI_TEXTIO_H

#include "base/status.h"

/* path "-": standard input. 0-terminated, the 0 is not counted. */
bitnet_status textio_read(char **out, size_t *n, const char *path, bitnet_error *err);

/* Ids separated by spaces, commas or line ends, also as a JSON array. what: names the text in
 * errors. */
bitnet_status textio_parse_ids(int32_t **ids, size_t *n, const char *text, size_t len,
                               const char *what, bitnet_error *err);

bitnet_status textio_encode(int32_t **ids, size_t *n, const bitnet_model *m, const char *text,
                            size_t len, uint32_t flags, bitnet_error *err);
bitnet_status textio_decode(char **text, size_t *n, const bitnet_model *m, const int32_t *ids,
                            size_t n_ids, uint32_t flags, bitnet_error *err);
bitnet_status textio_chat(int32_t **ids, size_t *n, const bitnet_model *m,
                          const bitnet_message *msgs, size_t n_msgs, const char *chat_template,
                          bitnet_error *err);

/* What --chat-template was given: a built-in name, a file, or the text itself. *owned is freed
 * by the caller after use; *out is what the library wants (NULL for the model's own). */
bitnet_status textio_chat_template(char **owned, const char **out, const char *typed,
                                   bitnet_error *err);

#endif
