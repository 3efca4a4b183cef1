// SPDX-License-Identifier: Apache-2.0
// The chat page, the dashboard and the report of a profile in Chromium.
// usage: node test.mjs URL CHROMIUM FILES [--several URL] [--only TEXT] [--shots DIR]
// FILES: a folder with profile.html, profile.json and trace.json of one run; --several: a server with models `one` and `two`
import assert from 'node:assert/strict';
import { parseArgs } from 'node:util';
import { chromium } from 'playwright-core';
import * as chat from './chat.mjs';
import * as dashboard from './dashboard.mjs';
import * as docs from './docs.mjs';
import { Line } from './line.mjs';
import * as odd from './odd.mjs';
import * as reading from './reading.mjs';
import * as report from './report.mjs';
import * as shots from './shots.mjs';

const LIMIT_MS = 120000;
const {
    values: options,
    positionals: [url, program, files],
} = parseArgs({
    allowPositionals: true,
    options: { only: { type: 'string', default: '' }, shots: { type: 'string' }, several: { type: 'string' } },
});

const line = await new Line(url).open();
const browser = await chromium.launch({
    executablePath: program,
    args: process.getuid() === 0 ? ['--no-sandbox'] : [],
});

/** A page in a browser of its own. What it complains about, and what it asks of others, is a failure.
 * within: how all addresses that it may ask for begin. */
async function newPage(complaints, { within, ...options }) {
    const context = await browser.newContext({
        viewport: { width: 1200, height: 800 },
        colorScheme: 'light',
        ...options,
    });
    context.setDefaultTimeout(LIMIT_MS / 2);
    await context.route('**', (route) => {
        if (route.request().url().startsWith(within)) return route.fallback();
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

/** A test that cannot run here returns why. */
async function run(name, test) {
    const complaints = [],
        pages = [];
    const open = async (path = '', how = {}) => {
        const page = await newPage(complaints, { within: line.url, ...how });
        pages.push(page);
        await page.goto(new URL(path, line.url).href);
        return page;
    };
    line.reset();
    let timer;
    try {
        const late = new Promise((_, reject) => {
            timer = setTimeout(() => reject(new Error(`took more than ${LIMIT_MS} ms`)), LIMIT_MS);
        });
        const skipped = await Promise.race([test({ open, line, server: url, several: options.several, files, shots: options.shots }), late]);
        assert.deepEqual(complaints, [], 'the page complained');
        console.log(`ok ${++count} - ${name}${skipped ? ` # SKIP ${skipped}` : ''}`);
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
const all = options.shots ? shots : { ...chat, ...reading, ...odd, ...dashboard, ...docs, ...report };
for (const [name, test] of Object.entries(all))
    if (name.includes(options.only)) await run(name.replaceAll('_', ' '), test);
console.log(`1..${count}`);
await browser.close();
line.close();
process.exit(failed ? 1 : 0);
