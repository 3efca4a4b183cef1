/* SPDX-License-Identifier: Apache-2.0
 *
 * textio.h: text and token ids on their way in: whole inputs from files and standard input, lists
 * of ids, chat templates. What is returned is freed with free().
 */
#ifndef BN_APP_TEXTIO_H
#define BN_APP_TEXTIO_H

#include "base/status.h"

/* path "-": standard input. 0-terminated, the 0 is not counted. */
bitnet_status textio_read(char **out, size_t *n, const char *path, bitnet_error *err);

/* Words as one text, a space between them. */
bitnet_status textio_join(char **out, size_t *n, char **words, size_t n_words, bitnet_error *err);

/* Ids separated by spaces, commas or line ends, also as a JSON array. what: names the text in
 * errors. */
bitnet_status textio_parse_ids(int32_t **ids, size_t *n, const char *text, size_t len,
                               const char *what, bitnet_error *err);

/* What --chat-template was given: a built-in name, a file, or the text itself. *owned is freed
 * by the caller after use; *out is what the library wants (NULL for the model's own). */
bitnet_status textio_chat_template(char **owned, const char **out, const char *typed,
                                   bitnet_error *err);

#endif
