// SPDX-License-Identifier: Apache-2.0
// Numbers for people: [number, unit]. What is not known is a dash.

const NOTHING = ['–', ''];
const known = (f) => (v) => (Number.isFinite(v) ? f(v) : NOTHING);
/** Three digits that mean something. */
const digits = (v) =>
    Number.isInteger(v) ? String(v) : v >= 99.95 ? v.toFixed(0) : v >= 9.995 ? v.toFixed(1) : v.toFixed(2);

export const plain = known((v) => [digits(v), '']);
export const whole = known((v) => [Math.round(v).toLocaleString('en'), '']);
export const perSecond = known((v) => [digits(v), 'tokens/s']);
export const share = known((v) => [digits(v * 100), '%']);
export const bits = known((v) => [v.toFixed(2), 'bits']);
export const time = known((v) => (v < 1 ? [digits(v * 1000), 'ms'] : [digits(v), 's']));
export const bytes = known((v) => (v < 1e9 ? [digits(v / 1e6), 'MB'] : [digits(v / 1e9), 'GB']));

export const text = (format, v) =>
    format(v)
        .filter((s) => s !== '')
        .join(' ');
