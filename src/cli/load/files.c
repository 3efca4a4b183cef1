/* SPDX-License-Identifier: Apache-2.0
 *
 * files.c: the report as CSV, one row a run, and all requests as JSON lines.
 */
#include "app/report.h"
#include "cli/load/load.h"

enum { LINE_BYTES = 2048 };

/* A column that may be missing is empty. */
static void put_number(struct bn_buf *out, const struct bn_json *o, const char *key)
{
    const struct bn_json *v = bn_json_get(o, key);
    if (bn_json_is_int(v)) bn_buf_printf(out, ",%lld", (long long)bn_json_integer(v));
    else if (bn_json_is_real(v)) bn_buf_printf(out, ",%.6g", bn_json_number(v));
    else bn_buf_putc(out, ',');
}

static const char *const counts[] = {
    "at_a_time", "offered_rps", "requests", "ok",  "failed",       "unfinished",   "unsent",
    "late",      "warmup",      "seconds",  "rps", "prompt_tok_s", "output_tok_s", "own_cpu_share"};
static const char *const token_counts[] = {"asked_prompt_mean", "prompt_mean", "cached_mean",
                                           "asked_output_mean", "output_mean"};
static const char *const times[] = {"ttft_ms", "itl_ms", "tpot_ms", "e2e_ms", "send_delay_ms"};

/* Number i of the members of a summary that become columns; "" when there are no more. */
static const char *time_key(char out[24], const struct bn_json *report, size_t i)
{
    const struct bn_json *percentiles = bn_json_get(report, "percentiles");
    static const char *const fixed[] = {"mean", "sd", "max"};
    if (i < BN_ARRAY_LEN(fixed)) return fixed[i];
    i -= BN_ARRAY_LEN(fixed);
    if (i >= bn_json_size(percentiles)) return "";
    snprintf(out, 24, "p%.6g", bn_json_number(bn_json_at(percentiles, i)));
    return out;
}

static void put_names(struct bn_buf *out, const struct bn_json *report)
{
    char key[24];
    bn_buf_puts(out, "loop");
    for (size_t i = 0; i < BN_ARRAY_LEN(counts); i++) bn_buf_printf(out, ",%s", counts[i]);
    for (int i = LOAD_OK + 1; i < LOAD_OUTCOMES; i++)
        bn_buf_printf(out, ",%s", load_outcome_names[i]);
    for (size_t i = 0; i < BN_ARRAY_LEN(token_counts); i++)
        bn_buf_printf(out, ",tokens_%s", token_counts[i]);
    for (size_t i = 0; i < BN_ARRAY_LEN(times); i++)
        for (size_t k = 0; *time_key(key, report, k); k++)
            bn_buf_printf(out, ",%s_%s", times[i], time_key(key, report, k));
    bn_buf_puts(out, ",goodput_share,goodput_rps");
    for (int i = 0; i < LOAD_METRICS; i++)
        bn_buf_printf(out, ",server_%s", load_metric_infos[i].key);
    bn_buf_puts(out, ",server_memory_first_bytes,server_memory_last_bytes\n");
}

static void put_run(struct bn_buf *out, const struct bn_json *report, const struct bn_json *run)
{
    const struct bn_json *memory = bn_json_get(run, "server_memory");
    char key[24];
    bn_buf_puts(out, report_text(report, "loop"));
    for (size_t i = 0; i < BN_ARRAY_LEN(counts); i++) put_number(out, run, counts[i]);
    for (int i = LOAD_OK + 1; i < LOAD_OUTCOMES; i++) {
        const struct bn_json *one =
            bn_json_get(bn_json_get(run, "outcomes"), load_outcome_names[i]);
        bn_buf_printf(out, ",%.0f", report_number(one, "n"));
    }
    for (size_t i = 0; i < BN_ARRAY_LEN(token_counts); i++)
        put_number(out, bn_json_get(run, "tokens"), token_counts[i]);
    for (size_t i = 0; i < BN_ARRAY_LEN(times); i++)
        for (size_t k = 0; *time_key(key, report, k); k++)
            put_number(out, bn_json_get(run, times[i]), time_key(key, report, k));
    put_number(out, bn_json_get(run, "goodput"), "share");
    put_number(out, bn_json_get(run, "goodput"), "rps");
    for (int i = 0; i < LOAD_METRICS; i++)
        put_number(out, bn_json_get(run, "server"), load_metric_infos[i].key);
    put_number(out, memory, "first_bytes");
    put_number(out, memory, "last_bytes");
    bn_buf_putc(out, '\n');
}

void load_csv(struct bn_buf *out, const struct bn_json *report)
{
    const struct bn_json *runs = bn_json_get(report, "runs");
    put_names(out, report);
    for (size_t i = 0; i < bn_json_size(runs); i++) put_run(out, report, bn_json_at(runs, i));
}

/* ------------------------------------------------------------------ requests */

static void put_ms(struct bn_buf *out, const char *key, double ms)
{
    if (ms < 0) bn_buf_printf(out, ",\"%s\":null", key);
    else bn_buf_printf(out, ",\"%s\":%.6f", key, ms);
}

static void put_record(struct bn_buf *out, const struct load_record *r, uint32_t at_a_time)
{
    bn_buf_printf(out, "{\"outcome\":\"%s\",\"status\":%u,\"warmup\":%s,\"at_a_time\":%u",
                  load_outcome_names[r->outcome], (unsigned)r->status,
                  r->counted ? "false" : "true", at_a_time);
    put_ms(out, "due_ms", (double)r->due_ns / 1e6);
    put_ms(out, "sent_ms", (double)r->sent_ns / 1e6);
    put_ms(out, "end_ms", (double)r->end_ns / 1e6);
    put_ms(out, "ttft_ms", load_record_ms(r, LOAD_TTFT));
    put_ms(out, "tpot_ms", load_record_ms(r, LOAD_TPOT));
    put_ms(out, "itl_max_ms", load_record_ms(r, LOAD_ITL));
    put_ms(out, "e2e_ms", load_record_ms(r, LOAD_E2E));
    bn_buf_printf(out,
                  ",\"asked_prompt\":%u,\"asked_output\":%u,\"prompt_tokens\":%u,"
                  "\"cached_tokens\":%u,\"output_tokens\":%u,\"chunks\":%u}\n",
                  r->asked_in, r->asked_out, r->n_prompt, r->n_cached, r->n_output, r->n_chunks);
}

bitnet_status load_requests_jsonl(struct bn_out *out, const struct load_run *runs, size_t n_runs,
                                  bitnet_error *err)
{
    struct bn_buf line;
    bitnet_status s = BITNET_OK;
    bn_buf_init(&line, LINE_BYTES);
    for (size_t i = 0; i < n_runs; i++)
        for (size_t k = 0; k < runs[i].n_records && s == BITNET_OK; k++) {
            bn_buf_clear(&line);
            put_record(&line, &runs[i].records[k], runs[i].at_a_time);
            s = line.failed ? bn_fail_nomem(err, LINE_BYTES, "a line")
                            : bn_out_write(out, line.data, line.len, err);
        }
    bn_buf_free(&line);
    return s;
}
