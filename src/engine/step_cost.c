/* SPDX-License-Identifier: Apache-2.0
 *
 * Least squares with forgetting. A step weighs MEMORY times as much as the one after it, so the
 * last twenty or so count, and costs that change (longer contexts, a busy machine) are followed.
 *
 * A new solution is sought near the last one (DAMP). So what recent steps tell badly, because they
 * were all alike, moves slowly; what they do not tell at all stays as it was: a thousand steps without
 * prompts leave the price of a prompt token alone. A step that took much longer than expected (the
 * machine was elsewhere) is taken for one that took a little longer; if such steps become the rule,
 * the rule follows within about twenty.
 */
#include "engine/step_cost.h"

#include <math.h>

enum { N = BN_STEP_COST_TERMS };

static const double MEMORY = 0.95;
static const double DAMP = 0.001;           /* the weight of the last solution, as a share */
static const double DAMP_ALWAYS = 1e-6;     /* and for what was never seen, in steps */
static const double LEAST_NS = 1;           /* of a price */
static const double MAX_DEVIATIONS = 3;     /* a surprise beyond counts as so much */
static const double LEAST_DEVIATION = 0.02; /* of the time expected, however calm it was */
static const double DEVIATION_PACE = 0.2;   /* of the new in the usual deviation */

/* a d = b for a positive definite, which both become something else. */
static void solve(double a[N][N], double b[N], double d[N])
{
    for (int k = 0; k < N; k++)
        for (int i = k + 1; i < N; i++) {
            double f = a[i][k] / a[k][k];
            for (int j = k; j < N; j++) a[i][j] -= f * a[k][j];
            b[i] -= f * b[k];
        }
    for (int k = N - 1; k >= 0; k--) {
        d[k] = b[k];
        for (int j = k + 1; j < N; j++) d[k] -= a[k][j] * d[j];
        d[k] /= a[k][k];
    }
}

/* The step's time with a surprise cut off; moves the usual deviation. */
static double credible_ns(struct bn_step_cost *c, double expected, double ns)
{
    double surprise = ns - expected;
    double most = MAX_DEVIATIONS * fmax(c->deviation_ns, LEAST_DEVIATION * expected);
    if (surprise > most) surprise = most;
    if (surprise < -most) surprise = -most;
    c->deviation_ns += DEVIATION_PACE * (fabs(surprise) - c->deviation_ns);
    return expected + surprise;
}

void bn_step_cost_learn(struct bn_step_cost *c, uint32_t decodes, uint32_t prompts, uint64_t ns)
{
    const double x[N] = {1, decodes, prompts};
    double y = (double)ns;
    if (c->xx[0][0] == 0) { /* the first: all terms alike, which is dear for prompts */
        c->step_ns = c->decode_ns = c->prompt_ns = y / (1.0 + decodes + prompts);
        c->deviation_ns = y;
    } else {
        y = credible_ns(c, bn_step_cost_ns(c, decodes, prompts), y);
    }
    double *last[N] = {&c->step_ns, &c->decode_ns, &c->prompt_ns};
    double a[N][N], b[N], d[N];
    for (int i = 0; i < N; i++) {
        c->xy[i] = MEMORY * c->xy[i] + x[i] * y;
        b[i] = c->xy[i];
        for (int j = 0; j < N; j++) {
            c->xx[i][j] = MEMORY * c->xx[i][j] + x[i] * x[j];
            a[i][j] = c->xx[i][j] + (i == j ? DAMP * c->xx[i][i] + DAMP_ALWAYS : 0);
            b[i] -= c->xx[i][j] * *last[j];
        }
    }
    solve(a, b, d);
    for (int i = 0; i < N; i++) *last[i] = fmax(LEAST_NS, *last[i] + d[i]);
}

double bn_step_cost_ns(const struct bn_step_cost *c, uint32_t decodes, uint32_t prompts)
{
    return c->step_ns + c->decode_ns * decodes + c->prompt_ns * prompts;
}
