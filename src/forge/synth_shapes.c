/* SPDX-License-Identifier: Apache-2.0
 * Shapes of published models, one line each, and a tiny one for tests. */
#include "forge/synth_impl.h"

#define BITNET    .act = BN_ACT_RELU2, .act_quant = BN_AQ_INT8
#define SILU_INT8 .act = BN_ACT_SILU, .act_quant = BN_AQ_INT8
#define SILU_F32  .act = BN_ACT_SILU, .act_quant = BN_AQ_F32

#define HYBRID(h) SILU_F32, .hybrid = &(h)

/*  key heads, value heads, widths of a key and a value, taps; rotated dimensions and their sections */
#define DELTA_27B  .delta = {16, 48, 128, 128, 4}, .rope_dim = 64, .rope_sections = {11, 11, 10, 0}
#define DELTA_TINY .delta = {2, 6, 64, 64, 4}, .rope_dim = 16, .rope_sections = {3, 3, 2, 0}

static const struct bn_hybrid bonsai_27b = {DELTA_27B, .type = BN_PQ2_0};
static const struct bn_hybrid bonsai_2_27b = {DELTA_27B, .type = BN_PTQ1_0, .float_gates = true,
                                              .hadamard_block = 1024};
static const struct bn_hybrid tiny = {DELTA_TINY, .type = BN_PQ2_0, .n_mtp = 1};
static const struct bn_hybrid tiny_rotated = {DELTA_TINY, .type = BN_PTQ1_0, .float_gates = true,
                                              .hadamard_block = 128};

/* clang-format off */
/*   name, description, architecture,
 *   hidden, ffn, layers, heads, KV heads, head width, vocabulary, context, theta, epsilon, tied,
 *   activation and input of linear layers; what few have, by name */
static const struct bn_shape shapes[] = {
    {"2b-4t", "Microsoft BitNet b1.58 2B-4T", "bitnet-b1.58",
     2560, 6912, 30, 20, 5, 128, 128256, 4096, 500000.0f, 1e-5f, true, BITNET},
    {"1bitllm-large", "1bitLLM bitnet_b1_58-large, 0.7B", "bitnet",
     1536, 4096, 24, 16, 16, 96, 32002, 2048, 10000.0f, 1e-5f, true, SILU_INT8},
    {"1bitllm-3b", "1bitLLM bitnet_b1_58-3B: head width 100, feed-forward width 8640", "bitnet",
     3200, 8640, 26, 32, 32, 100, 32002, 2048, 10000.0f, 1e-5f, true, SILU_INT8},
    {"llama3-8b", "Llama3-8B-1.58", "llama",
     4096, 14336, 32, 32, 8, 128, 128256, 8192, 500000.0f, 1e-5f, false, SILU_INT8},
    {"falcon3-1b", "Falcon3-1B-1.58bit", "llama",
     2048, 8192, 18, 8, 4, 256, 131072, 4096, 1000042.0f, 1e-6f, false, SILU_INT8},
    {"falcon3-3b", "Falcon3-3B-1.58bit", "llama",
     3072, 9216, 22, 12, 4, 256, 131072, 32768, 1000042.0f, 1e-6f, false, SILU_INT8},
    {"falcon3-7b", "Falcon3-7B-1.58bit", "llama",
     3072, 23040, 28, 12, 4, 256, 131072, 32768, 1000042.0f, 1e-6f, false, SILU_INT8},
    {"falcon3-10b", "Falcon3-10B-1.58bit", "llama",
     3072, 23040, 40, 12, 4, 256, 131072, 32768, 1000042.0f, 1e-6f, false, SILU_INT8},
    {"falcon-e-1b", "Falcon-E-1B", "llama",
     2048, 9216, 24, 16, 2, 128, 32768, 32768, 1000000.0f, 1e-5f, false, SILU_INT8},
    {"falcon-e-3b", "Falcon-E-3B", "llama",
     2048, 13312, 32, 16, 2, 128, 32768, 32768, 1000000.0f, 1e-5f, false, SILU_INT8},
    {"bonsai-1.7b", "Bonsai 1.7B (Qwen3-1.7B's shape), float activations", "qwen3",
     2048, 6144, 28, 16, 8, 128, 151669, 32768, 1000000.0f, 1e-6f, true, SILU_F32},
    {"bonsai-8b", "Bonsai 8B (Qwen3-8B's shape), float activations", "qwen3",
     4096, 12288, 36, 32, 8, 128, 151669, 65536, 1000000.0f, 1e-6f, false, SILU_F32,
     .yarn_factor = 4, .yarn_ctx = 16384},
    {"bonsai-27b", "Bonsai 27B, first generation (Qwen3.5's kind: 48 delta nets, 16 attentions)", "qwen35",
     5120, 17408, 64, 24, 4, 256, 248320, 262144, 10000000.0f, 1e-6f, false, HYBRID(bonsai_27b)},
    {"bonsai-2-27b", "Bonsai 2 27B: the same with rotated inputs", "qwen35",
     5120, 17408, 64, 24, 4, 256, 248320, 262144, 10000000.0f, 1e-6f, false, HYBRID(bonsai_2_27b)},
    {"qwen35-tiny", "four small layers in the manner of Bonsai 27B and one that drafts, for tests", "qwen35",
     256, 512, 4, 4, 2, 64, 512, 4096, 10000000.0f, 1e-6f, false, HYBRID(tiny)},
    {"qwen35-tiny-rotated", "four small layers in the manner of Bonsai 2 27B, for tests", "qwen35",
     256, 512, 4, 4, 2, 64, 512, 4096, 10000000.0f, 1e-6f, false, HYBRID(tiny_rotated)},
    {"tiny", "two small layers in the manner of 2B-4T, for tests", "bitnet-b1.58",
     256, 512, 2, 4, 2, 64, 512, 512, 10000.0f, 1e-5f, true, BITNET},
};
/* clang-format on */

const struct bn_shape *bn_shape_at(size_t i)
{
    return i < BN_ARRAY_LEN(shapes) ? &shapes[i] : NULL;
}

const struct bn_shape *bn_shape_find(const char *name)
{
    for (size_t i = 0; i < BN_ARRAY_LEN(shapes); i++)
        if (strcmp(shapes[i].name, name) == 0) return &shapes[i];
    return NULL;
}
