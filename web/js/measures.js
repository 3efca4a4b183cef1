// SPDX-License-Identifier: Apache-2.0
// What the dashboard shows, from two answers of /metrics.json: the members are described in
// docs/serve/metrics.md.

/** Mean of what a histogram has observed between two answers. */
function meanSince(name, now, before) {
    const a = now.histograms[name],
        b = before?.histograms[name];
    const n = a.count - (b?.count ?? 0);
    return n > 0 ? (a.sum - (b?.sum ?? 0)) / n : null;
}

/** Growth a second. Without an earlier answer, the server's own of the last ten seconds. */
function rate(name, now, before) {
    if (!before) return now.rates[name]['10s'];
    return (now.values[name] - before.values[name]) / (now.time - before.time);
}

function quantiles(to, name, now, key) {
    const h = now.histograms[name];
    for (const q of ['p50', 'p90', 'p99']) to[`${key}_${q}`] = h.recent[q];
}

const ratio = (a, b) => (b > 0 ? a / b : null);

/** before: the answer before this one of the same server process, or null. */
export function measure(now, before) {
    const v = now.values;
    const m = {
        answer_rate: rate('generation_tokens_total', now, before),
        prompt_rate: rate('prompt_tokens_total', now, before),
        running: v.num_requests_running,
        waiting: v.num_requests_waiting,
        batch: meanSince('batch_size', now, before) ?? 0,
        step: meanSince('step_seconds', now, before),
        kv: v.kv_cache_usage_ratio,
        prefix: ratio(v.prefix_cache_hits_total, v.prefix_cache_queries_total),
        bandwidth: v.memory_bandwidth_ratio,
        rss: v.process_resident_memory_bytes,
        cpu: rate('process_cpu_seconds_total', now, before),
        answer_total: v.generation_tokens_total,
        prompt_total: v.prompt_tokens_total,
    };
    quantiles(m, 'request_queue_time_seconds', now, 'queue');
    quantiles(m, 'time_to_first_token_seconds', now, 'ttft');
    quantiles(m, 'inter_token_latency_seconds', now, 'itl');
    quantiles(m, 'e2e_request_latency_seconds', now, 'e2e');
    quantiles(m, 'step_seconds', now, 'step');
    return m;
}

/** After a restart counters begin anew: what was before says nothing about now. */
export const sameProcess = (now, before) =>
    before?.values.process_start_time_seconds === now.values.process_start_time_seconds &&
    now.time > before.time;
