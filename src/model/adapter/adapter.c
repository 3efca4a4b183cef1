/* SPDX-License-Identifier: Apache-2.0
 * From files to an adapter in memory. Every tensor of the file must be one that is used: first all of
 * them are found and their shapes looked at, then one block is taken and filled. */
#include "model/adapter/adapter.h"

#include "base/os/file.h"
#include "base/os/mem.h"
#include "model/config/order.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* One matrix of the model, and the tensors beside it in the file. */
struct pair {
    struct bn_low_rank *to;
    enum bn_part part;
    const struct bn_tensor *a, *b;
};

struct reader {
    const struct bn_model *m;
    struct bitnet_adapter *adapter;
    struct bn_source source;
    struct bn_peft *peft;    /* NULL: a GGUF */
    float alpha;             /* of a GGUF */
    struct bn_config config; /* with the order of the file */
    bool out_tiled;          /* the file's columns of a delta net's output are */
    uint8_t *claimed;        /* [n_tensors] */
    struct pair *pairs;
    size_t n_pairs;
    bitnet_error *err;
};

#if !BN_HAVE_TEXT /* in the place of adapter_peft.c, which needs JSON */
bitnet_status bn_peft_open(struct bn_peft **out, const char *folder, bitnet_error *err)
{
    *out = NULL;
    return bn_fail(err, BITNET_E_UNSUPPORTED,
                   "'%s' is a folder, and this build was made without JSON: use a GGUF adapter",
                   folder);
}

void bn_peft_close(struct bn_peft *p) { (void)p; }

bitnet_status bn_peft_module(const struct bn_peft *p, const char *module, uint32_t *rank,
                             float *scale, bitnet_error *err)
{
    (void)p, (void)module, (void)rank, (void)scale, (void)err;
    return BITNET_E_INTERNAL; /* there is no p */
}
#endif

/* ------------------------------------------------------------------ what the file says */

static const char *model_name(const struct bn_model *m)
{
    return m->config.name[0] ? m->config.name : m->config.arch;
}

static bool meta_is(const struct bn_source *s, const char *key, const char *want)
{
    const char *text;
    size_t n;
    return bn_meta_str(s, key, &text, &n) && n == strlen(want) && memcmp(text, want, n) == 0;
}

static bitnet_status check_gguf(struct reader *r)
{
    const struct bn_source *s = &r->source;
    const char *text = "", *arch = r->m->config.arch;
    size_t n = 0;
    if (!meta_is(s, "general.type", "adapter"))
        return bn_fail(r->err, BITNET_E_FORMAT,
                       "'%s' is a GGUF, but no adapter: its general.type is not 'adapter'",
                       s->path);
    if (!meta_is(s, "adapter.type", "lora")) {
        bn_meta_str(s, "adapter.type", &text, &n);
        return bn_fail(r->err, BITNET_E_UNSUPPORTED,
                       "'%s': adapter.type '%.*s' is not supported; lora is", s->path, (int)n,
                       text);
    }
    if (!meta_is(s, "general.architecture", arch)) {
        bn_meta_str(s, "general.architecture", &text, &n);
        return bn_fail(r->err, BITNET_E_FORMAT,
                       "'%s' is an adapter for architecture '%.*s'; this model has '%s'", s->path,
                       (int)n, text, arch);
    }
    if (bn_meta_find(s, "adapter.alora.invocation_tokens"))
        return bn_fail(r->err, BITNET_E_UNSUPPORTED,
                       "'%s': activated LoRA (adapter.alora.invocation_tokens) is not supported",
                       s->path);
    if (!bn_meta_f32(s, "adapter.lora.alpha", &r->alpha) || !isfinite(r->alpha))
        return bn_fail(r->err, BITNET_E_FORMAT, "'%s': adapter.lora.alpha is missing or no number",
                       s->path);
    return BITNET_OK;
}

/* A name inside a folder. (free) */
static char *inside(const char *folder, const char *name)
{
    size_t n = strlen(folder) + strlen(name) + 2;
    char *path = bn_calloc(n, 1);
    if (path) snprintf(path, n, "%s/%s", folder, name);
    return path;
}

static bitnet_status open_peft(struct reader *r, const char *folder)
{
    char *config = inside(folder, "adapter_config.json");
    char *tensors = inside(folder, "adapter_model.safetensors");
    char *pickle = inside(folder, "adapter_model.bin");
    bitnet_status s = BITNET_OK;
    if (!config || !tensors || !pickle) s = bn_fail_nomem(r->err, strlen(folder), "a path");
    else if (!bn_exists(config))
        s = bn_fail(r->err, BITNET_E_FORMAT, "'%s' is no adapter: it has no adapter_config.json",
                    folder);
    else if (!bn_exists(tensors) && bn_exists(pickle))
        s = bn_fail(r->err, BITNET_E_UNSUPPORTED,
                    "'%s' is a pickle, which is not read: save the adapter as safetensors", pickle);
    if (s == BITNET_OK) s = bn_peft_open(&r->peft, folder, r->err);
    if (s == BITNET_OK) s = bn_source_open_to_read(&r->source, tensors, BN_I2S_AUTO, r->err);
    free(config);
    free(tensors);
    free(pickle);
    return s;
}

static bitnet_status open_file(struct reader *r, const char *path)
{
    const struct bn_config *c = &r->m->config;
    bool folder = bn_is_folder(path);
    if (folder) BN_TRY(open_peft(r, path));
    else BN_TRY(bn_source_open_to_read(&r->source, path, BN_I2S_AUTO, r->err));
    if (!folder && !r->source.is_gguf)
        return bn_fail(r->err, BITNET_E_FORMAT,
                       "'%s' is no GGUF adapter; of a PEFT adapter name the folder", path);
    if (!folder) BN_TRY(check_gguf(r));
    r->config = folder ? *c : bn_config_as_gguf(c);
    if (folder) r->config.qk_pairs = r->config.v_tiled = false;
    r->out_tiled = r->config.v_tiled && !(c->hadamard.block && c->hadamard.v_grouped);
    r->adapter->format = folder ? "PEFT" : "GGUF";
    r->claimed = bn_calloc(r->source.n_tensors + 1, 1);
    r->pairs = bn_calloc((size_t)c->n_layer * BN_N_PROJ + 2, sizeof *r->pairs);
    if (!r->claimed || !r->pairs)
        return bn_fail_nomem(r->err, (size_t)c->n_layer * BN_N_PROJ * sizeof *r->pairs, path);
    return BITNET_OK;
}

/* ------------------------------------------------------------------ tensors to matrices */

/* Claims a tensor, if it is there. */
static const struct bn_tensor *claim(struct reader *r, const char *name)
{
    const struct bn_tensor *t = bn_source_tensor(&r->source, name);
    if (t) r->claimed[t - r->source.tensors] = 1;
    return t;
}

/* The name of a part's module: without ".weight". */
static void module_name(char out[BN_MAX_NAME_BYTES], const struct reader *r, enum bn_part p,
                        uint32_t il)
{
    bn_part_name(out, p, il, !r->peft);
    out[strlen(out) - strlen(".weight")] = 0;
}

/* A tensor beside a module. In a checkpoint with a vision tower the language model is one level deeper. */
static const struct bn_tensor *find_beside(struct reader *r, const char *module, const char *suffix)
{
    static const char outer[] = "model.", base[] = "base_model.model.";
    char name[BN_MAX_NAME_BYTES + 64];
    snprintf(name, sizeof name, "%s%s%s", r->peft ? base : "", module, suffix);
    const struct bn_tensor *t = claim(r, name);
    if (t || !r->peft || strncmp(module, outer, strlen(outer)) != 0) return t;
    snprintf(name, sizeof name, "%smodel.language_model.%s%s", base, module + strlen(outer),
             suffix);
    return claim(r, name);
}

static bitnet_status fail_shape(const struct reader *r, const struct bn_tensor *t, uint64_t rows,
                                uint64_t cols)
{
    struct bn_stored st = bn_tensor_stored(t);
    return bn_fail(r->err, BITNET_E_FORMAT,
                   "adapter '%s': tensor '%s' is %llu x %llu; %llu x %llu was expected for %s",
                   r->adapter->path, t->name, (unsigned long long)st.rows,
                   (unsigned long long)st.cols, (unsigned long long)rows, (unsigned long long)cols,
                   model_name(r->m));
}

static bitnet_status check_shape(const struct reader *r, const struct bn_tensor *t, uint64_t rows,
                                 uint64_t cols)
{
    struct bn_stored st = bn_tensor_stored(t);
    if (st.rows != rows || st.cols != cols || t->n_dims > 2) return fail_shape(r, t, rows, cols);
    if (t->type > BN_Q4_K || t->packed)
        return bn_fail(r->err, BITNET_E_UNSUPPORTED,
                       "adapter '%s': tensor '%s' has type %s; F32, F16 and BF16 are usual",
                       r->adapter->path, t->name, bn_type_info(t->type)->name);
    return BITNET_OK;
}

/* Base weights that PEFT has saved along with the pair of an embedding or head: those of the model, if
 * they have its shape. */
static bitnet_status pass_base(struct reader *r, const char *module, enum bn_part p)
{
    uint64_t rows, cols;
    const struct bn_tensor *t = find_beside(r, module, ".base_layer.weight");
    if (!t) return BITNET_OK;
    bn_part_shape(&r->m->config, p, &rows, &cols);
    return check_shape(r, t, rows, cols);
}

/* How the embedding's tensors are called, and those of a matrix. */
static const char *suffix_of(const struct reader *r, enum bn_part p, bool b)
{
    if (!r->peft) return b ? ".weight.lora_b" : ".weight.lora_a";
    if (p == BN_P_EMBED) return b ? ".lora_embedding_B" : ".lora_embedding_A";
    return b ? ".lora_B.weight" : ".lora_A.weight";
}

static bitnet_status check_pair(struct reader *r, const struct pair *x, const char *module)
{
    uint64_t rows, cols, rank;
    bn_part_shape(&r->m->config, x->part, &rows, &cols);
    bool table = x->part == BN_P_EMBED;
    uint64_t in = table ? rows : cols, out = table ? cols : rows;
    if (r->peft) {
        BN_TRY(bn_peft_module(r->peft, module, &x->to->rank, &x->to->scale, r->err));
        rank = x->to->rank;
    } else {
        rank = x->b->dims[0];
        if (rank < 1 || rank > BN_ADAPTER_MAX_RANK)
            return bn_fail(r->err, BITNET_E_LIMIT,
                           "adapter '%s': tensor '%s' has rank %llu; 1 to %d are possible",
                           r->adapter->path, x->b->name, (unsigned long long)rank,
                           BN_ADAPTER_MAX_RANK);
        x->to->rank = (uint32_t)rank;
        x->to->scale = r->alpha != 0 ? r->alpha / (float)rank : 1;
    }
    bool a_turned = table && !r->peft;
    BN_TRY(check_shape(r, x->a, a_turned ? in : rank, a_turned ? rank : in));
    return check_shape(r, x->b, out, rank);
}

static bitnet_status bind(struct reader *r, struct bn_low_rank *to, enum bn_part p, uint32_t il)
{
    char module[BN_MAX_NAME_BYTES];
    struct pair x = {.to = to, .part = p};
    module_name(module, r, p, il);
    x.a = find_beside(r, module, suffix_of(r, p, false));
    x.b = find_beside(r, module, suffix_of(r, p, true));
    if (r->peft && (p == BN_P_EMBED || p == BN_P_HEAD)) BN_TRY(pass_base(r, module, p));
    if (!x.a && !x.b) return BITNET_OK;
    if (!x.a || !x.b)
        return bn_fail(r->err, BITNET_E_FORMAT, "adapter '%s': tensor '%s' has no counterpart %s",
                       r->adapter->path, x.a ? x.a->name : x.b->name, suffix_of(r, p, x.a != NULL));
    BN_TRY(check_pair(r, &x, module));
    r->pairs[r->n_pairs++] = x;
    return BITNET_OK;
}

static bitnet_status bind_all(struct reader *r)
{
    const struct bn_config *c = &r->m->config;
    struct bitnet_adapter *a = r->adapter;
    for (uint32_t il = 0; il < c->n_layer; il++)
        for (enum bn_part p = BN_P_Q; p < BN_P_COUNT; p++)
            if (bn_part_in_layer(c, p, il))
                BN_TRY(bind(r, &a->parts[(size_t)il * BN_N_PROJ + (p - BN_P_Q)], p, il));
    BN_TRY(bind(r, &a->embed, BN_P_EMBED, 0));
    BN_TRY(bind(r, &a->head, BN_P_HEAD, 0));
    for (size_t i = 0; i < r->source.n_tensors; i++) {
        const char *name = r->source.tensors[i].name;
        if (r->claimed[i]) continue;
        if (strstr(name, "lora_magnitude_vector"))
            return bn_fail(r->err, BITNET_E_UNSUPPORTED,
                           "adapter '%s': tensor '%s' is DoRA's, which is not supported", a->path,
                           name);
        return bn_fail(r->err, BITNET_E_FORMAT,
                       "adapter '%s': tensor '%s' belongs to no matrix of %s", a->path, name,
                       model_name(r->m));
    }
    if (r->n_pairs) return BITNET_OK;
    return bn_fail(r->err, BITNET_E_FORMAT, "adapter '%s' holds no tensors", a->path);
}

/* ------------------------------------------------------------------ into memory */

/* 16-bit floats stay as they are, all else becomes 32-bit ones. */
static enum bn_type type_of(const struct bn_tensor *t)
{
    return t->type == BN_F16 || t->type == BN_BF16 ? t->type : BN_F32;
}

static struct bn_stored piece(struct bn_plan *plan, enum bn_type type, uint64_t rows, uint64_t cols)
{
    size_t size = bn_type_info(type)->block_bytes;
    return (struct bn_stored){.type = type,
                              .data = bn_plan_piece(plan, (size_t)(rows * cols), size),
                              .bytes = rows * cols * size,
                              .rows = rows,
                              .cols = cols,
                              .hf_scale = 1};
}

static void lay_out(const struct reader *r, struct bn_plan *plan)
{
    uint64_t rows, cols;
    for (size_t i = 0; i < r->n_pairs; i++) {
        const struct pair *x = &r->pairs[i];
        struct bn_low_rank *to = x->to;
        bn_part_shape(&r->m->config, x->part, &rows, &cols);
        bool table = x->part == BN_P_EMBED;
        to->a = piece(plan, type_of(x->a), table ? rows : to->rank, table ? to->rank : cols);
        to->b = piece(plan, type_of(x->b), to->rank, table ? cols : rows);
    }
}

/* All of a tensor as floats. (free) */
static bitnet_status read_floats(float **out, const struct reader *r, const struct bn_tensor *t)
{
    struct bn_stored st = bn_tensor_stored(t);
    BN_TRY(bn_source_fetch(&r->source, t, r->err));
    float *x = *out = bn_calloc((size_t)st.rows, (size_t)st.cols * sizeof *x);
    if (!x) return bn_fail_nomem(r->err, (size_t)(st.rows * st.cols) * sizeof *x, t->name);
    for (uint64_t i = 0; i < st.rows; i++) bn_dequant_row(x + i * st.cols, &st, i);
    for (uint64_t i = 0; i < st.rows * st.cols; i++)
        if (!isfinite(x[i]))
            return bn_fail(r->err, BITNET_E_FORMAT,
                           "adapter '%s': tensor '%s' holds a value that is not finite",
                           r->adapter->path, t->name);
    bn_source_release(&r->source, t);
    return BITNET_OK;
}

/* Where the columns of a matrix's A are to stand. */
static struct bn_order_cols cols_of(const struct reader *r, enum bn_part p)
{
    struct bn_order_cols o = {.delta = r->config.delta, .tile = r->m->delta_out_tiled};
    if (p == BN_P_DELTA_OUT && r->out_tiled != r->m->delta_out_tiled) o.width = o.delta.v_dim;
    return o;
}

/* Row i and column j of `to`: element [i][j] of the tensor, or [j][i] where it is to be turned. */
static bitnet_status fill(const struct reader *r, const struct pair *x, bool b)
{
    struct bn_stored *to = b ? &x->to->b : &x->to->a;
    const struct bn_tensor *t = b ? x->b : x->a;
    const struct bn_order_cols order = cols_of(r, x->part);
    size_t rows = (size_t)to->rows, cols = (size_t)to->cols, n = (size_t)t->dims[0];
    bool turned = b || (x->part == BN_P_EMBED && r->peft);
    float *from = NULL, *row = bn_calloc(cols, sizeof *row);
    bitnet_status s = row ? read_floats(&from, r, t) : bn_fail_nomem(r->err, cols * 4, t->name);
    size_t row_bytes = cols * bn_type_info(to->type)->block_bytes;
    for (size_t i = 0; s == BITNET_OK && i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            size_t at = b ? (size_t)bn_order_row(&r->config, x->part, j) : bn_order_col(&order, j);
            row[j] = turned ? from[at * n + i] : from[i * n + at];
        }
        bn_quant_row((uint8_t *)to->data + i * row_bytes, to->type, row, cols);
    }
    free(from);
    free(row);
    return s;
}

static void count(struct bitnet_adapter *a, const struct pair *x)
{
    uint64_t bytes = x->to->a.bytes + x->to->b.bytes;
    a->n_matrices++;
    a->n_params += x->to->a.rows * x->to->a.cols + x->to->b.rows * x->to->b.cols;
    a->bytes += bytes;
    if (x->part == BN_P_HEAD) a->head_bytes += bytes;
    if (bn_part_is_projection(x->part)) a->layer_bytes += bytes;
    if (x->to->rank > a->rank_max) a->rank_max = x->to->rank;
}

static bitnet_status take_all(struct reader *r)
{
    struct bitnet_adapter *a = r->adapter;
    struct bn_plan plan = {0};
    lay_out(r, &plan);
    if (plan.used > BN_ADAPTER_MAX_BYTES)
        return bn_fail(r->err, BITNET_E_LIMIT,
                       "adapter '%s' takes %zu bytes; at most %llu are possible", a->path,
                       plan.used, (unsigned long long)BN_ADAPTER_MAX_BYTES);
    a->block_bytes = plan.used;
    a->block = bn_block_alloc(a->block_bytes);
    if (!a->block) {
        a->block_bytes = 0;
        return bn_fail_nomem(r->err, plan.used, "an adapter");
    }
    plan = (struct bn_plan){.base = a->block};
    lay_out(r, &plan);
    for (size_t i = 0; i < r->n_pairs; i++) {
        BN_TRY(fill(r, &r->pairs[i], false));
        BN_TRY(fill(r, &r->pairs[i], true));
        count(a, &r->pairs[i]);
    }
    return bn_source_fetch_end(&r->source, r->err);
}

/* ------------------------------------------------------------------ life */

static void free_adapter(struct bitnet_adapter *a)
{
    bn_block_free(a->block, a->block_bytes);
    free(a->parts);
    free(a->path);
    free(a);
}

bitnet_status bn_adapter_read(struct bitnet_adapter **out, const struct bn_model *m,
                              const char *path, bitnet_error *err)
{
    *out = NULL;
    struct bitnet_adapter *a = bn_calloc(1, sizeof *a);
    if (!a) return bn_fail_nomem(err, sizeof *a, "an adapter");
    struct reader r = {.m = m, .adapter = a, .err = err};
    a->m = m;
    atomic_init(&a->holders, 1);
    a->path = strdup(path);
    a->parts = bn_calloc((size_t)m->config.n_layer * BN_N_PROJ, sizeof *a->parts);
    bitnet_status s = BITNET_OK;
    if (!a->path || !a->parts)
        s = bn_fail_nomem(err, (size_t)m->config.n_layer * BN_N_PROJ * sizeof *a->parts, path);
    if (s == BITNET_OK) s = open_file(&r, path);
    if (s == BITNET_OK) s = bind_all(&r);
    if (s == BITNET_OK) s = take_all(&r);
    free(r.pairs);
    free(r.claimed);
    bn_source_close(&r.source);
    bn_peft_close(r.peft);
    if (s != BITNET_OK) free_adapter(a);
    else *out = a;
    return s;
}

bitnet_status bn_adapter_open(struct bitnet_adapter **out, const struct bn_model *m,
                              const char *path, bitnet_error *err)
{
    *out = NULL;
    if (!m->layers)
        return bn_fail(err, BITNET_E_STATE, "the model was opened for its vocabulary only");
    if (m->dist)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "adapters are for models in one process, not split over ranks");
    BN_TRY(bn_adapter_read(out, m, path, err));
    (*out)->serial = 1 + atomic_fetch_add(m->n_adapters, 1);
    return BITNET_OK;
}

void bn_adapter_hold(const struct bitnet_adapter *a)
{
    atomic_fetch_add(&((struct bitnet_adapter *)a)->holders, 1);
}

void bn_adapter_let_go(const struct bitnet_adapter *a)
{
    if (a && atomic_fetch_sub(&((struct bitnet_adapter *)a)->holders, 1) == 1)
        free_adapter((struct bitnet_adapter *)a);
}
