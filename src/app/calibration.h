/* SPDX-License-Identifier: Apache-2.0
 *
 * calibration.h: a text that a model is measured on, as token ids.
 */
#ifndef BN_APP_CALIBRATION_H
#define BN_APP_CALIBRATION_H

#include "base/status.h"

enum { CALIBRATION_MIN_TOKENS = 64 }; /* of fewer nothing can be learnt */

struct calibration {
    int32_t *ids; /* owned */
    size_t n;
    size_t n_texts;    /* lines of JSONL; a plain text is one */
    uint64_t checksum; /* of the file's bytes */
};

/* Plain text, or lines of JSON where the name ends with .jsonl or the text begins with '{': objects
 * with a member "text" or "content", or strings. Texts follow each other as the model begins one. Must
 * be UTF-8. max_tokens: what lies behind is left out; 0: nothing is. On failure *c is empty. */
bitnet_status calibration_read(struct calibration *c, const bitnet_model *m, const char *path,
                               uint64_t max_tokens, bitnet_error *err);
void calibration_free(struct calibration *c);

#endif
