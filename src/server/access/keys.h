/* SPDX-License-Identifier: Apache-2.0
 *
 * keys.h: who may ask, and how much. Keys come from a file, one a line with what its holder may use
 * (quota.h), '#' begins a comment line, or one by one. A key that is shown is compared with all of them, all
 * bytes of each, in the same time whatever it is.
 */
#ifndef BN_SERVER_KEYS_H
#define BN_SERVER_KEYS_H

#include "server/access/quota.h"

enum { KEYS_MAX = 1000, KEY_MAX_BYTES = 256 };

struct keys {
    uint8_t (*padded)[KEY_MAX_BYTES]; /* [KEYS_MAX], with zeros; NULL as long as there is none */
    struct quota_account *accounts[KEYS_MAX]; /* [n], each its own */
    size_t n;
};

/* A key is made of visible ASCII characters, which is what a header can carry. Errors never show it. */
bitnet_status keys_add(struct keys *k, const char *key, bitnet_error *err);
/* Adds those of a file. Refused are a file that others than its owner may write to, and one without any
 * key, which would let everybody in. On error nothing has changed. */
bitnet_status keys_load(struct keys *k, const char *path, bitnet_error *err);
void keys_free(struct keys *k);
bool keys_match(const struct keys *k, const char *shown, size_t n);
/* The account of the key; NULL: there is no such key. */
struct quota_account *keys_find(const struct keys *k, const char *shown, size_t n);
/* Keys that both have go on with the account of the old ones, and with the limits of the new ones. */
void keys_take_over(struct keys *fresh, const struct keys *old);

#endif
