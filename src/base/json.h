/* SPDX-License-Identifier: Apache-2.0
 * JSON files through jansson, with limits, and getters that say in one sentence what is wrong. */
#ifndef BN_BASE_JSON_H
#define BN_BASE_JSON_H

#include "base/buf.h"
#include "base/status.h"
#include <jansson.h>

/* what: names the text in errors, usually a path. Strict UTF-8; duplicate keys: the last one
 * counts. */
bitnet_status bn_json_parse(json_t **out, const char *text, size_t n, const char *what,
                            bitnet_error *err);
bitnet_status bn_json_read(json_t **out, const char *path, size_t max_bytes, bitnet_error *err);

/* Getters for optional members: absent or null leaves *out as it was; a wrong kind is an error. */
bitnet_status bn_json_u32(uint32_t *out, const json_t *obj, const char *key, const char *what,
                          bitnet_error *err);
bitnet_status bn_json_f32(float *out, const json_t *obj, const char *key, const char *what,
                          bitnet_error *err);
bitnet_status bn_json_bool(bool *out, const json_t *obj, const char *key, const char *what,
                           bitnet_error *err);
bitnet_status bn_json_str(const char **out, const json_t *obj, const char *key, const char *what,
                          bitnet_error *err);

/* Appends text as a JSON string, with its quotes; bytes that are not UTF-8 become U+FFFD. */
bool bn_json_quote(struct bn_buf *b, const char *s, size_t n);
/* A number, or null for what JSON has no number for. */
json_t *bn_json_real(double v);

#endif
