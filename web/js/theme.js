// SPDX-License-Identifier: Apache-2.0
// Loaded before the page is drawn, so that it never appears in the wrong colours. Not a module for
// that reason.
(() => {
    const KEY = 'bitnet.theme';
    const root = document.documentElement;
    const read = () => {
        try {
            return localStorage.getItem(KEY);
        } catch {
            return null;
        }
    };
    const apply = () => {
        const chosen = read();
        if (chosen === 'light' || chosen === 'dark') root.dataset.theme = chosen;
        else delete root.dataset.theme;
        dispatchEvent(new Event('themechange'));
    };
    const system = matchMedia('(prefers-color-scheme: dark)');
    const isDark = () => (root.dataset.theme ?? (system.matches ? 'dark' : 'light')) === 'dark';

    // What the system says anyway is not stored: the page goes on following it.
    const flip = () => {
        const wanted = isDark() ? 'light' : 'dark';
        try {
            if (wanted === (system.matches ? 'dark' : 'light')) localStorage.removeItem(KEY);
            else localStorage.setItem(KEY, wanted);
            apply();
        } catch {
            root.dataset.theme = wanted;
        }
    };
    apply();
    system.addEventListener('change', apply);
    addEventListener('storage', (e) => {
        if (e.key === KEY) apply();
    });
    addEventListener('DOMContentLoaded', () => {
        for (const b of document.querySelectorAll('[data-theme-switch]')) b.addEventListener('click', flip);
    });
})();
