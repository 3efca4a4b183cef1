// SPDX-License-Identifier: Apache-2.0
// One answer: asks, waits while the server is busy, gathers what comes, and measures it.
import { chat } from './stream.js';

const MAX_BUSY_TRIES = 100;
const TOP_LOGPROBS = 5;
const BURST_MS = 10;

/** Resolves after some seconds, or rejects when it is cancelled. */
const pause = (seconds, signal) =>
    new Promise((resolve, reject) => {
        const timer = setTimeout(resolve, seconds * 1000);
        signal.addEventListener(
            'abort',
            () => {
                clearTimeout(timer);
                reject(new DOMException('cancelled', 'AbortError'));
            },
            { once: true },
        );
    });

/** The chosen token is always known, the others where asked for. */
const keptToken = (t) => ({
    token: t.token,
    logprob: t.logprob,
    bytes: t.bytes,
    top_logprobs: t.top_logprobs ?? [],
});

/** When text came. What came at once with the first piece (burst) was computed before the clock ran. */
class Clock {
    start = performance.now();
    first = 0;
    burst = 0;
    burstChars = 0;
    last = 0;

    tick(chars) {
        this.last = performance.now();
        this.first ||= this.last;
        if (this.last - this.first > BURST_MS) return;
        this.burst = this.last;
        this.burstChars += chars;
    }

    /** Speed as a reader feels it. A piece may hold several tokens: they are shared out by the length of the text. */
    measure(node, chars) {
        const seconds = (this.last - this.burst) / 1000;
        const after = node.stats.tokens * (1 - this.burstChars / chars);
        node.stats.first_s = (this.first - this.start) / 1000;
        node.stats.per_s = seconds * 1000 > BURST_MS ? after / seconds : 0;
    }
}

async function read(node, tokens, body, signal, grown) {
    const clock = new Clock();
    let chars = 0; // of this request: an answer that is continued has some already
    for await (const piece of chat(body, signal)) {
        if (piece.text || piece.reasoning || piece.tokens.length > 0) {
            clock.tick(piece.text.length + piece.reasoning.length);
            chars += piece.text.length + piece.reasoning.length;
            if (piece.reasoning) node.reasoning = (node.reasoning ?? '') + piece.reasoning;
            node.content += piece.text;
            node.stats.tokens += piece.tokens.length || 1;
            tokens.push(...piece.tokens.map(keptToken));
        }
        if (piece.finish) node.finish = piece.finish;
        if (piece.dropped) node.dropped = piece.dropped;
        if (piece.usage) {
            node.stats.tokens = piece.usage.completion_tokens;
            node.stats.context = piece.usage.total_tokens;
        }
        if (chars) clock.measure(node, chars);
        grown();
    }
    node.finish ??= 'stop';
}

/**
 * Fills a node of a conversation. tokens: receives what the probabilities are shown from, if odds.
 * on: {grown(), busy(error)}. The returned promise is rejected with the reason where the answer is not whole.
 */
export async function answer({ node, messages, model, settings, odds, tokens, signal, on }) {
    const body = { model, messages, ...settings, truncation: 'auto', stream: true };
    body.stream_options = { include_usage: true };
    if (odds) Object.assign(body, { logprobs: true, top_logprobs: TOP_LOGPROBS });
    node.stats = { tokens: 0, first_s: 0, per_s: 0 };
    for (let tries = 1; ; tries++) {
        try {
            await read(node, tokens, body, signal, on.grown);
            return;
        } catch (e) {
            if (!e.busy || tries === MAX_BUSY_TRIES) {
                node.finish = e.name === 'AbortError' ? 'stopped' : 'broken';
                throw e;
            }
            on.busy(e);
            await pause(Math.max(e.retryAfter, 1), signal).catch((cancelled) => {
                node.finish = 'stopped';
                throw cancelled;
            });
        }
    }
}
