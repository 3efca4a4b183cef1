// SPDX-License-Identifier: Apache-2.0
// Tests of the dashboard.
import assert from 'node:assert/strict';
import { load } from './load.mjs';
import { fits, until } from './parts.mjs';

const number = async (page, title) =>
    Number(
        (
            await page
                .locator('.tile', { has: page.locator(`h2:text-is("${title}")`) })
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
        if (q.url().endsWith('/metrics.json')) asked++;
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
