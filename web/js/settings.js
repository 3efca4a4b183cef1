// SPDX-License-Identifier: Apache-2.0
// The sheet with system prompt, sampling and key. A field that is empty is not sent: the server decides.
import { apiKey, setApiKey } from './api.js';
import { $, el } from './dom.js';
import * as storage from './storage.js';

// name in the request, label, what it does, and the field's limits
const SAMPLERS = [
    [
        'temperature',
        'Temperature',
        '0: always the most likely token. 1: the model’s own probabilities.',
        { min: 0, max: 2, step: 0.05 },
    ],
    ['max_tokens', 'Longest answer', 'Tokens.', { min: 1, max: 1000000, step: 1, placeholder: 'context' }],
    [
        'top_p',
        'Top p',
        'Samples from the most likely tokens that sum to this.',
        { min: 0.01, max: 1, step: 0.01 },
    ],
    [
        'top_k',
        'Top k',
        'Samples from this many most likely tokens. 0: all.',
        { min: 0, max: 1000000, step: 1 },
    ],
    [
        'min_p',
        'Min p',
        'Drops tokens below this share of the most likely.',
        { min: 0, max: 1, step: 0.01 },
    ],
    [
        'repetition_penalty',
        'Repetition penalty',
        'Above 1: discourages repetition.',
        { min: 0.5, max: 2, step: 0.01 },
    ],
    [
        'seed',
        'Seed',
        'The same seed gives the same answer.',
        { min: 0, max: 4294967295, step: 1, placeholder: 'random' },
    ],
];

const NAME = 'sampling';

/** What a request takes over, with a seed of its own if none is set. */
export function samplers() {
    return { seed: crypto.getRandomValues(new Uint32Array(1))[0], ...storage.read(NAME, {}) };
}

/** What the server takes where a field is empty. */
export function showDefaults(defaults) {
    for (const [name] of SAMPLERS) {
        const value = defaults[name];
        if (value !== undefined && name !== 'max_tokens') fieldOf(name).placeholder = String(Number(value.toFixed(3)));
    }
}

const fieldOf = (name) => $(`#sampler-${name}`);

function show() {
    const values = storage.read(NAME, {});
    for (const [name] of SAMPLERS) fieldOf(name).value = values[name] ?? '';
}

/** Values that are out of range are not taken; the field says so. */
function take() {
    const values = {};
    for (const [name] of SAMPLERS) {
        const field = fieldOf(name);
        if (field.value !== '' && field.checkValidity()) values[name] = Number(field.value);
    }
    storage.write(NAME, values);
}

/** systemPrompt: {get(), set(text)} of the conversation that is shown. */
export function setUp(systemPrompt) {
    const sheet = $('#settings');
    for (const [name, label, hint, limits] of SAMPLERS) {
        const id = `sampler-${name}`;
        $('#samplers').append(
            el(
                'div',
                { class: 'field' },
                el('label', { for: id }, label),
                el('input', {
                    type: 'number',
                    id,
                    inputmode: 'decimal',
                    'aria-describedby': `${id}-hint`,
                    oninput: take,
                    ...limits,
                }),
                el('small', { id: `${id}-hint` }, hint),
            ),
        );
    }
    $('#reset').addEventListener('click', () => {
        storage.remove(NAME);
        show();
    });
    $('#system').addEventListener('input', (e) => systemPrompt.set(e.target.value));
    $('#key').addEventListener('input', (e) => setApiKey(e.target.value.trim()));
    sheet.addEventListener('click', (e) => {
        // beside the sheet
        if (e.target === sheet) sheet.close();
    });
    return () => {
        show();
        $('#system').value = systemPrompt.get();
        $('#key').value = apiKey();
        sheet.showModal();
    };
}
