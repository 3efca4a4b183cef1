/* SPDX-License-Identifier: Apache-2.0
 *
 * How many gates of a random model's feed-forward layers open, and how many inputs of `down` are not
 * zero. Random rows open for half of the tokens; a row of zeros never does (0 is not above 0). An
 * input is zero for every token if its weight in the norm before `down` is; of the others, an open
 * gate gives an integer other than zero in about two of three cases, as measured with this
 * generator's weights. So wanted shares give the numbers of rows and weights to keep. */
#include "forge/synth_impl.h"

static const double rounded_up = 0.66; /* inputs that are not zero, of those with an open gate */

/* the layers of the 31.6M model, counted over validation stories */
static const char trained[] = ".30:.09,.34:.13,.34:.15,.37:.18,.38:.19,.41:.20,.43:.23,.44:.25,"
                              ".47:.27,.49:.29";

/* "0.3", ".3", "1": at most six digits after the point. */
static bool read_share(double *out, const char **text)
{
    const char *p = *text;
    double v = 0, unit = 1;
    size_t digits = 0;
    for (; *p >= '0' && *p <= '9' && digits < 3; p++, digits++) v = v * 10 + (*p - '0');
    if (*p == '.')
        for (p++; *p >= '0' && *p <= '9' && digits < 9; p++, digits++)
            v += (*p - '0') * (unit /= 10);
    *out = v;
    *text = p;
    return digits > 0;
}

bitnet_status bn_density_parse(struct bn_density *d, const char *text, bitnet_error *err)
{
    *d = (struct bn_density){0};
    if (!text || !*text) return BITNET_OK;
    const char *p = strcmp(text, "trained") == 0 ? trained : text;
    for (;; p++) {
        double gates, inputs;
        if (d->n == BN_ARRAY_LEN(d->rows))
            return bn_fail(err, BITNET_E_ARG, "more than %zu pairs of shares",
                           BN_ARRAY_LEN(d->rows));
        bool good = read_share(&gates, &p) && *p++ == ':' && read_share(&inputs, &p);
        if (!good || (*p && *p != ','))
            return bn_fail(err, BITNET_E_ARG,
                           "'%.60s' should be 'trained' or GATES:INPUTS pairs as 0.3:0.1,0.4:0.2",
                           text);
        if (gates <= 0 || gates > 0.5 || inputs > rounded_up * gates)
            return bn_fail(err, BITNET_E_ARG,
                           "shares %g:%g: random gates open up to 0.5, and inputs are not zero for "
                           "up to %g of the open ones",
                           gates, inputs, rounded_up);
        d->rows[d->n] = 2 * gates;
        d->weights[d->n++] = inputs / (rounded_up * gates);
        if (!*p) return BITNET_OK;
    }
}
