/* SPDX-License-Identifier: Apache-2.0
 * A vocabulary as the files of a Hugging Face folder: tokenizer.json, or tokenizer.model where pieces have
 * scores, and tokenizer_config.json. The readers of this room make the same vocabulary of them; what they
 * have no words for is refused. */
#include "text/tokenizer/hf_impl.h"

#include "base/buf.h"
#include <stdlib.h>

enum { MAX_BYTES = 256 << 20 };

static bitnet_status no_words(const char *what, bitnet_error *err)
{
    return bn_fail(err, BITNET_E_UNSUPPORTED,
                   "the tokenizer cannot be written as files of a checkpoint: %s", what);
}

static const char *const *patterns_of(const struct bn_vocab *v, bool *ignore_merges)
{
    const char *pre = v->pre ? v->pre : bn_pre_guess(v);
    *ignore_merges = v->ignore_merges;
    return pre && v->n_patterns == 0 ? bn_pre_patterns(pre, ignore_merges) : NULL;
}

static bool is_added(const struct bn_vocab *v, uint32_t id)
{
    uint8_t type = v->types[id];
    return type == BN_TOKEN_CONTROL || type == BN_TOKEN_USER || type == BN_TOKEN_UNKNOWN;
}

static bool is_there(const struct bn_vocab *v, uint32_t id)
{
    return v->tokens[id].n > 0 && v->types[id] != BN_TOKEN_UNUSED;
}

static void put_token(struct bn_buf *b, const struct bn_vocab *v, int32_t id)
{
    bn_json_quote(b, v->tokens[id].s, v->tokens[id].n);
}

/* ------------------------------------------------------------------ tokenizer.json */

static void put_added(struct bn_buf *b, const struct bn_vocab *v)
{
    static const char *const truth[] = {"false", "true"};
    bool first = true;
    bn_buf_puts(b, "\"added_tokens\": [");
    for (uint32_t i = 0; i < v->n_tokens; i++) {
        if (!is_there(v, i) || !is_added(v, i)) continue;
        unsigned strip = v->strip ? v->strip[i] : 0;
        bn_buf_printf(b, "%s\n{\"id\": %u, \"content\": ", first ? "" : ",", i);
        put_token(b, v, (int32_t)i);
        bn_buf_printf(b,
                      ", \"single_word\": %s, \"lstrip\": %s, \"rstrip\": %s, \"normalized\": "
                      "false, \"special\": %s}",
                      truth[(strip & BN_STRIP_SINGLE_WORD) != 0],
                      truth[(strip & BN_STRIP_LEFT) != 0], truth[(strip & BN_STRIP_RIGHT) != 0],
                      truth[v->types[i] != BN_TOKEN_USER]);
        first = false;
    }
    bn_buf_puts(b, "],\n");
}

static void put_splits(struct bn_buf *b, const char *const *patterns, size_t n)
{
    bn_buf_puts(b, "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [");
    for (size_t i = 0; i < n; i++) {
        bn_buf_puts(b, "{\"type\": \"Split\", \"pattern\": {\"Regex\": ");
        bn_json_quote(b, patterns[i], strlen(patterns[i]));
        bn_buf_puts(b, "}, \"behavior\": \"Isolated\", \"invert\": false}, ");
    }
    bn_buf_puts(b, "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
                   "\"use_regex\": false}]},\n");
}

/* What stands around a text. */
static void put_template(struct bn_buf *b, const struct bn_vocab *v)
{
    int32_t ids[2];
    size_t n = 0;
    bool bos = v->add_bos && v->bos >= 0, eos = v->add_eos && v->eos >= 0;
    if (!bos && !eos) {
        bn_buf_puts(b, "\"post_processor\": null,\n");
        return;
    }
    bn_buf_puts(b, "\"post_processor\": {\"type\": \"TemplateProcessing\"");
    for (int pair = 0; pair < 2; pair++) {
        bn_buf_printf(b, ", \"%s\": [", pair ? "pair" : "single");
        for (int k = 0; k <= pair; k++) {
            if (k) bn_buf_puts(b, ", ");
            if (bos) bn_buf_puts(b, "{\"SpecialToken\": {\"id\": "), put_token(b, v, v->bos);
            if (bos) bn_buf_printf(b, ", \"type_id\": %d}}, ", k);
            bn_buf_printf(b, "{\"Sequence\": {\"id\": \"%s\", \"type_id\": %d}}", k ? "B" : "A", k);
            if (eos) bn_buf_puts(b, ", {\"SpecialToken\": {\"id\": "), put_token(b, v, v->eos);
            if (eos) bn_buf_printf(b, ", \"type_id\": %d}}", k);
        }
        bn_buf_puts(b, "]");
    }
    bn_buf_puts(b, ", \"special_tokens\": {");
    if (bos) ids[n++] = v->bos;
    if (eos && v->eos != v->bos) ids[n++] = v->eos;
    for (size_t i = 0; i < n; i++) {
        if (i) bn_buf_puts(b, ", ");
        put_token(b, v, ids[i]);
        bn_buf_puts(b, ": {\"id\": ");
        put_token(b, v, ids[i]);
        bn_buf_printf(b, ", \"ids\": [%d], \"tokens\": [", ids[i]);
        put_token(b, v, ids[i]);
        bn_buf_puts(b, "]}");
    }
    bn_buf_puts(b, "}},\n");
}

static void put_model(struct bn_buf *b, const struct bn_vocab *v, bool ignore_merges)
{
    bool first = true;
    bn_buf_printf(b,
                  "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
                  "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, "
                  "\"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": %s, "
                  "\"vocab\": {",
                  ignore_merges ? "true" : "false");
    for (uint32_t i = 0; i < v->n_tokens; i++) {
        if (!is_there(v, i)) continue;
        bn_buf_puts(b, first ? "\n" : ",\n");
        put_token(b, v, (int32_t)i);
        bn_buf_printf(b, ": %u", i);
        first = false;
    }
    bn_buf_puts(b, "},\n\"merges\": [");
    for (uint32_t i = 0; i < v->n_merges; i++) {
        bn_buf_puts(b, i ? ",\n[" : "\n[");
        bn_json_quote(b, v->merges[2 * i].s, v->merges[2 * i].n);
        bn_buf_puts(b, ", ");
        bn_json_quote(b, v->merges[2 * i + 1].s, v->merges[2 * i + 1].n);
        bn_buf_puts(b, "]");
    }
    bn_buf_puts(b, "]}}\n");
}

static bitnet_status write_json(struct bn_buf *b, const struct bn_vocab *v, bitnet_error *err)
{
    bool ignore_merges;
    const char *const *patterns = patterns_of(v, &ignore_merges);
    size_t n = v->n_patterns;
    if (!patterns) patterns = v->patterns;
    else
        while (patterns[n]) n++;
    if (n == 0) return no_words("its pre-tokenizer is unknown", err);
    if (v->n_merges == 0) return no_words("it has no merges", err);
    if (v->add_space_prefix) return no_words("it puts a space before the text", err);
    bn_buf_puts(b, "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null,\n");
    put_added(b, v);
    bool nfc = v->normalizer && strcmp(v->normalizer, "nfc") == 0;
    bn_buf_printf(b, "\"normalizer\": %s,\n", nfc ? "{\"type\": \"NFC\"}" : "null");
    put_splits(b, patterns, n);
    put_template(b, v);
    bn_buf_puts(b, "\"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
                   "\"trim_offsets\": true, \"use_regex\": true},\n");
    put_model(b, v, ignore_merges);
    return BITNET_OK;
}

/* ------------------------------------------------------------------ tokenizer.model */

enum { WIRE_VARINT = 0, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };
/* field numbers of sentencepiece_model.proto */
enum { MODEL_PIECE = 1, MODEL_TRAINER = 2, MODEL_NORMALIZER = 3, TYPE_BPE = 2 };

static void put_varint(struct bn_buf *b, uint64_t v)
{
    for (; v >= 0x80; v >>= 7) bn_buf_putc(b, (char)(v & 0x7f) | (char)0x80);
    bn_buf_putc(b, (char)v);
}

/* Negative numbers have all 64 bits. */
static void put_number(struct bn_buf *b, unsigned field, int64_t v)
{
    put_varint(b, field << 3 | WIRE_VARINT);
    put_varint(b, (uint64_t)v);
}

static void put_bytes(struct bn_buf *b, unsigned field, const char *s, size_t n)
{
    put_varint(b, field << 3 | WIRE_BYTES);
    put_varint(b, n);
    bn_buf_append(b, s, n);
}

static void put_piece(struct bn_buf *b, struct bn_buf *piece, const struct bn_vocab *v, uint32_t id)
{
    bn_buf_clear(piece);
    put_bytes(piece, 1, v->tokens[id].s, v->tokens[id].n);
    put_varint(piece, 2 << 3 | WIRE_FIXED32);
    bn_buf_append(piece, &v->scores[id], sizeof v->scores[id]);
    put_number(piece, 3, v->types[id]);
    put_bytes(b, MODEL_PIECE, piece->data, piece->len);
}

static bitnet_status write_pieces(struct bn_buf *b, const struct bn_vocab *v, bitnet_error *err)
{
    struct bn_buf part;
    if (!v->scores) return no_words("its pieces have no scores", err);
    if (v->n_patterns)
        return no_words("it splits the text, and merges pieces by their scores", err);
    bn_buf_init(&part, MAX_BYTES);
    for (uint32_t i = 0; i < v->n_tokens; i++) put_piece(b, &part, v, i);
    bn_buf_clear(&part);
    put_number(&part, 3, TYPE_BPE);
    put_number(&part, 4, v->n_tokens);
    put_number(&part, 35, 1); /* byte_fallback */
    put_number(&part, 40, v->unk);
    put_number(&part, 41, v->bos);
    put_number(&part, 42, v->eos);
    put_number(&part, 43, v->pad);
    put_bytes(b, MODEL_TRAINER, part.data, part.len);
    bn_buf_clear(&part);
    put_bytes(&part, 1, "identity", 8);
    put_number(&part, 3, v->add_space_prefix);
    put_number(&part, 4, 0); /* spaces are not removed */
    put_number(&part, 5, 1); /* but marked */
    put_bytes(b, MODEL_NORMALIZER, part.data, part.len);
    bool failed = part.failed;
    bn_buf_free(&part);
    return failed ? bn_fail_nomem(err, b->len, "a tokenizer") : BITNET_OK;
}

/* ------------------------------------------------------------------ tokenizer_config.json */

static void set_token(struct bn_json *o, const char *key, const struct bn_vocab *v, int32_t id)
{
    if (id >= 0 && (uint32_t)id < v->n_tokens && is_there(v, (uint32_t)id))
        bn_json_set(o, key, bn_json_raw(v->tokens[id].s, v->tokens[id].n));
}

static char *config_text(const struct bn_vocab *v)
{
    struct bn_json *o = bn_json_object();
    bool spm = v->model == BN_VOCAB_SPM;
    bn_json_set(o, "tokenizer_class",
                bn_json_string(spm ? "LlamaTokenizer" : "PreTrainedTokenizerFast"));
    bn_json_set(o, "add_bos_token", bn_json_bool(v->add_bos));
    bn_json_set(o, "add_eos_token", bn_json_bool(v->add_eos));
    if (spm) bn_json_set(o, "add_prefix_space", bn_json_bool(v->add_space_prefix));
    if (spm) bn_json_set(o, "legacy", bn_json_bool(!v->prefix_first_only));
    bn_json_set(o, "clean_up_tokenization_spaces", bn_json_bool(false));
    set_token(o, "bos_token", v, v->bos);
    set_token(o, "eos_token", v, v->eos);
    set_token(o, "unk_token", v, v->unk);
    set_token(o, "pad_token", v, v->pad);
    if (v->chat_template) bn_json_set(o, "chat_template", bn_json_string(v->chat_template));
    char *text = bn_json_dump(o, BN_JSON_INDENT(2));
    bn_json_free(o);
    return text;
}

/* ------------------------------------------------------------------ the call */

bitnet_status bn_vocab_write_hf(struct bn_vocab_files *out, const struct bn_vocab *v,
                                bitnet_error *err)
{
    struct bn_buf b;
    bool spm = v->model == BN_VOCAB_SPM;
    *out = (struct bn_vocab_files){.is_pieces = spm};
    bn_buf_init(&b, MAX_BYTES);
    bitnet_status s = spm ? write_pieces(&b, v, err) : write_json(&b, v, err);
    out->bytes = b.len;
    if (s == BITNET_OK) {
        out->tokenizer = bn_buf_take(&b);
        out->config = config_text(v);
        if (!out->tokenizer || !out->config) s = bn_fail_nomem(err, b.len, "a tokenizer");
    }
    bn_buf_free(&b);
    if (s != BITNET_OK) bn_vocab_files_free(out);
    return s;
}

void bn_vocab_files_free(struct bn_vocab_files *f)
{
    free(f->tokenizer);
    free(f->config);
    *f = (struct bn_vocab_files){0};
}
