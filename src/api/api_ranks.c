/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that compute one model together. What rank 0 is asked for, opening and closing, it tells the
 * others first, with the options; passes are announced where they are made (model/ranks.h). A follower
 * has the same model and the same engine, over its own parts.
 */
#include "api/api.h"

#include "base/os/mem.h"
#include "engine/engine.h"
#include "model/ranks.h"
#include <stddef.h>
#include <stdlib.h>

enum { MAX_BYTES = 1 << 30, NO_TEXT = -1 };

/* ------------------------------------------------------------------ options as bytes */

static const size_t model_texts[] = {
    offsetof(bitnet_model_options, backend),    offsetof(bitnet_model_options, activations),
    offsetof(bitnet_model_options, i2s_layout), offsetof(bitnet_model_options, layout),
    offsetof(bitnet_model_options, head),       offsetof(bitnet_model_options, ffn),
    offsetof(bitnet_model_options, hugepages),  offsetof(bitnet_model_options, numa),
    offsetof(bitnet_model_options, mmap),       offsetof(bitnet_model_options, plan)};

static const size_t engine_texts[] = {
    offsetof(bitnet_engine_options, prefix_cache), offsetof(bitnet_engine_options, state_type),
    offsetof(bitnet_engine_options, head),         offsetof(bitnet_engine_options, ffn),
    offsetof(bitnet_engine_options, draft),        offsetof(bitnet_engine_options, pin),
    offsetof(bitnet_engine_options, profile),      offsetof(bitnet_engine_options, plan)};

static void put_text(struct bn_buf *b, const char *text)
{
    int64_t n = text ? (int64_t)strlen(text) : NO_TEXT;
    bn_buf_append(b, &n, sizeof n);
    if (text) bn_buf_append(b, text, (size_t)n + 1);
}

static void put_options(struct bn_buf *b, const void *options, size_t n, const size_t *texts,
                        size_t n_texts)
{
    bn_buf_append(b, options, n);
    for (size_t i = 0; i < n_texts; i++) {
        const char *text;
        memcpy(&text, (const char *)options + texts[i], sizeof text);
        put_text(b, text);
    }
}

/* Borrowed from the message. */
static const char *take_text(struct bn_reader *in)
{
    int64_t n = NO_TEXT;
    bn_reader_take(in, &n, sizeof n);
    if (n == NO_TEXT || in->bad) return NULL;
    in->bad = n < 0 || (size_t)(in->end - in->at) <= (size_t)n || in->at[n] != 0;
    const char *text = in->bad ? NULL : in->at;
    if (text) in->at += n + 1;
    return text;
}

static void take_options(struct bn_reader *in, void *options, size_t n, const size_t *texts,
                         size_t n_texts)
{
    bn_reader_take(in, options, n);
    for (size_t i = 0; i < n_texts; i++) {
        const char *text = take_text(in);
        memcpy((char *)options + texts[i], &text, sizeof text);
    }
}

/* ------------------------------------------------------------------ rank 0 */

static void put_word(struct bn_buf *b, uint32_t word)
{
    bn_buf_init(b, MAX_BYTES);
    bn_buf_append(b, &word, sizeof word);
}

static void send_and_free(struct bn_dist *d, struct bn_buf *b)
{
    if (bn_dist_rank(d) == 0) bn_dist_send(d, b);
    bn_buf_free(b);
}

static void measure(bitnet_ranks *r, struct bn_dist *d)
{
    bool measured = r->exchange_ns || r->n_ranks == 1 || (r->outputs && strcmp(r->outputs, "auto"));
    if (!measured) r->exchange_ns = bn_dist_measure(d);
}

bitnet_status bn_lead_model(const char *path, const bitnet_model_options *o, bitnet_ranks *ranks,
                            bitnet_error *err)
{
    struct bn_buf b;
    struct bn_dist *d;
    if (o->vocab_only)
        return bn_fail(err, BITNET_E_ARG, "a vocabulary alone has nothing for ranks to compute");
    BN_TRY(bn_dist_open(&d, ranks, err));
    put_word(&b, BN_RANKS_OPEN_MODEL);
    put_text(&b, path);
    put_options(&b, o, sizeof *o, model_texts, BN_ARRAY_LEN(model_texts));
    send_and_free(d, &b);
    measure(ranks, d);
    bitnet_status s = bn_dist_check(d, err);
    bn_dist_close(d);
    return s;
}

bitnet_status bn_agree_model(const bitnet_ranks *ranks, const struct bn_model *m, bitnet_status s,
                             bitnet_error *err)
{
    struct bn_dist *d;
    BN_TRY(bn_dist_open(&d, ranks, err));
    uint64_t same = m ? m->checksum ^ m->source.file_bytes ^ (uint64_t)m->activations << 56 : 0;
    s = bn_dist_agree(d, s, same, "model", err);
    bn_dist_close(d);
    return s;
}

bitnet_status bn_lead_engine(const struct bn_model *m, bitnet_engine_options *o, bitnet_error *err)
{
    struct bn_buf b;
    if (!m->dist || bn_dist_rank(m->dist)) return BITNET_OK;
    o->state_cache_bytes = bn_engine_state_cache(o); /* as this machine's memory has it, for all */
    put_word(&b, BN_RANKS_OPEN_ENGINE);
    put_options(&b, o, sizeof *o, engine_texts, BN_ARRAY_LEN(engine_texts));
    send_and_free(m->dist, &b);
    return bn_dist_check(m->dist, err);
}

void bn_lead_close(const struct bn_model *m, bool engine)
{
    struct bn_buf b;
    if (!m->dist || bn_dist_rank(m->dist)) return;
    put_word(&b, engine ? BN_RANKS_CLOSE_ENGINE : BN_RANKS_CLOSE_MODEL);
    send_and_free(m->dist, &b);
}

bitnet_status bitnet_dismiss(const bitnet_ranks *ranks, bitnet_error *err)
{
    BN_NEED(ranks, err, "ranks is NULL");
    bitnet_ranks r = {.size = sizeof r};
    struct bn_dist *d;
    struct bn_buf b;
    BN_TRY(BN_READ(bitnet_ranks, &r, ranks, err));
    BN_TRY(bn_dist_open(&d, &r, err));
    put_word(&b, BN_RANKS_END);
    send_and_free(d, &b);
    bitnet_status s = bn_dist_check(d, err);
    bn_dist_close(d);
    return s;
}

/* ------------------------------------------------------------------ the others */

struct follower {
    bitnet_ranks ranks;
    struct bn_dist *dist; /* for messages */
    struct bn_model *m;   /* NULL: none is open */
    struct bitnet_engine *e;
};

static void close_engine(struct follower *f)
{
    bn_engine_close(f->e);
    f->e = NULL;
}

static void close_model(struct follower *f)
{
    close_engine(f);
    bn_model_close(f->m);
    f->m = NULL;
}

/* That an opening has failed here rank 0 says, too; going on is up to it. */
static bitnet_status open_model(struct follower *f, struct bn_reader *in, bitnet_error *err)
{
    bitnet_model_options o = {0};
    bitnet_status s = BITNET_OK;
    const char *path = take_text(in);
    take_options(in, &o, sizeof o, model_texts, BN_ARRAY_LEN(model_texts));
    o.progress = NULL;
    o.cache = NULL;
    bitnet_ranks ranks = f->ranks;
    measure(&ranks, f->dist);
    if (in->bad)
        s = bn_fail(err, BITNET_E_INTERNAL, "rank 0 has sent options that are not understood");
    else if (f->m) s = bn_fail(err, BITNET_E_STATE, "ranks compute one model at a time");
    struct bn_model *m = NULL;
    if (s == BITNET_OK) s = bn_model_open_ranked(&m, path, &o, &ranks, err);
    if (bn_agree_model(&ranks, m, s, err) == BITNET_OK) f->m = m;
    else bn_model_close(m);
    return bn_dist_check(f->dist, err);
}

static bitnet_status open_engine(struct follower *f, struct bn_reader *in, bitnet_error *err)
{
    bitnet_engine_options o = {0};
    bitnet_status s = BITNET_OK;
    struct bitnet_engine *e = NULL;
    take_options(in, &o, sizeof o, engine_texts, BN_ARRAY_LEN(engine_texts));
    o.profile = NULL; /* what rank 0 notes is of its own */
    if (in->bad || !f->m)
        s = bn_fail(err, BITNET_E_INTERNAL, "rank 0 has sent options that are not understood");
    else if (f->e) s = bn_fail(err, BITNET_E_STATE, "ranks drive one engine at a time");
    if (s == BITNET_OK) s = bn_engine_open(&e, f->m, &o, err);
    if (bn_dist_agree(f->m ? f->m->dist : f->dist, s, 0, "engine", err) == BITNET_OK) f->e = e;
    else bn_engine_close(e);
    return f->m ? bn_dist_check(f->m->dist, err) : bn_dist_check(f->dist, err);
}

static bitnet_status obey(struct follower *f, const struct bn_buf *message, uint32_t word,
                          bitnet_error *err)
{
    struct bn_reader in = {message->data + sizeof word, message->data + message->len, false};
    switch (word) {
    case BN_RANKS_OPEN_MODEL: return open_model(f, &in, err);
    case BN_RANKS_OPEN_ENGINE: return open_engine(f, &in, err);
    case BN_RANKS_CLOSE_MODEL: close_model(f); return BITNET_OK;
    case BN_RANKS_CLOSE_ENGINE: close_engine(f); return BITNET_OK;
    case BN_RANKS_PASS:
        if (f->e) return bn_engine_follow(f->e, message, err);
        return bn_fail(err, BITNET_E_INTERNAL, "rank 0 has sent a batch, and no engine is open");
    default: return bn_fail(err, BITNET_E_INTERNAL, "rank 0 has sent the unknown word %u", word);
    }
}

bitnet_status bitnet_follow(const bitnet_ranks *ranks, bitnet_error *err)
{
    BN_NEED(ranks, err, "ranks is NULL");
    struct follower f = {.ranks = {.size = sizeof f.ranks}};
    bitnet_ranks *r = &f.ranks;
    struct bn_buf message;
    BN_TRY(BN_READ(bitnet_ranks, r, ranks, err));
    if (!r->rank) return bn_fail(err, BITNET_E_ARG, "rank 0 leads, it does not follow");
    BN_TRY(bn_dist_open(&f.dist, r, err));
    bn_buf_init(&message, MAX_BYTES);
    bitnet_status s = BITNET_OK;
    for (uint32_t word = UINT32_MAX; s == BITNET_OK && word != BN_RANKS_END;) {
        bn_dist_send(f.dist, &message);
        s = bn_dist_check(f.dist, err);
        if (s == BITNET_OK && message.len < sizeof word)
            s = bn_fail(err, BITNET_E_INTERNAL, "rank 0 has sent nothing");
        if (s != BITNET_OK) break;
        memcpy(&word, message.data, sizeof word);
        if (word != BN_RANKS_END) s = obey(&f, &message, word, err);
    }
    bn_buf_free(&message);
    close_model(&f);
    bn_dist_close(f.dist);
    return s;
}
