/* SPDX-License-Identifier: Apache-2.0
 * Characters by Unicode property, as PCRE2 knows them: it is asked about every character there is. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "text/grammar/regex_impl.h"

#include "base/utf8.h"
#include <stdio.h>

enum { MAX_CHAR = 0x10ffff, CHUNK = 2048 };

/* ECMA-262's long names of general categories; PCRE2 has the short ones. */
static const char *const categories[][2] = {{"Letter", "L"},
                                            {"Cased_Letter", "L&"},
                                            {"LC", "L&"},
                                            {"Uppercase_Letter", "Lu"},
                                            {"Lowercase_Letter", "Ll"},
                                            {"Titlecase_Letter", "Lt"},
                                            {"Modifier_Letter", "Lm"},
                                            {"Other_Letter", "Lo"},
                                            {"Mark", "M"},
                                            {"Combining_Mark", "M"},
                                            {"Nonspacing_Mark", "Mn"},
                                            {"Spacing_Mark", "Mc"},
                                            {"Enclosing_Mark", "Me"},
                                            {"Number", "N"},
                                            {"Decimal_Number", "Nd"},
                                            {"digit", "Nd"},
                                            {"Letter_Number", "Nl"},
                                            {"Other_Number", "No"},
                                            {"Punctuation", "P"},
                                            {"punct", "P"},
                                            {"Connector_Punctuation", "Pc"},
                                            {"Dash_Punctuation", "Pd"},
                                            {"Open_Punctuation", "Ps"},
                                            {"Close_Punctuation", "Pe"},
                                            {"Initial_Punctuation", "Pi"},
                                            {"Final_Punctuation", "Pf"},
                                            {"Other_Punctuation", "Po"},
                                            {"Symbol", "S"},
                                            {"Math_Symbol", "Sm"},
                                            {"Currency_Symbol", "Sc"},
                                            {"Modifier_Symbol", "Sk"},
                                            {"Other_Symbol", "So"},
                                            {"Separator", "Z"},
                                            {"Space_Separator", "Zs"},
                                            {"Line_Separator", "Zl"},
                                            {"Paragraph_Separator", "Zp"},
                                            {"Other", "C"},
                                            {"Control", "Cc"},
                                            {"cntrl", "Cc"},
                                            {"Format", "Cf"},
                                            {"Private_Use", "Co"},
                                            {"Unassigned", "Cn"}};

static const char *behind(const char *name, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(name, prefix, n) == 0 ? name + n : NULL;
}

/* PCRE2's name for ECMA-262's. */
static const char *plain_name(const char *name)
{
    static const char *const prefixes[] = {
        "gc=", "General_Category=", "sc=", "Script=", "scx=", "Script_Extensions="};
    for (size_t i = 0; i < BN_ARRAY_LEN(prefixes); i++) {
        const char *rest = behind(name, prefixes[i]);
        if (rest) name = rest;
    }
    for (size_t i = 0; i < BN_ARRAY_LEN(categories); i++)
        if (strcmp(name, categories[i][0]) == 0) return categories[i][1];
    return name;
}

static void ask(struct bn_builder *b, pcre2_code *code, pcre2_match_data *data, struct bn_ranges *r)
{
    char text[4 * CHUNK];
    for (uint32_t first = 0; first <= MAX_CHAR && b->status == BITNET_OK; first += CHUNK) {
        size_t n = 0;
        for (uint32_t c = first; c < first + CHUNK; c++) n += bn_utf8_encode(text + n, c);
        for (size_t at = 0; at < n && pcre2_match(code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK,
                                                  data, NULL) > 0;) {
            const PCRE2_SIZE *found = pcre2_get_ovector_pointer(data);
            for (size_t i = found[0]; i < found[1];) {
                uint32_t c = 0;
                i += bn_utf8_decode(text + i, n - i, &c);
                if (r->n > 0 && r->v[r->n - 1].hi + 1 == c) r->v[r->n - 1].hi = c;
                else bn_ranges_add(b, r, c, c);
            }
            at = found[1];
        }
    }
}

bool bn_re_property(struct bn_builder *b, const char *name, size_t n, struct bn_ranges *r)
{
    char copy[64], pattern[96];
    if (n >= sizeof copy) return false;
    memcpy(copy, name, n);
    copy[n] = '\0';
    if (strcmp(copy, "ASCII") == 0) {
        bn_ranges_add(b, r, 0, 0x7f);
        return true;
    }
    if (copy[0] == '^' ||
        strspn(copy, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_=") != n)
        return false;
    /* characters that are yet to be assigned differ from version to version of Unicode */
    const char *plain = plain_name(copy);
    bool unassigned =
        strcmp(plain, "C") == 0 || strcmp(plain, "Cn") == 0 || strcmp(plain, "Any") == 0;
    /* so do pictographs that are no emoji */
    bool pictographs = strcmp(plain, "Extended_Pictographic") == 0 || strcmp(plain, "ExtPict") == 0;
    const char *but = unassigned ? "" : pictographs ? "(?=\\p{Emoji})" : "(?!\\p{Cn})";
    snprintf(pattern, sizeof pattern, "(?:%s\\p{%s})+", but, plain);
    int error;
    PCRE2_SIZE at;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_UCP, &error, &at, NULL);
    if (!code) return false;
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(code, NULL);
    struct bn_ranges found = {0}; /* r may hold others already */
    if (data) ask(b, code, data, &found);
    else bn_builder_nomem(b);
    for (size_t i = 0; i < found.n; i++) bn_ranges_add(b, r, found.v[i].lo, found.v[i].hi);
    bn_ranges_free(&found);
    pcre2_match_data_free(data);
    pcre2_code_free(code);
    return b->status == BITNET_OK;
}
