/* SPDX-License-Identifier: Apache-2.0
 * Adapters of random numbers for any model, as GGUF files. */
#ifndef BN_TEST_ADAPTER_FILES_H
#define BN_TEST_ADAPTER_FILES_H

#include "base/rng.h"
#include "model/files/gguf_write.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

/* What an adapter is like. Every `every`-th matrix has a pair, from `first` on. */
struct adapter_kind {
    uint64_t seed;
    uint32_t rank, first, every;
    enum bn_type type; /* BN_F32 or BN_F16 */
    bool embed, head;
    float strength;
};

enum { ADAPTER_PAIRS_MAX = 512, ADAPTER_PATH_BYTES = 64 };

struct adapter_pair {
    char name[96];
    uint64_t in, out;
    bool table;
};

static inline size_t adapter_pairs(struct adapter_pair *to, const char *model,
                                   const struct adapter_kind *kind)
{
    bitnet_error err = {0};
    bitnet_file *f;
    bitnet_tensor_info t = {.size = sizeof t};
    size_t n = 0;
    uint64_t n_vocab = 0, n_embd = 0;
    uint32_t seen = 0;
    if (bitnet_file_open(&f, model, &err)) fail_msg("%s", err.text);
    for (size_t i = 0; bitnet_file_tensor(f, i, &t) == BITNET_OK; i++) {
        bool embed = strcmp(t.name, "token_embd.weight") == 0;
        if (embed) n_embd = t.dims[0], n_vocab = t.dims[1];
        if (embed || strncmp(t.name, "blk.", 4) != 0 || t.n_dims != 2 || strstr(t.name, "conv1d"))
            continue;
        if (seen++ % kind->every != kind->first % kind->every) continue;
        to[n] = (struct adapter_pair){.in = t.dims[0], .out = t.dims[1]};
        snprintf(to[n++].name, sizeof to->name, "%s", t.name);
        assert_true(n + 2 < ADAPTER_PAIRS_MAX);
    }
    bitnet_file_close(f);
    if (kind->embed) to[n++] = (struct adapter_pair){"token_embd.weight", n_vocab, n_embd, true};
    if (kind->head) to[n++] = (struct adapter_pair){"output.weight", n_embd, n_vocab, false};
    assert_true(n > 0);
    return n;
}

static inline void adapter_numbers(struct bn_gguf_writer *w, struct bn_rng *rng, enum bn_type type,
                                   uint64_t n, float size)
{
    bitnet_error err;
    for (uint64_t i = 0; i < n; i++) {
        float x = ((float)bn_rng_unit(rng) * 2 - 1) * size;
        uint8_t raw[4];
        bn_quant_row(raw, type, &x, 1);
        assert_int_equal(bn_gguf_data(w, raw, bn_type_info(type)->block_bytes, &err), BITNET_OK);
    }
}

/* path: a mkstemp pattern, which becomes the file's name. */
static inline void make_adapter(char path[ADAPTER_PATH_BYTES], const char *model, const char *arch,
                                const struct adapter_kind *kind)
{
    static struct adapter_pair pairs[ADAPTER_PAIRS_MAX];
    struct bn_gguf_writer w;
    bitnet_error err = {0};
    size_t n = adapter_pairs(pairs, model, kind);
    snprintf(path, ADAPTER_PATH_BYTES, "/tmp/bitnet-adapter-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    if (bn_gguf_create(&w, path, true, &err)) fail_msg("%s", err.text);
    bn_gguf_put_str(&w, "general.type", "adapter", 7);
    bn_gguf_put_str(&w, "general.architecture", arch, strlen(arch));
    bn_gguf_put_str(&w, "adapter.type", "lora", 4);
    bn_gguf_put_f32(&w, "adapter.lora.alpha", 2 * (float)kind->rank);
    for (size_t i = 0; i < n; i++)
        for (int b = 0; b < 2; b++) {
            char name[sizeof pairs->name + 8];
            uint64_t rank = kind->rank, a_in = pairs[i].table ? rank : pairs[i].in;
            uint64_t dims[4] = {b ? rank : a_in,
                                b                ? pairs[i].out
                                : pairs[i].table ? pairs[i].in
                                                 : rank,
                                1, 1};
            snprintf(name, sizeof name, "%.95s.lora_%c", pairs[i].name, b ? 'b' : 'a');
            assert_int_equal(bn_gguf_declare(&w, name, kind->type, 2, dims, &err), BITNET_OK);
        }
    struct bn_rng rng = {kind->seed};
    for (size_t i = 0; i < n; i++) {
        float in = pairs[i].table ? 1 : (float)pairs[i].in;
        adapter_numbers(&w, &rng, kind->type, pairs[i].in * kind->rank, 1.7f / sqrtf(in));
        adapter_numbers(&w, &rng, kind->type, pairs[i].out * kind->rank,
                        kind->strength / sqrtf((float)kind->rank));
    }
    if (bn_gguf_commit(&w, &err)) fail_msg("%s", err.text);
    bn_gguf_discard(&w);
}

#endif
