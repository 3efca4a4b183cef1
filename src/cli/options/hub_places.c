/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/options/hub_places.h"

#include "base/os/file.h"
#include "cli/core/args.h"
#include "cli/options/model_opts.h"
#include "hub/tree.h"
#include "app/config/folders.h"
#include "app/term.h"
#include <ctype.h>
#include <stdlib.h>

enum { CONNECTIONS = 4 };

static const char *value_of(const char *name)
{
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

static const char *first_of(const char *const *names)
{
    const char *v = NULL;
    for (; *names && !v; names++) v = value_of(*names);
    return v;
}

static bool is_set(const char *name)
{
    static const char *const on[] = {"1", "on", "yes", "true"};
    const char *v = value_of(name);
    for (size_t i = 0; v && i < BN_ARRAY_LEN(on); i++)
        if (strcasecmp(v, on[i]) == 0) return true;
    return false;
}

/* ~ is the home folder, as in other clients. */
static bool expand(char out[HUB_PATH_BYTES], const char *path)
{
    const char *home = value_of("HOME");
    if (path[0] == '~' && (path[1] == '/' || !path[1]) && home)
        return hub_path(out, "%s%s", home, path + 1);
    return hub_path(out, "%s", path);
}

/* The folder of the hub's clients: the cache and the token lie in it. */
static bool hub_home(char out[HUB_PATH_BYTES])
{
    const char *home = value_of("HF_HOME"), *xdg = value_of("XDG_CACHE_HOME");
    if (home) return expand(out, home);
    if (xdg) return hub_path(out, "%s/huggingface", xdg);
    return value_of("HOME") && hub_path(out, "%s/.cache/huggingface", value_of("HOME"));
}

static void read_cache(struct hub_places *p)
{
    static const char *const names[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", NULL};
    const char *typed = first_of(names);
    char home[HUB_PATH_BYTES];
    bool good =
        typed ? expand(p->cache, typed) : hub_home(home) && hub_path(p->cache, "%s/hub", home);
    if (!good) p->cache[0] = 0;
}

/* A store of the user's own, else that of Ollama running as a service, which can only be read. */
static void read_ollama(struct hub_places *p)
{
    static const char service[] = "/usr/share/ollama/.ollama/models";
    const char *typed = value_of("OLLAMA_MODELS"), *home = value_of("HOME");
    bool good =
        typed ? expand(p->ollama, typed) : home && hub_path(p->ollama, "%s/.ollama/models", home);
    if (!good) p->ollama[0] = 0;
    if (!typed && !bn_is_folder(p->ollama) && bn_is_folder(service))
        snprintf(p->ollama, sizeof p->ollama, "%s", service);
}

/* The first line of the token's file, or the variable. Control characters would end the header. */
static void read_token(struct hub_places *p)
{
    static const char *const names[] = {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", NULL};
    const char *typed = first_of(names), *file = value_of("HF_TOKEN_PATH");
    char home[HUB_PATH_BYTES], path[HUB_PATH_BYTES], *text = NULL;
    size_t n;
    if (is_set("HF_HUB_DISABLE_IMPLICIT_TOKEN") && !typed) return;
    bool there = file ? expand(path, file) : hub_home(home) && hub_path(path, "%s/token", home);
    if (!typed && there && bn_read_file(&text, &n, path, HUB_TOKEN_BYTES, NULL) == BITNET_OK)
        typed = text;
    while (typed && isspace((unsigned char)*typed)) typed++;
    n = typed ? strcspn(typed, "\r\n \t") : 0;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)typed[i] < ' ' || (unsigned char)typed[i] >= 0x7f) n = 0;
    if (n && n < sizeof p->token) snprintf(p->token, sizeof p->token, "%.*s", (int)n, typed);
    free(text);
}

static void copy(char *out, size_t n, const char *const *names)
{
    const char *v = first_of(names);
    if (v && strlen(v) < n) snprintf(out, n, "%s", v);
}

static double seconds(const char *name, double usual)
{
    const char *v = value_of(name);
    double s;
    return v && args_double(&s, v) && s > 0 && s < 86400 ? s : usual;
}

int hub_places_new(struct hub_places **out)
{
    static const char *const http[] = {"http_proxy", "all_proxy", "ALL_PROXY", NULL},
                             *const https[] = {"https_proxy", "HTTPS_PROXY", "all_proxy",
                                               "ALL_PROXY", NULL},
                             *const none[] = {"no_proxy", "NO_PROXY", NULL},
                             *const ca[] = {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
                                            NULL},
                             *const endpoint[] = {"HF_ENDPOINT", NULL};
    struct hub_places *p = *out = calloc(1, sizeof *p);
    if (!p) return term_fail_text("out of memory");
    p->connections = CONNECTIONS;
    read_cache(p);
    read_ollama(p);
    read_token(p);
    snprintf(p->endpoint, sizeof p->endpoint, "https://huggingface.co");
    copy(p->endpoint, sizeof p->endpoint, endpoint);
    for (size_t n = strlen(p->endpoint); n && p->endpoint[n - 1] == '/';) p->endpoint[--n] = 0;
    copy(p->http_proxy, sizeof p->http_proxy, http);
    copy(p->https_proxy, sizeof p->https_proxy, https);
    copy(p->no_proxy, sizeof p->no_proxy, none);
    copy(p->ca_file, sizeof p->ca_file, ca);
    p->offline = is_set("HF_HUB_OFFLINE") || is_set("TRANSFORMERS_OFFLINE");
    p->etag_timeout_s = seconds("HF_HUB_ETAG_TIMEOUT", 10);
    p->download_timeout_s = seconds("HF_HUB_DOWNLOAD_TIMEOUT", 10);
    char data[HUB_PATH_BYTES];
    if (user_folder(data, sizeof data, "XDG_DATA_HOME", ".local/share") &&
        !hub_path(p->files, "%s/models", data))
        p->files[0] = 0;
    if (p->cache[0] || p->ollama[0]) return EXIT_DONE;
    free(p);
    *out = NULL;
    return term_fail_text("there is no folder for models: set HOME, HF_HOME or HF_HUB_CACHE");
}
