/* SPDX-License-Identifier: Apache-2.0
 * Tools from inside; only tools*.c include it. */
#ifndef BN_SERVER_OPENAI_TOOLS_IMPL_H
#define BN_SERVER_OPENAI_TOOLS_IMPL_H

#include "server/openai/tools.h"

/* How a call is written: marker, open, the function's name, middle, its arguments, close. They are an
 * object, or each for itself: parameter, its name, parameter_open, its value, parameter_close, "\n". */
struct tools_format {
    const char *marker; /* its first byte does not occur in it again, nor in open and middle */
    const char *open, *middle, *close;
    const char *parameter; /* NULL: arguments are an object; begins as close does, with one byte */
    const char *parameter_open,
        *parameter_close; /* the first byte of the latter is not in it again */
    const char *between;  /* two calls; NULL: a choice holds one */
    bool at_start;        /* a call is the whole choice: the marker means nothing further on */
    bool template_writes; /* tools and earlier calls; else they are put in words */
};

enum tools_choice { TOOLS_NONE, TOOLS_AUTO, TOOLS_REQUIRED };

struct tools {
    struct bn_json *list; /* {"type": "function", "function": {...}}, names checked */
    const struct tools_format *format;
    enum tools_choice choice;
    const char *only; /* the function that must be called; NULL: any */
    bool parallel;
};

static inline const struct bn_json *tools_function(const struct tools *t, size_t i)
{
    return bn_json_get(bn_json_at(t->list, i), "function");
}

static inline const char *tools_name(const struct tools *t, size_t i)
{
    return bn_json_text(bn_json_get(tools_function(t, i), "name"));
}

/* A character of a function's name. */
static inline bool tools_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

/* A text as a literal of GBNF, made of parts; NULL ends the list. */
void tools_put_literal(struct bn_buf *b, const char *const *texts);

/* ---- arguments written one by one (tools_parameters.c) ---- */

/* Whether a parameter is written as it is; else as JSON. schema NULL: it is. */
bool tools_is_text(const struct bn_json *schema);
/* The schema of a function's parameter; NULL: none. */
const struct bn_json *tools_parameter(const struct bn_json *list, const char *function,
                                      const char *key);
/* Rule "text": any text and the end of its parameter. */
void tools_put_value_rules(struct bn_buf *b, const struct tools_format *f);
/* Rule "<name>-arguments" and what it needs. */
bitnet_status tools_put_parameters(struct bn_buf *b, const struct tools_format *f, const char *name,
                                   const struct bn_json *parameters, bitnet_error *err);

#endif
