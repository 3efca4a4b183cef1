// SPDX-License-Identifier: Apache-2.0
// The chat page and the dashboard in Chromium.   usage: node test.mjs URL CHROMIUM [--only TEXT]
// [--shots DIR]
import assert from 'node:assert/strict';
import { parseArgs } from 'node:util';
import { chromium } from 'playwright-core';
import * as chat from './chat.mjs';
import * as dashboard from './dashboard.mjs';
import { Line } from './line.mjs';
import { takeShots } from './shots.mjs';

const LIMIT_MS = 120000;
const {
    values: options,
    positionals: [url, program],
} = parseArgs({
    allowPositionals: true,
    options: { only: { type: 'string', default: '' }, shots: { type: 'string' } },
});

const line = await new Line(url).open();
const browser = await chromium.launch({
    executablePath: program,
    args: process.getuid() === 0 ? ['--no-sandbox'] : [],
});

/** A page in a browser of its own. What it complains about, and what it asks of others, is a failure. */
async function newPage(complaints, options = {}) {
    const context = await browser.newContext({
        viewport: { width: 1200, height: 800 },
        colorScheme: 'light',
        ...options,
    });
    context.setDefaultTimeout(LIMIT_MS / 2);
    await context.route('**', (route) => {
        if (route.request().url().startsWith(line.url)) return route.fallback();
        complaints.push(`asked for ${route.request().url()}`);
        return route.abort();
    });
    const page = await context.newPage();
    page.on('pageerror', (e) => complaints.push(e.stack));
    page.on('console', (m) => {
        // a refusal that a test asked for is told by the browser, too
        if (m.type() === 'error' && !/Failed to load resource/.test(m.text())) complaints.push(m.text());
    });
    return page;
}

async function run(name, test) {
    const complaints = [],
        pages = [];
    const open = async (path = '', how = {}) => {
        const page = await newPage(complaints, how);
        pages.push(page);
        await page.goto(line.url + path);
        return page;
    };
    line.reset();
    let timer;
    try {
        const late = new Promise((_, reject) => {
            timer = setTimeout(() => reject(new Error(`took more than ${LIMIT_MS} ms`)), LIMIT_MS);
        });
        await Promise.race([test({ open, line, server: url }), late]);
        assert.deepEqual(complaints, [], 'the page complained');
        console.log(`ok ${++count} - ${name}`);
    } catch (e) {
        failed++;
        console.log(`not ok ${++count} - ${name}\n${String(e.stack).replace(/^/gm, '# ')}`);
    } finally {
        clearTimeout(timer);
        for (const p of pages) await p.context().close();
    }
}

let count = 0,
    failed = 0;
if (options.shots) {
    await run('screenshots', (t) => takeShots(t, options.shots));
} else {
    for (const [name, test] of Object.entries({ ...chat, ...dashboard }))
        if (name.includes(options.only)) await run(name.replaceAll('_', ' '), test);
}
console.log(`1..${count}`);
await browser.close();
line.close();
process.exit(failed ? 1 : 0);
