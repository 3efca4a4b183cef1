/* SPDX-License-Identifier: Apache-2.0
 *
 * args.h: options as tables. One line an option says its kind, names, form, default and the place
 * of its value in the command's config struct; from the table come the parsing, the defaults,
 * `--help` and the sentences about what is wrong.
 *
 * Forms taken: --name value, --name=value, -n value, -nvalue, -ab for flags, --flag=false. '_' counts as '-' in
 * long names. "--" ends the options. A lone "-" is a word. The value of an option may begin with
 * '-', except when it is itself the name of an option: that is nearly always a forgotten value.
 */
#ifndef BN_CLI_CORE_ARGS_H
#define BN_CLI_CORE_ARGS_H

#include "base/buf.h"
#include "base/status.h"
#include <stdio.h>

enum opt_kind {
    OPT_END = 0, /* closes a table */
    OPT_FLAG,    /* bool                                          */
    OPT_STR,     /* const char *                                  */
    OPT_CHOICE,  /* const char *, one of `choices`                */
    OPT_U32,     /* uint32_t in min..max                          */
    OPT_U64,     /* uint64_t in min..max, at most 2^53 each       */
    OPT_SIZE,    /* uint64_t: bytes, as 4096, 512M or 4G; 0 for auto, 1 for off */
    OPT_F32,     /* float in min..max                             */
    OPT_LIST,    /* struct opt_list; the option may be repeated   */
    OPT_U32S,    /* struct opt_u32s: numbers in min..max          */
    OPT_EARLY    /* read before all others (settings.h); nothing is stored */
};

struct opt {
    enum opt_kind kind;
    char letter;         /* 0: no short form */
    const char *name;    /* without the dashes */
    const char *metavar; /* form of the value; NULL for flags and choices */
    const char *help;
    size_t offset;       /* of the value, in the part's struct */
    const char *initial; /* default as one would type it; NULL: zero */
    const char *shown; /* default as --help words it, where `initial` would not do; "" to hide it */
    const char *aliases; /* other long names, separated by spaces */
    const char *choices; /* "a|b|c" */
    const char *env;     /* a variable beside BITNET_<NAME>, which counts more (settings.h) */
    double min, max;
    bool secret;  /* never shown */
    bool own;     /* means something else in other commands: not shared by settings.h */
    size_t given; /* offset of a bool that is set when the user gave the option; 0: none */
    size_t typed; /* the same, but only when it stands on the command line */
};

/* One group of options: a title for --help, a table, and where its struct lies in the config. */
struct opt_part {
    const char *title; /* NULL: goes on with the part before */
    const struct opt *table;
    size_t offset;
};

enum { OPT_LIST_MAX = 32 };
struct opt_list {
    const char *items[OPT_LIST_MAX];
    size_t n;
};

/* Numbers separated by commas, by spaces inside one argument, or as arguments of their own: 1,4,8 or
 * 1 4 8. The ones that are given replace the default. */
struct opt_u32s {
    uint32_t items[OPT_LIST_MAX];
    size_t n;
};

/* Positional arguments. Strings are those of argv. */
struct arg_words {
    char **items;
    size_t n;
    const char *config; /* what --config named; NULL: it was not there */
};

/* The defaults, into a zeroed config. */
bitnet_status args_defaults(void *config, const struct opt_part *parts, bitnet_error *err);

/* Was help asked for: --help and -h, or --help-all? */
enum args_help { HELP_NONE, HELP_FIRST, HELP_ALL };

/* Reads argv[0..argc), whose order is changed: the words are gathered at its front. BITNET_E_ARG with a
 * sentence when something is wrong. */
bitnet_status args_parse(void *config, struct arg_words *words, enum args_help *help,
                         const struct opt_part *parts, char **argv, size_t argc, bitnet_error *err);

/* Sets an option by one of its long names ('_' counts as '-') to a value that was not typed as an
 * argument: source names where it comes from. Flags take true or false. false: there is no such
 * option; else *status says how it went. */
bool args_set(void *config, const struct opt_part *parts, const char *name, const char *source,
              const char *value, bitnet_status *status, bitnet_error *err);

/* The option with that long name ('_' counts as '-'); NULL: there is none. */
const struct opt *args_named(const struct opt_part *parts, const char *name);

/* Gives an option the value that it has in another config; false: there is no such option. */
bool args_reset(void *config, const void *from, const struct opt_part *parts, const char *name);

/* The option that a word of the command line names: --name, --name=value, -n; NULL: none does. */
const struct opt *args_find(const struct opt_part *parts, const char *word);

/* Options that every command has: --config. */
extern const struct opt args_common[];

/* What its value looks like; not for flags. */
const char *args_form(const struct opt *o);
/* Help, default, other names, environment: appended to b. */
void args_option_help(struct bn_buf *b, const struct opt *o);

/* Options, grouped, as wide as `width` columns. only: names separated by spaces; NULL: all. */
void args_print_help(FILE *to, const struct opt_part *parts, const char *only, int width);

/* Whole numbers and decimals typed by a user: the full text must be the number. */
bool args_u64(uint64_t *out, const char *text, uint64_t max);
/* "auto" is 0, "off" 1; K, M, G and T are powers of 1024. At most 2^53. */
bool args_size(uint64_t *out, const char *text);
bool args_double(double *out, const char *text);

/* Options that several commands have, each with a help of its own. */

#define OPT_MAX_INTEGER 9007199254740992.0 /* 2^53: every JSON reader keeps it */

/* ...: what is taken where none is given: .initial, or .shown and .given */
#define SEED_OPT(text, at, ...)                                                       \
    {                                                                                 \
        .kind = OPT_U64, .letter = 's', .name = "seed", .metavar = "N", .help = text, \
        .offset = at, .min = 0, .max = OPT_MAX_INTEGER, __VA_ARGS__                   \
    }

#endif
