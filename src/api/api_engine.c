/* SPDX-License-Identifier: Apache-2.0 */
#include "api/api.h"

#include "engine/engine.h"
#include "forge/forge.h"
#include "model/attention/kv_types.h"

void bitnet_sampling_init(bitnet_sampling *s, size_t size)
{
    const bitnet_sampling usual = {.temperature = 0.8f,
                                   .top_p = 0.95f,
                                   .min_p = 0.05f,
                                   .top_k = 40,
                                   .typical_p = 1,
                                   .repetition_penalty = 1,
                                   .dry_base = 1.75f,
                                   .dry_allowed_length = 2};
    BN_INIT(bitnet_sampling, s, size, &usual);
}

void bitnet_request_init(bitnet_request *r, size_t size)
{
    bitnet_request usual = {0};
    bitnet_sampling_init(&usual.sampling, sizeof usual.sampling);
    BN_INIT(bitnet_request, r, size, &usual);
}

bitnet_status bitnet_engine_open(bitnet_engine **out, const bitnet_model *m,
                                 const bitnet_engine_options *o, bitnet_error *err)
{
    BN_NEED(out, err, "out is NULL");
    *out = NULL;
    BN_NEED(m, err, "the model is NULL");
    bitnet_engine_options opt = {.size = sizeof opt};
    BN_TRY(BN_READ(bitnet_engine_options, &opt, o, err));
    BN_NEED(!opt.kv_type || bn_kv_type_name(opt.kv_type), err, "kv_type is unknown");
    BN_NEED(!opt.kv_type_v || bn_kv_type_name(opt.kv_type_v), err, "kv_type_v is unknown");
    BN_NEED(!opt.kv_type_otherwise || bn_kv_type_name(opt.kv_type_otherwise), err,
            "kv_type_otherwise is unknown");
    if (opt.reserved_word)
        return bn_fail(err, BITNET_E_UNSUPPORTED, "bitnet_engine_options.reserved_word is not 0");
    BN_TRY(bn_lead_engine(m->m, &opt, err));
    bitnet_status s = bn_engine_open(out, m->m, &opt, err);
    if (m->m->dist) s = bn_dist_agree(m->m->dist, s, 0, "engine", err);
    if (s == BITNET_OK) return s;
    bn_engine_close(*out);
    *out = NULL;
    return s;
}

const char *bitnet_kv_type_name(bitnet_kv_type type) { return bn_kv_type_name(type); }

void bitnet_engine_close(bitnet_engine *e)
{
    if (e && bn_engine_own(e, NULL) == BITNET_OK) bn_lead_close(bn_engine_model(e), true);
    bn_engine_close(e);
}

bitnet_status bitnet_engine_warmup(bitnet_engine *e, bitnet_error *err)
{
    BN_NEED(e, err, "the engine is NULL");
    BN_TRY(bn_engine_own(e, err));
    return bn_engine_warmup(e, err);
}

bitnet_status bitnet_engine_get_info(const bitnet_engine *e, bitnet_engine_info *info)
{
    if (!e || !info) return BITNET_E_ARG;
    bitnet_engine_info i = {.size = sizeof i};
    bn_engine_info(e, &i);
    return BN_WRITE(bitnet_engine_info, info, &i, NULL);
}

bitnet_status bitnet_engine_identity(bitnet_engine *e, const bitnet_adapter_use *adapters,
                                     size_t n_adapters, uint64_t *identity, bitnet_error *err)
{
    BN_NEED(e && identity, err, "an argument is NULL");
    BN_TRY(bn_engine_own(e, err));
    BN_NEED(adapters || n_adapters == 0, err, "adapters is NULL");
    return bn_engine_identity(e, adapters, n_adapters, identity, err);
}

int bitnet_engine_ffn_layer(const bitnet_engine *e, uint32_t layer, bitnet_ffn_layer *info)
{
    bitnet_ffn_layer i = {.size = sizeof i};
    if (!e || !info || !bn_engine_ffn_layer(e, layer, &i)) return 0;
    return BN_WRITE(bitnet_ffn_layer, info, &i, NULL) == BITNET_OK;
}

bitnet_status bitnet_eval(bitnet_engine *e, uint32_t seq, const int32_t *tokens, size_t n,
                          int last_only, float *logits, bitnet_error *err)
{
    BN_NEED(e, err, "the engine is NULL");
    BN_TRY(bn_engine_own(e, err));
    BN_NEED(tokens || n == 0, err, "tokens is NULL");
    return bn_engine_eval(e, seq, tokens, n, last_only != 0, logits, err);
}

bitnet_status bitnet_eval_reset(bitnet_engine *e, uint32_t seq, bitnet_error *err)
{
    BN_NEED(e, err, "the engine is NULL");
    BN_TRY(bn_engine_own(e, err));
    return bn_engine_eval_reset(e, seq, err);
}

bitnet_status bitnet_embed(bitnet_engine *e, const bitnet_embed_input *inputs, size_t n,
                           const bitnet_embed_options *o, float *out, bitnet_error *err)
{
    BN_NEED(e, err, "the engine is NULL");
    BN_TRY(bn_engine_own(e, err));
    BN_NEED((inputs && out) || n == 0, err, "an argument is NULL");
    bitnet_embed_options opt = {.size = sizeof opt};
    BN_TRY(BN_READ(bitnet_embed_options, &opt, o, err));
    if (opt.reserved_word)
        return bn_fail(err, BITNET_E_UNSUPPORTED, "bitnet_embed_options.reserved_word is not 0");
    BN_NEED((unsigned)opt.pooling <= BITNET_POOL_NONE, err, "pooling is unknown");
    for (size_t i = 0; i < n; i++)
        BN_NEED(inputs[i].tokens || inputs[i].n_tokens == 0, err, "tokens is NULL");
    return bn_engine_embed(e, inputs, n, &opt, out, err);
}

/* It lies inside another struct, so that its size never changes: what it gains is taken from the words
 * that are reserved. */
static bitnet_status check_sampling(const bitnet_sampling *s, bitnet_error *err)
{
    if (s->size != sizeof *s)
        return bn_fail(err, BITNET_E_ARG,
                       "sampling.size is %zu; %zu is expected: bitnet_request_init() sets it",
                       s->size, sizeof *s);
    bool unused = s->reserved_word == 0;
    for (size_t i = 0; i < BN_ARRAY_LEN(s->reserved); i++) unused &= s->reserved[i] == 0;
    if (unused) return BITNET_OK;
    return bn_fail(err, BITNET_E_UNSUPPORTED, "a reserved word of the sampling is not 0");
}

bitnet_status bitnet_score(bitnet_engine *e, const bitnet_score_input *inputs, size_t n,
                           const bitnet_score_options *o, bitnet_score_result *results,
                           bitnet_error *err)
{
    BN_NEED(e, err, "the engine is NULL");
    BN_TRY(bn_engine_own(e, err));
    BN_NEED((inputs && results) || n == 0, err, "an argument is NULL");
    bitnet_score_options opt = {.size = sizeof opt};
    BN_TRY(BN_READ(bitnet_score_options, &opt, o, err));
    for (size_t i = 0; i < n; i++)
        BN_NEED(inputs[i].tokens || inputs[i].n_tokens == 0, err, "tokens is NULL");
    return bn_engine_score(e, inputs, n, &opt, results, err);
}

bitnet_status bitnet_prepare(bitnet_engine *e, const bitnet_request *r, bitnet_error *err)
{
    BN_NEED(e && r, err, "an argument is NULL");
    BN_TRY(bn_engine_own(e, err));
    bitnet_request q = {.size = sizeof q};
    BN_TRY(BN_READ(bitnet_request, &q, r, err));
    return bn_engine_prepare(e, &q, err);
}

bitnet_status bitnet_submit(bitnet_engine *e, const bitnet_request *r, uint64_t *id,
                            bitnet_error *err)
{
    BN_NEED(e && r && id, err, "an argument is NULL");
    BN_TRY(bn_engine_own(e, err));
    bitnet_request q = {.size = sizeof q};
    BN_TRY(BN_READ(bitnet_request, &q, r, err));
    BN_TRY(check_sampling(&q.sampling, err));
    BN_NEED(q.stop || q.n_stop == 0, err, "stop is NULL");
    BN_NEED(q.stop_tokens || q.n_stop_tokens == 0, err, "stop_tokens is NULL");
    if (q.reserved_word)
        return bn_fail(err, BITNET_E_UNSUPPORTED, "bitnet_request.reserved_word is not 0");
    return bn_engine_submit(e, &q, id, err);
}

bitnet_status bitnet_cancel(bitnet_engine *e, uint64_t id)
{
    return e ? bn_engine_cancel(e, id) : BITNET_E_ARG;
}

bitnet_status bitnet_step(bitnet_engine *e, bitnet_event *events, size_t *n, bitnet_error *err)
{
    BN_NEED(e && events && n, err, "an argument is NULL");
    BN_TRY(bn_engine_own(e, err));
    const struct bn_sized *type = BN_SIZED(bitnet_event);
    const bitnet_event *from;
    size_t size = events->size;
    BN_TRY(bn_sized_check(type, size, err));
    BN_TRY(bn_engine_step(e, &from, n, err));
    for (size_t i = 0; i < *n; i++) bn_sized_put(type, (char *)events + i * size, size, &from[i]);
    return BITNET_OK;
}

bitnet_status bitnet_perplexity(bitnet_engine *e, const int32_t *tokens, size_t n_tokens,
                                const bitnet_ppl_options *o, bitnet_ppl_result *result,
                                bitnet_error *err)
{
    BN_NEED(e && tokens && result, err, "an argument is NULL");
    BN_TRY(bn_engine_own(e, err));
    BN_TRY(BN_CHECK_SIZE(bitnet_ppl_result, result, err));
    bitnet_ppl_options opt = {.size = sizeof opt};
    BN_TRY(BN_READ(bitnet_ppl_options, &opt, o, err));
    bitnet_ppl_result r = {.size = sizeof r};
    BN_TRY(bn_perplexity(e, tokens, n_tokens, &opt, &r, err));
    return BN_WRITE(bitnet_ppl_result, result, &r, err);
}

bitnet_status bitnet_compare(bitnet_engine *base, bitnet_engine *other, const int32_t *tokens,
                             size_t n_tokens, const bitnet_compare_options *o,
                             bitnet_divergence *result, bitnet_error *err)
{
    BN_NEED(other && tokens && result, err, "an argument is NULL");
    BN_TRY(bn_engine_own(other, err));
    if (base) BN_TRY(bn_engine_own(base, err));
    BN_TRY(BN_CHECK_SIZE(bitnet_divergence, result, err));
    bitnet_compare_options opt = {.size = sizeof opt};
    BN_TRY(BN_READ(bitnet_compare_options, &opt, o, err));
    bitnet_divergence d = {.size = sizeof d};
    BN_TRY(bn_compare(base, other, tokens, n_tokens, &opt, &d, err));
    return BN_WRITE(bitnet_divergence, result, &d, err);
}
