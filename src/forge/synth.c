/* SPDX-License-Identifier: Apache-2.0
 * Random models of true shapes: the right names, types and sizes with weights that mean nothing,
 * for measuring speed and memory and for tests that need no download.
 *
 *   shape --> configuration --> metadata, directory --> tensor by tensor: random words --> trits or
 *   values --> packed rows --> file
 *
 * Every row has its own random stream, given by (seed, tensor's name, row): the trits of a model
 * do not depend on the type they are stored in. */
#include "forge/synth.h"

#include "base/half.h"
#include "base/map.h"
#include "base/rng.h"
#include "forge/forge.h"
#include "model/gguf_write.h"
#include "model/model.h"
#include "model/rope.h"
#include "text/vocab.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    TRIT_TABLE = 1 << 16,   /* 16 random bits give four trits          */
    ZERO_PERCENT = 42,      /* share of zeros in published models      */
    EMBED_SIGMA_MILLI = 20, /* spread of embeddings and heads: 0.020   */
    DENSE_BYTES = 1 << 20
};

/* One tensor of the output. */
struct item {
    enum bn_part part;
    uint32_t layer;
    enum bn_type type;
    uint64_t rows, cols, bytes;
};

struct synth {
    struct bn_config config;
    struct item *items;
    size_t n, room;
    uint64_t total_bytes, largest_bytes, largest_cols;
    uint64_t seed;
    struct bn_density density;
    /* [TRIT_TABLE] four int8 each; 16 bits of chance in, a product distribution out */
    uint32_t *trits;
    uint8_t *out;
    size_t out_bytes;
    float *values; /* [largest_cols] */
    float *scales; /* [largest_cols] */
    int8_t *row;   /* [largest_cols, rounded up to 16] */
};

/* ------------------------------------------------------------------ chance */

/* Fills the table so that each of the four trits is 0 with `zero` per cent and otherwise +-1
 * evenly: an outcome gets as many of the 65,536 entries as its probability says. */
static void fill_trit_table(uint32_t *table, uint32_t zero)
{
    const uint64_t weight[3] = {(100 - zero) / 2, zero, (100 - zero) / 2}; /* of -1, 0, +1 */
    const uint64_t all = weight[0] + weight[1] + weight[2], total = all * all * all * all;
    uint64_t sum = 0, at = 0;
    for (unsigned v = 0; v < 81; v++) {
        unsigned digit[4] = {v % 3, v / 3 % 3, v / 9 % 3, v / 27};
        uint64_t p = 1;
        uint32_t four = 0;
        for (int i = 0; i < 4; i++) {
            p *= weight[digit[i]];
            four |= (uint32_t)(uint8_t)((int)digit[i] - 1) << 8 * i;
        }
        sum += p;
        for (; at < sum * TRIT_TABLE / total; at++) table[at] = four;
    }
}

static struct bn_rng row_rng(const struct synth *s, const char *name, uint64_t row)
{
    return (struct bn_rng){bn_mix64(bn_hash(name, strlen(name)) ^ bn_mix64(s->seed + 1)) +
                           bn_mix64(row)};
}

/* Is row or weight i of a layer one of the `share` that are not zero? Decided apart from the values,
 * which are the same with and without. */
static bool is_kept(const struct synth *s, const char *name, uint64_t i, double share)
{
    struct bn_rng rng = row_rng(s, name, ~i);
    return bn_rng_unit(&rng) < share;
}

/* Which pair of shares belongs to a layer. */
static size_t stretch(const struct synth *s, uint32_t layer)
{
    return (size_t)layer * s->density.n / s->config.n_layer;
}

/* n trits, written sixteen at a time. */
static void random_trits(int8_t *out, const uint32_t *table, struct bn_rng *rng, uint64_t n)
{
    for (uint64_t i = 0; i < n; i += 16) {
        uint64_t x = bn_rng_u64(rng);
        for (int k = 0; k < 4; k++) bn_store_u32(out + i + 4 * k, table[x >> 16 * k & 0xffff]);
    }
}

/* n values, nearly normal: the sum of four bytes, centred. Whole numbers and one multiplication,
 * so the same on every machine. */
static void random_values(float *out, struct bn_rng *rng, uint64_t n, float sigma)
{
    const float unit =
        sigma / 147.8f; /* four bytes have the variance 4 * (256^2 - 1) / 12 = 147.8^2 */
    const uint64_t low = 0x00ff00ff00ff00ffu;
    for (uint64_t i = 0; i < n; i += 2) {
        uint64_t x = bn_rng_u64(rng);
        x = (x & low) + (x >> 8 & low); /* four sums of two bytes */
        int a = (int)((x & 0xffff) + (x >> 16 & 0xffff)), b = (int)((x >> 32 & 0xffff) + (x >> 48));
        out[i] = (float)(a - 510) * unit;
        if (i + 1 < n) out[i + 1] = (float)(b - 510) * unit;
    }
}

/* Keeps the size of activations: 1 / sqrt(share of nonzeros * cols), in 8 significant bits as
 * published scales are, so that it fits 16-bit scales too. */
static float matrix_scale(uint64_t cols, bool binary)
{
    float share = binary ? 1.0f : 1.0f - ZERO_PERCENT / 100.0f;
    return bn_bf16_to_f32(bn_f32_to_bf16(1.0f / sqrtf(share * (float)cols)));
}

/* ------------------------------------------------------------------ plan */

static bitnet_status add(struct synth *s, enum bn_part part, uint32_t layer,
                         const struct bn_choice *choice, enum bn_type plain, bitnet_error *err)
{
    char name[BN_MAX_NAME_BYTES];
    struct item it = {.part = part, .layer = layer, .type = plain};
    bn_part_shape(&s->config, part, &it.rows, &it.cols);
    bn_part_name(name, part, layer, true);
    if (choice)
        it.type = choice->how == BN_CHOICE_TYPE ? choice->type
                                                : bn_choice_auto(BN_TS_TENSOR, it.rows, it.cols);
    BN_TRY(bn_choice_bytes(&it.bytes, it.type, name, it.rows, it.cols, err));
    if (!bn_grow((void **)&s->items, &s->room, s->n + 1, sizeof *s->items))
        return bn_fail_nomem(err, (s->n + 1) * sizeof *s->items, "the list of tensors");
    s->items[s->n++] = it;
    s->total_bytes += it.bytes;
    if (choice && it.bytes > s->largest_bytes) s->largest_bytes = it.bytes;
    if (it.cols > s->largest_cols) s->largest_cols = it.cols;
    return BITNET_OK;
}

static bitnet_status plan(struct synth *s, const struct bn_choice *type, enum bn_type head_type,
                          bitnet_error *err)
{
    const struct bn_config *c = &s->config;
    BN_TRY(add(s, BN_P_EMBED, 0, NULL, head_type, err));
    BN_TRY(add(s, BN_P_OUT_NORM, 0, NULL, BN_F32, err));
    if (!c->tied_head) BN_TRY(add(s, BN_P_HEAD, 0, NULL, head_type, err));
    for (uint32_t layer = 0; layer < c->n_layer; layer++) {
        BN_TRY(add(s, BN_P_ATTN_NORM, layer, NULL, BN_F32, err));
        if (c->sub_norms) BN_TRY(add(s, BN_P_ATTN_SUB_NORM, layer, NULL, BN_F32, err));
        BN_TRY(add(s, BN_P_FFN_NORM, layer, NULL, BN_F32, err));
        if (c->sub_norms) BN_TRY(add(s, BN_P_FFN_SUB_NORM, layer, NULL, BN_F32, err));
        for (enum bn_part p = BN_P_Q_NORM; p <= BN_P_K_NORM && c->qk_norm; p++)
            BN_TRY(add(s, p, layer, NULL, BN_F32, err));
        for (int i = 0; i < BN_N_PROJ; i++)
            if (bn_part_in_layer(c, BN_P_Q + i, layer))
                BN_TRY(add(s, BN_P_Q + i, layer, type, BN_F32, err));
    }
    return BITNET_OK;
}

static void fill_config(struct bn_config *c, const struct bn_shape *shape, uint32_t n_layer)
{
    *c =
        (struct bn_config){.n_vocab = shape->n_vocab,
                           .n_embd = shape->n_embd,
                           .n_ff = shape->n_ff,
                           .n_layer = n_layer ? n_layer : shape->n_layer,
                           .n_head = shape->n_head,
                           .n_head_kv = shape->n_head_kv,
                           .head_dim = shape->head_dim,
                           .n_ctx = shape->n_ctx,
                           .eps = shape->eps,
                           .act = shape->act,
                           .act_quant = shape->act_quant,
                           .tied_head = shape->tied_head,
                           .rope_theta = shape->rope_theta,
                           .rope_dim = shape->head_dim,
                           .sub_norms = strncmp(shape->arch, "bitnet", 6) == 0,
                           .qk_norm = strcmp(shape->arch, "qwen3") == 0,
                           .rope = strcmp(shape->arch, "llama") == 0 ? BN_ROPE_NORM : BN_ROPE_NEOX};
    if (shape->yarn_factor > 0) {
        c->rope_scaling = BN_RS_YARN;
        c->rope_factor = shape->yarn_factor;
        c->rope_orig_ctx = shape->yarn_ctx;
        c->rope_beta_fast = 32;
        c->rope_beta_slow = 1;
        c->rope_whole_dims = true;
        c->rope_attn = bn_rope_mscale(c->rope_factor, 1);
    }
    snprintf(c->arch, sizeof c->arch, "%s", shape->arch);
    snprintf(c->name, sizeof c->name, "synthetic %s", shape->name);
}

/* ------------------------------------------------------------------ writing */

static bitnet_status write_matrix(struct synth *s, const struct item *it, const char *name,
                                  struct bn_gguf_writer *w, bitnet_error *err)
{
    float scale = matrix_scale(it->cols, bn_type_info(it->type)->binary);
    for (uint64_t i = 0; i < it->cols; i++)
        s->scales[i] = scale; /* at most one a column is asked for */
    bool thinned = s->density.n && it->part == BN_P_GATE;
    memset(s->out, 0, (size_t)it->bytes);
    for (uint64_t r = 0; r < it->rows; r++) {
        struct bn_rng rng = row_rng(s, name, r);
        random_trits(s->row, s->trits, &rng, it->cols);
        if (thinned && !is_kept(s, name, r, s->density.rows[stretch(s, it->layer)]))
            memset(s->row, 0, (size_t)it->cols);
        bn_pack_trits(s->out, it->type, it->rows, it->cols, r, s->row, s->scales);
    }
    return bn_gguf_data(w, s->out, (size_t)it->bytes, err);
}

/* Norms are ones (or zeros, where a density asks for them), embedding and head random values. */
static bitnet_status write_dense(struct synth *s, const struct item *it, const char *name,
                                 struct bn_gguf_writer *w, struct bn_work *work, bitnet_error *err)
{
    size_t row_bytes = (size_t)(it->bytes / it->rows), n = 0;
    bool table = it->part == BN_P_EMBED || it->part == BN_P_HEAD;
    bool thinned = s->density.n && it->part == BN_P_FFN_SUB_NORM;
    for (uint64_t i = 0; i < it->cols; i++)
        s->values[i] =
            thinned && !is_kept(s, name, i, s->density.weights[stretch(s, it->layer)]) ? 0 : 1;
    for (uint64_t r = 0; r < it->rows; r++) {
        struct bn_rng rng = row_rng(s, name, r);
        if (table) random_values(s->values, &rng, it->cols, EMBED_SIGMA_MILLI / 1000.0f);
        bn_quant_row(s->out + n, it->type, s->values, it->cols);
        n += row_bytes;
        if (n + row_bytes <= DENSE_BYTES && r + 1 < it->rows) continue;
        BN_TRY(bn_gguf_data(w, s->out, n, err));
        BN_TRY(bn_work_add(work, name, n, err));
        n = 0;
    }
    return BITNET_OK;
}

static bitnet_status write_items(struct synth *s, struct bn_gguf_writer *w, struct bn_work *work,
                                 bitnet_error *err)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct item *it = &s->items[i];
        char name[BN_MAX_NAME_BYTES];
        bn_part_name(name, it->part, it->layer, true);
        if (!bn_type_info(it->type)->ternary) {
            BN_TRY(write_dense(s, it, name, w, work, err));
            continue;
        }
        BN_TRY(write_matrix(s, it, name, w, err));
        BN_TRY(bn_work_add(work, name, it->bytes, err));
    }
    return BITNET_OK;
}

static bitnet_status put_meta(const struct synth *s, struct bn_gguf_writer *w, const char *shape,
                              const char *vocab_path, bitnet_error *err)
{
    struct bn_vocab vocab;
    bn_config_put(&s->config, w);
    bn_vocab_init(&vocab);
    struct bn_buf note; /* repairs of the file it came from: not ours to tell */
    bn_buf_init(&note, 1 << 14);
    bitnet_status st = vocab_path && *vocab_path ? bn_vocab_open(&vocab, vocab_path, &note, err)
                                                 : bn_forge_vocab_bytes(&vocab, err);
    bn_buf_free(&note);
    if (st == BITNET_OK) st = bn_forge_vocab_fit(&vocab, s->config.n_vocab, shape, err);
    if (st == BITNET_OK) bn_gguf_put_vocab(w, &vocab);
    bn_vocab_free(&vocab);
    return st;
}

static void put_types(const struct synth *s, struct bn_gguf_writer *w)
{
    enum bn_type type = BN_TYPE_COUNT;
    uint32_t number;
    bool one = true;
    for (size_t i = 0; i < s->n; i++) {
        if (!bn_type_info(s->items[i].type)->ternary) continue;
        if (type == BN_TYPE_COUNT) type = s->items[i].type;
        one = one && type == s->items[i].type;
    }
    if (one && type != BN_TYPE_COUNT && bn_choice_file_type(&number, type))
        bn_gguf_put_u32(w, "general.file_type", number);
    bn_gguf_put_u32(w, "general.quantization_version", 2);
}

static bitnet_status allocate(struct synth *s, bool binary, bitnet_error *err)
{
    size_t cols = bn_align_up((size_t)s->largest_cols, 16);
    s->out_bytes = bn_max_size((size_t)s->largest_bytes, bn_max_size(DENSE_BYTES, cols * 4));
    s->trits = bn_calloc(TRIT_TABLE, sizeof *s->trits);
    s->out = bn_block_alloc(s->out_bytes);
    s->values = bn_calloc(cols, sizeof *s->values);
    s->scales = bn_calloc(cols, sizeof *s->scales);
    s->row = bn_calloc(cols, 1);
    if (!s->trits || !s->out || !s->values || !s->scales || !s->row)
        return bn_fail_nomem(err, s->out_bytes, "one tensor of the output");
    fill_trit_table(s->trits, binary ? 0 : ZERO_PERCENT);
    return BITNET_OK;
}

static bitnet_status find_shape(const struct bn_shape **out, const char *name, bitnet_error *err)
{
    *out = bn_shape_find(name);
    if (*out) return BITNET_OK;
    char list[320] = "";
    size_t n = 0;
    for (size_t i = 0; bn_shape_at(i) && n < sizeof list; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "",
                              bn_shape_at(i)->name);
    return bn_fail(err, BITNET_E_ARG, "there is no shape '%.32s'; there are: %s", name, list);
}

bitnet_status bn_synth(const char *shape_name, const char *out, const bitnet_synth_options *o,
                       bitnet_error *err)
{
    const struct bn_shape *shape;
    struct synth s = {.seed = o->seed};
    struct bn_gguf_writer w = {0};
    struct bn_choice type, head;
    BN_TRY(find_shape(&shape, shape_name, err));
    BN_TRY(bn_choice_parse(&type, o->type, true, err));
    BN_TRY(bn_choice_parse(&head, o->head_type, false, err));
    if (type.how == BN_CHOICE_KEEP || head.how == BN_CHOICE_KEEP)
        return bn_fail(err, BITNET_E_ARG, "'keep' needs an input, and a synthetic model has none");
    fill_config(&s.config, shape, o->n_layer);
    BN_TRY(bn_config_check(&s.config, shape->name, err));
    BN_TRY(bn_density_parse(&s.density, o->ffn_density, err));
    bool binary = type.how == BN_CHOICE_TYPE && bn_type_info(type.type)->binary;
    if (s.density.n && (binary || !s.config.sub_norms || s.config.act != BN_ACT_RELU2))
        return bn_fail(
            err, BITNET_E_ARG,
            "shares of zeros need ReLU^2, a norm before 'down' and ternary weights; '%s' "
            "%s",
            binary ? o->type : shape->name, binary ? "is binary" : "lacks one of them");

    bitnet_status st = plan(&s, &type, head.how == BN_CHOICE_TYPE ? head.type : BN_F16, err);
    if (st == BITNET_OK) st = allocate(&s, binary, err);
    if (st == BITNET_OK) st = bn_gguf_create(&w, out, o->overwrite != 0, err);
    if (st != BITNET_OK) goto fail;
    st = put_meta(&s, &w, shape->name, o->vocab_path, err);
    if (st != BITNET_OK) goto fail;
    put_types(&s, &w);
    for (size_t i = 0; i < s.n && st == BITNET_OK; i++) {
        const struct item *it = &s.items[i];
        char name[BN_MAX_NAME_BYTES];
        uint64_t dims[4] = {it->cols, it->rows, 1, 1};
        bn_part_name(name, it->part, it->layer, true);
        st = bn_gguf_declare(&w, name, it->type, it->rows == 1 ? 1 : 2, dims, err);
    }
    struct bn_work work = {o->progress, o->progress_user, 0, s.total_bytes};
    if (st == BITNET_OK) st = write_items(&s, &w, &work, err);
    if (st == BITNET_OK) st = bn_gguf_commit(&w, err);
fail:
    bn_gguf_discard(&w);
    free(s.items);
    free(s.trits);
    if (s.out) bn_block_free(s.out, s.out_bytes);
    free(s.values);
    free(s.scales);
    free(s.row);
    return st;
}

const char *bn_synth_shape(size_t i, const char **description)
{
    const struct bn_shape *shape = bn_shape_at(i);
    if (description) *description = shape ? shape->description : NULL;
    return shape ? shape->name : NULL;
}
