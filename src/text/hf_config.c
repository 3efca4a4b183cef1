/* SPDX-License-Identifier: Apache-2.0
 * What lies beside a tokenizer in a Hugging Face folder: tokenizer_config.json (names of special
 * tokens, add_bos, chat template), generation_config.json, else config.json (which tokens end an
 * answer) and chat_template.jinja. Every one of them may be missing. */
#include "text/hf.h"

#include "base/file.h"
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

bitnet_status bn_hf_added_flags(const json_t *token, uint8_t *type, uint8_t *strip,
                                const char *what, bitnet_error *err)
{
    bool special = false, left = false, right = false, single = false;
    BN_TRY(bn_json_bool(&special, token, "special", what, err));
    BN_TRY(bn_json_bool(&left, token, "lstrip", what, err));
    BN_TRY(bn_json_bool(&right, token, "rstrip", what, err));
    BN_TRY(bn_json_bool(&single, token, "single_word", what, err));
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

bitnet_status bn_hf_read_beside(json_t **out, const char *dir_of, const char *name,
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
            json_error_t e;
            *out = json_loadb(text, n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &e);
            if (!*out)
                st = bn_fail(err, BITNET_E_FORMAT, "%s: bad JSON in line %d: %s", path, e.line,
                             e.text);
        }
        if (st == BITNET_OK && !json_is_object(*out)) {
            json_decref(*out);
            *out = NULL;
            st = bn_fail(err, BITNET_E_FORMAT, "%s: not a JSON object", path);
        }
    }
    free(text);
    free(path);
    return st;
}

bool bn_hf_number_id(const json_t *number, size_t n_tokens, int32_t *id)
{
    double v = json_is_number(number) ? json_number_value(number) : -1;
    if (!(v >= 0 && v < (double)n_tokens) || v != (double)(int32_t)v) return false;
    *id = (int32_t)v;
    return true;
}

/* A special token is named by its text, or by an object that holds it. Unknown names leave *id as
 * it was. */
static void find_named(const struct bn_vocab *v, const json_t *config, const char *key, int32_t *id)
{
    const json_t *t = json_object_get(config, key);
    if (json_is_object(t)) t = json_object_get(t, "content");
    if (json_is_string(t)) bn_hf_find_token(v, json_string_value(t), id);
}

/* A template, or a list of named ones of which "default" is meant. */
static const char *template_text(const json_t *t)
{
    if (!json_is_array(t)) return json_string_value(t);
    const char *first = NULL;
    size_t i;
    json_t *item;
    json_array_foreach(t, i, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        const char *text = json_string_value(json_object_get(item, "template"));
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

static bitnet_status read_tokenizer_config(struct bn_vocab *v, const json_t *config,
                                           const char *what, bitnet_error *err)
{
    find_named(v, config, "bos_token", &v->bos);
    find_named(v, config, "eos_token", &v->eos);
    find_named(v, config, "unk_token", &v->unk);
    find_named(v, config, "pad_token", &v->pad);
    BN_TRY(bn_json_bool(&v->add_bos, config, "add_bos_token", what, err));
    BN_TRY(bn_json_bool(&v->add_eos, config, "add_eos_token", what, err));
    const char *text = template_text(json_object_get(config, "chat_template"));
    if (text) {
        v->chat_template = bn_arena_strn(&v->arena, text, strlen(text));
        if (!v->chat_template) return bn_fail_nomem(err, strlen(text), "a chat template");
    }
    return BITNET_OK;
}

static void add_end(struct bn_vocab *v, const json_t *number)
{
    int32_t id;
    if (!bn_hf_number_id(number, v->n_tokens, &id)) return;
    if (v->eos < 0) v->eos = id;
    bn_vocab_add_end(v, id);
}

/* One number or a list of them; false: there is none. */
static bool read_ends(struct bn_vocab *v, const json_t *config)
{
    const json_t *eos = json_object_get(config, "eos_token_id");
    if (v->bos < 0) bn_hf_number_id(json_object_get(config, "bos_token_id"), v->n_tokens, &v->bos);
    add_end(v, eos);
    for (size_t i = 0; i < json_array_size(eos); i++) add_end(v, json_array_get(eos, i));
    return json_is_number(eos) || json_array_size(eos) > 0;
}

/* generation_config.json says which tokens end an answer; without it config.json does. */
static bitnet_status read_generation_config(struct bn_vocab *v, const char *path, bitnet_error *err)
{
    json_t *generation, *model;
    BN_TRY(bn_hf_read_beside(&generation, path, "generation_config.json", err));
    bool found = read_ends(v, generation);
    json_decref(generation);
    if (found) return BITNET_OK;
    BN_TRY(bn_hf_read_beside(&model, path, "config.json", err));
    if (!read_ends(v, model)) read_ends(v, json_object_get(model, "text_config"));
    json_decref(model);
    return BITNET_OK;
}

bitnet_status bn_hf_read_config(struct bn_vocab *v, const char *path, const json_t *config,
                                bitnet_error *err)
{
    if (config) BN_TRY(read_tokenizer_config(v, config, "tokenizer_config.json", err));
    BN_TRY(read_generation_config(v, path, err));
    return read_template_file(v, path, err);
}
