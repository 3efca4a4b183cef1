/* SPDX-License-Identifier: Apache-2.0
 *
 * arrivals.h: when the requests of an open loop are due, whatever the server does: at a rate,
 * evenly or at random, or as a trace file says. Times are nanoseconds since the run began, never
 * decreasing.
 */
#ifndef BN_CLI_LOAD_ARRIVALS_H
#define BN_CLI_LOAD_ARRIVALS_H

#include "base/rng.h"
#include "base/status.h"

enum { LOAD_MAX_TRACE = 1 << 20 }; /* rows of a trace */

struct load_trace_row {
    uint64_t due_ns; /* since the first row */
    uint32_t n_in, n_out;
};

struct load_trace {
    struct load_trace_row *rows;
    size_t n, room;
};

struct load_trace_config {
    double time_factor;  /* of the gaps between requests: 0.5 doubles the rate */
    double token_factor; /* of both token counts; none gets below 1 */
    uint64_t limit;      /* rows at most; 0: all */
};

/* Columns by the names of the first line: TIMESTAMP, ContextTokens, GeneratedTokens, as in Azure's
 * traces. A time is "YYYY-MM-DD hh:mm:ss.fraction" or a number of seconds. Zero-initialise *t. */
bitnet_status load_trace_read(struct load_trace *t, const char *path,
                              const struct load_trace_config *c, bitnet_error *err);
void load_trace_free(struct load_trace *t);

struct load_arrivals {
    const struct load_trace *trace; /* NULL: a rate */
    double rate;                    /* requests a second */
    /* of the gamma distribution of gaps: 1 is a Poisson process, less is burstier; 0: all equal */
    double shape;
    double ramp_s; /* in which the rate grows from 0, evenly */
    struct bn_rng rng;
    double expected; /* requests that the rate has promised so far */
    uint64_t n;      /* requests so far */
};

/* When the next one is due. false: the trace has ended. */
bool load_arrivals_next(struct load_arrivals *a, uint64_t *due_ns);

/* A gamma variable of mean 1, and a standard normal one. */
double load_draw_gamma(struct bn_rng *r, double shape);
double load_draw_normal(struct bn_rng *r);

#endif
