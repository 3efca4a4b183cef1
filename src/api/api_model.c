/* SPDX-License-Identifier: Apache-2.0 */
#include "api/api.h"

#include "base/os/mem.h"
#include "model/config/config_sampling.h"
#include "model/head/head.h"
#include "model/delta/state.h"
#include "model/savings.h"
#include <stdlib.h>

/* ranks: read, or NULL */
static bitnet_status open_model(bitnet_model **out, const char *path, const bitnet_model_options *o,
                                bitnet_ranks *ranks, bitnet_error *err)
{
    bitnet_model_options opt = {.size = sizeof opt};
    BN_TRY(BN_READ(bitnet_model_options, &opt, o, err));
    bitnet_model *m = bn_calloc(1, sizeof *m);
    if (!m) return bn_fail_nomem(err, sizeof *m, "a model");
    bitnet_status s = ranks ? bn_lead_model(path, &opt, ranks, err) : BITNET_OK;
    if (s == BITNET_OK) {
        s = bn_model_open_ranked(&m->m, path, &opt, ranks, err);
        if (ranks) s = bn_agree_model(ranks, m->m, s, err);
    }
    if (s != BITNET_OK) {
        bn_model_close(m->m);
        free(m);
        return s;
    }
    *out = m;
    return BITNET_OK;
}

bitnet_status bitnet_model_open(bitnet_model **out, const char *path, const bitnet_model_options *o,
                                bitnet_error *err)
{
    return bitnet_model_open_ranked(out, path, o, NULL, err);
}

bitnet_status bitnet_model_open_ranked(bitnet_model **out, const char *path,
                                       const bitnet_model_options *o, const bitnet_ranks *ranks,
                                       bitnet_error *err)
{
    bitnet_ranks r = {.size = sizeof r};
    BN_NEED(out, err, "out is NULL");
    *out = NULL;
    if (!ranks) return open_model(out, path, o, NULL, err);
    BN_TRY(BN_READ(bitnet_ranks, &r, ranks, err));
    if (r.rank) return bn_fail(err, BITNET_E_ARG, "rank %u follows, it does not lead", r.rank);
    return open_model(out, path, o, &r, err);
}

void bitnet_model_close(bitnet_model *m)
{
    if (!m) return;
    bn_lead_close(m->m, false);
    bn_model_close(m->m);
    free(m);
}

bitnet_status bitnet_model_get_info(const bitnet_model *model, bitnet_model_info *info)
{
    if (!model || !info) return BITNET_E_ARG;
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
                           .shape.n_vocab = c->n_vocab,
                           .shape.n_embd = c->n_embd,
                           .shape.n_ff = c->n_ff,
                           .shape.n_layer = c->n_layer,
                           .shape.n_head = c->n_head,
                           .shape.n_head_kv = c->n_head_kv,
                           .shape.head_dim = c->head_dim,
                           .shape.n_ctx_train = c->n_ctx,
                           .shape.tied_head = c->tied_head,
                           .shape.n_params = m->n_params,
                           .shape.n_params_ternary = m->n_params_ternary,
                           .memory.file_bytes = m->source.file_bytes,
                           .memory.packed_bytes = m->packed_bytes,
                           .load_ns = m->load_ns,
                           .note = m->note.len ? m->note.data : "",
                           .memory.layer_bytes = loaded ? bn_model_layer_bytes(m) : 0,
                           .memory.head_bytes = !loaded         ? 0
                                                : m->head.dense ? m->head.stored.bytes
                                                                : m->head_packed_bytes,
                           .layout = m->layout ? m->layout : "",
                           .memory.head_copy_bytes = m->head_copy_bytes,
                           .memory.ffn_copy_bytes = m->ffn_bytes,
                           .memory.hugepages = bn_backing_pages(&m->backing),
                           .memory.locked_bytes = m->backing.locked_bytes,
                           .memory.prefetch_bytes = m->prefetch_bytes,
                           .memory.numa_nodes = loaded ? m->n_nodes : 1,
                           .memory.numa_near_bytes = m->near_bytes,
                           .memory.head_screen_bytes = bn_head_coarse_bytes(m),
                           .shape.n_layer_attention = bn_config_attn_before(c, c->n_layer),
                           .shape.n_layer_mtp = c->n_mtp,
                           .memory.mtp_bytes = m->mtp_bytes,
                           .shape.state_bytes = bn_state_slot_bytes(c, NULL),
                           .packed_path = m->image.path ? m->image.path : "",
                           .packed_mapped = m->image.mapped,
                           .plan = bn_savings_from(m->savings),
                           .checksum = m->checksum};
#if BN_HAVE_TEXT
    if (!loaded && m->tokenizer) i.shape.n_vocab = bn_tokenizer_vocab(m->tokenizer)->n_tokens;
#endif
    return BN_WRITE(bitnet_model_info, info, &i, NULL);
}

uint32_t bitnet_model_sampling(const bitnet_model *model, bitnet_sampling *s)
{
    if (!model || (s && BN_CHECK_SIZE(bitnet_sampling, s, NULL) != BITNET_OK)) return 0;
    return bn_config_sampling(&model->m->config, s);
}
