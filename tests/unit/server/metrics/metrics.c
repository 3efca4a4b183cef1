/* SPDX-License-Identifier: Apache-2.0
 * What the server counts, and how it is told. `server_metrics --text` prints a full page of metrics, for
 * promtool. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "server/metrics/metrics_impl.h"
#include "server_model.h"

static struct metrics *m;
static struct worker_layer layers[6];
static struct worker_state worker;
static struct net_stats net;
static struct metrics_now now = {.worker = &worker, .net = &net};

static void open_with(struct metrics_config c)
{
    c.model = model;
    assert_int_equal(metrics_open(&m, &c, &err), BITNET_OK);
}

/* a healthy server */
static int open_plain(void **state)
{
    (void)state;
    worker =
        (struct worker_state){.layers = layers, .n_layers = BN_ARRAY_LEN(layers), .ready = true};
    worker.engine.kv.type = "f16";
    worker.engine.kv.pages = 100;
    worker.engine.kv.pages_free = 70;
    worker.engine.kv.pages_cached = 20;
    worker.engine.states.seq_bytes = 1000;
    worker.engine.states.snapshots = 8;
    worker.engine.states.snapshots_used = 3;
    worker.engine.states.restores = 5;
    worker.health.kv_used = 0.1;
    for (size_t i = 0; i < BN_ARRAY_LEN(layers); i++) {
        layers[i] = (struct worker_layer){.kv = {.rows = 10}, .ffn = {.sampled = 1}};
        layers[i].kv.keys.entropy_bits = 7 + (double)i / 16;
        layers[i].kv.values.entropy_bits = 7.5;
        layers[i].ffn.sampled_zeros = 0.75;
    }
    net = (struct net_stats){.n_connections = 3, .n_accepted = 5};
    now.max_queue = 10;
    now.n_waiting = now.n_running = 0;
    open_with((struct metrics_config){.memory_bytes_s = 10e9});
    return 0;
}

static int close_plain(void **state)
{
    (void)state;
    metrics_close(m);
    m = NULL;
    return 0;
}

static struct bn_buf text;

static const char *told(void)
{
    bn_buf_free(&text);
    bn_buf_init(&text, 1 << 20);
    metrics_text(m, &now, &text);
    assert_false(text.failed);
    return text.data;
}

/* The number of the one line that begins with this; NaN if there is none. */
static double number(const char *begin)
{
    char pattern[300];
    snprintf(pattern, sizeof pattern, "\n%s ", begin);
    const char *p = strstr(told(), pattern);
    if (!p) return NAN;
    assert_null(strstr(p + 1, pattern));
    return strtod(p + strlen(pattern), NULL);
}

static struct bn_json *asked(void)
{
    struct bn_json *j = metrics_json(m, &now);
    assert_non_null(j);
    return j;
}

/* names: "histograms", "step_seconds", "p50" */
static double member(const struct bn_json *j, const char *a, const char *b, const char *c,
                     const char *d)
{
    const char *path[] = {a, b, c, d};
    for (size_t i = 0; i < BN_ARRAY_LEN(path) && path[i]; i++) {
        j = bn_json_get(j, path[i]);
        if (!j) fail_msg("no member '%s'", path[i]);
    }
    return bn_json_is_null(j) ? (double)NAN : bn_json_number(j);
}

static struct metrics_choice an_answer(bitnet_finish finish)
{
    return (struct metrics_choice){.finish = finish,
                                   .n_prompt = 20,
                                   .n_generated = 11,
                                   .first_ns = 40000000,
                                   .total_ns = 140000000,
                                   .queue_ns = 500000,
                                   .prefill_ns = 39000000,
                                   .decode_ns = 90000000,
                                   .repetition = 0.04};
}

static void use_key(void)
{
    metrics_key_request(m, "alice");
    metrics_key_tokens(m, "alice", 20, 11);
    metrics_key_rejected(m, "alice", "requests");
    metrics_key_running(m, "alice", 3);
    metrics_key_running(m, "alice", -1);
}

/* Every line is a comment of a metric not seen before, or a finite sample of the last one. */
static void test_text_form(void **state)
{
    (void)state;
    struct metrics_choice a = an_answer(BITNET_FINISH_END);
    metrics_choice(m, &a);
    metrics_request(m, "/v1/models", 200, 1000);
    use_key();
    char name[200] = "", *copy = strdup(told()), *rest = copy;
    size_t n_metrics = 0, n_samples = 0;
    for (char *line = strsep(&rest, "\n"); rest; line = strsep(&rest, "\n")) {
        char head[220];
        if (sscanf(line, "# HELP %199s", name) == 1) {
            snprintf(head, sizeof head, "# HELP %s ", name);
            assert_ptr_equal(strstr(strstr(text.data, head) + 1, head), NULL);
            n_metrics++;
        } else if (line[0] == '#') {
            snprintf(head, sizeof head, "# TYPE %s ", name);
            assert_ptr_equal(strstr(line, head), line);
        } else {
            char *end;
            assert_int_equal(strncmp(line, name, strlen(name)), 0);
            assert_true(isfinite(strtod(strrchr(line, ' '), &end)) && *end == 0);
            n_samples++;
        }
    }
    free(copy);
    /* repetition_mean, of which nothing is known yet, and rejected, of which there is none, are not told */
    assert_int_equal(n_metrics, N_METRICS - 2);
    assert_true(n_samples > 400);
    assert_true(number("bitnet_kv_pages{state=\"used\"}") == 10);
    assert_true(number("bitnet_key_answers_running{key=\"alice\"}") == 2);
    assert_true(number("bitnet_key_tokens_total{key=\"alice\",kind=\"prompt\"}") == 20);
    assert_true(number("bitnet_state_snapshots{state=\"used\"}") == 3);
    assert_true(number("bitnet_state_snapshots{state=\"free\"}") == 5);
    assert_true(number("bitnet_state_restores_total") == 5);
    assert_true(number("bitnet_connections") == 3);
    assert_true(number("bitnet_http_requests_total{endpoint=\"/v1/models\",code=\"200\"}") == 1);
    assert_true(number("process_resident_memory_bytes") > 1e6);
    assert_true(number("process_open_fds") >= 3);
    double age = (double)time(NULL) - number("process_start_time_seconds");
    assert_true(age > -2 && age < 3600);
}

static void test_numbers_read_back(void **state)
{
    (void)state;
    const double values[] = {0.1, 0.1 + 0.2, 1.0 / 3, 1e-300, 1e22, 123456789.125, 5e-324, 0};
    for (size_t i = 0; i < BN_ARRAY_LEN(values); i++) {
        worker.health.kv_used = values[i];
        assert_true(number("bitnet_kv_cache_usage_ratio") == values[i]);
    }
    assert_non_null(strstr(told(), "\nbitnet_kv_cache_usage_ratio 0\n"));
    worker.health.kv_used = 0.1;
    assert_non_null(strstr(told(), "\nbitnet_kv_cache_usage_ratio 0.1\n"));
    net.n_bytes_in = (1ull << 53) - 1;
    assert_non_null(strstr(told(), "\nbitnet_received_bytes_total 9007199254740991\n"));
    worker.health.kv_used = NAN;
    assert_null(strstr(told(), "bitnet_kv_cache_usage_ratio"));
}

static void test_labels(void **state)
{
    (void)state;
    metrics_rejected(m, "a\"b\\c\nd");
    metrics_rejected(m, "queue_full");
    metrics_rejected(m, "queue_full");
    metrics_rejected(m, "\xff\xfe");
    assert_true(number("bitnet_rejected_total{reason=\"a\\\"b\\\\c\\nd\"}") == 1);
    assert_true(number("bitnet_rejected_total{reason=\"queue_full\"}") == 2);
    assert_true(number("bitnet_rejected_total{reason=\"not UTF-8\"}") == 1);
    /* a long one is cut between two characters */
    char longer[1000] = "x";
    for (size_t i = 0; i < 400; i++) strcat(longer, "\xc3\xa9");
    metrics_rejected(m, longer);
    struct bn_json *j = asked();
    bn_json_free(j);
    /* however many there are, memory is not theirs */
    size_t used = 0;
    for (int i = 0; i < 5000; i++) {
        char path[32];
        snprintf(path, sizeof path, "/%d", i);
        metrics_request(m, path, 404, 1);
        if (i == 1000) used = m->arena.used_bytes;
    }
    assert_int_equal(m->arena.used_bytes, used);
    assert_true(metrics_value(m, M_http_requests) == 5000);
    assert_int_equal(m->families[M_http_requests].n, METRIC_MAX_SAMPLES);
    assert_true(number("bitnet_http_requests_total{endpoint=\"other\",code=\"other\"}") ==
                5000 - (METRIC_MAX_SAMPLES - 1));
}

static void test_histogram(void **state)
{
    (void)state;
    struct bn_json *j = asked();
    assert_true(isnan(member(j, "histograms", "step_seconds", "p50", NULL)));
    bn_json_free(j);
    for (int i = 1; i <= 1000; i++) metrics_token(m, (uint64_t)i * 100000); /* to 100 ms */
    /* bounds belong to the bucket below them, and lines add up */
    assert_true(number("bitnet_inter_token_latency_seconds_bucket{le=\"0.0001\"}") == 1);
    assert_true(number("bitnet_inter_token_latency_seconds_bucket{le=\"0.05\"}") == 500);
    assert_true(number("bitnet_inter_token_latency_seconds_bucket{le=\"120\"}") == 1000);
    assert_true(number("bitnet_inter_token_latency_seconds_bucket{le=\"+Inf\"}") == 1000);
    assert_true(number("bitnet_inter_token_latency_seconds_count") == 1000);
    assert_true(fabs(number("bitnet_inter_token_latency_seconds_sum") - 50.05) < 1e-9);
    j = asked();
    const char *h = "inter_token_latency_seconds";
    /* even spread inside every bucket: interpolation is exact */
    assert_true(fabs(member(j, "histograms", h, "p50", NULL) - 0.050) < 1e-12);
    assert_true(fabs(member(j, "histograms", h, "p90", NULL) - 0.090) < 1e-12);
    assert_true(fabs(member(j, "histograms", h, "p99", NULL) - 0.099) < 1e-12);
    const struct bn_json *buckets =
        bn_json_get(bn_json_get(bn_json_get(j, "histograms"), h), "buckets");
    size_t n = bn_json_size(buckets);
    int64_t total = 0;
    for (size_t i = 0; i < n; i++) total += bn_json_integer(bn_json_at(bn_json_at(buckets, i), 1));
    assert_int_equal(total, 1000);
    assert_true(bn_json_is_null(bn_json_at(bn_json_at(buckets, n - 1), 0)));
    bn_json_free(j);
    /* above the last bound */
    for (int i = 0; i < 100000; i++) metrics_token(m, 500000000000u);
    j = asked();
    assert_true(member(j, "histograms", h, "p99", NULL) == 120);
    bn_json_free(j);
}

static void test_answers(void **state)
{
    (void)state;
    static const struct {
        bitnet_finish finish;
        const char *line;
        double value;
    } ends[] = {
        {BITNET_FINISH_END, "bitnet_request_success_total{finished_reason=\"stop\"}", 1},
        {BITNET_FINISH_STOP, "bitnet_request_success_total{finished_reason=\"stop\"}", 2},
        {BITNET_FINISH_LENGTH, "bitnet_request_success_total{finished_reason=\"length\"}", 1},
        {BITNET_FINISH_CANCELLED, "bitnet_request_success_total{finished_reason=\"abort\"}", 1},
        {BITNET_FINISH_ERROR, "bitnet_request_success_total{finished_reason=\"error\"}", 1},
        {BITNET_FINISH_TIMEOUT, "bitnet_request_success_total{finished_reason=\"timeout\"}", 1},
    };
    for (size_t i = 0; i < BN_ARRAY_LEN(ends); i++) {
        struct metrics_choice a = an_answer(ends[i].finish);
        metrics_choice(m, &a);
        assert_true(number(ends[i].line) == ends[i].value);
    }
    /* first tokens of all; whole answers of those that came to an end of their own */
    assert_true(number("bitnet_time_to_first_token_seconds_count") == 6);
    assert_true(number("bitnet_e2e_request_latency_seconds_count") == 3);
    assert_true(fabs(number("bitnet_e2e_request_latency_seconds_sum") - 0.42) < 1e-12);
    assert_true(fabs(number("bitnet_request_time_per_output_token_seconds_sum") - 0.03) < 1e-12);
    assert_true(number("bitnet_request_generation_tokens_sum") == 66);
    assert_true(number("bitnet_repetition_ratio_count") == 6);
    /* nothing was drawn; one token: there is no time between tokens, and nothing to repeat */
    struct metrics_choice none = {.finish = BITNET_FINISH_CANCELLED};
    metrics_choice(m, &none);
    struct metrics_choice one = an_answer(BITNET_FINISH_END);
    one.n_generated = 1;
    metrics_choice(m, &one);
    assert_true(number("bitnet_time_to_first_token_seconds_count") == 7);
    assert_true(number("bitnet_request_time_per_output_token_seconds_count") == 3);
    assert_true(number("bitnet_repetition_ratio_count") == 6);
}

/* what was there `ns` ago is as if it had been so much earlier */
static void let_pass(uint64_t ns)
{
    for (size_t i = 0; i < METRICS_MOMENTS; i++) m->moments[i].ns -= ns;
}

static bool near(double a, double b) { return fabs(a - b) <= 0.01 * fabs(b); }

static void test_rates(void **state)
{
    (void)state;
    const uint64_t second = 1000000000u;
    struct worker_step s = {.ns = 1000000, .n_seqs = 4, .n_prompt_tokens = 6, .n_generated = 4};
    /* 90 seconds at 10 steps a second, then 10 at 100 */
    for (int t = 0; t < 100; t++) {
        for (int i = 0; i < (t < 90 ? 10 : 100); i++) metrics_step(m, &s);
        let_pass(second);
        bn_json_free(asked());
    }
    struct bn_json *j = asked();
    assert_true(near(member(j, "rates", "generation_tokens_total", "1s", NULL), 400));
    assert_true(near(member(j, "rates", "generation_tokens_total", "10s", NULL), 400));
    assert_true(near(member(j, "rates", "prompt_tokens_computed_total", "10s", NULL), 600));
    assert_true(near(member(j, "rates", "step_seconds", "1s", NULL), 100));
    /* the last minute: 50 s of the slow part, 10 s of the fast one */
    assert_true(near(member(j, "histograms", "step_seconds", "recent", "seconds"), 60));
    assert_true(member(j, "histograms", "step_seconds", "recent", "count") == 50 * 10 + 10 * 100);
    assert_true(member(j, "histograms", "step_seconds", "count", NULL) == 90 * 10 + 10 * 100);
    assert_true(member(j, "values", "generation_tokens_total", NULL, NULL) == 1900 * 4);
    bn_json_free(j);
    /* asked twice at once: no time has passed, and no moment is taken */
    size_t n = m->n_moments;
    bn_json_free(asked());
    assert_int_equal(m->n_moments, n);
}

static void test_bandwidth(void **state)
{
    (void)state;
    assert_true(number("bitnet_memory_bandwidth_ratio") == 0);
    worker.engine.work.weight_bytes = 5000000000u;
    worker.engine.work.step_ns = 1000000000u;
    assert_true(fabs(number("bitnet_memory_bandwidth_ratio") - 0.5) < 1e-12);
    /* twice as fast since */
    let_pass(6000000000u);
    told();
    let_pass(6000000000u);
    worker.engine.work.weight_bytes += 10000000000u;
    worker.engine.work.step_ns += 1000000000u;
    assert_true(fabs(number("bitnet_memory_bandwidth_ratio") - 1) < 1e-12);
    metrics_close(m);
    open_with((struct metrics_config){0});
    assert_true(isnan(number("bitnet_memory_bandwidth_ratio")));
}

static void test_other_names(void **state)
{
    (void)state;
    assert_null(strstr(told(), "vllm:"));
    assert_null(strstr(told(), "llamacpp:"));
    metrics_close(m);
    open_with((struct metrics_config){.vllm = true});
    char line[300];
    struct worker_step s = {.ns = 2000000, .n_seqs = 3, .n_prompt_tokens = 6, .n_generated = 2};
    worker.engine.prefix.hit_tokens = 10;
    metrics_step(m, &s);
    snprintf(line, sizeof line, "vllm:prompt_tokens_total{model_name=\"%s\"}", m->model_name);
    assert_true(number(line) == 16);
    snprintf(line, sizeof line, "vllm:iteration_tokens_total_bucket{model_name=\"%s\",le=\"10\"}",
             m->model_name);
    assert_true(number(line) == 1);
    worker.engine.kv.page_tokens = 64;
    worker.engine.kv.pages = 1234;
    worker.engine.kv.type = "int8";
    snprintf(line, sizeof line,
             "vllm:cache_config_info{model_name=\"%s\",block_size=\"64\",cache_dtype=\"int8\","
             "num_gpu_blocks=\"1234\"}",
             m->model_name);
    assert_true(number(line) == 1);
    assert_null(strstr(told(), "llamacpp:"));
    metrics_close(m);
    open_with((struct metrics_config){.llamacpp = true});
    metrics_step(m, &s);
    metrics_step(m, &s);
    s.n_seqs = 9;
    metrics_step(m, &s);
    assert_true(number("llamacpp:prompt_tokens_total") == 18);
    assert_true(number("llamacpp:n_decode_total") == 3);
    assert_true(number("llamacpp:n_busy_slots_per_decode") == 5);
    assert_non_null(strstr(told(), "# TYPE llamacpp:prompt_seconds_total counter\n"));
    assert_null(strstr(told(), "vllm:"));
}

static void test_layers(void **state)
{
    (void)state;
    layers[2].kv.rows = 0;
    layers[3].ffn.sampled = 0;
    layers[4].kv.values.saturated = 0.125;
    assert_true(number("bitnet_kv_entropy{layer=\"4\",side=\"keys\"}") == 7.25);
    assert_true(number("bitnet_kv_entropy{layer=\"4\",side=\"values\"}") == 7.5);
    assert_true(number("bitnet_kv_saturation_ratio{layer=\"4\",side=\"values\"}") == 0.125);
    assert_true(isnan(number("bitnet_kv_entropy{layer=\"2\",side=\"keys\"}")));
    assert_true(isnan(number("bitnet_activation_zero_ratio{layer=\"3\"}")));
    assert_true(number("bitnet_activation_zero_ratio{layer=\"4\"}") == 0.75);
    struct bn_json *j = asked(), *l = bn_json_get(j, "layers");
    bitnet_model_info info = {.size = sizeof info};
    bitnet_model_get_info(model, &info);
    struct bn_json *entropy = bn_json_get(l, "kv_entropy_keys");
    assert_int_equal(bn_json_size(entropy), info.shape.n_layer);
    assert_true(bn_json_number(bn_json_at(entropy, 1)) == 7.0625);
    assert_true(bn_json_is_null(bn_json_at(entropy, 2)));
    assert_true(bn_json_is_null(bn_json_at(bn_json_get(l, "activation_zero"), 3)));
    bn_json_free(j);
}

/* The level of an alert. */
static const char *level(const char *name)
{
    static char found[16];
    struct bn_json *j = asked(), *a;
    size_t i;
    found[0] = 0;
    bn_json_each(bn_json_get(j, "alerts"), i, a)
    {
        if (strcmp(bn_json_text(bn_json_get(a, "name")), name) != 0) continue;
        snprintf(found, sizeof found, "%s", bn_json_text(bn_json_get(a, "level")));
    }
    bn_json_free(j);
    return found;
}

static void test_alerts(void **state)
{
    (void)state;
    struct bn_json *j = asked(), *a;
    size_t i;
    bn_json_each(bn_json_get(j, "alerts"), i, a)
    {
        assert_string_equal(bn_json_text(bn_json_get(a, "level")), "ok");
        assert_true(bn_json_is_number(bn_json_get(a, "threshold")));
        assert_true(strlen(bn_json_text(bn_json_get(a, "text"))) > 20);
    }
    assert_int_equal(i, n_metric_alerts);
    bn_json_free(j);
    worker.health.choices = 5;
    worker.health.repetition = 0.08; /* at a threshold is not beyond it */
    assert_string_equal(level("Repetition"), "ok");
    worker.health.repetition = 0.0801;
    assert_string_equal(level("Repetition"), "warn");
    worker.health.repetition = 0.16;
    assert_string_equal(level("Repetition"), "crit");
    layers[5].kv.values.entropy_bits = 4.0; /* one layer is enough */
    assert_string_equal(level("KvEntropyLow"), "warn");
    layers[0].kv.keys.entropy_bits = 3.1;
    assert_string_equal(level("KvEntropyLow"), "crit");
    now.n_waiting = 9;
    assert_string_equal(level("QueueFull"), "warn");
    now.n_waiting = 10;
    assert_string_equal(level("QueueFull"), "crit");
    now.max_queue = 0;
    assert_string_equal(level("QueueFull"), "ok");
    worker.health.kv_used = 0.96;
    assert_string_equal(level("KvCacheFull"), "warn");
    layers[1].ffn.sampled_zeros = 1;
    assert_string_equal(level("LayerDead"), "warn");
    layers[1].kv.keys.saturated = 1e-6;
    assert_string_equal(level("KvSaturated"), "warn");
    worker.health.nonfinite_rows = 1;
    assert_string_equal(level("NonFiniteLogits"), "crit");
    worker.health.scrub_mismatches = 1;
    assert_string_equal(level("WeightsChanged"), "crit");
    worker.broken.status = BITNET_E_INTERNAL;
    snprintf(worker.broken.text, sizeof worker.broken.text, "step 7 failed");
    assert_string_equal(level("EngineBroken"), "crit");
    j = asked();
    assert_string_equal(bn_json_text(bn_json_get(j, "broken")), "step 7 failed");
    bn_json_free(j);
}

static int print_text(void)
{
    if (open_model(NULL) || open_plain(NULL)) return 1;
    for (int i = BITNET_FINISH_END; i <= BITNET_FINISH_TIMEOUT; i++) {
        struct metrics_choice a = an_answer((bitnet_finish)i);
        metrics_choice(m, &a);
    }
    metrics_request(m, "/v1/chat/completions", 200, 1000000);
    metrics_rejected(m, "queue_full");
    use_key();
    worker.health.choices = 5;
    fputs(told(), stdout);
    bn_buf_free(&text);
    close_plain(NULL);
    return close_model(NULL);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--text") == 0) return print_text();
#define TEST(f) cmocka_unit_test_setup_teardown(f, open_plain, close_plain)
    const struct CMUnitTest tests[] = {
        TEST(test_text_form), TEST(test_numbers_read_back), TEST(test_labels),
        TEST(test_histogram), TEST(test_answers),           TEST(test_rates),
        TEST(test_bandwidth), TEST(test_other_names),       TEST(test_layers),
        TEST(test_alerts),
    };
    int failed = cmocka_run_group_tests(tests, open_model, close_model);
    bn_buf_free(&text);
    return failed;
}
