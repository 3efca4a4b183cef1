// SPDX-License-Identifier: Apache-2.0
// The list of conversations: open, rename, delete.
import { $, el, toolButton } from './dom.js';
import { titleOf } from './store.js';

const SEARCH_FROM = 4; // conversations

/** Does a title or a message have this word? */
const holds = (c, word) =>
    c.title.toLowerCase().includes(word) ||
    Object.values(c.nodes).some((n) => n.content.toLowerCase().includes(word));

export class Sidebar {
    /** on: {open(conversation), rename(conversation, title), remove(conversation)} */
    constructor(on) {
        this.on = on;
        $('#open-sidebar').addEventListener('click', () => this.browse(true));
        $('#close-sidebar').addEventListener('click', () => this.browse(false));
        $('#search').addEventListener('input', () => this.show(this.conversations, this.here));
        $('#scrim').addEventListener('click', () => this.browse(false));
        $('#sidebar').addEventListener('keydown', (e) => {
            if (e.key === 'Escape') this.browse(false);
        });
    }

    /** On narrow screens the list lies over the page. */
    browse(open) {
        const was = document.body.classList.contains('browsing');
        document.body.classList.toggle('browsing', open);
        $('#open-sidebar').setAttribute('aria-expanded', String(open));
        if (open) $('#close-sidebar').focus();
        else if (was) $('#open-sidebar').focus();
    }

    show(conversations, here) {
        this.conversations = conversations;
        this.here = here;
        const words = $('#search').value.toLowerCase().split(/\s+/).filter(Boolean);
        const found = conversations.filter((c) => words.every((w) => holds(c, w)));
        $('#conversations').replaceChildren(...found.map((c) => this.#line(c, c.id === here.id)));
        $('#search').hidden = conversations.length < SEARCH_FROM && words.length === 0;
        $('#none-found').hidden = found.length > 0 || words.length === 0;
    }

    #line(c, here) {
        const open = el(
            'button',
            {
                class: 'open',
                dir: 'auto',
                'aria-current': here ? 'true' : null,
                title: titleOf(c),
                onclick: () => {
                    this.browse(false);
                    this.on.open(c);
                },
            },
            titleOf(c),
        );
        const line = el(
            'li',
            { class: here ? 'here' : null },
            open,
            toolButton('edit', `Rename ${titleOf(c)}`, () => this.#rename(line, c)),
            toolButton('trash', `Delete ${titleOf(c)}`, () => this.on.remove(c)),
        );
        return line;
    }

    #rename(line, c) {
        const field = el('input', { type: 'text', 'aria-label': 'New name', maxlength: '60' });
        let done = false;
        const end = (title) => {
            // taking the field away also takes the focus from it
            if (done) return;
            done = true;
            this.on.rename(c, title);
        };
        field.value = titleOf(c);
        field.addEventListener('blur', () => end(field.value));
        field.addEventListener('keydown', (e) => {
            if (e.key === 'Enter' && !e.isComposing) end(field.value);
            else if (e.key === 'Escape') end(c.title);
            else return;
            e.stopPropagation();
        });
        line.replaceChildren(field);
        field.select();
    }
}
