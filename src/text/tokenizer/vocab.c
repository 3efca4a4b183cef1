/* SPDX-License-Identifier: Apache-2.0
 * The vocabulary as plain data: its birth, its end and its check. Readers fill it, bn_vocab_check
 * looks at it once, and from there on everybody trusts it. */
#include "text/tokenizer/vocab.h"

#include <math.h>

void bn_vocab_init(struct bn_vocab *v)
{
    *v = (struct bn_vocab){.bos = -1, .eos = -1, .eot = -1, .unk = -1, .pad = -1};
}

void bn_vocab_free(struct bn_vocab *v)
{
    bn_arena_free(&v->arena);
    bn_vocab_init(v);
}

void bn_vocab_add_end(struct bn_vocab *v, int32_t id)
{
    if (id < 0 || id == v->eos || id == v->eot) return;
    for (uint32_t i = 0; i < v->n_ends; i++)
        if (v->ends[i] == id) return;
    if (v->n_ends < BN_ARRAY_LEN(v->ends)) v->ends[v->n_ends++] = id;
}

void bn_vocab_find_ends(struct bn_vocab *v)
{
    /* turn ends first: the first one found also becomes eot */
    static const char *const names[] = {
        "<|eot_id|>",         "<|im_end|>",           "<end_of_turn>",   "<|end|>",
        "<|eom_id|>",         "<|endoftext|>",        "<|end_of_text|>", "<EOT>",
        "<end_of_utterance>", "<｜end▁of▁sentence｜>"};
    enum { N_TURN_ENDS = 4 };
    int32_t found[BN_ARRAY_LEN(names)];
    for (size_t k = 0; k < BN_ARRAY_LEN(names); k++) found[k] = -1;
    for (uint32_t i = 0; i < v->n_tokens; i++) {
        const struct bn_str *t = &v->tokens[i];
        if (t->n == 0 || t->s[0] != '<' ||
            (v->types[i] != BN_TOKEN_CONTROL && v->types[i] != BN_TOKEN_USER))
            continue;
        for (size_t k = 0; k < BN_ARRAY_LEN(names); k++)
            if (strlen(names[k]) == t->n && memcmp(names[k], t->s, t->n) == 0)
                found[k] = (int32_t)i;
    }
    for (size_t k = 0; k < N_TURN_ENDS && v->eot < 0; k++)
        if (found[k] >= 0 && found[k] != v->eos) v->eot = found[k];
    /* eot may have been listed as a further end before it had a name */
    uint32_t kept = 0;
    for (uint32_t i = 0; i < v->n_ends; i++)
        if (v->ends[i] != v->eot && v->ends[i] != v->eos) v->ends[kept++] = v->ends[i];
    v->n_ends = kept;
    for (size_t k = 0; k < BN_ARRAY_LEN(names); k++) bn_vocab_add_end(v, found[k]);
}

static bitnet_status check_id(const struct bn_vocab *v, int32_t id, const char *name,
                              const char *what, bitnet_error *err)
{
    if (id >= -1 && (id < 0 || (uint32_t)id < v->n_tokens)) return BITNET_OK;
    return bn_fail(err, BITNET_E_FORMAT, "%s: the %s token is %d, but there are %u tokens", what,
                   name, id, v->n_tokens);
}

static bitnet_status check_tokens(const struct bn_vocab *v, const char *what, bitnet_error *err)
{
    for (uint32_t i = 0; i < v->n_tokens; i++) {
        const struct bn_str *t = &v->tokens[i];
        if (t->n > BN_VOCAB_MAX_TOKEN_BYTES)
            return bn_fail(err, BITNET_E_LIMIT, "%s: token %u has %u bytes, the most is %d", what,
                           i, t->n, BN_VOCAB_MAX_TOKEN_BYTES);
        if (t->n > 0 && !t->s)
            return bn_fail(err, BITNET_E_FORMAT, "%s: token %u has no text", what, i);
        if (v->types[i] < BN_TOKEN_NORMAL || v->types[i] > BN_TOKEN_BYTE)
            return bn_fail(err, BITNET_E_FORMAT, "%s: token %u has the unknown type %u", what, i,
                           v->types[i]);
        if (v->scores && !isfinite(v->scores[i]))
            return bn_fail(err, BITNET_E_FORMAT, "%s: the score of token %u is not a number", what,
                           i);
    }
    return BITNET_OK;
}

/* Text that no token covers is written in byte tokens. SPM: all of them, or an unknown token must
 * be there. BPE: real vocabularies lack some (Falcon those that text hardly ever has), but one
 * without any is of another kind. */
static bitnet_status check_bytes(const struct bn_vocab *v, const char *what, bitnet_error *err)
{
    uint32_t n_bytes = 0;
    for (uint32_t i = 0; i < v->n_tokens; i++) {
        const struct bn_str *t = &v->tokens[i];
        if (v->model == BN_VOCAB_SPM) n_bytes += v->types[i] == BN_TOKEN_BYTE;
        else n_bytes += t->n == 1 || (t->n == 2 && ((unsigned char)t->s[0] & 0xe0) == 0xc0);
    }
    if (v->model == BN_VOCAB_SPM && v->unk < 0 && n_bytes < 256)
        return bn_fail(err, BITNET_E_FORMAT, "%s: %u of 256 byte tokens and no unknown token", what,
                       n_bytes);
    if (v->model == BN_VOCAB_BPE && n_bytes == 0)
        return bn_fail(err, BITNET_E_FORMAT,
                       "%s: a byte-level vocabulary in which no token is a single byte", what);
    return BITNET_OK;
}

bitnet_status bn_vocab_check(const struct bn_vocab *v, const char *what, bitnet_error *err)
{
    if (v->model != BN_VOCAB_BPE && v->model != BN_VOCAB_SPM)
        return bn_fail(err, BITNET_E_UNSUPPORTED, "%s: unknown kind of vocabulary %d", what,
                       (int)v->model);
    if (v->n_tokens == 0 || v->n_tokens > BN_VOCAB_MAX_TOKENS)
        return bn_fail(err, BITNET_E_LIMIT, "%s: %u tokens, allowed are 1 to %d", what, v->n_tokens,
                       BN_VOCAB_MAX_TOKENS);
    if (!v->tokens || !v->types)
        return bn_fail(err, BITNET_E_FORMAT, "%s: the list of tokens or of their types is missing",
                       what);
    if (v->n_merges > BN_VOCAB_MAX_MERGES)
        return bn_fail(err, BITNET_E_LIMIT, "%s: %u merges, the most is %d", what, v->n_merges,
                       BN_VOCAB_MAX_MERGES);
    if ((v->n_merges > 0) != (v->merges != NULL))
        return bn_fail(err, BITNET_E_FORMAT, "%s: %u merges are announced, but the list is %s",
                       what, v->n_merges, v->merges ? "there" : "missing");
    if (v->n_patterns > BN_VOCAB_MAX_PATTERNS)
        return bn_fail(err, BITNET_E_LIMIT, "%s: %u pre-tokenizer patterns, the most is %d", what,
                       v->n_patterns, BN_VOCAB_MAX_PATTERNS);
    for (uint32_t i = 0; i < v->n_patterns; i++)
        if (!v->patterns[i] || strlen(v->patterns[i]) > BN_VOCAB_MAX_PATTERN_BYTES)
            return bn_fail(err, BITNET_E_LIMIT,
                           "%s: pre-tokenizer pattern %u is missing or over %d bytes", what, i,
                           BN_VOCAB_MAX_PATTERN_BYTES);
    if (v->normalizer && strcmp(v->normalizer, "nfc") != 0)
        return bn_fail(err, BITNET_E_UNSUPPORTED, "%s: unknown normalizer '%s'", what,
                       v->normalizer);
    BN_TRY(check_tokens(v, what, err));
    for (uint32_t i = 0; i < 2 * v->n_merges; i++)
        if (v->merges[i].n == 0 || !v->merges[i].s || v->merges[i].n > BN_VOCAB_MAX_TOKEN_BYTES)
            return bn_fail(err, BITNET_E_FORMAT,
                           "%s: merge %u has a part of %u bytes, allowed are 1 to %d", what, i / 2,
                           v->merges[i].n, BN_VOCAB_MAX_TOKEN_BYTES);
    BN_TRY(check_id(v, v->bos, "beginning-of-text", what, err));
    BN_TRY(check_id(v, v->eos, "end-of-text", what, err));
    BN_TRY(check_id(v, v->eot, "end-of-turn", what, err));
    BN_TRY(check_id(v, v->unk, "unknown", what, err));
    BN_TRY(check_id(v, v->pad, "padding", what, err));
    if (v->n_ends > BN_ARRAY_LEN(v->ends))
        return bn_fail(err, BITNET_E_FORMAT, "%s: %u end tokens, the most is %zu", what, v->n_ends,
                       BN_ARRAY_LEN(v->ends));
    for (uint32_t i = 0; i < v->n_ends; i++) BN_TRY(check_id(v, v->ends[i], "end", what, err));
    if (v->model == BN_VOCAB_SPM && !v->scores && !v->merges)
        return bn_fail(err, BITNET_E_FORMAT,
                       "%s: neither scores nor merges say how to join characters", what);
    if (v->model == BN_VOCAB_BPE && !v->merges)
        return bn_fail(err, BITNET_E_FORMAT, "%s: a byte-level vocabulary without merges", what);
    return check_bytes(v, what, err);
}
