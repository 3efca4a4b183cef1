/* SPDX-License-Identifier: Apache-2.0
 *
 * load/report.c: runs as a JSON report. The table, the CSV file and the head of the plot are made
 * from it, so that none can show what the report does not say.
 */
#include "base/os/mem.h"
#include "app/machine_report.h"
#include "cli/load/load.h"
#include "app/report.h"
#include "app/term.h"
#include <math.h>
#include <stdlib.h>

/* ------------------------------------------------------------------ one request */

const char *const load_goal_names[LOAD_GOALS] = {"ttft", "itl", "tpot", "e2e"};

const char *const load_outcome_names[LOAD_OUTCOMES] = {
    [LOAD_OK] = "ok",
    [LOAD_BUSY] = "busy_429",
    [LOAD_CLIENT_ERROR] = "status_4xx",
    [LOAD_SERVER_ERROR] = "status_5xx",
    [LOAD_NO_CONNECTION] = "connection",
    [LOAD_TIMEOUT] = "timeout",
    [LOAD_BAD_STREAM] = "bad_stream",
    [LOAD_UNFINISHED] = "unfinished",
};

double load_record_ms(const struct load_record *r, enum load_goal what)
{
    switch (what) {
    case LOAD_TTFT: return r->first_ns ? (double)(r->first_ns - r->due_ns) / 1e6 : -1;
    case LOAD_ITL: return r->n_chunks > 1 ? (double)r->worst_gap_ns / 1e6 : -1;
    case LOAD_TPOT:
        if (r->n_output < 2 || r->n_chunks < 2) return -1;
        return (double)(r->last_ns - r->first_ns) / 1e6 / (double)(r->n_output - 1);
    case LOAD_E2E: return (double)(r->end_ns - r->due_ns) / 1e6;
    case LOAD_GOALS: break;
    }
    return -1;
}

bool load_record_good(const struct load_record *r, const struct load_settings *s)
{
    if (r->outcome != LOAD_OK) return false;
    for (int g = 0; g < LOAD_GOALS; g++)
        if (s->goals_ms[g] > 0 && load_record_ms(r, (enum load_goal)g) > s->goals_ms[g])
            return false;
    return true;
}

/* Sums over the counted requests of a run. */
struct totals {
    uint64_t n, n_ok, n_good, n_late, n_empty, n_without_usage, n_warmup;
    uint64_t outcomes[LOAD_OUTCOMES];
    double asked_in, asked_out, prompt, cached, output; /* tokens of requests that went well */
    uint64_t first_due_ns, last_due_ns, last_end_ns;
};

static void add_record(struct totals *t, const struct load_record *r, const struct load_settings *s)
{
    if (!r->counted) {
        t->n_warmup++;
        return;
    }
    if (t->n++ == 0 || r->due_ns < t->first_due_ns) t->first_due_ns = r->due_ns;
    if (r->due_ns > t->last_due_ns) t->last_due_ns = r->due_ns;
    if (r->end_ns > t->last_end_ns) t->last_end_ns = r->end_ns;
    t->outcomes[r->outcome]++;
    t->n_late += s->loop != LOAD_CLOSED && r->sent_ns - r->due_ns > LOAD_LATE_MS * 1000000ull;
    if (r->outcome != LOAD_OK) return;
    t->n_ok++;
    t->n_good += load_record_good(r, s);
    t->n_empty += r->n_chunks == 0;
    t->n_without_usage += !r->has_usage;
    t->asked_in += r->asked_in;
    t->asked_out += r->asked_out;
    t->prompt += r->n_prompt;
    t->cached += r->n_cached;
    t->output += r->n_output;
}

static double seconds_between(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) / 1e9 : 0;
}

/* Requests a second that were due. */
static double offered(const struct load_run *run, const struct totals *t)
{
    if (run->until_ns) return (double)run->n_due / seconds_between(t->first_due_ns, run->until_ns);
    double span = seconds_between(t->first_due_ns, t->last_due_ns);
    return span > 0 ? (double)(run->n_due - 1) / span : NAN;
}

static struct bn_json *json_summary(const struct load_summary *m, const struct load_settings *s)
{
    struct bn_json *o = bn_json_object();
    set_int(o, "n", m->n);
    set_real(o, "mean", m->n ? m->mean : NAN);
    set_real(o, "sd", m->n > 1 ? m->deviation : NAN);
    for (size_t i = 0; i < s->n_percentiles; i++) {
        char key[24];
        snprintf(key, sizeof key, "p%.6g", s->percentiles[i]);
        set_real(o, key, m->n ? m->at[i] : NAN);
    }
    set_real(o, "max", m->n ? m->max : NAN);
    return o;
}

/* Times of requests that went well; scratch: [n_records]. */
static struct bn_json *json_times(const struct load_run *run, enum load_goal what, double *scratch)
{
    const struct load_settings *s = run->settings;
    size_t n = 0;
    for (size_t i = 0; i < run->n_records; i++) {
        const struct load_record *r = &run->records[i];
        double ms = r->counted && r->outcome == LOAD_OK ? load_record_ms(r, what) : -1;
        if (ms >= 0) scratch[n++] = ms;
    }
    struct load_summary m = load_summarize(scratch, n, s->percentiles, s->n_percentiles);
    return json_summary(&m, s);
}

static struct bn_json *json_send_delay(const struct load_run *run, double *scratch)
{
    const struct load_settings *s = run->settings;
    size_t n = 0;
    for (size_t i = 0; i < run->n_records; i++)
        if (run->records[i].counted)
            scratch[n++] = (double)(run->records[i].sent_ns - run->records[i].due_ns) / 1e6;
    struct load_summary m = load_summarize(scratch, n, s->percentiles, s->n_percentiles);
    return json_summary(&m, s);
}

static struct bn_json *json_outcomes(const struct load_run *run, const struct totals *t)
{
    struct bn_json *o = bn_json_object();
    for (int i = 0; i < LOAD_OUTCOMES; i++) {
        if (!t->outcomes[i] && i != LOAD_OK) continue;
        struct bn_json *one = bn_json_object();
        set_int(one, "n", t->outcomes[i]);
        if (*run->why[i]) set_text(one, "first_reason", run->why[i]);
        bn_json_set(o, load_outcome_names[i], one);
    }
    return o;
}

static struct bn_json *json_tokens(const struct totals *t)
{
    double n = t->n_ok ? (double)t->n_ok : NAN;
    struct bn_json *o = bn_json_object();
    set_real(o, "asked_prompt_mean", t->asked_in / n);
    set_real(o, "prompt_mean", t->prompt / n);
    set_real(o, "cached_mean", t->cached / n);
    set_real(o, "asked_output_mean", t->asked_out / n);
    set_real(o, "output_mean", t->output / n);
    set_int(o, "replies_without_usage", t->n_without_usage);
    set_int(o, "replies_without_text", t->n_empty);
    return o;
}

static struct bn_json *json_goodput(const struct load_run *run, const struct totals *t,
                                    double seconds)
{
    struct bn_json *o = bn_json_object(), *goals = bn_json_object();
    for (int g = 0; g < LOAD_GOALS; g++)
        if (run->settings->goals_ms[g] > 0)
            set_real(goals, load_goal_names[g], run->settings->goals_ms[g]);
    bn_json_set(o, "goals_ms", goals);
    set_int(o, "good", t->n_good);
    set_real(o, "share", run->n_due ? (double)t->n_good / (double)run->n_due : NAN);
    set_real(o, "rps", (double)t->n_good / seconds);
    return o;
}

static struct bn_json *json_server(const struct load_run *run)
{
    struct bn_json *o = bn_json_object();
    for (int m = 0; m < LOAD_METRICS; m++) {
        double mean = load_scrape_mean(&run->before, &run->after, (enum load_metric)m);
        if (!isnan(mean)) set_real(o, load_metric_infos[m].key, mean * load_metric_infos[m].factor);
    }
    return o;
}

static struct bn_json *json_memory(const struct load_memory *m)
{
    struct bn_json *o = bn_json_object();
    double first = m->bytes[0], last = m->bytes[m->n - 1];
    set_real(o, "first_bytes", first);
    set_real(o, "last_bytes", last);
    set_real(o, "growth", last / first - 1);
    set_real(o, "slope_bytes_per_hour", load_memory_slope(m) * 3600);
    set_int(o, "samples", m->n);
    return o;
}

static void set_counts(struct bn_json *o, const struct load_run *run, const struct totals *t)
{
    set_int(o, "requests", run->n_due);
    set_int(o, "ok", t->n_ok);
    set_int(o, "failed", t->n - t->n_ok - t->outcomes[LOAD_UNFINISHED]);
    set_int(o, "unfinished", t->outcomes[LOAD_UNFINISHED]);
    set_int(o, "unsent", run->n_unsent);
    set_int(o, "late", t->n_late);
    set_int(o, "warmup", t->n_warmup);
    bn_json_set(o, "outcomes", json_outcomes(run, t));
}

static struct bn_json *json_run(const struct load_run *run, double *scratch)
{
    const struct load_settings *s = run->settings;
    struct totals t = {0};
    for (size_t i = 0; i < run->n_records; i++) add_record(&t, &run->records[i], s);
    if (run->until_ns > t.last_end_ns) t.last_end_ns = run->until_ns;
    double seconds = seconds_between(t.first_due_ns, t.last_end_ns);
    if (seconds == 0) seconds = NAN;
    struct bn_json *o = bn_json_object();
    set_int(o, "at_a_time", run->at_a_time);
    if (s->loop != LOAD_CLOSED) set_real(o, "offered_rps", offered(run, &t));
    set_counts(o, run, &t);
    set_real(o, "seconds", seconds);
    set_real(o, "rps", (double)t.n_ok / seconds);
    set_real(o, "prompt_tok_s", t.prompt / seconds);
    set_real(o, "output_tok_s", t.output / seconds);
    bn_json_set(o, "tokens", json_tokens(&t));
    bn_json_set(o, "ttft_ms", json_times(run, LOAD_TTFT, scratch));
    struct load_summary gaps =
        load_summarize_hist(run->gaps, 1e6, s->percentiles, s->n_percentiles);
    bn_json_set(o, "itl_ms", json_summary(&gaps, s));
    bn_json_set(o, "tpot_ms", json_times(run, LOAD_TPOT, scratch));
    bn_json_set(o, "e2e_ms", json_times(run, LOAD_E2E, scratch));
    if (s->loop != LOAD_CLOSED) bn_json_set(o, "send_delay_ms", json_send_delay(run, scratch));
    bn_json_set(o, "goodput", json_goodput(run, &t, seconds));
    if (run->before.found && run->after.found) bn_json_set(o, "server", json_server(run));
    if (run->memory.n) bn_json_set(o, "server_memory", json_memory(&run->memory));
    set_real(o, "own_cpu_share", run->own_cpu_share);
    bn_json_set(o, "interrupted", bn_json_bool(run->interrupted));
    bn_json_set(o, "record_limit_reached", bn_json_bool(run->full));
    return o;
}

static struct bn_json *json_settings(const struct load_settings *s)
{
    struct bn_json *o = bn_json_object();
    set_text(o, "endpoint", s->prompts.chat ? "chat" : "completions");
    set_text(o, "model", s->prompts.model);
    set_int(o, "seed", s->prompts.seed);
    if (s->trace) set_text(o, "trace", s->trace);
    if (s->dataset) set_text(o, "dataset", s->dataset);
    else if (!s->trace) set_text(o, "input_len", s->input_len);
    if (!s->trace) set_text(o, "output_len", s->output_len);
    set_real(o, "duration_s", s->duration_s > 0 ? s->duration_s : NAN);
    bn_json_set(o, "requests",
                s->n_requests ? bn_json_int((int64_t)s->n_requests) : bn_json_null());
    set_real(o, "ramp_up_s", s->ramp_s);
    set_real(o, "warmup_s", s->warmup_s);
    set_int(o, "warmup_requests", s->warmup_requests);
    set_real(o, "timeout_s", s->timeout_s);
    set_int(o, "shared_prefix", s->prompts.shared_prefix);
    bn_json_set(o, "ignore_eos", bn_json_bool(s->prompts.ignore_eos));
    if (s->loop != LOAD_RATE) return o;
    set_real(o, "rps", s->arrivals.rate);
    set_text(o, "arrival", s->arrivals.shape > 0 ? "poisson" : "constant");
    if (s->arrivals.shape > 0) set_real(o, "burstiness", s->arrivals.shape);
    return o;
}

struct bn_json *load_report(const struct load_settings *s, const struct load_run *runs,
                            size_t n_runs)
{
    static const char *const loops[] = {
        [LOAD_CLOSED] = "closed", [LOAD_RATE] = "rate", [LOAD_TRACE] = "trace"};
    struct bn_json *o = bn_json_object(), *items = bn_json_array(), *percentiles = bn_json_array();
    char date[32];
    size_t most = 1;
    machine_date(date, sizeof date);
    for (size_t i = 0; i < n_runs; i++) most = bn_max_size(most, runs[i].n_records);
    double *scratch = bn_calloc(most, sizeof *scratch);
    for (size_t i = 0; scratch && i < n_runs; i++)
        bn_json_append(items, json_run(&runs[i], scratch));
    free(scratch);
    for (size_t i = 0; i < s->n_percentiles; i++)
        bn_json_append(percentiles, bn_json_real(s->percentiles[i]));
    set_text(o, "format", LOAD_FORMAT);
    set_text(o, "date", date);
    set_text(o, "version", bitnet_version());
    set_text(o, "url", s->url);
    set_text(o, "loop", loops[s->loop]);
    set_text(o, "latency_from", s->loop == LOAD_CLOSED ? "sent" : "due");
    bn_json_set(o, "percentiles", percentiles);
    bn_json_set(o, "settings", json_settings(s));
    bn_json_set(o, "runs", items);
    if (scratch && bn_json_size(items) == n_runs) return o;
    bn_json_free(o);
    return NULL;
}
