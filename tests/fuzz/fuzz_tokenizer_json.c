/* SPDX-License-Identifier: Apache-2.0
 * libFuzzer target: any bytes as a tokenizer.json. What is accepted must make a tokenizer that
 * encodes, or says why not. The reader wants a path, so the bytes lie in a file that exists in
 * memory only. */
#include "text/tokenizer/tokenizer.h"
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char text[] = "Hello  world 123!\n\t<s>it's \xc3\xa9\xe6\x97\xa5 \xf0\x9f\x98\x80 aab";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    struct bn_vocab v;
    struct bn_tokenizer *t;
    struct bn_tokens ids = {0};
    bitnet_error err;
    char path[64];
    if (fd < 0) fd = memfd_create("tokenizer.json", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != (ssize_t)size) return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (bn_vocab_read_hf(&v, path, &err) != BITNET_OK) return 0;
    if (bn_tokenizer_open(&t, &v, &err) != BITNET_OK) return 0;
    bn_encode(t, text, sizeof text - 1, BITNET_TOK_SPECIAL | BITNET_TOK_BOS_AUTO, &ids, &err);
    for (size_t i = 0; i < ids.n; i++) {
        size_t n;
        bn_token_bytes(t, ids.ids[i], true, i == 0, &n);
    }
    bn_tokens_free(&ids);
    bn_tokenizer_close(t);
    return 0;
}
