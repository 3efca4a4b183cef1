/* SPDX-License-Identifier: Apache-2.0
 *
 * tools.h: functions that a model may call. Three things follow from a request's list of them: what the
 * model is told (by its template, or, where that knows no tools, by words in the system message), the
 * constraint on its choices (a grammar, so that a call always parses and its arguments match the
 * function's schema), and how calls are found in the choice again.
 */
#ifndef BN_SERVER_OPENAI_TOOLS_H
#define BN_SERVER_OPENAI_TOOLS_H

#include "base/buf.h"
#include "json/json.h"

enum {
    TOOLS_MAX = 128,
    TOOLS_MAX_NAME = 64,
    TOOLS_MAX_KEY = 256, /* of a parameter that is written by itself */
    TOOLS_MAX_CALLS = 32 /* in one choice */
};

struct tools;

/* tools, choice, parallel: "tools", "tool_choice" and "parallel_tool_calls" of a body (may be NULL).
 * *out is NULL if there are none to call. */
bitnet_status tools_read(struct tools **out, const struct bn_json *tools,
                         const struct bn_json *choice, bool parallel, bitnet_error *err);
void tools_free(struct tools *t); /* NULL is fine */

/* For the template at hand (its Jinja text; "" for a built-in): how calls are written, fixed from here on. */
void tools_choose_format(struct tools *t, const char *template_text);
/* What the template is to render: {"messages": [...], "tools": [...]}; where it knows no tools, the
 * messages alone, with the system message extended and earlier calls as text. t NULL: no tools, the
 * messages may hold earlier calls. NULL: out of memory. */
struct bn_json *tools_conversation(const struct tools *t, const struct bn_json *messages);
/* The same without tools, for a template that does not know of calls: earlier ones, and their results, as
 * text. */
struct bn_json *tools_conversation_as_text(const struct bn_json *messages);
/* GBNF that choices must match (free()); NULL: any text, with a choice of "none". "auto" is text, in
 * which a call must be whole and right once it begins, and after which only calls come. */
bitnet_status tools_grammar(const struct tools *t, char **out, bitnet_error *err);

/* Whether choices may be any text, with calls or without. t may be NULL. */
bool tools_any_text(const struct tools *t);

/* A choice as it comes in: text goes through, calls are found. */
struct tools_call {
    char *id, *name;
    struct bn_buf arguments; /* JSON text, so far */
    bool complete;
};
struct tools_parser {
    struct bn_buf text; /* what is not a call; may be taken out (bn_buf_clear) */
    struct tools_call *calls;
    size_t n_calls;
    /* private */
    uint64_t id;
    size_t call_room;
    const struct tools_format *format; /* of calls, as chosen; NULL: none */
    struct bn_buf pending;             /* begins like a call: not yet known to be one */
    size_t name_at, name_bytes;        /* in pending */
    size_t matched;                    /* bytes of what the step expects */
    uint8_t step;
    /* where inside the JSON of a call */
    uint32_t depth;
    bool in_string, escaped;
    /* where arguments are written one by one */
    struct bn_json *list; /* of functions, for their schemas */
    bool as_json;         /* the value that is coming: gathered in pending */
    bool any_value;       /* one has come */
};
/* id: what the ids of calls are made of, so that the same choice has the same ids. t NULL: all is text. */
void tools_parser_open(struct tools_parser *p, const struct tools *t, uint64_t id);
bool tools_parser_feed(struct tools_parser *p, const char *text, size_t n); /* false: no memory */
bool tools_parser_end(struct tools_parser *p); /* what began like a call only is text */
void tools_parser_close(struct tools_parser *p);

#endif
