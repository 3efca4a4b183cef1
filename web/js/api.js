// SPDX-License-Identifier: Apache-2.0
// Requests to this server: the key, errors as sentences, the question for a key.
import { $, el } from './dom.js';
import * as storage from './storage.js';

const KEY = 'key';
export const apiKey = () => storage.read(KEY, '');
export const setApiKey = (key) => (key ? storage.write(KEY, key) : storage.remove(KEY));

export class ApiError extends Error {
    constructor(message, status, retryAfter = 0) {
        super(message);
        this.status = status; // 0: there was no answer
        this.retryAfter = retryAfter; // seconds
    }

    /** What was asked is refused as it is: asking again would be, too. */
    get final() {
        return this.status === 400 || this.status === 413;
    }

    /** Too much to do, or about to start: worth another try in a while. */
    get busy() {
        return this.status === 429 || (this.status === 503 && this.retryAfter > 0);
    }
}

/** The server's words as a sentence. */
const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?…]$/.test(text) ? '' : '.');

async function errorOf(response) {
    const body = await response.json().catch(() => null);
    const why = body?.error?.message || `The server answered ${response.status} ${response.statusText}`;
    return new ApiError(sentence(why), response.status, Number(response.headers.get('Retry-After')) || 0);
}

async function once(path, body, signal) {
    const headers = {};
    if (apiKey()) headers.Authorization = `Bearer ${apiKey()}`;
    if (body) headers['Content-Type'] = 'application/json';
    let response;
    try {
        response = await fetch(path, {
            method: body ? 'POST' : 'GET',
            headers,
            signal,
            cache: 'no-store',
            body: body && JSON.stringify(body),
        });
    } catch (e) {
        if (e.name === 'AbortError' || e.name === 'TimeoutError') throw e;
        throw new ApiError('The server cannot be reached.', 0);
    }
    if (!response.ok) throw await errorOf(response);
    return response;
}

/** The response of a request that went well. Asks for a key as often as one is missing, until that is cancelled. */
export async function request(path, { body, signal } = {}) {
    for (;;) {
        try {
            return await once(path, body, signal);
        } catch (e) {
            if (e.status !== 401 || !(await askForKey(e.message))) throw e;
        }
    }
}

let asking = null; // several requests may fail at once: one question is enough

function askForKey(why) {
    asking ??= new Promise((resolve) => {
        const field = el('input', {
            type: 'password',
            id: 'asked-key',
            autocomplete: 'off',
            spellcheck: 'false',
            required: true,
            autofocus: true,
        });
        const dialog = el(
            'dialog',
            { id: 'ask-key', 'aria-labelledby': 'ask-key-title' },
            el(
                'form',
                { method: 'dialog' },
                el('h2', { id: 'ask-key-title' }, 'This server needs an API key'),
                el('p', { class: 'hint' }, why),
                el(
                    'div',
                    { class: 'field' },
                    el('label', { for: 'asked-key' }, 'API key'),
                    field,
                    el('small', {}, 'Stored in this browser only, sent to this server only.'),
                ),
                el(
                    'div',
                    { class: 'row' },
                    el(
                        'button',
                        { class: 'button', type: 'button', onclick: () => dialog.close('') },
                        'Cancel',
                    ),
                    el('button', { class: 'button main', value: 'use' }, 'Use this key'),
                ),
            ),
        );
        dialog.addEventListener('close', () => {
            const given = dialog.returnValue === 'use' ? field.value.trim() : '';
            dialog.remove();
            asking = null;
            if (given) setApiKey(given);
            resolve(given !== '');
        });
        document.body.append(dialog);
        dialog.showModal();
        $('#asked-key').focus();
    });
    return asking;
}

export const json = async (path, options) => (await request(path, options)).json();
