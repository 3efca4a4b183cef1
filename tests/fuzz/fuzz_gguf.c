/* SPDX-License-Identifier: Apache-2.0
 * libFuzzer target: any bytes as a GGUF. What opens is read to the last weight: every tensor
 * through the types and as trits with the scales they agree on, every metadata entry printed,
 * configuration and vocabulary taken out. */
#include "base/buf.h"
#include "model/files/gguf_write.h"
#include "model/config/hadamard.h"
#include "model/weights/ternary.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_WEIGHTS = 1 << 18 }; /* read of one input, so that it takes no time */

/* as a projection is read */
static void read_ternary(const struct bn_stored *m, const char *name)
{
    struct bn_ternary t;
    bitnet_error err;
    bool dense;
    if (bn_ternary_look(&t, &dense, m, name, &err) != BITNET_OK || dense) return;
    size_t blocks = t.block ? (size_t)(m->cols / t.block) : 1;
    int8_t *w = malloc(m->cols);
    float *scratch = malloc(m->cols * sizeof *scratch), scale;
    uint16_t *bits = malloc(blocks * sizeof *bits);
    for (uint64_t r = 0; w && scratch && bits && r < m->rows; r++)
        bn_ternary_row(w, &scale, bits, &t, r, scratch);
    free(w), free(scratch), free(bits);
}

static void read_tensor(const struct bn_tensor *t, uint64_t *budget)
{
    struct bn_stored m = bn_tensor_stored(t);
    if (m.cols > *budget) return;
    if (m.rows <= *budget / m.cols) read_ternary(&m, t->name);
    /* rows of their exact size: a write past the end is seen */
    int8_t *trits = malloc(m.cols);
    float *values = malloc(m.cols * sizeof *values), *scales = malloc(m.cols * sizeof *scales);
    uint16_t *bits = malloc(m.cols * sizeof *bits);
    for (uint64_t r = 0; trits && values && scales && bits && r < m.rows && *budget >= m.cols;
         r++) {
        *budget -= m.cols;
        bn_dequant_row(values, &m, r);
        if (!bn_type_info(m.type)->ternary) continue;
        bn_unpack_trits(trits, &m, r);
        bn_unpack_scales(scales, &m, r);
        if (bn_type_info(m.type)->scale == BN_TS_BLOCK_F16) bn_unpack_block_f16(bits, &m, r);
    }
    free(trits), free(values), free(scales), free(bits);
}

/* What the metadata says of the model, and of every tensor that is listed as rotated. */
static void read_config(const struct bn_source *s, struct bn_buf *text, bitnet_error *err)
{
    struct bn_config c;
    if (bn_config_read(&c, s, text, err) != BITNET_OK || !c.hadamard.block) return;
    for (size_t i = 0; i < s->n_tensors && i < 64; i++)
        bn_hadamard_has(s, s->tensors[i].name, i % 2);
    for (uint32_t i = 0; i < c.hadamard.n_widths; i++) {
        float *signs = malloc(c.hadamard.widths[i] * sizeof *signs);
        if (signs) bn_hadamard_signs(signs, &c.hadamard, s, c.hadamard.widths[i]);
        free(signs);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bn_source s;
    struct bn_vocab v;
    struct bn_buf type, text;
    bitnet_error err;
    if (bn_source_open_memory(&s, data, size, "fuzz", &err) != BITNET_OK) return 0;
    uint64_t budget = MAX_WEIGHTS;
    for (size_t i = 0; i < s.n_tensors; i++) read_tensor(&s.tensors[i], &budget);
    bn_buf_init(&type, 1 << 12);
    bn_buf_init(&text, 1 << 16);
    for (size_t i = 0; i < s.n_meta; i++) {
        bn_meta_print(&s.meta[i], &type, &text);
        bn_buf_clear(&type);
        bn_buf_clear(&text);
    }
    read_config(&s, &text, &err);
    bn_buf_clear(&text);
    if (bn_gguf_read_vocab(&v, &s, &text, &err) == BITNET_OK) bn_vocab_free(&v);
    bn_buf_free(&type);
    bn_buf_free(&text);
    bn_source_close(&s);
    return 0;
}
