/* SPDX-License-Identifier: Apache-2.0
 *
 * A process of rate 1 is drawn first; its times are then bent so that the rate is the one asked
 * for at every moment, on a ramp as well.
 */
#include "cli/load/arrivals.h"

#include <math.h>

double load_draw_normal(struct bn_rng *r)
{
    double u = 1 - bn_rng_unit(r), v = bn_rng_unit(r); /* u: never 0 */
    return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v);
}

/* Marsaglia and Tsang's rejection for shapes from 1 on; a smaller shape is one more times a power
 * of a uniform variable. */
static double draw_standard_gamma(struct bn_rng *r, double shape)
{
    if (shape < 1) {
        double u = 1 - bn_rng_unit(r);
        return draw_standard_gamma(r, shape + 1) * pow(u, 1 / shape);
    }
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = load_draw_normal(r), v = 1 + c * x;
        if (v <= 0) continue;
        v = v * v * v;
        if (log(1 - bn_rng_unit(r)) < x * x / 2 + d - d * v + d * log(v)) return d * v;
    }
}

double load_draw_gamma(struct bn_rng *r, double shape)
{
    if (shape == 1) return -log(1 - bn_rng_unit(r));
    return draw_standard_gamma(r, shape) / shape;
}

/* Seconds until the rate has promised `expected` requests: on the ramp it promises
 * rate t^2 / (2 ramp) in t seconds, after it rate (t - ramp / 2). */
static double seconds_at(const struct load_arrivals *a, double expected)
{
    double on_ramp = a->rate * a->ramp_s / 2;
    if (expected < on_ramp) return sqrt(2 * a->ramp_s * expected / a->rate);
    return a->ramp_s / 2 + expected / a->rate;
}

bool load_arrivals_next(struct load_arrivals *a, uint64_t *due_ns)
{
    if (a->trace) {
        if (a->n == a->trace->n) return false;
        *due_ns = a->trace->rows[a->n++].due_ns;
        return true;
    }
    /* constant gaps begin with the first request at once; random ones begin with a gap */
    if (a->shape > 0) a->expected += load_draw_gamma(&a->rng, a->shape);
    else if (a->n) a->expected += 1;
    a->n++;
    *due_ns = (uint64_t)(seconds_at(a, a->expected) * 1e9);
    return true;
}
