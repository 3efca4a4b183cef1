// SPDX-License-Identifier: Apache-2.0
// The dashboard: asks /metrics.json again and again, and shows what has changed. Elements are made
// once; only their text changes, so nothing flickers. What was before the page was opened, the server has kept.
import { json } from './api.js';
import { card, History } from './charts.js';
import { $, el, icon } from './dom.js';
import * as format from './format.js';
import { measure, measureKept, sameProcess } from './measures.js';
import * as storage from './storage.js';
import { term } from './tip.js';

const TIMEOUT_MS = 5000;
const AWAY_S = 15; // without an answer: the tab was asleep

// label, measure, format, what is said below the number, and what the label means
const TILES = [
    [
        'Answer',
        'answer_rate',
        format.perSecond,
        (m) => `${format.text(format.whole, m.answer_total)} in all`,
        'Tokens that all answers together gain in a second. A token is a word or a piece of one.',
    ],
    [
        'Prompt',
        'prompt_rate',
        format.perSecond,
        (m) => `${format.text(format.whole, m.prompt_total)} in all`,
        'Tokens of prompts taken in a second: read by the model, or found in the prefix cache.',
    ],
    [
        'Running',
        'running',
        format.whole,
        (m, limits) => `of ${limits.max_seqs} at a time`,
        'Answers that are being computed, together: each gains a token per step.',
    ],
    [
        'Waiting',
        'waiting',
        format.whole,
        (m, limits) => `of ${limits.max_queue} in the queue`,
        'Requests that wait for their first step. When the queue is full, others are told to come back later.',
    ],
    [
        'Batch size',
        'batch',
        format.plain,
        () => 'answers in a step',
        'Answers computed together in a step, on average. More of them give more tokens a second in total, and fewer to each.',
    ],
    [
        'Step',
        'step',
        format.time,
        (m) => `p99 ${format.text(format.time, m.step_p99)}`,
        'Time of one pass through the model, which gives each running answer a token and reads a piece of waiting prompts. p99: 99 of 100 take less.',
    ],
    [
        'First token',
        'ttft_p50',
        format.time,
        (m) => `p99 ${format.text(format.time, m.ttft_p99)}`,
        'From a request to the first bytes of its answer: waiting, and reading the prompt. Half of those of the last minute took less; 99 of 100 less than p99.',
    ],
    [
        'Between tokens',
        'itl_p50',
        format.time,
        (m) => `p99 ${format.text(format.time, m.itl_p99)}`,
        'Between two tokens of an answer, as its reader sees it. Half of those of the last minute took less; 99 of 100 less than p99.',
    ],
    [
        'KV cache in use',
        'kv',
        format.share,
        (m, limits) => `of ${format.text(format.whole, limits.kv_pages * limits.kv_page_tokens)} tokens`,
        'What the model remembers of the texts it is working on: keys and values of each of their tokens. When it is full, the youngest answer is put aside and computed again later.',
    ],
    [
        'Prefix found',
        'prefix_ever',
        format.share,
        () => 'of tokens looked for',
        'Share of the prompts’ tokens that did not have to be computed, since a text with the same beginning had been: a system prompt, or the conversation so far.',
    ],
    [
        'Bandwidth',
        'bandwidth',
        format.share,
        (m, limits) =>
            limits.memory_bytes_per_second
                ? `of ${(limits.memory_bytes_per_second / 1e9).toFixed(1)} GB/s`
                : 'not measured',
        'Weights read in a second of computing, as a share of what the memory can do, which limits how fast single answers are. Above 100 %: the weights stay in the CPU’s caches.',
    ],
    [
        'Memory',
        'rss',
        format.bytes,
        (m) => `${format.text(format.plain, m.cpu)} CPUs busy`,
        'Memory of the server’s process that is in RAM, with the parts of the model’s file that were read.',
    ],
];

const QUANTILES = (key) => [
    [`${key}_p50`, 'p50'],
    [`${key}_p90`, 'p90'],
    [`${key}_p99`, 'p99'],
];
const OF_THE_LAST_MINUTE = 'Of the last minute: half took less than p50, nine of ten less than p90, 99 of 100 less than p99.';
const CHARTS = [
    {
        title: 'Tokens per second',
        about: 'Of answers: computed. Of prompts: read by the model, or found in the prefix cache.',
        format: format.plain,
        series: [
            ['answer_rate', 'answers'],
            ['prompt_rate', 'prompts'],
        ],
        max: 10,
    },
    {
        title: 'Requests',
        about: 'Running: being computed. Waiting: for their first step. Batch: computed together in a step, on average.',
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
        about: `From a request to its first step. ${OF_THE_LAST_MINUTE}`,
        format: format.time,
        series: QUANTILES('queue'),
    },
    {
        title: 'Time to first token',
        about: `From a request to the first bytes of its answer: waiting, and reading the prompt. ${OF_THE_LAST_MINUTE}`,
        format: format.time,
        series: QUANTILES('ttft'),
    },
    {
        title: 'Time between tokens',
        about: `Between two tokens of an answer, as its reader sees it. ${OF_THE_LAST_MINUTE}`,
        format: format.time,
        series: QUANTILES('itl'),
    },
    {
        title: 'Whole answers',
        about: `From a request to the last bytes of its answer. ${OF_THE_LAST_MINUTE}`,
        format: format.time,
        series: QUANTILES('e2e'),
    },
    {
        title: 'Step',
        about: `One pass through the model. ${OF_THE_LAST_MINUTE}`,
        format: format.time,
        series: QUANTILES('step'),
    },
    {
        title: 'Shares',
        about: 'KV: of the KV cache that is in use. Prefix: of the prompts’ tokens that did not have to be computed. Bandwidth: weights read in a second of computing, of what the memory can do; above 100 % they stay in the CPU’s caches.',
        format: format.share,
        series: [
            ['kv', 'KV'],
            ['prefix', 'prefix'],
            ['bandwidth', 'bandwidth'],
        ],
        max: 1,
    },
    {
        title: 'Memory of the process',
        about: 'In RAM, with the parts of the model’s file that were read.',
        format: format.bytes,
        series: [['rss', 'resident']],
    },
];

// member of "layers", title, format, the value of a full bar, and what it means
const ENTROPY = 'Entropy of what the KV cache holds as 8-bit codes: how varied it is, at most 8 bits. Healthy models were seen at 7.4 to 7.7; much less hints at a damaged layer.';
const STRIPS = [
    ['kv_entropy_keys', 'Entropy of keys by layer', format.bits, 8, ENTROPY],
    ['kv_entropy_values', 'Entropy of values by layer', format.bits, 8, ENTROPY],
    [
        'activation_zero',
        'Zero activations by layer',
        format.share,
        1,
        'Share of the inputs of a layer’s last feed-forward matrix that are zero. In models with ReLU² it is large, and saves work; a layer with nothing but zeros is dead.',
    ],
];

const LEVELS = { ok: 'ok', warn: 'warning', crit: 'critical' };

/* --- parts of the page, made once --- */

const tiles = TILES.map(([label, name, fmt, below, about]) => {
    const number = el('b', {}, '–'),
        unit = el('span'),
        note = el('small');
    $('#tiles').append(
        el('article', { class: 'tile' }, el('h2', {}, term(label, about)), el('p', {}, number, unit), note),
    );
    return (m, limits) => {
        [number.textContent, unit.textContent] = fmt(m[name]);
        note.textContent = below(m, limits);
    };
});

const cards = CHARTS.map(card);
$('#charts').append(...cards.map((c) => c.element));

const strips = STRIPS.map(([name, title, fmt, full, about]) => {
    const bars = el('ol', { class: 'strip' }),
        note = el('p', { class: 'hint' }, 'Nothing seen yet.');
    $('#layers').append(el('article', { class: 'card' }, el('h2', {}, term(title, about)), bars, note));
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
            el('th', { scope: 'row' }, term(a.name, a.text)),
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
    const about = now.labelled.build_info[0]; // none: the model was not loaded yet
    const { state: kept } = now.models.find((m) => m.name === now.model);
    const state =
        now.broken ?? (now.values.draining ? 'about to stop' : now.values.ready ? null : 'warming up');
    $('#model').textContent = about?.model ?? now.model;
    $('#about').textContent = [
        about && `bitnet ${about.version}`,
        about?.backend,
        about && `KV ${about.kv_type}`,
        now.limits.threads > 0 && `${now.limits.threads} threads`,
        kept === 'loaded' ? null : kept,
        state,
    ]
        .filter(Boolean)
        .join(' · ');
    offerModels(now.models, now.model);
}

/** With several models, the one that is shown is chosen here. */
function offerModels(models, shown) {
    const select = $('#models');
    select.hidden = models.length < 2;
    $('#model').classList.toggle('quiet', models.length > 1);
    while (select.options.length > models.length) select.lastChild.remove();
    while (select.options.length < models.length) select.append(el('option'));
    models.forEach((m, i) => {
        const option = select.options[i],
            text = m.state === 'loaded' ? m.name : `${m.name} (${m.state})`;
        option.value = m.name;
        if (option.text !== text) option.text = text;
    });
    if (document.activeElement !== select) select.value = shown;
}

function connection(state, sentence) {
    const node = $('#connection');
    if (node.textContent === sentence) return; // it is read aloud when it changes
    node.dataset.state = state;
    node.textContent = sentence;
}

/* --- asking --- */

let history = new History();
let before = null,
    timer = null,
    paused = false,
    gap = true, // something may have happened that was not seen here
    model = storage.read('dashboard.model'); // null: the server chooses

const of = (path) => (model === null ? path : `${path}?model=${encodeURIComponent(model)}`);

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
    const wanted = model;
    try {
        const signal = AbortSignal.timeout(TIMEOUT_MS);
        const now = await json(of('metrics.json'), { signal });
        gap ||= now.time - before?.time > AWAY_S;
        const kept = gap ? measureKept(await json(of('metrics/history.json'), { signal })) : null;
        if (paused || wanted !== model) return;
        if (kept) history.fill(kept.filter((s) => s.at < now.time));
        gap = false;
        if (now.models.length > 1) model = now.model; // also when others come into memory
        show(now);
        connection('good', 'Connected');
    } catch (e) {
        if (wanted !== model) return;
        gap = true;
        connection('bad', e.name === 'TimeoutError' ? `No answer within ${TIMEOUT_MS / 1000} s` : e.message);
        if (e.status === 401) setPaused(true); // no key was given: do not ask for it again and again
        if (e.status === 404 && model !== null) {
            choose(null); // it is served no more
            return;
        }
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
    gap = true;
    if (!paused) {
        ask();
        return;
    }
    clearTimeout(timer);
    connection('wait', 'Paused');
}

function choose(name) {
    model = name;
    storage.write('dashboard.model', name);
    const { span } = history;
    history = new History();
    history.span = span;
    before = null;
    gap = true;
    if (paused) setPaused(false);
    clearTimeout(timer);
    ask();
}

function showSpan(s) {
    history.span = s;
    if (history.last) for (const c of cards) c.show(history);
}

/** A choice that is remembered. */
function remembered(id, name, otherwise, chosen) {
    const select = $(id);
    select.value = String(storage.read(name, otherwise));
    if (select.selectedIndex < 0) select.value = String(otherwise);
    select.addEventListener('change', () => {
        storage.write(name, Number(select.value));
        chosen(Number(select.value));
    });
    return Number(select.value);
}

remembered('#interval', 'interval', 2, schedule);
history.span = remembered('#span', 'span', 300, showSpan);
$('#models').addEventListener('change', (e) => choose(e.target.value));
$('#pause').addEventListener('click', pause);
addEventListener('themechange', () => cards.forEach((c) => c.paint()));
ask();
