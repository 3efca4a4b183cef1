// SPDX-License-Identifier: Apache-2.0
// An answer token by token: colours say how likely each was, a tooltip what else was possible. One
// stop for the Tab key; arrow keys go from token to token.
import { el } from './dom.js';
import { hideTip, showTip } from './tip.js';

const percent = (logprob) => Math.exp(logprob) * 100;
const showPercent = (p) => (p >= 99.95 ? '100' : p >= 0.1 ? p.toFixed(1) : p > 0 ? '<0.1' : '0') + ' %';
const visible = (text) =>
    text === '' ? '∅' : text.replaceAll('\n', '↵').replaceAll('\t', '⇥').replaceAll(' ', '␣');

export class TokenText {
    #decoder = new TextDecoder();
    #tokens = [];

    constructor(node) {
        this.node = node;
        node.addEventListener('pointerover', (e) => this.#tell(e.target));
        node.addEventListener('pointerleave', hideTip);
        node.addEventListener('focusin', (e) => this.#tell(e.target));
        node.addEventListener('focusout', hideTip);
        node.addEventListener('keydown', (e) => this.#walk(e));
    }

    /** tokens: as in "logprobs" of a reply; those that are not shown yet are appended. */
    show(tokens) {
        for (const t of tokens.slice(this.#tokens.length)) {
            // a character may be spread over several tokens; the last of them shows it
            const text = t.bytes ? this.#decoder.decode(Uint8Array.from(t.bytes), { stream: true }) : t.token;
            const span = el(
                'span',
                { class: 'token', tabindex: this.#tokens.length === 0 ? '0' : '-1' },
                text,
            );
            span.style.setProperty('--p', Math.exp(t.logprob).toFixed(3));
            this.#tokens.push(t);
            this.node.append(span);
        }
    }

    #walk(e) {
        const to = { ArrowRight: 'nextElementSibling', ArrowLeft: 'previousElementSibling' }[e.key];
        if (!to || !e.target[to]) return;
        e.preventDefault();
        e.target.tabIndex = -1;
        e.target[to].tabIndex = 0;
        e.target[to].focus();
    }

    #tell(span) {
        if (!span.classList.contains('token')) return;
        const t = this.#tokens[[...this.node.children].indexOf(span)];
        const others = t.top_logprobs.filter((o) => o.token !== t.token);
        const row = (o, chosen) =>
            el(
                'tr',
                { class: chosen ? 'chosen' : null },
                el('th', { scope: 'row' }, visible(o.token)),
                el('td', {}, el('meter', { max: '100', value: percent(o.logprob), 'aria-hidden': 'true' })),
                el('td', {}, showPercent(percent(o.logprob))),
            );
        const rows = [row(t, true), ...others.map((o) => row(o, false))];
        showTip(span, el('table', {}, el('caption', {}, 'Chosen, and the most likely others'), ...rows));
    }
}
