/* SPDX-License-Identifier: Apache-2.0
 * The vocabulary that belongs to a file: inside a GGUF, or beside safetensors (tokenizer.json, else
 * tokenizer.model), with the end tokens that config.json names. */
#include "model/model.h"

#include "json/json.h"
#include "model/files/gguf_write.h"

enum { MAX_CONFIG_BYTES = 1 << 20 };

static void add_end(struct bn_vocab *v, int64_t id)
{
    if (id < 0 || id >= (int64_t)v->n_tokens || id == v->eos || id == v->eot) return;
    if (v->eos < 0) {
        v->eos = (int32_t)id;
        return;
    }
    for (uint32_t i = 0; i < v->n_ends; i++)
        if (v->ends[i] == id) return;
    if (v->n_ends < BN_ARRAY_LEN(v->ends)) v->ends[v->n_ends++] = (int32_t)id;
}

/* eos_token_id is a number or a list of them */
static bitnet_status read_ends(struct bn_vocab *v, const char *path, bitnet_error *err)
{
    struct bn_json *j;
    BN_TRY(bn_json_read_file(&j, path, MAX_CONFIG_BYTES, err));
    const struct bn_json *eos = bn_json_get(j, "eos_token_id");
    if (bn_json_is_int(eos)) add_end(v, bn_json_integer(eos));
    for (size_t i = 0; i < bn_json_size(eos); i++) {
        const struct bn_json *one = bn_json_at(eos, i);
        if (bn_json_is_int(one)) add_end(v, bn_json_integer(one));
    }
    const struct bn_json *bos = bn_json_get(j, "bos_token_id");
    if (v->bos < 0 && bn_json_is_int(bos) && bn_json_integer(bos) >= 0 &&
        bn_json_integer(bos) < (int64_t)v->n_tokens)
        v->bos = (int32_t)bn_json_integer(bos);
    bn_json_free(j);
    return BITNET_OK;
}

/* path: folder/name, from call to call; *there: is there such a file? */
static bitnet_status look_for(struct bn_buf *path, bool *there, const char *folder,
                              const char *name, bitnet_error *err)
{
    bn_buf_clear(path);
    bn_buf_printf(path, "%s/%s", folder, name);
    if (path->failed) return bn_fail_nomem(err, strlen(folder) + strlen(name), "a path");
    *there = bn_exists(path->data);
    return BITNET_OK;
}

static bitnet_status read_files(struct bn_vocab *v, bool *found, const char *folder,
                                struct bn_buf *path, bitnet_error *err)
{
    bool config = false;
    BN_TRY(look_for(path, found, folder, "tokenizer.json", err));
    if (*found) {
        BN_TRY(bn_vocab_read_hf(v, path->data, err));
    } else {
        BN_TRY(look_for(path, found, folder, "tokenizer.model", err));
        if (!*found) return BITNET_OK;
        BN_TRY(bn_vocab_read_sentencepiece(v, path->data, err));
    }
    BN_TRY(look_for(path, &config, folder, "config.json", err));
    return config ? read_ends(v, path->data, err) : BITNET_OK;
}

static bitnet_status read_folder(struct bn_vocab *v, bool *found, const char *folder,
                                 bitnet_error *err)
{
    struct bn_buf path;
    bn_buf_init(&path, 1 << 16);
    bitnet_status s = read_files(v, found, folder, &path, err);
    bn_buf_free(&path);
    return s;
}

bitnet_status bn_source_vocab(struct bn_vocab *v, bool *found, const struct bn_source *s,
                              struct bn_buf *note, bitnet_error *err)
{
    if (!s->is_gguf) return read_folder(v, found, s->folder, err);
    *found = bn_meta_find(s, "tokenizer.ggml.model") != NULL;
    return *found ? bn_gguf_read_vocab(v, s, note, err) : BITNET_OK;
}

bitnet_status bn_vocab_open(struct bn_vocab *v, const char *path, struct bn_buf *note,
                            bitnet_error *err)
{
    bool found = false;
    if (path && bn_is_folder(path)) BN_TRY(read_folder(v, &found, path, err));
    if (found) return BITNET_OK;
    if (path && bn_ends_with(path, "tokenizer.json")) return bn_vocab_read_hf(v, path, err);
    if (path && bn_ends_with(path, ".model")) return bn_vocab_read_sentencepiece(v, path, err);
    struct bn_source s;
    BN_TRY(bn_source_open(&s, path, BN_I2S_AUTO, err));
    bitnet_status status = bn_source_vocab(v, &found, &s, note, err);
    if (status == BITNET_OK && !found)
        status = bn_fail(err, BITNET_E_FORMAT, "'%s' has no tokenizer", s.path);
    bn_source_close(&s);
    return status;
}
