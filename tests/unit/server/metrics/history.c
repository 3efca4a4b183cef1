/* SPDX-License-Identifier: Apache-2.0
 * The last hour of a server's metrics, sample by sample. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/metrics/metrics_impl.h"

static struct metrics *m;
static struct worker_state worker;
static struct net_stats net;
static struct metrics_now now = {.worker = &worker, .net = &net};
static struct bn_json *told;

static int open_plain(void **state)
{
    (void)state;
    worker = (struct worker_state){.ready = true};
    now.n_running = now.n_waiting = 0;
    return metrics_open(&m, &(struct metrics_config){.model = NULL}, NULL) != BITNET_OK;
}

static int close_plain(void **state)
{
    (void)state;
    metrics_close(m);
    bn_json_free(told);
    told = NULL;
    return 0;
}

/* What was there is as if it had been so much earlier; then a sample is taken. */
static void sample_after(uint64_t s)
{
    for (size_t i = 0; i < METRICS_MOMENTS; i++) m->moments[i].ns -= s * 1000000000u;
    for (size_t i = 0; i < METRICS_SAMPLES; i++) m->history.samples[i].time -= (double)s;
    m->history.before_ns -= s * 1000000000u;
    metrics_sample(m, &now);
}

static size_t tell(void)
{
    struct bn_buf text;
    bn_buf_init(&text, 1 << 20);
    metrics_history(m, "a \"model\"", &text);
    assert_false(text.failed);
    bn_json_free(told);
    assert_int_equal(bn_json_parse(&told, text.data, text.len, 0, "history", NULL), BITNET_OK);
    bn_buf_free(&text);
    assert_string_equal(bn_json_text(bn_json_get(told, "model")), "a \"model\"");
    return bn_json_size(bn_json_get(told, "time"));
}

/* The i-th of a list; NaN: null. names: "rates", "prompt_tokens_total" */
static double at(const char *group, const char *name, const char *part, size_t i)
{
    const struct bn_json *list = bn_json_get(bn_json_get(told, group), name);
    if (part) list = bn_json_get(list, part);
    assert_int_equal(bn_json_size(list), bn_json_size(bn_json_get(told, "time")));
    const struct bn_json *v = bn_json_at(list, i);
    return bn_json_is_null(v) ? (double)NAN : bn_json_number(v);
}

static bool near(double a, double b) { return fabs(a - b) <= 0.01 * fabs(b); }

static void test_before_any_sample(void **state)
{
    (void)state;
    assert_int_equal(tell(), 0);
    assert_int_equal(bn_json_integer(bn_json_get(told, "interval")), METRICS_SAMPLE_S);
    assert_int_equal(bn_json_integer(bn_json_get(told, "span")), METRICS_HISTORY_S);
}

static void test_values(void **state)
{
    (void)state;
    struct worker_step s = {.ns = 2000000, .n_seqs = 3, .n_generated = 3};
    metrics_step(m, &s); /* before the first sample: nobody knows how long ago */
    now.n_running = 1;
    sample_after(0);
    for (int i = 0; i < 10; i++) metrics_step(m, &s);
    s.n_seqs = 6;
    for (int i = 0; i < 10; i++) metrics_step(m, &s);
    for (int i = 0; i < 100; i++) metrics_token(m, 25000000);
    now.n_running = 4;
    sample_after(5);
    sample_after(10); /* nothing happened */
    assert_int_equal(tell(), 3);
    assert_true(at("values", "num_requests_running", NULL, 0) == 1);
    assert_true(at("values", "num_requests_running", NULL, 2) == 4);
    assert_true(at("values", "process_resident_memory_bytes", NULL, 1) > 1e6);
    assert_true(isnan(at("rates", "generation_tokens_total", NULL, 0)));
    assert_true(near(at("rates", "generation_tokens_total", NULL, 1), 12));
    assert_true(at("rates", "generation_tokens_total", NULL, 2) == 0);
    assert_true(at("histograms", "batch_size", "mean", 1) == 4.5);
    assert_true(isnan(at("histograms", "batch_size", "mean", 2)));
    assert_true(near(at("histograms", "step_seconds", "mean", 1), 0.002));
    assert_true(isnan(at("histograms", "inter_token_latency_seconds", "p99", 0)));
    assert_true(near(at("histograms", "inter_token_latency_seconds", "p50", 1), 0.025));
    assert_true(near(at("histograms", "inter_token_latency_seconds", "p99", 2), 0.0299));
    const struct bn_json *time = bn_json_get(told, "time");
    double passed = bn_json_number(bn_json_at(time, 2)) - bn_json_number(bn_json_at(time, 1));
    assert_true(fabs(passed - 10) < 1);
}

/* Quantiles are of the last minute, also where nobody asked for anything but the history. */
static void test_quantiles_forget(void **state)
{
    (void)state;
    metrics_token(m, 25000000);
    for (int i = 0; i < 20; i++) sample_after(METRICS_SAMPLE_S);
    assert_int_equal(tell(), 20);
    assert_true(near(at("histograms", "inter_token_latency_seconds", "p50", 5), 0.025));
    assert_true(isnan(at("histograms", "inter_token_latency_seconds", "p50", 19)));
}

static void test_an_hour_is_kept(void **state)
{
    (void)state;
    for (size_t i = 0; i < METRICS_SAMPLES + 100; i++) {
        now.n_running = (uint32_t)i;
        sample_after(METRICS_SAMPLE_S);
    }
    size_t n = tell();
    assert_true(n == METRICS_SAMPLES || n == METRICS_SAMPLES - 1); /* an hour ago to the second */
    assert_true(at("values", "num_requests_running", NULL, n - 1) == METRICS_SAMPLES + 99);
    assert_true(at("values", "num_requests_running", NULL, 0) == METRICS_SAMPLES + 100 - n);
    /* a model that was away for long: what was before is no longer of the last hour */
    sample_after(METRICS_HISTORY_S + 1);
    assert_int_equal(tell(), 1);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, open_plain, close_plain)
    const struct CMUnitTest tests[] = {TEST(test_before_any_sample), TEST(test_values),
                                       TEST(test_quantiles_forget), TEST(test_an_hour_is_kept)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
