// SPDX-License-Identifier: Apache-2.0
// Tests of the dashboard.
import assert from 'node:assert/strict';
import { load } from './load.mjs';
import { fits, until } from './parts.mjs';

const number = async (page, title) =>
    Number(
        (
            await page
                .locator('.tile', { has: page.locator('h2', { hasText: new RegExp(`^${title}$`) }) })
                .locator('b')
                .textContent()
        ).replace(/,/g, ''),
    );
const total = async (page) =>
    Number((await page.locator('.tile small').first().textContent()).replace(/\D/g, ''));
const state = (page) => page.textContent('#connection');
const connected = (page) => until('connected', async () => (await state(page)) === 'Connected');

export async function numbers_move_under_load({ open, server }) {
    const page = await open('dashboard');
    await page.selectOption('#interval', '1');
    await connected(page);
    const before = await total(page);
    const end = load(server);
    try {
        await until('tokens a second', async () => (await number(page, 'Answer')) > 0);
        await until('the total grows', async () => (await total(page)) > before);
        await until('time to first token', async () => (await number(page, 'First token')) > 0);
        await until('memory', async () => (await number(page, 'Memory')) > 0);
        await until('layers', async () => (await page.locator('.strip li').count()) > 0);
    } finally {
        await end();
    }
    assert.notEqual(await page.textContent('#model'), 'Dashboard');
}

export async function alerts_have_limits({ open }) {
    const page = await open('dashboard');
    await connected(page);
    await page.click('#checks-summary');
    const rows = page.locator('#checks-rows tr');
    assert((await rows.count()) >= 5);
    for (const row of await rows.allTextContents())
        assert.match(row, /(ok|warning|critical).*(above|below) [\d.]+$/);
}

export async function charts_are_drawn({ open }) {
    const page = await open('dashboard');
    await page.selectOption('#interval', '1');
    await connected(page);
    if (!(await page.evaluate(() => 'Chart' in globalThis))) {
        // built without chart.js
        assert((await page.locator('.card table').count()) >= 8);
        return;
    }
    assert.equal(await page.locator('.card canvas').count(), await page.locator('#charts .card').count());
    const painted = await page
        .locator('canvas')
        .first()
        .evaluate((c) =>
            c
                .getContext('2d')
                .getImageData(0, 0, c.width, c.height)
                .data.some((v) => v !== 0),
        );
    assert.equal(painted, true);
    assert.match(await page.getAttribute('.card canvas', 'aria-label'), /^Tokens per second: answers [\d.]+/);
}

export async function without_chart_js_there_are_tables({ open, server }) {
    const page = await open('dashboard');
    await page.route('**/chart.min.js', (route) => route.fulfill({ status: 404, body: '' }));
    await page.reload();
    await connected(page);
    assert.equal(await page.locator('canvas').count(), 0);
    const rows = page.locator('#charts tbody tr');
    assert((await rows.count()) >= 15);
    const memory = page.locator('.card', { hasText: 'Memory of the process' }).locator('td');
    await until('memory', async () => /^\d.* [MG]B$/.test(await memory.first().textContent()));
}

export async function it_pauses_and_goes_on({ open }) {
    const page = await open('dashboard');
    await page.selectOption('#interval', '1');
    await connected(page);
    let asked = 0;
    page.on('request', (q) => {
        if (q.url().endsWith('metrics.json')) asked++;
    });
    await until('it asks', () => asked >= 2);
    await page.click('#pause');
    assert.equal(await state(page), 'Paused');
    const then = asked;
    await page.waitForTimeout(2500);
    assert.equal(asked, then);
    await page.click('#pause');
    await until('it asks again', () => asked > then);
    await connected(page);
    await page.reload();
    assert.equal(await page.inputValue('#interval'), '1');
}

export async function a_lost_connection_is_told({ open, line }) {
    const page = await open('dashboard');
    await page.selectOption('#interval', '1');
    await connected(page);
    line.down = true;
    await until('it says so', async () => /cannot be reached/.test(await state(page)));
    line.down = false;
    await connected(page);
    line.key = 'secret-2';
    await page.waitForSelector('#ask-key[open]');
    await page.keyboard.press('Escape'); // without a key it does not go on asking
    await until('it says why', async () => /key/.test(await state(page)));
    await page.click('#pause');
    await page.waitForSelector('#ask-key[open]');
    await page.fill('#asked-key', 'secret-2');
    await page.keyboard.press('Enter');
    await connected(page);
}

export async function the_dashboard_fits_a_phone({ open }) {
    const page = await open('dashboard', { viewport: { width: 360, height: 740 } });
    await connected(page);
    await fits(page);
}

/** Points of the first chart, by the time before now in seconds. */
const drawn = (page) =>
    page
        .locator('#charts canvas')
        .first()
        .evaluate((c) => globalThis.Chart.getChart(c).data.datasets[0].data.map((p) => p.x));

export async function what_was_before_is_shown({ open, line, server }) {
    const kept = async () => (await fetch(new URL('metrics/history.json', server))).json();
    await until('three samples', async () => (await kept()).time.length >= 3);
    const { time, interval, rates, histograms } = await kept();
    assert.equal(rates.generation_tokens_total.length, time.length);
    assert.equal(histograms.step_seconds.p99.length, time.length);
    const page = await open('dashboard');
    await page.selectOption('#interval', '1');
    await connected(page);
    if (!(await page.evaluate(() => 'Chart' in globalThis))) return 'built without chart.js';
    let points = await drawn(page);
    assert(points.length >= 3 && points[0] <= -2 * interval * 0.9, `${points} when it is opened`);
    assert(points.every((x, i) => i === 0 || x > points[i - 1]), 'in the order of time');
    // what happens while nobody looks, the server tells afterwards
    line.down = true;
    await until('it says so', async () => /cannot be reached/.test(await state(page)));
    const { length } = (await kept()).time;
    await until('another sample', async () => (await kept()).time.length > length);
    line.down = false;
    await connected(page);
    points = await drawn(page);
    const gaps = points.map((x, i) => x - (points[i - 1] ?? x));
    assert(Math.max(...gaps) < 1.5 * interval, `a gap of ${Math.max(...gaps)} s`);
    await page.selectOption('#span', '3600');
    await until('an hour', async () => (await axis(page)) === -3600);
    await page.reload();
    await connected(page);
    assert.equal(await axis(page), -3600);
}

const axis = (page) =>
    page
        .locator('#charts canvas')
        .first()
        .evaluate((c) => globalThis.Chart.getChart(c).scales.x.min);

export async function words_are_explained({ open }) {
    const page = await open('dashboard');
    await connected(page);
    await page.click('#checks-summary');
    const terms = page.locator('.term:visible'),
        tip = page.locator('#tip');
    assert.equal(await terms.count(), await page.locator('#tiles article, .card, #checks-rows tr').count());
    const said = new Set();
    for (const term of await terms.all()) {
        await term.focus();
        assert.equal(await term.getAttribute('aria-describedby'), 'tip');
        assert.match(await tip.textContent(), /^[A-Z].{30,}[.]$/, await term.textContent());
        said.add(await tip.textContent());
        const [box, { width, height }] = [await tip.boundingBox(), page.viewportSize()];
        assert(box.x >= 0 && box.y >= 0 && box.x + box.width <= width && box.y + box.height <= height, JSON.stringify(box));
    }
    assert(said.size > 25, `${said.size} explanations`);
    await page.keyboard.press('Escape');
    assert.equal(await tip.isVisible(), false);
    await page.hover('.tile .term');
    await page.hover('#tip'); // it stays under the pointer
    await page.waitForTimeout(400);
    assert.equal(await tip.isVisible(), true);
    await page.hover('#connection');
    await until('it goes', async () => !(await tip.isVisible()));
}

export async function one_of_several_models_is_looked_at({ open, several }) {
    const ask = (model) =>
        fetch(new URL('v1/completions', several), {
            method: 'POST',
            body: JSON.stringify({ model, prompt: 'Once', max_tokens: model === 'one' ? 7 : 11, ignore_eos: true }),
        }).then((r) => r.text());
    const page = await open(new URL('dashboard', several).href, { within: several });
    await page.selectOption('#interval', '1');
    await connected(page);
    await until('both', async () => (await page.locator('#models option').count()) === 2);
    for (const text of await page.locator('#models option').allTextContents()) assert.match(text, /^(one|two)( \(unloaded\))?$/);
    const totals = new Set();
    for (const [model, n] of [['one', 7], ['two', 11]]) {
        await ask(model);
        await page.selectOption('#models', model);
        const { values } = await (await fetch(new URL(`metrics.json?model=${model}`, several))).json();
        assert(values.generation_tokens_total >= n);
        totals.add(values.generation_tokens_total);
        await until(model, async () => (await total(page)) === values.generation_tokens_total);
        assert.match(await page.textContent('#about'), /^bitnet .* threads$/);
    }
    assert.equal(totals.size, 2, 'each has its own figures');
    await page.reload();
    await connected(page);
    assert.equal(await page.inputValue('#models'), 'two');
    await page.evaluate(() => localStorage.setItem('bitnet.dashboard.model', '"gone"'));
    await page.reload();
    await connected(page);
    assert(['one', 'two'].includes(await page.inputValue('#models')));
}
