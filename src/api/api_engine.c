/* SPDX-License-Identifier: Apache-2.0 */
#include "api/api.h"

#include "engine/engine.h"
#include "forge/forge.h"
#include "model/attention/kv_types.h"

void bitnet_engine_options_init(bitnet_engine_options *o)
{
    *o = (bitnet_engine_options){.size = sizeof *o};
}

void bitnet_sampling_init(bitnet_sampling *s)
{
    *s = (bitnet_sampling){.temperature = 0.8f,
                           .top_p = 0.95f,
                           .min_p = 0.05f,
                           .top_k = 40,
                           .typical_p = 1,
                           .repetition_penalty = 1,
                           .dry_base = 1.75f,
                           .dry_allowed_length = 2};
}

void bitnet_request_init(bitnet_request *r)
{
    *r = (bitnet_request){.size = sizeof *r};
    bitnet_sampling_init(&r->sampling);
}

bitnet_status bitnet_engine_open(bitnet_engine **out, const bitnet_model *m,
                                 const bitnet_engine_options *o, bitnet_error *err)
{
    BN_NEED(out, err, "out is NULL");
    *out = NULL;
    BN_NEED(m, err, "the model is NULL");
    bitnet_engine_options opt;
    bitnet_engine_options_init(&opt);
    if (o) bn_copy_sized(&opt, sizeof opt, o);
    BN_NEED(!opt.kv_type || bn_kv_type_name(opt.kv_type), err, "kv_type is unknown");
    BN_NEED(!opt.kv_type_v || bn_kv_type_name(opt.kv_type_v), err, "kv_type_v is unknown");
    return bn_engine_open(out, m->m, &opt, err);
}

const char *bitnet_kv_type_name(bitnet_kv_type type) { return bn_kv_type_name(type); }

void bitnet_engine_close(bitnet_engine *e) { bn_engine_close(e); }

bitnet_status bitnet_engine_warmup(bitnet_engine *e, bitnet_error *err)
{
    BN_NEED(e, err, "the engine is NULL");
    return bn_engine_warmup(e, err);
}

void bitnet_engine_get_info(const bitnet_engine *e, bitnet_engine_info *info)
{
    if (!e || !info) return;
    bitnet_engine_info i = {.size = sizeof i};
    bn_engine_info(e, &i);
    bn_fill_sized(info, &i, sizeof i);
}

int bitnet_engine_ffn_layer(const bitnet_engine *e, uint32_t layer, bitnet_ffn_layer *info)
{
    bitnet_ffn_layer i = {.size = sizeof i};
    if (!e || !info || !bn_engine_ffn_layer(e, layer, &i)) return 0;
    bn_fill_sized(info, &i, sizeof i);
    return 1;
}

bitnet_status bitnet_eval(bitnet_engine *e, uint32_t seq, const int32_t *tokens, size_t n,
                          int last_only, float *logits, bitnet_error *err)
{
    BN_NEED(e, err, "the engine is NULL");
    BN_NEED(tokens || n == 0, err, "tokens is NULL");
    return bn_engine_eval(e, seq, tokens, n, last_only != 0, logits, err);
}

bitnet_status bitnet_eval_reset(bitnet_engine *e, uint32_t seq, bitnet_error *err)
{
    BN_NEED(e, err, "the engine is NULL");
    return bn_engine_eval_reset(e, seq, err);
}

void bitnet_embed_options_init(bitnet_embed_options *o)
{
    *o = (bitnet_embed_options){.size = sizeof *o};
}

bitnet_status bitnet_embed(bitnet_engine *e, const bitnet_embed_input *inputs, size_t n,
                           const bitnet_embed_options *o, float *out, bitnet_error *err)
{
    BN_NEED(e, err, "the engine is NULL");
    BN_NEED((inputs && out) || n == 0, err, "an argument is NULL");
    bitnet_embed_options opt;
    bitnet_embed_options_init(&opt);
    if (o) bn_copy_sized(&opt, sizeof opt, o);
    BN_NEED(opt.pooling == BITNET_POOL_MEAN || opt.pooling == BITNET_POOL_LAST, err,
            "pooling is unknown");
    for (size_t i = 0; i < n; i++)
        BN_NEED(inputs[i].tokens || inputs[i].n_tokens == 0, err, "tokens is NULL");
    return bn_engine_embed(e, inputs, n, &opt, out, err);
}

bitnet_status bitnet_submit(bitnet_engine *e, const bitnet_request *r, uint64_t *id,
                            bitnet_error *err)
{
    BN_NEED(e && r && id, err, "an argument is NULL");
    bitnet_request q;
    bitnet_request_init(&q);
    bn_copy_sized(&q, sizeof q, r);
    BN_NEED(q.stop || q.n_stop == 0, err, "stop is NULL");
    return bn_engine_submit(e, &q, id, err);
}

bitnet_status bitnet_cancel(bitnet_engine *e, uint64_t id)
{
    return e ? bn_engine_cancel(e, id) : BITNET_E_ARG;
}

bitnet_status bitnet_step(bitnet_engine *e, bitnet_event *events, size_t *n, bitnet_error *err)
{
    BN_NEED(e && events && n, err, "an argument is NULL");
    return bn_engine_step(e, events, n, err);
}

void bitnet_ppl_options_init(bitnet_ppl_options *o)
{
    *o = (bitnet_ppl_options){.size = sizeof *o};
}

bitnet_status bitnet_perplexity(bitnet_engine *e, const int32_t *tokens, size_t n_tokens,
                                const bitnet_ppl_options *o, bitnet_ppl_result *result,
                                bitnet_error *err)
{
    BN_NEED(e && tokens && result, err, "an argument is NULL");
    bitnet_ppl_options opt;
    bitnet_ppl_options_init(&opt);
    if (o) bn_copy_sized(&opt, sizeof opt, o);
    bitnet_ppl_result r = {.size = sizeof r};
    BN_TRY(bn_perplexity(e, tokens, n_tokens, &opt, &r, err));
    bn_fill_sized(result, &r, sizeof r);
    return BITNET_OK;
}
