/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/net/digest.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PIECE_BYTES = 1 << 20 };

static bitnet_status add_file(EVP_MD_CTX *c, int fd, unsigned char *piece,
                              bool (*progress)(void *user, uint64_t done), void *user,
                              bitnet_error *err)
{
    uint64_t done = 0;
    ssize_t got;
    while ((got = pread(fd, piece, PIECE_BYTES, (off_t)done)) != 0) {
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return bn_fail(err, BITNET_E_UNSUPPORTED, "cannot read what was downloaded: %s",
                           strerror(errno));
        if (EVP_DigestUpdate(c, piece, (size_t)got) != 1)
            return bn_fail(err, BITNET_E_INTERNAL, "the checksum could not be computed");
        done += (uint64_t)got;
        if (progress && progress(user, done))
            return bn_fail(err, BITNET_E_CANCELLED, "interrupted");
    }
    return BITNET_OK;
}

bitnet_status hub_digest_file(char out[65], int fd, uint64_t bytes, bool git,
                              bool (*progress)(void *user, uint64_t done), void *user,
                              bitnet_error *err)
{
    unsigned char sum[EVP_MAX_MD_SIZE], *piece = malloc(PIECE_BYTES);
    unsigned n = 0;
    char head[40];
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    bitnet_status s = BITNET_OK;
    if (!piece || !c || EVP_DigestInit_ex(c, git ? EVP_sha1() : EVP_sha256(), NULL) != 1)
        s = bn_fail_nomem(err, PIECE_BYTES, "a checksum");
    if (s == BITNET_OK && git) { /* as git names a file: "blob <bytes>\0" comes first */
        int k = snprintf(head, sizeof head, "blob %llu", (unsigned long long)bytes);
        EVP_DigestUpdate(c, head, (size_t)k + 1);
    }
    if (s == BITNET_OK) s = add_file(c, fd, piece, progress, user, err);
    if (s == BITNET_OK && EVP_DigestFinal_ex(c, sum, &n) != 1)
        s = bn_fail(err, BITNET_E_INTERNAL, "the checksum could not be computed");
    for (unsigned i = 0; i < n && i < 32; i++) snprintf(out + 2 * i, 3, "%02x", sum[i]);
    EVP_MD_CTX_free(c);
    free(piece);
    return s;
}
