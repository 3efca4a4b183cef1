/* SPDX-License-Identifier: Apache-2.0
 * tokenizer.model of SentencePiece: a protocol-buffers message with pieces, their scores and types,
 * and a few facts about the training. Read by hand: of the format only varints, lengths and floats
 * are needed. */
#include "text/tokenizer/hf_impl.h"

#include "base/os/file.h"
#include "base/utf8.h"
#include <stdlib.h>

struct field { /* one field of a message */
    uint32_t number;
    uint64_t value;   /* varint, or the bits of a fixed number */
    const uint8_t *p; /* a length-delimited field's bytes */
    size_t n;
};
struct message {
    const uint8_t *p, *end;
};

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };
/* field numbers of sentencepiece_model.proto */
enum { MODEL_PIECE = 1, MODEL_TRAINER = 2, MODEL_NORMALIZER = 3 };
enum { PIECE_TEXT = 1, PIECE_SCORE = 2, PIECE_TYPE = 3 };
enum {
    TRAINER_TYPE = 3,
    TRAINER_SUFFIX_SPACE = 24,
    TRAINER_UNK = 40,
    TRAINER_BOS = 41,
    TRAINER_EOS = 42,
    TRAINER_PAD = 43
};
enum {
    NORMALIZER_CHARSMAP = 2,
    NORMALIZER_PREFIX = 3,
    NORMALIZER_REMOVE_SPACES = 4,
    NORMALIZER_ESCAPE = 5
};
enum { TYPE_UNIGRAM = 1, TYPE_BPE = 2 };

static bool varint(struct message *m, uint64_t *out)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64 && m->p < m->end; shift += 7) {
        uint8_t b = *m->p++;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80) {
            *out = v;
            return true;
        }
    }
    return false;
}

/* 1: a field; 0: the end; -1: damaged */
static int next_field(struct message *m, struct field *f)
{
    uint64_t tag;
    if (m->p == m->end) return 0;
    *f = (struct field){0};
    if (!varint(m, &tag) || tag >> 3 > UINT32_MAX) return -1;
    f->number = (uint32_t)(tag >> 3);
    size_t left = (size_t)(m->end - m->p);
    switch (tag & 7) {
    case WIRE_VARINT: return varint(m, &f->value) ? 1 : -1;
    case WIRE_BYTES:
        if (!varint(m, &f->value)) return -1;
        left = (size_t)(m->end - m->p);
        if (f->value > left) return -1;
        f->n = (size_t)f->value;
        break;
    case WIRE_FIXED32:
        if (left < 4) return -1;
        f->value = bn_load_u32(m->p);
        f->n = 4;
        break;
    case WIRE_FIXED64:
        if (left < 8) return -1;
        f->value = bn_load_u64(m->p);
        f->n = 8;
        break;
    default: return -1;
    }
    f->p = m->p;
    m->p += f->n;
    return 1;
}

struct reader {
    struct bn_vocab *v;
    const char *what;
    bitnet_error *err;
    uint32_t model_type;
    bool suffix_space, has_charsmap, remove_spaces, escape_spaces;
    int32_t ids[4]; /* unk, bos, eos, pad as the trainer had them */
};

static bitnet_status damaged(struct reader *r, const char *part)
{
    return bn_fail(r->err, BITNET_E_FORMAT, "%s: damaged, or not a SentencePiece model (%s)",
                   r->what, part);
}

static bitnet_status read_piece(struct reader *r, const struct field *piece, size_t id)
{
    struct message m = {piece->p, piece->p + piece->n};
    struct field f;
    struct field text = {0};
    float score = 0;
    uint64_t type = BN_TOKEN_NORMAL;
    int got;
    while ((got = next_field(&m, &f)) > 0) {
        if (f.number == PIECE_TEXT) text = f;
        if (f.number == PIECE_SCORE && f.n == 4) score = bn_load_f32(f.p);
        if (f.number == PIECE_TYPE) type = f.value;
    }
    if (got < 0 || type < BN_TOKEN_NORMAL || type > BN_TOKEN_BYTE) return damaged(r, "a piece");
    if (!bn_utf8_valid((const char *)text.p, text.n, NULL))
        return damaged(r, "a piece that is not UTF-8");
    r->v->scores[id] = score;
    return bn_hf_set_token(r->v, id, text.p ? (const char *)text.p : "", text.n, (uint8_t)type,
                           r->what, r->err);
}

static bitnet_status read_trainer(struct reader *r, const struct field *trainer)
{
    struct message m = {trainer->p, trainer->p + trainer->n};
    struct field f;
    int got;
    while ((got = next_field(&m, &f)) > 0) {
        if (f.number == TRAINER_TYPE) r->model_type = (uint32_t)f.value;
        if (f.number == TRAINER_SUFFIX_SPACE) r->suffix_space = f.value != 0;
        if (f.number >= TRAINER_UNK && f.number <= TRAINER_PAD)
            r->ids[f.number - TRAINER_UNK] = (int32_t)f.value;
    }
    return got < 0 ? damaged(r, "the trainer's part") : BITNET_OK;
}

static bitnet_status read_normalizer(struct reader *r, const struct field *normalizer)
{
    struct message m = {normalizer->p, normalizer->p + normalizer->n};
    struct field f;
    int got;
    while ((got = next_field(&m, &f)) > 0) {
        if (f.number == NORMALIZER_CHARSMAP) r->has_charsmap = f.n > 0;
        if (f.number == NORMALIZER_PREFIX) r->v->add_space_prefix = f.value != 0;
        if (f.number == NORMALIZER_REMOVE_SPACES) r->remove_spaces = f.value != 0;
        if (f.number == NORMALIZER_ESCAPE) r->escape_spaces = f.value != 0;
    }
    return got < 0 ? damaged(r, "the normalizer's part") : BITNET_OK;
}

static bitnet_status check_options(struct reader *r)
{
    const char *bad = NULL;
    if (r->suffix_space) bad = "spaces at the end of words (treat_whitespace_as_suffix)";
    if (r->has_charsmap) bad = "a character map as normalizer (precompiled_charsmap)";
    if (r->remove_spaces) bad = "a normalizer that removes spaces (remove_extra_whitespaces)";
    if (!r->escape_spaces) bad = "spaces that are not marked (escape_whitespaces)";
    if (r->model_type != TYPE_BPE)
        bad = r->model_type == TYPE_UNIGRAM ? "a Unigram model" : "a word or character model";
    if (bad) return bn_fail(r->err, BITNET_E_UNSUPPORTED, "%s: %s is not supported", r->what, bad);
    return BITNET_OK;
}

/* ------------------------------------------------------------------ tokens added later */

/* calls fn for every token of added_tokens_decoder {"32000": {"content": ...}} and of
 * added_tokens.json */
static bitnet_status each_added(struct reader *r, struct bn_json *config, struct bn_json *extra,
                                size_t *n_tokens, bool write)
{
    const char *key;
    struct bn_json *item;
    bn_json_each_member(bn_json_get(config, "added_tokens_decoder"), key, item)
    {
        char *end;
        unsigned long id = strtoul(key, &end, 10);
        const char *text = bn_json_text(bn_json_get(item, "content"));
        if (*end || id >= BN_VOCAB_MAX_TOKENS || !text)
            return bn_fail(r->err, BITNET_E_FORMAT,
                           "tokenizer_config.json: bad added token '%.50s'", key);
        *n_tokens = bn_max_size(*n_tokens, id + 1);
        if (!write) continue;
        uint8_t type;
        BN_TRY(bn_hf_added_flags(item, &type, &r->v->strip[id], r->what, r->err));
        if (r->v->types[id] == BN_TOKEN_UNKNOWN) type = BN_TOKEN_UNKNOWN;
        BN_TRY(bn_hf_set_token(r->v, id, text, strlen(text), type, r->what, r->err));
    }
    bn_json_each_member(extra, key, item)
    {
        int32_t id;
        if (!bn_hf_number_id(item, BN_VOCAB_MAX_TOKENS, &id))
            return bn_fail(r->err, BITNET_E_FORMAT, "added_tokens.json: bad id of token '%.50s'",
                           key);
        *n_tokens = bn_max_size(*n_tokens, (size_t)id + 1);
        /* this file does not tell; the newer list above does, and has the last word */
        if (write && r->v->tokens[id].n == 0)
            BN_TRY(bn_hf_set_token(r->v, (size_t)id, key, strlen(key), BN_TOKEN_USER, r->what,
                                   r->err));
    }
    return BITNET_OK;
}

static bitnet_status read_model(struct reader *r, const char *data, size_t bytes,
                                struct bn_json *config, struct bn_json *extra)
{
    struct message m = {(const uint8_t *)data, (const uint8_t *)data + bytes};
    struct field f;
    size_t n_pieces = 0, n, i = 0;
    int got;
    while ((got = next_field(&m, &f)) > 0) n_pieces += f.number == MODEL_PIECE && f.p != NULL;
    if (got < 0 || n_pieces == 0) return damaged(r, "no pieces");
    n = n_pieces;
    BN_TRY(each_added(r, config, extra, &n, false));
    BN_TRY(bn_hf_alloc_tokens(r->v, n, r->what, r->err));
    r->v->scores = bn_arena_alloc(&r->v->arena, n * sizeof *r->v->scores);
    if (!r->v->scores) return bn_fail_nomem(r->err, n * sizeof *r->v->scores, "scores");
    m.p = (const uint8_t *)data;
    while (next_field(&m, &f) > 0) {
        if (f.number == MODEL_PIECE && f.p) BN_TRY(read_piece(r, &f, i++));
        if (f.number == MODEL_TRAINER && f.p) BN_TRY(read_trainer(r, &f));
        if (f.number == MODEL_NORMALIZER && f.p) BN_TRY(read_normalizer(r, &f));
    }
    BN_TRY(check_options(r));
    int32_t *to[] = {&r->v->unk, &r->v->bos, &r->v->eos, &r->v->pad};
    for (size_t k = 0; k < BN_ARRAY_LEN(to); k++)
        if (r->ids[k] >= 0 && (size_t)r->ids[k] < n_pieces) *to[k] = r->ids[k];
    return each_added(r, config, extra, &n, true);
}

bitnet_status bn_vocab_read_sentencepiece(struct bn_vocab *v, const char *path, bitnet_error *err)
{
    char *data = NULL;
    size_t bytes = 0;
    struct bn_json *config = NULL, *extra = NULL;
    /* defaults of the format */
    struct reader r = {.v = v,
                       .what = path,
                       .err = err,
                       .model_type = TYPE_UNIGRAM,
                       .remove_spaces = true,
                       .escape_spaces = true,
                       .ids = {0, 1, 2, -1}};
    bool legacy = true;
    bn_vocab_init(v);
    v->model = BN_VOCAB_SPM;
    v->add_space_prefix = true;
    v->add_bos = true; /* the classes that load such files do, unless told otherwise */
    bitnet_status st = bn_read_file(&data, &bytes, path, BN_VOCAB_MAX_FILE_BYTES, err);
    if (st == BITNET_OK) st = bn_hf_read_beside(&config, path, "tokenizer_config.json", err);
    if (st == BITNET_OK) st = bn_hf_read_beside(&extra, path, "added_tokens.json", err);
    if (st == BITNET_OK) st = read_model(&r, data, bytes, config, extra);
    if (st == BITNET_OK) st = bn_hf_read_config(v, path, config, err);
    if (st == BITNET_OK)
        st = bn_json_read_bool(&v->add_space_prefix, config, "add_prefix_space", path, err);
    if (st == BITNET_OK) st = bn_json_read_bool(&legacy, config, "legacy", path, err);
    v->prefix_first_only = !legacy;
    if (st == BITNET_OK) st = bn_vocab_check(v, path, err);
    free(data);
    bn_json_free(config);
    bn_json_free(extra);
    if (st != BITNET_OK) bn_vocab_free(v);
    return st;
}
