// SPDX-License-Identifier: Apache-2.0
// The list of conversations: open, rename, delete.
import { $, el, toolButton } from './dom.js';
import { titleOf } from './store.js';

export class Sidebar {
    /** on: {open(conversation), rename(conversation, title), remove(conversation)} */
    constructor(on) {
        this.on = on;
        $('#open-sidebar').addEventListener('click', () => this.browse(true));
        $('#close-sidebar').addEventListener('click', () => this.browse(false));
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
        $('#conversations').replaceChildren(...conversations.map((c) => this.#line(c, c.id === here.id)));
    }

    #line(c, here) {
        const open = el(
            'button',
            {
                class: 'open',
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
