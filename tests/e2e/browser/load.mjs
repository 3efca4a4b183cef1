// SPDX-License-Identifier: Apache-2.0
import { STORY } from './parts.mjs';

/** Asks the server for answers until it is told to stop. */
export function load(server, n = 4) {
    let on = true;
    const one = async () => {
        while (on) {
            const r = await fetch(new URL('v1/chat/completions', server), {
                method: 'POST',
                body: JSON.stringify({ messages: [{ role: 'user', content: STORY }], max_tokens: 200 }),
            });
            await r.text();
        }
    };
    const all = Promise.all(Array.from({ length: n }, one));
    return async () => {
        on = false;
        await all;
    };
}
