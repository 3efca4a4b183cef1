/* SPDX-License-Identifier: Apache-2.0
 * The parts of `bitnet loadtest` that need no server: arrivals, traces, statistics, lengths and
 * prompts, values of options, URLs, metrics of a server. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/os/mem.h"
#include "app/process.h"
#include "app/stats.h"
#include "cli/load/options.h"
#include <stdlib.h>
#include <unistd.h>

static void near(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance)) fail_msg("got %.12g, want %.12g", got, want);
}

/* ------------------------------------------------------------------ arrivals */

enum { N_ARRIVALS = 200000 };

/* Mean and variance of the gaps, in units of the mean gap asked for. */
static void gaps_of(double rate, double shape, double *mean, double *variance)
{
    struct load_arrivals a = {.rate = rate, .shape = shape, .rng.state = 7};
    uint64_t before = 0, due;
    double sum = 0, squares = 0;
    for (int i = 0; i < N_ARRIVALS; i++) {
        assert_true(load_arrivals_next(&a, &due));
        assert_true(due >= before);
        double gap = (double)(due - before) / 1e9 * rate;
        sum += gap;
        squares += gap * gap;
        before = due;
    }
    *mean = sum / N_ARRIVALS;
    *variance = squares / N_ARRIVALS - *mean * *mean;
}

static void random_arrivals_have_the_rate_and_spread_asked_for(void **state)
{
    (void)state;
    static const double shapes[] = {1, 0.25,
                                    4}; /* the variance of a gamma of mean 1 is 1 / shape */
    for (size_t i = 0; i < BN_ARRAY_LEN(shapes); i++) {
        double mean, variance;
        gaps_of(50, shapes[i], &mean, &variance);
        near(mean, 1, 0.02);
        near(variance * shapes[i], 1, 0.05);
    }
}

static void constant_arrivals_are_even(void **state)
{
    (void)state;
    struct load_arrivals a = {.rate = 4};
    uint64_t due;
    for (uint64_t i = 0; i < 1000; i++) {
        assert_true(load_arrivals_next(&a, &due));
        assert_int_equal(due, i * 250000000);
    }
}

static void a_ramp_grows_evenly(void **state)
{
    (void)state;
    struct load_arrivals a = {.rate = 100, .ramp_s = 10};
    uint64_t due = 0, first_half = 0, second_half = 0, after = 0;
    while (load_arrivals_next(&a, &due) && due < 20000000000u) {
        first_half += due < 5000000000u;
        second_half += due >= 5000000000u && due < 10000000000u;
        after += due >= 10000000000u;
    }
    near((double)first_half, 125, 2); /* 100 / 10 * 5^2 / 2 */
    near((double)second_half, 375, 2);
    near((double)after, 1000, 2);
}

/* ------------------------------------------------------------------ traces */

static bitnet_status read_trace(struct load_trace *t, const char *text, struct load_trace_config c,
                                bitnet_error *err)
{
    char path[] = "/tmp/bitnet-trace-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    bitnet_status s = load_trace_read(t, path, &c, err);
    unlink(path);
    return s;
}

static void traces_are_read_by_their_columns(void **state)
{
    (void)state;
    struct load_trace t = {0};
    bitnet_error err = {0};
    const struct load_trace_config as_it_is = {1, 1, 0};
    assert_int_equal(read_trace(&t,
                                "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                                "2024-02-28 23:59:59.5000000,374,44\r\n"
                                "2024-02-29 00:00:00.2500000,396,109\r\n"
                                "2024-03-01 00:00:00,1,0",
                                as_it_is, &err),
                     BITNET_OK);
    assert_int_equal(t.n, 3);
    near((double)t.rows[1].due_ns / 1e9, 0.75, 1e-6);
    near((double)t.rows[2].due_ns / 1e9, 86400.5, 1e-5);
    assert_int_equal(t.rows[0].n_in, 374);
    assert_int_equal(t.rows[1].n_out, 109);
    assert_int_equal(t.rows[2].n_out, 1); /* at least one token */
    struct load_arrivals a = {.trace = &t};
    uint64_t due;
    for (int i = 0; i < 3; i++) assert_true(load_arrivals_next(&a, &due));
    assert_false(load_arrivals_next(&a, &due));
    load_trace_free(&t);

    const struct load_trace_config scaled = {2, 0.5, 2};
    assert_int_equal(
        read_trace(&t,
                   "GeneratedTokens,x,ContextTokens,TIMESTAMP\n10,,20,100.5\n4,,7,101\n"
                   "1,,1,102\n",
                   scaled, &err),
        BITNET_OK);
    assert_int_equal(t.n, 2);
    assert_int_equal(t.rows[1].due_ns, 1000000000);
    assert_int_equal(t.rows[0].n_in, 10);
    assert_int_equal(t.rows[0].n_out, 5);
    assert_int_equal(t.rows[1].n_in, 4);
    load_trace_free(&t);
}

static void bad_traces_are_refused(void **state)
{
    (void)state;
    static const char head[] = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
    static const char *const rows[] = {"",
                                       "1,2\n",
                                       "x,2,3\n",
                                       "1,-2,3\n",
                                       "1,2,3\n0.5,2,3\n",
                                       "2024-13-01 00:00:00,1,1\n",
                                       "2024-01-01,1,1\n",
                                       "1,99999999999,3\n",
                                       "0,1,1\n1e18,1,1\n"};
    const struct load_trace_config c = {1, 1, 0};
    for (size_t i = 0; i < BN_ARRAY_LEN(rows); i++) {
        struct load_trace t = {0};
        bitnet_error err = {0};
        char text[200];
        snprintf(text, sizeof text, "%s%s", head, rows[i]);
        assert_int_equal(read_trace(&t, text, c, &err), BITNET_E_FORMAT);
        assert_true(strlen(err.text) > 10);
        load_trace_free(&t);
    }
    struct load_trace t = {0};
    bitnet_error err = {0};
    assert_int_equal(read_trace(&t, "TIMESTAMP,ContextTokens\n1,2\n", c, &err), BITNET_E_FORMAT);
    assert_non_null(strstr(err.text, "GeneratedTokens"));
    load_trace_free(&t);
}

/* ------------------------------------------------------------------ statistics */

static void histogram_quantiles_are_near_the_exact_ones(void **state)
{
    (void)state;
    enum { N = 100000 };
    struct load_hist *h = bn_calloc(1, sizeof *h);
    double *x = bn_calloc(N, sizeof *x);
    struct bn_rng r = {11};
    assert_non_null(h);
    assert_non_null(x);
    for (int i = 0; i < N; i++) { /* from nanoseconds to minutes */
        uint64_t v = (uint64_t)exp(bn_rng_unit(&r) * 25);
        load_hist_add(h, v);
        x[i] = (double)v;
    }
    static const double percentiles[] = {0, 1, 10, 50, 90, 99, 99.9, 100};
    const size_t n = BN_ARRAY_LEN(percentiles);
    struct load_summary got = load_summarize_hist(h, 1, percentiles, n);
    struct load_summary want = load_summarize(x, N, percentiles, n);
    assert_int_equal(got.n, want.n);
    near(got.mean / want.mean, 1, 1e-9);
    near(got.deviation / want.deviation, 1, 1e-6);
    near(got.max, want.max, 0);
    for (size_t i = 0; i < n; i++) near(got.at[i], want.at[i], want.at[i] * 0.004 + 0.5);
    near(got.at[n - 1], want.max, 0);
    free(h);
    free(x);
}

static void every_value_falls_into_a_near_bucket(void **state)
{
    (void)state;
    struct load_hist *h = bn_calloc(1, sizeof *h);
    assert_non_null(h);
    near(load_hist_quantile(h, 0.5), 0, 0);
    for (int bits = 0; bits < 64; bits++)
        for (int below = 0; below < 2; below++) {
            uint64_t v = ((uint64_t)1 << bits) - (uint64_t)below;
            memset(h, 0, sizeof *h);
            load_hist_add(h, v);
            near(load_hist_quantile(h, 0.5), (double)v, (double)v / 256);
        }
    memset(h, 0, sizeof *h);
    load_hist_add(h, UINT64_MAX);
    near(load_hist_quantile(h, 0.5) / (double)UINT64_MAX, 1, 0.004);
    free(h);
}

static void summaries_and_slopes_have_known_answers(void **state)
{
    (void)state;
    double x[] = {4, 1, 3, 2};
    static const double percentiles[] = {50, 100};
    struct load_summary s = load_summarize(x, 4, percentiles, 2);
    near(s.mean, 2.5, 1e-12);
    near(s.deviation, sqrt(5.0 / 3), 1e-12);
    near(s.at[0], 2.5, 0);
    near(s.at[1], 4, 0);
    near(s.max, 4, 0);
    assert_int_equal(load_summarize(x, 0, percentiles, 2).n, 0);
    const double t[] = {0, 1, 2, 3}, y[] = {5, 8, 11, 14};
    near(load_slope(t, y, 4), 3, 1e-12);
    near(load_slope(t, y, 1), 0, 0);
}

static void times_of_a_request_count_from_when_it_was_due(void **state)
{
    (void)state;
    struct load_record r = {.due_ns = 1000000,
                            .sent_ns = 9000000,
                            .first_ns = 11000000,
                            .last_ns = 31000000,
                            .end_ns = 33000000,
                            .worst_gap_ns = 7000000,
                            .n_output = 11,
                            .n_chunks = 5};
    near(load_record_ms(&r, LOAD_TTFT), 10, 1e-9);
    near(load_record_ms(&r, LOAD_E2E), 32, 1e-9);
    near(load_record_ms(&r, LOAD_TPOT), 2, 1e-9);
    near(load_record_ms(&r, LOAD_ITL), 7, 1e-9);
    struct load_settings s = {.goals_ms = {[LOAD_TTFT] = 10, [LOAD_ITL] = 7}};
    assert_true(load_record_good(&r, &s));
    s.goals_ms[LOAD_E2E] = 31;
    assert_false(load_record_good(&r, &s));
    s.goals_ms[LOAD_E2E] = 0;
    r.outcome = LOAD_BUSY;
    assert_false(load_record_good(&r, &s));
}

/* ------------------------------------------------------------------ what is asked */

static void lengths_are_drawn_as_asked(void **state)
{
    (void)state;
    struct load_length l;
    struct bn_rng r = {3};
    assert_true(load_length_parse(&l, "64"));
    for (int i = 0; i < 100; i++) assert_int_equal(load_length_draw(&l, &r), 64);
    assert_true(load_length_parse(&l, "3-6"));
    int seen[8] = {0};
    for (int i = 0; i < 4000; i++) seen[load_length_draw(&l, &r)]++;
    for (int i = 3; i <= 6; i++) near(seen[i], 1000, 150);
    assert_true(load_length_parse(&l, "normal:200,50"));
    double sum = 0, squares = 0;
    for (int i = 0; i < 20000; i++) {
        double v = load_length_draw(&l, &r);
        sum += v;
        squares += v * v;
    }
    near(sum / 20000, 200, 2);
    near(sqrt(squares / 20000 - sum * sum / 20000 / 20000), 50, 2);
    static const char *const bad[] = {"",           "0",        "-5",          "6-3",
                                      "x",          "normal:5", "normal:5,-1", "99999999",
                                      "1-99999999", "3-",       "inf"};
    for (size_t i = 0; i < BN_ARRAY_LEN(bad); i++) assert_false(load_length_parse(&l, bad[i]));
}

static void options_have_their_forms(void **state)
{
    (void)state;
    double s = 0, goals[LOAD_GOALS] = {0}, p[LOAD_MAX_PERCENTILES];
    uint64_t requests = 0;
    size_t n;
    assert_true(load_parse_seconds(&s, "90"));
    near(s, 90, 0);
    assert_true(load_parse_seconds(&s, "1.5m"));
    near(s, 90, 0);
    assert_true(load_parse_seconds(&s, "250ms"));
    near(s, 0.25, 1e-12);
    assert_true(load_parse_seconds(&s, "2h"));
    near(s, 7200, 0);
    static const char *const bad[] = {"", "m", "1d", "-1", "1 s", "1e9h", "9999999999"};
    for (size_t i = 0; i < BN_ARRAY_LEN(bad); i++) assert_false(load_parse_seconds(&s, bad[i]));
    s = 0;
    assert_true(load_parse_warmup(&s, &requests, "20"));
    assert_int_equal(requests, 20);
    near(s, 0, 0);
    assert_true(load_parse_warmup(&s, &requests, "20s"));
    near(s, 20, 0);
    assert_true(load_parse_goals(goals, "ttft:200,itl:50.5,e2e:9"));
    near(goals[LOAD_TTFT] + goals[LOAD_ITL] + goals[LOAD_TPOT] + goals[LOAD_E2E], 259.5, 1e-9);
    static const char *const bad_goals[] = {
        "", "ttft", "ttft:", "ttft:0", "ttfb:3", "ttft:3;itl:4"};
    for (size_t i = 0; i < BN_ARRAY_LEN(bad_goals); i++)
        assert_false(load_parse_goals(goals, bad_goals[i]));
    assert_true(load_parse_percentiles(p, &n, "50,90 99.9"));
    assert_int_equal(n, 3);
    near(p[2], 99.9, 1e-12);
    assert_false(load_parse_percentiles(p, &n, "50,101"));
    assert_false(load_parse_percentiles(p, &n, "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"));
}

static void prompts_are_distinct_and_repeatable(void **state)
{
    (void)state;
    struct load_prompts p = {.chat = true, .model = "m", .seed = 5};
    assert_true(load_length_parse(&p.in, "20"));
    assert_true(load_length_parse(&p.out, "10-20"));
    struct bn_buf a, b;
    bn_buf_init(&a, 1 << 16);
    bn_buf_init(&b, 1 << 16);
    struct load_ask first = load_prompts_ask(&p, 0), second = load_prompts_ask(&p, 1);
    assert_int_equal(first.n_in, 20);
    assert_true(load_prompts_body(&p, &first, &a));
    assert_true(load_prompts_body(&p, &first, &b));
    assert_string_equal(a.data, b.data);
    bn_buf_clear(&b);
    assert_true(load_prompts_body(&p, &second, &b));
    assert_string_not_equal(strstr(a.data, "content"), strstr(b.data, "content"));
    bn_buf_free(&b);
    bn_buf_init(&b, 50);
    assert_false(load_prompts_body(&p, &second, &b)); /* no room */
    bn_buf_free(&a);
    bn_buf_free(&b);
}

/* ------------------------------------------------------------------ the server */

static void urls_are_taken_apart(void **state)
{
    (void)state;
    static const struct {
        const char *url, *name, *port, *base;
        bool tls;
    } good[] = {
        {"http://127.0.0.1:8080", "127.0.0.1", "8080", "", false},
        {"localhost:99", "localhost", "99", "", false},
        {"http://h/", "h", "80", "", false},
        {"http://h/v1/", "h", "80", "", false},
        {"http://[::1]:5/a/b/v1", "::1", "5", "/a/b", false},
#if HAVE_TLS
        {"https://api.example.org/x", "api.example.org", "443", "/x", true},
#endif
    };
    static const char *const bad[] = {
        "ftp://h",     "http://",    "http://h:0", "http://h:99999", "http://h:x",
        "http://[::1", "http://h h", "http://u@h", "http://h?x",     ""};
    bitnet_error err = {0};
    for (size_t i = 0; i < BN_ARRAY_LEN(good); i++) {
        struct load_target t = {0};
        assert_int_equal(load_target_parse(&t, good[i].url, &err), BITNET_OK);
        assert_string_equal(t.name, good[i].name);
        assert_string_equal(t.port, good[i].port);
        assert_string_equal(t.base, good[i].base);
        assert_int_equal(t.tls, good[i].tls);
    }
    for (size_t i = 0; i < BN_ARRAY_LEN(bad); i++) {
        struct load_target t = {0};
        assert_int_equal(load_target_parse(&t, bad[i], &err), BITNET_E_ARG);
    }
    struct load_target t = {0};
    struct opt_list headers = {{"X: a\r\nY: b"}, 1};
    assert_int_equal(load_target_headers(&t, NULL, &headers, &err), BITNET_E_ARG);
    load_target_close(&t);
}

static void metrics_are_added_up_over_labels(void **state)
{
    (void)state;
    struct load_scrape a, b;
    load_scrape_parse(&a, "# HELP bitnet_step_seconds x\n"
                          "bitnet_step_seconds_bucket{le=\"+Inf\"} 99\n"
                          "bitnet_step_seconds_sum{phase=\"a\"} 1.5\n"
                          "bitnet_step_seconds_sum{phase=\"b} 7\"} 0.5\n"
                          "bitnet_step_seconds_count{phase=\"a\"} 3\n"
                          "bitnet_step_seconds_count{phase=\"b\"} 1\n"
                          "vllm:time_to_first_token_seconds_sum 1\n"
                          "vllm:time_to_first_token_seconds_count 2");
    load_scrape_parse(&b, "bitnet_step_seconds_sum 4\nbitnet_step_seconds_count 6\n"
                          "vllm:time_to_first_token_seconds_sum 1\n"
                          "vllm:time_to_first_token_seconds_count 2\n");
    near(load_scrape_mean(&a, &b, LOAD_METRIC_STEP), 1, 1e-12);
    assert_true(isnan(load_scrape_mean(&a, &b, LOAD_METRIC_TTFT))); /* nothing happened */
    assert_true(isnan(load_scrape_mean(&a, &b, LOAD_METRIC_BATCH)));
    assert_true(a.metrics[LOAD_METRIC_TTFT].has);
}

static void memory_is_watched_in_bounded_room(void **state)
{
    (void)state;
    struct load_memory *m = bn_calloc(1, sizeof *m);
    assert_non_null(m);
    for (int i = 0; i < 3 * LOAD_MEMORY_SAMPLES; i++) load_memory_watch(m, (uint32_t)getpid(), i);
    assert_true(m->n <= LOAD_MEMORY_SAMPLES && m->n >= LOAD_MEMORY_SAMPLES / 2);
    near(m->seconds[0], 0, 0);
    assert_true(m->seconds[m->n - 1] > 2.9 * LOAD_MEMORY_SAMPLES);
    assert_true(m->bytes[0] > 1e5);
    assert_true(isnan(process_resident_bytes(UINT32_MAX)));
    free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_arrivals_have_the_rate_and_spread_asked_for),
        cmocka_unit_test(constant_arrivals_are_even),
        cmocka_unit_test(a_ramp_grows_evenly),
        cmocka_unit_test(traces_are_read_by_their_columns),
        cmocka_unit_test(bad_traces_are_refused),
        cmocka_unit_test(histogram_quantiles_are_near_the_exact_ones),
        cmocka_unit_test(every_value_falls_into_a_near_bucket),
        cmocka_unit_test(summaries_and_slopes_have_known_answers),
        cmocka_unit_test(times_of_a_request_count_from_when_it_was_due),
        cmocka_unit_test(lengths_are_drawn_as_asked),
        cmocka_unit_test(options_have_their_forms),
        cmocka_unit_test(prompts_are_distinct_and_repeatable),
        cmocka_unit_test(urls_are_taken_apart),
        cmocka_unit_test(metrics_are_added_up_over_labels),
        cmocka_unit_test(memory_is_watched_in_bounded_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
