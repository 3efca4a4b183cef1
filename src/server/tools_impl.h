/* SPDX-License-Identifier: Apache-2.0
 * Tools from inside; only tools*.c include it. */
#ifndef BN_SERVER_TOOLS_IMPL_H
#define BN_SERVER_TOOLS_IMPL_H

#include "server/tools.h"

/* How a call is written: marker, open, the function's name, middle, its arguments, close. */
struct tools_form {
    const char *marker; /* its first byte does not occur in it again, nor in open and middle */
    const char *open, *middle, *close;
    const char *between;  /* two calls; NULL: an answer holds one */
    bool at_start;        /* a call is the whole answer: the marker means nothing further on */
    bool template_writes; /* tools and earlier calls; else they are put in words */
};

enum tools_choice { TOOLS_NONE, TOOLS_AUTO, TOOLS_REQUIRED };

struct tools {
    json_t *list; /* {"type": "function", "function": {...}}, names checked */
    const struct tools_form *form;
    enum tools_choice choice;
    const char *only; /* the function that must be called; NULL: any */
    bool parallel;
};

static inline const json_t *tools_function(const struct tools *t, size_t i)
{
    return json_object_get(json_array_get(t->list, i), "function");
}

static inline const char *tools_name(const struct tools *t, size_t i)
{
    return json_string_value(json_object_get(tools_function(t, i), "name"));
}

/* A character of a function's name. */
static inline bool tools_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

#endif
