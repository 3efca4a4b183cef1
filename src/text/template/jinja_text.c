/* SPDX-License-Identifier: Apache-2.0
 * Strings as Python sees them: sequences of characters, Unicode white space, upper and lower case.
 * Also numbers read from text, independent of the process's locale. Knows bytes, not template
 * values, except where a new string has to be made. */
#include "text/template/jinja.h"

#include "base/utf8.h"
#include <math.h>
#include <utf8proc.h>

size_t bn_text_char(const char *s, size_t n, uint32_t *cp)
{
    size_t len = bn_utf8_decode(s, n, cp);
    if (len) return len;
    *cp = 0xfffd;
    return 1;
}

size_t bn_text_count(const char *s, size_t n)
{
    size_t count = 0;
    uint32_t cp;
    for (size_t i = 0; i < n; count++) i += bn_text_char(s + i, n - i, &cp);
    return count;
}

size_t bn_text_offset(const char *s, size_t n, size_t i_char)
{
    size_t i = 0;
    uint32_t cp;
    for (; i_char > 0 && i < n; i_char--) i += bn_text_char(s + i, n - i, &cp);
    return i;
}

bool bn_text_is_space(uint32_t cp)
{
    return (cp >= 9 && cp <= 13) || (cp >= 28 && cp <= 32) || cp == 0x85 || cp == 0xa0 ||
           cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

static bool in_set(const char *s, size_t len, uint32_t cp, const char *chars, size_t n_chars)
{
    if (!chars) return bn_text_is_space(cp);
    uint32_t c;
    for (size_t i = 0, k; i < n_chars; i += k) {
        k = bn_text_char(chars + i, n_chars - i, &c);
        if (k == len && memcmp(chars + i, s, len) == 0) return true;
    }
    return false;
}

void bn_text_strip(const char **s, size_t *n, const char *chars, size_t n_chars, int sides)
{
    uint32_t cp;
    while ((sides & 1) && *n > 0) {
        size_t len = bn_text_char(*s, *n, &cp);
        if (!in_set(*s, len, cp, chars, n_chars)) break;
        *s += len;
        *n -= len;
    }
    while ((sides & 2) && *n > 0) {
        size_t len = 1;
        while (len < 4 && len < *n && ((*s)[*n - len] & 0xc0) == 0x80) len++;
        if (bn_text_char(*s + *n - len, len, &cp) != len) len = 1, cp = 0xfffd;
        if (!in_set(*s + *n - len, len, cp, chars, n_chars)) break;
        *n -= len;
    }
}

const char *bn_text_find(const char *s, size_t n, const char *what, size_t n_what)
{
    if (n_what == 0) return s;
    return n_what == 1 ? memchr(s, what[0], n) : memmem(s, n, what, n_what);
}

static bool is_cased_letter(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

/* Separators of the title filter; the title method starts a word after everything that is no
 * letter. */
static bool starts_word(uint32_t cp, enum bn_text_case how)
{
    if (how == BN_TEXT_TITLE_WORDS) return !is_cased_letter(cp);
    return bn_text_is_space(cp) || (cp < 0x80 && cp && strchr("-({[<", (int)cp));
}

/* One character in the other case. Case mappings that need the length of a word or several
 * characters (final sigma, German sharp s aside) are the simple ones of Unicode. */
static size_t map_char(char out[8], const char *s, size_t len, uint32_t cp, bool upper)
{
    if (cp == 0xdf && upper) {
        memcpy(out, "SS", 2);
        return 2;
    }
    if (cp != 0xfffd || len > 1) {
        utf8proc_int32_t to =
            upper ? utf8proc_toupper((utf8proc_int32_t)cp) : utf8proc_tolower((utf8proc_int32_t)cp);
        size_t k = bn_utf8_encode(out, (uint32_t)to);
        if (k) return k;
    }
    memcpy(out, s, len);
    return len;
}

bool bn_text_case(struct bn_jx *x, struct bn_jv *out, struct bn_jv s, enum bn_text_case how)
{
    size_t mark = x->buf.len;
    bool first = true;
    for (size_t i = 0, len; i < s.n; i += len) {
        uint32_t cp;
        len = bn_text_char(s.s + i, s.n - i, &cp);
        bool upper = how == BN_TEXT_UPPER || (how != BN_TEXT_LOWER && first);
        char mapped[8];
        size_t k = map_char(mapped, s.s + i, len, cp, upper);
        if (cp == 0xdf && upper && how != BN_TEXT_UPPER) mapped[1] = 's'; /* title case */
        if (!bn_jx_put(x, mapped, k)) return false;
        first = how >= BN_TEXT_TITLE && starts_word(cp, how);
    }
    return bn_jx_charge(x, s.n / 16) && bn_jx_cut(x, mark, out);
}

bool bn_text_int(const char *s, size_t n, int base, int64_t *out)
{
    size_t i = n > 0 && (s[0] == '-' || s[0] == '+');
    bool negative = n > 0 && s[0] == '-';
    if (i == n) return false;
    int64_t v = 0;
    for (; i < n; i++) {
        int d = s[i] >= '0' && s[i] <= '9'                     ? s[i] - '0'
                : (s[i] | 0x20) >= 'a' && (s[i] | 0x20) <= 'z' ? (s[i] | 0x20) - 'a' + 10
                                                               : 99;
        if (d >= base || __builtin_mul_overflow(v, (int64_t)base, &v)) return false;
        if (negative ? __builtin_sub_overflow(v, (int64_t)d, &v)
                     : __builtin_add_overflow(v, (int64_t)d, &v))
            return false;
    }
    *out = v;
    return true;
}

/* strtod would ask the locale what a decimal point is. Up to 15 digits and powers of ten up to 22
 * this is exact; beyond, the last bit may differ. */
bool bn_text_float(const char *s, size_t n, double *out)
{
    uint64_t digits = 0;
    int64_t exponent = 0;
    bool negative = n > 0 && s[0] == '-', seen = false, point = false;
    size_t i = n > 0 && (s[0] == '-' || s[0] == '+');
    for (; i < n && ((s[i] >= '0' && s[i] <= '9') || (s[i] == '.' && !point)); i++) {
        if (s[i] == '.') {
            point = true;
            continue;
        }
        seen = true;
        if (digits < 100000000000000000u) {
            digits = digits * 10 + (uint64_t)(s[i] - '0');
            exponent -= point;
        } else {
            exponent += !point;
        }
    }
    if (!seen) return false;
    if (i < n && (s[i] | 0x20) == 'e') {
        int64_t e;
        if (n - i - 1 > 6 || !bn_text_int(s + i + 1, n - i - 1, 10, &e)) return false;
        exponent += e;
        i = n;
    }
    if (i != n) return false;
    double v = (double)digits;
    if (digits == 0) v = 0;
    else if (exponent < 0)
        v = exponent < -22 ? v * pow(10, (double)exponent) : v / pow(10, (double)-exponent);
    else v *= pow(10, (double)exponent);
    *out = negative ? -v : v;
    return true;
}
