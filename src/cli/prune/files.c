/* SPDX-License-Identifier: Apache-2.0
 *
 * prune/files.c: what `bitnet prune` has to know of the files it reads and writes.
 */
#include "base/os/file.h"
#include "cli/prune/prune.h"
#include <stdio.h>
#include <string.h>

bool prune_in_the_way(char *path, size_t room, const char *output)
{
    static const char *const names[] = {"config.json", "tokenizer.json", "tokenizer.model"};
    const char *slash = strrchr(output, '/');
    int n = slash ? (int)(slash - output + 1) : 0;
    if (!bn_ends_with(output, ".safetensors")) return false;
    for (size_t i = 0; i < BN_ARRAY_LEN(names); i++) {
        snprintf(path, room, "%.*s%s", n, output, names[i]);
        if (bn_exists(path)) return true;
    }
    return false;
}

bitnet_status prune_sum_tensors(struct prune_bytes *bytes, const char *path, bitnet_error *err)
{
    static const char *const wide[] = {".ffn_gate.", ".ffn_up.", ".ffn_down.", ".mlp."};
    bitnet_file *f = NULL;
    BN_TRY(bitnet_file_open(&f, path, err));
    for (size_t i = 0; i < bitnet_file_n_tensors(f); i++) {
        bitnet_tensor_info t = {.size = sizeof t};
        if (bitnet_file_tensor(f, i, &t) != BITNET_OK) continue;
        bool layer = strncmp(t.name, "blk.", 4) == 0 || strstr(t.name, "layers."), ffn = false;
        for (size_t k = 0; k < BN_ARRAY_LEN(wide); k++) ffn |= strstr(t.name, wide[k]) != NULL;
        *(layer ? ffn ? &bytes->ffn : &bytes->mixers : &bytes->others) += t.bytes;
    }
    bitnet_file_close(f);
    return BITNET_OK;
}

/* Kinds of layers that are listed one by one, and a width of its own for a norm, are known here only. */
const char *prune_readers(bitnet_file *f)
{
    static const char listed[] = ".attention.recurrent_layers";
    for (size_t i = 0; i < bitnet_file_n_meta(f); i++) {
        const char *key, *type;
        char value[8];
        size_t n = sizeof value;
        bitnet_file_meta(f, i, &key, &type, value, &n);
        size_t len = strlen(key), k = sizeof listed - 1;
        if (strcmp(key, "bitnet.ffn_norm_width") == 0)
            return "this engine: the norm has a width of its own; --portable scales it instead";
        if (len > k && strcmp(key + len - k, listed) == 0)
            return "this engine: kinds of layers are listed one by one; --periods keeps the rule";
    }
    return "every engine that reads the input";
}
