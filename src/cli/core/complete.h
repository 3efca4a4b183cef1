/* SPDX-License-Identifier: Apache-2.0
 *
 * complete.h: what may follow on a command line, for shells (`bitnet completion`).
 */
#ifndef BN_CLI_CORE_COMPLETE_H
#define BN_CLI_CORE_COMPLETE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Calls offer(to, ...) for the names of models that are here and, if `known`, for those that have a short name. */
typedef void complete_offer_fn(void *to, const char *name, const char *meaning);
typedef void complete_names_fn(bool known, complete_offer_fn *offer, void *to);

/* words[n]: what was typed behind the program's name, the last one unfinished and perhaps empty. Prints
 * a line per candidate, the word, then a tab and its meaning if there is one; and a last line that says
 * what may stand there besides: ":files", ":dirs", ":models" or ":none". */
void complete_print(FILE *to, char **words, size_t n, complete_names_fn *names);

#endif
