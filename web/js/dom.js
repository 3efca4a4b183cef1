// SPDX-License-Identifier: Apache-2.0
// Small helpers over the document. Text always becomes text nodes, never markup.

export const $ = (selector, within = document) => within.querySelector(selector);

/** el('button', {class: 'tool', onclick}, 'text', node, null): attributes, listeners (on...), children. */
export function el(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
        if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
        else if (value === true) node.setAttribute(name, '');
        else if (value !== false && value != null) node.setAttribute(name, value);
    }
    node.append(...children.filter((c) => c != null));
    return node;
}

export function icon(name) {
    const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    const use = document.createElementNS('http://www.w3.org/2000/svg', 'use');
    svg.setAttribute('class', 'icon');
    svg.setAttribute('aria-hidden', 'true');
    use.setAttribute('href', `icons.svg#${name}`);
    svg.append(use);
    return svg;
}

/** A button that is an icon; its label is for those who cannot see it, and for the pointer. */
export const toolButton = (name, label, onclick) =>
    el('button', { type: 'button', class: 'tool', 'aria-label': label, title: label, onclick }, icon(name));

/** Some browsers give the clipboard to secure origins only; the old way works everywhere. */
async function copyText(text) {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const area = el('textarea', { class: 'quiet', readonly: true });
    const focused = document.activeElement;
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    focused?.focus();
    if (!done) throw new Error('The browser did not allow copying.');
}

const COPIED_MS = 1500;

export function copyButton(text) {
    const button = toolButton('copy', 'Copy', async () => {
        try {
            await copyText(text());
        } catch (e) {
            toast(e.message);
            return;
        }
        button.replaceChildren(icon('check'));
        setTimeout(() => button.replaceChildren(icon('copy')), COPIED_MS);
    });
    return button;
}

const TOAST_MS = 7000;

/** One sentence for a while, in a place of its own where the page has one, with one thing to do about it. */
export function toast(sentence, label, action) {
    for (const old of document.querySelectorAll('.toast')) old.remove();
    const note = el('div', { class: 'toast', role: 'status' }, el('span', {}, sentence));
    if (label)
        note.append(
            el(
                'button',
                {
                    type: 'button',
                    onclick: () => {
                        note.remove();
                        action();
                    },
                },
                label,
            ),
        );
    ($('#toasts') ?? document.body).append(note);
    setTimeout(() => note.remove(), TOAST_MS);
}
