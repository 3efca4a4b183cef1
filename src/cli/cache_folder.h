/* SPDX-License-Identifier: Apache-2.0
 *
 * cache_folder.h: where packed copies of models are kept. */
#ifndef BN_CLI_CACHE_FOLDER_H
#define BN_CLI_CACHE_FOLDER_H

#include <stdbool.h>

enum { CACHE_PATH_BYTES = 4096 };

/* typed: "auto", "off" or a folder. false: there is none. */
bool cache_folder(char out[CACHE_PATH_BYTES], const char *typed);

#endif
