/* SPDX-License-Identifier: Apache-2.0 */
#include "api/api.h"

#include "base/os/mem.h"
#include "model/config/config_sampling.h"
#include "model/head/head.h"
#include "model/delta/state.h"
#include <stdlib.h>

void bitnet_model_options_init(bitnet_model_options *o)
{
    *o = (bitnet_model_options){.size = sizeof *o};
}

bitnet_status bitnet_model_open(bitnet_model **out, const char *path, const bitnet_model_options *o,
                                bitnet_error *err)
{
    BN_NEED(out, err, "out is NULL");
    *out = NULL;
    bitnet_model_options opt;
    bitnet_model_options_init(&opt);
    if (o) bn_copy_sized(&opt, sizeof opt, o);
    struct bn_model_open_args a = {.path = path,
                                   .backend = opt.backend,
                                   .activations = opt.activations,
                                   .i2s_layout = opt.i2s_layout,
                                   .layout = opt.layout,
                                   .head = opt.head,
                                   .ffn = opt.ffn,
                                   .hugepages = opt.hugepages,
                                   .numa = opt.numa,
                                   .vocab_only = opt.vocab_only != 0,
                                   .mlock = opt.mlock != 0,
                                   .no_mmap = opt.no_mmap != 0,
                                   .prefetch_bytes = opt.prefetch_bytes,
                                   .cache = opt.cache,
                                   .cache_read_only = opt.cache_read_only != 0,
                                   .cache_min_bytes = opt.cache_min_bytes,
                                   .cache_max_bytes = opt.cache_max_bytes,
                                   .verify = opt.verify != 0,
                                   .threads = opt.threads,
                                   .progress = opt.progress,
                                   .progress_user = opt.progress_user};
    bitnet_model *m = bn_calloc(1, sizeof *m);
    if (!m) return bn_fail_nomem(err, sizeof *m, "a model");
    bitnet_status s = bn_model_open(&m->m, &a, err);
    if (s != BITNET_OK) {
        free(m);
        return s;
    }
    *out = m;
    return BITNET_OK;
}

void bitnet_model_close(bitnet_model *m)
{
    if (!m) return;
    bn_model_close(m->m);
    free(m);
}

void bitnet_model_get_info(const bitnet_model *model, bitnet_model_info *info)
{
    if (!model || !info) return;
    const struct bn_model *m = model->m;
    const struct bn_config *c = &m->config;
    bool loaded = m->layers != NULL;
    bitnet_model_info i = {.size = sizeof i,
                           .name = c->name[0]       ? c->name
                                   : m->source.path ? m->source.path
                                                    : "",
                           .architecture = c->arch,
                           .activation = c->act == BN_ACT_RELU2 ? "relu2" : "silu",
                           .act_quant = bn_act_quant_name(loaded ? m->activations : c->act_quant),
                           .weight_type = loaded ? m->weight_type : "",
                           .head_type = loaded ? bn_type_info(m->head.stored.type)->name : "",
                           .backend = loaded ? m->kernels.backend : "",
                           .n_vocab = c->n_vocab,
                           .n_embd = c->n_embd,
                           .n_ff = c->n_ff,
                           .n_layer = c->n_layer,
                           .n_head = c->n_head,
                           .n_head_kv = c->n_head_kv,
                           .head_dim = c->head_dim,
                           .n_ctx_train = c->n_ctx,
                           .tied_head = c->tied_head,
                           .n_params = m->n_params,
                           .n_params_ternary = m->n_params_ternary,
                           .file_bytes = m->source.file_bytes,
                           .packed_bytes = m->packed_bytes,
                           .load_ns = m->load_ns,
                           .note = m->note.len ? m->note.data : "",
                           .layer_bytes = loaded ? bn_model_layer_bytes(m) : 0,
                           .head_bytes = !loaded         ? 0
                                         : m->head.dense ? m->head.stored.bytes
                                                         : m->head_packed_bytes,
                           .layout = m->layout ? m->layout : "",
                           .head_copy_bytes = m->head_copy_bytes,
                           .ffn_copy_bytes = m->ffn_bytes,
                           .hugepages = bn_backing_pages(&m->backing),
                           .locked_bytes = m->backing.locked_bytes,
                           .prefetch_bytes = m->prefetch_bytes,
                           .numa_nodes = loaded ? m->n_nodes : 1,
                           .numa_near_bytes = m->near_bytes,
                           .head_screen_bytes = bn_head_coarse_bytes(m),
                           .n_layer_attention = bn_config_attn_before(c, c->n_layer),
                           .n_layer_mtp = c->n_mtp,
                           .mtp_bytes = m->mtp_bytes,
                           .state_bytes = bn_state_slot_bytes(c, false),
                           .packed_path = m->image.path ? m->image.path : "",
                           .packed_mapped = m->image.mapped};
#if BN_HAVE_TEXT
    if (!loaded && m->tokenizer) i.n_vocab = bn_tokenizer_vocab(m->tokenizer)->n_tokens;
#endif
    bn_fill_sized(info, &i, sizeof i);
}

uint32_t bitnet_model_sampling(const bitnet_model *model, bitnet_sampling *s)
{
    return model ? bn_config_sampling(&model->m->config, s) : 0;
}
