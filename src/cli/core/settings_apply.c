/* SPDX-License-Identifier: Apache-2.0
 *
 * settings_apply.c: what the file and the environment say, into a command's config; and what is wrong
 * with them.
 */
#include "cli/core/settings_impl.h"

#include "app/term.h"
#include "base/suggest.h"
#include <ctype.h>
#include <stdlib.h>
#include <unistd.h>

static const char env_prefix[] = "BITNET_";
enum { ENV_PREFIX_BYTES = sizeof env_prefix - 1 };

static struct settings_origin *origin_of(struct settings_origin *origins,
                                         const struct opt_part *parts, const struct opt *o)
{
    for (size_t i = 0; origins && parts->table; parts++)
        for (const struct opt *p = parts->table; p->kind != OPT_END; p++, i++)
            if (p == o) return &origins[i];
    return NULL;
}

/* What decides about other options cannot stand among them. */
static bool line_only(const char *name)
{
    return args_named((const struct opt_part[]){{NULL, args_common, 0}, {NULL, NULL, 0}}, name) ||
           strcmp(name, settings_print_option) == 0 || strcmp(name, "print_config") == 0;
}

/* Does any command have the option? */
static bool known(const char *name)
{
    const struct entry *e;
    for (size_t i = 0; (e = registry_at(i)); i++)
        if (e->command && args_named(e->command->parts, name)) return true;
    return false;
}

static void offer_options(struct bn_suggest *s, const struct command *c)
{
    for (const struct opt_part *p = c->parts; p->table; p++)
        for (const struct opt *o = p->table; o->kind != OPT_END; o++) bn_suggest_offer(s, o->name);
}

/* ------------------------------------------------------------------ the file */

static bitnet_status no_option(const struct settings *s, const struct setting *one,
                               const struct command *c, bitnet_error *err)
{
    char what[280];
    struct bn_suggest near;
    const struct entry *e;
    bool all = strcmp(one->section, SETTINGS_ALL) == 0;
    bn_suggest_start(&near, one->name);
    if (c) offer_options(&near, c);
    for (size_t i = 0; all && (e = registry_at(i)); i++)
        if (e->command) offer_options(&near, e->command);
    int len = all ? snprintf(what, sizeof what, "no command has an option '%.60s'", one->name)
                  : snprintf(what, sizeof what, "'bitnet %.40s' has no option '%.60s'",
                             one->section, one->name);
    if (near.best)
        snprintf(what + len, sizeof what - (size_t)len, "; did you mean '%s'?", near.best);
    return settings_fail(s, one->line, err, what);
}

/* One line of the file, for a command that it may or may not concern. */
static bitnet_status apply_item(struct settings *s, void *config, const struct command *c,
                                const struct setting *one, struct settings_origin *origins,
                                bitnet_error *err)
{
    bool all = strcmp(one->section, SETTINGS_ALL) == 0;
    bitnet_error wrong = {0};
    bitnet_status status;
    char source[SETTINGS_NAME_BYTES];
    if (!all && strcmp(one->section, c->name) != 0) return BITNET_OK;
    if (line_only(one->name)) {
        snprintf(wrong.text, sizeof wrong.text, "'%.60s' is an option of the command line only",
                 one->name);
        return settings_fail(s, one->line, err, wrong.text);
    }
    const struct opt *o = args_named(c->parts, one->name);
    if (!o) return all && known(one->name) ? BITNET_OK : no_option(s, one, c, err);
    if (all && o->own) return BITNET_OK;
    snprintf(source, sizeof source, "'%.50s'", one->name);
    args_set(config, c->parts, one->name, source, one->value, &status, &wrong);
    if (status != BITNET_OK) return settings_fail(s, one->line, err, wrong.text);
    struct settings_origin *from = origin_of(origins, c->parts, o);
    if (from) *from = (struct settings_origin){FROM_FILE, one->section, one->line, NULL};
    return BITNET_OK;
}

static bitnet_status apply_file(struct settings *s, void *config, const struct command *c,
                                struct settings_origin *origins, bitnet_error *err)
{
    for (int own = 0; own < 2; own++) /* [all] before the command's section */
        for (size_t i = 0; i < s->n; i++)
            if ((strcmp(s->items[i].section, SETTINGS_ALL) != 0) == own)
                BN_TRY(apply_item(s, config, c, &s->items[i], origins, err));
    return BITNET_OK;
}

/* ------------------------------------------------------------------ the environment */

/* A variable of ours: its value, and the rest of its name in small letters. NULL: it is none, or empty. */
static const char *variable(char name[SETTINGS_NAME_BYTES], const char *entry)
{
    const char *equals = strchr(entry, '=');
    if (strncmp(entry, env_prefix, ENV_PREFIX_BYTES) != 0 || !equals || !equals[1]) return NULL;
    size_t n = (size_t)(equals - entry) - ENV_PREFIX_BYTES;
    if (!n || n >= SETTINGS_NAME_BYTES) return NULL;
    for (size_t i = 0; i < n; i++)
        name[i] = (char)tolower((unsigned char)entry[ENV_PREFIX_BYTES + i]);
    name[n] = 0;
    return line_only(name) ? NULL : equals + 1;
}

/* The option's name in a variable for that command alone: port of serve_port; NULL: it is for none. */
static const char *after_command(const char *name, const char *command)
{
    size_t n = strlen(command);
    return strncmp(name, command, n) == 0 && name[n] == '_' ? name + n + 1 : NULL;
}

static bitnet_status apply_variable(struct settings *s, void *config, const struct command *c,
                                    const char *entry, bool alone, struct settings_origin *origins,
                                    bitnet_error *err)
{
    char name[SETTINGS_NAME_BYTES];
    const char *value = variable(name, entry), *option = name;
    if (!value) return BITNET_OK;
    if (alone && (known(name) || !(option = after_command(name, c->name)))) return BITNET_OK;
    const struct opt *o = args_named(c->parts, option);
    if (!o || (o->own && !alone)) return BITNET_OK;
    const char *source = bn_arena_strn(&s->texts, entry, strcspn(entry, "="));
    if (!source) return bn_fail_nomem(err, SETTINGS_NAME_BYTES, "the settings");
    bitnet_status status;
    args_set(config, c->parts, option, source, value, &status, err);
    struct settings_origin *from = origin_of(origins, c->parts, o);
    if (from) *from = (struct settings_origin){FROM_ENVIRONMENT, NULL, 0, source};
    return status;
}

/* The variables that options have beside BITNET_…, as OPENAI_API_KEY. */
static bitnet_status apply_foreign(void *config, const struct command *c,
                                   struct settings_origin *origins, bitnet_error *err)
{
    for (const struct opt_part *p = c->parts; p->table; p++)
        for (const struct opt *o = p->table; o->kind != OPT_END; o++) {
            const char *value = o->env ? getenv(o->env) : NULL;
            bitnet_status status;
            if (!value || !*value) continue;
            args_set(config, c->parts, o->name, o->env, value, &status, err);
            if (status != BITNET_OK) return status;
            struct settings_origin *from = origin_of(origins, c->parts, o);
            if (from) *from = (struct settings_origin){FROM_ENVIRONMENT, NULL, 0, o->env};
        }
    return BITNET_OK;
}

static bitnet_status apply_environment(struct settings *s, void *config, const struct command *c,
                                       struct settings_origin *origins, bitnet_error *err)
{
    BN_TRY(apply_foreign(config, c, origins, err));
    for (int alone = 0; alone < 2; alone++)
        for (char **entry = environ; entry && *entry; entry++)
            BN_TRY(apply_variable(s, config, c, *entry, alone, origins, err));
    return BITNET_OK;
}

bitnet_status settings_apply(struct settings *s, void *config, const struct command *c,
                             struct settings_origin *origins, bitnet_error *err)
{
    BN_TRY(apply_file(s, config, c, origins, err));
    return apply_environment(s, config, c, origins, err);
}

/* ------------------------------------------------------------------ mistakes */

/* A variable that is no option of any command; *near: what it may have meant. */
static bool unknown_variable(const char *entry, struct bn_suggest *near,
                             char name[SETTINGS_NAME_BYTES])
{
    const struct entry *e;
    const struct command *c;
    if (!variable(name, entry) || known(name)) return false;
    for (char *p = name; (p = strchr(p, '_'));) *p = '-';
    bn_suggest_start(near, name);
    for (size_t i = 0; (e = registry_at(i)); i++) {
        if (!(c = e->command)) continue;
        const char *option =
            strncmp(name, c->name, strlen(c->name)) == 0 && name[strlen(c->name)] == '-'
                ? name + strlen(c->name) + 1
                : NULL;
        if (option && args_named(c->parts, option)) return false;
        offer_options(near, c);
        for (const struct opt_part *p = c->parts; p->table; p++)
            for (const struct opt *o = p->table; o->kind != OPT_END; o++)
                if (o->env && strncmp(o->env, entry, strcspn(entry, "=")) == 0) return false;
    }
    return true;
}

static void describe_variable(char *out, size_t n, const char *entry, const char *near)
{
    char name[SETTINGS_NAME_BYTES];
    snprintf(name, sizeof name, "%s", near ? near : "");
    for (char *p = name; *p; p++) *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
    snprintf(out, n, "the environment has %.*s, which is not an option%s%s%s",
             (int)strcspn(entry, "="), entry, near ? "; did you mean BITNET_" : "", name,
             near ? "?" : "");
}

void settings_note_variables(void)
{
    for (char **entry = environ; entry && *entry; entry++) {
        struct bn_suggest near;
        char name[SETTINGS_NAME_BYTES], text[4 * SETTINGS_NAME_BYTES];
        if (!unknown_variable(*entry, &near, name) || !near.best) continue;
        describe_variable(text, sizeof text, *entry, near.best);
        term_note(text);
    }
}

/* One line of the file for all commands that it concerns: the first mistake. */
static bitnet_status check_item(struct settings *s, const struct setting *one, bitnet_error *err)
{
    bool all = strcmp(one->section, SETTINGS_ALL) == 0;
    const struct entry *e;
    if (all && !known(one->name) && !line_only(one->name)) return no_option(s, one, NULL, err);
    for (size_t i = 0; (e = registry_at(i)); i++) {
        if (!e->command) continue;
        void *config = calloc(1, e->command->config_bytes + 1);
        if (!config) return bn_fail_nomem(err, e->command->config_bytes, "a command's options");
        bitnet_status status = apply_item(s, config, e->command, one, NULL, err);
        free(config);
        BN_TRY(status);
    }
    return BITNET_OK;
}

static size_t check_variables(struct settings *s, settings_tell_fn *tell, void *user)
{
    size_t n = 0;
    for (char **entry = environ; entry && *entry; entry++) {
        struct bn_suggest near;
        bitnet_error err = {0};
        char name[SETTINGS_NAME_BYTES], text[4 * SETTINGS_NAME_BYTES];
        const struct entry *e;
        bitnet_status status = BITNET_OK;
        if (unknown_variable(*entry, &near, name)) {
            describe_variable(text, sizeof text, *entry, near.best);
            tell(user, text);
            n++;
        }
        for (size_t i = 0; status == BITNET_OK && (e = registry_at(i)); i++) {
            void *config = e->command ? calloc(1, e->command->config_bytes + 1) : NULL;
            for (int alone = 0; config && alone < 2 && status == BITNET_OK; alone++)
                status = apply_variable(s, config, e->command, *entry, alone, NULL, &err);
            free(config);
        }
        if (status == BITNET_OK) continue;
        tell(user, err.text);
        n++;
    }
    return n;
}

size_t settings_check(struct settings *s, settings_tell_fn *tell, void *user)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        bitnet_error err = {0};
        if (check_item(s, &s->items[i], &err) == BITNET_OK) continue;
        tell(user, err.text);
        n++;
    }
    return n + check_variables(s, tell, user);
}
