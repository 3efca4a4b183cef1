// SPDX-License-Identifier: Apache-2.0
// The browser's storage, as JSON. It may be full, or forbidden: then nothing is kept, and the page
// still works.

const PREFIX = 'bitnet.';

export function read(name, otherwise = null) {
    try {
        return JSON.parse(localStorage.getItem(PREFIX + name)) ?? otherwise;
    } catch {
        return otherwise;
    }
}

/** false: it could not be stored. */
export function write(name, value) {
    try {
        localStorage.setItem(PREFIX + name, JSON.stringify(value));
        return true;
    } catch {
        return false;
    }
}

export function remove(name) {
    try {
        localStorage.removeItem(PREFIX + name);
    } catch {
        /* there is nothing, then */
    }
}

/** Names below a prefix. */
export function names(prefix) {
    try {
        return Object.keys(localStorage)
            .filter((k) => k.startsWith(PREFIX + prefix))
            .map((k) => k.slice(PREFIX.length));
    } catch {
        return [];
    }
}

/** Calls back when another tab changed something whose name begins with prefix. */
export function watch(prefix, changed) {
    addEventListener('storage', (e) => {
        if (e.key?.startsWith(PREFIX + prefix)) changed(e.key.slice(PREFIX.length));
    });
}
