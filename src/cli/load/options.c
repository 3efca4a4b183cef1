/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/load/options.h"

#include "app/process.h"
#include <time.h>

/* ------------------------------------------------------------------ values */

static const double max_seconds = 366 * 86400.0;

enum { WORD_BYTES = 32 };

/* The piece of text up to one of the marks, 0-terminated; NULL: it is longer than a piece can be.
 * Returns where the next piece begins, at the 0 if there is none. */
static const char *next_piece(char out[WORD_BYTES], const char *text, const char *marks)
{
    size_t n = strcspn(text, marks);
    if (n >= WORD_BYTES) return NULL;
    memcpy(out, text, n);
    out[n] = 0;
    return text + n + (text[n] != 0);
}

bool load_parse_seconds(double *out, const char *text)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"", 1}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}};
    char number[WORD_BYTES];
    size_t n = strspn(text, "0123456789.");
    double v;
    if (n >= sizeof number) return false;
    memcpy(number, text, n);
    number[n] = 0;
    if (!args_double(&v, number)) return false;
    for (size_t i = 0; i < BN_ARRAY_LEN(units); i++)
        if (strcmp(text + n, units[i].name) == 0) {
            *out = v * units[i].seconds;
            return *out <= max_seconds;
        }
    return false;
}

bool load_parse_warmup(double *seconds, uint64_t *requests, const char *text)
{
    return args_u64(requests, text, LOAD_MAX_RECORDS) || load_parse_seconds(seconds, text);
}

bool load_parse_goals(double goals_ms[LOAD_GOALS], const char *text)
{
    char piece[WORD_BYTES], name[WORD_BYTES];
    do {
        text = next_piece(piece, text, ", ");
        const char *number = text ? next_piece(name, piece, ":") : NULL;
        int g = 0;
        while (g < LOAD_GOALS && number && strcmp(name, load_goal_names[g]) != 0) g++;
        if (!number || g == LOAD_GOALS || !args_double(&goals_ms[g], number) || !(goals_ms[g] > 0))
            return false;
    } while (*text);
    return true;
}

bool load_parse_percentiles(double *out, size_t *n, const char *text)
{
    char piece[WORD_BYTES];
    *n = 0;
    do {
        text = next_piece(piece, text, ", ");
        if (!text || *n == LOAD_MAX_PERCENTILES || !args_double(&out[*n], piece) || out[*n] < 0 ||
            out[*n] > 100)
            return false;
        ++*n;
    } while (*text);
    return true;
}

/* ------------------------------------------------------------------ the table */

enum { DEFAULT_DURATION_S = 30 };

#define AT(field) offsetof(struct load_options, field)
static const struct opt server_table[] = {
    {.kind = OPT_STR,
     .name = "host",
     .metavar = "URL",
     .help = "the server: http://HOST[:PORT] or https://HOST[:PORT], optionally with a path",
     .offset = AT(host),
     .initial = "http://127.0.0.1:8080",
     .aliases = "base-url",
     .own = true},
    {.kind = OPT_CHOICE,
     .name = "endpoint",
     .help = "chat: /v1/chat/completions; completions: /v1/completions",
     .offset = AT(endpoint),
     .initial = "chat",
     .choices = "chat|completions"},
    {.kind = OPT_STR,
     .name = "model",
     .metavar = "NAME",
     .help = "the model to ask for; without it, the first of /v1/models",
     .offset = AT(model),
     .own = true},
    {.kind = OPT_STR,
     .name = "api-key",
     .metavar = "KEY",
     .help = "sent as bearer token",
     .offset = AT(api_key),
     .secret = true,
     .env = "OPENAI_API_KEY"},
    {.kind = OPT_LIST,
     .name = "header",
     .metavar = "NAME:VALUE",
     .help = "another header for every request; may be repeated",
     .offset = AT(headers)},
    {.kind = OPT_FLAG,
     .name = "insecure",
     .help = "accept any certificate",
     .offset = AT(insecure)},
    {.kind = OPT_END},
};
static const struct opt load_table[] = {
    {.kind = OPT_F32,
     .name = "rps",
     .metavar = "R",
     .help = "open loop: send this many requests per second, whether or not answers come",
     .offset = AT(rps),
     .aliases = "request-rate",
     .min = 0.001,
     .max = 100000,
     .given = AT(has_rps)},
    {.kind = OPT_CHOICE,
     .name = "arrival",
     .help = "with --rps: random, as from many independent users, or evenly spaced",
     .offset = AT(arrival),
     .initial = "poisson",
     .choices = "poisson|constant"},
    {.kind = OPT_F32,
     .name = "burstiness",
     .metavar = "X",
     .help = "shape of the random gaps: 1 is Poisson, less is burstier, more is more even",
     .offset = AT(burstiness),
     .initial = "1",
     .min = 0.01,
     .max = 1000,
     .given = AT(has_burstiness)},
    {.kind = OPT_STR,
     .name = "trace",
     .metavar = "FILE",
     .help = "open loop: times and lengths of requests from a CSV file with the columns "
             "TIMESTAMP,ContextTokens,GeneratedTokens of Azure's traces",
     .offset = AT(trace),
     .own = true},
    {.kind = OPT_F32,
     .name = "trace-scale",
     .metavar = "X",
     .help = "multiply the gaps of the trace by X: 0.5 doubles the rate",
     .offset = AT(trace_scale),
     .initial = "1",
     .min = 0.00001,
     .max = 100000},
    {.kind = OPT_F32,
     .name = "trace-tokens",
     .metavar = "X",
     .help = "multiply the token counts of the trace by X",
     .offset = AT(trace_tokens),
     .initial = "1",
     .min = 0.00001,
     .max = 100000},
    {.kind = OPT_U64,
     .name = "trace-limit",
     .metavar = "N",
     .help = "only the first N requests of the trace; 0 is all",
     .offset = AT(trace_limit),
     .initial = "0",
     .min = 0,
     .max = LOAD_MAX_TRACE},
    {.kind = OPT_U32,
     .letter = 'c',
     .name = "concurrency",
     .metavar = "N",
     .help = "closed loop: N clients, each waits for its answer before it asks again",
     .offset = AT(concurrency),
     .initial = "1",
     .min = 1,
     .max = LOAD_MAX_OUTSTANDING,
     .given = AT(has_concurrency)},
    {.kind = OPT_U32S,
     .name = "batch-sizes",
     .metavar = "LIST",
     .help = "one run for each number of clients; with --rps or --trace: of open requests at most",
     .offset = AT(batch_sizes),
     .min = 1,
     .max = LOAD_MAX_OUTSTANDING},
    {.kind = OPT_U32,
     .name = "max-outstanding",
     .metavar = "N",
     .help = "open loop: open requests at most; others leave late, which is counted",
     .offset = AT(max_outstanding),
     .initial = "1024",
     .aliases = "max-concurrency",
     .min = 1,
     .max = LOAD_MAX_OUTSTANDING},
    {.kind = OPT_STR,
     .name = "duration",
     .metavar = "TIME",
     .help = "how long to send requests, after the warm-up: 90, 90s, 10m, 1h",
     .offset = AT(duration),
     .shown = "30s, unless --requests or --trace"},
    {.kind = OPT_U64,
     .letter = 'n',
     .name = "requests",
     .metavar = "N",
     .help = "stop after N requests, not counting the warm-up",
     .offset = AT(requests),
     .aliases = "num-prompts",
     .min = 1,
     .max = LOAD_MAX_RECORDS},
    {.kind = OPT_STR,
     .name = "warmup",
     .metavar = "N|TIME",
     .help = "send N requests, or requests for some seconds (10s), that are not counted",
     .offset = AT(warmup),
     .initial = "0",
     .aliases = "num-warmups",
     .own = true},
    {.kind = OPT_STR,
     .name = "ramp-up",
     .metavar = "TIME",
     .help =
         "time in which the rate or the clients grow from none, before the warm-up; not counted",
     .offset = AT(ramp_up),
     .initial = "0"},
    {.kind = OPT_STR,
     .name = "timeout",
     .metavar = "TIME",
     .help = "time limit of a request",
     .offset = AT(timeout),
     .initial = "5m",
     .own = true},
    {.kind = OPT_END},
};
static const struct opt request_table[] = {
    {.kind = OPT_STR,
     .name = "input-len",
     .metavar = "LEN",
     .help = "words per prompt, each about a token: N, FROM-TO, or normal:MEAN,SD",
     .offset = AT(input_len),
     .initial = "64",
     .aliases = "random-input-len"},
    {.kind = OPT_STR,
     .name = "output-len",
     .metavar = "LEN",
     .help = "tokens per answer at most, in the same formats",
     .offset = AT(output_len),
     .initial = "64",
     .aliases = "random-output-len"},
    {.kind = OPT_STR,
     .name = "dataset",
     .metavar = "FILE",
     .help = "prompts from a JSONL file, in order, starting over at its end: \"messages\", "
             "\"prompt\" or the first of \"turns\"",
     .offset = AT(dataset),
     .own = true},
    {.kind = OPT_U32,
     .name = "shared-prefix",
     .metavar = "N",
     .help = "words shared by the beginning of all prompts; by default no two prompts begin alike",
     .offset = AT(shared_prefix),
     .initial = "0",
     .min = 0,
     .max = LOAD_MAX_TOKENS},
    {.kind = OPT_FLAG,
     .name = "ignore-eos",
     .help = "ask for answers of full length (not every server supports it)",
     .offset = AT(ignore_eos)},
    {.kind = OPT_F32,
     .name = "temperature",
     .metavar = "T",
     .help = "sampling temperature; by default the server's",
     .offset = AT(temperature),
     .min = 0,
     .max = 100,
     .given = AT(has_temperature)},
    SEED_OPT("seed of arrivals, lengths and prompts; request i samples with seed N + i. With the "
             "same seed again, the server may have the prompts cached",
             AT(seed), .shown = "from the clock", .given = AT(has_seed)),
    {.kind = OPT_END},
};
static const struct opt report_table[] = {
    {.kind = OPT_STR,
     .name = "goodput",
     .metavar = "GOALS",
     .help = "count requests that meet all of these limits, in ms: "
             "ttft:200,itl:50,tpot:40,e2e:5000 (itl: the longest gap of a request)",
     .offset = AT(goodput)},
    {.kind = OPT_STR,
     .name = "latency-percentiles",
     .metavar = "P,P...",
     .help = "percentiles of the report",
     .offset = AT(percentiles),
     .initial = "50,90,95,99"},
    {.kind = OPT_FLAG,
     .name = "json",
     .help = "print the report as a JSON object",
     .offset = AT(json)},
    {.kind = OPT_STR,
     .name = "csv",
     .metavar = "FILE",
     .help = "write the report as CSV, one row per run",
     .offset = AT(csv)},
    {.kind = OPT_STR,
     .name = "save-requests",
     .metavar = "FILE",
     .help = "write all requests as JSON lines",
     .offset = AT(save_requests)},
    {.kind = OPT_STR,
     .name = "plot",
     .metavar = "FILE",
     .help = "plot latencies over time and their distributions, as SVG, or as a page with a table "
             "if FILE ends in .html",
     .offset = AT(plot)},
    {.kind = OPT_U32,
     .name = "pid",
     .metavar = "PID",
     .help = "watch the memory of this process, the server: growth and slope",
     .offset = AT(pid),
     .min = 1,
     .max = UINT32_MAX},
    {.kind = OPT_FLAG,
     .name = "soak",
     .help = "for long runs: print a line per minute to standard error, with the memory of --pid",
     .offset = AT(soak)},
    {.kind = OPT_FLAG,
     .letter = 'q',
     .name = "quiet",
     .help = "no progress bar",
     .offset = AT(quiet)},
    {.kind = OPT_END},
};
const struct opt_part load_option_parts[] = {
    {"Server", server_table, 0}, {"Load", load_table, 0}, {"Requests", request_table, 0},
    {"Report", report_table, 0}, {NULL, NULL, 0},
};
#undef AT

/* ------------------------------------------------------------------ their meaning */

static bitnet_status wrong(const char *option, const char *form, const char *value,
                           bitnet_error *err)
{
    return bn_fail(err, BITNET_E_ARG, "--%s expects %s, not '%.100s'", option, form, value);
}

static bitnet_status read_times(struct load_settings *s, const struct load_options *c,
                                bitnet_error *err)
{
    static const char form[] = "a time as 90, 90s, 10m or 1h";
    if (c->duration && (!load_parse_seconds(&s->duration_s, c->duration) || s->duration_s <= 0))
        return wrong("duration", form, c->duration, err);
    if (!load_parse_warmup(&s->warmup_s, &s->warmup_requests, c->warmup))
        return wrong("warmup", "a number of requests or a time as 10s", c->warmup, err);
    if (!load_parse_seconds(&s->ramp_s, c->ramp_up)) return wrong("ramp-up", form, c->ramp_up, err);
    if (!load_parse_seconds(&s->timeout_s, c->timeout) || s->timeout_s <= 0)
        return wrong("timeout", form, c->timeout, err);
    s->n_requests = c->requests;
    if (!c->duration && !c->requests && !c->trace) s->duration_s = DEFAULT_DURATION_S;
    return BITNET_OK;
}

static bitnet_status read_load(struct load_test *t, const struct load_options *c, bitnet_error *err)
{
    struct load_settings *s = &t->settings;
    const struct load_trace_config trace = {(double)c->trace_scale, (double)c->trace_tokens,
                                            c->trace_limit};
    bool constant = strcmp(c->arrival, "constant") == 0;
    if (c->has_rps + c->has_concurrency + (c->trace != NULL) > 1)
        return bn_fail(err, BITNET_E_ARG,
                       "--rps, --trace and --concurrency are three kinds of load; give one of them "
                       "(--max-outstanding limits open requests)");
    if (c->has_concurrency && c->batch_sizes.n)
        return bn_fail(err, BITNET_E_ARG, "--concurrency and --batch-sizes say the same; give one");
    if (constant && c->has_burstiness)
        return bn_fail(err, BITNET_E_ARG, "--burstiness has no meaning with --arrival constant");
    s->loop = c->trace ? LOAD_TRACE : c->has_rps ? LOAD_RATE : LOAD_CLOSED;
    if (c->trace) BN_TRY(load_trace_read(&t->trace, c->trace, &trace, err));
    s->arrivals = (struct load_arrivals){.trace = c->trace ? &t->trace : NULL,
                                         .rate = (double)c->rps,
                                         .shape = constant ? 0 : (double)c->burstiness,
                                         .ramp_s = s->ramp_s,
                                         .rng.state = bn_mix64(s->prompts.seed + 1)};
    if (c->trace && s->ramp_s > 0)
        return bn_fail(err, BITNET_E_ARG, "--ramp-up has no meaning with --trace");
    return BITNET_OK;
}

/* A server that was asked before must not know the prompts. */
static uint64_t seed_from_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return ((uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000) & INT32_MAX;
}

static bitnet_status read_prompts(struct load_test *t, const struct load_options *c,
                                  bitnet_error *err)
{
    static const char form[] = "a length as 64, 32-256 or normal:200,50";
    struct load_prompts *p = &t->settings.prompts;
    if (!load_length_parse(&p->in, c->input_len))
        return wrong("input-len", form, c->input_len, err);
    if (!load_length_parse(&p->out, c->output_len))
        return wrong("output-len", form, c->output_len, err);
    if (c->dataset) {
        BN_TRY(load_dataset_read(&t->dataset, c->dataset, err));
        p->dataset = &t->dataset;
    }
    p->chat = strcmp(c->endpoint, "chat") == 0;
    p->model = c->model;
    p->shared_prefix = c->shared_prefix;
    p->seed = c->has_seed ? c->seed : seed_from_clock();
    p->ignore_eos = c->ignore_eos;
    p->has_temperature = c->has_temperature;
    p->temperature = c->temperature;
    return BITNET_OK;
}

static bitnet_status read_report(struct load_settings *s, const struct load_options *c,
                                 bitnet_error *err)
{
    if (c->goodput && !load_parse_goals(s->goals_ms, c->goodput))
        return wrong("goodput", "goals as ttft:200,itl:50,tpot:40,e2e:5000", c->goodput, err);
    if (!load_parse_percentiles(s->percentiles, &s->n_percentiles, c->percentiles))
        return wrong("latency-percentiles", "at most 16 numbers from 0 to 100, as 50,90,99.9",
                     c->percentiles, err);
    if (c->pid && !(process_resident_bytes(c->pid) > 0))
        return bn_fail(err, BITNET_E_ARG, "--pid: there is no process %u", c->pid);
    s->url = c->host;
    s->trace = c->trace;
    s->dataset = c->dataset;
    s->input_len = c->input_len;
    s->output_len = c->output_len;
    s->pid = c->pid;
    s->soak = c->soak;
    s->quiet = c->quiet || c->soak;
    return BITNET_OK;
}

bitnet_status load_test_read(struct load_test *t, const struct load_options *c, bitnet_error *err)
{
    BN_TRY(load_target_parse(&t->target, c->host, err));
    t->target.insecure = c->insecure;
    BN_TRY(load_target_headers(&t->target, c->api_key, &c->headers, err));
    BN_TRY(read_times(&t->settings, c, err));
    BN_TRY(read_prompts(t, c, err));
    BN_TRY(read_report(&t->settings, c, err));
    return read_load(t, c, err);
}

void load_test_free(struct load_test *t)
{
    load_trace_free(&t->trace);
    load_dataset_free(&t->dataset);
    load_target_close(&t->target);
}
