// SPDX-License-Identifier: Apache-2.0
// The messages of a conversation on the page.
import { copyButton, el, toolButton } from './dom.js';
import { Prose } from './markdown.js';
import { siblings } from './store.js';
import { TokenText } from './tokens.js';

const LONG_LETTERS = 3000; // a message of more, or of more lines, is folded
const LONG_LINES = 30;
const isLong = (text) => text.length > LONG_LETTERS || text.split('\n', LONG_LINES + 1).length > LONG_LINES;

const ENDS = {
    length: 'cut at the longest length',
    stopped: 'stopped by you',
    broken: 'interrupted',
    timeout: 'took too long',
    cancelled: 'given up by the server',
};

export function statsText(node) {
    const s = node.stats;
    const parts = [];
    if (s?.tokens) {
        parts.push(`${s.tokens} ${s.tokens === 1 ? 'token' : 'tokens'}`);
        if (s.per_s) parts.push(`${s.per_s.toFixed(1)} tokens/s`);
        if (s.first_s) parts.push(`first after ${s.first_s.toFixed(2)} s`);
    }
    if (ENDS[node.finish]) parts.push(ENDS[node.finish]);
    return parts.join(' · ');
}

/** One message; `show` brings it up to date. */
class Message {
    #view = null;
    #asTokens = null;

    constructor(node, list) {
        this.node = node;
        this.list = list;
        this.body = el('div', { class: 'body' });
        this.thought = null;
        this.stats = el('span', { class: 'stats' });
        this.foot = el('div', { class: 'foot' });
        const isUser = node.role === 'user';
        this.element = el(
            'article',
            { class: `message ${node.role}`, 'aria-label': isUser ? 'You' : 'Answer' },
            this.body,
            this.foot,
        );
        if (!isUser) return;
        this.body.dir = 'auto';
        this.body.textContent = node.content;
        if (isLong(node.content)) this.#fold();
    }

    /** A long message shows its beginning, and the rest on demand. */
    #fold() {
        this.unfold = el('button', { type: 'button', class: 'unfold', onclick: () => show(this.body.classList.contains('folded')) });
        const show = (whole) => {
            this.body.classList.toggle('folded', !whole);
            this.unfold.setAttribute('aria-expanded', String(whole));
            this.unfold.textContent = whole ? 'Show less' : `Show all ${this.node.content.length.toLocaleString('en')} characters`;
        };
        show(false);
    }

    show(writing) {
        if (this.node.role === 'assistant') this.#showAnswer(writing);
        this.stats.textContent = statsText(this.node);
        this.element.setAttribute('aria-busy', String(writing));
    }

    #showAnswer(writing) {
        const tokens = this.list.odds ? this.list.tokensOf(this.node) : null;
        if (this.#asTokens !== !!tokens) {
            // the other kind of view
            this.#asTokens = !!tokens;
            const fresh = el('div', { class: tokens ? 'body tokens' : 'body prose' });
            this.body.replaceWith(fresh);
            this.body = fresh;
            this.#view = tokens ? new TokenText(fresh) : new Prose(fresh);
        }
        this.#showThought(writing);
        this.#view.show(tokens ?? this.node.content);
        this.body.classList.toggle('writing', writing);
    }

    /** What was thought before the answer: one line, to be opened. */
    #showThought(writing) {
        const { reasoning, content } = this.node;
        if (!reasoning) return;
        if (!this.thought) {
            this.thought = el('details', { class: 'thought' }, el('summary'), el('div', { class: 'prose' }));
            this.thought.prose = new Prose(this.thought.lastChild);
            this.body.before(this.thought);
        }
        const words = reasoning.trim().split(/\s+/).length;
        this.thought.firstChild.textContent =
            writing && !content ? 'Thinking …' : `Thought before answering: ${words} ${words === 1 ? 'word' : 'words'}`;
        this.thought.prose.show(reasoning.trim());
    }

    /** Buttons depend on the other branches, so they are made anew when the list is. */
    showFoot() {
        const { node, list } = this;
        const branches = siblings(list.conversation, node);
        const ask =
            node.role === 'user'
                ? toolButton('edit', 'Edit', () => this.edit())
                : toolButton('again', 'Another answer', () => list.on.regenerate(node));
        ask.disabled = list.locked;
        this.foot.replaceChildren();
        if (this.unfold) this.foot.append(this.unfold);
        if (branches.length > 1) this.foot.append(this.#branchSwitch(branches));
        this.foot.append(
            copyButton(() => node.content),
        );
        if (node.role === 'assistant' && list.isLast(node) && ['length', 'stopped', 'broken'].includes(node.finish)) {
            const more = toolButton('more', 'Continue this answer', () => list.on.more(node));
            more.disabled = list.locked;
            this.foot.append(more);
        }
        this.foot.append(ask);
        if (node.role === 'assistant') this.foot.append(this.stats);
    }

    #branchSwitch(branches) {
        const at = branches.indexOf(this.node);
        const go = (name, label, to) => {
            const b = toolButton(name, label, () => {
                this.list.on.choose(branches[to]);
                this.list.focusOn(branches[to], label);
            });
            b.disabled = this.list.locked || !branches[to];
            return b;
        };
        return el(
            'span',
            { class: 'branch' },
            go('left', 'Version before', at - 1),
            `${at + 1}/${branches.length}`,
            go('right', 'Version after', at + 1),
        );
    }

    edit() {
        const field = el('textarea', { 'aria-label': 'Edit the message', dir: 'auto' });
        field.value = this.node.content;
        const cancel = () => {
            editor.replaceWith(this.body, this.foot);
            this.foot.querySelector('[aria-label="Edit"]').focus();
        };
        const send = () => {
            if (field.value.trim() !== '') this.list.on.edit(this.node, field.value);
        };
        const editor = el(
            'div',
            { class: 'editor' },
            field,
            el(
                'div',
                { class: 'row' },
                el('button', { type: 'button', class: 'button', onclick: cancel }, 'Cancel'),
                el('button', { type: 'button', class: 'button main', onclick: send }, 'Send'),
            ),
        );
        editor.addEventListener('keydown', (e) => {
            if (e.isComposing) return;
            if (e.key === 'Escape') cancel();
            else if (e.key === 'Enter' && !e.shiftKey && e.target === field) send();
            else return;
            e.preventDefault();
            e.stopPropagation();
        });
        this.foot.remove();
        this.body.replaceWith(editor);
        field.focus();
    }
}

export class MessageList {
    #messages = new Map();

    /** on: {regenerate(node), more(node), edit(node, text), choose(node)}; tokensOf(node): undefined if they are not known. */
    constructor(element, on, tokensOf) {
        Object.assign(this, { element, on, tokensOf, odds: false, locked: false, conversation: null, last: null });
    }

    /** Shows a path of a conversation; messages that are there already stay as they are. locked: nothing can be asked now. */
    show(conversation, path, writing, locked) {
        Object.assign(this, { conversation, locked, last: path.at(-1) });
        const before = this.#messages;
        this.#messages = new Map(
            path.map((node) => {
                const old = before.get(node.id);
                return [node.id, old?.node === node ? old : new Message(node, this)];
            }),
        );
        // Paths share their beginning and nothing else, so what is new comes last. What stays is not touched: a screen
        // reader would read it again.
        for (const [id, m] of before) if (this.#messages.get(id) !== m) m.element.remove();
        for (const m of this.#messages.values()) {
            m.showFoot();
            m.show(m.node === writing);
            if (!m.element.isConnected) this.element.append(m.element);
        }
    }

    isLast(node) {
        return node === this.last;
    }

    grow(node, writing) {
        this.#messages.get(node.id)?.show(writing);
    }

    edit(node) {
        this.#messages.get(node.id)?.edit();
    }

    /** The button with this label, or one that is left where it cannot be used any more. */
    focusOn(node, label) {
        const foot = this.#messages.get(node.id)?.foot;
        (
            foot?.querySelector(`[aria-label="${label}"]:enabled`) ?? foot?.querySelector('button:enabled')
        )?.focus();
    }
}
