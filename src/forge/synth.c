/* SPDX-License-Identifier: Apache-2.0
 * Random models of true shapes: the right names, types and sizes with weights that mean nothing,
 * for measuring speed and memory and for tests that need no download.
 *
 *   shape --> configuration --> metadata, directory --> tensor by tensor: random words --> trits or
 *   values --> packed rows --> file
 *
 * Every row has its own random stream, given by (seed, tensor's name, row): the trits of a model
 * do not depend on the type they are stored in. */
#include "forge/synth_impl.h"

#include "base/half.h"
#include "base/map.h"
#include "base/rng.h"
#include "forge/forge.h"
#include "model/files/gguf_write.h"
#include "model/model.h"
#include "model/config/rope.h"
#include "text/tokenizer/vocab.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    TRIT_TABLE = 1 << 16,   /* 16 random bits give four trits          */
    ZERO_PERCENT = 42,      /* share of zeros in published models      */
    EMBED_SIGMA_MILLI = 20, /* spread of embeddings and heads: 0.020   */
    PIECE_BYTES = 1 << 20   /* of what is written at a time             */
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
    uint64_t total_bytes, largest_cols;
    size_t out_bytes; /* of the largest piece that is written at a time */
    uint64_t seed;
    bool hybrid;
    struct bn_density density;
    /* [TRIT_TABLE] four int8 each; 16 bits of chance in, a product distribution out */
    uint32_t *trits;
    uint8_t *out;
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
void bn_synth_values(float *out, struct bn_rng *rng, uint64_t n, float sigma)
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

/* One scale for each block of the row, around the matrix's own: blocks of published models differ, too. */
static void block_scales(struct synth *s, const char *name, uint64_t row, uint64_t n, float scale)
{
    static const float factors[8] = {0.75f, 0.8125f, 0.875f, 0.9375f, 1, 1.0625f, 1.125f, 1.25f};
    struct bn_rng rng = row_rng(s, name, row | UINT64_C(1) << 62);
    for (uint64_t i = 0; i < n; i++) {
        float v = scale * factors[bn_rng_below(&rng, 8)];
        s->scales[i] = bn_f16_to_f32(bn_f32_to_f16(v));
    }
}

/* ------------------------------------------------------------------ plan */

/* Rows that are written at a time: all, where the one scale stands behind the last. */
static uint64_t piece_rows(const struct item *it)
{
    uint64_t row_bytes = it->bytes / it->rows;
    if (bn_type_info(it->type)->scale == BN_TS_TENSOR || row_bytes == 0) return it->rows;
    return row_bytes > PIECE_BYTES ? 1 : PIECE_BYTES / row_bytes;
}

static bitnet_status add(struct synth *s, enum bn_part part, uint32_t layer, enum bn_type type,
                         bitnet_error *err)
{
    char name[BN_MAX_NAME_BYTES];
    struct item it = {.part = part, .layer = layer, .type = type};
    bn_part_shape(&s->config, part, &it.rows, &it.cols);
    bn_part_name(name, part, layer, true);
    BN_TRY(bn_choice_bytes(&it.bytes, it.type, name, it.rows, it.cols, err));
    if (!bn_grow((void **)&s->items, &s->room, s->n + 1, sizeof *s->items))
        return bn_fail_nomem(err, (s->n + 1) * sizeof *s->items, "the list of tensors");
    s->items[s->n++] = it;
    s->total_bytes += it.bytes;
    size_t piece = (size_t)(piece_rows(&it) < it.rows ? PIECE_BYTES : it.bytes);
    s->out_bytes = bn_max_size(s->out_bytes, bn_max_size(piece, (size_t)(it.bytes / it.rows)));
    if (it.cols > s->largest_cols) s->largest_cols = it.cols;
    return BITNET_OK;
}

static enum bn_type matrix_type(const struct synth *s, enum bn_part p,
                                const struct bn_choice *choice, bool float_gates)
{
    uint64_t rows, cols;
    if (float_gates && (p == BN_P_DELTA_ALPHA || p == BN_P_DELTA_BETA)) return BN_BF16;
    if (choice->how == BN_CHOICE_TYPE) return choice->type;
    bn_part_shape(&s->config, p, &rows, &cols);
    return bn_choice_auto(BN_TS_TENSOR, rows, cols);
}

static bitnet_status plan_layer(struct synth *s, uint32_t layer, const struct bn_choice *type,
                                bool float_gates, bitnet_error *err)
{
    /* norms beside what they stand before, as convert has them */
    static const enum bn_part first[] = {BN_P_ATTN_NORM, BN_P_ATTN_SUB_NORM, BN_P_FFN_NORM,
                                         BN_P_POST_NORM, BN_P_FFN_SUB_NORM};
    const struct bn_config *c = &s->config;
    for (size_t i = 0; i < BN_ARRAY_LEN(first); i++)
        if (bn_part_in_layer(c, first[i], layer)) BN_TRY(add(s, first[i], layer, BN_F32, err));
    for (enum bn_part p = BN_P_Q_NORM; p < BN_P_COUNT; p++) {
        if (!bn_part_in_layer(c, p, layer)) continue;
        bool matrix = bn_part_is_projection(p);
        BN_TRY(add(s, p, layer, matrix ? matrix_type(s, p, type, float_gates) : BN_F32, err));
    }
    return BITNET_OK;
}

static bitnet_status plan(struct synth *s, const struct bn_choice *type, enum bn_type head_type,
                          bool float_gates, bitnet_error *err)
{
    const struct bn_config *c = &s->config;
    BN_TRY(add(s, BN_P_EMBED, 0, head_type, err));
    BN_TRY(add(s, BN_P_OUT_NORM, 0, BN_F32, err));
    if (!c->tied_head) BN_TRY(add(s, BN_P_HEAD, 0, head_type, err));
    for (uint32_t layer = 0; layer < bn_config_layers(c); layer++)
        BN_TRY(plan_layer(s, layer, type, float_gates, err));
    return BITNET_OK;
}

static void fill_config(struct bn_config *c, const struct bn_shape *shape, uint32_t n_layer)
{
    *c = (struct bn_config){.n_vocab = shape->n_vocab,
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
                            .qk_pairs = strcmp(shape->arch, "llama") == 0};
    if (shape->yarn_factor > 0) {
        c->rope_scaling = BN_RS_YARN;
        c->rope_factor = shape->yarn_factor;
        c->rope_orig_ctx = shape->yarn_ctx;
        c->rope_beta_fast = 32;
        c->rope_beta_slow = 1;
        c->rope_whole_dims = true;
        c->rope_attn = bn_rope_mscale(c->rope_factor, 1);
    }
    if (shape->hybrid) bn_hybrid_config(c, shape->hybrid);
    snprintf(c->arch, sizeof c->arch, "%s", shape->arch);
    snprintf(c->name, sizeof c->name, "synthetic %s", shape->name);
}

/* ------------------------------------------------------------------ writing */

/* A row of trits at place i of the piece. */
static void make_trits(struct synth *s, const struct item *it, const char *name, uint64_t r,
                       uint64_t i)
{
    const struct bn_type_info *type = bn_type_info(it->type);
    struct bn_rng rng = row_rng(s, name, r);
    float scale = matrix_scale(it->cols, type->binary);
    random_trits(s->row, s->trits, &rng, it->cols);
    if (s->density.n && it->part == BN_P_GATE &&
        !is_kept(s, name, r, s->density.rows[stretch(s, it->layer)]))
        memset(s->row, 0, (size_t)it->cols);
    if (type->scale == BN_TS_BLOCK_F16 && s->config.act_quant == BN_AQ_F32)
        block_scales(s, name, r, it->cols / type->block, scale);
    else
        for (uint64_t k = 0; k < it->cols; k++)
            s->scales[k] = scale; /* at most one a column is asked for */
    bn_pack_trits(s->out, it->type, it->rows, it->cols, i, s->row, s->scales);
}

/* A row of floats. Norms are ones (or zeros, where a density asks for them). */
static void make_values(struct synth *s, const struct item *it, const char *name, uint64_t r)
{
    struct bn_rng rng = row_rng(s, name, r);
    if (it->part == BN_P_EMBED || it->part == BN_P_HEAD) {
        bn_synth_values(s->values, &rng, it->cols, EMBED_SIGMA_MILLI / 1000.0f);
    } else if (bn_part_is_projection(it->part)) {
        bn_synth_values(s->values, &rng, it->cols, 1.0f / sqrtf((float)it->cols));
    } else if (s->hybrid) {
        bn_hybrid_values(s->values, it->part, &rng, it->cols);
    } else {
        bool thinned = s->density.n && it->part == BN_P_FFN_SUB_NORM;
        double share = thinned ? s->density.weights[stretch(s, it->layer)] : 1;
        for (uint64_t i = 0; i < it->cols; i++)
            s->values[i] = thinned && !is_kept(s, name, i, share) ? 0 : 1;
    }
}

static bitnet_status write_item(struct synth *s, const struct item *it, struct bn_gguf_writer *w,
                                struct bn_work *work, bitnet_error *err)
{
    char name[BN_MAX_NAME_BYTES];
    bool trits = bn_type_info(it->type)->ternary;
    uint64_t piece = piece_rows(it), row_bytes = it->bytes / it->rows;
    bn_part_name(name, it->part, it->layer, true);
    for (uint64_t first = 0; first < it->rows; first += piece) {
        uint64_t n = it->rows - first < piece ? it->rows - first : piece;
        size_t bytes = (size_t)(n == it->rows ? it->bytes : n * row_bytes);
        if (trits) memset(s->out, 0, bytes);
        for (uint64_t i = 0; i < n; i++) {
            if (trits) {
                make_trits(s, it, name, first + i, i);
            } else {
                make_values(s, it, name, first + i);
                bn_quant_row(s->out + i * row_bytes, it->type, s->values, it->cols);
            }
        }
        BN_TRY(bn_gguf_data(w, s->out, bytes, err));
        BN_TRY(bn_work_add(work, name, bytes, err));
    }
    return BITNET_OK;
}

static bitnet_status put_meta(const struct synth *s, struct bn_gguf_writer *w, const char *shape,
                              const char *vocab_path, bitnet_error *err)
{
    struct bn_vocab vocab;
    bn_config_put(&s->config, w);
    bn_hybrid_put_rotation(&s->config, row_rng(s, "prism.hadamard.sign_values", 0), w);
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
    char list[400] = "";
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
    s.hybrid = shape->hybrid != NULL;
    if (o->mtp && !s.hybrid)
        return bn_fail(err, BITNET_E_ARG, "models of the kind of '%s' have no layer that drafts",
                       shape->name);
    if (o->mtp) s.config.n_mtp = 1;
    if (s.hybrid && type.how == BN_CHOICE_AUTO)
        type = (struct bn_choice){BN_CHOICE_TYPE, shape->hybrid->type};
    enum bn_type head_type = s.hybrid ? type.type : BN_F16;
    if (head.how == BN_CHOICE_TYPE) head_type = head.type;
    BN_TRY(bn_config_check(&s.config, shape->name, err));
    BN_TRY(bn_density_parse(&s.density, o->ffn_density, err));
    bool binary = type.how == BN_CHOICE_TYPE && bn_type_info(type.type)->binary;
    if (s.density.n && (binary || !s.config.sub_norms || s.config.act != BN_ACT_RELU2))
        return bn_fail(
            err, BITNET_E_ARG,
            "shares of zeros need ReLU^2, a norm before 'down' and ternary weights; '%s' "
            "%s",
            binary ? o->type : shape->name, binary ? "is binary" : "lacks one of them");

    bitnet_status st = plan(&s, &type, head_type, s.hybrid && shape->hybrid->float_gates, err);
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
    for (size_t i = 0; i < s.n && st == BITNET_OK; i++)
        st = write_item(&s, &s.items[i], &w, &work, err);
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
