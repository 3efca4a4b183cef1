// SPDX-License-Identifier: Apache-2.0
// The Markdown that models write, as document nodes: paragraphs, headings, lists, quotes, code,
// tables, tasks, emphasis, links, maths. What is not understood stays text. Nothing here makes markup from
// strings.
import { copyButton, el } from './dom.js';
import { colour, typeset } from './libraries.js';

const MAX_DEPTH = 8; // lists in lists, emphasis in emphasis
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^(\s{0,8})([-*+]|\d{1,9}[.)])(?:\s+(.*))?$/;
const TASK = /^\[([ xX])\]\s+/;
const MATHS = /^\s*(\$\$|\\\[)/;
const MATHS_ENDS = { $$: '$$', '\\[': '\\]' };
const TABLE_LINE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

/** Cuts text into blocks: {kind, lines}, with what else the kind needs. */
function blocks(text) {
    const lines = text.split('\n');
    const out = [];
    let i = 0;
    const take = (kind, n, more = {}) => {
        out.push({ kind, lines: lines.slice(i, i + n), ...more });
        i += n;
    };
    while (i < lines.length) {
        const line = lines[i];
        const fence = FENCE.exec(line);
        const item = ITEM.exec(line);
        if (line.trim() === '') i++;
        else if (fence) take('code', fenced(lines, i, fence[1]), { fence: fence[1], language: fence[2] });
        else if (HEADING.test(line)) take('heading', 1);
        else if (MATHS.test(line)) take('maths', formula(lines, i), { mark: MATHS.exec(line)[1] });
        else if (RULE.test(line)) take('rule', 1);
        else if (QUOTE.test(line))
            take(
                'quote',
                span(lines, i, (l) => QUOTE.test(l)),
            );
        else if (item)
            take('list', listed(lines, i, item), { ordered: /\d/.test(item[2]), indent: item[1].length });
        else if (line.includes('|') && TABLE_LINE.test(lines[i + 1] ?? '') && lines[i + 1].includes('-'))
            take(
                'table',
                span(lines, i, (l) => l.includes('|')),
            );
        else
            take(
                'paragraph',
                span(lines, i, (l, k) => l.trim() !== '' && (k === i || !startsBlock(l))),
            );
    }
    return out;
}

const startsBlock = (l) =>
    FENCE.test(l) || MATHS.test(l) || HEADING.test(l) || RULE.test(l) || QUOTE.test(l) || ITEM.exec(l)?.[3] !== undefined;

function span(lines, from, belongs) {
    let k = from;
    while (k < lines.length && belongs(lines[k], k)) k++;
    return k - from;
}

/** An open fence goes to the end: the rest is still being written. */
function fenced(lines, from, mark) {
    const end = lines.findIndex(
        (l, k) => k > from && l.trim().startsWith(mark) && l.trim() === mark[0].repeat(l.trim().length),
    );
    return (end < 0 ? lines.length : end + 1) - from;
}

/** A formula on lines of its own, up to the line that ends with its other mark. */
function formula(lines, from) {
    const mark = MATHS.exec(lines[from])[1];
    const first = lines[from].trim().slice(mark.length);
    if (first.trimEnd().endsWith(MATHS_ENDS[mark])) return 1;
    const end = lines.findIndex((l, k) => k > from && l.trimEnd().endsWith(MATHS_ENDS[mark]));
    return (end < 0 ? lines.length : end + 1) - from;
}

/** A list goes on with its items, lines that are indented deeper, and empty lines before these. */
function listed(lines, from, first) {
    const indent = first[1].length;
    const same = (l) => {
        const item = ITEM.exec(l);
        return item && (item[1].length > indent || /\d/.test(item[2]) === /\d/.test(first[2]));
    };
    const within = (l) => l.trim() !== '' && (same(l) || /^\s/.test(l));
    let k = from + 1;
    for (; k < lines.length; k++) {
        if (lines[k].trim() === '') {
            if (!within(lines[k + 1] ?? '')) break;
        } else if (!within(lines[k]) && (lines[k - 1].trim() === '' || startsBlock(lines[k]))) break;
    }
    return k - from;
}

function items(block) {
    const out = [];
    let width = 0;
    for (const line of block.lines) {
        const item = ITEM.exec(line);
        if (item && item[1].length <= block.indent + 1) {
            width = item[1].length + item[2].length + 1;
            out.push([item[3] ?? '']);
        } else {
            out.at(-1).push(line.slice(Math.min(width, line.length - line.trimStart().length)));
        }
    }
    return out.map((lines) => lines.join('\n'));
}

const cells = (line) =>
    line
        .trim()
        .replace(/^\||\|$/g, '')
        .split(/(?<!\\)\|/)
        .map((c) => c.trim().replaceAll('\\|', '|'));

const renderers = {
    paragraph: (b) => inline(el('p', { dir: 'auto' }), b.lines.map((l) => l.trim()).join('\n')),
    heading: (b) => {
        const [, marks, text] = HEADING.exec(b.lines[0]);
        return inline(el(`h${Math.min(marks.length + 1, 6)}`, { dir: 'auto' }), text);
    },
    rule: () => el('hr'),
    quote: (b, depth) => nested(el('blockquote', { dir: 'auto' }), b.lines.map((l) => l.replace(QUOTE, '')).join('\n'), depth),
    code: (b) => {
        const closed = b.lines.length > 1 && b.lines.at(-1).trim().startsWith(b.fence);
        const text = b.lines.slice(1, closed ? -1 : undefined).join('\n');
        const code = el('code', {}, text);
        if (closed) colour(code, b.language.toLowerCase());
        return el(
            'div',
            { class: 'code' },
            el(
                'div',
                { class: 'code-head' },
                el('span', {}, b.language || 'text'),
                copyButton(() => text),
            ),
            el('pre', { tabindex: '0', role: 'group', 'aria-label': `Code: ${b.language || 'text'}` }, code),
        );
    },
    list: (b, depth) => {
        const start = b.ordered ? parseInt(b.lines[0].trim(), 10) : 1;
        const list = el(b.ordered ? 'ol' : 'ul', { dir: 'auto', start: start === 1 ? null : start });
        for (const text of items(b)) {
            const task = TASK.exec(text);
            const li = el('li', { class: task ? 'task' : null });
            if (task) {
                const done = task[1] !== ' ';
                li.append(el('input', { type: 'checkbox', disabled: true, checked: done, 'aria-label': done ? 'done' : 'to do' }));
            }
            list.append(nested(li, task ? text.slice(task[0].length) : text, depth));
        }
        return list;
    },
    maths: (b) => {
        const tex = b.lines.join('\n').trim();
        const body = tex.slice(b.mark.length).replace(MATHS_ENDS[b.mark], '').trim();
        const box = el('div', { class: 'maths', tabindex: '0', role: 'group', 'aria-label': 'Formula' }, tex);
        typeset(box, body, true);
        return box;
    },
    table: (b) => {
        const sides = cells(b.lines[1] ?? '').map((c) => /^(:?)-+(:?)$/.exec(c) ?? []);
        const row = (line, tag) => {
            const tr = el('tr');
            cells(line).forEach((cell, i) => {
                const [, left, right] = sides[i] ?? [];
                const side = right ? (left ? 'middle' : 'right') : null;
                tr.append(inline(el(tag, { class: side }), cell));
            });
            return tr;
        };
        return el(
            'div',
            { class: 'table', tabindex: '0', role: 'group', 'aria-label': 'Table' },
            el(
                'table',
                { dir: 'auto' },
                el('thead', {}, row(b.lines[0], 'th')),
                el('tbody', {}, ...b.lines.slice(2).map((l) => row(l, 'td'))),
            ),
        );
    },
};

/** Blocks in a list item or quote; a single paragraph needs no element of its own. */
function nested(parent, text, depth) {
    if (depth >= MAX_DEPTH) {
        parent.append(text);
        return parent;
    }
    const inner = blocks(text);
    inner.forEach((b, i) => {
        if (i === 0 && b.kind === 'paragraph') inline(parent, b.lines.map((l) => l.trim()).join('\n'));
        else parent.append(renderers[b.kind](b, depth + 1));
    });
    return parent;
}

// Lengths are bounded: a mark that is never closed costs no more than that.
const INLINE = new RegExp(
    [
        /(?<tick>`{1,3})(?<code>[^`].{0,2000}?)\k<tick>(?!`)/,
        /\*\*(?=\S)(?<strong>.{1,2000}?\S|\S)\*\*/,
        /\*(?=[^\s*])(?<em>.{0,2000}?[^\s*])\*(?!\*)/,
        /(?<!\w)__(?=\S)(?<strong2>.{0,2000}?\S)__(?!\w)/,
        /(?<!\w)_(?=[^\s_])(?<em2>.{0,2000}?[^\s_])_(?!\w)/,
        /~~(?=\S)(?<del>.{0,2000}?\S)~~/,
        /(?<picture>!)?\[(?<label>[^\]\n]{0,500})\]\((?<url>[^\s()]{1,2000})(?:\s+"[^"\n]{0,500}")?\)/,
        /\\\((?<tex>.{1,1000}?)\\\)/,
        /(?<![\w$\\])\$(?=[^\s$])(?<tex2>[^$\n]{0,1000}?[^\s$\\])\$(?![\w$])/,
        /<(?<auto>https?:\/\/[^\s<>]{1,2000})>/,
        /(?<![\w/])(?<bare>https?:\/\/[^\s<>()]{1,2000}?)(?=[.,;:!?'")\]]*(?:[\s<]|$))/,
        /\\(?<escaped>[\\`*_{}[\]()#+.!~|>-])/,
        /(?<br>(?: {2,}|\\)?\n)/,
    ]
        .map((r) => r.source)
        .join('|'),
    'gs',
);

function safeLink(url) {
    try {
        return ['http:', 'https:', 'mailto:'].includes(new URL(url).protocol);
    } catch {
        return false;
    }
}

function mark(g, depth) {
    if (g.code !== undefined) return el('code', {}, g.code.replace(/^ (.*) $/s, '$1'));
    const strong = g.strong ?? g.strong2,
        em = g.em ?? g.em2;
    if (strong !== undefined) return inline(el('strong'), strong, depth + 1);
    if (em !== undefined) return inline(el('em'), em, depth + 1);
    if (g.del !== undefined) return inline(el('del'), g.del, depth + 1);
    if (g.escaped !== undefined) return g.escaped;
    if (g.br !== undefined) return g.br === '\n' ? '\n' : el('br');
    const tex = g.tex ?? g.tex2;
    if (tex !== undefined) {
        const box = el('span', { class: 'maths' }, g.tex2 === undefined ? `\\(${tex}\\)` : `$${tex}$`);
        typeset(box, tex, false);
        return box;
    }
    const url = g.url ?? g.auto ?? g.bare;
    const label = g.url === undefined ? url : g.label || url;
    return el(
        'a',
        { href: url, rel: 'noopener noreferrer nofollow', target: '_blank' },
        g.picture ? `Picture: ${label}` : label,
    );
}

function inline(parent, text, depth = 0) {
    let at = 0;
    if (depth < MAX_DEPTH) {
        for (const m of text.matchAll(INLINE)) {
            if (m.groups.url !== undefined && !safeLink(m.groups.url)) continue;
            parent.append(text.slice(at, m.index), mark(m.groups, depth));
            at = m.index + m[0].length;
        }
    }
    parent.append(text.slice(at));
    return parent;
}

/** Keeps a node showing a text that grows: only blocks that have changed are made again. */
export class Prose {
    #sources = [];

    constructor(node) {
        this.node = node;
    }

    show(text) {
        const now = blocks(text);
        const sources = now.map((b) => b.kind + '\n' + b.lines.join('\n'));
        let same = 0;
        while (same < sources.length && sources[same] === this.#sources[same]) same++;
        while (this.node.childNodes.length > same) this.node.lastChild.remove();
        for (const b of now.slice(same)) this.node.append(renderers[b.kind](b, 0));
        this.#sources = sources;
    }
}
