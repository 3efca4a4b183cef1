/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/name.h"

#include "hub/catalogue.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

enum { PART_MAX = 96 };

static const char registry[] = "registry.ollama.ai";

bool hub_is_hex(const char *s, size_t n)
{
    return strlen(s) == n && strspn(s, "0123456789abcdef") == n;
}

bool hub_path_is_safe(const char *path)
{
    if (!*path || *path == '/' || strlen(path) >= HUB_FILE_BYTES) return false;
    for (const char *p = path; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f || *p == '\\') return false;
    for (const char *part = path;; part++) {
        size_t n = strcspn(part, "/");
        if (n == 0 || (n == 1 && *part == '.') || (n == 2 && memcmp(part, "..", 2) == 0))
            return false;
        part += n;
        if (!*part) return true;
    }
}

/* What a hub takes for the name of a user or of a repository. */
static bool is_part(const char *s, size_t n)
{
    if (n == 0 || n > PART_MAX) return false;
    for (size_t i = 0; i < n; i++) {
        if (!isalnum((unsigned char)s[i]) && !strchr("._-", s[i])) return false;
        if (i && (s[i] == '.' || s[i] == '-') && s[i] == s[i - 1]) return false;
    }
    return !strchr(".-", s[0]) && !strchr(".-", s[n - 1]);
}

static bool is_tag(const char *s)
{
    size_t n = strlen(s);
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("._-", s[i])) return false;
    return n && n < HUB_TAG_BYTES;
}

static bool is_revision(const char *s)
{
    size_t n = strlen(s);
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("._-/+", s[i])) return false;
    return n && n < HUB_REVISION_BYTES && hub_path_is_safe(s);
}

/* Behind one of the words that say where a name lives; NULL: it has none of them. */
static const char *behind(const char *typed, const char *const *starts)
{
    for (; *starts; starts++)
        if (strncasecmp(typed, *starts, strlen(*starts)) == 0) return typed + strlen(*starts);
    return NULL;
}

static const char *behind_hub(const char *typed)
{
    static const char *const starts[] = {
        "hf://", "hf:", "hf.co/", "huggingface.co/", "https://hf.co/", "https://huggingface.co/",
        NULL};
    return behind(typed, starts);
}

static const char *behind_ollama(const char *typed)
{
    static const char *const starts[] = {"ollama://", "ollama:", NULL};
    return behind(typed, starts);
}

static const char *behind_web(const char *typed)
{
    static const char *const starts[] = {"https://", "http://", NULL};
    return behind(typed, starts);
}

static bool is_repo(const char *s, size_t n)
{
    const char *slash = memchr(s, '/', n);
    return slash
               ? is_part(s, (size_t)(slash - s)) && is_part(slash + 1, n - 1 - (size_t)(slash - s))
               : is_part(s, n);
}

enum hub_likeness hub_name_likeness(const char *typed)
{
    static const char *const files[] = {".gguf", ".safetensors", ".json", ".bin", ".txt", ".md"};
    if (behind_hub(typed) || behind_ollama(typed) || behind_web(typed) || hub_catalogue_find(typed))
        return HUB_SURE_NAME;
    size_t n = strcspn(typed, "@:");
    const char *slash = memchr(typed, '/', n);
    for (size_t i = 0; i < BN_ARRAY_LEN(files); i++)
        if (bn_ends_with(typed, files[i])) return HUB_NO_NAME;
    bool plain = slash && is_repo(typed, n) && !strchr(typed + n, '/') && !strpbrk(typed, " \t\n");
    return plain ? HUB_MAYBE_NAME : HUB_NO_NAME;
}

/* ------------------------------------------------------------------ the hub */

/* /blob/rev/file, /resolve/rev/file, /tree/rev: as a browser shows them. rest: behind org/name/ */
static const char *skip_view(struct hub_name *out, const char *rest)
{
    static const char *const views[] = {"blob/", "resolve/", "tree/", "raw/", NULL};
    const char *at = behind(rest, views);
    if (!at || out->revision[0]) return rest;
    size_t n = strcspn(at, "/?#");
    if (n == 0 || n >= sizeof out->revision) return rest;
    snprintf(out->revision, sizeof out->revision, "%.*s", (int)n, at);
    return at + n + (at[n] == '/');
}

static bitnet_status parse_file(struct hub_name *out, const char *typed, const char *rest,
                                bitnet_error *err)
{
    rest = skip_view(out, rest);
    snprintf(out->file, sizeof out->file, "%.*s", (int)strcspn(rest, "?#"), rest);
    size_t n = strlen(out->file);
    while (n && out->file[n - 1] == '/') out->file[--n] = 0;
    if (strlen(rest) >= HUB_FILE_BYTES || (n && !hub_path_is_safe(out->file)))
        return bn_fail(err, BITNET_E_ARG, "'%.200s' is not the path of a file in '%.100s'", rest,
                       typed);
    return BITNET_OK;
}

static bitnet_status parse_revision(struct hub_name *out, const char *typed, const char **at,
                                    bitnet_error *err)
{
    static const char pull_request[] = "refs/pr/";
    const char *from = *at + 1;
    size_t n =
        strncmp(from, pull_request, sizeof pull_request - 1) == 0 ? sizeof pull_request - 1 : 0;
    n += strcspn(from + n, "/:");
    snprintf(out->revision, sizeof out->revision, "%.*s", (int)n, from);
    *at = from + n;
    if (n >= sizeof out->revision || !is_revision(out->revision))
        return bn_fail(err, BITNET_E_ARG,
                       "'%.*s' is no revision of '%.100s'; behind @ stands a branch, a tag or a "
                       "commit",
                       (int)bn_min_size(n, 100), from, typed);
    return BITNET_OK;
}

static bitnet_status parse_repo(struct hub_name *out, const char *typed, const char *at,
                                bitnet_error *err)
{
    const char *slash = strpbrk(at, "/@:");
    size_t n = slash && *slash == '/' ? (size_t)(slash - at) + 1 + strcspn(slash + 1, "/@:?#")
                                      : strcspn(at, "@:?#");
    snprintf(out->repo, sizeof out->repo, "%.*s", (int)n, at);
    if (n >= sizeof out->repo || !is_repo(at, n))
        return bn_fail(err, BITNET_E_ARG,
                       "'%.200s' does not name a repository; a name is ORG/NAME, each of letters, "
                       "digits, '-', '_' and '.'",
                       typed);
    if (n > 4 && strncmp(at + n - 4, ".git", 4) == 0)
        return bn_fail(err, BITNET_E_ARG,
                       "the name of a repository does not end with .git: '%.200s'", typed);
    at += n;
    if (*at == '@') BN_TRY(parse_revision(out, typed, &at, err));
    if (*at == '/') return parse_file(out, typed, at + 1, err);
    if (*at == '?' || *at == '#') return BITNET_OK;
    if (*at != ':') return BITNET_OK;
    if (strpbrk(at + 1, "@")) /* org/name:TYPE@rev */
        return bn_fail(err, BITNET_E_ARG,
                       "in '%.200s' the revision stands behind the type; write ORG/NAME@REV:TYPE",
                       typed);
    if (!is_tag(at + 1))
        return bn_fail(
            err, BITNET_E_ARG,
            "'%.100s' in '%.200s' is no type of a file; behind ':' stands one like TQ2_0", at + 1,
            typed);
    snprintf(out->tag, sizeof out->tag, "%.*s", HUB_TAG_BYTES - 1, at + 1);
    return BITNET_OK;
}

/* ------------------------------------------------------------------ registries */

/* A first part with a point or a port is a host, as in names of containers. */
static bool is_host(const char *s, size_t n)
{
    bool marked = memchr(s, '.', n) || memchr(s, ':', n);
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr(".-:[]", s[i])) return false;
    return marked && n < HUB_HOST_BYTES;
}

static bitnet_status wrong_ollama(const char *typed, bitnet_error *err)
{
    return bn_fail(err, BITNET_E_ARG,
                   "'%.200s' is no name of a registry's model; one is ollama:MODEL[:TAG] or "
                   "ollama:NAMESPACE/MODEL[:TAG]",
                   typed);
}

static bitnet_status parse_ollama(struct hub_name *out, const char *typed, const char *at,
                                  bitnet_error *err)
{
    out->kind = HUB_OLLAMA;
    snprintf(out->host, sizeof out->host, "%s", registry);
    size_t n = strcspn(at, "/");
    if (at[n] == '/' && is_host(at, n)) {
        snprintf(out->host, sizeof out->host, "%.*s", (int)n, at);
        at += n + 1;
    }
    n = strcspn(at, ":");
    if (n == 0 || n >= sizeof out->repo - 8 || !is_repo(at, n)) return wrong_ollama(typed, err);
    snprintf(out->repo, sizeof out->repo, "%s%.*s", memchr(at, '/', n) ? "" : "library/", (int)n,
             at);
    const char *tag = at[n] == ':' ? at + n + 1 : "latest";
    if (!is_tag(tag)) return wrong_ollama(typed, err);
    snprintf(out->tag, sizeof out->tag, "%.*s", HUB_TAG_BYTES - 1, tag);
    return BITNET_OK;
}

/* ------------------------------------------------------------------ URLs */

/* Behind # a checksum may stand, which then is compared. */
static bitnet_status parse_url(struct hub_name *out, const char *typed, bitnet_error *err)
{
    static const char sum[] = "#sha256=";
    out->kind = HUB_URL;
    size_t n = strcspn(typed, "#");
    for (const char *p = typed; *p; p++)
        if ((unsigned char)*p <= ' ' || *p == 0x7f)
            return bn_fail(err, BITNET_E_ARG, "a URL has no spaces or control characters");
    if (n >= sizeof out->url)
        return bn_fail(err, BITNET_E_LIMIT, "the URL has more than %d bytes", HUB_URL_BYTES - 1);
    snprintf(out->url, sizeof out->url, "%.*s", (int)n, typed);
    const char *file = strrchr(behind_web(out->url), '/');
    if (!file || !file[1] || file[1] == '?')
        return bn_fail(err, BITNET_E_ARG, "the URL '%.300s' does not end with the name of a file",
                       typed);
    if (!typed[n]) return BITNET_OK;
    if (strncmp(typed + n, sum, sizeof sum - 1) != 0 || !hub_is_hex(typed + n + sizeof sum - 1, 64))
        return bn_fail(err, BITNET_E_ARG,
                       "behind # in a URL stands sha256= and 64 hexadecimal digits, not '%.100s'",
                       typed + n + 1);
    snprintf(out->sha256, sizeof out->sha256, "%s", typed + n + sizeof sum - 1);
    return BITNET_OK;
}

/* ------------------------------------------------------------------ all */

static bitnet_status unknown(const char *typed, bitnet_error *err)
{
    const char *near = hub_catalogue_suggest(typed);
    if (near)
        return bn_fail(err, BITNET_E_ARG, "there is no model named '%.200s'; did you mean '%s'?",
                       typed, near);
    return bn_fail(err, BITNET_E_ARG,
                   "there is no model named '%.200s'; 'bitnet list --known' shows the short names, "
                   "and ORG/NAME is any repository of the hub",
                   typed);
}

bitnet_status hub_name_parse(struct hub_name *out, const char *typed, bitnet_error *err)
{
    *out = (struct hub_name){.kind = HUB_REPO};
    if (strlen(typed) >= HUB_TYPED_BYTES)
        return bn_fail(err, BITNET_E_LIMIT, "the name has more than %d bytes", HUB_TYPED_BYTES - 1);
    const char *at;
    if ((out->known = hub_catalogue_find(typed))) {
        snprintf(out->repo, sizeof out->repo, "%s", out->known->repo);
        const char *pick = out->known->pick;
        if (*pick == ':') snprintf(out->tag, sizeof out->tag, "%s", pick + 1);
        else snprintf(out->file, sizeof out->file, "%s", pick);
        return BITNET_OK;
    }
    if ((at = behind_hub(typed))) return parse_repo(out, typed, at, err);
    if ((at = behind_ollama(typed))) return parse_ollama(out, typed, at, err);
    if (behind_web(typed)) return parse_url(out, typed, err);
    size_t n = strcspn(typed, "/");
    if (strstr(typed, "://"))
        return bn_fail(err, BITNET_E_ARG,
                       "'%.300s' is no address to download from; https://, hf: and ollama: are",
                       typed);
    if (strncmp(typed, registry, bn_max_size(n, 1)) == 0 && n == sizeof registry - 1)
        return parse_ollama(out, typed, typed, err);
    if (!typed[n]) return unknown(typed, err);
    return parse_repo(out, typed, typed, err);
}

void hub_name_text(char out[HUB_TYPED_BYTES], const struct hub_name *name)
{
    bool library = strncmp(name->repo, "library/", 8) == 0;
    if (name->known) snprintf(out, HUB_TYPED_BYTES, "%s", name->known->name);
    else if (name->kind == HUB_URL) snprintf(out, HUB_TYPED_BYTES, "%s", name->url);
    else if (name->kind == HUB_OLLAMA)
        snprintf(out, HUB_TYPED_BYTES, "ollama:%s%s%s:%s",
                 strcmp(name->host, registry) == 0 ? "" : name->host,
                 strcmp(name->host, registry) == 0 ? "" : "/", name->repo + (library ? 8 : 0),
                 name->tag);
    else {
        bool marked = name->file[0] || !strchr(name->repo, '/');
        snprintf(out, HUB_TYPED_BYTES, "%s%s%s%s%s%s%s%s", marked ? "hf:" : "", name->repo,
                 name->revision[0] ? "@" : "", name->revision, name->tag[0] ? ":" : "", name->tag,
                 name->file[0] ? "/" : "", name->file);
    }
}
