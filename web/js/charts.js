// SPDX-License-Identifier: Apache-2.0
// Cards with the last minutes of some measures: lines where chart.js is there, else a table.
import { el } from './dom.js';
import { text } from './format.js';
import { term } from './tip.js';

const KEPT_S = 3600;
const FINE_S = 300; // as often as was asked; what is older as often as the server keeps it
const STEP_S = 4.5;
const COLOURS = { light: ['#0f766e', '#c2660c', '#7c3aed'], dark: ['#55c9ba', '#f0a352', '#b79cff'] };

const isDark = () =>
    getComputedStyle(document.documentElement).colorScheme === 'dark' ||
    (getComputedStyle(document.documentElement).colorScheme !== 'light' &&
        matchMedia('(prefers-color-scheme: dark)').matches);
const colours = () => COLOURS[isDark() ? 'dark' : 'light'];
const token = (name) => {
    const probe = el('i', { hidden: true });
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const colour = getComputedStyle(probe).color;
    probe.remove();
    return colour;
};

/** Samples of the last hour: {at, ...measures}, oldest first. */
export class History {
    all = [];
    span = FINE_S; // that is shown, in seconds

    push(at, measures) {
        this.all.push({ at, ...measures });
        let last = -Infinity;
        this.all = this.all.filter((s) => {
            const kept = s.at >= at - KEPT_S && (s.at > at - FINE_S || s.at - last >= STEP_S);
            if (kept) last = s.at;
            return kept;
        });
    }

    /** What the server has kept, beside what was seen here before and after it. */
    fill(samples) {
        const first = samples[0]?.at ?? Infinity,
            last = samples.at(-1)?.at ?? Infinity;
        this.all = [...this.all.filter((s) => s.at < first), ...samples, ...this.all.filter((s) => s.at > last)];
    }

    get samples() {
        const { at } = this.last ?? {};
        return this.all.filter((s) => s.at >= at - this.span);
    }

    get last() {
        return this.all.at(-1);
    }
}

/** spec: {title, about, note, format, series: [[measure, name]...], max} */
class Card {
    constructor(spec) {
        this.spec = spec;
        this.element = el(
            'article',
            { class: 'card' },
            el('h2', {}, term(spec.title, spec.about), spec.note ? el('small', {}, ` · ${spec.note}`) : null),
        );
    }

    now(measure, history) {
        return text(this.spec.format, history.last?.[measure]);
    }
}

class TableCard extends Card {
    constructor(spec) {
        super(spec);
        this.rows = spec.series.map(([, name]) => ({
            name,
            cells: ['now', 'least', 'mean', 'most'].map(() => el('td')),
        }));
        this.element.append(
            el(
                'div',
                { class: 'table' },
                el(
                    'table',
                    {},
                    el(
                        'thead',
                        {},
                        el(
                            'tr',
                            {},
                            ...['', 'now', 'least', 'mean', 'most'].map((h) => el('th', { scope: 'col' }, h)),
                        ),
                    ),
                    el(
                        'tbody',
                        {},
                        ...this.rows.map((r) => el('tr', {}, el('th', { scope: 'row' }, r.name), ...r.cells)),
                    ),
                ),
            ),
        );
    }

    show(history) {
        const { samples, last } = history;
        this.spec.series.forEach(([measure], i) => {
            const values = samples.map((s) => s[measure]).filter(Number.isFinite);
            const mean = values.reduce((a, b) => a + b, 0) / values.length;
            const shown = [last?.[measure], Math.min(...values), mean, Math.max(...values)];
            shown.forEach((v, k) => {
                this.rows[i].cells[k].textContent = text(this.spec.format, v);
            });
        });
    }

    paint() {
        /* its colours are those of the style sheet */
    }
}

/** A value between two that are not known is no line: it is shown as a point. */
const known = (p) => Number.isFinite(p?.y);
const alone = ({ dataset: { data }, dataIndex: i }) => (known(data[i - 1]) || known(data[i + 1]) ? 0 : 1.5);

/** "12:30:05, 4 min ago": seconds before the server's time `end` */
function when(x, end) {
    const ago = Math.round(-x),
        clock = new Date((end + x) * 1000).toLocaleTimeString();
    return `${clock}, ${ago < 120 ? `${ago} s` : `${Math.round(ago / 60)} min`} ago`;
}

class ChartCard extends Card {
    constructor(spec) {
        super(spec);
        this.legend = spec.series.map(([, name]) => {
            const value = el('b', {}, '–');
            return { value, item: el('li', {}, name, ' ', value) };
        });
        this.canvas = el('canvas', { role: 'img' });
        this.element.append(
            el('ul', { class: 'legend' }, ...this.legend.map((l) => l.item)),
            el('div', { class: 'plot' }, this.canvas),
        );
        this.chart = null;
    }

    /** A canvas must be on the page before there is a chart in it. */
    #draw() {
        const { format, series, max } = this.spec;
        this.chart = new globalThis.Chart(this.canvas, {
            type: 'line',
            data: {
                datasets: series.map(([, name]) => ({
                    label: name,
                    data: [],
                    parsing: false,
                    borderWidth: 1.75,
                    pointRadius: alone,
                    tension: 0.2,
                })),
            },
            options: {
                animation: false,
                maintainAspectRatio: false,
                normalized: true,
                interaction: { mode: 'index', intersect: false },
                scales: {
                    x: {
                        type: 'linear',
                        max: 0,
                        ticks: { callback: (v) => (v === 0 ? 'now' : `−${-v / 60} min`) },
                    },
                    y: {
                        min: 0,
                        suggestedMax: max,
                        ticks: { maxTicksLimit: 5, callback: (v) => text(format, v) },
                    },
                },
                plugins: {
                    legend: { display: false },
                    tooltip: {
                        callbacks: {
                            title: ([i]) => when(i.parsed.x, this.end),
                            label: (i) => ` ${i.dataset.label}: ${text(format, i.parsed.y)}`,
                        },
                    },
                },
            },
        });
        this.paint();
    }

    paint() {
        if (!this.chart) return;
        const line = token('--line'),
            muted = token('--muted'),
            { x, y } = this.chart.options.scales;
        for (const axis of [x, y]) {
            axis.grid = { color: line, drawBorder: false };
            axis.ticks.color = muted;
        }
        x.grid.display = false;
        colours()
            .slice(0, this.legend.length)
            .forEach((c, i) => {
                this.chart.data.datasets[i].borderColor = this.chart.data.datasets[i].backgroundColor = c;
                this.legend[i].item.style.setProperty('--series', c);
            });
        this.chart.update('none');
    }

    show(history) {
        if (!this.chart) this.#draw();
        const { samples, span } = history;
        const { x } = this.chart.options.scales;
        this.end = history.last.at;
        x.min = -span;
        x.ticks.stepSize = span / 5;
        this.spec.series.forEach(([measure], i) => {
            this.chart.data.datasets[i].data = samples.map((s) => ({
                x: s.at - this.end,
                y: s[measure] ?? NaN,
            }));
            this.legend[i].value.textContent = this.now(measure, history);
        });
        this.canvas.setAttribute(
            'aria-label',
            this.spec.title +
                ': ' +
                this.spec.series.map(([measure, name]) => `${name} ${this.now(measure, history)}`).join(', '),
        );
        this.chart.update('none');
    }
}

export const card = (spec) => (globalThis.Chart ? new ChartCard(spec) : new TableCard(spec));
