// SPDX-License-Identifier: Apache-2.0
// Cards with the last five minutes of some measures: lines where chart.js is there, else a table.
import { el } from './dom.js';
import { text } from './format.js';

export const SPAN_S = 300;
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

/** Samples of the last SPAN_S seconds: {at, ...measures}, oldest first. */
export class History {
    samples = [];

    push(at, measures) {
        this.samples.push({ at, ...measures });
        while (this.samples[0].at < at - SPAN_S) this.samples.shift();
    }

    get last() {
        return this.samples.at(-1);
    }
}

/** spec: {title, note, format, series: [[measure, name]...], max} */
class Card {
    constructor(spec) {
        this.spec = spec;
        this.element = el(
            'article',
            { class: 'card' },
            el('h2', {}, spec.title, spec.note ? el('small', {}, ` · ${spec.note}`) : null),
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
        this.spec.series.forEach(([measure], i) => {
            const values = history.samples.map((s) => s[measure]).filter(Number.isFinite);
            const mean = values.reduce((a, b) => a + b, 0) / values.length;
            const shown = [history.last?.[measure], Math.min(...values), mean, Math.max(...values)];
            shown.forEach((v, k) => {
                this.rows[i].cells[k].textContent = text(this.spec.format, v);
            });
        });
    }

    paint() {
        /* its colours are those of the style sheet */
    }
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
                    pointRadius: 0,
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
                        min: -SPAN_S,
                        max: 0,
                        ticks: { stepSize: 60, callback: (v) => (v === 0 ? 'now' : `${v / 60} min`) },
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
                            title: ([i]) => `${Math.round(-i.parsed.x)} s ago`,
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
        const end = history.last.at;
        this.spec.series.forEach(([measure, name], i) => {
            this.chart.data.datasets[i].data = history.samples.map((s) => ({
                x: s.at - end,
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
