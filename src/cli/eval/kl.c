/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/eval/kl.h"

#include <string.h>

/* "_logits_", context, vocabulary, chunks, tokens; then for every position that counts a scale, the
 * least log-probability, and a 16-bit number for each token. */
enum { MAGIC_BYTES = 8, HEAD_BYTES = MAGIC_BYTES + 3 * 4, ROW_HEAD = 4 /* 16-bit words */ };

static uint32_t u32_at(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

bitnet_status kl_base_open(struct kl_base *out, const char *path, bitnet_error *err)
{
    *out = (struct kl_base){0};
    BN_TRY(bn_map_file(&out->file, path, err));
    const uint8_t *p = out->file.data;
    size_t bytes = out->file.bytes;
    if (bytes < HEAD_BYTES || memcmp(p, "_logits_", MAGIC_BYTES) != 0) {
        kl_base_close(out);
        return bn_fail(err, BITNET_E_FORMAT,
                       "'%s' is no file that llama-perplexity --kl-divergence-base writes", path);
    }
    out->ctx = u32_at(p + 8);
    out->n_vocab = u32_at(p + 12);
    out->n_chunks = u32_at(p + 16);
    out->row_words = ROW_HEAD + 2 * (((size_t)out->n_vocab + 1) / 2);
    size_t n_tokens = (size_t)out->ctx * out->n_chunks;
    size_t n_rows = (size_t)out->n_chunks * (out->ctx ? out->ctx - 1 - out->ctx / 2 : 0);
    size_t need = HEAD_BYTES + n_tokens * 4 + n_rows * out->row_words * 2;
    if (out->ctx < 4 || !out->n_vocab || !out->n_chunks || out->ctx > 1 << 24 ||
        out->n_vocab > 1 << 24 || out->n_chunks > 1 << 24 || bytes < need) {
        kl_base_close(out);
        return bn_fail(err, BITNET_E_FORMAT, "'%s' is cut off or damaged", path);
    }
    out->tokens = (const int32_t *)(const void *)(p + HEAD_BYTES);
    out->rows = p + HEAD_BYTES + n_tokens * 4;
    return BITNET_OK;
}

void kl_base_close(struct kl_base *b)
{
    bn_unmap_file(&b->file);
    *b = (struct kl_base){0};
}

void kl_base_row(void *user, size_t i, double *out)
{
    const struct kl_base *b = user;
    const uint8_t *p = b->rows + i * b->row_words * 2;
    float scale, least;
    memcpy(&scale, p, 4);
    memcpy(&least, p + 4, 4);
    for (uint32_t k = 0; k < b->n_vocab; k++) {
        uint16_t q;
        memcpy(&q, p + 8 + 2 * (size_t)k, 2);
        out[k] = (double)scale * q + (double)least;
    }
}
