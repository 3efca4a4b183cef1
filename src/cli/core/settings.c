/* SPDX-License-Identifier: Apache-2.0
 *
 * settings.c: finds the file of settings and makes a list of it, names checked. settings_apply.c puts it
 * into configs.
 */
#include "cli/core/settings_impl.h"

#include "app/config/folders.h"
#include "app/term.h"
#include "app/config/toml.h"
#include "base/suggest.h"
#include "base/os/file.h"
#include <stdlib.h>

enum { FILE_MAX_BYTES = TOML_MAX_BYTES, SETTINGS_MAX = 4096 };
static const char file_option[] = "config";

/* ------------------------------------------------------------------ where it is */

/* The file is needed before the rest of the line is read. */
static const char *named_file(char **argv, size_t argc)
{
    const size_t n = sizeof file_option - 1;
    const char *found = getenv("BITNET_CONFIG");
    for (size_t i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strncmp(argv[i], "--", 2) != 0 || strncmp(argv[i] + 2, file_option, n) != 0) continue;
        const char *rest = argv[i] + 2 + n;
        if (*rest == '=') found = rest + 1;
        else if (!*rest && i + 1 < argc) found = argv[i + 1];
    }
    return found && *found ? found : NULL;
}

static bitnet_status find_file(struct settings *s, bool *named, char **argv, size_t argc,
                               bitnet_error *err)
{
    const char *path = named_file(argv, argc);
    *named = path != NULL;
    int n = 0;
    if (path && strcmp(path, "off") != 0) {
        n = snprintf(s->path, sizeof s->path, "%s", path);
    } else if (!path) {
        char folder[SETTINGS_PATH_BYTES];
        if (user_config_folder(folder, sizeof folder))
            n = snprintf(s->path, sizeof s->path, "%s/config.toml", folder);
    }
    s->there = *s->path && bn_exists(s->path);
    if (n < SETTINGS_PATH_BYTES) return BITNET_OK;
    *s->path = 0;
    return bn_fail(err, BITNET_E_ARG, "the path of the settings file is longer than %d bytes",
                   SETTINGS_PATH_BYTES);
}

bitnet_status settings_find(struct settings *s, char **argv, size_t argc, bitnet_error *err)
{
    bool named;
    return find_file(s, &named, argv, argc, err);
}

/* ------------------------------------------------------------------ values */

bitnet_status settings_fail(const struct settings *s, unsigned line, bitnet_error *err,
                            const char *what)
{
    char place[16] = "";
    if (line) snprintf(place, sizeof place, ":%u", line);
    return bn_fail(err, BITNET_E_ARG, "%.200s%s: %s", s->path, place, what);
}

/* A scalar as it would be typed; NULL: it is none. */
static const char *as_text(struct settings *s, const struct toml *v)
{
    char number[40];
    switch (v->kind) {
    case TOML_STRING: return strlen(v->text) == v->bytes ? v->text : NULL;
    case TOML_BOOL: return v->truth ? "true" : "false";
    case TOML_INTEGER:
        snprintf(number, sizeof number, "%lld", (long long)v->integer);
        return bn_arena_strn(&s->texts, number, strlen(number));
    case TOML_FLOAT:
        snprintf(number, sizeof number, "%.9g", v->real);
        return bn_arena_strn(&s->texts, number, strlen(number));
    default: return NULL;
    }
}

static bitnet_status keep(struct settings *s, const struct setting *one, bitnet_error *err)
{
    if (s->n == SETTINGS_MAX) return settings_fail(s, one->line, err, "too many settings");
    if (!bn_grow((void **)&s->items, &s->room, s->n + 1, sizeof *s->items))
        return bn_fail_nomem(err, sizeof *s->items, "the settings");
    s->items[s->n++] = *one;
    return BITNET_OK;
}

static bitnet_status no_value(const struct settings *s, const struct setting *one,
                              bitnet_error *err)
{
    char what[160];
    snprintf(what, sizeof what,
             "'%.60s' is neither a text nor a number, true or false, nor a list of them",
             one->name);
    return settings_fail(s, one->line, err, what);
}

/* Lists of texts are several values, lists of numbers one: 1,4,8. */
static bitnet_status keep_list(struct settings *s, struct setting one, const struct toml *list,
                               bitnet_error *err)
{
    struct bn_buf numbers;
    bn_buf_init(&numbers, FILE_MAX_BYTES);
    bitnet_status status = BITNET_OK;
    for (const struct toml *v = list->first; v && status == BITNET_OK; v = v->next) {
        one.value = as_text(s, v);
        one.line = list->line ? v->line : 0;
        if (!one.value) status = no_value(s, &one, err);
        else if (v->kind == TOML_STRING) status = keep(s, &one, err);
        else bn_buf_printf(&numbers, "%s%s", numbers.len ? "," : "", one.value);
    }
    if (status == BITNET_OK && numbers.len) {
        one.value = bn_arena_strn(&s->texts, numbers.data, numbers.len);
        status = one.value ? keep(s, &one, err) : bn_fail_nomem(err, numbers.len, "the settings");
    }
    bn_buf_free(&numbers);
    return status;
}

static bitnet_status keep_value(struct settings *s, const char *section, const struct toml *v,
                                bitnet_error *err)
{
    struct setting one = {section, v->key, NULL, v->line};
    if (v->kind == TOML_ARRAY) return keep_list(s, one, v, err);
    one.value = as_text(s, v);
    return one.value ? keep(s, &one, err) : no_value(s, &one, err);
}

/* ------------------------------------------------------------------ sections */

static bitnet_status check_section(const struct settings *s, const struct toml *table,
                                   bitnet_error *err)
{
    struct bn_suggest near;
    char what[200];
    const struct entry *e;
    bn_suggest_start(&near, table->key);
    bn_suggest_offer(&near, SETTINGS_ALL);
    if (strcmp(table->key, SETTINGS_ALL) == 0 || registry_find(table->key)) return BITNET_OK;
    for (size_t i = 0; (e = registry_at(i)); i++) bn_suggest_offer(&near, e->name);
    snprintf(what, sizeof what, "there is no command '%.60s' for a section [%.60s]%s%s%s",
             table->key, table->key, near.best ? "; did you mean [" : "",
             near.best ? near.best : "", near.best ? "]?" : "");
    return settings_fail(s, table->line, err, what);
}

/* Outside of sections stands what holds for all. */
static bitnet_status keep_all(struct settings *s, const struct toml *root, bitnet_error *err)
{
    for (const struct toml *t = root->first; t; t = t->next) {
        if (t->kind != TOML_TABLE) {
            BN_TRY(keep_value(s, SETTINGS_ALL, t, err));
            continue;
        }
        BN_TRY(check_section(s, t, err));
        for (const struct toml *v = t->first; v; v = v->next) BN_TRY(keep_value(s, t->key, v, err));
    }
    return BITNET_OK;
}

/* ------------------------------------------------------------------ JSON */

/* JSON as the tree that TOML makes, without lines. null is nothing. */
static struct toml *from_json(struct settings *s, const char *key, const struct bn_json *v)
{
    struct toml *t = bn_arena_alloc(&s->texts, sizeof *t), *item;
    const char *name;
    struct bn_json *member;
    size_t i;
    if (!t) return NULL;
    t->key = key ? bn_arena_strn(&s->texts, key, strlen(key)) : NULL;
    t->kind = TOML_LOCAL_TIME; /* nothing that an option takes */
    if (bn_json_is_object(v)) {
        t->kind = TOML_TABLE;
        bn_json_each_member(v, name, member)
        {
            if (bn_json_is_null(member)) continue;
            if (!(item = from_json(s, name, member))) return NULL;
            toml_append(t, item);
        }
    } else if (bn_json_is_array(v)) {
        t->kind = TOML_ARRAY;
        bn_json_each(v, i, member)
        {
            if (!(item = from_json(s, NULL, member))) return NULL;
            toml_append(t, item);
        }
    } else if (bn_json_is_string(v)) {
        t->kind = TOML_STRING;
        t->bytes = bn_json_bytes(v);
        t->text = bn_arena_strn(&s->texts, bn_json_text(v), t->bytes);
    } else if (bn_json_is_bool(v)) {
        t->kind = TOML_BOOL;
        t->truth = bn_json_is_true(v);
    } else if (bn_json_is_number(v)) {
        t->kind = bn_json_is_int(v) ? TOML_INTEGER : TOML_FLOAT;
        t->integer = bn_json_integer(v);
        t->real = bn_json_number(v);
    }
    return (key && !t->key) || (t->kind == TOML_STRING && !t->text) ? NULL : t;
}

static bitnet_status read_json(struct toml **root, struct settings *s, const char *text, size_t n,
                               bitnet_error *err)
{
    struct bn_json *file;
    BN_TRY(bn_json_parse(&file, text, n, BN_JSON_UNIQUE, s->path, err));
    *root = from_json(s, NULL, file);
    bn_json_free(file);
    return *root ? BITNET_OK : bn_fail_nomem(err, n, s->path);
}

/* ------------------------------------------------------------------ the file */

static bitnet_status read_settings(struct settings *s, const char *text, size_t n,
                                   bitnet_error *err)
{
    struct toml *root;
    size_t blanks = 0;
    while (blanks < n && strchr(" \t\r\n", text[blanks])) blanks++;
    bool json = blanks < n && text[blanks] == '{';
    BN_TRY(json ? read_json(&root, s, text, n, err)
                : toml_read(&root, &s->texts, text, n, s->path, err));
    return keep_all(s, root, err);
}

bitnet_status settings_open(struct settings *s, char **argv, size_t argc, bitnet_error *err)
{
    bool named;
    char *text;
    size_t n;
    BN_TRY(find_file(s, &named, argv, argc, err));
    if (!*s->path || (!s->there && !named)) return BITNET_OK;
    BN_TRY(bn_read_file(&text, &n, s->path, FILE_MAX_BYTES, err));
    bitnet_status status = read_settings(s, text, n, err);
    free(text);
    return status;
}

void settings_free(struct settings *s)
{
    bn_arena_free(&s->texts);
    free(s->items);
    *s = (struct settings){.n = 0};
}

/* ------------------------------------------------------------------ shown */

struct bn_json *settings_value(const struct opt *o, const void *at)
{
    if (o->secret) return bn_json_string("(secret)");
    switch (o->kind) {
    case OPT_FLAG: return bn_json_bool(*(const bool *)at);
    case OPT_STR:
    case OPT_CHOICE: {
        const char *text = *(const char *const *)at;
        return text ? term_json_string(text, strlen(text)) : bn_json_null();
    }
    case OPT_U32: return bn_json_int(*(const uint32_t *)at);
    case OPT_U64: return bn_json_int((int64_t) * (const uint64_t *)at);
    case OPT_SIZE: {
        uint64_t bytes = *(const uint64_t *)at;
        return bytes > 1 ? bn_json_int((int64_t)bytes) : bn_json_string(bytes ? "off" : "auto");
    }
    case OPT_F32: { /* the decimals that were typed, not those of the nearest float */
        char text[SETTINGS_NAME_BYTES];
        snprintf(text, sizeof text, "%.7g", (double)*(const float *)at);
        return bn_json_real(strtod(text, NULL));
    }
    case OPT_LIST: {
        const struct opt_list *list = at;
        struct bn_json *j = bn_json_array();
        for (size_t i = 0; i < list->n; i++)
            bn_json_append(j, term_json_string(list->items[i], strlen(list->items[i])));
        return j;
    }
    case OPT_U32S: {
        const struct opt_u32s *list = at;
        struct bn_json *j = bn_json_array();
        for (size_t i = 0; i < list->n; i++) bn_json_append(j, bn_json_int(list->items[i]));
        return j;
    }
    case OPT_END:
    case OPT_EARLY: break;
    }
    return NULL;
}

struct bn_json *settings_json(const void *config, const struct opt_part *parts)
{
    struct bn_json *all = bn_json_object();
    for (; all && parts->table; parts++)
        for (const struct opt *o = parts->table; o->kind != OPT_END; o++) {
            if (o->secret || strcmp(o->name, settings_print_option) == 0) continue;
            const char *base = (const char *)config + parts->offset;
            if (bn_json_set(all, o->name, settings_value(o, base + o->offset))) continue;
            bn_json_free(all);
            return NULL;
        }
    return all;
}
