/* SPDX-License-Identifier: Apache-2.0
 *
 * args.c: reads the command line by the tables of args.h. Owns no memory: values are numbers in the
 * config or pointers into argv, the environment and the tables.
 */
#include "cli/core/args.h"

#include "base/suggest.h"
#include "app/term.h"
#include <math.h>
#include <stdlib.h>

/* An option found in the tables, with the struct its offset counts from. */
struct found {
    const struct opt *opt;
    char *base;
};

/* ------------------------------------------------------------------ values */

bool args_u64(uint64_t *out, const char *text, uint64_t max)
{
    uint64_t v = 0;
    if (!*text) return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9') return false;
        if (!bn_mul_u64(&v, v, 10) || !bn_add_u64(&v, v, (uint64_t)(*text - '0'))) return false;
    }
    *out = v;
    return v <= max;
}

bool args_size(uint64_t *out, const char *text)
{
    static const char units[] = "KMGT";
    char number[24];
    if (strcmp(text, "auto") == 0 || strcmp(text, "off") == 0) {
        *out = text[0] == 'o';
        return true;
    }
    size_t n = strspn(text, "0123456789");
    const char *unit = text[n] ? strchr(units, text[n] & ~0x20) : NULL;
    if (n >= sizeof number || (text[n] && (!unit || text[n + 1]))) return false;
    memcpy(number, text, n);
    number[n] = 0;
    const uint64_t max = (uint64_t)1 << 53;
    unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
    if (!args_u64(out, number, max >> shift)) return false;
    *out <<= shift;
    return true;
}

bool args_double(double *out, const char *text)
{
    /* strtod also takes spaces, hexadecimal, "inf" and "nan"; people mean none of them */
    if (strspn(text, "+-.0123456789eE") != strlen(text)) return false;
    char *end;
    *out = strtod(text, &end);
    return *text && !*end && isfinite(*out);
}

/* As people write it in files and environments. */
static bool to_bool(bool *out, const char *text)
{
    static const char *const words[] = {"0", "1", "false", "true", "no", "yes", "off", "on"};
    for (size_t i = 0; i < BN_ARRAY_LEN(words); i++)
        if (strcmp(text, words[i]) == 0) {
            *out = i % 2;
            return true;
        }
    return false;
}

static bool is_choice(const char *choices, const char *value)
{
    size_t n = strlen(value);
    for (const char *p = choices; *p;) {
        size_t len = strcspn(p, "|");
        if (len == n && memcmp(p, value, n) == 0) return true;
        p += len + (p[len] == '|');
    }
    return false;
}

const char *args_form(const struct opt *o)
{
    return o->kind == OPT_CHOICE ? o->choices : o->metavar;
}

/* source: the option or the environment variable that brought the value. */
static bitnet_status wrong(const struct opt *o, const char *source, const char *value,
                           bitnet_error *err)
{
    if (o->kind == OPT_CHOICE)
        return bn_fail(err, BITNET_E_ARG, "%s expects one of %s, not '%s'", source, o->choices,
                       value);
    if (o->kind == OPT_FLAG)
        return bn_fail(err, BITNET_E_ARG, "%s expects true or false, not '%s'", source, value);
    if (o->kind == OPT_U32S)
        return bn_fail(err, BITNET_E_ARG,
                       "%s expects whole numbers from %.16g to %.16g, as 1,4,8, not '%s'", source,
                       o->min, o->max, value);
    if (o->kind == OPT_SIZE)
        return bn_fail(err, BITNET_E_ARG, "%s expects bytes, as 512M or 4G, auto or off, not '%s'",
                       source, value);
    return bn_fail(err, BITNET_E_ARG, "%s expects a %s from %.16g to %.16g, not '%s'", source,
                   o->kind == OPT_F32 ? "number" : "whole number", o->min, o->max, value);
}

/* Adds the numbers of one argument to a list. */
static bitnet_status add_numbers(struct opt_u32s *list, const struct opt *o, const char *source,
                                 const char *value, bitnet_error *err)
{
    for (const char *p = value;;) {
        char number[16];
        uint64_t u;
        size_t len = strcspn(p, ", ");
        if (len >= sizeof number) return wrong(o, source, value, err);
        memcpy(number, p, len);
        number[len] = 0;
        if (!args_u64(&u, number, UINT32_MAX) || (double)u < o->min || (double)u > o->max)
            return wrong(o, source, value, err);
        if (list->n == OPT_LIST_MAX)
            return bn_fail(err, BITNET_E_ARG, "%s takes at most %d numbers", source, OPT_LIST_MAX);
        list->items[list->n++] = (uint32_t)u;
        if (!p[len]) return BITNET_OK;
        p += len + 1;
    }
}

static bitnet_status set_value(struct found f, const char *source, const char *value,
                               bitnet_error *err)
{
    const struct opt *o = f.opt;
    void *at = f.base + o->offset;
    uint64_t u;
    double d;
    switch (o->kind) {
    case OPT_END:
    case OPT_EARLY: break;
    case OPT_FLAG:
        if (!to_bool(at, value)) return wrong(o, source, value, err);
        break;
    case OPT_STR: *(const char **)at = value; break;
    case OPT_CHOICE:
        if (!is_choice(o->choices, value)) return wrong(o, source, value, err);
        *(const char **)at = value;
        break;
    case OPT_U32:
        if (!args_u64(&u, value, UINT32_MAX) || (double)u < o->min || (double)u > o->max)
            return wrong(o, source, value, err);
        *(uint32_t *)at = (uint32_t)u;
        break;
    case OPT_U64:
        if (!args_u64(&u, value, (uint64_t)1 << 53) || (double)u < o->min || (double)u > o->max)
            return wrong(o, source, value, err);
        *(uint64_t *)at = u;
        break;
    case OPT_SIZE:
        if (!args_size(at, value)) return wrong(o, source, value, err);
        break;
    case OPT_F32:
        if (!args_double(&d, value) || d < o->min || d > o->max)
            return wrong(o, source, value, err);
        *(float *)at = (float)d;
        break;
    case OPT_LIST: {
        struct opt_list *list = at;
        if (list->n == OPT_LIST_MAX)
            return bn_fail(err, BITNET_E_ARG, "%s can be given at most %d times", source,
                           OPT_LIST_MAX);
        list->items[list->n++] = value;
        break;
    }
    case OPT_U32S:
        *(struct opt_u32s *)at = (struct opt_u32s){0};
        return add_numbers(at, o, source, value, err);
    }
    return BITNET_OK;
}

bitnet_status args_defaults(void *config, const struct opt_part *parts, bitnet_error *err)
{
    for (; parts->table; parts++)
        for (const struct opt *o = parts->table; o->kind != OPT_END; o++) {
            struct found f = {o, (char *)config + parts->offset};
            if (o->initial) BN_TRY(set_value(f, o->name, o->initial, err));
        }
    return BITNET_OK;
}

/* ------------------------------------------------------------------ names */

/* Does the name that was typed (n bytes, '_' counts as '-') equal `name` (len bytes)? */
static bool same_name(const char *typed, size_t n, const char *name, size_t len)
{
    if (n != len) return false;
    for (size_t i = 0; i < n; i++)
        if ((typed[i] == '_' ? '-' : typed[i]) != name[i]) return false;
    return true;
}

static bool has_name(const struct opt *o, const char *typed, size_t n)
{
    if (same_name(typed, n, o->name, strlen(o->name))) return true;
    for (const char *p = o->aliases; p && *p;) {
        size_t len = strcspn(p, " ");
        if (same_name(typed, n, p, len)) return true;
        p += len + (p[len] == ' ');
    }
    return false;
}

const struct opt args_common[] = {
    {.kind = OPT_EARLY,
     .name = "config",
     .metavar = "FILE",
     .help = "settings file to read instead of bitnet/config.toml in $XDG_CONFIG_HOME or "
             "~/.config; 'off': none ('bitnet help config')",
     .own = true},
    {.kind = OPT_END},
};
static const struct opt_part common_part = {NULL, args_common, 0};

/* By long name (n bytes) or, when n is 0, by letter. *part: the part it was found in. */
static const struct opt *find_opt(const struct opt_part **part, const struct opt_part *parts,
                                  const char *name, size_t n, char letter)
{
    for (; parts->table; parts++)
        for (const struct opt *o = parts->table; o->kind != OPT_END; o++)
            if (n ? has_name(o, name, n) : o->letter && o->letter == letter) {
                *part = parts;
                return o;
            }
    return NULL;
}

/* Also options that every command has. */
static const struct opt *find_typed(const struct opt_part **part, const struct opt_part *parts,
                                    const char *name, size_t n, char letter)
{
    const struct opt *o = find_opt(part, parts, name, n, letter);
    if (o || !n || !has_name(args_common, name, n)) return o;
    *part = &common_part;
    return args_common;
}

static bool find(struct found *out, void *config, const struct opt_part *parts, const char *name,
                 size_t n, char letter)
{
    const struct opt_part *part;
    const struct opt *o = find_typed(&part, parts, name, n, letter);
    if (o) *out = (struct found){o, (char *)config + part->offset};
    return o != NULL;
}

const struct opt *args_find(const struct opt_part *parts, const char *word)
{
    const struct opt_part *part;
    if (word[0] != '-' || !word[1]) return NULL;
    if (word[1] != '-') return word[2] ? NULL : find_opt(&part, parts, NULL, 0, word[1]);
    size_t n = strcspn(word + 2, "=");
    return n ? find_typed(&part, parts, word + 2, n, 0) : NULL;
}

const struct opt *args_named(const struct opt_part *parts, const char *name)
{
    const struct opt_part *part;
    return *name ? find_opt(&part, parts, name, strlen(name), 0) : NULL;
}

static bitnet_status unknown(const struct opt_part *parts, const char *typed, size_t n,
                             bitnet_error *err)
{
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)bn_min_size(n, sizeof name - 1), typed);
    struct bn_suggest s;
    bn_suggest_start(&s, name);
    bn_suggest_offer(&s, "help");
    bn_suggest_offer(&s, args_common->name);
    for (; parts->table; parts++)
        for (const struct opt *o = parts->table; o->kind != OPT_END; o++)
            bn_suggest_offer(&s, o->name);
    if (s.best)
        return bn_fail(err, BITNET_E_ARG, "unknown option '--%s'; did you mean '--%s'?", name,
                       s.best);
    return bn_fail(err, BITNET_E_ARG, "unknown option '--%s'", name);
}

static void mark_given(struct found f, bool typed)
{
    if (f.opt->given) *(bool *)(f.base + f.opt->given) = true;
    if (f.opt->typed && typed) *(bool *)(f.base + f.opt->typed) = true;
}

bool args_set(void *config, const struct opt_part *parts, const char *name, const char *source,
              const char *value, bitnet_status *status, bitnet_error *err)
{
    const struct opt_part *part;
    const struct opt *o = *name ? find_opt(&part, parts, name, strlen(name), 0) : NULL;
    if (!o) return false;
    struct found f = {o, (char *)config + part->offset};
    mark_given(f, false);
    *status = set_value(f, source, value, err);
    return true;
}

static size_t value_bytes(enum opt_kind kind)
{
    static const size_t bytes[] = {[OPT_FLAG] = sizeof(bool),
                                   [OPT_STR] = sizeof(char *),
                                   [OPT_CHOICE] = sizeof(char *),
                                   [OPT_U32] = sizeof(uint32_t),
                                   [OPT_U64] = sizeof(uint64_t),
                                   [OPT_SIZE] = sizeof(uint64_t),
                                   [OPT_F32] = sizeof(float),
                                   [OPT_LIST] = sizeof(struct opt_list),
                                   [OPT_U32S] = sizeof(struct opt_u32s),
                                   [OPT_EARLY] = 0};
    return bytes[kind];
}

bool args_reset(void *config, const void *from, const struct opt_part *parts, const char *name)
{
    const struct opt_part *part;
    const struct opt *o = *name ? find_opt(&part, parts, name, strlen(name), 0) : NULL;
    if (!o) return false;
    char *to = (char *)config + part->offset;
    const char *source = (const char *)from + part->offset;
    memcpy(to + o->offset, source + o->offset, value_bytes(o->kind));
    if (o->given) *(bool *)(to + o->given) = *(const bool *)(source + o->given);
    return true;
}

/* ------------------------------------------------------------------ the command line */

struct reader {
    void *config;
    const struct opt_part *parts;
    char **argv;
    size_t argc, at;
    const char *early; /* value of --config */
};

static bool is_option_name(const struct reader *r, const char *word)
{
    struct found f;
    if (word[0] != '-') return false;
    if (word[1] == '-') {
        size_t n = strcspn(word + 2, "=");
        return n && (same_name(word + 2, n, "help", 4) || same_name(word + 2, n, "help-all", 8) ||
                     find(&f, r->config, r->parts, word + 2, n, 0));
    }
    return word[1] && !word[2] && find(&f, r->config, r->parts, NULL, 0, word[1]);
}

static bool is_numbers(const char *word)
{
    return *word >= '0' && *word <= '9' && strspn(word, "0123456789,") == strlen(word);
}

/* The value is what is attached to the name, else the next argument. */
static bitnet_status take_value(struct reader *r, struct found f, const char *source,
                                const char *attached, bitnet_error *err)
{
    const char *form = args_form(f.opt);
    if (!attached) {
        if (r->at == r->argc)
            return bn_fail(err, BITNET_E_ARG, "%s expects a value: %s %s", source, source, form);
        attached = r->argv[r->at];
        if (is_option_name(r, attached))
            return bn_fail(err, BITNET_E_ARG,
                           "%s expects a value (%s), but the option '%s' follows", source, form,
                           attached);
        r->at++;
    }
    BN_TRY(set_value(f, source, attached, err));
    if (f.opt->kind == OPT_EARLY) r->early = attached;
    /* --sizes 1 4 8: the numbers that follow belong to it as well */
    while (f.opt->kind == OPT_U32S && r->at < r->argc && is_numbers(r->argv[r->at]))
        BN_TRY(add_numbers((void *)(f.base + f.opt->offset), f.opt, source, r->argv[r->at++], err));
    return BITNET_OK;
}

static bitnet_status read_long(struct reader *r, const char *word, enum args_help *help,
                               bitnet_error *err)
{
    const char *name = word + 2, *attached = strchr(name, '=');
    size_t n = attached ? (size_t)(attached - name) : strlen(name);
    struct found f;
    if (!attached && (same_name(name, n, "help", 4) || same_name(name, n, "help-all", 8))) {
        *help = n == 4 ? HELP_FIRST : HELP_ALL;
        return BITNET_OK;
    }
    if (n == 0 || !find(&f, r->config, r->parts, name, n, 0))
        return unknown(r->parts, name, n, err);
    mark_given(f, true);
    char source[64];
    snprintf(source, sizeof source, "--%.*s", (int)bn_min_size(n, 60), name);
    if (f.opt->kind != OPT_FLAG)
        return take_value(r, f, source, attached ? attached + 1 : NULL, err);
    return set_value(f, source, attached ? attached + 1 : "true", err);
}

static bitnet_status read_letters(struct reader *r, const char *word, enum args_help *help,
                                  bitnet_error *err)
{
    for (const char *p = word + 1; *p; p++) {
        struct found f;
        const char source[3] = {'-', *p, 0};
        if (!find(&f, r->config, r->parts, NULL, 0, *p)) {
            if (*p != 'h')
                return bn_fail(err, BITNET_E_ARG, "unknown option '-%c' in '%s'", *p, word);
            *help = HELP_FIRST;
            continue;
        }
        mark_given(f, true);
        if (f.opt->kind != OPT_FLAG) return take_value(r, f, source, p[1] ? p + 1 : NULL, err);
        BN_TRY(set_value(f, source, "true", err));
    }
    return BITNET_OK;
}

bitnet_status args_parse(void *config, struct arg_words *words, enum args_help *help,
                         const struct opt_part *parts, char **argv, size_t argc, bitnet_error *err)
{
    struct reader r = {.config = config, .parts = parts, .argv = argv, .argc = argc};
    *words = (struct arg_words){.items = argv};
    *help = HELP_NONE;
    bool options_ended = false;
    while (r.at < argc) {
        char *word = argv[r.at++];
        if (options_ended || word[0] != '-' || !word[1])
            words->items[words->n++] =
                word; /* never ahead of r.at: nothing unread is overwritten */
        else if (strcmp(word, "--") == 0) options_ended = true;
        else
            BN_TRY(word[1] == '-' ? read_long(&r, word, help, err)
                                  : read_letters(&r, word, help, err));
    }
    words->config = r.early;
    return BITNET_OK;
}

/* ------------------------------------------------------------------ help */

enum { NAME_COLUMN = 2, HELP_COLUMN = 30, HELP_MAX_BYTES = 4096 };

static void print_wrapped(FILE *to, const char *text, int at, int width)
{
    term_wrap(to, text, at, HELP_COLUMN, width);
}

void args_option_help(struct bn_buf *b, const struct opt *o)
{
    bn_buf_puts(b, o->help);
    const char *shown = o->shown ? o->shown : o->initial ? o->initial : "";
    if (*shown) bn_buf_printf(b, " [%s]", shown);
    for (const char *p = o->aliases; p && *p;) {
        int len = (int)strcspn(p, " ");
        bn_buf_printf(b, "%s --%.*s", p == o->aliases ? " (also" : ",", len, p);
        p += len + (p[len] == ' ');
        if (!*p) bn_buf_putc(b, ')');
    }
    if (o->env) bn_buf_printf(b, " (environment: %s)", o->env);
}

static void print_option(FILE *to, const struct opt *o, int width)
{
    char letter[5] = "    ";
    if (o->letter) snprintf(letter, sizeof letter, "-%c, ", o->letter);
    int at = fprintf(to, "%*s%s--%s", NAME_COLUMN, "", letter, o->name);
    if (o->kind != OPT_FLAG) at += fprintf(to, " %s", args_form(o));

    struct bn_buf text;
    bn_buf_init(&text, HELP_MAX_BYTES);
    args_option_help(&text, o);
    print_wrapped(to, text.data ? text.data : o->help, at, width);
    bn_buf_free(&text);
}

/* Is the name one of the words of that list? */
static bool listed(const char *only, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = only; *p;) {
        size_t len = strcspn(p, " ");
        if (len == n && memcmp(p, name, n) == 0) return true;
        p += len + (p[len] == ' ');
    }
    return false;
}

void args_print_help(FILE *to, const struct opt_part *parts, const char *only, int width)
{
    bool left_out = false;
    for (const char *title = NULL; parts->table; parts++) {
        if (parts->title) title = parts->title;
        for (const struct opt *o = parts->table; o->kind != OPT_END; o++) {
            if (only && !listed(only, o->name)) {
                left_out = true;
                continue;
            }
            if (title) fprintf(to, "\n%s:\n", title);
            title = NULL;
            print_option(to, o, width);
        }
    }
    fprintf(to, "\nHelp and settings:\n");
    fprintf(to, "%*s-h, --help", NAME_COLUMN, "");
    print_wrapped(to, "show this text", NAME_COLUMN + 10, width);
    if (left_out) {
        fprintf(to, "%*s    --help-all", NAME_COLUMN, "");
        print_wrapped(to, "show all options", NAME_COLUMN + 14, width);
    }
    for (const struct opt *o = args_common; o->kind != OPT_END; o++) print_option(to, o, width);
}
