// SPDX-License-Identifier: Apache-2.0
// The interface of this server, as /openapi.json describes it: paths by who speaks them, what they take, and how to ask.
import { json } from './api.js';
import { $, el } from './dom.js';

const ORDER = ['OpenAI', 'Anthropic', 'Ollama', 'llama-server', 'Server'];

/** A schema, or what it refers to. */
function resolve(api, schema) {
    const path = schema?.$ref?.replace(/^#\//, '').split('/');
    return path ? path.reduce((at, key) => at?.[key], api) : schema;
}

function members(schema) {
    const needed = new Set(schema.required ?? []);
    const items = Object.entries(schema.properties ?? {}).map(([name, of]) =>
        el('li', {}, el('code', {}, name), ` ${of.type ?? 'any'}${needed.has(name) ? ', required' : ''}`),
    );
    return items.length ? [el('p', {}, 'Members of the body'), el('ul', { class: 'members' }, ...items)] : [];
}

const quoted = (word) => (/[^\w./:-]/.test(word) ? `'${word}'` : word);

function command(api, method, path, operation) {
    const query = (operation.parameters ?? []).filter((p) => p.in === 'query').map((p) => `${p.name}=${p.schema.enum?.[0] ?? ''}`);
    const url = new URL(path.slice(1) + (query.length ? `?${query.join('&')}` : ''), document.baseURI).href;
    const words = ['curl', quoted(decodeURI(url))];
    if (method === 'delete') words.push('-X', 'DELETE');
    if (operation.security?.length !== 0 && (api.security ?? []).length) words.push('-H', "'Authorization: Bearer KEY'");
    if (operation.requestBody) words.push('-d', "'{...}'");
    return words.join(' ');
}

function entry(api, method, path, operation) {
    const body = operation.requestBody?.content?.['application/json']?.schema;
    const replies = Object.keys(operation.responses['200'].content);
    return el(
        'details',
        { 'data-words': `${method} ${path} ${operation.summary}`.toLowerCase() },
        el(
            'summary',
            {},
            el('span', { class: 'method' }, method.toUpperCase()),
            el('code', {}, path),
            el('span', {}, operation.summary),
        ),
        el(
            'div',
            {},
            ...(body ? members(resolve(api, body)) : []),
            el('p', {}, `Replies: ${replies.join(', ')}`),
            el('pre', {}, command(api, method, path, operation)),
        ),
    );
}

function show(api) {
    const groups = new Map(ORDER.map((tag) => [tag, []]));
    for (const [path, item] of Object.entries(api.paths))
        for (const [method, operation] of Object.entries(item)) {
            const tag = operation.tags[0];
            if (!groups.has(tag)) groups.set(tag, []);
            groups.get(tag).push(entry(api, method, path, operation));
        }
    $('#about').textContent = `${api.info.title} ${api.info.version}`;
    $('#paths').replaceChildren(
        ...[...groups]
            .filter(([, entries]) => entries.length)
            .map(([tag, entries]) => el('section', {}, el('h2', {}, tag), ...entries)),
    );
}

function filter() {
    const words = $('#filter').value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const section of document.querySelectorAll('#paths section')) {
        const entries = [...section.querySelectorAll('details')];
        for (const one of entries) one.hidden = !words.every((w) => one.dataset.words.includes(w));
        section.hidden = entries.every((one) => one.hidden);
    }
}

$('#filter').addEventListener('input', filter);
try {
    show(await json('openapi.json'));
    filter();
} catch (e) {
    $('#about').textContent = e.message;
}
