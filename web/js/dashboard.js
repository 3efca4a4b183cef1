// SPDX-License-Identifier: Apache-2.0
// The dashboard: asks /metrics.json again and again, and shows what has changed. Elements are made
// once; only their text changes, so nothing flickers.
import { json } from './api.js';
import { card, History } from './charts.js';
import { $, el, icon } from './dom.js';
import * as format from './format.js';
import { measure, sameProcess } from './measures.js';
import * as storage from './storage.js';

const TIMEOUT_MS = 5000;

// label, measure, format, and what is said below the number
const TILES = [
    ['Answer', 'answer_rate', format.perSecond, (m) => `${format.text(format.whole, m.answer_total)} in all`],
    ['Prompt', 'prompt_rate', format.perSecond, (m) => `${format.text(format.whole, m.prompt_total)} in all`],
    ['Running', 'running', format.whole, (m, limits) => `of ${limits.max_seqs} at a time`],
    ['Waiting', 'waiting', format.whole, (m, limits) => `of ${limits.max_queue} in the queue`],
    ['Batch size', 'batch', format.plain, () => 'answers in a step'],
    ['Step', 'step', format.time, (m) => `p99 ${format.text(format.time, m.step_p99)}`],
    ['First token', 'ttft_p50', format.time, (m) => `p99 ${format.text(format.time, m.ttft_p99)}`],
    ['Between tokens', 'itl_p50', format.time, (m) => `p99 ${format.text(format.time, m.itl_p99)}`],
    [
        'KV cache in use',
        'kv',
        format.share,
        (m, limits) => `of ${format.text(format.whole, limits.kv_pages * limits.kv_page_tokens)} tokens`,
    ],
    ['Prefix found', 'prefix', format.share, () => 'of tokens looked for'],
    [
        'Bandwidth',
        'bandwidth',
        format.share,
        (m, limits) =>
            limits.memory_bytes_per_second
                ? `of ${(limits.memory_bytes_per_second / 1e9).toFixed(1)} GB/s`
                : 'not measured',
    ],
    ['Memory', 'rss', format.bytes, (m) => `${format.text(format.plain, m.cpu)} CPUs busy`],
];

const QUANTILES = (key) => [
    [`${key}_p50`, 'p50'],
    [`${key}_p90`, 'p90'],
    [`${key}_p99`, 'p99'],
];
const CHARTS = [
    {
        title: 'Tokens per second',
        format: format.plain,
        series: [
            ['answer_rate', 'answers'],
            ['prompt_rate', 'prompts'],
        ],
        max: 10,
    },
    {
        title: 'Requests',
        format: format.plain,
        series: [
            ['running', 'running'],
            ['waiting', 'waiting'],
            ['batch', 'batch'],
        ],
        max: 4,
    },
    {
        title: 'Time in the queue',
        note: 'of the last minute',
        format: format.time,
        series: QUANTILES('queue'),
    },
    {
        title: 'Time to first token',
        note: 'of the last minute',
        format: format.time,
        series: QUANTILES('ttft'),
    },
    {
        title: 'Time between tokens',
        note: 'of the last minute',
        format: format.time,
        series: QUANTILES('itl'),
    },
    { title: 'Whole answers', note: 'of the last minute', format: format.time, series: QUANTILES('e2e') },
    { title: 'Step', note: 'of the last minute', format: format.time, series: QUANTILES('step') },
    {
        title: 'Shares',
        format: format.share,
        series: [
            ['kv', 'KV'],
            ['prefix', 'prefix'],
            ['bandwidth', 'bandwidth'],
        ],
        max: 1,
    },
    { title: 'Memory of the process', format: format.bytes, series: [['rss', 'resident']] },
];

// member of "layers", title, format, and the value of a full bar
const STRIPS = [
    ['kv_entropy_keys', 'Entropy of keys by layer', format.bits, 8],
    ['kv_entropy_values', 'Entropy of values by layer', format.bits, 8],
    ['activation_zero', 'Zero activations by layer', format.share, 1],
];

const LEVELS = { ok: 'ok', warn: 'warning', crit: 'critical' };

/* --- parts of the page, made once --- */

const tiles = TILES.map(([label, name, fmt, below]) => {
    const number = el('b', {}, '–'),
        unit = el('span'),
        note = el('small');
    $('#tiles').append(
        el('article', { class: 'tile' }, el('h2', {}, label), el('p', {}, number, unit), note),
    );
    return (m, limits) => {
        [number.textContent, unit.textContent] = fmt(m[name]);
        note.textContent = below(m, limits);
    };
});

const cards = CHARTS.map(card);
$('#charts').append(...cards.map((c) => c.element));

const strips = STRIPS.map(([name, title, fmt, full]) => {
    const bars = el('ol', { class: 'strip' }),
        note = el('p', { class: 'hint' }, 'Nothing seen yet.');
    $('#layers').append(el('article', { class: 'card' }, el('h2', {}, title), bars, note));
    return (layers) => showStrip(bars, note, layers[name], fmt, full);
});

/* --- what changes --- */

function showStrip(bars, note, values, fmt, full) {
    while (bars.children.length < values.length) bars.append(el('li'));
    values.forEach((v, i) => {
        const bar = bars.children[i],
            label = `Layer ${i}: ${format.text(fmt, v)}`;
        bar.style.setProperty('--share', Math.min((v ?? 0) / full, 1).toFixed(3));
        bar.title = label;
        bar.setAttribute('aria-label', label);
    });
    const known = values.filter(Number.isFinite);
    if (known.length === 0) return;
    const least = Math.min(...known),
        most = Math.max(...known);
    note.textContent =
        `least ${format.text(fmt, least)} in layer ${values.indexOf(least)}, ` +
        `most ${format.text(fmt, most)} in layer ${values.indexOf(most)}`;
}

const number = (v) => (v === null ? '–' : String(Number(v.toPrecision(4))));
const limit = (a) => `${a.op === '>' ? 'above' : 'below'} ${number(a.threshold)}`;
const alertRows = new Map(); // name -> cells
let firing = '';

function alertRow(a) {
    const cells = { level: el('td'), value: el('td'), limit: el('td') };
    $('#checks-rows').append(
        el(
            'tr',
            {},
            el('th', { scope: 'row', title: a.text }, a.name),
            cells.level,
            cells.value,
            cells.limit,
        ),
    );
    alertRows.set(a.name, cells);
    return cells;
}

function showAlerts(alerts) {
    for (const a of alerts) {
        const cells = alertRows.get(a.name) ?? alertRow(a);
        cells.level.textContent = LEVELS[a.level];
        cells.level.dataset.state = a.level;
        cells.value.textContent = number(a.value);
        cells.limit.textContent = limit(a);
    }
    const bad = alerts
        .filter((a) => a.level !== 'ok')
        .sort((a, b) => (a.level === 'crit' ? 0 : 1) - (b.level === 'crit' ? 0 : 1));
    $('#checks-summary').textContent =
        bad.length === 0
            ? `All ${alerts.length} checks are fine`
            : `${bad.length} of ${alerts.length} checks: look at ${bad.map((a) => a.name).join(', ')}`;
    const key = bad.map((a) => a.name + a.level).join();
    if (key === firing) return; // an alert is read aloud once, not at every refresh
    firing = key;
    $('#firing').replaceChildren(
        ...bad.map((a) =>
            el(
                'div',
                { class: `alert ${a.level}` },
                el('strong', {}, `${a.name}: ${number(a.value)}, ${limit(a)}`),
                el('span', {}, a.text),
            ),
        ),
    );
}

function showServer(now) {
    const about = now.labelled.build_info[0];
    const state =
        now.broken ?? (now.values.draining ? 'about to stop' : now.values.ready ? null : 'warming up');
    $('#model').textContent = about.model;
    $('#about').textContent = [
        `bitnet ${about.version}`,
        about.backend,
        `KV ${about.kv_type}`,
        `${now.limits.threads} threads`,
        state,
    ]
        .filter(Boolean)
        .join(' · ');
}

function connection(state, sentence) {
    const node = $('#connection');
    if (node.textContent === sentence) return; // it is read aloud when it changes
    node.dataset.state = state;
    node.textContent = sentence;
}

/* --- asking --- */

const history = new History();
let before = null,
    timer = null,
    paused = false;

function show(now) {
    const m = measure(now, sameProcess(now, before) ? before : null);
    before = now;
    history.push(now.time, m);
    showServer(now);
    showAlerts(now.alerts);
    for (const t of tiles) t(m, now.limits);
    for (const c of cards) c.show(history);
    for (const s of strips) s(now.layers);
}

async function ask() {
    try {
        const now = await json('metrics.json', { signal: AbortSignal.timeout(TIMEOUT_MS) });
        if (paused) return;
        show(now);
        connection('good', 'Connected');
    } catch (e) {
        connection('bad', e.name === 'TimeoutError' ? `No answer within ${TIMEOUT_MS / 1000} s` : e.message);
        if (e.status === 401) setPaused(true); // no key was given: do not ask for it again and again
    }
    schedule();
}

function schedule() {
    clearTimeout(timer);
    if (!paused) timer = setTimeout(ask, Number($('#interval').value) * 1000);
}

function setPaused(on) {
    paused = on;
    $('#pause').setAttribute('aria-pressed', String(paused));
    $('#pause').replaceChildren(icon(paused ? 'play' : 'pause'));
}

function pause() {
    setPaused(!paused);
    if (!paused) {
        ask();
        return;
    }
    clearTimeout(timer);
    connection('wait', 'Paused');
}

$('#interval').value = String(storage.read('interval', 2));
$('#interval').addEventListener('change', (e) => {
    storage.write('interval', Number(e.target.value));
    schedule();
});
$('#pause').addEventListener('click', pause);
addEventListener('themechange', () => cards.forEach((c) => c.paint()));
ask();
