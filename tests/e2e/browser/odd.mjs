// SPDX-License-Identifier: Apache-2.0
// What people and models do that nobody thinks of: texts of any length and direction, markup, several tabs, no room, no server.
import assert from 'node:assert/strict';
import { answers, ask, conversation, done, fits, openWith, send, set, until } from './parts.mjs';

const PHONE = { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true };
const file = (name, bytes) => ({ name, mimeType: 'text/plain', buffer: Buffer.from(bytes) });

export async function a_pasted_book_is_folded({ open, line }) {
    const page = await open();
    await set(page, { 'sampler-max_tokens': 3 });
    await send(page, 'lorem ipsum dolor '.repeat(11500));
    await page.waitForSelector('.notice');
    assert.match(await page.textContent('.notice p'), /^The prompt has 206999 bytes; .*[.]$/);
    const body = page.locator('.message.user .body');
    assert((await body.boundingBox()).height < 400);
    await page.click('.unfold');
    assert((await body.boundingBox()).height > 10000);
    assert.equal(await page.getAttribute('.unfold', 'aria-expanded'), 'true');
    await page.click('.unfold');
    assert.match(await page.textContent('.unfold'), /^Show all 206,999 characters$/);
    await page.click('.notice button'); // asking again would not help: the message has to change
    await page.fill('.editor textarea', 'Tell me a story.');
    await page.press('.editor textarea', 'Enter');
    await until('an answer', async () => line.bodies.length === 2 && (await page.isVisible('#send')));
    assert.equal(await page.locator('.notice, .unfold').count(), 0);
}

const RIGHT_TO_LEFT = `# עברית ועוד

שלום עולם, עם \`code\` ו-123.

- פריט אחד
- פריט שני

> ציטוט

| שם | ערך |
|---|---|
| א | ב |

Left to right.

${'w'.repeat(5000)} \`${'c'.repeat(2000)}\`

| ${'h'.repeat(400)} | b |
|---|---|
| 1 | 2 |`;

export async function words_of_any_length_and_direction_fit({ open }) {
    for (const how of [{}, PHONE]) {
        const page = await openWith(open, conversation(RIGHT_TO_LEFT, 'שאלה '.repeat(300)), how);
        await fits(page);
        const ways = await page.$$eval('.prose > :is(h2, p, ul, blockquote), .prose table, .user .body', (all) =>
            all.map((n) => `${n.localName} ${getComputedStyle(n).direction}`),
        );
        assert.deepEqual(ways, ['div rtl', 'h2 rtl', 'p rtl', 'ul rtl', 'blockquote rtl', 'table rtl', 'p ltr', 'p ltr', 'table ltr']);
    }
}

const MARKUP = `<script>window.bad = 1</script><img src=x onerror="window.bad = 1">
<iframe srcdoc="<script>parent.bad = 1</script>"></iframe> <a href="javascript:window.bad=1">a</a>
[a](data:text/html,x) [b](vbscript:x) [c](javascript:x) &lt;b&gt; $\\href{javascript:x}{y}$ $\\includegraphics{https://example.org/x.png}$
$\\htmlStyle{position:fixed}{z}$

\`\`\`html"><script>
<script>window.bad = 1</script>
\`\`\`

\`\`\`html
<script>window.bad = 1</script>
\`\`\`

$$
\\def\\a{\\a\\a}\\a \\rule{10000em}{10000em}
$$`;

export async function markup_in_an_answer_is_text({ open }) {
    const page = await openWith(open, conversation(MARKUP, MARKUP));
    await until('colours', async () => (await page.locator('.hljs-tag').count()) > 0 || !(await page.evaluate(async () => (await fetch('highlight.min.js')).ok)));
    assert.equal(await page.evaluate(() => window.bad), undefined);
    assert.equal(await page.locator('.message :is(script, img, iframe, a, [href]:not(use), [style*="fixed"])').count(), 0);
    assert.match(await page.locator('.prose').textContent(), /<iframe srcdoc=.*\[b\]\(vbscript:x\).*&lt;b&gt;/s);
    await fits(page);
}

export async function without_libraries_it_is_as_written({ open }) {
    const text = '$x^2$\n\n```js\nlet a = 1; // one\n```\n\n$$\ny\n$$';
    const page = await open();
    await page.route(/(highlight|katex)\.min\.js$/, (route) => route.fulfill({ status: 404, body: '' }));
    await page.evaluate((kept) => {
        localStorage.setItem(`bitnet.chat.${kept.id}`, JSON.stringify(kept));
        localStorage.setItem('bitnet.last', JSON.stringify(kept.id));
    }, conversation(text));
    const asked = page.waitForResponse(/katex/);
    await page.reload();
    await asked;
    assert.deepEqual(await page.locator('.maths').allTextContents(), ['$x^2$', '$$\ny\n$$']);
    assert.equal(await page.textContent('.code code'), 'let a = 1; // one');
    assert.equal(await page.locator('math, .hljs-comment').count(), 0);
}

export async function pages_trust_nobody_else({ server }) {
    for (const path of ['', 'dashboard', 'docs', 'js/chat.js']) {
        const r = await fetch(new URL(path, server));
        const rules = r.headers.get('content-security-policy');
        assert.match(rules, /default-src 'self'; .*base-uri 'none'; frame-ancestors 'none'; form-action 'none'/, path);
        assert.doesNotMatch(rules, /unsafe|\*/, path);
    }
    assert.match(await (await fetch(server)).text(), /Chart\.js \(MIT\), highlight\.js \(BSD-3-Clause\), KaTeX \(MIT\)/);
}

export async function two_tabs_keep_what_both_write({ open, line }) {
    const one = await open();
    await set(one, { 'sampler-max_tokens': 12 });
    await ask(one, 'From the first');
    const two = await one.context().newPage();
    await two.goto(line.url);
    const texts = (page) => page.locator('.message.user .body').allTextContents();
    assert.deepEqual(await texts(two), ['From the first']);
    await two.fill('#prompt', 'a draft');
    await ask(one, 'Go on');
    await until('the other follows', async () => (await texts(two)).at(-1) === 'Go on');
    assert.equal(await two.inputValue('#prompt'), 'a draft');
    // a message that is edited stays open, and both write at once
    await two.locator('.message.user').first().hover();
    await two.locator('[aria-label="Edit"]').first().click();
    await two.fill('.editor textarea', 'half a thought');
    line.eventMs = 100;
    await send(one, 'One asks');
    await until('an answer grows', async () => (await answers(one).count()) === 3);
    assert.equal(await two.inputValue('.editor textarea'), 'half a thought');
    await two.press('.editor textarea', 'Enter');
    await Promise.all([done(one), done(two)]);
    const kept = () =>
        one.evaluate(() => {
            const key = Object.keys(localStorage).find((k) => k.startsWith('bitnet.chat.'));
            return Object.values(JSON.parse(localStorage[key]).nodes).map((n) => [n.role, n.content, n.finish]);
        });
    await until('all of it', async () => (await kept()).length === 8);
    const said = (await kept()).filter(([role]) => role === 'user').map(([, text]) => text);
    assert.deepEqual(said.sort(), ['From the first', 'Go on', 'One asks', 'half a thought']);
    for (const [role, text, finish] of await kept()) if (role === 'assistant') assert(text !== '' && finish === 'length', `${text} ${finish}`);
    assert.equal((await texts(one)).at(-1), 'One asks');
    assert.deepEqual(await texts(two), ['half a thought']);
}

export async function without_room_it_still_talks({ open, line }) {
    const full = await open();
    await set(full, { 'sampler-max_tokens': 3 });
    await full.evaluate(() => {
        for (let n = 1 << 22, i = 0; n > 0; )
            try {
                localStorage.setItem(`junk${i++}`, 'x'.repeat(n));
            } catch {
                n >>= 1;
            }
    });
    const none = await open();
    await none.addInitScript(() => {
        Object.defineProperty(window, 'localStorage', {
            get() {
                throw new DOMException('no', 'SecurityError');
            },
        });
    });
    await none.goto(line.url);
    for (const page of [full, none]) {
        await send(page, 'Hello');
        await until('some text', async () => (await answers(page).last().textContent()).length > 0);
        if (page === none) await page.click('#stop', { timeout: 2000 }).catch(() => {}); // it may be over
        await done(page);
        assert.match(await page.textContent('.toast'), /could not store this conversation/);
        await page.click('[data-theme-switch]');
    }
}

export async function files_of_all_kinds_are_looked_at({ open, line }) {
    const page = await open();
    await set(page, { 'sampler-max_tokens': 3 });
    const refused = async (f, why) => {
        await page.setInputFiles('#attach-file', [f]);
        await until(f.name, async () => why.test((await page.locator('.toast').allTextContents()).join()));
    };
    await refused(file('a.png', [0x89, 0x50, 0x4e, 0x47, 0, 255]), /^a.png is not a text file/);
    await refused(file('latin1.txt', Buffer.from('h\xe9llo', 'latin1')), /^latin1.txt is not a text file/);
    await refused(file('big.txt', Buffer.alloc(2 << 20, 97)), /^big.txt is too long/);
    assert.equal(await page.isHidden('#attached'), true);
    await page.setInputFiles('#attach-file', [file('notes.txt', 'A dog.')]);
    await page.press('#prompt', 'Enter'); // a file alone is a message, too
    await until('the request', async () => line.bodies.length === 1);
    await done(page);
    assert.equal(line.bodies[0].messages[0].content, 'notes.txt:\n\n```\nA dog.\n```');
}

export async function a_server_that_comes_back_is_asked_again({ open, line }) {
    const page = await open();
    await set(page, { 'sampler-max_tokens': 5 });
    line.down = true;
    await send(page, 'Hello');
    await page.waitForSelector('.notice');
    assert.match(await page.textContent('.notice p'), /cannot be reached/);
    line.down = false;
    await page.click('.notice button');
    await until('an answer', async () => line.bodies.length === 1 && (await page.isVisible('#send')));
    assert.equal(await page.locator('.notice').count(), 0);
    assert.equal(await page.locator('.message').count(), 2);
}
