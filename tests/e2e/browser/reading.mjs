// SPDX-License-Identifier: Apache-2.0
// The chat page over a long conversation, with everything an answer may hold, and for everyone who reads it.
import assert from 'node:assert/strict';
import fs from 'node:fs/promises';
import { createRequire } from 'node:module';
import { answers, ask, conversation, done, MARKDOWN, openWith, send, set, stats, STORY, until } from './parts.mjs';

const axe = createRequire(import.meta.url).resolve('axe-core/axe.min.js');
const TURNS = 30;
const PHONE = { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true };

const RICH = `${MARKDOWN}

- [x] done
- [ ] to do

| left | middle | right |
|:-----|:------:|------:|
| a | b | 1 |

\`\`\`python
def fib(n):  # a comment
    return n if n < 2 else fib(n - 1) + fib(n - 2)
\`\`\`

See https://example.org/page?x=1, <https://example.org/other> and ![a picture](https://example.org/p.png).

Euler: $e^{i\\pi} + 1 = 0$, and it cost $5 or $6.

$$
\\sum_{k=1}^{n} k = \\frac{n(n+1)}{2}
$$`;

export async function thirty_turns_have_no_dead_end({ open, line }) {
    const page = await open();
    await set(page, { 'sampler-max_tokens': 40 });
    for (let i = 0; i < TURNS; i++) {
        const text = await ask(page, `Tell me more about the little dog, part ${i + 1}.`);
        assert(text.trim().length > 0, `turn ${i + 1} has an answer`);
        assert.equal(await page.locator('.notice').count(), 0, `turn ${i + 1}`);
    }
    assert.equal(line.bodies.at(-1).messages.length, 2 * TURNS - 1, 'all of it is sent');
    assert.match(await page.textContent('#context-text'), /^\d+ of 512 tokens · the oldest \d+ messages are no longer seen$/);
    const [value, max] = await page.$eval('#context-meter', (m) => [m.value, m.max]);
    assert(value > 100 && value <= max && max === 512, `${value} of ${max}`);
}

export async function the_embedded_model_is_introduced({ open, line }) {
    const page = await open();
    await until('the introduction', async () => (await page.textContent('#welcome-title')) === 'A small storyteller');
    assert.match(await page.textContent('#welcome-text'), /short stories for children/);
    await page.locator('#suggestions button').first().click();
    await until('an answer', async () => line.bodies.length === 1);
    await done(page);
    assert.match(await answers(page).last().textContent(), /dog|ball/i);
    await page.click('#open-settings');
    assert.equal(await page.getAttribute('#sampler-temperature', 'placeholder'), '0.8');
    assert.equal(await page.getAttribute('#sampler-top_k', 'placeholder'), '40');
}

export async function an_answer_may_hold_everything({ open }) {
    const page = await openWith(open, conversation(RICH));
    const body = page.locator('.prose').last();
    assert.deepEqual(await body.locator('.task input').evaluateAll((all) => all.map((i) => i.checked)), [true, false]);
    assert.equal(await body.locator('td.right').first().textContent(), '1');
    assert.deepEqual(await body.locator('a').evaluateAll((all) => all.map((a) => a.href)), [
        'https://example.org/',
        'https://example.org/page?x=1',
        'https://example.org/other',
        'https://example.org/p.png',
    ]);
    assert.match(await body.textContent(), /it cost \$5 or \$6\./);
    assert.equal(await page.title(), 'Everything · BitNet');
    const has = (file) => page.evaluate(async (f) => (await fetch(f)).ok, file);
    if (await has('highlight.min.js')) {
        await until('colours', async () => (await body.locator('.hljs-keyword').count()) > 0);
        assert.equal(await body.locator('.hljs-comment').last().textContent(), '# a comment');
        assert.match(await body.locator('pre').first().textContent(), /<script>alert\(1\)<\/script>/);
    }
    if (await has('katex.min.js')) {
        await until('formulas', async () => (await body.locator('math').count()) === 2);
        assert.equal(await body.locator('math[display=block]').count(), 1);
    }
}

const sse = (...deltas) => {
    const chunk = (delta, finish = null) =>
        `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;
    return [200, { 'Content-Type': 'text/event-stream' }, deltas.map((d) => chunk(d)).join('') + chunk({}, 'stop') + 'data: [DONE]\n\n'];
};

export async function thinking_is_folded({ open }) {
    const page = await open();
    const [status, headers, body] = sse({ reasoning_content: 'First I **think**.' }, { content: 'The answer.' });
    await page.route('**/v1/chat/completions', (route) => route.fulfill({ status, headers, body }));
    await send(page, 'Think!');
    await until('the answer', async () => (await answers(page).last().textContent()) === 'The answer.');
    assert.equal(await page.textContent('.thought summary'), 'Thought before answering: 3 words');
    assert.equal(await page.isVisible('.thought .prose'), false);
    await page.click('.thought summary');
    assert.equal(await page.textContent('.thought .prose strong'), 'think');
    await page.reload();
    assert.equal(await page.locator('.thought').count(), 1);
}

export async function a_cut_answer_goes_on({ open, line }) {
    const page = await open();
    await set(page, { 'sampler-max_tokens': 12, 'sampler-temperature': 0 });
    const first = await ask(page, STORY);
    assert.match(await stats(page), /cut at the longest length/);
    await page.locator('.message.assistant').last().hover();
    await page.click('[aria-label="Continue this answer"]');
    await until('the second half', async () => line.bodies.length === 2);
    await done(page);
    const whole = await answers(page).last().textContent();
    assert(whole.startsWith(first) && whole.length > first.length, `${whole} after ${first}`);
    assert.deepEqual(line.bodies[1].messages.at(-1), { role: 'assistant', content: first });
    assert.equal(await page.locator('.message').count(), 2);
}

export async function conversations_are_searched({ open }) {
    const page = await open();
    await set(page, { 'sampler-max_tokens': 3 });
    for (const word of ['apples', 'pears', 'plums', 'cherries']) {
        await ask(page, `All about ${word}`);
        await page.click('#new-chat');
    }
    await page.fill('#search', 'PLUMS');
    assert.deepEqual(await page.locator('#conversations .open').allTextContents(), ['All about plums']);
    await page.fill('#search', 'nothing like it');
    assert.equal(await page.isVisible('#none-found'), true);
    await page.fill('#search', '');
    assert.equal(await page.locator('#conversations .open').count(), 4);
}

export async function files_go_with_a_message({ open, line }) {
    const page = await open();
    await set(page, { 'sampler-max_tokens': 3 });
    const file = (name, text) => ({ name, mimeType: 'text/plain', buffer: Buffer.from(text) });
    await page.setInputFiles('#attach-file', [file('a.md', 'x\n```\ny\n```\n'), file('b.txt', 'second')]);
    await page.click('[aria-label="Remove b.txt"]');
    await ask(page, 'What is in it?');
    assert.equal(line.bodies[0].messages[0].content, 'a.md:\n\n````\nx\n```\ny\n```\n````\n\nWhat is in it?');
    assert.equal(await page.isHidden('#attached'), true);
    await page.setInputFiles('#attach-file', [{ ...file('c.bin', ''), buffer: Buffer.from([0, 255, 1]) }]);
    await until('a word about it', async () => /c.bin is not a text file/.test(await page.textContent('.toast')));
}

export async function one_of_several_models_is_chosen({ open, several }) {
    const alone = await open();
    await until('the model is named', async () => (await alone.textContent('#model')) !== '…');
    assert.equal(await alone.isHidden('#models'), true);
    const page = await open(several, { within: several });
    await until('both', async () => (await page.locator('#models option').count()) === 2);
    await page.selectOption('#models', 'two');
    await set(page, { 'sampler-max_tokens': 3 });
    const asked = page.waitForRequest('**/v1/chat/completions');
    assert((await ask(page, 'Hello')).length > 0);
    assert.equal((await asked).postDataJSON().model, 'two');
    await page.reload();
    await until('remembered', async () => (await page.inputValue('#models')) === 'two');
}

export async function a_toast_covers_nothing({ open }) {
    for (const how of [{}, PHONE]) {
        const page = await open('', how);
        await set(page, { 'sampler-max_tokens': 3 });
        await ask(page, 'Hello');
        await page.setInputFiles('#attach-file', [
            { name: 'c.bin', mimeType: 'text/plain', buffer: Buffer.from([0]) },
        ]);
        await page.waitForSelector('.toast');
        const box = (s) => page.locator(s).boundingBox();
        const [toast, field, main] = [await box('.toast'), await box('#composer'), await box('#scroller')];
        assert(toast.y >= main.y + main.height - 1 && toast.y + toast.height <= field.y + 1, JSON.stringify([toast, field, main]));
    }
}

const TARGETS = 'button:visible, select:visible, summary:visible, textarea:visible, input:visible:not([disabled]), a[class]:visible';

export async function fingers_have_room({ open }) {
    let page = await openWith(open, conversation(RICH), PHONE);
    const small = () =>
        page.locator(TARGETS).evaluateAll((all) =>
            all
                .map((b) => [b.getAttribute('aria-label') ?? b.textContent, b.getBoundingClientRect()])
                .filter(([, r]) => r.height < 44 || r.width < 44)
                .map(([name, r]) => `${name}: ${r.width} x ${r.height}`),
        );
    assert.deepEqual(await small(), []);
    await page.tap('#open-sidebar');
    await page.waitForSelector('#conversations .here:visible');
    assert.deepEqual(await small(), []);
    await page.tap('#conversations [aria-label^="Rename"]');
    assert.deepEqual(await small(), []);
    await page.keyboard.press('Escape');
    await page.tap('#close-sidebar');
    await page.tap('#open-settings');
    assert.deepEqual(await small(), []);
    await page.tap('#settings .sheet-head button');
    await page.locator('[aria-label="Edit"]').tap();
    assert.deepEqual(await small(), []);
    page = await open('dashboard', PHONE);
    await until('the dashboard', async () => (await page.textContent('#connection')) === 'Connected');
    await page.tap('#checks-summary');
    assert.deepEqual(await small(), []);
    page = await open('docs', PHONE);
    await until('paths', async () => (await page.locator('#paths details').count()) > 0);
    await page.locator('#paths summary').first().tap();
    assert.deepEqual(await small(), []);
}

async function judge(open, colorScheme) {
    const source = await fs.readFile(axe, 'utf8');
    const look = async (page) => {
        await page.evaluate(source);
        const found = await page.evaluate(async () => (await globalThis.axe.run()).violations);
        const said = found.map((v) => `${v.id} (${v.impact}): ${v.nodes.map((n) => n.html.slice(0, 120)).join(' | ')}`);
        assert.deepEqual(said, [], `${page.url()} ${colorScheme}`);
        await page.close();
    };
    await look(await openWith(open, conversation(RICH), { colorScheme, ...PHONE }));
    const chat = await open('', { colorScheme });
    await look(await openWith(open, conversation(RICH), { colorScheme }));
    await chat.click('#open-settings');
    await look(chat);
    const dashboard = await open('dashboard', { colorScheme });
    await until('the dashboard', async () => (await dashboard.textContent('#connection')) === 'Connected');
    await dashboard.click('#checks-summary');
    await dashboard.locator('.tile .term').first().focus();
    await look(dashboard);
    const docs = await open('docs', { colorScheme });
    await until('paths', async () => (await docs.locator('#paths details').count()) > 0);
    await docs.locator('#paths summary').first().click();
    await look(docs);
}

export const axe_finds_nothing_in_light = ({ open }) => judge(open, 'light');
export const axe_finds_nothing_in_dark = ({ open }) => judge(open, 'dark');
