// SPDX-License-Identifier: Apache-2.0
// The page of `bitnet profile --html`, opened as a file, beside the JSON of the same run; and its trace
// in the browser's own viewer.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { fits, openReport, until } from './parts.mjs';

const UNITS = {
    '': 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12,
    ns: 1, µs: 1e3, ms: 1e6, s: 1e9,
    B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12,
    'B/s': 1, 'kB/s': 1e3, 'MB/s': 1e6, 'GB/s': 1e9, 'TB/s': 1e12,
    '%': 0.01,
};

const read = (files, name) => JSON.parse(readFileSync(`${files}/${name}`, 'utf8'));

/** A figure of the page is the JSON's, as far as its last digit. */
function same(text, value, what) {
    const [, number, , decimals = '', exponent = '0', unit] = text.match(/^((\d+)(?:\.(\d+))?(?:e([-+]\d+))?) ?(\S*)$/);
    const digit = 10 ** (Number(exponent) - decimals.length) * UNITS[unit];
    assert(Math.abs(Number(number) * UNITS[unit] - value) <= digit * 0.5001, `${what}: ${text} for ${value}`);
}

export async function report_shows_the_figures_of_the_run({ open, files }) {
    const page = await openReport(open, files),
        report = read(files, 'profile.json');
    const text = (selector) => page.locator(selector).textContent();
    assert.equal(await text('h1'), report.model.name);
    assert.equal(await text('#verdict'), report.verdict);
    assert.equal(await page.locator('script, link, img, iframe').count(), 0);
    for (const [name, phase] of Object.entries(report.phases)) {
        for (const key of ['tok_per_s', 'bytes_per_s', 'roofline_share'])
            same(await text(`#${name}-${key}`), phase[key], `${name} ${key}`);
        const rows = await page.$$eval(`#${name} .ops tbody tr`, (all) =>
            all.map((tr) => [tr.dataset.op, ...[...tr.cells].map((td) => td.textContent.trim())]),
        );
        assert.deepEqual(rows.map((r) => r[0]).sort(), phase.ops.map((o) => o.op).sort());
        for (const [op, , time, , share, calls, bytes] of rows) {
            const o = phase.ops.find((one) => one.op === op);
            same(time, o.ns_per_token, `${op}, time`);
            same(share, o.share, `${op}, share`);
            same(calls, o.calls_per_token, `${op}, calls`);
            if (o.bytes_per_token > 0) same(bytes, o.bytes_per_token, `${op}, bytes`);
            else assert.equal(bytes, '–');
        }
        assert.equal(await page.locator(`#${name} .workers tr`).count(), report.machine.threads);
    }
}

/** Blocks of one row stand side by side, and fill it as their times say. */
export async function report_draws_to_scale({ open, files }) {
    const page = await openReport(open, files),
        { kinds } = read(files, 'profile.json').phases.decode;
    const bar = await page.$eval('#decode > .fluid', (svg) => {
        const whole = svg.getBoundingClientRect();
        return [...svg.children].map((block) => {
            const box = block.querySelector('rect').getBoundingClientRect();
            return [block.querySelector('title').textContent, box.left - whole.left, box.width, whole.width];
        });
    });
    let end = 0;
    for (const [tip, left, width, whole] of bar) {
        const kind = kinds.find((k) => tip.startsWith(`${k.kind}:`));
        assert(Math.abs(width / whole - kind.share) < 0.002, `${tip}: ${width} of ${whole} px`);
        assert(Math.abs(left - end) < 2, `${tip} begins at ${left} px, the one before ends at ${end}`);
        end = left + width;
    }
    assert(bar.length > 2 && end > 0.99 * bar[0][3]);
}

export async function report_can_be_read_on_a_telephone_and_in_the_dark({ open, files }) {
    for (const colorScheme of ['light', 'dark']) {
        const page = await openReport(open, files, { colorScheme, viewport: { width: 400, height: 800 } });
        await fits(page);
        // text on the colour of each kind, by the contrast that WCAG asks for
        const weak = await page.evaluate(() => {
            const light = (colour) => {
                const [r, g, b] = colour.match(/[\d.]+/g).map((v) => {
                    const c = v / 255;
                    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
                });
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
            };
            const kinds = [...document.styleSheets[0].cssRules].map((r) => r.selectorText ?? '').filter((s) => /^\.k-/.test(s));
            const found = kinds.length ? [] : ['no kinds'];
            for (const kind of kinds) {
                const probe = document.body.appendChild(document.createElement('div'));
                probe.className = kind.slice(1);
                probe.style.cssText = 'background: var(--c); color: var(--t)';
                const style = getComputedStyle(probe),
                    [low, high] = [light(style.backgroundColor), light(style.color)].sort((a, b) => a - b);
                if ((high + 0.05) / (low + 0.05) < 4.5) found.push(`${kind} ${style.backgroundColor} ${style.color}`);
                probe.remove();
            }
            return found;
        });
        assert.deepEqual(weak, [], colorScheme);
        await page.emulateMedia({ media: 'print' });
        const paper = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
        assert.equal(paper, 'rgb(253, 252, 250)', 'printed on light ground');
    }
}

/** The Performance panel of the developer tools, which come with the browser, reads it by rules of its own. */
export async function trace_opens_in_the_developer_tools({ open, files }) {
    const page = await open('devtools://devtools/bundled/devtools_app.html?panel=timeline', { within: 'devtools://devtools/' });
    const input = page.locator('input[type=file]');
    await input.waitFor({ state: 'attached' });
    const known = await page.evaluate(async () => {
        const { TimelinePanel } = await import('./panels/timeline/timeline.js').catch(() => ({}));
        return typeof TimelinePanel?.TimelinePanel?.instance().model?.parsedTrace === 'function';
    });
    if (!known) return 'the developer tools of this browser cannot be asked';
    await input.setInputFiles(`${files}/trace.json`);
    const seen = () =>
        page.evaluate(async () => {
            const { TimelinePanel } = await import('./panels/timeline/timeline.js');
            const trace = TimelinePanel.TimelinePanel.instance().model.parsedTrace();
            if (!trace) return null;
            return [...trace.data.Renderer.processes].flatMap(([pid, process]) =>
                [...process.threads].map(([tid, t]) => ({
                    pid,
                    tid,
                    name: t.name,
                    slices: t.entries.length,
                    us: t.entries.reduce((sum, e) => sum + (e.dur ?? 0), 0),
                })),
            );
        });
    let threads = null;
    await until('the trace is shown', async () => (threads = await seen()) !== null);
    const { traceEvents: events } = read(files, 'trace.json');
    const named = events.filter((e) => e.name === 'thread_name');
    assert.equal(threads.length, named.length);
    for (const t of threads) {
        const mine = events.filter((e) => e.ph === 'X' && e.pid === t.pid && e.tid === t.tid);
        assert.equal(t.name, named.find((e) => e.tid === t.tid).args.name);
        assert.equal(t.slices, mine.length, `slices of ${t.name}`);
        const us = mine.reduce((sum, e) => sum + e.dur, 0);
        assert(mine.length > 0 && Math.abs(t.us - us) <= us * 1e-6, `${t.name}: ${t.us} of ${us} us`);
    }
}
