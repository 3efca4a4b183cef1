/* SPDX-License-Identifier: Apache-2.0
 * Opening a model: file, configuration, tokenizer, weights, in this order, so that what is cheap to
 * refuse is refused first. bn_model_close takes half-built models. */
#include "model/image/cache.h"
#include "model/ffn/ffn.h"
#include "model/head/head.h"
#include "model/savings.h"

#include "base/threads/bandwidth.h"
#include "base/switch.h"
#include "base/clock.h"
#include "base/machine/cpu.h"
#include "base/os/mem.h"
#include <stdlib.h>

enum {
    MAX_NOTE_BYTES = 4096,
    T3_THREADS = 2 /* from so many on, "auto" may be t3 */
};

bool bn_i2s_layout_parse(enum bn_i2s_layout *out, const char *name)
{
    static const char *const names[] = {"auto", "128", "64", "rows4"};
    *out = BN_I2S_AUTO;
    if (!name) return true;
    for (size_t i = 0; i < BN_ARRAY_LEN(names); i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum bn_i2s_layout)i;
            return true;
        }
    return false;
}

bitnet_status bn_choose_kernels(struct bn_kernels *out, const char *backend, bitnet_error *err)
{
    uint32_t have = bn_cpu_detect(), features = have;
    if (!bn_cpu_narrow(&features, backend))
        return bn_fail(err, BITNET_E_ARG,
                       "backend '%s' is unknown; 'auto' and 'scalar' exist everywhere", backend);
    uint32_t needs = 0;
    for (size_t i = 0; backend && bn_cpu_backend(i, &needs); i++)
        if (strcmp(backend, bn_cpu_backend(i, &needs)) == 0 && (have & needs) != needs)
            return bn_fail(err, BITNET_E_UNSUPPORTED, "this CPU cannot run the backend '%s'",
                           backend);
    *out = bn_kernels_select(features);
    size_t bytes = bn_kernels_self_test_bytes(out);
    void *memory = bn_block_alloc(bytes);
    if (!memory) return bn_fail_nomem(err, bytes, "the check of the kernels");
    bitnet_status s = bn_kernels_self_test(out, memory, err);
    bn_block_free(memory, bytes);
    return s;
}

/* Models that were trained with floats take 16-bit integers by default: docs/inside/numerics.md has what that
 * changes. int8 is what a model was trained with, or in groups. */
static bitnet_status choose_activations(struct bn_model *m, const char *name, bitnet_error *err)
{
    enum bn_act_quant *a = &m->activations;
    bool by_default = !name || strcmp(name, "auto") == 0;
    bool floats = m->config.act_quant == BN_AQ_F32;
    *a = m->config.act_quant;
    m->activations_given = !by_default;
    if (by_default && !floats) return BITNET_OK;
    if (by_default || strcmp(name, "int16") == 0) *a = BN_AQ_INT16_GROUPS;
    else if (strcmp(name, "int8") == 0) *a = floats ? BN_AQ_INT8_GROUPS : BN_AQ_INT8;
    else if (strcmp(name, "f32") == 0) *a = BN_AQ_F32;
    else
        return bn_fail(err, BITNET_E_ARG,
                       "activations '%s' are unknown; auto, int16, int8 and f32 exist", name);
    if (by_default)
        bn_buf_printf(&m->note,
                      "%sThis model was trained with float activations: its linear layers take "
                      "them as int16, which changes next to nothing (--activations f32: not at "
                      "all, and slower; int8: faster, and less exact).",
                      m->note.len ? " " : "");
    return BITNET_OK;
}

/* what the layers' matrices take at two bits a weight */
static uint64_t t2_bytes(const struct bn_config *c)
{
    uint64_t weights = 0;
    for (uint32_t i = 0; i < bn_config_layers(c); i++)
        for (enum bn_part p = BN_P_Q; p < BN_P_COUNT; p++) {
            uint64_t rows, cols;
            if (!bn_part_in_layer(c, p, i)) continue;
            bn_part_shape(c, p, &rows, &cols);
            weights += rows * cols;
        }
    return weights / 4;
}

const struct bn_gemm *bn_layout_auto(const struct bn_kernels *k, enum bn_act_quant act,
                                     uint64_t bytes, uint32_t threads)
{
    size_t planes = bn_act_planes(act);
    if (planes && k->gemm_g5->frugal) return k->gemm_g5;
    if (planes && k->gemm_g2 != &bn_gemm_g2_c)
        return planes == 1 && k->gemm_g3->frugal && threads >= T3_THREADS ? k->gemm_g3 : k->gemm_g2;
    if (act != BN_AQ_INT8 || bytes <= bn_last_cache_bytes()) return k->gemm_t2;
    if (k->gemm_t5->frugal) return k->gemm_t5;
    return k->gemm_t3->frugal && threads >= T3_THREADS ? k->gemm_t3 : k->gemm_t2;
}

/* Binary matrices are in "b1" where it has a kernel for this CPU: half the bytes, and fewer
 * instructions. A matrix that the choice cannot hold is in "t2". */
static bitnet_status choose_layout(struct bn_model *m, const char *name, uint32_t threads,
                                   bitnet_error *err)
{
    const struct bn_kernels *k = &m->kernels;
    const struct bn_gemm *all[] = {k->gemm_t2, k->gemm_t3, k->gemm_t5, k->gemm_b1,
                                   k->gemm_g2, k->gemm_g3, k->gemm_g5};
    for (size_t i = 0; name && i < BN_ARRAY_LEN(all); i++)
        if (strcmp(name, all[i]->layout) == 0) {
            m->gemm = m->gemm_binary = all[i];
            return BITNET_OK;
        }
    if (name && strcmp(name, "auto") != 0)
        return bn_fail(err, BITNET_E_ARG,
                       "layout '%s' is unknown; auto, t2, t3, t5, b1, g2, g3 and g5 exist", name);
    m->gemm = bn_layout_auto(k, m->activations, t2_bytes(&m->config), threads);
    m->gemm_binary = k->gemm_b1 != &bn_gemm_b1_c ? k->gemm_b1 : k->gemm_t2;
    return BITNET_OK;
}

/* The tokenizer of the opened file, or, with vocab_only, of a path that need not be a model. */
static bitnet_status open_tokenizer(struct bn_model *m, const char *path, bool vocab_only,
                                    bitnet_error *err)
{
#if BN_HAVE_TEXT
    struct bn_vocab v;
    bool found = true;
    bn_vocab_init(&v);
    bitnet_status s = vocab_only ? bn_vocab_open(&v, path, &m->note, err)
                                 : bn_source_vocab(&v, &found, &m->source, &m->note, err);
    if (s == BITNET_OK && found) s = bn_tokenizer_open(&m->tokenizer, &v, err);
    bn_vocab_free(&v);
    return s;
#else
    (void)m;
    (void)path;
    if (!vocab_only) return BITNET_OK;
    return bn_fail(err, BITNET_E_UNSUPPORTED, "this library was built without tokenizers");
#endif
}

static bitnet_status open_numa(struct bn_model *m, enum bn_numa_mode mode,
                               const struct bn_numa_pretend *pretend, bitnet_error *err)
{
    BN_TRY(bn_numa_open(&m->numa, mode, pretend, err));
    if (!m->numa || bn_numa_machine_nodes(m->numa) > 1) return BITNET_OK;
    bn_numa_close(m->numa);
    m->numa = NULL;
    bn_buf_printf(&m->note, "%snuma '%s' changes nothing: all usable CPUs and memory are one node.",
                  m->note.len ? " " : "", bn_numa_mode_name(mode));
    return BITNET_OK;
}

/* Where workers sit when weights are packed, they sit when they are read. */
static bitnet_status open_pool(struct bn_pool **out, struct bn_model *m, uint32_t threads,
                               bitnet_error *err)
{
    BN_TRY(bn_pool_open(out, threads ? threads : bn_numa_threads(m->numa), err));
    if (m->numa) bn_pool_place(*out, m->numa);
    m->n_nodes = 1 + bn_pool_node(*out, bn_pool_threads(*out) - 1);
    return BITNET_OK;
}

/* Packed weights that are there already: in the file itself, or in the cache. */
static bitnet_status find_image(struct bn_model *m, const bitnet_model_options *o,
                                bitnet_error *err)
{
    struct bn_image *i = &m->image;
    const struct bn_tensor *t = bn_source_tensor(&m->source, BN_IMAGE_TENSOR);
    if (!t) return bn_cache_look(m, o, err);
    /* mapped once more: the source's own mapping may be detached */
    i->file_at = t->offset;
    i->path = strdup(m->source.path);
    i->view = bn_calloc(1, sizeof *i->view);
    if (!i->path || !i->view) return bn_fail_nomem(err, sizeof *i->view, "a packed file");
    BN_TRY(bn_image_map(&i->map, i->path, err));
    if (i->map.bytes < t->offset + t->bytes)
        return bn_fail(err, BITNET_E_IO, "'%s' has changed while it was read", i->path);
    return bn_image_look(i->view, i->map.data + t->offset, (size_t)t->bytes, i->path, err);
}

static bitnet_status load_image(struct bn_model *m, const bitnet_model_options *o,
                                struct bn_pool *pool, enum bn_head_mode head, enum bn_ffn_mode ffn,
                                bitnet_error *err)
{
    BN_TRY(bn_image_load(m, pool, head, ffn, err));
    if (o->verify) BN_TRY(bn_image_verify(m, pool, err));
    return bn_image_repack(m, pool, o->layout, err);
}

/* An entry of the cache that cannot be used is no reason to fail: as if it had not been there. */
static void forget_image(struct bn_model *m)
{
    bn_head_copy_free(m);
    bn_weights_free(m);
    bn_image_close(m);
    m->embed = m->head = (struct bn_matrix){0};
    m->n_params = m->n_params_ternary = m->packed_bytes = m->mtp_bytes = m->ffn_bytes = 0;
    m->head_packed_bytes = 0;
    m->weight_type = m->layout = NULL;
    m->slab.how = &m->backing;
    bn_buf_printf(&m->note, "%sThe packed copy of this model is damaged; it was packed anew.",
                  m->note.len ? " " : "");
}

/* What the weights themselves become; copies of some of them are made of that. */
static bitnet_status load_weights(struct bn_model *m, const bitnet_model_options *o,
                                  struct bn_pool *pool, enum bn_head_mode head,
                                  enum bn_ffn_mode ffn, bitnet_error *err)
{
    if (!m->dist) BN_TRY(find_image(m, o, err));
    if (m->image.view) {
        bitnet_status s = load_image(m, o, pool, head, ffn, err);
        if (s != BITNET_E_FORMAT || !m->image.entry) BN_TRY(s);
        else forget_image(m);
    }
    if (!m->image.view) BN_TRY(bn_weights_load(m, pool, o->progress, o->progress_user, err));
    uint64_t before = m->ffn_bytes + m->head_copy_bytes;
    BN_TRY(bn_ffn_copy_make(m, pool, ffn, err));
    BN_TRY(bn_head_copy_make(m, pool, head, err));
    m->image.lacked = m->ffn_bytes + m->head_copy_bytes > before;
    return bn_replicas_make(m, pool, err);
}

/* A plan that came with the file and does not fit it is no reason not to run the model: the file may
 * have been converted since, or be of a later version. */
static bitnet_status leave_plan_aside(struct bn_model *m, bitnet_status why,
                                      const bitnet_error *err)
{
    if (why == BITNET_OK || why == BITNET_E_NOMEM) return why;
    bn_buf_printf(&m->note, "%sThe plan in the model's file is left aside: %s.",
                  m->note.len ? " " : "", err->text);
    free(m->savings);
    m->savings = NULL;
    return BITNET_OK;
}

static bitnet_status open_plan(struct bn_model *m, const char *plan, bitnet_error *err)
{
    bitnet_error why = {0};
    if (plan) return bn_savings_open(&m->savings, m, plan, err);
    bitnet_status s = leave_plan_aside(m, bn_savings_open(&m->savings, m, NULL, &why), &why);
    return s == BITNET_OK ? s : bn_fail(err, s, "%s", why.text);
}

/* Once the weights are there: is it for this model? */
static bitnet_status settle_plan(struct bn_model *m, bitnet_error *err)
{
    char text[160];
    bitnet_error why = {0};
    if (!m->savings) return BITNET_OK;
    bitnet_status s = bn_savings_check(m->savings, m, &why);
    if (s != BITNET_OK && m->savings->baked) return leave_plan_aside(m, s, &why);
    if (s != BITNET_OK) return bn_fail(err, s, "%s", why.text);
    bn_savings_describe(text, sizeof text, m->savings, m);
    bn_buf_printf(&m->note, "%sThe plan %s is on and saves: %s%s.", m->note.len ? " " : "",
                  m->savings->baked ? "in the model's file" : "that was given", text,
                  m->savings->baked ? " (--plan off: without)" : "");
    return BITNET_OK;
}

static bitnet_status open_weights(struct bn_model *m, const bitnet_model_options *o,
                                  enum bn_head_mode head, enum bn_ffn_mode ffn, bitnet_error *err)
{
    BN_TRY(bn_config_read(&m->config, &m->source, &m->note, err));
    BN_TRY(bn_parts_choose(m, err));
    if (m->dist) ffn = BN_FFN_DENSE; /* lists are of all channels */
    BN_TRY(choose_activations(m, o->activations, err));
    BN_TRY(open_plan(m, o->plan, err));
    head = bn_savings_head(m->savings, head);
    struct bn_pool *pool;
    BN_TRY(open_pool(&pool, m, o->threads, err));
    bitnet_status s = choose_layout(m, o->layout, bn_pool_threads(pool), err);
    if (s == BITNET_OK) s = load_weights(m, o, pool, head, ffn, err);
    if (s == BITNET_OK) m->near_bytes = bn_place_near(m, pool);
    bn_pool_close(pool);
    if (s == BITNET_OK) s = bn_model_checksum(&m->checksum, m, err);
    if (s == BITNET_OK) s = settle_plan(m, err);
    if (s == BITNET_OK) s = bn_source_fetch_end(&m->source, err);
    if (s == BITNET_OK) s = bn_memory_settle(m, err);
    if (s != BITNET_OK) return s;
#if BN_HAVE_TEXT
    if (m->tokenizer && bn_tokenizer_vocab(m->tokenizer)->n_tokens > m->config.n_vocab)
        return bn_fail(err, BITNET_E_FORMAT,
                       "'%s': the tokenizer knows %u tokens, the embedding %u", m->source.path,
                       bn_tokenizer_vocab(m->tokenizer)->n_tokens, m->config.n_vocab);
#endif
    if (m->image.view && !o->verify) bn_image_check_start(m);
    bn_cache_keep(m);
    return BITNET_OK;
}

static bitnet_status open_model(struct bn_model *m, const char *path, const bitnet_model_options *o,
                                const struct bn_numa_pretend *pretend, bitnet_error *err)
{
    enum bn_i2s_layout i2s;
    if (!bn_i2s_layout_parse(&i2s, o->i2s_layout))
        return bn_fail(err, BITNET_E_ARG,
                       "I2_S layout '%s' is unknown; auto, 128, 64 and rows4 exist", o->i2s_layout);
    enum bn_head_mode head;
    enum bn_ffn_mode ffn;
    enum bn_numa_mode numa;
    enum bn_switch mmap;
    BN_TRY(bn_switch_parse(&mmap, "mmap", o->mmap, err));
    BN_TRY(bn_numa_mode_parse(&numa, o->numa, err));
    BN_TRY(bn_head_mode_parse(&head, o->head, err));
    BN_TRY(bn_ffn_mode_parse(&ffn, o->ffn, err));
    if (o->vocab_only) return open_tokenizer(m, path, true, err);
    BN_TRY(bn_memory_choose(m, o, err));
    BN_TRY(open_numa(m, numa, pretend, err));
    BN_TRY(bn_choose_kernels(&m->kernels, o->backend, err));
    BN_TRY(mmap == BN_OFF ? bn_source_open_to_read(&m->source, path, i2s, err)
                          : bn_source_open(&m->source, path, i2s, err));
    BN_TRY(open_tokenizer(m, path, false, err));
    return open_weights(m, o, head, ffn, err);
}

static bitnet_status make_model(struct bn_model **out, const char *path,
                                const bitnet_model_options *o,
                                const struct bn_numa_pretend *pretend, const bitnet_ranks *ranks,
                                bitnet_error *err)
{
    *out = NULL;
    uint64_t start = bn_now_ns();
    struct bn_model *m = bn_calloc(1, sizeof *m);
    if (!m) return bn_fail_nomem(err, sizeof *m, "a model");
    bn_buf_init(&m->note, MAX_NOTE_BYTES);
    m->n_adapters = bn_calloc(1, sizeof *m->n_adapters);
    bitnet_status s =
        m->n_adapters ? BITNET_OK : bn_fail_nomem(err, sizeof *m->n_adapters, "a model");
    if (s == BITNET_OK && ranks) s = bn_dist_open(&m->dist, ranks, err);
    if (s == BITNET_OK) s = open_model(m, path, o, pretend, err);
    if (s != BITNET_OK) {
        bn_model_close(m);
        return s;
    }
    m->load_ns = bn_now_ns() - start;
    *out = m;
    return BITNET_OK;
}

bitnet_status bn_model_open_on(struct bn_model **out, const char *path,
                               const bitnet_model_options *o, const struct bn_numa_pretend *pretend,
                               bitnet_error *err)
{
    return make_model(out, path, o, pretend, NULL, err);
}

bitnet_status bn_model_open_ranked(struct bn_model **out, const char *path,
                                   const bitnet_model_options *o, const bitnet_ranks *ranks,
                                   bitnet_error *err)
{
    return make_model(out, path, o, NULL, ranks, err);
}

bitnet_status bn_model_open(struct bn_model **out, const char *path, const bitnet_model_options *o,
                            bitnet_error *err)
{
    return bn_model_open_on(out, path, o, NULL, err);
}

void bn_model_close(struct bn_model *m)
{
    if (!m) return;
#if BN_HAVE_TEXT
    bn_tokenizer_close(m->tokenizer);
#endif
    bn_cache_close(m); /* reads weights until then */
    bn_image_check_stop(m);
    bn_replicas_free(m);
    bn_weights_free(m);
    bn_head_copy_free(m);
    bn_image_close(m);
    bn_numa_close(m->numa);
    bn_buf_free(&m->note);
    bn_source_close(&m->source);
    free(m->savings);
    free(m->n_adapters);
    bn_dist_close(m->dist);
    free(m);
}

/* Packed matrices with their block scales, without the copies of head and feed-forward layers and those
 * for other nodes, and the few that are left as floats. */
uint64_t bn_model_layer_bytes(const struct bn_model *m)
{
    uint64_t bytes = m->packed_bytes - m->head_copy_bytes - m->head_packed_bytes - m->mtp_bytes -
                     m->ffn_bytes - m->replica_bytes;
    for (uint32_t i = 0; i < m->config.n_layer; i++)
        for (int k = 0; k < BN_N_PROJ; k++)
            if (m->layers[i].proj[k].dense) bytes += m->layers[i].proj[k].stored.bytes;
    return bytes;
}
