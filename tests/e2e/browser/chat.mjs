// SPDX-License-Identifier: Apache-2.0
// Tests of the chat page.
import assert from 'node:assert/strict';
import fs from 'node:fs/promises';
import {
    answers,
    ask,
    conversation,
    done,
    fits,
    MARKDOWN,
    openWith,
    send,
    set,
    stats,
    STORY,
    until,
} from './parts.mjs';

const SLOW_MS = 40;

export async function an_answer_streams({ open, line }) {
    const page = await open();
    line.eventMs = SLOW_MS;
    await until('the model is named', async () => (await page.textContent('#model')) !== '…');
    await set(page, { 'sampler-max_tokens': 40 });
    await send(page, STORY);
    assert.equal(await page.inputValue('#prompt'), '');
    const lengths = new Set();
    while (await page.isHidden('#send')) {
        lengths.add((await answers(page).last().textContent()).length);
        await page.waitForTimeout(30);
    }
    assert(lengths.size >= 5, `it was seen in ${lengths.size} lengths`);
    assert.match(await stats(page), /^\d+ tokens · [\d.]+ tokens\/s · first after [\d.]+ s/);
    assert.equal(await page.textContent('#conversations .here .open'), STORY);
    const [body] = line.bodies;
    assert.deepEqual(body.messages, [{ role: 'user', content: STORY }]);
    assert.equal(body.max_tokens, 40);
    assert.equal(body.logprobs, undefined);
    assert.equal(
        (await page.request.get(line.url))
            .headers()
            ['content-security-policy'].includes("default-src 'self'"),
        true,
    );
}

export async function stop_stops({ open, line }) {
    const page = await open();
    line.eventMs = SLOW_MS;
    await set(page, { 'sampler-max_tokens': 400 });
    await send(page, STORY);
    await until('some text', async () => (await answers(page).last().textContent()).length > 20);
    await page.click('#stop');
    await done(page);
    const text = await answers(page).last().textContent();
    await page.waitForTimeout(10 * SLOW_MS);
    assert.equal(await answers(page).last().textContent(), text);
    assert.match(await stats(page), /stopped by you$/);
    await until('the server was told', () => line.aborted === 1);
}

export async function another_answer_is_another({ open, line }) {
    const page = await open();
    await set(page, { 'sampler-max_tokens': 60 });
    const first = await ask(page, STORY);
    await page.locator('.message.assistant').last().hover();
    await page.click('[aria-label="Another answer"]');
    await until('the second', async () => line.bodies.length === 2 && (await page.isVisible('#send')));
    const second = await answers(page).last().textContent();
    assert.notEqual(second, first);
    assert.notEqual(line.bodies[0].seed, line.bodies[1].seed);
    assert.match(await page.textContent('.branch'), /2\/2/);
    await page.click('[aria-label="Version before"]');
    assert.equal(await answers(page).last().textContent(), first);
    await page.click('[aria-label="Version after"]');
    assert.equal(await answers(page).last().textContent(), second);
}

export async function the_same_seed_gives_the_same_answer({ open }) {
    const page = await open();
    await set(page, { 'sampler-max_tokens': 40, 'sampler-seed': 11 });
    const first = await ask(page, STORY);
    await page.click('#new-chat');
    assert.equal(await ask(page, STORY), first);
}

export async function an_edited_message_begins_a_branch({ open, line }) {
    const page = await open();
    await set(page, { 'sampler-max_tokens': 20 });
    await ask(page, STORY);
    const old = await ask(page, 'And then?');
    await page.locator('.message.user').first().hover();
    await page.locator('[aria-label="Edit"]').first().click();
    await page.fill('.editor textarea', 'The sea was calm');
    await page.click('.editor .main');
    await until('an answer', async () => line.bodies.length === 3 && (await page.isVisible('#send')));
    assert.deepEqual(line.bodies[2].messages, [{ role: 'user', content: 'The sea was calm' }]);
    assert.equal(await page.locator('.message').count(), 2);
    await page.locator('.message.user').first().hover();
    await page.click('[aria-label="Version before"]');
    assert.equal(await page.locator('.message').count(), 4);
    assert.equal(await answers(page).last().textContent(), old);
}

export async function a_reload_keeps_everything({ open, line }) {
    const page = await open();
    await set(page, { 'sampler-max_tokens': 200 });
    line.eventMs = SLOW_MS;
    await send(page, STORY);
    await until('some text', async () => (await answers(page).last().textContent()).length > 30);
    const seen = (await answers(page).last().textContent()).slice(0, 20);
    await page.reload();
    assert.equal(await page.locator('.message').count(), 2);
    assert((await answers(page).last().textContent()).startsWith(seen));
    assert.match(await stats(page), /interrupted$/);
    assert.equal(await page.textContent('.message.user .body'), STORY);
    line.eventMs = 0;
    await page.click('#open-settings');
    assert.equal(await page.inputValue('#sampler-max_tokens'), '200');
}

export async function conversations_are_renamed_deleted_and_moved({ open }) {
    const page = await open();
    await set(page, { 'sampler-max_tokens': 5 });
    await ask(page, 'First question');
    await page.click('#new-chat');
    await ask(page, 'Second question');
    const titles = () => page.locator('#conversations .open').allTextContents();
    assert.deepEqual(await titles(), ['Second question', 'First question']);
    await page.locator('#conversations li').nth(1).hover();
    await page.click('[aria-label="Rename First question"]');
    await page.fill('#conversations input', 'Renamed');
    await page.press('#conversations input', 'Enter');
    assert.deepEqual(await titles(), ['Second question', 'Renamed']);

    const [file] = await Promise.all([page.waitForEvent('download'), page.click('#export')]);
    const path = await file.path();
    for (const title of await titles()) {
        await page.locator('#conversations li', { hasText: title }).hover();
        await page.click(`[aria-label="Delete ${title}"]`);
    }
    assert.deepEqual(await titles(), []);
    await page.click('.toast button'); // undo
    assert.deepEqual(await titles(), ['Renamed']);
    await page.setInputFiles('#import-file', path);
    await until('both again', async () => (await titles()).length === 2);
    assert.match(await page.textContent('.toast'), /^1 conversation was imported/);

    const damaged = JSON.parse(await fs.readFile(path, 'utf8'));
    damaged.conversations[0].nodes = { x: 1 };
    await page.setInputFiles('#import-file', {
        name: 'bad.json',
        mimeType: 'application/json',
        buffer: Buffer.from(JSON.stringify(damaged)),
    });
    await until('a reason', async () => /damaged/.test(await page.textContent('.toast')));
}

export async function settings_are_sent_and_reset({ open, line }) {
    const page = await open();
    await set(page, {
        system: 'Tell stories.',
        'sampler-temperature': 0.5,
        'sampler-top_p': 0.9,
        'sampler-top_k': 40,
        'sampler-min_p': 0.05,
        'sampler-repetition_penalty': 1.1,
        'sampler-seed': 7,
        'sampler-max_tokens': 8,
    });
    await ask(page, STORY);
    const { messages, model, stream, stream_options, ...sampling } = line.bodies[0];
    assert.deepEqual(messages[0], { role: 'system', content: 'Tell stories.' });
    assert.deepEqual(sampling, {
        temperature: 0.5,
        top_p: 0.9,
        truncation: 'auto',
        top_k: 40,
        min_p: 0.05,
        repetition_penalty: 1.1,
        seed: 7,
        max_tokens: 8,
    });
    assert.match(await page.textContent('#system-note'), /Tell stories/);
    await page.click('#open-settings');
    await page.click('#reset');
    await page.fill('#sampler-temperature', '9'); // more than is possible: not taken
    await page.fill('#sampler-max_tokens', '8');
    await page.keyboard.press('Escape');
    await ask(page, 'And then?');
    assert.deepEqual(
        Object.keys(line.bodies[1]).filter((k) => /_p$|_k$|temp|pen/.test(k)),
        [],
    );
}

export async function probabilities_are_shown({ open, line }) {
    const page = await open();
    await set(page, { 'sampler-max_tokens': 12 });
    await page.click('#odds');
    await ask(page, STORY);
    assert.equal(line.bodies[0].top_logprobs, 5);
    const tokens = page.locator('.token');
    assert((await tokens.count()) >= 2);
    await tokens.first().hover();
    assert.equal(await page.isVisible('#tip'), true);
    assert((await page.locator('#tip tr').count()) >= 5);
    assert.match(await page.locator('#tip .chosen td').last().textContent(), /^[<\d.]+ %$/);
    await page.hover('#model');
    await tokens.first().focus();
    await page.keyboard.press('ArrowRight');
    assert.equal(await tokens.nth(1).evaluate((n) => n === document.activeElement), true);
    assert.equal(await page.isVisible('#tip'), true);
    const text = await answers(page).last().textContent();
    await page.click('#odds');
    assert.equal(await page.locator('.token').count(), 0);
    assert.equal((await answers(page).last().textContent()).trim().slice(0, 10), text.trim().slice(0, 10));
}

export async function an_error_is_told_in_the_servers_words({ open, line }) {
    const page = await open();
    await send(page, 'many words '.repeat(20000)); // no context holds them
    await page.waitForSelector('.notice');
    assert.match(await page.textContent('.notice'), /\d/);
    assert.equal(await page.locator('.message').count(), 1);
    assert.equal(line.bodies.length, 1);
}

export async function a_broken_connection_keeps_what_came({ open, line }) {
    const page = await open();
    line.cutAfter = 4;
    await send(page, STORY);
    await page.waitForSelector('.notice');
    assert.match(await page.textContent('.notice'), /connection broke/);
    assert.match(await stats(page), /interrupted$/);
    line.cutAfter = Infinity;
    await set(page, { 'sampler-max_tokens': 8 });
    const came = await answers(page).last().textContent();
    await page.click('.notice button');
    await until('the whole answer', async () => line.bodies.length === 2 && (await page.isVisible('#send')));
    assert.equal(await page.locator('.notice').count(), 0);
    assert((await answers(page).last().textContent()).startsWith(came), 'it goes on where it broke');
}

export async function a_busy_server_is_waited_for({ open, line }) {
    const page = await open();
    await set(page, { 'sampler-max_tokens': 8 });
    line.replies = [[429, { 'Retry-After': '1' }, 'the queue is full']];
    await send(page, STORY);
    await page.waitForSelector('.notice.busy');
    assert.match(await page.textContent('.notice'), /The queue is full\. Trying again in 1 s/);
    await done(page);
    assert.equal(line.bodies.length, 2);
    assert((await answers(page).last().textContent()).length > 0);
    assert.equal(await page.locator('.notice').count(), 0);

    line.replies = [[429, { 'Retry-After': '60' }, 'the queue is full']];
    await send(page, 'And then?');
    await page.waitForSelector('.notice.busy');
    await page.click('.notice.busy button');
    await done(page);
    assert.equal(await page.textContent('.notice button'), 'Try again');
}

export async function a_key_is_asked_for({ open, line }) {
    line.key = 'secret-1';
    const page = await open();
    await page.waitForSelector('#ask-key[open]');
    await page.fill('#asked-key', 'wrong');
    await page.keyboard.press('Enter');
    await until(
        'it is asked for again',
        async () =>
            (await page
                .locator('#asked-key')
                .inputValue()
                .catch(() => 'wrong')) === '',
    );
    await page.fill('#asked-key', 'secret-1');
    await page.keyboard.press('Enter');
    await until(
        'the model is named',
        async () => !['…', 'No connection'].includes(await page.textContent('#model')),
    );
    await set(page, { 'sampler-max_tokens': 8 });
    await ask(page, STORY);
    await page.reload();
    await until('the model is named', async () => (await page.textContent('#model')) !== '…');
    assert.equal(await page.locator('#ask-key').count(), 0);
}

export async function the_keyboard_is_enough({ open, line }) {
    const page = await open();
    const focused = () =>
        page.evaluate(() => document.activeElement.id || document.activeElement.getAttribute('aria-label'));
    assert.equal(await focused(), 'prompt');
    await set(page, { 'sampler-max_tokens': 8 });
    await page.focus('#prompt');
    await page.keyboard.type('Line one');
    await page.keyboard.press('Shift+Enter');
    await page.keyboard.type('line two');
    await page.keyboard.press('Enter');
    await until('an answer', async () => line.bodies.length === 1 && (await page.isVisible('#send')));
    assert.equal(line.bodies[0].messages[0].content, 'Line one\nline two');
    await page.keyboard.press('Shift+Tab');
    assert.equal(await focused(), 'Another answer');
    await page.keyboard.press('Enter');
    await until('another', async () => line.bodies.length === 2 && (await page.isVisible('#send')));
    await page.focus('#prompt');
    await page.keyboard.press('ArrowUp');
    assert.equal(await focused(), 'Edit the message');
    await page.keyboard.press('Escape');
    assert.equal(await page.locator('.editor').count(), 0);
    line.eventMs = SLOW_MS;
    await set(page, { 'sampler-max_tokens': 300 });
    await send(page, 'And then?');
    await until('some text', async () => (await answers(page).last().textContent()).length > 10);
    await page.keyboard.press('Escape');
    await done(page);
    assert.match(await stats(page), /stopped by you$/);
    await page.keyboard.press('Alt+n');
    assert.equal(await page.isVisible('#welcome'), true);
    assert.equal(await focused(), 'prompt');
    await page.focus('.skip');
    await page.keyboard.press('Enter');
    assert.equal(await focused(), 'prompt');
}

export async function text_becomes_nodes_and_nothing_else({ open }) {
    const page = await openWith(open, conversation(MARKDOWN));
    const n = (selector) => page.locator(`.prose ${selector}`).count();
    for (const [selector, wanted] of Object.entries({
        h2: 1,
        strong: 1,
        em: 1,
        del: 1,
        'ol > li': 2,
        'ol ul > li': 2,
        '.code pre': 1,
        'table td': 2,
        blockquote: 1,
        a: 1,
        img: 0,
        script: 0,
        b: 0,
    }))
        assert.equal(await n(selector), wanted, selector);
    assert.match(await page.textContent('.prose p'), /snake_case_name, 2 \* 3 \* 4\./);
    assert.equal(await page.textContent('.prose p code'), 'inline <b>code</b>');
    assert.equal(await page.getAttribute('.prose a', 'href'), 'https://example.org/');
    assert.equal(await page.title(), 'Everything · BitNet');
}

export async function any_text_is_shown_and_soon({ open }) {
    const page = await open();
    const slowest = await page.evaluate(async () => {
        const { Prose } = await import('./js/markdown.js');
        const marks = [
            '*',
            '**',
            '_',
            '`',
            '```',
            '~~',
            '[',
            '](',
            ')',
            '|',
            '|-|',
            '\n',
            '\n\n',
            '- ',
            '1. ',
            '> ',
            '# ',
            '    ',
            '\\',
            '<b>',
            ' ',
        ];
        let state = 1,
            slowest = 0;
        const draw = (n) => (state = (state * 48271) % 2147483647) % n;
        const texts = marks
            .map((m) => m.repeat(20000))
            .concat(['*a '.repeat(10000), '[a]('.repeat(5000), '> '.repeat(5000) + 'x']);
        for (let i = 0; i < 500; i++)
            texts.push(
                Array.from({ length: 60 }, (_, k) =>
                    draw(3) === 0 ? `w${k}` : marks[draw(marks.length)],
                ).join(''),
            );
        for (const text of texts) {
            const node = document.createElement('div'),
                prose = new Prose(node),
                began = performance.now();
            prose.show(text.slice(0, text.length / 2));
            prose.show(text);
            slowest = Math.max(slowest, performance.now() - began);
            const whole = document.createElement('div');
            new Prose(whole).show(text);
            if (whole.innerHTML !== node.innerHTML)
                throw new Error(`grown and whole differ: ${JSON.stringify(text)}`);
            if (node.querySelector('b')) throw new Error(`markup: ${JSON.stringify(text)}`);
        }
        return slowest;
    });
    assert(slowest < 3000, `one took ${slowest} ms`);
}

export async function a_phone_is_wide_enough({ open, line }) {
    const page = await openWith(open, conversation(MARKDOWN), {
        viewport: { width: 360, height: 740 },
        hasTouch: true,
        isMobile: true,
    });
    await fits(page);
    assert.equal(await page.isVisible('#conversations'), false);
    await page.tap('#open-sidebar');
    await page.waitForSelector('#conversations .here:visible');
    await fits(page);
    await page.tap('#new-chat');
    assert.equal(await page.isVisible('#welcome'), true);
    await fits(page);
    await page.tap('#open-settings');
    await page.fill('#sampler-max_tokens', '20');
    await fits(page);
    await page.tap('#settings .sheet-head button');
    await page.fill('#prompt', STORY);
    await page.tap('#send');
    await until('an answer', async () => line.bodies.length === 1 && (await page.isVisible('#send')));
    await fits(page);
}

export async function dark_and_light({ open }) {
    const shade = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const light = await open('', { colorScheme: 'light' }),
        dark = await open('', { colorScheme: 'dark' });
    assert.notEqual(await shade(light), await shade(dark));
    await light.click('[data-theme-switch]');
    assert.equal(await shade(light), await shade(dark));
    await light.reload();
    assert.equal(await shade(light), await shade(dark));
    await light.goto(new URL('dashboard', light.url()).href);
    await light.click('[data-theme-switch]');
    await dark.emulateMedia({ colorScheme: 'light' });
    await light.goto(dark.url());
    assert.equal(await shade(light), await shade(dark));
}
