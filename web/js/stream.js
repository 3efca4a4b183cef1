// SPDX-License-Identifier: Apache-2.0
// Server-sent events of /v1/chat/completions.
import { ApiError, request } from './api.js';

/** Strings after "data:", one an event. */
async function* events(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    try {
        for (;;) {
            const { value, done } = await reader.read();
            if (done) return;
            const parts = (rest + value).split(/\r?\n\r?\n/);
            rest = parts.pop();
            for (const part of parts) {
                const data = part
                    .split(/\r?\n/)
                    .filter((l) => l.startsWith('data:'))
                    .map((l) => l.slice(5).trimStart());
                if (data.length > 0) yield data.join('\n');
            }
        }
    } catch (e) {
        if (e.name === 'AbortError') throw e;
        throw new ApiError('The connection broke before the answer was complete.', 0);
    } finally {
        reader.cancel().catch(() => {});
    }
}

/** Pieces of an answer: {text, reasoning, tokens, finish, usage, dropped}, each only where the server said it. */
export async function* chat(body, signal) {
    const response = await request('v1/chat/completions', { body, signal });
    for await (const data of events(response)) {
        if (data === '[DONE]') return;
        const chunk = JSON.parse(data);
        if (chunk.error) throw new ApiError(chunk.error.message, 500);
        const choice = chunk.choices?.[0];
        yield {
            text: choice?.delta?.content ?? '',
            reasoning: choice?.delta?.reasoning_content ?? '',
            dropped: chunk.dropped_messages ?? 0,
            tokens: choice?.logprobs?.content ?? [],
            finish: choice?.finish_reason ?? null,
            usage: chunk.usage ?? null,
        };
    }
    throw new ApiError('The connection broke before the answer was complete.', 0);
}
