// SPDX-License-Identifier: Apache-2.0
// What the dashboard shows, from two answers of /metrics.json, or from /metrics/history.json: the members are described
// in docs/serve/metrics.md.

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

const QUANTILES = {
    queue: 'request_queue_time_seconds',
    ttft: 'time_to_first_token_seconds',
    itl: 'inter_token_latency_seconds',
    e2e: 'e2e_request_latency_seconds',
    step: 'step_seconds',
};

/** of: p50, p90 and p99 of a histogram, by its name */
function quantiles(of) {
    const m = {};
    for (const [key, name] of Object.entries(QUANTILES))
        for (const q of ['p50', 'p90', 'p99']) m[`${key}_${q}`] = of(name)?.[q] ?? null;
    return m;
}

const ratio = (a, b) => (b > 0 ? a / b : null);

/** before: the answer before this one of the same server process, or null. */
export function measure(now, before) {
    const v = now.values;
    return {
        answer_rate: rate('generation_tokens_total', now, before),
        prompt_rate: rate('prompt_tokens_total', now, before),
        running: v.num_requests_running,
        waiting: v.num_requests_waiting,
        batch: meanSince('batch_size', now, before) ?? 0,
        step: meanSince('step_seconds', now, before),
        kv: v.kv_cache_usage_ratio,
        prefix: ratio(now.rates.prefix_cache_hits_total['10s'], now.rates.prefix_cache_queries_total['10s']),
        prefix_ever: ratio(v.prefix_cache_hits_total, v.prefix_cache_queries_total),
        bandwidth: v.memory_bandwidth_ratio,
        rss: v.process_resident_memory_bytes,
        cpu: rate('process_cpu_seconds_total', now, before),
        answer_total: v.generation_tokens_total,
        prompt_total: v.prompt_tokens_total,
        ...quantiles((name) => now.histograms[name].recent),
    };
}

/** Samples that the server has kept: {at, ...measures}, oldest first. */
export function measureKept({ time, values, rates, histograms }) {
    return time.map((at, i) => ({
        at,
        answer_rate: rates.generation_tokens_total[i],
        prompt_rate: rates.prompt_tokens_total[i],
        running: values.num_requests_running[i],
        waiting: values.num_requests_waiting[i],
        batch: histograms.batch_size.mean[i] ?? 0,
        kv: values.kv_cache_usage_ratio[i],
        prefix: ratio(rates.prefix_cache_hits_total[i], rates.prefix_cache_queries_total[i]),
        bandwidth: values.memory_bandwidth_ratio[i],
        rss: values.process_resident_memory_bytes[i],
        ...quantiles((name) => ({
            p50: histograms[name].p50[i],
            p90: histograms[name].p90[i],
            p99: histograms[name].p99[i],
        })),
    }));
}

/** After a restart counters begin anew: what was before says nothing about now. */
export const sameProcess = (now, before) =>
    before?.values.process_start_time_seconds === now.values.process_start_time_seconds &&
    now.time > before.time;
