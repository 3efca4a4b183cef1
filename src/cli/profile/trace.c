/* SPDX-License-Identifier: Apache-2.0
 *
 * profile/trace.c: when each worker was at what, in the trace-event format that Chrome's and
 * Perfetto's viewers open. Track 0 has the steps by our own clock, track 1 + i worker i, a counter
 * the CPU's clock. Times are microseconds since the first step, with three digits: whole
 * nanoseconds.
 *
 * Written event by event: a trace may be larger than what one would like to hold in memory.
 */
#include "cli/profile/profile.h"
#include <inttypes.h>
#include <stdarg.h>

enum { PID = 1, EVENT_BYTES = 512 };

struct writer {
    struct bn_out *out;
    uint64_t origin_ns;
    bool begun; /* a comma comes first */
};

static bitnet_status put(struct writer *w, bitnet_error *err, const char *fmt, ...) BN_PRINTF(3, 4);

/* One event: the members of its object. */
static bitnet_status put(struct writer *w, bitnet_error *err, const char *fmt, ...)
{
    char text[EVENT_BYTES];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof text)
        return bn_fail(err, BITNET_E_LIMIT, "an event of the trace has more than %d bytes",
                       EVENT_BYTES - 1);
    BN_TRY(bn_out_write(w->out, w->begun ? ",\n{" : "{", w->begun ? 3 : 1, err));
    w->begun = true;
    BN_TRY(bn_out_write(w->out, text, (size_t)n, err));
    return bn_out_write(w->out, "}", 1, err);
}

/* Negative for what lies before the first step. */
static double us_since(const struct writer *w, uint64_t ns)
{
    return (double)(int64_t)(ns - w->origin_ns) / 1e3;
}

static bitnet_status put_name(struct writer *w, const char *what, uint32_t tid, const char *name,
                              bitnet_error *err)
{
    return put(w, err,
               "\"ph\":\"M\",\"pid\":%d,\"tid\":%u,\"name\":\"%s\",\"args\":{\"name\":\"%s\"}", PID,
               tid, what, name);
}

static bitnet_status put_steps(struct writer *w, const struct profile *p, bitnet_error *err)
{
    for (size_t i = 0; i < p->n_steps; i++) {
        const struct profile_step *s = &p->steps[i];
        BN_TRY(put(w, err,
                   "\"ph\":\"X\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"dur\":%.3f,\"name\":\"%s\","
                   "\"cat\":\"step\",\"args\":{\"step\":%zu,\"tokens\":%u}",
                   PID, us_since(w, s->begin_ns), (double)s->ns / 1e3, profile_phase_name(s->phase),
                   i, s->tokens));
    }
    return BITNET_OK;
}

/* A span lasts until the next one of the same worker; the last one, which is rest, is left out. */
static bitnet_status put_worker(struct writer *w, const struct profile *p, uint32_t worker,
                                bitnet_error *err)
{
    bitnet_profile_span s = {.size = sizeof s}, next = {.size = sizeof next};
    if (!bitnet_profile_get_span(p->engine, worker, 0, &s)) return BITNET_OK;
    for (size_t i = 1; bitnet_profile_get_span(p->engine, worker, i, &next); i++, s = next) {
        char layer[24] = "";
        if (s.layer >= 0) snprintf(layer, sizeof layer, "\"layer\":%d,", s.layer);
        BN_TRY(put(w, err,
                   "\"ph\":\"X\",\"pid\":%d,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,\"name\":\"%s\","
                   "\"cat\":\"%s\",\"args\":{%s\"step\":%u}",
                   PID, worker + 1, us_since(w, s.begin_ns),
                   (double)(next.begin_ns - s.begin_ns) / 1e3, s.op, s.kind, layer, s.step));
    }
    return BITNET_OK;
}

static bitnet_status put_clocks(struct writer *w, const struct profile *p, bitnet_error *err)
{
    for (size_t i = 0; i < p->n_clocks; i++)
        BN_TRY(put(w, err,
                   "\"ph\":\"C\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"name\":\"CPU MHz\","
                   "\"args\":{\"mean\":%.1f}",
                   PID, us_since(w, p->clocks[i].at_ns), p->clocks[i].clock.mean_mhz));
    return BITNET_OK;
}

static bitnet_status put_events(struct writer *w, const struct profile *p, bitnet_error *err)
{
    char name[32];
    BN_TRY(put_name(w, "process_name", 0, "bitnet", err));
    BN_TRY(put_name(w, "thread_name", 0, "steps", err));
    for (uint32_t i = 0; i < p->n_workers; i++) {
        snprintf(name, sizeof name, "worker %u", i);
        BN_TRY(put_name(w, "thread_name", i + 1, name, err));
    }
    BN_TRY(put_steps(w, p, err));
    for (uint32_t i = 0; i < p->n_workers; i++) BN_TRY(put_worker(w, p, i, err));
    return put_clocks(w, p, err);
}

bitnet_status profile_trace(struct bn_out *out, const struct profile *p, bitnet_error *err)
{
    static const char head[] = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
    char tail[160];
    struct writer w = {.out = out, .origin_ns = p->n_steps ? p->steps[0].begin_ns : 0};
    BN_TRY(bn_out_write(out, head, sizeof head - 1, err));
    BN_TRY(put_events(&w, p, err));
    int n = snprintf(tail, sizeof tail,
                     "\n],\"otherData\":{\"version\":\"%s\",\"spans_lost\":%" PRIu64
                     ",\"spans_room\":%" PRIu64 "}}\n",
                     bitnet_version(), p->prof.spans_lost, p->prof.spans_room);
    return bn_out_end(out, tail, (size_t)n, err);
}

/* ------------------------------------------------------------------ folded stacks */

/* Sums as folded stacks, which tools for flame graphs read: a line for each place that has taken time,
 * "bitnet;decode;layer 03;matrix;gate 12345". The number is nanoseconds, those of all workers added
 * up, so that it is exact. */
static bitnet_status put_stack(struct bn_out *out, const struct profile *p, bitnet_phase phase,
                               uint32_t row, uint32_t op, bitnet_error *err)
{
    uint64_t ns = p->phases[phase].by_row[(size_t)row * p->n_ops + op].ns;
    char layer[24] = "", line[256];
    if (!ns) return BITNET_OK;
    if (row) snprintf(layer, sizeof layer, "layer %02u;", row - 1);
    int n = snprintf(line, sizeof line, "bitnet;%s;%s%s;%s %llu\n", profile_phase_name(phase),
                     layer, p->ops[op].kind, p->ops[op].name, (unsigned long long)ns);
    return bn_out_write(out, line, (size_t)n, err);
}

bitnet_status profile_folded(struct bn_out *out, const struct profile *p, bitnet_error *err)
{
    for (int phase = 0; phase < PROFILE_PHASES; phase++)
        for (uint32_t row = 0; row < p->n_rows; row++)
            for (uint32_t op = 0; op < p->n_ops; op++)
                BN_TRY(put_stack(out, p, (bitnet_phase)phase, row, op, err));
    return bn_out_commit(out, err);
}
