// SPDX-License-Identifier: Apache-2.0
// What several tests do, most of it on the chat page.
import assert from 'node:assert/strict';
import { pathToFileURL } from 'node:url';

export const STORY = 'Once upon a time there was a little fox';

export const answers = (page) => page.locator('.message.assistant .body');
export const done = (page) => page.waitForSelector('#send:not([hidden])');
export const stats = (page) => page.locator('.message.assistant .stats').last().textContent();

export async function send(page, text) {
    await page.fill('#prompt', text);
    await page.press('#prompt', 'Enter');
}

/** Sends and waits for the whole answer. */
export async function ask(page, text) {
    const before = await answers(page).count();
    await send(page, text);
    await until('an answer', async () => (await answers(page).count()) > before);
    await done(page);
    return answers(page).last().textContent();
}

export async function set(page, values) {
    await page.click('#open-settings');
    for (const [id, value] of Object.entries(values)) await page.fill(`#${id}`, String(value));
    await page.click('#settings .sheet-head button');
}

export async function until(what, holds, limitMs = 20000) {
    const end = Date.now() + limitMs;
    while (!(await holds())) {
        assert(Date.now() < end, `after ${limitMs} ms still not: ${what}`);
        await new Promise((resolve) => setTimeout(resolve, 50));
    }
}

/** A page is not wider than its window. */
export async function fits(page) {
    const [is, may] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert(is <= may, `${is} px wide in a window of ${may}`);
}

/** A conversation with every kind of text, and some that should stay text. */
export const MARKDOWN = `# Title
Some **strong**, *slanted*, ~~gone~~ and \`inline <b>code</b>\`, snake_case_name, 2 * 3 * 4.

1. one
2. two
   - inner
   - more

\`\`\`js
const long = "${'x'.repeat(300)}"; // <script>alert(1)</script>
\`\`\`

| a | b |
|---|---|
| 1 | ${'wide '.repeat(40)} |

> quoted <img src=x onerror="document.title='bad'">

[good](https://example.org/) [bad](javascript:alert(1)) ${'longword'.repeat(40)}`;

export function conversation(content, question = 'Show me everything') {
    const at = Date.now(),
        q = 'a'.repeat(18),
        a = 'b'.repeat(18);
    return {
        id: 'c'.repeat(18),
        title: 'Everything',
        named: true,
        created: at,
        updated: at,
        system: '',
        leaf: a,
        nodes: {
            [q]: { id: q, parent: null, role: 'user', content: question, at },
            [a]: {
                id: a,
                parent: q,
                role: 'assistant',
                content,
                at: at + 1,
                finish: 'stop',
                stats: { tokens: 212, first_s: 0.31, per_s: 38.2 },
            },
        },
    };
}

/** Opens the chat page with a conversation that is in the browser already. */
export async function openWith(open, c, how) {
    const page = await open('', how);
    await page.evaluate((kept) => {
        localStorage.setItem(`bitnet.chat.${kept.id}`, JSON.stringify(kept));
        localStorage.setItem('bitnet.last', JSON.stringify(kept.id));
    }, c);
    await page.reload();
    return page;
}

/** The report of a profile: a file that asks for nothing but itself. */
export function openReport(open, files, how) {
    const url = pathToFileURL(`${files}/profile.html`).href;
    return open(url, { within: url, ...how });
}
