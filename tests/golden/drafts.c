/* SPDX-License-Identifier: Apache-2.0
 * The logits of the layer that drafts, which no command shows: of every token but the last, and then of a
 * chain of guesses behind it. usage: drafts MODEL IDS CHAIN OUT, ids with commas; OUT: rows of floats.
 * The text is read in pieces, so that the layer is, too. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bitnet/bitnet.h>

#include "api/api.h"
#include "model/forward.h"

enum { MAX_IDS = 512, PIECE = 37 };

static const struct bn_want all = {.kind = BN_WANT_ALL};

static int32_t likeliest(const float *logits, uint32_t n)
{
    uint32_t at = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[at]) at = i;
    return (int32_t)at;
}

static size_t parse(int32_t *ids, char *text)
{
    size_t n = 0;
    for (char *p = strtok(text, ","); p && n < MAX_IDS; p = strtok(NULL, ","))
        ids[n++] = (int32_t)strtol(p, NULL, 10);
    return n;
}

struct run {
    struct bn_forward *f;
    struct bn_kv_seq seq;
    const int32_t *ids;
    size_t n;
    float *main, *draft; /* [n][n_vocab] */
    uint32_t n_vocab;
};

/* The text, piece by piece, each followed by the layer that drafts; then the last token's guess is the
 * token that follows it. */
static void read_text(struct run *r)
{
    for (size_t from = 0; from < r->n; from += PIECE) {
        struct bn_batch_token batch[PIECE];
        uint32_t rows[PIECE];
        size_t n = r->n - from < PIECE ? r->n - from : PIECE;
        for (size_t i = 0; i < n; i++)
            batch[i] = (struct bn_batch_token){.token = r->ids[from + i],
                                               .pos = (uint32_t)(from + i),
                                               .seq = &r->seq,
                                               .want = all};
        bn_forward_run(r->f, batch, n, r->main + from * r->n_vocab);
        for (size_t i = 0; i < n; i++) {
            size_t at = from + i;
            rows[i] = (uint32_t)i;
            batch[i].token =
                at + 1 < r->n ? r->ids[at + 1] : likeliest(r->main + at * r->n_vocab, r->n_vocab);
        }
        bn_forward_draft(r->f, batch, rows, false, n, r->draft + from * r->n_vocab);
    }
}

/* Each guess behind the last; the first one is there already. */
static void chain(struct run *r, size_t n, FILE *out)
{
    uint32_t row = (uint32_t)((r->n - 1) % PIECE);
    float *logits = r->draft + (r->n - 1) * r->n_vocab;
    for (size_t i = 0; i < n; i++) {
        if (i) {
            struct bn_batch_token b = {.token = likeliest(logits, r->n_vocab),
                                       .pos = (uint32_t)(r->n - 1 + i),
                                       .seq = &r->seq,
                                       .want = all};
            bn_forward_draft(r->f, &b, &row, i > 0, 1, logits);
            row = 0;
        }
        fwrite(logits, sizeof *logits, r->n_vocab, out);
    }
}

int main(int argc, char **argv)
{
    int32_t ids[MAX_IDS];
    bitnet_model *model = NULL;
    bitnet_error err = {0};
    bitnet_model_options o = {.size = sizeof o};
    if (argc != 5) return 2;
    o.activations = "f32";
    if (bitnet_model_open(&model, argv[1], &o, &err)) return fprintf(stderr, "%s\n", err.text), 1;
    const struct bn_model *m = model->m;
    struct bn_pool *pool = NULL;
    struct bn_kv kv = {0};
    struct bn_states states = {0};
    struct bn_state state = {0};
    struct run r = {.ids = ids, .n = parse(ids, argv[2]), .n_vocab = m->config.n_vocab};
    struct bn_forward_options fo = {
        .kv = &kv, .states = &states, .n_ctx = MAX_IDS, .max_tokens = PIECE};
    FILE *out = fopen(argv[4], "wb");
    r.main = calloc(r.n, r.n_vocab * sizeof *r.main);
    r.draft = calloc(r.n, r.n_vocab * sizeof *r.draft);
    if (!m->config.n_mtp || !r.n || !out || !r.main || !r.draft) return 1;
    if (bn_pool_open(&pool, 2, &err) ||
        bn_kv_open_uniform(&kv, &m->config, (struct bn_kv_types){BITNET_KV_F32, BITNET_KV_F32},
                           bn_kv_pages_for(MAX_IDS), NULL, &err) ||
        bn_states_open(&states, &m->config, NULL, 1, 0, NULL, &err) ||
        !bn_state_open(&state, &states, 0) || !bn_kv_seq_open(&r.seq, &kv, MAX_IDS) ||
        !bn_kv_reserve(&kv, &r.seq, MAX_IDS) || bn_forward_open(&r.f, m, pool, &fo, NULL, &err))
        return fprintf(stderr, "%s\n", err.text), 1;
    r.seq.state = &state;
    read_text(&r);
    fwrite(r.draft, sizeof *r.draft, (r.n - 1) * r.n_vocab, out);
    chain(&r, (size_t)strtol(argv[3], NULL, 10), out);
    fclose(out);
    bn_forward_close(r.f);
    bn_kv_seq_close(&r.seq);
    bn_kv_close(&kv);
    bn_state_close(&state);
    bn_states_close(&states);
    bn_pool_close(pool);
    bitnet_model_close(model);
    free(r.main);
    free(r.draft);
    return 0;
}
