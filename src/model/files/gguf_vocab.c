/* SPDX-License-Identifier: Apache-2.0
 * The tokenizer.* keys of a GGUF, read into a struct bn_vocab and written from one. Strings are
 * copied: the vocabulary outlives the file. What published files are known to get wrong is put
 * right here, and each repair says so in one sentence.
 *
 * Keys of our own, for what GGUF has no name for: tokenizer.bitnet.patterns (regular expressions
 * of a pre-tokenizer without a name), .ignore_merges, .normalizer, .end_token_ids, .token_strip,
 * .prefix_first_only. Other readers pass over them. */
#include "model/files/gguf_write.h"

#define KEY  "tokenizer.ggml."
#define OURS "tokenizer.bitnet."

/* ------------------------------------------------------------------ reading */

struct reader {
    struct bn_vocab *v;
    const struct bn_source *s;
    struct bn_buf *note;
    bitnet_error *err;
};

/* One sentence more for the user. */
static void say(const struct reader *r, const char *sentence)
{
    if (!r->note) return;
    if (r->note->len) bn_buf_putc(r->note, ' ');
    bn_buf_puts(r->note, sentence);
}

/* An optional array: *out stays NULL if the key is absent. A wrong kind or count is an error. */
static bitnet_status find_array(const struct reader *r, const struct bn_meta **out, const char *key,
                                bool strings, uint64_t count)
{
    const struct bn_meta *m = bn_meta_find(r->s, key);
    *out = NULL;
    if (!m) return BITNET_OK;
    if (m->type != BN_META_ARRAY || (m->elem == BN_META_STR) != strings)
        return bn_fail(r->err, BITNET_E_FORMAT, "'%s': key '%s' is no array of %s", r->s->path, key,
                       strings ? "strings" : "numbers");
    if (count && m->count != count)
        return bn_fail(r->err, BITNET_E_FORMAT, "'%s': key '%s' has %llu elements for %llu tokens",
                       r->s->path, key, (unsigned long long)m->count, (unsigned long long)count);
    *out = m;
    return BITNET_OK;
}

/* All strings of an array, each followed by a 0, in one block of the arena. `parts` is 1, or 2 for
 * merges: then each string is split at its first space that is not its first byte. */
static bitnet_status copy_strings(const struct reader *r, struct bn_str *out,
                                  const struct bn_meta *m, int parts)
{
    char *to = bn_arena_alloc(&r->v->arena, (size_t)(m->raw_bytes - 7 * m->count));
    if (!to) return bn_fail_nomem(r->err, (size_t)m->raw_bytes, "the vocabulary");
    uint64_t cursor = 0;
    for (uint64_t k = 0; k < m->count; k++) {
        const char *s;
        size_t n;
        if (!bn_meta_next_str(m, &cursor, &s, &n))
            return bn_fail(r->err, BITNET_E_INTERNAL, "key '%s' ends at element %llu", m->key,
                           (unsigned long long)k);
        if (n > (size_t)parts * BN_VOCAB_MAX_TOKEN_BYTES)
            return bn_fail(r->err, BITNET_E_LIMIT,
                           "'%s': element %llu of '%s' has %zu bytes; at most %d are read",
                           r->s->path, (unsigned long long)k, m->key, n,
                           parts * BN_VOCAB_MAX_TOKEN_BYTES);
        memcpy(to, s, n); /* the block is zeroed: the 0 behind is there */
        struct bn_str *o = out + (size_t)parts * k;
        *o = (struct bn_str){to, (uint32_t)n};
        if (parts == 2) {
            char *space = n > 2 ? memchr(to + 1, ' ', n - 2) : NULL;
            if (!space)
                return bn_fail(r->err, BITNET_E_FORMAT, "'%s': merge %llu is not two tokens",
                               r->s->path, (unsigned long long)k);
            *space = 0;
            o[0].n = (uint32_t)(space - to);
            o[1] = (struct bn_str){space + 1, (uint32_t)(n - o[0].n - 1)};
        }
        to += n + 1;
    }
    return BITNET_OK;
}

static bitnet_status read_model(const struct reader *r)
{
    const char *name = "";
    size_t n = 0;
    if (!bn_meta_str(r->s, KEY "model", &name, &n))
        return bn_fail(r->err, BITNET_E_FORMAT,
                       "'%s' has no tokenizer: key '" KEY "model' is missing", r->s->path);
    if (n == 4 && memcmp(name, "gpt2", 4) == 0) r->v->model = BN_VOCAB_BPE;
    else if (n == 5 && memcmp(name, "llama", 5) == 0) r->v->model = BN_VOCAB_SPM;
    else
        return bn_fail(r->err, BITNET_E_UNSUPPORTED,
                       "'%s': tokenizer '%.*s' is not supported; byte-level BPE ('gpt2') and "
                       "SentencePiece ('llama') are",
                       r->s->path, (int)bn_min_size(n, 64), name);
    return BITNET_OK;
}

static bitnet_status read_tokens(const struct reader *r)
{
    struct bn_vocab *v = r->v;
    const struct bn_meta *m;
    BN_TRY(find_array(r, &m, KEY "tokens", true, 0));
    if (!m || m->count == 0)
        return bn_fail(r->err, BITNET_E_FORMAT, "'%s': key '" KEY "tokens' is missing or empty",
                       r->s->path);
    if (m->count > BN_VOCAB_MAX_TOKENS)
        return bn_fail(r->err, BITNET_E_LIMIT, "'%s' has %llu tokens; at most %d are read",
                       r->s->path, (unsigned long long)m->count, BN_VOCAB_MAX_TOKENS);
    v->n_tokens = (uint32_t)m->count;
    v->tokens = bn_arena_alloc(&v->arena, v->n_tokens * sizeof *v->tokens);
    v->types = bn_arena_alloc(&v->arena, v->n_tokens);
    if (!v->tokens || !v->types)
        return bn_fail_nomem(r->err, v->n_tokens * sizeof *v->tokens, "the vocabulary");
    memset(v->types, BN_TOKEN_NORMAL, v->n_tokens);
    return copy_strings(r, v->tokens, m, 1);
}

static bitnet_status read_types(const struct reader *r)
{
    const struct bn_meta *m;
    BN_TRY(find_array(r, &m, KEY "token_type", false, r->v->n_tokens));
    if (!m) return BITNET_OK;
    if (m->elem != BN_META_I32 && m->elem != BN_META_U32)
        return bn_fail(r->err, BITNET_E_FORMAT, "'%s': key '%s' is no array of 32-bit integers",
                       r->s->path, m->key);
    for (uint32_t i = 0; i < r->v->n_tokens; i++) {
        uint32_t t = bn_load_u32(m->raw + 4 * (size_t)i);
        if (t > BN_TOKEN_BYTE)
            return bn_fail(r->err, BITNET_E_FORMAT, "'%s': token %u has the unknown type %u",
                           r->s->path, i, t);
        if (t) r->v->types[i] = (uint8_t)t; /* 0 is "undefined": taken as normal */
    }
    return BITNET_OK;
}

static bitnet_status read_scores(const struct reader *r)
{
    struct bn_vocab *v = r->v;
    const struct bn_meta *m;
    BN_TRY(find_array(r, &m, KEY "scores", false, v->n_tokens));
    if (!m || v->model == BN_VOCAB_BPE) return BITNET_OK; /* BPE files carry meaningless ones */
    if (m->elem != BN_META_F32)
        return bn_fail(r->err, BITNET_E_FORMAT, "'%s': key '%s' is no array of f32", r->s->path,
                       m->key);
    v->scores = bn_arena_alloc(&v->arena, v->n_tokens * sizeof *v->scores);
    if (!v->scores) return bn_fail_nomem(r->err, v->n_tokens * sizeof *v->scores, "the vocabulary");
    memcpy(v->scores, m->raw, v->n_tokens * sizeof *v->scores);
    return BITNET_OK;
}

static bitnet_status read_merges(const struct reader *r)
{
    struct bn_vocab *v = r->v;
    const struct bn_meta *m;
    BN_TRY(find_array(r, &m, KEY "merges", true, 0));
    if (!m || m->count == 0) return BITNET_OK;
    if (m->count > BN_VOCAB_MAX_MERGES)
        return bn_fail(r->err, BITNET_E_LIMIT, "'%s' has %llu merges; at most %d are read",
                       r->s->path, (unsigned long long)m->count, BN_VOCAB_MAX_MERGES);
    v->merges = bn_arena_alloc(&v->arena, 2 * (size_t)m->count * sizeof *v->merges);
    if (!v->merges)
        return bn_fail_nomem(r->err, 2 * (size_t)m->count * sizeof *v->merges, "merges");
    v->n_merges = (uint32_t)m->count;
    return copy_strings(r, v->merges, m, 2);
}

/* An id, -1 if absent. Some writers put 2^32 - 1 for "none". */
static bitnet_status read_id(const struct reader *r, int32_t *out, const char *key)
{
    uint32_t id;
    if (!bn_meta_find(r->s, key)) return BITNET_OK;
    if (!bn_meta_u32(r->s, key, &id)) id = UINT32_MAX; /* a signed -1 */
    if (id == UINT32_MAX) {
        *out = -1;
        return BITNET_OK;
    }
    if (id >= r->v->n_tokens)
        return bn_fail(r->err, BITNET_E_FORMAT, "'%s': key '%s' is %u, but there are %u tokens",
                       r->s->path, key, id, r->v->n_tokens);
    *out = (int32_t)id;
    return BITNET_OK;
}

static bitnet_status copy_text(const struct reader *r, const char **out, const char *key)
{
    const char *s;
    size_t n;
    if (!bn_meta_str(r->s, key, &s, &n)) return BITNET_OK;
    *out = bn_arena_strn(&r->v->arena, s, n);
    return *out ? BITNET_OK : bn_fail_nomem(r->err, n, key);
}

static bool is_token(const struct bn_vocab *v, uint32_t id, const char *text)
{
    return id < v->n_tokens && v->tokens[id].n == strlen(text) &&
           memcmp(v->tokens[id].s, text, v->tokens[id].n) == 0;
}

static bitnet_status read_ids(const struct reader *r)
{
    struct bn_vocab *v = r->v;
    if (v->model == BN_VOCAB_SPM && v->n_tokens > 2)
        v->unk = 0, v->bos = 1, v->eos = 2; /* customary */
    int32_t eom = -1;
    BN_TRY(read_id(r, &v->bos, KEY "bos_token_id"));
    BN_TRY(read_id(r, &v->eos, KEY "eos_token_id"));
    BN_TRY(read_id(r, &v->eot, KEY "eot_token_id"));
    BN_TRY(read_id(r, &v->unk, KEY "unknown_token_id"));
    BN_TRY(read_id(r, &v->pad, KEY "padding_token_id"));
    BN_TRY(read_id(r, &eom, KEY "eom_token_id"));
    /* Llama 3's end of turn, which the published BitNet 2B-4T file leaves out */
    if (v->eot < 0 && v->eos == 128001 && is_token(v, 128009, "<|eot_id|>")) {
        v->eot = 128009;
        say(r, "The file names no end-of-turn token; <|eot_id|> (128009) ends an answer too.");
    }
    bn_vocab_add_end(v, eom);
    const struct bn_meta *m;
    BN_TRY(find_array(r, &m, OURS "end_token_ids", false, 0));
    for (uint64_t k = 0; m && m->elem == BN_META_I32 && k < m->count; k++) {
        uint32_t id = bn_load_u32(m->raw + 4 * k);
        if (id >= v->n_tokens)
            return bn_fail(r->err, BITNET_E_FORMAT, "'%s': end token %u, but there are %u tokens",
                           r->s->path, id, v->n_tokens);
        bn_vocab_add_end(v, (int32_t)id);
    }
    bn_vocab_find_ends(v);
    return BITNET_OK;
}

/* Patterns of our own key, else the name in the file, else an assumption that is told. */
static bitnet_status read_pre(const struct reader *r)
{
    struct bn_vocab *v = r->v;
    const struct bn_meta *m;
    BN_TRY(find_array(r, &m, OURS "patterns", true, 0));
    if (m && m->count > BN_VOCAB_MAX_PATTERNS)
        return bn_fail(r->err, BITNET_E_LIMIT,
                       "'%s' has %llu pre-tokenizer patterns; at most %d are "
                       "read",
                       r->s->path, (unsigned long long)m->count, BN_VOCAB_MAX_PATTERNS);
    uint64_t cursor = 0;
    for (uint64_t k = 0; m && k < m->count; k++) {
        const char *s;
        size_t n;
        if (!bn_meta_next_str(m, &cursor, &s, &n)) break;
        v->patterns[k] = bn_arena_strn(&v->arena, s, n);
        if (!v->patterns[k]) return bn_fail_nomem(r->err, n, "a pattern");
        v->n_patterns++;
    }
    if (v->model == BN_VOCAB_BPE) BN_TRY(copy_text(r, &v->pre, KEY "pre"));
    if (v->model == BN_VOCAB_BPE && !v->pre && v->n_patterns == 0) {
        v->pre = bn_pre_guess(v);
        if (v->pre) {
            say(r,
                "The file names no pre-tokenizer; its vocabulary is that of Llama 3, so llama-bpe "
                "is used.");
        } else {
            v->pre = "default";
            say(r, "The file names no pre-tokenizer; the default one is used, which may be wrong.");
        }
    }
    if (v->pre && v->n_patterns == 0 && !bn_pre_patterns(v->pre, &v->ignore_merges))
        return bn_fail(r->err, BITNET_E_UNSUPPORTED, "'%s': pre-tokenizer '%.64s' is not known",
                       r->s->path, v->pre);
    bn_meta_bool(r->s, OURS "ignore_merges", &v->ignore_merges);
    return BITNET_OK;
}

static void read_flags(const struct reader *r)
{
    struct bn_vocab *v = r->v;
    /* what llama.cpp assumes where the file is silent */
    bool llama3 = v->pre && bn_pre_patterns(v->pre, NULL) == bn_pre_patterns("llama-bpe", NULL);
    v->add_bos = v->model == BN_VOCAB_SPM || (llama3 && v->ignore_merges);
    v->add_space_prefix = v->model == BN_VOCAB_SPM;
    bn_meta_bool(r->s, KEY "add_bos_token", &v->add_bos);
    bn_meta_bool(r->s, KEY "add_eos_token", &v->add_eos);
    bn_meta_bool(r->s, KEY "add_space_prefix", &v->add_space_prefix);
    bn_meta_bool(r->s, OURS "prefix_first_only", &v->prefix_first_only);
}

static bitnet_status read_strip(const struct reader *r)
{
    struct bn_vocab *v = r->v;
    const struct bn_meta *m;
    BN_TRY(find_array(r, &m, OURS "token_strip", false, v->n_tokens));
    if (!m || m->elem != BN_META_U8) return BITNET_OK;
    v->strip = bn_arena_alloc(&v->arena, v->n_tokens);
    if (!v->strip) return bn_fail_nomem(r->err, v->n_tokens, "the vocabulary");
    memcpy(v->strip, m->raw, v->n_tokens);
    return BITNET_OK;
}

static bitnet_status read_all(const struct reader *r)
{
    struct bn_vocab *v = r->v;
    BN_TRY(read_model(r));
    BN_TRY(read_tokens(r));
    BN_TRY(read_types(r));
    BN_TRY(read_strip(r));
    BN_TRY(read_scores(r));
    BN_TRY(read_merges(r));
    BN_TRY(read_ids(r));
    BN_TRY(read_pre(r));
    read_flags(r);
    BN_TRY(copy_text(r, &v->normalizer, OURS "normalizer"));
    BN_TRY(copy_text(r, &v->chat_template, "tokenizer.chat_template"));
    if (v->chat_template && strstr(v->chat_template, "BITNETAssistant")) {
        v->chat_template = NULL;
        say(r,
            "The file's chat template is an early one that ends the prompt with an end token; it "
            "is not used.");
    }
    return bn_vocab_check(v, r->s->path, r->err);
}

bitnet_status bn_gguf_read_vocab(struct bn_vocab *v, const struct bn_source *s, struct bn_buf *note,
                                 bitnet_error *err)
{
    const struct reader r = {v, s, note, err};
    bn_vocab_init(v);
    bitnet_status status = read_all(&r);
    if (status != BITNET_OK) bn_vocab_free(v);
    return status;
}

/* ------------------------------------------------------------------ writing */

static void put_id(struct bn_gguf_writer *w, const char *key, int32_t id)
{
    if (id >= 0) bn_gguf_put_u32(w, key, (uint32_t)id);
}

/* ids that readers of SentencePiece vocabularies assume when they are absent: "none" must be
 * said */
static void put_spm_id(struct bn_gguf_writer *w, const struct bn_vocab *v, const char *key,
                       int32_t id)
{
    if (id < 0 && v->model == BN_VOCAB_SPM) bn_gguf_put_u32(w, key, UINT32_MAX);
    else put_id(w, key, id);
}

static void put_text(struct bn_gguf_writer *w, const char *key, const char *s)
{
    if (s) bn_gguf_put_str(w, key, s, strlen(s));
}

static void put_pre(struct bn_gguf_writer *w, const struct bn_vocab *v)
{
    const char *pre = v->pre;
    bool pre_ignores = false, named = v->n_patterns == 0;
    if (!pre && v->n_patterns) pre = bn_pre_name(v->patterns, v->n_patterns, v->ignore_merges);
    if (!pre && v->model == BN_VOCAB_SPM) pre = "default"; /* what other writers put there */
    const char *const *known = pre ? bn_pre_patterns(pre, &pre_ignores) : NULL;
    if (!named && known) { /* does the name say it all? */
        uint32_t k = 0;
        while (k < v->n_patterns && known[k] && strcmp(known[k], v->patterns[k]) == 0) k++;
        named = k == v->n_patterns && !known[k];
    }
    put_text(w, KEY "pre", pre);
    if (!named) {
        bn_gguf_put_array(w, OURS "patterns", BN_META_STR, v->n_patterns, NULL);
        for (uint32_t k = 0; k < v->n_patterns; k++)
            bn_gguf_put_elem(w, v->patterns[k], strlen(v->patterns[k]));
    }
    if (v->ignore_merges != pre_ignores)
        bn_gguf_put_bool(w, OURS "ignore_merges", v->ignore_merges);
}

static void put_merges(struct bn_gguf_writer *w, const struct bn_vocab *v)
{
    if (!v->merges) return;
    bn_gguf_put_array(w, KEY "merges", BN_META_STR, v->n_merges, NULL);
    for (uint32_t k = 0; k < v->n_merges; k++) {
        const struct bn_str *a = &v->merges[2 * k], *b = a + 1;
        char text[2 * BN_VOCAB_MAX_TOKEN_BYTES + 1];
        if (a->n > BN_VOCAB_MAX_TOKEN_BYTES || b->n > BN_VOCAB_MAX_TOKEN_BYTES) {
            w->meta.failed = true; /* bn_vocab_check would have refused it */
            return;
        }
        memcpy(text, a->s, a->n);
        text[a->n] = ' ';
        memcpy(text + a->n + 1, b->s, b->n);
        bn_gguf_put_elem(w, text, (size_t)a->n + 1 + b->n);
    }
}

void bn_gguf_put_vocab(struct bn_gguf_writer *w, const struct bn_vocab *v)
{
    put_text(w, KEY "model", v->model == BN_VOCAB_BPE ? "gpt2" : "llama");
    put_pre(w, v);
    bn_gguf_put_array(w, KEY "tokens", BN_META_STR, v->n_tokens, NULL);
    for (uint32_t i = 0; i < v->n_tokens; i++) bn_gguf_put_elem(w, v->tokens[i].s, v->tokens[i].n);
    if (v->scores) bn_gguf_put_array(w, KEY "scores", BN_META_F32, v->n_tokens, v->scores);
    bn_gguf_put_array(w, KEY "token_type", BN_META_I32, v->n_tokens, NULL);
    for (uint32_t i = 0; i < v->n_tokens; i++) {
        int32_t type = v->types[i];
        bn_buf_append(&w->meta, &type, sizeof type);
    }
    put_merges(w, v);
    put_spm_id(w, v, KEY "bos_token_id", v->bos);
    put_spm_id(w, v, KEY "eos_token_id", v->eos);
    put_id(w, KEY "eot_token_id", v->eot);
    put_spm_id(w, v, KEY "unknown_token_id", v->unk);
    put_id(w, KEY "padding_token_id", v->pad);
    bn_gguf_put_bool(w, KEY "add_bos_token", v->add_bos);
    bn_gguf_put_bool(w, KEY "add_eos_token", v->add_eos);
    bn_gguf_put_bool(w, KEY "add_space_prefix", v->add_space_prefix);
    if (v->prefix_first_only) bn_gguf_put_bool(w, OURS "prefix_first_only", true);
    if (v->n_ends) bn_gguf_put_array(w, OURS "end_token_ids", BN_META_I32, v->n_ends, v->ends);
    if (v->strip) bn_gguf_put_array(w, OURS "token_strip", BN_META_U8, v->n_tokens, v->strip);
    put_text(w, OURS "normalizer", v->normalizer);
    put_text(w, "tokenizer.chat_template", v->chat_template);
}
