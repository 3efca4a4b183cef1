/* SPDX-License-Identifier: Apache-2.0
 * What lies beside a tokenizer in a Hugging Face folder: tokenizer_config.json (names of special
 * tokens, add_bos, chat template), generation_config.json, else config.json (which tokens end an
 * answer) and chat_template.jinja. Every one of them may be missing. */
#include "text/tokenizer/hf_impl.h"

#include "base/os/file.h"
#include <stdio.h>
#include <stdlib.h>

enum { MAX_CONFIG_BYTES = 32 << 20, MAX_TEMPLATE_BYTES = 1 << 20 };

bitnet_status bn_hf_alloc_tokens(struct bn_vocab *v, size_t n, const char *what, bitnet_error *err)
{
    if (n == 0 || n > BN_VOCAB_MAX_TOKENS)
        return bn_fail(err, BITNET_E_LIMIT, "%s: %zu tokens, allowed are 1 to %d", what, n,
                       BN_VOCAB_MAX_TOKENS);
    v->tokens = bn_arena_alloc(&v->arena, n * sizeof *v->tokens);
    v->types = bn_arena_alloc(&v->arena, n);
    v->strip = bn_arena_alloc(&v->arena, n);
    if (!v->tokens || !v->types || !v->strip)
        return bn_fail_nomem(err, n * (sizeof *v->tokens + 2), "tokens");
    memset(v->types, BN_TOKEN_UNUSED, n);
    v->n_tokens = (uint32_t)n;
    return BITNET_OK;
}

bitnet_status bn_hf_set_token(struct bn_vocab *v, size_t id, const char *s, size_t n, uint8_t type,
                              const char *what, bitnet_error *err)
{
    if (id >= v->n_tokens || n > BN_VOCAB_MAX_TOKEN_BYTES)
        return bn_fail(err, BITNET_E_LIMIT,
                       "%s: token %zu of %zu bytes; the most are %u tokens of %d bytes", what, id,
                       n, v->n_tokens, BN_VOCAB_MAX_TOKEN_BYTES);
    const char *copy = bn_arena_strn(&v->arena, s, n);
    if (!copy) return bn_fail_nomem(err, n, "tokens");
    v->tokens[id] = (struct bn_str){copy, (uint32_t)n};
    v->types[id] = n ? type : BN_TOKEN_UNUSED;
    return BITNET_OK;
}

bitnet_status bn_hf_added_flags(const struct bn_json *token, uint8_t *type, uint8_t *strip,
                                const char *what, bitnet_error *err)
{
    bool special = false, left = false, right = false, single = false;
    BN_TRY(bn_json_read_bool(&special, token, "special", what, err));
    BN_TRY(bn_json_read_bool(&left, token, "lstrip", what, err));
    BN_TRY(bn_json_read_bool(&right, token, "rstrip", what, err));
    BN_TRY(bn_json_read_bool(&single, token, "single_word", what, err));
    *type = special ? BN_TOKEN_CONTROL : BN_TOKEN_USER;
    *strip = (uint8_t)((left ? BN_STRIP_LEFT : 0) | (right ? BN_STRIP_RIGHT : 0) |
                       (single ? BN_STRIP_SINGLE_WORD : 0));
    return BITNET_OK;
}

bool bn_hf_find_token(const struct bn_vocab *v, const char *s, int32_t *id)
{
    /* asked a few times a file: no map is worth its building */
    size_t n = strlen(s);
    for (uint32_t i = 0; n > 0 && i < v->n_tokens; i++)
        if (v->tokens[i].n == n && memcmp(v->tokens[i].s, s, n) == 0) {
            *id = (int32_t)i;
            return true;
        }
    return false;
}

char *bn_hf_beside(const char *dir_of, const char *name)
{
    const char *slash = strrchr(dir_of, '/');
    int dir = slash ? (int)(slash - dir_of) + 1 : 0;
    char *path = NULL;
    return asprintf(&path, "%.*s%s", dir, dir_of, name) < 0 ? NULL : path;
}

bitnet_status bn_hf_read_beside(struct bn_json **out, const char *dir_of, const char *name,
                                bitnet_error *err)
{
    *out = NULL;
    char *path = bn_hf_beside(dir_of, name), *text = NULL;
    size_t n = 0;
    if (!path) return bn_fail_nomem(err, strlen(dir_of), name);
    bitnet_status st = BITNET_OK;
    if (bn_exists(path)) {
        st = bn_read_file(&text, &n, path, MAX_CONFIG_BYTES, err);
        if (st == BITNET_OK) {
            /* numbers as floats: "no limit" is written as model_max_length
             * 1000000000000000019884624838656 */
            st = bn_json_parse(out, text, n, BN_JSON_REALS, path, err);
        }
        if (st == BITNET_OK && !bn_json_is_object(*out)) {
            bn_json_free(*out);
            *out = NULL;
            st = bn_fail(err, BITNET_E_FORMAT, "%s: not a JSON object", path);
        }
    }
    free(text);
    free(path);
    return st;
}

bool bn_hf_number_id(const struct bn_json *number, size_t n_tokens, int32_t *id)
{
    double v = bn_json_is_number(number) ? bn_json_number(number) : -1;
    if (!(v >= 0 && v < (double)n_tokens) || v != (double)(int32_t)v) return false;
    *id = (int32_t)v;
    return true;
}

/* A special token is named by its text, or by an object that holds it. Unknown names leave *id as
 * it was. */
static void find_named(const struct bn_vocab *v, const struct bn_json *config, const char *key,
                       int32_t *id)
{
    const struct bn_json *t = bn_json_get(config, key);
    if (bn_json_is_object(t)) t = bn_json_get(t, "content");
    if (bn_json_is_string(t)) bn_hf_find_token(v, bn_json_text(t), id);
}

/* A template, or a list of named ones of which "default" is meant. */
static const char *template_text(const struct bn_json *t)
{
    if (!bn_json_is_array(t)) return bn_json_text(t);
    const char *first = NULL;
    size_t i;
    struct bn_json *item;
    bn_json_each(t, i, item)
    {
        const char *name = bn_json_text(bn_json_get(item, "name"));
        const char *text = bn_json_text(bn_json_get(item, "template"));
        if (name && text && strcmp(name, "default") == 0) return text;
        if (!first) first = text;
    }
    return first;
}

static bitnet_status read_template_file(struct bn_vocab *v, const char *dir_of, bitnet_error *err)
{
    char *path = bn_hf_beside(dir_of, "chat_template.jinja");
    if (!path) return bn_fail_nomem(err, strlen(dir_of), "a path");
    bitnet_status st = BITNET_OK;
    if (bn_exists(path)) {
        char *text = NULL;
        size_t n;
        st = bn_read_file(&text, &n, path, MAX_TEMPLATE_BYTES, err);
        if (st == BITNET_OK) v->chat_template = bn_arena_strn(&v->arena, text, n);
        if (st == BITNET_OK && !v->chat_template) st = bn_fail_nomem(err, n, "a chat template");
        free(text);
    }
    free(path);
    return st;
}

static bitnet_status read_tokenizer_config(struct bn_vocab *v, const struct bn_json *config,
                                           const char *what, bitnet_error *err)
{
    find_named(v, config, "bos_token", &v->bos);
    find_named(v, config, "eos_token", &v->eos);
    find_named(v, config, "unk_token", &v->unk);
    find_named(v, config, "pad_token", &v->pad);
    BN_TRY(bn_json_read_bool(&v->add_bos, config, "add_bos_token", what, err));
    BN_TRY(bn_json_read_bool(&v->add_eos, config, "add_eos_token", what, err));
    const char *text = template_text(bn_json_get(config, "chat_template"));
    if (text) {
        v->chat_template = bn_arena_strn(&v->arena, text, strlen(text));
        if (!v->chat_template) return bn_fail_nomem(err, strlen(text), "a chat template");
    }
    return BITNET_OK;
}

static void add_end(struct bn_vocab *v, const struct bn_json *number)
{
    int32_t id;
    if (!bn_hf_number_id(number, v->n_tokens, &id)) return;
    if (v->eos < 0) v->eos = id;
    bn_vocab_add_end(v, id);
}

/* One number or a list of them; false: there is none. */
static bool read_ends(struct bn_vocab *v, const struct bn_json *config)
{
    const struct bn_json *eos = bn_json_get(config, "eos_token_id");
    if (v->bos < 0) bn_hf_number_id(bn_json_get(config, "bos_token_id"), v->n_tokens, &v->bos);
    add_end(v, eos);
    for (size_t i = 0; i < bn_json_size(eos); i++) add_end(v, bn_json_at(eos, i));
    return bn_json_is_number(eos) || bn_json_size(eos) > 0;
}

/* generation_config.json says which tokens end an answer; without it config.json does. */
static bitnet_status read_generation_config(struct bn_vocab *v, const char *path, bitnet_error *err)
{
    struct bn_json *generation, *model;
    BN_TRY(bn_hf_read_beside(&generation, path, "generation_config.json", err));
    bool found = read_ends(v, generation);
    bn_json_free(generation);
    if (found) return BITNET_OK;
    BN_TRY(bn_hf_read_beside(&model, path, "config.json", err));
    if (!read_ends(v, model)) read_ends(v, bn_json_get(model, "text_config"));
    bn_json_free(model);
    return BITNET_OK;
}

bitnet_status bn_hf_read_config(struct bn_vocab *v, const char *path, const struct bn_json *config,
                                bitnet_error *err)
{
    if (config) BN_TRY(read_tokenizer_config(v, config, "tokenizer_config.json", err));
    BN_TRY(read_generation_config(v, path, err));
    return read_template_file(v, path, err);
}
