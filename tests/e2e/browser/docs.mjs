// SPDX-License-Identifier: Apache-2.0
// Tests of the page that describes the interface.
import assert from 'node:assert/strict';
import { fits, until } from './parts.mjs';

export async function the_interface_is_described({ open, server }) {
    const api = await (await fetch(new URL('openapi.json', server))).json();
    const operations = Object.values(api.paths).flatMap((item) => Object.keys(item));
    const page = await open('docs');
    const shown = page.locator('#paths details:visible');
    await until('all paths', async () => (await shown.count()) === operations.length);
    await page.fill('#filter', 'post chat completions');
    await until('some paths', async () => (await shown.count()) > 0 && (await shown.count()) < 5);
    await shown.first().locator('summary').click();
    assert.match(await shown.first().textContent(), /messages array, required.*temperature number.*curl http/s);
    await page.fill('#filter', 'nothing of this kind');
    await until('no path', async () => (await shown.count()) === 0);
}

export async function the_interface_fits_a_phone({ open }) {
    const page = await open('docs', { viewport: { width: 360, height: 740 } });
    await until('paths', async () => (await page.locator('#paths details').count()) > 0);
    await fits(page);
}
