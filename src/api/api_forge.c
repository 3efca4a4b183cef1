/* SPDX-License-Identifier: Apache-2.0 */
#include "api/api.h"

#include "engine/engine.h"
#include "forge/calibrate/calibrate.h"
#include "forge/forge.h"

bitnet_status bitnet_convert(const char *in_path, const char *out_path,
                             const bitnet_convert_options *o, bitnet_error *err)
{
    BN_NEED(out_path, err, "the output path is NULL");
    bitnet_convert_options opt = {.size = sizeof opt};
    BN_TRY(BN_READ(bitnet_convert_options, &opt, o, err));
    BN_NEED(opt.adapters || !opt.n_adapters, err, "the list of adapters is NULL");
    return bn_convert(in_path, out_path, &opt, err);
}

bitnet_status bitnet_synth(const char *shape, const char *out_path, const bitnet_synth_options *o,
                           bitnet_error *err)
{
    BN_NEED(shape && out_path, err, "an argument is NULL");
    bitnet_synth_options opt = {.size = sizeof opt};
    BN_TRY(BN_READ(bitnet_synth_options, &opt, o, err));
    return bn_synth(shape, out_path, &opt, err);
}

const char *bitnet_synth_shape(size_t i, const char **description)
{
    const char *unused;
    return bn_synth_shape(i, description ? description : &unused);
}

bitnet_status bitnet_prune(const char *in_path, const char *out_path, const bitnet_prune_output *o,
                           bitnet_error *err)
{
    BN_NEED(out_path, err, "the output path is NULL");
    bitnet_prune_output opt = {.size = sizeof opt};
    BN_TRY(BN_READ(bitnet_prune_output, &opt, o, err));
    BN_NEED(opt.layers || !opt.n_layers, err, "the list of layers is NULL");
    BN_NEED(!opt.ffn_channels == !opt.ffn_width, err, "a width and a list of channels go together");
    return bn_prune(in_path, out_path, &opt, err);
}

bitnet_status bitnet_prune_search(bitnet_engine *e, const int32_t *tokens, size_t n_tokens,
                                  const bitnet_prune_options *o, bitnet_prune_result *result,
                                  bitnet_error *err)
{
    BN_NEED(e && tokens && result, err, "an argument is NULL");
    BN_TRY(bn_engine_own(e, err));
    bitnet_prune_options opt = {.size = sizeof opt};
    BN_TRY(BN_READ(bitnet_prune_options, &opt, o, err));
    BN_NEED((opt.layers || !opt.n_layers) && (opt.protect || !opt.n_protect), err,
            "a list of layers is NULL");
    bitnet_prune_result r = {.size = sizeof r};
    BN_TRY(BN_READ(bitnet_prune_result, &r, result, err));
    BN_NEED(r.steps, err, "there is no room for steps");
    r = (bitnet_prune_result){
        .size = sizeof r, .steps = r.steps, .scores = r.scores, .ffn_channels = r.ffn_channels};
    BN_TRY(bn_prune_search(e, tokens, n_tokens, &opt, &r, err));
    return BN_WRITE(bitnet_prune_result, result, &r, err);
}

bitnet_status bitnet_calibrate(bitnet_calibration **out, const bitnet_model *m,
                               const bitnet_calibrate_options *o, bitnet_error *err)
{
    BN_NEED(out && m && o, err, "an argument is NULL");
    bitnet_calibrate_options opt = {.size = sizeof opt};
    BN_TRY(BN_READ(bitnet_calibrate_options, &opt, o, err));
    BN_NEED(opt.tokens || !opt.n_tokens, err, "tokens is NULL");
    BN_NEED(opt.curve || !opt.n_curve, err, "curve is NULL");
    *out = NULL;
    if (!m->m->layers)
        return bn_fail(err, BITNET_E_STATE, "the model was opened for its vocabulary only");
    return bn_calibrate(out, m->m, &opt, err);
}

void bitnet_calibration_close(bitnet_calibration *c) { bn_calibration_close(c); }

const char *bitnet_calibration_plan(const bitnet_calibration *c) { return c ? c->plan : ""; }

const char *bitnet_calibration_report(const bitnet_calibration *c) { return c ? c->report : ""; }
