// SPDX-License-Identifier: Apache-2.0
// Code in colours and maths, by libraries that the build put in (docs/serve/server.md), each fetched when first needed.
// Where one is not there, text stays as the model wrote it.

const loaded = new Map();

function load(file, name) {
    if (!loaded.has(file)) {
        loaded.set(
            file,
            new Promise((resolve) => {
                const script = document.createElement('script');
                script.src = file;
                script.onload = () => resolve(globalThis[name] ?? null);
                script.onerror = () => resolve(null);
                document.head.append(script);
            }),
        );
    }
    return loaded.get(file);
}

const ENTITIES = { amp: '&', lt: '<', gt: '>', quot: '"', '#39': "'", '#x27': "'" };

/** What highlight.js gives back is text in spans with a class. Nothing else becomes an element. */
function spans(markup) {
    const top = document.createDocumentFragment();
    const open = [top];
    for (const [, tag, text] of markup.matchAll(/<(\/span|span class="[\w -]*")>|([^<]+|<)/g)) {
        if (text) open.at(-1).append(text.replace(/&(\w+|#\w+);/g, (all, name) => ENTITIES[name] ?? all));
        else if (tag === '/span') open.length > 1 && open.pop();
        else {
            const span = document.createElement('span');
            span.className = tag.slice(12, -1);
            open.at(-1).append(span);
            open.push(span);
        }
    }
    return top;
}

const MAX_CODE = 100000; // letters; longer code stays plain

/** Colours the text of an element. */
export async function colour(code, language) {
    const text = code.textContent;
    if (!language || text.length > MAX_CODE) return;
    const hljs = await load('highlight.min.js', 'hljs');
    if (!hljs?.getLanguage(language) || code.textContent !== text) return;
    code.replaceChildren(spans(hljs.highlight(language, text, true).value));
}

/** TeX as MathML, in place of what the element shows until then. */
export async function typeset(element, tex, display) {
    const katex = await load('katex.min.js', 'katex');
    if (!katex) return;
    try {
        katex.render(tex, element, {
            displayMode: display,
            output: 'mathml',
            strict: 'ignore',
            maxSize: 20,
            maxExpand: 200,
        });
    } catch {
        // not TeX that it knows: the source stays
    }
}
