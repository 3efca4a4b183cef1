/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/options/sampling_opts.h"

#include <math.h>

#define AT(field) offsetof(struct sampling_opts, field)
const struct opt sampling_opts_table[] = {
    {.kind = OPT_F32,
     .name = "temp",
     .metavar = "T",
     .help = "temperature; 0 always takes the most likely token",
     .offset = AT(temperature),
     .initial = "0.8",
     .shown = "the model's, else 0.8",
     .given = AT(temperature_given),
     .aliases = "temperature",
     .min = 0,
     .max = 100},
    {.kind = OPT_U32,
     .name = "top-k",
     .metavar = "N",
     .help = "sample from the N most likely tokens; 0 is off",
     .offset = AT(top_k),
     .initial = "40",
     .shown = "the model's, else 40",
     .given = AT(top_k_given),
     .min = 0,
     .max = 1 << 24},
    {.kind = OPT_F32,
     .name = "top-p",
     .metavar = "P",
     .help = "sample from the most likely tokens that sum to P; 1 is off",
     .offset = AT(top_p),
     .initial = "0.95",
     .shown = "the model's, else 0.95",
     .given = AT(top_p_given),
     .min = 0,
     .max = 1},
    {.kind = OPT_F32,
     .name = "min-p",
     .metavar = "P",
     .help = "drop tokens less likely than P times the most likely; 0 is off",
     .offset = AT(min_p),
     .initial = "0.05",
     .shown = "the model's, else 0.05",
     .given = AT(min_p_given),
     .min = 0,
     .max = 1},
    {.kind = OPT_F32,
     .name = "typical-p",
     .metavar = "P",
     .help = "locally typical sampling: tokens whose surprise is closest to the expected, that sum "
             "to P; 1 is off",
     .offset = AT(typical_p),
     .initial = "1",
     .aliases = "typical",
     .min = 0,
     .max = 1},
    {.kind = OPT_F32,
     .name = "top-n-sigma",
     .metavar = "N",
     .help = "drop logits more than N standard deviations below the largest; 0 is off",
     .offset = AT(top_n_sigma),
     .initial = "0",
     .aliases = "top-nsigma",
     .min = 0,
     .max = 100},
    {.kind = OPT_FLAG,
     .name = "adaptive",
     .help = "apply --top-k and --top-p both to the whole distribution, and take the smaller set",
     .offset = AT(adaptive)},
    {.kind = OPT_F32,
     .name = "repeat-penalty",
     .metavar = "X",
     .help =
         "divide positive logits of tokens in prompt and answer by X, multiply others; 1 is off",
     .offset = AT(repetition_penalty),
     .initial = "1",
     .shown = "the model's, else 1",
     .given = AT(repetition_given),
     .aliases = "repetition-penalty",
     .min = 0,
     .max = 100},
    {.kind = OPT_F32,
     .name = "presence-penalty",
     .metavar = "X",
     .help = "subtract X from the logits of tokens in the answer; 0 is off",
     .offset = AT(presence_penalty),
     .initial = "0",
     .min = -100,
     .max = 100},
    {.kind = OPT_F32,
     .name = "frequency-penalty",
     .metavar = "X",
     .help = "subtract X for every time a token is in the answer; 0 is off",
     .offset = AT(frequency_penalty),
     .initial = "0",
     .min = -100,
     .max = 100},
    {.kind = OPT_U32,
     .name = "repeat-last-n",
     .metavar = "N",
     .help = "range of these penalties in tokens; 0 is all",
     .offset = AT(penalty_last_n),
     .initial = "0",
     .shown = "the model's, else 0",
     .given = AT(last_n_given),
     .min = 0,
     .max = 1 << 24},
    {.kind = OPT_F32,
     .name = "dry-multiplier",
     .metavar = "X",
     .help = "penalise tokens that would continue a repetition (DRY); 0 is off",
     .offset = AT(dry_multiplier),
     .initial = "0",
     .min = 0,
     .max = 100},
    {.kind = OPT_F32,
     .name = "dry-base",
     .metavar = "X",
     .help = "every further token of the repetition multiplies DRY's penalty by X",
     .offset = AT(dry_base),
     .initial = "1.75",
     .min = 1,
     .max = 100},
    {.kind = OPT_U32,
     .name = "dry-allowed-length",
     .metavar = "N",
     .help = "repetitions of fewer than N tokens are free",
     .offset = AT(dry_allowed_length),
     .initial = "2",
     .min = 1,
     .max = 1 << 24},
    {.kind = OPT_U32,
     .name = "dry-penalty-last-n",
     .metavar = "N",
     .help = "DRY looks at the last N tokens; 0 is all",
     .offset = AT(dry_last_n),
     .initial = "0",
     .min = 0,
     .max = 1 << 24},
    {.kind = OPT_LIST,
     .name = "dry-sequence-breaker",
     .metavar = "TEXT",
     .help = "repetitions do not cross this text; may be repeated; 'none' for none",
     .shown = "line end, : \" *",
     .offset = AT(dry_breakers)},
    {.kind = OPT_LIST,
     .letter = 'l',
     .name = "logit-bias",
     .metavar = "ID(+|-)BIAS",
     .help = "add to a token's logit, as 15+1.5; 15-inf forbids it; may be repeated",
     .offset = AT(logit_bias)},
    {.kind = OPT_END},
};
#undef AT

/* "15+1.5", "15-2", "15-inf" */
static bitnet_status parse_bias(bitnet_logit_bias *out, const char *text, bitnet_error *err)
{
    char id[16];
    uint64_t token = 0;
    double bias = 0;
    size_t n = strcspn(text, "+-");
    bool good = n < sizeof id && text[n];
    if (good) {
        memcpy(id, text, n);
        id[n] = 0;
        good = args_u64(&token, id, INT32_MAX);
    }
    if (good && strcmp(text + n, "-inf") == 0) bias = -(double)INFINITY;
    else good = good && args_double(&bias, text + n);
    if (!good)
        return bn_fail(
            err, BITNET_E_ARG,
            "--logit-bias expects a token id and a number, as 15+1.5 or 15-inf, not '%s'", text);
    *out = (bitnet_logit_bias){(int32_t)token, (float)bias};
    return BITNET_OK;
}

bitnet_status sampling_from_opts(bitnet_sampling *s, bitnet_logit_bias biases[OPT_LIST_MAX],
                                 const struct sampling_opts *o, const bitnet_model *m,
                                 bitnet_error *err)
{
    bool no_breakers = o->dry_breakers.n == 1 && strcmp(o->dry_breakers.items[0], "none") == 0;
    for (size_t i = 0; i < o->logit_bias.n; i++)
        BN_TRY(parse_bias(&biases[i], o->logit_bias.items[i], err));
    s->temperature = o->temperature;
    s->top_p = o->top_p;
    s->min_p = o->min_p;
    s->top_k = o->top_k;
    s->typical_p = o->typical_p;
    s->top_n_sigma = o->top_n_sigma;
    s->adaptive = o->adaptive;
    s->repetition_penalty = o->repetition_penalty;
    s->presence_penalty = o->presence_penalty;
    s->frequency_penalty = o->frequency_penalty;
    s->penalty_last_n = o->penalty_last_n;
    s->dry_multiplier = o->dry_multiplier;
    s->dry_base = o->dry_base;
    s->dry_allowed_length = o->dry_allowed_length;
    s->dry_last_n = o->dry_last_n;
    s->dry_breakers = o->dry_breakers.n ? o->dry_breakers.items : NULL;
    s->n_dry_breakers = no_breakers ? 0 : o->dry_breakers.n;
    s->logit_bias = biases;
    s->n_logit_bias = o->logit_bias.n;
    bitnet_sampling file = *s;
    bitnet_model_sampling(m, &file);
    if (!o->temperature_given) s->temperature = file.temperature;
    if (!o->top_k_given) s->top_k = file.top_k;
    if (!o->top_p_given) s->top_p = file.top_p;
    if (!o->min_p_given) s->min_p = file.min_p;
    if (!o->repetition_given) s->repetition_penalty = file.repetition_penalty;
    if (!o->last_n_given) s->penalty_last_n = file.penalty_last_n;
    return BITNET_OK;
}
