// SPDX-License-Identifier: Apache-2.0
// The chat page: joins the conversation that is shown, the answer that is being written, and the controls.
import { json } from './api.js';
import { answer } from './answer.js';
import { $, el, toast, toolButton } from './dom.js';
import { MessageList, statsText } from './messages.js';
import * as settings from './settings.js';
import { Sidebar } from './sidebar.js';
import * as storage from './storage.js';
import * as store from './store.js';

const SAVE_MS = 500; // between two saves of an answer that grows
const NEAR_END_PX = 80;
const MAX_TOKEN_ANSWERS = 50; // whose probabilities are remembered
const MAX_ATTACHED_BYTES = 1 << 20; // of all files together
const WELCOME = {
    embedded: {
        title: 'A small storyteller',
        text:
            'This is the model built into the program: 31.6 million parameters that have read short stories for ' +
            'children, and nothing else. It tells such stories; it cannot answer questions. Start the server with ' +
            'another model for that.',
        suggestions: [
            'Tell me a story about a dog who lost his ball.',
            'Write a short story about a girl and her garden.',
            'Tell me a story about two friends at the beach.',
        ],
    },
    other: {
        title: 'Ask a question',
        text: 'Answers are computed on the CPU of this server.',
        suggestions: [
            'Explain ternary weights in two sentences.',
            'Write four lines about rain.',
            'What should I look at in an old town?',
        ],
    },
};
const HELP = matchMedia('(pointer: coarse)').matches ? '' : 'Enter sends, Shift+Enter starts a new line.';

let conversations = store.all().map(store.closed);
let current = store.newConversation();
let model = '';
let contextTokens = 0; // that the model can see; 0: not known
let attached = []; // {name, text} to go with the next message
let run = null; // {node, conversation, abort, saved} while an answer is being written
const tokens = new Map(); // of answers of this visit, by the id of their node; too large to be kept

const scroller = $('#scroller'),
    prompt = $('#prompt');
const messages = new MessageList($('#messages'), { regenerate, more, edit, choose }, (node) => tokens.get(node.id));
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
    showContext();
    document.title = `${current.title || 'Chat'} · BitNet`;
}

/** How full the context was at the last answer, and what the model no longer sees. */
function showContext() {
    const last = store.path(current).findLast((n) => n.role === 'assistant' && n.stats?.context);
    $('#context').hidden = !last || !contextTokens;
    if (!last || !contextTokens) return;
    const used = Math.min(last.stats.context, contextTokens);
    const meter = $('#context-meter');
    meter.max = contextTokens;
    meter.high = contextTokens * 0.9;
    meter.value = used;
    const gone = last.dropped
        ? ` · the oldest ${last.dropped === 1 ? 'message is' : `${last.dropped} messages are`} no longer seen`
        : '';
    $('#context-text').textContent = `${used} of ${contextTokens} tokens${gone}`;
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

/** Another tab changed a conversation, or deleted it. */
function changedElsewhere(id) {
    conversations = store.all().map((theirs) => {
        const mine = conversations.find((c) => c.id === theirs.id);
        return mine ? store.merge(mine, theirs, run?.node) : theirs;
    });
    current =
        conversations.find((c) => c.id === current.id) ??
        (current.id === id ? store.newConversation() : current);
    show();
}

/* --- asking and answering --- */

function send(text) {
    if (run || (text.trim() === '' && attached.length === 0)) return;
    const question = store.add(current, current.leaf, 'user', withFiles(text.trim()));
    write(question);
}

/** The message with its files, each as a block of code with its name. */
function withFiles(text) {
    const files = attached.map(({ name, text: body }) => {
        const fence = '`'.repeat(Math.max(3, ...[...body.matchAll(/`+/g)].map((m) => m[0].length + 1)));
        return `${name}:\n\n${fence}\n${body.trimEnd()}\n${fence}`;
    });
    attached = [];
    showAttached();
    return [...files, text].filter(Boolean).join('\n\n');
}

function showAttached() {
    $('#attached').hidden = attached.length === 0;
    $('#attached').replaceChildren(
        ...attached.map((file) => {
            const drop = () => {
                attached = attached.filter((f) => f !== file);
                showAttached();
                prompt.focus();
            };
            return el('li', {}, el('span', {}, file.name), toolButton('close', `Remove ${file.name}`, drop));
        }),
    );
}

async function attach(files) {
    for (const file of files) {
        const before = attached.reduce((sum, f) => sum + f.text.length, 0);
        if (before + file.size > MAX_ATTACHED_BYTES) {
            toast(`${file.name} is too long: files of a message may have 1 MB together.`);
            continue;
        }
        const text = await file.text();
        if (text.includes('\0') || text.includes('\ufffd')) toast(`${file.name} is not a text file.`);
        else attached.push({ name: file.name, text });
    }
    showAttached();
    prompt.focus();
}

/** Goes on where the answer ends. */
function more(node) {
    node.finish = null;
    ask(node, conversationText(node));
    scroller.focus({ preventScroll: true });
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

function write(question) {
    const node = store.add(current, question.id, 'assistant', '', { model, finish: null });
    return ask(node, conversationText(question));
}

async function ask(node, conversation) {
    const sampling = settings.samplers();
    node.seed = sampling.seed;
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
            messages: conversation,
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
    if (node.content === '' && !node.reasoning && node.finish !== 'stop' && node.finish !== 'length') {
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
    const ways = [['Try again', () => !run && write(question)]];
    if (failure?.final) ways[0] = ['Edit the message', () => messages.edit(question)];
    else if (current.leaf === node.id) ways.unshift(['Continue', () => !run && more(node)]);
    tell(failure?.message ?? 'There is no answer yet.', ways);
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

function welcome(kind) {
    const { title, text, suggestions } = WELCOME[kind];
    $('#welcome-title').textContent = title;
    $('#welcome-text').textContent = text;
    $('#suggestions').replaceChildren(
        ...suggestions.map((s) => el('button', { type: 'button', class: 'button', onclick: () => send(s) }, s)),
    );
}

/** With several models, which one answers is chosen here, and remembered. */
function offerModels(names) {
    const kept = storage.read('model');
    model = names.includes(kept) ? kept : names[0];
    $('#model').textContent = model;
    $('#models').replaceChildren(...names.map((n) => el('option', { selected: n === model }, n)));
    $('#models').hidden = names.length < 2;
    $('#model').classList.toggle('quiet', names.length > 1);
}

/** What the model is. A server that does not tell is still one to talk to. */
async function describeModel() {
    const props = await json(`props?model=${encodeURIComponent(model)}`).catch(() => null);
    contextTokens = props?.engine?.ctx_tokens ?? 0;
    if (props?.default_generation_settings) settings.showDefaults(props.default_generation_settings);
    welcome(props?.model_path === '' ? 'embedded' : 'other');
    showContext();
}

async function nameModel() {
    try {
        offerModels((await json('v1/models')).data.map((m) => m.id));
        await describeModel();
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
    click('#attach', () => $('#attach-file').click());
    $('#attach-file').addEventListener('change', async (e) => {
        await attach([...e.target.files]);
        e.target.value = '';
    });
    $('#composer').addEventListener('dragover', (e) => e.preventDefault());
    $('#composer').addEventListener('drop', (e) => {
        if (!e.dataTransfer.files.length) return;
        e.preventDefault();
        attach([...e.dataTransfer.files]);
    });
    $('#models').addEventListener('change', (e) => {
        model = e.target.value;
        $('#model').textContent = model;
        storage.write('model', model);
        describeModel();
    });
}

wire();
say(HELP, '');
messages.odds = storage.read('odds', false);
$('#odds').setAttribute('aria-pressed', String(messages.odds));
open(conversations.find((c) => c.id === storage.read('last')) ?? current);
prompt.focus();
nameModel();
