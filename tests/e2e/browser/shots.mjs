// SPDX-License-Identifier: Apache-2.0
// Pictures for the documentation.
import { ask, openReport, set, STORY } from './parts.mjs';
import { load } from './load.mjs';

const LOAD_S = 60;

async function chat(open, dir, name, how, odds) {
    const page = await open('', how);
    await set(page, { 'sampler-max_tokens': 220, 'sampler-temperature': 0.7, 'sampler-seed': 5 });
    if (odds) await page.click('#odds');
    await ask(page, STORY);
    if (odds) await page.locator('.token').nth(12).hover();
    else await page.mouse.move(600, 600);
    await page.screenshot({ path: `${dir}/${name}.png` });
}

export async function chat_page({ open, shots: dir }) {
    await chat(open, dir, 'chat-light', { colorScheme: 'light' }, false);
    await chat(open, dir, 'chat-dark', { colorScheme: 'dark' }, true);
    await chat(
        open,
        dir,
        'chat-phone',
        {
            colorScheme: 'light',
            viewport: { width: 360, height: 740 },
            isMobile: true,
            hasTouch: true,
        },
        false,
    );
}

export async function dashboard({ open, server, shots: dir }) {
    const page = await open('dashboard', { viewport: { width: 1280, height: 900 } });
    await page.selectOption('#interval', '1');
    const end = load(server, 6);
    await page.waitForTimeout(LOAD_S * 1000);
    await page.screenshot({ path: `${dir}/dashboard.png`, fullPage: true });
    await end();
}

export async function profile({ open, files, shots: dir }) {
    for (const colorScheme of ['light', 'dark']) {
        const page = await openReport(open, files, { colorScheme, viewport: { width: 1200, height: 1240 } });
        await page.screenshot({ path: `${dir}/profile-${colorScheme}.png` });
    }
}
