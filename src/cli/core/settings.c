/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/core/settings.h"

#include "base/buf.h"
#include "base/suggest.h"
#include "app/term.h"
#include <ctype.h>
#include <stdlib.h>
#include <unistd.h>

enum { FILE_MAX_BYTES = 1 << 20, NAME_BYTES = 64 };
static const char file_option[] = "config", print_option[] = "print-config";
static const char env_prefix[] = "BITNET_";

/* The file is needed before the rest of the line is read. */
static const char *find_file(char **argv, size_t argc)
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

/* ------------------------------------------------------------------ the file */

/* A value as it would be typed. Lists of numbers are one value, lists of texts several. */
static const char *as_text(struct settings *s, const struct bn_json *v)
{
    struct bn_buf text;
    bn_buf_init(&text, FILE_MAX_BYTES);
    size_t n = bn_json_is_array(v) ? bn_json_size(v) : 1;
    for (size_t i = 0; i < n; i++) {
        const struct bn_json *item = bn_json_is_array(v) ? bn_json_at(v, i) : v;
        if (i) bn_buf_putc(&text, ',');
        if (bn_json_is_string(item)) bn_buf_puts(&text, bn_json_text(item));
        else if (bn_json_is_bool(item))
            bn_buf_puts(&text, bn_json_is_true(item) ? "true" : "false");
        else if (bn_json_is_int(item))
            bn_buf_printf(&text, "%lld", (long long)bn_json_integer(item));
        else if (bn_json_is_real(item)) bn_buf_printf(&text, "%.9g", bn_json_number(item));
        else text.failed = true;
    }
    const char *kept =
        text.data && !text.failed ? bn_arena_strn(&s->texts, text.data, text.len) : NULL;
    bn_buf_free(&text);
    return kept;
}

static bitnet_status unknown_member(const struct opt_part *parts, const char *path,
                                    const char *name, bitnet_error *err)
{
    struct bn_suggest s;
    bn_suggest_start(&s, name);
    for (; parts->table; parts++)
        for (const struct opt *o = parts->table; o->kind != OPT_END; o++)
            bn_suggest_offer(&s, o->name);
    return bn_fail(err, BITNET_E_ARG, "%s: there is no option '%.60s'%s%s%s", path, name,
                   s.best ? "; did you mean '" : "", s.best ? s.best : "", s.best ? "'?" : "");
}

static bitnet_status set_member(struct settings *s, void *config, const struct opt_part *parts,
                                const char *path, const char *name, const struct bn_json *v,
                                bitnet_error *err)
{
    char source[NAME_BYTES];
    snprintf(source, sizeof source, "'%.40s' in the file", name);
    if (strcmp(name, file_option) == 0 || strcmp(name, print_option) == 0)
        return bn_fail(err, BITNET_E_ARG, "%s: '%s' is an option of the command line only", path,
                       name);
    const char *text = as_text(s, v);
    if (!text)
        return bn_fail(err, BITNET_E_ARG,
                       "%s: '%.60s' is neither a text nor a number, true or "
                       "false, nor a list of them",
                       path, name);
    bitnet_status status;
    if (!args_set(config, parts, name, source, text, &status, err))
        return unknown_member(parts, path, name, err);
    return status;
}

static bitnet_status set_members(struct settings *s, void *config, const struct opt_part *parts,
                                 const char *path, struct bn_json *file, bitnet_error *err)
{
    if (!bn_json_is_object(file))
        return bn_fail(err, BITNET_E_ARG, "%s does not hold a JSON object", path);
    const char *name;
    struct bn_json *v;
    bn_json_each_member(file, name, v)
    {
        if (bn_json_is_null(v)) continue;
        if (!bn_json_is_string(bn_json_at(v, 0))) {
            if (!bn_json_is_array(v) || bn_json_size(v))
                BN_TRY(set_member(s, config, parts, path, name, v, err));
            continue;
        }
        for (size_t i = 0; i < bn_json_size(v); i++)
            BN_TRY(set_member(s, config, parts, path, name, bn_json_at(v, i), err));
    }
    return BITNET_OK;
}

static bitnet_status read_file(struct settings *s, void *config, const struct opt_part *parts,
                               const char *path, bitnet_error *err)
{
    struct bn_json *file;
    BN_TRY(bn_json_read_file(&file, path, FILE_MAX_BYTES, err));
    bitnet_status status = set_members(s, config, parts, path, file, err);
    bn_json_free(file);
    return status;
}

/* ------------------------------------------------------------------ the environment */

static bitnet_status read_variable(void *config, const struct opt_part *parts, const char *entry,
                                   bitnet_error *err)
{
    char name[NAME_BYTES], source[NAME_BYTES];
    const char *from = entry + sizeof env_prefix - 1, *equals = strchr(entry, '=');
    size_t n = equals ? (size_t)(equals - from) : 0;
    if (!n || n >= sizeof name || !equals[1]) return BITNET_OK;
    for (size_t i = 0; i < n; i++) name[i] = (char)tolower((unsigned char)from[i]);
    name[n] = 0;
    if (strcmp(name, file_option) == 0) return BITNET_OK;
    snprintf(source, sizeof source, "%.*s", (int)(equals - entry), entry);
    bitnet_status status = BITNET_OK;
    if (!args_set(config, parts, name, source, equals + 1, &status, err)) {
        char note[2 * NAME_BYTES];
        snprintf(note, sizeof note, "the environment has %s, which is not an option", source);
        term_note(note);
    }
    return status;
}

bitnet_status settings_read(struct settings *s, void *config, const struct opt_part *parts,
                            char **argv, size_t argc, bitnet_error *err)
{
    const char *path = find_file(argv, argc);
    if (path) BN_TRY(read_file(s, config, parts, path, err));
    for (char **entry = environ; entry && *entry; entry++)
        if (strncmp(*entry, env_prefix, sizeof env_prefix - 1) == 0)
            BN_TRY(read_variable(config, parts, *entry, err));
    return BITNET_OK;
}

void settings_free(struct settings *s) { bn_arena_free(&s->texts); }

/* ------------------------------------------------------------------ shown */

static struct bn_json *value_json(const struct opt *o, const void *at)
{
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
        char text[NAME_BYTES];
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
    case OPT_END: break;
    }
    return NULL;
}

struct bn_json *settings_json(const void *config, const struct opt_part *parts)
{
    struct bn_json *all = bn_json_object();
    for (; all && parts->table; parts++)
        for (const struct opt *o = parts->table; o->kind != OPT_END; o++) {
            if (o->secret || strcmp(o->name, file_option) == 0 ||
                strcmp(o->name, print_option) == 0)
                continue;
            const char *base = (const char *)config + parts->offset;
            if (bn_json_set(all, o->name, value_json(o, base + o->offset))) continue;
            bn_json_free(all);
            return NULL;
        }
    return all;
}
