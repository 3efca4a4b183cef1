// SPDX-License-Identifier: Apache-2.0
// The chat page: joins the conversation that is shown, the answer that is being written, and the controls.
import { json } from './api.js';
import { answer } from './answer.js';
import { $, el, toast } from './dom.js';
import { MessageList, statsText } from './messages.js';
import * as settings from './settings.js';
import { Sidebar } from './sidebar.js';
import * as storage from './storage.js';
import * as store from './store.js';

const SAVE_MS = 500; // between two saves of an answer that grows
const NEAR_END_PX = 80;
const MAX_TOKEN_ANSWERS = 50; // whose probabilities are remembered
const SUGGESTIONS = [
    'Tell me a story about a fox and a lighthouse.',
    'Explain ternary weights in two sentences.',
    'Write four lines about rain.',
];
const HELP = matchMedia('(pointer: coarse)').matches ? '' : 'Enter sends, Shift+Enter starts a new line.';

let conversations = store.all();
let current = store.newConversation();
let model = '';
let run = null; // {node, conversation, abort, saved} while an answer is being written
const tokens = new Map(); // of answers of this visit, by the id of their node; too large to be kept

const scroller = $('#scroller'),
    prompt = $('#prompt');
const messages = new MessageList($('#messages'), { regenerate, edit, choose }, (node) => tokens.get(node.id));
const sidebar = new Sidebar({ open, rename, remove });
const openSettings = settings.setUp({
    get: () => current.system,
    set: (text) => {
        current.system = text;
        if (current.leaf) keep(current);
        showSystem();
    },
});

/* --- what is shown --- */

const atEnd = () => scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_END_PX;
const toEnd = () => scroller.scrollTo({ top: scroller.scrollHeight });

function showSystem() {
    $('#system-note').hidden = !current.system;
    $('#system-note').textContent = `System prompt: ${current.system}`;
}

function show() {
    const here = run?.conversation === current;
    messages.show(current, store.path(current), here ? run.node : null, run !== null);
    conversations.sort((a, b) => b.updated - a.updated);
    sidebar.show(conversations, current);
    showSystem();
    $('#welcome').hidden = current.leaf !== null;
    $('#send').hidden = run !== null;
    $('#stop').hidden = run === null;
    document.title = `${current.title || 'Chat'} · BitNet`;
}

function tell(sentence, buttons = [], busy = false) {
    $('#notice').replaceChildren(
        el(
            'div',
            { class: busy ? 'notice busy' : 'notice' },
            el('p', {}, sentence),
            ...buttons.map(([label, action]) =>
                el('button', { type: 'button', class: 'button', onclick: action }, label),
            ),
        ),
    );
    toEnd();
}

/** The line below the field changes many times a second: those who listen are told the beginning and the end. */
function say(status, aloud) {
    $('#status').textContent = status;
    $('#live').textContent = aloud;
}

const untell = () => $('#notice').replaceChildren();

/* --- conversations --- */

function keep(c) {
    if (!conversations.includes(c)) conversations.push(c);
    if (!store.save(c)) toast('The browser could not store this conversation. Export or delete some.');
}

function open(c) {
    if (c !== current) untell();
    current = c;
    storage.write('last', c.id);
    show();
    toEnd();
}

function begin() {
    open(store.newConversation(current.system));
    sidebar.browse(false);
    prompt.focus();
}

function rename(c, title) {
    store.rename(c, title);
    keep(c);
    show();
}

function remove(c) {
    if (run?.conversation === c) stop();
    conversations = conversations.filter((other) => other !== c);
    store.remove(c);
    if (c === current) begin();
    else show();
    toast(`“${store.titleOf(c)}” was deleted.`, 'Undo', () => {
        keep(c);
        open(c);
    });
}

/** Another tab changed a conversation; what is being written here is newer. */
function changedElsewhere(id) {
    if (run?.conversation.id === id) return;
    conversations = store.all().map((c) => (run?.conversation.id === c.id ? run.conversation : c));
    current =
        conversations.find((c) => c.id === current.id) ??
        (current.id === id ? store.newConversation() : current);
    show();
}

/* --- asking and answering --- */

function send(text) {
    if (run || text.trim() === '') return;
    const question = store.add(current, current.leaf, 'user', text.trim());
    write(question);
}

function regenerate(node) {
    write(current.nodes[node.parent]);
    scroller.focus({ preventScroll: true });
}

function edit(node, text) {
    if (run) {
        toast('Another answer is still being written.');
        return;
    }
    write(store.add(current, node.parent, 'user', text.trim()));
    scroller.focus({ preventScroll: true });
}

function choose(node) {
    store.choose(current, node);
    keep(current);
    show();
}

function conversationText(question) {
    const said = store
        .path(current, question.id)
        .filter((n) => n.content !== '')
        .map(({ role, content }) => ({ role, content }));
    return current.system ? [{ role: 'system', content: current.system }, ...said] : said;
}

function remember(node) {
    tokens.set(node.id, []);
    if (tokens.size > MAX_TOKEN_ANSWERS) tokens.delete(tokens.keys().next().value);
}

/** Unless it was deleted meanwhile. */
function keepGrown() {
    if (!run || !conversations.includes(run.conversation)) return;
    run.saved = performance.now();
    store.save(run.conversation);
}

/** What came is shown once a frame, and kept twice a second. */
function grown() {
    run.due ??= requestAnimationFrame(() => {
        if (!run) return;
        run.due = null;
        if ($('#notice').firstChild) untell(); // the server is not busy any more
        if (run.conversation === current) {
            const follow = atEnd();
            messages.grow(run.node, true);
            if (follow) toEnd();
        }
        if (run.node.content) $('#status').textContent = 'Answering … Esc stops.';
        if (performance.now() - run.saved > SAVE_MS) keepGrown();
    });
}

async function write(question) {
    const sampling = settings.samplers();
    const node = store.add(current, question.id, 'assistant', '', {
        model,
        seed: sampling.seed,
        finish: null,
    });
    const odds = messages.odds;
    const abort = new AbortController();
    run = { node, conversation: current, abort, saved: performance.now(), due: null };
    if (odds) remember(node);
    untell();
    keep(current);
    show();
    toEnd();
    say('Reading …', 'Sent.');
    let failure = null;
    try {
        await answer({
            node,
            model,
            odds,
            settings: sampling,
            tokens: tokens.get(node.id) ?? [],
            messages: conversationText(question),
            signal: abort.signal,
            on: {
                grown,
                busy: (e) =>
                    tell(
                        `${e.message} Trying again in ${Math.max(e.retryAfter, 1)} s.`,
                        [['Cancel', stop]],
                        true,
                    ),
            },
        });
    } catch (e) {
        failure = e.name === 'AbortError' ? null : e;
    }
    finish(failure);
}

function finish(failure) {
    const { node, conversation } = run;
    run = null;
    say(HELP, failure ? '' : `Answer complete. ${statsText(node)}`);
    untell();
    if (node.content === '' && node.finish !== 'stop' && node.finish !== 'length') {
        // nothing came: no answer is no message
        delete conversation.nodes[node.id];
        store.choose(conversation, conversation.nodes[node.parent]);
    }
    if (conversations.includes(conversation)) keep(conversation);
    const follow = atEnd();
    show();
    if (follow) toEnd();
    if (conversation === current && (failure || conversation.leaf === node.parent)) offerRetry(failure, node);
}

function offerRetry(failure, node) {
    const question = current.nodes[node.parent];
    tell(failure?.message ?? 'There is no answer yet.', [
        [
            'Try again',
            () => {
                if (!run) write(question);
            },
        ],
    ]);
}

function stop() {
    run?.abort.abort();
}

/* --- controls --- */

function exportAll() {
    const link = el('a', {
        download: 'bitnet-conversations.json',
        href: URL.createObjectURL(new Blob([store.exportText()], { type: 'application/json' })),
    });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

async function importAll(e) {
    const file = e.target.files[0];
    try {
        const n = await store.importFile(file);
        toast(`${n} ${n === 1 ? 'conversation was' : 'conversations were'} imported.`);
    } catch (problem) {
        toast(problem.message);
    }
    e.target.value = '';
    changedElsewhere('');
}

function setOdds(on) {
    messages.odds = on;
    storage.write('odds', on);
    $('#odds').setAttribute('aria-pressed', String(on));
    show();
}

/** Where style sheets cannot make the field as high as its text. */
function fitPrompt() {
    if (CSS.supports('field-sizing', 'content')) return;
    prompt.style.height = 'auto';
    prompt.style.height = `${prompt.scrollHeight}px`;
}

function submitPrompt() {
    if (run) return;
    const text = prompt.value;
    prompt.value = '';
    fitPrompt();
    send(text);
}

function onPromptKey(e) {
    if (e.isComposing) return;
    if (e.key === 'Enter' && !e.shiftKey) {
        e.preventDefault();
        submitPrompt();
    } else if (e.key === 'ArrowUp' && prompt.value === '' && !run) {
        const last = store.path(current).findLast((n) => n.role === 'user');
        if (!last) return;
        e.preventDefault();
        messages.edit(last);
    }
}

function onKey(e) {
    if (e.key === 'Escape' && run && !document.querySelector('dialog[open]')) stop();
    else if (e.altKey && e.code === 'KeyN') {
        e.preventDefault();
        begin();
    }
}

async function nameModel() {
    try {
        model = (await json('v1/models')).data[0].id;
        $('#model').textContent = model;
    } catch (e) {
        $('#model').textContent = 'No connection';
        tell(e.message, [
            [
                'Try again',
                () => {
                    untell();
                    nameModel();
                },
            ],
        ]);
    }
}

function wire() {
    const click = (id, action) => $(id).addEventListener('click', action);
    click('#new-chat', begin);
    click('#stop', stop);
    click('#odds', () => setOdds(!messages.odds));
    click('#open-settings', openSettings);
    click('#system-note', openSettings);
    click('#to-end', toEnd);
    click('#export', exportAll);
    click('#import', () => $('#import-file').click());
    $('#import-file').addEventListener('change', importAll);
    $('#composer').addEventListener('submit', (e) => {
        e.preventDefault();
        submitPrompt();
    });
    prompt.addEventListener('keydown', onPromptKey);
    prompt.addEventListener('input', fitPrompt);
    document.addEventListener('keydown', onKey);
    scroller.addEventListener(
        'scroll',
        () => {
            $('#to-end').hidden = atEnd();
        },
        { passive: true },
    );
    addEventListener('pagehide', keepGrown);
    store.watch(changedElsewhere);
    $('#suggestions').append(
        ...SUGGESTIONS.map((text) =>
            el('button', { type: 'button', class: 'button', onclick: () => send(text) }, text),
        ),
    );
}

wire();
say(HELP, '');
messages.odds = storage.read('odds', false);
$('#odds').setAttribute('aria-pressed', String(messages.odds));
open(conversations.find((c) => c.id === storage.read('last')) ?? current);
prompt.focus();
nameModel();
