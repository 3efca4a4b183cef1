/* SPDX-License-Identifier: Apache-2.0 */
#include "server/openai/ignored.h"

#include <stdio.h>

bool openai_is_one_of(const char *s, const char *const *list)
{
    while (*list && strcmp(*list, s) != 0) list++;
    return *list != NULL;
}

/* A name told twice says nothing new: messages of one client all have the same members. */
static bool is_told(const struct openai_ignored *g, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = g->names; (at = strstr(at, name)) != NULL; at += n)
        if ((at == g->names || at[-1] == ' ') && (at[n] == 0 || at[n] == ',')) return true;
    return false;
}

bitnet_status openai_ignore(struct openai_ignored *g, const char *where, const char *key,
                            bitnet_error *err)
{
    char name[128];
    if (g->strict)
        return *where ? bn_fail(err, BITNET_E_UNSUPPORTED, "'%s' has an unknown member '%.60s'",
                                where, key)
                      : bn_fail(err, BITNET_E_UNSUPPORTED, "'%.60s' is not an option of a request",
                                key);
    snprintf(name, sizeof name, "%s%s%.60s", where, *where ? "." : "", key);
    for (char *c = name; *c; c++)
        if (*c <= ' ' || *c == ',' || (unsigned char)*c > '~') *c = '?';
    size_t used = strlen(g->names), room = sizeof g->names - used;
    g->n++;
    if (!is_told(g, name) && strlen(name) + 3 <= room)
        snprintf(g->names + used, room, "%s%s", used ? ", " : "", name);
    return BITNET_OK;
}

bitnet_status openai_ignore_tool(struct openai_ignored *g, size_t i, const char *type,
                                 bitnet_error *err)
{
    if (!g->strict) return openai_ignore(g, "tools", type, err);
    return bn_fail(err, BITNET_E_UNSUPPORTED,
                   "tool %zu is of type '%.60s', which this server cannot run or offer; functions "
                   "are possible",
                   i, type);
}

void openai_add_ignored(struct openai_ignored *g, const struct openai_ignored *more)
{
    size_t used = strlen(g->names), room = sizeof g->names - used;
    g->n += more->n;
    if (*more->names && strlen(more->names) + 3 <= room)
        snprintf(g->names + used, room, "%s%s", used ? ", " : "", more->names);
}

bitnet_status openai_known_members(struct openai_ignored *g, const struct bn_json *v,
                                   const char *const *known, const char *what, bitnet_error *err)
{
    if (!bn_json_is_object(v)) return bn_fail(err, BITNET_E_ARG, "'%s' is not an object", what);
    const char *key;
    struct bn_json *member;
    bn_json_each_member(v, key, member)
    {
        if (!openai_is_one_of(key, known)) BN_TRY(openai_ignore(g, what, key, err));
    }
    return BITNET_OK;
}
