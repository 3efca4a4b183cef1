// SPDX-License-Identifier: Apache-2.0
// Conversations and where they are kept. A conversation is a tree of messages: editing one, or
// asking for another answer, begins a branch; the leaf says which branch is shown.
//
//   {id, title, named, created, updated, system, leaf, nodes: {id: {id, parent, role, content, at, ...}}}
//
// Answers also have: model, seed, stats {tokens, first_s, per_s}, finish ("stop", "length",
// "stopped", "broken", or null while it is being written).
import * as storage from './storage.js';

const CHAT = 'chat.';
const FORMAT = 'bitnet-chat';
const MAX_TITLE = 60;
const MAX_IMPORT_BYTES = 64 << 20;

// crypto.randomUUID wants a secure origin
const newId = () =>
    Array.from(crypto.getRandomValues(new Uint8Array(9)), (b) => b.toString(16).padStart(2, '0')).join('');

export function newConversation(system = '') {
    const now = Date.now();
    return {
        id: newId(),
        title: '',
        named: false,
        created: now,
        updated: now,
        system,
        leaf: null,
        nodes: {},
    };
}

/** All of them, in no order. */
export const all = () =>
    storage
        .names(CHAT)
        .map((name) => storage.read(name))
        .filter(isConversation);

/** Answers that were being written when a page went away have got as far as they ever will. */
export function closed(c) {
    for (const n of Object.values(c.nodes)) if (n.finish === null) n.finish = 'broken';
    return c;
}

/** Takes over into `mine` what another tab has made of the same conversation. writing: what is being written here. */
export function merge(mine, theirs, writing) {
    for (const [id, n] of Object.entries(theirs.nodes)) {
        if (!mine.nodes[id]) mine.nodes[id] = n;
        else if (id !== writing?.id) Object.assign(mine.nodes[id], n);
    }
    // an answer of which nothing came is no message, and was taken away there
    for (const n of Object.values(mine.nodes)) {
        const nothing = n.role === 'assistant' && n.content === '' && n.id !== writing?.id;
        if (nothing && !theirs.nodes[n.id]) {
            delete mine.nodes[n.id];
            if (mine.leaf === n.id) mine.leaf = n.parent;
        }
    }
    const { title, named, system, updated } = theirs;
    if (updated >= mine.updated) Object.assign(mine, { title, named, system, updated });
    // what goes on there from what is shown here is shown
    if (!path(mine).includes(writing) && path(mine, theirs.leaf).some((n) => n.id === mine.leaf)) mine.leaf = theirs.leaf;
    return mine;
}

/** false: the browser's storage is full, or forbidden. */
export const save = (c) => storage.write(CHAT + c.id, c);
export const remove = (c) => storage.remove(CHAT + c.id);
export const watch = (changed) => storage.watch(CHAT, (name) => changed(name.slice(CHAT.length)));

export function rename(c, title) {
    c.title = title.trim().slice(0, MAX_TITLE);
    c.named = c.title !== '';
}

export const titleOf = (c) => c.title || 'New conversation';

/** Adds a message and makes it the leaf. */
export function add(c, parent, role, content, more = {}) {
    const node = { id: newId(), parent, role, content, at: Date.now(), ...more };
    c.nodes[node.id] = node;
    c.leaf = node.id;
    c.updated = node.at;
    if (!c.named && !c.title && role === 'user') c.title = content.trim().split('\n')[0].slice(0, MAX_TITLE);
    return node;
}

/** Messages from the first to the given one, or to the leaf. */
export function path(c, to = c.leaf) {
    const out = [];
    for (let n = c.nodes[to]; n; n = c.nodes[n.parent]) out.unshift(n);
    return out;
}

/** Those with the same parent, itself among them, oldest first. */
export const siblings = (c, node) =>
    Object.values(c.nodes)
        .filter((n) => n.parent === node.parent)
        .sort((a, b) => a.at - b.at);

/** Shows the branch on which a message lies, down its newest end. */
export function choose(c, node) {
    let at = node;
    for (;;) {
        const below = Object.values(c.nodes)
            .filter((n) => n.parent === at.id)
            .sort((a, b) => b.at - a.at)[0];
        if (!below) break;
        at = below;
    }
    c.leaf = at.id;
}

export function exportText() {
    return JSON.stringify({ format: FORMAT, version: 1, conversations: all().map(closed) }, null, 1);
}

const isText = (v) => typeof v === 'string';

function isNode(n, id, nodes) {
    return (
        n &&
        n.id === id &&
        ['user', 'assistant'].includes(n.role) &&
        isText(n.content) &&
        Number.isFinite(n.at) &&
        (n.parent === null || Object.hasOwn(nodes, n.parent))
    );
}

/** No message is its own ancestor: a walk up from it ends. */
function ends(nodes, id) {
    let steps = 0;
    for (let n = nodes[id]; n; n = nodes[n.parent]) if (++steps > 10000) return false;
    return true;
}

function isConversation(c) {
    if (!c || !/^[0-9a-f]{18}$/.test(c.id) || !isText(c.title) || !isText(c.system)) return false;
    if (!Number.isFinite(c.updated) || !c.nodes || typeof c.nodes !== 'object') return false;
    const ids = Object.keys(c.nodes);
    return (
        ids.every((id) => isNode(c.nodes[id], id, c.nodes) && ends(c.nodes, id)) &&
        (c.leaf === null ? ids.length === 0 : Object.hasOwn(c.nodes, c.leaf))
    );
}

/** Takes over what a file holds; of a conversation that is here, too, the newer one stays. Returns how many came. */
export async function importFile(file) {
    if (file.size > MAX_IMPORT_BYTES)
        throw new Error(`${file.name} has ${file.size} bytes; at most ${MAX_IMPORT_BYTES} are possible.`);
    let data;
    try {
        data = JSON.parse(await file.text());
    } catch {
        throw new Error(`${file.name} is not JSON.`);
    }
    if (data?.format !== FORMAT || !Array.isArray(data.conversations))
        throw new Error(`${file.name} holds no conversations.`);
    const bad = data.conversations.findIndex((c) => !isConversation(c));
    if (bad >= 0)
        throw new Error(`Conversation ${bad + 1} in ${file.name} is damaged; nothing was imported.`);
    let n = 0;
    for (const c of data.conversations) {
        const here = storage.read(CHAT + c.id);
        if (here && here.updated >= c.updated) continue;
        if (!save(c)) throw new Error(`The browser's storage is full; ${n} conversations were imported.`);
        n++;
    }
    return n;
}
