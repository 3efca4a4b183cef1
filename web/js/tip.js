// SPDX-License-Identifier: Apache-2.0
// The tooltip of a page, of which there is one: beside what it is about, for the pointer, the keyboard and fingers.
import { $, el } from './dom.js';

const GAP_PX = 8; // to what it is about, and to the window's edge
const LINGER_MS = 200; // time for the pointer to go into it

let about = null, // the element that it explains
    leaving = null;

/** The tooltip, made when it is first needed. */
function box() {
    let tip = $('#tip');
    if (!tip) {
        tip = el('div', { id: 'tip', role: 'tooltip', hidden: true });
        tip.addEventListener('pointerenter', () => clearTimeout(leaving));
        tip.addEventListener('pointerleave', hideTip);
        $('main').append(tip);
    }
    return tip;
}

export function showTip(element, ...content) {
    const tip = box();
    hideTip();
    about = element;
    about.setAttribute('aria-describedby', 'tip');
    tip.replaceChildren(...content);
    tip.hidden = false;
    place();
}

function place() {
    if (!about) return;
    const tip = box(),
        at = about.getBoundingClientRect(),
        size = tip.getBoundingClientRect();
    const below = at.bottom + GAP_PX + size.height < innerHeight;
    tip.style.left = `${Math.max(GAP_PX, Math.min(at.left, innerWidth - size.width - GAP_PX))}px`;
    tip.style.top = `${below ? at.bottom + GAP_PX : Math.max(GAP_PX, at.top - size.height - GAP_PX)}px`;
}

export function hideTip() {
    clearTimeout(leaving);
    about?.removeAttribute('aria-describedby');
    about = null;
    const tip = $('#tip');
    if (tip) tip.hidden = true;
}

/** A word that explains itself: a button, so that it can be reached without a pointer. */
export function term(word, explanation) {
    const show = () => showTip(button, explanation);
    const button = el(
        'button',
        {
            type: 'button',
            class: 'term',
            onclick: show,
            onfocus: show,
            onblur: hideTip,
            onpointerenter: (e) => e.pointerType === 'mouse' && show(),
            onpointerleave: (e) => {
                if (e.pointerType === 'mouse') leaving = setTimeout(hideTip, LINGER_MS);
            },
        },
        word,
    );
    return button;
}

addEventListener('keydown', (e) => {
    if (e.key === 'Escape') hideTip();
});
addEventListener('scroll', place, { passive: true, capture: true });
addEventListener('resize', place);
